//! The data exchanged between hubs and the log of their streams.

use std::sync::Arc;

use crate::{Epoch, Publication, Version};

/// A record of one channel's stream for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    /// A stream was started; an earlier stream of that channel is void.
    Opened {
        /// Name of the stream's channel.
        channel: Arc<str>,
        /// The epoch of the stream.
        epoch: Epoch,
        /// The time in milliseconds since 1970.
        at_ms: u64,
    },
    /// A publication was ordered.
    Published {
        /// Name of the channel that was published to.
        channel: Arc<str>,
        /// The publication with its position.
        publication: Publication,
        /// The version of the state in the payload.
        version: Option<Version>,
    },
    /// Publications with lower offsets are no longer stored.
    Trimmed {
        /// Name of the channel whose history was trimmed.
        channel: Arc<str>,
        /// The lowest offset that may still be stored.
        below: u64,
    },
    /// The stream was dropped.
    Dropped {
        /// Name of the stream's channel.
        channel: Arc<str>,
    },
}

/// Records that become durable together. The records of one channel are in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBatch {
    /// The number to pass to [`Hub::batch_durable`]; consecutive from 1.
    pub number: u64,
    /// The records; empty if something only waits for earlier batches.
    pub records: Vec<LogRecord>,
}

/// A stream as stored by a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredStream {
    /// Name of the stream's channel.
    pub channel: Arc<str>,
    /// The epoch of the stream.
    pub epoch: Epoch,
    /// The offset of the last publication ever ordered; 0 before the first.
    pub top: u64,
    /// The last version of a publication.
    pub version: Option<Version>,
    /// The stored publications by offset, each with its position.
    pub publications: Vec<Publication>,
}

/// Changes of streams other than publications that the log has yet to record; bounded by the number of streams.
#[derive(Debug, Default)]
pub(crate) struct StreamChanges {
    /// Streams that were started or trimmed.
    pub(crate) streams: Vec<u32>,
    /// Channels whose streams were dropped.
    pub(crate) dropped: Vec<Arc<str>>,
    /// A client knows a position that the log does not contain.
    pub(crate) is_urgent: bool,
}

impl StreamChanges {
    pub(crate) fn len(&self) -> usize {
        self.streams.len() + self.dropped.len()
    }
}
