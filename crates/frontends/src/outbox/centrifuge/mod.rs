//! Publications to clients of Centrifugo's protocol: a push each, encoded once for all receivers of one encoding.

mod dialect;
pub(crate) mod forms;

use std::collections::HashMap;

use bytes::Bytes;
use veche_centrifuge::{Delta, Encoding, Publication, Push, PushBody, fossil_delta};
use veche_hub::{ConnectionId, Delivery, Event, Format, PayloadRef, Position};

use super::marks::AllMarks;
use super::wishes::{Form, Wish, Wishes};
use super::{Carried, Outboxes, Pushes, events};
pub(crate) use dialect::{Dialect, kind};

/// What a publication is encoded in once for all clients of one dialect.
struct Forms {
    /// A push.
    push: Format,
    /// The same as a server-sent event, but for its id.
    event: Format,
    /// Frames with it; the lower bits say how they are compressed.
    frame: u32,
}

/// What has changed since the publication before; nothing where that is no less.
const PATCH: Format = Format(u32::MAX - 5);

fn forms(dialect: Dialect, form: Form) -> Forms {
    // Only who subscribes by himself can agree on deltas. Whole data look the same in Protobuf, agreed or not.
    let place = match (dialect.encoding, dialect.is_one_way, form) {
        (Encoding::Json, false, Form::Plain) => 0,
        (Encoding::Protobuf, false, Form::Plain | Form::Whole) => 1,
        (Encoding::Json, true, _) => 2,
        (Encoding::Protobuf, true, _) => 3,
        (Encoding::Json, false, Form::Whole) => 4,
        (Encoding::Json, false, Form::Patch) => 5,
        (Encoding::Protobuf, false, Form::Patch) => 6,
    };
    Forms {
        push: Format(u32::MAX - 8 - place),
        event: Format(u32::MAX - 16 - place),
        frame: (2 + place) << 16,
    }
}

/// What is kept of the sessions that speak the protocol, beside their outboxes. All by the index of the session.
#[derive(Default)]
pub(super) struct Sides {
    /// Pushes that came before the connection was told to which channels it is subscribed, or while a message is written
    /// in parts; then replies, too.
    pub(super) early: HashMap<u32, Vec<u8>>,
    /// The same for clients that get each in a message of its own.
    early_singles: HashMap<u32, Singles>,
    pub(super) marks: AllMarks,
    wishes: Wishes,
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
    /// A client goes without a publication: it has not what the next delta is made from.
    pub(super) fn missed(&mut self, index: u32, channel: &str) {
        if let Some(wish) = self.wishes.find(index, channel) {
            wish.missed();
        }
    }

    /// Sessions for which pushes wait.
    pub(super) fn early(&self) -> usize {
        self.early.len() + self.early_singles.len()
    }

    /// Sessions of which something else is kept.
    pub(super) fn kept(&self) -> usize {
        self.marks.len() + self.wishes.len()
    }

    pub(super) fn forget(&mut self, index: u32) {
        self.forget_pushes(index);
        self.marks.forget(index);
    }

    /// Forgets waiting pushes and wishes. The marks stay for answers that are still written.
    pub(super) fn forget_pushes(&mut self, index: u32) {
        // Most workers have none.
        if !self.early.is_empty() {
            self.early.remove(&index);
        }
        if !self.early_singles.is_empty() {
            self.early_singles.remove(&index);
        }
        self.wishes.forget_all(index);
    }
}

impl Outboxes {
    /// From now on what is published to the session waits for [`Outboxes::begin_pushes`].
    pub(crate) fn gather_pushes(&mut self, id: ConnectionId, dialect: Dialect) {
        if dialect.is_one_way && matches!(self.of(id).carried, Carried::Events { .. }) {
            self.sides.marks.begin(id.index);
        }
        self.of_mut(id).pushes = Pushes::Centrifuge(dialect, Stage::Early);
    }

