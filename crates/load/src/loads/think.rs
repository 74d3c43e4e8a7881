//! Think time: the pause of a closed loop between an answer and the next message. It simulates a user
//! who reads a page.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;

pub use super::plans::ThinkTime;
use crate::plan::ThreadPlan;

/// The pausing clients of a thread.
///
/// Each message that a client may have in flight has its own pause, so a client may have several
/// pauses at a time.
#[derive(Debug)]
pub(super) struct ThinkTimers {
    think: ThinkTime,
    rng: Rng,
    /// The time at which each pause ends, and the index of its client; the earliest first.
    until: BinaryHeap<Reverse<(u64, u32)>>,
    /// The number of pauses in `until`, by the index of the client.
    listed: Vec<u32>,
}

impl ThinkTimers {
    pub(super) fn new(think: ThinkTime, share: &ThreadPlan) -> Self {
        Self {
            think,
            rng: Rng::with_seed(share.plan.seed ^ (u64::from(share.index) << 32)),
            until: BinaryHeap::new(),
            listed: vec![0; share.clients()],
        }
    }

    /// Schedules pauses until the client has `count` of them. Each ends at a random time within the
    /// maximum pause, so that clients are not synchronised.
    pub(super) fn start(&mut self, client_index: u32, count: u32, now_ns: u64) {
        for _ in self.listed[client_index as usize]..count {
            let part = self.rng.u64(0..=self.think.max_ns);
            self.list(client_index, now_ns.saturating_add(part));
        }
    }

    /// Schedules pauses of random length until the client has `count` of them.
    pub(super) fn pause(&mut self, client_index: u32, count: u32, now_ns: u64) {
        for _ in self.listed[client_index as usize]..count {
            let pause = self.rng.u64(self.think.min_ns..=self.think.max_ns);
            self.list(client_index, now_ns.saturating_add(pause));
        }
    }

    /// Returns and removes a client whose pause has ended.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<u32> {
        let Reverse((due_ns, _)) = self.until.peek()?;
        if *due_ns > now_ns {
            return None;
        }
        let Reverse((_, client_index)) = self.until.pop()?;
        self.listed[client_index as usize] -= 1;
        Some(client_index)
    }

    /// Returns the time at which the next pause ends; `u64::MAX` if no client pauses.
    pub(super) fn due(&self) -> u64 {
        self.until
            .peek()
            .map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns)
    }

    fn list(&mut self, client_index: u32, due_ns: u64) {
        self.until.push(Reverse((due_ns, client_index)));
        self.listed[client_index as usize] += 1;
    }
}
