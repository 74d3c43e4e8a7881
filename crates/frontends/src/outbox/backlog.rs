//! What waits for a client that reads too slowly and may lose some of it: whole messages that have not begun to go out.
//!
//! Where a route says `outbox_full = "drop_oldest"` or `"latest"`, publications are kept here while the transport has
//! unsent bytes, and written when it has none. So what is dropped is never half on its way, and never an answer or a
//! control frame: those are written at once, past all that waits. Where the policy is `disconnect` none of this is
//! touched.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use veche_hub::{ConnectionId, Delivery, EncodingId, PayloadKind};
use veche_proto::websocket::{self, Encoder, MessageKind, Role};

use super::{DropPolicy, Outboxes};

/// Frames and payloads as they are, among the formats that a publication is encoded in once.
const FRAME: EncodingId = EncodingId(u32::MAX - 2);
const PAYLOAD: EncodingId = EncodingId(u32::MAX - 3);

/// So many bytes are written at a time: the rest can still be dropped.
const WRITTEN_BYTES_MAX: usize = 64 << 10;

/// What waits for one client.
#[derive(Debug, Default)]
struct Backlog {
    waiting: VecDeque<QueuedMessage>,
    bytes: usize,
}

/// A message that waits.
#[derive(Debug)]
struct QueuedMessage {
    content: QueuedContent,
    /// Of its payload, before compression.
    payload_bytes: u32,
    /// Of a publication that a later one of its channel replaces.
    channel: Option<Box<str>>,
    /// Of an application, which has been told that it is on its way.
    is_undroppable: bool,
}

/// Shared with all that wait for the same message, as far as that is possible.
#[derive(Debug)]
enum QueuedContent {
    /// A whole frame.
    Frame(Bytes),
    /// What has to be compressed in the order in which it is sent.
    Payload(MessageKind, Bytes),
}

impl QueuedMessage {
    /// What it costs: bytes that are shared count for each who waits for them.
    fn bytes(&self) -> usize {
        let content = match &self.content {
            QueuedContent::Frame(bytes) | QueuedContent::Payload(_, bytes) => bytes.len(),
        };
        content + size_of::<Self>()
    }
}

impl Backlog {
    fn push(&mut self, waiting: QueuedMessage) {
        self.bytes += waiting.bytes();
        self.waiting.push_back(waiting);
    }

    fn pop(&mut self) -> Option<QueuedMessage> {
        let waiting = self.waiting.pop_front()?;
        self.bytes -= waiting.bytes();
        Some(waiting)
    }

    /// Drops the oldest message that may be dropped; whether there was one.
    fn drop_oldest(&mut self) -> bool {
        self.remove(|waiting| !waiting.is_undroppable)
    }

    /// Drops what waits for the same channel; whether there was something.
    fn drop_same_channel(&mut self, channel: &str) -> bool {
        self.remove(|waiting| waiting.channel.as_deref() == Some(channel))
    }

    fn remove(&mut self, which: impl Fn(&QueuedMessage) -> bool) -> bool {
        let Some(at) = self.waiting.iter().position(which) else {
            return false;
        };
        if let Some(waiting) = self.waiting.remove(at) {
            self.bytes -= waiting.bytes();
        }
        true
    }
}

/// The backlogs of one worker, by the index of their sessions; there is none that is empty.
#[derive(Debug, Default)]
pub(super) struct Backlogs {
    by_index: HashMap<u32, Backlog>,
    /// Those of which no event of the transport may tell that there is room: they are looked at after the flush.
    unflushed: Vec<ConnectionId>,
    dropped: Dropped,
}

/// Publications not delivered to slow clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The oldest, for want of room.
    pub oldest: u64,
    /// Replaced by a later one of their channel.
    pub replaced: u64,
    /// Of channels whose namespace would rather have them missed.
    pub missed: u64,
}

impl Backlogs {
    pub(super) fn bytes(&self, index: u32) -> usize {
        // The table is empty most of the time.
        match self.by_index.is_empty() {
            true => 0,
            false => self.by_index.get(&index).map_or(0, |backlog| backlog.bytes),
        }
    }

    /// Somebody goes without a publication whose namespace would have it so.
    pub(super) fn note_missed(&mut self) {
        self.dropped.missed += 1;
    }

    /// How many there are, and how many are to be looked at.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.by_index.len(), self.unflushed.len())
    }

    pub(super) fn forget(&mut self, index: u32) {
        self.by_index.remove(&index);
    }
}

impl Outboxes {
    /// Writes a publication for a client that may lose some, or lets it wait.
    pub(super) fn deliver_lossy(
        &mut self,
        session: ConnectionId,
        keeping: DropPolicy,
        delivery: &mut Delivery<'_>,
    ) {
        let bytes = delivery.payload.bytes;
        let kind = match delivery.payload.kind {
            PayloadKind::Text | PayloadKind::Json => MessageKind::Text,
            PayloadKind::Binary => MessageKind::Binary,
        };
        if self.may_write_now(session, bytes.len()) {
            return self.message(session, kind, bytes);
        }
        let agreed = self.of(session).deflate;
        let key = agreed.map(|agreed| agreed.sharing_key(Role::Server));
        let codecs = &mut self.codecs;
        let encodings = &mut delivery.encodings;
        let content = match (agreed, key) {
            (Some(agreed), Some(Some(key))) => {
                QueuedContent::Frame(encodings.find_or_encode(EncodingId(u32::from(key)), || {
                    let mut frame = Vec::new();
                    Encoder::new(Role::Server, Some(agreed))
                        .encode(&mut frame, kind, bytes, codecs, None);
                    Bytes::from(frame)
                }))
            }
            (Some(_), _) => QueuedContent::Payload(
                kind,
                encodings.find_or_encode(PAYLOAD, || Bytes::copy_from_slice(bytes)),
            ),
            (None, _) => QueuedContent::Frame(encodings.find_or_encode(FRAME, || {
                let mut frame = Vec::with_capacity(bytes.len() + 10);
                websocket::encode_message(&mut frame, kind, bytes, None);
                Bytes::from(frame)
            })),
        };
        let waiting = QueuedMessage {
            content,
            payload_bytes: bytes.len() as u32,
            channel: (keeping == DropPolicy::KeepLatestPerChannel)
                .then(|| delivery.source().into()),
            is_undroppable: false,
        };
        self.enqueue(session, waiting);
    }

