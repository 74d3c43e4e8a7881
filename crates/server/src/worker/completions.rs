//! Completions of other threads for this worker: identity results and hook decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use veche_frontends::hooks::{QuestionId, Verdict};
use veche_frontends::identity::{Desk, Finding};
use veche_mailbox::Wake as _;
use veche_net::{ConnectionId, Waker};

use super::{Host, Rest};

/// A worker's inbox. Bounded by its connections, each with one pending request at a time.
#[derive(Debug)]
pub(super) struct Completions {
    told: Mutex<Vec<(ConnectionId, Told)>>,
    /// The worker was woken and has not looked since.
    is_told: AtomicBool,
    waker: Waker,
}

#[derive(Debug)]
enum Told {
    Finding(Finding),
    Verdict(QuestionId, Verdict),
}

impl Completions {
    pub(super) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            told: Mutex::default(),
            is_told: AtomicBool::new(false),
            waker,
        })
    }

    /// Delivers a decision about a connection, which may be closed by now. Callable from any thread.
    pub(super) fn judge(&self, id: ConnectionId, question: QuestionId, verdict: Verdict) {
        self.say(id, Told::Verdict(question, verdict));
    }

    fn say(&self, id: ConnectionId, told: Told) {
        self.told.lock().push((id, told));
        if !self.is_told.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    fn take(&self) -> Vec<(ConnectionId, Told)> {
        // There is rarely anything, so this avoids writing to a shared cache line.
        if !self.is_told.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // Cleared first, so that a later completion wakes again.
        self.is_told.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.told.lock())
    }
}

impl Desk for Completions {
    fn tell(&self, id: ConnectionId, finding: Finding) {
        self.say(id, Told::Finding(finding));
    }
}

impl<A: Host> Rest<A> {
    /// Delivers the completions since the last turn.
    pub(super) fn take_completions(&mut self) {
        for (id, told) in self.completions.take() {
            match told {
                Told::Finding(finding) => self.worker.handle_identity(id, finding),
                Told::Verdict(question, verdict) => {
                    self.worker.handle_verdict(id, question, verdict);
                }
            }
        }
    }
}
