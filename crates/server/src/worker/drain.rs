//! The server goes away: connections are told one after the other, spread over the time of the drain.

use veche_frontends::site::Role;
use veche_net::{Driver, ListenerId};

use super::Rest;

/// A drain under way: connections `next..end` by index are still to be told.
pub(super) struct Drain {
    next: u32,
    end: u32,
    pub(super) began_ms: u64,
    pub(super) within_ms: u64,
    /// Connections to other servers are told after those of our clients.
    pub(super) clients_told: bool,
}

impl Rest {
    pub(super) fn start_draining<D: Driver>(&mut self, driver: &mut D, within_ms: u64) {
        self.shared.start_draining();
        self.accept_paused = true;
        for (index, &listener) in self.listeners.iter().enumerate() {
            let id = ListenerId(index as u32);
            // Whoever watches over the server still gets answers: /health says that it goes.
            if self.role(listener) == Role::Internal {
                driver.resume_accept(id);
            } else {
                driver.pause_accept(id);
            }
        }
        let began_ms = self.shared.now.mono_ms;
        // The last fifth is for the closing handshakes.
        self.drain = Some(Drain {
            next: 0,
            end: self.slots.end(),
            began_ms,
            within_ms: within_ms - within_ms / 5,
            clients_told: false,
        });
    }

    /// Tells the connections whose time in the drain has come.
    pub(super) fn go_on_draining<D: Driver>(&mut self, driver: &mut D) {
        let Some(drain) = &mut self.drain else { return };
        let elapsed = self.shared.now.mono_ms - drain.began_ms;
        let due = match drain.within_ms {
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
