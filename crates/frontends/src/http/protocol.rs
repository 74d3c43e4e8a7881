//! How sessions of client protocols begin: what the HTTP stage asks of a protocol. It knows none by name.
//!
//! The stage checks what all protocols share (addresses, RFC 6455, identity, limits); the protocol determines what its
//! requests lead to and how its clients are answered.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_hub::{ConnectionId, Since};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::Decoder;
use veche_proto::websocket::handshake::UpgradeRequest;
use veche_types::Now;

use crate::context::app::RequestView;
use crate::context::delivery_mode::DeliveryMode;
use crate::context::identity::{AuthError, IdentityLease};
use crate::context::route::Route;
use crate::context::session::Session;
use crate::context::worker_context::Context;
use crate::http::call::ApiCall;
use crate::http::reply::{Refusal, ReplyContext};
use crate::http::upgrade::RefusedUpgrade;

/// What lies above the stage: the sessions that requests open, and the API that they call.
pub(crate) trait UpperLayer {
    /// A session of any protocol.
    type Session: OpenSession;
    /// A call of the API.
    type Call: ApiCall;
}

/// How sessions of a protocol begin.
pub(crate) trait OpenSession: Session + Sized {
    /// Says what a request leads to. A route of a protocol leads to a WebSocket by default, whatever the request is: one
    /// that is no handshake is refused as such.
    fn plan(asked: &ProtocolRequest<'_, '_>, shared: &mut Context) -> RequestPlan {
        let _ = (asked, shared);
        RequestPlan::Upgrade
    }

    /// Begins a session with a handshake that is right by RFC 6455 and by the route's origins.
    ///
    /// # Errors
    /// The handshake is refused. Nothing is written yet.
    fn begin(
        wanted: &HandshakeRequest<'_, '_, '_>,
        shared: &Context,
    ) -> Result<NewSession<Self>, RefusedUpgrade>;

    /// Begins a session whose messages are parts of a response, after [`RequestPlan::Stream`]. `None`: not by this protocol.
    fn begin_stream(
        request: &StreamRequest<'_, '_>,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Option<NewStream<Self>> {
        let _ = (request, id, shared);
        None
    }

    /// Whether the route's identity determines a user for the session.
    fn has_user(&self) -> bool {
        false
    }

    /// Whether the client may authenticate with its first message.
    fn may_authenticate_later(&self) -> bool {
        false
    }

    /// A client that is refused for good may learn it by a close code, after the handshake. Returns code and reason if the
    /// session is to be opened for that; otherwise the handshake is refused.
    fn close_instead_of_refusing(&mut self, why: AuthError) -> Option<(u16, &'static str)> {
        let _ = why;
        None
    }

    /// The subprotocol that the session wants, of those for which `offers` holds.
    fn subprotocol(&self, offers: &dyn Fn(&str) -> bool) -> Option<&'static str> {
        let _ = offers;
        None
    }

    /// Takes the identity that the handshake has. Returns whether the session is subscribed to the
    /// user's own channel from the beginning.
    fn set_identity(&mut self, client: SessionIdentity<'_, '_>) -> bool {
        let _ = client;
        true
    }

    /// What the session gets of publications before it has any way to ask.
    fn delivery_mode(&self, route: &Route) -> DeliveryMode {
        let _ = route;
        DeliveryMode::Disabled
    }

    /// Whether [`OpenSession::handle_opened`] is called: the request is kept until then.
    fn wants_opened(&self) -> bool {
        false
    }

    /// The WebSocket is open: the 101 is written.
    fn handle_opened(&mut self, id: ConnectionId, request: &RequestView<'_>, shared: &mut Context) {
        let _ = (id, request, shared);
    }
}

/// A request on the route of a protocol.
pub(crate) struct ProtocolRequest<'a, 'b> {
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
    /// Whether its listener has TLS.
    pub(crate) is_tls: bool,
    /// Whether one more session may be opened from the client's address; to be called once, before [`RequestPlan::Stream`].
    pub(crate) may_open: &'a dyn Fn(&Context) -> Result<(), Refusal>,
}

/// What a request leads to.
pub(crate) enum RequestPlan {
    /// A WebSocket, by [`OpenSession::begin`].
    Upgrade,
    /// An endless response, by [`OpenSession::begin_stream`]. Its first messages are these bytes; `None`: the request's body.
    Stream(Option<Vec<u8>>),
    /// An answer to the request's body.
    Answer(BodyHandler),
    /// An answer without looking at the body.
    Reply(BodyAnswer),
    /// A refusal.
    Refuse(Refusal),
}

/// Makes an answer of a body.
pub(crate) type BodyHandler = Box<dyn FnOnce(&[u8], &mut Context) -> BodyAnswer>;

/// A whole answer.
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

/// A handshake.
pub(crate) struct HandshakeRequest<'r, 'a, 'b> {
    pub(crate) head: &'r Head<'b>,
    pub(crate) route: &'r Arc<Route>,
    pub(crate) upgrade: &'r UpgradeRequest<'a, 'b>,
}

/// A session that has begun with a handshake.
pub(crate) struct NewSession<S> {
    pub(crate) session: S,
    /// What it asks to hear beside its user's own channel, each channel once.
    pub(crate) channels: Vec<String>,
    /// Up to where it says to know them.
    pub(crate) since: Option<Arc<[Since]>>,
}

impl<S> NewSession<S> {
    /// A session that asks for nothing in its handshake.
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
    /// The first messages.
    pub(crate) first: &'a [u8],
}

/// A session that has begun with such a request.
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
    /// Server-sent events.
    Events,
}

/// A client's identity when its session begins.
pub(crate) struct SessionIdentity<'a, 'b> {
    /// The user; empty for an anonymous client.
    pub(crate) user: &'a str,
    /// The claims of its token.
    pub(crate) claims: Option<Box<Map<String, Value>>>,
    /// The [endings](crate::Process::endings) when the question for the user was asked.
    pub(crate) disconnects_seen: Option<u64>,
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
}

/// A session that is open, for the connection to take over.
pub(crate) struct OpenedSession<S> {
    pub(crate) session: S,
    pub(crate) decoder: Decoder,
    pub(crate) route: Arc<Route>,
    pub(crate) lease: Option<Box<IdentityLease>>,
    /// Messages are parts of a response, and what comes on the connection is of no interest.
    pub(crate) is_response: bool,
    pub(crate) began: Now,
}
