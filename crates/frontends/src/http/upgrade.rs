//! From an upgrade request to an open session: who is it, from whose page, what may it hear.
//!
//! The 101 is written at once but held back until every home worker has registered the session: whoever sees `open`
//! gets the next push. Publications that come in between wait behind it in the outbox.

use std::sync::Arc;

use veche_centrifuge::{DisconnectCode, Encoding, Limits};
use veche_hub::{
    Answer, ChannelName, ConnectionId, Position, Since, SubscribeOptions, Subscribing, Ticket,
};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::handshake::{self, Upgrade};
use veche_proto::websocket::{self, Decoder};
use veche_types::AppId;

use crate::backend::Backend;
use crate::context::close::{BLOCKED, DISCONNECTED};
use crate::context::identity::{Identity, Named, Unknown};
use crate::context::note::{Decision, NoteLevel};
use crate::context::origin;
use crate::context::route::{Handler, Route};
use crate::context::shared::Shared;
use crate::context::stats::{Handshake, TurnedAway};
use crate::http::KeptRequest;
use crate::http::api_error::unauthorized;
use crate::http::reply::Refusal;
use crate::outbox::Hears;
use crate::sessions::app::App;
use crate::sessions::centrifuge::Centrifuge;
use crate::sessions::centrifuge::transport::Transport;
use crate::websocket::{Session, Side, Socket};

/// Most channels that one handshake may ask for.
pub const CHANNELS_MAX: usize = 32;

/// Most positions that it may come back with: one of each, and one of its user's own channel.
const SINCE_MAX: usize = CHANNELS_MAX + 1;

/// Subprotocols of Centrifugo's protocol.
const PROTOBUF: &str = "centrifuge-protobuf";
const JSON: &str = "centrifuge-json";

/// A handshake that is refused.
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) outcome: Handshake,
}

/// A handshake that is right by the protocol and by the route.
pub(crate) struct Candidate<'a, 'b> {
    pub(crate) head: &'a Head<'b>,
    /// The head as it came.
    pub(crate) raw: &'a [u8],
    pub(crate) route: &'a Arc<Route>,
    upgrade: Upgrade<'a, 'b>,
    session: Session,
    /// Who it is by the route's identity; nobody until that is found out.
    pub(crate) named: Named,
    /// With this code it is closed right after the handshake.
    refusal: Option<DisconnectCode>,
    /// What it asked to hear beside its user's own channel.
    channels: Vec<String>,
    /// Up to where it says to know them.
    joining: SubscribeOptions,
}

/// A session whose registrations are under way.
pub(crate) struct Registration {
    socket: Socket,
    /// By the number of the ticket; empty where nobody is told where he joins.
    channels: Vec<String>,
    /// The client has come back to some.
    is_back: bool,
    open: u32,
    /// Whose it is, while homes are asked.
    user: Option<Box<str>>,
    /// The [endings](crate::Process::endings) when the question was asked.
    asked: Option<u64>,
    /// Where in the outbox the 101 begins.
    written_at: usize,
    /// With this code the session is closed as soon as it is open.
    refusal: Option<DisconnectCode>,
    /// For an application that is told when the session is open.
    pub(crate) opening: Option<Box<KeptRequest>>,
}

