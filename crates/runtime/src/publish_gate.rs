//! Channels to which scripts can't publish at the moment, since too much waits that they have published.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use foldhash::quality::RandomState;

/// See the module's text. The worker's: it knows what its applications have published and what was taken of it.
#[derive(Debug, Default)]
pub struct PublishGate {
    all: Cell<bool>,
    /// How often publications have been taken again.
    openings: Cell<u64>,
    channels: RefCell<HashSet<Box<str>, RandomState>>,
}

impl PublishGate {
    /// Refuses publications to a channel from now on, or takes them again.
    pub fn set_refused(&self, channel: &str, is_refused: bool) {
        self.count_reopening(is_refused);
        let mut channels = self.channels.borrow_mut();
        match is_refused {
            true => channels.insert(channel.into()),
            false => channels.remove(channel),
        };
    }

    /// Refuses all publications, or none but those to channels that are refused by themselves.
    pub fn set_all_refused(&self, is_refused: bool) {
        self.count_reopening(is_refused);
        self.all.set(is_refused);
    }

    fn count_reopening(&self, is_refused: bool) {
        let openings = self.openings.get() + u64::from(!is_refused);
        self.openings.set(openings);
    }

    /// Returns a number that changes whenever publications are taken again.
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
