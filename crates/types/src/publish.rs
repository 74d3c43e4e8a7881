//! Options and metadata of a publication.

use std::sync::Arc;

use crate::ClientInfo;

/// Optional settings of a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishOptions {
    /// Deduplicates publications: within five minutes, another publication to the channel with the same key is skipped
    /// and gets the result of the first.
    pub idempotency_key: Option<Box<str>>,
    /// The version of the state in the payload. A publication with an older version than the channel's latest is
    /// skipped. Has an effect only for channels with history.
    pub version: Option<Version>,
    /// Skips the history, so the publication is not stored and gets no position.
    pub skip_history: bool,
    /// Metadata delivered with the payload.
    pub info: Option<Arc<PublicationInfo>>,
    /// Allows subscribers that have the preceding publication to receive a delta, if the namespace permits it.
    pub use_delta: bool,
}

/// A version of a channel's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The number of the state. Each later state has a higher number.
    pub number: u64,
    /// The epoch of the number. If the epochs of two versions differ, the later publication counts as newer.
    pub epoch: Box<str>,
}

/// Metadata of a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationInfo {
    /// The client that published; `None` for back ends and applications.
    pub client: Option<Arc<ClientInfo>>,
    /// Tags: names and values set by the publisher.
    pub tags: Box<[(Box<str>, Box<str>)]>,
    /// The channel that was published to, for subscribers of a wildcard channel.
    pub channel: Option<Arc<str>>,
}

impl PublicationInfo {
    /// Returns the memory footprint in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let client = self.client.as_ref().map_or(0, |client| client.bytes());
        let tags = self.tags.iter();
        let tags: usize = tags
            .map(|(name, value)| 2 * size_of::<Box<str>>() + name.len() + value.len())
            .sum();
        size_of::<Self>() + client + tags
    }
}
