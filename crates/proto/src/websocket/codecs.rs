//! The shared state of a worker's connections: deflate codecs and scratch buffers.
//!
//! Sharing keeps connections small: an inflater with its window takes about 40 KiB, a deflater 200 KiB and more, and
//! between two messages they contain nothing worth keeping. For context takeover the stream is primed with the
//! connection's [window](super::context) before each message.

use std::sync::Arc;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::ProtocolError;
use super::context::{DeflateBudget, slide};
use super::deflate::{
    KEPT_WINDOW_BITS_MAX, LIBRARY_WINDOW_BITS_MIN, WINDOW_BITS_MAX, window_bytes,
};
use super::frame::CONTROL_BYTES_MAX;
use super::partial::{InlineBytes, Partial};

/// The bytes that a sender strips from the end of a compressed message (RFC 7692 section 7.2.1).
pub(super) const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// Level 4 of 9: the fastest level with lazy matching.
const LEVEL: Compression = Compression::new(4);
/// Maximum number of buffers for partial messages that are kept for reuse.
const SPARE_PARTIALS_MAX: usize = 64;
/// Scratch buffers larger than this are freed when the next message arrives.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of final blocks per message. A sender needs at most one, at the end of the
/// message (RFC 7692 section 7.2.3.4). Each costs the receiver a new stream, but the sender only
/// two bytes.
const FINAL_BLOCKS_MAX: u32 = 8;
/// Minimum output capacity passed to a codec.
const ROOM_BYTES_MIN: usize = 1024;

/// The cost of inflating, in units of about a nanosecond: per started stream (at the beginning of a
/// message and after each final block), per compressed byte, and per inflated byte.
const INFLATE_WORK: (u64, u64, u64) = (2_000, 8, 1);
/// The cost of deflating, in units of about a nanosecond: per message (mostly for clearing the match tables),
/// per byte of the message, and per byte of the window that the stream is primed with.
const DEFLATE_WORK: (u64, u64, u64) = (9_000, 10, 1);

/// The codecs that the connections of one worker share. A worker has two of these, one for receiving and one for
/// sending, since an event borrows the receiving codecs while the response is encoded with the sending codecs. A
/// `Codecs` allocates only what it uses. Data left in scratch buffers after an event is overwritten by the next and
/// never sent.
#[derive(Debug, Default)]
pub struct Codecs {
    /// A received message that is not contiguous in the input, because it was compressed, fragmented, or cut by the end
    /// of a receive.
    message: Vec<u8>,
    /// The payload of a control frame that was not complete in the input.
    control: InlineBytes<CONTROL_BYTES_MAX>,
    /// A compressed outgoing message.
    compressed: Vec<u8>,
    #[expect(
        clippy::vec_box,
        reason = "decoders contain these boxes, so none is allocated when one is reused"
    )]
    spare: Vec<Box<Partial>>,
    inflate: Option<Box<Decompress>>,
    /// The deflate streams by window size, at index `window_bits - LIBRARY_WINDOW_BITS_MIN`.
    deflates: [Option<Box<Deflater>>; (WINDOW_BITS_MAX - LIBRARY_WINDOW_BITS_MIN + 1) as usize],
    budget: Arc<DeflateBudget>,
    work: u64,
}

/// A deflate stream that all connections of a worker use in turn.
#[derive(Debug)]
struct Deflater {
    stream: Compress,
    /// The last bytes that the stream has compressed: those to which it can refer with context
    /// takeover.
    seen: Vec<u8>,
    is_fresh: bool,
}

