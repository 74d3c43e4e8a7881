//! Spare buffers of one worker, so that a message needs no allocation and an idle connection holds no buffer.
//!
//! Buffers that were not needed since the last [`BufferPool::trim`] are freed gradually. The pool has no clock, so
//! its owner has to call `trim` at intervals.

/// Maximum capacity in bytes of a buffer that is kept; a larger one is freed.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Maximum number of spare buffers.
const SPARE_MAX: usize = 256;

/// Number of spare buffers that are never freed, so that an idle worker keeps some.
const SPARE_MIN: usize = 4;

/// A pool of spare buffers.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    /// Used as a stack, so that the buffers at the front are those that are not needed.
    spare: Vec<Vec<u8>>,
    /// The smallest number of spare buffers since the last trim. This many buffers were not needed.
    unneeded: usize,
}

impl BufferPool {
    /// Returns an empty buffer. It has capacity if the pool had a spare one.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let buffer = self.spare.pop().unwrap_or_default();
        self.unneeded = self.unneeded.min(self.spare.len());
        buffer
    }

    /// Clears a buffer and keeps it for a later [`BufferPool::take`].
    #[inline]
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        if (1..=BUFFER_BYTES_MAX).contains(&buffer.capacity()) && self.spare.len() < SPARE_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Returns the number of spare buffers.
    pub(crate) fn spare(&self) -> usize {
        self.spare.len()
    }

    /// Frees half of the spare buffers that were not needed since the last call; returns whether the next call may
    /// free more.
    pub(crate) fn trim(&mut self) -> bool {
        let excess = self.spare.len().saturating_sub(SPARE_MIN);
        self.spare.drain(..self.unneeded.div_ceil(2).min(excess));
        self.unneeded = self.spare.len();
        self.spare.len() > SPARE_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes this number of buffers at the same time and gives them back.
    fn need(pool: &mut BufferPool, count: usize) {
        let buffers: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let mut buffer = pool.take();
                buffer.reserve(1000);
                buffer
            })
            .collect();
        buffers.into_iter().for_each(|buffer| pool.give(buffer));
    }

    #[test]
    fn small_buffers_come_back_empty_and_large_ones_do_not() {
        let mut pool = BufferPool::default();
        let mut buffer = Vec::with_capacity(100);
        buffer.push(1);
        let place = buffer.as_ptr();
        pool.give(buffer);
        pool.give(Vec::with_capacity(100));
        assert_eq!(pool.spare(), 2);
        drop(pool.take());
        let buffer = pool.take();
        assert!(buffer.is_empty() && buffer.as_ptr() == place);
        assert_eq!(pool.spare(), 0);
        pool.give(Vec::with_capacity(BUFFER_BYTES_MAX + 1));
        pool.give(Vec::new());
        assert!(pool.spare.is_empty());
        need(&mut pool, SPARE_MAX + 10);
        assert_eq!(pool.spare.len(), SPARE_MAX);
    }

    #[test]
    fn after_a_spike_it_keeps_what_is_needed_and_rests_with_little() {
        let mut pool = BufferPool::default();
        need(&mut pool, 200);
        for _ in 0..20 {
            need(&mut pool, 30);
            assert!(pool.trim());
        }
        assert!(
            (30..=31).contains(&pool.spare.len()),
            "{}",
            pool.spare.len()
        );
        let rest = (0..20)
            .position(|_| !pool.trim())
            .expect("it comes to rest");
        assert!(rest < 10, "{rest}");
        assert_eq!(pool.spare.len(), SPARE_MIN);
    }
}
