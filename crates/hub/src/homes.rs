//! Determines the homes of channels for callers outside the workers.

use foldhash::SharedSeed;

use crate::channel::{hash, shared};
use crate::{ChannelName, NameError, WorkerId};

/// Determines the home of a user's personal channel.
#[derive(Debug)]
pub struct Homes {
    seed: u64,
    shared_seed: SharedSeed,
    workers: u16,
}

impl Homes {
    /// `seed` and `workers` must be those passed to [`Hub::new`](crate::Hub::new).
    #[must_use]
    pub fn new(seed: u64, workers: u16) -> Self {
        Self {
            seed,
            shared_seed: shared(seed),
            workers,
        }
    }

    /// Returns the home of a user's personal channel.
    ///
    /// # Errors
    /// The name is not a valid user name.
    pub fn of_user(&self, user: &str) -> Result<WorkerId, NameError> {
        let mut buffer = String::new();
        let name = ChannelName::of_user(user, &mut buffer)?;
        let hash = hash(self.seed, &self.shared_seed, name.as_str());
        Ok(scale(hash, self.workers))
    }
}

/// Returns the worker for a hash. Scales the hash instead of dividing it, and uses its middle bits, because the name
/// table uses the bits at both ends.
pub(crate) fn scale(hash: u64, workers: u16) -> WorkerId {
    let bits = u64::from((hash >> 24) as u32);
    WorkerId(((bits * u64::from(workers)) >> 32) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hub, Options};

    #[test]
    fn hubs_agree() {
        let (seed, workers) = (0x5eed, 7);
        let hub = Hub::new(WorkerId(0), workers, seed, Options::default());
        let homes = Homes::new(seed, workers);
        let mut found = std::collections::HashSet::new();
        for number in 0..200 {
            let user = format!("user{number}");
            let mut buffer = String::new();
            let name = ChannelName::of_user(&user, &mut buffer).expect("a name");
            let home = homes.of_user(&user).expect("a name");
            assert_eq!(home, hub.home_of(name), "{user}");
            found.insert(home);
        }
        assert_eq!(found.len(), usize::from(workers));
        assert!(homes.of_user("").is_err());
    }
}
