//! What the connections of one worker share: the deflate codecs, and scratch buffers.
//!
//! Sharing is what keeps connections small: an inflater with its window takes about 40 KiB, a deflater 200 KiB and more,
//! and between two messages there is nothing in them worth keeping. Where a context is kept, its
//! [window](super::context) is given to the stream before the message.

use std::sync::Arc;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::ProtocolError;
use super::context::{DeflateBudget, slide};
use super::deflate::{
    KEPT_WINDOW_BITS_MAX, LIBRARY_WINDOW_BITS_MIN, WINDOW_BITS_MAX, window_bytes,
};
use super::frame::CONTROL_BYTES_MAX;
use super::partial::{InlineBytes, Partial};

/// What a sender strips from the end of a compressed message (RFC 7692 section 7.2.1).
pub(super) const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// Level 4 of 9: of the fast ones the first that looks for lazy matches.
const LEVEL: Compression = Compression::new(4);
/// Partials kept for reuse.
const SPARE_PARTIALS_MAX: usize = 64;
/// Scratch above this is given back when the next message comes.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;
/// Final blocks in one message. A sender has a reason for one, at its end (RFC 7692 section 7.2.3.4); each costs us a
/// new stream, and two bytes are enough to send one.
const FINAL_BLOCKS_MAX: u32 = 8;
/// Smallest room that a codec is given at once.
const ROOM_BYTES_MIN: usize = 1024;

/// What codecs cost, in units of about a nanosecond: a stream that begins to inflate, which is a message's first or
/// that behind a final block; a compressed byte; a byte inflated from it.
const INFLATE_WORK: (u64, u64, u64) = (2_000, 8, 1);
/// A message that is compressed, mostly for the memory of matches to be emptied; a byte of it; a byte of the window that
/// the stream is given before.
const DEFLATE_WORK: (u64, u64, u64) = (9_000, 10, 1);

/// Shared by the connections of one worker; one for receiving and one for sending, since an event borrows the first
/// while its answer is encoded with the second. Each allocates only what its side needs. What stays in the scratch
/// buffers after an event is overwritten by the next and never sent.
#[derive(Debug, Default)]
pub struct Codecs {
    /// A message that did not lie whole and plain in the input.
    message: Vec<u8>,
    /// A control frame's payload that did not lie whole in the input.
    control: InlineBytes<CONTROL_BYTES_MAX>,
    /// A compressed message to be sent.
    compressed: Vec<u8>,
    #[expect(
        clippy::vec_box,
        reason = "decoders hold boxes, and take these as they are"
    )]
    spare: Vec<Box<Partial>>,
    inflate: Option<Box<Decompress>>,
    /// By window bits, from [`LIBRARY_WINDOW_BITS_MIN`].
    deflates: [Option<Box<Deflater>>; (WINDOW_BITS_MAX - LIBRARY_WINDOW_BITS_MIN + 1) as usize],
    budget: Arc<DeflateBudget>,
    work: u64,
}

/// A stream that compresses for whichever connection comes next.
#[derive(Debug)]
struct Deflater {
    stream: Compress,
    /// The last bytes that the stream has seen, as many as it can refer to where contexts are kept.
    seen: Vec<u8>,
    is_fresh: bool,
}

