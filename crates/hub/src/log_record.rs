//! The data that hubs and the log of their streams exchange.

use std::sync::Arc;

use crate::{Epoch, Publication, Version};

/// A record of one channel's stream for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    /// A stream was started. An earlier stream of the same channel is no longer valid.
    Opened {
        /// Name of the stream's channel.
        channel: Arc<str>,
        /// The epoch of the stream.
        epoch: Epoch,
        /// The time at which the stream was started, in milliseconds since 1970.
        at_ms: u64,
    },
    /// A publication was ordered.
    Published {
        /// Name of the channel that was published to.
        channel: Arc<str>,
        /// The publication with its position.
        publication: Publication,
        /// The version of the channel's state that the publication contains, if the publisher has set one.
        version: Option<Version>,
    },
    /// Publications below an offset are no longer stored.
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
    /// The number to pass to [`Hub::batch_durable`]; batches are numbered from 1 on.
    pub number: u64,
    /// The records; empty if a request only waits until earlier batches are durable.
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
    /// The version that was set last, if any.
    pub version: Option<Version>,
    /// The stored publications in the order of their offsets, each with its position.
    pub publications: Vec<Publication>,
}

/// Changes of streams, other than publications, that are to be recorded with the next batch.
#[derive(Debug, Default)]
pub(crate) struct StreamChanges {
    /// The indices of streams that were started or trimmed.
    pub(crate) streams: Vec<u32>,
    /// The channels whose streams were dropped.
    pub(crate) dropped: Vec<Arc<str>>,
    /// Whether a client has a position that the log does not contain yet, so that the next batch must not be delayed.
    pub(crate) is_urgent: bool,
}

impl StreamChanges {
    pub(crate) fn len(&self) -> usize {
        self.streams.len() + self.dropped.len()
    }
}