    /// Lets a message of an application wait behind what waits already; `false` if nothing does, so it may be written.
    pub(super) fn enqueue_behind(
        &mut self,
        session: ConnectionId,
        kind: MessageKind,
        data: &[u8],
    ) -> bool {
        if self.backlogs.bytes(session.index) == 0 {
            return false;
        }
        let waiting = QueuedMessage {
            content: QueuedContent::Payload(kind, Bytes::copy_from_slice(data)),
            payload_bytes: data.len() as u32,
            channel: None,
            is_undroppable: true,
        };
        self.enqueue(session, waiting);
        true
    }

    /// Makes room for `more` bytes behind what waits, as far as that can be dropped; whether there is.
    pub(super) fn make_room(&mut self, session: ConnectionId, more: usize) -> bool {
        let queued = self.of(session).queued();
        let max = self.outbox_bytes_max;
        let Some(backlog) = self.backlogs.by_index.get_mut(&session.index) else {
            return queued == 0 || queued + more <= max;
        };
        while queued + backlog.bytes + more > max {
            if !backlog.drop_oldest() {
                return false;
            }
            self.backlogs.dropped.oldest += 1;
        }
        true
    }

    /// Nothing of the client's is unsent, nothing waits, and what is written in this turn is not much.
    fn may_write_now(&self, session: ConnectionId, bytes: usize) -> bool {
        let outbox = self.of(session);
        let high = WRITTEN_BYTES_MAX.min(self.outbox_bytes_max / 2);
        outbox.unsent == 0
            && (outbox.buffer.is_empty() || outbox.buffer.len() + bytes <= high)
            && self.backlogs.bytes(session.index) == 0
    }

    fn enqueue(&mut self, session: ConnectionId, waiting: QueuedMessage) {
        let outbox = self.of(session);
        let (queued, is_watched) = (outbox.queued(), outbox.unsent > 0);
        let max = self.outbox_bytes_max;
        let Backlogs {
            by_index: of,
            unflushed: unwatched,
            dropped,
        } = &mut self.backlogs;
        let backlog = of.entry(session.index).or_default();
        if backlog.waiting.is_empty() && !is_watched {
            unwatched.push(session);
        }
        if let Some(channel) = &waiting.channel
            && backlog.drop_same_channel(channel)
        {
            dropped.replaced += 1;
        }
        // The newest has a place, whatever is on its way before it.
        while queued + backlog.bytes + waiting.bytes() > max && backlog.drop_oldest() {
            dropped.oldest += 1;
        }
        backlog.push(waiting);
    }

    /// The transport has told what is unsent: if that is nothing, what waits is written, a part at a time.
    pub(super) fn continue_backlog(&mut self, session: ConnectionId) {
        if self.of(session).unsent > 0 || self.backlogs.bytes(session.index) == 0 {
            return;
        }
        let high = WRITTEN_BYTES_MAX.min(self.outbox_bytes_max / 2);
        self.write_backlog(session, high);
        if self.backlogs.bytes(session.index) > 0 {
            self.backlogs.unflushed.push(session);
        }
    }

    /// Writes what waits until `high` bytes are written, one message at least.
    pub(super) fn write_backlog(&mut self, session: ConnectionId, high: usize) {
        let Some(mut backlog) = self.backlogs.by_index.remove(&session.index) else {
            return;
        };
        while let Some(waiting) = backlog.pop() {
            match waiting.content {
                QueuedContent::Payload(kind, data) => self.message(session, kind, &data),
                QueuedContent::Frame(frame) => {
                    self.access_log
                        .message_sent(session, waiting.payload_bytes as usize);
                    self.sent.messages += 1;
                    self.sent.bytes += u64::from(waiting.payload_bytes);
                    self.boxes[session.index as usize].messaged_ms = self.now_ms;
                    self.buffer(session).extend_from_slice(&frame);
                }
            }
            if self.of(session).buffer.len() >= high {
                break;
            }
        }
        if !backlog.waiting.is_empty() {
            self.backlogs.by_index.insert(session.index, backlog);
        }
    }

    /// After a flush: what waited only for the turn's own bytes is written, if the transport took them. Whether anything
    /// was, and is to be flushed.
    pub fn settle_backlogs(&mut self) -> bool {
        if self.backlogs.unflushed.is_empty() {
            return false;
        }
        let mut wrote = false;
        for session in std::mem::take(&mut self.backlogs.unflushed) {
            let Some(outbox) = self.find(session).filter(|outbox| outbox.unsent == 0) else {
                // Gone, or the transport will tell.
                continue;
            };
            if outbox.buffer.is_empty() {
                self.continue_backlog(session);
                wrote = true;
            } else {
                // Held back until its registration is answered.
                self.backlogs.unflushed.push(session);
            }
        }
        wrote
    }

    /// Publications dropped since the last call.
    pub fn take_dropped(&mut self) -> Dropped {
        std::mem::take(&mut self.backlogs.dropped)
    }

    /// Bytes that wait behind what is written.
    #[cfg(test)]
    pub(super) fn backlog_bytes(&self, session: ConnectionId) -> usize {
        self.backlogs.bytes(session.index)
    }
}
