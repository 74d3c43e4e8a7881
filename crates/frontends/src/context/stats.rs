//! Counters of a worker. Each worker owns one [`Stats`]; other threads only read it.
//!
//! A counter has a single writer, so adding is a load and a store instead of a locked instruction.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::credential_kind::CredentialKind;
use crate::context::publish_limiter::PublishError;
use veche_jwt::TokenError;

/// A number written by one thread and readable by any.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds. Only called by the owning worker.
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Subtracts. Only called by the owning worker.
    pub fn sub(&self, count: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_sub(count), Relaxed);
    }

    /// Sets the value. Only called by the owning worker.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Returns the current value of the counter.
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The outcome of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeOutcome {
    /// 101: the session opened.
    Opened,
    /// No route, or a route without WebSocket.
    NotFound,
    /// An invalid upgrade request.
    Malformed,
    /// The origin is not allowed.
    ForeignOrigin,
    /// No user, or an invalid one.
    Unidentified,
    /// The route does not allow the channel.
    ForbiddenChannel,
    /// No valid API key.
    Unauthorized,
    /// The application refused, or failed to decide.
    Refused,
    /// The user has too many connections, or memory is short.
    Rejected,
    /// Authentication is unavailable: no keys, or no answer from the back end.
    Unavailable,
}

impl HandshakeOutcome {
    /// Every outcome with its metric label.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::Opened, "opened"),
        (Self::NotFound, "not_found"),
        (Self::Malformed, "malformed"),
        (Self::ForeignOrigin, "foreign_origin"),
        (Self::Unidentified, "unidentified"),
        (Self::ForbiddenChannel, "forbidden_channel"),
        (Self::Unauthorized, "unauthorized"),
        (Self::Refused, "refused_by_app"),
        (Self::Rejected, "turned_away"),
        (Self::Unavailable, "identity_unavailable"),
    ];
}

/// Reason for a failed TLS handshake of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsHandshakeFailure {
    /// The handshake took too long.
    TimedOut,
    /// The client closed the connection.
    CutOff,
    /// The data was not TLS.
    NotTls,
    /// No common version or cipher.
    Incompatible,
    /// The client certificate is missing or not trusted.
    ClientCertificate,
    /// The client aborted, usually because it does not trust the server's certificate.
    Refused,
    /// The client violated the TLS protocol.
    Malformed,
    /// No certificate is configured.
    NoCertificate,
}

impl TlsHandshakeFailure {
    /// Every reason with its metric label.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::TimedOut, "timed_out"),
        (Self::CutOff, "cut_off"),
        (Self::NotTls, "not_tls"),
        (Self::Incompatible, "incompatible"),
        (Self::ClientCertificate, "client_certificate"),
        (Self::Refused, "refused_by_client"),
        (Self::Malformed, "malformed"),
        (Self::NoCertificate, "no_certificate"),
    ];
}

/// Reason for rejecting a connection or request before it was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptRejection {
    /// The network is not allowed.
    Network,
    /// The `Host` is not allowed.
    Host,
    /// The address has too many connections.
    Connections,
    /// The address opens connections too fast.
    Rate,
    /// Not a trusted proxy, on a listener for proxies only.
    NotAProxy,
    /// No valid PROXY header in time.
    ProxyHeader,
    /// The user has too many connections.
    UserConnections,
    /// The server is short of memory.
    Memory,
}

impl AcceptRejection {
    /// Every reason with its metric label.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Network, "network"),
        (Self::Host, "host"),
        (Self::Connections, "connections_per_address"),
        (Self::Rate, "handshakes_per_address"),
        (Self::NotAProxy, "not_a_proxy"),
        (Self::ProxyHeader, "proxy_header"),
        (Self::UserConnections, "connections_per_user"),
        (Self::Memory, "memory"),
    ];
}

/// Upper bounds of the buckets of [`Stats::turns`], in microseconds; the last bucket is unbounded.
pub const TURN_BUCKETS_US: [u64; 9] = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000];

