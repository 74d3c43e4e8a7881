//! `identity = "jwt"` on the real server: tokens in each permitted part of a handshake, forged tokens, key rotation, and
//! sessions that expire with their token.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::asked::{Asked, answer};
use crate::support::http::Response;
use crate::support::metrics::Metrics;
use crate::support::{Http, Options, Seen, Server, Setup, Socket, call, on_all, until};

pub(super) const SECRET: &str = "the secret of the test, which is long enough";

const PUSH: &str = "
[[route]]
path = \"/jwt\"
handler = \"push\"
identity = \"jwt\"
";

const SHARED: &str = "
[jwt]
secret_file = \"secret\"
token = [\"bearer\", \"protocol\", \"query:token\", \"cookie:session\"]
";

pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[expect(clippy::disallowed_methods, reason = "tokens hold by the wall clock")]
pub(super) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

pub(super) fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let (header, claims) = (encode(header.to_string()), encode(claims.to_string()));
    let message = format!("{header}.{claims}");
    let signature = encode(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

pub(super) fn hs256(secret: &[u8]) -> impl FnOnce(&[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    move |message| hmac::sign(&key, message).as_ref().to_vec()
}

pub(super) fn shared(claims: &Value) -> String {
    token(&json!({"alg": "HS256"}), claims, hs256(SECRET.as_bytes()))
}

pub(super) fn claims(user: &str) -> Value {
    json!({"sub": user, "exp": now_s() + 600})
}

/// Returns the response to a handshake with these header lines.
pub(super) fn handshake(address: SocketAddr, target: &str, headers: &str) -> Response {
    let mut http = Http::connect(address);
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    http.raw(request.as_bytes()).expect("the server reads");
    let mut response = http.head().expect("an answer");
    if response.status != 101 {
        let rest = response.header("content-length").map(str::to_owned);
        let length = rest.map_or(0, |length| length.parse().expect("a number"));
        response.body = http.bytes(length).expect("a body");
    }
    response
}

pub(super) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

pub(super) fn status(server: &Server, token: &str) -> u16 {
    handshake(server.public, "/jwt", &bearer(token)).status
}

pub(super) fn count(server: &Server, name: &str, label: &str) -> f64 {
    let labels: &[&str] = if label.is_empty() { &[] } else { &[label] };
    Metrics::scrape(server.internal).sum(name, labels)
}

pub(super) fn start(setup: Setup, jwt: &str, files: &[(&str, &str)]) -> Server {
    Server::serving(setup, &format!("{PUSH}{jwt}"), files)
}

#[test]
fn a_token_identifies_the_client_in_every_accepted_place() {
    on_all(|setup| {
        let server = start(setup, SHARED, &[("secret", &format!("{SECRET}\n"))]);
        let ann = shared(&claims("ann"));
        let open = |target: &str, headers: &[(&str, &str)]| {
            let socket = TcpStream::connect(server.public).expect("a connection");
            Socket::upgrade(socket, target, headers).expect("it opens")
        };
        let mut sockets = [
            open("/jwt", &[("Authorization", &format!("bearer  {ann}"))]),
            open(&format!("/jwt?token={ann}"), &[]),
            open("/jwt", &[("Cookie", &format!("a=b; session={ann}"))]),
        ];
        call(
            server.internal,
            "push",
            &json!({"user": "ann", "data": "hello"}),
        );
        for socket in &mut sockets {
            assert_eq!(socket.text(), "hello");
        }
        // The server never selects a subprotocol that contains a token; it selects another one if
        // the client offers any.
        for (offered, chosen) in [
            (format!("chat, bearer.{ann}"), Some("chat")),
            (format!("bearer.{ann}, chat, more"), Some("chat")),
            (format!("bearer.{ann}"), None),
        ] {
            let line = format!("Sec-WebSocket-Protocol: {offered}\r\n");
            let response = handshake(server.public, "/jwt", &line);
            assert_eq!(response.status, 101, "{response:?}");
            assert_eq!(response.header("sec-websocket-protocol"), chosen);
            assert!(!response.head.contains(&ann));
        }
        // If a handshake has several tokens, only one is verified. A token in the header precedes a token in the
        // query.
        let response = handshake(server.public, &format!("/jwt?token={ann}"), &bearer("none"));
        assert_eq!(response.status, 401);
        let response = handshake(server.public, "/jwt", "");
        assert_eq!((response.status, response.text()), (401, "no token\n"));
        assert_eq!(response.header("www-authenticate"), Some("Bearer"));
        assert!(!server.log().contains(&ann));
    });
}

/// An RSA key pair in `folder`. `openssl` creates the pair, and signs with it.
pub(super) struct Rsa<'f> {
    pub(super) folder: &'f Path,
}

impl Rsa<'_> {
    pub(super) fn new(folder: &Path) -> Rsa<'_> {
        let rsa = Rsa { folder };
        rsa.openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out private.pem");
        rsa.openssl("pkey -in private.pem -pubout -out public.pem");
        rsa
    }

    pub(super) fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(self.folder);
        let output = command.output().expect("openssl is there");
        assert!(output.status.success(), "{output:?}");
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        std::fs::write(self.folder.join("message"), message).expect("written");
        self.openssl("dgst -sha256 -sign private.pem -out signature message");
        std::fs::read(self.folder.join("signature")).expect("a signature")
    }
}

