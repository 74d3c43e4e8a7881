//! A connection with a session, over a WebSocket (frames, pings, the closing handshake) or over the parts of an
//! endless response.
//!
//! Only the [`Session`] interprets messages, and only `veche_proto` encodes and decodes frames.

pub mod client;
mod lease;
mod session_calls;
mod user_commands;

use std::sync::Arc;

pub(crate) use lease::GRACE_MS;
pub use lease::RenewError;
use veche_hub::ConnectionId;
use veche_proto::websocket::{self, Codecs, Decoder, FrameEvent, MessageLimits, Opcode};
use veche_types::Now;
use veche_types::codes::CloseCode;

use crate::context::identity::IdentityLease;
use crate::context::log_note::NoteLevel;
use crate::context::rate_limiter::{RateDecision, RateLimiter};
use crate::context::route::Route;
use crate::context::session::{Flow, Session, SessionContext};
use crate::context::session_info::SessionInfo;
use crate::context::step::{NextStep, NoNextStage, StageStep, WaitReason};
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::http::OpenedSession;
use crate::outbox::{ANSWERS_BYTES_HIGH, Outboxes};
use crate::websocket::client::ClientOptions;

/// Number of unsent bytes above which pings are not answered.
const PONG_BYTES_HIGH: usize = 4 << 20;

/// An open session and its transport.
pub(crate) struct WebSocketStage<S> {
    decoder: Decoder,
    side: SocketRole,
    session: S,
    /// When the last byte was received: the low 32 bits of monotonic milliseconds, which wrap after 49 days. While a
    /// ping is pending, the time at which it was sent minus `ping_interval`.
    last_received_ms: u32,
    /// When the last message was received, in the form of `last_received_ms`. The outbox stores when the last
    /// message was sent.
    messaged_ms: u32,
    phase: Phase,
    /// The meters of the client's rate limits, if it has any.
    rate_limiter: Option<Box<RateLimiter>>,
    /// The identity with which the session was opened, if it can expire.
    lease: Option<Box<IdentityLease>>,
    /// Whether the session sends its messages as parts of an HTTP response. If so, the connection's
    /// input is ignored.
    is_response: bool,
    /// Whether a ping was sent after `ping_interval` without input, and nothing was received since.
    pinged: bool,
    /// Number of pings whose pong has not arrived. That many pongs are not counted against the rate
    /// limit.
    pongs_due: u8,
}

/// The role of this process in the connection.
enum SocketRole {
    /// The WebSocket server: a client has connected on this route.
    Server(Arc<Route>),
    Client(Arc<ClientOptions>),
}

impl SocketRole {
    fn path(&self) -> &str {
        match self {
            Self::Server(route) => &route.path,
            Self::Client(_) => "",
        }
    }

