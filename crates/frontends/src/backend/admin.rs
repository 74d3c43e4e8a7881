//! The admin page: its files are public, its calls below `api/` need one of its keys.
//!
//! It serves the methods of the back end's API and returns [views](AdminView) of the process. A
//! page of another site can use neither methods nor views: it has no key, can't set the header that
//! carries one, and its requests are recognised by the `Origin` and `Sec-Fetch-Site` headers that
//! browsers add. The content of the views is produced by
//! [`ProcessServices`](crate::ProcessServices).

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

/// Adds the filter in a call's body to a view. Only the view of the log has a filter, `after`. The body may be empty.
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

/// Checks that a call has an admin key and was not made by a page of another site.
pub(crate) fn admit(
    head: &Head<'_>,
    is_tls: bool,
    client: IpAddr,
    id: ConnectionId,
    shared: &mut Context,
) -> Result<(), Refusal> {
    let is_own = origin::admits(&[OriginCheck::SameHost], head, is_tls);
    if !is_own || origin::is_cross_origin(head) {
        let why = "cross-origin calls are not allowed";
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
