//! The work that connections may do in one turn. It is counted in units rather than measured in
//! time.
//!
//! A connection that has used its share waits with the rest of its input until the next turn
//! ([`WaitReason::Turn`]), so that no client delays the worker's other clients, however costly its
//! messages are. Because work is counted, a turn ends at the same point in the server, in tests and
//! in the simulator. The share is checked between messages, so one message may exceed it; separate
//! limits bound the cost of a message (size, decompression ratio, number of final blocks).
//!
//! [`WaitReason::Turn`]: crate::WaitReason::Turn

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use veche_types::ConnectionId;

/// Cost of a frame, line or request taken from the input. The real cost of a push line to one
/// connection is about half of this, so one read of 64 KiB of push lines fits into one turn.
pub(crate) const INPUT: u64 = 1_000;

/// Cost of an HTTP request, in addition to [`INPUT`].
pub(crate) const REQUEST: u64 = 3_000;

/// Cost of looking up a static file or one of its variants, with up to four system calls.
pub(crate) const FILE: u64 = 5_000;

/// Cost of a command of a client protocol.
pub(crate) const COMMAND: u64 = 2_500;

/// Cost of encoding one byte of a possibly large answer.
pub(crate) const ANSWER_BYTE: u64 = 1;

/// Connections whose remaining input waits for a later turn. The one that was served longest ago comes first, so each
/// is served once before any is served twice.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    /// The connections, ordered by the time of their last service, then by arrival in the queue.
    heap: BinaryHeap<Reverse<(u64, u64, ConnectionId)>>,
    arrivals: u64,
}

impl ReadyQueue {
    /// Adds a connection with the monotonic time in milliseconds at which it was last served.
    pub(crate) fn push(&mut self, served_ms: u64, id: ConnectionId) {
        self.arrivals += 1;
        self.heap.push(Reverse((served_ms, self.arrivals, id)));
    }

    /// Takes the connection that was served longest ago.
    pub fn pop(&mut self) -> Option<ConnectionId> {
        self.heap.pop().map(|Reverse((_, _, id))| id)
    }

    /// Iterates over the waiting connections in no particular order, each with the number of its arrival in the queue,
    /// which no other arrival has. Closed connections may be included.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, ConnectionId)> {
        let entries = self.heap.iter();
        entries.map(|Reverse((_, arrival, id))| (*arrival, *id))
    }

    /// Returns the number of waiting connections. Closed connections may be included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether no connection waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

/// The remaining work of a turn. One unit is about a nanosecond on a 3 GHz core.
#[derive(Clone, Copy, Debug)]
pub struct WorkBudget {
    /// The work that one connection may do per turn.
    share: i64,
    share_left: i64,
    turn_left: i64,
}

impl Default for WorkBudget {
    /// Returns a budget without a limit.
    fn default() -> Self {
        Self {
            share: i64::MAX,
            share_left: i64::MAX,
            turn_left: i64::MAX,
        }
    }
}

impl WorkBudget {
    /// Sets the work that one connection may do per turn.
    pub fn set_share(&mut self, units: u64) {
        self.share = i64::try_from(units).unwrap_or(i64::MAX);
    }

    /// Sets the work that all connections together may still do in this turn.
    pub fn set_left(&mut self, units: u64) {
        self.turn_left = i64::try_from(units).unwrap_or(i64::MAX);
        self.share_left = self.turn_left.min(self.share);
    }

    /// Begins to count the share of the next connection.
    #[inline]
    pub fn begin_share(&mut self) {
        self.share_left = self.turn_left.min(self.share);
    }

    #[inline]
    pub(crate) fn charge(&mut self, units: u64) {
        self.share_left = self.share_left.saturating_sub_unsigned(units);
        self.turn_left = self.turn_left.saturating_sub_unsigned(units);
    }

    /// Returns whether the current connection has used its share and has to wait for the next turn.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.share_left <= 0
    }

    /// Returns whether the work of this turn is used up, so that every connection has to wait for the next turn.
    #[must_use]
    pub fn is_turn_over(&self) -> bool {
        self.turn_left <= 0
    }
}
