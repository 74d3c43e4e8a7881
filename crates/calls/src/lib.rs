//! Calls of scripts to external services, and their replies: plain types.
//!
//! The crate `script` creates a [`Call`] for a handler and does not depend on how the call is executed. The
//! crate `outbound` executes calls and does not depend on their origin. Each kind of call has its own file.

pub mod channel;
mod databases;
mod fastcgi;
mod handle;
mod http;
mod lease;
pub mod mysql;
pub mod password;
pub mod redis;
mod resolve;
mod secret_url;
mod server;
mod worker_connection;

pub use databases::Databases;
pub use fastcgi::{FastcgiCall, FastcgiClient, FastcgiPool, FastcgiReply};
pub use handle::Handle;
pub use http::{CertificateTrust, HttpCall, HttpReply, HttpRequest, ReadBody, ReplyBody};
pub use lease::Lease;
pub use mysql::MysqlCall;
pub use password::PasswordCall;
pub use redis::RedisCall;
pub use resolve::ResolveCall;
pub use secret_url::{SecretUrl, masked};
pub use server::{Secret, ServerAccount, TlsMode};
pub use worker_connection::{WorkerConnection, WorkerConnectionError};

use std::net::IpAddr;

/// Identifies a call of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// The number of the application.
    pub app: u16,
    /// The number of the call, unique for an application on a worker.
    pub token: u64,
}

/// A call to an external service.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// An HTTP request, or a read of a response's body.
    Http(HttpCall),
    /// A query for the addresses of a host.
    Resolve(ResolveCall),
    /// A call to a MySQL or MariaDB server.
    Mysql(MysqlCall),
    /// A call to a Redis server.
    Redis(RedisCall),
    /// Hashing or verification of a password.
    Password(PasswordCall),
    /// A script behind a FastCGI server.
    Fastcgi(Box<FastcgiCall>),
}

impl Call {
    /// Returns the approximate memory of the data that the call sends, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Http(HttpCall::Fetch(request)) => {
                let headers = request.headers.iter();
                let headers = headers.map(|(name, value)| name.len() + value.len());
                request.url.len() + request.body.len() + headers.sum::<usize>()
            }
            Self::Mysql(MysqlCall {
                action: mysql::MysqlAction::Run { sql, values, .. },
                ..
            }) => {
                let texts = values.iter().map(|value| match value {
                    mysql::MysqlValue::Bytes(bytes) => bytes.len(),
                    _ => 0,
                });
                sql.len() + size_of_val(values.as_slice()) + texts.sum::<usize>()
            }
            Self::Redis(call) => match &call.action {
                redis::RedisAction::Run(command) | redis::RedisAction::Block(command) => {
                    command.packed_bytes()
                }
                redis::RedisAction::Pipeline { commands, .. } => {
                    let bytes = commands.iter().map(redis::RedisCommand::packed_bytes);
                    size_of_val(commands.as_slice()) + bytes.sum::<usize>()
                }
                redis::RedisAction::Subscribe { names, .. } => {
                    size_of_val(names.as_slice()) + names.iter().map(Vec::len).sum::<usize>()
                }
                redis::RedisAction::Receive { .. } => 0,
            },
            Self::Password(call) => call.password.len(),
            Self::Http(HttpCall::Read(_)) | Self::Mysql(_) | Self::Resolve(_) => 0,
            Self::Fastcgi(_) => 0,
        }
    }
}

/// The successful result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallReply {
    /// The answer to [`Call::Resolve`]; at least one address.
    Addresses(Vec<IpAddr>),
    /// The answer to [`HttpCall::Fetch`].
    Http(Box<HttpReply>),
    /// The answer to [`HttpCall::Read`]: the next bytes of a body, `None` at its end.
    Chunk(Option<Vec<u8>>),
    /// The answer to [`Call::Mysql`].
    Mysql(mysql::MysqlReply),
    /// The answer to [`Call::Redis`].
    Redis(redis::RedisReply),
    /// The answer to [`Call::Password`].
    Password(password::PasswordReply),
    /// The answer to [`Call::Fastcgi`].
    Fastcgi(FastcgiReply),
    /// The connections that a search found; the search itself is not a [`Call`].
    Places(Vec<WorkerConnection>),
    /// The answer of a channel's home worker; the query itself is not a [`Call`].
    Channel(channel::ChannelReply),
    /// The result of an API call: `{"result":{…}}` or `{"error":{"code":…,"message":…}}`.
    Api(Vec<u8>),
}

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The kind of the error, which scripts can check.
    pub kind: CallErrorKind,
    /// The error message, for people.
    pub words: String,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallErrorKind {
    /// No reply arrived within the time limit. The call may have had an effect.
    Timeout,
    /// All connections of a pool were in use until the wait limit, so the call was not sent.
    PoolFull,
    /// No connection could be established, so nothing was sent.
    Unreachable,
    /// An established connection was lost, so the call may have had an effect.
    ConnectionLost,
    /// The called service refused the call.
    Refused,
    /// The call is invalid.
    Invalid,
    /// The called service violated its protocol or exceeded a limit on its response.
    Broken,
}

impl CallErrorKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Timeout,
        Self::PoolFull,
        Self::Unreachable,
        Self::ConnectionLost,
        Self::Refused,
        Self::Invalid,
        Self::Broken,
    ];

    /// Returns the name of this kind in scripts.
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

impl CallError {
    /// Creates an error of a kind with a message.
    pub fn new(kind: CallErrorKind, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { kind, words }
    }
}

/// The outcome of a call.
pub type CallOutcome = Result<CallReply, CallError>;
