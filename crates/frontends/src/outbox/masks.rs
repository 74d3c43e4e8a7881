//! Masking keys of the frames of outbound connections, and other unpredictable numbers.

/// Number of random bytes drawn at once: a system call per frame would cost more than the frame.
const DRAWN_BYTES: usize = 1024;

/// A function that fills memory with unpredictable bytes.
pub type FillRandom = fn(&mut [u8]);

/// A supply of random bytes for masking keys. RFC 6455 section 5.3: a key must be fresh for each frame and
/// unpredictable.
pub(crate) struct MaskSource {
    random: FillRandom,
    drawn: Box<[u8]>,
    used: usize,
}

impl MaskSource {
    pub(crate) fn new(random: FillRandom) -> Self {
        Self {
            random,
            drawn: Box::default(),
            used: 0,
        }
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        const { assert!(N <= DRAWN_BYTES) }
        if self.drawn.len() - self.used < N {
            // The buffer is allocated at the first use, since workers that dial no connections don't need it.
            if self.drawn.is_empty() {
                self.drawn = vec![0; DRAWN_BYTES].into();
            }
            (self.random)(&mut self.drawn);
            self.used = 0;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.drawn[self.used..self.used + N]);
        // Used bytes are erased, so that no key stays in memory.
        self.drawn[self.used..self.used + N].fill(0);
        self.used += N;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_byte_is_given_twice() {
        // Consecutive numbers replace random ones, so that each masking key is unique.
        let mut masks = MaskSource::new(|bytes| {
            use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
            static NEXT: AtomicU32 = AtomicU32::new(1);
            for chunk in bytes.chunks_mut(4) {
                chunk.copy_from_slice(&NEXT.fetch_add(1, Relaxed).to_be_bytes());
            }
        });
        let mut seen = HashSet::new();
        for _ in 0..2000 {
            assert!(seen.insert(masks.bytes::<4>()));
        }
        let key: [u8; 16] = masks.bytes();
        assert!(key.chunks(4).all(|word| !seen.contains(word)));
    }
}
