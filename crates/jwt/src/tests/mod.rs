//! Tests with the examples of the RFCs, with tokens signed by generated keys, and with attacks.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use ring::{digest, hmac};
use serde_json::{Value, json};

use crate::verify::payload;
use crate::{
    ClaimRules, Claims, KEYS_MAX, KeyError, Keys, TOKEN_BYTES_MAX, TokenError, verify, verify_open,
};

mod families;
mod rfc;

const SECRET: &[u8] = b"a secret that is long enough for it";
const NOW_S: u64 = 1_700_000_000;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns a token with this header and these claims, signed by `sign`.
fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let message = format!(
        "{}.{}",
        encode(header.to_string()),
        encode(claims.to_string())
    );
    let signature = encode(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn hs256(secret: &[u8], message: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::sign(&key, message).as_ref().to_vec()
}

fn shared(claims: &Value) -> String {
    let header = json!({"alg": "HS256", "typ": "JWT"});
    token(&header, claims, |message| hs256(SECRET, message))
}

fn verify_claims(claims: &Value, rules: &ClaimRules) -> Result<Claims, TokenError> {
    let keys = Keys::secret(SECRET).unwrap();
    verify(&shared(claims), &keys, rules, NOW_S)
}

struct Ecdsa(EcdsaKeyPair);

impl Ecdsa {
    fn new() -> Self {
        let random = SystemRandom::new();
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
        Self(pair.unwrap())
    }

    fn jwk(&self, id: &str) -> Value {
        let point = self.0.public_key().as_ref();
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "kid": id,
            "x": encode(&point[1..33]), "y": encode(&point[33..]),
        })
    }

    fn token(&self, id: Option<&str>, claims: &Value) -> String {
        let mut header = json!({"alg": "ES256"});
        if let Some(id) = id {
            header["kid"] = id.into();
        }
        token(&header, claims, |message| self.sign(message))
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.0.sign(&SystemRandom::new(), message).unwrap();
        signature.as_ref().to_vec()
    }
}

fn published(keys: &[Value]) -> Result<Keys, KeyError> {
    Keys::published(json!({ "keys": keys }).to_string().as_bytes())
}

fn ann() -> Value {
    json!({"sub": "ann", "exp": NOW_S + 60})
}

/// The back end revokes a token by its `jti` (RFC 7519 section 4.1.7), so a token with an unusable `jti` is refused.
#[test]
fn a_token_that_could_not_be_revoked_is_refused() {
    let mut claims = ann();
    for id in [
        json!(7),
        json!(null),
        json!(["t"]),
        json!(true),
        json!(""),
        json!("x".repeat(256)),
    ] {
        claims["jti"] = id.clone();
        let refusal = verify_claims(&claims, &ClaimRules::default()).unwrap_err();
        assert!(refusal.is_same_kind(&TokenError::Claim("")), "{id}");
        assert!(refusal.to_string().starts_with("jti "), "{refusal}");
    }
    claims = ann();
    claims["iat"] = json!("yesterday");
    let refusal = verify_claims(&claims, &ClaimRules::default()).unwrap_err();
    assert!(refusal.to_string().starts_with("iat "), "{refusal}");
}

#[test]
fn tokens_without_a_subject_are_accepted_if_configured() {
    let keys = Keys::secret(SECRET).unwrap();
    let exp = NOW_S + 60;
    for (claims, expected) in [
        (json!({"exp": exp, "channel": "$a"}), Ok(None)),
        (json!({"sub": "", "exp": exp}), Ok(None)),
        (
            json!({"sub": "ann", "exp": exp}),
            Ok(Some("ann".to_owned())),
        ),
        (json!({"sub": ["ann"], "exp": exp}), Err(TokenError::NoUser)),
        (json!({"sub": "ann"}), Err(TokenError::NoExpiry)),
        (json!({"exp": NOW_S - 60}), Err(TokenError::Expired)),
    ] {
        let claimed = verify_open(&shared(&claims), &keys, &ClaimRules::default(), NOW_S);
        let user = claimed.map(|claimed| {
            assert_eq!(Value::Object(claimed.all), claims);
            claimed.user
        });
        assert_eq!(user, expected, "{claims}");
    }
}

