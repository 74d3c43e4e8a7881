//! A worker whose sockets and clock are a test's.

use veche_net::Driver;
use veche_worker::TurnLimits;

use super::clock::WallClock;
use super::{WorkerApps, WorkerLoop};

impl<D: Driver, A: WorkerApps> WorkerLoop<D, A> {
    /// Makes it one of a test: it is `wall_ms` now, spare memory is not looked for, and the driver's listeners are the
    /// site's, in order.
    pub(crate) fn simulate(&mut self, wall_ms: u64) {
        let Self { driver, rest } = self;
        rest.clock = WallClock::fixed(driver.now_ms(), wall_ms);
        rest.worker.set_limits(TurnLimits {
            maintains: false,
            ..TurnLimits::default()
        });
        rest.readings.is_own = true;
        rest.listeners = (0..rest.worker.shared().config.listeners.len() as u16).collect();
    }

    /// The network.
    pub(crate) fn network(&mut self) -> &mut D {
        &mut self.driver
    }

    /// When the applications have something to do, in monotonic milliseconds; `u64::MAX` for never.
    pub(crate) fn apps_deadline_ms(&self) -> u64 {
        let apps = self.rest.worker.shared().apps.as_ref();
        apps.map_or(u64::MAX, |apps| apps.deadline_ms())
    }
}
