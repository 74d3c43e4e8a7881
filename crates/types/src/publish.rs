//! How a publication is to be taken, and what accompanies its payload.

use std::sync::Arc;

use crate::ClientInfo;

/// How a publication is to be taken, where that is not as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishOptions {
    /// Another publication to the channel with this key, within five minutes, is not taken: it is
    /// answered as the first was.
    pub idempotency_key: Option<Box<str>>,
    /// Of the state that it tells: an older one than the channel had is not taken. Only where the
    /// channel remembers.
    pub version: Option<Version>,
    /// It is not kept and gets no position, whether the channel remembers or not.
    pub skip_history: bool,
    /// What is said of it beside its payload.
    pub info: Option<Arc<PublicationInfo>>,
    /// Those who have the one before may be told what has changed alone, where its namespace lets them.
    pub use_delta: bool,
}

/// Tells newer states of something from older ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Grows with each state.
    pub number: u64,
    /// Versions of another epoch say nothing about each other: the later publication is the newer.
    pub epoch: Box<str>,
}

/// What is said of a publication beside its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationInfo {
    /// Who published it, where a client did.
    pub client: Option<Arc<ClientInfo>>,
    /// Names and values that were published with it.
    pub tags: Box<[(Box<str>, Box<str>)]>,
    /// The channel that it was published to, for those who hear it as one of a namespace.
    pub channel: Option<Arc<str>>,
}

impl PublicationInfo {
    /// What it takes, in bytes.
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
