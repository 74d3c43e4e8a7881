//! `[limits]`: limits of each client, and of all clients together.

use std::time::Duration;

use veche_frontends::rate::Rate;

/// `[limits]`: limits of each client, and of all clients together. In each `Option`, `None` is "off".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Whether a channel of an unknown namespace is an error.
    pub refuses_unknown_namespaces: bool,
    /// The limit of concurrent connections to all listeners together.
    pub connections: ConnectionCap,
    /// The limit of concurrent connections from one address.
    pub connections_per_address: Option<u32>,
    /// The limit of concurrent connections of one user.
    pub connections_per_user: Option<u32>,
    /// The limit of subscriptions of a client of Centrifugo's protocol.
    pub channels_per_client: u32,
    /// The longest channel name in bytes.
    pub channel_name_bytes_max: u32,
    /// The resident memory above which new work is rejected.
    pub memory: MemoryLimit,
    /// The rate limit of handshakes from one address.
    pub handshakes_per_address: Option<Rate>,
    /// The time limit for the head of a request.
    pub header_timeout: Duration,
    /// The time limit from accepting a connection until the end of the TLS handshake, and until the WebSocket is open.
    /// For a request without an upgrade, this limit applies from the end of the head to the end of the body.
    pub handshake_timeout: Duration,
    /// The idle time of a connection between two requests.
    pub keep_alive_timeout: Duration,
    /// The idle time after which a client's connection is closed; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// The time in which a client has to accept some of its pending data, or its connection is aborted.
    pub write_timeout: Duration,
    /// The interval of pings; `None`: no pings.
    pub ping_interval: Option<Duration>,
    /// The time limit for a pong after its ping; may exceed `ping_interval`.
    pub pong_timeout: Duration,
    /// The duration of a drain; zero: connections are closed at once.
    pub drain_time: Duration,
    /// How long `/health` returns 503 before a drain.
    pub lame_duck_time: Duration,
    /// The duration of the drain of a process replaced by an upgrade.
    pub upgrade_drain_time: Duration,
    /// The time in which each worker has to finish its turn; otherwise the server process is killed and restarted.
    pub watchdog_timeout: Option<Duration>,
    /// The maximum number of bytes that wait to be sent to one client; above it the client counts as a slow consumer.
    pub outbox_bytes: u64,
    /// The history limit of all channels in bytes.
    pub history_bytes: u64,
    /// Maximum number of publications in one reply to a history request.
    pub history_answer_max: u32,
    /// The longest request body in bytes.
    pub body_bytes_max: u64,
    /// The longest request head in bytes.
    pub header_bytes_max: u64,
    /// Maximum number of header lines of a request.
    pub headers_max: u32,
}

/// The limit of concurrent connections to all listeners together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionCap {
    /// Derived from the descriptor limit.
    Auto,
    /// At most this many connections.
    Count(u32),
}

/// The memory use above which new work is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// A share of the available memory.
    Auto,
    /// Memory use is not limited.
    Off,
    /// A fixed number of bytes.
    Bytes(u64),
}
