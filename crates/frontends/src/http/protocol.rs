//! The interface by which client protocols open sessions. The HTTP stage knows no protocol by name.
//!
//! The stage checks everything that all protocols share (addresses, RFC 6455, identity, limits); the protocol decides
//! how its requests proceed and how its clients are answered.

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

/// The layer above the stage: sessions opened by requests, and the API.
pub(crate) trait UpperLayer {
    /// A session of any protocol.
    type Session: OpenSession;
    type Call: ApiCall;
}

/// How a protocol opens sessions.
pub(crate) trait OpenSession: Session + Sized {
    /// Decides what a request leads to. By default that is a WebSocket, for any request: one that is not a handshake is
    /// refused as such.
    fn plan(asked: &ProtocolRequest<'_, '_>, shared: &mut Context) -> RequestPlan {
        let _ = (asked, shared);
        RequestPlan::Upgrade
    }

    /// Opens a session for a handshake that is valid by RFC 6455 and the route's origins.
    ///
    /// # Errors
    /// The handshake is refused. Nothing was written yet.
    fn begin(
        wanted: &HandshakeRequest<'_, '_, '_>,
        shared: &Context,
    ) -> Result<NewSession<Self>, RefusedUpgrade>;

    /// Opens a session whose messages are parts of a response, after [`RequestPlan::Stream`]. `None` if the protocol has no
    /// such sessions.
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

    /// Returns whether the client may authenticate with its first message.
    fn may_authenticate_later(&self) -> bool {
        false
    }

    /// Decides how to report a permanent refusal. Returns code and reason if the session is to be opened and closed
    /// with them; otherwise the handshake is refused.
    fn close_instead_of_refusing(&mut self, why: AuthError) -> Option<(u16, &'static str)> {
        let _ = why;
        None
    }

    /// Returns the subprotocol that the session selects among those for which `offers` holds.
    fn subprotocol(&self, offers: &dyn Fn(&str) -> bool) -> Option<&'static str> {
        let _ = offers;
        None
    }

    /// Sets the identity from the handshake. Returns whether the session is subscribed to the user's personal channel
    /// from the beginning.
    fn set_identity(&mut self, client: SessionIdentity<'_, '_>) -> bool {
        let _ = client;
        true
    }

    /// Returns which publications the session receives before it can request any.
    fn delivery_mode(&self, route: &Route) -> DeliveryMode {
        let _ = route;
        DeliveryMode::Disabled
    }

    /// Returns whether [`OpenSession::handle_opened`] is called, for which the request is stored.
    fn wants_opened(&self) -> bool {
        false
    }

    /// Handles the opened WebSocket, after the 101 was written.
    fn handle_opened(&mut self, id: ConnectionId, request: &RequestView<'_>, shared: &mut Context) {
        let _ = (id, request, shared);
    }
}

/// A request on a protocol's route.
pub(crate) struct ProtocolRequest<'a, 'b> {
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
    /// Whether the listener uses TLS.
    pub(crate) is_tls: bool,
    /// Checks whether the client's address may open another session; to be called once, before [`RequestPlan::Stream`].
    pub(crate) may_open: &'a dyn Fn(&Context) -> Result<(), Refusal>,
}

/// The result of parsing a request.
pub(crate) enum RequestPlan {
    /// A WebSocket, opened by [`OpenSession::begin`].
    Upgrade,
    /// An endless response, opened by [`OpenSession::begin_stream`]. Its first messages are these bytes, or with `None`
    /// the request's body.
    Stream(Option<Vec<u8>>),
    /// A response computed from the request's body.
    Answer(BodyHandler),
    /// A response that ignores the body.
    Reply(BodyAnswer),
    Refuse(Refusal),
}

/// Computes a response from a body.
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

/// A session opened by a handshake.
pub(crate) struct NewSession<S> {
    pub(crate) session: S,
    /// Requested channels in addition to the user's personal channel, without duplicates.
    pub(crate) channels: Vec<String>,
    /// The last positions known to the client.
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

/// A session opened by such a request.
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

/// The framing of messages within a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFraming {
    /// One line per message.
    Lines,
    /// Each message has its own length prefix.
    Bytes,
    Events,
}

/// A client's identity when its session begins.
pub(crate) struct SessionIdentity<'a, 'b> {
    /// The user; empty for an anonymous client.
    pub(crate) user: &'a str,
    /// The claims of its token.
    pub(crate) claims: Option<Box<Map<String, Value>>>,
    /// The [`disconnect_count`](crate::ProcessServices::disconnect_count) when authentication began.
    pub(crate) disconnects_seen: Option<u64>,
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
}

/// An open session, to be taken over by the connection.
pub(crate) struct OpenedSession<S> {
    pub(crate) session: S,
    pub(crate) decoder: Decoder,
    pub(crate) route: Arc<Route>,
    pub(crate) lease: Option<Box<IdentityLease>>,
    /// Messages are parts of a response, and the connection's input is ignored.
    pub(crate) is_response: bool,
    pub(crate) began: Now,
}
