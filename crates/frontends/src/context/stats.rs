//! Counters of a worker. Each worker owns one [`Stats`]; other threads only read it.
//!
//! A counter has a single writer, so adding is a load and a store instead of a locked instruction.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::guessing::Lock;
use crate::context::publishing::Busy;
use veche_jwt::Refusal;

/// A number written by one thread and readable by any.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
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
pub enum Handshake {
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
    TurnedAway,
    /// Authentication is unavailable: no keys, or no answer from the back end.
    Unavailable,
}

impl Handshake {
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
        (Self::TurnedAway, "turned_away"),
        (Self::Unavailable, "identity_unavailable"),
    ];
}

/// Reason for a failed TLS handshake of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealFailure {
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

impl SealFailure {
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
pub enum TurnedAway {
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

impl TurnedAway {
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
    pub connections: Cell,
    /// Open sessions (WebSocket, after the 101).
    pub sessions: Cell,
    /// Open outbound connections of applications.
    pub clients: Cell,
    /// Total number of accepted transports.
    pub accepted: Cell,
    /// Stalled accepts: at the connection limit, or out of descriptors.
    pub accepts_stalled: Cell,
    /// Refused connections and requests, by reason.
    pub turned_away: [Cell; TurnedAway::ALL.len()],
    /// Number of handshakes by outcome.
    pub handshakes: [Cell; Handshake::ALL.len()],
    /// Wrong keys by [`Lock`](crate::context::guessing::Lock).
    pub wrong_keys: [Cell; Lock::ALL.len()],
    /// Invalid tokens at handshakes and renewals, in the order of [`Refusal::ALL`](veche_jwt::Refusal::ALL).
    pub tokens_refused: [Cell; Refusal::ALL.len()],
    /// Tokens renewed on open sessions.
    pub tokens_renewed: Cell,
    /// Sessions closed because their token expired.
    pub tokens_expired: Cell,
    /// Completed TLS handshakes of clients: full, resumed.
    pub seals: [Cell; 2],
    /// Completed TLS handshakes by version: TLS 1.2, TLS 1.3.
    pub seal_versions: [Cell; 2],
    /// Failed TLS handshakes of clients, by reason.
    pub seal_failures: [Cell; SealFailure::ALL.len()],
    /// HTTP responses by status class: 1xx to 5xx.
    pub answers: [Cell; 5],
    /// Client messages, and their payload bytes.
    pub messages_received: Cell,
    /// Payload bytes of messages received from clients.
    pub message_bytes_received: Cell,
    /// Reading pauses of clients that exceeded their rate.
    pub paced: Cell,
    /// Client messages dropped for exceeding the rate.
    pub messages_dropped: Cell,
    /// Connections closed for exceeding the rate.
    pub outpaced: Cell,
    /// Messages to clients: publications and echoes.
    pub messages_sent: Cell,
    /// Payload bytes of messages sent to clients.
    pub message_bytes_sent: Cell,
    /// Bytes received and sent on the wire.
    pub bytes_received: Cell,
    /// Bytes sent on the wire.
    pub bytes_sent: Cell,
    /// Successful commands of back ends.
    pub pushes: Cell,
    /// Commands of back ends that were refused.
    pub pushes_refused: Cell,
    /// Valid commands of back ends that were rejected: rate limited, short of memory.
    pub pushes_turned_away: [Cell; 2],
    /// Publications not delivered to slow clients: the oldest, those replaced by later ones, those of namespaces that
    /// drop for slow clients.
    pub publications_dropped: [Cell; 3],
    /// Deliveries of publications of channels homed on this worker.
    pub fanned_out: Cell,
    /// Connections closed because the client read too slowly.
    pub slow_consumers: Cell,
    /// Connections closed because they did not answer a ping.
    pub silent_closed: Cell,
    /// Application handlers that failed or were stopped.
    pub app_errors: Cell,
    /// Suspended coroutines of applications.
    pub app_coroutines: Cell,
    /// Memory of application VMs, in bytes.
    pub app_memory_bytes: Cell,
    /// Running instances of services.
    pub services_running: Cell,
    /// Restarts of service instances.
    pub service_restarts: Cell,
    /// Connections closed because of a protocol violation.
    pub protocol_errors: Cell,
    /// Queued mail of this worker.
    pub mailbox_depth: Cell,
    /// Times that work had to wait for a credit.
    pub credits_refused: Cell,
    /// Channels and users homed on this worker, and subscriptions of its sessions.
    pub channels: Cell,
    /// Users homed on this worker.
    pub users: Cell,
    /// Subscriptions of this worker's sessions.
    pub subscriptions: Cell,
    /// Channels with history homed on this worker, and the memory of that history in bytes.
    pub streams: Cell,
    /// Memory of history homed on this worker, in bytes.
    pub history_bytes: Cell,
    /// Publications evicted from history before they expired.
    pub history_evicted: Cell,
    /// Join and leave events dropped because a queue was full.
    pub joins_untold: Cell,
    /// Publications that wait on this home worker until they are on disk.
    pub history_pending: Cell,
    /// Channel recoveries of this worker's clients: complete, incomplete.
    pub recoveries: [Cell; 2],
    /// Number of turns by duration.
    pub turns: [Cell; TURN_BUCKETS_US.len() + 1],
    /// Total duration of turns, in microseconds.
    pub turn_us: Cell,
}

impl Stats {
    /// Counts a handshake by its outcome.
    pub fn handshake(&self, outcome: Handshake) {
        self.handshakes[outcome as usize].add(1);
    }

