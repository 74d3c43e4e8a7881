//! One request to the back end, signed.

use std::fmt::Write as _;
use std::sync::mpsc;
use std::time::SystemTime;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use veche_calls::{Call, Fetch, Http, Reply, Trust};
use veche_outbound::Outbound;

use crate::config;

/// The header that holds the signature.
const SIGNATURE: &str = "veche-signature";

/// Longest answer that is read, in bytes; nothing in it matters.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Why a batch was not taken.
#[derive(Debug)]
pub(super) enum Failed {
    /// It would not be another time either.
    Refused(String),
    /// It may be.
    Later(String),
}

/// Sends a batch and waits for the answer.
pub(super) fn send(
    options: &config::Events,
    body: &[u8],
    outbound: &Outbound,
) -> Result<(), Failed> {
    let mut headers = vec![("content-type".to_owned(), b"application/json".to_vec())];
    if !options.secrets.is_empty() {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let secrets = options
            .secrets
            .iter()
            .map(|secret| secret.expose().as_bytes());
        let signature = signature(secrets, now.as_secs(), body);
        headers.push((SIGNATURE.to_owned(), signature.into_bytes()));
    }
    let fetch = Fetch {
        method: "POST".to_owned(),
        url: options.url.clone(),
        headers,
        body: body.to_vec(),
        timeout: options.timeout,
        connect_timeout: options.timeout,
        redirects_max: 0,
        body_bytes_max: ANSWER_BYTES_MAX,
        connections_max: 1,
        trust: options.ca.clone().map_or(Trust::System, Trust::File),
        is_stream: false,
    };
    let (done, outcome) = mpsc::sync_channel(1);
    outbound.ask(Call::Http(Http::Fetch(Box::new(fetch))), move |outcome| {
        // Whoever waits has not gone.
        let _ = done.send(outcome);
    });
    let outcome = outcome
        .recv()
        .map_err(|_| Failed::Later("the server is ending".to_owned()))?;
    match outcome {
        Ok(Reply::Http(reply)) => judge(reply.status),
        Ok(_) => Err(Failed::Later("no answer of HTTP".to_owned())),
        Err(fault) => Err(Failed::Later(fault.words)),
    }
}

/// What a status says: RFC 9110, section 15, and RFC 6585, section 4.
fn judge(status: u16) -> Result<(), Failed> {
    let words = || format!("the back end answers with {status}");
    match status {
        200..300 => Ok(()),
        // Too late, too early, too much: another time.
        408 | 425 | 429 => Err(Failed::Later(words())),
        400..500 => Err(Failed::Refused(words())),
        _ => Err(Failed::Later(words())),
    }
}

/// `t=SECONDS,v1=HEX`: HMAC-SHA256 of the seconds, a dot and the body; one for each secret.
fn signature<'s>(secrets: impl Iterator<Item = &'s [u8]>, seconds: u64, body: &[u8]) -> String {
    let mut text = format!("t={seconds}");
    for secret in secrets {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
        mac.update(seconds.to_string().as_bytes());
        mac.update(b".");
        mac.update(body);
        text.push_str(",v1=");
        for byte in mac.finalize().into_bytes() {
            // Writing into a string can't fail.
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
        // By `printf '1700000000.{}' | openssl dgst -sha256 -hmac secret`.
        let expected =
            "t=1700000000,v1=b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163";
        let secrets = [&b"secret"[..]];
        let signed = signature(secrets.into_iter(), 1_700_000_000, b"{}");
        assert_eq!(signed, expected);
        let two = signature([&b"a"[..], b"secret"].into_iter(), 1_700_000_000, b"{}");
        assert!(two.ends_with(&expected[12..]) && two.matches("v1=").count() == 2);
    }

    #[test]
    fn a_status_says_whether_to_try_again() {
        for (status, is_taken, is_refused) in [
            (200, true, false),
            (204, true, false),
            (301, false, false),
            (400, false, true),
            (404, false, true),
            (429, false, false),
            (500, false, false),
            (503, false, false),
        ] {
            let judged = judge(status);
            assert_eq!(judged.is_ok(), is_taken, "{status}");
            let refused = matches!(judged, Err(Failed::Refused(_)));
            assert_eq!(refused, is_refused, "{status}");
        }
    }
}
