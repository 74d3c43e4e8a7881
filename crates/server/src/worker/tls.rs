//! The TLS layer of accepted and dialed connections.
//!
//! Input is decrypted before the connection sees it, and output is encrypted when the turn sends it. Client handshakes
//! have a deadline, and their failures are counted. A handshake costs as much as a thousand messages, so each turn
//! processes only a few: the others queue while established connections are served.

use std::collections::VecDeque;
use std::sync::Arc;

use tracing::debug;
use veche_frontends::TransportEnd;
use veche_frontends::frontend_config::ListenerRole;
use veche_frontends::identity::CertificateNames;
use veche_frontends::stats::{AcceptRejection, Stats, TlsHandshakeFailure};
use veche_net::{ConnectionId, Driver};
use veche_tls::{Acceptor, CertificateSubject, TlsFailure, TlsStream};

use super::transport::ConnectionTransport;
use super::{LOG, WorkerApps, WorkerState};
use crate::tls_listeners::ListenerMode;

/// Maximum capacity of the buffer for decrypted bytes that is kept for reuse. A larger buffer is freed.
const KEPT_BYTES: usize = 256 << 10;

/// Maximum number of handshake steps in a turn. Together they take a millisecond or two, mostly for signing and key
/// exchange.
const HANDSHAKES_MAX: usize = 8;

/// The first byte of a TLS handshake record (RFC 8446 section 5.1); SSL 2 is not supported.
const HANDSHAKE: u8 = 22;

/// The response to a client that sends plain HTTP.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 45\r\nconnection: close\r\n\r\n\
    this port speaks TLS: use https:// or wss://\n";

/// The response to a back end that sends plain lines.
const PLAIN_LINES: &[u8] = b"{\"error\":\"this port speaks TLS\"}\n";

/// The TLS state of a connection.
pub(super) struct TlsLayer {
    tls: TlsStream,
    /// The deadline of a client's handshake, in monotonic milliseconds.
    until_ms: u64,
    /// True until the handshake is complete or has failed.
    is_handshaking: bool,
    /// Received bytes of a queued handshake.
    waiting: Vec<u8>,
    /// True if the client's FIN has followed the bytes in `waiting`.
    waits_to_end: bool,
}

/// Handshakes that are queued for a later turn of the worker.
#[derive(Default)]
pub(super) struct HandshakeQueue {
    ids: VecDeque<ConnectionId>,
    /// The number of handshake steps in this turn.
    taken: usize,
}

impl HandshakeQueue {
    /// Returns whether handshakes wait for the next turn.
    pub(super) fn is_waiting(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Returns whether a handshake step may run now, and counts it if so. It may not run if the turn has run its
    /// maximum number of steps, or if other handshakes are queued.
    fn admits(&mut self) -> bool {
        let is_free = self.ids.is_empty() && self.taken < HANDSHAKES_MAX;
        self.taken += usize::from(is_free);
        is_free
    }
}

impl TlsLayer {
    /// Creates the layer of a dialed connection.
    pub(super) fn dialed(tls: TlsStream) -> Self {
        Self {
            tls,
            until_ms: u64::MAX,
            is_handshaking: false,
            waiting: Vec::new(),
            waits_to_end: false,
        }
    }

    fn accepted(tls: TlsStream, until_ms: u64) -> Self {
        Self {
            tls,
            until_ms,
            is_handshaking: true,
            waiting: Vec::new(),
            waits_to_end: false,
        }
    }

    /// Returns whether received bytes are queued, so that reading should pause.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether the client's FIN has to wait for earlier bytes. If so, records that it waits.
    pub(super) fn holds_end(&mut self) -> bool {
        self.waits_to_end |= self.is_waiting();
        self.waits_to_end
    }

    /// Abandons the handshake, so that its deadline no longer applies.
    pub(super) fn give_up(&mut self) {
        self.is_handshaking = false;
    }

    /// Returns the deadline of the handshake; `u64::MAX` if there is none.
    pub(super) fn until_ms(&self) -> u64 {
        match self.is_handshaking {
            true => self.until_ms,
            false => u64::MAX,
        }
    }
}

impl<A: WorkerApps> WorkerState<A> {
    /// Returns the TLS layer of an accepted connection; `None` if its listener has no TLS. Returns `Err` if the
    /// listener has no certificate, or if TLS can't be started.
    pub(super) fn tls_layer_for(
        &self,
        listener: u16,
        until_ms: u64,
    ) -> Result<Option<TlsLayer>, ()> {
        let acceptor: &Acceptor = match self.acceptors.get(listener as usize) {
            None | Some(ListenerMode::Plain) => return Ok(None),
            Some(ListenerMode::Tls(acceptor)) => acceptor,
            Some(ListenerMode::Closed) => {
                self.worker
                    .shared()
                    .stats
                    .tls_failed(TlsHandshakeFailure::NoCertificate);
                return Err(());
            }
        };
        match acceptor.accept() {
            Ok(tls) => Ok(Some(TlsLayer::accepted(tls, until_ms))),
            Err(error) => {
                debug!(target: LOG, %error, "can't start TLS on a connection");
                self.worker
                    .shared()
                    .stats
                    .tls_failed(TlsHandshakeFailure::NoCertificate);
                Err(())
            }
        }
    }

