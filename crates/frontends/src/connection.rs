//! The life of one connection as a state machine: head → route → upgrade → frames → session. Start reading here.
//!
//! [`Connection::handle_received`] takes the bytes; output goes into the connection's outbox; afterwards the worker
//! queries what the transport has to do ([`Connection::wait_reason`], [`Connection::deadline_ms`],
//! [`Outbox::end`](crate::Outbox::end)). There is no socket and no clock, so tests, fuzzer and simulator run all of
//! this code.
//!
//! A stage that can't continue (the client does not read, a home worker has not replied, the hub accepts no further
//! publication) returns the reason; the connection stores the input, the transport is paused, and
//! [`Connection::resume`] continues.

mod deadline;
mod ending;
mod listing;
mod session;

use std::net::IpAddr;

use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_types::codes::CloseCode;

use crate::backend::lines::LineStage;
use crate::context::app::{AbandonReason, AppAnswer};
use crate::context::frontend_config::ListenerRole;
use crate::context::identity::{CertificateNames, IdentityResult};
use crate::context::log_note::NoteLevel;
use crate::context::session_info::SessionInfo;
use crate::context::stats::AcceptRejection;
use crate::context::step::{NextStep, NoNextStage, StageStep, WaitReason};
use crate::context::work_budget;
use crate::context::worker_context::{Context, Now};
use crate::http::reply::refuse_request;
use crate::http::{HttpStage, OpenedSession};
use crate::outbox::ANSWERS_BYTES_HIGH;
use crate::registry::{AnySession, Registry};
use crate::sessions::app::dialing::{DialedSession, DialingStage};
use crate::websocket::WebSocketStage;
use crate::websocket::client::{DialCommand, DialId};
pub use listing::list_connections;

/// The listener number of outbound connections, which no listener accepted.
const NO_LISTENER: u16 = u16::MAX;

/// The error for an outbound connection that the server closed before it responded to the handshake.
const ABNORMAL_CLOSURE: &str = "the server closed the connection before it answered";

/// A connection, from accept to close.
pub struct Connection {
    stage: Stage,
    /// Received input that is not processed yet: an incomplete head or line, or any input while the connection is
    /// blocked. `None` if there is none. The box keeps idle connections small.
    #[allow(
        clippy::box_collection,
        reason = "a vector would take three words in each idle connection"
    )]
    input: Option<Box<Vec<u8>>>,
    /// Monotonic time in milliseconds at which [`Connection::handle_timeout`] has to be called.
    deadline_ms: u64,
    /// The address of the peer. Behind a proxy, it becomes the client's address once a session is
    /// open.
    pub peer: IpAddr,
    blocked: Option<WaitReason>,
    /// Whether the id is in a list of connections that wait for output, or of those to be resumed because of it.
    is_listed_for_output: bool,
    /// Whether the peer has sent FIN.
    ended: bool,
    /// Whether the connection ends once its current work is done: a push connection during a drain, or a connection
    /// that was accepted during a drain.
    is_draining: bool,
    /// Whether the connection is included in the connection count of its address.
    is_counted: bool,
    listener: u16,
}

const _: () = assert!(size_of::<Connection>() <= 136);

/// The protocol that a connection currently speaks.
enum Stage {
    Http(Box<HttpStage<Registry>>),
    /// An outbound connection whose server has not answered 101 yet.
    Dialing(Box<DialingStage>),
    Socket(WebSocketStage<AnySession>),
    Lines(Box<LineStage>),
    /// Input is ignored; the transport is being shut down.
    Ending,
}

impl Stage {
    fn opened(opened: OpenedSession<AnySession>) -> Self {
        Self::Socket(WebSocketStage::opened(opened))
    }

    fn dialed(dialed: DialedSession, now: Now) -> Self {
        let session = dialed.session.into();
        Self::Socket(WebSocketStage::dialed(
            dialed.decoder,
            session,
            dialed.terms,
            now,
        ))
    }
}

