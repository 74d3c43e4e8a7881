//! Records the progress of a call, so that the error of a timeout names the step that took too long.

use parking_lot::Mutex;

use super::pool::ConnectionTarget;

/// The step that a request has reached, for error texts.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestPhase {
    Waiting,
    Connecting,
    Answer,
    Body,
}

#[derive(Debug, Default)]
pub(super) struct RequestProgress(Mutex<Option<(RequestPhase, String)>>);

impl RequestProgress {
    pub(super) fn set(&self, phase: RequestPhase, place: &ConnectionTarget) {
        *self.0.lock() = Some((phase, place.shown()));
    }

    /// Describes the step for error texts.
    pub(super) fn shown(&self) -> String {
        let Some((phase, place)) = &*self.0.lock() else {
            return "at the beginning".to_owned();
        };
        match phase {
            RequestPhase::Waiting => {
                format!("waiting for a connection to {place} (max_per_host are in use)")
            }
            RequestPhase::Connecting => format!("connecting to {place}"),
            RequestPhase::Answer => format!("waiting for the response of {place}"),
            RequestPhase::Body => format!("reading the response of {place}"),
        }
    }
}
