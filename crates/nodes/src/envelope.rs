//! The serialised form of a message between nodes: a header of fixed length, followed by the message in MessagePack.
//!
//! | bytes | content |
//! |---|---|
//! | 0–3 | `vche` |
//! | 4, 5 | [major and minor version](VERSION) |
//! | 6, 7 | kind; the upper bit is set for sequenced messages |
//! | 8–15 | source node |
//! | 16–23 | sequence number |
//! | 24–27 | milliseconds from arrival within which a reply is useful; 0 without limit |
//! | 28– | the message: maps with field names, bytes as they are |
//!
//! Numbers in the header are big-endian.
//!
//! # Versions
//!
//! Nodes with the same major version understand each other. A minor version adds kinds, variants and fields, and
//! changes none: a node ignores unknown fields, and it ignores and counts messages of unknown kinds or variants. A
//! field that restricts the effect of a message must not be added, because an older node would ignore it and do too
//! much; such a message gets a kind or variant of its own. A field that is missing in the message of an older node has
//! a default. The files in `tests/vectors` are never changed; new ones are added.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{NodeId, NodeMessage};

/// Major and minor version sent by this program.
pub const VERSION: (u8, u8) = (1, 0);

/// Maximum length of a message including its header, in bytes. Longer messages are neither sent nor accepted.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;

const MAGIC: [u8; 4] = *b"vche";
const HEADER_BYTES: usize = 28;

/// Maximum nesting depth of a message. Ignored fields count.
const DEPTH_MAX: usize = 32;

/// The bit that is set in the kind of sequenced messages.
const SEQUENCED: u16 = 0x8000;

const ANNOUNCE: u16 = 1;
const LEAVE: u16 = 2;
const CONNECTIONS: u16 = 3;
const CHANNELS: u16 = 4;
const USER_STATUS: u16 = 5;
const ANSWER: u16 = 6;
const RELAY: u16 = 7;
const APP: u16 = 8;
const INSTRUCT: u16 = SEQUENCED | 1;
const BLOCK: u16 = SEQUENCED | 2;

/// A message with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sending node. Callers and addresses in the message refer to this node. The exceptions are the caller in a
    /// reply, and the target of a request or order: they refer to the receiving node.
    pub source: NodeId,
    /// The sequence number of the message. If the message is not sequenced, the number of the last
    /// sequenced message before it; see [`Sequencer`](crate::Sequencer).
    pub sequence: u64,
    /// How long after the arrival of a query a reply is useful, in milliseconds; 0 for no limit.
    pub within_ms: u32,
    /// The message that the envelope contains.
    pub message: NodeMessage,
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeHeader {
    /// The minor version of the sender.
    pub minor: u8,
    /// The kind of the message.
    pub kind: u16,
    /// The sending node; see [`Envelope::source`].
    pub source: NodeId,
    /// The sequence number; see [`Envelope::sequence`].
    pub sequence: u64,
    /// The time limit for a reply in milliseconds; see [`Envelope::within_ms`].
    pub within_ms: u32,
}

/// The reason why a message can't be encoded.
#[derive(Debug, Error)]
pub enum EncodeError {
    /// The message would be longer than [`MESSAGE_BYTES_MAX`].
    #[error("a node message of {0} bytes exceeds the limit of {MESSAGE_BYTES_MAX}")]
    TooLarge(usize),
    /// The serialiser failed with this error.
    #[error("a node message can't be encoded: {0}")]
    Codec(#[from] rmp_serde::encode::Error),
}

/// The reason why received bytes are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes are not a node message.
    #[error("this is not a message between nodes")]
    Foreign,
    /// The message is longer than [`MESSAGE_BYTES_MAX`].
    #[error("the node message is longer than {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
    /// The message has a different major version, which is contained here.
    #[error("the node message has major version {0}, but this node supports only {own}", own = VERSION.0)]
    OtherVersion(u8),
    /// The kind or a variant is unknown to this version.
    #[error("the node message has an unknown kind: {}", .0.kind)]
    Unknown(EnvelopeHeader),
    /// The kind is known, but the message can't be parsed.
    #[error("the node message of kind {} is malformed", .0.kind)]
    Malformed(EnvelopeHeader),
}

/// The numbers of ignored messages by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeErrorCounts {
    /// Messages ignored as [`DecodeError::Foreign`].
    pub foreign: u64,
    /// Messages ignored as [`DecodeError::TooLarge`].
    pub too_large: u64,
    /// Messages ignored as [`DecodeError::OtherVersion`].
    pub other_version: u64,
    /// Messages ignored as [`DecodeError::Unknown`].
    pub unknown: u64,
    /// Messages ignored as [`DecodeError::Malformed`].
    pub malformed: u64,
}

impl DecodeErrorCounts {
    /// Counts an ignored message under its reason.
    pub fn add(&mut self, ignored: DecodeError) {
        let count = match ignored {
            DecodeError::Foreign => &mut self.foreign,
            DecodeError::TooLarge => &mut self.too_large,
            DecodeError::OtherVersion(_) => &mut self.other_version,
            DecodeError::Unknown(_) => &mut self.unknown,
            DecodeError::Malformed(_) => &mut self.malformed,
        };
        *count += 1;
    }
}

impl DecodeError {
    /// Returns the header if it could be parsed. Its sequence number must be tracked even if the
    /// message is ignored.
    #[must_use]
    pub fn header(&self) -> Option<&EnvelopeHeader> {
        match self {
            Self::Unknown(header) | Self::Malformed(header) => Some(header),
            Self::Foreign | Self::TooLarge | Self::OtherVersion(_) => None,
        }
    }
}

