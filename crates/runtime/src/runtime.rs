//! What runs the handlers of applications has to do.

use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use veche_calls::CallOutcome;
use veche_types::{ConnectionId, Now};

use crate::effects::{Effects, Token};
use crate::event::{Event, EventKind};
use crate::hooks::{AppHookRequest, Hook};
use crate::progress::{HandlerProgress, SlowHandler, WaitResult};
use crate::publish_gate::PublishGate;

/// What a worker offers the applications that it runs.
#[derive(Clone, Default)]
pub struct Host {
    /// Wakes the worker's thread, for what other threads end.
    pub wake: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Says whether the process is short of memory: handlers may not take more of it then.
    pub is_short: Option<Rc<dyn Fn() -> bool>>,
    /// Channels to which nothing can be published at the moment.
    pub refused: Rc<PublishGate>,
}

/// How far a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// It has not begun.
    Idle,
    /// It works, or has left work behind.
    Runs,
    /// It has ended, and nothing that it began is left.
    Over,
    /// It has ended with an error, which was logged.
    Failed,
}

/// Newer code takes over.
pub struct Replacement<'a, 'h> {
    /// The older code hears [`Event::Stop`].
    pub stops: bool,
    /// Handlers that are under way end in the older code, until this monotonic time in milliseconds.
    pub until_ms: u64,
    /// Requests of hooks that are not answered, by number: those that the older code has not begun go to the newer one.
    pub hooks: &'a mut dyn Iterator<Item = (u64, AppHookRequest<'h>)>,
    /// The time of the turn.
    pub now: Now,
}

/// One application on one worker, whatever its handlers are written in.
///
/// The worker hands over [events](Event), gives a [turn](Runtime::turn) its time, and after each call takes the
/// [effects](Effects) and carries them out in order; nothing is called back from there. What an effect with a [`Token`] has
/// led to comes back by [`answer`](Runtime::answer) or [`handle_outcome`](Runtime::replied), at most once.
///
/// Each handshake, request and hook is answered by exactly one effect, also where its handler fails, and at the latest by
/// [`fail_waiting`](Runtime::finish). A handler that fails leaves a line for the log, and
/// [`Effect::Failed`](crate::Effect::Failed) where it was a connection's.
pub trait Runtime: Sized {
    /// The application as all workers share it: read and checked.
    type Program;
    /// Why a program can't begin.
    type Error: Display;

    /// Begins to run a program.
    ///
    /// # Errors
    /// The program can't begin to run.
    fn start(program: &Self::Program, host: &Host, worker: u16) -> Result<Self, Self::Error>;

    /// Takes what the worker has to offer by now; what was offered before stays.
    fn attach(&mut self, host: &Host);

    /// Runs newer code from now on. Connections stay.
    ///
    /// # Errors
    /// The newer code can't begin: nothing has changed.
    fn replace(
        &mut self,
        program: &Self::Program,
        replacement: Replacement<'_, '_>,
    ) -> Result<(), Self::Error>;

    /// Ends running handlers and runs the same code from its beginning. Connections stay.
    ///
    /// # Errors
    /// It can't begin again: nothing runs.
    fn restart(&mut self, program: &Self::Program) -> Result<(), Self::Error>;

    /// Returns whether the application has a handler for such events.
    fn handles(&self, kind: EventKind) -> bool;

    /// Returns whether the application answers requests of that hook.
    fn decides_on(&self, hook: Hook) -> bool;

    /// Hands an event over.
    fn handle_event(&mut self, event: Event<'_>, now: Now) -> HandlerProgress;

    /// What was waited for with a token is done or has failed.
    fn answer(&mut self, token: Token, answer: &WaitResult, now: Now);

    /// What was asked with a token has an outcome.
    fn handle_outcome(&mut self, token: Token, outcome: CallOutcome, now: Now);

    /// A connection that was dialed with a token is open; `false` where it is not wanted any more.
    fn client_opened(
        &mut self,
        token: Token,
        id: ConnectionId,
        protocol: Option<&str>,
        now: Now,
    ) -> bool;

    /// A connection that was dialed with a token did not come to be.
    fn client_failed(&mut self, token: Token, why: &str, now: Now);

    /// More waits to be sent to a connection than should, until [`Event::Drain`].
    fn mark_full(&mut self, id: ConnectionId);

    /// Continues what has become due.
    fn turn(&mut self, now: Now);

    /// Returns when [`turn`](Runtime::turn) has something to do, in monotonic milliseconds; `u64::MAX` for never.
    fn deadline_ms(&self) -> u64;

    /// Returns whether there are effects to carry out.
    fn has_effects(&self) -> bool;

    /// Takes the effects so far, in exchange for empty ones.
    fn take_effects(&mut self, empty: &mut Effects);

    /// Takes the handler that ran for longest since the last call, if one ran for long.
    fn take_slow(&mut self) -> Option<SlowHandler>;

    /// Returns whether messages can be sent to a connection.
    fn is_open(&self, id: ConnectionId) -> bool;

    /// Notes that a connection is being closed by another side than the application; returns whether it was open.
    fn mark_closing(&mut self, id: ConnectionId) -> bool;

    /// Returns the connections of clients that are open.
    fn connections(&self) -> Vec<ConnectionId>;

    /// Returns whether the application can be handed [`Event::Channels`] now.
    fn takes_channel_events(&self) -> bool;

    /// Returns whether handlers have to wait until the application has begun.
    fn is_starting(&self) -> bool;

    /// Returns how far a service is.
    fn service_state(&self) -> ServiceState;

    /// Returns whether the handler of [`Event::Stop`] has not ended.
    fn is_stopping(&self) -> bool;

    /// Returns whether nothing is under way in the newest code.
    fn is_idle(&self) -> bool;

    /// Returns whether no client is known, not even one whose last handler is under way.
    fn has_no_clients(&self) -> bool;

    /// Returns whether older code has not ended.
    fn has_older(&self) -> bool;

    /// Returns whether nothing is under way in older code.
    fn is_older_idle(&self) -> bool;

    /// Ends older code that has nothing under way any more or whose time is over; returns for each that was late how many
    /// handlers were under way.
    fn retire(&mut self, now: Now) -> Vec<usize>;

    /// Returns whether it can't go on and has to be [restarted](Runtime::restart).
    fn is_broken(&self) -> bool;

    /// Returns how many handlers are under way or about to begin in the newest code.
    fn tasks(&self) -> usize;

    /// Returns how many are in any code.
    fn all_tasks(&self) -> usize;

    /// Returns the memory of the newest code in bytes.
    fn memory_bytes(&self) -> usize;

    /// Returns the memory of all code in bytes.
    fn all_memory_bytes(&self) -> usize;

    /// Fails everything that waits, so that no caller is left without an answer.
    fn fail_waiting(&mut self);

    /// The same, and handlers that are under way do not go on.
    fn abort(&mut self);
}
