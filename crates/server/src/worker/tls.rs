//! TLS between a transport and its connection, whichever side began it.
//!
//! What comes is opened before the connection sees it, what leaves is sealed when the turn's output is handed over. A
//! handshake of a client has a time to be over by; what its failures are is counted. Handshakes cost the server a
//! thousand times what a message costs, so each turn takes a few of them only: the others stand in line, and whoever
//! is inside is served meanwhile.

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

/// Plain bytes of one event beyond which their memory is given back.
const KEPT_BYTES: usize = 256 << 10;

/// What handshakes may bring in a turn: about a millisecond of signing and agreeing on keys.
const HANDSHAKES_MAX: usize = 8;

/// The first byte of a handshake of TLS (RFC 8446 section 5.1); those of before 1999 are not spoken any more.
const HANDSHAKE: u8 = 22;

/// To a client that speaks HTTP without TLS.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 45\r\nconnection: close\r\n\r\n\
    this port speaks TLS: use https:// or wss://\n";

/// To a back end that sends lines without TLS.
const PLAIN_LINES: &[u8] = b"{\"error\":\"this port speaks TLS\"}\n";

/// TLS of a connection.
pub(super) struct TlsLayer {
    tls: TlsStream,
    /// A client's handshake has to be over by then.
    until_ms: u64,
    /// A client has yet to prove that it speaks TLS.
    is_handshaking: bool,
    /// What came of a handshake that stands in line.
    waiting: Vec<u8>,
    /// The client's end came behind it.
    waits_to_end: bool,
}

/// Handshakes that stand in line for their turn.
#[derive(Default)]
pub(super) struct HandshakeQueue {
    ids: VecDeque<ConnectionId>,
    /// Taken in this turn.
    taken: usize,
}

impl HandshakeQueue {
    /// Whether handshakes wait for the next turn.
    pub(super) fn is_waiting(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Whether one goes on at once.
    fn admits(&mut self) -> bool {
        let is_free = self.ids.is_empty() && self.taken < HANDSHAKES_MAX;
        self.taken += usize::from(is_free);
        is_free
    }
}

impl TlsLayer {
    /// Of a connection that we have dialed.
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

    /// Whether something of it stands in line, and more should not come.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The client's end, if it has to wait for what came before it.
    pub(super) fn holds_end(&mut self) -> bool {
        self.waits_to_end |= self.is_waiting();
        self.waits_to_end
    }

    /// The handshake is over, whatever it came to.
    pub(super) fn give_up(&mut self) {
        self.is_handshaking = false;
    }

    /// When the handshake has to be over; `u64::MAX` if nothing waits for it.
    pub(super) fn until_ms(&self) -> u64 {
        match self.is_handshaking {
            true => self.until_ms,
            false => u64::MAX,
        }
    }
}

impl<A: WorkerApps> WorkerState<A> {
    /// TLS for a connection that was accepted, if its listener speaks it, with its handshake over by `until_ms`; `Err`
    /// if nobody may come in.
    pub(super) fn tls_layer_for(
        &self,
        listener: u16,
        until_ms: u64,
    ) -> Result<Option<TlsLayer>, ()> {
        let acceptor: &Acceptor = match self.doors.get(listener as usize) {
            None | Some(ListenerMode::Plain) => return Ok(None),
            Some(ListenerMode::Sealed(acceptor)) => acceptor,
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
                debug!(target: LOG, %error, "no TLS");
                self.worker
                    .shared()
                    .stats
                    .tls_failed(TlsHandshakeFailure::NoCertificate);
                Err(())
            }
        }
    }

