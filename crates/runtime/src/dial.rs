//! A connection to another WebSocket server that a script wants: checked, as plain data.

use std::net::SocketAddr;

use veche_calls::CertificateTrust;

/// Where to, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// One address of the host.
    pub address: SocketAddr,
    /// The host without port and brackets: what a certificate has to be for.
    pub host: String,
    /// Host and port as the `Host` header has them.
    pub authority: String,
    /// Path and query, graphic ASCII.
    pub target: String,
    /// Whom to believe, where TLS is asked for.
    pub tls: Option<CertificateTrust>,
    /// Subprotocols as the header has them, or empty.
    pub protocols: String,
    /// Further headers; nothing in them ends a line.
    pub headers: Vec<(String, String)>,
    /// Whether compression is offered.
    pub compresses: bool,
    /// Largest message that is taken, in bytes.
    pub message_bytes_max: usize,
    /// So long until it is open, in milliseconds.
    pub timeout_ms: u64,
    /// A silent server is pinged after so many milliseconds; 0: never.
    pub ping_interval_ms: u64,
    /// It has so many milliseconds to answer that.
    pub pong_timeout_ms: u64,
}