/// Judges an upgrade request, all but who it is; `raw` is its head as it came, `is_tls`
/// says that its listener has TLS. Nothing is written yet.
pub(crate) fn judge<'a, 'b>(
    head: &'a Head<'b>,
    raw: &'a [u8],
    route: &'a Arc<Route>,
    is_tls: bool,
    shared: &Shared,
) -> Result<Candidate<'a, 'b>, Refused> {
    let upgrade = handshake::read(head)
        .map_err(|error| match error.status {
            Status::UPGRADE_REQUIRED => upgrade_required(error.reason),
            _ => refused(error.status, error.reason, Handshake::Malformed),
        })?
        .ok_or_else(|| upgrade_required("this path speaks WebSocket"))?;
    if shared.is_draining() {
        let mut refused = refused(
            Status::SERVICE_UNAVAILABLE,
            "going away",
            Handshake::Malformed,
        );
        refused.refusal = refused.refusal.with("Retry-After", "1");
        return Err(refused);
    }
    if !origin::admits(&route.origins, head, is_tls) {
        return Err(refused(
            Status::FORBIDDEN,
            "pages of this origin may not connect",
            Handshake::ForeignOrigin,
        ));
    }
    let session = match route.handler {
        Handler::Push => Session::Push(None),
        Handler::Lua { app, .. } => Session::App(App::new(app)),
        Handler::Api => match shared.site.publisher(head) {
            Some(publisher) => Session::Backend(Box::new(Backend::of(publisher))),
            None => {
                return Err(Refused {
                    refusal: unauthorized(),
                    outcome: Handshake::Unauthorized,
                });
            }
        },
        Handler::Centrifuge => {
            let encoding = encoding(head, &upgrade);
            let mut session = Centrifuge::new(encoding, shared.now);
            if Transport::of(route, &head.path).is_some_and(Transport::is_one_way) {
                listen(&mut session, encoding, head)?;
            }
            Session::Centrifuge(Box::new(session))
        }
        _ => Session::Echo,
    };
    let (channels, since) = match session {
        Session::Push(_) => (channels(head, route, shared)?, since(head, route)?),
        _ => (Vec::new(), None),
    };
    Ok(Candidate {
        head,
        raw,
        route,
        upgrade,
        session,
        named: Named::default(),
        refusal: None,
        channels,
        joining: SubscribeOptions {
            since,
            ..SubscribeOptions::default()
        },
    })
}

/// Makes a session one that only listens. Its connect request is in the query, or its first message.
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
        return Err(refused(Status::BAD_REQUEST, &why, Handshake::Malformed));
    }
    session.begin_listening(connect.as_bytes(), None);
    Ok(())
}

/// What a client of Centrifugo's protocol speaks.
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

/// Where a client that comes back has been. Epochs say of which channel a position is.
fn since(head: &Head<'_>, route: &Route) -> Result<Option<Arc<[Since]>>, Refused> {
    let mut all = Vec::new();
    for text in head.query_all("since") {
        let bad = |why: &str| refused(Status::BAD_REQUEST, why, Handshake::Malformed);
        if !route.has_positions {
            return Err(bad(
                "this route tells no positions, so there is nothing to come back to",
            ));
        }
        let position = text.parse::<Position>();
        all.push(
            position
                .map_err(|error| bad(&format!("since: {error}")))?
                .into(),
        );
        if all.len() > SINCE_MAX {
            let why = format!("a handshake takes at most {SINCE_MAX} positions");
            return Err(bad(&why));
        }
    }
    Ok((!all.is_empty()).then(|| all.into()))
}

/// Of a channel that a handshake may not ask for.
fn forbidden() -> Refused {
    let why = "this route does not allow that channel";
    refused(Status::FORBIDDEN, why, Handshake::ForbiddenChannel)
}

/// What a client asks to hear, each channel once, as far as that can be told before it is known who it is. A route's
/// patterns are of single channels: by one that hears a whole namespace, more would come than the route lets through,
/// unless that namespace is open to all.
fn channels(head: &Head<'_>, route: &Route, shared: &Shared) -> Result<Vec<String>, Refused> {
    let namespaces = &shared.site.namespaces;
    let is_open = |name: &str| {
        namespaces.wildcards().of(name) != Some(name)
            || namespaces.of(name).access.subscribe == Subscribing::Client
    };
    let mut channels = Vec::new();
    for channel in head.query_all("channel") {
        let is_listed = route.lists_channel(&channel) && is_open(&channel);
        if !is_listed || ChannelName::new(&channel).is_err() {
            return Err(forbidden());
        }
        let channel = channel.into_owned();
        if !channels.contains(&channel) {
            channels.push(channel);
        }
        if channels.len() > CHANNELS_MAX {
            return Err(refused(
                Status::BAD_REQUEST,
                &format!("a handshake takes at most {CHANNELS_MAX} channels"),
                Handshake::ForbiddenChannel,
            ));
        }
    }
    Ok(channels)
}