    /// Handles bytes of a TLS peer.
    pub(super) fn received_tls<D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        bytes: &[u8],
    ) {
        let listener = self.worker.connection(id).and_then(|one| one.listener());
        let has_memory = listener.is_none_or(|listener| self.has_memory_for(listener));
        let transport = self.worker.transport_mut(id);
        let Some(tls_layer) = transport.and_then(ConnectionTransport::tls_layer_mut) else {
            return;
        };
        if tls_layer.is_handshaking && !has_memory {
            // The partial handshake is abandoned, so that its memory is freed.
            tls_layer.give_up();
            self.worker
                .shared()
                .stats
                .reject_accept(AcceptRejection::Memory);
            return driver.close(id);
        }
        if tls_layer.is_handshaking
            && !tls_layer.is_waiting()
            && !tls_layer.tls.has_begun()
            && bytes.first() != Some(&HANDSHAKE)
        {
            return self.received_plain(id, bytes);
        }
        if tls_layer.is_handshaking && (tls_layer.is_waiting() || !self.handshakes.admits()) {
            if !tls_layer.is_waiting() {
                self.handshakes.ids.push_back(id);
            }
            tls_layer.waiting.extend_from_slice(bytes);
            return self.worker.hold(id, true);
        }
        self.open(driver, id, bytes);
    }

    /// Resumes queued handshakes, up to the limit of steps in a turn.
    pub(super) fn resume_handshakes<D: Driver>(&mut self, driver: &mut D) {
        while self.handshakes.taken < HANDSHAKES_MAX
            && let Some(id) = self.handshakes.ids.pop_front()
        {
            let transport = self.worker.transport_mut(id);
            let Some(tls_layer) = transport.and_then(ConnectionTransport::tls_layer_mut) else {
                continue;
            };
            let bytes = std::mem::take(&mut tls_layer.waiting);
            let waits_to_end = std::mem::take(&mut tls_layer.waits_to_end);
            // The handshake may have timed out by now.
            let goes_on = tls_layer.is_handshaking;
            if goes_on {
                self.handshakes.taken += 1;
                self.open(driver, id, &bytes);
                if waits_to_end {
                    self.ended(id);
                }
            }
            self.worker.hold(id, false);
        }
        self.handshakes.taken = 0;
    }

    /// Decrypts received bytes and passes them to the connection.
    fn open<D: Driver>(&mut self, driver: &mut D, id: ConnectionId, bytes: &[u8]) {
        let transport = self.worker.transport_mut(id);
        let Some(mut layer) = transport.map(ConnectionTransport::take) else {
            return;
        };
        let Some(tls_layer) = layer.tls_layer_mut() else {
            return;
        };
        let mut plain = std::mem::take(&mut self.plain);
        let result = tls_layer.tls.receive(bytes, &mut plain);
        if tls_layer.is_handshaking
            && let Some(agreed) = tls_layer.tls.negotiated()
        {
            tls_layer.is_handshaking = false;
            let peer = self.worker.connection(id).map(|connection| connection.peer);
            if tls_layer.tls.is_challenge() {
                debug!(target: LOG, worker = self.index(), ?peer, "presented the certificate of a TLS-ALPN-01 challenge");
            } else {
                let stats = &self.worker.shared().stats;
                stats.tls_opened(agreed.is_1_3, agreed.is_resumed);
                debug!(target: LOG, worker = self.index(), ?peer, ?agreed, "the TLS handshake is complete");
            }
            if let Some(subject) = tls_layer.tls.peer_subject() {
                self.worker
                    .handle_certificate(id, certificate_names(subject));
            }
        }
        // Handshake and alert records are not delayed: the peer waits for them.
        if tls_layer.tls.has_output() {
            let mut encrypted = self.worker.spare_buffer();
            tls_layer.tls.send(&[], &mut encrypted);
            let stats = &self.worker.shared().stats;
            stats.bytes_sent.add(encrypted.len() as u64);
            self.send(driver, id, encrypted);
        }
        let has_ended = tls_layer.tls.has_ended() && !self.worker.has_ended(id);
        let is_for_proof = tls_layer.tls.is_challenge();
        // A connection for an ACME challenge serves only to prove control of the name (RFC 8737 section 3), so it is
        // closed after the handshake.
        let is_seen = is_for_proof && !tls_layer.is_handshaking && !self.worker.has_ended(id);
        // The alert of a failed handshake has to arrive, so the transport is shut down gracefully.
        let failed_early = result.is_err() && std::mem::take(&mut tls_layer.is_handshaking);
        if !failed_early && let Some(transport) = self.worker.transport_mut(id) {
            *transport = layer;
        }
        if !plain.is_empty() && !is_for_proof {
            self.worker.handle_received(id, &mut plain);
        }
        match result {
            Err(error) if failed_early => {
                let peer = self.worker.connection(id).map(|connection| connection.peer);
                debug!(target: LOG, worker = self.index(), ?peer, %error, "the TLS handshake failed");
                let stats = &self.worker.shared().stats;
                stats.tls_failed(of(error.failure()));
                self.worker.reject(id, b"");
            }
            Err(error) => {
                let peer = self.worker.connection(id).map(|connection| connection.peer);
                debug!(target: LOG, worker = self.index(), ?peer, %error, "the TLS connection failed");
                self.worker.handle_failed(id, &error.to_string());
            }
            Ok(()) if is_seen => self.worker.reject(id, b""),
            Ok(()) if has_ended => self.worker.handle_ended(id),
            Ok(()) => {}
        }
        plain.clear();
        if plain.capacity() <= KEPT_BYTES {
            self.plain = plain;
        }
    }

