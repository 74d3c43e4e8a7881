//! Publications and their encodings during fan-out.
//!
//! The hub stores a payload as the publisher sent it and does not interpret it. Front ends encode it for their
//! protocols, and cache the encodings in [`Encodings`] for the next receiver.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Payload, PayloadRef, Position, PublicationInfo};

/// An ordered publication on its way to its receivers.
pub(crate) struct OrderedPublication<'a> {
    pub(crate) payload: PayloadSource<'a>,
    pub(crate) position: Option<Position>,
    pub(crate) at_ms: u64,
    pub(crate) event: FeedEvent,
    pub(crate) info: Option<Arc<PublicationInfo>>,
    /// The payload of the preceding publication, if it is needed for a delta.
    pub(crate) previous: Option<Payload>,
}

impl From<Publication> for OrderedPublication<'_> {
    fn from(publication: Publication) -> Self {
        Self {
            payload: PayloadSource::Owned(publication.payload),
            position: publication.position,
            at_ms: publication.at_ms,
            event: publication.event,
            info: publication.info,
            previous: None,
        }
    }
}

impl OrderedPublication<'_> {
    /// Returns an owned publication. Only the first call copies the bytes.
    #[expect(
        clippy::wrong_self_convention,
        reason = "only the first call copies the bytes"
    )]
    pub(crate) fn to_publication(&mut self) -> Publication {
        Publication {
            payload: self.payload.to_payload(),
            position: self.position,
            at_ms: self.at_ms,
            event: self.event,
            info: self.info.clone(),
        }
    }
}

/// A payload whose bytes are copied only if an owned one is needed.
pub(crate) enum PayloadSource<'a> {
    Borrowed(PayloadRef<'a>),
    Owned(Payload),
}

impl<'a> PayloadSource<'a> {
    /// Returns another reference to the same payload.
    pub(crate) fn share(&self) -> Self {
        match self {
            PayloadSource::Borrowed(payload) => PayloadSource::Borrowed(*payload),
            PayloadSource::Owned(payload) => PayloadSource::Owned(payload.clone()),
        }
    }

    pub(crate) fn borrow(&self) -> PayloadRef<'_> {
        match self {
            PayloadSource::Borrowed(payload) => *payload,
            PayloadSource::Owned(payload) => payload.borrow(),
        }
    }

    /// Returns an owned payload. Only the first call copies the bytes.
    #[expect(
        clippy::wrong_self_convention,
        reason = "only the first call copies the bytes"
    )]
    pub(crate) fn to_payload(&mut self) -> Payload {
        if let PayloadSource::Borrowed(payload) = self {
            *self = PayloadSource::Owned(payload.to_payload());
        }
        match self {
            PayloadSource::Owned(payload) => payload.clone(),
            PayloadSource::Borrowed(_) => {
                unreachable!("the borrowed payload was replaced by an owned one just before")
            }
        }
    }
}

/// A publication with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The data, with its type.
    pub payload: Payload,
    /// The position of the publication, if it is stored.
    pub position: Option<Position>,
    /// The time at which the home accepted the publication, in milliseconds since 1970.
    pub at_ms: u64,
    /// The type of the publication.
    pub event: FeedEvent,
    /// Metadata delivered with the payload.
    pub info: Option<Arc<PublicationInfo>>,
}

/// The type of an item that subscribers receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedEvent {
    /// Data was published to the channel.
    #[default]
    Published,
    /// The client in the metadata has joined the channel; there is no payload.
    Joined,
    /// The client in the metadata has left the channel; there is no payload.
    Left,
}

/// Identifies an encoding that front ends have chosen: a client protocol, its framing and, with compression, its
/// parameters. Receivers with the same encoding id get the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodingId(pub u32);

/// Maximum number of cached encodings per publication. For further formats the publication is encoded for each
/// receiver.
pub const ENCODINGS_MAX: usize = 16;

/// The cached encodings of a publication. Each is made once per worker and shared by all receivers.
#[derive(Clone, Debug, Default)]
pub struct Encodings {
    list: Vec<(EncodingId, Bytes)>,
}

impl Encodings {
    /// Returns the cached encoding in a format, if there is one.
    pub fn find(&self, format: EncodingId) -> Option<&Bytes> {
        // There are only a few entries, so a linear search is faster than a map.
        self.list
            .iter()
            .find(|(made, _)| *made == format)
            .map(|(_, bytes)| bytes)
    }

    /// Returns the encoding in a format. If it is not cached, calls `encode` and caches the result.
    pub fn find_or_encode(&mut self, format: EncodingId, encode: impl FnOnce() -> Bytes) -> Bytes {
        if let Some(bytes) = self.find(format) {
            return bytes.clone();
        }
        let bytes = encode();
        if self.list.len() < ENCODINGS_MAX {
            self.list.push((format, bytes.clone()));
        }
        bytes
    }

    /// Caches an encoding even beyond the limit, because all others are derived from this one.
    pub fn insert(&mut self, format: EncodingId, bytes: Bytes) {
        self.list.push((format, bytes));
    }

    /// Removes all encodings but keeps the allocated memory.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }
}

impl Delivery<'_> {
    /// Returns the channel that was published to. For a wildcard subscription it is not the subscribed channel.
    #[must_use]
    pub fn source(&self) -> &str {
        let among = self.info.and_then(|info| info.channel.as_deref());
        among.unwrap_or(self.channel)
    }
}

/// A publication for one subscriber, borrowed for the duration of the call.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// The subscribed channel; for a personal channel `#user`.
    pub channel: &'a str,
    /// The data, with its type.
    pub payload: PayloadRef<'a>,
    /// The position of the publication, if it is stored.
    pub position: Option<Position>,
    /// The time at which the home accepted the publication, in milliseconds since 1970.
    pub at_ms: u64,
    /// The type of the publication.
    pub event: FeedEvent,
    /// Metadata delivered with the payload.
    pub info: Option<&'a PublicationInfo>,
    /// The payload of the preceding publication, if a delta may be sent. A delta must be sent only to a subscriber that
    /// has received that publication.
    pub previous: Option<PayloadRef<'a>>,
    /// The encodings made so far. For a single receiver, caching is not worthwhile, so front ends encode directly into
    /// the outbox.
    pub encodings: &'a mut Encodings,
    /// The number of sessions of this worker that get this publication.
    pub receivers: u32,
    /// Whether the publication is dropped for a slow receiver.
    pub drop_when_slow: bool,
}
