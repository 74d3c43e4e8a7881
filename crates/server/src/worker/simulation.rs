//! A worker with a simulated network and clock.

use veche_net::Driver;
use veche_worker::TurnLimits;

use super::clock::WallClock;
use super::{WorkerApps, WorkerLoop};

impl<D: Driver, A: WorkerApps> WorkerLoop<D, A> {
    /// Sets the wall time to `wall_ms`, and maps the driver's listeners to the configured ones in order. Periodic
    /// maintenance is disabled, and certificates are read on the worker's thread.
    pub(crate) fn simulate(&mut self, wall_ms: u64) {
        let Self { driver, rest } = self;
        rest.clock = WallClock::fixed(driver.now_ms(), wall_ms);
        rest.worker.set_limits(TurnLimits {
            maintains: false,
            ..TurnLimits::default()
        });
        rest.trust_loader.is_own = true;
        rest.listeners = (0..rest.worker.shared().config.listeners.len() as u16).collect();
    }

    /// Returns the simulated network.
    pub(crate) fn network(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Returns the time at which applications have work to do, in monotonic milliseconds; `u64::MAX` for never.
    pub(crate) fn apps_deadline_ms(&self) -> u64 {
        let apps = self.rest.worker.shared().apps.as_ref();
        apps.map_or(u64::MAX, |apps| apps.deadline_ms())
    }
}
