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

/// What lies above the stage: the sessions that requests open, and the API that they call.
pub(crate) trait Above {
    /// A session of any protocol.
    type Session: Opening;
    /// A call of the API.
    type Call: ApiCall;
}

/// How sessions of a protocol begin.
pub(crate) trait Opening: Session + Sized {
    /// Says what a request leads to. A route of a protocol leads to a WebSocket by default, whatever the request is: one
    /// that is no handshake is refused as such.
    fn plan(asked: &Asked<'_, '_>, shared: &mut Shared) -> Plan {
        let _ = (asked, shared);
        Plan::Upgrade
    }

    /// Begins a session with a handshake that is right by RFC 6455 and by the route's origins.
    ///
    /// # Errors
    /// The handshake is refused. Nothing is written yet.
    fn begin(wanted: &Wanted<'_, '_, '_>, shared: &Shared) -> Result<Begun<Self>, Refused>;

    /// Begins a session whose messages are parts of a response, after [`Plan::Stream`]. `None`: not by this protocol.
    fn begin_stream(
        request: &StreamRequest<'_, '_>,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Option<StreamBegun<Self>> {
        let _ = (request, id, shared);
        None
    }

    /// Whether the route's identity determines a user for the session.
    fn has_user(&self) -> bool {
        false
    }

    /// Whether the client may authenticate with its first message.
    fn may_be_named_later(&self) -> bool {
        false
    }

    /// A client that is refused for good may learn it by a close code, after the handshake. Returns code and reason if the
    /// session is to be opened for that; otherwise the handshake is refused.
    fn refuse_for_good(&mut self, why: Unknown) -> Option<(u16, &'static str)> {
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
    fn identified(&mut self, client: Identified<'_, '_>) -> bool {
        let _ = client;
        true
    }

    /// What the session gets of publications before it has any way to ask.
    fn hears(&self, route: &Route) -> Hears {
        let _ = route;
        Hears::Nothing
    }

    /// Whether [`Opening::opened`] is called: the request is kept until then.
    fn hears_opened(&self) -> bool {
        false
    }

    /// The WebSocket is open: the 101 is written.
    fn opened(&mut self, id: ConnectionId, request: &Request<'_>, shared: &mut Shared) {
        let _ = (id, request, shared);
    }
}

/// A request on the route of a protocol.
pub(crate) struct Asked<'a, 'b> {
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
    /// Whether its listener has TLS.
    pub(crate) is_tls: bool,
    /// Whether one more session may be opened from the client's address; to be called once, before [`Plan::Stream`].
    pub(crate) may_open: &'a dyn Fn(&Shared) -> Result<(), Refusal>,
}

/// What a request leads to.
pub(crate) enum Plan {
    /// A WebSocket, by [`Opening::begin`].
    Upgrade,
    /// An endless response, by [`Opening::begin_stream`]. Its first messages are these bytes; `None`: the request's body.
    Stream(Option<Vec<u8>>),
    /// An answer to the request's body.
    Answer(AnswerTo),
    /// An answer without looking at the body.
    Reply(Answer),
    /// A refusal.
    Refuse(Refusal),
}

/// Makes an answer of a body.
pub(crate) type AnswerTo = Box<dyn FnOnce(&[u8], &mut Shared) -> Answer>;

/// A whole answer.
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

/// A handshake.
pub(crate) struct Wanted<'r, 'a, 'b> {
    pub(crate) head: &'r Head<'b>,
    pub(crate) route: &'r Arc<Route>,
    pub(crate) upgrade: &'r Upgrade<'a, 'b>,
}

/// A session that has begun with a handshake.
pub(crate) struct Begun<S> {
    pub(crate) session: S,
    /// What it asks to hear beside its user's own channel, each channel once.
    pub(crate) channels: Vec<String>,
    /// Up to where it says to know them.
    pub(crate) since: Option<Arc<[Since]>>,
}

impl<S> Begun<S> {
    /// A session that asks for nothing in its handshake.
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
    /// The first messages.
    pub(crate) first: &'a [u8],
}

/// A session that has begun with such a request.
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
    /// Server-sent events.
    Events,
}

/// A client's identity when its session begins.
pub(crate) struct Identified<'a, 'b> {
    /// The user; empty for an anonymous client.
    pub(crate) user: &'a str,
    /// The claims of its token.
    pub(crate) claims: Option<Box<Map<String, Value>>>,
    /// The [endings](crate::Process::endings) when the question for the user was asked.
    pub(crate) asked: Option<u64>,
    pub(crate) head: &'a Head<'b>,
    pub(crate) route: &'a Arc<Route>,
}

/// A session that is open, for the connection to take over.
pub(crate) struct Opened<S> {
    pub(crate) session: S,
    pub(crate) decoder: Decoder,
    pub(crate) route: Arc<Route>,
    pub(crate) lease: Option<Box<Lease>>,
    /// Messages are parts of a response, and what comes on the connection is of no interest.
    pub(crate) is_response: bool,
    pub(crate) began: Now,
}
