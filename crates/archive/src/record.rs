//! What workers hand over.

use std::sync::Arc;

use bytes::Bytes;

/// A change of one channel's stream. The order of one channel's records is kept; all of one channel's come from one
/// [`Writer`](crate::Writer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A stream came to be. Another one of that name is forgotten.
    Opened {
        /// Its channel.
        channel: Arc<str>,
        /// Of the new stream.
        epoch: u64,
        /// Wall clock.
        at_ms: u64,
    },
    /// A publication is in the stream's history. A stream that is unknown, or has another epoch, is opened by it; one
    /// whose offset is not beyond the top is ignored.
    Published {
        /// Its channel.
        channel: Arc<str>,
        /// The stream's.
        epoch: u64,
        /// What is kept of it.
        publication: StoredPublication,
    },
    /// Publications with offsets below are gone.
    Trimmed {
        /// Their channel.
        channel: Arc<str>,
        /// The first offset that may still be there.
        below: u64,
    },
    /// All publications are gone; epoch, top offset and version stay.
    Cleared {
        /// Their channel.
        channel: Arc<str>,
    },
    /// The stream is forgotten.
    Dropped {
        /// Its channel.
        channel: Arc<str>,
    },
}

/// A publication as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPublication {
    /// Its place in the stream.
    pub offset: u64,
    /// When it was published, by the wall clock.
    pub at_ms: u64,
    /// What the payload is: a number that only the hub reads.
    pub kind: u8,
    /// Its data.
    pub payload: Bytes,
    /// Of what it shows, where the publisher said so.
    pub version: Option<StoredVersion>,
    /// More of the hub's own, opaque here.
    pub extra: Option<Bytes>,
}

/// Which state of a document a publication shows: older ones are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// Grows with each state.
    pub number: u64,
    /// Numbers are compared within one epoch.
    pub epoch: Option<Arc<str>>,
}

impl Record {
    /// What it holds of memory while it waits, in bytes. Names of channels are shared and don't count.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let beside = match self {
            Self::Published { publication, .. } => publication.bytes(),
            Self::Opened { .. }
            | Self::Trimmed { .. }
            | Self::Cleared { .. }
            | Self::Dropped { .. } => 0,
        };
        size_of::<Self>() + beside
    }
}

impl StoredPublication {
    /// Payload and extra, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.extra.as_ref().map_or(0, Bytes::len)
    }
}