impl EnvelopeHeader {
    /// Returns whether the message is numbered in sequence. A bit of the kind tells this even for kinds that this
    /// version does not know.
    #[must_use]
    pub fn is_sequenced(&self) -> bool {
        self.kind & SEQUENCED != 0
    }

    /// Parses a header and returns the remaining bytes.
    ///
    /// # Errors
    /// The bytes have no header of this major version.
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(DecodeError::TooLarge);
        }
        let (header, body) = split(bytes).ok_or(DecodeError::Foreign)?;
        let ([major, minor], header) = header;
        if major != VERSION.0 {
            return Err(DecodeError::OtherVersion(major));
        }
        let (kind, source, sequence, within_ms) = header;
        let header = Self {
            minor,
            kind: u16::from_be_bytes(kind),
            source: NodeId(u64::from_be_bytes(source)),
            sequence: u64::from_be_bytes(sequence),
            within_ms: u32::from_be_bytes(within_ms),
        };
        Ok((header, body))
    }
}

/// Kind, source, sequence number and time limit.
type Fields = ([u8; 2], [u8; 8], [u8; 8], [u8; 4]);
/// The version, and the other fields of the header.
type Versioned = ([u8; 2], Fields);

fn split(bytes: &[u8]) -> Option<(Versioned, &[u8])> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (version, rest) = rest.split_first_chunk()?;
    let (kind, rest) = rest.split_first_chunk()?;
    let (source, rest) = rest.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (within_ms, rest) = rest.split_first_chunk()?;
    Some(((*version, (*kind, *source, *sequence, *within_ms)), rest))
}

impl Envelope {
    /// Encodes the envelope.
    ///
    /// # Errors
    /// The message is too large, for example a long list of connections.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 100);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION.0, VERSION.1]);
        bytes.extend_from_slice(&self.message.kind().to_be_bytes());
        bytes.extend_from_slice(&self.source.0.to_be_bytes());
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        bytes.extend_from_slice(&self.within_ms.to_be_bytes());
        self.message.write(&mut bytes)?;
        match bytes.len() {
            0..=MESSAGE_BYTES_MAX => Ok(bytes),
            length => Err(EncodeError::TooLarge(length)),
        }
    }

    /// Decodes an envelope from untrusted bytes.
    ///
    /// # Errors
    /// The bytes are not a valid message for this version and must be ignored.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (header, body) = EnvelopeHeader::read(bytes)?;
        match NodeMessage::read(header.kind, body) {
            Ok(Some(message)) => Ok(Self {
                source: header.source,
                sequence: header.sequence,
                within_ms: header.within_ms,
                message,
            }),
            // A sender with a later minor version may have added a variant to a known kind. Such a
            // message looks malformed here, so it counts as unknown.
            Err(_) if header.minor <= VERSION.1 => Err(DecodeError::Malformed(header)),
            Ok(None) | Err(_) => Err(DecodeError::Unknown(header)),
        }
    }
}

impl NodeMessage {
    fn kind(&self) -> u16 {
        match self {
            Self::Announce(_) => ANNOUNCE,
            Self::Leave => LEAVE,
            Self::Instruct(_) => INSTRUCT,
            Self::Block(_) => BLOCK,
            Self::Connections(_) => CONNECTIONS,
            Self::Channels(_) => CHANNELS,
            Self::UserStatus(_) => USER_STATUS,
            Self::Answer(_) => ANSWER,
            Self::Relay(_) => RELAY,
            Self::App(_) => APP,
        }
    }

    fn write(&self, to: &mut Vec<u8>) -> Result<(), rmp_serde::encode::Error> {
        let mut serializer = rmp_serde::Serializer::new(to).with_struct_map();
        match self {
            Self::Announce(announcement) => announcement.serialize(&mut serializer),
            Self::Leave => Ok(()),
            Self::Instruct(command) => command.serialize(&mut serializer),
            Self::Block(command) => command.serialize(&mut serializer),
            Self::Connections(list_request) => list_request.as_ref().serialize(&mut serializer),
            Self::Channels(query) => query.serialize(&mut serializer),
            Self::UserStatus(query) => query.serialize(&mut serializer),
            Self::Answer(reply) => reply.serialize(&mut serializer),
            Self::Relay(relay) => relay.serialize(&mut serializer),
            Self::App(message) => message.serialize(&mut serializer),
        }
    }

    /// Parses the body of a message; `None` if its kind is unknown.
    fn read(kind: u16, body: &[u8]) -> Result<Option<Self>, rmp_serde::decode::Error> {
        Ok(Some(match kind {
            ANNOUNCE => Self::Announce(whole(body)?),
            LEAVE => Self::Leave,
            INSTRUCT => Self::Instruct(whole(body)?),
            BLOCK => Self::Block(whole(body)?),
            CONNECTIONS => Self::Connections(Arc::new(whole(body)?)),
            CHANNELS => Self::Channels(whole(body)?),
            USER_STATUS => Self::UserStatus(whole(body)?),
            ANSWER => Self::Answer(whole(body)?),
            RELAY => Self::Relay(whole(body)?),
            APP => Self::App(whole(body)?),
            _ => return Ok(None),
        }))
    }
}

/// Deserialises a value. The value must use up all bytes.
fn whole<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, rmp_serde::decode::Error> {
    let mut deserializer = rmp_serde::Deserializer::new(bytes);
    deserializer.set_max_depth(DEPTH_MAX);
    let value = T::deserialize(&mut deserializer)?;
    match deserializer.get_ref() {
        [] => Ok(value),
        _ => Err(rmp_serde::decode::Error::Syntax(
            "trailing bytes".to_owned(),
        )),
    }
}
