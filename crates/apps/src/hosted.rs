//! One enumeration of all kinds of runtimes, so that delivering a message costs a branch instead of a virtual call.

use std::sync::Arc;

use veche_calls::CallOutcome;
use veche_pool::Workers;
use veche_remote::PerEvent;
use veche_runtime::hooks::Hook;
use veche_runtime::{
    Effects, Event, EventKind, HandlerProgress, Host, Replacement, Runtime, ServiceState,
    SlowHandler, Token, WaitResult,
};
use veche_script::{Script, Snapshots};
use veche_store::Store;
use veche_types::{ConnectionId, Now, WorkerId};

/// The runtime of one application on one worker.
#[expect(
    clippy::large_enum_variant,
    reason = "most applications use Lua, and a box would cost each of their messages another pointer"
)]
pub(super) enum HostedRuntime {
    /// A Lua VM in this process.
    Script(Script),
    /// A script behind FastCGI, such as php-fpm. Each event becomes a request to it.
    PerEvent(Box<PerEvent>),
    /// Worker processes that run the handlers.
    Workers(Box<Workers>),
}

/// The program of an application, from which runtimes are created.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// The code of a Lua application.
    Script(Box<veche_script::Program>),
    /// A script behind FastCGI, with its pool and the events that it handles.
    PerEvent(Arc<veche_remote::Program>),
    /// A command that is run in worker processes.
    Workers(veche_pool::Program),
}

/// The reason why a program can't be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// The script can't be loaded.
    #[error(transparent)]
    Script(<Script as Runtime>::Error),
    /// The processes can't be started.
    #[error("{0}")]
    Workers(String),
    /// A reload would change the runtime of an application that keeps its name.
    #[error("the runtime of an app can't change in a reload: rename the app or restart the server")]
    OtherRuntime,
}

impl Program {
    /// Returns the application's name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Script(program) => &program.app.name,
            Self::PerEvent(program) => &program.name,
            Self::Workers(program) => &program.options().name,
        }
    }

    /// Returns whether both programs behave identically, so that a reload need not replace one with the other.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Script(program), Self::Script(other)) => program.is_same(other),
            (Self::PerEvent(program), Self::PerEvent(other)) => program == other,
            (Self::Workers(program), Self::Workers(other)) => program.is_same(other),
            _ => false,
        }
    }

    /// Returns the Lua program; `None` if the application is not in Lua.
    pub(super) fn script_mut(&mut self) -> Option<&mut veche_script::Program> {
        match self {
            Self::Script(program) => Some(program),
            Self::PerEvent(_) => None,
            Self::Workers(_) => None,
        }
    }

    /// For an application in Lua, sets where snapshots of tables are stored.
    pub(super) fn set_snapshots(&mut self, snapshots: &Snapshots) {
        if let Some(program) = self.script_mut() {
            program.app.limits.snapshots = snapshots.clone();
        }
    }

    /// For an application in Lua, sets the store and the seed of random numbers.
    pub(super) fn seed(&mut self, store: &Arc<Store>, seed: u64) {
        if let Some(program) = self.script_mut() {
            program.store = Arc::clone(store);
            program.seed = Some(seed);
        }
    }
}

/// Expands to a `match` that evaluates the same expression for every variant of [`HostedRuntime`].
macro_rules! each {
    ($of:expr, $runtime:ident => $call:expr) => {
        match $of {
            HostedRuntime::Script($runtime) => $call,
            HostedRuntime::PerEvent($runtime) => $call,
            HostedRuntime::Workers($runtime) => $call,
        }
    };
}

impl Runtime for HostedRuntime {
    type Program = Program;
    type Error = StartError;

    fn start(program: &Program, host: &Host, worker: WorkerId) -> Result<Self, StartError> {
        Ok(match program {
            Program::Script(program) => {
                let script = Script::start(program, host, worker);
                Self::Script(script.map_err(StartError::Script)?)
            }
            Program::PerEvent(program) => {
                let Ok(per_event) = PerEvent::start(program, host, worker);
                Self::PerEvent(Box::new(per_event))
            }
            Program::Workers(program) => {
                let workers = Workers::start(program, host, worker);
                Self::Workers(Box::new(workers.map_err(StartError::Workers)?))
            }
        })
    }

    fn attach(&mut self, host: &Host) {
        each!(self, runtime => runtime.attach(host));
    }

    fn replace(
        &mut self,
        program: &Program,
        replacement: Replacement<'_, '_>,
    ) -> Result<(), StartError> {
        match (self, program) {
            (Self::Script(runtime), Program::Script(program)) => {
                let result = runtime.replace(program, replacement);
                result.map_err(StartError::Script)
            }
            (Self::PerEvent(runtime), Program::PerEvent(program)) => {
                let Ok(()) = runtime.replace(program, replacement);
                Ok(())
            }
            (Self::Workers(runtime), Program::Workers(program)) => {
                let result = runtime.replace(program, replacement);
                result.map_err(StartError::Workers)
            }
            _ => Err(StartError::OtherRuntime),
        }
    }

