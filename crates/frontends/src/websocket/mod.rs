//! A connection with a session: frames to messages, pings, the closing handshake, or the parts of an endless response.
//!
//! Only the [`Session`] interprets messages, and only `veche_proto` the wire format.

pub mod client;
mod driven;
mod instructed;
mod lease;

use std::sync::Arc;

pub(crate) use lease::GRACE_MS;
pub use lease::NotRenewed;
use veche_hub::ConnectionId;
use veche_proto::websocket::{self, Codecs, Decoder, Event, Limits, Opcode};
use veche_types::Now;
use veche_types::codes::CloseCode;

use crate::context::census::About;
use crate::context::identity::Lease;
use crate::context::note::NoteLevel;
use crate::context::pace::{Pace, Paced};
use crate::context::route::Route;
use crate::context::session::{Context, Flow, Session};
use crate::context::shared::Shared;
use crate::context::step::{Block, Never, Step, Then};
use crate::context::work;
use crate::http::Opened;
use crate::outbox::{ANSWERS_BYTES_HIGH, Outboxes};
use crate::websocket::client::Terms;

/// Pings are not answered while more than this many bytes wait to be sent.
const PONG_BYTES_HIGH: usize = 4 << 20;

/// An open session and its transport.
pub(crate) struct Socket<S> {
    decoder: Decoder,
    side: Side,
    session: S,
    /// When the last byte was received, in milliseconds; wraps after 49 days, as do comparisons. While a ping is
    /// pending: its time minus `ping_interval`.
    heard_ms: u32,
    /// When the last message was received; the outbox knows when the last one was sent.
    messaged_ms: u32,
    phase: Phase,
    /// Rate limits of the client, if any.
    pace: Option<Box<Pace>>,
    /// The identity that expires, if any.
    lease: Option<Box<Lease>>,
    /// Messages are parts of a response, and the connection's input is ignored.
    is_response: bool,
    /// A ping was sent after `ping_interval` of silence, and nothing was received since.
    pinged: bool,
    /// Pings without a pong so far: their pongs are not counted.
    pongs_due: u8,
}

/// The role of our end, with its options.
enum Side {
    /// A client connected to this route.
    Server(Arc<Route>),
    Client(Arc<Terms>),
}

impl Side {
    fn path(&self) -> &str {
        match self {
            Self::Server(route) => &route.path,
            Self::Client(_) => "",
        }
    }

