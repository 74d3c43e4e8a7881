//! Redis.

mod fate;

pub use fate::Fate;

use std::sync::Arc;
use std::time::Duration;

use crate::{Lease, Server};

/// A Redis server and how it is used; those that are equal share their connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keyspace {
    /// Where it is.
    pub server: Server,
    /// Number of the database there.
    pub database: u32,
    /// The name of its connections: keyspaces that differ in it alone share none.
    pub pool_name: Option<String>,
    /// Most connections for commands that wait in the server, at least 1.
    pub pool: usize,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// How long a command that waits in the server may wait for a connection to be free.
    pub wait_timeout: Duration,
    /// How long a command may take.
    pub timeout: Duration,
    /// A connection for commands that wait in the server is closed if it was not used for so long.
    pub idle_timeout: Duration,
    /// Most messages of a subscription that nobody has received yet.
    pub queue: usize,
}

/// Asks a Redis server.
#[derive(Clone, Debug, PartialEq)]
pub struct Redis {
    /// Which.
    pub keyspace: Arc<Keyspace>,
    /// What for.
    pub action: RedisAction,
}

/// What a Redis server is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum RedisAction {
    /// A command; answered by [`RedisReply::Value`].
    Run(Command),
    /// The same for one that waits in the server.
    Block(Command),
    /// Several at once; answered by [`RedisReply::Values`].
    Pipeline {
        /// In order.
        commands: Vec<Command>,
        /// Nothing of others comes between them.
        is_atomic: bool,
    },
    /// Messages; answered by [`RedisReply::Subscribed`].
    Subscribe {
        /// Names of channels, or patterns of such.
        names: Vec<Vec<u8>>,
        /// They are patterns.
        are_patterns: bool,
    },
    /// The next message of a subscription; answered by [`RedisReply::Message`].
    Receive {
        /// Of which.
        lease: Lease,
        /// How long to wait for one.
        within: Option<Duration>,
    },
}

/// A command: its name and its arguments, one behind the other, each behind its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    packed: Vec<u8>,
    count: u32,
}

/// Of a part, before its bytes.
const LENGTH_BYTES: usize = size_of::<u32>();

impl Command {
    /// With room for so many parts of so many bytes together.
    #[must_use]
    pub fn with_capacity(parts: usize, bytes: usize) -> Self {
        Self {
            packed: Vec::with_capacity(parts * LENGTH_BYTES + bytes),
            count: 0,
        }
    }

    /// Adds the name or an argument; all together have less than 4 GiB.
    pub fn push(&mut self, part: &[u8]) {
        let length = part.len() as u32;
        self.packed.extend_from_slice(&length.to_ne_bytes());
        self.packed.extend_from_slice(part);
        self.count += 1;
    }

    /// The name and the arguments.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.packed.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let (part, behind) = behind.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
            rest = behind;
            Some(part)
        })
    }

    /// Parts, the name included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is not even a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Of all parts together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.packed.len() - self.len() * LENGTH_BYTES
    }
}

/// A value as Redis has them.
#[derive(Clone, Debug, PartialEq)]
pub enum RedisValue {
    /// None.
    Nil,
    /// True or false.
    Boolean(bool),
    /// What a double holds exactly, or a float.
    Number(f64),
    /// Text, bytes, and numbers that are too large for a double.
    Bytes(Vec<u8>),
    /// A list or a set.
    List(Vec<Self>),
    /// Keys and what is under them.
    Map(Vec<(Self, Self)>),
    /// One of several commands has failed.
    Error(String),
}

/// What a Redis server answers.
#[derive(Clone, Debug, PartialEq)]
pub enum RedisReply {
    /// To a command.
    Value(RedisValue),
    /// To several; `None` if a key that was watched has changed.
    Values(Option<Vec<RedisValue>>),
    /// A subscription.
    Subscribed(Lease),
    /// A message, if one came in time.
    Message(Option<Message>),
}

/// A message of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The channel to which it was published.
    pub channel: Vec<u8>,
    /// The pattern that it came by, if any.
    pub pattern: Option<Vec<u8>>,
    /// It.
    pub data: Vec<u8>,
}
