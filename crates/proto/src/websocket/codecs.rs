//! What the connections of one worker share: the deflate codecs for messages without context, and scratch buffers.
//!
//! Sharing is what keeps idle connections small: an inflater with its window takes about 40 KiB, a deflater 200 KiB
//! and more, and between two messages without context there is nothing in them worth keeping.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::Error;
use super::deflate::{Agreed, LIBRARY_WINDOW_BITS_MIN, WINDOW_BITS_MAX};
use super::frame::CONTROL_BYTES_MAX;
use super::partial::{Partial, Short};

/// What a sender strips from the end of a compressed message (RFC 7692 section 7.2.1).
pub(super) const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// Level 4 of 9: of the fast ones the first that looks for lazy matches.
const LEVEL: Compression = Compression::new(4);
/// Partials kept for reuse.
const SPARE_PARTIALS_MAX: usize = 64;
/// Scratch above this is given back when the next message comes.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;
/// Final blocks in one message. Each costs us a new stream, and two bytes are enough to send one.
const FINAL_BLOCKS_MAX: u32 = 256;
/// Smallest room that a codec is given at once.
const ROOM_BYTES_MIN: usize = 1024;

/// Shared by the connections of one worker; one for receiving and one for sending, since an event borrows the first
/// while its answer is encoded with the second. Each allocates only what its side needs. What stays in the scratch
/// buffers after an event is overwritten by the next and never sent.
#[derive(Debug, Default)]
pub struct Codecs {
    /// A message that did not lie whole and plain in the input.
    message: Vec<u8>,
    /// A control frame's payload that did not lie whole in the input.
    control: Short<CONTROL_BYTES_MAX>,
    /// A compressed message to be sent.
    compressed: Vec<u8>,
    #[expect(
        clippy::vec_box,
        reason = "decoders hold boxes, and take these as they are"
    )]
    spare: Vec<Box<Partial>>,
    inflate: Option<Box<Decompress>>,
    /// By window bits, from [`LIBRARY_WINDOW_BITS_MIN`].
    deflates: [Option<Box<Compress>>; (WINDOW_BITS_MAX - LIBRARY_WINDOW_BITS_MIN + 1) as usize],
}

impl Codecs {
    /// Nothing is allocated before it is needed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives back the scratch that a large message has left, as the next message would. For a worker that falls idle.
    pub fn trim(&mut self) {
        renew(&mut self.message);
        renew(&mut self.compressed);
    }

    /// Compresses `data` by itself, as for any receiver with this window, and lends the result.
    pub(super) fn deflate_alone(&mut self, data: &[u8], window_bits: u8) -> &[u8] {
        let bits = window_bits.clamp(LIBRARY_WINDOW_BITS_MIN, WINDOW_BITS_MAX);
        let slot = &mut self.deflates[usize::from(bits - LIBRARY_WINDOW_BITS_MIN)];
        let deflate = slot.get_or_insert_with(|| Box::new(new_deflate(bits)));
        // Without its history a deflater is as good as new. Before use, not after: unused ones need none.
        if deflate.total_in() > 0 {
            deflate.reset();
        }
        compress(deflate, data, &mut self.compressed);
        &self.compressed
    }

    /// Compresses `data` in a connection's context and lends the result.
    pub(super) fn deflate_with(&mut self, context: &mut Compress, data: &[u8]) -> &[u8] {
        compress(context, data, &mut self.compressed);
        &self.compressed
    }

    /// Inflates a message without context.
    pub(super) fn inflate_alone(&mut self, data: &[u8], bytes_max: usize) -> Result<(), Error> {
        let inflate = self
            .inflate
            .get_or_insert_with(|| Box::new(Decompress::new(false)));
        inflate.reset(false);
        renew(&mut self.message);
        inflate_message(inflate, data, &mut self.message, bytes_max)
    }

    /// Inflates a message in its connection's context.
    pub(super) fn inflate_with(
        &mut self,
        context: &mut Decompress,
        data: &[u8],
        bytes_max: usize,
    ) -> Result<(), Error> {
        renew(&mut self.message);
        inflate_message(context, data, &mut self.message, bytes_max)
    }

    /// How long a compressed message may be whose inflated form is limited to `bytes_max`: incompressible data grows
    /// by less than an eighth with any deflater in use, and flushes and empty blocks need some room.
    pub(super) fn compressed_bytes_max(bytes_max: usize) -> usize {
        bytes_max.saturating_add(bytes_max / 4).saturating_add(1024)
    }

    pub(super) fn message(&mut self) -> &mut [u8] {
        &mut self.message
    }

    /// Takes over a complete message, gives an empty buffer for the next.
    pub(super) fn swap_message(&mut self, data: &mut Vec<u8>) {
        std::mem::swap(&mut self.message, data);
    }

    pub(super) fn control(&self) -> &[u8] {
        self.control.bytes()
    }

    pub(super) fn set_control(&mut self, payload: &[u8]) {
        self.control.clear();
        self.control.push(payload);
    }

    pub(super) fn take_partial(&mut self) -> Box<Partial> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn recycle(&mut self, mut partial: Box<Partial>) {
        if self.spare.len() < SPARE_PARTIALS_MAX {
            partial.clear();
            self.spare.push(partial);
        }
    }
}

/// A deflater whose output any inflater with a window of `agreed` window bits takes.
pub(super) fn new_deflate(window_bits: u8) -> Compress {
    // The library refuses 8. With 9 it never looks back further than 512 - 262 = 250 bytes (a match of the greatest
    // length must fit into its window beside the distance), so a window of 256 holds all it refers to.
    Compress::new_with_window_bits(LEVEL, false, window_bits.max(LIBRARY_WINDOW_BITS_MIN))
}

