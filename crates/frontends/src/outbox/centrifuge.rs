//! Publications to clients of Centrifugo's protocol: a push each, encoded once for all receivers of one encoding.

use std::collections::HashMap;

use bytes::Bytes;
use veche_centrifuge::{Encoding, Push, PushBody};
use veche_hub::{Delivery, Event, Format, SessionId};

use super::{Carried, Outboxes, Pushes};
use crate::centrifuge::{kind, writing};

/// A push among the formats that a publication is encoded in once, by encoding.
const JSON: Format = Format(u32::MAX - 5);
const PROTOBUF: Format = Format(u32::MAX - 6);
/// Their frames; the lower bits say how they are compressed.
const FORM_JSON: u32 = 2 << 16;
const FORM_PROTOBUF: u32 = 3 << 16;

/// What is kept of the sessions that speak the protocol, beside their outboxes. All by the index of the session.
#[derive(Default)]
pub(super) struct Sides {
    /// Pushes that came before the connection was told to which channels it is subscribed.
    early: HashMap<u32, Vec<u8>>,
    /// Channels of which the client wants to know who comes and goes.
    watched: HashMap<u32, Vec<Box<str>>>,
}

impl Sides {
    pub(super) fn forget(&mut self, index: u32) {
        // Most workers have none.
        if !self.early.is_empty() {
            self.early.remove(&index);
        }
        if !self.watched.is_empty() {
            self.watched.remove(&index);
        }
    }
}

impl Outboxes {
    /// From now on what is published to the session waits for [`Outboxes::begin_pushes`].
    pub(crate) fn gather_pushes(&mut self, id: SessionId, encoding: Encoding) {
        self.sides.early.insert(id.index, Vec::new());
        self.of_mut(id).pushes = Pushes::Centrifuge(encoding, Stage::Early);
    }

    /// The client has been told of its channels: what waited follows, and all that comes.
    pub(crate) fn begin_pushes(&mut self, id: SessionId) {
        let Pushes::Centrifuge(encoding, Stage::Early) = self.of(id).pushes else {
            return;
        };
        self.of_mut(id).pushes = Pushes::Centrifuge(encoding, Stage::Live);
        let early = self.sides.early.remove(&id.index).unwrap_or_default();
        if !early.is_empty() {
            self.message(id, kind(encoding), &early);
        }
    }

    /// Whether the client is told who comes and goes in a channel.
    pub(crate) fn watch(&mut self, id: SessionId, channel: &str, is_watched: bool) {
        let watched = &mut self.sides.watched;
        if is_watched {
            watched.entry(id.index).or_default().push(channel.into());
        } else if let Some(channels) = watched.get_mut(&id.index) {
            channels.retain(|one| **one != *channel);
            if channels.is_empty() {
                watched.remove(&id.index);
            }
        }
    }

    /// Whether the session was to get what its client can't read.
    pub(crate) fn is_misfit(&self, id: SessionId) -> bool {
        self.of(id).misfit
    }

    /// How many bytes of publications an outbox may hold.
    pub(crate) fn outbox_bytes_max(&self) -> usize {
        self.outbox_bytes_max
    }

    pub(super) fn deliver_centrifuge(
        &mut self,
        session: SessionId,
        encoding: Encoding,
        stage: Stage,
        delivery: &mut Delivery<'_>,
    ) {
        if delivery.event != Event::Published {
            let channels = self.sides.watched.get(&session.index);
            let mut channels = channels.into_iter().flatten();
            if !channels.any(|channel| **channel == *delivery.channel) {
                return;
            }
        }
        let format = match encoding {
            Encoding::Json => JSON,
            Encoding::Protobuf => PROTOBUF,
        };
        let push = match delivery.encodings.find(format) {
            Some(push) => push.clone(),
            None => {
                let push = push(encoding, delivery);
                self.pushes_encoded += 1;
                delivery.encodings.find_or_encode(format, || push)
            }
        };
        if push.is_empty() {
            self.of_mut(session).misfit = true;
            return self.overflow(session);
        }
        if stage == Stage::Early {
            return self.keep_early(session, encoding, &push);
        }
        if self.has_room(session, push.len()) {
            if self.of(session).carried != Carried::Frames {
                return self.carry(session, &push);
            }
            let form = match encoding {
                Encoding::Json => FORM_JSON,
                Encoding::Protobuf => FORM_PROTOBUF,
            };
            self.frame(session, kind(encoding), &push, form, delivery.encodings);
        }
    }

    fn keep_early(&mut self, session: SessionId, encoding: Encoding, push: &[u8]) {
        let bytes_max = self.outbox_bytes_max;
        let early = self.sides.early.entry(session.index).or_default();
        if !early.is_empty() && early.len() + push.len() > bytes_max {
            return self.overflow(session);
        }
        if encoding == Encoding::Json && !early.is_empty() {
            early.push(b'\n');
        }
        early.extend_from_slice(push);
    }

    /// How many pushes have been encoded, of all that were written.
    pub fn pushes_encoded(&self) -> u64 {
        self.pushes_encoded
    }
}

/// Whether a session has been told of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Early,
    Live,
}

/// Nothing for what can't be told in this encoding.
fn push(encoding: Encoding, delivery: &Delivery<'_>) -> Bytes {
    let tags = writing::tags(delivery.info);
    let client = delivery.info.and_then(|info| info.client.as_deref());
    let body = match (delivery.event, client) {
        (Event::Joined, Some(client)) => PushBody::Join(writing::client(client)),
        (Event::Left, Some(client)) => PushBody::Leave(writing::client(client)),
        _ => PushBody::Publication(writing::publication(
            delivery.payload,
            delivery.position,
            delivery.info,
            &tags,
        )),
    };
    let push = Push {
        channel: delivery.channel,
        body,
    };
    let mut out = Vec::with_capacity(delivery.payload.bytes.len() + delivery.channel.len() + 64);
    match encoding.write_push(&mut out, &push) {
        Ok(()) => Bytes::from(out),
        Err(_) => Bytes::new(),
    }
}