    #[inline]
    fn message_limits(&self) -> &Limits {
        match self {
            Self::Server(route) => &route.message_limits,
            Self::Client(terms) => &terms.message_limits,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Our Close was sent at this time (low 32 bits); the peer's is awaited.
    Closing {
        since_ms: u32,
    },
}

/// Returns the units of work for reading a message or control frame.
#[inline]
fn cost(event: &Event<'_>) -> u64 {
    match event {
        Event::Message { data, .. } => work::INPUT + data.len() as u64,
        Event::Ping(_) | Event::Pong(_) | Event::Close { .. } => work::INPUT,
    }
}

impl<S: Session> Socket<S> {
    /// Creates the session opened by a request.
    pub(crate) fn opened(opened: Opened<S>) -> Self {
        let pacing = opened.route.pacing;
        let mut socket = Self::new(
            opened.decoder,
            opened.session,
            Side::Server(opened.route),
            opened.began,
        );
        socket.pace = pacing.map(|pacing| Box::new(Pace::new(pacing)));
        socket.lease = opened.lease;
        socket.is_response = opened.is_response;
        socket
    }

    /// Creates the session of an outbound connection.
    pub(crate) fn dialed(decoder: Decoder, session: S, terms: Arc<Terms>, now: Now) -> Self {
        Self::new(decoder, session, Side::Client(terms), now)
    }

    fn new(decoder: Decoder, session: S, side: Side, now: Now) -> Self {
        Self {
            decoder,
            side,
            session,
            heard_ms: now.mono_ms as u32,
            messaged_ms: now.mono_ms as u32,
            phase: Phase::Open,
            pace: None,
            lease: None,
            is_response: false,
            pinged: false,
            pongs_due: 0,
        }
    }

    /// Returns the path of its route.
    pub(crate) fn path(&self) -> &str {
        self.side.path()
    }

    /// Returns how long the peer has been silent, in milliseconds.
    pub(crate) fn silent_ms(&self, shared: &Shared) -> u64 {
        u64::from((shared.now.mono_ms as u32).wrapping_sub(self.heard_ms))
    }

    /// Describes the session to back ends.
    pub(crate) fn about(&self) -> About<'_> {
        About {
            transport: if self.is_response {
                "http"
            } else {
                "websocket"
            },
            route: self.side.path(),
            ..self.session.about()
        }
    }

    /// Records that data was received.
    pub(crate) fn heard(&mut self, now: Now) {
        self.heard_ms = now.mono_ms as u32;
        self.pinged = false;
    }

    /// Resumes paused input: the peer may have sent data in the meantime.
    pub(crate) fn heard_after_wait(&mut self, now: Now) {
        self.heard(now);
        self.session.heard();
    }

    pub(crate) fn step(
        &mut self,
        id: ConnectionId,
        input: &mut [u8],
        shared: &mut Shared,
    ) -> Step<Never> {
        if self.is_response {
            return Step {
                taken: input.len(),
                then: Then::NeedInput,
            };
        }
        if self.is_ahead(shared.now) {
            // Earlier input waited for something else as well.
            return Step {
                taken: 0,
                then: Then::Wait(Block::Pace),
            };
        }
        // A message may be stored there, and the session borrows all of `shared`.
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
        shared: &mut Shared,
    ) -> Step<Never> {
        let mut taken = 0;
        while taken < input.len() {
            if let Some(block) = self.session.is_full() {
                return Step {
                    taken,
                    then: Then::Wait(block),
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
            let paced = self.paced(&event, shared.now);
            let then = match event {
                _ if paced == Paced::Drop => {
                    shared.stats.messages_dropped.add(1);
                    continue;
                }
                _ if paced == Paced::Close => {
                    self.outpaced(id, shared);
                    continue;
                }
                Event::Message { kind, data } => {
                    shared.stats.messages_received.add(1);
                    shared.stats.message_bytes_received.add(data.len() as u64);
                    shared.ports.outboxes.journal.heard(id, data.len());
                    self.messaged_ms = shared.now.mono_ms as u32;
                    match self.phase {
                        Phase::Open => self.with_session(id, shared, |session, cx| {
                            session.message(kind, data, cx)
                        }),
                        Phase::Closing { .. } => Then::GoOn,
                    }
                }
                Event::Ping(payload) => {
                    self.pong(id, payload, &mut shared.ports.outboxes);
                    Then::GoOn
                }
                Event::Pong(_) => Then::GoOn,
                Event::Close { code, reason } => {
                    let reason = reason.to_owned();
                    self.answer_close(id, code, &reason, shared);
                    self.over(
                        id,
                        code.unwrap_or(CloseCode::NoCode.code()),
                        &reason,
                        shared,
                    );
                    Then::End
                }
            };
            let codec_work = codecs.take_work() + shared.take_codec_work();
            shared.work.charge(codec_work);
            match then {
                Then::GoOn
                    if shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH
                        && self.phase == Phase::Open
                        && matches!(self.side, Side::Server(_)) =>
                {
                    return Step {
                        taken,
                        then: Then::Wait(Block::Output),
                    };
                }
                Then::GoOn if self.is_ahead(shared.now) => {
                    return Step {
                        taken,
                        then: Then::Wait(Block::Pace),
                    };
                }
                Then::GoOn if shared.work.is_spent() && taken < input.len() => {
                    return Step {
                        taken,
                        then: Then::Wait(Block::Turn),
                    };
                }
                Then::GoOn => {}
                then => return Step { taken, then },
            }
        }
        Step {
            taken,
            then: Then::NeedInput,
        }
    }

    /// Calls the session, and closes it if the call requests that.
    #[inline]
    fn with_session(
        &mut self,
        id: ConnectionId,
        shared: &mut Shared,
        work: impl FnOnce(&mut S, &mut Context<'_>) -> Flow,
    ) -> Then<Never> {
        let mut cx = Context {
            id,
            route: match &self.side {
                Side::Server(route) => Some(route),
                Side::Client(_) => None,
            },
            lease: &mut self.lease,
            pace: self.pace.as_deref_mut(),
            is_relayed: self.is_response,
            is_open: self.phase == Phase::Open,
            shared,
        };
        match work(&mut self.session, &mut cx) {
            Flow::GoOn => Then::GoOn,
            Flow::Wait(block) => Then::Wait(block),
            Flow::Close(code, reason) => {
                self.close(id, code, &reason, shared);
                Then::GoOn
            }
        }
    }

    /// Returns whether the next message has to wait for its rate.
    #[inline]
    fn is_ahead(&self, now: Now) -> bool {
        let pace = self.pace.as_deref();
        pace.is_some_and(|pace| pace.wait_until_ms() > now.mono_ms && self.phase == Phase::Open)
    }

    /// Checks input against the route's rates. Exempt are Close frames, requested pongs, and everything after our
    /// Close. Commands are counted by the session when it processes them.
    #[inline]
    fn paced(&mut self, event: &Event<'_>, now: Now) -> Paced {
        let Some(pace) = &mut self.pace else {
            return Paced::InTime;
        };
        if self.phase != Phase::Open {
            return Paced::InTime;
        }
        match event {
            Event::Message { data, .. } if self.session.counts_commands() => {
                pace.bytes(data.len(), now.mono_ms)
            }
            Event::Message { data, .. } => pace.message(data.len(), now.mono_ms),
            Event::Pong(_) if self.pongs_due > 0 => {
                self.pongs_due -= 1;
                Paced::InTime
            }
            Event::Ping(data) | Event::Pong(data) => pace.message(data.len(), now.mono_ms),
            Event::Close { .. } => Paced::InTime,
        }
    }

    /// Pings the client while its input is delayed: its silence means nothing, since the kernel of a vanished client's
    /// machine may still answer.
    pub(crate) fn ping_while_paced(&mut self, id: ConnectionId, shared: &mut Shared) {
        if self.session.has_pings() {
            return self.ping_while_judged(id, shared);
        }
        self.pinged = false;
        self.heard_ms = shared.now.mono_ms as u32;
        self.ping(id, shared);
    }

    fn ping(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.pongs_due = self.pongs_due.saturating_add(1);
        shared.ports.outboxes.control(id, Opcode::Ping, b"");
    }

    /// Handles the peer's end of input: remaining input is processed without delay, and excess messages are dropped. An
    /// endless response continues, since its commands arrive in other requests.
    pub(crate) fn end_pace(&mut self) {
        if let Some(pace) = &mut self.pace
            && !self.is_response
        {
            pace.end();
        }
    }

    /// Closes a client that exceeded its rate.
    fn outpaced(&mut self, id: ConnectionId, shared: &mut Shared) {
        let (code, reason) = CloseCode::TooFast.parts();
        if self.begin_close(id, code, reason, shared) {
            shared.count_outpaced(id);
        }
        self.faulty(id, code, reason, shared);
    }

    /// Closes a peer that violated the protocol or its rate.
    fn faulty(&mut self, id: ConnectionId, code: u16, reason: &str, shared: &mut Shared) {
        if self.session.hears_faults() {
            self.over(id, code, reason, shared);
        }
    }

    /// Returns until when the next input is delayed.
    pub(crate) fn paced_until_ms(&self) -> u64 {
        self.pace.as_ref().map_or(0, |pace| pace.wait_until_ms())
    }

    /// Returns the deadline while input is delayed.
    pub(crate) fn paced_deadline_ms(&self, shared: &Shared) -> u64 {
        self.paced_until_ms()
            .min(self.ping_deadline_ms(shared))
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// Begins the closing handshake.
    pub(crate) fn close(&mut self, id: ConnectionId, code: u16, reason: &str, shared: &mut Shared) {
        if self.begin_close(id, code, reason, shared) {
            self.over(id, code, reason, shared);
        }
    }

    /// Sends our Close and closes the session in the hub; returns `false` if it was already sent.
    fn begin_close(
        &mut self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Shared,
    ) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        self.phase = Phase::Closing {
            since_ms: shared.now.mono_ms as u32,
        };
        let (code, reason) = self.session.words(code, reason);
        self.parted(id, code, &reason, shared);
        self.with_session(id, shared, |session, cx| {
            session.closing(code, &reason, cx);
            Flow::GoOn
        });
        if self.is_response {
            shared.ports.outboxes.end_carrying(id);
            shared.ports.outboxes.journal.closed(id, Some(code));
        } else {
            shared.ports.outboxes.close_frame(id, Some(code), &reason);
        }
        // From now on nothing is delivered to it and counted as such, and its user may open another connection.
        shared.hub.close(id, &mut shared.ports);
        shared.count_user_out(id);
        true
    }

    /// Returns whether our Close was sent.
    pub(crate) fn is_closing(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Handles the end of the session, for any reason.
    pub(crate) fn closed(&mut self, id: ConnectionId, shared: &mut Shared) {
        match &self.side {
            Side::Server(_) => shared.stats.sessions.sub(1),
            Side::Client(_) => shared.stats.clients.sub(1),
        }
        self.vanished(id, shared);
        // An earlier call with a better reason takes precedence.
        self.over(id, CloseCode::Abnormal.code(), "", shared);
    }

    /// Handles a protocol violation; remaining input is discarded.
    fn broken(
        &mut self,
        id: ConnectionId,
        error: websocket::Error,
        taken: usize,
        shared: &mut Shared,
    ) -> Step<Never> {
        shared.stats.protocol_errors.add(1);
        let (code, reason) = (error.close_code(), error.to_string());
        let what = format!("closed with {code}: {reason}");
        shared.note_as(&reason, id, NoteLevel::Info, what);
        if self.phase == Phase::Open {
            self.parted(id, code, &reason, shared);
            shared.ports.outboxes.close_frame(id, Some(code), &reason);
        }
        self.faulty(id, code, &reason, shared);
        Step {
            taken,
            then: Then::End,
        }
    }

    fn pong(&self, id: ConnectionId, payload: &[u8], outboxes: &mut Outboxes) {
        // For a peer that pings but does not read: only the latest ping has to be answered (RFC 6455 section 5.5.3).
        let is_wanted = outboxes.of(id).queued() <= PONG_BYTES_HIGH;
        if self.phase == Phase::Open && is_wanted {
            outboxes.control(id, Opcode::Pong, payload);
        }
    }

    /// RFC 6455 section 5.5.1: a Close is answered with the same code, unless ours was sent.
    fn answer_close(&self, id: ConnectionId, code: Option<u16>, reason: &str, shared: &mut Shared) {
        if self.phase == Phase::Open {
            self.parted(id, code.unwrap_or(CloseCode::NoCode.code()), reason, shared);
            shared.ports.outboxes.close_frame(id, code, reason);
        }
    }

    pub(crate) fn deadline_ms(&self, id: ConnectionId, shared: &Shared) -> u64 {
        if let Phase::Closing { since_ms } = self.phase {
            return since(since_ms, shared.now) + shared.site.limits.close_timeout_ms;
        }
        self.ping_deadline_ms(shared)
            .min(self.idle_deadline_ms(id, shared))
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    fn ping_deadline_ms(&self, shared: &Shared) -> u64 {
        if self.session.has_pings() {
            return self.session.deadline_ms(shared);
        }
        let (interval_ms, timeout_ms) = self.ping_times_ms(shared);
        if interval_ms == 0 {
            return u64::MAX;
        }
        let wait = interval_ms + if self.pinged { timeout_ms } else { 0 };
        since(self.heard_ms, shared.now) + wait
    }

    /// Returns the silence before a ping and the time limit for its pong.
    fn ping_times_ms(&self, shared: &Shared) -> (u64, u64) {
        match &self.side {
            Side::Server(_) => {
                let limits = &shared.site.limits;
                (limits.ping_interval_ms, limits.pong_timeout_ms)
            }
            Side::Client(terms) => (terms.ping_interval_ms, terms.pong_timeout_ms),
        }
    }

    fn idle_deadline_ms(&self, id: ConnectionId, shared: &Shared) -> u64 {
        let timeout_ms = shared.site.limits.session_idle_timeout_ms;
        // Pings that are messages keep a session from becoming idle.
        if timeout_ms == 0 || self.session.has_pings() || matches!(self.side, Side::Client(_)) {
            return u64::MAX;
        }
        let sent_ms = shared.ports.outboxes.of(id).messaged_ms();
        since(self.messaged_ms, shared.now).max(since(sent_ms, shared.now)) + timeout_ms
    }

    /// Pings a silent peer and gives up on a dead one. Returns `false` if the transport is to be closed.
    pub(crate) fn timeout(&mut self, id: ConnectionId, shared: &mut Shared) -> bool {
        shared.ports.outboxes.rest_context(id);
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
            self.with_session(id, shared, Session::timeout);
            return true;
        }
        if self.pinged {
            shared.stats.silent_closed.add(1);
            shared.note(id, NoteLevel::Info, "closed: no pong");
            self.over(id, CloseCode::Abnormal.code(), "no pong", shared);
            return false;
        }
        self.pinged = true;
        // The pong gets its full time even if the ping was late, for example after a suspended machine.
        let (interval_ms, _) = self.ping_times_ms(shared);
        self.heard_ms = shared.now.mono_ms.wrapping_sub(interval_ms) as u32;
        self.ping(id, shared);
        true
    }
}

/// Returns the full time of a moment less than 49 days ago from its low 32 bits.
fn since(low_ms: u32, now: Now) -> u64 {
    now.mono_ms - u64::from((now.mono_ms as u32).wrapping_sub(low_ms)).min(now.mono_ms)
}
