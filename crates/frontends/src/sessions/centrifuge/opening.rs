//! How sessions open: with a WebSocket, or with an endless response whose client sends commands in other requests.

use std::borrow::Cow;

use veche_centrifuge::{DecodeLimits, Encoding};
use veche_hub::{ConnectionId, WorkerId};
use veche_nodes::NodeId;
use veche_proto::http::{Framing as BodyFraming, Head, Method, Status};
use veche_proto::websocket::handshake::UpgradeRequest;

use super::Centrifuge;
use super::transport::{CentrifugeTransport, RELAYS_MAX, encoding_of, only_connects};
use crate::context::identity::AuthError;
use crate::context::origin;
use crate::context::relay::{EmulationAddress, EmulationRequest};
use crate::context::stats::HandshakeOutcome;
use crate::context::worker_context::Context;
use crate::http::protocol::{
    BodyAnswer, HandshakeRequest, NewSession, NewStream, OpenSession, ProtocolRequest, RequestPlan,
    SessionIdentity, StreamFraming, StreamRequest,
};
use crate::http::reply::Refusal;
use crate::http::upgrade::RefusedUpgrade;
use crate::outbox::cursors;

/// The subprotocol for the Protobuf encoding; [`JSON`] is the subprotocol for the JSON encoding.
const PROTOBUF: &str = "centrifuge-protobuf";
const JSON: &str = "centrifuge-json";

/// Headers that prevent caching and buffering of a response.
const OVERLOADED: [(&str, &str); 2] = [
    (
        "Cache-Control",
        "private, no-cache, no-store, must-revalidate, max-age=0",
    ),
    ("X-Accel-Buffering", "no"),
];

type Headers = Vec<(&'static str, Cow<'static, str>)>;

impl OpenSession for Box<Centrifuge> {
    fn plan(asked: &ProtocolRequest<'_, '_>, shared: &mut Context) -> RequestPlan {
        match CentrifugeTransport::of(asked.route, &asked.head.path) {
            Some(CentrifugeTransport::WebSocket | CentrifugeTransport::OneWayWebSocket) => {
                RequestPlan::Upgrade
            }
            Some(transport) => plan(transport, asked, shared).unwrap_or_else(RequestPlan::Refuse),
            None => RequestPlan::Refuse(Refusal::new(Status::NOT_FOUND, "not found")),
        }
    }

    fn begin(
        wanted: &HandshakeRequest<'_, '_, '_>,
        shared: &Context,
    ) -> Result<NewSession<Self>, RefusedUpgrade> {
        let HandshakeRequest {
            head,
            route,
            upgrade,
        } = *wanted;
        let encoding = encoding(head, upgrade);
        let mut session = Centrifuge::new(encoding, shared.now);
        if CentrifugeTransport::of(route, &head.path).is_some_and(CentrifugeTransport::is_one_way) {
            listen(&mut session, encoding, head)?;
        }
        Ok(NewSession::of(Self::new(session)))
    }