impl Codecs {
    /// Creates codecs without allocating.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates codecs. The compression contexts of their connections count against `budget`, which may be shared.
    #[must_use]
    pub fn with_budget(budget: Arc<DeflateBudget>) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }

    /// Returns the memory budget of the compression contexts.
    #[must_use]
    pub fn budget(&self) -> &Arc<DeflateBudget> {
        &self.budget
    }

    /// Returns the cost of compressing and inflating since the last call, in units of about a
    /// nanosecond. The cost is computed from the number of started streams and of bytes in and out,
    /// including those of refused messages. It depends only on the messages, not on earlier state.
    pub fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Frees scratch memory that a large message left; called while the worker is idle.
    pub fn trim(&mut self) {
        renew(&mut self.message);
        renew(&mut self.compressed);
    }

    /// Compresses `data` without context for receivers with this window, and lends the result.
    pub(super) fn deflate_alone(&mut self, data: &[u8], window_bits: u8) -> &[u8] {
        self.deflate(b"", data, window_bits);
        &self.compressed
    }

    /// Compresses a part of a message without references to earlier data, and lends the result.
    pub(super) fn deflate_part(&mut self, data: &[u8], window_bits: u8, is_last: bool) -> &[u8] {
        self.deflate(b"", data, window_bits);
        if !is_last {
            self.compressed.extend_from_slice(&TAIL);
        }
        &self.compressed
    }

    /// Compresses `data`, and lends the result. `window` is the end of the data that the receiver
    /// inflated before; it has at most 2 to the power of [`KEPT_WINDOW_BITS_MAX`] bytes.
    pub(super) fn deflate_after(&mut self, window: &[u8], data: &[u8], window_bits: u8) -> &[u8] {
        // The stream's window is no larger than the kept data, so the stream can't refer to data
        // before `window` even if it has compressed such data. Any connection with the same last
        // bytes can therefore reuse the stream.
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

    /// Inflates a message. `window` is the end of the data that the sender compressed before the
    /// message; it is empty without context takeover.
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

    /// Returns the maximum length of a compressed message whose inflated length is limited to `bytes_max`:
    /// incompressible data grows by less than an eighth with common deflaters, and flushes and empty blocks need some
    /// space.
    pub(super) fn compressed_bytes_max(bytes_max: usize) -> usize {
        bytes_max.saturating_add(bytes_max / 4).saturating_add(1024)
    }

    pub(super) fn message(&mut self) -> &mut [u8] {
        &mut self.message
    }

    /// Moves the complete message in `data` into the codecs, in exchange for their empty message
    /// buffer.
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
    /// Creates a stream whose output any inflater with this window accepts.
    fn new(window_bits: u8) -> Self {
        // The library refuses a window of 8 bits. With 9 bits it looks back at most 512 - 262 = 250 bytes, since the
        // longest match has to fit into the window too. So receivers with a window of 256 bytes can inflate the output.
        Self {
            stream: Compress::new_with_window_bits(LEVEL, false, window_bits),
            seen: Vec::new(),
            is_fresh: true,
        }
    }

    /// Sets the stream's history to exactly `window`.
    fn prime(&mut self, window: &[u8]) {
        // If the same connection sent the previous message, the stream has this history already.
        if !window.is_empty() && self.seen == window {
            return;
        }
        // The stream is reset before its next use, not after each use, so a stream that is not used again costs
        // nothing.
        if !self.is_fresh {
            self.stream.reset();
        }
        self.seen.clear();
        if !window.is_empty() {
            let primed = self.stream.set_dictionary(window);
            debug_assert!(primed.is_ok(), "a raw stream accepts any dictionary");
            self.seen.extend_from_slice(window);
        }
    }
}

/// Replaces the content of `out` by the compressed message, which ends with a flush whose [`TAIL`] is removed (RFC 7692
/// section 7.2.1). The result is never empty.
fn compress(deflate: &mut Compress, mut data: &[u8], out: &mut Vec<u8>) {
    renew(out);
    loop {
        out.reserve((data.len() / 2).max(ROOM_BYTES_MIN));
        let before = deflate.total_in();
        let status = deflate.compress_vec(data, out, FlushCompress::Sync);
        debug_assert!(
            matches!(status, Ok(Status::Ok | Status::BufError)),
            "a deflater accepts any input"
        );
        data = &data[(deflate.total_in() - before) as usize..];
        // If capacity remains, the flush is complete.
        if out.len() < out.capacity() {
            break;
        }
    }
    debug_assert!(data.is_empty());
    debug_assert!(
        out.ends_with(&TAIL),
        "the output of a flush must end with the tail of DEFLATE"
    );
    out.truncate(out.len() - TAIL.len());
}

/// Clears a scratch buffer, and frees its memory if a large message has enlarged it.
fn renew(scratch: &mut Vec<u8>) {
    scratch.clear();
    if scratch.capacity() > SCRATCH_BYTES_MAX {
        *scratch = Vec::new();
    }
}

/// Appends the inflated message to `out`, whose total length is limited to `bytes_max`. Stores the number of used
/// streams in `streams`.
fn inflate_message(
    inflate: &mut Decompress,
    window: &[u8],
    data: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
    streams: &mut u32,
) -> Result<(), ProtocolError> {
    // Some senders encode an empty message without any block, so the tail has no block to complete.
    if data.is_empty() {
        return Ok(());
    }
    begin_stream(inflate, window, out)?;
    *streams = 1;
    let mut input = data;
    let mut tail = false;
    let mut drained = false;
    loop {
        // The tail is appended only after all output of the input was produced: a final block at the end of the input
        // ends its stream, and the tail then belongs to a new one.
        if input.is_empty() && drained && !tail {
            tail = true;
            input = &TAIL;
        }
        if out.len() == out.capacity() {
            // One byte above the limit is enough to detect the excess.
            let room = out
                .len()
                .max(input.len().saturating_mul(2))
                .max(ROOM_BYTES_MIN);
            let allowed = bytes_max.saturating_add(1).saturating_sub(out.len());
            out.reserve_exact(room.min(allowed).max(1));
        }
        let before = (inflate.total_in(), out.len());
        let status = inflate.decompress_vec(input, out, FlushDecompress::Sync);
        // The length is checked before the status. With a larger scratch buffer, the library would
        // read on to a later error, but the result must not depend on the size of the buffer, which
        // earlier messages determine.
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
            // Some senders omit the byte that should follow the final block; then the tail has nothing to complete.
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

/// Starts a new stream that may refer to previously inflated data: `window`, then `out`.
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

    /// The capacity of the scratch buffer depends on earlier messages, but the result of inflating
    /// must not.
    #[test]
    fn any_capacity_inflates_the_same() {
        // The first message is a final block, whose output fills the scratch buffer. The second message is a
        // stored block in the same context.
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
