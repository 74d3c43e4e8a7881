//! Where others tell this worker what it has asked: who its clients are (issuers' keys that have come, answers of back ends),
//! and what they may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use veche_frontends::hooks::{QuestionId, Verdict};
use veche_frontends::identity::{Desk, Finding};
use veche_hub::SessionId;
use veche_mailbox::Wake as _;
use veche_net::{Driver, Waker};

use super::Rest;

/// A worker's end. Bounded by the connections that ask, each for one thing at a time.
#[derive(Debug)]
pub(super) struct Findings {
    told: Mutex<Vec<(SessionId, Told)>>,
    /// The worker was woken and has not looked since.
    is_told: AtomicBool,
    waker: Waker,
}

#[derive(Debug)]
enum Told {
    Finding(Finding),
    Verdict(QuestionId, Verdict),
}

impl Findings {
    pub(super) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            told: Mutex::default(),
            is_told: AtomicBool::new(false),
            waker,
        })
    }

    /// What was decided on a question of one of its connections, which may be gone by now. From any thread.
    pub(super) fn judge(&self, id: SessionId, question: QuestionId, verdict: Verdict) {
        self.say(id, Told::Verdict(question, verdict));
    }

    fn say(&self, id: SessionId, told: Told) {
        self.told.lock().push((id, told));
        if !self.is_told.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    fn take(&self) -> Vec<(SessionId, Told)> {
        // Nearly every turn there is nothing, and then nothing is written that others look at.
        if !self.is_told.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // Cleared before the look: what comes after it wakes again.
        self.is_told.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.told.lock())
    }
}

impl Desk for Findings {
    fn tell(&self, id: SessionId, finding: Finding) {
        self.say(id, Told::Finding(finding));
    }
}

impl Rest {
    /// Connections go on of which it has been found out who they are, or what they may do.
    pub(super) fn take_findings<D: Driver>(&mut self, driver: &mut D) {
        for (id, told) in self.findings.take() {
            self.with(driver, id, |connection, shared| match told {
                Told::Finding(finding) => connection.found(id, finding, shared),
                Told::Verdict(question, verdict) => {
                    connection.judged(id, question, verdict, shared);
                }
            });
        }
    }
}
