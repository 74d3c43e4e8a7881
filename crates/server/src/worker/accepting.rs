//! Accepts connections: decides which to admit, and pauses accepting at the connection limit.

use std::net::IpAddr;
use std::sync::Arc;

use tracing::{debug, warn};
use veche_frontends::access::ListenerAccess;
use veche_frontends::frontend_config::ListenerRole;
use veche_frontends::stats::{AcceptRejection, TlsHandshakeFailure};
use veche_net::{ConnectionId, Driver, ListenerId};
use veche_worker::AcceptPolicy;

use super::proxy_header::PendingProxyHeader;
use super::transport::ConnectionTransport;
use super::{LOG, WorkerApps, WorkerState};

impl<A: WorkerApps> WorkerState<A> {
    pub(super) fn accepted<D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        listener: ListenerId,
        peer: IpAddr,
    ) {
        let stats = Arc::clone(&self.worker.shared().stats);
        stats.accepted.add(1);
        let listener = self.listeners[listener.0 as usize];
        let may_come = match self.access(listener).may_send_proxy_header(peer) {
            true => self.check_admission(listener, peer),
            false => Err(AcceptRejection::NotAProxy),
        };
        if let Err(why) = may_come {
            // The server has read nothing from the connection and stores nothing for it, so closing it is enough.
            debug!(target: LOG, %peer, ?why, "refused a connection");
            stats.reject_accept(why);
            return driver.close(id);
        }
        let at_cap = self.common.connection_opened();
        self.worker
            .handle_accepted(id, listener, peer, ConnectionTransport::default());
        let begin_by_ms = self.begin_by_ms(id);
        if self.access(listener).proxy_protocol {
            if let Some(transport) = self.worker.transport_mut(id) {
                *transport = ConnectionTransport::proxy_header(PendingProxyHeader::new(
                    listener,
                    begin_by_ms,
                ));
            }
            self.worker.arm(id, begin_by_ms);
        } else {
            self.admit(driver, id, listener, peer, begin_by_ms);
        }
        if at_cap && self.accepting == AcceptPolicy::Everything {
            self.common.warn_throttled(
                || warn!(target: LOG, "the connection limit is reached: no longer accepting connections"),
            );
            self.set_accepting(driver, AcceptPolicy::BackEndsOnly);
            // The other workers are woken so that they pause too. Otherwise each would accept one
            // more connection before it checks the connection limit.
            self.common.wake_workers();
        }
    }

    /// Counts a connection towards the limit of its client's address, and starts TLS if the listener has it. Returns
    /// `false` if the connection was rejected and is being closed.
    pub(super) fn admit<D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        listener: u16,
        client: IpAddr,
        begin_by_ms: u64,
    ) -> bool {
        let counts = self.counts(listener, client);
        let tls_layer = self.tls_layer_for(listener, begin_by_ms);
        let has_memory = self.has_memory_for(listener);
        let may_stay = match tls_layer {
            _ if counts && !self.worker.count_address(id, client) => {
                debug!(target: LOG, peer = %client, "refused a connection: too many connections from this address");
                self.worker
                    .shared()
                    .stats
                    .reject_accept(AcceptRejection::Connections);
                false
            }
            Ok(None) => true,
            // Memory is short, and a TLS handshake takes tens of kilobytes, so the connection is rejected. A connection
            // without TLS is accepted, and its request is answered with 503.
            Ok(Some(_)) if !has_memory => {
                self.worker
                    .shared()
                    .stats
                    .reject_accept(AcceptRejection::Memory);
                false
            }
            Ok(Some(tls_layer)) => {
                self.worker.arm(id, tls_layer.until_ms());
                if let Some(transport) = self.worker.transport_mut(id) {
                    *transport = ConnectionTransport::tls(tls_layer);
                }
                true
            }
            Err(()) => false,
        };
        if !may_stay {
            driver.close(id);
        }
        may_stay
    }

    /// Returns whether there is memory for a TLS handshake on a listener. A shortage affects only public listeners.
    pub(super) fn has_memory_for(&self, listener: u16) -> bool {
        !self.worker.shared().is_short_of_memory || self.role(listener) != ListenerRole::Public
    }

    /// Returns the deadline for the first byte of a request or line on a new connection, in monotonic milliseconds.
    fn begin_by_ms(&self, id: ConnectionId) -> u64 {
        let shared = self.worker.shared();
        let limit_ms = shared.now.mono_ms + shared.config.limits.handshake_timeout_ms;
        let connection = self.worker.connection(id);
        connection.map_or(limit_ms, |connection| {
            connection.deadline_ms().min(limit_ms)
        })
    }

    /// Sets a connection's timer to the deadline of its PROXY header or its TLS handshake.
    pub(super) fn arm_opening(&mut self, id: ConnectionId) {
        if let Some(transport) = self.worker.transport_mut(id) {
            let due_ms = transport.opens_by_ms();
            self.worker.arm(id, due_ms);
        }
    }

    /// If a connection's PROXY header or TLS handshake has missed its deadline, abandons and counts it, and returns the
    /// reason. Otherwise returns `None`.
    pub(super) fn timeout_reason(&mut self, id: ConnectionId) -> Option<&'static str> {
        let now_ms = self.worker.shared().now.mono_ms;
        let transport = self.worker.transport_mut(id)?;
        if transport.opens_by_ms() > now_ms {
            return None;
        }
        let why = if transport.proxy_header_mut().is_some() {
            transport.take();
            let stats = &self.worker.shared().stats;
            stats.reject_accept(AcceptRejection::ProxyHeader);
            "no PROXY header arrived in time"
        } else {
            if let Some(tls_layer) = transport.tls_layer_mut() {
                tls_layer.give_up();
            }
            let stats = &self.worker.shared().stats;
            stats.tls_failed(TlsHandshakeFailure::TimedOut);
            "the TLS handshake took too long"
        };
        if let Some(connection) = self.worker.connection(id) {
            debug!(target: LOG, worker = self.index(), peer = %connection.peer, "{why}");
        }
        Some(why)
    }

    /// Checks whether a peer, direct or behind a proxy, may connect.
    pub(super) fn check_admission(
        &self,
        listener: u16,
        peer: IpAddr,
    ) -> Result<(), AcceptRejection> {
        if !self.access(listener).admits_peer(peer) {
            return Err(AcceptRejection::Network);
        }
        let now_ms = self.worker.shared().now.mono_ms;
        if self.counts(listener, peer) && !self.common.addresses.may_begin(peer, now_ms) {
            return Err(AcceptRejection::Rate);
        }
        Ok(())
    }

    /// Returns whether a connection counts towards the limits of its peer's address. Back ends and proxies don't count,
    /// because their addresses stand for many clients.
    fn counts(&self, listener: u16, peer: IpAddr) -> bool {
        let listener = &self.worker.shared().config.listeners[listener as usize];
        listener.role == ListenerRole::Public && !listener.access.trusts(peer)
    }

    fn access(&self, listener: u16) -> &ListenerAccess {
        &self.worker.shared().config.listeners[listener as usize].access
    }

    pub(super) fn role(&self, listener: u16) -> ListenerRole {
        self.worker.shared().config.listeners[listener as usize].role
    }

    pub(super) fn set_accepting<D: Driver>(&mut self, driver: &mut D, accepting: AcceptPolicy) {
        let before = std::mem::replace(&mut self.accepting, accepting);
        if before == accepting {
            return;
        }
        if accepting == AcceptPolicy::BackEndsOnly {
            // New clients wait; back ends and operators are accepted on reserved descriptors.
            self.worker.shared().stats.accepts_stalled.add(1);
        }
        for (index, &listener) in self.listeners.iter().enumerate() {
            let (role, id) = (self.role(listener), ListenerId(index as u32));
            match (before.accepts(role), accepting.accepts(role)) {
                (true, false) => driver.pause_accept(id),
                (false, true) => driver.resume_accept(id),
                (true, true) | (false, false) => {}
            }
        }
    }

    /// Pauses or resumes accepting according to the connection limit and the drain.
    pub(super) fn settle_accepting<D: Driver>(&mut self, driver: &mut D) {
        let is_draining = self.worker.is_draining();
        let drain = is_draining.then(|| self.common.drain_progress());
        let connections = self.common.connection_count();
        self.set_accepting(driver, self.accepting.settled(drain, connections));
    }
}
