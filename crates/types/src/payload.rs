//! The body of a publication.

use bytes::Bytes;

/// What the bytes of a payload are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadKind {
    /// UTF-8 text, to be shown to clients verbatim.
    Text,
    /// One compact JSON value in UTF-8.
    Json,
    /// Any bytes.
    Binary,
}

/// A payload that is borrowed for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRef<'a> {
    /// What the bytes are.
    pub kind: PayloadKind,
    /// The bytes themselves.
    pub bytes: &'a [u8],
}

/// A payload that is kept: cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// What the bytes are.
    pub kind: PayloadKind,
    /// The bytes themselves.
    pub bytes: Bytes,
}

impl Payload {
    /// Lends it.
    pub fn borrow(&self) -> PayloadRef<'_> {
        PayloadRef {
            kind: self.kind,
            bytes: &self.bytes,
        }
    }
}

impl PayloadRef<'_> {
    /// Copies it into memory of its own.
    pub fn to_payload(self) -> Payload {
        Payload {
            kind: self.kind,
            bytes: Bytes::copy_from_slice(self.bytes),
        }
    }
}
