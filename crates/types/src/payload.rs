//! The body of a publication.

use bytes::Bytes;

use crate::MessageKind;

/// The encoding of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadKind {
    /// UTF-8 text, shown to clients verbatim.
    Text,
    /// One compact JSON value in UTF-8.
    Json,
    /// Bytes without a further format.
    Binary,
}

impl PayloadKind {
    /// Returns the type of the WebSocket message that carries a payload of this kind unchanged.
    #[must_use]
    pub fn message_kind(self) -> MessageKind {
        match self {
            Self::Text | Self::Json => MessageKind::Text,
            Self::Binary => MessageKind::Binary,
        }
    }
}

impl From<MessageKind> for PayloadKind {
    /// Returns the encoding of a message about whose content nothing else is known.
    fn from(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Text => Self::Text,
            MessageKind::Binary => Self::Binary,
        }
    }
}

/// A payload borrowed for the duration of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRef<'a> {
    /// The encoding of the bytes.
    pub kind: PayloadKind,
    /// The data, encoded according to `kind`.
    pub bytes: &'a [u8],
}

/// An owned payload; a clone shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The encoding of the bytes.
    pub kind: PayloadKind,
    /// The data, encoded according to `kind`.
    pub bytes: Bytes,
}

impl Payload {
    /// Borrows the payload, without a copy.
    pub fn borrow(&self) -> PayloadRef<'_> {
        PayloadRef {
            kind: self.kind,
            bytes: &self.bytes,
        }
    }
}

impl PayloadRef<'_> {
    /// Copies the payload into memory of its own.
    pub fn to_payload(self) -> Payload {
        Payload {
            kind: self.kind,
            bytes: Bytes::copy_from_slice(self.bytes),
        }
    }
}