/// An inflater for data made with a window of `window_bits`; a larger window does no harm.
pub(super) fn new_inflate(window_bits: u8) -> Decompress {
    Decompress::new_with_window_bits(false, window_bits.max(LIBRARY_WINDOW_BITS_MIN))
}

/// Replaces `out` by the compressed message, ended by a flush and without its [`TAIL`] (RFC 7692 section 7.2.1).
fn compress(deflate: &mut Compress, mut data: &[u8], out: &mut Vec<u8>) {
    renew(out);
    loop {
        out.reserve((data.len() / 2).max(ROOM_BYTES_MIN));
        let before = deflate.total_in();
        let status = deflate.compress_vec(data, out, FlushCompress::Sync);
        debug_assert!(
            matches!(status, Ok(Status::Ok | Status::BufError)),
            "a deflater takes any input"
        );
        data = &data[(deflate.total_in() - before) as usize..];
        // Room left over means that the flush is complete.
        if out.len() < out.capacity() {
            break;
        }
    }
    debug_assert!(data.is_empty());
    if out.ends_with(&TAIL) {
        out.truncate(out.len() - TAIL.len());
    } else {
        // Two empty messages in a row: to the library there is nothing new to flush. An empty message is one empty
        // block, of which the tail is but the end (RFC 7692 section 7.2.3.6).
        debug_assert!(out.is_empty());
        out.push(0);
    }
}

/// Empties a scratch buffer, and gives its memory back if a large message has left much.
fn renew(scratch: &mut Vec<u8>) {
    scratch.clear();
    if scratch.capacity() > SCRATCH_BYTES_MAX {
        *scratch = Vec::new();
    }
}

/// Appends the inflated message to `out`, which holds at most `bytes_max` bytes then.
fn inflate_message(
    inflate: &mut Decompress,
    data: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), Error> {
    // No block at all, as some senders make of an empty message: nothing that the tail could complete.
    if data.is_empty() {
        return Ok(());
    }
    let mut final_blocks = 0;
    let mut input = data;
    let mut tail = false;
    let mut drained = false;
    loop {
        // The tail waits until all output of the input is out: the end of a final block may stand behind it.
        if input.is_empty() && drained && !tail {
            tail = true;
            input = &TAIL;
        }
        if out.len() == out.capacity() {
            // One byte more than allowed is enough to see that it is too much.
            let room = out
                .len()
                .max(input.len().saturating_mul(2))
                .max(ROOM_BYTES_MIN);
            let allowed = bytes_max.saturating_add(1).saturating_sub(out.len());
            out.reserve_exact(room.min(allowed).max(1));
        }
        let before = (inflate.total_in(), out.len());
        let status = inflate.decompress_vec(input, out, FlushDecompress::Sync);
        // Looked at before the status: scratch that is larger than allowed lets the library read on to a fault that
        // it would not have come to otherwise, and the verdict must not depend on what a message before has left.
        if out.len() > bytes_max {
            return Err(Error::MessageTooBig);
        }
        let status = status.map_err(|_| Error::CorruptDeflate)?;
        let consumed = (inflate.total_in() - before.0) as usize;
        input = &input[consumed..];
        drained = out.len() < out.capacity();
        if status == Status::StreamEnd {
            // A final block ends a stream, but neither the message nor the context (RFC 7692 section 7.2.3.4). The
            // library forgets its window with the stream; of the window, what this message has is given back.
            final_blocks += 1;
            if final_blocks > FINAL_BLOCKS_MAX {
                return Err(Error::CorruptDeflate);
            }
            inflate.reset(false);
            let window = &out[out.len().saturating_sub(1 << WINDOW_BITS_MAX)..];
            inflate
                .set_dictionary(window)
                .map_err(|_| Error::CorruptDeflate)?;
            // Some senders leave out the byte behind the final block; then the tail has nothing to complete.
            if input.is_empty() {
                return Ok(());
            }
        } else if drained {
            if input.is_empty() && tail {
                return Ok(());
            }
            if consumed == 0 && out.len() == before.1 && !input.is_empty() {
                return Err(Error::CorruptDeflate);
            }
        }
    }
}

impl Agreed {
    /// A deflater for a connection that keeps its context.
    pub(super) fn new_deflate(self, sender: super::Role) -> Compress {
        new_deflate(self.window_bits_of(sender))
    }

    /// An inflater for a connection whose peer keeps its context.
    pub(super) fn new_inflate(self, receiver: super::Role) -> Decompress {
        new_inflate(self.window_bits_of(receiver.peer()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scratch that a message finds depends on the messages before, what is made of it must not.
    #[test]
    fn any_capacity_inflates_the_same() {
        // A final block that fills the scratch; a stored block in the same context.
        let hello = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x27, 0, 0];
        let stored = [0, 5, 0, 0xfa, 0xff, b'H', b'e', b'l', b'l', b'o', 0];
        for first in 0..80 {
            for second in 0..20 {
                let mut context = new_inflate(WINDOW_BITS_MAX);
                let mut out = Vec::with_capacity(first);
                inflate_message(&mut context, &hello, &mut out, 100).unwrap();
                assert!(out.starts_with(b"Hellooo") && out.len() == 36, "{first}");
                let mut out = Vec::with_capacity(second);
                inflate_message(&mut context, &stored, &mut out, 100).unwrap();
                assert_eq!(out, b"Hello", "{first} {second}");
            }
        }
    }
}
