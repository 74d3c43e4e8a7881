//! The records that workers submit.

use std::sync::Arc;

use bytes::Bytes;

/// A change of one channel's stream. All records of a channel must come from one [`Writer`](crate::Writer), which keeps
/// their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveRecord {
    /// A stream was started. An earlier stream of that channel is dropped.
    Opened {
        /// Name of the stream's channel.
        channel: Arc<str>,
        /// The epoch of the new stream.
        epoch: u64,
        /// The wall-clock time of the start, in milliseconds since 1970.
        at_ms: u64,
    },
    /// A publication was stored. It starts a new stream if the stream is unknown or has another epoch. It is
    /// ignored if its offset is not above the stream's highest offset.
    Published {
        /// Name of the stream's channel.
        channel: Arc<str>,
        /// The epoch of the stream.
        epoch: u64,
        /// The publication to store.
        publication: StoredPublication,
    },
    /// Publications with offsets below `below` were dropped.
    Trimmed {
        /// Name of the stream's channel.
        channel: Arc<str>,
        /// The first offset that may still be stored.
        below: u64,
    },
    /// All publications were dropped; epoch, top offset and version stay.
    Cleared {
        /// Name of the stream's channel.
        channel: Arc<str>,
    },
    /// The stream was dropped.
    Dropped {
        /// Name of the stream's channel.
        channel: Arc<str>,
    },
}

/// A publication as stored on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPublication {
    /// The offset in the stream.
    pub offset: u64,
    /// The wall-clock time of the publication, in milliseconds since 1970.
    pub at_ms: u64,
    /// The kind of the payload: a number interpreted only by the hub.
    pub kind: u8,
    /// The data as published. The archive does not interpret it.
    pub payload: Bytes,
    /// The version of the state, if the publisher sent one.
    pub version: Option<StoredVersion>,
    /// Data that the hub stores with the publication. The archive does not interpret it.
    pub extra: Option<Bytes>,
}

/// The version of the state that a publication contains; publications of older versions are
/// refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// The number of the state within `epoch`; a newer state has a higher number.
    pub number: u64,
    /// The version epoch. Numbers are comparable only if their epochs are equal; `None` is an epoch too.
    pub epoch: Option<Arc<str>>,
}

impl ArchiveRecord {
    /// Returns the memory in bytes that the record takes in the queue. Channel names are shared and don't count.
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
    /// Returns the total size of payload and extra data in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.extra.as_ref().map_or(0, Bytes::len)
    }
}
