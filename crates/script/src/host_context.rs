//! The interface between a VM and its host.
//!
//! Scripts run while the [`Vm`](crate::Vm) itself is borrowed, so they can't call it. Their requests to the VM are stored here:
//! effects, spawned coroutines, completed waits and wake-up times. All borrows of these are short; none lasts while Lua runs.

mod calls;
mod hooks;
mod log_contexts;
mod publishers;
mod queues;
mod requests;
mod yields;

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use fastrand::Rng;
use veche_calls::channel::AppChannelQuery;
use veche_calls::redis::RedisDatabase;
use veche_calls::{Call, CallOutcome, Handle, Lease, WorkerConnection};
use veche_store::Store;

use crate::Now;
use crate::clock::{ClockMode, VmClock};
use crate::connections::{ConnectionTable, SendRoom};
use crate::modules::fault;
use crate::modules::growing_list::GrowingList;
use crate::modules::held_values::HeldValues;
use crate::raw::{BoundTables, Coroutine, IsShort, Reference, VmMemory};
use crate::streams::StreamTable;
use crate::task::TaskOwner;
use crate::{ConnectionId, MessageKind};
use calls::OpenCalls;
pub(crate) use hooks::{OpenHook, is_binary};
use log_contexts::LogContexts;
pub(crate) use publishers::PublishWaiters;
pub(crate) use queues::QueueWaits;
pub(crate) use requests::{BodyWrite, EndedRequest, OpenRequests};
use veche_runtime::PublishGate;
use veche_runtime::Request;
use veche_runtime::call_errors::{FULL, tagged};
use veche_runtime::{Effect, Effects, Level, LogContext, Token, WaitResult};
use veche_types::WorkerId;
pub(crate) use yields::YieldedCoroutines;

/// The state shared by all VMs of one application on one worker; it outlives a reload.
#[derive(Default)]
pub(crate) struct AppState {
    pub(crate) effects: RefCell<Effects>,
    pub(crate) connections: RefCell<ConnectionTable>,
    pub(crate) now: Cell<Now>,
    /// The store, shared by all workers.
    pub(crate) store: Arc<Store>,
    pub(crate) queues: QueueWaits,
    tokens: Cell<u64>,
    /// The seeded random generator, in a test.
    seeded: Option<RefCell<Rng>>,
    /// The time source of turns and runs.
    pub(crate) pace: ClockMode,
    /// The number of outgoing connections, including those being opened.
    pub(crate) clients: Cell<usize>,
    /// The number of batches of effects taken so far. With each batch, the counts of bytes sent to connections restart.
    pub(crate) batch: Cell<u32>,
    /// The channels that can't be published to at the moment.
    pub(crate) refused: OnceCell<Rc<PublishGate>>,
    /// A function that returns whether the process is short of memory.
    pub(crate) is_short: OnceCell<IsShort>,
}

impl AppState {
    pub(crate) fn with_store(store: Arc<Store>) -> Self {
        Self {
            store,
            ..Self::default()
        }
    }

    pub(crate) fn seeded(store: Arc<Store>, seed: u64) -> Self {
        Self {
            seeded: Some(RefCell::new(Rng::with_seed(seed))),
            pace: ClockMode::Still,
            ..Self::with_store(store)
        }
    }

    pub(crate) fn with_pace(pace: ClockMode) -> Self {
        Self {
            pace,
            ..Self::default()
        }
    }

    /// Returns whether randomness comes from a test's seed.
    pub(crate) fn is_seeded(&self) -> bool {
        self.seeded.is_some()
    }

    /// Returns the next number of the seeded random generator; `None` outside of tests.
    pub(crate) fn seeds_word(&self) -> Option<u64> {
        let rng = self.seeded.as_ref()?;
        Some(rng.borrow_mut().u64(..))
    }
}

/// The error of a call that would exceed the limit of [`OpenCalls`].
const CALLS_FULL: &str = "the calls in progress have sent 64 MiB: wait for their replies";

/// The wake-up times of cancelled coroutines are removed only if more wake-up times than this are
/// stored.
const SLEEPERS_MIN: usize = 1024;

