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
    /// The application that requests the connection, and its number for this attempt.
    pub caller: DialId,
    /// Host and port, as in the `Host` header.
    pub authority: String,
    /// The path and query of the request.
    pub target: String,
    /// The offered subprotocols, as the value of `Sec-WebSocket-Protocol`; empty if none is offered.
    pub protocols: String,
    /// Further headers of the request; names and values contain no line breaks.
    pub headers: Vec<(String, String)>,
    /// Whether compression is offered.
    pub compresses: bool,
    /// Time limit for opening the connection, in milliseconds.
    pub timeout_ms: u64,
    /// Options for the time after the connection is open.
    pub options: ClientOptions,
}

/// Options of an open outbound connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Limits on the server's messages.
    pub message_limits: websocket::MessageLimits,
    /// Time without input from the server after which a ping is sent, in milliseconds; 0: never.
    pub ping_interval_ms: u64,
    /// Time limit for the answer to a ping, in milliseconds.
    pub pong_timeout_ms: u64,
}
