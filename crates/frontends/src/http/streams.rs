//! Clients of Centrifugo's protocol without a WebSocket: an endless response, and requests that carry commands to one.

use std::sync::Arc;

use veche_centrifuge::{Encoding, Limits};
use veche_hub::{ConnectionId, WorkerId};
use veche_proto::http::{Framing, Head, HttpError, Method, ResponseBody, ResponseHead, Status};
use veche_proto::websocket::{Decoder, Role};

use super::body::Purpose;
use super::named::Naming;
use super::{Http, KeptRequest, State};
use crate::context::app::Outcome;
use crate::context::identity::{Named, Unknown};
use crate::context::origin;
use crate::context::relay::{Address, Relay};
use crate::context::route::Route;
use crate::context::shared::Shared;
use crate::context::stats::{Handshake, TurnedAway};
use crate::context::step::{Block, Then};
use crate::http::reply::{Refusal, Reply};
use crate::http::upgrade::{Refused, tell_refused};
use crate::outbox::{Carried, marks};
use crate::sessions::centrifuge::Centrifuge;
use crate::sessions::centrifuge::transport::{RELAYS_MAX, Transport, encoding_of, only_connects};
use crate::websocket::{Session, Side, Socket};

/// Of responses that nobody may keep or hold back.
const PASSING: [(&str, &str); 2] = [
    (
        "Cache-Control",
        "private, no-cache, no-store, must-revalidate, max-age=0",
    ),
    ("X-Accel-Buffering", "no"),
];

/// A request that carries commands.
pub(super) struct Envelope {
    /// The page's origin, which may.
    origin: Option<String>,
    encoding: Encoding,
    bytes_max: usize,
}

