//! The body of a publication.

use bytes::Bytes;

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
