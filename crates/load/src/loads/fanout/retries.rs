//! Scheduling of reconnects.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::MILLISECOND;
use crate::engine::LoadIo;

/// The first delay before a lost or failed connection is reopened; it doubles with each failure up
/// to [`BACKOFF_NS_MAX`]. Half of the delay is random, so that reconnects are spread over time.
const BACKOFF_NS: u64 = 100 * MILLISECOND;
const BACKOFF_NS_MAX: u64 = 1_600 * MILLISECOND;

/// The clients of a thread whose connections wait to be reopened.
pub(super) struct RetryQueue {
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    /// Number of attempts since the client was last open, by client.
    attempts: Vec<u8>,
}

impl RetryQueue {
    pub(super) fn new(clients: u32) -> Self {
        Self {
            waiting: BinaryHeap::new(),
            attempts: vec![0; clients as usize],
        }
    }

    /// Resets the delay of a client whose connection has opened.
    pub(super) fn opened(&mut self, client_index: u32) {
        self.attempts[client_index as usize] = 0;
    }

    /// Schedules the reopening of a client's connection.
    pub(super) fn later(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        let attempts = &mut self.attempts[client_index as usize];
        let longest = (BACKOFF_NS << (*attempts).min(16)).min(BACKOFF_NS_MAX);
        *attempts = attempts.saturating_add(1);
        let wait = io.net.rng.u64(longest / 2..=longest);
        self.waiting
            .push(Reverse((io.net.now_ns + wait, client_index)));
    }

    /// Opens the connections of clients that are due. Returns the time at which the next client is
    /// due.
    pub(super) fn retry(&mut self, io: &mut LoadIo<'_>) -> u64 {
        while let Some(Reverse((due_ns, client_index))) = self.waiting.peek().copied() {
            if due_ns > io.net.now_ns {
                return due_ns;
            }
            self.waiting.pop();
            if io.net.is_closed(client_index) && !io.reopen(client_index) {
                self.later(io, client_index);
            }
        }
        u64::MAX
    }
}
