//! A connection while it speaks WebSocket: frames to messages, pings, the closing handshake.
//!
//! What a message means is the session's: the echo sends it back, the push gateway expects none, the back end's
//! socket takes each for a command, an application gets it (`app`). It does not know the wire: frames are
//! `veche_proto`'s.

mod app;
mod centrifuge;
pub mod client;
mod instructed;
mod lease;
mod parting;

use std::sync::Arc;

use instructed::Joins;
pub(crate) use lease::GRACE_MS;
pub use lease::NotRenewed;
use veche_hub::{Answer, ConnectionId, Ticket};
use veche_proto::websocket::{self, Decoder, Event, Limits, MessageKind, Opcode};
use veche_types::Now;
use veche_types::codes::CloseCode;

use crate::backend::command;
use crate::backend::{Backend, Progress, Shape};
use crate::context::census::About;
use crate::context::identity::Lease;
use crate::context::note::NoteLevel;
use crate::context::pace::{Pace, Paced};
use crate::context::route::Route;
use crate::context::shared::Shared;
use crate::context::step::{Block, Never, Step, Then};
use crate::context::work;
use crate::outbox::{ANSWERS_BYTES_HIGH, Outboxes};
use crate::sessions::app::App;
use crate::sessions::centrifuge::Centrifuge;
use crate::websocket::client::Terms;

/// Above this many bytes on their way out pings are not answered any more.
const PONG_BYTES_HIGH: usize = 4 << 20;

/// An open WebSocket.
pub(crate) struct Socket {
    decoder: Decoder,
    side: Side,
    session: Session,
    /// When the last byte came, in milliseconds; wraps after 49 days, as do comparisons with it. While a ping is out: its
    /// own time less `ping_interval`.
    heard_ms: u32,
    /// When the last message came; the outbox knows when the last one went.
    messaged_ms: u32,
    phase: Phase,
    /// Where the client may not speak as fast as it likes.
    pace: Option<Box<Pace>>,
    /// Where a token says who the client is, until when it does.
    lease: Option<Box<Lease>>,
    /// Messages are parts of a response, and what comes on the connection is of no interest.
    is_response: bool,
    /// A ping is out since `heard_ms` and `ping_interval`, and nothing has come since.
    pinged: bool,
    /// Pings whose pongs have not come: these are asked for.
    pongs_due: u8,
}

/// Which end of the WebSocket we are, and what that end keeps to.
pub(crate) enum Side {
    /// A client has come to a route of ours.
    Server(Arc<Route>),
    /// An application has dialed.
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

/// What a session does with messages. One line for each front end of this kind.
pub(crate) enum Session {
    Echo,
    /// Clients listen; what they say is counted and dropped.
    Push(Option<Box<Joins>>),
    Backend(Box<Backend>),
    App(App),
    Centrifuge(Box<Centrifuge>),
}

impl Session {
    /// Whether a message is several things, each of which counts.
    fn has_commands(&self) -> bool {
        match self {
            Self::Centrifuge(session) => !session.is_one_way(),
            Self::Backend(_) => true,
            Self::Echo | Self::Push(_) | Self::App(_) => false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Our Close frame is out; the peer's is awaited since then, as far as 32 bits tell.
    Closing {
        since_ms: u32,
    },
}

/// Returns the units of work that reading a message or a control frame has taken.
#[inline]
fn cost(event: &Event<'_>) -> u64 {
    match event {
        Event::Message { data, .. } => work::INPUT + data.len() as u64,
        Event::Ping(_) | Event::Pong(_) | Event::Close { .. } => work::INPUT,
    }
}

impl Socket {
    /// The path of its route.
    pub(crate) fn path(&self) -> &str {
        self.side.path()
    }

    /// How long nothing has come from the peer, in milliseconds.
    pub(crate) fn silent_ms(&self, shared: &Shared) -> u64 {
        u64::from((shared.now.mono_ms as u32).wrapping_sub(self.heard_ms))
    }

    /// What a back end is told of it.
    pub(crate) fn about(&self) -> About<'_> {
        let about = match &self.session {
            Session::Centrifuge(session) => session.about(),
            Session::Echo => About::of("echo"),
            Session::Push(_) => About::of("push"),
            Session::Backend(_) => About::of("api"),
            Session::App(_) => About::of("lua"),
        };
        About {
            transport: if self.is_response {
                "http"
            } else {
                "websocket"
            },
            route: self.side.path(),
            ..about
        }
    }
}

impl Socket {
    pub(crate) fn new(decoder: Decoder, session: Session, side: Side, now: Now) -> Self {
        let pacing = match &side {
            Side::Server(route) => route.pacing,
            Side::Client(_) => None,
        };
        Self {
            decoder,
            side,
            session,
            heard_ms: now.mono_ms as u32,
            messaged_ms: now.mono_ms as u32,
            phase: Phase::Open,
            pace: pacing.map(|pacing| Box::new(Pace::new(pacing))),
            lease: None,
            is_response: false,
            pinged: false,
            pongs_due: 0,
        }
    }

