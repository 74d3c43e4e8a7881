//! Records the progress of a call. If the call times out, the error text names the step that took too long, and the
//! kind of the error depends on whether the server may have executed the request.

use parking_lot::Mutex;
use veche_calls::{CallError, CallErrorKind};

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
pub(super) struct RequestProgress(Mutex<ProgressState>);

#[derive(Debug, Default)]
struct ProgressState {
    step: Option<(RequestPhase, String)>,
    /// Whether a request of this call was sent. The current request may repeat it, or follow a
    /// redirect from it.
    has_sent: bool,
}

impl RequestProgress {
    pub(super) fn set(&self, phase: RequestPhase, place: &ConnectionTarget) {
        self.0.lock().step = Some((phase, place.shown()));
    }

    /// Records that a request is about to be sent. Returns whether one was sent before.
    pub(super) fn begin_sending(&self) -> bool {
        std::mem::replace(&mut self.0.lock().has_sent, true)
    }

    /// Records that the last request was not sent after all; `before` is the result of
    /// [`begin_sending`](Self::begin_sending).
    pub(super) fn was_not_sent(&self, before: bool) {
        self.0.lock().has_sent = before;
    }

    /// Returns the kind of a timeout at the current step.
    pub(super) fn timeout_kind(&self) -> CallErrorKind {
        let state = self.0.lock();
        match state.step {
            _ if state.has_sent => CallErrorKind::Timeout,
            Some((RequestPhase::Waiting, _)) => CallErrorKind::PoolFull,
            Some((RequestPhase::Connecting, _)) => CallErrorKind::Unreachable,
            _ => CallErrorKind::Timeout,
        }
    }

    /// Corrects the kind of a connection error, because [`CallErrorKind::Unreachable`] means that nothing was sent.
    pub(super) fn connect_error(&self, mut fault: CallError) -> CallError {
        if fault.kind == CallErrorKind::Unreachable && self.0.lock().has_sent {
            fault.kind = CallErrorKind::ConnectionLost;
        }
        fault
    }

    /// Describes the step for error texts.
    pub(super) fn shown(&self) -> String {
        let Some((phase, place)) = &self.0.lock().step else {
            return "before connecting".to_owned();
        };
        match phase {
            RequestPhase::Waiting => {
                format!(
                    "waiting for a connection to {place} (all max_per_host connections are in use)"
                )
            }
            RequestPhase::Connecting => format!("connecting to {place}"),
            RequestPhase::Answer => format!("waiting for the response from {place}"),
            RequestPhase::Body => format!("reading the response from {place}"),
        }
    }
}