#[test]
fn valid_and_invalid_claims() {
    let plain = ClaimRules::default();
    let of = ClaimRules {
        issuers: vec!["https://a.example".into(), "https://b.example".into()],
        ..ClaimRules::default()
    };
    let to = ClaimRules {
        audiences: vec!["chat".into()],
        ..ClaimRules::default()
    };
    let named = ClaimRules {
        user: "uid".into(),
        ..ClaimRules::default()
    };
    let endless = ClaimRules {
        needs_expiry: false,
        ..ClaimRules::default()
    };
    let exp = NOW_S + 60;
    let cases: &[(Value, &ClaimRules, Result<&str, TokenError>)] = &[
        (json!({"sub": "ann", "exp": exp}), &plain, Ok("ann")),
        (
            json!({"sub": "ann", "exp": exp as f64 + 0.5}),
            &plain,
            Ok("ann"),
        ),
        (json!({"sub": "ann", "exp": 1e300}), &plain, Ok("ann")),
        (json!({"sub": "ann", "exp": u64::MAX}), &plain, Ok("ann")),
        (json!({"sub": 42, "exp": exp}), &plain, Ok("42")),
        (
            json!({"uid": "bob", "sub": "ann", "exp": exp}),
            &named,
            Ok("bob"),
        ),
        (json!({"sub": "ann"}), &plain, Err(TokenError::NoExpiry)),
        (
            json!({"sub": "ann", "exp": "2030"}),
            &plain,
            Err(TokenError::Malformed),
        ),
        (
            json!({"sub": "ann", "exp": null}),
            &plain,
            Err(TokenError::Malformed),
        ),
        (
            json!({"sub": "ann", "exp": exp, "jti": "t"}),
            &plain,
            Ok("ann"),
        ),
        (
            json!({"sub": "ann", "exp": exp, "jti": "x".repeat(255), "iat": 0.5}),
            &plain,
            Ok("ann"),
        ),
        // The leeway is thirty seconds.
        (json!({"sub": "ann", "exp": NOW_S - 29}), &plain, Ok("ann")),
        (
            json!({"sub": "ann", "exp": NOW_S - 30}),
            &plain,
            Err(TokenError::Expired),
        ),
        (
            json!({"sub": "ann", "exp": -1}),
            &plain,
            Err(TokenError::Expired),
        ),
        (
            json!({"sub": "ann", "exp": exp, "nbf": NOW_S + 30}),
            &plain,
            Ok("ann"),
        ),
        (
            json!({"sub": "ann", "exp": exp, "nbf": NOW_S + 31}),
            &plain,
            Err(TokenError::NotYetValid),
        ),
        (
            json!({"sub": "ann", "exp": exp, "iss": "https://b.example"}),
            &of,
            Ok("ann"),
        ),
        (
            json!({"sub": "ann", "exp": exp, "iss": "https://c.example"}),
            &of,
            Err(TokenError::Issuer),
        ),
        (
            json!({"sub": "ann", "exp": exp, "iss": ["https://a.example"]}),
            &of,
            Err(TokenError::Issuer),
        ),
        (
            json!({"sub": "ann", "exp": exp}),
            &of,
            Err(TokenError::Issuer),
        ),
        (
            json!({"sub": "ann", "exp": exp, "aud": "chat"}),
            &to,
            Ok("ann"),
        ),
        (
            json!({"sub": "ann", "exp": exp, "aud": ["shop", "chat"]}),
            &to,
            Ok("ann"),
        ),
        (
            json!({"sub": "ann", "exp": exp, "aud": "chats"}),
            &to,
            Err(TokenError::Audience),
        ),
        (
            json!({"sub": "ann", "exp": exp, "aud": []}),
            &to,
            Err(TokenError::Audience),
        ),
        (
            json!({"sub": "ann", "exp": exp}),
            &to,
            Err(TokenError::Audience),
        ),
        // Without configured audiences any audience is accepted, as in Centrifugo.
        (
            json!({"sub": "ann", "exp": exp, "aud": "shop"}),
            &plain,
            Ok("ann"),
        ),
        (
            json!({"sub": "ann", "exp": exp, "aud": ["shop"]}),
            &plain,
            Ok("ann"),
        ),
        (json!({"sub": "ann"}), &endless, Ok("ann")),
        (
            json!({"sub": "ann", "exp": NOW_S - 30}),
            &endless,
            Err(TokenError::Expired),
        ),
        (
            json!({"sub": "", "exp": exp}),
            &plain,
            Err(TokenError::NoUser),
        ),
        (
            json!({"sub": ["ann"], "exp": exp}),
            &plain,
            Err(TokenError::NoUser),
        ),
        (
            json!({"sub": 4.5, "exp": exp}),
            &plain,
            Err(TokenError::NoUser),
        ),
        (json!({"exp": exp}), &plain, Err(TokenError::NoUser)),
        (json!(["sub", "ann"]), &plain, Err(TokenError::Malformed)),
        (json!("ann"), &plain, Err(TokenError::Malformed)),
    ];
    for (claims, rules, expected) in cases {
        let found = verify_claims(claims, rules).map(|claims| claims.user);
        assert_eq!(found, expected.map(str::to_owned), "{claims}");
    }
    assert_eq!(
        verify_claims(&ann(), &plain).unwrap().expires_s,
        Some(NOW_S + 90)
    );
    let without = verify_claims(&json!({"sub": "ann"}), &endless).unwrap();
    assert_eq!(without.expires_s, None);
    for aud in [json!(7), json!(null), json!({}), json!(["chat", 7])] {
        let claims = json!({"sub": "ann", "exp": exp, "aud": aud});
        let refusal = verify_claims(&claims, &to).unwrap_err();
        assert!(refusal.to_string().starts_with("aud "), "{refusal}");
    }
}

