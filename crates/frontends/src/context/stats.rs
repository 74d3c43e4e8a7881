//! What a worker counts. Each worker owns one [`Stats`]; others only read it.
//!
//! A [`SharedCounter`] has a single writer, so adding is a load and a store, not a locked instruction.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::credential_kind::CredentialKind;
use crate::context::publish_limiter::PublishError;
use veche_jwt::TokenError;

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds. For the owning worker only.
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Takes away. For the owning worker only.
    pub fn sub(&self, count: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_sub(count), Relaxed);
    }

    /// Replaces. For the owning worker only.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Reads.
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeOutcome {
    /// 101.
    Opened,
    /// No route, or one without WebSocket.
    NotFound,
    /// Not a valid upgrade.
    Malformed,
    /// A page of a foreign origin.
    ForeignOrigin,
    /// No user, or a bad one.
    Unidentified,
    /// A channel that the route does not allow.
    ForbiddenChannel,
    /// No key for the API.
    Unauthorized,
    /// The application did not want it, or gave no verdict.
    Refused,
    /// Its user has too many already, or there is no memory for it.
    Rejected,
    /// Who it is could not be found out: no keys, no answer of the back end.
    Unavailable,
}

impl HandshakeOutcome {
    /// Every outcome, with its label in the metrics.
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
    /// It was not over in time.
    TimedOut,
    /// The client left in the middle of it.
    CutOff,
    /// What came was no TLS at all.
    NotTls,
    /// No version or cipher in common.
    Incompatible,
    /// The client's certificate is missing or not believed.
    ClientCertificate,
    /// The client gave up: most often it does not believe our certificate.
    Refused,
    /// What came breaks the rules.
    Malformed,
    /// There is no certificate to show.
    NoCertificate,
}

impl TlsHandshakeFailure {
    /// Every reason, with its label in the metrics.
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

/// Why somebody was turned away before anything was asked of him.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptRejection {
    /// His network is not let in.
    Network,
    /// A `Host` that is not ours.
    Host,
    /// His address has too many connections.
    Connections,
    /// His address makes them too fast.
    Rate,
    /// He is no trusted proxy, where only those may connect.
    NotAProxy,
    /// He did not begin with a header of the PROXY protocol, or not in time.
    ProxyHeader,
    /// His user has too many connections.
    UserConnections,
    /// The server is short of memory.
    Memory,
}

impl AcceptRejection {
    /// Every reason, with its label in the metrics.
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

/// Upper bounds of the buckets of [`Stats::turns`], in microseconds; the last bucket has none.
pub const TURN_BUCKETS_US: [u64; 9] = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000];

