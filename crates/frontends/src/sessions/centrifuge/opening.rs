//! How sessions open: with a WebSocket, or with an endless response and separate requests for commands.

use std::borrow::Cow;

use veche_centrifuge::{Encoding, Limits};
use veche_hub::{ConnectionId, WorkerId};
use veche_nodes::NodeId;
use veche_proto::http::{Framing as BodyFraming, Head, Method, Status};
use veche_proto::websocket::handshake::Upgrade;

use super::Centrifuge;
use super::transport::{RELAYS_MAX, Transport, encoding_of, only_connects};
use crate::context::identity::Unknown;
use crate::context::origin;
use crate::context::relay::{Address, Relay};
use crate::context::shared::Shared;
use crate::context::stats::Handshake;
use crate::http::protocol::{
    Answer, Asked, Begun, Framing, Identified, Opening, Plan, StreamBegun, StreamRequest, Wanted,
};
use crate::http::reply::Refusal;
use crate::http::upgrade::Refused;
use crate::outbox::marks;

/// Subprotocols of Centrifugo's protocol.
const PROTOBUF: &str = "centrifuge-protobuf";
const JSON: &str = "centrifuge-json";

/// Headers that forbid caching and buffering of a response.
const PASSING: [(&str, &str); 2] = [
    (
        "Cache-Control",
        "private, no-cache, no-store, must-revalidate, max-age=0",
    ),
    ("X-Accel-Buffering", "no"),
];

type Headers = Vec<(&'static str, Cow<'static, str>)>;

impl Opening for Box<Centrifuge> {
    fn plan(asked: &Asked<'_, '_>, shared: &mut Shared) -> Plan {
        match Transport::of(asked.route, &asked.head.path) {
            Some(Transport::WebSocket | Transport::OneWayWebSocket) => Plan::Upgrade,
            Some(transport) => plan(transport, asked, shared).unwrap_or_else(Plan::Refuse),
            None => Plan::Refuse(Refusal::new(Status::NOT_FOUND, "not found")),
        }
    }

    fn begin(wanted: &Wanted<'_, '_, '_>, shared: &Shared) -> Result<Begun<Self>, Refused> {
        let Wanted {
            head,
            route,
            upgrade,
        } = *wanted;
        let encoding = encoding(head, upgrade);
        let mut session = Centrifuge::new(encoding, shared.now);
        if Transport::of(route, &head.path).is_some_and(Transport::is_one_way) {
            listen(&mut session, encoding, head)?;
        }
        Ok(Begun::of(Self::new(session)))
    }

    fn begin_stream(
        request: &StreamRequest<'_, '_>,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Option<StreamBegun<Self>> {
        let StreamRequest { head, route, first } = *request;
        let transport = Transport::of(route, &head.path)?;
        let is_events = transport.is_events();
        let encoding = match is_events {
            true => Encoding::Json,
            false => encoding_of(head.header("content-type")),
        };
        let (content_type, framing) = match (is_events, encoding) {
            (true, _) => ("text/event-stream", Framing::Events),
            (_, Encoding::Json) => ("application/json", Framing::Lines),
            (_, Encoding::Protobuf) => ("application/octet-stream", Framing::Bytes),
        };
        let mut session = Centrifuge::new(encoding, shared.now);
        if transport.is_one_way() {
            let last = head.header("last-event-id");
            let last = last.filter(|last| is_events && !last.is_empty());
            session.begin_listening(first, last.map(marks::since));
        } else {
            let secret = shared.ports.outboxes.masks.bytes();
            let address = Address::new(shared.hub.worker(), id, secret);
            session.begin_emulation(address, first);
        }
        Some(StreamBegun {
            session: Self::new(session),
            framing,
            content_type,
            headers: allowed(head.header("origin").map(str::to_owned)),
        })
    }

    fn has_user(&self) -> bool {
        true
    }

    /// By the connect command.
    fn may_be_named_later(&self) -> bool {
        true
    }

    fn refuse_for_good(&mut self, why: Unknown) -> Option<(u16, &'static str)> {
        let code = super::disconnect(why)?;
        Centrifuge::refuse(self, code);
        Some((code.code(), code.words()))
    }

    fn subprotocol(&self, offers: &dyn Fn(&str) -> bool) -> Option<&'static str> {
        [PROTOBUF, JSON].into_iter().find(|known| offers(known))
    }

    /// It is subscribed by the connect command, after the handshake.
    fn identified(&mut self, client: Identified<'_, '_>) -> bool {
        self.set_user(client.user);
        self.set_source(client.claims, client.asked);
        let transport = Transport::of(client.route, &client.head.path);
        let transport = transport.unwrap_or(Transport::WebSocket);
        self.may_ask(transport.name(), client.head, client.route);
        false
    }
}

