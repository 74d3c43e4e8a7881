//! The operator's page: its files are for whoever asks, what lies below `api/` for whoever has one of its keys.
//!
//! It can do what the API of back ends can, by the same methods, and [look](AdminView) at the process. A foreign page can do
//! neither: it has no key, may not send the header that holds one, and is refused by the headers that browsers add. What
//! the process shows is not known here.

use std::net::IpAddr;

use serde::Deserialize;
use veche_hub::ConnectionId;
use veche_proto::http::{Head, Status};
use veche_types::codes::ErrorCode;

use crate::backend::command::{self, BadCommand};
use crate::context::credential_kind::CredentialKind;
use crate::context::origin::{self, OriginCheck};
use crate::context::worker_context::Context;
use crate::http::reply::Refusal;
use crate::http::{api_error, wrong_key};

pub use crate::context::admin_view::AdminView;

/// Applies the filters in the body of a call, which may be empty.
pub(crate) fn filter_channels(look: AdminView, body: &[u8]) -> Result<AdminView, BadCommand> {
    if !matches!(look, AdminView::Log { .. }) || body.iter().all(u8::is_ascii_whitespace) {
        return Ok(look);
    }
    let After { after } = command::read(body)?;
    Ok(AdminView::Log { after })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    #[serde(default)]
    after: u64,
}

/// Whether a call may go on: it is not of a foreign page, and shows a key.
pub(crate) fn admit(
    head: &Head<'_>,
    is_tls: bool,
    client: IpAddr,
    id: ConnectionId,
    shared: &mut Context,
) -> Result<(), Refusal> {
    let is_own = origin::admits(&[OriginCheck::SameHost], head, is_tls);
    if !is_own || origin::is_cross_origin(head) {
        let why = "pages of other origins may not call this";
        return Err(api_error::of_api(
            Status::FORBIDDEN,
            ErrorCode::PermissionDenied,
            why,
        ));
    }
    match shared.config.is_admin(head) {
        true => Ok(()),
        false => Err(wrong_key::refuse_wrong_key(
            head,
            CredentialKind::Admin,
            client,
            id,
            shared,
        )),
    }
}
