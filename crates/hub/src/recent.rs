//! Results of recent publications by idempotency key.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::Published;

/// Lifetime of a key.
const KEPT_MS: u64 = 5 * 60 * 1000;

/// Maximum number of keys; beyond that the oldest are removed.
const KEYS_MAX: usize = 100_000;

/// The results of recent publications.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// By channel and key, separated by a byte that neither contains.
    taken: HashMap<Arc<str>, Published, RandomState>,
    /// Keys with the time of their insertion, oldest first.
    order: VecDeque<(u64, Arc<str>)>,
}

impl Recent {
    /// Returns the result of the publication with this key, as the reply to its repetition.
    pub(crate) fn find(&mut self, channel: &str, key: &str, now_ms: u64) -> Option<Published> {
        self.forget(now_ms);
        let first = self.taken.get(&*name(channel, key))?;
        Some(Published {
            is_skipped: true,
            ..*first
        })
    }

    /// Records the result of a publication.
    pub(crate) fn keep(&mut self, channel: &str, key: &str, published: Published, now_ms: u64) {
        let name: Arc<str> = name(channel, key).into();
        if self.taken.insert(Arc::clone(&name), published).is_none() {
            self.order.push_back((now_ms, name));
        }
        if self.order.len() > KEYS_MAX {
            self.forget_oldest();
        }
    }

    /// Removes the key of a publication that failed.
    pub(crate) fn forget_key(&mut self, channel: &str, key: &str) {
        let name = name(channel, key);
        if self.taken.remove(&*name).is_some() {
            self.order.retain(|(_, one)| **one != *name);
        }
    }

    /// Removes expired keys.
    pub(crate) fn forget(&mut self, now_ms: u64) {
        while let Some((taken_ms, _)) = self.order.front()
            && now_ms.saturating_sub(*taken_ms) >= KEPT_MS
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, name)) = self.order.pop_front() {
            self.taken.remove(&name);
        }
    }
}

/// Channel names contain no NUL.
fn name(channel: &str, key: &str) -> String {
    [channel, "\0", key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_for_a_while_and_of_one_channel() {
        let published = Published {
            handed: Some(3),
            ..Published::default()
        };
        let repeated = Published {
            is_skipped: true,
            ..published
        };
        let mut recent = Recent::default();
        recent.keep("news", "a", published, 1_000);
        assert_eq!(recent.find("news", "a", 1_000), Some(repeated));
        assert_eq!(recent.find("newsa", "", 1_000), None);
        assert_eq!(recent.find("other", "a", 1_000), None);
        assert_eq!(recent.find("news", "a", 300_999), Some(repeated));
        assert_eq!(recent.find("news", "a", 301_000), None);
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let mut recent = Recent::default();
        for number in 0..KEYS_MAX + 10 {
            recent.keep("news", &number.to_string(), Published::default(), 0);
        }
        assert_eq!(
            (recent.taken.len(), recent.order.len()),
            (KEYS_MAX, KEYS_MAX)
        );
        assert_eq!(recent.find("news", "9", 0), None);
        assert!(recent.find("news", "10", 0).is_some());
    }
}