    /// Counts an invalid token.
    pub fn token_refused(&self, why: Refusal) {
        let reasons = Refusal::ALL.iter().zip(&self.tokens_refused);
        for (_, cell) in reasons.filter(|((reason, _), _)| reason.is_like(&why)) {
            cell.add(1);
        }
    }

    /// Counts a rejected connection or request.
    pub fn turn_away(&self, why: TurnedAway) {
        self.turned_away[why as usize].add(1);
    }

    /// Counts a rejected valid command.
    pub fn push_turned_away(&self, busy: Busy) {
        let cell = match busy {
            Busy::TooFast { .. } => 0,
            Busy::NoMemory => 1,
        };
        self.pushes_turned_away[cell].add(1);
    }

    /// Counts a recovery as complete or incomplete.
    pub fn recovery(&self, is_whole: bool) {
        self.recoveries[usize::from(!is_whole)].add(1);
    }

    /// Counts an HTTP response.
    pub fn answer(&self, status: u16) {
        if let Some(cell) = self.answers.get((status / 100).wrapping_sub(1) as usize) {
            cell.add(1);
        }
    }

    /// Counts a completed TLS handshake.
    pub fn sealed(&self, is_1_3: bool, is_resumed: bool) {
        self.seals[usize::from(is_resumed)].add(1);
        self.seal_versions[usize::from(is_1_3)].add(1);
    }

    /// Counts a failed TLS handshake.
    pub fn seal_failed(&self, why: SealFailure) {
        self.seal_failures[why as usize].add(1);
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

    fn read(cells: &[Cell]) -> Vec<u64> {
        cells.iter().map(Cell::read).collect()
    }

    /// Returns zeros with a one at this index.
    fn only(place: usize, cells: &[Cell]) -> Vec<u64> {
        (0..cells.len()).map(|at| u64::from(at == place)).collect()
    }

    #[test]
    fn a_cell_counts_up_and_down_and_wraps() {
        let cell = Cell::default();
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
        for (place, (outcome, _)) in Handshake::ALL.into_iter().enumerate() {
            let stats = Stats::default();
            stats.handshake(outcome);
            assert_eq!(read(&stats.handshakes), only(place, &stats.handshakes));
        }
        for (place, (why, _)) in TurnedAway::ALL.into_iter().enumerate() {
            let stats = Stats::default();
            stats.turn_away(why);
            assert_eq!(read(&stats.turned_away), only(place, &stats.turned_away));
        }
        for (place, (why, _)) in SealFailure::ALL.into_iter().enumerate() {
            let stats = Stats::default();
            stats.seal_failed(why);
            assert_eq!(
                read(&stats.seal_failures),
                only(place, &stats.seal_failures)
            );
        }
        for (place, (why, _)) in Refusal::ALL.into_iter().enumerate() {
            let stats = Stats::default();
            stats.token_refused(why);
            assert_eq!(
                read(&stats.tokens_refused),
                only(place, &stats.tokens_refused)
            );
        }
        let stats = Stats::default();
        stats.token_refused(Refusal::Claim("another text"));
        assert_eq!(read(&stats.tokens_refused).iter().sum::<u64>(), 1);
    }

    #[test]
    fn pairs_count_apart() {
        let stats = Stats::default();
        stats.push_turned_away(Busy::TooFast { wait_ms: 1 });
        stats.push_turned_away(Busy::NoMemory);
        stats.push_turned_away(Busy::NoMemory);
        assert_eq!(read(&stats.pushes_turned_away), [1, 2]);
        stats.recovery(true);
        stats.recovery(false);
        stats.recovery(false);
        assert_eq!(read(&stats.recoveries), [1, 2]);
        stats.sealed(true, false);
        stats.sealed(true, true);
        stats.sealed(true, true);
        stats.sealed(false, true);
        assert_eq!(read(&stats.seals), [1, 3]);
        assert_eq!(read(&stats.seal_versions), [1, 3]);
    }

    #[test]
    fn answers_count_by_class_and_others_not_at_all() {
        let stats = Stats::default();
        for status in [0, 99, 600, 999, u16::MAX] {
            stats.answer(status);
        }
        assert_eq!(read(&stats.answers), [0; 5]);
        for (status, times) in [(101, 1), (200, 2), (399, 3), (404, 4), (500, 2), (599, 3)] {
            (0..times).for_each(|_| stats.answer(status));
        }
        assert_eq!(read(&stats.answers), [1, 2, 3, 4, 5]);
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
