//! Channels that scripts can't publish to at the moment because too many of their publications are queued.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use foldhash::quality::RandomState;

/// Tells scripts which publications are refused. The worker, which queues the publications, keeps it up to date.
#[derive(Debug, Default)]
pub struct PublishGate {
    all: Cell<bool>,
    /// The number of times that a refusal of publications was ended.
    openings: Cell<u64>,
    channels: RefCell<HashSet<Box<str>, RandomState>>,
}

impl PublishGate {
    /// Refuses or allows publications to a channel.
    pub fn set_refused(&self, channel: &str, is_refused: bool) {
        self.count_reopening(is_refused);
        let mut channels = self.channels.borrow_mut();
        match is_refused {
            true => channels.insert(channel.into()),
            false => channels.remove(channel),
        };
    }

    /// Refuses all publications, or stops doing so. Channels that are refused individually stay refused.
    pub fn set_all_refused(&self, is_refused: bool) {
        self.count_reopening(is_refused);
        self.all.set(is_refused);
    }

    fn count_reopening(&self, is_refused: bool) {
        let openings = self.openings.get() + u64::from(!is_refused);
        self.openings.set(openings);
    }

    /// Returns a counter that increases whenever a refusal of publications ends.
    #[must_use]
    pub fn reopenings(&self) -> u64 {
        self.openings.get()
    }

    /// Returns whether publications to a channel are refused.
    #[must_use]
    pub fn is_refused(&self, channel: &str) -> bool {
        self.all.get() || self.channels.borrow().contains(channel)
    }
}
