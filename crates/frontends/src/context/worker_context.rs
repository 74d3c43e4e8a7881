//! The context that all connections of a worker share: the hub, the outboxes, the configuration, the codecs, and the
//! time of the current turn.
//!
//! Every call of a connection receives it as `&mut`. During the call a connection writes to outboxes and calls the
//! hub. Its effects on *other* connections are queued in [`Requests`] and executed by the worker after the call, so
//! no connection is called during another one's call.

use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::sync::Arc;

pub use veche_hub::Now;
use veche_hub::{
    Caller as ApiCaller, ConnectionId, Delivery, Hub, HubMessage, HubMessageClass, HubReply,
    Outlet, Ticket, UserAction, UserCommand, WorkerId,
};
use veche_nodes::{BanRequest, NodeId};
use veche_proto::websocket::{Codecs, DeflateBudget};

use crate::context::app::{AppAnswer, AppId};
use crate::context::apps::Apps;
use crate::context::files::Files;
use crate::context::frontend_config::FrontendConfig;
use crate::context::hooks::{HookDecision, HookRequest, HookRequestId};
use crate::context::identity::{CompletionSink, IdentityChecks, IdentityResult};
use crate::context::log_note::{AuthDecision, LogNote, NoteLevel};
pub use crate::context::process::ProcessServices;
use crate::context::relay::EmulationRequest;
use crate::context::session_info::ListConnections;
use crate::context::shutdown_reason::ShutdownReason;
use crate::context::stats::Stats;
use crate::context::work_budget::{ReadyQueue, WorkBudget};
use crate::outbox::Outboxes;

/// Maximum number of log messages of one kind per second; further ones are only counted.
const NOTES_PER_SECOND: u32 = 16;
/// Maximum number of kinds of log messages at one place in the code. Further kinds share the rate
/// limits of existing kinds.
const NOTE_KINDS: u16 = 64;

/// Maximum length of a log message, in bytes.
const NOTE_BYTES_MAX: usize = 300;

/// The state that the connections of one worker share.
pub struct Context {
    /// This worker's part of the hub.
    pub hub: Hub,
    /// Effects that connections request, and that the worker executes after the call of a
    /// connection.
    pub requests: Requests,
    /// The configuration that is in force.
    pub config: Arc<FrontendConfig>,
    /// Codecs for received data; outboxes have their own. `None` while a session processes a message, since the
    /// message may be stored in a buffer of the codecs.
    pub(crate) codecs: Option<Box<Codecs>>,
    /// The work that connections may still do in this turn.
    pub work: WorkBudget,
    /// The time at which the current turn began.
    pub now: Now,
    /// The time of the turn, formatted for the `Date` header.
    pub date: Date,
    /// The counters of this worker.
    pub stats: Arc<Stats>,
    /// The source of static files.
    pub files: Box<dyn Files>,
    /// The services that the process provides to its workers.
    pub process: Arc<dyn ProcessServices>,
    /// Whether the server is short of memory, so that no new handshakes or publications are accepted. Set by the worker
    /// each turn.
    pub is_short_of_memory: bool,
    /// The user of each session that counts toward the limit on connections per user, by session
    /// index; empty if there is no such limit.
    counted_users: HashMap<u32, Box<str>>,
    /// The receiver of asynchronous authentication results; for each, the worker calls
    /// [`Connection::handle_identity`](crate::Connection::handle_identity).
    pub completions: Arc<dyn CompletionSink>,
    /// Connections that wait for their own output to be sent.
    pub waiting_for_output: Vec<ConnectionId>,
    /// Connections that wait for the hub to accept publications again.
    pub waiting_for_credit: Vec<ConnectionId>,
    /// Connections that have used their share of a turn and have input left.
    pub waiting_for_turn: ReadyQueue,
    /// The applications of this worker; `None` if there are none, and during a call of [`Context::with_apps`].
    pub apps: Option<Box<dyn Apps>>,
    /// Sessions whose suspended handler has ended; for each, the worker calls
    /// [`Connection::handle_app_ready`](crate::Connection::handle_app_ready).
    pub app_ready: Vec<ConnectionId>,
    /// Log messages of this turn, which the worker writes to the log.
    pub log_notes: Vec<LogNote>,
    /// For each kind of log message, the number of messages in the current second. The list can't grow without limit,
    /// because each place in the code has at most [`NOTE_KINDS`] kinds.
    note_kinds: Vec<NoteKind>,
    notes_second: u64,
    /// Buffers for decoded payloads, names and replies; they are empty between calls.
    pub(crate) scratch: Scratch,
    shutdown_reason: Option<ShutdownReason>,
}

