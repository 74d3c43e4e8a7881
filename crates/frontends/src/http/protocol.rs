//! The interface through which client protocols open sessions. The HTTP stage does not depend on a specific protocol.
//!
//! The stage checks everything that all protocols share (addresses, RFC 6455, identity, limits). The protocol decides
//! what a request on its route leads to, and what the responses contain.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_hub::{ConnectionId, Since};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::Decoder;
use veche_proto::websocket::handshake::UpgradeRequest;
use veche_types::Now;

use crate::context::app::RequestView;
use crate::context::identity::{AuthError, IdentityLease};
use crate::context::route::Route;
use crate::context::session::Session;
use crate::context::worker_context::Context;
use crate::http::call::ApiCall;
use crate::http::reply::{Refusal, ReplyContext};
use crate::http::upgrade::RefusedUpgrade;
use crate::outbox::delivery_mode::DeliveryMode;

/// The layer above the HTTP stage: sessions opened by requests, and the API.
pub(crate) trait UpperLayer {
    /// The type of all sessions, whatever their protocol.
    type Session: OpenSession;
    type Call: ApiCall;
}

/// How a protocol opens sessions.
pub(crate) trait OpenSession: Session + Sized {
    /// Decides how a request is answered. By default a request opens a WebSocket, so a request that is not a
    /// handshake is refused.
    fn plan(asked: &ProtocolRequest<'_, '_>, shared: &mut Context) -> RequestPlan {
        let _ = (asked, shared);
        RequestPlan::Upgrade
    }

    /// Opens a session for a handshake that is valid by RFC 6455 and the route's origins.
    ///
    /// # Errors
    /// The handshake is refused; nothing was written yet.
    fn begin(
        wanted: &HandshakeRequest<'_, '_, '_>,
        shared: &Context,
    ) -> Result<NewSession<Self>, RefusedUpgrade>;

    /// Opens a session that sends its messages as parts of a response, after
    /// [`RequestPlan::Stream`]. Returns `None` if the protocol has no such sessions.
    fn begin_stream(
        request: &StreamRequest<'_, '_>,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Option<NewStream<Self>> {
        let _ = (request, id, shared);
        None
    }

    /// Returns whether the route's identity determines the session's user.
    fn has_user(&self) -> bool {
        false
    }

    /// Returns whether the client may authenticate with its first message instead of the handshake.
    fn may_authenticate_later(&self) -> bool {
        false
    }

    /// Decides how to report a permanent refusal. If the session is to be opened and closed at once, returns the
    /// close code and reason; with `None`, the handshake is refused.
    fn close_instead_of_refusing(&mut self, why: AuthError) -> Option<(u16, &'static str)> {
        let _ = why;
        None
    }

    /// Returns the subprotocol that the session selects. `offers` returns whether the client offered a given
    /// subprotocol.
    fn subprotocol(&self, offers: &dyn Fn(&str) -> bool) -> Option<&'static str> {
        let _ = offers;
        None
    }

    /// Sets the identity that the handshake determined. Returns whether the session is subscribed to the user's
    /// personal channel from the beginning.
    fn set_identity(&mut self, client: SessionIdentity<'_, '_>) -> bool {
        let _ = client;
        true
    }

    /// Returns how publications are delivered to the session from its opening on, before the client has sent a command.
    fn delivery_mode(&self, route: &Route) -> DeliveryMode {
        let _ = route;
        DeliveryMode::Disabled
    }

    /// Returns whether [`OpenSession::handle_opened`] has to be called; if so, the request is stored until then.
    fn wants_opened(&self) -> bool {
        false
    }

    /// Called when the WebSocket is open and the 101 is written.
    fn handle_opened(&mut self, id: ConnectionId, request: &RequestView<'_>, shared: &mut Context) {
        let _ = (id, request, shared);
    }
}

/// A request on a route of a client protocol.
pub(crate) struct ProtocolRequest<'a, 'b> {
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
    /// Whether the listener uses TLS.
    pub(crate) is_tls: bool,
    /// Returns an error if the client's address may not open another session. Has to be called once, before
    /// [`RequestPlan::Stream`] is returned.
    pub(crate) may_open: &'a dyn Fn(&Context) -> Result<(), Refusal>,
}

