//! The remote end of a simulated transport: its output, its input, and its state.

use std::collections::VecDeque;

/// The state of a remote end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// More bytes may follow.
    Open,
    /// A FIN arrived: no further data follows.
    Ended,
    /// The transport no longer exists.
    Closed,
}

/// The remote end of a transport.
#[derive(Debug)]
pub(super) struct RemoteEnd {
    /// Writes that were not received yet, in their original pieces.
    written: VecDeque<Vec<u8>>,
    received: Vec<u8>,
    pub(super) reads: bool,
    /// The number of further bytes that the remote end accepts if it reads.
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

    /// Ends the output of the remote end and drops its undelivered writes.
    pub(super) fn abandon(&mut self) {
        self.written.clear();
        self.finished = true;
    }

    /// Returns the next write, or its first `bytes_max` bytes if it is longer. The rest is returned
    /// by later calls.
    pub(super) fn take(&mut self, bytes_max: usize) -> Option<Vec<u8>> {
        let mut piece = self.written.pop_front()?;
        if piece.len() > bytes_max {
            let rest = piece.split_off(bytes_max);
            self.written.push_front(rest);
        }
        Some(piece)
    }

    /// Returns whether the remote end has sent FIN and the driver has received all its writes.
    pub(super) fn is_finished(&self) -> bool {
        self.finished && self.written.is_empty()
    }

    pub(super) fn has_something(&self) -> bool {
        self.finished || !self.written.is_empty()
    }

    /// Returns the number of bytes that the remote end accepts now.
    pub(super) fn room(&self) -> usize {
        if self.reads { self.room } else { 0 }
    }

    /// Accepts as many bytes as there is room for. Returns their number.
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
