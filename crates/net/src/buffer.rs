//! Outgoing buffers.

use bytes::Bytes;

/// Bytes to send, owned by one transport or shared by several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Owned by one transport. The vector can be reused when the buffer is returned.
    Owned(Vec<u8>),
    /// Shared by many transports, for example the encoding of a publication.
    Shared(Bytes),
}

impl Buffer {
    /// Returns the bytes to send, owned or shared.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    /// Returns the number of bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns whether there are no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Returns the vector of an owned buffer for reuse. Drops shared bytes and returns `None`.
    #[inline]
    #[must_use]
    pub fn reclaim(self) -> Option<Vec<u8>> {
        match self {
            Self::Owned(mut bytes) => {
                bytes.clear();
                Some(bytes)
            }
            Self::Shared(_) => None,
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Self {
        Self::Shared(bytes)
    }
}