/// The rate limit of one kind of log message from one place in the code.
struct NoteKind {
    source: (&'static Location<'static>, u16),
    /// Number of messages in the current second.
    noted: u32,
    dropped: u64,
    /// The message that reached the rate limit: the last one logged before messages were dropped.
    last: String,
}

#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) payload: Vec<u8>,
    pub(crate) name: String,
    pub(crate) reply: Vec<u8>,
}

impl Context {
    /// Creates the context of a worker without connections.
    pub fn new(
        hub: Hub,
        ports: Requests,
        site: Arc<FrontendConfig>,
        stats: Arc<Stats>,
        files: Box<dyn Files>,
        process: Arc<dyn ProcessServices>,
    ) -> Self {
        let mut shared = Self {
            hub,
            requests: ports,
            config: site,
            codecs: Some(Box::default()),
            work: WorkBudget::default(),
            now: Now::default(),
            date: Date::default(),
            stats,
            files,
            process,
            is_short_of_memory: false,
            counted_users: HashMap::new(),
            completions: Arc::new(NoCompletions),
            waiting_for_output: Vec::new(),
            waiting_for_credit: Vec::new(),
            waiting_for_turn: ReadyQueue::default(),
            apps: None,
            app_ready: Vec::new(),
            log_notes: Vec::new(),
            note_kinds: Vec::new(),
            notes_second: 0,
            scratch: Scratch::default(),
            shutdown_reason: None,
        };
        shared.apply_config();
        shared
    }

    /// Replaces the configuration after a reload.
    pub fn set_config(&mut self, site: Arc<FrontendConfig>) {
        self.config = site;
        self.apply_config();
    }

    fn apply_config(&mut self) {
        let (namespaces, bytes_max) = (&self.config.namespaces, self.config.history_bytes_max);
        self.hub.set_history(Arc::clone(namespaces), bytes_max);
        let answer_max = self.config.history_answer_max;
        self.hub.set_history_answer_max(answer_max);
    }

    /// Begins a turn at this time.
    pub fn set_now(&mut self, now: Now) {
        self.now = now;
        self.date.set(now.wall_ms);
        if now.mono_ms / 1000 != self.notes_second {
            self.notes_second = now.mono_ms / 1000;
            self.note_kinds.iter_mut().for_each(|kind| kind.noted = 0);
        }
        self.hub.set_now(now);
        self.requests.outboxes.set_now_ms(now.mono_ms);
        self.requests.outboxes.access_log.set_now(now);
    }

    /// Sets the memory budget for compression contexts that are kept between messages; workers may share it. Has to
    /// be called before the first connection is accepted.
    pub fn set_context_budget(&mut self, budget: &Arc<DeflateBudget>) {
        self.codecs = Some(Box::new(Codecs::with_budget(Arc::clone(budget))));
        self.requests.outboxes.set_context_budget(budget);
    }

    /// Returns the cost of compression and decompression since the last call; see [`Codecs::take_work`].
    #[inline]
    pub(crate) fn take_codec_work(&mut self) -> u64 {
        let codecs = self.codecs.as_mut();
        codecs.map_or(0, |codecs| codecs.take_work()) + self.requests.outboxes.take_codec_work()
    }

    /// Begins the share of the turn's work for the next connection. Compression work done before is not charged to
    /// it.
    #[inline]
    pub fn begin_share(&mut self) {
        self.take_codec_work();
        self.work.begin_share();
    }

