//! An incomplete message or frame.
//!
//! It exists only while data is in progress and comes from a pool in [`Codecs`], so that neither idle connections nor
//! frames cut by the end of a receive cost an allocation. Compressed messages are collected here and inflated when
//! complete, so a connection with an incomplete compressed message needs memory for the received bytes, but not for an
//! inflater.

use super::decoder::{CompletedPartial, PayloadLocation};
use super::frame::{CONTROL_BYTES_MAX, HEADER_BYTES_MAX, Header, Opcode};
use super::{Codecs, MessageKind, MessageLimits, ProtocolError, Role, mask, utf8};

/// Minimum capacity in bytes of the buffer of a message in progress.
const DATA_BYTES_MIN: usize = 256;
/// Buffers with a larger capacity are freed instead of being returned to the pool. So a message in
/// a reused buffer uses at most this much more memory than twice the received bytes.
const SPARE_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct Partial {
    /// The payload of the message received so far: unmasked, but not inflated.
    data: Vec<u8>,
    /// For uncompressed text: the length of the prefix that consists of complete characters.
    checked: usize,
    message: Option<Message>,
    frame: Option<Frame>,
    header: InlineBytes<HEADER_BYTES_MAX>,
    /// The payload of an incomplete control frame.
    control: InlineBytes<CONTROL_BYTES_MAX>,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    kind: MessageKind,
    compressed: bool,
    fragments: u32,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    opcode: Opcode,
    fin: bool,
    /// The masking key, rotated so that its first byte applies to the next payload byte.
    mask: [u8; 4],
    remaining: u64,
}

impl Partial {
    /// Continues with `input`, up to the first event or the end of `input`.
    pub(super) fn advance(
        &mut self,
        input: &mut [u8],
        role: Role,
        deflate: bool,
        codecs: &mut Codecs,
        limits: &MessageLimits,
    ) -> Result<(usize, Option<CompletedPartial>), ProtocolError> {
        let mut taken = 0;
        loop {
            let mut frame = match self.frame {
                Some(frame) => frame,
                None => {
                    let (count, header) = self.read_header(&input[taken..], role, deflate)?;
                    taken += count;
                    let Some(header) = header else {
                        return Ok((taken, None));
                    };
                    self.begin(&header, limits)?
                }
            };
            let rest = input.len() - taken;
            let count =
                usize::try_from(frame.remaining).map_or(rest, |remaining| remaining.min(rest));
            let place = taken..taken + count;
            let payload = &mut input[place.clone()];
            mask::apply(payload, frame.mask);
            frame.mask = mask::advance(frame.mask, count);
            frame.remaining -= count as u64;
            taken += count;
            let whole = frame.remaining == 0;
            self.frame = if whole { None } else { Some(frame) };

            if frame.opcode.is_control() {
                if whole && self.control.is_empty() {
                    return Ok((
                        taken,
                        Some(CompletedPartial::Control(
                            frame.opcode,
                            PayloadLocation::Input(place),
                        )),
                    ));
                }
                self.control.push(payload);
                if whole {
                    codecs.set_control(self.control.bytes());
                    self.control.clear();
                    return Ok((
                        taken,
                        Some(CompletedPartial::Control(
                            frame.opcode,
                            PayloadLocation::Codecs,
                        )),
                    ));
                }
                return Ok((taken, None));
            }
            self.append(payload, &frame)?;
            if whole && frame.fin {
                return self.finish(codecs).map(|found| (taken, Some(found)));
            }
            if !whole {
                return Ok((taken, None));
            }
        }
    }

