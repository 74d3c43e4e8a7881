//! Publications to clients of Centrifugo's protocol: a push each, encoded once for all receivers of one encoding.

use std::collections::HashMap;

use bytes::Bytes;
use veche_centrifuge::{Encoding, Push, PushBody};
use veche_hub::{Delivery, Event, Format, Position, SessionId};

use super::marks::AllMarks;
use super::{Carried, Outboxes, Pushes, events};
use crate::centrifuge::{Dialect, kind, writing};

/// What a publication is encoded in once for all clients of one dialect.
struct Forms {
    /// A push.
    push: Format,
    /// The same as a server-sent event, but for its id.
    event: Format,
    /// Frames with it; the lower bits say how they are compressed.
    frame: u32,
}

fn forms(dialect: Dialect) -> Forms {
    let (place, frame) = match (dialect.encoding, dialect.is_one_way) {
        (Encoding::Json, false) => (5, 2),
        (Encoding::Protobuf, false) => (6, 3),
        (Encoding::Json, true) => (7, 4),
        (Encoding::Protobuf, true) => (8, 5),
    };
    Forms {
        push: Format(u32::MAX - place),
        event: Format(u32::MAX - 4 - place),
        frame: frame << 16,
    }
}

/// What is kept of the sessions that speak the protocol, beside their outboxes. All by the index of the session.
#[derive(Default)]
pub(super) struct Sides {
    /// Pushes that came before the connection was told to which channels it is subscribed.
    early: HashMap<u32, Vec<u8>>,
    /// The same for clients that get each in a message of its own.
    early_singles: HashMap<u32, Singles>,
    pub(super) marks: AllMarks,
    /// Channels of which the client wants to know who comes and goes.
    watched: HashMap<u32, Vec<Box<str>>>,
}

/// Pushes that wait.
#[derive(Default)]
struct Singles {
    all: Vec<Single>,
    bytes: usize,
}

struct Single {
    push: Bytes,
    /// Where its channel is then.
    place: Option<(Box<str>, Position)>,
}

impl Sides {
    pub(super) fn forget(&mut self, index: u32) {
        // Most workers have none.
        if !self.early.is_empty() {
            self.early.remove(&index);
        }
        if !self.early_singles.is_empty() {
            self.early_singles.remove(&index);
        }
        self.marks.forget(index);
        if !self.watched.is_empty() {
            self.watched.remove(&index);
        }
    }
}

impl Outboxes {
    /// From now on what is published to the session waits for [`Outboxes::begin_pushes`].
    pub(crate) fn gather_pushes(&mut self, id: SessionId, dialect: Dialect) {
        if dialect.is_one_way && matches!(self.of(id).carried, Carried::Events { .. }) {
            self.sides.marks.begin(id.index);
        }
        self.of_mut(id).pushes = Pushes::Centrifuge(dialect, Stage::Early);
    }

    /// The client has been told of its channels: what waited follows, and all that comes.
    pub(crate) fn begin_pushes(&mut self, id: SessionId) {
        let Pushes::Centrifuge(dialect, Stage::Early) = self.of(id).pushes else {
            return;
        };
        self.of_mut(id).pushes = Pushes::Centrifuge(dialect, Stage::Live);
        let kind = kind(dialect.encoding);
        let early = self.sides.early.remove(&id.index).unwrap_or_default();
        if !early.is_empty() {
            self.message(id, kind, &early);
        }
        let singles = self.sides.early_singles.remove(&id.index);
        for Single { push, place } in singles.unwrap_or_default().all {
            if let Some((channel, position)) = place {
                let marks = &mut self.sides.marks;
                marks.advance(id.index, &channel, Some(position));
            }
            self.message(id, kind, &push);
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
        dialect: Dialect,
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
        let forms = forms(dialect);
        let push = match delivery.encodings.find(forms.push) {
            Some(push) => push.clone(),
            None => {
                let push = push(dialect, delivery);
                self.pushes_encoded += 1;
                delivery.encodings.find_or_encode(forms.push, || push)
            }
        };
        if push.is_empty() {
            self.of_mut(session).misfit = true;
            return self.overflow(session);
        }
        if stage == Stage::Early {
            return self.keep_early(session, dialect, push, delivery);
        }
        if !self.has_room(session, push.len()) {
            return;
        }
        match self.of(session).carried {
            Carried::Frames => {
                let kind = kind(dialect.encoding);
                self.frame(session, kind, &push, forms.frame, delivery.encodings);
            }
            Carried::Events { .. } => {
                let event = delivery.encodings.find_or_encode(forms.event, || {
                    let mut event = Vec::with_capacity(push.len() + 16);
                    events::encode(&mut event, &push);
                    Bytes::from(event)
                });
                let marks = &mut self.sides.marks;
                marks.advance(session.index, delivery.channel, delivery.position);
                self.carry_event(session, &event);
            }
            Carried::Lines { .. } | Carried::Bytes { .. } => self.carry(session, &push),
        }
    }

    fn keep_early(
        &mut self,
        session: SessionId,
        dialect: Dialect,
        push: Bytes,
        delivery: &Delivery<'_>,
    ) {
        let bytes_max = self.outbox_bytes_max;
        let waiting = match dialect.is_single() {
            true => self
                .sides
                .early_singles
                .get(&session.index)
                .map_or(0, |early| early.bytes),
            false => self.sides.early.get(&session.index).map_or(0, Vec::len),
        };
        if delivery.slow_miss && waiting > 0 && waiting + push.len() > bytes_max / 2 {
            return self.miss(session);
        }
        if dialect.is_single() {
            let early = self.sides.early_singles.entry(session.index).or_default();
            if early.bytes > 0 && early.bytes + push.len() > bytes_max {
                return self.overflow(session);
            }
            early.bytes += push.len();
            let place = delivery.position.map(|at| (delivery.channel.into(), at));
            return early.all.push(Single { push, place });
        }
        let early = self.sides.early.entry(session.index).or_default();
        if !early.is_empty() && early.len() + push.len() > bytes_max {
            return self.overflow(session);
        }
        if dialect.encoding == Encoding::Json && !early.is_empty() {
            early.push(b'\n');
        }
        early.extend_from_slice(&push);
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
fn push(dialect: Dialect, delivery: &Delivery<'_>) -> Bytes {
    let tags = writing::tags(delivery.info);
    let quoted = writing::quoted(delivery.payload, dialect.encoding);
    let payload = quoted.as_deref().map_or(delivery.payload, writing::as_json);
    let client = delivery.info.and_then(|info| info.client.as_deref());
    let body = match (delivery.event, client) {
        (Event::Joined, Some(client)) => PushBody::Join(writing::client(client)),
        (Event::Left, Some(client)) => PushBody::Leave(writing::client(client)),
        _ => PushBody::Publication(writing::publication(
            payload,
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
    match dialect.write_push(&mut out, &push) {
        Ok(()) => Bytes::from(out),
        Err(_) => Bytes::new(),
    }
}
