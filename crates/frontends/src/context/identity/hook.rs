//! The identity hook: the back end determines the user. Its request and result; it is sent elsewhere.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::Head;
use veche_types::Now;

use super::result::{CompletionSink, IdentityResult};
use crate::context::app::MaybeDeferred;

/// A request for the identity of a client.
#[derive(Clone, Copy, Debug)]
pub struct IdentityRequest<'a> {
    /// The client's request: a handshake, or one to an application.
    pub head: &'a Head<'a>,
    /// The IP address of the client.
    pub client: IpAddr,
}

/// Sends identity requests to the back end. Shared by all workers; never blocks.
pub trait IdentityBackend: Send + Sync + fmt::Debug {
    /// Asks for a client's identity: returns it immediately, or sends it exactly once to the completion sink.
    fn begin(
        &self,
        request: &IdentityRequest<'_>,
        id: ConnectionId,
        sink: &Arc<dyn CompletionSink>,
        now: Now,
    ) -> MaybeDeferred<IdentityResult>;
}
