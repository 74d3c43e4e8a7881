//! One connection's whole life as a state machine: head → route → upgrade → frames → session. Start reading here.
//!
//! Bytes come in through [`Connection::received`]; what is to be sent is written into the connection's outbox; what
//! it wants of the transport is asked by the worker afterwards ([`Connection::is_blocked`], [`Connection::deadline_ms`],
//! [`Outbox::end`](crate::Outbox::end)). No socket, no clock: tests, fuzzer and simulator reach all of it.
//!
//! A stage that can't go on (its client does not read, a home worker has not answered, the hub takes no further
//! publication) says so; the connection keeps the input, the transport is paused, and [`Connection::resume`] goes on.

mod deadline;
mod described;
mod ending;
mod session;

use std::net::IpAddr;

use veche_hub::{Answer, ConnectionId, Ticket};
use veche_types::codes::CloseCode;

use crate::backend::lines::Lines;
use crate::context::app::{AppAnswer, Gone};
use crate::context::census::About;
use crate::context::identity::{Certified, Finding};
use crate::context::note::NoteLevel;
use crate::context::shared::{Now, Shared};
use crate::context::site::Role;
use crate::context::stats::TurnedAway;
use crate::context::step::{Block, Never, Step, Then};
use crate::context::work;
use crate::http::reply::refuse_request;
use crate::http::{Http, Opened};
use crate::outbox::ANSWERS_BYTES_HIGH;
use crate::registry::{AnySession, Registry};
use crate::sessions::app::dialing::{Dialed, Dialing};
use crate::websocket::Socket;
use crate::websocket::client::{Caller, Dial};
pub use described::list_connections;

/// Instead of a listener where we have dialed.
const NO_LISTENER: u16 = u16::MAX;

/// Why a connection that was dialed did not come to be.
const CUT_OFF: &str = "the server closed the connection before it answered";

/// A connection, from accept to close.
pub struct Connection {
    stage: Stage,
    /// Input that was received and not processed: an unfinished head or line, or anything while blocked. `None` if
    /// there is none: the one word that it takes in most connections.
    #[allow(
        clippy::box_collection,
        reason = "a vector takes three words in each idle connection"
    )]
    input: Option<Box<Vec<u8>>>,
    /// When the next look is due; see [`Connection::timeout`].
    deadline_ms: u64,
    /// Where the peer is, or the client behind it once a session is open.
    pub peer: IpAddr,
    blocked: Option<Block>,
    /// The peer will send no more.
    ended: bool,
    /// It ends with what is under way: a push line's connection that a drain has come to, or one that has come since a drain
    /// began.
    told_to_go: bool,
    /// It is one of its address's connections.
    is_counted: bool,
    listener: u16,
}

const _: () = assert!(size_of::<Connection>() <= 136);

/// What a connection speaks at the moment.
enum Stage {
    Http(Box<Http<Registry>>),
    /// Ours to another server, before its 101.
    Dialing(Box<Dialing>),
    Socket(Socket<AnySession>),
    Lines(Box<Lines>),
    /// Nothing is read any more; the transport goes down in good order.
    Ending,
}

impl Stage {
    fn opened(opened: Opened<AnySession>) -> Self {
        Self::Socket(Socket::opened(opened))
    }

    fn dialed(dialed: Dialed, now: Now) -> Self {
        let session = dialed.session.into();
        Self::Socket(Socket::dialed(dialed.decoder, session, dialed.terms, now))
    }
}

impl Connection {
    /// A connection that was just accepted; its outbox is opened.
    pub fn accept(id: ConnectionId, listener: u16, peer: IpAddr, shared: &mut Shared) -> Self {
        shared.ports.outboxes.open(id);
        let stage = match shared.site.listeners[listener as usize].role {
            Role::Push => Stage::Lines(Box::default()),
            Role::Public | Role::Internal => {
                let http = Http::new(listener, peer, shared.now.mono_ms);
                Stage::Http(Box::new(http))
            }
        };
        let is_late = shared.is_draining() && matches!(stage, Stage::Http(_));
        let mut connection = Self {
            stage,
            input: None,
            deadline_ms: 0,
            peer,
            blocked: None,
            ended: false,
            told_to_go: is_late,
            is_counted: false,
            listener,
        };
        connection.settle_deadline(id, shared);
        connection
    }

