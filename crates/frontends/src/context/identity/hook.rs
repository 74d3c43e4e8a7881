//! The identity hook, by which the back end determines the user. Defines the hook's request, and the trait that sends
//! the request.

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
    /// The client's request: a WebSocket handshake, or an HTTP request to an application.
    pub head: &'a Head<'a>,
    /// The IP address of the client.
    pub client: IpAddr,
}

/// Sends identity requests to the back end. All workers share one instance; its methods never block.
pub trait IdentityBackend: Send + Sync + fmt::Debug {
    /// Requests a client's identity. Either returns it, or defers it and later sends it exactly once to the
    /// completion sink.
    fn begin(
        &self,
        request: &IdentityRequest<'_>,
        id: ConnectionId,
        sink: &Arc<dyn CompletionSink>,
        now: Now,
    ) -> MaybeDeferred<IdentityResult>;
}