    /// Rejects a client that does not use TLS. The client gets a response if its first byte is that of a known
    /// protocol.
    fn received_plain(&mut self, id: ConnectionId, bytes: &[u8]) {
        if let Some(transport) = self.worker.transport_mut(id) {
            transport.take();
        }
        let shared = self.worker.shared();
        shared.stats.tls_failed(TlsHandshakeFailure::NotTls);
        let Some(connection) = self.worker.connection(id) else {
            return;
        };
        debug!(target: LOG, worker = self.index(), peer = %connection.peer, "the client did not start a TLS handshake");
        let listener = connection.listener();
        let words = match listener.map(|listener| self.role(listener)) {
            Some(ListenerRole::Push) if bytes.first() == Some(&b'{') => PLAIN_LINES,
            Some(ListenerRole::Public | ListenerRole::Internal)
                if bytes.first().is_some_and(u8::is_ascii_uppercase) =>
            {
                PLAIN_HTTP
            }
            _ => b"",
        };
        self.worker.reject(id, words);
    }

    /// Encrypts output for a TLS peer.
    pub(super) fn encrypt(
        &mut self,
        id: ConnectionId,
        bytes: Vec<u8>,
        end: TransportEnd,
    ) -> Vec<u8> {
        let mut encrypted = self.worker.spare_buffer();
        let transport = self.worker.transport_mut(id);
        if let Some(tls_layer) = transport.and_then(ConnectionTransport::tls_layer_mut) {
            tls_layer.tls.send(&bytes, &mut encrypted);
            if end == TransportEnd::Shutdown {
                tls_layer.tls.close(&mut encrypted);
            }
        }
        self.worker.recycle(bytes);
        encrypted
    }
}

/// Counts a failed handshake if the connection was closed during its handshake.
pub(super) fn handshake_gone(tls_layer: Option<&TlsLayer>, stats: &Arc<Stats>) {
    // A client that sends nothing may only test whether the port is open, so it is not counted as a failure.
    if tls_layer.is_some_and(|tls_layer| tls_layer.is_handshaking && tls_layer.tls.has_begun()) {
        stats.tls_failed(TlsHandshakeFailure::CutOff);
    }
}

fn of(failure: TlsFailure) -> TlsHandshakeFailure {
    match failure {
        TlsFailure::Incompatible => TlsHandshakeFailure::Incompatible,
        TlsFailure::Certificate => TlsHandshakeFailure::ClientCertificate,
        TlsFailure::NoCertificate => TlsHandshakeFailure::NoCertificate,
        TlsFailure::Refused => TlsHandshakeFailure::Refused,
        TlsFailure::Malformed => TlsHandshakeFailure::Malformed,
    }
}

fn certificate_names(subject: CertificateSubject) -> CertificateNames {
    let first = |names: Vec<String>| names.into_iter().next();
    CertificateNames {
        common_name: subject.common_name,
        email: first(subject.emails),
        name: first(subject.names),
        uri: first(subject.uris),
    }
}