#[test]
fn forged_tokens_get_401_and_their_reason_is_counted() {
    on_all(|setup| {
        let options = Options {
            routes: &format!(
                "{PUSH}[jwt]\nkey_file = \"public.pem\"\nissuer = [\"https://a.example\"]\n\
                 audience = [\"chat\"]\nleeway = \"0s\"\n"
            ),
            ..Options::default()
        };
        let server = Server::prepared(setup, &options, |folder| {
            Rsa::new(folder);
        });
        let rsa = Rsa {
            folder: &server.folder,
        };
        let public = std::fs::read(server.folder.join("public.pem")).expect("a key");
        let good = json!({
            "sub": "ann", "exp": now_s() + 600, "iss": "https://a.example", "aud": ["chat"],
        });
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            claims
        };
        let header = json!({"alg": "RS256", "typ": "JWT"});
        let signed = |claims: &Value| token(&header, claims, |message| rsa.sign(message));
        let honest = signed(&good);
        let mut endless = good.clone();
        endless.as_object_mut().expect("claims").remove("exp");
        assert_eq!(status(&server, &honest), 101);
        let (message, signature) = honest.rsplit_once('.').expect("three parts");
        let other_user = encode(with("sub", "root".into()).to_string());
        let head = message.split_once('.').expect("three parts").0;
        let forged = [
            ("malformed", "a.b.c".to_owned()),
            ("malformed", message.to_owned()),
            (
                "algorithm",
                token(&json!({"alg": "none"}), &good, |_| Vec::new()),
            ),
            // Tokens signed with the public key as an HMAC secret.
            (
                "algorithm",
                token(&json!({"alg": "HS256"}), &good, hs256(&public)),
            ),
            (
                "algorithm",
                token(&json!({"alg": "HS256"}), &good, hs256(public.trim_ascii())),
            ),
            (
                "algorithm",
                token(&json!({"alg": "ES256"}), &good, |message| rsa.sign(message)),
            ),
            // A token signed with the right key, but not with the digest that its header states.
            (
                "signature",
                token(&json!({"alg": "RS512"}), &good, |message| rsa.sign(message)),
            ),
            ("signature", format!("{head}.{other_user}.{signature}")),
            ("signature", token(&header, &good, |_| vec![0; 256])),
            ("expired", signed(&with("exp", (now_s() - 1).into()))),
            ("not_yet", signed(&with("nbf", (now_s() + 300).into()))),
            ("no_expiry", signed(&endless)),
            ("issuer", signed(&with("iss", "https://b.example".into()))),
            ("audience", signed(&with("aud", "shop".into()))),
            ("no_user", signed(&with("sub", json!({})))),
            ("claim", signed(&with("jti", json!(7)))),
            ("claim", signed(&with("expire_at", json!(-1)))),
        ];
        for (reason, token) in &forged {
            let label = format!("reason=\"{reason}\"");
            let before = count(&server, "veche_tokens_refused_total", &label);
            let response = handshake(server.public, "/jwt", &bearer(token));
            assert_eq!(response.status, 401, "{reason}: {response:?}");
            let challenge = response.header("www-authenticate");
            assert_eq!(challenge, Some("Bearer error=\"invalid_token\""));
            let after = count(&server, "veche_tokens_refused_total", &label);
            assert_eq!(after, before + 1.0, "{reason}");
        }
        until("a word of it in the log", || {
            server.log().contains("the token is refused: wrong issuer")
        });
        let log = server.log();
        for (_, token) in &forged {
            let secret = token.rsplit('.').next().expect("a part");
            assert!(secret.len() < 8 || !log.contains(secret));
        }
        let outcome = "outcome=\"unidentified\"";
        assert!(count(&server, "veche_handshakes_total", outcome) >= forged.len() as f64);
    });
}