    /// Returns whether neither a message nor a frame is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.message.is_none() && self.frame.is_none() && self.header.is_empty()
    }

    /// Returns the bytes of a complete compressed message.
    pub(super) fn compressed(&self) -> &[u8] {
        &self.data
    }

    /// Drops the message's bytes, but not a frame in progress.
    pub(super) fn forget_message(&mut self) {
        self.message = None;
        self.checked = 0;
        self.data.clear();
        if self.data.capacity() > SPARE_BYTES_MAX {
            self.data = Vec::new();
        }
    }

    /// Resets the state, keeping a buffer of modest size.
    pub(super) fn clear(&mut self) {
        self.forget_message();
        self.frame = None;
        self.header.clear();
        self.control.clear();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.data.capacity()
    }

    /// Consumes header bytes from `input`; returns their number, and the header once it is complete.
    fn read_header(
        &mut self,
        input: &[u8],
        role: Role,
        deflate: bool,
    ) -> Result<(usize, Option<Header>), ProtocolError> {
        if self.header.is_empty() {
            return Ok(match Header::parse(input, role, deflate)? {
                Some(header) => (header.size, Some(header)),
                None => {
                    self.header.push(input);
                    (input.len(), None)
                }
            });
        }
        let before = self.header.len();
        let count = input.len().min(HEADER_BYTES_MAX - before);
        self.header.push(&input[..count]);
        let header = Header::parse(self.header.bytes(), role, deflate)?;
        match header {
            Some(header) => {
                self.header.clear();
                Ok((header.size - before, Some(header)))
            }
            None => Ok((count, None)),
        }
    }

    /// Checks a frame against the message in progress (RFC 6455 section 5.4) and the limits.
    fn begin(&mut self, header: &Header, limits: &MessageLimits) -> Result<Frame, ProtocolError> {
        let frame = Frame {
            opcode: header.opcode,
            fin: header.fin,
            mask: header.mask,
            remaining: header.payload_bytes,
        };
        if header.opcode.is_control() {
            return Ok(frame);
        }
        let message = match (&mut self.message, header.opcode.message_kind()) {
            (Some(_), Some(_)) => return Err(ProtocolError::ContinuationExpected),
            (None, None) => return Err(ProtocolError::ContinuationUnexpected),
            (Some(message), None) => message,
            (open @ None, Some(kind)) => open.insert(Message {
                kind,
                compressed: header.compressed,
                fragments: 0,
            }),
        };
        if message.fragments >= limits.fragments_max {
            return Err(ProtocolError::TooManyFragments);
        }
        message.fragments += 1;
        let bytes_max = if message.compressed {
            Codecs::compressed_bytes_max(limits.message_bytes_max)
        } else {
            limits.message_bytes_max
        };
        // The difference can't be negative: `data` never exceeds `bytes_max`.
        if header.payload_bytes > (bytes_max - self.data.len()) as u64 {
            return Err(ProtocolError::MessageTooBig);
        }
        Ok(frame)
    }

    /// Appends payload of `frame`.
    fn append(&mut self, payload: &[u8], frame: &Frame) -> Result<(), ProtocolError> {
        let length = self.data.len() + payload.len();
        if length > self.data.capacity() {
            // The capacity becomes twice the received length, but in the last frame no more than the message needs.
            let needed = usize::try_from(frame.remaining)
                .map_or(usize::MAX, |rest| length.saturating_add(rest));
            let doubled = (length * 2).max(DATA_BYTES_MIN);
            let capacity = if frame.fin {
                doubled.min(needed)
            } else {
                doubled
            };
            self.data.reserve_exact(capacity - self.data.len());
        }
        self.data.extend_from_slice(payload);
        match self.message {
            Some(Message {
                kind: MessageKind::Text,
                compressed: false,
                ..
            }) => {
                self.checked = utf8::check_more(&self.data, self.checked)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, codecs: &mut Codecs) -> Result<CompletedPartial, ProtocolError> {
        let message = self
            .message
            .take()
            .expect("a data frame must belong to a message");
        if message.compressed {
            return Ok(CompletedPartial::Compressed(message.kind));
        }
        if message.kind == MessageKind::Text && self.checked < self.data.len() {
            return Err(ProtocolError::InvalidUtf8);
        }
        codecs.swap_message(&mut self.data);
        self.forget_message();
        Ok(CompletedPartial::Message(message.kind))
    }
}

/// A buffer for up to `N` bytes, which are stored inline without an allocation.
#[derive(Debug)]
pub(super) struct InlineBytes<const N: usize> {
    bytes: [u8; N],
    length: u8,
}

impl<const N: usize> Default for InlineBytes<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
        }
    }
}

impl<const N: usize> InlineBytes<N> {
    /// Appends `more`, which must fit into the buffer.
    pub(super) fn push(&mut self, more: &[u8]) {
        let start = self.len();
        let end = start + more.len();
        self.bytes[start..end].copy_from_slice(more);
        self.length = end as u8;
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.length)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }
}
