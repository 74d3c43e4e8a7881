//! What is published, and what is kept beside it while it fans out.
//!
//! The hub stores a payload as the publisher gave it and never looks inside; front ends derive
//! their encodings and leave them in [`Encodings`] for the next receiver.

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
    /// What was published before, if it goes out together with that.
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
    /// A copy to keep; the bytes are copied the first time only.
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

/// A payload that is copied only when somebody must keep it.
pub(crate) enum Source<'a> {
    Borrowed(PayloadRef<'a>),
    Kept(Payload),
}

impl<'a> Source<'a> {
    /// Another one of the same.
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

    /// A copy to keep; the bytes are copied the first time only.
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
    pub event: Event,
    /// What is said of it beside its payload.
    pub info: Option<Arc<Info>>,
}

/// What subscribers are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
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
pub struct Format(pub u32);

/// How many encodings one publication keeps. A format beyond that is encoded for each receiver.
pub const ENCODINGS_MAX: usize = 16;

/// A publication's encodings: each is made once per worker and shared by all receivers.
#[derive(Clone, Debug, Default)]
pub struct Encodings {
    made: Vec<(Format, Bytes)>,
}

impl Encodings {
    /// The encoding of this format, if somebody has made it.
    pub fn find(&self, format: Format) -> Option<&Bytes> {
        // A handful of entries: a walk beats any map.
        self.made
            .iter()
            .find(|(made, _)| *made == format)
            .map(|(_, bytes)| bytes)
    }

    /// The encoding of this format, made now if nobody has yet.
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

    /// Keeps this one too, however many there are: for what all others are made of.
    pub fn keep(&mut self, format: Format, bytes: Bytes) {
        self.made.push((format, bytes));
    }

    /// Forgets them and keeps the room.
    pub(crate) fn clear(&mut self) {
        self.made.clear();
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
    pub event: Event,
    /// What is said of it beside its payload.
    pub info: Option<&'a Info>,
    /// What was published before, where it may be told as what has changed since: subscribers who were given the one
    /// with the position before this one have that.
    pub previous: Option<PayloadRef<'a>>,
    /// The encodings made so far. For an only receiver it does not pay to add one: encode
    /// straight into the outbox.
    pub encodings: &'a mut Encodings,
    /// How many sessions of this worker get this publication, this one included.
    pub receivers: u32,
    /// Whoever reads too slowly misses it.
    pub slow_miss: bool,
}