impl Refused {
    /// Nobody knows who it is.
    pub(crate) fn unknown(why: Unknown, identity: &Identity, shared: &Shared) -> Self {
        let outcome = match why.is_ours() {
            true => Handshake::Unavailable,
            false => Handshake::Unidentified,
        };
        if let Unknown::Token(refusal) = why {
            shared.stats.token_refused(refusal);
        }
        let mut refused = refused(why.status(), &why.to_string(), outcome);
        if refused.refusal.status == Status::UNAUTHORIZED
            && let Some(challenge) = identity.challenge(why)
        {
            refused.refusal = refused.refusal.with("WWW-Authenticate", challenge);
        }
        if let Some(wait_s) = why.wait_s() {
            refused.refusal = refused.refusal.with("Retry-After", wait_s.to_string());
        }
        refused
    }

    /// Counts it and says it in the log.
    pub(crate) fn note(&self, id: ConnectionId, shared: &mut Shared) {
        shared.stats.handshake(self.outcome);
        let why = self.refusal.why();
        let what = format!("handshake refused with {}: {why}", self.refusal.status.0);
        shared.note_as(why, id, NoteLevel::Info, what);
        shared.decided(&Decision {
            what: "connect",
            code: self.refusal.status.0.into(),
            reason: why,
            ..Decision::default()
        });
    }
}

impl Candidate<'_, '_> {
    /// The application that it is for.
    pub(crate) fn app(&self) -> Option<AppId> {
        match &self.session {
            Session::App(app) => Some(app.id()),
            _ => None,
        }
    }

    /// Whether the route wants to know who it is.
    pub(crate) fn needs_name(&self) -> bool {
        matches!(
            self.session,
            Session::Push(_) | Session::App(_) | Session::Centrifuge(_)
        )
    }

    /// Has a client that is refused for good learn it by a terminal close code, if its protocol has one. Returns whether
    /// it does.
    pub(crate) fn refuse_for_good(&mut self, why: Unknown) -> bool {
        if matches!(self.session, Session::Centrifuge(_)) {
            self.refusal = why.disconnect();
        }
        self.refusal.is_some()
    }

    /// Whether its client may say who it is after the handshake.
    pub(crate) fn may_be_named_later(&self) -> bool {
        matches!(self.session, Session::Centrifuge(_))
    }