    #[inline]
    fn message_limits(&self) -> &MessageLimits {
        match self {
            Self::Server(route) => &route.message_limits,
            Self::Client(terms) => &terms.message_limits,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The server has sent its Close and waits for the peer's Close. `since_ms` is the time of sending: the low 32
    /// bits of monotonic milliseconds.
    Closing {
        since_ms: u32,
    },
}

/// Returns the cost of reading a message or control frame, in units of the work budget.
#[inline]
fn cost(event: &FrameEvent<'_>) -> u64 {
    match event {
        FrameEvent::Message { data, .. } => work_budget::INPUT + data.len() as u64,
        FrameEvent::Ping(_) | FrameEvent::Pong(_) | FrameEvent::Close { .. } => work_budget::INPUT,
    }
}

impl<S: Session> WebSocketStage<S> {
    /// Creates the stage of a session that a request has opened.
    pub(crate) fn opened(opened: OpenedSession<S>) -> Self {
        let pacing = opened.route.rate_limits;
        let mut socket = Self::new(
            opened.decoder,
            opened.session,
            SocketRole::Server(opened.route),
            opened.began,
        );
        socket.rate_limiter = pacing.map(|pacing| Box::new(RateLimiter::new(pacing)));
        socket.lease = opened.lease;
        socket.is_response = opened.is_response;
        socket
    }

    /// Creates the stage of the session of an outbound connection.
    pub(crate) fn dialed(
        decoder: Decoder,
        session: S,
        terms: Arc<ClientOptions>,
        now: Now,
    ) -> Self {
        Self::new(decoder, session, SocketRole::Client(terms), now)
    }

    fn new(decoder: Decoder, session: S, side: SocketRole, now: Now) -> Self {
        Self {
            decoder,
            side,
            session,
            last_received_ms: now.mono_ms as u32,
            messaged_ms: now.mono_ms as u32,
            phase: Phase::Open,
            rate_limiter: None,
            lease: None,
            is_response: false,
            pinged: false,
            pongs_due: 0,
        }
    }

    /// Returns the path of the session's route.
    pub(crate) fn path(&self) -> &str {
        self.side.path()
    }

    /// Returns the time since the last input from the peer, in milliseconds.
    pub(crate) fn silent_ms(&self, shared: &Context) -> u64 {
        u64::from((shared.now.mono_ms as u32).wrapping_sub(self.last_received_ms))
    }

    /// Returns a description of the session for back ends.
    pub(crate) fn info(&self) -> SessionInfo<'_> {
        SessionInfo {
            transport: if self.is_response {
                "http"
            } else {
                "websocket"
            },
            route: self.side.path(),
            ..self.session.info()
        }
    }

    /// Records that data was received.
    pub(crate) fn note_received(&mut self, now: Now) {
        self.last_received_ms = now.mono_ms as u32;
        self.pinged = false;
    }

    /// Records that input is read again after a wait. The peer counts as alive, since it may have sent
    /// that input at any time during the wait.
    pub(crate) fn note_received_after_wait(&mut self, now: Now) {
        self.note_received(now);
        self.session.confirm_alive();
    }

    pub(crate) fn step(
        &mut self,
        id: ConnectionId,
        input: &mut [u8],
        shared: &mut Context,
    ) -> StageStep<NoNextStage> {
        if self.is_response {
            return StageStep {
                consumed: input.len(),
                then: NextStep::NeedInput,
            };
        }
        if self.is_ahead(shared.now) {
            // The next message has to wait until the rate limit permits it.
            return StageStep {
                consumed: 0,
                then: NextStep::Wait(WaitReason::RateLimit),
            };
        }
        // The codecs are taken out of the context, since the message may be stored in them while the session borrows
        // the context.
        let mut codecs = shared.codecs.take().unwrap_or_default();
        let step = self.frames(id, input, &mut codecs, shared);
        shared.codecs = Some(codecs);
        step
    }

    fn frames(
        &mut self,
        id: ConnectionId,
        input: &mut [u8],
        codecs: &mut Codecs,
        shared: &mut Context,
    ) -> StageStep<NoNextStage> {
        let mut taken = 0;
        while taken < input.len() {
            if let Some(block) = self.session.input_block() {
                return StageStep {
                    consumed: taken,
                    then: NextStep::Wait(block),
                };
            }
            let limits = self.side.message_limits();
            let result = self.decoder.decode(&mut input[taken..], codecs, limits);
            let (count, event) = match result {
                Ok(decoded) => decoded,
                Err(error) => return self.broken(id, error, input.len(), shared),
            };
            taken += count;
            let Some(event) = event else { break };
            shared.work.charge(cost(&event));
            let paced = self.check_rate(&event, shared.now);
            let then = match event {
                _ if paced == RateDecision::Drop => {
                    shared.stats.messages_dropped.add(1);
                    continue;
                }
                _ if paced == RateDecision::Close => {
                    self.close_rate_limited(id, shared);
                    continue;
                }
                FrameEvent::Message { kind, data } => {
                    shared.stats.messages_received.add(1);
                    shared.stats.message_bytes_received.add(data.len() as u64);
                    shared
                        .requests
                        .outboxes
                        .access_log
                        .message_received(id, data.len());
                    self.messaged_ms = shared.now.mono_ms as u32;
                    match self.phase {
                        Phase::Open => self.with_session(id, shared, |session, cx| {
                            session.handle_message(kind, data, cx)
                        }),
                        Phase::Closing { .. } => NextStep::Continue,
                    }
                }
                FrameEvent::Ping(payload) => {
                    self.pong(id, payload, &mut shared.requests.outboxes);
                    NextStep::Continue
                }
                FrameEvent::Pong(_) => NextStep::Continue,
                FrameEvent::Close { code, reason } => {
                    let reason = reason.to_owned();
                    self.answer_close(id, code, &reason, shared);
                    self.handle_closed(
                        id,
                        code.unwrap_or(CloseCode::NoCode.code()),
                        &reason,
                        shared,
                    );
                    NextStep::End
                }
            };
            let codec_work = codecs.take_work() + shared.take_codec_work();
            shared.work.charge(codec_work);
            match then {
                NextStep::Continue
                    if shared.requests.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH
                        && self.phase == Phase::Open
                        && matches!(self.side, SocketRole::Server(_)) =>
                {
                    return StageStep {
                        consumed: taken,
                        then: NextStep::Wait(WaitReason::Output),
                    };
                }
                NextStep::Continue if self.is_ahead(shared.now) => {
                    return StageStep {
                        consumed: taken,
                        then: NextStep::Wait(WaitReason::RateLimit),
                    };
                }
                NextStep::Continue if shared.work.is_spent() && taken < input.len() => {
                    return StageStep {
                        consumed: taken,
                        then: NextStep::Wait(WaitReason::Turn),
                    };
                }
                NextStep::Continue => {}
                then => {
                    return StageStep {
                        consumed: taken,
                        then,
                    };
                }
            }
        }
        StageStep {
            consumed: taken,
            then: NextStep::NeedInput,
        }
    }

    /// Calls the session, and closes it if the result of the call requests that.
    #[inline]
    fn with_session(
        &mut self,
        id: ConnectionId,
        shared: &mut Context,
        work: impl FnOnce(&mut S, &mut SessionContext<'_>) -> Flow,
    ) -> NextStep<NoNextStage> {
        let mut cx = SessionContext {
            id,
            route: match &self.side {
                SocketRole::Server(route) => Some(route),
                SocketRole::Client(_) => None,
            },
            lease: &mut self.lease,
            rate_limiter: self.rate_limiter.as_deref_mut(),
            is_relayed: self.is_response,
            is_open: self.phase == Phase::Open,
            shared,
        };
        match work(&mut self.session, &mut cx) {
            Flow::Continue => NextStep::Continue,
            Flow::Wait(block) => NextStep::Wait(block),
            Flow::Close(code, reason) => {
                self.close(id, code, &reason, shared);
                NextStep::Continue
            }
        }
    }

    /// Returns whether the next message has to wait because of the rate limit.
    #[inline]
    fn is_ahead(&self, now: Now) -> bool {
        let pace = self.rate_limiter.as_deref();
        pace.is_some_and(|pace| pace.wait_until_ms() > now.mono_ms && self.phase == Phase::Open)
    }

    /// Counts input against the route's rate limits. Close frames, pongs that answer a ping, and everything after
    /// the server's Close are exempt. If the session counts commands, only the bytes of a message are counted here.
    #[inline]
    fn check_rate(&mut self, event: &FrameEvent<'_>, now: Now) -> RateDecision {
        let Some(pace) = &mut self.rate_limiter else {
            return RateDecision::Allow;
        };
        if self.phase != Phase::Open {
            return RateDecision::Allow;
        }
        match event {
            FrameEvent::Message { data, .. } if self.session.counts_commands() => {
                pace.bytes(data.len(), now.mono_ms)
            }
            FrameEvent::Message { data, .. } => pace.message(data.len(), now.mono_ms),
            FrameEvent::Pong(_) if self.pongs_due > 0 => {
                self.pongs_due -= 1;
                RateDecision::Allow
            }
            FrameEvent::Ping(data) | FrameEvent::Pong(data) => {
                pace.message(data.len(), now.mono_ms)
            }
            FrameEvent::Close { .. } => RateDecision::Allow,
        }
    }

    /// Pings the client while its input waits because of the rate limit. Pongs are not read during
    /// that wait, so a missing pong has no consequence. But if the client has vanished, its machine
    /// answers the ping with a reset.
    pub(crate) fn ping_while_throttled(&mut self, id: ConnectionId, shared: &mut Context) {
        if self.session.has_pings() {
            return self.ping_while_hook_pending(id, shared);
        }
        self.pinged = false;
        self.last_received_ms = shared.now.mono_ms as u32;
        self.ping(id, shared);
    }

    fn ping(&mut self, id: ConnectionId, shared: &mut Context) {
        self.pongs_due = self.pongs_due.saturating_add(1);
        shared.requests.outboxes.control(id, Opcode::Ping, b"");
    }

    /// Called when the peer has ended its input. From now on, messages that would have to wait because of the rate
    /// limit are dropped. Has no effect on an endless response, whose client sends its commands in other requests.
    pub(crate) fn end_throttling(&mut self) {
        if let Some(pace) = &mut self.rate_limiter
            && !self.is_response
        {
            pace.end();
        }
    }

    /// Closes the session of a client that exceeded its rate limit.
    fn close_rate_limited(&mut self, id: ConnectionId, shared: &mut Context) {
        let (code, reason) = CloseCode::TooFast.parts();
        if self.begin_close(id, code, reason, shared) {
            shared.count_rate_limited(id);
        }
        self.close_protocol_error(id, code, reason, shared);
    }

    /// Called when the peer has violated the protocol or exceeded its rate limit. If [`Session::closes_on_fault`] is
    /// true, notifies the session at once that it has ended; otherwise this happens when the transport has ended.
    fn close_protocol_error(
        &mut self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    ) {
        if self.session.closes_on_fault() {
            self.handle_closed(id, code, reason, shared);
        }
    }

    /// Returns the monotonic time in milliseconds until which input waits because of the rate limit.
    pub(crate) fn throttled_until_ms(&self) -> u64 {
        self.rate_limiter
            .as_ref()
            .map_or(0, |pace| pace.wait_until_ms())
    }

    /// Returns the next deadline while input waits because of the rate limit, in monotonic milliseconds: the end of
    /// the wait, the next ping, or a renewal or expiry.
    pub(crate) fn throttled_deadline_ms(&self, shared: &Context) -> u64 {
        self.throttled_until_ms()
            .min(self.ping_deadline_ms(shared))
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// Begins the closing handshake, unless it has begun.
    pub(crate) fn close(
        &mut self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    ) {
        if self.begin_close(id, code, reason, shared) {
            self.handle_closed(id, code, reason, shared);
        }
    }

    /// Sends the server's Close and closes the session in the hub. Returns false if the Close
    /// was already sent.
    fn begin_close(
        &mut self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    ) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        self.phase = Phase::Closing {
            since_ms: shared.now.mono_ms as u32,
        };
        let (code, reason) = self.session.close_code_and_reason(code, reason);
        self.handle_server_close(id, code, &reason, shared);
        self.with_session(id, shared, |session, cx| {
            session.write_close(code, &reason, cx);
            Flow::Continue
        });
        if self.is_response {
            shared.requests.outboxes.end_stream(id);
            shared.requests.outboxes.access_log.closed(id, Some(code));
        } else {
            shared
                .requests
                .outboxes
                .close_frame(id, Some(code), &reason);
        }
        // From now on, publications to the session are neither delivered nor counted as delivered, and its user may
        // open another connection.
        shared.hub.close(id, &mut shared.requests);
        shared.remove_user_session(id);
        true
    }

    /// Returns whether the server has sent its Close.
    pub(crate) fn is_closing(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Handles the end of the connection, whatever its reason.
    pub(crate) fn closed(&mut self, id: ConnectionId, shared: &mut Context) {
        match &self.side {
            SocketRole::Server(_) => shared.stats.sessions.sub(1),
            SocketRole::Client(_) => shared.stats.clients.sub(1),
        }
        self.handle_connection_lost(id, shared);
        // If the end of the session was already handled, with its close code and reason, this call has no effect.
        self.handle_closed(id, CloseCode::Abnormal.code(), "", shared);
    }

    /// Handles a protocol violation of the peer. The remaining input is discarded.
    fn broken(
        &mut self,
        id: ConnectionId,
        error: websocket::ProtocolError,
        taken: usize,
        shared: &mut Context,
    ) -> StageStep<NoNextStage> {
        shared.stats.protocol_errors.add(1);
        let (code, reason) = (error.close_code(), error.to_string());
        let what = format!("closed with {code}: {reason}");
        shared.log_as(&reason, id, NoteLevel::Info, what);
        if self.phase == Phase::Open {
            self.handle_server_close(id, code, &reason, shared);
            shared
                .requests
                .outboxes
                .close_frame(id, Some(code), &reason);
        }
        self.close_protocol_error(id, code, &reason, shared);
        StageStep {
            consumed: taken,
            then: NextStep::End,
        }
    }

    fn pong(&self, id: ConnectionId, payload: &[u8], outboxes: &mut Outboxes) {
        // Limits memory for a peer that sends pings but does not read. Only the latest ping has to be answered (RFC
        // 6455 section 5.5.3).
        let is_wanted = outboxes.of(id).queued() <= PONG_BYTES_HIGH;
        if self.phase == Phase::Open && is_wanted {
            outboxes.control(id, Opcode::Pong, payload);
        }
    }

    /// Answers the peer's Close with the same code (RFC 6455 section 5.5.1), unless the server has already sent a
    /// Close.
    fn answer_close(
        &self,
        id: ConnectionId,
        code: Option<u16>,
        reason: &str,
        shared: &mut Context,
    ) {
        if self.phase == Phase::Open {
            self.handle_server_close(id, code.unwrap_or(CloseCode::NoCode.code()), reason, shared);
            shared.requests.outboxes.close_frame(id, code, reason);
        }
    }

    pub(crate) fn deadline_ms(&self, id: ConnectionId, shared: &Context) -> u64 {
        if let Phase::Closing { since_ms } = self.phase {
            return since(since_ms, shared.now) + shared.config.limits.close_timeout_ms;
        }
        self.ping_deadline_ms(shared)
            .min(self.idle_deadline_ms(id, shared))
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    fn ping_deadline_ms(&self, shared: &Context) -> u64 {
        if self.session.has_pings() {
            return self.session.deadline_ms(shared);
        }
        let (interval_ms, timeout_ms) = self.ping_times_ms(shared);
        if interval_ms == 0 {
            return u64::MAX;
        }
        let wait = interval_ms + if self.pinged { timeout_ms } else { 0 };
        since(self.last_received_ms, shared.now) + wait
    }

    /// Returns the time without input after which a ping is sent, and the time limit for its pong, both in
    /// milliseconds.
    fn ping_times_ms(&self, shared: &Context) -> (u64, u64) {
        match &self.side {
            SocketRole::Server(_) => {
                let limits = &shared.config.limits;
                (limits.ping_interval_ms, limits.pong_timeout_ms)
            }
            SocketRole::Client(terms) => (terms.ping_interval_ms, terms.pong_timeout_ms),
        }
    }

    fn idle_deadline_ms(&self, id: ConnectionId, shared: &Context) -> u64 {
        let timeout_ms = shared.config.limits.session_idle_timeout_ms;
        // A session whose protocol sends pings as messages is never idle.
        if timeout_ms == 0 || self.session.has_pings() || matches!(self.side, SocketRole::Client(_))
        {
            return u64::MAX;
        }
        let sent_ms = shared.requests.outboxes.of(id).messaged_ms();
        since(self.messaged_ms, shared.now).max(since(sent_ms, shared.now)) + timeout_ms
    }

    /// Checks the deadlines: pings a silent peer and closes an idle session. Returns false if the transport has to be
    /// closed, because the pong or the peer's Close has not arrived in time.
    pub(crate) fn handle_timeout(&mut self, id: ConnectionId, shared: &mut Context) -> bool {
        shared.requests.outboxes.release_idle_context(id);
        if self.deadline_ms(id, shared) > shared.now.mono_ms {
            return true;
        }
        if self.phase != Phase::Open {
            return false;
        }
        if self.idle_deadline_ms(id, shared) <= shared.now.mono_ms {
            let (code, reason) = CloseCode::Idle.parts();
            self.close(id, code, reason, shared);
            return true;
        }
        if self.session.has_pings() {
            self.with_session(id, shared, Session::handle_timeout);
            return true;
        }
        if self.pinged {
            shared.stats.pong_timeouts.add(1);
            shared.log(id, NoteLevel::Info, "closed: no pong arrived in time");
            self.handle_closed(id, CloseCode::Abnormal.code(), "no pong", shared);
            return false;
        }
        self.pinged = true;
        // The time limit for the pong begins now, even if the ping is late, for example because the machine was
        // suspended.
        let (interval_ms, _) = self.ping_times_ms(shared);
        self.last_received_ms = shared.now.mono_ms.wrapping_sub(interval_ms) as u32;
        self.ping(id, shared);
        true
    }
}

/// Returns the monotonic time in milliseconds whose low 32 bits are `low_ms`. The time has to be less than 49 days ago.
fn since(low_ms: u32, now: Now) -> u64 {
    now.mono_ms - u64::from((now.mono_ms as u32).wrapping_sub(low_ms)).min(now.mono_ms)
}