/// The counters of one worker.
#[derive(Debug, Default)]
pub struct Stats {
    /// Open transports.
    pub connections: SharedCounter,
    /// Open sessions (WebSocket, after the 101).
    pub sessions: SharedCounter,
    /// Open connections of applications to other servers.
    pub clients: SharedCounter,
    /// Transports ever accepted.
    pub accepted: SharedCounter,
    /// Accepts that had to wait: at the cap, or out of descriptors.
    pub accepts_stalled: SharedCounter,
    /// Refused connections and requests, by reason.
    pub accepts_rejected: [SharedCounter; AcceptRejection::ALL.len()],
    /// Handshakes by outcome.
    pub handshakes: [SharedCounter; HandshakeOutcome::ALL.len()],
    /// Wrong keys, in the order of [`CredentialKind::ALL`].
    pub wrong_api_keys: [SharedCounter; CredentialKind::ALL.len()],
    /// Invalid tokens, at handshakes and renewals, in the order of [`TokenError::ALL`].
    pub tokens_refused: [SharedCounter; TokenError::ALL.len()],
    /// Tokens that took the place of older ones of their sessions.
    pub tokens_renewed: SharedCounter,
    /// Sessions closed because their token held no more.
    pub tokens_expired: SharedCounter,
    /// TLS handshakes of clients that came to their end: full ones, resumed ones.
    pub tls_connections: [SharedCounter; 2],
    /// The same by version: TLS 1.2, TLS 1.3.
    pub tls_versions: [SharedCounter; 2],
    /// Failed TLS handshakes of clients, by reason.
    pub tls_failures: [SharedCounter; TlsHandshakeFailure::ALL.len()],
    /// HTTP answers by class of status: 1xx to 5xx.
    pub http_responses: [SharedCounter; 5],
    /// Messages of clients, and the bytes of their payload.
    pub messages_received: SharedCounter,
    /// See [`Stats::messages_received`].
    pub message_bytes_received: SharedCounter,
    /// Times that a client over its rate was not read from.
    pub throttled: SharedCounter,
    /// Messages of clients that came too fast and were dropped.
    pub messages_dropped: SharedCounter,
    /// Connections that were closed for speaking too fast.
    pub rate_limited: SharedCounter,
    /// Messages to clients: publications and echoes.
    pub messages_sent: SharedCounter,
    /// See [`Stats::messages_sent`].
    pub message_bytes_sent: SharedCounter,
    /// Bytes on the wire.
    pub bytes_received: SharedCounter,
    /// See [`Stats::bytes_received`].
    pub bytes_sent: SharedCounter,
    /// Commands of back ends that were carried out.
    pub pushes: SharedCounter,
    /// Commands of back ends that were refused.
    pub pushes_refused: SharedCounter,
    /// Commands of back ends that were good but not carried out: too fast, short of memory.
    pub push_connections_rejected: [SharedCounter; 2],
    /// Publications not delivered to slow clients: the oldest, those replaced by later ones,
    /// those of namespaces that would rather have them missed.
    pub publications_dropped: [SharedCounter; 3],
    /// Connections to which publications of here-homed channels were handed.
    pub fanned_out: SharedCounter,
    /// Connections closed because they did not read.
    pub slow_consumers: SharedCounter,
    /// Connections closed because they were silent.
    pub pong_timeouts: SharedCounter,
    /// Handlers of applications that failed or were stopped.
    pub app_errors: SharedCounter,
    /// Waiting coroutines of applications.
    pub app_coroutines: SharedCounter,
    /// Memory of applications' VMs, in bytes.
    pub app_memory_bytes: SharedCounter,
    /// Running instances of services.
    pub services_running: SharedCounter,
    /// Times that an instance of a service began again.
    pub service_restarts: SharedCounter,
    /// Connections closed because of a protocol violation.
    pub protocol_errors: SharedCounter,
    /// Mail waiting for this worker.
    pub mailbox_depth: SharedCounter,
    /// Times that work waited for a credit.
    pub credits_refused: SharedCounter,
    /// Channels and users whose home is here, and subscriptions of sessions here.
    pub channels: SharedCounter,
    /// See [`Stats::channels`].
    pub users: SharedCounter,
    /// See [`Stats::channels`].
    pub subscriptions: SharedCounter,
    /// Channels whose home is here and that remember, and the bytes that this takes.
    pub streams: SharedCounter,
    /// See [`Stats::streams`].
    pub history_bytes: SharedCounter,
    /// Publications evicted from history before they expired.
    pub history_evicted: SharedCounter,
    /// Joins and leaves not sent to subscribers because a queue was full.
    pub join_leaves_dropped: SharedCounter,
    /// What waits here, its home, until it is on disk.
    pub history_pending: SharedCounter,
    /// Clients of this worker that came back to a channel: those that got all they had missed, and the others.
    pub recoveries: [SharedCounter; 2],
    /// Turns by the time they took.
    pub turns: [SharedCounter; TURN_BUCKETS_US.len() + 1],
    /// All that time together, in microseconds.
    pub turn_us: SharedCounter,
}

impl Stats {
    /// Counts a handshake.
    pub fn handshake(&self, outcome: HandshakeOutcome) {
        self.handshakes[outcome as usize].add(1);
    }

    /// Counts a token that did not hold.
    pub fn token_refused(&self, why: TokenError) {
        let reasons = TokenError::ALL.iter().zip(&self.tokens_refused);
        for (_, cell) in reasons.filter(|((reason, _), _)| reason.looks_like_token(&why)) {
            cell.add(1);
        }
    }

    /// Counts somebody who was turned away.
    pub fn reject_accept(&self, why: AcceptRejection) {
        self.accepts_rejected[why as usize].add(1);
    }

    /// Counts a good command that was not carried out.
    pub fn reject_push_connection(&self, busy: PublishError) {
        let cell = match busy {
            PublishError::RateLimited { .. } => 0,
            PublishError::OutOfMemory => 1,
        };
        self.push_connections_rejected[cell].add(1);
    }

    /// Counts a client that came back to a channel.
    pub fn recovery(&self, is_whole: bool) {
        self.recoveries[usize::from(!is_whole)].add(1);
    }

    /// Counts an HTTP answer.
    pub fn response(&self, status: u16) {
        if let Some(cell) = self
            .http_responses
            .get((status / 100).wrapping_sub(1) as usize)
        {
            cell.add(1);
        }
    }

    /// Counts a TLS handshake that came to its end.
    pub fn tls_opened(&self, is_1_3: bool, is_resumed: bool) {
        self.tls_connections[usize::from(is_resumed)].add(1);
        self.tls_versions[usize::from(is_1_3)].add(1);
    }

    /// Counts one that did not.
    pub fn tls_failed(&self, why: TlsHandshakeFailure) {
        self.tls_failures[why as usize].add(1);
    }

    /// Counts a turn.
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

    /// Zeros but for a one at that place.
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
