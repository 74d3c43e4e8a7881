//! Hooks: requests to an application for decisions about clients of Centrifugo's protocol, and the application's responses,
//! as plain values.
//!
//! The front ends determine when a command leads to a request and what a response causes.

use std::net::IpAddr;

use veche_types::{Payload, PayloadRef};

/// A kind of hook: a request by which the server asks or notifies an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Decides on a client that connects without a token: its user, channels and data.
    Connect,
    /// Decides whether an expired connection may stay.
    Refresh,
    /// Decides whether a client may subscribe to a channel.
    Subscribe,
    /// Decides whether an expired subscription may stay.
    SubRefresh,
    /// Decides whether a client may publish, and with which data.
    Publish,
    /// Returns the result of an RPC method.
    Rpc,
    /// Notifies the application of a message for which the client expects no reply.
    Message,
    /// Notifies the application that a connected client has disconnected.
    Disconnect,
}

impl Hook {
    /// All kinds in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Connect,
        Self::Refresh,
        Self::Subscribe,
        Self::SubRefresh,
        Self::Publish,
        Self::Rpc,
        Self::Message,
        Self::Disconnect,
    ];

    /// Returns the kind's name in handlers and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refresh => "refresh",
            Self::Subscribe => "subscribe",
            Self::SubRefresh => "sub_refresh",
            Self::Publish => "publish",
            Self::Rpc => "rpc",
            Self::Message => "message",
            Self::Disconnect => "disconnect",
        }
    }
}

/// The client that a request is about; borrows the client's data.
#[derive(Clone, Copy, Debug)]
pub struct AppHookCaller<'a> {
    /// The id of the client's connection.
    pub id: &'a str,
    /// The user; empty for an anonymous client.
    pub user: &'a str,
    /// The transport of the client's messages.
    pub transport: &'a str,
    /// The message format: `json` or `protobuf`.
    pub protocol: &'a str,
    /// The name that the client reports.
    pub name: &'a str,
    /// The version that the client reports.
    pub version: &'a str,
    /// The client's address, as trusted proxies determine it.
    pub remote: IpAddr,
    /// The headers of the client's handshake, with names in lower case.
    pub headers: &'a [(Box<str>, Box<[u8]>)],
    /// Private data of the application about the connection: JSON.
    pub meta: Option<&'a [u8]>,
}

/// A request for a decision of the application; borrows the data of the command.
#[derive(Clone, Copy, Debug)]
pub struct AppHookRequest<'a> {
    /// The kind of the request.
    pub hook: Hook,
    /// The client that sent the request.
    pub caller: AppHookCaller<'a>,
    /// The channel, the method, or the reason of a disconnect; otherwise empty.
    pub subject: &'a str,
    /// The close code of a disconnect.
    pub code: u16,
    /// The token of the command; empty without one.
    pub token: &'a str,
    /// Server-side subscriptions that a reconnecting client had.
    pub channels: &'a [Box<str>],
    /// The data of the command.
    pub data: Option<PayloadRef<'a>>,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookResponse {
    /// The application has no handler for this hook. This is known only once the application's code is loaded. The
    /// command continues as if the hook were not configured.
    Unhandled,
    /// The request is granted.
    Granted(Box<Grant>),
    /// The command fails with this error.
    Error {
        /// The error code, at least 1.
        code: u32,
        /// The text of the error.
        message: String,
        /// Whether the same command may succeed later.
        is_temporary: bool,
    },
    /// The client is disconnected.
    Disconnect {
        /// The disconnect code, from 3000 to 4999.
        code: u16,
        /// The reason of the close, at most 123 bytes.
        reason: String,
    },
    /// The handler failed and the error was logged, or the handler could not be called.
    Failed,
}

/// The content of a granted request. Each hook uses some of the fields; the others keep their defaults. Payloads are JSON
/// or binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The user; empty for an anonymous client.
    pub user: String,
    /// The expiry in seconds since 1970; `None` if it never expires.
    pub expires_at_s: Option<u64>,
    /// For refreshes: whether the connection or subscription has expired.
    pub is_expired: bool,
    /// Public data of the client.
    pub info: Option<Payload>,
    /// Data for the client, or the published data.
    pub data: Option<Payload>,
    /// Server-side subscriptions. If several have the same channel, the first one is used.
    pub channels: Vec<ServerSubscription>,
    /// JSON that is included in every further request about the connection.
    pub meta: Option<Payload>,
    /// Whether the publication is left out of the history.
    pub skips_history: bool,
}

/// A server-side subscription of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSubscription {
    /// The name of the channel.
    pub channel: String,
    /// Public data of the client.
    pub info: Option<Payload>,
    /// Data for the client.
    pub data: Option<Payload>,
    /// The expiry in seconds since 1970; `None` if it never expires.
    pub expires_at_s: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_have_the_names_of_their_fields() {
        let names = Hook::ALL.map(Hook::name);
        let expected = [
            "connect",
            "refresh",
            "subscribe",
            "sub_refresh",
            "publish",
            "rpc",
            "message",
            "disconnect",
        ];
        assert_eq!(names, expected);
    }
}
