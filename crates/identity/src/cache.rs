//! A cache of answers, keyed by a digest of the request, so that no cookies, tokens or passwords stay in memory.

use std::collections::{HashMap, VecDeque};

use veche_frontends::identity::IdentityResult;

/// The digest of all data on which an answer depends.
pub(super) type AnswerDigest = [u8; 32];

/// A bounded cache that evicts the oldest answers first. Times are in monotonic milliseconds.
#[derive(Debug)]
pub(super) struct AnswerCache {
    entries_max: usize,
    entries: HashMap<AnswerDigest, CachedAnswer>,
    /// Keys in order of insertion; a key inserted again occurs more than once.
    order: VecDeque<(AnswerDigest, u64)>,
    count: u64,
}

#[derive(Debug)]
struct CachedAnswer {
    identity_result: IdentityResult,
    until_ms: u64,
    number: u64,
}

impl AnswerCache {
    pub(super) fn new(entries_max: usize) -> Self {
        Self {
            entries_max,
            entries: HashMap::new(),
            order: VecDeque::new(),
            count: 0,
        }
    }

    pub(super) fn find(&mut self, digest: &AnswerDigest, now_ms: u64) -> Option<IdentityResult> {
        let entry = self.entries.get(digest)?;
        if now_ms < entry.until_ms {
            return Some(entry.identity_result.clone());
        }
        self.entries.remove(digest);
        None
    }

    pub(super) fn insert(
        &mut self,
        digest: AnswerDigest,
        identity_result: IdentityResult,
        until_ms: u64,
    ) {
        self.count += 1;
        let number = self.count;
        let entry = CachedAnswer {
            identity_result,
            until_ms,
            number,
        };
        self.entries.insert(digest, entry);
        self.order.push_back((digest, number));
        while self.order.len() > self.entries_max {
            let Some((oldest, number)) = self.order.pop_front() else {
                break;
            };
            if self
                .entries
                .get(&oldest)
                .is_some_and(|one| one.number == number)
            {
                self.entries.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use veche_frontends::identity::VerifiedUser;

    use super::*;

    fn named(name: &str) -> IdentityResult {
        IdentityResult::Verified(VerifiedUser {
            user: name.to_owned(),
            ..VerifiedUser::default()
        })
    }

    #[test]
    fn answers_are_kept_for_their_time_and_the_oldest_go_first() {
        let mut cache = AnswerCache::new(2);
        cache.insert([1; 32], named("ann"), 10);
        cache.insert([2; 32], named("bob"), 20);
        assert_eq!(cache.find(&[1; 32], 9), Some(named("ann")));
        assert_eq!(cache.find(&[1; 32], 10), None);
        assert_eq!(cache.find(&[2; 32], 10), Some(named("bob")));
        cache.insert([2; 32], named("bob"), 30);
        assert_eq!(cache.find(&[2; 32], 29), Some(named("bob")));
        cache.insert([3; 32], named("eve"), 30);
        cache.insert([4; 32], named("dan"), 30);
        assert_eq!(cache.find(&[2; 32], 10), None);
        assert_eq!(cache.find(&[4; 32], 10), Some(named("dan")));
        assert!(cache.entries.len() <= 2 && cache.order.len() <= 2);
    }
}
