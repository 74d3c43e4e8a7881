//! New connections: who gets in, and when accepting waits because the cap is reached.

use std::net::IpAddr;
use std::sync::Arc;

use tracing::{debug, warn};
use veche_frontends::Connection;
use veche_frontends::access::Access;
use veche_frontends::site::Role;
use veche_frontends::stats::{SealFailure, TurnedAway};
use veche_hub::SessionId;
use veche_net::{Driver, ListenerId, TransportId};

use super::preface::Preface;
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
        let may_come = match self.access(listener).may_introduce(peer) {
            true => self.may_come(listener, peer),
            false => Err(TurnedAway::NotAProxy),
        };
        if let Err(why) = may_come {
            // Not a byte of it is read, and nothing of it is kept.
            debug!(target: LOG, %peer, ?why, "turned away");
            stats.turn_away(why);
            return driver.close(id);
        }
        stats.connections.add(1);
        let at_cap = self.common.connection_opened();
        let connection = Connection::accept(session(id), listener, peer, &mut self.shared);
        let begin_by_ms = self.begin_by_ms(&connection);
        let has_preface = self.access(listener).proxy_protocol;
        let slot = self.slots.insert(session(id), connection);
        slot.settle(driver, id);
        if has_preface {
            slot.preface = Some(Preface::new(listener, begin_by_ms));
            slot.arm(driver, id, begin_by_ms);
        } else {
            self.let_in(driver, id, listener, peer, begin_by_ms);
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

    /// Counts a connection among those of its client, and has it speak TLS where its listener does. `false`: there is no
    /// room for it, and it is being closed.
    pub(super) fn let_in<D: Driver>(
        &mut self,
        driver: &mut D,
        id: TransportId,
        listener: u16,
        client: IpAddr,
        begin_by_ms: u64,
    ) -> bool {
        let counts = self.counts(listener, client);
        let seal = self.seal_for(listener, begin_by_ms);
        let Some(slot) = self.slots.find(session(id)) else {
            return false;
        };
        let may_stay = match seal {
            _ if counts && !slot.connection.count_as(client, &self.shared) => {
                debug!(target: LOG, peer = %client, "too many connections of this address");
                self.shared.stats.turn_away(TurnedAway::Connections);
                false
            }
            Ok(None) => true,
            Ok(Some(seal)) => {
                slot.arm(driver, id, seal.until_ms());
                slot.seal = Some(seal);
                true
            }
            Err(()) => false,
        };
        if !may_stay {
            driver.close(id);
        }
        may_stay
    }

    /// When a connection that was just accepted has to have come as far as its first byte of HTTP or of a line.
    fn begin_by_ms(&self, connection: &Connection) -> u64 {
        let limit_ms = self.shared.site.limits.handshake_timeout_ms;
        connection
            .deadline_ms()
            .min(self.shared.now.mono_ms + limit_ms)
    }

    /// A timer of a connection: whether something that comes before its own bytes is late, and with it the connection.
    pub(super) fn is_late(&mut self, id: SessionId) -> bool {
        let now_ms = self.shared.now.mono_ms;
        let slot = self.slots.find(id);
        let Some(slot) = slot.filter(|slot| slot.begin_by_ms() <= now_ms) else {
            return false;
        };
        let why = if slot.preface.take().is_some() {
            self.shared.stats.turn_away(TurnedAway::ProxyHeader);
            "no PROXY header in time"
        } else {
            if let Some(seal) = &mut slot.seal {
                seal.give_up();
            }
            self.shared.stats.seal_failed(SealFailure::TimedOut);
            "the handshake took too long"
        };
        debug!(target: LOG, worker = self.me, peer = %slot.connection.peer, "{why}");
        slot.connection.failed(id, why, &mut self.shared);
        true
    }

    /// Whether a peer may connect at all, or one for whom a proxy has.
    pub(super) fn may_come(&self, listener: u16, peer: IpAddr) -> Result<(), TurnedAway> {
        if !self.access(listener).admits_peer(peer) {
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

    fn access(&self, listener: u16) -> &Access {
        &self.shared.site.listeners[listener as usize].access
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
