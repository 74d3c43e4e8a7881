//! The PROXY protocol layer: the header with the client's address, which precedes TLS and all other bytes.
//!
//! Untrusted peers are rejected before this layer. Once the header is read, the layer is removed, and the connection is
//! treated as if its client had connected directly.

use tracing::debug;
use veche_frontends::stats::AcceptRejection;
use veche_net::{ConnectionId, Driver};
use veche_proto::proxy;

use super::transport::ConnectionTransport;
use super::{LOG, WorkerApps, WorkerState};

/// A PROXY protocol header that has not been received completely.
pub(super) struct PendingProxyHeader {
    /// The part of the header received so far.
    received: Vec<u8>,
    /// The deadline for the header and a TLS handshake after it, in monotonic milliseconds.
    until_ms: u64,
    listener: u16,
}

impl PendingProxyHeader {
    pub(super) fn new(listener: u16, until_ms: u64) -> Self {
        Self {
            received: Vec::new(),
            until_ms,
            listener,
        }
    }

    pub(super) fn until_ms(&self) -> u64 {
        self.until_ms
    }
}

impl<A: WorkerApps> WorkerState<A> {
    /// Handles bytes of a proxy before its header is complete.
    pub(super) fn received_proxy_header<D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        bytes: &[u8],
    ) {
        let transport = self.worker.transport_mut(id);
        let Some(pending) = transport.and_then(ConnectionTransport::proxy_header_mut) else {
            return;
        };
        pending.received.extend_from_slice(bytes);
        let header = match proxy::read(&pending.received) {
            Ok(None) => return,
            Ok(Some(header)) => header,
            Err(error) => {
                let peer = self.worker.connection(id).map(|connection| connection.peer);
                debug!(target: LOG, worker = self.index(), ?peer, %error, "refused a connection");
                let stats = &self.worker.shared().stats;
                stats.reject_accept(AcceptRejection::ProxyHeader);
                return driver.close(id);
            }
        };
        let (mut received, until_ms, listener) = (
            std::mem::take(&mut pending.received),
            pending.until_ms,
            pending.listener,
        );
        if let Some(transport) = self.worker.transport_mut(id) {
            transport.take();
        }
        if let Some(client) = header.client {
            self.worker.handle_proxy_header(id, client);
        }
        let Some(client) = self.worker.connection(id).map(|connection| connection.peer) else {
            return;
        };
        if let Err(why) = self.check_admission(listener, client) {
            debug!(target: LOG, peer = %client, ?why, "refused a connection");
            self.worker.shared().stats.reject_accept(why);
            return driver.close(id);
        }
        let rest = &mut received[header.length..];
        if self.admit(driver, id, listener, client, until_ms) && !rest.is_empty() {
            self.received(driver, id, rest);
        }
    }
}