    /// Frees memory that was not needed since the last call. Has to be called about once a second until it returns
    /// false.
    pub fn trim(&mut self) -> bool {
        if let Some(codecs) = &mut self.codecs {
            codecs.trim();
        }
        self.hub.maintain();
        // History expires even without traffic, so the hub may need another call.
        self.requests.outboxes.trim() || self.hub.needs_maintenance()
    }

    /// Calls `call` with the applications and the context. During the call, the applications are moved out of the
    /// context. Returns `None` if there are no applications.
    pub fn with_apps<R>(&mut self, call: impl FnOnce(&mut dyn Apps, &mut Self) -> R) -> Option<R> {
        let mut apps = self.apps.take()?;
        let result = call(&mut *apps, self);
        self.apps = Some(apps);
        Some(result)
    }

    /// Reports a decision about a client if the decision log is being watched.
    pub(crate) fn log_decision(&self, decision: &AuthDecision<'_>) {
        if self.process.watches_decisions() {
            self.process.log_decision(decision);
        }
    }

    /// Returns the parts of the context that authentication needs.
    pub(crate) fn identity_checks(&self) -> IdentityChecks<'_> {
        IdentityChecks {
            process: &*self.process,
            completions: &self.completions,
            now: self.now,
        }
    }

    /// Returns whether a user is banned at present.
    pub(crate) fn is_banned(&self, user: &str) -> bool {
        self.process.is_banned(user, self.now.wall_ms / 1000)
    }

    /// Returns whether a back end has disconnected a user since the disconnect count had the value `asked`. Returns
    /// false if `asked` is `None`.
    pub(crate) fn is_disconnected_since(
        &self,
        user: &str,
        asked: Option<u64>,
        client: &str,
    ) -> bool {
        asked.is_some_and(|asked| self.process.is_disconnected_since(user, asked, client))
    }

    /// Returns whether a back end has unsubscribed a user from a channel since the disconnect count had the value
    /// `asked`. Returns false if `asked` is `None`.
    pub(crate) fn is_unsubscribed_since(
        &self,
        user: &str,
        channel: &str,
        asked: Option<u64>,
        client: &str,
    ) -> bool {
        let process = &self.process;
        asked.is_some_and(|asked| process.is_unsubscribed_since(user, channel, asked, client))
    }

    /// Counts a session that is about to open for a user; returns whether the user is within the limit of
    /// connections.
    pub(crate) fn add_user_session(&mut self, id: ConnectionId, user: &str) -> bool {
        let max = self.config.limits.connections_per_user;
        if max == 0 {
            return true;
        }
        self.remove_user_session(id);
        let has_room = self.process.user_opened(user, max);
        if has_room {
            self.counted_users.insert(id.index, user.into());
        }
        has_room
    }

    /// Removes a session that has ended or failed to open from the count of its user.
    pub(crate) fn remove_user_session(&mut self, id: ConnectionId) {
        if self.counted_users.is_empty() {
            return;
        }
        if let Some(user) = self.counted_users.remove(&id.index) {
            self.process.user_closed(&user);
        }
    }

    /// Counts a session closed for exceeding its route's rate.
    pub(crate) fn count_rate_limited(&mut self, session: ConnectionId) {
        self.stats.rate_limited.add(1);
        self.log(session, NoteLevel::Info, "closed: rate limit exceeded");
    }

    /// Queues a log message that has no kind. The messages without a kind from one place in the code share a rate
    /// limit, so a flood of messages from one place does not suppress those from other places.
    #[track_caller]
    pub(crate) fn log(&mut self, session: ConnectionId, level: NoteLevel, what: impl Into<String>) {
        self.log_as("", session, level, what);
    }

    /// Queues a log message with a kind. Each of up to [`NOTE_KINDS`] kinds at one place in the code has a rate limit
    /// of its own.
    #[track_caller]
    pub(crate) fn log_as(
        &mut self,
        kind: &str,
        session: ConnectionId,
        level: NoteLevel,
        what: impl Into<String>,
    ) {
        let place = (Location::caller(), number_of(kind));
        let index = self.note_kinds.iter().position(|kind| kind.source == place);
        let index = index.unwrap_or_else(|| {
            self.note_kinds.push(NoteKind {
                source: place,
                noted: 0,
                dropped: 0,
                last: String::new(),
            });
            self.note_kinds.len() - 1
        });
        let kind = &mut self.note_kinds[index];
        if kind.noted >= NOTES_PER_SECOND {
            kind.dropped += 1;
            return;
        }
        kind.noted += 1;
        let mut what = what.into();
        if what.len() > NOTE_BYTES_MAX {
            what.truncate(what.floor_char_boundary(NOTE_BYTES_MAX));
            what.push('…');
        }
        if kind.noted == NOTES_PER_SECOND {
            kind.last.clone_from(&what);
        }
        self.log_notes.push(LogNote {
            session,
            level,
            text: what,
        });
    }

    /// Finds a kind of log message that has dropped messages and whose rate limit permits messages again. Returns the
    /// number of dropped messages and the last message logged before them; `None` if there is no such kind.
    pub fn take_dropped_log_notes(&mut self) -> Option<(u64, String)> {
        let mut kinds = self.note_kinds.iter_mut();
        let kind = kinds.find(|kind| kind.dropped > 0 && kind.noted < NOTES_PER_SECOND)?;
        let dropped = std::mem::take(&mut kind.dropped);
        Some((dropped, std::mem::take(&mut kind.last)))
    }

    /// Counts a response and records its status in the access log. Called when the response's head is written.
    pub(crate) fn response_started(&mut self, id: ConnectionId, status: u16) {
        self.stats.response(status);
        self.requests
            .outboxes
            .access_log
            .response_started(id, status);
    }

    /// Marks the server as shutting down: no connection is kept alive after its current response.
    pub fn start_draining(&mut self, shutdown_reason: ShutdownReason) {
        self.shutdown_reason = Some(shutdown_reason);
    }

    /// Returns the reason sent to clients when the server shuts down.
    pub(crate) fn shutdown_reason(&self) -> ShutdownReason {
        self.shutdown_reason.unwrap_or(ShutdownReason::Stopping)
    }

    /// Returns whether the server is shutting down.
    pub fn is_draining(&self) -> bool {
        self.shutdown_reason.is_some()
    }
}

