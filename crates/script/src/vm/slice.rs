//! Divides the time of a VM's turn, the slice, among classes of work, so that no class starves another.
//!
//! Calls that arrive between two turns start at once while the slice has time. In the turn, each class that has work
//! runs for a share of the slice; when the slice is used up, the remaining classes wait. A class that had to wait runs
//! first in the next turn, and replies that had to wait run before all other classes. So a reply waits at most two
//! turns, regardless of other work. This module decides only the order and the time; its caller runs the work.

/// The length of a slice in ticks of about 4 ms. It prevents handlers that are each within their budgets from blocking
/// their worker together.
const SLICE_TICKS: u64 = 5;
/// The number of ticks in a slice during which calls may start at once.
const DIRECT_TICKS: u64 = 2;
/// The length of one class's share of a turn, in ticks.
const SHARE_TICKS: u64 = 1;

/// The classes of work, in the order in which a turn serves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkClass {
    /// Coroutines whose wait has ended.
    Replies,
    /// Calls that did not start at once.
    Calls,
    Tasks,
    /// Coroutines whose sleep or timeout has ended.
    Timers,
    /// Coroutines that have yielded to other coroutines.
    Yields,
}

impl WorkClass {
    pub(super) const ALL: [Self; 5] = [
        Self::Replies,
        Self::Calls,
        Self::Tasks,
        Self::Timers,
        Self::Yields,
    ];
}

/// A set of classes of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkClasses(u8);

impl WorkClasses {
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn has(self, class: WorkClass) -> bool {
        self.0 & 1 << class as u8 != 0
    }

    pub(super) fn add(&mut self, class: WorkClass) {
        self.set(class, true);
    }

    /// Adds a class if `is_in` is true; otherwise changes nothing.
    #[inline]
    pub(super) fn set(&mut self, class: WorkClass, is_in: bool) {
        self.0 |= u8::from(is_in) << class as u8;
    }
}

#[cfg(test)]
impl FromIterator<WorkClass> for WorkClasses {
    fn from_iter<I: IntoIterator<Item = WorkClass>>(classes: I) -> Self {
        let mut all = Self::default();
        classes.into_iter().for_each(|class| all.add(class));
        all
    }
}

/// The time of a turn. All arguments named `ticks` are the clock's current value.
#[derive(Debug)]
pub(super) struct TurnSlice {
    began: u64,
    share_began: u64,
    share_ticks: u64,
    /// Whether the turn is over, so that the next work starts a new slice.
    is_closed: bool,
    /// The number of consecutive turns in which a class had work but none of it ran.
    passed_over: [u32; WorkClass::ALL.len()],
}

impl Default for TurnSlice {
    fn default() -> Self {
        Self {
            began: 0,
            share_began: 0,
            share_ticks: 0,
            is_closed: true,
            passed_over: [0; WorkClass::ALL.len()],
        }
    }
}

impl TurnSlice {
    /// Starts a new slice.
    pub(super) fn begin(&mut self, ticks: u64) {
        self.began = ticks;
        self.share_began = ticks;
        self.share_ticks = DIRECT_TICKS;
        self.is_closed = false;
    }

    /// Starts a slice, for calls between turns, unless one is open.
    pub(super) fn open(&mut self, ticks: u64) {
        if self.is_closed {
            self.begin(ticks);
        }
    }

    /// Starts the time share of a class of work.
    pub(super) fn begin_share(&mut self, ticks: u64) {
        self.share_began = ticks;
        self.share_ticks = SHARE_TICKS;
    }

    /// Returns whether the current work has used up its share.
    pub(super) fn is_share_over(&self, ticks: u64) -> bool {
        ticks.wrapping_sub(self.share_began) >= self.share_ticks
    }

    /// Returns whether the turn has used up its time.
    pub(super) fn is_over(&self, ticks: u64) -> bool {
        ticks.wrapping_sub(self.began) >= SLICE_TICKS
    }

    /// Returns whether a call may start between turns: the turn has time left, and no class of
    /// work was skipped in the last turn.
    pub(super) fn admits(&mut self, ticks: u64) -> bool {
        self.open(ticks);
        let has_time = ticks.wrapping_sub(self.began) < DIRECT_TICKS;
        has_time && self.passed_over.iter().all(|turns| *turns == 0)
    }

    /// Returns the order of the classes in a turn.
    pub(super) fn order(&self) -> [WorkClass; WorkClass::ALL.len()] {
        let mut order = WorkClass::ALL;
        order.sort_by_key(|class| {
            let turns = self.passed_over[*class as usize];
            let is_late_reply = *class == WorkClass::Replies && turns > 0;
            (!is_late_reply, u32::MAX - turns)
        });
        order
    }

    /// Ends the turn. `served` are the classes that ran in the turn, and `left` are the classes that still have work.
    pub(super) fn end_turn(&mut self, served: WorkClasses, left: WorkClasses) {
        self.is_closed = true;
        if left.is_empty() {
            self.passed_over = [0; WorkClass::ALL.len()];
            return;
        }
        for class in WorkClass::ALL {
            let turns = &mut self.passed_over[class as usize];
            *turns = match left.has(class) && !served.has(class) {
                true => turns.saturating_add(1),
                false => 0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_was_passed_over_goes_first_and_replies_before_all() {
        let mut slice = TurnSlice::default();
        assert_eq!(slice.order(), WorkClass::ALL);
        let all: WorkClasses = WorkClass::ALL.into_iter().collect();
        let mut waits = [0u32; WorkClass::ALL.len()];
        // Each turn has time for one class.
        for _ in 0..50 {
            let first = slice.order()[0];
            for class in WorkClass::ALL {
                let wait = &mut waits[class as usize];
                *wait = if class == first { 0 } else { *wait + 1 };
            }
            assert!(waits[WorkClass::Replies as usize] < 2, "{waits:?}");
            assert!(waits.iter().all(|wait| *wait < 8), "{waits:?}");
            slice.end_turn([first].into_iter().collect(), all);
        }
    }

    #[test]
    fn calls_begin_at_once_within_their_part_of_the_slice() {
        let mut slice = TurnSlice::default();
        slice.begin(7);
        assert!(slice.admits(7) && slice.admits(8) && !slice.admits(9));
        slice.open(9);
        assert!(!slice.is_over(11) && slice.is_over(12));
        slice.begin_share(9);
        assert!(!slice.is_share_over(9) && slice.is_share_over(10));
        let timers = [WorkClass::Timers].into_iter().collect();
        slice.end_turn(WorkClasses::default(), timers);
        assert!(!slice.admits(20), "timers were passed over");
        slice.end_turn(timers, timers);
        assert!(slice.admits(30), "the slice is a new one");
    }
}