impl Codecs {
    /// Nothing is allocated before it is needed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The contexts of its connections count against `budget`, which others may share.
    #[must_use]
    pub fn with_budget(budget: Arc<DeflateBudget>) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }

    /// What contexts count against.
    #[must_use]
    pub fn budget(&self) -> &Arc<DeflateBudget> {
        &self.budget
    }

    /// What compressing and inflating have cost since the last call, in units of about a nanosecond. Counted from what
    /// was done, not measured: streams that were begun, bytes that went in and came out, also of messages that were
    /// refused. It depends on the messages alone, not on what was done before them.
    pub fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Gives back the scratch that a large message has left, as the next message would. For a worker that falls idle.
    pub fn trim(&mut self) {
        renew(&mut self.message);
        renew(&mut self.compressed);
    }

    /// Compresses `data` by itself, as for any receiver with this window, and lends the result.
    pub(super) fn deflate_alone(&mut self, data: &[u8], window_bits: u8) -> &[u8] {
        self.deflate(b"", data, window_bits);
        &self.compressed
    }

    /// Compresses a part of a message so that it refers to nothing before it, and lends the result.
    pub(super) fn deflate_part(&mut self, data: &[u8], window_bits: u8, is_last: bool) -> &[u8] {
        self.deflate(b"", data, window_bits);
        if !is_last {
            self.compressed.extend_from_slice(&TAIL);
        }
        &self.compressed
    }

    /// Compresses `data` for a receiver who has inflated `window` last, and lends the result. `window` has at most
    /// [`KEPT_WINDOW_BITS_MAX`].
    pub(super) fn deflate_after(&mut self, window: &[u8], data: &[u8], window_bits: u8) -> &[u8] {
        // The stream has no larger window than what is kept. So it refers to nothing before `window` also where it has
        // seen more: which is why it may go on wherever the last bytes are the same, whosever they were.
        let bits = window_bits.min(KEPT_WINDOW_BITS_MAX);
        self.deflate(window, data, bits);
        &self.compressed
    }

    fn deflate(&mut self, window: &[u8], data: &[u8], window_bits: u8) {
        let bits = window_bits.clamp(LIBRARY_WINDOW_BITS_MIN, WINDOW_BITS_MAX);
        let slot = &mut self.deflates[usize::from(bits - LIBRARY_WINDOW_BITS_MIN)];
        let deflater = slot.get_or_insert_with(|| Box::new(Deflater::new(bits)));
        deflater.prime(window);
        compress(&mut deflater.stream, data, &mut self.compressed);
        let (begin, byte, window_byte) = DEFLATE_WORK;
        self.work += begin + byte * data.len() as u64 + window_byte * window.len() as u64;
        deflater.is_fresh = false;
        if bits <= KEPT_WINDOW_BITS_MAX {
            slide(&mut deflater.seen, data, window_bytes(bits));
        }
    }

    /// Inflates a message whose sender has sent `window` last; without context that is empty.
    pub(super) fn inflate(
        &mut self,
        window: &[u8],
        data: &[u8],
        bytes_max: usize,
    ) -> Result<(), ProtocolError> {
        renew(&mut self.message);
        let stream = self
            .inflate
            .get_or_insert_with(|| Box::new(Decompress::new(false)));
        let mut streams = 0;
        let message = &mut self.message;
        let inflated = inflate_message(stream, window, data, message, bytes_max, &mut streams);
        let (begin, byte, inflated_byte) = INFLATE_WORK;
        self.work += begin * u64::from(streams)
            + byte * data.len() as u64
            + inflated_byte * message.len() as u64;
        inflated
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

impl Deflater {
    /// One whose output any inflater with a window of so many bits takes.
    fn new(window_bits: u8) -> Self {
        // The library refuses 8. With 9 it never looks back further than 512 - 262 = 250 bytes (a match of the greatest
        // length must fit into its window beside the distance), so a window of 256 holds all it refers to.
        Self {
            stream: Compress::new_with_window_bits(LEVEL, false, window_bits),
            seen: Vec::new(),
            is_fresh: true,
        }
    }

    /// Brings the stream to where it has seen `window` and nothing else.
    fn prime(&mut self, window: &[u8]) {
        // A connection that sends several messages in a row finds the stream as it left it.
        if !window.is_empty() && self.seen == window {
            return;
        }
        // Before use, not after: unused ones need none.
        if !self.is_fresh {
            self.stream.reset();
        }
        self.seen.clear();
        if !window.is_empty() {
            let primed = self.stream.set_dictionary(window);
            debug_assert!(primed.is_ok(), "a raw stream takes any dictionary");
            self.seen.extend_from_slice(window);
        }
    }
}

/// Replaces `out` by the compressed message, which is not empty, ended by a flush and without its [`TAIL`] (RFC 7692 section 7.2.1).
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
    debug_assert!(out.ends_with(&TAIL), "there was something to flush");
    out.truncate(out.len() - TAIL.len());
}

/// Empties a scratch buffer, and gives its memory back if a large message has left much.
fn renew(scratch: &mut Vec<u8>) {
    scratch.clear();
    if scratch.capacity() > SCRATCH_BYTES_MAX {
        *scratch = Vec::new();
    }
}

/// Appends the inflated message to `out`, which holds at most `bytes_max` bytes then; counts the streams it took.
fn inflate_message(
    inflate: &mut Decompress,
    window: &[u8],
    data: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
    streams: &mut u32,
) -> Result<(), ProtocolError> {
    // No block at all, as some senders make of an empty message: nothing that the tail could complete.
    if data.is_empty() {
        return Ok(());
    }
    begin_stream(inflate, window, out)?;
    *streams = 1;
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
            return Err(ProtocolError::MessageTooBig);
        }
        let status = status.map_err(|_| ProtocolError::CorruptDeflate)?;
        let consumed = (inflate.total_in() - before.0) as usize;
        input = &input[consumed..];
        drained = out.len() < out.capacity();
        if status == Status::StreamEnd {
            // A final block ends a stream, but neither the message nor the context (RFC 7692 section 7.2.3.4).
            if *streams > FINAL_BLOCKS_MAX {
                return Err(ProtocolError::TooManyFinalBlocks);
            }
            begin_stream(inflate, window, out)?;
            *streams += 1;
            // Some senders leave out the byte behind the final block; then the tail has nothing to complete.
            if input.is_empty() {
                return Ok(());
            }
        } else if drained {
            if input.is_empty() && tail {
                return Ok(());
            }
            if consumed == 0 && out.len() == before.1 && !input.is_empty() {
                return Err(ProtocolError::CorruptDeflate);
            }
        }
    }
}

/// A new stream that may refer to what was inflated before: `window`, then `out`.
fn begin_stream(inflate: &mut Decompress, window: &[u8], out: &[u8]) -> Result<(), ProtocolError> {
    inflate.reset(false);
    let out = &out[out.len().saturating_sub(1 << WINDOW_BITS_MAX)..];
    for part in [window, out] {
        if !part.is_empty() {
            inflate
                .set_dictionary(part)
                .map_err(|_| ProtocolError::CorruptDeflate)?;
        }
    }
    Ok(())
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
        let mut stream = Decompress::new(false);
        let mut inflate = |window: &[u8], data: &[u8], capacity| {
            let mut out = Vec::with_capacity(capacity);
            let mut streams = 0;
            inflate_message(&mut stream, window, data, &mut out, 100, &mut streams).map(|()| out)
        };
        for first in 0..80 {
            for second in 0..20 {
                let out = inflate(b"", &hello, first).unwrap();
                assert!(out.starts_with(b"Hellooo") && out.len() == 36, "{first}");
                let out = inflate(&out, &stored, second).unwrap();
                assert_eq!(out, b"Hello", "{first} {second}");
            }
        }
    }
}
