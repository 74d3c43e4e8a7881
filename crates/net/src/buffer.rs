//! What is sent, and where a worker keeps its spare vectors.

use bytes::Bytes;

/// Bytes on their way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// This transport's own bytes; the vector is reusable when it comes back.
    Owned(Vec<u8>),
    /// Bytes that many transports send: one encoding of one publication.
    Shared(Bytes),
}

impl Buffer {
    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    /// How many bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is nothing to send.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Self {
        Self::Shared(bytes)
    }
}

/// Spare vectors of one worker, so that a message costs no allocation and an
/// idle connection holds no buffer.
#[derive(Debug, Default)]
pub struct BufferPool {
    spare: Vec<Vec<u8>>,
}

impl BufferPool {
    /// Most vectors kept.
    pub const SPARE_MAX: usize = 64;
    /// Largest vector kept; a larger one goes back to the allocator.
    pub const CAPACITY_MAX: usize = 64 * 1024;

    /// A pool with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty vector, with capacity if a spare one is there.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps a vector for the next [`take`](Self::take); its content is gone.
    #[inline]
    pub fn give(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() == 0
            || bytes.capacity() > Self::CAPACITY_MAX
            || self.spare.len() == Self::SPARE_MAX
        {
            return;
        }
        bytes.clear();
        self.spare.push(bytes);
    }

    /// Takes back what a driver returned; shared bytes are just let go.
    #[inline]
    pub fn give_buffer(&mut self, buffer: Buffer) {
        if let Buffer::Owned(bytes) = buffer {
            self.give(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_reuses_small_and_drops_large() {
        let mut pool = BufferPool::new();
        let mut bytes = Vec::with_capacity(100);
        bytes.extend_from_slice(b"old");
        let place = bytes.as_ptr();
        pool.give_buffer(bytes.into());
        let bytes = pool.take();
        assert!(bytes.is_empty());
        assert_eq!(bytes.as_ptr(), place);

        pool.give(Vec::with_capacity(BufferPool::CAPACITY_MAX + 1));
        pool.give_buffer(Bytes::from_static(b"x").into());
        assert_eq!(pool.take().capacity(), 0);

        for _ in 0..BufferPool::SPARE_MAX + 10 {
            pool.give(Vec::with_capacity(8));
        }
        assert_eq!(pool.spare.len(), BufferPool::SPARE_MAX);
    }
}
