//! What is sent.

use bytes::Bytes;

/// Bytes on their way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// This transport's own bytes; the vector is reusable when it comes back.
    Owned(Vec<u8>),
    /// Bytes that many transports send: one encoding of one publication.
    Shared(Bytes),
}

impl Buffer {
    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    /// How many bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is nothing to send.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// The vector, for the next bytes; shared ones are just let go.
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