    /// The subprotocol that the session itself wants.
    fn own_protocol(&self) -> Option<&'static str> {
        if !matches!(self.session, Session::Centrifuge(_)) {
            return None;
        }
        let mut known = [PROTOBUF, JSON].into_iter();
        known.find(|known| self.offers(known))
    }

    /// Whether the client offered this subprotocol.
    pub(crate) fn offers(&self, protocol: &str) -> bool {
        self.upgrade.protocols().any(|offered| offered == protocol)
            && !self.route.identity.is_token(protocol)
    }

    /// The subprotocol for the 101 where nobody has chosen one: browsers that have offered some want one of them back,
    /// and whoever had to offer a token shall not be kept from it. The token itself is never said back.
    fn beside_token(&self) -> Option<&str> {
        let identity = &self.route.identity;
        let mut offered = self.upgrade.protocols();
        if !offered.any(|protocol| identity.is_token(protocol)) {
            return None;
        }
        let mut offered = self.upgrade.protocols();
        offered.find(|protocol| !identity.is_token(protocol))
    }

    /// Begins to register the session, for `user` where there is one. The 101 lies in the outbox, held back.
    pub(crate) fn register(
        self,
        id: ConnectionId,
        user: Option<&str>,
        protocol: Option<&str>,
        shared: &mut Shared,
    ) -> Result<Registration, Refused> {
        // An application has named him, or has been asked about him.
        let objection = user.and_then(|user| match user {
            user if shared.is_blocked(user) => Some(Unknown::Blocked),
            user if shared.is_ended_since(user, self.named.asked, "") => Some(Unknown::Ended),
            _ => None,
        });
        if let Some(unknown) = objection {
            return Err(Refused::unknown(unknown, &self.route.identity, shared));
        }
        let namespaces = &shared.site.namespaces;
        let is_allowed = |channel: &String| {
            let user = user.unwrap_or_default();
            self.route.allows_channel(channel, user, namespaces)
        };
        if !self.channels.iter().all(is_allowed) {
            return Err(forbidden());
        }
        if let Some(user) = user
            && !shared.count_user_in(id, user)
        {
            shared.stats.turn_away(TurnedAway::UserConnections);
            let why = "too many connections of this user";
            let mut refused = refused(Status::TOO_MANY_REQUESTS, why, Handshake::TurnedAway);
            refused.refusal = refused.refusal.with("Retry-After", "1");
            return Err(refused);
        }
        let asked = self.named.asked;
        let agreed =
            self.route.compression.as_ref().and_then(|policy| {
                websocket::deflate::negotiate(self.upgrade.extensions(), policy)
            });
        let decoder = Decoder::accept(agreed, &shared.codecs);
        let agreed = decoder.deflate();
        let out = shared.ports.outboxes.buffer(id);
        let written_at = out.len();
        let protocol = protocol.or_else(|| self.own_protocol());
        let protocol = protocol.or_else(|| self.beside_token());
        handshake::write_response(out, self.upgrade.key, protocol, agreed);
        let mut session = self.session;
        // A client of Centrifugo's protocol is subscribed when it connects, which comes after its handshake.
        let personal = match (&mut session, user) {
            (Session::Centrifuge(session), user) => {
                session.set_user(user.unwrap_or_default());
                session.set_source(self.named.claims, self.named.asked);
                let transport = match session.is_one_way() {
                    true => Transport::OneWayWebSocket,
                    false => Transport::WebSocket,
                };
                session.may_ask(transport.name(), self.head, self.route);
                if let Some(code) = self.refusal {
                    session.refuse(code);
                }
                None
            }
            (_, user) => user.map(|user| format!("#{user}")),
        };
        let hears = match session {
            Session::Push(_) | Session::App(_) => self.route.hears(),
            _ => Hears::Nothing,
        };
        shared.ports.outboxes.begin_session(id, agreed, hears);
        let mut registration = Registration {
            socket: Socket::new(
                decoder,
                session,
                Side::Server(Arc::clone(self.route)),
                shared.now,
            )
            .with_lease(self.named.lease),
            channels: Vec::new(),
            is_back: self.joining.since.is_some(),
            open: 0,
            user: None,
            asked: None,
            written_at,
            refusal: self.refusal,
            opening: None,
        };
        let channels: Vec<String> = personal.into_iter().chain(self.channels).collect();
        for (number, channel) in channels.iter().enumerate() {
            let Ok(name) = ChannelName::new(channel) else {
                unreachable!("checked before; users by their identity")
            };
            let answers = shared.ports.answers.len();
            let mut joining = self.joining.clone();
            joining.client = shared.member(id, name);
            let ticket = Ticket(number as u32);
            let (hub, ports) = (&mut shared.hub, &mut shared.ports);
            if let Err(error) = hub.subscribe(id, name, ticket, &joining, ports) {
                shared.hub.close(id, &mut shared.ports);
                registration.withdraw(id, shared);
                return Err(refused(
                    Status::SERVICE_UNAVAILABLE,
                    &error.to_string(),
                    Handshake::Malformed,
                ));
            }
            // Answered within the call where the home is here.
            if shared.ports.answers.len() > answers
                && let Some((_, _, answer)) = shared.ports.answers.pop_back()
            {
                if hears == Hears::Positions {
                    tell(id, channel, &answer, registration.is_back, shared);
                }
            } else {
                registration.open += 1;
            }
        }
        if hears == Hears::Positions {
            registration.channels = channels;
        }
        if !registration.is_complete() {
            registration.user = user.map(Into::into);
            registration.asked = asked;
        }
        Ok(registration)
    }
}