#[test]
fn invalid_tokens_are_rejected() {
    let keys = Keys::secret(SECRET).unwrap();
    let good = shared(&ann());
    let (message, signature) = good.rsplit_once('.').unwrap();
    let padded = format!("{good}=");
    let long = format!("{message}.{}", "A".repeat(TOKEN_BYTES_MAX));
    let five = format!("{good}.{signature}.{signature}");
    let twice = {
        let header = encode(r#"{"alg":"none","alg":"HS256"}"#);
        let message = format!("{header}.{}", encode(ann().to_string()));
        format!("{message}.{}", encode(hs256(SECRET, message.as_bytes())))
    };
    let critical = {
        let header = json!({"alg": "HS256", "crit": ["b64"], "b64": false});
        token(&header, &ann(), |message| hs256(SECRET, message))
    };
    for bad in [
        "", ".", "..", "...", "a.b.c", message, &padded, &long, &five, &twice, &critical,
    ] {
        let found = verify(bad, &keys, &ClaimRules::default(), NOW_S);
        assert_eq!(found, Err(TokenError::Malformed), "{bad}");
    }
    assert!(verify(&good, &keys, &ClaimRules::default(), NOW_S).is_ok());
}

#[test]
fn an_unsigned_token_is_refused() {
    let keys = Keys::secret(SECRET).unwrap();
    for name in [
        "none", "None", "NONE", "nOnE", "", "RS512", "hs256", "PS256",
    ] {
        for sign in [
            |_: &[u8]| Vec::new(),
            |message: &[u8]| hs256(SECRET, message),
        ] {
            let bad = token(&json!({"alg": name}), &ann(), sign);
            let found = verify(&bad, &keys, &ClaimRules::default(), NOW_S);
            assert_eq!(found, Err(TokenError::Algorithm), "{name:?}");
        }
    }
    // The algorithm is allowed, but the signature is missing or truncated.
    for length in [0, 1, 31] {
        let bad = token(&json!({"alg": "HS256"}), &ann(), |message| {
            hs256(SECRET, message)[..length].to_vec()
        });
        let found = verify(&bad, &keys, &ClaimRules::default(), NOW_S);
        assert_eq!(found, Err(TokenError::Signature), "{length}");
    }
}

#[test]
fn a_public_key_is_no_secret() {
    let pair = Ecdsa::new();
    let jwk = pair.jwk("a");
    let keys = published(std::slice::from_ref(&jwk)).unwrap();
    // No form of the public key is accepted as an HMAC secret.
    for secret in [
        pair.0.public_key().as_ref().to_vec(),
        jwk.to_string().into_bytes(),
        rfc::RSA_PEM.as_bytes().to_vec(),
    ] {
        for id in [json!("a"), json!("b"), Value::Null] {
            let bad = token(&json!({"alg": "HS256", "kid": id}), &ann(), |message| {
                hs256(&secret, message)
            });
            let found = verify(&bad, &keys, &ClaimRules::default(), NOW_S);
            assert_eq!(found, Err(TokenError::Algorithm));
            let own = Keys::pem(rfc::RSA_PEM.as_bytes()).unwrap();
            let found = verify(&bad, &own, &ClaimRules::default(), NOW_S);
            assert_eq!(found, Err(TokenError::Algorithm));
        }
    }
}

#[test]
fn a_set_knows_its_keys_by_name() {
    let (first, second, other) = (Ecdsa::new(), Ecdsa::new(), Ecdsa::new());
    let keys = published(&[first.jwk("1"), second.jwk("2")]).unwrap();
    let verified_user =
        |token: &str| verify(token, &keys, &ClaimRules::default(), NOW_S).map(|c| c.user);
    let ok = Ok("ann".to_owned());
    assert_eq!(verified_user(&first.token(Some("1"), &ann())), ok);
    assert_eq!(verified_user(&second.token(Some("2"), &ann())), ok);
    // If the token has no key id, each key is tried.
    assert_eq!(verified_user(&second.token(None, &ann())), ok);
    assert_eq!(
        verified_user(&second.token(Some("1"), &ann())),
        Err(TokenError::Signature)
    );
    assert_eq!(
        verified_user(&other.token(None, &ann())),
        Err(TokenError::Signature)
    );
    assert_eq!(
        verified_user(&other.token(Some("3"), &ann())),
        Err(TokenError::UnknownKey)
    );
    // Keys in the header of a token, or referenced by it, are ignored.
    for name in ["jwk", "jku", "x5u", "x5c"] {
        let mut header = json!({"alg": "ES256", "kid": "1"});
        header[name] = match name {
            "jwk" => other.jwk("1"),
            _ => json!("https://evil.example/keys"),
        };
        let bad = token(&header, &ann(), |message| other.sign(message));
        assert_eq!(verified_user(&bad), Err(TokenError::Signature), "{name}");
    }
}

#[test]
fn a_set_is_read_as_far_as_it_can_be_used() {
    let pair = Ecdsa::new();
    let good = pair.jwk("1");
    let with = |name: &str, value: Value| {
        let mut jwk = good.clone();
        jwk[name] = value;
        jwk
    };
    for (jwk, is_used) in [
        (good.clone(), true),
        (with("alg", json!("ES256")), true),
        (with("key_ops", json!(["verify"])), true),
        (with("alg", json!("ES384")), false),
        (with("alg", json!("PS256")), false),
        (with("use", json!("enc")), false),
        (with("key_ops", json!(["sign"])), false),
        (with("crv", json!("P-384")), false),
        (with("kty", json!("oct")), false),
        (with("x", json!("AAAA")), false),
        (with("x", json!("not base64url!")), false),
        (
            json!({"kty": "oct", "k": encode(SECRET), "kid": "1"}),
            false,
        ),
        (
            json!({"kty": "RSA", "n": encode([255; 128]), "e": "AQAB"}),
            false,
        ),
        (json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}), false),
        (json!({"kty": 5}), false),
        (json!("key"), false),
    ] {
        let alone = published(std::slice::from_ref(&jwk));
        assert_eq!(alone.is_ok(), is_used, "{jwk}");
        // An unusable key does not affect the usable keys of the same set.
        assert_eq!(
            published(&[jwk, good.clone()]).unwrap().len(),
            1 + usize::from(is_used)
        );
    }
    for bad in ["", "[]", "{}", "{\"keys\": 5}", "<html>"] {
        assert_eq!(Keys::published(bad.as_bytes()), Err(KeyError::NotASet));
    }
    assert_eq!(published(&[]), Err(KeyError::NothingUsable));
    let mut many = vec![good; KEYS_MAX];
    assert_eq!(published(&many).map(|keys| keys.len()), Ok(KEYS_MAX));
    many.push(many[0].clone());
    assert_eq!(published(&many), Err(KeyError::TooMany));
}