/// What a request on a protocol's route leads to.
pub(crate) enum RequestPlan {
    /// A WebSocket, which [`OpenSession::begin`] opens.
    Upgrade,
    /// A session on an endless response, which [`OpenSession::begin_stream`] opens. Its first messages are these
    /// bytes; with `None`, they are the request's body.
    Stream(Option<Vec<u8>>),
    /// A response computed from the request's body.
    Answer(BodyHandler),
    /// The request gets this response, and its body is ignored.
    Reply(BodyAnswer),
    Refuse(Refusal),
}

/// Computes a response from the request's body.
pub(crate) type BodyHandler = Box<dyn FnOnce(&[u8], &mut Context) -> BodyAnswer>;

pub(crate) struct BodyAnswer {
    pub(crate) status: Status,
    pub(crate) headers: Vec<(&'static str, Cow<'static, str>)>,
    pub(crate) body: Vec<u8>,
}

impl BodyAnswer {
    pub(crate) fn write(&self, reply: &ReplyContext, id: ConnectionId, shared: &mut Context) {
        let headers = self.headers.iter();
        let headers: Vec<_> = headers.map(|(name, value)| (*name, &**value)).collect();
        reply.write_with(id, self.status, &headers, &self.body, shared);
    }
}

pub(crate) struct HandshakeRequest<'r, 'a, 'b> {
    pub(crate) head: &'r Head<'b>,
    pub(crate) route: &'r Arc<Route>,
    pub(crate) upgrade: &'r UpgradeRequest<'a, 'b>,
}

/// A new session and what its handshake requested.
pub(crate) struct NewSession<S> {
    pub(crate) session: S,
    /// The channels requested in addition to the user's personal channel, without duplicates.
    pub(crate) channels: Vec<String>,
    /// The last positions that the client received, for recovery.
    pub(crate) since: Option<Arc<[Since]>>,
}

impl<S> NewSession<S> {
    /// Creates a session that requests no channels.
    pub(crate) fn of(session: S) -> Self {
        Self {
            session,
            channels: Vec::new(),
            since: None,
        }
    }

    pub(crate) fn map<T>(self, map: impl FnOnce(S) -> T) -> NewSession<T> {
        NewSession {
            session: map(self.session),
            channels: self.channels,
            since: self.since,
        }
    }
}

/// A request for an endless response.
pub(crate) struct StreamRequest<'a, 'b> {
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
    pub(crate) first: &'a [u8],
}

/// A session that sends its messages as parts of a response, and the response's head.
pub(crate) struct NewStream<S> {
    pub(crate) session: S,
    pub(crate) framing: StreamFraming,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Vec<(&'static str, Cow<'static, str>)>,
}

impl<S> NewStream<S> {
    pub(crate) fn map<T>(self, map: impl FnOnce(S) -> T) -> NewStream<T> {
        NewStream {
            session: map(self.session),
            framing: self.framing,
            content_type: self.content_type,
            headers: self.headers,
        }
    }
}

/// How messages are separated within a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFraming {
    /// One line per message.
    Lines,
    /// No separator: each message contains its own length.
    Bytes,
    Events,
}

/// The client's identity when its session begins.
pub(crate) struct SessionIdentity<'a, 'b> {
    /// The user; empty for an anonymous client.
    pub(crate) user: &'a str,
    /// The claims of the client's token, if it has one.
    pub(crate) claims: Option<Box<Map<String, Value>>>,
    /// The [`disconnect_count`](crate::ProcessServices::disconnect_count) when authentication began; `None` if the
    /// client is anonymous and no application decided on its handshake.
    pub(crate) disconnects_seen: Option<u64>,
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
}

/// An open session, which the connection takes over.
pub(crate) struct OpenedSession<S> {
    pub(crate) session: S,
    pub(crate) decoder: Decoder,
    pub(crate) route: Arc<Route>,
    pub(crate) lease: Option<Box<IdentityLease>>,
    /// Whether the session sends its messages as parts of an HTTP response. If so, further input of
    /// the connection is ignored.
    pub(crate) is_response: bool,
    pub(crate) began: Now,
}
