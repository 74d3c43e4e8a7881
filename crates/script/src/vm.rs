//! One VM: a loaded script, its handlers and its coroutines. Start reading here.
//!
//! A handler that does not wait needs only a coroutine from a pool and the string of its message. A handler that waits becomes
//! a [`Task`], and further calls of its connection are queued behind it. So the events of a connection are handled one by one
//! and in order, independently of other connections.

mod clients;
mod departed;
mod ending;
mod events;
mod handler;
mod handover;
mod hooks;
pub(crate) mod load;
mod moving;
mod report;
mod service;
mod slice;
mod turn;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use mlua::{Function, Lua};
use veche_types::codes::CloseCode;

use self::handler::HANDLERS;
pub use self::handler::HandlerName;
use self::slice::TurnSlice;
use crate::Now;
use crate::host_context::HostContext;
use crate::modules;
use crate::raw::{Argument, Coroutine, LuaError, LuaVm, Reference, RunEnd};
use crate::role::AppRole;
use crate::task::{Task, TaskOwner, Tasks};
use crate::watch::TICK;
use crate::{ConnectionId, MessageKind};
use veche_runtime::Request;
use veche_runtime::hooks::Hook;
use veche_runtime::{Effects, HandlerProgress, Level, ServiceState, SlowHandler, Token};

pub use load::LoadError;

/// The minimum number of watchdog ticks of a run that is recorded as slow. One tick is not enough,
/// since it may fall into a short run.
const SLOW_TICKS: u64 = 2;

/// The error of a call that could not start.
const OVER_MEMORY: &str = "not enough memory: the application is over its limit";

/// The beginning of the log line of a failed `app.start`.
pub(crate) const START_FAILED: &str = "app.start failed: ";

/// A Lua VM that runs a script.
pub struct Vm {
    machine: LuaVm,
    tasks: Tasks,
    /// Connections of this worker by index.
    locals: Vec<Option<LocalConnection>>,
    /// Closed connections whose index is in use again while one of their handlers is suspended.
    leaving: BTreeMap<ConnectionId, LocalConnection>,
    handlers: [Option<Reference>; HANDLERS],
    /// The handlers of outgoing connections: functions of `lua/websocket.lua`.
    client_handlers: [Option<Reference>; HANDLERS],
    /// The metatable of connections.
    metatable: Reference,
    kinds: [Reference; 2],
    /// The hook handlers for clients of Centrifugo's protocol.
    hooks: [Option<Reference>; Hook::ALL.len()],
    /// The first uncaught error, until it is taken.
    uncaught: Option<LuaError>,
    /// Running calls of `app.error`, by the numbers of their coroutines.
    reports: BTreeSet<u64>,
    serve: Reference,
    shake: Reference,
    rule: Reference,
    task_failed: Function,
    /// Calls that could not start at once, in order.
    postponed: VecDeque<DeferredCall>,
    slice: TurnSlice,
    slow: Option<SlowHandler>,
    /// Releases the resources held by failed coroutines.
    reclaim: Function,
    /// Stops the outgoing connections of replaced code from reconnecting.
    retire_clients: Function,
    has_begun: bool,
    /// The name of the application.
    name: Box<str>,
    role: AppRole,
    /// The state of a service's `run`.
    run: ServiceState,
    /// Whether `app.events` is running.
    is_handling_events: bool,
    /// Whether `app.stop` is running.
    is_stopping: bool,
    /// Wakes the coroutines that wait for the stop signal.
    wake_stop_waits: Function,
    /// The calls that wait for the end of `app.start`, in order; `None` once it has ended.
    gate: Option<VecDeque<u32>>,
    context: Rc<HostContext>,
    tasks_max: usize,
    /// The last field, so that it is dropped last: all other fields refer to it.
    lua: Lua,
}

/// A call that could not start at once, and starts in a later turn.
enum DeferredCall {
    /// The first call in a connection's queue.
    Of(ConnectionId),
    /// The call of a request or a handshake.
    Task(u32),
}

/// The state of a connection in this VM.
struct LocalConnection {
    generation: u32,
    object: Reference,
    /// Whether this is an outgoing connection, which always belongs to this VM.
    is_client: bool,
    /// Whether a handler is suspended, or calls wait for `app.start`.
    is_busy: bool,
    /// Whether the last handler, `app.close`, is running or has run.
    is_ending: bool,
    /// Prepared calls of this connection's handlers, which start in this order.
    queue: VecDeque<u32>,
    /// The current or last wait of the connection's handler.
    wait: Option<Token>,
    /// Number of waits that have failed since the connection closed.
    failed_waits: u32,
}