#[test]
fn keys_that_are_no_good_are_refused() {
    assert_eq!(Keys::secret(b""), Err(KeyError::EmptySecret));
    for (length, short) in [(5, Some(5)), (31, Some(31)), (32, None)] {
        let keys = Keys::secret(&SECRET[..length]).unwrap();
        assert_eq!(keys.short_secret(), short);
    }
    let pem = rfc::RSA_PEM.as_bytes();
    assert_eq!(Keys::secret(pem), Err(KeyError::PemAsSecret));
    assert_eq!(Keys::pem(b"a secret"), Err(KeyError::NoPem));
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(Keys::pem(private.as_bytes()), Err(KeyError::Private));
    let broken = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    assert_eq!(Keys::pem(broken.as_bytes()), Err(KeyError::Unreadable(1)));
    let two = format!("{}{}", rfc::RSA_PEM, rfc::RSA_PEM);
    assert_eq!(Keys::pem(two.as_bytes()).unwrap().len(), 2);
}

#[test]
fn a_key_shows_nothing_of_itself() {
    let shown = format!("{:?}", Keys::secret(SECRET).unwrap());
    assert!(
        shown.contains("Key(secret, None)") && !shown.contains("long"),
        "{shown}"
    );
}

#[test]
fn ed25519_signs_too() {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let x = encode(pair.public_key().as_ref());
    let keys = published(&[json!({"kty": "OKP", "crv": "Ed25519", "kid": "e", "x": x})]).unwrap();
    let header = json!({"alg": "EdDSA", "kid": "e"});
    let good = token(&header, &ann(), |message| {
        pair.sign(message).as_ref().to_vec()
    });
    assert!(verify(&good, &keys, &ClaimRules::default(), NOW_S).is_ok());
    // A token signed with another key, and a token changed after it was signed.
    let bad = token(&header, &ann(), |message| {
        pair.sign(digest::digest(&digest::SHA256, message).as_ref())
            .as_ref()
            .to_vec()
    });
    assert_eq!(
        verify(&bad, &keys, &ClaimRules::default(), NOW_S),
        Err(TokenError::Signature)
    );
    let (message, signature) = good.rsplit_once('.').unwrap();
    let header = message.split_once('.').unwrap().0;
    let claims = encode(json!({"sub": "root", "exp": NOW_S + 60}).to_string());
    let forged = format!("{header}.{claims}.{signature}");
    assert_eq!(payload(&forged, &keys, NOW_S), Err(TokenError::Signature));
}
