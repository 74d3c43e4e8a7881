//! New connections: who gets in, and when accepting waits because the cap is reached.

use std::net::IpAddr;
use std::sync::Arc;

use tracing::{debug, warn};
use veche_frontends::Connection;
use veche_frontends::site::Role;
use veche_frontends::stats::TurnedAway;
use veche_net::{Driver, ListenerId, TransportId};

use super::{LOG, Rest, session};

impl Rest {
    pub(super) fn accepted<D: Driver>(
        &mut self,
        driver: &mut D,
        id: TransportId,
        listener: ListenerId,
        peer: IpAddr,
    ) {
        let stats = Arc::clone(&self.shared.stats);
        stats.accepted.add(1);
        let listener = self.listeners[listener.0 as usize];
        if let Err(why) = self.may_come(listener, peer) {
            // Not a byte of it is read, and nothing of it is kept.
            debug!(target: LOG, %peer, ?why, "turned away");
            stats.turn_away(why);
            return driver.close(id);
        }
        stats.connections.add(1);
        let at_cap = self.common.connection_opened();
        let mut connection = Connection::accept(session(id), listener, peer, &mut self.shared);
        let has_room = !self.counts(listener, peer) || connection.count_as(peer, &self.shared);
        let seal = self.seal_for(listener, &connection);
        let slot = self.slots.insert(session(id), connection);
        slot.settle(driver, id);
        match seal {
            Ok(None) => {}
            Ok(Some(seal)) => {
                slot.arm(driver, id, seal.until_ms());
                slot.seal = Some(seal);
            }
            Err(()) => driver.close(id),
        }
        if !has_room {
            debug!(target: LOG, %peer, "too many connections of this address");
            stats.turn_away(TurnedAway::Connections);
            driver.close(id);
        }
        if at_cap && !self.accept_paused {
            self.common.warn_rarely(
                || warn!(target: LOG, "the connection cap is reached: accepting pauses"),
            );
            self.pause_accepting(driver);
            // The others would learn of it by accepting one more each.
            self.common.wake_workers();
        }
    }

    fn may_come(&self, listener: u16, peer: IpAddr) -> Result<(), TurnedAway> {
        let access = &self.shared.site.listeners[listener as usize].access;
        if !access.admits_peer(peer) {
            return Err(TurnedAway::Network);
        }
        let now_ms = self.shared.now.mono_ms;
        if self.counts(listener, peer) && !self.common.addresses.may_begin(peer, now_ms) {
            return Err(TurnedAway::Rate);
        }
        Ok(())
    }

    /// Whether a connection is its peer's: the back end is one address for everybody, and a proxy is as well.
    fn counts(&self, listener: u16, peer: IpAddr) -> bool {
        let listener = &self.shared.site.listeners[listener as usize];
        listener.role == Role::Public && !listener.access.trusts(peer)
    }

    pub(super) fn role(&self, listener: u16) -> Role {
        self.shared.site.listeners[listener as usize].role
    }

    /// At the cap browsers wait; the back end and the operator still get in, on the descriptors kept for them.
    pub(super) fn pause_accepting<D: Driver>(&mut self, driver: &mut D) {
        self.accept_paused = true;
        self.shared.stats.accepts_stalled.add(1);
        for (index, &listener) in self.listeners.iter().enumerate() {
            if self.role(listener) == Role::Public {
                driver.pause_accept(ListenerId(index as u32));
            }
        }
    }

    /// Pauses or resumes accepting as the process comes to its cap or below it.
    pub(super) fn settle_accepting<D: Driver>(&mut self, driver: &mut D) {
        if self.drain.is_some() {
            return;
        }
        if !self.accept_paused && self.common.is_at_cap() {
            self.pause_accepting(driver);
        } else if self.accept_paused && self.common.is_below_cap() {
            self.accept_paused = false;
            (0..self.listeners.len() as u32)
                .for_each(|index| driver.resume_accept(ListenerId(index)));
        }
    }
}