/// The key with which an issuer signs tokens.
struct Signer {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("it is one");
        Self { id, pair }
    }

    fn set(&self) -> String {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        let key = json!({"kty": "EC", "crv": "P-256", "kid": self.id, "x": x, "y": y});
        json!({"keys": [key]}).to_string()
    }

    fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": self.id});
        token(&header, claims, |message| {
            let signature = self.pair.sign(&SystemRandom::new(), message);
            signature.expect("it signs").as_ref().to_vec()
        })
    }
}

#[test]
fn an_issuer_changes_its_keys_and_may_be_away() {
    on_all(|setup| {
        let (old, new, unknown) = (Signer::new("1"), Signer::new("2"), Signer::new("3"));
        let set = old.set();
        let issuer = Asked::new(move |_| answer(200, "", &set));
        let jwt = format!("[jwt]\njwks = \"http://{}/keys\"\n", issuer.address);
        let server = start(setup, &jwt, &[]);
        // Even the first handshake succeeds, because it waits for keys that have not arrived yet.
        assert_eq!(status(&server, &old.token(&claims("ann"))), 101);
        assert!(issuer.heads()[0].starts_with("GET /keys HTTP/1.1\r\n"));
        until("the set to be counted", || {
            count(&server, "veche_jwks_refreshes_total", "outcome=\"fetched\"") == 1.0
        });

        // A token with the new key triggers a refresh, after which the old key is no longer
        // accepted.
        let set = new.set();
        issuer.set_answer(move |_| answer(200, "", &set));
        assert_eq!(status(&server, &new.token(&claims("ann"))), 101);
        assert_eq!(issuer.count(), 2);
        assert_eq!(status(&server, &old.token(&claims("ann"))), 401);

        // Invented key ids cause no flood of requests.
        for _ in 0..50 {
            assert_eq!(status(&server, &unknown.token(&claims("eve"))), 401);
        }
        assert_eq!(issuer.count(), 2);
        let refused = count(
            &server,
            "veche_tokens_refused_total",
            "reason=\"unknown_key\"",
        );
        assert_eq!(refused, 51.0);

        // While the issuer fails, tokens of known keys are accepted, also after a reload.
        issuer.set_answer(|_| answer(500, "", ""));
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        assert_eq!(status(&server, &new.token(&claims("ann"))), 101);
        assert_eq!(count(&server, "veche_jwt_keys", ""), 1.0);
        assert_eq!(issuer.count(), 2);
    });
}

/// Returns the replies to a connect command with that token and to a second command.
fn connect(server: &Server, token: &str) -> (Value, Value) {
    let mut socket = Socket::open(server.public, "/centrifuge");
    let connect = json!({"id": 1, "connect": {"token": token}});
    socket.say(&format!("{connect}\n{}", json!({"id": 2, "ping": {}})));
    let mut text = socket.text();
    if !text.contains('\n') {
        text = format!("{text}\n{}", socket.text());
    }
    let mut lines = text
        .split('\n')
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let mut next = || lines.next().expect("an answer");
    (next(), next())
}

