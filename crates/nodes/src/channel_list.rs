//! Which channels there are.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::wire;

/// The most channels that are listed at once.
pub const CHANNELS_LISTED_MAX: usize = 10_000;

/// Channels with subscribers, and how many each has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelList {
    #[serde(with = "wire::channels")]
    channels: Vec<(Arc<str>, u32)>,
    is_too_long: bool,
}

impl ChannelList {
    /// Adds a channel and its number of subscribers. Returns `false` if there are too many.
    pub fn push(&mut self, channel: Arc<str>, clients: u32) -> bool {
        match self.channels.len() < CHANNELS_LISTED_MAX {
            true => self.channels.push((channel, clients)),
            false => self.is_too_long = true,
        }
        !self.is_too_long
    }

    /// Those of another worker as well.
    pub fn add(&mut self, more: Self) {
        self.channels.extend(more.channels);
        self.is_too_long |= more.is_too_long || self.channels.len() > CHANNELS_LISTED_MAX;
    }

    /// All of them, in no order; `None` if there are more than [`CHANNELS_LISTED_MAX`].
    pub fn channels(&self) -> Option<&[(Arc<str>, u32)]> {
        (!self.is_too_long).then_some(&self.channels)
    }
}
