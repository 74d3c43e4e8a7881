//! Framing: a frame consists of two lengths, a head and a payload. This module does not interpret heads.

/// The number of bytes before the head: the lengths of the head and of the payload, as 32-bit little-endian integers.
pub const PREFIX_BYTES: usize = 8;

/// The size limits of one frame, which apply in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// The longest head in bytes.
    pub head_bytes_max: usize,
    /// The longest payload in bytes.
    pub payload_bytes_max: usize,
}

impl Default for FrameLimits {
    /// Returns the default limits: 1 MiB for the head, and the longest message that a handler may send for the payload.
    fn default() -> Self {
        Self {
            head_bytes_max: 1 << 20,
            payload_bytes_max: crate::MESSAGE_BYTES_MAX,
        }
    }
}

impl FrameLimits {
    /// Returns the size of the longest frame in bytes.
    #[must_use]
    pub fn frame_bytes_max(self) -> usize {
        PREFIX_BYTES + self.head_bytes_max + self.payload_bytes_max
    }
}

/// One frame, borrowed from the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The encoded message; never empty.
    pub head: &'a [u8],
    /// The bytes that the head refers to, such as a body.
    pub payload: &'a [u8],
}

/// The reason why a stream is malformed. Such a stream can't be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length of the head is 0.
    #[error("a frame must have a head")]
    NoHead,
    /// The head exceeds the limit, because the two sides have different limits or the stream is corrupted.
    #[error("the head of the frame has {bytes} bytes, but at most {max} are allowed")]
    HeadTooLong {
        /// The length of the head in bytes, as stated by the frame.
        bytes: u32,
        /// The maximum length of a head in bytes.
        max: usize,
    },
    /// The payload exceeds the limit.
    #[error("the payload of the frame has {bytes} bytes, but at most {max} are allowed")]
    PayloadTooLong {
        /// The length of the payload in bytes, as stated by the frame.
        bytes: u32,
        /// The maximum length of a payload in bytes.
        max: usize,
    },
}

/// Splits a stream of bytes into frames, regardless of how it was split in transit.
///
/// A frame that arrives whole is borrowed from the input. One that arrives in pieces is assembled in a buffer that
/// grows with the received bytes, up to [`FrameLimits::frame_bytes_max`].
#[derive(Debug)]
pub struct FrameDecoder {
    limits: FrameLimits,
    /// The beginning of a frame whose rest has not arrived.
    partial: Vec<u8>,
    /// Whether the frame in `partial` is complete and was returned by the last call, so the buffer is cleared by the
    /// next call.
    is_lent: bool,
    failed: Option<FrameError>,
}

/// The buffer capacity retained for the next fragmented frame, in bytes.
const KEPT_BYTES: usize = 64 << 10;

impl FrameDecoder {
    /// Returns a decoder at the beginning of a stream.
    #[must_use]
    pub fn new(limits: FrameLimits) -> Self {
        Self {
            limits,
            partial: Vec::new(),
            is_lent: false,
            failed: None,
        }
    }