/// The host interface of one VM.
pub(crate) struct HostContext {
    pub(crate) world: Rc<AppState>,
    pub(crate) clock: VmClock,
    /// The worker's number, for connection ids.
    pub(crate) worker: WorkerId,
    /// The VM's memory limit.
    pub(crate) memory_bytes_max: usize,
    /// The VM's memory accounting, once it exists.
    memory: OnceCell<Rc<VmMemory>>,
    is_retired: Cell<bool>,
    /// The owner of the coroutine that was resumed last.
    running: Cell<Option<TaskOwner>>,
    spawned: RefCell<VecDeque<SpawnedCoroutine>>,
    woken: RefCell<VecDeque<(Token, WakeReason)>>,
    /// Sleeping coroutines: the wake-up time in milliseconds, a tie-breaker for equal times, and the token. The
    /// tie-breaker is random in a test. Otherwise it is 0, so the ascending tokens determine the order.
    sleepers: RefCell<BinaryHeap<Reverse<(u64, u64, Token)>>>,
    yields: RefCell<YieldedCoroutines>,
    publishers: PublishWaiters,
    log_contexts: RefCell<LogContexts>,
    requests: RefCell<OpenRequests>,
    /// Undecided hook requests by number.
    open_hooks: RefCell<BTreeMap<u64, OpenHook>>,
    calls: RefCell<OpenCalls>,
    /// The Redis servers used by the script, by number.
    pub(crate) keyspaces: GrowingList<RedisDatabase>,
    /// The tables used by the script, by number.
    pub(crate) tables: RefCell<BoundTables>,
    /// The outcome of the call whose coroutine is being resumed.
    outcome: RefCell<Option<(Token, CallOutcome)>>,
    /// Lua objects of connections that are being opened.
    dials: RefCell<HashMap<Token, Reference>>,
    /// Coroutines that wait for room to send to another server.
    senders: RefCell<HashMap<ConnectionId, Vec<Token>>>,
    /// The coroutine that made the call of `outcome`.
    caller: Cell<Option<Reference>>,
    /// Responses that are read in parts.
    pub(crate) streams: RefCell<StreamTable>,
    /// Resources that are held across several calls.
    pub(crate) leases: HeldValues<Lease>,
}

/// A coroutine that is about to start.
pub(crate) struct SpawnedCoroutine {
    pub(crate) coroutine: Coroutine,
    pub(crate) number: u64,
    /// Whether this coroutine replaces one that has ended. It is then exempt from the limit of coroutines.
    pub(crate) is_successor: bool,
}

/// The result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendAdmission {
    /// The message was accepted.
    Yes,
    /// The connection has closed.
    Closed,
    /// The message was accepted, but the connection's backlog exceeds its limit.
    Over,
    /// The message to another server was rejected because the backlog is full.
    Full,
    /// The run has exceeded its limit of effects.
    TooMuch,
}

/// The result with which a wait ends.
#[derive(Debug)]
pub(crate) enum WakeReason {
    /// The wait ends normally, and its coroutine continues.
    Up,
    /// The wait fails with "cancelled".
    Cancelled,
    /// The answer to an effect.
    Answered(WaitResult),
    /// The outcome of a call.
    Replied(Box<CallOutcome>),
}

impl HostContext {
    pub(crate) fn new(
        world: Rc<AppState>,
        clock: VmClock,
        worker: WorkerId,
        memory_bytes_max: usize,
    ) -> Self {
        Self {
            world,
            clock,
            worker,
            memory_bytes_max,
            memory: OnceCell::new(),
            is_retired: Cell::new(false),
            running: Cell::default(),
            spawned: RefCell::default(),
            woken: RefCell::default(),
            sleepers: RefCell::default(),
            yields: RefCell::default(),
            publishers: PublishWaiters::default(),
            log_contexts: RefCell::default(),
            requests: RefCell::default(),
            open_hooks: RefCell::default(),
            calls: RefCell::default(),
            keyspaces: GrowingList::new("redis: there is no server with that number"),
            tables: RefCell::default(),
            outcome: RefCell::default(),
            dials: RefCell::default(),
            senders: RefCell::default(),
            caller: Cell::default(),
            streams: RefCell::default(),
            leases: HeldValues::default(),
        }
    }

    /// Sets the VM's memory accounting.
    pub(crate) fn set_memory(&self, memory: Rc<VmMemory>) {
        let _ = self.memory.set(memory);
    }

