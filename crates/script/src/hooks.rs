//! What clients of Centrifugo's protocol need leave for, where a script decides: what it is asked, and what it rules.
//!
//! Plain values. Which of them comes when, and what a ruling brings about, whoever asks knows.

use std::net::IpAddr;

/// A function of `app.centrifuge`, and so what it is asked about.
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

    /// As scripts name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        // Without what is before the name.
        self.path().split_at("centrifuge.".len()).1
    }

    /// The same with the table that it stands in.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Connect => "centrifuge.connect",
            Self::Refresh => "centrifuge.refresh",
            Self::Subscribe => "centrifuge.subscribe",
            Self::SubRefresh => "centrifuge.sub_refresh",
            Self::Publish => "centrifuge.publish",
            Self::Rpc => "centrifuge.rpc",
            Self::Message => "centrifuge.message",
            Self::Disconnect => "centrifuge.disconnect",
        }
    }

    /// What a result of it may hold.
    pub(crate) const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Connect => &[
                "user",
                "expire_at",
                "info",
                "b64info",
                "data",
                "b64data",
                "channels",
                "subs",
                "meta",
            ],
            Self::Refresh | Self::SubRefresh => &["expired", "expire_at", "info", "b64info"],
            Self::Subscribe => &["info", "b64info", "data", "b64data", "expire_at"],
            Self::Publish => &["data", "b64data", "skip_history"],
            Self::Rpc => &["data", "b64data"],
            Self::Message | Self::Disconnect => &[],
        }
    }
}

/// Data, lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// One JSON value: a script gets it as a value of its own.
    Json(&'a [u8]),
    /// A string.
    Text(&'a str),
    /// Bytes: a script gets them as a string.
    Binary(&'a [u8]),
}

/// Who asks, lent.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
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
    /// What the script has said of the connection for itself: JSON.
    pub meta: Option<&'a [u8]>,
}

/// What is asked, lent.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// About what.
    pub hook: Hook,
    /// By whom.
    pub caller: Caller<'a>,
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

/// Data of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blob {
    /// One JSON value.
    Json(Vec<u8>),
    /// Any bytes.
    Bytes(Vec<u8>),
}

/// What a script has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// So be it.
    Granted(Box<Granted>),
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
    /// The script has failed, which the log says, or was never asked.
    Failed,
}

/// What is granted; each hook has fields of its own, the others are as they are by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
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
    pub channels: Vec<Given>,
    /// Comes back with each further question of the connection: JSON.
    pub meta: Option<Blob>,
    /// What is published is not kept.
    pub skips_history: bool,
}

/// A channel that a client is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
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
