//! The way from an upgrade request to an open session: checks of the user, the origin and the
//! channels.
//!
//! The 101 is written to the outbox at once but sent only when every home worker has registered the
//! session, so a client that sees the connection open receives the next push. Publications that
//! arrive before the 101 is sent wait behind it in the outbox.

use std::sync::Arc;

use veche_hub::{
    ChannelName, ConnectionId, HubReply, RequestOutcome, Since, SubscribeOptions, Ticket,
};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::handshake::{self, UpgradeRequest};
use veche_proto::websocket::{self, Decoder};
use veche_types::AppId;
use veche_types::codes::CloseCode;

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
use crate::outbox::delivery_mode::DeliveryMode;

/// Maximum number of channels that a handshake may request.
pub const CHANNELS_MAX: usize = 32;

pub(crate) struct RefusedUpgrade {
    pub(crate) refusal: Refusal,
    pub(crate) outcome: HandshakeOutcome,
}

/// A handshake that the protocol and the route accept; the user may still be unknown.
pub(crate) struct PendingUpgrade<'a, 'b, S> {
    pub(crate) head: &'a Head<'b>,
    pub(crate) raw: &'a [u8],
    pub(crate) route: &'a Arc<Route>,
    upgrade: UpgradeRequest<'a, 'b>,
    session: S,
    /// The identity that the route determined; empty until the client is authenticated.
    pub(crate) authenticated: Authenticated,
    /// Close code and reason if the session is to be closed right after the handshake.
    refusal: Option<(u16, &'static str)>,
    /// The channels requested in addition to the user's personal channel.
    channels: Vec<String>,
    /// The last positions that the client received, for recovery.
    since: Option<Arc<[Since]>>,
}

/// A session that waits to be registered by home workers.
pub(crate) struct UnregisteredSession<S> {
    opened: OpenedSession<S>,
    /// The session's channels, indexed by ticket number; empty if the client does not receive
    /// positions.
    channels: Vec<String>,
    /// Whether the client sent positions, from which it recovers.
    is_back: bool,
    open: u32,
    /// The user, to be checked again for bans and disconnects when the session opens; `None` if anonymous, or if the
    /// session opens at once.
    user: Option<Box<str>>,
    /// The [`disconnect_count`](crate::ProcessServices::disconnect_count) when authentication began; `None` if the
    /// client is anonymous and no application decided on its handshake.
    asked: Option<u64>,
    /// The offset in the outbox at which the 101 begins.
    written_at: usize,
    /// Close code and reason if the session is to be closed as soon as it is open.
    refusal: Option<(u16, &'static str)>,
    /// The request, stored for an application that is notified when the session is open.
    pub(crate) opening: Option<Box<PendingRequest>>,
}

/// Validates an upgrade request except for its user, and writes nothing. `raw` contains the bytes of the head;
/// `is_tls` is whether the listener uses TLS.
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
        .ok_or_else(|| upgrade_required("this path requires a WebSocket"))?;
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

/// Returns the refusal for a channel that the route does not allow.
pub(crate) fn forbidden() -> RefusedUpgrade {
    let why = "this route does not allow this channel";
    RefusedUpgrade::new(Status::FORBIDDEN, why, HandshakeOutcome::ForbiddenChannel)
}

impl RefusedUpgrade {
    pub(crate) fn new(status: Status, why: &str, outcome: HandshakeOutcome) -> Self {
        Self {
            refusal: Refusal::new(status, why),
            outcome,
        }
    }

    /// Returns the refusal for a failed authentication.
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

    /// Counts the refusal and logs it.
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
    /// Returns the application that handles the route, if any.
    pub(crate) fn app(&self) -> Option<AppId> {
        self.route.handler.app()
    }

    /// Returns whether the route's identity has to determine the session's user.
    pub(crate) fn needs_identity(&self) -> bool {
        self.session.has_user()
    }

    /// Lets the protocol report a permanent refusal with a close code that stops the client from
    /// reconnecting. If this returns false, the handshake has to be refused instead.
    pub(crate) fn refuse_for_good(&mut self, why: AuthError) -> bool {
        self.refusal = self.session.close_instead_of_refusing(why);
        self.refusal.is_some()
    }

    /// Returns whether the client may authenticate with its first message.
    pub(crate) fn may_be_named_later(&self) -> bool {
        self.session.may_authenticate_later()
    }

    /// Returns whether the client offered this subprotocol. A token sent as a subprotocol does not
    /// count.
    pub(crate) fn offers(&self, protocol: &str) -> bool {
        self.upgrade.protocols().any(|offered| offered == protocol)
            && !self.route.identity.is_token(protocol)
    }

