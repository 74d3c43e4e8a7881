//! Counters of a worker. Each worker owns one [`Stats`] and alone writes it; other threads only read it.
//!
//! Since a counter has a single writer, adding is a load and a store instead of an atomic read-modify-write.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::credential_kind::CredentialKind;
use crate::context::publish_limiter::PublishError;
use veche_jwt::TokenError;

/// A number written by one thread and readable by any.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds to the value, which wraps around. Only called by the owning worker.
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Subtracts from the value, which wraps around. Only called by the owning worker.
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
    /// The session was opened with a 101 response.
    Opened,
    /// The path has no route, or its route serves no WebSocket.
    NotFound,
    /// The upgrade request is invalid, or the session can't be opened, for example during a drain.
    Malformed,
    /// The origin of the page is not allowed.
    ForeignOrigin,
    /// The request has no user, or an invalid one.
    Unidentified,
    /// The route does not allow the channel.
    ForbiddenChannel,
    /// The request has no valid API key.
    Unauthorized,
    /// The application refused the handshake, or failed to decide.
    Refused,
    /// The handshake exceeds the limit on connections per user.
    Rejected,
    /// Authentication is unavailable: there are no issuer keys, or the back end does not answer.
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

/// Why a client's TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsHandshakeFailure {
    /// The handshake took too long.
    TimedOut,
    /// The client closed the connection.
    CutOff,
    /// The data was not TLS.
    NotTls,
    /// Client and server have no TLS version or cipher in common.
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

