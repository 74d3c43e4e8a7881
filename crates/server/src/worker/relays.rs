//! Commands that clients without a WebSocket send beside their responses: any worker may get them, and one has the
//! response.

use veche_frontends::Relay;
use veche_mailbox::Class;
use veche_net::Driver;

use super::Rest;
use super::mail::{APP_CREDITS, Letter};

impl Rest {
    /// Hands over those whose response is here.
    pub(super) fn hand_relays<D: Driver>(&mut self, driver: &mut D) {
        for _ in 0..self.shared.ports.relays.len() {
            let Some(relay) = self.shared.ports.relays.pop_front() else {
                return;
            };
            match usize::from(relay.to.worker.0) == self.me {
                true => self.relayed(driver, &relay),
                false => self.shared.ports.relays.push_back(relay),
            }
        }
    }

    pub(super) fn relayed<D: Driver>(&mut self, driver: &mut D, relay: &Relay) {
        let id = relay.to.session;
        self.with(driver, id, |connection, shared| {
            connection.relayed(id, relay, shared)
        });
    }

    /// Posts the others, with a part of the credits alone, as applications do; the rest waits.
    pub(super) fn post_relays(&mut self) {
        let lanes = self.shared.ports.post.lanes.len();
        for _ in 0..self.shared.ports.relays.len() {
            let Some(relay) = self.shared.ports.relays.pop_front() else {
                return;
            };
            let to = usize::from(relay.to.worker.0);
            if to >= lanes || to == self.me {
                // A worker that there is not: somebody has made it up.
                continue;
            }
            if self.mailbox.unfinished(to) >= APP_CREDITS {
                self.shared.ports.relays.push_back(relay);
                continue;
            }
            let posted = self.mailbox.post(to, Class::Data, Letter::Relay(relay));
            debug_assert!(posted.is_ok(), "the lane to worker {to} has fewer credits");
        }
    }
}
