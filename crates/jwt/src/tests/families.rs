//! Tests that each kind of key verifies exactly the algorithms of its kind, with any digest.

use ring::hmac;
use serde_json::json;

use super::{NOW_S, ann, encode, published, token};
use crate::verify::payload;
use crate::{ClaimRules, Keys, TokenError, verify};

/// The public half of a key created by `openssl`. The private half signed [`RS384`] and [`RS512`].
const RSA: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA5w5uJq36dR8hNCpzrYdW
nE3JLXbE7//tIBW47XNkJ6cDcUBrw/z5H2o5D8PZ5zZ7uGeuR3h83WUhcKil5oPA
L439FNxPtqDK2EMY0Okdf5JAToVf8y1hYte/VmvNA8LAfDI1/QQjuai3dFizlx6x
BdEcDs1+CFMIDB9zKN0ORs0kQrcJUMGWDAXQ5jYccp6avozxMeBWzuAjXeKlEqaX
ThlGzr2Z/5e6TNWcF+/Fh9O6fe11EiiWpJZd9na/BlNOb0hj/5QScbQKu0G6kgO6
kgOFtf0jhQwMJ0jE1AQTr2xJqhNGKted6tnoqaesEn7zHUIfVj3M6Cr1G93T7fUP
WQIDAQAB
-----END PUBLIC KEY-----
";
const RS384: &str = "eyJhbGciOiJSUzM4NCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjE3MDAwMDAwNjB9.nJJL3KZkYafXR_4WKEPT58pBxhqXnU0pQ24nomqyUsQ86GMkd0jiLxeZ70-QA-gR4_3RTZ_8YTYCBHfG51p4_GVcP9GaBTGx71KgoIcGrgBpxerBl0MOmXy58VofoCoG82V_2LE8LipZt-_F-1MCxuO11tqKt8bYEegIgSH4TljogQUGyaoFnKIKCAn8ZYr-ukjGs88Md-7oPtty0Zncq6I2qjQg5kjZVGjTqMgrvosOBt2xckcbOf4cIuto_ObROMdYHTrMdk2ZmzinGVjCMxljTU2tmBcgVQmhxWV7LKzWblDqo66gcScv8uNsLH-LGqlSLph0AJOTqkqqBzSZpw";
const RS512: &str = "eyJhbGciOiJSUzUxMiJ9.eyJzdWIiOiJhbm4iLCJleHAiOjE3MDAwMDAwNjB9.KiM1C8co46X7TF1rHAvkCrRAxswW8q77UrK6Mf55JaLwPf_pjPdT0dsVJsEWZFgX8MP6xLWyiE9T-ehc9vRF5-CueY1LkAXq8fyg356S-2p7kaKbsyxs3LWMX8r7R4bFh_u0BgI53616J0d32pYeHkiPwhU8w-x7jeaq4npjcZPTPP-a6m5LWyl7XbnpaXbUnIl7saQq6dvH1is0p04F957-ktXWCkgzSmiYIgFcqKBPaQSa_k8bpG26b6PAkB20xjgFSFUR7WgVAat-T11rCMkxa6OWQD04rx17S4NuuLIAn1L7ilLfWc_xVJuZl2KJVBdvIq6Wb47xXkMYVP9UFA";

/// The public half of a key created by `openssl`. The private half signed [`ES384`].
const P384: &str = "-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEqIO8YQ/WUxEDYIGD+8h1Y5Ugb5FhgfQa
X+oS5QHUCDBzrVexaVr46kEG5WWmVJ8s1TtDMbEw5gk1QOpSOVhYVrMx6wstwcZU
GgrxqPiiQhju/gI2js6NJdgdq5c+mL9k
-----END PUBLIC KEY-----
";
const ES384: &str = "eyJhbGciOiJFUzM4NCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjE3MDAwMDAwNjB9.KGgM-CQW-7AE2FnBClWlymyCVXRWO7u_G-OFUDWKY-s7fTrtjK78S56pkEv-XnhsKJRfpDvZ3abO_39ogBIwwU_lsYmdYqp9I0Bb02sBFW_2gJ3tRIQi5HVc4GiYLdh_";

/// The public half of a key created by `openssl`. The private half signed [`ES512`].
const P521: &str = "-----BEGIN PUBLIC KEY-----
MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQAtdgb7FHgyN9buytgvLrR351+l1Cy
vZUXS/hdVASu9yfCPEj4XoH1RPoM8Z5RmixkN7QqjOoqpO4upERPGVAfFPcBK+dz
GAIRaZ8x8/ei3r1vPDGfYXdREyFzRI8Ty71vW2S+/jkrvx6Jpbm70lvyCoRh/V+3
pkzMz2VT27YmNChOdSU=
-----END PUBLIC KEY-----
";
const ES512: &str = "eyJhbGciOiJFUzUxMiJ9.eyJzdWIiOiJhbm4iLCJleHAiOjE3MDAwMDAwNjB9.AHrNjdrbecD-rOQSYglPrE1d5nn8Po_VaNtfFCI9wd0v9EgYXmAJQFIgUc-5WWSIe2xorVs7MRKgN4ZXwfVZbehpAObfBXrjdJEC4bYY6Ovdipkelwwj0CIt6jm4fcN6lJvJnCXOhgwfNJHxWc_A3mjnF1wiv7x5UFvfAB1WLUo24UTw";

fn hmac(algorithm: hmac::Algorithm, name: &str, secret: &[u8]) -> String {
    let key = hmac::Key::new(algorithm, secret);
    token(&json!({ "alg": name }), &ann(), |message| {
        hmac::sign(&key, message).as_ref().to_vec()
    })
}

