//! Calls to Redis.

mod fate;

pub use fate::Fate;

use std::sync::Arc;
use std::time::Duration;

use crate::{Lease, ServerAccount};

/// A Redis database and its settings. Equal values share connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RedisDatabase {
    /// The server and the account.
    pub server: ServerAccount,
    /// The number of the database.
    pub database: u32,
    /// The name of the pool; `None` for a name made from the server and the database. Databases that differ only in
    /// this name share no connections.
    pub pool_name: Option<String>,
    /// Maximum number of connections for blocking commands, at least 1.
    pub pool: usize,
    /// The time limit for connecting.
    pub connect_timeout: Duration,
    /// How long a blocking command may wait for a free connection.
    pub wait_timeout: Duration,
    /// The time limit of a command.
    pub timeout: Duration,
    /// The idle time after which a connection for blocking commands is closed.
    pub idle_timeout: Duration,
    /// Maximum number of queued messages of a subscription.
    pub queue: usize,
}

/// A call to a Redis server.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisCall {
    /// The database to call, with its settings.
    pub keyspace: Arc<RedisDatabase>,
    /// The action to perform.
    pub action: RedisAction,
}

/// The actions on a database.
#[derive(Clone, Debug, PartialEq)]
pub enum RedisAction {
    /// Runs a command; answered by [`RedisReply::Value`].
    Run(RedisCommand),
    /// Runs a command that waits in the Redis server; answered by [`RedisReply::Value`].
    Block(RedisCommand),
    /// Runs several commands; answered by [`RedisReply::Values`].
    Pipeline {
        /// The commands in order.
        commands: Vec<RedisCommand>,
        /// Whether the commands run as a transaction.
        is_atomic: bool,
    },
    /// Subscribes to messages; answered by [`RedisReply::Subscribed`].
    Subscribe {
        /// Names of channels, or patterns.
        names: Vec<Vec<u8>>,
        /// Whether the names are patterns.
        are_patterns: bool,
    },
    /// Receives the next message of a subscription; answered by [`RedisReply::Message`].
    Receive {
        /// The lease of the subscription.
        lease: Lease,
        /// How long to wait for a message; `None` for no limit.
        within: Option<Duration>,
    },
}

/// A command: its name and arguments in one buffer, each preceded by its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisCommand {
    packed: Vec<u8>,
    count: u32,
}

/// Size of the length field before each part, in bytes.
const LENGTH_BYTES: usize = size_of::<u32>();

impl RedisCommand {
    /// Creates an empty command with capacity for `parts` parts of `bytes` bytes in total.
    #[must_use]
    pub fn with_capacity(parts: usize, bytes: usize) -> Self {
        Self {
            packed: Vec::with_capacity(parts * LENGTH_BYTES + bytes),
            count: 0,
        }
    }

    /// Adds the name or an argument; the total has to be less than 4 GiB.
    pub fn push(&mut self, part: &[u8]) {
        let length = part.len() as u32;
        self.packed.extend_from_slice(&length.to_ne_bytes());
        self.packed.extend_from_slice(part);
        self.count += 1;
    }

    /// Returns the name and the arguments.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.packed.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let (part, behind) = behind.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
            rest = behind;
            Some(part)
        })
    }

    /// Returns the number of the command's parts: its name and its arguments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns whether the command has no parts, not even a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the size of the command's buffer in bytes: its parts, each with its length field.
    #[must_use]
    pub fn packed_bytes(&self) -> usize {
        self.packed.len()
    }

    /// Returns the total size of all parts in bytes, without their length fields.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.packed.len() - self.len() * LENGTH_BYTES
    }
}

/// A value of Redis.
#[derive(Clone, Debug, PartialEq)]
pub enum RedisValue {
    /// The null value of the protocol.
    Nil,
    /// A value that is true or false.
    Boolean(bool),
    /// A float, or an integer that a double holds exactly.
    Number(f64),
    /// Text, bytes, and integers too large for a double.
    Bytes(Vec<u8>),
    /// A list or a set.
    List(Vec<Self>),
    /// Pairs of keys and values.
    Map(Vec<(Self, Self)>),
    /// The error of one of several commands.
    Error(String),
}

/// The reply to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum RedisReply {
    /// The reply to a command.
    Value(RedisValue),
    /// The replies to several commands; `None` if a watched key has changed.
    Values(Option<Vec<RedisValue>>),
    /// The lease of a subscription.
    Subscribed(Lease),
    /// A message; `None` if none arrived in time.
    Message(Option<RedisMessage>),
}

/// A message of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisMessage {
    /// The channel to which the message was published.
    pub channel: Vec<u8>,
    /// The pattern that matched, if the subscription is by patterns.
    pub pattern: Option<Vec<u8>>,
    /// The data of the published message.
    pub data: Vec<u8>,
}
