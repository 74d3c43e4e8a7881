//! What other threads answer this worker: who its clients are (issuers' keys, answers of back ends), and what they may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use veche_frontends::hooks::{HookDecision, HookRequestId};
use veche_frontends::identity::{CompletionSink, IdentityResult};
use veche_mailbox::Wake as _;
use veche_net::{ConnectionId, Waker};

use super::{WorkerApps, WorkerState};

/// A worker's end. Bounded by the connections that ask, each for one thing at a time.
#[derive(Debug)]
pub(super) struct CompletionInbox {
    told: Mutex<Vec<(ConnectionId, CompletionEvent)>>,
    /// The worker was woken and has not looked since.
    is_told: AtomicBool,
    waker: Waker,
}

#[derive(Debug)]
enum CompletionEvent {
    Finding(IdentityResult),
    Verdict(HookRequestId, HookDecision),
}

impl CompletionInbox {
    pub(super) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            told: Mutex::default(),
            is_told: AtomicBool::new(false),
            waker,
        })
    }

    /// What was decided on a question of one of its connections, which may be gone by now. From any thread.
    pub(super) fn decide(&self, id: ConnectionId, question: HookRequestId, verdict: HookDecision) {
        self.say(id, CompletionEvent::Verdict(question, verdict));
    }

    fn say(&self, id: ConnectionId, told: CompletionEvent) {
        self.told.lock().push((id, told));
        if !self.is_told.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    fn take(&self) -> Vec<(ConnectionId, CompletionEvent)> {
        // Nearly every turn there is nothing, and then nothing is written that others look at.
        if !self.is_told.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // Cleared before the look: what comes after it wakes again.
        self.is_told.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.told.lock())
    }
}

impl CompletionSink for CompletionInbox {
    fn complete(&self, id: ConnectionId, finding: IdentityResult) {
        self.say(id, CompletionEvent::Finding(finding));
    }
}

impl<A: WorkerApps> WorkerState<A> {
    /// Hands over what has come since the last turn.
    pub(super) fn take_completions(&mut self) {
        for (id, told) in self.completions.take() {
            match told {
                CompletionEvent::Finding(finding) => self.worker.handle_identity(id, finding),
                CompletionEvent::Verdict(question, verdict) => {
                    self.worker.handle_hook_decision(id, question, verdict);
                }
            }
        }
    }
}