    /// Takes the next frame off the input; `None` once the input is consumed without completing a frame.
    ///
    /// # Errors
    /// The stream is malformed; every later call fails too.
    pub fn decode<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'a>>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if std::mem::take(&mut self.is_lent) {
            self.partial.clear();
            if self.partial.capacity() > KEPT_BYTES {
                self.partial = Vec::new();
            }
        }
        if self.partial.is_empty()
            && let Some((head, bytes)) = self.lengths_of(input)?
            && input.len() >= bytes
        {
            let (frame, rest) = input.split_at(bytes);
            *input = rest;
            return Ok(Some(Frame::of(frame, head)));
        }
        self.take(input, PREFIX_BYTES);
        let prefix = std::mem::take(&mut self.partial);
        let lengths = self.lengths_of(&prefix);
        self.partial = prefix;
        let Some((head, bytes)) = lengths? else {
            return Ok(None);
        };
        self.take(input, bytes);
        if self.partial.len() < bytes {
            return Ok(None);
        }
        self.is_lent = true;
        Ok(Some(Frame::of(&self.partial, head)))
    }

    /// Returns whether a part of a frame has arrived. A stream may end only between frames.
    #[must_use]
    pub fn is_within_frame(&self) -> bool {
        !self.is_lent && !self.partial.is_empty()
    }

    /// Returns the lengths of the head and of the whole frame, if the prefix has arrived.
    fn lengths_of(&mut self, bytes: &[u8]) -> Result<Option<(usize, usize)>, FrameError> {
        let FrameLimits {
            head_bytes_max,
            payload_bytes_max,
        } = self.limits;
        let (Some(head), rest) = number(bytes) else {
            return Ok(None);
        };
        let payload = number(rest).0;
        let error = match (head, payload) {
            (0, _) => FrameError::NoHead,
            (head, _) if head as usize > head_bytes_max => FrameError::HeadTooLong {
                bytes: head,
                max: head_bytes_max,
            },
            (_, Some(payload)) if payload as usize > payload_bytes_max => {
                FrameError::PayloadTooLong {
                    bytes: payload,
                    max: payload_bytes_max,
                }
            }
            (_, None) => return Ok(None),
            (head, Some(payload)) => {
                let (head, payload) = (head as usize, payload as usize);
                return Ok(Some((head, PREFIX_BYTES + head + payload)));
            }
        };
        self.failed = Some(error);
        Err(error)
    }

    /// Moves bytes from the input to the partial frame, until that frame has `until` bytes or the input is empty.
    fn take(&mut self, input: &mut &[u8], until: usize) {
        let missing = until.saturating_sub(self.partial.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        let needed = self.partial.len() + taken.len();
        if self.partial.capacity() < needed {
            // Doubling keeps the number of copies low. The capacity never exceeds the frame's
            // length.
            let wanted = needed
                .max(2 * self.partial.capacity())
                .min(until.max(needed));
            self.partial.reserve_exact(wanted - self.partial.len());
        }
        self.partial.extend_from_slice(taken);
        *input = rest;
    }
}

impl<'a> Frame<'a> {
    fn of(frame: &'a [u8], head_bytes: usize) -> Self {
        let (head, payload) = frame[PREFIX_BYTES..].split_at(head_bytes);
        Self { head, payload }
    }
}

/// Returns the 32-bit number at the beginning, if all of its bytes have arrived, and the remaining bytes.
fn number(bytes: &[u8]) -> (Option<u32>, &[u8]) {
    match bytes.split_first_chunk() {
        Some((number, rest)) => (Some(u32::from_le_bytes(*number)), rest),
        None => (None, &[]),
    }
}

/// The error of a frame that exceeds the other side's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the head of {head_bytes} bytes or the payload of {payload_bytes} bytes exceeds the limit of a frame"
)]
pub struct FrameTooLong {
    /// The length of the head in bytes.
    pub head_bytes: usize,
    /// The length of the payload in bytes.
    pub payload_bytes: usize,
}

/// Appends a frame to `out`, so that several can be sent in one write. Writes nothing if the frame is too long.
///
/// # Errors
/// The frame exceeds the limits.
pub fn encode(
    out: &mut Vec<u8>,
    limits: FrameLimits,
    head: &impl serde::Serialize,
    parts: &[&[u8]],
) -> Result<(), FrameTooLong> {
    let from = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    // Cannot fail: heads are plain structs with string keys, and writes to a vector succeed.
    if serde_json::to_writer(&mut *out, head).is_err() {
        out.truncate(from + PREFIX_BYTES);
    }
    finish_frame(out, from, limits, parts)
}

/// Completes a frame that begins at `from` and has its head: sets the lengths and appends the payload. Removes the frame
/// if it is too long.
pub(super) fn finish_frame(
    out: &mut Vec<u8>,
    from: usize,
    limits: FrameLimits,
    parts: &[&[u8]],
) -> Result<(), FrameTooLong> {
    let head_bytes = out.len() - from - PREFIX_BYTES;
    let payload_bytes = parts.iter().map(|part| part.len()).sum();
    let lengths = (u32::try_from(head_bytes), u32::try_from(payload_bytes));
    let fits = head_bytes <= limits.head_bytes_max && payload_bytes <= limits.payload_bytes_max;
    let (true, (Ok(head), Ok(payload))) = (head_bytes > 0 && fits, lengths) else {
        out.truncate(from);
        return Err(FrameTooLong {
            head_bytes,
            payload_bytes,
        });
    };
    out[from..from + 4].copy_from_slice(&head.to_le_bytes());
    out[from + 4..from + PREFIX_BYTES].copy_from_slice(&payload.to_le_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
    Ok(())
}