/// The counters of one worker.
#[derive(Debug, Default)]
pub struct Stats {
    /// Number of open transports.
    pub connections: SharedCounter,
    /// Open sessions (WebSocket, after the 101).
    pub sessions: SharedCounter,
    /// Open outbound connections of applications.
    pub clients: SharedCounter,
    /// Total number of accepted transports.
    pub accepted: SharedCounter,
    /// Stalled accepts: at the connection limit, or out of descriptors.
    pub accepts_stalled: SharedCounter,
    /// Refused connections and requests, by reason.
    pub accepts_rejected: [SharedCounter; AcceptRejection::ALL.len()],
    /// Number of handshakes by outcome.
    pub handshakes: [SharedCounter; HandshakeOutcome::ALL.len()],
    /// Wrong keys by [`CredentialKind`](crate::context::credential_kind::CredentialKind).
    pub wrong_api_keys: [SharedCounter; CredentialKind::ALL.len()],
    /// Invalid tokens at handshakes and renewals, in the order of [`TokenError::ALL`](veche_jwt::TokenError::ALL).
    pub tokens_refused: [SharedCounter; TokenError::ALL.len()],
    /// Tokens renewed on open sessions.
    pub tokens_renewed: SharedCounter,
    /// Sessions closed because their token expired.
    pub tokens_expired: SharedCounter,
    /// Completed TLS handshakes of clients: full, resumed.
    pub tls_connections: [SharedCounter; 2],
    /// Completed TLS handshakes by version: TLS 1.2, TLS 1.3.
    pub tls_versions: [SharedCounter; 2],
    /// Failed TLS handshakes of clients, by reason.
    pub tls_failures: [SharedCounter; TlsHandshakeFailure::ALL.len()],
    /// HTTP responses by status class: 1xx to 5xx.
    pub http_responses: [SharedCounter; 5],
    /// Client messages, and their payload bytes.
    pub messages_received: SharedCounter,
    /// Payload bytes of messages received from clients.
    pub message_bytes_received: SharedCounter,
    /// Reading pauses of clients that exceeded their rate.
    pub throttled: SharedCounter,
    /// Client messages dropped for exceeding the rate.
    pub messages_dropped: SharedCounter,
    /// Connections closed for exceeding the rate.
    pub rate_limited: SharedCounter,
    /// Messages to clients: publications and echoes.
    pub messages_sent: SharedCounter,
    /// Payload bytes of messages sent to clients.
    pub message_bytes_sent: SharedCounter,
    /// Bytes received and sent on the wire.
    pub bytes_received: SharedCounter,
    /// Bytes sent on the wire.
    pub bytes_sent: SharedCounter,
    /// Successful commands of back ends.
    pub pushes: SharedCounter,
    /// Commands of back ends that were refused.
    pub pushes_refused: SharedCounter,
    /// Valid commands of back ends that were rejected: rate limited, short of memory.
    pub push_connections_rejected: [SharedCounter; 2],
    /// Publications not delivered to slow clients: the oldest, those replaced by later ones, those of namespaces that
    /// drop for slow clients.
    pub publications_dropped: [SharedCounter; 3],
    /// Deliveries of publications of channels homed on this worker.
    pub fanned_out: SharedCounter,
    /// Connections closed because the client read too slowly.
    pub slow_consumers: SharedCounter,
    /// Connections closed because they did not answer a ping.
    pub pong_timeouts: SharedCounter,
    /// Application handlers that failed or were stopped.
    pub app_errors: SharedCounter,
    /// Suspended coroutines of applications.
    pub app_coroutines: SharedCounter,
    /// Memory of application VMs, in bytes.
    pub app_memory_bytes: SharedCounter,
    /// Running instances of services.
    pub services_running: SharedCounter,
    /// Restarts of service instances.
    pub service_restarts: SharedCounter,
    /// Connections closed because of a protocol violation.
    pub protocol_errors: SharedCounter,
    /// Queued messages of this worker.
    pub mailbox_depth: SharedCounter,
    /// Times that work had to wait for a credit.
    pub credits_refused: SharedCounter,
    /// Channels and users homed on this worker, and subscriptions of its sessions.
    pub channels: SharedCounter,
    /// Users homed on this worker.
    pub users: SharedCounter,
    /// Subscriptions of this worker's sessions.
    pub subscriptions: SharedCounter,
    /// Channels with history homed on this worker, and the memory of that history in bytes.
    pub streams: SharedCounter,
    /// Memory of history homed on this worker, in bytes.
    pub history_bytes: SharedCounter,
    /// Publications evicted from history before they expired.
    pub history_evicted: SharedCounter,
    /// Join and leave events dropped because a queue was full.
    pub join_leaves_dropped: SharedCounter,
    /// Publications that wait on this home worker until they are on disk.
    pub history_pending: SharedCounter,
    /// Channel recoveries of this worker's clients: complete, incomplete.
    pub recoveries: [SharedCounter; 2],
    /// Number of turns by duration.
    pub turns: [SharedCounter; TURN_BUCKETS_US.len() + 1],
    /// Total duration of turns, in microseconds.
    pub turn_us: SharedCounter,
}

impl Stats {
    /// Counts a handshake by its outcome.
    pub fn handshake(&self, outcome: HandshakeOutcome) {
        self.handshakes[outcome as usize].add(1);
    }

    /// Counts an invalid token.
    pub fn token_refused(&self, why: TokenError) {
        let reasons = TokenError::ALL.iter().zip(&self.tokens_refused);
        for (_, cell) in reasons.filter(|((reason, _), _)| reason.is_same_kind(&why)) {
            cell.add(1);
        }
    }

    /// Counts a rejected connection or request.
    pub fn reject_accept(&self, why: AcceptRejection) {
        self.accepts_rejected[why as usize].add(1);
    }

    /// Counts a rejected valid command.
    pub fn reject_push_connection(&self, busy: PublishError) {
        let cell = match busy {
            PublishError::RateLimited { .. } => 0,
            PublishError::OutOfMemory => 1,
        };
        self.push_connections_rejected[cell].add(1);
    }

