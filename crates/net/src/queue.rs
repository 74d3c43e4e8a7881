//! The send queue of a transport.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::Buffer;

/// Maximum number of buffers that one system call sends. A queue that is held back because of `more`
/// is sent when it has this many buffers.
pub(crate) const SLICES_MAX: usize = 64;

/// A send queue; a transport has one only while it is not empty.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    buffers: VecDeque<Buffer>,
    /// Number of bytes that the kernel has taken from the first buffer.
    front_sent: usize,
    /// Number of bytes in all buffers, without those that the kernel has taken.
    unsent: usize,
    /// Whether the queue is held back for a send that the caller has announced. If so, there was no
    /// attempt to send yet.
    pub(crate) held: bool,
}

impl SendQueue {
    /// Returns the number of bytes that the kernel has not taken.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Returns the number of queued buffers.
    pub(crate) fn len(&self) -> usize {
        self.buffers.len()
    }

    pub(crate) fn push(&mut self, buffer: Buffer) {
        self.unsent += buffer.len();
        self.buffers.push_back(buffer);
    }

    /// Iterates over the first slices of the queue, up to the maximum that one system call accepts.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let buffers = self.buffers.iter().take(SLICES_MAX).enumerate();
        buffers.map(|(place, buffer)| {
            let skip = if place == 0 { self.front_sent } else { 0 };
            &buffer.as_slice()[skip..]
        })
    }

    /// Fills a list of slices for one system call. Returns the number of slices and the number of
    /// bytes.
    pub(crate) fn fill_slices<'a>(
        &'a self,
        list: &mut [IoSlice<'a>; SLICES_MAX],
    ) -> (usize, usize) {
        let (mut count, mut bytes) = (0, 0);
        for (place, piece) in list.iter_mut().zip(self.slices()) {
            *place = IoSlice::new(piece);
            bytes += piece.len();
            count += 1;
        }
        (count, bytes)
    }

    /// Returns a copy of all bytes that the kernel has not taken.
    pub(crate) fn remaining(&self) -> Vec<u8> {
        let mut rest = Vec::with_capacity(self.unsent);
        for (place, buffer) in self.buffers.iter().enumerate() {
            let skip = if place == 0 { self.front_sent } else { 0 };
            rest.extend_from_slice(&buffer.as_slice()[skip..]);
        }
        rest
    }

    /// Removes the first `sent` bytes. Passes each buffer that is sent completely to `done`.
    pub(crate) fn advance(&mut self, sent: usize, mut done: impl FnMut(Buffer)) {
        self.unsent -= sent;
        self.front_sent += sent;
        while let Some(front) = self.buffers.front()
            && front.len() <= self.front_sent
        {
            self.front_sent -= front.len();
            self.buffers.pop_front().into_iter().for_each(&mut done);
        }
    }
}

/// A pool of queues for reuse, so that slow readers do not cause an allocation each time.
#[derive(Debug)]
pub(crate) struct Queues {
    #[expect(
        clippy::vec_box,
        reason = "transports contain these boxes, so none is allocated when one is reused"
    )]
    spare: Vec<Box<SendQueue>>,
    spare_max: usize,
}

impl Queues {
    /// Creates a pool that keeps at most `spare_max` queues.
    pub(crate) fn new(spare_max: usize) -> Self {
        Self {
            spare: Vec::new(),
            spare_max,
        }
    }

    pub(crate) fn take(&mut self) -> Box<SendQueue> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn give(&mut self, mut queue: Box<SendQueue>) {
        if self.spare.len() < self.spare_max && queue.buffers.capacity() <= SLICES_MAX {
            queue.buffers.clear();
            *queue = SendQueue {
                buffers: std::mem::take(&mut queue.buffers),
                ..Default::default()
            };
            self.spare.push(queue);
        }
    }
}