/// Why a connection or request was rejected before it was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptRejection {
    /// The network of the client is not allowed.
    Network,
    /// The host name in `Host` is not allowed.
    Host,
    /// The client's address has too many connections.
    Connections,
    /// The client's address opens connections too fast.
    Rate,
    /// The peer is not a trusted proxy, and the listener requires PROXY headers.
    NotAProxy,
    /// The peer sent no valid PROXY header in time.
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
    /// Number of open sessions: WebSockets after the 101, and endless responses.
    pub sessions: SharedCounter,
    /// Number of open outbound connections of applications.
    pub clients: SharedCounter,
    /// Total number of accepted transports.
    pub accepted: SharedCounter,
    /// Number of times that accepting was paused: at the connection limit, or for lack of descriptors.
    pub accepts_stalled: SharedCounter,
    /// Number of rejected connections and requests, by reason.
    pub accepts_rejected: [SharedCounter; AcceptRejection::ALL.len()],
    /// Number of handshakes by outcome.
    pub handshakes: [SharedCounter; HandshakeOutcome::ALL.len()],
    /// Number of wrong keys, by [`CredentialKind`](crate::context::credential_kind::CredentialKind).
    pub wrong_api_keys: [SharedCounter; CredentialKind::ALL.len()],
    /// Number of invalid tokens at handshakes and renewals, in the order of
    /// [`TokenError::ALL`](veche_jwt::TokenError::ALL).
    pub tokens_refused: [SharedCounter; TokenError::ALL.len()],
    /// Number of tokens renewed on open sessions.
    pub tokens_renewed: SharedCounter,
    /// Number of sessions closed because their token expired.
    pub tokens_expired: SharedCounter,
    /// Number of completed TLS handshakes of clients: index 0 full, index 1 resumed.
    pub tls_connections: [SharedCounter; 2],
    /// Number of completed TLS handshakes: index 0 TLS 1.2, index 1 TLS 1.3.
    pub tls_versions: [SharedCounter; 2],
    /// Number of failed TLS handshakes of clients, by reason.
    pub tls_failures: [SharedCounter; TlsHandshakeFailure::ALL.len()],
    /// Number of HTTP responses by class of status, 1xx to 5xx.
    pub http_responses: [SharedCounter; 5],
    /// Number of messages received from clients.
    pub messages_received: SharedCounter,
    /// Number of payload bytes of messages received from clients.
    pub message_bytes_received: SharedCounter,
    /// Number of times that a client's input was paused because it exceeded the route's rate limit.
    pub throttled: SharedCounter,
    /// Number of client messages dropped because they exceeded the route's rate limit.
    pub messages_dropped: SharedCounter,
    /// Number of connections closed because their input exceeded the route's rate limit.
    pub rate_limited: SharedCounter,
    /// Number of messages sent to clients: publications and echoes.
    pub messages_sent: SharedCounter,
    /// Number of payload bytes of messages sent to clients.
    pub message_bytes_sent: SharedCounter,
    /// Number of bytes received on the wire.
    pub bytes_received: SharedCounter,
    /// Number of bytes sent on the wire.
    pub bytes_sent: SharedCounter,
    /// Number of successful commands of back ends.
    pub pushes: SharedCounter,
    /// Number of invalid commands of back ends.
    pub pushes_refused: SharedCounter,
    /// Number of rejected commands of back ends that were valid; it counts commands, despite the name. Index 0: rejected
    /// because of the rate limit; index 1: for lack of memory.
    pub push_connections_rejected: [SharedCounter; 2],
    /// Number of publications not delivered to slow clients. Index 0: dropped as the oldest in a full outbox; index 1:
    /// replaced by a later publication; index 2: dropped because the namespace drops publications for slow clients.
    pub publications_dropped: [SharedCounter; 3],
    /// Number of deliveries to connections, over all publications to channels whose home is this worker.
    pub fanned_out: SharedCounter,
    /// Number of connections closed because the client read too slowly.
    pub slow_consumers: SharedCounter,
    /// Number of connections closed because the client did not answer a ping.
    pub pong_timeouts: SharedCounter,
    /// Number of application handlers that failed or were stopped.
    pub app_errors: SharedCounter,
    /// Number of suspended coroutines of applications.
    pub app_coroutines: SharedCounter,
    /// Memory of application VMs, in bytes.
    pub app_memory_bytes: SharedCounter,
    /// Number of running instances of services.
    pub services_running: SharedCounter,
    /// Number of restarts of service instances.
    pub service_restarts: SharedCounter,
    /// Number of connections closed because of a protocol violation.
    pub protocol_errors: SharedCounter,
    /// Number of messages in this worker's mailboxes.
    pub mailbox_depth: SharedCounter,
    /// Number of times that a publication had to wait for credit.
    pub credits_refused: SharedCounter,
    /// Number of channels whose home is this worker.
    pub channels: SharedCounter,
    /// Number of users whose home is this worker.
    pub users: SharedCounter,
    /// Number of subscriptions of this worker's sessions.
    pub subscriptions: SharedCounter,
    /// Number of channels with history whose home is this worker.
    pub streams: SharedCounter,
    /// Memory for the history of channels whose home is this worker, in bytes.
    pub history_bytes: SharedCounter,
    /// Number of publications evicted from history before they expired.
    pub history_evicted: SharedCounter,
    /// Number of join and leave events dropped because a queue was full.
    pub join_leaves_dropped: SharedCounter,
    /// Number of publications that wait on this worker, the home of their channel, until they are on disk.
    pub history_pending: SharedCounter,
    /// Number of recoveries of this worker's clients: index 0 complete, index 1 incomplete.
    pub recoveries: [SharedCounter; 2],
    /// Number of turns by duration, in the buckets of [`TURN_BUCKETS_US`].
    pub turns: [SharedCounter; TURN_BUCKETS_US.len() + 1],
    /// Total duration of turns, in microseconds.
    pub turn_us: SharedCounter,
}

impl Stats {
    /// Counts a handshake by its outcome.
    pub fn handshake(&self, outcome: HandshakeOutcome) {
        self.handshakes[outcome as usize].add(1);
    }

    /// Counts an invalid token by its error.
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

    /// Counts a valid command of a back end that was rejected, in [`Stats::push_connections_rejected`].
    pub fn reject_push_connection(&self, busy: PublishError) {
        let cell = match busy {
            PublishError::RateLimited { .. } => 0,
            PublishError::OutOfMemory => 1,
        };
        self.push_connections_rejected[cell].add(1);
    }

    /// Counts a recovery. `is_whole`: whether it was complete.
    pub fn recovery(&self, is_whole: bool) {
        self.recoveries[usize::from(!is_whole)].add(1);
    }

    /// Counts an HTTP response by the class of its status.
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

    /// Returns one number per counter: 1 at the index `place`, 0 elsewhere.
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