/// Handles a request that opens no WebSocket.
fn plan(transport: Transport, asked: &Asked<'_, '_>, shared: &mut Shared) -> Result<Plan, Refusal> {
    let Asked { head, route, .. } = *asked;
    if !origin::admits(&route.origins, head, asked.is_tls) {
        shared.stats.handshake(Handshake::ForeignOrigin);
        let why = "pages of this origin may not connect";
        return Err(Refusal::new(Status::FORBIDDEN, why));
    }
    let origin = head.header("origin").map(str::to_owned);
    if head.method.as_str() == "OPTIONS" {
        let mut headers = allowed(origin);
        headers.extend([
            ("Access-Control-Allow-Methods", transport.methods().into()),
            (
                "Access-Control-Allow-Headers",
                "Authorization, Content-Type, Last-Event-ID".into(),
            ),
            ("Access-Control-Max-Age", "300".into()),
        ]);
        return Ok(Plan::Reply(answer(Status::NO_CONTENT, headers)));
    }
    if !transport.takes(head.method.as_str()) {
        let why = "method not allowed on this path";
        let refusal = Refusal::new(Status::METHOD_NOT_ALLOWED, why);
        return Err(refusal.with("Allow", transport.methods()));
    }
    let bytes_max = route.message_limits.message_bytes_max;
    if matches!(head.framing, BodyFraming::Sized(length) if length > bytes_max as u64) {
        return Err(Refusal::new(
            Status::CONTENT_TOO_LARGE,
            "the body is too long",
        ));
    }
    if transport == Transport::Emulation {
        let encoding = encoding_of(head.header("content-type"));
        return Ok(Plan::Answer(Box::new(move |body, shared| {
            relay(encoding, bytes_max, body, origin, shared)
        })));
    }
    (asked.may_open)(shared)?;
    if head.method == Method::Post {
        return Ok(Plan::Stream(None));
    }
    match head.query("cf_connect") {
        // A page can make a browser request any address with its visitor's cookies.
        Some(connect) if !transport.is_one_way() && !only_connects(connect.as_bytes()) => {
            let why = "cf_connect must contain exactly one connect command";
            Err(Refusal::new(Status::BAD_REQUEST, why))
        }
        Some(connect) => Ok(Plan::Stream(Some(connect.as_bytes().to_vec()))),
        // The request may contain everything needed.
        None if transport.is_one_way() => Ok(Plan::Stream(Some(Vec::new()))),
        None => Err(Refusal::new(
            Status::BAD_REQUEST,
            "cf_connect=COMMAND is missing",
        )),
    }
}

/// Relays commands to a response of any worker.
fn relay(
    encoding: Encoding,
    bytes_max: usize,
    body: &[u8],
    origin: Option<String>,
    shared: &mut Shared,
) -> Answer {
    let limits = Limits {
        message_bytes_max: bytes_max,
        ..Limits::default()
    };
    let mut headers = allowed(origin);
    let mut status = Status::NO_CONTENT;
    match encoding.emulation(body, limits) {
        Err(_) => status = Status::BAD_REQUEST,
        // The client connects again, and gets a node that is there.
        Ok(emulation)
            if emulation.node != shared.process.node()
                && !shared.process.has_node(&emulation.node) =>
        {
            status = Status::NOT_FOUND;
        }
        Ok(emulation) if emulation.node != shared.process.node() => {
            let node = u64::from_str_radix(&emulation.node, 16).map(NodeId);
            match node.ok().zip(Address::read(&emulation.session)) {
                Some(_) if shared.ports.far_relays.len() >= RELAYS_MAX => {
                    status = Status::SERVICE_UNAVAILABLE;
                    headers.push(("Retry-After", "1".into()));
                }
                Some((node, to)) => {
                    let commands = emulation.data.as_ref().into();
                    let relay = Relay { to, commands };
                    shared.ports.far_relays.push_back((node, relay));
                }
                None => {}
            }
        }
        Ok(emulation) => match Address::read(&emulation.session) {
            Some(to) if !has_room(to.worker, shared) => {
                status = Status::SERVICE_UNAVAILABLE;
                headers.push(("Retry-After", "1".into()));
            }
            // Whether the response still exists is checked on its worker; the client itself knows when it has ended.
            Some(to) => {
                let commands = emulation.data.as_ref().into();
                shared.ports.relays.push_back(Relay { to, commands });
            }
            None => {}
        },
    }
    answer(status, headers)
}

fn answer(status: Status, headers: Headers) -> Answer {
    Answer {
        status,
        headers,
        body: Vec::new(),
    }
}

/// Returns whether relays of a worker may be queued. Each worker has a share of the queue, so that one with a busy lane
/// leaves room for others.
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

/// Returns the CORS headers for pages of this origin.
fn allowed(origin: Option<String>) -> Headers {
    let passing = PASSING.into_iter();
    let mut headers: Headers = passing.map(|(name, value)| (name, value.into())).collect();
    if let Some(origin) = origin {
        headers.push(("Access-Control-Allow-Origin", origin.into()));
        headers.push(("Vary", "Origin".into()));
    }
    headers
}

/// Makes a session one-way. Its connect request is in the query, or is its first message.
fn listen(session: &mut Centrifuge, encoding: Encoding, head: &Head<'_>) -> Result<(), Refused> {
    let connect = head.query("cf_connect");
    let Some(connect) = connect.filter(|connect| !connect.is_empty()) else {
        session.only_listens();
        return Ok(());
    };
    let limits = Limits {
        message_bytes_max: connect.len(),
        ..Limits::default()
    };
    if let Err(malformed) = encoding.connect_request(connect.as_bytes(), limits) {
        let why = format!("cf_connect: {malformed}");
        return Err(Refused::new(
            Status::BAD_REQUEST,
            &why,
            Handshake::Malformed,
        ));
    }
    session.begin_listening(connect.as_bytes(), None);
    Ok(())
}

/// Returns the encoding that a client uses.
fn encoding(head: &Head<'_>, upgrade: &Upgrade<'_, '_>) -> Encoding {
    let is_asked_for = |name| head.query(name).is_some_and(|value| value == "protobuf");
    let is_protobuf = upgrade.protocols().any(|offered| offered == PROTOBUF)
        || is_asked_for("cf_protocol")
        || is_asked_for("format");
    match is_protobuf {
        true => Encoding::Protobuf,
        false => Encoding::Json,
    }
}