    /// Something came from the peer.
    pub(crate) fn heard(&mut self, now: Now) {
        self.heard_ms = now.mono_ms as u32;
        self.pinged = false;
    }

    /// Input that waited goes on: the peer may have spoken all the time, and nobody listened.
    pub(crate) fn heard_after_wait(&mut self, now: Now) {
        self.heard(now);
        if let Session::Centrifuge(session) = &mut self.session {
            session.heard();
        }
    }

    pub(crate) fn step(
        &mut self,
        id: ConnectionId,
        input: &mut [u8],
        shared: &mut Shared,
    ) -> Step<Never> {
        if matches!(self.session, Session::App(_)) {
            return self.app_step(id, input, shared);
        }
        if self.is_response {
            return Step {
                taken: input.len(),
                then: Then::NeedInput,
            };
        }
        if self.is_ahead(shared.now) {
            // What came before had to wait for something else too.
            return Step {
                taken: 0,
                then: Then::Wait(Block::Pace),
            };
        }
        let mut taken = 0;
        while taken < input.len() {
            let result = self.decoder.decode(
                &mut input[taken..],
                &mut shared.codecs,
                self.side.message_limits(),
            );
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
                    if self.phase != Phase::Open {
                        Then::GoOn
                    } else {
                        match &mut self.session {
                            Session::Echo => {
                                shared.ports.outboxes.message(id, kind, data);
                                Then::GoOn
                            }
                            Session::Push(_) | Session::App(_) => Then::GoOn,
                            Session::Centrifuge(_) => {
                                let mut message = shared.ports.outboxes.spare();
                                message.extend_from_slice(data);
                                self.commands(id, message, shared)
                            }
                            Session::Backend(_) => {
                                // The codecs may hold the message; a command needs all of `shared`.
                                let data = data.to_vec();
                                self.command(id, kind, data, shared)
                            }
                        }
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
            let codecs = shared.take_codec_work();
            shared.work.charge(codecs);
            match then {
                Then::GoOn
                    if shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH
                        && self.phase == Phase::Open =>
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

    /// Whether what comes next has to wait for its time.
    #[inline]
    fn is_ahead(&self, now: Now) -> bool {
        let pace = self.pace.as_deref();
        pace.is_some_and(|pace| pace.wait_until_ms() > now.mono_ms && self.phase == Phase::Open)
    }

    /// Whether what has come keeps to the route's rates. A Close does, and so does the pong that we asked for; after our
    /// Close nothing is counted any more. What is said in commands is counted by these, when they are worked on.
    #[inline]
    fn paced(&mut self, event: &Event<'_>, now: Now) -> Paced {
        let Some(pace) = &mut self.pace else {
            return Paced::InTime;
        };
        if self.phase != Phase::Open {
            return Paced::InTime;
        }
        match event {
            Event::Message { data, .. } if self.session.has_commands() => {
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

    /// While input waits for its time nothing is heard of the peer: a ping finds out whether it is there at all, since
    /// the system of one that has gone answers for it.
    pub(crate) fn ping_while_paced(&mut self, id: ConnectionId, shared: &mut Shared) {
        if let Session::Centrifuge(session) = &mut self.session {
            session.heard();
            return self.centrifuge_due(id, shared);
        }
        self.pinged = false;
        self.heard_ms = shared.now.mono_ms as u32;
        self.ping(id, shared);
    }

    fn ping(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.pongs_due = self.pongs_due.saturating_add(1);
        shared.ports.outboxes.control(id, Opcode::Ping, b"");
    }

    /// The peer has said its last: what is left of it does not wait for its time, and what is too much of it is dropped.
    /// An endless response goes on: its commands come by other requests.
    pub(crate) fn end_pace(&mut self) {
        if let Some(pace) = &mut self.pace
            && !self.is_response
        {
            pace.end();
        }
    }

    /// The client has spoken faster than its route allows, and is closed.
    fn outpaced(&mut self, id: ConnectionId, shared: &mut Shared) {
        let (code, reason) = CloseCode::TooFast.parts();
        if self.begin_close(id, code, reason, shared) {
            shared.count_outpaced(id);
        }
    }

    /// Until when what the client says next waits.
    pub(crate) fn paced_until_ms(&self) -> u64 {
        self.pace.as_ref().map_or(0, |pace| pace.wait_until_ms())
    }

    /// When there is something to do while it waits.
    pub(crate) fn paced_deadline_ms(&self, shared: &Shared) -> u64 {
        self.paced_until_ms()
            .min(self.ping_deadline_ms(shared))
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// One frame on `/api/socket`: a command, answered always and in order.
    fn command(
        &mut self,
        id: ConnectionId,
        kind: MessageKind,
        data: Vec<u8>,
        shared: &mut Shared,
    ) -> Then<Never> {
        let Session::Backend(backend) = &mut self.session else {
            return Then::GoOn;
        };
        if backend.is_full() {
            // A frame can't be untaken once decoded: it is kept here.
            backend.keep(kind, data);
            return Then::Wait(Block::Answer);
        }
        let mut scratch = std::mem::take(&mut shared.scratch.payload);
        let result = match kind {
            MessageKind::Text => command::parse(&data, &mut scratch),
            MessageKind::Binary => Err(command::BadCommand::new(
                "expected a text message with a JSON object",
            )),
        };
        shared.scratch.payload = scratch;
        let count = result.as_ref().map_or(1, |command| command.target.count());
        match self
            .pace
            .as_mut()
            .map(|pace| pace.publications(count, shared.now.mono_ms))
        {
            Some(Paced::Drop) => {
                shared.stats.messages_dropped.add(1);
                return Then::GoOn;
            }
            Some(Paced::Close) => {
                self.outpaced(id, shared);
                return Then::GoOn;
            }
            _ => {}
        }
        let Session::Backend(backend) = &mut self.session else {
            return Then::GoOn;
        };
        let progress = match result {
            Err(error) => {
                backend.refuse(None, error.into(), "", id, shared);
                Progress::Done
            }
            Ok(command) => backend
                .publish(&command, Shape::Sum, true, id, shared)
                .unwrap_or_else(|why| {
                    backend.refuse(command.id, why, "", id, shared);
                    Progress::Done
                }),
        };
        write_answers(backend, id, shared);
        match progress {
            Progress::Done => Then::GoOn,
            Progress::Unfinished => Then::Wait(Block::Credit),
        }
    }

    pub(crate) fn is_back_end(&self) -> bool {
        matches!(self.session, Session::Backend(_))
    }

    pub(crate) fn resume(&mut self, id: ConnectionId, shared: &mut Shared) -> Then<Never> {
        let backend = match &mut self.session {
            Session::Backend(backend) => backend,
            Session::App(_) => return self.app_resume(id, shared),
            Session::Centrifuge(_) => return self.go_on_with_commands(id, shared),
            Session::Echo | Session::Push(_) => return Then::GoOn,
        };
        if !backend.resume(id, shared) {
            return Then::Wait(Block::Credit);
        }
        write_answers(backend, id, shared);
        match backend.take_kept() {
            Some((kind, data)) => self.command(id, kind, data, shared),
            None => Then::GoOn,
        }
    }

    /// Returns whether input that waited for an answer may go on.
    pub(crate) fn answered(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) -> bool {
        match &mut self.session {
            Session::Backend(backend) => {
                backend.answered(ticket, answer);
                write_answers(backend, id, shared)
            }
            Session::App(app) => {
                app.answered(id, ticket, answer, shared);
                false
            }
            Session::Push(_) => {
                self.enrolled(id, ticket, &answer, shared);
                false
            }
            Session::Centrifuge(_) => self.command_answered(id, ticket, answer, shared),
            Session::Echo => false,
        }
    }

    /// Begins the closing handshake.
    pub(crate) fn close(&mut self, id: ConnectionId, code: u16, reason: &str, shared: &mut Shared) {
        if self.begin_close(id, code, reason, shared) {
            self.over(id, code, reason, shared);
        }
    }

    /// Our Close, on the wire and towards the hub; `false` if it was out already.
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
        let (code, reason) = match self.session {
            Session::Centrifuge(_) => crate::sessions::centrifuge::words(code, reason),
            _ => (code, reason.into()),
        };
        self.parted(id, code, &reason, shared);
        if let Session::Centrifuge(session) = &mut self.session {
            session.end_answer();
        }
        if let Session::Centrifuge(session) = &self.session
            && (self.is_response || session.is_one_way())
        {
            session.write_disconnect(id, code, &reason, shared);
        }
        if self.is_response {
            shared.ports.outboxes.end_carrying(id);
            shared.ports.outboxes.journal.closed(id, Some(code));
        } else {
            shared.ports.outboxes.close_frame(id, Some(code), &reason);
        }
        // From now on nothing can be handed to it, so nothing is counted as handed; and its user has room for another.
        shared.hub.close(id, &mut shared.ports);
        shared.count_user_out(id);
        true
    }

    /// Whether our Close is out.
    pub(crate) fn is_closing(&self) -> bool {
        self.phase != Phase::Open
    }

    /// The session is over, however it came to be.
    pub(crate) fn closed(&mut self, id: ConnectionId, shared: &mut Shared) {
        match &self.side {
            Side::Server(_) => shared.stats.sessions.sub(1),
            Side::Client(_) => shared.stats.clients.sub(1),
        }
        self.vanished(id, shared);
        // Whoever knew a better reason has said it before.
        self.over(id, CloseCode::Abnormal.code(), "", shared);
    }

    /// The peer broke the protocol; all of its input is done with.
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
        Step {
            taken,
            then: Then::End,
        }
    }

    fn pong(&self, id: ConnectionId, payload: &[u8], outboxes: &mut Outboxes) {
        // A server that pings and does not read: only the last ping has to be answered (RFC 6455, section 5.5.3).
        let is_wanted = outboxes.of(id).queued() <= PONG_BYTES_HIGH;
        if self.phase == Phase::Open && is_wanted {
            outboxes.control(id, Opcode::Pong, payload);
        }
    }

    /// RFC 6455, section 5.5.1: a Close is answered with the same code, unless ours is out already.
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
        if let Session::Centrifuge(session) = &self.session {
            return session.deadline_ms(shared);
        }
        let (interval_ms, timeout_ms) = self.ping_times_ms(shared);
        if interval_ms == 0 {
            return u64::MAX;
        }
        let wait = interval_ms + if self.pinged { timeout_ms } else { 0 };
        since(self.heard_ms, shared.now) + wait
    }

    /// After so much silence a ping is sent, and after so much more the peer is given up.
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
        // Pings are messages to clients of Centrifugo's protocol: such a session is never idle.
        let is_excepted = matches!(self.session, Session::Centrifuge(_));
        if timeout_ms == 0 || is_excepted || matches!(self.side, Side::Client(_)) {
            return u64::MAX;
        }
        let sent_ms = shared.ports.outboxes.of(id).messaged_ms();
        since(self.messaged_ms, shared.now).max(since(sent_ms, shared.now)) + timeout_ms
    }

    /// Pings a silent peer, gives up a dead one. `false`: the transport is to be closed.
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
        if let Session::Centrifuge(_) = self.session {
            self.centrifuge_due(id, shared);
            return true;
        }
        if self.pinged {
            shared.stats.silent_closed.add(1);
            shared.note(id, NoteLevel::Info, "closed: no pong");
            self.over(id, CloseCode::Abnormal.code(), "no pong", shared);
            return false;
        }
        self.pinged = true;
        // The pong has its full time also where the ping is late: after a pause of the whole machine, say.
        let (interval_ms, _) = self.ping_times_ms(shared);
        self.heard_ms = shared.now.mono_ms.wrapping_sub(interval_ms) as u32;
        self.ping(id, shared);
        true
    }
}

/// The full time of a moment of which the low 32 bits were kept, and which is less than 49 days ago.
fn since(low_ms: u32, now: Now) -> u64 {
    now.mono_ms - u64::from((now.mono_ms as u32).wrapping_sub(low_ms)).min(now.mono_ms)
}

/// Writes the answers that are complete; whether there were any.
fn write_answers(backend: &mut Backend, id: ConnectionId, shared: &mut Shared) -> bool {
    let mut wrote = false;
    let mut reply = std::mem::take(&mut shared.scratch.reply);
    while backend.write_answer(&mut reply, "result") {
        shared.ports.outboxes.message(id, MessageKind::Text, &reply);
        reply.clear();
        wrote = true;
    }
    shared.scratch.reply = reply;
    wrote
}