impl Http {
    /// A request on a route of this protocol that opens no WebSocket.
    pub(super) fn centrifuge(
        &mut self,
        id: ConnectionId,
        transport: Transport,
        (head, raw): (&Head<'_>, &[u8]),
        route: &Arc<Route>,
        shared: &mut Shared,
    ) -> Result<Then<Socket>, HttpError> {
        let given = head.header("origin");
        if !origin::admits(&route.origins, head, self.is_tls(shared)) {
            shared.stats.handshake(Handshake::ForeignOrigin);
            let why = "pages of this origin may not connect";
            return self.refuse(id, head, Refusal::new(Status::FORBIDDEN, why), shared);
        }
        let origin = given.map(str::to_owned);
        if head.method.as_str() == "OPTIONS" {
            return self.answer(id, head, shared, move |reply, id, shared| {
                let mut headers = allowed(origin.as_deref());
                headers.push(("Access-Control-Allow-Methods", transport.methods()));
                headers.push((
                    "Access-Control-Allow-Headers",
                    "Authorization, Content-Type, Last-Event-ID",
                ));
                headers.push(("Access-Control-Max-Age", "300"));
                reply.write_with(id, Status::NO_CONTENT, &headers, b"", shared);
            });
        }
        if !transport.takes(head.method.as_str()) {
            let why = "this path takes another method";
            let refusal = Refusal::new(Status::METHOD_NOT_ALLOWED, why);
            let refusal = refusal.with("Allow", transport.methods());
            return self.refuse(id, head, refusal, shared);
        }
        let bytes_max = route.message_limits.message_bytes_max;
        if matches!(head.framing, Framing::Sized(length) if length > bytes_max as u64) {
            let refusal = Refusal::new(Status::CONTENT_TOO_LARGE, "the body is too long");
            return self.refuse(id, head, refusal, shared);
        }
        if transport == Transport::Emulation {
            let envelope = Envelope {
                origin,
                encoding: encoding_of(head.header("content-type")),
                bytes_max,
            };
            return self.read_body(id, head, Purpose::Envelope(envelope), shared);
        }
        if let Err(refusal) = self.may_upgrade(shared) {
            return self.refuse(id, head, refusal, shared);
        }
        let mut kept = KeptRequest::new(route, raw, Named::default());
        if head.method == Method::Post {
            return self.read_body(id, head, Purpose::Connect(kept), shared);
        }
        match head.query("cf_connect") {
            // A page can have a browser open any address with its visitor's cookies.
            Some(connect) if !transport.is_one_way() && !only_connects(connect.as_bytes()) => {
                let why = "cf_connect takes one connect command and no other";
                return self.refuse(id, head, Refusal::new(Status::BAD_REQUEST, why), shared);
            }
            Some(connect) => kept.body = connect.as_bytes().to_vec(),
            // The request may say all that there is to say.
            None if transport.is_one_way() => {}
            None => {
                let why = "cf_connect=COMMAND is missing";
                return self.refuse(id, head, Refusal::new(Status::BAD_REQUEST, why), shared);
            }
        }
        Ok(self.name_stream(id, kept, shared))
    }

    /// The whole request is there.
    pub(super) fn name_stream(
        &mut self,
        id: ConnectionId,
        kept: KeptRequest,
        shared: &mut Shared,
    ) -> Then<Socket> {
        let head = kept.head();
        match kept
            .route
            .identity
            .name(&self.client(id, &head), &shared.checks())
        {
            Outcome::Now(named) => self.open_stream(id, &kept, named, shared),
            Outcome::Later => {
                self.state = State::Naming(Naming::Stream, Box::new(kept));
                Then::Wait(Block::Answer)
            }
        }
    }

    /// It is known who asks, as far as the request says it.
    pub(super) fn open_stream(
        &mut self,
        id: ConnectionId,
        kept: &KeptRequest,
        named: Result<Named, Unknown>,
        shared: &mut Shared,
    ) -> Then<Socket> {
        let head = kept.head();
        let (route, reply) = (&kept.route, self.reply(&head));
        let refusal = named
            .as_ref()
            .err()
            .and_then(|unknown| unknown.disconnect());
        let named = match named {
            // The connect command says it.
            Err(Unknown::NoToken) => Named::default(),
            Err(_) if refusal.is_some() => Named::default(),
            Ok(named) => named,
            Err(unknown) => {
                let refused = Refused::unknown(unknown, &route.identity, shared);
                return self.refuse_handshake(id, &reply, &refused, shared);
            }
        };
        if let Some(user) = &named.user
            && !shared.count_user_in(id, user)
        {
            shared.stats.turn_away(TurnedAway::UserConnections);
            let why = "too many connections of this user";
            let refusal = Refusal::new(Status::TOO_MANY_REQUESTS, why).with("Retry-After", "1");
            let outcome = Handshake::TurnedAway;
            let refused = Refused { refusal, outcome };
            return self.refuse_handshake(id, &reply, &refused, shared);
        }
        let Some(transport) = Transport::of(route, &head.path) else {
            unreachable!("it was one when the request came, and nothing of that changes")
        };
        let is_events = transport.is_events();
        let encoding = match is_events {
            true => Encoding::Json,
            false => encoding_of(head.header("content-type")),
        };
        let mut response = ResponseHead::to(&head, Status::OK, ResponseBody::Chunked);
        // What comes on the connection meanwhile is not read.
        response.keep_alive = false;
        let is_chunked = response.body == ResponseBody::Chunked;
        let (kind, carried) = match (is_events, encoding) {
            (true, _) => ("text/event-stream", Carried::Events { is_chunked }),
            (_, Encoding::Json) => ("application/json", Carried::Lines { is_chunked }),
            (_, Encoding::Protobuf) => ("application/octet-stream", Carried::Bytes { is_chunked }),
        };
        let mut headers = allowed(head.header("origin"));
        headers.push(("Content-Type", kind));
        let out = shared.ports.outboxes.buffer(id);
        if response.write(out, shared.date.text(), &headers).is_err() {
            unreachable!("its own headers, and an origin that was read as one")
        }
        shared.answered(id, Status::OK.0);
        shared.stats.handshake(Handshake::Opened);
        shared.stats.sessions.add(1);
        shared.ports.outboxes.begin_carrying(id, carried);
        let mut session = Centrifuge::new(encoding, shared.now);
        session.set_user(named.user.as_deref().unwrap_or_default());
        session.set_source(named.claims, named.asked);
        if transport.is_one_way() {
            let last = head.header("last-event-id");
            let last = last.filter(|last| is_events && !last.is_empty());
            session.begin_listening(&kept.body, last.map(marks::since));
        } else {
            let secret = shared.ports.outboxes.masks.bytes();
            let address = Address::new(shared.hub.worker(), id, secret);
            session.begin_emulation(address, &kept.body);
        }
        session.may_ask(transport.name(), &head, route);
        if let Some(code) = refusal {
            session.refuse(code);
            tell_refused(id, code, shared);
        }
        let decoder = Decoder::new(Role::Server, None);
        let session = Session::Centrifuge(Box::new(session));
        let side = Side::Server(Arc::clone(route));
        let socket = Socket::new(decoder, session, side, shared.now);
        Then::Become(socket.with_lease(named.lease).without_frames())
    }

    /// Commands have come for a response, wherever it is.
    pub(super) fn relay(
        &mut self,
        id: ConnectionId,
        envelope: &Envelope,
        body: &[u8],
        reply: Reply,
        shared: &mut Shared,
    ) -> Then<Socket> {
        let limits = Limits {
            message_bytes_max: envelope.bytes_max,
            ..Limits::default()
        };
        let mut headers = allowed(envelope.origin.as_deref());
        let mut status = Status::NO_CONTENT;
        match envelope.encoding.emulation(body, limits) {
            Err(_) => status = Status::BAD_REQUEST,
            // The client connects again, and gets a node that is there.
            Ok(emulation) if emulation.node != shared.process.node() => {
                status = Status::NOT_FOUND;
            }
            Ok(emulation) => match Address::read(&emulation.session) {
                Some(to) if !has_room(to.worker, shared) => {
                    status = Status::SERVICE_UNAVAILABLE;
                    headers.push(("Retry-After", "1"));
                }
                // Whether it is there still turns out where it was; a client whose response is over knows it.
                Some(to) => {
                    let commands = emulation.data.as_ref().into();
                    shared.ports.relays.push_back(Relay { to, commands });
                }
                None => {}
            },
        }
        reply.write_with(id, status, &headers, b"", shared);
        self.finish(id, reply.keep_alive, shared)
    }
}

/// Whether commands for responses of a worker can wait to be posted. Each worker has a share of the room, so that one whose
/// lane is busy leaves room for the commands of others.
fn has_room(worker: WorkerId, shared: &Shared) -> bool {
    let relays = &shared.ports.relays;
    let share = (RELAYS_MAX / usize::from(shared.hub.workers())).max(1);
    relays.len() < share
        || relays
            .iter()
            .filter(|relay| relay.to.worker == worker)
            .count()
            < share
}

/// Headers by which a page of that origin may read the answer.
fn allowed(origin: Option<&str>) -> Vec<(&str, &str)> {
    let mut headers = PASSING.to_vec();
    if let Some(origin) = origin {
        headers.push(("Access-Control-Allow-Origin", origin));
        headers.push(("Vary", "Origin"));
    }
    headers
}
