//! From an upgrade request to an open session: who is it, from whose page, what may it hear.
//!
//! The 101 is written at once but held back until every home worker has registered the session: whoever sees `open`
//! gets the next push. Publications that come in between wait behind it in the outbox.

use std::sync::Arc;

use veche_hub::{ChannelName, ConnectionId, HubReply, Since, SubscribeOptions, Ticket};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::handshake::{self, UpgradeRequest};
use veche_proto::websocket::{self, Decoder};
use veche_types::AppId;
use veche_types::codes::CloseCode;

use crate::context::delivery_mode::DeliveryMode;
use crate::context::identity::{AuthError, Authenticated, Identity};
use crate::context::log_note::{AuthDecision, NoteLevel};
use crate::context::origin;
use crate::context::route::Route;
use crate::context::stats::{AcceptRejection, HandshakeOutcome};
use crate::context::worker_context::Context;
use crate::http::PendingRequest;
use crate::http::protocol::{
    HandshakeRequest, NewSession, OpenSession, OpenedSession, SessionIdentity,
};
use crate::http::reply::Refusal;

/// Most channels that one handshake may ask for.
pub const CHANNELS_MAX: usize = 32;

/// A handshake that is refused.
pub(crate) struct RefusedUpgrade {
    pub(crate) refusal: Refusal,
    pub(crate) outcome: HandshakeOutcome,
}

/// A handshake that is right by the protocol and by the route.
pub(crate) struct PendingUpgrade<'a, 'b, S> {
    pub(crate) head: &'a Head<'b>,
    /// The head as it came.
    pub(crate) raw: &'a [u8],
    pub(crate) route: &'a Arc<Route>,
    upgrade: UpgradeRequest<'a, 'b>,
    session: S,
    /// Who it is by the route's identity; nobody until that is found out.
    pub(crate) authenticated: Authenticated,
    /// With this code and reason it is closed right after the handshake.
    refusal: Option<(u16, &'static str)>,
    /// What it asked to hear beside its user's own channel.
    channels: Vec<String>,
    /// Up to where it says to know them.
    since: Option<Arc<[Since]>>,
}

/// A session whose registrations are under way.
pub(crate) struct Registration<S> {
    opened: OpenedSession<S>,
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
    /// With this code and reason the session is closed as soon as it is open.
    refusal: Option<(u16, &'static str)>,
    /// For an application that is told when the session is open.
    pub(crate) opening: Option<Box<PendingRequest>>,
}

/// Judges an upgrade request, all but who it is; `raw` is its head as it came, `is_tls`
/// says that its listener has TLS. Nothing is written yet.
pub(crate) fn validate<'a, 'b, S: OpenSession>(
    head: &'a Head<'b>,
    raw: &'a [u8],
    route: &'a Arc<Route>,
    is_tls: bool,
    shared: &Context,
) -> Result<PendingUpgrade<'a, 'b, S>, RefusedUpgrade> {
    let upgrade = handshake::read(head)
        .map_err(|error| match error.status {
            Status::UPGRADE_REQUIRED => upgrade_required(error.reason),
            _ => RefusedUpgrade::new(error.status, error.reason, HandshakeOutcome::Malformed),
        })?
        .ok_or_else(|| upgrade_required("this path speaks WebSocket"))?;
    if shared.is_draining() {
        let mut refused = RefusedUpgrade::new(
            Status::SERVICE_UNAVAILABLE,
            "going away",
            HandshakeOutcome::Malformed,
        );
        refused.refusal = refused.refusal.with("Retry-After", "1");
        return Err(refused);
    }
    if !origin::admits(&route.origins, head, is_tls) {
        return Err(RefusedUpgrade::new(
            Status::FORBIDDEN,
            "pages of this origin may not connect",
            HandshakeOutcome::ForeignOrigin,
        ));
    }
    let wanted = HandshakeRequest {
        head,
        route,
        upgrade: &upgrade,
    };
    let NewSession {
        session,
        channels,
        since,
    } = S::begin(&wanted, shared)?;
    Ok(PendingUpgrade {
        head,
        raw,
        route,
        upgrade,
        session,
        authenticated: Authenticated::default(),
        refusal: None,
        channels,
        since,
    })
}

/// Of a channel that a handshake may not ask for.
pub(crate) fn forbidden() -> RefusedUpgrade {
    let why = "this route does not allow that channel";
    RefusedUpgrade::new(Status::FORBIDDEN, why, HandshakeOutcome::ForbiddenChannel)
}

impl RefusedUpgrade {
    pub(crate) fn new(status: Status, why: &str, outcome: HandshakeOutcome) -> Self {
        Self {
            refusal: Refusal::new(status, why),
            outcome,
        }
    }

