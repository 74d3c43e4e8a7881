//! Tests the examples of RFC 7515 appendix A and RFC 8037 appendix A.4.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::published;
use crate::verify::payload;
use crate::{ClaimRules, Keys, TokenError, verify};

/// The claims of the examples A.1 to A.3 in RFC 7515.
const CLAIMS: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
const EXPIRES_S: u64 = 1_300_819_380;

pub(super) const MODULUS: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";

/// The RSA key with this [`MODULUS`], as printed by `openssl pkey -pubout`.
pub(super) const RSA_PEM: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJj
NiuSfb4p4fAkd/wWJcyQoTbji9k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEz
P1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEwOWvG6b32690r2jZ47soMZo
9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo7WTB
EMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxX
FvUK+DWNmoudF8NAco9/h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXp
oQIDAQAB
-----END PUBLIC KEY-----
";

fn check(keys: &Keys, header: &str, signature: &str) {
    let rules = ClaimRules {
        user: "iss".to_owned(),
        leeway_s: 0,
        ..ClaimRules::default()
    };
    let token = format!("{header}.{CLAIMS}.{signature}");
    let claims = verify(&token, keys, &rules, EXPIRES_S - 1).unwrap();
    assert_eq!(
        (claims.user.as_str(), claims.expires_s),
        ("joe", Some(EXPIRES_S))
    );
    let late = verify(&token, keys, &rules, EXPIRES_S);
    assert_eq!(late, Err(TokenError::Expired));
    // A flipped bit in the first, the middle or the last byte makes the signature invalid.
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    for at in [0, bytes.len() / 2, bytes.len() - 1] {
        bytes[at] ^= 1;
        let forged = format!("{header}.{CLAIMS}.{}", URL_SAFE_NO_PAD.encode(&bytes));
        assert_eq!(payload(&forged, keys, 0), Err(TokenError::Signature));
        bytes[at] ^= 1;
    }
}

#[test]
fn a_1_hmac() {
    let secret =
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let keys = Keys::secret(&URL_SAFE_NO_PAD.decode(secret).unwrap()).unwrap();
    check(
        &keys,
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9",
        "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    );
}

fn rsa() -> Value {
    json!({"kty": "RSA", "n": MODULUS, "e": "AQAB"})
}

#[test]
fn a_2_rsa() {
    for keys in [published(&[rsa()]), Keys::pem(RSA_PEM.as_bytes())] {
        check(
            &keys.unwrap(),
            "eyJhbGciOiJSUzI1NiJ9",
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
        );
    }
}

#[test]
fn a_3_ecdsa() {
    let jwk = json!({
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    });
    check(
        &published(&[jwk]).unwrap(),
        "eyJhbGciOiJFUzI1NiJ9",
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    );
}

/// The signature is valid, but the signed data is a sentence instead of claims, so the input is not
/// a token.
#[test]
fn a_4_ed25519() {
    let jwk = json!({
        "kty": "OKP",
        "crv": "Ed25519",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    });
    let keys = published(&[jwk]).unwrap();
    let token = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    assert_eq!(
        payload(token, &keys, 0).unwrap(),
        b"Example of Ed25519 signing"
    );
    let verified = verify(token, &keys, &ClaimRules::default(), 0);
    assert_eq!(verified, Err(TokenError::Malformed));
}

#[test]
fn a_5_unsigned() {
    let token = format!("eyJhbGciOiJub25lIn0.{CLAIMS}.");
    let keys = published(&[rsa()]).unwrap();
    assert_eq!(payload(&token, &keys, 0), Err(TokenError::Algorithm));
}