    /// Counts a recovery as complete or incomplete.
    pub fn recovery(&self, is_whole: bool) {
        self.recoveries[usize::from(!is_whole)].add(1);
    }

    /// Counts an HTTP response.
    pub fn response(&self, status: u16) {
        if let Some(cell) = self
            .http_responses
            .get((status / 100).wrapping_sub(1) as usize)
        {
            cell.add(1);
        }
    }

    /// Counts a completed TLS handshake.
    pub fn tls_opened(&self, is_1_3: bool, is_resumed: bool) {
        self.tls_connections[usize::from(is_resumed)].add(1);
        self.tls_versions[usize::from(is_1_3)].add(1);
    }

    /// Counts a failed TLS handshake.
    pub fn tls_failed(&self, why: TlsHandshakeFailure) {
        self.tls_failures[why as usize].add(1);
    }

    /// Counts a turn by its duration in microseconds.
    pub fn turn(&self, took_us: u64) {
        let bucket = TURN_BUCKETS_US
            .iter()
            .position(|&bound| took_us <= bound)
            .unwrap_or(TURN_BUCKETS_US.len());
        self.turns[bucket].add(1);
        self.turn_us.add(took_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cells: &[SharedCounter]) -> Vec<u64> {
        cells.iter().map(SharedCounter::read).collect()
    }

    /// Returns zeros with a one at this index.
    fn only(place: usize, cells: &[SharedCounter]) -> Vec<u64> {
        (0..cells.len()).map(|at| u64::from(at == place)).collect()
    }

    #[test]
    fn a_cell_counts_up_and_down_and_wraps() {
        let cell = SharedCounter::default();
        assert_eq!(cell.read(), 0);
        cell.add(5);
        cell.sub(2);
        assert_eq!(cell.read(), 3);
        cell.set(10);
        cell.sub(11);
        assert_eq!(cell.read(), u64::MAX);
        cell.add(3);
        assert_eq!(cell.read(), 2);
    }

    #[test]
    fn each_reason_counts_in_the_cell_of_its_label() {
        for (place, (outcome, _)) in HandshakeOutcome::ALL.into_iter().enumerate() {
            let stats = Stats::default();
            stats.handshake(outcome);
            assert_eq!(read(&stats.handshakes), only(place, &stats.handshakes));
        }
        for (place, (why, _)) in AcceptRejection::ALL.into_iter().enumerate() {
            let stats = Stats::default();
            stats.reject_accept(why);
            assert_eq!(
                read(&stats.accepts_rejected),
                only(place, &stats.accepts_rejected)
            );
        }
        for (place, (why, _)) in TlsHandshakeFailure::ALL.into_iter().enumerate() {
            let stats = Stats::default();
            stats.tls_failed(why);
            assert_eq!(read(&stats.tls_failures), only(place, &stats.tls_failures));
        }
        for (place, (why, _)) in TokenError::ALL.into_iter().enumerate() {
            let stats = Stats::default();
            stats.token_refused(why);
            assert_eq!(
                read(&stats.tokens_refused),
                only(place, &stats.tokens_refused)
            );
        }
        let stats = Stats::default();
        stats.token_refused(TokenError::Claim("another text"));
        assert_eq!(read(&stats.tokens_refused).iter().sum::<u64>(), 1);
    }

    #[test]
    fn pairs_count_apart() {
        let stats = Stats::default();
        stats.reject_push_connection(PublishError::RateLimited { wait_ms: 1 });
        stats.reject_push_connection(PublishError::OutOfMemory);
        stats.reject_push_connection(PublishError::OutOfMemory);
        assert_eq!(read(&stats.push_connections_rejected), [1, 2]);
        stats.recovery(true);
        stats.recovery(false);
        stats.recovery(false);
        assert_eq!(read(&stats.recoveries), [1, 2]);
        stats.tls_opened(true, false);
        stats.tls_opened(true, true);
        stats.tls_opened(true, true);
        stats.tls_opened(false, true);
        assert_eq!(read(&stats.tls_connections), [1, 3]);
        assert_eq!(read(&stats.tls_versions), [1, 3]);
    }

    #[test]
    fn answers_count_by_class_and_others_not_at_all() {
        let stats = Stats::default();
        for status in [0, 99, 600, 999, u16::MAX] {
            stats.response(status);
        }
        assert_eq!(read(&stats.http_responses), [0; 5]);
        for (status, times) in [(101, 1), (200, 2), (399, 3), (404, 4), (500, 2), (599, 3)] {
            (0..times).for_each(|_| stats.response(status));
        }
        assert_eq!(read(&stats.http_responses), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_turn_counts_in_the_first_bucket_whose_bound_it_keeps() {
        let stats = Stats::default();
        for bound in TURN_BUCKETS_US {
            stats.turn(bound);
        }
        assert_eq!(read(&stats.turns), [1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        for bound in TURN_BUCKETS_US {
            stats.turn(bound + 1);
        }
        assert_eq!(read(&stats.turns), [1, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
        let all: u64 = TURN_BUCKETS_US.iter().map(|bound| 2 * bound + 1).sum();
        assert_eq!(stats.turn_us.read(), all);
    }
}
