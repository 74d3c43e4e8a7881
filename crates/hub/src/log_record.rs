//! What hubs and the log of their streams hand to each other: plain data.

use std::sync::Arc;

use crate::{Epoch, Publication, Version};

/// What the log is to keep of one channel's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Append {
    /// A stream began; what was there of another one of that channel is void.
    Opened {
        /// Its channel.
        channel: Arc<str>,
        /// Its epoch.
        epoch: Epoch,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// A publication, with its position.
    Published {
        /// Its channel.
        channel: Arc<str>,
        /// With its position.
        publication: Publication,
        /// Of the state that it tells.
        version: Option<Version>,
    },
    /// Publications with offsets below are not kept any more.
    Trimmed {
        /// Their channel.
        channel: Arc<str>,
        /// The lowest offset that may still be there.
        below: u64,
    },
    /// The stream is forgotten.
    Dropped {
        /// Its channel.
        channel: Arc<str>,
    },
}

/// What becomes durable together. Of each channel it is in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The first is 1, each next one more: what [`Hub::durable`] is told.
    pub number: u64,
    /// What is to be kept; nothing where somebody waits for the batches before alone.
    pub appends: Vec<Append>,
}

/// A stream as a log has kept it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Its channel.
    pub channel: Arc<str>,
    /// Its epoch.
    pub epoch: Epoch,
    /// The offset of the last publication that there ever was; 0 before the first.
    pub top: u64,
    /// The last one that a publication had.
    pub version: Option<Version>,
    /// Those that are kept, by offset, each with its position.
    pub publications: Vec<Publication>,
}

/// What a log is to be told of streams, beside publications. How much it is, is bounded by how many streams there are.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Those that began, or let go of something.
    pub(crate) streams: Vec<u32>,
    /// Channels whose streams were forgotten.
    pub(crate) dropped: Vec<Arc<str>>,
    /// Somebody has a position that the log does not know.
    pub(crate) is_urgent: bool,
}

impl Changes {
    pub(crate) fn len(&self) -> usize {
        self.streams.len() + self.dropped.len()
    }
}