#[test]
fn a_connect_command_waits_for_the_keys_of_its_token() {
    on_all(|setup| {
        let (old, new) = (Signer::new("1"), Signer::new("2"));
        let set = old.set();
        let issuer = Asked::new(move |_| answer(200, "", &set));
        let config = format!(
            "[[route]]\npath = \"/centrifuge\"\nhandler = \"centrifuge\"\nidentity = \"jwt\"\n\
             [jwt]\njwks = \"http://{}/keys\"\n",
            issuer.address
        );
        let server = start(setup, &config, &[]);
        for signer in [&old, &new] {
            let set = signer.set();
            issuer.set_answer(move |_| answer(200, "", &set));
            let (connected, pong) = connect(&server, &signer.token(&claims("ann")));
            assert_eq!(
                connected["connect"]["subs"],
                json!({"#ann": {}}),
                "{connected}"
            );
            assert_eq!(pong, json!({"id": 2, "ping": {}}));
        }
        assert_eq!(issuer.count(), 2);
        let mut socket = Socket::open(server.public, "/centrifuge");
        let unknown = Signer::new("3").token(&claims("eve"));
        socket.say(&json!({"id": 1, "connect": {"token": unknown}}).to_string());
        assert_eq!(socket.closed(), 3500);
    });
}

#[test]
fn without_keys_clients_are_rejected_until_keys_arrive() {
    on_all(|setup| {
        let signer = Signer::new("1");
        let issuer = Asked::new(|_| answer(200, "", "{\"keys\": []}"));
        let jwt = format!("[jwt]\njwks = \"http://{}/keys\"\n", issuer.address);
        let server = start(setup, &jwt, &[]);
        until("the set to be refused", || {
            count(&server, "veche_jwks_refreshes_total", "outcome=\"failed\"") == 1.0
        });
        let set = signer.set();
        issuer.set_answer(move |_| answer(200, "", &set));
        // The next token triggers a refresh and waits for it.
        let token = signer.token(&claims("ann"));
        assert_eq!(status(&server, &token), 101);
        until("a word of it in the log", || {
            server.log().contains("no tokens can be verified")
        });
    });
}

#[test]
fn a_new_secret_is_taken_at_a_reload() {
    on_all(|setup| {
        let strict = format!("{SHARED}short_secret = \"refuse\"\n");
        let server = start(setup, &strict, &[("secret", SECRET)]);
        let ann = shared(&claims("ann"));
        assert_eq!(status(&server, &ann), 101);
        std::fs::write(server.folder.join("secret"), "short").expect("written");
        let refused = server.ask("reload").expect("an answer");
        assert_eq!(refused["ok"], false, "{refused}");
        assert!(
            refused
                .to_string()
                .contains("less than 32 bytes can be guessed"),
            "{refused}"
        );
        assert_eq!(status(&server, &ann), 101);
        let secret = "another secret, which is just as long as it";
        std::fs::write(server.folder.join("secret"), secret).expect("written");
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        until("the old secret to be forgotten", || {
            status(&server, &ann) == 401
        });
        let header = json!({"alg": "HS256"});
        let bob = token(&header, &claims("bob"), hs256(secret.as_bytes()));
        assert_eq!(status(&server, &bob), 101);
    });
}

const LUA: &str = "
[[route]]
path = \"/lua/*\"
handler = \"lua\"
script = \"app.lua\"
identity = \"jwt\"
[[route]]
path = \"/plain\"
handler = \"lua\"
script = \"app.lua\"
identity = \"query:user\"
[jwt]
secret_file = \"secret\"
leeway = \"0s\"
";