    /// Nobody knows who it is.
    pub(crate) fn auth_failed(why: AuthError, identity: &Identity, shared: &Context) -> Self {
        let outcome = match why.is_server_fault() {
            true => HandshakeOutcome::Unavailable,
            false => HandshakeOutcome::Unidentified,
        };
        if let AuthError::InvalidToken(refusal) = why {
            shared.stats.token_refused(refusal);
        }
        let mut refused = Self::new(why.status(), &why.to_string(), outcome);
        if refused.refusal.status == Status::UNAUTHORIZED
            && let Some(challenge) = identity.challenge(why)
        {
            refused.refusal = refused.refusal.with("WWW-Authenticate", challenge);
        }
        if let Some(wait_s) = why.retry_after_s() {
            refused.refusal = refused.refusal.with("Retry-After", wait_s.to_string());
        }
        refused
    }

    /// Counts it and says it in the log.
    pub(crate) fn note(&self, id: ConnectionId, shared: &mut Context) {
        shared.stats.handshake(self.outcome);
        let why = self.refusal.why();
        let what = format!("handshake refused with {}: {why}", self.refusal.status.0);
        shared.log_as(why, id, NoteLevel::Info, what);
        shared.log_decision(&AuthDecision {
            what: "connect",
            code: self.refusal.status.0.into(),
            reason: why,
            ..AuthDecision::default()
        });
    }
}

impl<S: OpenSession> PendingUpgrade<'_, '_, S> {
    /// The application that it is for.
    pub(crate) fn app(&self) -> Option<AppId> {
        self.route.handler.app()
    }

    /// Whether the route wants to know who it is.
    pub(crate) fn needs_identity(&self) -> bool {
        self.session.has_user()
    }

    /// Has a client that is refused for good learn it by a terminal close code, if its protocol has one. Returns whether
    /// it does.
    pub(crate) fn refuse_for_good(&mut self, why: AuthError) -> bool {
        self.refusal = self.session.close_instead_of_refusing(why);
        self.refusal.is_some()
    }

    /// Whether its client may say who it is after the handshake.
    pub(crate) fn may_be_named_later(&self) -> bool {
        self.session.may_authenticate_later()
    }

    /// Whether the client offered this subprotocol.
    pub(crate) fn offers(&self, protocol: &str) -> bool {
        self.upgrade.protocols().any(|offered| offered == protocol)
            && !self.route.identity.is_token(protocol)
    }

