//! Publications and their encodings during fan-out.
//!
//! The hub stores a payload as the publisher sent it and never looks inside; front ends derive encodings and store them
//! in [`Encodings`] for the next receiver.

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
    /// The preceding payload, if a delta is needed.
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
    /// Returns an owned publication; the bytes are copied on the first call only.
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

/// A payload that is copied only when an owned one is needed.
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

    /// Returns an owned payload; the bytes are copied on the first call only.
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
            PayloadSource::Borrowed(_) => unreachable!("it was stored above"),
        }
    }
}

/// A publication with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The data, with its encoding.
    pub payload: Payload,
    /// The position, if the channel has history.
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
    /// The client has left.
    Left,
}

/// Identifies an encoding chosen by front ends: a client protocol, its framing and, with compression, its parameters.
/// Receivers with the same id get the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodingId(pub u32);

/// Maximum number of cached encodings per publication. Further ones are encoded for each receiver.
pub const ENCODINGS_MAX: usize = 16;

/// The encodings of a publication: each is made once per worker and shared by all receivers.
#[derive(Clone, Debug, Default)]
pub struct Encodings {
    list: Vec<(EncodingId, Bytes)>,
}

impl Encodings {
    /// Returns the cached encoding, if there is one.
    pub fn find(&self, format: EncodingId) -> Option<&Bytes> {
        // With a handful of entries a linear search beats any map.
        self.list
            .iter()
            .find(|(made, _)| *made == format)
            .map(|(_, bytes)| bytes)
    }

    /// Returns the encoding, and makes it if it is not cached.
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

    /// Caches an encoding regardless of the limit: for the base from which all others are derived.
    pub fn insert(&mut self, format: EncodingId, bytes: Bytes) {
        self.list.push((format, bytes));
    }

    /// Removes all encodings and keeps the capacity.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }
}

impl Delivery<'_> {
    /// Returns the channel that was published to, which differs from the subscribed channel for a wildcard
    /// subscription.
    #[must_use]
    pub fn source(&self) -> &str {
        let among = self.info.and_then(|info| info.channel.as_deref());
        among.unwrap_or(self.channel)
    }
}

/// A publication for one subscriber, borrowed for the call.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// The subscribed channel; `#user` for a personal one.
    pub channel: &'a str,
    /// The data, with its encoding.
    pub payload: PayloadRef<'a>,
    /// The position, if the channel has history.
    pub position: Option<Position>,
    /// The time at which the home accepted the publication, in milliseconds since 1970.
    pub at_ms: u64,
    /// The type of the publication.
    pub event: FeedEvent,
    /// Metadata delivered with the payload.
    pub info: Option<&'a PublicationInfo>,
    /// The preceding payload, if a delta is permitted: a subscriber that received the publication at the preceding
    /// position has it.
    pub previous: Option<PayloadRef<'a>>,
    /// The encodings made so far. For a single receiver caching does not pay: encode straight into the outbox.
    pub encodings: &'a mut Encodings,
    /// The number of sessions of this worker that get this publication.
    pub receivers: u32,
    /// Whether a slow receiver loses it.
    pub drop_when_slow: bool,
}