    /// A connection to another server; its outbox is opened and has the request.
    pub fn dial(id: ConnectionId, peer: IpAddr, dial: Dial, shared: &mut Shared) -> Self {
        shared.ports.outboxes.open(id);
        let dialing = Dialing::new(id, dial, shared);
        let mut connection = Self {
            stage: Stage::Dialing(Box::new(dialing)),
            input: None,
            deadline_ms: 0,
            peer,
            blocked: None,
            ended: false,
            told_to_go: false,
            is_counted: false,
            listener: NO_LISTENER,
        };
        connection.settle_deadline(id, shared);
        connection
    }

    /// What it knows of itself.
    pub(crate) fn about(&self) -> About<'_> {
        match &self.stage {
            Stage::Socket(socket) => socket.about(),
            // Its session is about to open.
            _ => About::default(),
        }
    }

    /// The client has shown a certificate that is believed, before its first byte.
    pub fn certified(&mut self, certified: Certified) {
        if let Stage::Http(http) = &mut self.stage {
            http.set_certified(certified);
        }
    }

    /// The peer is a proxy that has said for whom it speaks, before the client's first byte.
    pub fn introduced(&mut self, client: IpAddr) {
        self.peer = client;
        if let Stage::Http(http) = &mut self.stage {
            http.set_peer(client);
        }
    }

    /// Counts it among the connections of an address, and no more of the one before; whether that has not too many now.
    pub fn count_as(&mut self, address: IpAddr, shared: &Shared) -> bool {
        self.count_out(shared);
        self.peer = address;
        self.is_counted = true;
        shared.process.address_opened(address)
    }

    fn count_out(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.is_counted) {
            shared.process.address_closed(self.peer);
        }
    }

    /// Who has dialed and waits for the 101.
    pub fn caller(&self) -> Option<Caller> {
        match &self.stage {
            Stage::Dialing(dialing) => Some(dialing.caller()),
            _ => None,
        }
    }

    /// The transport, or what lies between it and us, can't go on.
    pub fn failed(&mut self, id: ConnectionId, why: &str, shared: &mut Shared) {
        match &mut self.stage {
            Stage::Dialing(dialing) => dialing.failed(why, shared),
            Stage::Socket(socket) => socket.over(id, CloseCode::Abnormal.code(), why, shared),
            Stage::Http(_) | Stage::Lines(_) | Stage::Ending => {}
        }
        self.abort(id, shared);
    }

    /// Bytes of the peer; they may be overwritten.
    pub fn received(&mut self, id: ConnectionId, bytes: &mut [u8], shared: &mut Shared) {
        let was_session = matches!(self.stage, Stage::Socket(_));
        if self.input.is_none() && self.blocked.is_none() {
            let taken = self.work(id, bytes, shared);
            if taken < bytes.len() {
                self.input = Some(Box::new(bytes[taken..].to_vec()));
            }
        } else {
            self.input.get_or_insert_default().extend_from_slice(bytes);
            if self.blocked.is_none() {
                self.work_on_input(id, shared);
            }
        }
        if let Stage::Socket(socket) = &mut self.stage {
            socket.heard(shared.now);
        }
        // A session's deadline is looked at when it comes, not with every message.
        let goes_on = match &mut self.stage {
            Stage::Socket(socket) => !socket.is_closing() && !socket.take_hurry(),
            _ => false,
        };
        if !was_session || !goes_on {
            self.settle_deadline(id, shared);
        }
    }

    /// The peer sent FIN.
    pub fn ended(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.ended = true;
        if let Stage::Socket(socket) = &mut self.stage {
            socket.end_pace();
            if self.blocked == Some(Block::Pace) {
                self.resume(id, shared);
                return;
            }
        }
        if self.blocked.is_none() {
            self.finish_after_end(id, shared);
        }
    }

    /// A home answered one of this connection's tickets.
    pub fn answered(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) {
        let goes_on = match &mut self.stage {
            Stage::Http(http) => match http.answered(id, ticket, answer, shared) {
                Then::Become(opened) => {
                    self.become_stage(id, Stage::opened(opened), shared);
                    true
                }
                Then::GoOn => true,
                _ => false,
            },
            Stage::Socket(socket) => socket.answered(id, ticket, answer, shared),
            Stage::Lines(lines) => lines.answered(id, ticket, answer, shared),
            Stage::Dialing(_) | Stage::Ending => false,
        };
        if goes_on && self.blocked == Some(Block::Answer) {
            self.resume(id, shared);
        } else {
            self.finish_if_due(id, shared);
            self.settle(id, shared);
        }
    }

    /// An application's verdict or response has come.
    pub fn app_answered(&mut self, id: ConnectionId, answer: AppAnswer, shared: &mut Shared) {
        let Stage::Http(http) = &mut self.stage else {
            return;
        };
        let Some(then) = http.app_answered(id, answer, shared) else {
            return;
        };
        self.go_on_from_http(id, then, shared);
    }

    fn go_on_from_http(
        &mut self,
        id: ConnectionId,
        then: Then<Opened<AnySession>>,
        shared: &mut Shared,
    ) {
        let then = match then {
            Then::Become(opened) => {
                self.become_stage(id, Stage::opened(opened), shared);
                Then::GoOn
            }
            then => then.map(Stage::opened),
        };
        self.go_on(id, then, shared);
    }

    /// What has become of the question who the client is.
    pub fn found(&mut self, id: ConnectionId, finding: Finding, shared: &mut Shared) {
        if let Stage::Socket(socket) = &mut self.stage {
            if socket.found(&finding) && self.blocked == Some(Block::Answer) {
                self.resume(id, shared);
            }
            return;
        }
        let Stage::Http(http) = &mut self.stage else {
            return;
        };
        let then = match http.found(id, finding, shared) {
            None => return,
            Some(Ok(then)) => then,
            Some(Err(error)) => {
                refuse_request(id, &error, shared);
                Then::End
            }
        };
        self.go_on_from_http(id, then, shared);
    }

    /// Goes on after a block: the worker calls it when what was waited for may have come. Returns whether it had, even if
    /// the connection waits again by now.
    pub fn resume(&mut self, id: ConnectionId, shared: &mut Shared) -> bool {
        let Some(block) = self.blocked else {
            return false;
        };
        if matches!(block, Block::App | Block::Verdict) {
            // An application says itself when it is done, and so does whoever decides.
            return false;
        }
        if block == Block::Output && shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
            shared.waiting_for_output.push(id);
            return false;
        }
        let more = match &mut self.stage {
            // These stages stop between two requests or lines, so they hold no state to continue.
            Stage::Http(_) | Stage::Lines(_) if block == Block::Turn => Then::GoOn,
            Stage::Http(http) => http.resume(id, shared).map(Stage::opened),
            Stage::Socket(socket) => socket.resume(id, shared).map(stays),
            Stage::Lines(lines) => lines.resume(id, shared).map(stays),
            Stage::Dialing(_) => Then::GoOn,
            Stage::Ending => Then::End,
        };
        let has_come = !matches!(more, Then::Wait(_));
        self.go_on(id, more, shared);
        has_come
    }

    /// What was waited for has come, and led to this.
    fn go_on(&mut self, id: ConnectionId, then: Then<Stage>, shared: &mut Shared) {
        let was_blocked = self.blocked.take().is_some();
        match then {
            Then::Wait(block) => self.block(id, block, shared),
            Then::End => self.end(id, shared),
            _ => self.work_on_input(id, shared),
        }
        self.finish_if_due(id, shared);
        if let Stage::Socket(socket) = &mut self.stage
            && was_blocked
        {
            socket.heard_after_wait(shared.now);
        }
        self.settle_deadline(id, shared);
    }

    /// What comes after HTTP is one client's for good, also behind a proxy.
    fn become_stage(&mut self, id: ConnectionId, stage: Stage, shared: &mut Shared) {
        let client = match &self.stage {
            Stage::Http(http) => http.proxied_client(),
            _ => None,
        };
        self.stage = stage;
        self.count_in(id, client, shared);
        if let Stage::Socket(socket) = &mut self.stage {
            socket.set_peer(self.peer);
        }
        if shared.is_draining() && self.listener().is_some() && !self.is_back_end() {
            // It was no session yet when the others were told.
            self.drain(id, shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && socket.has_input()
            && !socket.is_closing()
        {
            // It has said something with its request.
            if let Then::Wait(block) = socket.resume(id, shared).map(stays) {
                self.block(id, block, shared);
            }
            self.settle_deadline(id, shared);
        }
    }

    fn count_in(&mut self, id: ConnectionId, client: Option<IpAddr>, shared: &mut Shared) {
        let Some(client) = client else { return };
        if shared.site.listeners[self.listener as usize].role != Role::Public {
            // It may have been counted before its peer was trusted.
            self.count_out(shared);
            self.peer = client;
        } else if !self.count_as(client, shared) {
            shared.stats.turn_away(TurnedAway::Connections);
            let (code, reason) = CloseCode::TooMany.parts();
            self.disconnect(id, code, reason, shared);
        }
    }

    /// Why input waits, if it does; the transport should be paused meanwhile.
    pub fn is_blocked(&self) -> Option<Block> {
        self.blocked
    }

    /// Monotonic time at which [`Connection::timeout`] has something to look at.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// The deadline has come; [`Connection::deadline_ms`] then says the next one.
    ///
    /// `stalled_since_ms`: since when the transport has made no progress in sending, if it should.
    pub fn timeout(
        &mut self,
        id: ConnectionId,
        stalled_since_ms: Option<u64>,
        shared: &mut Shared,
    ) {
        let now = shared.now.mono_ms;
        if let Some(since) = stalled_since_ms
            && now >= since + shared.site.limits.write_timeout_ms
        {
            shared.stats.slow_consumers.add(1);
            shared.note(
                id,
                NoteLevel::Warn,
                "closed: the client accepted no data for write_timeout",
            );
            if let Stage::Socket(socket) = &mut self.stage {
                let why = "it took nothing for too long";
                socket.over(id, CloseCode::Abnormal.code(), why, shared);
            }
            return self.abort(id, shared);
        }
        // A session sets no deadline with each message: this may be an old one.
        self.settle_deadline(id, shared);
        if now < self.deadline_ms {
            return;
        }
        if matches!(self.stage, Stage::Ending) && stalled_since_ms.is_some() {
            return self.begin_close_timeout(shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && now >= socket.expiry_ms(shared.now)
            && !socket.is_closing()
        {
            return self.expired(id, shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && self.blocked == Some(Block::Pace)
            && !socket.is_closing()
        {
            if now >= socket.paced_until_ms() {
                self.resume(id, shared);
                return;
            }
            socket.ping_while_paced(id, shared);
            return self.settle(id, shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && self.blocked == Some(Block::Verdict)
            && !socket.is_closing()
        {
            socket.ping_while_judged(id, shared);
            return self.settle(id, shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && self.blocked.is_some()
            && !socket.is_closing()
        {
            socket.timeout_blocked(id, shared);
            return self.settle(id, shared);
        }
        let alive = match &mut self.stage {
            Stage::Http(http) => http.timeout(id, shared),
            Stage::Dialing(dialing) => {
                dialing.timed_out(shared);
                false
            }
            Stage::Socket(socket) => socket.timeout(id, shared),
            Stage::Lines(_) => true,
            Stage::Ending => false,
        };
        if alive {
            self.settle_deadline(id, shared);
        } else if matches!(self.stage, Stage::Http(_)) {
            // What was answered (408) should arrive.
            self.end(id, shared);
        } else {
            self.abort(id, shared);
        }
    }

    /// The transport is gone; nothing of the connection stays.
    pub fn closed(&mut self, id: ConnectionId, shared: &mut Shared) {
        match &mut self.stage {
            Stage::Socket(socket) => socket.closed(id, shared),
            Stage::Http(http) => http.gone(id, Gone::Left, shared),
            Stage::Dialing(dialing) => dialing.failed(CUT_OFF, shared),
            Stage::Lines(_) | Stage::Ending => {}
        }
        shared.hub.close(id, &mut shared.ports);
        shared.ports.outboxes.end_entry(id, self.peer);
        shared.ports.outboxes.close(id);
        shared.count_user_out(id);
        self.count_out(shared);
    }

    /// Whether the peer has sent FIN: once everything is sent, nothing keeps the transport.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether nothing of the peer is handled any more: the transport alone is left.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ending)
    }

    /// The listener that accepted it; `None` if it is ours to another server.
    pub fn listener(&self) -> Option<u16> {
        (self.listener != NO_LISTENER).then_some(self.listener)
    }

    fn work_on_input(&mut self, id: ConnectionId, shared: &mut Shared) {
        let mut input = self.input.take().unwrap_or_default();
        let taken = self.work(id, &mut input, shared);
        if taken < input.len() {
            input.drain(..taken);
            self.input = Some(input);
        } else {
            shared.ports.outboxes.recycle(*input);
        }
    }

    /// Works through input as far as it goes; returns the bytes taken.
    fn work(&mut self, id: ConnectionId, bytes: &mut [u8], shared: &mut Shared) -> usize {
        let mut taken = 0;
        loop {
            let input = &mut bytes[taken..];
            if input.is_empty() {
                return taken;
            }
            if shared.work.is_spent() && !matches!(self.stage, Stage::Ending) {
                self.wait_for_turn(id, taken > 0, shared);
                return taken;
            }
            shared.work.charge(work::INPUT);
            let step: Step<Stage> = match &mut self.stage {
                Stage::Http(http) => http.step(id, input, shared).map(Stage::opened),
                Stage::Dialing(dialing) => {
                    let now = shared.now;
                    dialing
                        .step(id, input, shared)
                        .map(|dialed| Stage::dialed(dialed, now))
                }
                Stage::Socket(socket) => socket.step(id, input, shared).map(stays),
                Stage::Lines(lines) => lines.step(id, input, shared).map(stays),
                Stage::Ending => return bytes.len(),
            };
            taken += step.taken;
            match step.then {
                Then::GoOn => {}
                Then::NeedInput => return taken,
                Then::Wait(block) => {
                    self.block(id, block, shared);
                    return taken;
                }
                Then::Become(stage) => self.become_stage(id, stage, shared),
                Then::End => {
                    self.end(id, shared);
                    return bytes.len();
                }
            }
        }
    }

    fn block(&mut self, id: ConnectionId, block: Block, shared: &mut Shared) {
        self.blocked = Some(block);
        match block {
            Block::Output => shared.waiting_for_output.push(id),
            Block::Credit => shared.waiting_for_credit.push(id),
            // A stage that stops by itself has used its share in this turn.
            Block::Turn => shared.waiting_for_turn.push(shared.now.mono_ms, id),
            Block::Answer | Block::App | Block::Verdict => {}
            Block::Pace => {
                shared.stats.paced.add(1);
                self.settle_deadline(id, shared);
            }
        }
    }

    /// The share is used up, or the turn was over before any of it was.
    fn wait_for_turn(&mut self, id: ConnectionId, is_served: bool, shared: &mut Shared) {
        let now_ms = shared.now.mono_ms;
        let served_ms = match &self.stage {
            _ if is_served => now_ms,
            Stage::Socket(socket) => now_ms.saturating_sub(socket.silent_ms(shared)),
            Stage::Http(http) => http.since_ms(),
            Stage::Lines(lines) => lines.served_ms(),
            Stage::Dialing(_) | Stage::Ending => now_ms,
        };
        self.blocked = Some(Block::Turn);
        shared.waiting_for_turn.push(served_ms, id);
    }
}

/// A stage that turns into no other.
fn stays(never: Never) -> Stage {
    match never {}
}
