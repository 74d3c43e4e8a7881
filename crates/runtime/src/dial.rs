//! A script's request for an outgoing connection to a WebSocket server: validated plain data.

use std::net::SocketAddr;

use veche_calls::CertificateTrust;

/// The destination and the options of an outgoing connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// The resolved address of the host.
    pub address: SocketAddr,
    /// The host without port and brackets, which the certificate has to match.
    pub host: String,
    /// The host and port for the `Host` header.
    pub authority: String,
    /// Path and query, in printable ASCII.
    pub target: String,
    /// The certificates to trust; `None` for a connection without TLS.
    pub tls: Option<CertificateTrust>,
    /// The value of `Sec-WebSocket-Protocol`; may be empty.
    pub protocols: String,
    /// Additional headers, free of line breaks.
    pub headers: Vec<(String, String)>,
    /// Whether to offer compression (permessage-deflate).
    pub compresses: bool,
    /// The longest message to accept, in bytes.
    pub message_bytes_max: usize,
    /// The time limit for opening the connection, in milliseconds.
    pub timeout_ms: u64,
    /// The time without received data after which a ping is sent, in milliseconds; 0 for no pings.
    pub ping_interval_ms: u64,
    /// The time limit for the pong, in milliseconds.
    pub pong_timeout_ms: u64,
}