    /// The client has been told of its channels: what waited follows, and all that comes.
    pub(crate) fn begin_pushes(&mut self, id: ConnectionId) {
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

    /// How the client is told of a channel from now on; before anything of it is.
    pub(crate) fn wish(&mut self, id: ConnectionId, channel: &str, wish: Wish) {
        self.sides.wishes.set(id.index, channel, wish);
    }

    /// It is not subscribed to the channel any more.
    pub(crate) fn forget_wish(&mut self, id: ConnectionId, channel: &str) {
        self.sides.wishes.forget(id.index, channel);
    }

    /// How many bytes of publications an outbox may hold.
    pub(crate) fn outbox_bytes_max(&self) -> usize {
        self.outbox_bytes_max
    }

    pub(super) fn deliver_centrifuge(
        &mut self,
        session: ConnectionId,
        dialect: Dialect,
        stage: Stage,
        delivery: &mut Delivery<'_>,
    ) {
        let mut form = match self.sides.wishes.find(session.index, delivery.channel) {
            Some(wish) => match wish.form(delivery) {
                Some(form) => form,
                None => return,
            },
            None if delivery.event == Event::Published => Form::Plain,
            None => return,
        };
        let mut patch = Bytes::new();
        if form == Form::Patch {
            let both = [Some(delivery.payload), delivery.previous];
            let have_deltas =
                |payload: PayloadRef<'_>| forms::has_deltas(payload, dialect.encoding);
            if both.into_iter().flatten().all(have_deltas) {
                patch = self.patch(delivery);
            }
            if patch.is_empty() {
                form = Form::Whole;
            }
        }
        let forms = forms(dialect, form);
        let push = match delivery.encodings.find(forms.push) {
            Some(push) => push.clone(),
            None => {
                let push = push(dialect, form, &patch, delivery);
                self.pushes_encoded += 1;
                delivery.encodings.find_or_encode(forms.push, || push)
            }
        };
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
            Carried::Lines { .. } | Carried::Bytes { .. } | Carried::Behind => {
                self.carry(session, &push);
            }
        }
    }

    /// What has changed since the publication before, made once for all who are told that alone, in whatever encoding.
    /// Nothing where it is no less than the whole.
    fn patch(&mut self, delivery: &mut Delivery<'_>) -> Bytes {
        if let Some(patch) = delivery.encodings.find(PATCH) {
            return patch.clone();
        }
        self.deltas_made += 1;
        let new = forms::whole(delivery.payload);
        let previous = delivery.previous.map(forms::whole);
        let patch = previous.and_then(|previous| fossil_delta(&previous, &new));
        let patch = patch.map_or_else(Bytes::new, Bytes::from);
        delivery.encodings.keep(PATCH, patch.clone());
        patch
    }

    fn keep_early(
        &mut self,
        session: ConnectionId,
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
            return self.miss(session, delivery.channel);
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

    /// How many deltas have been made for those pushes.
    pub fn deltas_made(&self) -> u64 {
        self.deltas_made
    }
}

/// Whether a session has been told of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Early,
    Live,
}

fn push(dialect: Dialect, form: Form, patch: &[u8], delivery: &Delivery<'_>) -> Bytes {
    let tags = forms::tags(delivery.info);
    let quoted = forms::quoted(delivery.payload, dialect.encoding);
    let payload = quoted.as_deref().map_or(delivery.payload, forms::as_json);
    let client = delivery.info.and_then(|info| info.client.as_deref());
    let body = match (delivery.event, client) {
        (Event::Joined, Some(client)) => PushBody::Join(forms::client(client)),
        (Event::Left, Some(client)) => PushBody::Leave(forms::client(client)),
        _ => {
            let publication = forms::publication(payload, delivery.position, delivery.info, &tags);
            PushBody::Publication(match form {
                Form::Plain => publication,
                Form::Whole => Publication {
                    delta: Delta::Whole,
                    ..publication
                },
                Form::Patch => Publication {
                    delta: Delta::Patch,
                    data: forms::patch(patch),
                    ..publication
                },
            })
        }
    };
    let push = Push {
        channel: delivery.channel,
        body,
    };
    let mut out = Vec::with_capacity(delivery.payload.bytes.len() + delivery.channel.len() + 64);
    dialect.write_push(&mut out, &push);
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Formats from here on are those of other receivers, and of patches.
    const OTHERS_FROM: u32 = u32::MAX - 5;

    #[test]
    fn no_two_forms_share_an_encoding() {
        let dialects = [Encoding::Json, Encoding::Protobuf].map(|encoding| {
            let whole = [Form::Plain, Form::Whole, Form::Patch];
            whole.map(|form| forms(dialect(encoding, false), form))
        });
        let one_way = [Encoding::Json, Encoding::Protobuf]
            .map(|encoding| forms(dialect(encoding, true), Form::Plain));
        let all: Vec<Forms> = dialects.into_iter().flatten().chain(one_way).collect();
        // Plain and whole data are the same in Protobuf.
        let formats: HashSet<u32> = all
            .iter()
            .flat_map(|forms| [forms.push.0, forms.event.0])
            .collect();
        assert_eq!(formats.len(), 2 * 7);
        assert!(formats.iter().all(|format| *format < OTHERS_FROM));
        let frames: HashSet<u32> = all.iter().map(|forms| forms.frame).collect();
        assert_eq!(frames.len(), 7);
        // Below are the keys of plain publications and of those with places.
        assert!(
            frames
                .iter()
                .all(|frame| *frame >= 2 << 16 && frame.trailing_zeros() >= 16)
        );
    }

    fn dialect(encoding: Encoding, is_one_way: bool) -> Dialect {
        Dialect {
            encoding,
            is_one_way,
        }
    }
}