    fn restart(&mut self, program: &Program) -> Result<(), StartError> {
        match (self, program) {
            (Self::Script(runtime), Program::Script(program)) => {
                runtime.restart(program).map_err(StartError::Script)
            }
            (Self::PerEvent(runtime), Program::PerEvent(program)) => {
                let Ok(()) = runtime.restart(program);
                Ok(())
            }
            (Self::Workers(runtime), Program::Workers(program)) => {
                runtime.restart(program).map_err(StartError::Workers)
            }
            _ => Err(StartError::OtherRuntime),
        }
    }

    fn handles(&self, kind: EventKind) -> bool {
        each!(self, runtime => runtime.handles(kind))
    }

    fn decides_on(&self, hook: Hook) -> bool {
        each!(self, runtime => runtime.decides_on(hook))
    }

    fn has_new_hooks(&mut self) -> bool {
        each!(self, runtime => runtime.has_new_hooks())
    }

    #[inline]
    fn handle_event(&mut self, event: Event<'_>, now: Now) -> HandlerProgress {
        each!(self, runtime => runtime.handle_event(event, now))
    }

    fn answer(&mut self, token: Token, answer: &WaitResult, now: Now) {
        each!(self, runtime => runtime.answer(token, answer, now));
    }

    fn handle_outcome(&mut self, token: Token, outcome: CallOutcome, now: Now) {
        each!(self, runtime => runtime.handle_outcome(token, outcome, now));
    }

    fn client_opened(
        &mut self,
        token: Token,
        id: ConnectionId,
        protocol: Option<&str>,
        now: Now,
    ) -> bool {
        each!(self, runtime => runtime.client_opened(token, id, protocol, now))
    }

    fn client_failed(&mut self, token: Token, why: &str, now: Now) {
        each!(self, runtime => runtime.client_failed(token, why, now));
    }

    fn mark_full(&mut self, id: ConnectionId) {
        each!(self, runtime => runtime.mark_full(id));
    }

    fn turn(&mut self, now: Now) {
        each!(self, runtime => runtime.turn(now));
    }

    fn deadline_ms(&self) -> u64 {
        each!(self, runtime => runtime.deadline_ms())
    }

    fn has_effects(&self) -> bool {
        each!(self, runtime => runtime.has_effects())
    }

    fn take_effects(&mut self, empty: &mut Effects) {
        each!(self, runtime => runtime.take_effects(empty));
    }

    fn take_slow(&mut self) -> Option<SlowHandler> {
        each!(self, runtime => runtime.take_slow())
    }

    fn is_open(&self, id: ConnectionId) -> bool {
        each!(self, runtime => runtime.is_open(id))
    }

    fn mark_closing(&mut self, id: ConnectionId) -> bool {
        each!(self, runtime => runtime.mark_closing(id))
    }

    fn connections(&self) -> Vec<ConnectionId> {
        each!(self, runtime => runtime.connections())
    }

    fn takes_channel_events(&self) -> bool {
        each!(self, runtime => runtime.takes_channel_events())
    }

    fn is_starting(&self) -> bool {
        each!(self, runtime => runtime.is_starting())
    }

    fn service_state(&self) -> ServiceState {
        each!(self, runtime => runtime.service_state())
    }

    fn is_stopping(&self) -> bool {
        each!(self, runtime => runtime.is_stopping())
    }

    fn is_idle(&self) -> bool {
        each!(self, runtime => runtime.is_idle())
    }

    fn has_no_clients(&self) -> bool {
        each!(self, runtime => runtime.has_no_clients())
    }

    fn has_older(&self) -> bool {
        each!(self, runtime => runtime.has_older())
    }

    fn is_older_idle(&self) -> bool {
        each!(self, runtime => runtime.is_older_idle())
    }

    fn retire(&mut self, now: Now) -> Vec<usize> {
        each!(self, runtime => runtime.retire(now))
    }

    fn is_broken(&self) -> bool {
        each!(self, runtime => runtime.is_broken())
    }

    fn tasks(&self) -> usize {
        each!(self, runtime => runtime.tasks())
    }

    fn all_tasks(&self) -> usize {
        each!(self, runtime => runtime.all_tasks())
    }

    fn memory_bytes(&self) -> usize {
        each!(self, runtime => runtime.memory_bytes())
    }

    fn all_memory_bytes(&self) -> usize {
        each!(self, runtime => runtime.all_memory_bytes())
    }

    fn fail_waiting(&mut self) {
        each!(self, runtime => runtime.fail_waiting());
    }

    fn abort(&mut self) {
        each!(self, runtime => runtime.abort());
    }
}