    /// Returns the subprotocol to select if the session selects none. A browser that offers subprotocols requires the
    /// server to select one of them, so a client that offers its token as a subprotocol may offer another one beside
    /// it. Returns this other one; `None` if there is none or no token was offered. The token is never echoed.
    fn other_than_token(&self) -> Option<&str> {
        let identity = &self.route.identity;
        let mut offered = self.upgrade.protocols();
        if !offered.any(|protocol| identity.is_token(protocol)) {
            return None;
        }
        let mut offered = self.upgrade.protocols();
        offered.find(|protocol| !identity.is_token(protocol))
    }

    /// Begins to register the session, for `user` if it has one. The 101 is held back in the outbox until
    /// registration is complete.
    pub(crate) fn register(
        self,
        id: ConnectionId,
        user: Option<&str>,
        protocol: Option<&str>,
        shared: &mut Context,
    ) -> Result<UnregisteredSession<S>, RefusedUpgrade> {
        // Bans and disconnects are checked again, since the application may have assigned another user, or taken time
        // to decide.
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
        let delivery_mode = session.delivery_mode(self.route);
        shared
            .requests
            .outboxes
            .begin_session(id, agreed, delivery_mode);
        let mut registration = UnregisteredSession {
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
                unreachable!(
                    "channel names were checked before, and the identity has checked user names"
                )
            };
            let subscribe_options = SubscribeOptions {
                since: self.since.clone(),
                client: shared.member(id, name),
                ..SubscribeOptions::default()
            };
            let ticket = Ticket(number as u32);
            let (hub, ports) = (&mut shared.hub, &mut shared.requests);
            match hub.subscribe(id, name, ticket, &subscribe_options, ports) {
                Ok(RequestOutcome::Done(joined)) => {
                    if delivery_mode == DeliveryMode::WithPositions {
                        let answer = HubReply::Subscribed(joined);
                        send_position(id, channel, &answer, registration.is_back, shared);
                    }
                }
                Ok(RequestOutcome::Pending) => registration.open += 1,
                Err(error) => {
                    shared.hub.close(id, &mut shared.requests);
                    registration.withdraw(id, shared);
                    return Err(RefusedUpgrade::new(
                        Status::SERVICE_UNAVAILABLE,
                        &error.to_string(),
                        HandshakeOutcome::Malformed,
                    ));
                }
            }
        }
        if delivery_mode == DeliveryMode::WithPositions {
            registration.channels = channels;
        }
        if !registration.is_complete() {
            registration.user = user.map(Into::into);
            registration.asked = asked;
        }
        Ok(registration)
    }
}

/// Closes a session that was refused permanently, and reports the refusal to the decision log.
pub(crate) fn close_refused(
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

/// Reports an opened session to the decision log, with its channels except for the user's personal channel.
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

/// Sends a client its position in a channel.
fn send_position(
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

/// Returns a refusal that names the supported version of WebSocket (RFC 6455 section 4.4).
fn upgrade_required(why: &str) -> RefusedUpgrade {
    let refusal = Refusal::new(Status::UPGRADE_REQUIRED, why)
        .with("Sec-WebSocket-Version", handshake::VERSION);
    RefusedUpgrade {
        refusal,
        outcome: HandshakeOutcome::Malformed,
    }
}

impl<S: OpenSession> UnregisteredSession<S> {
    /// Returns whether the session has to be notified when it is open.
    pub(crate) fn hears_opened(&self) -> bool {
        self.opened.session.wants_opened()
    }

    /// Returns the application of the session.
    pub(crate) fn app(&self) -> Option<AppId> {
        self.opened.route.handler.app()
    }

    /// Returns whether every home worker has answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// Handles the answer of one home worker to the registration.
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
            send_position(id, channel, answer, self.is_back, shared);
        }
    }

    /// Removes the 101 and the publications behind it from the outbox.
    pub(crate) fn withdraw(&self, id: ConnectionId, shared: &mut Context) {
        shared.requests.outboxes.discard_unsent(id, self.written_at);
        shared.remove_user_session(id);
    }

    /// Releases the 101 response that was held back, which opens the session.
    pub(crate) fn open(self, id: ConnectionId, shared: &mut Context) -> OpenedSession<S> {
        shared.stats.handshake(HandshakeOutcome::Opened);
        shared.response_started(id, Status::SWITCHING_PROTOCOLS.0);
        shared.requests.outboxes.access_log.session_opened(id);
        shared.stats.sessions.add(1);
        shared.requests.outboxes.release(id);
        if let Some(code) = self.refusal {
            close_refused(id, code, shared);
            return self.opened;
        }
        log_open(id, shared);
        // A command that disconnected the user's connections during the registration could not find
        // this connection yet, so the check is made here.
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
