//! Outbound WebSocket connections that applications request.

use veche_proto::websocket;
use veche_types::AppId;

/// Identifies a connection attempt of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialId {
    /// The id of the application.
    pub app: AppId,
    /// The application's number for this attempt.
    pub token: u64,
}

/// An outbound connection to open.
#[derive(Clone, Debug)]
pub struct DialCommand {
    /// The requesting application, and its number for this attempt.
    pub caller: DialId,
    /// Host and port as in the `Host` header.
    pub authority: String,
    /// The path and query of the request.
    pub target: String,
    /// Subprotocols as in the header, or empty.
    pub protocols: String,
    /// Further headers; names and values contain no line breaks.
    pub headers: Vec<(String, String)>,
    /// Whether compression is offered.
    pub compresses: bool,
    /// Time limit for opening, in milliseconds.
    pub timeout_ms: u64,
    /// Options of the open connection.
    pub options: ClientOptions,
}

/// Options of an open outbound connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Limits on the server's messages.
    pub message_limits: websocket::MessageLimits,
    /// Silence of the server after which a ping is sent, in milliseconds; 0: never.
    pub ping_interval_ms: u64,
    /// Time limit for the pong, in milliseconds.
    pub pong_timeout_ms: u64,
}
