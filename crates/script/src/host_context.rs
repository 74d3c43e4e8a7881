//! What a running script can reach: the desk between a VM and the world.
//!
//! Scripts run while the [`Vm`](crate::Vm) itself is busy with running them, so what they leave for it lies here:
//! effects, coroutines that were spawned, waits that were answered, times to wake up at. All borrows are short: none
//! lasts while Lua runs.

mod hooks;
mod publishers;
mod queues;
mod requests;
mod yields;

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use fastrand::Rng;
use foldhash::fast::RandomState;
use veche_calls::channel::ChannelRequest;
use veche_calls::redis::RedisDatabase;
use veche_calls::{Call, CallOutcome, Handle, Lease, WorkerConnection};
use veche_store::Store;

use crate::Now;
use crate::clock::{ClockMode, VmClock};
use crate::connections::{ConnectionTable, SendRoom};
use crate::modules::growing_list::GrowingList;
use crate::modules::held_values::HeldValues;
use crate::raw::{BoundTables, Coroutine, IsShort, Reference, VmMemory};
use crate::streams::StreamTable;
use crate::task::Owner;
use crate::{ConnectionId, MessageKind};
pub(crate) use hooks::{OpenHook, is_binary};
pub(crate) use publishers::PublishWaiters;
pub(crate) use queues::QueueWaits;
pub(crate) use requests::{BodyWrite, EndedRequest, OpenRequests};
use veche_runtime::PublishGate;
use veche_runtime::Request;
use veche_runtime::{Effect, Effects, Level, LogContext, Token, WaitResult};
pub(crate) use yields::YieldedCoroutines;

/// What all VMs of one application on one worker share: it outlives a reload.
#[derive(Default)]
pub(crate) struct AppState {
    pub(crate) effects: RefCell<Effects>,
    pub(crate) connections: RefCell<ConnectionTable>,
    pub(crate) now: Cell<Now>,
    /// Shared with all other workers.
    pub(crate) store: Arc<Store>,
    pub(crate) queues: QueueWaits,
    tokens: Cell<u64>,
    /// All chance, in a test.
    seeded: Option<RefCell<Rng>>,
    /// How time passes for turns and runs.
    pub(crate) pace: ClockMode,
    /// Connections to other servers, those included that are being dialed.
    pub(crate) clients: Cell<usize>,
    /// How often effects were taken: what was sent before is no longer this run's.
    pub(crate) batch: Cell<u32>,
    /// What can't be published at the moment.
    pub(crate) refused: OnceCell<Rc<PublishGate>>,
    /// Says whether the process is short of memory.
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

    /// Whether a test decides what is chance elsewhere.
    pub(crate) fn is_seeded(&self) -> bool {
        self.seeded.is_some()
    }

    /// The seed's next number, in a test.
    pub(crate) fn seeds_word(&self) -> Option<u64> {
        let rng = self.seeded.as_ref()?;
        Some(rng.borrow_mut().u64(..))
    }
}

/// Fewer sleepers are not worth a look.
const SLEEPERS_MIN: usize = 1024;

/// One VM's desk.
pub(crate) struct HostContext {
    pub(crate) world: Rc<AppState>,
    pub(crate) clock: VmClock,
    /// Which worker it is, for the ids of connections.
    pub(crate) worker: u16,
    /// What the VM may use.
    pub(crate) memory_bytes_max: usize,
    /// Its memory, once it has some.
    memory: OnceCell<Rc<VmMemory>>,
    is_retired: Cell<bool>,
    /// Whose coroutine was last resumed.
    running: Cell<Option<Owner>>,
    spawned: RefCell<VecDeque<SpawnedCoroutine>>,
    woken: RefCell<VecDeque<(Token, WakeReason)>>,
    /// By time; the second number parts those of the same time: the seed in a test, otherwise whoever came first.
    sleepers: RefCell<BinaryHeap<Reverse<(u64, u64, Token)>>>,
    yields: RefCell<YieldedCoroutines>,
    publishers: PublishWaiters,
    requests: RefCell<OpenRequests>,
    /// By number: what is not decided.
    questions: RefCell<BTreeMap<u64, OpenHook>>,
    /// Calls to the world under way.
    calls: RefCell<HashSet<Token, RandomState>>,
    /// The Redis servers that the script knows, by number.
    pub(crate) keyspaces: GrowingList<RedisDatabase>,
    /// The tables that the script knows, by number.
    pub(crate) tables: RefCell<BoundTables>,
    /// What has become of the call whose coroutine goes on at the moment.
    outcome: RefCell<Option<(Token, CallOutcome)>>,
    /// Objects whose connections are being dialed.
    dials: RefCell<HashMap<Token, Reference>>,
    /// Who waits for room to send to another server.
    senders: RefCell<HashMap<ConnectionId, Vec<Token>>>,
    /// Whose that call was.
    caller: Cell<Option<Reference>>,
    /// Answers that are read piece by piece.
    pub(crate) streams: RefCell<StreamTable>,
    /// What is held over several calls.
    pub(crate) leases: HeldValues<Lease>,
}

