//! Questions who somebody is: what was answered before is kept, the same question is asked once at a time, and those who
//! wait are counted. Who is asked, and how, is not known here.

use std::collections::HashMap;
use std::sync::Arc;

use veche_frontends::identity::{CompletionSink, IdentityResult};
use veche_hub::ConnectionId;

use super::cache::{AnswerCache, Digest};
use super::revoked_sessions::RevokedSessions;

/// Somebody who waits for an answer.
#[derive(Debug)]
pub(super) struct WaitingClient {
    pub(super) id: ConnectionId,
    pub(super) desk: Arc<dyn CompletionSink>,
}

/// Why a question is not asked.
pub(super) enum NotAsked<E> {
    /// It was answered before.
    Known(IdentityResult),
    /// Too many wait already.
    Crowded,
    /// Whoever would be asked is not to be.
    Barred(E),
}

/// See the module's text. Times are in monotonic milliseconds.
#[derive(Debug)]
pub(super) struct PendingLookups {
    cache: AnswerCache,
    /// Whose connections were ended since counts no more.
    ended: Arc<RevokedSessions>,
    /// Who waits for which answer, and how many endings there were when it was asked for.
    asking: HashMap<Digest, (u64, Vec<WaitingClient>)>,
    /// All of those.
    waiting: u32,
    waiting_max: u32,
}

impl PendingLookups {
    /// Keeps so many answers, and so many may wait.
    pub(super) fn new(entries_max: usize, waiting_max: u32, ended: &Arc<RevokedSessions>) -> Self {
        Self {
            cache: AnswerCache::new(entries_max),
            ended: Arc::clone(ended),
            asking: HashMap::new(),
            waiting: 0,
            waiting_max,
        }
    }

    /// Has somebody wait for an answer: `true` where the question is a new one, which is to be asked now.
    ///
    /// # Errors
    /// Nobody waits, and why. `may_wait` is told whether the question would be a new one.
    pub(super) fn look_up<E>(
        &mut self,
        digest: Digest,
        asking: WaitingClient,
        now_ms: u64,
        may_wait: impl FnOnce(bool) -> Result<(), E>,
    ) -> Result<bool, NotAsked<E>> {
        let known = self.cache.find(&digest, now_ms);
        if let Some(finding) = known.filter(|finding| !self.is_ended(finding)) {
            return Err(NotAsked::Known(finding));
        }
        let is_new = !self.asking.contains_key(&digest);
        // One that comes back while its question waits costs the back end nothing.
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

    /// Keeps an answer.
    pub(super) fn store(&mut self, digest: Digest, finding: IdentityResult, until_ms: u64) {
        self.cache.insert(digest, finding, until_ms);
    }

    /// Who has waited for this answer, and waits no longer; the answer learns when it was asked for.
    pub(super) fn answered(
        &mut self,
        digest: &Digest,
        finding: &mut IdentityResult,
    ) -> Vec<WaitingClient> {
        let (asked, asking) = self.asking.remove(digest).unwrap_or_default();
        if let IdentityResult::Verified(word) = finding {
            word.disconnects_seen = asked;
        }
        self.waiting -= asking.len() as u32;
        asking
    }

    /// Removes questions that are not asked; returns the clients that wait for them.
    pub(super) fn take_unsent<'d>(
        &mut self,
        digests: impl Iterator<Item = &'d Digest>,
    ) -> Vec<WaitingClient> {
        let asking = digests.filter_map(|digest| self.asking.remove(digest));
        let asking: Vec<WaitingClient> = asking.flat_map(|(_, asking)| asking).collect();
        self.waiting -= asking.len() as u32;
        asking
    }

    fn is_ended(&self, finding: &IdentityResult) -> bool {
        match finding {
            IdentityResult::Verified(word) => {
                self.ended.has_since(&word.user, word.disconnects_seen, "")
            }
            _ => false,
        }
    }
}