    fn begin_stream(
        request: &StreamRequest<'_, '_>,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Option<NewStream<Self>> {
        let StreamRequest { head, route, first } = *request;
        let transport = CentrifugeTransport::of(route, &head.path)?;
        let is_events = transport.is_events();
        let encoding = match is_events {
            true => Encoding::Json,
            false => encoding_of(head.header("content-type")),
        };
        let (content_type, framing) = match (is_events, encoding) {
            (true, _) => ("text/event-stream", StreamFraming::Events),
            (_, Encoding::Json) => ("application/json", StreamFraming::Lines),
            (_, Encoding::Protobuf) => ("application/octet-stream", StreamFraming::Bytes),
        };
        let mut session = Centrifuge::new(encoding, shared.now);
        if transport.is_one_way() {
            let last = head.header("last-event-id");
            let last = last.filter(|last| is_events && !last.is_empty());
            session.begin_listening(first, last.map(cursors::since));
        } else {
            let secret = shared.requests.outboxes.masks.bytes();
            let address = EmulationAddress::new(shared.hub.worker(), id, secret);
            session.begin_emulation(address, first);
        }
        Some(NewStream {
            session: Self::new(session),
            framing,
            content_type,
            headers: allowed(head.header("origin").map(str::to_owned)),
        })
    }

    fn has_user(&self) -> bool {
        true
    }

    /// Returns true, since the connect command may authenticate the client.
    fn may_authenticate_later(&self) -> bool {
        true
    }

    fn close_instead_of_refusing(&mut self, why: AuthError) -> Option<(u16, &'static str)> {
        let code = super::disconnect(why)?;
        Centrifuge::refuse(self, code);
        Some((code.code(), code.text()))
    }

    fn subprotocol(&self, offers: &dyn Fn(&str) -> bool) -> Option<&'static str> {
        [PROTOBUF, JSON].into_iter().find(|known| offers(known))
    }

    /// Sets the identity. Returns false, since the client is subscribed to its personal channel later, by the connect
    /// command.
    fn set_identity(&mut self, client: SessionIdentity<'_, '_>) -> bool {
        self.set_user(client.user);
        self.set_source(client.claims, client.disconnects_seen);
        let transport = CentrifugeTransport::of(client.route, &client.head.path);
        let transport = transport.unwrap_or(CentrifugeTransport::WebSocket);
        self.prepare_hook_requests(transport.name(), client.head, client.route);
        false
    }
}

