//! Requests of clients of Centrifugo's protocol that an application decides on, and its responses.
//!
//! Plain values. When a client's command leads to a request, and what a response does, the front ends know.

use std::net::IpAddr;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Who a client is.
    Connect,
    /// Whether a connection whose time is over may stay.
    Refresh,
    /// Whether a client may hear a channel.
    Subscribe,
    /// Whether it may still hear it.
    SubRefresh,
    /// Whether it may publish, and what.
    Publish,
    /// What a method gives.
    Rpc,
    /// What it says without waiting for a reply.
    Message,
    /// It is gone.
    Disconnect,
}

impl Hook {
    /// All of them.
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

    /// Returns the name that handlers and metrics have for it.
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

/// Data, lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// One JSON value.
    Json(&'a [u8]),
    /// A string.
    Text(&'a str),
    /// Any bytes.
    Binary(&'a [u8]),
}

/// Who asks, lent.
#[derive(Clone, Copy, Debug)]
pub struct HookCaller<'a> {
    /// The connection's id.
    pub id: &'a str,
    /// Empty for nobody.
    pub user: &'a str,
    /// What carries its messages.
    pub transport: &'a str,
    /// `json` or `protobuf`.
    pub protocol: &'a str,
    /// The kind of client, as it says, and its version.
    pub name: &'a str,
    /// See `name`.
    pub version: &'a str,
    /// Where it comes from.
    pub remote: IpAddr,
    /// Of its request, with names in lower case.
    pub headers: &'a [(Box<str>, Box<[u8]>)],
    /// What the application keeps of the connection for itself: JSON.
    pub meta: Option<&'a [u8]>,
}

/// What is asked, lent.
#[derive(Clone, Copy, Debug)]
pub struct HookRequest<'a> {
    /// About what.
    pub hook: Hook,
    /// By whom.
    pub caller: HookCaller<'a>,
    /// The channel, the method, or why it is gone; otherwise empty.
    pub subject: &'a str,
    /// With which it has ended.
    pub code: u16,
    /// That came with the command.
    pub token: &'a str,
    /// Channels of which a client that comes back says that it was given them.
    pub channels: &'a [Box<str>],
    /// What the client has sent along.
    pub data: Option<Data<'a>>,
}

/// Data of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blob {
    /// One JSON value.
    Json(Vec<u8>),
    /// Any bytes.
    Bytes(Vec<u8>),
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookResponse {
    /// So be it.
    Granted(Box<Grant>),
    /// The command fails, and the client is told this.
    Error {
        /// From 1 on.
        code: u32,
        /// For people.
        message: String,
        /// Whether the same command may succeed later.
        is_temporary: bool,
    },
    /// The client is closed.
    Disconnect {
        /// From 3000 to 4999.
        code: u16,
        /// For people.
        reason: String,
    },
    /// The handler has failed, which the log says, or was never called.
    Failed,
}

/// What is granted; each hook has fields of its own, the others are as they are by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Empty for nobody.
    pub user: String,
    /// In seconds since 1970; `None`: for ever.
    pub expires_at_s: Option<u64>,
    /// Of refreshes: it does not hold any more.
    pub is_expired: bool,
    /// For others to see.
    pub info: Option<Blob>,
    /// For the client, or what is published.
    pub data: Option<Blob>,
    /// Channels that a client is given; of a name that comes twice the first counts.
    pub channels: Vec<ServerSubscription>,
    /// Comes back with each further question of the connection: JSON.
    pub meta: Option<Blob>,
    /// What is published is not kept.
    pub skips_history: bool,
}

/// A channel that a client is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSubscription {
    /// Which.
    pub channel: String,
    /// For others to see.
    pub info: Option<Blob>,
    /// For the client.
    pub data: Option<Blob>,
    /// In seconds since 1970; `None`: for ever.
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
