//! From an upgrade request to an open session: user, origin, channels.
//!
//! The 101 is written immediately but held back until every home worker has registered the session, so a client that
//! sees `open` receives the next push. Publications in between wait behind it in the outbox.

use std::sync::Arc;

use veche_hub::{Answer, ChannelName, ConnectionId, Outcome, Since, SubscribeOptions, Ticket};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::handshake::{self, Upgrade};
use veche_proto::websocket::{self, Decoder};
use veche_types::AppId;
use veche_types::codes::CloseCode;

use crate::context::identity::{Identity, Named, Unknown};
use crate::context::note::{Decision, NoteLevel};
use crate::context::origin;
use crate::context::route::Route;
use crate::context::shared::Shared;
use crate::context::stats::{Handshake, TurnedAway};
use crate::http::KeptRequest;
use crate::http::protocol::{Begun, Identified, Opened, Opening, Wanted};
use crate::http::reply::Refusal;
use crate::outbox::hears::Hears;

/// Maximum number of channels per handshake.
pub const CHANNELS_MAX: usize = 32;

pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) outcome: Handshake,
}

/// A handshake that is valid by the protocol and the route.
pub(crate) struct Candidate<'a, 'b, S> {
    pub(crate) head: &'a Head<'b>,
    pub(crate) raw: &'a [u8],
    pub(crate) route: &'a Arc<Route>,
    upgrade: Upgrade<'a, 'b>,
    session: S,
    /// The identity by the route; empty until authenticated.
    pub(crate) named: Named,
    /// Code and reason for closing the session right after the handshake.
    refusal: Option<(u16, &'static str)>,
    /// Requested channels in addition to the user's personal channel.
    channels: Vec<String>,
    /// The positions up to which the client knows them.
    since: Option<Arc<[Since]>>,
}

/// A session that waits for its registration.
pub(crate) struct Registration<S> {
    opened: Opened<S>,
    /// By ticket number; empty if the client is not sent its positions.
    channels: Vec<String>,
    /// The client recovers some channels.
    is_back: bool,
    open: u32,
    /// The user, while registration is pending.
    user: Option<Box<str>>,
    /// The [`endings`](crate::Process::endings) when authentication began.
    asked: Option<u64>,
    /// Offset of the 101 in the outbox.
    written_at: usize,
    /// Code and reason for closing the session once it is open.
    refusal: Option<(u16, &'static str)>,
    /// The request for an application that is notified when the session is open.
    pub(crate) opening: Option<Box<KeptRequest>>,
}

/// Validates an upgrade request except for its user; `raw` is the raw head, `is_tls` whether the listener uses TLS.
/// Nothing is written yet.
pub(crate) fn judge<'a, 'b, S: Opening>(
    head: &'a Head<'b>,
    raw: &'a [u8],
    route: &'a Arc<Route>,
    is_tls: bool,
    shared: &Shared,
) -> Result<Candidate<'a, 'b, S>, Refused> {
    let upgrade = handshake::read(head)
        .map_err(|error| match error.status {
            Status::UPGRADE_REQUIRED => upgrade_required(error.reason),
            _ => Refused::new(error.status, error.reason, Handshake::Malformed),
        })?
        .ok_or_else(|| upgrade_required("this path speaks WebSocket"))?;
    if shared.is_draining() {
        let mut refused = Refused::new(
            Status::SERVICE_UNAVAILABLE,
            "going away",
            Handshake::Malformed,
        );
        refused.refusal = refused.refusal.with("Retry-After", "1");
        return Err(refused);
    }
    if !origin::admits(&route.origins, head, is_tls) {
        return Err(Refused::new(
            Status::FORBIDDEN,
            "pages of this origin may not connect",
            Handshake::ForeignOrigin,
        ));
    }
    let wanted = Wanted {
        head,
        route,
        upgrade: &upgrade,
    };
    let Begun {
        session,
        channels,
        since,
    } = S::begin(&wanted, shared)?;
    Ok(Candidate {
        head,
        raw,
        route,
        upgrade,
        session,
        named: Named::default(),
        refusal: None,
        channels,
        since,
    })
}

/// Returns the refusal for a channel that a handshake may not request.
pub(crate) fn forbidden() -> Refused {
    let why = "this route does not allow that channel";
    Refused::new(Status::FORBIDDEN, why, Handshake::ForbiddenChannel)
}

impl Refused {
    pub(crate) fn new(status: Status, why: &str, outcome: Handshake) -> Self {
        Self {
            refusal: Refusal::new(status, why),
            outcome,
        }
    }