/// Returns a hash of the name of a kind of log message. The hash is below [`NOTE_KINDS`].
fn number_of(kind: &str) -> u16 {
    let sum = |sum: u16, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte));
    kind.bytes().fold(0, sum) % NOTE_KINDS
}

/// A sink that discards results, for workers without asynchronous authentication.
#[derive(Debug)]
struct NoCompletions;

impl CompletionSink for NoCompletions {
    fn complete(&self, _: ConnectionId, _: IdentityResult) {}
}

/// The value of the `Date` header, formatted at most once a second.
#[derive(Clone, Debug)]
pub struct Date {
    second: u64,
    text: [u8; 29],
}

impl Default for Date {
    fn default() -> Self {
        Self {
            second: 0,
            text: *b"Thu, 01 Jan 1970 00:00:00 GMT",
        }
    }
}

impl Date {
    fn set(&mut self, wall_ms: u64) {
        let second = wall_ms / 1000;
        if second != self.second {
            self.second = second;
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            let text = httpdate::fmt_http_date(time);
            if let Ok(text) = text.as_bytes().try_into() {
                self.text = text;
            }
        }
    }

    /// Returns the value of the `Date` header (RFC 9110 section 5.6.7), which is always 29 bytes
    /// long.
    pub fn text(&self) -> &[u8; 29] {
        &self.text
    }
}

