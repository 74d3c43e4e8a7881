//! Publications and their encodings during fan-out.
//!
//! The hub stores a payload as the publisher sent it and never looks inside; front ends derive encodings and store them
//! in [`Encodings`] for the next receiver.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Info, Payload, PayloadRef, Position};

/// An ordered publication on its way to its receivers.
pub(crate) struct Ordered<'a> {
    pub(crate) payload: Source<'a>,
    pub(crate) position: Option<Position>,
    pub(crate) at_ms: u64,
    pub(crate) event: Event,
    pub(crate) info: Option<Arc<Info>>,
    /// The preceding payload, if a delta is wanted.
    pub(crate) previous: Option<Payload>,
}

impl From<Publication> for Ordered<'_> {
    fn from(publication: Publication) -> Self {
        Self {
            payload: Source::Kept(publication.payload),
            position: publication.position,
            at_ms: publication.at_ms,
            event: publication.event,
            info: publication.info,
            previous: None,
        }
    }
}

impl Ordered<'_> {
    /// Returns an owned publication; the bytes are copied on the first call only.
    pub(crate) fn keep(&mut self) -> Publication {
        Publication {
            payload: self.payload.keep(),
            position: self.position,
            at_ms: self.at_ms,
            event: self.event,
            info: self.info.clone(),
        }
    }
}

/// A payload that is copied only when an owned one is needed.
pub(crate) enum Source<'a> {
    Borrowed(PayloadRef<'a>),
    Kept(Payload),
}

impl<'a> Source<'a> {
    /// Returns another reference to the same payload.
    pub(crate) fn share(&self) -> Self {
        match self {
            Source::Borrowed(payload) => Source::Borrowed(*payload),
            Source::Kept(payload) => Source::Kept(payload.clone()),
        }
    }

    pub(crate) fn borrow(&self) -> PayloadRef<'_> {
        match self {
            Source::Borrowed(payload) => *payload,
            Source::Kept(payload) => payload.borrow(),
        }
    }

    /// Returns an owned payload; the bytes are copied on the first call only.
    pub(crate) fn keep(&mut self) -> Payload {
        if let Source::Borrowed(payload) = self {
            *self = Source::Kept(payload.to_payload());
        }
        match self {
            Source::Kept(payload) => payload.clone(),
            Source::Borrowed(_) => unreachable!("it was kept above"),
        }
    }
}

/// A publication with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The content.
    pub payload: Payload,
    /// The position, if the channel has history.
    pub position: Option<Position>,
    /// When its home accepted it, in milliseconds since 1970.
    pub at_ms: u64,
    /// The type of the publication.
    pub event: Event,
    /// Metadata delivered with the payload.
    pub info: Option<Arc<Info>>,
}

/// The type of an item that subscribers receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// A publication.
    #[default]
    Published,
    /// The client in the metadata has joined the channel; there is no payload.
    Joined,
    /// That client has left.
    Left,
}

/// Identifies an encoding chosen by front ends: a client protocol, its framing and, with compression, its parameters.
/// Receivers with the same id get the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format(pub u32);

/// Maximum number of cached encodings per publication. Further ones are encoded for each receiver.
pub const ENCODINGS_MAX: usize = 16;

/// The encodings of a publication: each is made once per worker and shared by all receivers.
#[derive(Clone, Debug, Default)]
pub struct Encodings {
    made: Vec<(Format, Bytes)>,
}

impl Encodings {
    /// Returns the cached encoding, if there is one.
    pub fn find(&self, format: Format) -> Option<&Bytes> {
        // With a handful of entries a linear search beats any map.
        self.made
            .iter()
            .find(|(made, _)| *made == format)
            .map(|(_, bytes)| bytes)
    }

    /// Returns the encoding, and makes it if it is not cached.
    pub fn find_or_encode(&mut self, format: Format, encode: impl FnOnce() -> Bytes) -> Bytes {
        if let Some(bytes) = self.find(format) {
            return bytes.clone();
        }
        let bytes = encode();
        if self.made.len() < ENCODINGS_MAX {
            self.made.push((format, bytes.clone()));
        }
        bytes
    }

    /// Caches an encoding regardless of the limit: for the base from which all others are derived.
    pub fn keep(&mut self, format: Format, bytes: Bytes) {
        self.made.push((format, bytes));
    }

    /// Removes all encodings and keeps the capacity.
    pub(crate) fn clear(&mut self) {
        self.made.clear();
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
    /// The content.
    pub payload: PayloadRef<'a>,
    /// The position, if the channel has history.
    pub position: Option<Position>,
    /// When its home accepted it, in milliseconds since 1970.
    pub at_ms: u64,
    /// The type of the publication.
    pub event: Event,
    /// Metadata delivered with the payload.
    pub info: Option<&'a Info>,
    /// The preceding payload, if a delta is permitted: a subscriber that received the publication at the preceding
    /// position has it.
    pub previous: Option<PayloadRef<'a>>,
    /// The encodings made so far. For a single receiver caching does not pay: encode straight into the outbox.
    pub encodings: &'a mut Encodings,
    /// The number of sessions of this worker that get this publication.
    pub receivers: u32,
    /// Whether a slow receiver loses it.
    pub slow_miss: bool,
}
