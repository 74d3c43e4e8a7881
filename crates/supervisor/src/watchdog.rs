//! The watchdog of the server process. The supervisor periodically requests the progress of the workers; the process counts as
//! hung if it does not answer, or if a worker stays in the same turn.
//!
//! The module has no side effects: it derives actions from times and answers.
//! [`watching`](super::watching) performs the actions.
//!
//! The watchdog counts unanswered requests instead of measuring time. So a pause of the whole machine, which stops the
//! supervisor too, does not get a healthy process killed.

use std::time::{Duration, Instant};

use crate::pulse::StuckWorker;

/// The number of requests within `limits.watchdog_timeout`.
const REQUESTS_PER_TIMEOUT: u32 = 4;

/// Detects a server process that hangs, by requests that stay unanswered or by workers that make no progress.
#[derive(Default)]
pub(super) struct Watchdog {
    is_watching: bool,
    /// When the next request to the server process is due; `None` while none is planned.
    next: Option<Instant>,
    unanswered: u32,
    /// Whether the process was found to hang and is being killed.
    pub(super) is_hung: bool,
}

/// The next action of the watchdog.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchdogAction {
    Nothing,
    Ask,
    /// All requests within the timeout are unanswered.
    Hung,
}

impl Watchdog {
    /// Starts watching a process that has just become ready or was inherited.
    pub(super) fn begin(now: Instant) -> Self {
        Self {
            is_watching: true,
            next: Some(now),
            ..Self::default()
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Makes the next request due at once, since a reload may have changed the watchdog's timeout.
    pub(super) fn config_changed(&mut self, now: Instant) {
        self.next = self.is_watching.then_some(now);
    }

    /// Handles an answer. Returns why the process hangs, if a worker has stayed in the same turn for too long.
    pub(super) fn answered(
        &mut self,
        stuck: Option<StuckWorker>,
        timeout: Option<Duration>,
    ) -> Option<String> {
        self.unanswered = 0;
        let (stuck, timeout) = stuck.zip(timeout)?;
        let StuckWorker {
            worker,
            step,
            looks,
        } = stuck;
        (looks >= REQUESTS_PER_TIMEOUT && !self.is_hung).then(|| {
            format!(
                "worker {worker} has been in one iteration of its event loop for {timeout:?}, in step {step:?}"
            )
        })
    }

    /// Stops watching until the configuration enables it again.
    pub(super) fn switch_off(&mut self) {
        self.next = None;
        self.unanswered = 0;
    }

    /// Returns the action that is due at `now`.
    pub(super) fn tick(&mut self, now: Instant, timeout: Duration) -> WatchdogAction {
        if self.next.is_none_or(|next| now < next) {
            return WatchdogAction::Nothing;
        }
        self.next = Some(now + timeout / REQUESTS_PER_TIMEOUT);
        if self.unanswered >= REQUESTS_PER_TIMEOUT {
            return WatchdogAction::Hung;
        }
        self.unanswered += 1;
        WatchdogAction::Ask
    }

    /// Stops requests, since the process is being killed.
    pub(super) fn hang(&mut self) {
        *self = Self {
            is_hung: true,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use veche_clock::now;

    use super::*;
    use crate::pulse::TurnStep;

    #[test]
    fn a_process_hangs_after_that_many_unanswered_requests() {
        let timeout = Duration::from_secs(20);
        let start = now();
        let mut watchdog = Watchdog::begin(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(watchdog.tick(at(0), timeout), WatchdogAction::Ask);
        assert_eq!(watchdog.tick(at(4), timeout), WatchdogAction::Nothing);
        assert_eq!(watchdog.tick(at(5), timeout), WatchdogAction::Ask);
        assert_eq!(watchdog.answered(None, Some(timeout)), None);
        // No request was sent between 5 s and 1,000 s, so this time does not count as a lack of
        // answers.
        for seconds in [1000, 1005, 1010, 1015] {
            assert_eq!(watchdog.tick(at(seconds), timeout), WatchdogAction::Ask);
        }
        assert_eq!(watchdog.tick(at(1020), timeout), WatchdogAction::Hung);
        watchdog.hang();
        assert_eq!(watchdog.tick(at(1025), timeout), WatchdogAction::Nothing);
        assert_eq!(
            Watchdog::default().tick(at(0), timeout),
            WatchdogAction::Nothing
        );
    }

    #[test]
    fn a_process_hangs_when_a_worker_is_in_one_turn_at_all_looks() {
        let timeout = Some(Duration::from_secs(20));
        let stuck = |looks| {
            Some(StuckWorker {
                worker: 3,
                step: TurnStep::Events,
                looks,
            })
        };
        let mut watchdog = Watchdog::begin(now());
        assert_eq!(
            watchdog.answered(stuck(REQUESTS_PER_TIMEOUT - 1), timeout),
            None
        );
        assert_eq!(
            watchdog.answered(stuck(REQUESTS_PER_TIMEOUT), None),
            None,
            "no timeout"
        );
        let why = watchdog.answered(stuck(REQUESTS_PER_TIMEOUT), timeout);
        let why = why.expect("a reason");
        assert!(why.contains("worker 3") && why.contains("Events"), "{why}");
        watchdog.hang();
        assert_eq!(
            watchdog.answered(stuck(REQUESTS_PER_TIMEOUT), timeout),
            None,
            "known"
        );
    }
}
