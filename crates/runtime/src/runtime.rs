//! The interface of runtimes, which execute the handlers of applications.

use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use veche_calls::CallOutcome;
use veche_types::{ConnectionId, Now, WorkerId};

use crate::effects::{Effects, Token};
use crate::event::{Event, EventKind};
use crate::hooks::{AppHookRequest, Hook};
use crate::progress::{HandlerProgress, SlowHandler, WaitResult};
use crate::publish_gate::PublishGate;

/// Wakes the thread of a worker.
pub type WorkerWaker = Arc<dyn Fn() + Send + Sync>;

/// The facilities of a worker that its applications use.
#[derive(Clone, Default)]
pub struct Host {
    /// Wakes the worker's thread when another thread completes something.
    pub wake: Option<WorkerWaker>,
    /// Returns whether the process is short of memory; handlers must not allocate more in that case.
    pub is_short: Option<Rc<dyn Fn() -> bool>>,
    /// The channels that can't be published to at the moment.
    pub refused: Rc<PublishGate>,
}

/// The lifecycle state of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// The service has not started.
    Idle,
    /// The service is running, or work that it started is still running.
    Runs,
    /// The service and all work that it started have ended.
    Over,
    /// The service ended with an error, which was logged.
    Failed,
}

/// The replacement of an application's code.
pub struct Replacement<'a, 'h> {
    /// Whether the code being replaced receives [`Event::Stop`].
    pub stops: bool,
    /// The time by which suspended handlers of the code being replaced have to end, in monotonic milliseconds.
    pub until_ms: u64,
    /// Unanswered hook requests by number. Requests that the code being replaced has not started are passed to the new code.
    pub hooks: &'a mut dyn Iterator<Item = (u64, AppHookRequest<'h>)>,
    /// The time of the current turn.
    pub now: Now,
}

/// An application on one worker. There is one implementation for each kind of handlers, such as those in Lua.
///
/// The worker delivers [events](Event), lets the runtime run in [`turn`](Runtime::turn), and after each call takes the
/// [effects](Effects) and executes them in order, without calling the runtime in between. The outcome of an effect with a
/// [`Token`] is delivered by [`answer`](Runtime::answer) or [`handle_outcome`](Runtime::handle_outcome), at most once.
///
/// Each handshake, request and hook is answered by exactly one effect, even if its handler fails, no later than in
/// [`fail_waiting`](Runtime::fail_waiting). A failed handler records a log line, and also
/// [`Effect::Failed`](crate::Effect::Failed) if it handled an event of an open connection.
pub trait Runtime: Sized {
    /// The validated application, shared by all workers.
    type Program;
    /// The reason why a program can't start.
    type Error: Display;

    /// Starts a program.
    ///
    /// # Errors
    /// The program can't start.
    fn start(program: &Self::Program, host: &Host, worker: WorkerId) -> Result<Self, Self::Error>;

    /// Provides those facilities of the worker that the application does not have yet. Facilities that it already has are
    /// not replaced.
    fn attach(&mut self, host: &Host);

    /// Replaces the code. Connections stay open.
    ///
    /// # Errors
    /// The new code can't start; the running code is unchanged.
    fn replace(
        &mut self,
        program: &Self::Program,
        replacement: Replacement<'_, '_>,
    ) -> Result<(), Self::Error>;

    /// Ends running handlers and restarts the same code. Connections stay open.
    ///
    /// # Errors
    /// The code can't start again; nothing runs.
    fn restart(&mut self, program: &Self::Program) -> Result<(), Self::Error>;

    /// Returns whether the application has a handler for a kind of event.
    fn handles(&self, kind: EventKind) -> bool;

    /// Returns whether the application has a handler for a hook.
    fn decides_on(&self, hook: Hook) -> bool;

    /// Returns whether the results of [`Self::decides_on`] may have changed since the last call of this method.
    fn has_new_hooks(&mut self) -> bool {
        false
    }

    /// Delivers an event to the application's handler.
    fn handle_event(&mut self, event: Event<'_>, now: Now) -> HandlerProgress;

    /// Completes the wait that has the token.
    fn answer(&mut self, token: Token, answer: &WaitResult, now: Now);

    /// Delivers the outcome of the call with a token.
    fn handle_outcome(&mut self, token: Token, outcome: CallOutcome, now: Now);

    /// Reports that an outgoing connection is open; returns `false` if it is no longer needed.
    fn client_opened(
        &mut self,
        token: Token,
        id: ConnectionId,
        protocol: Option<&str>,
        now: Now,
    ) -> bool;

    /// Reports that an outgoing connection could not be opened.
    fn client_failed(&mut self, token: Token, why: &str, now: Now);

    /// Marks a connection's outbox as full, until [`Event::Drain`].
    fn mark_full(&mut self, id: ConnectionId);

    /// Continues handlers that are due.
    fn turn(&mut self, now: Now);

    /// Returns the time at which [`turn`](Runtime::turn) has work to do, in monotonic milliseconds; `u64::MAX` for
    /// never.
    fn deadline_ms(&self) -> u64;

    /// Returns whether there are effects to execute.
    fn has_effects(&self) -> bool;

    /// Takes the recorded effects and leaves `empty` in their place.
    fn take_effects(&mut self, empty: &mut Effects);

    /// Takes the handler that ran longest since the last call, if it exceeded the reporting threshold.
    fn take_slow(&mut self) -> Option<SlowHandler>;

    /// Returns whether messages can be sent to a connection.
    fn is_open(&self, id: ConnectionId) -> bool;

    /// Marks a connection as closing for a reason outside the application; returns whether it was open.
    fn mark_closing(&mut self, id: ConnectionId) -> bool;

    /// Returns the open client connections.
    fn connections(&self) -> Vec<ConnectionId>;

    /// Returns whether the application can receive [`Event::Channels`] now.
    fn takes_channel_events(&self) -> bool;

    /// Returns whether handlers have to wait until the application has started.
    fn is_starting(&self) -> bool;

    /// Returns the lifecycle state of a service.
    fn service_state(&self) -> ServiceState;

    /// Returns whether the handler of [`Event::Stop`] is still running.
    fn is_stopping(&self) -> bool;

    /// Returns whether no handler of the newest code is running or suspended.
    fn is_idle(&self) -> bool;

    /// Returns whether no client is left. A closed client whose last handler is suspended still counts.
    fn has_no_clients(&self) -> bool;

    /// Returns whether replaced code is still loaded.
    fn has_older(&self) -> bool;

    /// Returns whether no handler of replaced code is running or suspended.
    fn is_older_idle(&self) -> bool;

    /// Ends replaced code that is idle or past its time limit. For each replaced code that exceeded its time limit, the
    /// result has an element: the number of handlers that were cut off.
    fn retire(&mut self, now: Now) -> Vec<usize>;

    /// Returns whether the runtime can't continue and has to be [restarted](Runtime::restart).
    fn is_broken(&self) -> bool;

    /// Returns the number of handlers of the newest code that are running, suspended or about to start.
    fn tasks(&self) -> usize;

    /// Returns the number of handlers of the newest code and all replaced code.
    fn all_tasks(&self) -> usize;

    /// Returns the memory used by the newest code, in bytes.
    fn memory_bytes(&self) -> usize;

    /// Returns the memory used by the newest code and all replaced code, in bytes.
    fn all_memory_bytes(&self) -> usize;

    /// Fails all waits, so that every request gets a response.
    fn fail_waiting(&mut self);

    /// Fails all waits and does not continue their handlers.
    fn abort(&mut self);
}
