//! What was in an archive when it was opened.

use std::sync::Arc;
use std::vec;

use crate::record::{Publication, Version};

/// All streams, one after the other, in no particular order. What is expired is among them.
#[derive(Debug, Default)]
pub struct Loaded {
    pub(crate) channels: vec::IntoIter<Channel>,
    pub(crate) publications: u64,
    pub(crate) warnings: Vec<Warning>,
}

/// A stream as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Of the channel.
    pub name: Arc<str>,
    /// Of the stream.
    pub epoch: u64,
    /// When the stream came to be, by the wall clock.
    pub opened_ms: u64,
    /// Offset of the last publication that there ever was; 0 before the first.
    pub top: u64,
    /// The last one that a publication had.
    pub version: Option<Version>,
    /// Those that were not trimmed, by offset.
    pub publications: Vec<Publication>,
}

/// What could not be read, and was left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The end of the file was no whole commit, as after a power cut or a process that was killed while it wrote. What
    /// was told to be durable is not among it, unless the disk lost it.
    #[error("the last {bytes} bytes of the log are an incomplete commit and were cut off")]
    Tail {
        /// How many.
        bytes: u64,
    },
    /// The log is damaged before its end, and what follows had been committed, or may have been.
    #[error(
        "the log is damaged: {commits} commits in its last {bytes} bytes were cut off, and the latest publications of {channels} channels may be lost: these have new epochs, so that clients notice"
    )]
    Cut {
        /// How long what was cut off is.
        bytes: u64,
        /// How many commits could be seen in it.
        commits: u64,
        /// How many channels there are.
        channels: u64,
    },
    /// The machine went down while the archive was open, and what was told to be durable may not have been on the disk.
    #[error(
        "the machine crashed or lost power, and the latest publications of {channels} channels may be lost: these have new epochs, so that clients notice"
    )]
    Lost {
        /// How many.
        channels: u64,
    },
    /// That was asked for.
    #[error("{channels} channels have new epochs, as requested")]
    Renewed {
        /// How many.
        channels: u64,
    },
    /// Publications of a channel are damaged; they and older ones are left out.
    #[error("the history of channel {channel:?} up to offset {offset} is damaged and was skipped")]
    History {
        /// The channel.
        channel: Arc<str>,
        /// Offset of the last one that is lost.
        offset: u64,
    },
    /// It can't be known where a stream has got to. It is forgotten, so that it gets a new epoch.
    #[error("the stream of channel {channel:?} is damaged and was dropped")]
    Stream {
        /// The channel, as far as it can be read.
        channel: Arc<str>,
    },
}

impl Loaded {
    /// How many publications there are in all.
    #[must_use]
    pub fn publications(&self) -> u64 {
        self.publications
    }

    /// What was left out, in words for the log.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

impl Iterator for Loaded {
    type Item = Channel;

    fn next(&mut self) -> Option<Channel> {
        self.channels.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.channels.size_hint()
    }
}

impl ExactSizeIterator for Loaded {}
