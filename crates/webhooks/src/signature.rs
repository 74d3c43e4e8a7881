//! Signatures that authenticate this server's requests to a back end.

use std::fmt::Write as _;
use std::time::SystemTime;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use veche_config::SecretValue;

/// The header that names the hook, so that one URL can serve several hooks.
pub const HOOK: &str = "veche-hook";

/// The header with the signatures.
pub const SIGNATURE: &str = "veche-signature";

/// Adds the header that signs a body at the current time, with one signature for each secret. Adds
/// nothing without secrets.
pub fn sign(headers: &mut Vec<(String, Vec<u8>)>, secrets: &[SecretValue], body: &[u8]) {
    if secrets.is_empty() {
        return;
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let secrets = secrets.iter().map(|secret| secret.expose().as_bytes());
    let signature = signature(secrets, now.as_secs(), body);
    headers.push((SIGNATURE.to_owned(), signature.into_bytes()));
}

/// Returns `t=SECONDS,v1=HEX`, with one `v1` for each secret. HEX is the HMAC-SHA256 of the seconds, a
/// dot and the body.
fn signature<'s>(secrets: impl Iterator<Item = &'s [u8]>, seconds: u64, body: &[u8]) -> String {
    let mut text = format!("t={seconds}");
    for secret in secrets {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret).expect("HMAC accepts keys of any length");
        mac.update(seconds.to_string().as_bytes());
        mac.update(b".");
        mac.update(body);
        text.push_str(",v1=");
        for byte in mac.finalize().into_bytes() {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_signed_with_their_time() {
        // Computed by `printf '1700000000.{}' | openssl dgst -sha256 -hmac secret`.
        let expected =
            "t=1700000000,v1=b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163";
        let secrets = [&b"secret"[..]];
        let signed = signature(secrets.into_iter(), 1_700_000_000, b"{}");
        assert_eq!(signed, expected);
        let two = signature([&b"a"[..], b"secret"].into_iter(), 1_700_000_000, b"{}");
        assert!(two.ends_with(&expected[12..]) && two.matches("v1=").count() == 2);
    }
}
