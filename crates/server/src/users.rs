//! The number of WebSockets of each user, if the configuration limits it.
//!
//! The counts are changed when a WebSocket opens or closes, and only while `connections_per_user` is set. Users without
//! connections are not in the table.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use parking_lot::Mutex;

/// The number of shards of the table.
const SHARDS: usize = 16;

/// Connection counts by user.
#[derive(Default)]
pub(crate) struct UserCounters {
    shards: [Mutex<HashMap<Box<str>, u32>>; SHARDS],
    /// Uses random keys, so that users can't choose the shard of their name.
    hasher: RandomState,
}

impl UserCounters {
    /// Counts a connection if the user has fewer than `max`; returns whether it was counted.
    pub(crate) fn opened(&self, user: &str, max: u32) -> bool {
        let mut shard = self.shard(user).lock();
        let Some(count) = shard.get_mut(user) else {
            shard.insert(user.into(), 1);
            return true;
        };
        let has_room = *count < max;
        *count += u32::from(has_room);
        has_room
    }

    /// Counts a closed connection.
    pub(crate) fn closed(&self, user: &str) {
        let mut shard = self.shard(user).lock();
        if let Some(count) = shard.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                shard.remove(user);
            }
        }
    }

    fn shard(&self, user: &str) -> &Mutex<HashMap<Box<str>, u32>> {
        &self.shards[self.hasher.hash_one(user) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_as_many_as_he_may() {
        let users = UserCounters::default();
        assert!(users.opened("ann", 2) && users.opened("ann", 2));
        assert!(!users.opened("ann", 2) && users.opened("bob", 2));
        users.closed("ann");
        assert!(users.opened("ann", 2) && !users.opened("ann", 2));
        // A lowered limit applies to new connections.
        assert!(!users.opened("ann", 1));
        for user in ["ann", "ann", "bob", "nobody"] {
            users.closed(user);
        }
        assert!(users.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