impl Connection {
    /// Creates an accepted connection and opens its outbox.
    pub fn accept(id: ConnectionId, listener: u16, peer: IpAddr, shared: &mut Context) -> Self {
        shared.requests.outboxes.open(id);
        let stage = match shared.config.listeners[listener as usize].role {
            ListenerRole::Push => Stage::Lines(Box::default()),
            ListenerRole::Public | ListenerRole::Internal => {
                let http = HttpStage::new(listener, peer, shared.now.mono_ms);
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
            is_listed_for_output: false,
            ended: false,
            is_draining: is_late,
            is_counted: false,
            listener,
        };
        connection.settle_deadline(id, shared);
        connection
    }

    /// Creates an outbound connection, opens its outbox and writes the request.
    pub fn dial(id: ConnectionId, peer: IpAddr, dial: DialCommand, shared: &mut Context) -> Self {
        shared.requests.outboxes.open(id);
        let dialing = DialingStage::new(id, dial, shared);
        let mut connection = Self {
            stage: Stage::Dialing(Box::new(dialing)),
            input: None,
            deadline_ms: 0,
            peer,
            blocked: None,
            is_listed_for_output: false,
            ended: false,
            is_draining: false,
            is_counted: false,
            listener: NO_LISTENER,
        };
        connection.settle_deadline(id, shared);
        connection
    }

    /// Returns the session's description for back ends.
    pub(crate) fn info(&self) -> SessionInfo<'_> {
        match &self.stage {
            Stage::Socket(socket) => socket.info(),
            // The session is still being opened.
            _ => SessionInfo::default(),
        }
    }

    /// Handles a trusted client certificate, received before the first byte of data.
    pub fn handle_certificate(&mut self, certificate_names: CertificateNames) {
        if let Stage::Http(http) = &mut self.stage {
            http.set_certificate_names(certificate_names);
        }
    }

    /// Handles the client address from a PROXY header, received before the client's first byte.
    pub fn handle_proxy_header(&mut self, client: IpAddr) {
        self.peer = client;
        if let Stage::Http(http) = &mut self.stage {
            http.set_peer(client);
        }
    }

    /// Counts the connection for this address instead of its previous one. Returns whether the new
    /// address is within its connection limit.
    pub fn count_address(&mut self, address: IpAddr, shared: &Context) -> bool {
        self.uncount_address(shared);
        self.peer = address;
        self.is_counted = true;
        shared.process.address_opened(address)
    }

    fn uncount_address(&mut self, shared: &Context) {
        if std::mem::take(&mut self.is_counted) {
            shared.process.address_closed(self.peer);
        }
    }

    /// Returns the id of the application's request for this outbound connection; `None` unless the server's response is
    /// pending.
    pub fn caller(&self) -> Option<DialId> {
        match &self.stage {
            Stage::Dialing(dialing) => Some(dialing.caller()),
            _ => None,
        }
    }

    /// Handles a failure of the transport or of a layer between transport and connection.
    pub fn handle_failed(&mut self, id: ConnectionId, why: &str, shared: &mut Context) {
        match &mut self.stage {
            Stage::Dialing(dialing) => dialing.failed(why, shared),
            Stage::Socket(socket) => {
                socket.handle_closed(id, CloseCode::Abnormal.code(), why, shared)
            }
            Stage::Http(_) | Stage::Lines(_) | Stage::Ending => {}
        }
        self.abort(id, shared);
    }

    /// Handles received bytes. The call may overwrite them, since frames are unmasked in place.
    pub fn handle_received(&mut self, id: ConnectionId, bytes: &mut [u8], shared: &mut Context) {
        let was_session = matches!(self.stage, Stage::Socket(_));
        if self.input.is_none() && self.blocked.is_none() {
            let taken = self.process(id, bytes, shared);
            if taken < bytes.len() {
                self.input = Some(Box::new(bytes[taken..].to_vec()));
            }
        } else {
            self.input.get_or_insert_default().extend_from_slice(bytes);
            if self.blocked.is_none() {
                self.process_buffered(id, shared);
            }
        }
        if let Stage::Socket(socket) = &mut self.stage {
            socket.note_received(shared.now);
        }
        // A session's deadline is checked when it expires, not with every message.
        let goes_on = match &mut self.stage {
            Stage::Socket(socket) => !socket.is_closing() && !socket.take_deadline_change(),
            _ => false,
        };
        if !was_session || !goes_on {
            self.settle_deadline(id, shared);
        }
    }

    /// Handles the peer's FIN.
    pub fn handle_ended(&mut self, id: ConnectionId, shared: &mut Context) {
        self.ended = true;
        if let Stage::Socket(socket) = &mut self.stage {
            socket.end_throttling();
            if self.resume(id, WaitReason::RateLimit, shared) {
                return;
            }
        }
        if self.blocked.is_none() {
            self.finish_after_end(id, shared);
        }
    }

