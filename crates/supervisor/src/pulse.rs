//! Whether workers still turn: each notes its turn and how far it is, and the control thread looks now and then.
//!
//! Looks are counted instead of time: after a pause of the whole machine a worker that was in the middle of a turn has been
//! in it for as long as the pause, and is well.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// How far a worker is in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStep {
    /// Between two turns.
    Waiting,
    /// Events of connections, with the handlers that they call.
    Events,
    /// Messages of other workers, and answers of other threads.
    Messages,
    /// Timers, and what earlier turns have left.
    Remainder,
    /// Questions and orders to others: dialing, hooks, history.
    Requests,
    /// The server's log and the access log.
    Logs,
    /// What leaves for sockets and other workers.
    Sending,
    /// Written by a later version.
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

/// Written by one worker, read by the control thread: the number of the turn above the step's eight bits.
#[derive(Debug, Default)]
pub struct WorkerPulse(AtomicU64);

impl WorkerPulse {
    /// The worker's turn has come to `step`.
    #[inline]
    pub fn set(&self, step: TurnStep) {
        let turn = self.0.load(Relaxed) & !0xff;
        self.0.store(turn | step as u64, Relaxed);
    }

    /// The worker's turn is over.
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

/// A worker that was found in the same turn again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckWorker {
    /// The worker's number.
    pub worker: usize,
    /// The step of the turn that does not end.
    pub step: TurnStep,
    /// Looks that found it in this turn, but for the first.
    pub looks: u32,
}

/// What the control thread saw at its last look: the turn of each worker, and how often it was that one before.
#[derive(Debug, Default)]
pub struct PulseWatch(Mutex<Vec<(u64, u32)>>);

impl PulseWatch {
    /// Looks at all workers. Returns the one that has been in its turn for the most looks, if one has for more than this.
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
            // A worker that waits is in no turn.
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
        // One waits for events all along; the other is in another turn at each look, though in the same step.
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
        // Going on within the turn is no end of it.
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