    /// Bytes of a peer that speaks TLS.
    pub(super) fn received_tls<D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        bytes: &[u8],
    ) {
        let listener = self.worker.connection(id).and_then(|one| one.listener());
        let has_memory = listener.is_none_or(|listener| self.has_memory_for(listener));
        let transport = self.worker.transport_mut(id);
        let Some(seal) = transport.and_then(ConnectionTransport::tls_layer_mut) else {
            return;
        };
        if seal.is_handshaking && !has_memory {
            // Its part so far is let go of too.
            seal.give_up();
            self.worker
                .shared()
                .stats
                .reject_accept(AcceptRejection::Memory);
            return driver.close(id);
        }
        if seal.is_handshaking
            && !seal.is_waiting()
            && !seal.tls.has_begun()
            && bytes.first() != Some(&HANDSHAKE)
        {
            return self.received_plain(id, bytes);
        }
        if seal.is_handshaking && (seal.is_waiting() || !self.line.admits()) {
            if !seal.is_waiting() {
                self.line.ids.push_back(id);
            }
            seal.waiting.extend_from_slice(bytes);
            return self.worker.hold(id, true);
        }
        self.open(driver, id, bytes);
    }

    /// Handshakes that stood in line go on, as far as the turn has room for them.
    pub(super) fn resume_handshakes<D: Driver>(&mut self, driver: &mut D) {
        while self.line.taken < HANDSHAKES_MAX
            && let Some(id) = self.line.ids.pop_front()
        {
            let transport = self.worker.transport_mut(id);
            let Some(seal) = transport.and_then(ConnectionTransport::tls_layer_mut) else {
                continue;
            };
            let bytes = std::mem::take(&mut seal.waiting);
            let waits_to_end = std::mem::take(&mut seal.waits_to_end);
            // It may be late by now, and told so.
            let goes_on = seal.is_handshaking;
            if goes_on {
                self.line.taken += 1;
                self.open(driver, id, &bytes);
                if waits_to_end {
                    self.ended(id);
                }
            }
            self.worker.hold(id, false);
        }
        self.line.taken = 0;
    }

    /// Opens what has come, and lets the connection have what was in it.
    fn open<D: Driver>(&mut self, driver: &mut D, id: ConnectionId, bytes: &[u8]) {
        let transport = self.worker.transport_mut(id);
        let Some(mut layer) = transport.map(ConnectionTransport::take) else {
            return;
        };
        let Some(seal) = layer.tls_layer_mut() else {
            return;
        };
        let mut plain = std::mem::take(&mut self.plain);
        let result = seal.tls.receive(bytes, &mut plain);
        if seal.is_handshaking
            && let Some(agreed) = seal.tls.negotiated()
        {
            seal.is_handshaking = false;
            let peer = self.worker.connection(id).map(|connection| connection.peer);
            if seal.tls.is_challenge() {
                debug!(target: LOG, worker = self.index(), ?peer, "a proof was shown");
            } else {
                let stats = &self.worker.shared().stats;
                stats.tls_opened(agreed.is_1_3, agreed.is_resumed);
                debug!(target: LOG, worker = self.index(), ?peer, ?agreed, "TLS");
            }
            if let Some(subject) = seal.tls.peer_subject() {
                self.worker.handle_certificate(id, certified(subject));
            }
        }
        // Its own words don't wait for ours: the peer waits for them, or should learn what is wrong.
        if seal.tls.has_output() {
            let mut sealed = self.worker.spare_buffer();
            seal.tls.send(&[], &mut sealed);
            let stats = &self.worker.shared().stats;
            stats.bytes_sent.add(sealed.len() as u64);
            self.send(driver, id, sealed);
        }
        let has_ended = seal.tls.has_ended() && !self.worker.has_ended(id);
        let is_for_proof = seal.tls.is_challenge();
        // A proof is all that this connection is for (RFC 8737 section 3).
        let is_seen = is_for_proof && !seal.is_handshaking && !self.worker.has_ended(id);
        // The alert of a failed handshake should arrive, so the transport goes down in good order without TLS.
        let failed_early = result.is_err() && std::mem::take(&mut seal.is_handshaking);
        if !failed_early && let Some(transport) = self.worker.transport_mut(id) {
            *transport = layer;
        }
        if !plain.is_empty() && !is_for_proof {
            self.worker.handle_received(id, &mut plain);
        }
        match result {
            Err(error) if failed_early => {
                let peer = self.worker.connection(id).map(|connection| connection.peer);
                debug!(target: LOG, worker = self.index(), ?peer, %error, "the handshake failed");
                let stats = &self.worker.shared().stats;
                stats.tls_failed(of(error.failure()));
                self.worker.reject(id, b"");
            }
            Err(error) => {
                let peer = self.worker.connection(id).map(|connection| connection.peer);
                debug!(target: LOG, worker = self.index(), ?peer, %error, "TLS failed");
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

    /// What a client began with is no TLS: it is told in its own words, if those are known.
    fn received_plain(&mut self, id: ConnectionId, bytes: &[u8]) {
        if let Some(transport) = self.worker.transport_mut(id) {
            transport.take();
        }
        let shared = self.worker.shared();
        shared.stats.tls_failed(TlsHandshakeFailure::NotTls);
        let Some(connection) = self.worker.connection(id) else {
            return;
        };
        debug!(target: LOG, worker = self.index(), peer = %connection.peer, "the client does not speak TLS");
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

    /// Seals what leaves for a peer that speaks TLS.
    pub(super) fn encrypt(
        &mut self,
        id: ConnectionId,
        bytes: Vec<u8>,
        end: TransportEnd,
    ) -> Vec<u8> {
        let mut sealed = self.worker.spare_buffer();
        let transport = self.worker.transport_mut(id);
        if let Some(seal) = transport.and_then(ConnectionTransport::tls_layer_mut) {
            seal.tls.send(&bytes, &mut sealed);
            if end == TransportEnd::Shutdown {
                seal.tls.close(&mut sealed);
            }
        }
        self.worker.recycle(bytes);
        sealed
    }
}

/// A connection is gone whose handshake may have been under way.
pub(super) fn handshake_gone(seal: Option<&TlsLayer>, stats: &Arc<Stats>) {
    // Who connects and says nothing only looks whether somebody is there.
    if seal.is_some_and(|seal| seal.is_handshaking && seal.tls.has_begun()) {
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

fn certified(subject: CertificateSubject) -> CertificateNames {
    let first = |names: Vec<String>| names.into_iter().next();
    CertificateNames {
        common_name: subject.common_name,
        email: first(subject.emails),
        name: first(subject.names),
        uri: first(subject.uris),
    }
}