    /// Handles the answer of a home worker to one of this connection's tickets.
    pub fn handle_answer(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: HubReply,
        shared: &mut Context,
    ) {
        let goes_on = match &mut self.stage {
            Stage::Http(http) => match http.answered(id, ticket, answer, shared) {
                NextStep::Become(opened) => {
                    self.become_stage(id, Stage::opened(opened), shared);
                    true
                }
                NextStep::Continue => true,
                _ => false,
            },
            Stage::Socket(socket) => socket.handle_answer(id, ticket, answer, shared),
            Stage::Lines(lines) => lines.answered(id, ticket, answer, shared),
            Stage::Dialing(_) | Stage::Ending => false,
        };
        if goes_on && self.blocked == Some(WaitReason::Answer) {
            self.resume(id, WaitReason::Answer, shared);
        } else {
            self.finish_if_due(id, shared);
            self.unblock_if_closed(id, shared);
        }
    }

    /// Handles the handshake decision or response of an application.
    pub fn handle_app_answer(&mut self, id: ConnectionId, answer: AppAnswer, shared: &mut Context) {
        let Stage::Http(http) = &mut self.stage else {
            return;
        };
        let Some(then) = http.handle_app_answer(id, answer, shared) else {
            return;
        };
        self.apply_step(id, then.map(Stage::opened), shared);
    }

    /// Handles the result of authentication.
    pub fn handle_identity(
        &mut self,
        id: ConnectionId,
        identity_result: IdentityResult,
        shared: &mut Context,
    ) {
        if let Stage::Socket(socket) = &mut self.stage {
            if socket.handle_identity(&identity_result) {
                self.resume(id, WaitReason::Answer, shared);
            }
            return;
        }
        let Stage::Http(http) = &mut self.stage else {
            return;
        };
        let then = match http.handle_identity(id, identity_result, shared) {
            None => return,
            Some(Ok(then)) => then,
            Some(Err(error)) => {
                refuse_request(id, &error, shared);
                NextStep::End
            }
        };
        self.apply_step(id, then.map(Stage::opened), shared);
    }

    /// Continues a connection that waits for `reason`. The worker calls it when the awaited event may have occurred. A
    /// connection that waits for something else is left alone, so that it is not continued before its turn. Returns
    /// whether the event had occurred, even if the connection then waits for another one.
    pub fn resume(&mut self, id: ConnectionId, reason: WaitReason, shared: &mut Context) -> bool {
        if reason == WaitReason::Output {
            self.is_listed_for_output = false;
        }
        if self.blocked != Some(reason) {
            return false;
        }
        if reason == WaitReason::Output
            && shared.requests.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH
        {
            self.list_for_output(id, shared);
            return false;
        }
        let more = match &mut self.stage {
            // The stages `Http` and `Lines` wait for a turn only between two requests or lines, so
            // they have nothing to finish and continue with the buffered input.
            Stage::Http(_) | Stage::Lines(_) if reason == WaitReason::Turn => NextStep::Continue,
            Stage::Http(http) => http.resume(id, shared).map(Stage::opened),
            Stage::Socket(socket) => socket.resume(id, shared).map(no_next_stage),
            Stage::Lines(lines) => lines.resume(id, shared).map(no_next_stage),
            Stage::Dialing(_) => NextStep::Continue,
            Stage::Ending => NextStep::End,
        };
        let has_come = !matches!(more, NextStep::Wait(_));
        self.apply_step(id, more, shared);
        has_come
    }

    /// Applies the step that a stage returned after its wait.
    fn apply_step(&mut self, id: ConnectionId, then: NextStep<Stage>, shared: &mut Context) {
        if self.blocked.take().is_some()
            && let Stage::Socket(socket) = &mut self.stage
        {
            // The session was served in this turn, also for the order in which its buffered input may wait again.
            socket.note_received_after_wait(shared.now);
        }
        match then {
            NextStep::Wait(block) => self.block(id, block, shared),
            NextStep::End => self.end(id, shared),
            NextStep::Become(stage) => {
                self.become_stage(id, stage, shared);
                // The session may wait already, because of a command in the request that opened it.
                if self.blocked.is_none() {
                    self.process_buffered(id, shared);
                }
            }
            NextStep::Continue | NextStep::NeedInput => self.process_buffered(id, shared),
        }
        self.finish_if_due(id, shared);
        self.settle_deadline(id, shared);
    }

