//! A connection to another WebSocket server, as an application asks for it.

use veche_proto::websocket;
use veche_types::AppId;

/// Who asked for a connection, and by which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialId {
    /// The application.
    pub app: AppId,
    /// Its own number for this attempt.
    pub token: u64,
}

/// A connection that is to be opened.
#[derive(Clone, Debug)]
pub struct DialCommand {
    /// Who asks.
    pub caller: DialId,
    /// Host and port as the `Host` header has them.
    pub authority: String,
    /// Path and query.
    pub target: String,
    /// Subprotocols as the header has them, or empty.
    pub protocols: String,
    /// Further headers; names and values hold no line breaks.
    pub headers: Vec<(String, String)>,
    /// Whether compression is offered.
    pub compresses: bool,
    /// So long until it is open, in milliseconds.
    pub timeout_ms: u64,
    /// What holds once it is open.
    pub options: ClientOptions,
}

/// What an open client keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Of the server's messages.
    pub message_limits: websocket::MessageLimits,
    /// A server that is silent for so long is pinged, in milliseconds; 0: never.
    pub ping_interval_ms: u64,
    /// The pong has to come within that time.
    pub pong_timeout_ms: u64,
}
