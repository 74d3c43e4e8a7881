//! How many WebSockets each user has, where there is a limit: counted when one opens and when it is gone.
//!
//! Touched then only, and only while `connections_per_user` is set. A user who has none is not in the table.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use parking_lot::Mutex;

/// Shards of the table.
const SHARDS: usize = 16;

/// See the module's text.
#[derive(Default)]
pub(crate) struct UserCounters {
    shards: [Mutex<HashMap<Box<str>, u32>>; SHARDS],
    /// Which shard a name is in must not be for its bearer to choose.
    hasher: RandomState,
}

impl UserCounters {
    /// Counts one more in if the user has less than `max`; whether he had.
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

    /// Counts one out.
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
        // A limit that was lowered holds for new ones.
        assert!(!users.opened("ann", 1));
        for user in ["ann", "ann", "bob", "nobody"] {
            users.closed(user);
        }
        assert!(users.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
