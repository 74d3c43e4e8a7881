//! A client, and the transport between the client and its connection.

use std::collections::VecDeque;

use veche_hub::ConnectionId;

pub(super) struct Client {
    pub(super) worker: usize,
    pub(super) id: ConnectionId,
    /// Whether the transport is closed.
    pub(super) is_closed: bool,
    /// Whether the worker has paused receiving.
    pub(super) is_paused: bool,
    /// When the connection's timer fires, in milliseconds; `u64::MAX` if it is not set.
    pub(super) timer_ms: u64,
    /// Bytes that the client has sent and the connection has not received, because it is paused.
    pub(super) waiting: VecDeque<u8>,
    /// Bytes that the server has sent and the client has not read.
    pub(super) unsent: VecDeque<u8>,
    /// Number of bytes that the client will still read.
    pub(super) window: usize,
    pub(super) received: Vec<u8>,
    pub(super) scratch: Vec<u8>,
    /// Whether the client is to send FIN.
    pub(super) is_finishing: bool,
    /// Whether the server has received the client's FIN.
    pub(super) has_finished: bool,
    /// Whether the server has sent FIN.
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

    /// Returns when the connection's timer fires, in milliseconds; `None` if it is not set.
    pub(super) fn timer_ms(&self) -> Option<u64> {
        (!self.is_closed && self.timer_ms != u64::MAX).then_some(self.timer_ms)
    }

    /// Passes bytes of the server to the client, which immediately reads as many as its window
    /// permits.
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

    /// Lets the client read as many bytes as it may; returns their number.
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

/// Moves bytes as slices. The queue's iterator goes byte by byte, which would take most of a fuzzer's time.
pub(super) fn move_front(from: &mut VecDeque<u8>, count: usize, to: &mut Vec<u8>) {
    let (front, back) = from.as_slices();
    let in_front = count.min(front.len());
    to.extend_from_slice(&front[..in_front]);
    to.extend_from_slice(&back[..count - in_front]);
    from.drain(..count);
}
