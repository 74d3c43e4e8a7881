//! What a test of the worker's glue does with it from outside: see `glue`.

use veche_frontends::{Context, Now};
use veche_net::Driver;
use veche_worker::{TurnLimits, TurnState};

use super::clock::WallClock;
use super::host::HookExecutor;
use super::{WorkerApps, WorkerLoop};

impl<D: Driver, A: WorkerApps> WorkerLoop<D, A> {
    /// Makes it one of a world where it is `now`, with these limits of a turn.
    pub(crate) fn enter(&mut self, now: Now, limits: TurnLimits) {
        self.simulate(now.wall_ms);
        self.rest.clock = WallClock::fixed(now.mono_ms, now.wall_ms);
        self.rest.worker.set_limits(limits);
    }

    /// Questions go there instead of to the hooks.
    pub(crate) fn decide_by(&mut self, decider: impl HookExecutor + 'static) {
        self.rest.decider = Some(Box::new(decider));
    }

    /// Takes the events that the driver has now: a turn that waits several times.
    pub(crate) fn deliver_at_once(&mut self) {
        self.poll_driver(Some(0))
            .expect("a network that does not fail");
    }

    /// The network, to look at.
    pub(crate) fn network_ref(&self) -> &D {
        &self.driver
    }

    /// What the connections share.
    pub(crate) fn shared(&self) -> &Context {
        self.rest.worker.shared()
    }

    /// The same to be changed.
    pub(crate) fn shared_mut(&mut self) -> &mut Context {
        self.rest.worker.shared_mut()
    }

    /// How many connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.rest.worker.connections()
    }

    /// When the next turn has to begin.
    pub(crate) fn state(&self) -> TurnState {
        self.rest.worker.state()
    }

    /// Calls its applications.
    pub(crate) fn with_apps<R>(
        &mut self,
        call: impl FnOnce(&mut A, &mut Context) -> R,
    ) -> Option<R> {
        self.rest.worker.with_apps(call)
    }
}
