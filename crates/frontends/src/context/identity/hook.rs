//! A hook: the back end says who a client is. What it is told and what its answer means; asking is done elsewhere.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::Head;
use veche_types::Now;

use super::result::{CompletionSink, IdentityResult};
use crate::context::app::MaybeDeferred;

/// A request whose client is asked about.
#[derive(Clone, Copy, Debug)]
pub struct IdentityRequest<'a> {
    /// The request: a handshake, or one to an application.
    pub head: &'a Head<'a>,
    /// Where it comes from.
    pub client: IpAddr,
}

/// Asks the back end. Shared by all workers; never waits.
pub trait IdentityBackend: Send + Sync + fmt::Debug {
    /// Asks who a client is: known at once, or later told exactly once at the desk.
    fn begin(
        &self,
        question: &IdentityRequest<'_>,
        id: ConnectionId,
        desk: &Arc<dyn CompletionSink>,
        now: Now,
    ) -> MaybeDeferred<IdentityResult>;
}
