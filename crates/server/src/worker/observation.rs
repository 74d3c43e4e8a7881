//! Gives the tests of the module `glue` access to a worker.

use veche_frontends::{Context, Now};
use veche_net::Driver;
use veche_worker::{TurnLimits, TurnState};

use super::clock::WallClock;
use super::host::HookExecutor;
use super::{WorkerApps, WorkerLoop};

impl<D: Driver, A: WorkerApps> WorkerLoop<D, A> {
    /// Places the worker in a simulated world at `now` with the given turn limits.
    pub(crate) fn enter(&mut self, now: Now, limits: TurnLimits) {
        self.simulate(now.wall_ms);
        self.rest.clock = WallClock::fixed(now.mono_ms, now.wall_ms);
        self.rest.worker.set_limits(limits);
    }

    /// Passes all hook requests to an executor of the test.
    pub(crate) fn set_hook_executor(&mut self, hook_executor: impl HookExecutor + 'static) {
        self.rest.hook_executor = Some(Box::new(hook_executor));
    }

    /// Handles the events that the driver has now, without waiting. A test may call this several
    /// times per turn.
    pub(crate) fn deliver_at_once(&mut self) {
        self.poll_driver(Some(0))
            .expect("the simulated network must not fail");
    }

    pub(crate) fn network_ref(&self) -> &D {
        &self.driver
    }

    /// Returns the connections' shared context.
    pub(crate) fn shared(&self) -> &Context {
        self.rest.worker.shared()
    }

    /// Returns the connections' shared context, to be changed by a test.
    pub(crate) fn shared_mut(&mut self) -> &mut Context {
        self.rest.worker.shared_mut()
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.rest.worker.connections()
    }

    /// Returns the non-empty queues and counters of the worker.
    pub(crate) fn pending_work(&self) -> Vec<(&'static str, u64)> {
        self.rest.worker.pending_work().collect()
    }

    /// Returns when the next turn is due: now, at the next event, or after some time.
    pub(crate) fn state(&self) -> TurnState {
        self.rest.worker.state()
    }

    /// Passes the worker's applications to `call`; returns `None` if it has none.
    pub(crate) fn with_apps<R>(
        &mut self,
        call: impl FnOnce(&mut A, &mut Context) -> R,
    ) -> Option<R> {
        self.rest.worker.with_apps(call)
    }
}
