//! Services: a VM whose script runs in the background without clients.
//!
//! The caller decides when a failed service restarts.

use veche_runtime::ServiceState;

use super::{HandlerName, Vm};
use crate::Now;
use crate::raw::Argument;
use crate::role::AppRole;
use crate::task::TaskOwner;

impl Vm {
    /// Calls a service's `run`; once per VM.
    pub fn serve(&mut self, now: Now) {
        self.set_now(now);
        let AppRole::Service {
            instance,
            instances,
        } = self.role
        else {
            return;
        };
        let Some(function) = self.handlers[HandlerName::Run as usize] else {
            return;
        };
        self.run = ServiceState::Runs;
        let arguments = [instance, instances].map(|number| Argument::Number(number.into()));
        let coroutine = self.machine.prepare(function, &arguments);
        self.run(coroutine, TaskOwner::Run, &[]);
        self.settle();
    }

    /// Returns the service's state.
    #[must_use]
    pub fn service(&self) -> ServiceState {
        match self.run {
            ServiceState::Over if !self.is_at_rest() || self.has_clients() => ServiceState::Runs,
            run => run,
        }
    }

    /// Returns whether no coroutine is suspended or about to start.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.tasks.len() == 0 && self.postponed.is_empty() && !self.context.is_busy()
    }

    /// Returns whether no client connection is left. A connection whose last handler is suspended
    /// still counts.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        let placed = self.locals.iter().flatten();
        placed
            .chain(self.leaving.values())
            .all(|local| local.is_client)
    }

    /// Returns whether `app.stop` is still running.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Ends all coroutines at once without resuming them.
    pub fn abort(&mut self) {
        self.finish();
        for task in self.tasks.take_all() {
            self.machine.discard(task.coroutine);
        }
        for coroutine in self.context.clear() {
            self.machine.discard(coroutine);
        }
        self.postponed.clear();
        self.is_stopping = false;
    }
}
