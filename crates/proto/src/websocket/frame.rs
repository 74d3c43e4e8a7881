//! The frame header of RFC 6455 section 5.2, parsing and encoding. Handles single frames, not messages.

use super::{MessageKind, ProtocolError, Role};

/// Maximum length of a header: two bytes, eight of length, four of mask.
pub const HEADER_BYTES_MAX: usize = 14;

/// Longest payload of a control frame (RFC 6455 section 5.5).
pub(super) const CONTROL_BYTES_MAX: usize = 125;

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RSV2_RSV3: u8 = 0x30;
const MASKED: u8 = 0x80;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// A further frame of a message.
    Continuation = 0,
    /// The first frame of a text message.
    Text = 1,
    /// The first frame of a binary message.
    Binary = 2,
    /// A close frame, the last frame that an end sends.
    Close = 8,
    /// A ping, which must be answered by a pong with the same payload.
    Ping = 9,
    /// A pong: the answer to a ping, or unsolicited.
    Pong = 10,
}

impl Opcode {
    fn from_bits(bits: u8) -> Result<Self, ProtocolError> {
        Ok(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return Err(ProtocolError::ReservedOpcode),
        })
    }

    pub(super) fn is_control(self) -> bool {
        self as u8 >= 8
    }

    /// Returns the kind of the message that a frame with this opcode opens.
    pub(super) fn message_kind(self) -> Option<MessageKind> {
        match self {
            Self::Text => Some(MessageKind::Text),
            Self::Binary => Some(MessageKind::Binary),
            _ => None,
        }
    }
}

impl From<MessageKind> for Opcode {
    fn from(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Text => Self::Text,
            MessageKind::Binary => Self::Binary,
        }
    }
}

/// A received header that is valid regardless of the frames before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) opcode: Opcode,
    pub(super) fin: bool,
    /// Whether RSV1 is set. On the first frame of a message this marks the message as compressed (RFC
    /// 7692 section 6).
    pub(super) compressed: bool,
    /// The masking key; zero for an unmasked frame, because masking with zero has no effect.
    pub(super) mask: [u8; 4],
    /// Length of the header in bytes.
    pub(super) size: usize,
    /// Announced length of the payload; not trusted.
    pub(super) payload_bytes: u64,
}

impl Header {
    /// Parses a header at the front of `input`; `None` while it is incomplete. Errors in the first
    /// two bytes are reported as soon as these have arrived.
    #[inline]
    pub(super) fn parse(
        input: &[u8],
        receiver: Role,
        deflate: bool,
    ) -> Result<Option<Self>, ProtocolError> {
        let [first, second, ..] = *input else {
            return Ok(None);
        };
        let opcode = Opcode::from_bits(first & 0x0f)?;
        let fin = first & FIN != 0;
        let compressed = first & RSV1 != 0;
        if first & RSV2_RSV3 != 0
            || (compressed && !(deflate && matches!(opcode, Opcode::Text | Opcode::Binary)))
        {
            return Err(ProtocolError::ReservedBit);
        }
        let masked = second & MASKED != 0;
        match receiver {
            Role::Server if !masked => return Err(ProtocolError::NotMasked),
            Role::Client if masked => return Err(ProtocolError::Masked),
            _ => {}
        }
        let short = second & 0x7f;
        if opcode.is_control() {
            if !fin {
                return Err(ProtocolError::ControlFragmented);
            }
            if usize::from(short) > CONTROL_BYTES_MAX {
                return Err(ProtocolError::ControlTooLong);
            }
        }
        let (payload_bytes, at) = match short {
            126 => {
                let Some(bytes) = input.get(2..).and_then(|rest| rest.first_chunk()) else {
                    return Ok(None);
                };
                let length = u16::from_be_bytes(*bytes);
                if length < 126 {
                    return Err(ProtocolError::MalformedLength);
                }
                (u64::from(length), 4)
            }
            127 => {
                let Some(bytes) = input.get(2..).and_then(|rest| rest.first_chunk()) else {
                    return Ok(None);
                };
                let length = u64::from_be_bytes(*bytes);
                if length <= u64::from(u16::MAX) || length > i64::MAX as u64 {
                    return Err(ProtocolError::MalformedLength);
                }
                (length, 10)
            }
            _ => (u64::from(short), 2),
        };
        let (mask, size) = if masked {
            let Some(key) = input.get(at..).and_then(|rest| rest.first_chunk()) else {
                return Ok(None);
            };
            (*key, at + 4)
        } else {
            ([0; 4], at)
        };
        Ok(Some(Self {
            opcode,
            fin,
            compressed,
            mask,
            size,
            payload_bytes,
        }))
    }

    /// Returns the end of the frame if it is within the first `available` bytes.
    #[inline]
    pub(super) fn end_within(&self, available: usize) -> Option<usize> {
        let room = available.checked_sub(self.size)?;
        let payload_bytes = usize::try_from(self.payload_bytes).ok()?;
        (payload_bytes <= room).then(|| self.size + payload_bytes)
    }
}

/// Appends the header of a frame that is a complete message or control frame.
#[inline]
pub(super) fn write_header(
    out: &mut Vec<u8>,
    opcode: Opcode,
    compressed: bool,
    payload_bytes: usize,
    mask: Option<[u8; 4]>,
) {
    let mut header = [0; HEADER_BYTES_MAX];
    header[0] = FIN | if compressed { RSV1 } else { 0 } | opcode as u8;
    let mut size = if payload_bytes <= CONTROL_BYTES_MAX {
        header[1] = payload_bytes as u8;
        2
    } else if let Ok(length) = u16::try_from(payload_bytes) {
        header[1] = 126;
        header[2..4].copy_from_slice(&length.to_be_bytes());
        4
    } else {
        header[1] = 127;
        header[2..10].copy_from_slice(&(payload_bytes as u64).to_be_bytes());
        10
    };
    if let Some(key) = mask {
        header[1] |= MASKED;
        header[size..size + 4].copy_from_slice(&key);
        size += 4;
    }
    out.extend_from_slice(&header[..size]);
}

/// Clears FIN of a frame that was just written, since its message continues.
pub(super) fn clear_fin(frame: &mut [u8]) {
    frame[0] &= !FIN;
}