impl Vm {
    /// Returns whether the application has a handler.
    #[must_use]
    pub fn has(&self, handler: HandlerName) -> bool {
        self.handlers[handler as usize].is_some()
    }

    /// Takes the recorded effects and leaves `empty` in their place.
    pub fn take_effects(&mut self, empty: &mut Effects) {
        std::mem::swap(&mut *self.context.world.effects.borrow_mut(), empty);
        let batch = &self.context.world.batch;
        batch.set(batch.get().wrapping_add(1));
    }

    /// Takes the handler with the longest slow run since `take_slow` was last called; `None` if no run was slow.
    pub fn take_slow(&mut self) -> Option<SlowHandler> {
        self.slow.take()
    }

    /// Returns whether there are effects to execute.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        !self.context.world.effects.borrow().is_empty()
    }

    /// Returns the memory that the VM uses, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.machine.used_bytes()
    }

    /// Returns whether the VM exceeds its memory limit by so much that it has to be replaced.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.machine.is_broken()
    }

    /// Returns the number of coroutines that are suspended or have not started.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the number of stored wake-up times, including those of cancelled coroutines.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.context.sleepers()
    }

    /// Returns the number of hook requests and of tasks for which the context of log lines is stored.
    #[must_use]
    pub fn log_contexts(&self) -> usize {
        self.context.log_contexts()
    }

    /// Handles an opened connection with its handshake request.
    pub fn opened(
        &mut self,
        id: ConnectionId,
        request: impl Into<Box<Request>>,
        now: Now,
    ) -> HandlerProgress {
        self.set_now(now);
        let connections = &self.context.world.connections;
        connections.borrow_mut().open(id, request.into());
        let object = self.know(id);
        self.call(id, HandlerName::Open, &[Argument::Registered(object)])
    }

    /// Handles a message of a connection.
    pub fn message(
        &mut self,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        now: Now,
    ) -> HandlerProgress {
        self.set_now(now);
        let Some(local) = self.local(id) else {
            return HandlerProgress::Done;
        };
        let (object, is_busy, is_client) = (local.object, local.is_busy, local.is_client);
        // Memory is checked only if no earlier call runs or is queued. Otherwise the message is queued, in order.
        if !is_busy && self.gate.is_none() && !self.has_room() {
            self.end_of(
                id,
                HandlerName::Message,
                LuaError::error_message(OVER_MEMORY),
            );
            if is_client {
                let (code, reason) = CloseCode::OutOfMemory.parts();
                self.context.close(id, code, reason);
            }
            return HandlerProgress::Done;
        }
        let arguments = [
            Argument::Registered(object),
            Argument::Bytes(data),
            Argument::Registered(self.kinds[kind as usize]),
        ];
        self.call(id, HandlerName::Message, &arguments)
    }

    /// Handles a drained outbox: the connection has room for more messages.
    pub fn drained(&mut self, id: ConnectionId, now: Now) -> HandlerProgress {
        self.set_now(now);
        let Some(local) = self.local(id) else {
            return HandlerProgress::Done;
        };
        let object = Argument::Registered(local.object);
        let is_client = local.is_client;
        self.room_again(id);
        if is_client {
            return HandlerProgress::Done;
        }
        self.call(id, HandlerName::Drain, &[object])
    }

    /// Handles the close of a connection, its last event. `app.close` runs once the connection's other handlers have
    /// finished.
    pub fn closed(&mut self, id: ConnectionId, code: u16, reason: &str, now: Now) {
        self.set_now(now);
        self.context.world.connections.borrow_mut().set_closing(id);
        let Some(local) = self.local(id) else {
            return;
        };
        local.is_ending = true;
        let (object, wait) = (local.object, local.wait);
        // Coroutines that wait for room to send on this connection are resumed, since there will be no further drain event.
        self.context.wake_senders(id);
        if let Some(token) = wait {
            self.fail_wait_of(id, token);
        }
        let arguments = [
            Argument::Registered(object),
            Argument::Number(code.into()),
            Argument::Bytes(reason.as_bytes()),
        ];
        if self.call(id, HandlerName::Close, &arguments) == HandlerProgress::Done {
            self.forget(id);
        }
    }

    /// Handles an HTTP request, answered by [`Effect::Respond`].
    pub fn request(&mut self, id: ConnectionId, request: impl Into<Box<Request>>, now: Now) {
        self.set_now(now);
        let request = request.into();
        self.ask(
            id,
            HandlerName::Request,
            self.serve,
            request,
            TaskOwner::Request,
        );
    }

    /// Handles a handshake, answered by [`Effect::Handshake`](veche_runtime::Effect::Handshake).
    pub fn handshake(&mut self, id: ConnectionId, request: impl Into<Box<Request>>, now: Now) {
        self.set_now(now);
        self.ask(
            id,
            HandlerName::Handshake,
            self.shake,
            request.into(),
            TaskOwner::Handshake,
        );
    }

    /// Ends the requests and handshakes of a connection, since their responses are no longer needed: the connection has
    /// closed or, with `is_late`, the time limit has passed. With `is_late` the waits of all their handlers fail,
    /// otherwise only the waits of handlers that have begun to respond; the other handlers continue.
    pub fn gone(&mut self, id: ConnectionId, is_late: bool, now: Now) {
        self.set_now(now);
        let ended = self.context.requests().end_all_of(id);
        for (number, has_begun) in ended {
            if is_late {
                self.cancel_request(number, veche_runtime::TOO_LATE);
            } else if has_begun {
                self.cancel_request(number, veche_runtime::GONE);
            }
        }
        self.settle();
    }

    /// Sets the time of the turn. A time that differs from the last one starts a new turn.
    fn set_now(&mut self, now: Now) {
        if self.context.world.now.replace(now) != now {
            self.slice.begin(self.context.clock.ticks());
        }
    }

    fn local(&mut self, id: ConnectionId) -> Option<&mut LocalConnection> {
        let local = self.locals.get_mut(id.index as usize)?.as_mut();
        local
            .filter(|local| local.generation == id.generation)
            .or_else(|| self.leaving.get_mut(&id))
    }

    /// Creates the Lua object of a connection.
    fn know(&mut self, id: ConnectionId) -> Reference {
        let object = self.machine.connection(self.metatable, id);
        self.know_as(id, object, false);
        object
    }

    /// Registers the Lua object of a connection.
    fn know_as(&mut self, id: ConnectionId, object: Reference, is_client: bool) {
        let index = id.index as usize;
        if self.locals.len() <= index {
            self.locals.resize_with(index + 1, || None);
        }
        let before = self.locals[index].replace(LocalConnection {
            generation: id.generation,
            object,
            is_client,
            is_busy: false,
            is_ending: false,
            queue: VecDeque::new(),
            wait: None,
            failed_waits: 0,
        });
        if let Some(before) = before {
            let generation = before.generation;
            let id = ConnectionId { generation, ..id };
            self.leaving.insert(id, before);
        }
    }

    /// Calls a handler of a connection, or queues the call.
    fn call(
        &mut self,
        id: ConnectionId,
        handler: HandlerName,
        arguments: &[Argument<'_>],
    ) -> HandlerProgress {
        let local = self.local(id);
        let (is_busy, is_client) =
            local.map_or((false, false), |local| (local.is_busy, local.is_client));
        // Outgoing connections do not wait for `app.start`, since it may use them.
        let is_gated = self.gate.is_some() && !is_client;
        let handlers = match is_client {
            true => &self.client_handlers,
            false => &self.handlers,
        };
        let Some(function) = handlers[handler as usize] else {
            return if is_busy {
                HandlerProgress::Waits
            } else {
                HandlerProgress::Done
            };
        };
        let coroutine = self.machine.prepare(function, arguments);
        let owner = TaskOwner::Connection(id, handler);
        let is_late = !self.admits_calls();
        if is_busy || is_gated || is_late {
            let place = self.tasks.keep_prepared(coroutine, owner);
            if let Some(local) = self.local(id) {
                local.is_busy = true;
                local.queue.push_back(place);
            }
            if !is_busy && !is_gated {
                self.postponed.push_back(DeferredCall::Of(id));
            }
            return HandlerProgress::Waits;
        }
        match self.resume(&coroutine, &[], owner, handler.name()) {
            RunEnd::Ended => {
                self.machine.recycle(coroutine);
                self.settle();
                HandlerProgress::Done
            }
            ran => {
                let progress = match ran {
                    RunEnd::Waits(_) => HandlerProgress::Waits,
                    _ => HandlerProgress::Done,
                };
                if let Some(local) = self.local(id) {
                    local.is_busy = progress == HandlerProgress::Waits;
                }
                self.left(coroutine, owner, ran);
                self.settle();
                // The handler may have removed the connection.
                match self.local(id) {
                    Some(local) if local.is_busy => HandlerProgress::Waits,
                    _ => HandlerProgress::Done,
                }
            }
        }
    }

    /// Calls the handler of a request or a handshake, which returns a response.
    fn ask(
        &mut self,
        id: ConnectionId,
        handler: HandlerName,
        wrapper: Reference,
        request: Box<Request>,
        owner: fn(u64) -> TaskOwner,
    ) {
        if !self.has_room() {
            self.context.log(Level::Error, OVER_MEMORY);
            return self.refuse(id, owner(0));
        }
        let Some(number) = self.context.requests().begin(id, request) else {
            return self.refuse(id, owner(0));
        };
        let owner = owner(number);
        let Some(function) = self.handlers[handler as usize] else {
            return self.abandon(number, owner);
        };
        let arguments = [
            Argument::Registered(function),
            Argument::Number(number as f64),
        ];
        let coroutine = self.machine.prepare(wrapper, &arguments);
        self.begin_or_keep(coroutine, owner);
    }

    /// Starts or resumes a coroutine and handles the result.
    fn run(&mut self, coroutine: Coroutine, owner: TaskOwner, answer: &[Argument<'_>]) {
        let ran = self.resume(&coroutine, answer, owner, owner.name());
        self.left(coroutine, owner, ran);
    }

    /// Runs a coroutine until it waits or ends, and records slow runs.
    fn resume(
        &mut self,
        coroutine: &Coroutine,
        answer: &[Argument<'_>],
        owner: TaskOwner,
        handler: &'static str,
    ) -> RunEnd {
        self.context.set_running(owner);
        let began = self.machine.ticks();
        self.context.clock.begin_run();
        let ran = self.machine.resume(coroutine, answer);
        self.context.clock.end_run();
        let ticks = self.machine.ticks().wrapping_sub(began);
        if ticks >= SLOW_TICKS {
            let ms = ticks * TICK.as_millis() as u64;
            let slow = SlowHandler { handler, ms };
            self.slow = self
                .slow
                .into_iter()
                .chain([slow])
                .max_by_key(|slow| slow.ms);
        }
        ran
    }

    /// Returns the connections that match. Of two connections with the same index, the closed one comes first.
    fn ids(&self, which: impl Fn(&LocalConnection) -> bool) -> impl Iterator<Item = ConnectionId> {
        let placed = self.locals.iter().enumerate();
        let placed = placed.filter_map(|(index, local)| {
            let local = local.as_ref()?;
            let id = ConnectionId {
                index: index as u32,
                generation: local.generation,
            };
            Some((id, local))
        });
        let leaving = self.leaving.iter().map(|(id, local)| (*id, local));
        let all = leaving.chain(placed);
        all.filter_map(move |(id, local)| which(local).then_some(id))
    }

    /// Handles the end of a coroutine's run.
    fn left(&mut self, coroutine: Coroutine, owner: TaskOwner, ran: RunEnd) {
        match ran {
            RunEnd::Waits(token) => {
                self.tasks.keep(Task {
                    coroutine,
                    owner,
                    token: Some(token),
                });
                if let TaskOwner::Connection(id, handler) = owner {
                    self.waits_of_closed(id, handler, token);
                }
            }
            RunEnd::Ended => {
                self.close_streams(&coroutine);
                self.machine.recycle(coroutine);
                self.ended(owner);
                self.context.forget_context(owner);
            }
            RunEnd::Failed(failure) => {
                self.close_streams(&coroutine);
                let is_ruled = match owner {
                    TaskOwner::Hook(number, _) => self.respond_with_error(number, &coroutine),
                    _ => false,
                };
                self.drop_dead(coroutine);
                if !is_ruled {
                    self.failed(owner, failure);
                }
                self.context.forget_context(owner);
            }
        }
    }

    /// Closes the streams that a coroutine has not read to the end.
    fn close_streams(&self, coroutine: &Coroutine) {
        let mut streams = self.context.streams.borrow_mut();
        streams.close_of(coroutine.reference());
    }

    /// Discards a failed coroutine and the resources it held.
    fn drop_dead(&self, coroutine: Coroutine) {
        self.machine.discard(coroutine);
        if let Err(error) = self
            .machine
            .guarded_without_limit(|| self.reclaim.call::<()>(()))
        {
            self.context.log(Level::Error, modules::words(&error));
        }
    }
}
