//! Wrong API keys. They are counted and logged. An address that exceeds its rate of wrong keys gets 429, and the
//! connection is closed.
//!
//! Every key is checked, even from such an address, so that a valid key is always accepted at once. Each wrong
//! key from such an address costs the client a connection, and public listeners also limit the rate of connections.

use std::net::IpAddr;

use veche_hub::ConnectionId;
use veche_proto::http::{Head, Status};
use veche_types::codes::ErrorCode;

use crate::context::credential_kind::CredentialKind;
use crate::context::frontend_config::api_keys;
use crate::context::log_note::NoteLevel;
use crate::context::worker_context::Context;
use crate::http::api_error::{self, unauthorized};
use crate::http::reply::Refusal;

/// Returns the refusal of a request without a valid key. A request with no key at all does not count as a wrong key.
pub(crate) fn refuse_wrong_key(
    head: &Head<'_>,
    lock: CredentialKind,
    client: IpAddr,
    id: ConnectionId,
    shared: &mut Context,
) -> Refusal {
    let shows_key = match lock {
        CredentialKind::Api => api_keys(head).next().is_some(),
        CredentialKind::Admin => head.header_bytes("x-api-key").is_some(),
    };
    if !shows_key {
        return unauthorized();
    }
    shared.stats.wrong_api_keys[lock as usize].add(1);
    let what = match lock {
        CredentialKind::Api => "the API",
        CredentialKind::Admin => "the admin page",
    };
    let what = format!("wrong key for {what} from {client}");
    let kind = CredentialKind::ALL[lock as usize].1;
    shared.log_as(kind, id, NoteLevel::Warn, what);
    match shared.process.wrong_key(client, shared.now.mono_ms) {
        0 => unauthorized(),
        wait_ms => {
            let why = "too many wrong keys of this address";
            api_error::of_api(Status::TOO_MANY_REQUESTS, ErrorCode::TooManyRequests, why)
                .with("Retry-After", wait_ms.div_ceil(1_000).to_string())
                .ending()
        }
    }
}
