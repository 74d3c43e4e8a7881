//! Frames: two lengths, a head and a payload. This file does not know what a head means.

/// Bytes before the head: its length and the payload's, each 32 bits, the least significant byte first.
pub const PREFIX_BYTES: usize = 8;

/// What either side takes of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head.
    pub head_bytes_max: usize,
    /// Bytes of a payload.
    pub payload_bytes_max: usize,
}

impl Default for Limits {
    /// A head of 1 MiB, and the payload of the longest message that a handler may send.
    fn default() -> Self {
        Self {
            head_bytes_max: 1 << 20,
            payload_bytes_max: crate::MESSAGE_BYTES_MAX,
        }
    }
}

impl Limits {
    /// Returns the bytes of the longest frame.
    #[must_use]
    pub fn frame_bytes_max(self) -> usize {
        PREFIX_BYTES + self.head_bytes_max + self.payload_bytes_max
    }
}

/// One frame, lent for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The encoded message; never empty.
    pub head: &'a [u8],
    /// The bytes that the head refers to, such as a body.
    pub payload: &'a [u8],
}

/// The peer sent malformed framing; the connection cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Its length is 0.
    #[error("a frame without a head")]
    NoHead,
    /// The other side means more, or something else wrote to the stream.
    #[error("a head of {bytes} bytes: at most {max} are taken")]
    HeadTooLong {
        /// As the frame says.
        bytes: u32,
        /// The most that [`Limits`] allow.
        max: usize,
    },
    /// As with a head.
    #[error("a payload of {bytes} bytes: at most {max} are taken")]
    PayloadTooLong {
        /// As the frame says.
        bytes: u32,
        /// The most that [`Limits`] allow.
        max: usize,
    },
}

/// Cuts a stream of bytes into frames, however it was split on its way.
///
/// A frame that arrives whole is lent as it lies in the input. One that arrives in pieces is put together in a buffer, which
/// grows with what has arrived and never beyond [`Limits::frame_bytes_max`].
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// The beginning of a frame whose end has not arrived.
    partial: Vec<u8>,
    /// The frame in `partial` is whole, and was lent.
    is_lent: bool,
    failed: Option<FrameError>,
}

/// Memory that is kept for the next frame in pieces.
const KEPT_BYTES: usize = 64 << 10;

impl Decoder {
    /// Returns a decoder at the beginning of a stream.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            partial: Vec::new(),
            is_lent: false,
            failed: None,
        }
    }

    /// Takes the next frame off the input; `None` once all of the input is taken and no frame is whole.
    ///
    /// # Errors
    /// The stream is broken; so is each call from then on.
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

    /// Returns whether a frame has begun and not ended: a stream may end only between frames.
    #[must_use]
    pub fn is_within_frame(&self) -> bool {
        !self.is_lent && !self.partial.is_empty()
    }

    /// Returns the bytes of the head and of the whole frame that begins there, as far as its lengths have arrived.
    fn lengths_of(&mut self, bytes: &[u8]) -> Result<Option<(usize, usize)>, FrameError> {
        let Limits {
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

    /// Moves input to the frame in pieces, until that has as many bytes.
    fn take(&mut self, input: &mut &[u8], until: usize) {
        let missing = until.saturating_sub(self.partial.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        let needed = self.partial.len() + taken.len();
        if self.partial.capacity() < needed {
            // Twice as much as has arrived, so that few steps copy, and no more than the frame has.
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

/// Returns the number at the beginning, where all of it is there, and what follows it.
fn number(bytes: &[u8]) -> (Option<u32>, &[u8]) {
    match bytes.split_first_chunk() {
        Some((number, rest)) => (Some(u32::from_le_bytes(*number)), rest),
        None => (None, &[]),
    }
}

/// A frame that the other side would not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame with a head of {head_bytes} and a payload of {payload_bytes} bytes is too long")]
pub struct FrameTooLong {
    /// Bytes of its head.
    pub head_bytes: usize,
    /// Bytes of its payload.
    pub payload_bytes: usize,
}

/// Writes a frame behind whatever is in `out`, so that several leave in one write. Nothing is written if it is too long.
///
/// # Errors
/// The frame is longer than the limits allow.
pub fn encode(
    out: &mut Vec<u8>,
    limits: Limits,
    head: &impl serde::Serialize,
    parts: &[&[u8]],
) -> Result<(), FrameTooLong> {
    let from = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    // Heads are plain structs with text for keys, and a vector takes all bytes: neither fails.
    let is_written = serde_json::to_writer(&mut *out, head).is_ok();
    let head_bytes = out.len() - from - PREFIX_BYTES;
    let payload_bytes = parts.iter().map(|part| part.len()).sum();
    let lengths = (u32::try_from(head_bytes), u32::try_from(payload_bytes));
    let fits = head_bytes <= limits.head_bytes_max && payload_bytes <= limits.payload_bytes_max;
    let (true, (Ok(head), Ok(payload))) = (is_written && fits, lengths) else {
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
