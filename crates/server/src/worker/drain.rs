//! The server goes away: applications are told first, then connections, one after the other, spread over the time of
//! the drain.

use veche_frontends::Parting;
use veche_frontends::site::Role;
use veche_net::{Driver, ListenerId};

use super::Rest;

/// A drain under way: connections `next..end` by index are still to be told.
pub(super) struct Drain {
    next: u32,
    end: u32,
    /// Connections are told from then on.
    from_ms: u64,
    pub(super) until_ms: u64,
    /// Applications have done here what they do at the end.
    apps_stopped: bool,
    /// They have so everywhere.
    pub(super) all_stopped: bool,
    /// Connections to other servers are told after those of our clients.
    pub(super) clients_told: bool,
}

/// What applications publish at the end gets so long to reach connections before those are told.
const LAST_WORDS_MS: u64 = 20;

impl Rest {
    pub(super) fn start_draining<D: Driver>(
        &mut self,
        driver: &mut D,
        within_ms: u64,
        parting: Parting,
    ) {
        self.shared.start_draining(parting);
        // While their connections are there: `app.stop` may have something to say to them.
        self.with_here(|here, shared| here.stop(shared));
        self.accept_paused = true;
        for (index, &listener) in self.listeners.iter().enumerate() {
            let id = ListenerId(index as u32);
            // Whoever watches over the server still gets answers: /health says that it goes. Unless another answers.
            if self.role(listener) == Role::Internal && parting == Parting::Stopping {
                driver.resume_accept(id);
            } else {
                driver.pause_accept(id);
            }
        }
        let began_ms = self.shared.now.mono_ms;
        let before = self.drain.take();
        self.drain = Some(Drain {
            next: 0,
            end: self.slots.end(),
            // Applications have the first quarter, unless they need less.
            from_ms: began_ms + within_ms / 4,
            // The last fifth is for the closing handshakes.
            until_ms: began_ms + (within_ms - within_ms / 5),
            apps_stopped: before.as_ref().is_some_and(|drain| drain.apps_stopped),
            all_stopped: false,
            clients_told: false,
        });
    }

    /// Tells the connections whose time in the drain has come.
    pub(super) fn go_on_draining<D: Driver>(&mut self, driver: &mut D) {
        let has_stopped = self.drain.is_some() && self.with_here(|here, _| here.has_stopped());
        let Some(drain) = &mut self.drain else { return };
        if has_stopped && !std::mem::replace(&mut drain.apps_stopped, true) {
            self.common.apps_stopped();
        }
        let now_ms = self.shared.now.mono_ms;
        if !drain.all_stopped && self.common.have_apps_stopped() {
            drain.all_stopped = true;
            drain.from_ms = drain.from_ms.min(now_ms + LAST_WORDS_MS);
        }
        if now_ms < drain.from_ms {
            return;
        }
        let elapsed = now_ms - drain.from_ms;
        let due = match drain.until_ms.saturating_sub(drain.from_ms) {
            0 => drain.end,
            within => (u64::from(drain.end) * elapsed.min(within) / within) as u32,
        };
        // The first connection needn't wait for its share of the time.
        let due = due.max(drain.end.min(1));
        let from = drain.next;
        drain.next = due.max(from);
        for index in from..due {
            if let Some(id) = self.slots.at(index) {
                self.with(driver, id, |connection, shared| {
                    if connection.listener().is_some() {
                        connection.drain(id, shared);
                    }
                });
            }
        }
    }
}
