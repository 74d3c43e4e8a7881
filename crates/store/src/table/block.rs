//! A shared block of bytes with copy-on-write.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::room::heap_bytes;

/// Bytes with spare capacity at the end. The owner of the block knows how many bytes are used.
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
    /// Returns the bytes for writing; copies them if they are shared.
    pub(super) fn change(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.0)
    }

    /// Changes the length and keeps the first `used` bytes.
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

    /// Copies bytes into a new block.
    pub(super) fn copy(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Changes the length of a range to `count` bytes, and moves the bytes after it, up to `used`, where the used bytes
    /// end. Returns the bytes of the range, whose content is arbitrary, for writing.
    pub(super) fn replace(&mut self, used: usize, range: Range<usize>, count: usize) -> &mut [u8] {
        let from = range.start;
        let bytes = self.change();
        bytes.copy_within(range.end..used, from + count);
        &mut bytes[from..from + count]
    }

    /// Returns the heap memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self.0.len() {
            0 => 0,
            // An allocation of an `Arc` also contains two reference counts.
            len => heap_bytes(len + 16),
        }
    }
}