    /// Replaces the stage. A connection that leaves the HTTP stage serves a single client from then on, so a connection
    /// from a proxy is counted for this client's address.
    fn become_stage(&mut self, id: ConnectionId, stage: Stage, shared: &mut Context) {
        let client = match &self.stage {
            Stage::Http(http) => http.proxied_client(),
            _ => None,
        };
        self.stage = stage;
        self.count_client(id, client, shared);
        if let Stage::Socket(socket) = &mut self.stage {
            socket.set_peer(self.peer);
        }
        if shared.is_draining() && self.listener().is_some() && !self.is_back_end() {
            // The connection was not a session yet when the drain closed the sessions.
            self.drain(id, shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && socket.has_input()
            && !socket.is_closing()
        {
            // Input of the session has arrived together with the request that opened it.
            if let NextStep::Wait(block) = socket.resume(id, shared).map(no_next_stage) {
                self.block(id, block, shared);
            }
            self.settle_deadline(id, shared);
        }
    }

    fn count_client(&mut self, id: ConnectionId, client: Option<IpAddr>, shared: &mut Context) {
        let Some(client) = client else { return };
        if shared.config.listeners[self.listener as usize].role != ListenerRole::Public {
            // The connection may have been counted for its peer's address before that peer was identified as a proxy.
            self.uncount_address(shared);
            self.peer = client;
        } else if !self.count_address(client, shared) {
            shared.stats.reject_accept(AcceptRejection::Connections);
            let (code, reason) = CloseCode::TooMany.parts();
            self.disconnect(id, code, reason, shared);
        }
    }

    /// Handles the number of unsent bytes of a connection that was taken from
    /// [`waiting_for_output`](Context::waiting_for_output). Returns whether the connection has to be resumed because of it.
    #[must_use]
    pub fn handle_unsent(&mut self, unsent: usize) -> bool {
        self.is_listed_for_output = false;
        self.handle_sent(unsent)
    }

    /// Handles a send that left `unsent` bytes. Returns whether the connection has to be resumed because of it.
    #[must_use]
    pub fn handle_sent(&mut self, unsent: usize) -> bool {
        // With more unsent bytes the connection would only be paused again.
        let is_due = unsent <= ANSWERS_BYTES_HIGH
            && self.blocked == Some(WaitReason::Output)
            && !self.is_listed_for_output;
        self.is_listed_for_output |= is_due;
        is_due
    }

    /// Returns why the connection's input waits; `None` if it does not. While it waits, the transport's reads should
    /// be paused.
    pub fn wait_reason(&self) -> Option<WaitReason> {
        self.blocked
    }

    /// Returns the monotonic time in milliseconds at which [`Connection::handle_timeout`] has to be called.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Handles an expired deadline; [`Connection::deadline_ms`] then returns the next one.
    ///
    /// `stalled_since_ms`: the monotonic time since which the transport has sent nothing although bytes are unsent;
    /// `None` if it makes progress or has nothing to send.
    pub fn handle_timeout(
        &mut self,
        id: ConnectionId,
        stalled_since_ms: Option<u64>,
        shared: &mut Context,
    ) {
        let now = shared.now.mono_ms;
        if let Some(since) = stalled_since_ms
            && now >= since + shared.config.limits.write_timeout_ms
        {
            shared.stats.slow_consumers.add(1);
            shared.log(
                id,
                NoteLevel::Warn,
                "closed: the client accepted no data within write_timeout",
            );
            if let Stage::Socket(socket) = &mut self.stage {
                let why = "the client accepted no data for too long";
                socket.handle_closed(id, CloseCode::Abnormal.code(), why, shared);
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
            return self.handle_expired(id, shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && self.blocked == Some(WaitReason::RateLimit)
            && !socket.is_closing()
        {
            if now >= socket.throttled_until_ms() {
                self.resume(id, WaitReason::RateLimit, shared);
                return;
            }
            socket.ping_while_throttled(id, shared);
            return self.unblock_if_closed(id, shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && self.blocked == Some(WaitReason::HookDecision)
            && !socket.is_closing()
        {
            socket.ping_while_hook_pending(id, shared);
            return self.unblock_if_closed(id, shared);
        }
        if let Stage::Socket(socket) = &mut self.stage
            && self.blocked.is_some()
            && !socket.is_closing()
        {
            socket.timeout_blocked(id, shared);
            return self.unblock_if_closed(id, shared);
        }
        let alive = match &mut self.stage {
            Stage::Http(http) => http.timeout(id, shared),
            Stage::Dialing(dialing) => {
                dialing.timed_out(shared);
                false
            }
            Stage::Socket(socket) => socket.handle_timeout(id, shared),
            Stage::Lines(_) => true,
            Stage::Ending => false,
        };
        if alive {
            self.settle_deadline(id, shared);
        } else if matches!(self.stage, Stage::Http(_)) {
            // A timed-out request got the response 408, which must still be delivered.
            self.end(id, shared);
        } else {
            self.abort(id, shared);
        }
    }

    /// Handles a closed transport; releases everything the connection holds.
    pub fn handle_closed(&mut self, id: ConnectionId, shared: &mut Context) {
        match &mut self.stage {
            Stage::Socket(socket) => socket.closed(id, shared),
            Stage::Http(http) => http.gone(id, AbandonReason::Disconnected, shared),
            Stage::Dialing(dialing) => dialing.failed(ABNORMAL_CLOSURE, shared),
            Stage::Lines(_) | Stage::Ending => {}
        }
        shared.hub.close(id, &mut shared.requests);
        shared.requests.outboxes.end_entry(id, self.peer);
        shared.requests.outboxes.close(id);
        shared.remove_user_session(id);
        self.uncount_address(shared);
    }

    /// Returns whether the peer has sent FIN, so that the transport can be closed once everything is sent.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the connection ignores input and only waits for its transport to close.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ending)
    }

    /// Returns the listener that accepted the connection; `None` for outbound connections.
    pub fn listener(&self) -> Option<u16> {
        (self.listener != NO_LISTENER).then_some(self.listener)
    }

    fn process_buffered(&mut self, id: ConnectionId, shared: &mut Context) {
        let mut input = self.input.take().unwrap_or_default();
        let taken = self.process(id, &mut input, shared);
        if taken < input.len() {
            input.drain(..taken);
            self.input = Some(input);
        } else {
            shared.requests.outboxes.recycle(*input);
        }
    }

    /// Processes input as far as possible; returns the number of bytes consumed.
    fn process(&mut self, id: ConnectionId, bytes: &mut [u8], shared: &mut Context) -> usize {
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
            shared.work.charge(work_budget::INPUT);
            let step: StageStep<Stage> = match &mut self.stage {
                Stage::Http(http) => http.step(id, input, shared).map(Stage::opened),
                Stage::Dialing(dialing) => {
                    let now = shared.now;
                    dialing
                        .step(id, input, shared)
                        .map(|dialed| Stage::dialed(dialed, now))
                }
                Stage::Socket(socket) => socket.step(id, input, shared).map(no_next_stage),
                Stage::Lines(lines) => lines.step(id, input, shared).map(no_next_stage),
                Stage::Ending => return bytes.len(),
            };
            taken += step.consumed;
            match step.then {
                NextStep::Continue => {}
                NextStep::NeedInput => return taken,
                NextStep::Wait(block) => {
                    self.block(id, block, shared);
                    return taken;
                }
                NextStep::Become(stage) => {
                    self.become_stage(id, stage, shared);
                    if self.blocked.is_some() {
                        return taken;
                    }
                }
                NextStep::End => {
                    self.end(id, shared);
                    return bytes.len();
                }
            }
        }
    }

    fn block(&mut self, id: ConnectionId, block: WaitReason, shared: &mut Context) {
        self.blocked = Some(block);
        match block {
            WaitReason::Output => self.list_for_output(id, shared),
            WaitReason::Credit => shared.waiting_for_credit.push(id),
            // A stage returns `Turn` only after it was served in this turn, so the time of its last service is now.
            WaitReason::Turn => shared.waiting_for_turn.push(shared.now.mono_ms, id),
            WaitReason::Answer | WaitReason::App | WaitReason::HookDecision => {}
            WaitReason::RateLimit => {
                shared.stats.throttled.add(1);
                self.settle_deadline(id, shared);
            }
        }
    }

    /// Adds the connection to those whose unsent output is compared with the limit at the end of the turn.
    fn list_for_output(&mut self, id: ConnectionId, shared: &mut Context) {
        if !std::mem::replace(&mut self.is_listed_for_output, true) {
            shared.waiting_for_output.push(id);
        }
    }

    /// Queues the connection for the next turn. `is_served`: true if it has used its share of this turn, false if the
    /// turn ended before it was served.
    fn wait_for_turn(&mut self, id: ConnectionId, is_served: bool, shared: &mut Context) {
        let now_ms = shared.now.mono_ms;
        let served_ms = match &self.stage {
            _ if is_served => now_ms,
            Stage::Socket(socket) => now_ms.saturating_sub(socket.silent_ms(shared)),
            Stage::Http(http) => http.served_ms(),
            Stage::Lines(lines) => lines.served_ms(),
            Stage::Dialing(_) | Stage::Ending => now_ms,
        };
        self.blocked = Some(WaitReason::Turn);
        shared.waiting_for_turn.push(served_ms, id);
    }
}

/// Converts a [`NoNextStage`] to a stage. The type has no values, so this function is never called.
fn no_next_stage(never: NoNextStage) -> Stage {
    match never {}
}
