//! The far side of a transport of a simulated network: what it wrote, what it was sent, and how far it has ended.

use std::collections::VecDeque;

/// A far side's end of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// More may come.
    Open,
    /// FIN came: nothing more will.
    Ended,
    /// The transport is gone.
    Closed,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct RemoteEnd {
    /// Written and not received yet, in the pieces in which it was written.
    written: VecDeque<Vec<u8>>,
    received: Vec<u8>,
    pub(super) reads: bool,
    /// Bytes that it takes at most, while it reads.
    pub(super) room: usize,
    finished: bool,
    state: RemoteState,
}

impl Default for RemoteEnd {
    fn default() -> Self {
        Self {
            written: VecDeque::new(),
            received: Vec::new(),
            reads: true,
            room: usize::MAX,
            finished: false,
            state: RemoteState::Open,
        }
    }
}

impl RemoteEnd {
    pub(super) fn write(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() && !self.finished && self.state != RemoteState::Closed {
            self.written.push_back(bytes);
        }
    }

    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    /// It is gone, and what it wrote with it.
    pub(super) fn abandon(&mut self) {
        self.written.clear();
        self.finished = true;
    }

    /// The next piece, or as much of it as may be told at once.
    pub(super) fn take(&mut self, bytes_max: usize) -> Option<Vec<u8>> {
        let mut piece = self.written.pop_front()?;
        if piece.len() > bytes_max {
            let rest = piece.split_off(bytes_max);
            self.written.push_front(rest);
        }
        Some(piece)
    }

    /// All that it wrote was received, and it writes no more.
    pub(super) fn is_finished(&self) -> bool {
        self.finished && self.written.is_empty()
    }

    pub(super) fn has_something(&self) -> bool {
        self.finished || !self.written.is_empty()
    }

    /// How many bytes it takes now.
    pub(super) fn room(&self) -> usize {
        if self.reads { self.room } else { 0 }
    }

    /// Takes what it has room for; returns how much that is.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.received.extend_from_slice(&bytes[..taken]);
        if self.room < usize::MAX {
            self.room -= taken;
        }
        taken
    }

    pub(super) fn end(&mut self) {
        if self.state == RemoteState::Open {
            self.state = RemoteState::Ended;
        }
    }

    pub(super) fn close(&mut self) {
        self.written.clear();
        self.state = RemoteState::Closed;
    }

    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> RemoteState {
        if self.reads {
            into.append(&mut self.received);
        }
        self.state
    }
}
