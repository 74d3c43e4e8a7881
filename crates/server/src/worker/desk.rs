//! Where others tell this worker who its clients are: issuers' keys that have come, answers of back ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use veche_frontends::identity::{Desk, Finding};
use veche_hub::SessionId;
use veche_mailbox::Wake as _;
use veche_net::{Driver, Waker};

use super::Rest;

/// A worker's end. Bounded by the connections that ask, each for one thing at a time.
#[derive(Debug)]
pub(super) struct Findings {
    told: Mutex<Vec<(SessionId, Finding)>>,
    /// The worker was woken and has not looked since.
    is_told: AtomicBool,
    waker: Waker,
}

impl Findings {
    pub(super) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            told: Mutex::default(),
            is_told: AtomicBool::new(false),
            waker,
        })
    }

    fn take(&self) -> Vec<(SessionId, Finding)> {
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
        self.told.lock().push((id, finding));
        if !self.is_told.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }
}

impl Rest {
    /// Connections go on of which it has been found out who they are.
    pub(super) fn take_findings<D: Driver>(&mut self, driver: &mut D) {
        for (id, finding) in self.findings.take() {
            self.with(driver, id, |connection, shared| {
                connection.found(id, finding, shared)
            });
        }
    }
}
