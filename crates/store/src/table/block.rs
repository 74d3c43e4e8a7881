//! Bytes that several may look at, and whoever changes them then gets a copy.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::room::heap_bytes;

/// Some bytes, of which those at the end may be unused.
#[derive(Clone, Debug, Default)]
pub(super) struct Block(Arc<[u8]>);

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Block {
    /// The bytes, to change them.
    pub(super) fn change(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.0)
    }

    /// Has that many from now on, of which the first are those that were in use.
    pub(super) fn resize(&mut self, used: usize, len: usize) {
        if self.0.len() == len {
            return;
        }
        let mut new: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        if let Some(bytes) = Arc::get_mut(&mut new) {
            bytes[..used].copy_from_slice(&self.0[..used]);
        }
        self.0 = new;
    }

    /// Of other ones a copy.
    pub(super) fn copy(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Puts so many bytes in place of some, whatever they are, and moves what is in use behind them.
    pub(super) fn replace(&mut self, used: usize, range: Range<usize>, count: usize) -> &mut [u8] {
        let from = range.start;
        let bytes = self.change();
        bytes.copy_within(range.end..used, from + count);
        &mut bytes[from..from + count]
    }

    /// What it takes of the heap.
    pub(super) fn bytes(&self) -> usize {
        match self.0.len() {
            0 => 0,
            // With its counts.
            len => heap_bytes(len + 16),
        }
    }
}