/// Effects that connections request while they are called. The worker executes the effects after
/// the call.
pub struct Requests {
    /// The outboxes of the connections. Publications are written to them immediately.
    pub outboxes: Outboxes,
    /// Messages to other workers, sent at the end of the turn.
    pub mailer: HubMailer,
    /// Answers to requests that sessions made with a ticket.
    pub answers: VecDeque<(ConnectionId, Ticket, HubReply)>,
    /// Requests for lists of connections, which go to all workers including this one.
    pub list_requests: Vec<ListConnections>,
    /// Sessions to disconnect, with close code and reason.
    pub disconnects: Vec<(ConnectionId, u16, String)>,
    /// Commands of back ends for sessions; for each, the worker calls
    /// [`Connection::handle_user_command`](crate::Connection::handle_user_command).
    pub user_commands: Vec<(ConnectionId, Arc<UserCommand>)>,
    /// Sessions that have irrecoverably lost publications of a channel; for each, the worker calls
    /// [`Connection::handle_lost_history`](crate::Connection::handle_lost_history).
    pub lost_histories: Vec<(ConnectionId, Arc<str>)>,
    /// User commands whose callers wait for their completion. The worker reports a command to the
    /// hub as complete once its own sessions have executed it.
    pub finished_user_commands: Vec<(ApiCaller, Arc<UserCommand>)>,
    /// Commands that clients sent in separate requests, for streaming responses on any worker of
    /// this node. The worker of the response calls
    /// [`Connection::handle_relay`](crate::Connection::handle_relay).
    pub relays: VecDeque<EmulationRequest>,
    /// Commands that clients sent in separate requests to sessions whose streaming responses are on other nodes.
    pub far_relays: VecDeque<(NodeId, EmulationRequest)>,
    /// Bans that other nodes have to apply, each with the API call that waits until they have done so, if any.
    pub blocks: VecDeque<BanRequest>,
    /// The lane to the cluster's other nodes; `None` if the node is alone. Commands and queries about users, channels
    /// and connections are sent there, and the reply covers all nodes.
    pub nodes: Option<WorkerId>,
    /// Tokens that applications provide for sessions; for each, the worker calls
    /// [`Connection::renew_token`](crate::Connection::renew_token) and reports the result to the application.
    pub renewals: Vec<TokenRenewal>,
    /// Deferred answers of applications; for each, the worker calls
    /// [`Connection::handle_app_answer`](crate::Connection::handle_app_answer).
    pub app_answers: VecDeque<(ConnectionId, AppAnswer)>,
    /// Hook requests of sessions, which the worker sends.
    pub hook_requests: VecDeque<HookRequest>,
    /// Hook decisions made on this thread; for each, the worker calls
    /// [`Connection::handle_hook_decision`](crate::Connection::handle_hook_decision).
    pub hook_decisions: VecDeque<(ConnectionId, HookRequestId, HookDecision)>,
}

/// A new token from an application for a session that was opened with a token.
pub struct TokenRenewal {
    /// The id of the session.
    pub session: ConnectionId,
    /// The token; never logged.
    pub credential: String,
    /// The application that provided the token.
    pub app: AppId,
    /// The application's number for this renewal.
    pub ticket: u64,
}

impl Requests {
    /// Creates an empty set of requests.
    pub fn new(outboxes: Outboxes, post: HubMailer) -> Self {
        Self {
            outboxes,
            mailer: post,
            answers: VecDeque::new(),
            list_requests: Vec::new(),
            disconnects: Vec::new(),
            user_commands: Vec::new(),
            lost_histories: Vec::new(),
            finished_user_commands: Vec::new(),
            relays: VecDeque::new(),
            far_relays: VecDeque::new(),
            blocks: VecDeque::new(),
            nodes: None,
            renewals: Vec::new(),
            app_answers: VecDeque::new(),
            hook_requests: VecDeque::new(),
            hook_decisions: VecDeque::new(),
        }
    }

    /// Returns whether a disconnect of this session is queued.
    pub(crate) fn is_disconnecting(&self, id: ConnectionId) -> bool {
        !self.disconnects.is_empty() && self.disconnects.iter().any(|(kicked, ..)| *kicked == id)
    }

