//! The buffer of bytes that are to be written to a process.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};

/// Frames of more bytes than this are written without a copy. Shorter frames are copied into one
/// buffer, which costs less than one slice per frame.
const LONG: usize = 2048;

/// Maximum number of slices of one write.
const SLICES_MAX: usize = 64;

/// A buffer of short frames that has reached this length gets no further frames, so that the memory of written frames
/// is freed even if the output never becomes empty. This is also the largest capacity of a buffer that is kept for
/// later frames.
const KEPT_BYTES: usize = 64 << 10;

/// Frames that the socket has not accepted yet, in order.
#[derive(Debug, Default)]
pub(crate) struct OutputBuffer {
    /// No chunk is empty. The last one may grow unless it is a long frame.
    chunks: VecDeque<Chunk>,
    /// An empty buffer for the next short frames.
    spare: Vec<u8>,
}

#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// The number of bytes at the beginning that were written already or are not part of the output.
    from: usize,
    is_long: bool,
}

impl OutputBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Appends a copy of bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self.chunks.back_mut() {
            Some(chunk) if !chunk.is_long && chunk.bytes.len() < KEPT_BYTES => {
                chunk.bytes.extend_from_slice(bytes);
            }
            _ if bytes.is_empty() => {}
            _ => {
                let mut own = std::mem::take(&mut self.spare);
                own.extend_from_slice(bytes);
                self.chunks.push_back(Chunk {
                    bytes: own,
                    from: 0,
                    is_long: false,
                });
            }
        }
    }

    /// Appends the bytes from an index on; a long frame is moved, not copied.
    pub(crate) fn push_rest(&mut self, bytes: Vec<u8>, from: usize) {
        if bytes.len() - from <= LONG {
            self.push(&bytes[from..]);
        } else {
            self.chunks.push_back(Chunk {
                bytes,
                from,
                is_long: true,
            });
        }
    }

    /// Writes as much as the socket accepts.
    pub(crate) fn write_to(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while !self.chunks.is_empty() {
            let slices: Vec<IoSlice<'_>> = self
                .chunks
                .iter()
                .take(SLICES_MAX)
                .map(|chunk| IoSlice::new(&chunk.bytes[chunk.from..]))
                .collect();
            match socket.write_vectored(&slices) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.advance(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the bytes that were written.
    fn advance(&mut self, mut count: usize) {
        while let Some(chunk) = self.chunks.front_mut() {
            let left = chunk.bytes.len() - chunk.from;
            if count < left {
                chunk.from += count;
                return;
            }
            count -= left;
            let Some(mut chunk) = self.chunks.pop_front() else {
                return;
            };
            if !chunk.is_long && chunk.bytes.capacity() <= KEPT_BYTES {
                chunk.bytes.clear();
                self.spare = chunk.bytes;
            }
        }
    }

    /// Removes all frames, written or not.
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that accepts a limited number of bytes per write, and none at every third write.
    struct Slow {
        each: usize,
        writes: usize,
        taken: Vec<u8>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.writes += 1;
            if self.writes.is_multiple_of(3) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.each);
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn written_bytes_are_freed_although_the_output_never_empties() {
        let left = |output: &OutputBuffer| {
            let left = output.chunks.iter();
            left.map(|chunk| chunk.bytes.len() - chunk.from)
                .sum::<usize>()
        };
        let mut output = OutputBuffer::default();
        let mut socket = Slow {
            each: 1500,
            writes: 0,
            taken: Vec::new(),
        };
        output.push(&[0; 4000]);
        for _ in 0..1000 {
            output.push(&[1; 1000]);
            while left(&output) > 4000 {
                output.write_to(&mut socket).expect("it is not broken");
            }
            assert!(!output.is_empty());
            let held = output.chunks.iter().map(|chunk| chunk.bytes.len());
            assert!(held.sum::<usize>() < 3 * KEPT_BYTES);
        }
    }

    #[test]
    fn frames_leave_in_order_however_few_bytes_the_socket_accepts() {
        for each in [1, 7, 2000, 2100, 100_000] {
            let mut output = OutputBuffer::default();
            let mut expected = Vec::new();
            let mut socket = Slow {
                each,
                writes: 0,
                taken: Vec::new(),
            };
            for number in 0..40_u8 {
                let short = vec![number; usize::from(number)];
                let long = vec![100 + number; LONG + usize::from(number)];
                output.push(&short);
                output.push_rest(long.clone(), 3);
                output.push_rest(short.clone(), short.len() / 2);
                expected.extend([&short, &long[3..], &short[short.len() / 2..]].concat());
                output.write_to(&mut socket).expect("it is not broken");
            }
            while !output.is_empty() {
                output.write_to(&mut socket).expect("it is not broken");
            }
            assert_eq!(socket.taken.len(), expected.len());
            assert!(socket.taken == expected);
        }
    }
}
