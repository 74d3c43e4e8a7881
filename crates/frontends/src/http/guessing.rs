//! Wrong API keys: counted, logged, and from some of one address on answered with 429 on a connection that ends.
//!
//! Every key is judged, so that a right one passes at once, also from an address that others guess from. What guessing
//! costs is a connection for each guess; on public listeners connections of an address have a rate of their own.

use std::net::IpAddr;

use veche_hub::ConnectionId;
use veche_proto::http::{Head, Status};
use veche_types::codes::ErrorCode;

use crate::context::guessing::Lock;
use crate::context::note::NoteLevel;
use crate::context::shared::Shared;
use crate::context::site::api_keys;
use crate::http::api_error::{self, unauthorized};
use crate::http::reply::Refusal;

/// The refusal of a request that has not shown a right key; without any key it is no guess.
pub(crate) fn refuse(
    head: &Head<'_>,
    lock: Lock,
    client: IpAddr,
    id: ConnectionId,
    shared: &mut Shared,
) -> Refusal {
    let shows_key = match lock {
        Lock::Api => api_keys(head).next().is_some(),
        Lock::Admin => head.header_bytes("x-api-key").is_some(),
    };
    if !shows_key {
        return unauthorized();
    }
    shared.stats.wrong_keys[lock as usize].add(1);
    let what = match lock {
        Lock::Api => "the API",
        Lock::Admin => "the admin page",
    };
    let what = format!("wrong key for {what} from {client}");
    let kind = Lock::ALL[lock as usize].1;
    shared.note_as(kind, id, NoteLevel::Warn, what);
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