    /// The subprotocol for the 101 where nobody has chosen one: browsers that have offered some want one of them back,
    /// and whoever had to offer a token shall not be kept from it. The token itself is never said back.
    fn other_than_token(&self) -> Option<&str> {
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
        shared: &mut Context,
    ) -> Result<Registration<S>, RefusedUpgrade> {
        // An application has named him, or has been asked about him.
        let objection = user.and_then(|user| match user {
            user if shared.is_banned(user) => Some(AuthError::Blocked),
            user if shared.is_disconnected_since(user, self.authenticated.disconnects_seen, "") => {
                Some(AuthError::Disconnected)
            }
            _ => None,
        });
        if let Some(unknown) = objection {
            return Err(RefusedUpgrade::auth_failed(
                unknown,
                &self.route.identity,
                shared,
            ));
        }
        let namespaces = &shared.config.namespaces;
        let is_allowed = |channel: &String| {
            let user = user.unwrap_or_default();
            self.route.allows_channel(channel, user, namespaces)
        };
        if !self.channels.iter().all(is_allowed) {
            return Err(forbidden());
        }
        if let Some(user) = user
            && !shared.add_user_session(id, user)
        {
            shared.stats.reject_accept(AcceptRejection::UserConnections);
            let why = "too many connections of this user";
            let mut refused =
                RefusedUpgrade::new(Status::TOO_MANY_REQUESTS, why, HandshakeOutcome::Rejected);
            refused.refusal = refused.refusal.with("Retry-After", "1");
            return Err(refused);
        }
        let asked = self.authenticated.disconnects_seen;
        let agreed =
            self.route.compression.as_ref().and_then(|policy| {
                websocket::deflate::negotiate(self.upgrade.extensions(), policy)
            });
        let codecs = shared.codecs.get_or_insert_default();
        let decoder = Decoder::accept(agreed, codecs);
        let agreed = decoder.deflate();
        let out = shared.requests.outboxes.buffer(id);
        let written_at = out.len();
        let offers = |protocol: &str| self.offers(protocol);
        let protocol = protocol.or_else(|| self.session.subprotocol(&offers));
        let protocol = protocol.or_else(|| self.other_than_token());
        handshake::write_response(out, self.upgrade.key, protocol, agreed);
        let mut session = self.session;
        let is_subscribed = session.set_identity(SessionIdentity {
            user: user.unwrap_or_default(),
            claims: self.authenticated.claims,
            disconnects_seen: asked,
            head: self.head,
            route: self.route,
        });
        let user_channel = user.filter(|_| is_subscribed);
        let user_channel = user_channel.map(|user| format!("#{user}"));
        let hears = session.delivery_mode(self.route);
        shared.requests.outboxes.begin_session(id, agreed, hears);
        let mut registration = Registration {
            opened: OpenedSession {
                session,
                decoder,
                route: Arc::clone(self.route),
                lease: self.authenticated.lease,
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
            let answers = shared.requests.answers.len();
            let joining = SubscribeOptions {
                since: self.since.clone(),
                client: shared.member(id, name),
                ..SubscribeOptions::default()
            };
            let ticket = Ticket(number as u32);
            let (hub, ports) = (&mut shared.hub, &mut shared.requests);
            if let Err(error) = hub.subscribe(id, name, ticket, &joining, ports) {
                shared.hub.close(id, &mut shared.requests);
                registration.withdraw(id, shared);
                return Err(RefusedUpgrade::new(
                    Status::SERVICE_UNAVAILABLE,
                    &error.to_string(),
                    HandshakeOutcome::Malformed,
                ));
            }
            // Answered within the call where the home is here.
            if shared.requests.answers.len() > answers
                && let Some((_, _, answer)) = shared.requests.answers.pop_back()
            {
                if hears == DeliveryMode::WithPositions {
                    log_handshake(id, channel, &answer, registration.is_back, shared);
                }
            } else {
                registration.open += 1;
            }
        }
        if hears == DeliveryMode::WithPositions {
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
pub(crate) fn log_refused(
    id: ConnectionId,
    (code, reason): (u16, &'static str),
    shared: &mut Context,
) {
    shared.log_as(
        reason,
        id,
        NoteLevel::Info,
        format!("closed with {code}: {reason}"),
    );
    shared.log_decision(&AuthDecision {
        what: "connect",
        code: code.into(),
        reason,
        ..AuthDecision::default()
    });
    shared
        .requests
        .disconnects
        .push((id, code, reason.to_owned()));
}

/// Reports an open session to watchers, with the channels that it subscribes to beside its user's own.
fn log_open(id: ConnectionId, shared: &Context) {
    let connected = AuthDecision {
        what: "connect",
        user: shared.hub.user_of(id).unwrap_or_default(),
        ..AuthDecision::default()
    };
    shared.log_decision(&connected);
    let channels = shared.hub.channels_of(id);
    for channel in channels.filter(|channel| !channel.starts_with('#')) {
        shared.log_decision(&AuthDecision {
            what: "subscribe",
            channel,
            ..connected
        });
    }
}

/// Tells a client where it has joined a channel.
fn log_handshake(
    id: ConnectionId,
    channel: &str,
    answer: &HubReply,
    is_back: bool,
    shared: &mut Context,
) {
    let outboxes = &mut shared.requests.outboxes;
    match answer {
        HubReply::Subscribed(Some(joined)) => {
            let is_whole = outboxes.write_joined(id, channel, joined);
            if joined.recovered.is_some() {
                shared.stats.recovery(is_whole);
            }
        }
        HubReply::Subscribed(None) if is_back => {
            outboxes.write_subscribed(id, channel, None, Some(false))
        }
        _ => {}
    }
}

/// RFC 6455, section 4.4: the answer names the version that is spoken.
fn upgrade_required(why: &str) -> RefusedUpgrade {
    let refusal = Refusal::new(Status::UPGRADE_REQUIRED, why)
        .with("Sec-WebSocket-Version", handshake::VERSION);
    RefusedUpgrade {
        refusal,
        outcome: HandshakeOutcome::Malformed,
    }
}

impl<S: OpenSession> Registration<S> {
    /// Whether the session hears when it is open.
    pub(crate) fn hears_opened(&self) -> bool {
        self.opened.session.wants_opened()
    }

    /// The application that the session is for.
    pub(crate) fn app(&self) -> Option<AppId> {
        self.opened.route.handler.app()
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
        answer: &HubReply,
        shared: &mut Context,
    ) {
        self.open = self.open.saturating_sub(1);
        if *answer == HubReply::Failed {
            let (code, reason) = CloseCode::Unavailable.parts();
            let kick = (id, code, reason.to_owned());
            return shared.requests.disconnects.push(kick);
        }
        if let Some(channel) = self.channels.get(number as usize) {
            log_handshake(id, channel, answer, self.is_back, shared);
        }
    }

    /// Takes the 101 back, and what was published since.
    pub(crate) fn withdraw(&self, id: ConnectionId, shared: &mut Context) {
        shared.requests.outboxes.discard_unsent(id, self.written_at);
        shared.remove_user_session(id);
    }

    /// Lets the 101 go: the session is open.
    pub(crate) fn open(self, id: ConnectionId, shared: &mut Context) -> OpenedSession<S> {
        shared.stats.handshake(HandshakeOutcome::Opened);
        shared.response_started(id, Status::SWITCHING_PROTOCOLS.0);
        shared.requests.outboxes.access_log.session_opened(id);
        shared.stats.sessions.add(1);
        shared.requests.outboxes.release(id);
        if let Some(code) = self.refusal {
            log_refused(id, code, shared);
            return self.opened;
        }
        log_open(id, shared);
        // Meanwhile: the call that closed the user's connections did not find this one yet.
        let end = self.user.as_deref().and_then(|user| match user {
            user if shared.is_banned(user) => Some(CloseCode::Blocked.parts()),
            user if shared.is_disconnected_since(user, self.asked, "") => {
                Some(CloseCode::Disconnected.parts())
            }
            _ => None,
        });
        if let Some((code, reason)) = end {
            shared
                .requests
                .disconnects
                .push((id, code, reason.to_owned()));
        }
        self.opened
    }
}