    /// Removes the first queued disconnect of this session; returns its code and reason, `None` if there is none.
    pub(crate) fn take_disconnect(&mut self, id: ConnectionId) -> Option<(u16, String)> {
        let at = self
            .disconnects
            .iter()
            .position(|(kicked, ..)| *kicked == id)?;
        let (_, code, reason) = self.disconnects.remove(at);
        Some((code, reason))
    }
}

impl Outlet for Requests {
    fn send_message(&mut self, to: WorkerId, mail: HubMessage) {
        self.mailer.send(to, mail);
    }

    fn has_credit(&self, to: WorkerId, class: HubMessageClass) -> bool {
        self.mailer.has_credit(to, class)
    }

    fn return_credit(&mut self, from: WorkerId, class: HubMessageClass) {
        debug_assert_ne!(class, HubMessageClass::Control);
        self.mailer.lanes[from.0 as usize].finished += 1;
    }

    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        self.outboxes.deliver(session, delivery);
    }

    fn send_reply(&mut self, session: ConnectionId, ticket: Ticket, answer: HubReply) {
        self.answers.push_back((session, ticket, answer));
    }

    fn execute_command(&mut self, session: ConnectionId, instruction: &Arc<UserCommand>) {
        match &instruction.action {
            UserAction::Disconnect { code, reason } if instruction.applies_to_all() => {
                self.disconnects
                    .push((session, *code, reason.as_ref().to_owned()));
            }
            _ => self.user_commands.push((session, Arc::clone(instruction))),
        }
    }

    fn publications_lost(&mut self, session: ConnectionId, channel: &Arc<str>) {
        self.lost_histories.push((session, Arc::clone(channel)));
    }

    fn command_dispatched(&mut self, caller: ApiCaller, instruction: &Arc<UserCommand>) {
        self.finished_user_commands
            .push((caller, Arc::clone(instruction)));
    }
}

/// Messages of this turn to other workers, and the credit that is left for each worker.
pub struct HubMailer {
    /// The lanes to the other workers, by worker index.
    pub lanes: Vec<WorkerLane>,
    credits: u32,
}

/// The lane to one other worker.
#[derive(Debug, Default)]
pub struct WorkerLane {
    /// Messages to be sent at the end of the turn, in this order.
    pub outgoing: VecDeque<HubMessage>,
    /// Number of data messages that were sent and that the receiver has not processed yet.
    pub unfinished: u32,
    /// Number of data messages in `outgoing`.
    pub outgoing_data: u32,
    /// Number of data messages from the other worker that this worker has processed: credit to be
    /// returned to the other worker.
    pub finished: u32,
}

impl HubMailer {
    /// Creates lanes to this number of workers, each with `credits`. Half of the credits are
    /// reserved for deliveries, so that publications can't use them up. Deliveries wait only for
    /// the receiver's own work, so workers that publish to each other can't deadlock.
    pub fn new(workers: u16, credits: u32) -> Self {
        let lanes = std::iter::repeat_with(WorkerLane::default)
            .take(workers as usize)
            .collect();
        Self { lanes, credits }
    }

    fn send(&mut self, to: WorkerId, mail: HubMessage) {
        let lane = &mut self.lanes[to.0 as usize];
        if mail.class() != HubMessageClass::Control {
            // A delivery may consist of two messages but checks for credit only once.
            debug_assert!(
                lane.unfinished + lane.outgoing_data <= self.credits,
                "a data message was sent without a credit"
            );
            lane.outgoing_data += 1;
        }
        lane.outgoing.push_back(mail);
    }

    fn has_credit(&self, to: WorkerId, class: HubMessageClass) -> bool {
        let lane = &self.lanes[to.0 as usize];
        let unfinished = lane.unfinished + lane.outgoing_data;
        match class {
            HubMessageClass::Control => true,
            HubMessageClass::Publish => unfinished < self.credits / 2,
            HubMessageClass::Deliver => unfinished < self.credits,
        }
    }
}

#[cfg(test)]
mod tests;
