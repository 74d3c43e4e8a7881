//! A client and the transport between it and its connection.

use std::collections::VecDeque;

use veche_hub::ConnectionId;

pub(super) struct Client {
    pub(super) worker: usize,
    pub(super) id: ConnectionId,
    /// The transport is closed.
    pub(super) is_closed: bool,
    /// The worker has paused receiving.
    pub(super) is_paused: bool,
    /// The timer in milliseconds; `u64::MAX` if not set.
    pub(super) timer_ms: u64,
    /// Sent by the client and not received, since the connection is paused.
    pub(super) waiting: VecDeque<u8>,
    /// Sent by the server and not read.
    pub(super) unsent: VecDeque<u8>,
    /// Number of bytes that the client will still read.
    pub(super) window: usize,
    pub(super) received: Vec<u8>,
    pub(super) scratch: Vec<u8>,
    /// FIN of the client: requested, and delivered.
    pub(super) is_finishing: bool,
    pub(super) has_finished: bool,
    /// FIN of the server.
    pub(super) is_shut_down: bool,
    pub(super) stalled_since_ms: Option<u64>,
}

impl Client {
    pub(super) fn new(worker: usize, id: ConnectionId) -> Self {
        Self {
            worker,
            id,
            is_closed: false,
            is_paused: false,
            timer_ms: u64::MAX,
            waiting: VecDeque::new(),
            unsent: VecDeque::new(),
            window: usize::MAX,
            received: Vec::new(),
            scratch: Vec::new(),
            is_finishing: false,
            has_finished: false,
            is_shut_down: false,
            stalled_since_ms: None,
        }
    }

    /// Returns the time at which its timer fires.
    pub(super) fn timer_ms(&self) -> Option<u64> {
        (!self.is_closed && self.timer_ms != u64::MAX).then_some(self.timer_ms)
    }

    /// Sends to the client, which reads as much as it may at once.
    pub(super) fn write(&mut self, bytes: &[u8], now_ms: u64) {
        let read = match self.unsent.is_empty() {
            true => bytes.len().min(self.window),
            false => 0,
        };
        self.take_from_window(read);
        self.received.extend_from_slice(&bytes[..read]);
        self.unsent.extend(&bytes[read..]);
        self.read();
        if self.unsent.is_empty() {
            self.stalled_since_ms = None;
        } else {
            self.stalled_since_ms.get_or_insert(now_ms);
        }
    }

    /// Reads as much as permitted; returns the number of bytes.
    pub(super) fn read(&mut self) -> usize {
        let count = self.unsent.len().min(self.window);
        self.take_from_window(count);
        move_front(&mut self.unsent, count, &mut self.received);
        count
    }

    fn take_from_window(&mut self, count: usize) {
        if self.window != usize::MAX {
            self.window -= count;
        }
    }
}

/// Moves bytes by slices: a queue's iterator goes byte by byte and would take most of a fuzzer's time.
pub(super) fn move_front(from: &mut VecDeque<u8>, count: usize, to: &mut Vec<u8>) {
    let (front, back) = from.as_slices();
    let in_front = count.min(front.len());
    to.extend_from_slice(&front[..in_front]);
    to.extend_from_slice(&back[..count - in_front]);
    from.drain(..count);
}