/// A coroutine that is to begin.
pub(crate) struct SpawnedCoroutine {
    pub(crate) coroutine: Coroutine,
    pub(crate) number: u64,
    /// It takes the place of one that has ended: it begins, however many there are.
    pub(crate) is_successor: bool,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// It is on its way.
    Yes,
    /// The connection is gone.
    Closed,
    /// It is on its way, and too much already waits to be sent there.
    Over,
    /// It is one to another server, and too much waits to be sent there.
    Full,
    /// This run has sent too much already.
    TooMuch,
}

/// How a wait ends.
#[derive(Debug)]
pub(crate) enum WakeReason {
    /// It goes on.
    Up,
    /// It fails with "cancelled".
    Cancelled,
    /// With the answer to an effect.
    Answered(WaitResult),
    /// With what a call to the world has led to.
    Replied(Box<CallOutcome>),
}

impl HostContext {
    pub(crate) fn new(
        world: Rc<AppState>,
        clock: VmClock,
        worker: u16,
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
            requests: RefCell::default(),
            questions: RefCell::default(),
            calls: RefCell::default(),
            keyspaces: GrowingList::new("redis: no such server"),
            tables: RefCell::default(),
            outcome: RefCell::default(),
            dials: RefCell::default(),
            senders: RefCell::default(),
            caller: Cell::default(),
            streams: RefCell::default(),
            leases: HeldValues::default(),
        }
    }

    /// Sets the VM's memory.
    pub(crate) fn set_memory(&self, memory: Rc<VmMemory>) {
        let _ = self.memory.set(memory);
    }

    /// Returns whether the VM has no memory for anything that stays.
    pub(crate) fn is_full(&self) -> bool {
        self.memory.get().is_some_and(|memory| memory.is_full())
    }

    /// Returns whether a result of so many bytes would be granted to the run that is under way.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        let memory = self.memory.get();
        memory.is_none_or(|memory| memory.has_room_for(bytes))
    }

    /// A number that none had before: of a wait, or of a coroutine.
    pub(crate) fn token(&self) -> Token {
        let number = self.world.tokens.get() + 1;
        self.world.tokens.set(number);
        Token(number)
    }

    /// Newer code has taken over: what repeats itself ends.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// Sends a message.
    pub(crate) fn send(&self, to: ConnectionId, kind: MessageKind, data: &[u8]) -> SendResult {
        let batch = self.world.batch.get();
        let mut connections = self.world.connections.borrow_mut();
        let sent = match connections.take_room(to, data.len(), batch) {
            Some(SendRoom::Yes) => SendResult::Yes,
            Some(SendRoom::Over) => SendResult::Over,
            Some(SendRoom::No) => return SendResult::Full,
            None => return SendResult::Closed,
        };
        let mut effects = self.world.effects.borrow_mut();
        let Some(data) = effects.store(data) else {
            return SendResult::TooMuch;
        };
        effects.list.push(Effect::Send { to, kind, data });
        sent
    }

    /// Closes a connection; `false` if it was closed.
    pub(crate) fn close(&self, of: ConnectionId, code: u16, reason: &str) -> bool {
        let was_open = self.world.connections.borrow_mut().set_closing(of);
        if was_open {
            let reason = reason.to_owned();
            self.effect(Effect::Close { of, code, reason });
        }
        was_open
    }

    /// The connection that is dialed with this token will be that object's.
    pub(crate) fn expect_client(&self, token: Token, object: Reference) {
        self.dials.borrow_mut().insert(token, object);
    }

    /// Takes the object for which a connection is dialed, if it still is.
    pub(crate) fn take_dial(&self, token: Token) -> Option<Reference> {
        self.dials.borrow_mut().remove(&token)
    }

    /// One connection to another server is no more, or is not dialed any more.
    pub(crate) fn client_gone(&self) {
        let clients = &self.world.clients;
        clients.set(clients.get().saturating_sub(1));
    }

    /// A connection is not wanted before it is open; its object, if it is dialed.
    pub(crate) fn hang_up(&self, token: Token) -> Option<Reference> {
        let object = self.take_dial(token)?;
        self.client_gone();
        self.effect(Effect::HangUp { token });
        Some(object)
    }

    /// A wait until there is room for what is sent to a connection, or it is closed.
    pub(crate) fn wait_for_room(&self, id: ConnectionId) -> Token {
        let token = self.token();
        self.senders.borrow_mut().entry(id).or_default().push(token);
        token
    }

    /// Whoever waits for room goes on.
    pub(crate) fn wake_senders(&self, id: ConnectionId) {
        for token in self.senders.borrow_mut().remove(&id).unwrap_or_default() {
            self.wake(token, WakeReason::Up);
        }
    }

    pub(crate) fn is_dialing(&self, token: Token) -> bool {
        self.dials.borrow().contains_key(&token)
    }

    /// Whether a connection is being dialed.
    pub(crate) fn dials_any(&self) -> bool {
        !self.dials.borrow().is_empty()
    }

    /// Tokens of all connections that are being dialed.
    pub(crate) fn dials(&self) -> Vec<Token> {
        self.dials.borrow().keys().copied().collect()
    }

    pub(crate) fn effect(&self, effect: Effect) {
        self.world.effects.borrow_mut().list.push(effect);
    }

    /// Whose coroutine runs from now on.
    pub(crate) fn set_running(&self, owner: Owner) {
        self.running.set(Some(owner));
    }

    /// Writes into the log, with for whom the script runs, or has just failed.
    pub(crate) fn log(&self, level: Level, text: impl Into<String>) {
        let about = self.about().map(Box::new);
        let mut effects = self.world.effects.borrow_mut();
        effects.log(level, text.into(), about);
    }

    /// For whom the coroutine runs that was last resumed.
    pub(crate) fn about(&self) -> Option<LogContext> {
        let about = |id: ConnectionId, request: &Request| LogContext {
            connection: WorkerConnection {
                worker: self.worker,
                index: id.index,
                generation: id.generation,
            }
            .to_string(),
            user: request.user().map(str::to_owned),
            method: request.method().to_owned(),
            path: request.path().to_owned(),
        };
        match self.running.get()? {
            Owner::Connection(id, _) => {
                let connections = self.world.connections.borrow();
                let request = connections.find(id)?.request.as_ref()?;
                Some(about(id, request))
            }
            Owner::Request(number) | Owner::Handshake(number) => {
                self.requests.borrow().about(number, about)
            }
            _ => None,
        }
    }

    /// Takes a coroutine that is to begin; its number.
    pub(crate) fn spawned(&self, coroutine: Coroutine, is_successor: bool) -> u64 {
        let number = self.token().0;
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

    /// Takes a coroutine back that has not begun.
    pub(crate) fn withdraw_spawned(&self, number: u64) -> Option<SpawnedCoroutine> {
        let mut spawned = self.spawned.borrow_mut();
        let place = spawned.iter().position(|one| one.number == number)?;
        spawned.remove(place)
    }

    /// A wait is over: its coroutine goes on in its turn.
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

    /// A wait that ends in the next turn, behind everything else that can go on.
    pub(crate) fn yield_turn(&self) -> Token {
        let token = self.token();
        let tie = self.world.seeds_word().unwrap_or(0);
        self.yields.borrow_mut().push(tie, token);
        token
    }

    /// The coroutines that have given way.
    pub(crate) fn yields(&self) -> RefMut<'_, YieldedCoroutines> {
        self.yields.borrow_mut()
    }

    /// A wait that ends by itself.
    pub(crate) fn sleep_until(&self, at_ms: u64) -> Token {
        let token = self.token();
        self.wake_at(at_ms, token);
        token
    }

    /// The wait with that token ends then, unless something else ends it before.
    pub(crate) fn wake_at(&self, at_ms: u64, token: Token) {
        let tie = self.world.seeds_word().unwrap_or(0);
        self.sleepers
            .borrow_mut()
            .push(Reverse((at_ms, tie, token)));
    }

    /// The next sleeper whose time has come.
    pub(crate) fn take_sleeper(&self, now_ms: u64) -> Option<Token> {
        let mut sleepers = self.sleepers.borrow_mut();
        let Reverse((at_ms, ..)) = sleepers.peek()?;
        if *at_ms > now_ms {
            return None;
        }
        sleepers.pop().map(|Reverse((.., token))| token)
    }

    /// When the next one wakes up; `u64::MAX` if none sleeps.
    pub(crate) fn wakes_ms(&self) -> u64 {
        let sleepers = self.sleepers.borrow();
        sleepers
            .peek()
            .map_or(u64::MAX, |Reverse((at_ms, ..))| *at_ms)
    }

    pub(crate) fn sleepers(&self) -> usize {
        self.sleepers.borrow().len()
    }

    /// Forgets who is to begin, to wake up or to be woken; the coroutines that have not begun.
    pub(crate) fn clear(&self) -> Vec<Coroutine> {
        self.woken.take();
        self.sleepers.take();
        self.yields.take();
        self.publishers.clear();
        let spawned = self.spawned.take();
        spawned.into_iter().map(|one| one.coroutine).collect()
    }

    /// Whether something can go on at once.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_spawned() || self.has_woken()
    }

    /// Asks something of the world.
    pub(crate) fn call(&self, call: Call) -> Token {
        let token = self.token();
        self.calls.borrow_mut().insert(token);
        let call = Box::new(call);
        self.effect(Effect::Call { call, token });
        token
    }

    /// Looks for the connections of a user.
    pub(crate) fn find(&self, user: String, limit: usize) -> Token {
        let token = self.token();
        self.calls.borrow_mut().insert(token);
        self.effect(Effect::Find { user, limit, token });
        token
    }

    /// Asks something of a channel.
    pub(crate) fn query_channel(&self, channel: String, inquiry: ChannelRequest) -> Token {
        let token = self.token();
        self.calls.borrow_mut().insert(token);
        self.effect(Effect::Inquire {
            channel,
            inquiry,
            token,
        });
        token
    }

    /// Calls a method of the API; `None` if the effects of this run are too many bytes already.
    pub(crate) fn command(&self, method: String, body: &[u8]) -> Option<Token> {
        let body = self.world.effects.borrow_mut().store(body)?;
        let token = self.token();
        self.calls.borrow_mut().insert(token);
        self.effect(Effect::Command {
            method,
            body,
            token,
        });
        Some(token)
    }

    /// Whoever waited with that token is gone: if it was for a call, nobody needs it any more.
    pub(crate) fn cancel_call(&self, token: Token) {
        if self.calls.borrow_mut().remove(&token) {
            self.effect(Effect::CancelCall { token });
        }
    }

    /// The same for all calls.
    pub(crate) fn cancel_calls(&self) {
        for token in self.calls.take() {
            self.effect(Effect::CancelCall { token });
        }
    }

    /// A call is over, and its coroutine gets what it has led to by itself.
    pub(crate) fn ended(&self, token: Token) {
        self.calls.borrow_mut().remove(&token);
    }

    /// A call is over: its coroutine is about to go on.
    pub(crate) fn set_outcome(&self, token: Token, outcome: CallOutcome, caller: Reference) {
        self.ended(token);
        self.caller.set(Some(caller));
        self.outcome.replace(Some((token, outcome)));
    }

    /// What has become of that call; `None` unless its coroutine has just gone on.
    pub(crate) fn take_outcome(&self, token: Token) -> Option<CallOutcome> {
        let mut outcome = self.outcome.borrow_mut();
        outcome
            .take_if(|(of, _)| *of == token)
            .map(|(_, what)| what)
    }

    /// What nobody has taken is of no use any more.
    pub(crate) fn clear_outcome(&self) {
        self.caller.take();
        self.outcome.take();
    }

    /// Keeps what the call has left open for the coroutine that goes on at the moment; its number.
    pub(crate) fn open_stream(&self, handle: Handle) -> Option<u64> {
        let caller = self.caller.get()?;
        self.streams.borrow_mut().open(caller, handle)
    }

    /// The requests under way.
    pub(crate) fn requests(&self) -> RefMut<'_, OpenRequests> {
        self.requests.borrow_mut()
    }

    /// Forgets sleepers that nobody is, where they are most of all: cancelled ones would stay until their time.
    pub(crate) fn purge_sleepers(&self, tasks: usize, is_waiting: impl Fn(Token) -> bool) {
        let mut sleepers = self.sleepers.borrow_mut();
        if sleepers.len() > SLEEPERS_MIN + 2 * tasks {
            sleepers.retain(|Reverse((.., token))| is_waiting(*token));
        }
    }
}
