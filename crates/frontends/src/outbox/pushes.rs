//! Publications in the push formats of client protocols, encoded once for all receivers of a
//! format.
//!
//! A protocol passes its format when a session begins to receive pushes; this module refers to no
//! format by name. The encoder of a format is called once per publication, not once per receiver.

use std::collections::HashMap;

use bytes::Bytes;
use veche_hub::{ConnectionId, Delivery, EncodingId, FeedEvent, PayloadRef, Position};
use veche_proto::websocket::MessageKind;

use super::cursors::WorkerCursors;
use super::subscription_options::{PushForm, SubscriptionOptionsMap};
use super::{MessageFraming, Outboxes, PushMode, events};

/// How pushes are encoded for one kind of client of a protocol. Each format is a `static`, so that formats can be
/// compared by address.
pub(crate) struct PushFormat {
    /// The kind of the WebSocket message that contains the push.
    pub(crate) kind: MessageKind,
    /// Whether each push is a message of its own; if not, queued pushes are sent as one message.
    pub(crate) is_single: bool,
    /// The bytes between two pushes of one message.
    pub(crate) separator: &'static [u8],
    /// Whether server-sent events contain the client's positions, for recovery.
    pub(crate) has_cursors: bool,
    pub(crate) whole_is_plain: bool,
    /// Encodes a publication or a join or leave event. For [`PushForm::Patch`], the third argument is the delta.
    pub(crate) encode: fn(&Delivery<'_>, PushForm, &[u8]) -> Bytes,
    /// Returns whether this payload can be sent as a delta and can be the base of a delta.
    pub(crate) has_deltas: fn(PayloadRef<'_>) -> bool,
    /// Computes the delta from the previous publication. Formats with the same function share its result. `None` if
    /// the format has no deltas.
    pub(crate) deltas: Option<&'static MakeDelta>,
}

/// Computes the delta of a publication; returns `None` if the delta is not shorter than the publication.
pub(crate) struct MakeDelta(pub(crate) fn(&Delivery<'_>) -> Option<Vec<u8>>);

/// The index of a format in the list of formats that a worker's sessions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FormatIndex(u8);

/// Number of values of [`PushForm`]: each format can encode a publication in each form.
const FORMS: u32 = 3;

/// The keys under which a publication's encodings in one format and form are cached.
struct EncodingKeys {
    push: EncodingId,
    /// The push as a server-sent event, without an event id.
    event: EncodingId,
    /// Base of the keys of frames with the push. The lower bits of such a key identify the compression.
    frame: u32,
}

impl EncodingKeys {
    fn of(number: FormatIndex, form: PushForm) -> Self {
        let place = u32::from(number.0) * FORMS + form as u32;
        Self {
            push: EncodingId(u32::MAX - 64 - 2 * place),
            event: EncodingId(u32::MAX - 65 - 2 * place),
            // Keys below `2 << 16` belong to frames of sessions without a push format: frames with plain
            // publications, and frames with publications and their positions.
            frame: (2 + place) << 16,
        }
    }

    /// Returns the key under which the delta from the previous publication is cached. An empty
    /// delta in the cache means that the whole publication is sent. `first` is the index of the
    /// first format that uses the same function for deltas.
    fn patch(first: usize) -> EncodingId {
        EncodingId(u32::MAX - 4096 - first as u32)
    }
}

/// The state of sessions with push formats that is stored outside of their outboxes, by session
/// index.
#[derive(Default)]
pub(super) struct PushState {
    formats: Vec<&'static PushFormat>,
    /// Pushes that wait for the session's first reply, and pushes and replies that wait while another message is
    /// written in parts.
    pub(super) early: HashMap<u32, Vec<u8>>,
    /// The waiting pushes of sessions whose format sends each push as a message of its own. All others are in
    /// `early`.
    early_singles: HashMap<u32, EarlyPushes>,
    pub(super) cursors: WorkerCursors,
    pub(super) subscriptions: SubscriptionOptionsMap,
}

/// The waiting pushes of one session.
#[derive(Default)]
struct EarlyPushes {
    all: Vec<EarlyPush>,
    bytes: usize,
}

struct EarlyPush {
    push: Bytes,
    /// The channel of the push, and the client's position in the channel after the push. `None` if the publication has
    /// no position.
    place: Option<(Box<str>, Position)>,
}

impl PushState {
    pub(super) fn format(&self, FormatIndex(number): FormatIndex) -> &'static PushFormat {
        self.formats[usize::from(number)]
    }

    fn number(&mut self, format: &'static PushFormat) -> FormatIndex {
        let known = self
            .formats
            .iter()
            .position(|one| std::ptr::eq(*one, format));
        let place = known.unwrap_or_else(|| {
            self.formats.push(format);
            self.formats.len() - 1
        });
        match u8::try_from(place) {
            Ok(number) => FormatIndex(number),
            Err(_) => unreachable!("a protocol can't have more than 256 formats"),
        }
    }

    /// Records that a client misses a publication, so that the next delta can't be applied and a whole publication is
    /// sent instead.
    pub(super) fn missed(&mut self, index: u32, channel: &str) {
        if let Some(options) = self.subscriptions.find(index, channel) {
            options.missed();
        }
    }

    /// Returns the number of sessions with waiting pushes.
    pub(super) fn sessions_with_early(&self) -> usize {
        self.early.len() + self.early_singles.len()
    }

    /// Returns the number of sessions with event ids plus the number of sessions with subscription
    /// options.
    pub(super) fn sessions_with_state(&self) -> usize {
        self.cursors.len() + self.subscriptions.len()
    }

    pub(super) fn forget(&mut self, index: u32) {
        self.forget_pushes(index);
        self.cursors.forget(index);
    }

    /// Drops the waiting pushes and the subscription options of a session. Its positions are kept for answers that
    /// are still to be written.
    pub(super) fn forget_pushes(&mut self, index: u32) {
        // The maps are usually empty, so their lookups are avoided.
        if !self.early.is_empty() {
            self.early.remove(&index);
        }
        if !self.early_singles.is_empty() {
            self.early_singles.remove(&index);
        }
        self.subscriptions.forget_all(index);
    }
}

impl Outboxes {
    /// Begins to receive publications for the session; the publications wait until
    /// [`Outboxes::begin_pushes`].
    pub(crate) fn gather_pushes(&mut self, id: ConnectionId, format: &'static PushFormat) {
        if format.has_cursors && matches!(self.of(id).framing, MessageFraming::Events { .. }) {
            self.push_state.cursors.begin(id.index);
        }
        let number = self.push_state.number(format);
        self.of_mut(id).pushes = PushMode::Encoded(number, PushStage::Early);
    }

    /// Writes the waiting pushes, after the session's first reply. Later pushes are written immediately.
    pub(crate) fn begin_pushes(&mut self, id: ConnectionId) {
        let PushMode::Encoded(number, PushStage::Early) = self.of(id).pushes else {
            return;
        };
        self.of_mut(id).pushes = PushMode::Encoded(number, PushStage::Live);
        let kind = self.push_state.format(number).kind;
        let early = self.push_state.early.remove(&id.index).unwrap_or_default();
        if !early.is_empty() {
            self.message(id, kind, &early);
        }
        let singles = self.push_state.early_singles.remove(&id.index);
        for EarlyPush { push, place } in singles.unwrap_or_default().all {
            if let Some((channel, position)) = place {
                let marks = &mut self.push_state.cursors;
                marks.advance(id.index, &channel, Some(position));
            }
            self.message(id, kind, &push);
        }
    }

    /// Returns the maximum number of unsent bytes of publications per outbox.
    pub(crate) fn outbox_bytes_max(&self) -> usize {
        self.outbox_bytes_max
    }

    pub(super) fn deliver_encoded(
        &mut self,
        session: ConnectionId,
        number: FormatIndex,
        stage: PushStage,
        delivery: &mut Delivery<'_>,
    ) {
        let mut form = match self
            .push_state
            .subscriptions
            .find(session.index, delivery.channel)
        {
            Some(options) => match options.form(delivery) {
                Some(form) => form,
                None => return,
            },
            None if delivery.event == FeedEvent::Published => PushForm::Plain,
            None => return,
        };
        let format = self.push_state.format(number);
        if form == PushForm::Whole && format.whole_is_plain {
            form = PushForm::Plain;
        }
        let mut patch = Bytes::new();
        if form == PushForm::Patch
            && delivery
                .encodings
                .find(EncodingKeys::of(number, form).push)
                .is_none()
        {
            patch = self.patch(format, delivery);
            if patch.is_empty() {
                form = match format.whole_is_plain {
                    true => PushForm::Plain,
                    false => PushForm::Whole,
                };
            }
        }
        let keys = EncodingKeys::of(number, form);
        let push = match delivery.encodings.find(keys.push) {
            Some(push) => push.clone(),
            None => {
                let push = (format.encode)(delivery, form, &patch);
                self.pushes_encoded += 1;
                delivery.encodings.find_or_encode(keys.push, || push)
            }
        };
        if stage == PushStage::Early {
            return self.store_early(session, format, push, delivery);
        }
        if !self.has_room(session, push.len()) {
            return;
        }
        match self.of(session).framing {
            MessageFraming::Frames => {
                self.frame(session, format.kind, &push, keys.frame, delivery.encodings);
            }
            MessageFraming::Events { .. } => {
                let event = delivery.encodings.find_or_encode(keys.event, || {
                    let mut event = Vec::with_capacity(push.len() + 16);
                    events::encode(&mut event, &push);
                    Bytes::from(event)
                });
                let marks = &mut self.push_state.cursors;
                marks.advance(session.index, delivery.channel, delivery.position);
                self.write_event(session, &event);
            }
            MessageFraming::Lines { .. }
            | MessageFraming::Bytes { .. }
            | MessageFraming::Behind => {
                self.write_framed(session, &push);
            }
        }
    }

    /// Returns the delta from the previous publication, or empty bytes if the whole publication has to be sent: the
    /// delta would not be shorter or can't be sent. The delta is computed once for all receivers.
    fn patch(&mut self, format: &'static PushFormat, delivery: &mut Delivery<'_>) -> Bytes {
        let both = [Some(delivery.payload), delivery.previous];
        let Some(patcher) = format.deltas else {
            return Bytes::new();
        };
        if !both.into_iter().flatten().all(format.has_deltas) {
            return Bytes::new();
        }
        let is_same = |one: &&PushFormat| one.deltas.is_some_and(|one| std::ptr::eq(one, patcher));
        let first = self.push_state.formats.iter().position(is_same);
        let key = EncodingKeys::patch(first.unwrap_or_default());
        if let Some(patch) = delivery.encodings.find(key) {
            return patch.clone();
        }
        self.deltas_made += 1;
        let patch = (patcher.0)(delivery).map_or_else(Bytes::new, Bytes::from);
        delivery.encodings.insert(key, patch.clone());
        patch
    }

    fn store_early(
        &mut self,
        session: ConnectionId,
        format: &'static PushFormat,
        push: Bytes,
        delivery: &Delivery<'_>,
    ) {
        let bytes_max = self.outbox_bytes_max;
        let waiting = match format.is_single {
            true => self
                .push_state
                .early_singles
                .get(&session.index)
                .map_or(0, |early| early.bytes),
            false => self
                .push_state
                .early
                .get(&session.index)
                .map_or(0, Vec::len),
        };
        if delivery.drop_when_slow && waiting > 0 && waiting + push.len() > bytes_max / 2 {
            return self.count_missed(session, delivery.channel);
        }
        if format.is_single {
            let early = self
                .push_state
                .early_singles
                .entry(session.index)
                .or_default();
            if early.bytes > 0 && early.bytes + push.len() > bytes_max {
                return self.overflow(session);
            }
            early.bytes += push.len();
            let place = delivery.position.map(|at| (delivery.channel.into(), at));
            return early.all.push(EarlyPush { push, place });
        }
        let early = self.push_state.early.entry(session.index).or_default();
        if !early.is_empty() && early.len() + push.len() > bytes_max {
            return self.overflow(session);
        }
        if !early.is_empty() {
            early.extend_from_slice(format.separator);
        }
        early.extend_from_slice(&push);
    }

    /// Returns the number of pushes encoded so far.
    pub fn pushes_encoded(&self) -> u64 {
        self.pushes_encoded
    }

    /// Returns the number of deltas computed so far.
    pub fn deltas_made(&self) -> u64 {
        self.deltas_made
    }
}

/// Whether a session's pushes wait (`Early`) or are written immediately (`Live`). They wait until the first reply of
/// the session is written, and while another message is written in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushStage {
    Early,
    Live,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Keys from this value on belong to encodings of other modules.
    const OTHERS_FROM: u32 = u32::MAX - 5;

    #[test]
    fn no_two_forms_share_an_encoding() {
        let forms = [PushForm::Plain, PushForm::Whole, PushForm::Patch];
        let all: Vec<EncodingKeys> = (0..=u8::MAX)
            .flat_map(|number| forms.map(|form| EncodingKeys::of(FormatIndex(number), form)))
            .collect();
        let patches = (0..=u8::MAX).map(|first| EncodingKeys::patch(first.into()).0);
        let pushes = all.iter().flat_map(|keys| [keys.push.0, keys.event.0]);
        let formats: HashSet<u32> = pushes.chain(patches).collect();
        assert_eq!(formats.len(), 2 * all.len() + 256);
        assert!(formats.iter().all(|format| *format < OTHERS_FROM));
        let frames: HashSet<u32> = all.iter().map(|keys| keys.frame).collect();
        assert_eq!(frames.len(), all.len());
        // Keys below `2 << 16` belong to frames that are in no push format, with or without
        // positions.
        assert!(
            frames
                .iter()
                .all(|frame| *frame >= 2 << 16 && frame.trailing_zeros() >= 16)
        );
        // The keys of pushes, events and deltas are above the keys of frames. The lower 16 bits of a
        // frame's key identify the compression.
        let highest = frames.iter().max().expect("some") | 0xffff;
        assert!(formats.iter().all(|format| *format > highest));
    }
}
