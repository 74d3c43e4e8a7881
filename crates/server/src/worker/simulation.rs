//! A worker whose sockets and clock are a test's.

use veche_net::Simulated;

use super::Worker;
use super::clock::Clock;

impl Worker<Simulated> {
    /// Makes it one of a test: it is `wall_ms` now, nobody looks for spare memory, and each of the site's listeners is
    /// one to be dialed, in order.
    pub(crate) fn simulate(&mut self, wall_ms: u64) {
        let Self { driver, rest } = self;
        let now_ms = veche_net::Driver::now_ms(driver);
        rest.clock = Clock::fixed(now_ms, wall_ms);
        rest.trim_at_ms = u64::MAX;
        rest.readings.is_own = true;
        for listener in 0..rest.shared.site.listeners.len() {
            driver.add_listener();
            rest.listeners.push(listener as u16);
        }
    }

    /// The network.
    pub(crate) fn network(&mut self) -> &mut Simulated {
        &mut self.driver
    }

    /// When the applications have something to do, in monotonic milliseconds; `u64::MAX` for never.
    pub(crate) fn apps_deadline_ms(&self) -> u64 {
        let apps = self.rest.shared.apps.as_ref();
        apps.map_or(u64::MAX, |apps| apps.deadline_ms())
    }
}
