//! The life of one connection as a state machine: head → route → upgrade → frames → session. Start reading here.
//!
//! [`Connection::received`] takes the bytes; output goes into the connection's outbox; afterwards the worker asks what
//! the connection needs from its transport ([`Connection::is_blocked`], [`Connection::deadline_ms`],
//! [`Outbox::end`](crate::Outbox::end)). There is no socket and no clock, so tests, fuzzer and simulator reach all of
//! it.
//!
//! A stage that can't continue (the client does not read, a home worker has not answered, the hub accepts no further
//! publication) returns the reason; the connection stores the input, the transport is paused, and
//! [`Connection::resume`] continues.

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

/// Listener number of outbound connections.
const NO_LISTENER: u16 = u16::MAX;

/// Reason for a dialed connection that closed before its response.
const CUT_OFF: &str = "the server closed the connection before it answered";

/// A connection, from accept to close.
pub struct Connection {
    stage: Stage,
    /// Received input that was not processed: an incomplete head or line, or anything while blocked. `None` if empty,
    /// so that most connections spend only one word on it.
    #[allow(
        clippy::box_collection,
        reason = "a vector takes three words in each idle connection"
    )]
    input: Option<Box<Vec<u8>>>,
    /// Monotonic time of the next call of [`Connection::timeout`].
    deadline_ms: u64,
    /// The peer's address, or that of the client behind a proxy once a session is open.
    pub peer: IpAddr,
    blocked: Option<Block>,
    /// The peer has sent FIN.
    ended: bool,
    /// The connection ends once its current work is done: a push connection in a drain, or a connection accepted during
    /// one.
    told_to_go: bool,
    /// The connection is counted for its address.
    is_counted: bool,
    listener: u16,
}

const _: () = assert!(size_of::<Connection>() <= 136);

/// The protocol that a connection currently speaks.
enum Stage {
    Http(Box<Http<Registry>>),
    /// Outbound, before the 101.
    Dialing(Box<Dialing>),
    Socket(Socket<AnySession>),
    Lines(Box<Lines>),
    /// Input is ignored; the transport is being shut down.
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
    /// Creates an accepted connection and opens its outbox.
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

    /// Creates an outbound connection, opens its outbox and writes the request.
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

    /// Describes the session to back ends.
    pub(crate) fn about(&self) -> About<'_> {
        match &self.stage {
            Stage::Socket(socket) => socket.about(),
            // Its session is still being opened.
            _ => About::default(),
        }
    }

    /// Handles a trusted client certificate, received before the first byte of data.
    pub fn certified(&mut self, certified: Certified) {
        if let Stage::Http(http) = &mut self.stage {
            http.set_certified(certified);
        }
    }

    /// Handles the client address from a PROXY header, received before the client's first byte.
    pub fn introduced(&mut self, client: IpAddr) {
        self.peer = client;
        if let Stage::Http(http) = &mut self.stage {
            http.set_peer(client);
        }
    }

    /// Counts the connection for an address, and no longer for its previous one; returns whether the new address is
    /// within its limit.
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

    /// Returns the application request that dialed, while the response is pending.
    pub fn caller(&self) -> Option<Caller> {
        match &self.stage {
            Stage::Dialing(dialing) => Some(dialing.caller()),
            _ => None,
        }
    }

    /// Handles a failure of the transport or of a layer between transport and connection.
    pub fn failed(&mut self, id: ConnectionId, why: &str, shared: &mut Shared) {
        match &mut self.stage {
            Stage::Dialing(dialing) => dialing.failed(why, shared),
            Stage::Socket(socket) => socket.over(id, CloseCode::Abnormal.code(), why, shared),
            Stage::Http(_) | Stage::Lines(_) | Stage::Ending => {}
        }
        self.abort(id, shared);
    }

    /// Handles received bytes, which may be overwritten.
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
        // A session's deadline is checked when it expires, not with every message.
        let goes_on = match &mut self.stage {
            Stage::Socket(socket) => !socket.is_closing() && !socket.take_hurry(),
            _ => false,
        };
        if !was_session || !goes_on {
            self.settle_deadline(id, shared);
        }
    }

    /// Handles the peer's FIN.
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

    /// Handles the answer of a home worker to one of this connection's tickets.
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

    /// Handles the handshake decision or response of an application.
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

    /// Handles the result of authentication.
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

    /// Continues after a block; called by the worker when the awaited event may have occurred. Returns whether it had,
    /// even if the connection waits again.
    pub fn resume(&mut self, id: ConnectionId, shared: &mut Shared) -> bool {
        let Some(block) = self.blocked else {
            return false;
        };
        if matches!(block, Block::App | Block::Verdict) {
            // Applications and hooks report completion themselves.
            return false;
        }
        if block == Block::Output && shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
            shared.waiting_for_output.push(id);
            return false;
        }
        let more = match &mut self.stage {
            // These stages stop between two requests or lines, so they have no state to continue.
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

    /// Applies the step of a stage whose wait is over.
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

    /// Replaces the stage. After HTTP a connection belongs to one client for good, even behind a proxy.
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
            // It was not a session yet when the drain reached it.
            self.drain(id, shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && socket.has_input()
            && !socket.is_closing()
        {
            // The opening request contained input.
            if let Then::Wait(block) = socket.resume(id, shared).map(stays) {
                self.block(id, block, shared);
            }
            self.settle_deadline(id, shared);
        }
    }

    fn count_in(&mut self, id: ConnectionId, client: Option<IpAddr>, shared: &mut Shared) {
        let Some(client) = client else { return };
        if shared.site.listeners[self.listener as usize].role != Role::Public {
            // It may have been counted before its peer was identified as a proxy.
            self.count_out(shared);
            self.peer = client;
        } else if !self.count_as(client, shared) {
            shared.stats.turn_away(TurnedAway::Connections);
            let (code, reason) = CloseCode::TooMany.parts();
            self.disconnect(id, code, reason, shared);
        }
    }

    /// Returns why input waits, if it does; the transport should be paused meanwhile.
    pub fn is_blocked(&self) -> Option<Block> {
        self.blocked
    }

    /// Returns the monotonic time at which [`Connection::timeout`] has to be called.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Handles an expired deadline; [`Connection::deadline_ms`] then returns the next one.
    ///
    /// `stalled_since_ms`: the time since which the transport has made no sending progress, if bytes are unsent.
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
        // Sessions do not update the deadline with each message, so it may be outdated.
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
            // The 408 response should be delivered.
            self.end(id, shared);
        } else {
            self.abort(id, shared);
        }
    }

    /// Handles a closed transport; releases everything the connection holds.
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

    /// Returns whether the peer has sent FIN: the transport can be closed once everything is sent.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether input is ignored and only the transport is left.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ending)
    }

    /// Returns the listener that accepted the connection; `None` for outbound connections.
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

    /// Processes input as far as possible; returns the number of bytes consumed.
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
            // A stage that stops by itself has used its share of the turn.
            Block::Turn => shared.waiting_for_turn.push(shared.now.mono_ms, id),
            Block::Answer | Block::App | Block::Verdict => {}
            Block::Pace => {
                shared.stats.paced.add(1);
                self.settle_deadline(id, shared);
            }
        }
    }

    /// Queues the connection for the next turn: its share is used up, or the turn ended before it was served.
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

/// Converts the result of a stage that has no next stage.
fn stays(never: Never) -> Stage {
    match never {}
}