    /// Returns the refusal after failed authentication.
    pub(crate) fn unknown(why: Unknown, identity: &Identity, shared: &Shared) -> Self {
        let outcome = match why.is_ours() {
            true => Handshake::Unavailable,
            false => Handshake::Unidentified,
        };
        if let Unknown::Token(refusal) = why {
            shared.stats.token_refused(refusal);
        }
        let mut refused = Self::new(why.status(), &why.to_string(), outcome);
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

    /// Counts and logs the refusal.
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

impl<S: Opening> Candidate<'_, '_, S> {
    /// Returns the application that it is for.
    pub(crate) fn app(&self) -> Option<AppId> {
        self.route.handler.app()
    }

    /// Returns whether the route requires authentication.
    pub(crate) fn needs_name(&self) -> bool {
        self.session.has_user()
    }

    /// Lets the protocol report a permanent refusal by a terminal close code. Returns whether it does.
    pub(crate) fn refuse_for_good(&mut self, why: Unknown) -> bool {
        self.refusal = self.session.refuse_for_good(why);
        self.refusal.is_some()
    }

    /// Returns whether the client may authenticate after the handshake.
    pub(crate) fn may_be_named_later(&self) -> bool {
        self.session.may_be_named_later()
    }

    /// Returns whether the client offered this subprotocol.
    pub(crate) fn offers(&self, protocol: &str) -> bool {
        self.upgrade.protocols().any(|offered| offered == protocol)
            && !self.route.identity.is_token(protocol)
    }

    /// Returns the subprotocol for the 101 if none was selected: a browser that offered subprotocols requires the
    /// server to select one, so clients that offer a token can offer a second one. The token itself is never echoed.
    fn beside_token(&self) -> Option<&str> {
        let identity = &self.route.identity;
        let mut offered = self.upgrade.protocols();
        if !offered.any(|protocol| identity.is_token(protocol)) {
            return None;
        }
        let mut offered = self.upgrade.protocols();
        offered.find(|protocol| !identity.is_token(protocol))
    }

    /// Begins to register the session, for `user` if any. The 101 is held back in the outbox.
    pub(crate) fn register(
        self,
        id: ConnectionId,
        user: Option<&str>,
        protocol: Option<&str>,
        shared: &mut Shared,
    ) -> Result<Registration<S>, Refused> {
        // The application named the user, or asked about one.
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
            let mut refused = Refused::new(Status::TOO_MANY_REQUESTS, why, Handshake::TurnedAway);
            refused.refusal = refused.refusal.with("Retry-After", "1");
            return Err(refused);
        }
        let asked = self.named.asked;
        let agreed =
            self.route.compression.as_ref().and_then(|policy| {
                websocket::deflate::negotiate(self.upgrade.extensions(), policy)
            });
        let codecs = shared.codecs.get_or_insert_default();
        let decoder = Decoder::accept(agreed, codecs);
        let agreed = decoder.deflate();
        let out = shared.ports.outboxes.buffer(id);
        let written_at = out.len();
        let offers = |protocol: &str| self.offers(protocol);
        let protocol = protocol.or_else(|| self.session.subprotocol(&offers));
        let protocol = protocol.or_else(|| self.beside_token());
        handshake::write_response(out, self.upgrade.key, protocol, agreed);
        let mut session = self.session;
        let is_subscribed = session.identified(Identified {
            user: user.unwrap_or_default(),
            claims: self.named.claims,
            asked,
            head: self.head,
            route: self.route,
        });
        let user_channel = user.filter(|_| is_subscribed);
        let user_channel = user_channel.map(|user| format!("#{user}"));
        let hears = session.hears(self.route);
        shared.ports.outboxes.begin_session(id, agreed, hears);
        let mut registration = Registration {
            opened: Opened {
                session,
                decoder,
                route: Arc::clone(self.route),
                lease: self.named.lease,
                is_response: false,
                began: shared.now,
            },
            channels: Vec::new(),
            is_back: self.since.is_some(),
            open: 0,
            user: None,
            asked: None,
            written_at,
            refusal: self.refusal,
            opening: None,
        };
        let channels: Vec<String> = user_channel.into_iter().chain(self.channels).collect();
        for (number, channel) in channels.iter().enumerate() {
            let Ok(name) = ChannelName::new(channel) else {
                unreachable!("checked before; users by their identity")
            };
            let joining = SubscribeOptions {
                since: self.since.clone(),
                client: shared.member(id, name),
                ..SubscribeOptions::default()
            };
            let ticket = Ticket(number as u32);
            let (hub, ports) = (&mut shared.hub, &mut shared.ports);
            match hub.subscribe(id, name, ticket, &joining, ports) {
                Ok(Outcome::Done(joined)) => {
                    if hears == Hears::Positions {
                        let answer = Answer::Subscribed(joined);
                        tell(id, channel, &answer, registration.is_back, shared);
                    }
                }
                Ok(Outcome::Pending) => registration.open += 1,
                Err(error) => {
                    shared.hub.close(id, &mut shared.ports);
                    registration.withdraw(id, shared);
                    return Err(Refused::new(
                        Status::SERVICE_UNAVAILABLE,
                        &error.to_string(),
                        Handshake::Malformed,
                    ));
                }
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

/// Closes a session that was refused permanently, and reports it to the decision log.
pub(crate) fn tell_refused(
    id: ConnectionId,
    (code, reason): (u16, &'static str),
    shared: &mut Shared,
) {
    shared.note_as(
        reason,
        id,
        NoteLevel::Info,
        format!("closed with {code}: {reason}"),
    );
    shared.decided(&Decision {
        what: "connect",
        code: code.into(),
        reason,
        ..Decision::default()
    });
    shared.ports.kicks.push((id, code, reason.to_owned()));
}

/// Reports an open session to the decision log, with its channels other than the user's personal channel.
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

/// Sends a client its position in a channel.
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

/// RFC 6455 section 4.4: the response names the supported version.
fn upgrade_required(why: &str) -> Refused {
    let refusal = Refusal::new(Status::UPGRADE_REQUIRED, why)
        .with("Sec-WebSocket-Version", handshake::VERSION);
    Refused {
        refusal,
        outcome: Handshake::Malformed,
    }
}

impl<S: Opening> Registration<S> {
    /// Returns whether the session is notified when it is open.
    pub(crate) fn hears_opened(&self) -> bool {
        self.opened.session.hears_opened()
    }

    /// Returns the application of the session.
    pub(crate) fn app(&self) -> Option<AppId> {
        self.opened.route.handler.app()
    }

    /// Returns whether every home has answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// Handles the answer of one home.
    pub(crate) fn answered(
        &mut self,
        id: ConnectionId,
        Ticket(number): Ticket,
        answer: &Answer,
        shared: &mut Shared,
    ) {
        self.open = self.open.saturating_sub(1);
        if *answer == Answer::Failed {
            let (code, reason) = CloseCode::Unavailable.parts();
            let kick = (id, code, reason.to_owned());
            return shared.ports.kicks.push(kick);
        }
        if let Some(channel) = self.channels.get(number as usize) {
            tell(id, channel, answer, self.is_back, shared);
        }
    }

    /// Removes the 101 and later publications from the outbox.
    pub(crate) fn withdraw(&self, id: ConnectionId, shared: &mut Shared) {
        shared.ports.outboxes.withdraw(id, self.written_at);
        shared.count_user_out(id);
    }

    /// Releases the 101: the session is open.
    pub(crate) fn open(self, id: ConnectionId, shared: &mut Shared) -> Opened<S> {
        shared.stats.handshake(Handshake::Opened);
        shared.answered(id, Status::SWITCHING_PROTOCOLS.0);
        shared.ports.outboxes.journal.opened(id);
        shared.stats.sessions.add(1);
        shared.ports.outboxes.release(id);
        if let Some(code) = self.refusal {
            tell_refused(id, code, shared);
            return self.opened;
        }
        tell_open(id, shared);
        // A call that disconnected the user's connections in the meantime did not find this one yet.
        let end = self.user.as_deref().and_then(|user| match user {
            user if shared.is_blocked(user) => Some(CloseCode::Blocked.parts()),
            user if shared.is_ended_since(user, self.asked, "") => {
                Some(CloseCode::Disconnected.parts())
            }
            _ => None,
        });
        if let Some((code, reason)) = end {
            shared.ports.kicks.push((id, code, reason.to_owned()));
        }
        self.opened
    }
}
