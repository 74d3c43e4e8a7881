//! How far a call has come, so that a timeout can say what it was that took so long.

use parking_lot::Mutex;

use super::pool::ConnectionTarget;

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Waiting,
    Connecting,
    Answer,
    Body,
}

#[derive(Debug, Default)]
pub(super) struct RequestProgress(Mutex<Option<(Phase, String)>>);

impl RequestProgress {
    pub(super) fn set(&self, phase: Phase, place: &ConnectionTarget) {
        *self.0.lock() = Some((phase, place.shown()));
    }

    /// In words.
    pub(super) fn shown(&self) -> String {
        let Some((phase, place)) = &*self.0.lock() else {
            return "at the beginning".to_owned();
        };
        match phase {
            Phase::Waiting => {
                format!("waiting for a connection to {place} (max_per_host are in use)")
            }
            Phase::Connecting => format!("connecting to {place}"),
            Phase::Answer => format!("waiting for the answer of {place}"),
            Phase::Body => format!("reading the answer of {place}"),
        }
    }
}
