//! The results of recent publications by idempotency key.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::PublishOutcome;

/// Lifetime of a key in milliseconds.
const KEY_TTL_MS: u64 = 5 * 60 * 1000;

/// Maximum number of keys; beyond it the oldest are removed.
const KEYS_MAX: usize = 100_000;

/// The results of recent publications.
#[derive(Debug, Default)]
pub(crate) struct IdempotencyCache {
    /// The results by channel and key, joined by a NUL, which no channel name contains.
    results: HashMap<Arc<str>, PublishOutcome, RandomState>,
    /// The keys with the monotonic times of their insertion in milliseconds, oldest first.
    order: VecDeque<(u64, Arc<str>)>,
}

impl IdempotencyCache {
    /// Returns the result of the publication with this key, changed into the reply for a repetition; `None` if the key
    /// is new.
    pub(crate) fn find(&mut self, channel: &str, key: &str, now_ms: u64) -> Option<PublishOutcome> {
        self.expire(now_ms);
        let first = self.results.get(&*name(channel, key))?;
        Some(PublishOutcome {
            is_skipped: true,
            ..*first
        })
    }

    /// Records the result of a publication.
    pub(crate) fn insert(
        &mut self,
        channel: &str,
        key: &str,
        published: PublishOutcome,
        now_ms: u64,
    ) {
        let name: Arc<str> = name(channel, key).into();
        if self.results.insert(Arc::clone(&name), published).is_none() {
            self.order.push_back((now_ms, name));
        }
        if self.order.len() > KEYS_MAX {
            self.remove_oldest();
        }
    }

    /// Removes the key of a failed publication, so that it can be retried.
    pub(crate) fn remove(&mut self, channel: &str, key: &str) {
        let name = name(channel, key);
        if self.results.remove(&*name).is_some() {
            self.order.retain(|(_, one)| **one != *name);
        }
    }

    /// Removes keys that are older than [`KEY_TTL_MS`].
    pub(crate) fn expire(&mut self, now_ms: u64) {
        while let Some((taken_ms, _)) = self.order.front()
            && now_ms.saturating_sub(*taken_ms) >= KEY_TTL_MS
        {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        if let Some((_, name)) = self.order.pop_front() {
            self.results.remove(&name);
        }
    }
}

/// Returns the map key. It is unambiguous because channel names contain no NUL.
fn name(channel: &str, key: &str) -> String {
    [channel, "\0", key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_for_a_while_and_of_one_channel() {
        let published = PublishOutcome {
            receivers: Some(3),
            ..PublishOutcome::default()
        };
        let repeated = PublishOutcome {
            is_skipped: true,
            ..published
        };
        let mut recent = IdempotencyCache::default();
        recent.insert("news", "a", published, 1_000);
        assert_eq!(recent.find("news", "a", 1_000), Some(repeated));
        assert_eq!(recent.find("newsa", "", 1_000), None);
        assert_eq!(recent.find("other", "a", 1_000), None);
        assert_eq!(recent.find("news", "a", 300_999), Some(repeated));
        assert_eq!(recent.find("news", "a", 301_000), None);
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let mut recent = IdempotencyCache::default();
        for number in 0..KEYS_MAX + 10 {
            recent.insert("news", &number.to_string(), PublishOutcome::default(), 0);
        }
        assert_eq!(
            (recent.results.len(), recent.order.len()),
            (KEYS_MAX, KEYS_MAX)
        );
        assert_eq!(recent.find("news", "9", 0), None);
        assert!(recent.find("news", "10", 0).is_some());
    }
}
