//! Tests tokens in all forms that Centrifugo accepts: short secrets and their rotation, other digests and curves, separate
//! subscription keys, tokens without expiry, any audience, and clients without a user or a token.

use std::fs;

use ring::hmac;
use serde_json::{Value, json};

use super::jwt::{Rsa, bearer, claims, encode, handshake, hs256, now_s, start, status, token};
use crate::support::{Options, Server, Socket, on_all, until};

const SHORT: &str = "secret";

fn signed(secret: &str, claims: &Value) -> String {
    token(&json!({"alg": "HS256"}), claims, hs256(secret.as_bytes()))
}

fn reload(server: &Server) -> Value {
    server.ask("reload").expect("an answer")
}

#[test]
fn a_short_secret_is_warned_of_and_checks_each_digest() {
    on_all(|setup| {
        let server = start(
            setup,
            "[jwt]\nsecret_file = \"secret\"\n",
            &[("secret", SHORT)],
        );
        until("a warning in the log", || {
            server.log().contains(
                "secret_file: the secret has 6 bytes; secrets of less than 32 bytes can be guessed",
            )
        });
        for (algorithm, name) in [
            (hmac::HMAC_SHA256, "HS256"),
            (hmac::HMAC_SHA384, "HS384"),
            (hmac::HMAC_SHA512, "HS512"),
        ] {
            let key = hmac::Key::new(algorithm, SHORT.as_bytes());
            let sign = |message: &[u8]| hmac::sign(&key, message).as_ref().to_vec();
            let good = token(&json!({"alg": name}), &claims("ann"), sign);
            assert_eq!(status(&server, &good), 101, "{name}");
            let other = token(&json!({"alg": name}), &claims("ann"), hs256(b"another"));
            assert_eq!(status(&server, &other), 401, "{name}");
        }
    });
}

#[test]
fn a_secret_is_changed_without_a_gap() {
    on_all(|setup| {
        let config = "[jwt]\nsecret_file = \"new\"\nprevious_secret_file = \"old\"\n";
        let until_s = now_s() + 3600;
        let config = format!("{config}previous_secret_until = {until_s}\n");
        let server = start(setup, &config, &[("new", "new"), ("old", "old")]);
        for (secret, expected) in [("new", 101), ("old", 101), ("older", 401)] {
            let status = status(&server, &signed(secret, &claims("ann")));
            assert_eq!(status, expected, "{secret}");
        }
        // Moves the configured end of the old secret's validity into the past.
        let file = server.folder.join("veche.toml");
        let text = fs::read_to_string(&file).expect("a file");
        let over = text.replace(&until_s.to_string(), &(now_s() - 1).to_string());
        fs::write(&file, over).expect("written");
        assert_eq!(reload(&server)["ok"], true);
        until("the old secret to count no more", || {
            status(&server, &signed("old", &claims("ann"))) == 401
        });
        assert_eq!(status(&server, &signed("new", &claims("ann"))), 101);
    });
}

/// Converts an ECDSA signature from DER to its two fixed-length numbers.
fn plain(der: &[u8], bytes: usize) -> Vec<u8> {
    let mut rest = match der[1] {
        0x81 => &der[3..],
        _ => &der[2..],
    };
    let mut both = Vec::new();
    for _ in 0..2 {
        let (number, behind) = rest[2..].split_at(usize::from(rest[1]));
        let number = &number[number.len().saturating_sub(bytes)..];
        both.extend(std::iter::repeat_n(0, bytes - number.len()));
        both.extend_from_slice(number);
        rest = behind;
    }
    both
}

#[test]
fn public_keys_check_longer_digests() {
    on_all(|setup| {
        let options = Options {
            routes: "[[route]]\npath = \"/jwt\"\nhandler = \"push\"\nidentity = \"jwt\"\n\
                     [jwt]\nkey_file = \"all.pem\"\n",
            ..Options::default()
        };
        let server = Server::prepared(setup, &options, |folder| {
            let tool = Rsa::new(folder);
            for curve in ["secp384r1", "secp521r1"] {
                tool.openssl(&format!(
                    "ecparam -name {curve} -genkey -noout -out {curve}.pem"
                ));
                tool.openssl(&format!("pkey -in {curve}.pem -pubout -out {curve}.pub"));
            }
            let all = ["public.pem", "secp384r1.pub", "secp521r1.pub"];
            let all = all.map(|name| fs::read_to_string(folder.join(name)).expect("a key"));
            fs::write(folder.join("all.pem"), all.concat()).expect("written");
        });
        let folder = &server.folder;
        let sign = |message: &[u8], digest: &str, key: &str| {
            fs::write(folder.join("message"), message).expect("written");
            let line = format!("dgst -{digest} -sign {key} -out signature message");
            Rsa { folder }.openssl(&line);
            fs::read(folder.join("signature")).expect("a signature")
        };
        for (name, digest, key, number) in [
            ("RS384", "sha384", "private.pem", None),
            ("RS512", "sha512", "private.pem", None),
            ("ES384", "sha384", "secp384r1.pem", Some(48)),
            ("ES512", "sha512", "secp521r1.pem", Some(66)),
        ] {
            let good = token(&json!({"alg": name}), &claims("ann"), |message| {
                let signature = sign(message, digest, key);
                number.map_or(signature.clone(), |bytes| plain(&signature, bytes))
            });
            assert_eq!(status(&server, &good), 101, "{name}");
            let (message, signature) = good.rsplit_once('.').expect("three parts");
            let (header, _) = message.split_once('.').expect("three parts");
            let other = encode(claims("root").to_string());
            assert_eq!(
                status(&server, &format!("{header}.{other}.{signature}")),
                401,
                "{name}"
            );
        }
    });
}