const APP: &str = r#"
local app = {}
function app.open(conn) conn:send("user " .. conn.user) end
function app.message(conn, data)
  local left, why = conn:renew(data)
  conn:send(left and (left > 300 and "renewed" or "soon over") or why)
end
function app.close(conn, code, reason) print("closed " .. conn.id .. " " .. code .. " " .. reason) end
function app.request(req) return req.user or "nobody" end
return app
"#;

#[test]
fn a_session_lasts_until_expire_at_of_its_token() {
    on_all(|setup| {
        let server = start(setup, SHARED, &[("secret", SECRET)]);
        let open = |exp_s: u64, expire_at: u64| {
            let token = json!({"sub": "ann", "exp": exp_s, "expire_at": expire_at});
            let target = format!("/jwt?token={}", shared(&token));
            Socket::open(server.public, &target)
        };
        let now_s = now_s();
        // The leeway of 30 seconds applies to tokens only.
        let mut brief = open(now_s + 3600, now_s + 2);
        let mut endless = open(now_s + 1, 0);
        assert_eq!(
            brief.next(),
            Seen::Close(Some(3005), "connection expired".to_owned())
        );
        assert!(endless.is_alive());
    });
}

#[test]
fn a_session_ends_with_its_token_unless_that_is_renewed() {
    on_all(|setup| {
        let files = [("secret", SECRET), ("app.lua", APP)];
        let server = Server::serving(setup, &format!("{PUSH}{LUA}"), &files);
        let brief = |user: &str| shared(&json!({"sub": user, "exp": now_s() + 2}));
        let open = |path: &str, token: &str| {
            let socket = TcpStream::connect(server.public).expect("a connection");
            let value = format!("Bearer {token}");
            Socket::upgrade(socket, path, &[("Authorization", &value)]).expect("it opens")
        };
        let ann = brief("ann");
        let mut renewed = open("/lua/a", &ann);
        assert_eq!(renewed.text(), "user ann");
        for (token, why) in [
            (shared(&claims("bob")), "the token belongs to another user"),
            ("nonsense".to_owned(), "the token is refused: malformed"),
            (
                shared(&json!({"sub": "ann", "exp": now_s() - 1})),
                "the token is refused: expired",
            ),
            (shared(&claims("ann")), "renewed"),
        ] {
            renewed.say(&token);
            assert_eq!(renewed.text(), why);
        }
        // Connections whose tokens are not renewed are closed.
        let mut pushed = open("/jwt", &brief("ann"));
        let mut ending = open("/lua/b", &brief("ann"));
        assert_eq!(ending.text(), "user ann");
        assert_eq!(
            ending.next(),
            Seen::Close(Some(3005), "connection expired".to_owned())
        );
        assert_eq!(pushed.closed(), 3005);
        // The renewed session stays open, although its first token expired before the tokens of the
        // closed sessions.
        assert!(renewed.is_alive());
        until("the application to be told", || {
            server.log().contains("3005 connection expired")
        });
        assert_eq!(count(&server, "veche_tokens_expired_total", ""), 2.0);
        assert_eq!(count(&server, "veche_tokens_renewed_total", ""), 1.0);

        // A plain request has a user if its token is valid, and none otherwise.
        let mut http = Http::connect(server.public);
        let ask = |http: &mut Http, headers: &str, body: &[u8]| {
            let response = http.request("POST", "/lua/x", headers, body);
            response.expect("an answer").text().to_owned()
        };
        let ann = shared(&claims("ann"));
        assert_eq!(ask(&mut http, &bearer(&ann), b""), "ann");
        assert_eq!(ask(&mut http, &bearer(&ann), b"with a body"), "ann");
        assert_eq!(ask(&mut http, &bearer("none"), b""), "nobody");

        // A connection opened without a token can't be refreshed.
        let mut plain = Socket::open(server.public, "/plain?user=ann");
        assert_eq!(plain.text(), "user ann");
        plain.say(&ann);
        assert_eq!(plain.text(), "the connection was not opened with a token");
        assert!(!server.log().contains(&ann));
    });
}
