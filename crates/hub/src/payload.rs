//! What is published, and what is kept beside it while it fans out.
//!
//! The hub stores a payload as the publisher gave it and never looks inside; front ends derive
//! their encodings and leave them in [`Encodings`] for the next receiver.

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
    /// What was published before, if it goes out together with that.
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
    /// A copy to keep; the bytes are copied the first time only.
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

/// A payload that is copied only when somebody must keep it.
pub(crate) enum PayloadSource<'a> {
    Borrowed(PayloadRef<'a>),
    Owned(Payload),
}

impl<'a> PayloadSource<'a> {
    /// Another one of the same.
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

    /// A copy to keep; the bytes are copied the first time only.
    pub(crate) fn to_payload(&mut self) -> Payload {
        if let PayloadSource::Borrowed(payload) = self {
            *self = PayloadSource::Owned(payload.to_payload());
        }
        match self {
            PayloadSource::Owned(payload) => payload.clone(),
            PayloadSource::Borrowed(_) => unreachable!("it was kept above"),
        }
    }
}

/// What was published to a channel, with its place there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// What was published.
    pub payload: Payload,
    /// Its place, where the channel remembers.
    pub position: Option<Position>,
    /// When its home took it, in milliseconds since 1970.
    pub at_ms: u64,
    /// What it tells.
    pub event: FeedEvent,
    /// What is said of it beside its payload.
    pub info: Option<Arc<PublicationInfo>>,
}

/// What subscribers are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedEvent {
    /// Something was published.
    #[default]
    Published,
    /// The client that its info names has joined the channel; there is no payload.
    Joined,
    /// It has left.
    Left,
}

/// The name of an encoding, chosen by front ends: a client protocol, its framing and, where it
/// is compressed, the parameters of that. Two receivers with the same format get the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodingId(pub u32);

/// How many encodings one publication keeps. A format beyond that is encoded for each receiver.
pub const ENCODINGS_MAX: usize = 16;

/// A publication's encodings: each is made once per worker and shared by all receivers.
#[derive(Clone, Debug, Default)]
pub struct Encodings {
    list: Vec<(EncodingId, Bytes)>,
}

impl Encodings {
    /// The encoding of this format, if somebody has made it.
    pub fn find(&self, format: EncodingId) -> Option<&Bytes> {
        // A handful of entries: a walk beats any map.
        self.list
            .iter()
            .find(|(made, _)| *made == format)
            .map(|(_, bytes)| bytes)
    }

    /// The encoding of this format, made now if nobody has yet.
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

    /// Keeps this one too, however many there are: for what all others are made of.
    pub fn insert(&mut self, format: EncodingId, bytes: Bytes) {
        self.list.push((format, bytes));
    }

    /// Forgets them and keeps the room.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }
}

impl Delivery<'_> {
    /// The channel that it was published to, also where the subscription is to another one, by which it is heard.
    #[must_use]
    pub fn source(&self) -> &str {
        let among = self.info.and_then(|info| info.channel.as_deref());
        among.unwrap_or(self.channel)
    }
}

/// What a subscriber is given: borrowed for the call.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// The channel; `#user` when it came by the personal one.
    pub channel: &'a str,
    /// What was published.
    pub payload: PayloadRef<'a>,
    /// Its place, where the channel remembers.
    pub position: Option<Position>,
    /// When its home took it, in milliseconds since 1970.
    pub at_ms: u64,
    /// What it tells.
    pub event: FeedEvent,
    /// What is said of it beside its payload.
    pub info: Option<&'a PublicationInfo>,
    /// What was published before, where it may be told as what has changed since: subscribers who were given the one
    /// with the position before this one have that.
    pub previous: Option<PayloadRef<'a>>,
    /// The encodings made so far. For an only receiver it does not pay to add one: encode
    /// straight into the outbox.
    pub encodings: &'a mut Encodings,
    /// How many sessions of this worker get this publication, this one included.
    pub receivers: u32,
    /// Whoever reads too slowly misses it.
    pub drop_when_slow: bool,
}