/// Plans the response to a request that opens no WebSocket.
fn plan(
    transport: CentrifugeTransport,
    asked: &ProtocolRequest<'_, '_>,
    shared: &mut Context,
) -> Result<RequestPlan, Refusal> {
    let ProtocolRequest { head, route, .. } = *asked;
    if !origin::admits(&route.origins, head, asked.is_tls) {
        shared.stats.handshake(HandshakeOutcome::ForeignOrigin);
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
        return Ok(RequestPlan::Reply(answer(Status::NO_CONTENT, headers)));
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
    if transport == CentrifugeTransport::Emulation {
        let encoding = encoding_of(head.header("content-type"));
        return Ok(RequestPlan::Answer(Box::new(move |body, shared| {
            relay(encoding, bytes_max, body, origin, shared)
        })));
    }
    (asked.may_open)(shared)?;
    if head.method == Method::Post {
        return Ok(RequestPlan::Stream(None));
    }
    match head.query("cf_connect") {
        // A URL may contain only a connect command, since a page can make a browser request any URL with the
        // cookies of its user.
        Some(connect) if !transport.is_one_way() && !only_connects(connect.as_bytes()) => {
            let why = "cf_connect must contain exactly one connect command";
            Err(Refusal::new(Status::BAD_REQUEST, why))
        }
        Some(connect) => Ok(RequestPlan::Stream(Some(connect.as_bytes().to_vec()))),
        // A request without a connect request is valid: the handshake may contain everything that is needed.
        None if transport.is_one_way() => Ok(RequestPlan::Stream(Some(Vec::new()))),
        None => Err(Refusal::new(
            Status::BAD_REQUEST,
            "cf_connect=COMMAND is missing",
        )),
    }
}

/// Passes commands to the session of a streaming response, on any worker or node.
fn relay(
    encoding: Encoding,
    bytes_max: usize,
    body: &[u8],
    origin: Option<String>,
    shared: &mut Context,
) -> BodyAnswer {
    let limits = DecodeLimits {
        message_bytes_max: bytes_max,
        ..DecodeLimits::default()
    };
    let mut headers = allowed(origin);
    let mut status = Status::NO_CONTENT;
    match encoding.emulation(body, limits) {
        Err(_) => status = Status::BAD_REQUEST,
        // The session's node no longer exists. The client reconnects, to another node.
        Ok(emulation)
            if emulation.node != shared.process.node()
                && !shared.process.has_node(&emulation.node) =>
        {
            status = Status::NOT_FOUND;
        }
        Ok(emulation) if emulation.node != shared.process.node() => {
            let node = u64::from_str_radix(&emulation.node, 16).map(NodeId);
            match node.ok().zip(EmulationAddress::parse(&emulation.session)) {
                Some(_) if shared.requests.far_relays.len() >= RELAYS_MAX => {
                    status = Status::SERVICE_UNAVAILABLE;
                    headers.push(("Retry-After", "1".into()));
                }
                Some((node, to)) => {
                    let commands = emulation.data.as_ref().into();
                    let relay = EmulationRequest { to, commands };
                    shared.requests.far_relays.push_back((node, relay));
                }
                None => {}
            }
        }
        Ok(emulation) => match EmulationAddress::parse(&emulation.session) {
            Some(to) if !has_room(to.worker, shared) => {
                status = Status::SERVICE_UNAVAILABLE;
                headers.push(("Retry-After", "1".into()));
            }
            // Whether the response still exists is checked on its worker. A response that has ended
            // is not reported as an error here, since the client has noticed its end.
            Some(to) => {
                let commands = emulation.data.as_ref().into();
                shared
                    .requests
                    .relays
                    .push_back(EmulationRequest { to, commands });
            }
            None => {}
        },
    }
    answer(status, headers)
}

fn answer(status: Status, headers: Headers) -> BodyAnswer {
    BodyAnswer {
        status,
        headers,
        body: Vec::new(),
    }
}

/// Returns whether another relay to a worker may be queued. Each worker has an equal share of the queue, so that
/// relays to a busy worker leave room for relays to other workers.
fn has_room(worker: WorkerId, shared: &Context) -> bool {
    let relays = &shared.requests.relays;
    let share = (RELAYS_MAX / usize::from(shared.hub.workers())).max(1);
    relays.len() < share
        || relays
            .iter()
            .filter(|relay| relay.to.worker == worker)
            .count()
            < share
}

/// Returns the headers that prevent caching, and the CORS headers for pages of this origin.
fn allowed(origin: Option<String>) -> Headers {
    let passing = OVERLOADED.into_iter();
    let mut headers: Headers = passing.map(|(name, value)| (name, value.into())).collect();
    if let Some(origin) = origin {
        headers.push(("Access-Control-Allow-Origin", origin.into()));
        headers.push(("Vary", "Origin".into()));
    }
    headers
}

/// Makes a session one-way. The connect request is taken from the query, or else from the client's first message.
fn listen(
    session: &mut Centrifuge,
    encoding: Encoding,
    head: &Head<'_>,
) -> Result<(), RefusedUpgrade> {
    let connect = head.query("cf_connect");
    let Some(connect) = connect.filter(|connect| !connect.is_empty()) else {
        session.begin_one_way();
        return Ok(());
    };
    // A request head is shorter than the default limit for messages, so that limit is sufficient.
    let limits = DecodeLimits::default();
    if let Err(malformed) = encoding.connect_request(connect.as_bytes(), limits) {
        let why = format!("cf_connect: {malformed}");
        return Err(RefusedUpgrade::new(
            Status::BAD_REQUEST,
            &why,
            HandshakeOutcome::Malformed,
        ));
    }
    session.begin_listening(connect.as_bytes(), None);
    Ok(())
}

/// Returns the encoding that the client requests.
fn encoding(head: &Head<'_>, upgrade: &UpgradeRequest<'_, '_>) -> Encoding {
    let is_asked_for = |name| head.query(name).is_some_and(|value| value == "protobuf");
    let is_protobuf = upgrade.protocols().any(|offered| offered == PROTOBUF)
        || is_asked_for("cf_protocol")
        || is_asked_for("format");
    match is_protobuf {
        true => Encoding::Protobuf,
        false => Encoding::Json,
    }
}
