//! Sends one signed request to the back end.

use std::sync::mpsc;

use veche_calls::CallReply;
use veche_config as config;
use veche_outbound::Outbound;

use crate::{FetchRequest, HOOK, sign};

/// The longest response read, in bytes; its content is ignored.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// The reason why a batch was not delivered.
#[derive(Debug)]
pub(super) enum DeliveryError {
    /// The back end rejected the batch, which is discarded. Contains the text for the log.
    Refused(String),
    /// The batch is sent again later. Contains the text for the log.
    Later(String),
}

/// Sends a batch and waits for the response.
pub(super) fn send(
    options: &config::EventsConfig,
    body: &[u8],
    outbound: &Outbound,
) -> Result<(), DeliveryError> {
    let mut headers = vec![
        ("content-type".to_owned(), b"application/json".to_vec()),
        (HOOK.to_owned(), b"events".to_vec()),
    ];
    sign(&mut headers, &options.secrets, body);
    let request = FetchRequest {
        url: options.url.expose(),
        headers,
        body: Some(body.to_vec()),
        timeout: options.timeout,
        body_bytes_max: ANSWER_BYTES_MAX,
        ca: options.ca.as_deref(),
        // Batches are sent one at a time, over a separate connection, so that hook requests can't block them.
        connections_max: 1,
    };
    let (done, outcome) = mpsc::sync_channel(1);
    outbound.ask(request.into_call(), move |outcome| {
        // This function waits for the outcome, so the receiver still exists.
        let _ = done.send(outcome);
    });
    let outcome = outcome
        .recv()
        .map_err(|_| DeliveryError::Later("the server is shutting down".to_owned()))?;
    match outcome {
        Ok(CallReply::Http(reply)) => check_status(reply.status),
        Ok(_) => Err(DeliveryError::Later("the response is not HTTP".to_owned())),
        Err(fault) => Err(DeliveryError::Later(fault.words)),
    }
}

/// Classifies a status: RFC 9110, section 15, and RFC 6585, section 4.
fn check_status(status: u16) -> Result<(), DeliveryError> {
    let words = || format!("the back end responded with status {status}");
    match status {
        200..300 => Ok(()),
        // Temporary statuses: timeout, too early, or too many requests.
        408 | 425 | 429 => Err(DeliveryError::Later(words())),
        400..500 => Err(DeliveryError::Refused(words())),
        _ => Err(DeliveryError::Later(words())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let result = check_status(status);
            assert_eq!(result.is_ok(), is_taken, "{status}");
            let refused = matches!(result, Err(DeliveryError::Refused(_)));
            assert_eq!(refused, is_refused, "{status}");
        }
    }
}
