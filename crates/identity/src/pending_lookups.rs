//! Deduplicates lookups: caches results, merges identical lookups, and counts the waiting clients.
//! Does not depend on the kind of provider.

use std::collections::HashMap;
use std::sync::Arc;

use veche_frontends::identity::{CompletionSink, IdentityResult};
use veche_hub::ConnectionId;

use super::cache::{AnswerCache, AnswerDigest};
use super::revoked_sessions::RevokedSessions;

/// A client that waits for an answer.
#[derive(Debug)]
pub(super) struct WaitingClient {
    pub(super) id: ConnectionId,
    pub(super) sink: Arc<dyn CompletionSink>,
}

/// The reason why no new lookup is made.
pub(super) enum NotAsked<E> {
    /// The result is cached.
    Known(IdentityResult),
    /// Too many clients are waiting.
    Crowded,
    /// The provider must not be called now; contains the reason.
    Barred(E),
}

/// The lookups of one provider. Times are in monotonic milliseconds.
#[derive(Debug)]
pub(super) struct PendingLookups {
    cache: AnswerCache,
    /// The sessions that the back end has ended. A result that was requested before a session was
    /// ended does not admit that session.
    ended: Arc<RevokedSessions>,
    /// The clients that wait for each result, and the number of ended sessions when it was requested.
    asking: HashMap<AnswerDigest, (u64, Vec<WaitingClient>)>,
    /// The total number of waiting clients.
    waiting: u32,
    waiting_max: u32,
}

impl PendingLookups {
    /// Creates a table with limits for cached results and waiting clients.
    pub(super) fn new(entries_max: usize, waiting_max: u32, ended: &Arc<RevokedSessions>) -> Self {
        Self {
            cache: AnswerCache::new(entries_max),
            ended: Arc::clone(ended),
            asking: HashMap::new(),
            waiting: 0,
            waiting_max,
        }
    }

    /// Adds a waiting client; returns `true` if a new lookup has to be made.
    ///
    /// # Errors
    /// The client is not added, for the returned reason. `may_wait` is called with `true` if a new lookup is needed,
    /// and with `false` if the client would join a pending one; its error is returned as [`NotAsked::Barred`].
    pub(super) fn look_up<E>(
        &mut self,
        digest: AnswerDigest,
        asking: WaitingClient,
        now_ms: u64,
        may_wait: impl FnOnce(bool) -> Result<(), E>,
    ) -> Result<bool, NotAsked<E>> {
        let known = self.cache.find(&digest, now_ms);
        if let Some(identity_result) =
            known.filter(|identity_result| !self.is_ended(identity_result))
        {
            return Err(NotAsked::Known(identity_result));
        }
        let is_new = !self.asking.contains_key(&digest);
        // Clients that join a pending lookup are not limited here, because they cost the back end nothing.
        if is_new && self.waiting >= self.waiting_max {
            return Err(NotAsked::Crowded);
        }
        may_wait(is_new).map_err(NotAsked::Barred)?;
        self.waiting += 1;
        let asked = self.ended.count();
        let entry = self.asking.entry(digest);
        let (_, waiting) = entry.or_insert_with(|| (asked, Vec::new()));
        waiting.push(asking);
        Ok(is_new)
    }

    /// Caches a result until `until_ms`.
    pub(super) fn store(
        &mut self,
        digest: AnswerDigest,
        identity_result: IdentityResult,
        until_ms: u64,
    ) {
        self.cache.insert(digest, identity_result, until_ms);
    }

    /// Removes and returns the clients that wait for a result. Sets in the result how many sessions
    /// had been ended when the result was requested.
    pub(super) fn answered(
        &mut self,
        digest: &AnswerDigest,
        identity_result: &mut IdentityResult,
    ) -> Vec<WaitingClient> {
        let (asked, asking) = self.asking.remove(digest).unwrap_or_default();
        if let IdentityResult::Verified(word) = identity_result {
            word.disconnects_seen = asked;
        }
        self.waiting -= asking.len() as u32;
        asking
    }

    /// Removes lookups that will not be made; returns the clients that wait for them.
    pub(super) fn take_unsent<'d>(
        &mut self,
        digests: impl Iterator<Item = &'d AnswerDigest>,
    ) -> Vec<WaitingClient> {
        let asking = digests.filter_map(|digest| self.asking.remove(digest));
        let asking: Vec<WaitingClient> = asking.flat_map(|(_, asking)| asking).collect();
        self.waiting -= asking.len() as u32;
        asking
    }

    fn is_ended(&self, identity_result: &IdentityResult) -> bool {
        match identity_result {
            IdentityResult::Verified(word) => {
                self.ended.has_since(&word.user, word.disconnects_seen, "")
            }
            _ => false,
        }
    }
}
