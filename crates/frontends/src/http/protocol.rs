//! The interface by which client protocols open sessions. The HTTP stage knows none of them by name.
//!
//! The stage checks what all protocols share (addresses, RFC 6455, identity, limits); the protocol decides what its
//! requests lead to and how its clients are answered.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_hub::{ConnectionId, Since};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::Decoder;
use veche_proto::websocket::handshake::Upgrade;
use veche_types::Now;

use crate::context::app::Request;
use crate::context::identity::{Lease, Unknown};
use crate::context::route::Route;
use crate::context::session::Session;
use crate::context::shared::Shared;
use crate::http::call::ApiCall;
use crate::http::reply::{Refusal, Reply};
use crate::http::upgrade::Refused;
use crate::outbox::hears::Hears;

/// The layer above the stage: sessions opened by requests, and the API.
pub(crate) trait Above {
    /// A session of any protocol.
    type Session: Opening;
    type Call: ApiCall;
}

/// How a protocol opens sessions.
pub(crate) trait Opening: Session + Sized {
    /// Decides what a request leads to. By default that is a WebSocket, for any request: one that is not a handshake is
    /// refused as such.
    fn plan(asked: &Asked<'_, '_>, shared: &mut Shared) -> Plan {
        let _ = (asked, shared);
        Plan::Upgrade
    }

    /// Opens a session for a handshake that is valid by RFC 6455 and the route's origins.
    ///
    /// # Errors
    /// The handshake is refused. Nothing was written yet.
    fn begin(wanted: &Wanted<'_, '_, '_>, shared: &Shared) -> Result<Begun<Self>, Refused>;

    /// Opens a session whose messages are parts of a response, after [`Plan::Stream`]. `None` if the protocol has no
    /// such sessions.
    fn begin_stream(
        request: &StreamRequest<'_, '_>,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Option<StreamBegun<Self>> {
        let _ = (request, id, shared);
        None
    }

    /// Returns whether the route's identity determines the session's user.
    fn has_user(&self) -> bool {
        false
    }

    /// Returns whether the client may authenticate with its first message.
    fn may_be_named_later(&self) -> bool {
        false
    }

    /// Decides how to report a permanent refusal. Returns code and reason if the session is to be opened and closed
    /// with them; otherwise the handshake is refused.
    fn refuse_for_good(&mut self, why: Unknown) -> Option<(u16, &'static str)> {
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
    fn identified(&mut self, client: Identified<'_, '_>) -> bool {
        let _ = client;
        true
    }

    /// Returns which publications the session receives before it can request any.
    fn hears(&self, route: &Route) -> Hears {
        let _ = route;
        Hears::Nothing
    }

    /// Returns whether [`Opening::opened`] is called, for which the request is stored.
    fn hears_opened(&self) -> bool {
        false
    }

    /// Handles the opened WebSocket, after the 101 was written.
    fn opened(&mut self, id: ConnectionId, request: &Request<'_>, shared: &mut Shared) {
        let _ = (id, request, shared);
    }
}

/// A request on a protocol's route.
pub(crate) struct Asked<'a, 'b> {
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
    /// Whether the listener uses TLS.
    pub(crate) is_tls: bool,
    /// Checks whether the client's address may open another session; to be called once, before [`Plan::Stream`].
    pub(crate) may_open: &'a dyn Fn(&Shared) -> Result<(), Refusal>,
}

/// What a request leads to.
pub(crate) enum Plan {
    /// A WebSocket, opened by [`Opening::begin`].
    Upgrade,
    /// An endless response, opened by [`Opening::begin_stream`]. These bytes are its first messages; `None`: the
    /// request's body is.
    Stream(Option<Vec<u8>>),
    /// A response computed from the request's body.
    Answer(AnswerTo),
    /// A response that ignores the body.
    Reply(Answer),
    Refuse(Refusal),
}

/// Computes a response from a body.
pub(crate) type AnswerTo = Box<dyn FnOnce(&[u8], &mut Shared) -> Answer>;

pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) headers: Vec<(&'static str, Cow<'static, str>)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn write(&self, reply: &Reply, id: ConnectionId, shared: &mut Shared) {
        let headers = self.headers.iter();
        let headers: Vec<_> = headers.map(|(name, value)| (*name, &**value)).collect();
        reply.write_with(id, self.status, &headers, &self.body, shared);
    }
}

pub(crate) struct Wanted<'r, 'a, 'b> {
    pub(crate) head: &'r Head<'b>,
    pub(crate) route: &'r Arc<Route>,
    pub(crate) upgrade: &'r Upgrade<'a, 'b>,
}

/// A session opened by a handshake.
pub(crate) struct Begun<S> {
    pub(crate) session: S,
    /// Requested channels in addition to the user's personal channel, without duplicates.
    pub(crate) channels: Vec<String>,
    /// The positions up to which the client knows them.
    pub(crate) since: Option<Arc<[Since]>>,
}

impl<S> Begun<S> {
    /// Creates a session that requests no channels.
    pub(crate) fn of(session: S) -> Self {
        Self {
            session,
            channels: Vec::new(),
            since: None,
        }
    }

    pub(crate) fn map<T>(self, map: impl FnOnce(S) -> T) -> Begun<T> {
        Begun {
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
pub(crate) struct StreamBegun<S> {
    pub(crate) session: S,
    pub(crate) framing: Framing,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Vec<(&'static str, Cow<'static, str>)>,
}

impl<S> StreamBegun<S> {
    pub(crate) fn map<T>(self, map: impl FnOnce(S) -> T) -> StreamBegun<T> {
        StreamBegun {
            session: map(self.session),
            framing: self.framing,
            content_type: self.content_type,
            headers: self.headers,
        }
    }
}

/// The framing of messages within a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// One line per message.
    Lines,
    /// Each message has its own length prefix.
    Bytes,
    Events,
}

/// A client's identity when its session begins.
pub(crate) struct Identified<'a, 'b> {
    /// The user; empty for an anonymous client.
    pub(crate) user: &'a str,
    /// The claims of its token.
    pub(crate) claims: Option<Box<Map<String, Value>>>,
    /// The [`endings`](crate::Process::endings) when authentication began.
    pub(crate) asked: Option<u64>,
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
}

/// An open session, to be taken over by the connection.
pub(crate) struct Opened<S> {
    pub(crate) session: S,
    pub(crate) decoder: Decoder,
    pub(crate) route: Arc<Route>,
    pub(crate) lease: Option<Box<Lease>>,
    /// Messages are parts of a response, and the connection's input is ignored.
    pub(crate) is_response: bool,
    pub(crate) began: Now,
}