/// Has a session closed that was refused for good, and reports that to watchers.
pub(crate) fn tell_refused(id: ConnectionId, code: DisconnectCode, shared: &mut Shared) {
    let reason = code.words();
    shared.note_as(
        reason,
        id,
        NoteLevel::Info,
        format!("closed with {}: {reason}", code.code()),
    );
    shared.decided(&Decision {
        what: "connect",
        code: code.code().into(),
        reason,
        ..Decision::default()
    });
    shared
        .ports
        .kicks
        .push((id, code.code(), reason.to_owned()));
}

/// Reports an open session to watchers, with the channels that it subscribes to beside its user's own.
fn tell_open(id: ConnectionId, shared: &Shared) {
    let connected = Decision {
        what: "connect",
        user: shared.hub.user_of(id).unwrap_or_default(),
        ..Decision::default()
    };
    shared.decided(&connected);
    let channels = shared.hub.channels_of(id);
    for channel in channels.filter(|channel| !channel.starts_with('#')) {
        shared.decided(&Decision {
            what: "subscribe",
            channel,
            ..connected
        });
    }
}

/// Tells a client where it has joined a channel.
fn tell(id: ConnectionId, channel: &str, answer: &Answer, is_back: bool, shared: &mut Shared) {
    let outboxes = &mut shared.ports.outboxes;
    match answer {
        Answer::Subscribed(Some(joined)) => {
            let is_whole = outboxes.joined(id, channel, joined);
            if joined.recovered.is_some() {
                shared.stats.recovery(is_whole);
            }
        }
        Answer::Subscribed(None) if is_back => outboxes.subscribed(id, channel, None, Some(false)),
        _ => {}
    }
}

fn refused(status: Status, why: &str, outcome: Handshake) -> Refused {
    Refused {
        refusal: Refusal::new(status, why),
        outcome,
    }
}

/// RFC 6455, section 4.4: the answer names the version that is spoken.
fn upgrade_required(why: &str) -> Refused {
    let refusal = Refusal::new(Status::UPGRADE_REQUIRED, why)
        .with("Sec-WebSocket-Version", handshake::VERSION);
    Refused {
        refusal,
        outcome: Handshake::Malformed,
    }
}

impl Registration {
    /// The application that the session is for.
    pub(crate) fn app(&self) -> Option<AppId> {
        self.socket.app()
    }

    /// Whether every home has answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// One home answered.
    pub(crate) fn answered(
        &mut self,
        id: ConnectionId,
        Ticket(number): Ticket,
        answer: &Answer,
        shared: &mut Shared,
    ) {
        self.open = self.open.saturating_sub(1);
        if *answer == Answer::Failed {
            let (code, reason) = crate::context::close::UNAVAILABLE;
            let kick = (id, code, reason.to_owned());
            return shared.ports.kicks.push(kick);
        }
        if let Some(channel) = self.channels.get(number as usize) {
            tell(id, channel, answer, self.is_back, shared);
        }
    }

    /// Takes the 101 back, and what was published since.
    pub(crate) fn withdraw(&self, id: ConnectionId, shared: &mut Shared) {
        shared.ports.outboxes.withdraw(id, self.written_at);
        shared.count_user_out(id);
    }

    /// Lets the 101 go: the session is open.
    pub(crate) fn open(self, id: ConnectionId, shared: &mut Shared) -> Socket {
        shared.stats.handshake(Handshake::Opened);
        shared.answered(id, 101);
        shared.ports.outboxes.journal.opened(id);
        shared.stats.sessions.add(1);
        shared.ports.outboxes.release(id);
        if let Some(code) = self.refusal {
            tell_refused(id, code, shared);
            return self.socket;
        }
        tell_open(id, shared);
        // Meanwhile: the call that closed the user's connections did not find this one yet.
        let end = self.user.as_deref().and_then(|user| match user {
            user if shared.is_blocked(user) => Some(BLOCKED),
            user if shared.is_ended_since(user, self.asked, "") => Some(DISCONNECTED),
            _ => None,
        });
        if let Some((code, reason)) = end {
            shared.ports.kicks.push((id, code, reason.to_owned()));
        }
        self.socket
    }
}