/// Returns the reply to a command.
fn ask(socket: &mut Socket, command: &Value) -> Value {
    socket.say(&command.to_string());
    serde_json::from_str(&socket.text()).expect("JSON")
}

const CLIENTS: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"jwt\"\nanonymous = \"all\"\n\
    [[namespace]]\nname = \"chat\"\nsubscribe = \"token\"\n";

#[test]
fn subscription_tokens_may_have_keys_of_their_own() {
    on_all(|setup| {
        let config = format!(
            "{CLIENTS}[jwt]\nsecret_file = \"one\"\nrequire_exp = false\n\
             [subscription_jwt]\nsecret_file = \"two\"\nrequire_exp = false\nissuer = [\"rooms\"]\n"
        );
        let server = start(setup, &config, &[("one", "one"), ("two", "two")]);
        let mut socket = Socket::open(server.public, "/c");
        // The subscription never expires, and neither does the connection.
        let ann = signed("one", &json!({"sub": "ann"}));
        let reply = ask(&mut socket, &json!({"id": 1, "connect": {"token": ann}}));
        assert_eq!(reply["connect"]["subs"], json!({"#ann": {}}), "{reply}");
        assert_eq!(reply["connect"]["ttl"], Value::Null);
        let room = json!({"sub": "ann", "channel": "chat:1", "iss": "rooms"});
        for (secret, claims, expected) in [
            ("one", &room, json!(103)),
            (
                "two",
                &json!({"sub": "ann", "channel": "chat:1"}),
                json!(103),
            ),
            ("two", &room, Value::Null),
        ] {
            let request = json!({"channel": "chat:1", "token": signed(secret, claims)});
            let reply = ask(&mut socket, &json!({"id": 2, "subscribe": request}));
            assert_eq!(reply["error"]["code"], expected, "{reply}");
        }
        // The key for subscription tokens is not accepted for connection tokens.
        let mut socket = Socket::open(server.public, "/c");
        let forged = signed("two", &json!({"sub": "ann", "iss": "rooms"}));
        socket.say(&json!({"id": 1, "connect": {"token": forged}}).to_string());
        assert_eq!(socket.closed(), 3500);
    });
}

#[test]
fn clients_may_have_no_user_and_tokens_any_audience_and_no_expiry() {
    on_all(|setup| {
        let push = "[[route]]\npath = \"/guests\"\nhandler = \"push\"\nidentity = \"jwt\"\n\
                    anonymous = \"token\"\nchannels = [\"news\"]\n";
        let config =
            format!("{CLIENTS}{push}[jwt]\nsecret_file = \"secret\"\nrequire_exp = false\n");
        let server = start(setup, &config, &[("secret", SHORT)]);
        for connect in [
            json!({}),
            json!({"token": signed(SHORT, &json!({"exp": now_s() + 60}))}),
            json!({"token": signed(SHORT, &json!({"sub": ""}))}),
        ] {
            let mut socket = Socket::open(server.public, "/c");
            let reply = ask(&mut socket, &json!({"id": 1, "connect": connect}));
            assert_eq!(reply["connect"]["subs"], Value::Null, "{reply}");
            assert_ne!(reply["connect"]["client"], Value::Null, "{reply}");
        }
        let at = |path: &str, token: &str| {
            let header = if token.is_empty() {
                String::new()
            } else {
                bearer(token)
            };
            handshake(server.public, path, &header).status
        };
        let guest = signed(SHORT, &json!({"exp": now_s() + 60}));
        assert_eq!(
            [at("/guests", &guest), at("/guests", ""), at("/jwt", &guest)],
            [101, 401, 401]
        );
        for aud in [json!("shop"), json!(["shop", "chat"])] {
            assert_eq!(
                at("/jwt", &signed(SHORT, &json!({"sub": "ann", "aud": aud}))),
                101
            );
        }
        let wrong = signed(SHORT, &json!({"sub": "ann", "aud": 7}));
        assert_eq!(at("/jwt", &wrong), 401);
    });
}
