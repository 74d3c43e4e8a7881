//! What scripts ask of the world, and what comes back: plain types.
//!
//! `script` makes a [`Call`] of what a handler asks for and knows not who performs it; `outbound` performs it and knows
//! not who asked. Each kind of call is a file of its own.

pub mod channel;
mod fastcgi;
mod handle;
mod http;
mod lease;
pub mod mysql;
pub mod password;
mod place;
pub mod redis;
mod resolve;
mod secret_url;
mod server;

pub use fastcgi::{Fastcgi, FastcgiClient, FastcgiPool, FastcgiReply};
pub use handle::Handle;
pub use http::{Body, Fetch, Http, HttpReply, Read, Trust};
pub use lease::Lease;
pub use mysql::Mysql;
pub use password::Password;
pub use place::{BadPlace, Place};
pub use redis::Redis;
pub use resolve::Resolve;
pub use secret_url::{SecretUrl, masked};
pub use server::{Secret, Server, Tls};

use std::net::IpAddr;

/// Which call of a worker it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// The application's number.
    pub app: u16,
    /// The call's, never used twice by one application of a worker.
    pub token: u64,
}

/// One thing asked of the world.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// Something of HTTP.
    Http(Http),
    /// The addresses of a host.
    Resolve(Resolve),
    /// A MySQL or MariaDB server.
    Mysql(Mysql),
    /// A Redis server.
    Redis(Redis),
    /// A password and its hash.
    Password(Password),
    /// A script behind a FastCGI server.
    Fastcgi(Box<Fastcgi>),
}

/// What has come of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To [`Call::Resolve`]; at least one.
    Addresses(Vec<IpAddr>),
    /// To [`Http::Fetch`].
    Http(Box<HttpReply>),
    /// To [`Http::Read`]: the next bytes of a body, `None` at its end.
    Chunk(Option<Vec<u8>>),
    /// To [`Call::Mysql`].
    Mysql(mysql::MysqlReply),
    /// To [`Call::Redis`].
    Redis(redis::RedisReply),
    /// To [`Call::Password`].
    Password(password::PasswordReply),
    /// To [`Call::Fastcgi`].
    Fastcgi(FastcgiReply),
    /// To a question that is no call: where connections are that were looked for.
    Places(Vec<Place>),
    /// To a question that is no call: what a channel's home says.
    Channel(channel::ChannelReply),
    /// To a call of the API: `{"result":{…}}` or `{"error":{"code":…,"message":…}}`.
    Api(Vec<u8>),
}

/// Why nothing has come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What a program can tell it by.
    pub kind: FaultKind,
    /// What a person is told.
    pub words: String,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// No answer in the time that it was allowed to take: it may have been carried out.
    Timeout,
    /// All connections of a pool are in use, for longer than it was allowed to wait: nothing was sent.
    PoolFull,
    /// No connection comes about: nothing was sent.
    Unreachable,
    /// The connection was lost after it had come about: what was sent may have been carried out.
    ConnectionLost,
    /// The other side says no.
    Refused,
    /// What was asked for makes no sense.
    Invalid,
    /// The other side does not keep to its protocol, or said more than it was allowed to.
    Broken,
}

impl FaultKind {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::Timeout,
        Self::PoolFull,
        Self::Unreachable,
        Self::ConnectionLost,
        Self::Refused,
        Self::Invalid,
        Self::Broken,
    ];

    /// As scripts read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::PoolFull => "pool_full",
            Self::Unreachable => "unreachable",
            Self::ConnectionLost => "connection_lost",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
            Self::Broken => "broken",
        }
    }
}

impl Fault {
    /// Of that kind, in those words.
    pub fn new(kind: FaultKind, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { kind, words }
    }
}

/// How a call has ended.
pub type Outcome = Result<Reply, Fault>;