    /// Returns whether the VM has reached its memory limit, so that nothing may be allocated that outlives the run.
    pub(crate) fn is_full(&self) -> bool {
        self.memory.get().is_some_and(|memory| memory.is_full())
    }

    /// Returns whether the current run could allocate a result of a given size.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        let memory = self.memory.get();
        memory.is_none_or(|memory| memory.has_room_for(bytes))
    }

    /// Returns a new unique number for a wait or a coroutine.
    pub(crate) fn token(&self) -> Token {
        let number = self.world.tokens.get() + 1;
        self.world.tokens.set(number);
        Token(number)
    }

    /// Marks the code as replaced, which ends repeating tasks.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    pub(crate) fn send(&self, to: ConnectionId, kind: MessageKind, data: &[u8]) -> SendAdmission {
        let batch = self.world.batch.get();
        let mut connections = self.world.connections.borrow_mut();
        let sent = match connections.take_room(to, data.len(), batch) {
            Some(SendRoom::Yes) => SendAdmission::Yes,
            Some(SendRoom::Over) => SendAdmission::Over,
            Some(SendRoom::No) => return SendAdmission::Full,
            None => return SendAdmission::Closed,
        };
        let mut effects = self.world.effects.borrow_mut();
        let Some(data) = effects.store(data) else {
            return SendAdmission::TooMuch;
        };
        effects.list.push(Effect::Send { to, kind, data });
        sent
    }

    /// Closes a connection; returns `false` if it was already closed.
    pub(crate) fn close(&self, of: ConnectionId, code: u16, reason: &str) -> bool {
        let was_open = self.world.connections.borrow_mut().set_closing(of);
        if was_open {
            let reason = reason.to_owned();
            self.effect(Effect::Close { of, code, reason });
        }
        was_open
    }

    /// Registers the Lua object that receives the connection opened with a token.
    pub(crate) fn expect_client(&self, token: Token, object: Reference) {
        self.dials.borrow_mut().insert(token, object);
    }

    /// Removes and returns the object of a connection that is being opened; `None` if the connection is no longer needed.
    pub(crate) fn take_dial(&self, token: Token) -> Option<Reference> {
        self.dials.borrow_mut().remove(&token)
    }

    /// Counts an outgoing connection as closed or abandoned.
    pub(crate) fn client_gone(&self) {
        let clients = &self.world.clients;
        clients.set(clients.get().saturating_sub(1));
    }

    /// Abandons the connection that is being opened with a token, and returns its Lua object; `None` if there is no such
    /// connection.
    pub(crate) fn hang_up(&self, token: Token) -> Option<Reference> {
        let object = self.take_dial(token)?;
        self.client_gone();
        self.effect(Effect::HangUp { token });
        Some(object)
    }

    /// Starts a wait until a connection has room to send, or is closed.
    pub(crate) fn wait_for_room(&self, id: ConnectionId) -> Token {
        let token = self.token();
        self.senders.borrow_mut().entry(id).or_default().push(token);
        token
    }

    /// Resumes the coroutines that wait for room on a connection.
    pub(crate) fn wake_senders(&self, id: ConnectionId) {
        for token in self.senders.borrow_mut().remove(&id).unwrap_or_default() {
            self.wake(token, WakeReason::Up);
        }
    }

    pub(crate) fn is_dialing(&self, token: Token) -> bool {
        self.dials.borrow().contains_key(&token)
    }

    /// Returns whether any connection is being opened.
    pub(crate) fn dials_any(&self) -> bool {
        !self.dials.borrow().is_empty()
    }

    /// Returns the tokens of all outgoing connections that are being opened.
    pub(crate) fn dials(&self) -> Vec<Token> {
        self.dials.borrow().keys().copied().collect()
    }

    pub(crate) fn effect(&self, effect: Effect) {
        self.world.effects.borrow_mut().list.push(effect);
    }

    /// Sets the owner of the running coroutine.
    pub(crate) fn set_running(&self, owner: TaskOwner) {
        self.running.set(Some(owner));
    }

    /// Adds a log line to the effects, with the client for which the last resumed coroutine runs.
    pub(crate) fn log(&self, level: Level, text: impl Into<String>) {
        let about = self.about().map(Box::new);
        let mut effects = self.world.effects.borrow_mut();
        effects.log(level, text.into(), about);
    }

    /// Returns the client for which the last resumed coroutine runs; `None` if it runs for no client.
    pub(crate) fn about(&self) -> Option<LogContext> {
        let about = |id: ConnectionId, request: &Request| LogContext {
            connection: Some(
                WorkerConnection {
                    worker: self.worker,
                    connection: id,
                }
                .to_string(),
            ),
            user: request.user().map(str::to_owned),
            method: Some(request.method().to_owned()),
            path: Some(request.path().to_owned()),
            process: None,
        };
        match self.running.get()? {
            TaskOwner::Connection(id, _) => {
                let connections = self.world.connections.borrow();
                let request = connections.find(id)?.request.as_ref()?;
                Some(about(id, request))
            }
            TaskOwner::Request(number) | TaskOwner::Handshake(number) => {
                self.requests.borrow().about(number, about)
            }
            owner => self.kept_context(owner),
        }
    }

    /// Queues a coroutine to be started; returns its number.
    pub(crate) fn spawned(&self, coroutine: Coroutine, is_successor: bool) -> u64 {
        let number = self.token().0;
        self.inherit_context(number);
        let spawned = SpawnedCoroutine {
            coroutine,
            number,
            is_successor,
        };
        self.spawned.borrow_mut().push_back(spawned);
        number
    }

    pub(crate) fn take_spawned(&self) -> Option<SpawnedCoroutine> {
        self.spawned.borrow_mut().pop_front()
    }

    /// Removes and returns a queued coroutine that has not started.
    pub(crate) fn withdraw_spawned(&self, number: u64) -> Option<SpawnedCoroutine> {
        let mut spawned = self.spawned.borrow_mut();
        let place = spawned.iter().position(|one| one.number == number)?;
        spawned.remove(place)
    }

    /// Ends a wait. The coroutine is queued to be resumed after the coroutines that were woken
    /// before it.
    pub(crate) fn wake(&self, token: Token, how: WakeReason) {
        self.woken.borrow_mut().push_back((token, how));
    }

    pub(crate) fn take_woken(&self) -> Option<(Token, WakeReason)> {
        self.woken.borrow_mut().pop_front()
    }

    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.borrow().is_empty()
    }

    pub(crate) fn has_spawned(&self) -> bool {
        !self.spawned.borrow().is_empty()
    }

    /// Starts a wait that ends in the next turn, after all other runnable coroutines have run.
    pub(crate) fn yield_turn(&self) -> Token {
        let token = self.token();
        let tie = self.world.seeds_word().unwrap_or(0);
        self.yields.borrow_mut().push(tie, token);
        token
    }

    /// Returns the coroutines that have yielded.
    pub(crate) fn yields(&self) -> RefMut<'_, YieldedCoroutines> {
        self.yields.borrow_mut()
    }

    /// Starts a wait that ends at `at_ms`; returns its token.
    pub(crate) fn sleep_until(&self, at_ms: u64) -> Token {
        let token = self.token();
        self.wake_at(at_ms, token);
        token
    }

    /// Ends the wait of `token` at `at_ms`, unless it ends earlier.
    pub(crate) fn wake_at(&self, at_ms: u64, token: Token) {
        let tie = self.world.seeds_word().unwrap_or(0);
        self.sleepers
            .borrow_mut()
            .push(Reverse((at_ms, tie, token)));
    }

    /// Takes the next sleeper that is due.
    pub(crate) fn take_sleeper(&self, now_ms: u64) -> Option<Token> {
        let mut sleepers = self.sleepers.borrow_mut();
        let Reverse((at_ms, ..)) = sleepers.peek()?;
        if *at_ms > now_ms {
            return None;
        }
        sleepers.pop().map(|Reverse((.., token))| token)
    }

    /// Returns the deadline of the next sleeping coroutine; `u64::MAX` if there is none.
    pub(crate) fn wakes_ms(&self) -> u64 {
        let sleepers = self.sleepers.borrow();
        sleepers
            .peek()
            .map_or(u64::MAX, |Reverse((at_ms, ..))| *at_ms)
    }

    pub(crate) fn sleepers(&self) -> usize {
        self.sleepers.borrow().len()
    }

    /// Clears all queued starts, sleepers and wake-ups; returns the coroutines that have not started.
    pub(crate) fn clear(&self) -> Vec<Coroutine> {
        self.woken.take();
        self.sleepers.take();
        self.yields.take();
        self.publishers.clear();
        self.log_contexts.take();
        let spawned = self.spawned.take();
        spawned.into_iter().map(|one| one.coroutine).collect()
    }

    /// Returns whether a coroutine is queued to be started or resumed.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_spawned() || self.has_woken()
    }

    /// Starts a call to an external service.
    ///
    /// # Errors
    /// The calls in progress hold too many bytes.
    pub(crate) fn call(&self, call: Call) -> mlua::Result<Token> {
        let token = self.token();
        if !self.calls.borrow_mut().begin(token, call.bytes()) {
            return Err(fault(tagged(CALLS_FULL, FULL, None)));
        }
        let call = Box::new(call);
        self.effect(Effect::Call { call, token });
        Ok(token)
    }

    /// Starts a search for the connections of a user.
    pub(crate) fn find(&self, user: String, limit: usize) -> Token {
        let token = self.token();
        self.calls.borrow_mut().begin(token, 0);
        self.effect(Effect::Find { user, limit, token });
        token
    }

    /// Starts a query of a channel.
    pub(crate) fn query_channel(&self, channel: String, request: AppChannelQuery) -> Token {
        let token = self.token();
        self.calls.borrow_mut().begin(token, 0);
        self.effect(Effect::Inquire {
            channel,
            request,
            token,
        });
        token
    }

    /// Starts an API call; `None` if the run's effects exceed their limit.
    pub(crate) fn command(&self, method: String, body: &[u8]) -> Option<Token> {
        let body = self.world.effects.borrow_mut().store(body)?;
        let token = self.token();
        self.calls.borrow_mut().begin(token, 0);
        self.effect(Effect::Command {
            method,
            body,
            token,
        });
        Some(token)
    }

    /// Cancels a call whose coroutine has ended.
    pub(crate) fn cancel_call(&self, token: Token) {
        if self.calls.borrow_mut().end(token) {
            self.effect(Effect::CancelCall { token });
        }
    }

    pub(crate) fn cancel_calls(&self) {
        for token in self.calls.take().into_tokens() {
            self.effect(Effect::CancelCall { token });
        }
    }

    /// Marks a call as completed. Called directly only if the outcome is passed to the coroutine at once; otherwise
    /// [`set_outcome`](Self::set_outcome) calls it.
    pub(crate) fn ended(&self, token: Token) {
        self.calls.borrow_mut().end(token);
    }

    /// Stores the outcome of a call whose coroutine is about to be resumed.
    pub(crate) fn set_outcome(&self, token: Token, outcome: CallOutcome, caller: Reference) {
        self.ended(token);
        self.caller.set(Some(caller));
        self.outcome.replace(Some((token, outcome)));
    }

    /// Takes the stored outcome of a call; `None` if the stored outcome is that of another call, or there is none.
    pub(crate) fn take_outcome(&self, token: Token) -> Option<CallOutcome> {
        let mut outcome = self.outcome.borrow_mut();
        outcome
            .take_if(|(of, _)| *of == token)
            .map(|(_, what)| what)
    }

    /// Drops an outcome that was not consumed.
    pub(crate) fn clear_outcome(&self) {
        self.caller.take();
        self.outcome.take();
    }

    /// Registers a streamed response for the coroutine being resumed, and returns the stream's number; `None` if no
    /// outcome of a call is being passed on, or too many streams are open.
    pub(crate) fn open_stream(&self, handle: Handle) -> Option<u64> {
        let caller = self.caller.get()?;
        self.streams.borrow_mut().open(caller, handle)
    }

    /// Returns the requests in progress.
    pub(crate) fn requests(&self) -> RefMut<'_, OpenRequests> {
        self.requests.borrow_mut()
    }

    /// Removes the wake-up times of cancelled coroutines once they are the majority. They would otherwise stay until
    /// these times.
    pub(crate) fn purge_sleepers(&self, tasks: usize, is_waiting: impl Fn(Token) -> bool) {
        let mut sleepers = self.sleepers.borrow_mut();
        if sleepers.len() > SLEEPERS_MIN + 2 * tasks {
            sleepers.retain(|Reverse((.., token))| is_waiting(*token));
        }
    }
}
