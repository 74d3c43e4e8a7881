//! Names of Redis keys and channels, and the scripts that Redis runs.

use redis::Cmd;
use veche_nodes::NodeId;

/// A script that Redis runs atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedisScript {
    Publish,
    Check,
    Read,
    Remove,
    Verify,
    Member,
    Members,
    Bury,
    Renew,
    Leases,
    Occupy,
    Vacate,
    Store,
}

/// The texts of the scripts, in the order of [`RedisScript`]'s variants.
const TEXTS: [&str; 13] = [
    include_str!("scripts/publish.lua"),
    include_str!("scripts/check.lua"),
    include_str!("scripts/read.lua"),
    include_str!("scripts/remove.lua"),
    include_str!("scripts/verify.lua"),
    include_str!("scripts/member.lua"),
    include_str!("scripts/members.lua"),
    include_str!("scripts/bury.lua"),
    include_str!("scripts/renew.lua"),
    include_str!("scripts/leases.lua"),
    include_str!("scripts/occupy.lua"),
    include_str!("scripts/vacate.lua"),
    include_str!("scripts/store.lua"),
];

/// The hashes by which a server identifies the scripts.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded(Vec<String>);

impl Loaded {
    /// Returns the commands that load the scripts.
    pub(super) fn commands() -> impl Iterator<Item = Cmd> {
        TEXTS.iter().map(|text| {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(*text);
            command
        })
    }

    /// Creates the list from the replies to [`Loaded::commands`].
    pub(super) fn new(hashes: impl Iterator<Item = String>) -> Self {
        Self(hashes.collect())
    }

    /// Returns a command that runs a script with these keys; the caller appends the arguments.
    pub(super) fn run(&self, script: RedisScript, keys: &[impl AsRef<[u8]>]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        let hash = self.0.get(script as usize);
        command.arg(hash.map_or("", String::as_str)).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        command
    }
}

/// Prevents late execution of commands from an earlier connection of a port. Once a later connection has repeated such
/// commands, Redis refuses the originals, which may still be on their way.
#[derive(Clone, Debug, Default)]
pub(super) struct Fence {
    /// The key with the number of the port's latest connection; it is set from the second connection on.
    pub(super) key: Vec<u8>,
    /// The number of this connection among the connections of the port; the first one has the number 1.
    pub(super) number: u64,
}

/// The names of the Redis keys, which all begin with the same prefix.
#[derive(Clone, Debug)]
pub(super) struct RedisKeys {
    prefix: String,
}

impl RedisKeys {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: format!("{prefix}:"),
        }
    }

    pub(super) fn named(&self, kind: &str, name: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.len() + kind.len() + 1 + name.len());
        key.extend_from_slice(self.prefix.as_bytes());
        key.extend_from_slice(kind.as_bytes());
        key.push(b':');
        key.extend_from_slice(name.as_bytes());
        key
    }

    /// Returns the key of a channel's epoch, latest offset and other properties.
    pub(super) fn meta(&self, channel: &str) -> Vec<u8> {
        self.named("m", channel)
    }

    /// Returns the key of a channel's publications.
    pub(super) fn stream(&self, channel: &str) -> Vec<u8> {
        self.named("s", channel)
    }

    /// Returns the key of the result of a publication with an idempotency key. A byte that channel names can't contain
    /// separates the channel's name from the idempotency key.
    pub(super) fn result(&self, channel: &str, key: &str) -> Vec<u8> {
        let mut name = self.named("k", channel);
        name.push(0);
        name.extend_from_slice(key.as_bytes());
        name
    }

    /// Returns the Redis channel of a topic.
    pub(super) fn topic(&self, topic: &str) -> Vec<u8> {
        self.named("c", topic)
    }

    /// Returns the key of a channel's members.
    pub(super) fn members(&self, channel: &str) -> Vec<u8> {
        self.named("p", channel)
    }

    /// Returns the key of the nodes that have subscribers of a channel.
    pub(super) fn occupants(&self, channel: &str) -> Vec<u8> {
        self.named("o", channel)
    }

    /// Returns the prefix of the keys of leases.
    pub(super) fn leases(&self) -> Vec<u8> {
        self.named("lease", "")
    }

    /// Returns the key of the fence of port `port` of a node.
    pub(super) fn fence(&self, node: NodeId, port: u64) -> Vec<u8> {
        self.named("fence", &format!("{node}.{port}"))
    }

    /// Returns a key that is specific to a node.
    pub(super) fn of_node(&self, kind: &str, node: NodeId) -> Vec<u8> {
        self.named(kind, &node.to_string())
    }

    /// Returns the keys of a table's values and of the values' expiry times.
    pub(super) fn table(&self, table: &str) -> [Vec<u8>; 2] {
        [self.named("t", table), self.named("te", table)]
    }

    /// Returns a key that exists once per prefix.
    pub(super) fn single(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_kinds_differ() {
        let keys = RedisKeys::new("veche");
        assert_eq!(keys.meta("a:b"), b"veche:m:a:b");
        assert_eq!(keys.result("a", "b"), b"veche:k:a\0b");
        assert_eq!(keys.leases(), b"veche:lease:");
        assert_eq!(
            keys.of_node("lease", NodeId(1)),
            b"veche:lease:0000000000000001"
        );
        assert_eq!(keys.single("identity"), b"veche:identity");
    }
}
