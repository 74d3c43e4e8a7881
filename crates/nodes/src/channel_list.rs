//! Lists of channels.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::wire;

/// Maximum number of channels in a list.
pub const CHANNELS_LISTED_MAX: usize = 10_000;

/// A list of channels, each with its number of subscribers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelList {
    #[serde(with = "wire::channels")]
    channels: Vec<(Arc<str>, u32)>,
    is_too_long: bool,
}

impl ChannelList {
    /// Adds a channel and its number of subscribers. Returns `false` if the list has reached [`CHANNELS_LISTED_MAX`],
    /// so that the channel was not added.
    pub fn push(&mut self, channel: Arc<str>, clients: u32) -> bool {
        match self.channels.len() < CHANNELS_LISTED_MAX {
            true => self.channels.push((channel, clients)),
            false => self.is_too_long = true,
        }
        !self.is_too_long
    }

    /// Adds the channels of another worker of the same node. The two lists must have no channel in
    /// common.
    pub fn add(&mut self, more: Self) {
        self.channels.extend(more.channels);
        self.is_too_long |= more.is_too_long || self.channels.len() > CHANNELS_LISTED_MAX;
    }

    /// Adds the channels of another node. If a channel is in both lists, its numbers of subscribers
    /// are added up.
    pub fn merge(&mut self, more: Self) {
        self.is_too_long |= more.is_too_long;
        let known = self.channels.iter().enumerate();
        let mut places: HashMap<Arc<str>, usize> = known
            .map(|(place, (name, _))| (Arc::clone(name), place))
            .collect();
        for (name, clients) in more.channels {
            match places.get(&name) {
                Some(place) => {
                    let all = &mut self.channels[*place].1;
                    *all = all.saturating_add(clients);
                }
                None => {
                    places.insert(Arc::clone(&name), self.channels.len());
                    self.push(name, clients);
                }
            }
        }
    }

    /// Returns all channels in unspecified order; `None` if there are more than [`CHANNELS_LISTED_MAX`].
    pub fn channels(&self) -> Option<&[(Arc<str>, u32)]> {
        (!self.is_too_long).then_some(&self.channels)
    }
}
