//! The content of an archive when it was opened.

use std::sync::Arc;
use std::vec;

use crate::record::{StoredPublication, StoredVersion};

/// All streams, in unspecified order. Their publications include expired ones.
#[derive(Debug, Default)]
pub struct LoadedStreams {
    pub(crate) channels: vec::IntoIter<LoadedStream>,
    pub(crate) publications: u64,
    pub(crate) warnings: Vec<Warning>,
}

/// A stream as it was stored when the archive was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedStream {
    /// Name of the stream's channel.
    pub name: Arc<str>,
    /// The epoch of the stream.
    pub epoch: u64,
    /// When the stream was started, by the wall clock in milliseconds.
    pub opened_ms: u64,
    /// The offset of the last publication ever stored; 0 before the first.
    pub top: u64,
    /// The version of the latest publication that had one.
    pub version: Option<StoredVersion>,
    /// The publications that were not trimmed, by offset.
    pub publications: Vec<StoredPublication>,
}

/// A finding from the opening of an archive: lost or unreadable data, or renewed epochs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The end of the log was an incomplete commit, as after a power cut or after the process was killed while writing. It
    /// contains nothing that was reported as durable, provided that the disk kept all data that it confirmed.
    #[error("the last {bytes} bytes of the log are an incomplete commit and were cut off")]
    Tail {
        /// The number of bytes that were cut off the end of the log.
        bytes: u64,
    },
    /// The log is damaged before its end. The data after the damage was committed, or may have been.
    #[error(
        "the log is damaged: {commits} commits in its last {bytes} bytes were cut off, and the latest publications of {channels} channels may be lost: these channels have new epochs, so that clients notice"
    )]
    Cut {
        /// The number of bytes that were cut off the end of the log.
        bytes: u64,
        /// The number of recognisable commits in the bytes that were cut off.
        commits: u64,
        /// The number of channels that got new epochs.
        channels: u64,
    },
    /// The machine went down while the archive was open, and data reported as durable may not have been on disk.
    #[error(
        "the machine crashed or lost power, and the latest publications of {channels} channels may be lost: these channels have new epochs, so that clients notice"
    )]
    Lost {
        /// The number of channels that got new epochs.
        channels: u64,
    },
    /// New epochs were requested.
    #[error("{channels} channels have new epochs, as requested")]
    Renewed {
        /// The number of channels that got new epochs.
        channels: u64,
    },
    /// Publications of a channel are damaged; they and older ones were skipped.
    #[error("the history of channel {channel:?} up to offset {offset} is damaged and was skipped")]
    History {
        /// Name of the channel that lost publications.
        channel: Arc<str>,
        /// The offset of the last lost publication.
        offset: u64,
    },
    /// The last offset of a stream is unknown. The stream was dropped, so that it gets a new epoch.
    #[error("the stream of channel {channel:?} is damaged and was dropped")]
    Stream {
        /// The channel name, as far as it is readable.
        channel: Arc<str>,
    },
}

impl LoadedStreams {
    /// Returns the total number of publications.
    #[must_use]
    pub fn publications(&self) -> u64 {
        self.publications
    }

    /// Returns the findings from the opening, as messages for the log.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

impl Iterator for LoadedStreams {
    type Item = LoadedStream;

    fn next(&mut self) -> Option<LoadedStream> {
        self.channels.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.channels.size_hint()
    }
}

impl ExactSizeIterator for LoadedStreams {}
