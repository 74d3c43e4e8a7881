//! Detects stuck workers: each worker records its turn and the step in the turn, and the control thread checks this
//! periodically.
//!
//! The module counts checks instead of measuring time: after a pause of the whole machine, a healthy worker may have
//! been in a turn for the entire pause.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The step of a worker's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStep {
    /// Waiting between two turns.
    Waiting,
    /// Handles connection events, including the handlers that they call.
    Events,
    /// Handles messages from other workers, and completions from other threads.
    Messages,
    /// Runs timers, and work deferred by earlier turns.
    Remainder,
    /// Dials connections, and passes on hook requests and history records.
    Requests,
    /// Writes the server's log and the access log.
    Logs,
    /// Sends output to sockets and to other workers.
    Sending,
    /// A step that this version does not define, reported by a server process of a later version.
    #[serde(other)]
    Unknown,
}

impl TurnStep {
    const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Events,
        Self::Messages,
        Self::Remainder,
        Self::Requests,
        Self::Logs,
        Self::Sending,
    ];

    fn of(number: u64) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|number| Self::ALL.get(number).copied())
            .unwrap_or(Self::Unknown)
    }
}

/// The progress of one worker, written by the worker and read by the control thread. The low eight bits are the step,
/// the other bits the number of the turn.
#[derive(Debug, Default)]
pub struct WorkerPulse(AtomicU64);

impl WorkerPulse {
    /// Records that the worker's turn has reached `step`.
    #[inline]
    pub fn set(&self, step: TurnStep) {
        let turn = self.0.load(Relaxed) & !0xff;
        self.0.store(turn | step as u64, Relaxed);
    }

    /// Records that the worker's turn is over.
    #[inline]
    pub fn set_idle(&self) {
        let turn = self.0.load(Relaxed) & !0xff;
        self.0
            .store((turn + 0x100) | TurnStep::Waiting as u64, Relaxed);
    }

    fn read(&self) -> (u64, TurnStep) {
        let value = self.0.load(Relaxed);
        (value >> 8, TurnStep::of(value & 0xff))
    }
}

/// A worker that was found in the same turn repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckWorker {
    /// The number of the worker.
    pub worker: usize,
    /// The step of the turn in which the worker is stuck.
    pub step: TurnStep,
    /// The number of further checks that found the worker in this turn, after the first one.
    pub looks: u32,
}

/// The results of the last check: for each worker its turn, and the number of further checks that found it in that turn.
#[derive(Debug, Default)]
pub struct PulseWatch(Mutex<Vec<(u64, u32)>>);

impl PulseWatch {
    /// Checks all workers. Returns the worker that has been in the same turn for the largest number
    /// of checks, if any has been in its turn for more than one check.
    pub fn look<'p>(
        &self,
        pulses: impl IntoIterator<Item = &'p WorkerPulse>,
    ) -> Option<StuckWorker> {
        let mut seen = self.0.lock();
        let mut longest: Option<StuckWorker> = None;
        for (worker, pulse) in pulses.into_iter().enumerate() {
            if worker == seen.len() {
                seen.push((u64::MAX, 0));
            }
            let (turn, step) = pulse.read();
            let (last, looks) = &mut seen[worker];
            *looks = match step != TurnStep::Waiting && turn == *last {
                true => *looks + 1,
                false => 0,
            };
            // A waiting worker is in no turn, and no turn has the number `u64::MAX`.
            *last = if step == TurnStep::Waiting {
                u64::MAX
            } else {
                turn
            };
            if *looks > longest.map_or(0, |stuck| stuck.looks) {
                let looks = *looks;
                longest = Some(StuckWorker {
                    worker,
                    step,
                    looks,
                });
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_turn_seen_again_and_again_is_stuck() {
        let pulses: [WorkerPulse; 2] = Default::default();
        let watch = PulseWatch::default();
        let look = || watch.look(&pulses);
        // One worker waits all the time; the other is in a new turn at each check, but in the same step.
        for _ in 0..5 {
            pulses[1].set_idle();
            pulses[1].set(TurnStep::Events);
            assert_eq!(look(), None);
        }
        for looks in 1..=3 {
            let stuck = StuckWorker {
                worker: 1,
                step: TurnStep::Events,
                looks,
            };
            assert_eq!(look(), Some(stuck));
        }
        // A worker that reaches another step is still in the same turn.
        pulses[1].set(TurnStep::Sending);
        assert_eq!(
            look().map(|stuck| (stuck.step, stuck.looks)),
            Some((TurnStep::Sending, 4))
        );
        pulses[1].set_idle();
        assert_eq!(look(), None);
        pulses[1].set(TurnStep::Events);
        assert_eq!(look(), None, "it waited at the last look");
    }

    #[test]
    fn steps_have_numbers() {
        for (number, step) in TurnStep::ALL.into_iter().enumerate() {
            assert_eq!((step as usize, TurnStep::of(number as u64)), (number, step));
        }
        assert_eq!(TurnStep::of(200), TurnStep::Unknown);
    }
}