fn user(token: &str, keys: &Keys) -> Result<String, TokenError> {
    verify(token, keys, &ClaimRules::default(), NOW_S).map(|claims| claims.user)
}

/// Returns the token with another algorithm in its header.
fn renamed(token: &str, name: &str) -> String {
    let (_, rest) = token.split_once('.').expect("three parts");
    format!("{}.{rest}", encode(json!({ "alg": name }).to_string()))
}

#[test]
fn a_key_checks_the_algorithms_of_its_kind_alone() {
    let ok = Ok("ann".to_owned());
    for (pem, tokens) in [
        (RSA, &[RS384, RS512][..]),
        (P384, &[ES384]),
        (P521, &[ES512]),
    ] {
        let keys = Keys::pem(pem.as_bytes()).expect("a key");
        for token in tokens {
            assert_eq!(user(token, &keys), ok, "{token}");
            for name in ["HS256", "HS384", "HS512", "EdDSA"] {
                assert_eq!(
                    user(&renamed(token, name), &keys),
                    Err(TokenError::Algorithm)
                );
            }
            // Changes a character of the signature.
            let (message, signature) = token.rsplit_once('.').expect("three parts");
            let other = if signature.starts_with('B') { "C" } else { "B" };
            let forged = format!("{message}.{other}{}", &signature[1..]);
            assert_eq!(user(&forged, &keys), Err(TokenError::Signature));
            assert_eq!(
                user(&format!("{message}."), &keys),
                Err(TokenError::Signature)
            );
        }
    }
    let rsa = Keys::pem(RSA.as_bytes()).expect("a key");
    assert_eq!(
        user(&renamed(RS384, "RS512"), &rsa),
        Err(TokenError::Signature)
    );
    assert_eq!(
        user(&renamed(RS384, "ES384"), &rsa),
        Err(TokenError::Algorithm)
    );
    let p384 = Keys::pem(P384.as_bytes()).expect("a key");
    for name in ["ES256", "ES512", "RS384"] {
        assert_eq!(
            user(&renamed(ES384, name), &p384),
            Err(TokenError::Algorithm)
        );
    }
}

#[test]
fn a_secret_checks_each_digest() {
    let secret = b"a secret that is long enough for it";
    let keys = Keys::secret(secret).expect("a secret");
    for (algorithm, name) in [
        (hmac::HMAC_SHA256, "HS256"),
        (hmac::HMAC_SHA384, "HS384"),
        (hmac::HMAC_SHA512, "HS512"),
    ] {
        let good = hmac(algorithm, name, secret);
        assert_eq!(user(&good, &keys), Ok("ann".to_owned()), "{name}");
        let other = hmac(algorithm, name, b"another secret, which is as long");
        assert_eq!(user(&other, &keys), Err(TokenError::Signature), "{name}");
        let set = published(&[json!({ "kty": "oct", "k": encode(secret) })]);
        assert!(set.is_err(), "a secret in a set");
    }
    let claimed = hmac(hmac::HMAC_SHA256, "HS512", secret);
    assert_eq!(user(&claimed, &keys), Err(TokenError::Signature));
}

#[test]
fn the_secret_before_counts_until_its_time() {
    let (new, old) = (b"the new secret", b"the old secret");
    let keys = |until_s| {
        let old = Keys::secret(old).expect("a secret");
        let keys = Keys::secret(new).expect("a secret");
        keys.with_previous(old, until_s).expect("two keys")
    };
    let of = |secret| hmac(hmac::HMAC_SHA256, "HS256", secret);
    for (until_s, expected) in [
        (None, Ok("ann".to_owned())),
        (Some(NOW_S + 1), Ok("ann".to_owned())),
        (Some(NOW_S), Err(TokenError::Signature)),
    ] {
        assert_eq!(user(&of(new), &keys(until_s)), Ok("ann".to_owned()));
        assert_eq!(user(&of(old), &keys(until_s)), expected);
    }
    assert_eq!(keys(None).short_secret(), Some(14));
    assert_eq!(
        user(&of(b"another secret"), &keys(None)),
        Err(TokenError::Signature)
    );
}

/// The example of RFC 7515 appendix A.4. Its payload is a single word, not a set of claims.
#[test]
fn the_example_of_p521() {
    let key = |alg: Option<&str>| {
        let mut jwk = json!({
            "kty": "EC",
            "crv": "P-521",
            "x": "AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk",
            "y": "ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2",
        });
        if let Some(alg) = alg {
            jwk["alg"] = alg.into();
        }
        jwk
    };
    let token = "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA.AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn";
    for alg in [None, Some("ES512")] {
        let keys = published(&[key(alg)]).expect("a key");
        assert_eq!(payload(token, &keys, NOW_S).expect("it holds"), b"Payload");
    }
    assert!(published(&[key(Some("ES256"))]).is_err());
}

/// The issuer may restrict a key to one digest.
#[test]
fn a_published_key_is_for_the_algorithm_that_it_names() {
    let modulus = crate::tests::rfc::MODULUS;
    let of =
        |alg: &str| published(&[json!({ "kty": "RSA", "n": modulus, "e": "AQAB", "alg": alg })]);
    for (alg, is_used) in [
        ("RS256", true),
        ("RS512", true),
        ("PS256", false),
        ("ES256", false),
    ] {
        assert_eq!(of(alg).is_ok(), is_used, "{alg}");
    }
    let keys = of("RS512").expect("a key");
    assert_eq!(user(RS384, &keys), Err(TokenError::Algorithm));
    assert_eq!(user(RS512, &keys), Err(TokenError::Signature));
}
