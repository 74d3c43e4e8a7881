//! The backlog of a slow client that may lose publications: complete messages that are entirely
//! unsent.
//!
//! On routes with `outbox_full = "drop_oldest"` or `"latest"`, publications are queued here while
//! the transport has unsent bytes, and written to the outbox when it has none. A message is
//! therefore dropped as a whole. Answers and control frames are never dropped: they are written to
//! the outbox at once, ahead of the backlog. Routes with `outbox_full = "disconnect"` do not use
//! this module.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use veche_hub::{ConnectionId, Delivery, EncodingId};
use veche_proto::websocket::{self, Encoder, MessageKind, Role};

use super::{DropPolicy, Outboxes};

/// Key of an uncompressed frame in a publication's cache of encodings; [`PAYLOAD`] is the key of a
/// plain payload.
const FRAME: EncodingId = EncodingId(u32::MAX - 2);
const PAYLOAD: EncodingId = EncodingId(u32::MAX - 3);

/// Number of bytes in the outbox at which the rest of the backlog is no longer written to it. Messages that stay in
/// the backlog can still be dropped.
const WRITTEN_BYTES_MAX: usize = 64 << 10;

/// The backlog of one client.
#[derive(Debug, Default)]
struct Backlog {
    waiting: VecDeque<QueuedMessage>,
    bytes: usize,
}

#[derive(Debug)]
struct QueuedMessage {
    content: QueuedContent,
    /// Length of the payload in bytes, before compression.
    payload_bytes: u32,
    /// The channel of the publication, if the channel's next publication replaces this one;
    /// otherwise `None`.
    channel: Option<Box<str>>,
    /// Whether the message must not be dropped, because the application was already told that it
    /// will be sent.
    is_undroppable: bool,
}

/// The content of a queued message. Clients that wait for the same bytes share them.
#[derive(Debug)]
enum QueuedContent {
    Frame(Bytes),
    /// A payload that has to be compressed when it is written, since its compression depends on the messages before
    /// it.
    Payload(MessageKind, Bytes),
}

impl QueuedMessage {
    /// Returns the size of the message for the outbox limit. Shared bytes are counted for each client.
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

    /// Drops the oldest message that may be dropped; returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        self.remove(|waiting| !waiting.is_undroppable)
    }

    /// Drops the queued message of this channel; returns whether there was one.
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

/// The nonempty backlogs of one worker, by session index.
#[derive(Debug, Default)]
pub(super) struct Backlogs {
    by_index: HashMap<u32, Backlog>,
    /// Sessions that got a backlog while their transport had nothing unsent, so the transport may
    /// never report room. They are checked after each flush.
    unflushed: Vec<ConnectionId>,
    dropped: Dropped,
}

/// Numbers of publications that were not delivered to slow clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Number of publications dropped because they were the oldest in a full backlog.
    pub oldest: u64,
    /// Number of publications replaced by a later publication of the same channel.
    pub replaced: u64,
    /// Number of publications dropped because their namespace drops publications for slow clients.
    pub missed: u64,
}

impl Backlogs {
    pub(super) fn bytes(&self, index: u32) -> usize {
        // The map is usually empty, so its lookup is avoided.
        match self.by_index.is_empty() {
            true => 0,
            false => self.by_index.get(&index).map_or(0, |backlog| backlog.bytes),
        }
    }

    /// Counts a publication that was dropped because its namespace drops publications for slow
    /// clients.
    pub(super) fn note_missed(&mut self) {
        self.dropped.missed += 1;
    }

    /// Returns the number of backlogs, and the number of sessions to be checked after the flush.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.by_index.len(), self.unflushed.len())
    }

    pub(super) fn forget(&mut self, index: u32) {
        self.by_index.remove(&index);
    }
}

impl Outboxes {
    /// Writes or queues a publication for a client that may lose publications.
    pub(super) fn deliver_lossy(
        &mut self,
        session: ConnectionId,
        drop_policy: DropPolicy,
        delivery: &mut Delivery<'_>,
    ) {
        let bytes = delivery.payload.bytes;
        let kind = delivery.payload.kind.message_kind();
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
            channel: (drop_policy == DropPolicy::KeepLatestPerChannel)
                .then(|| delivery.source().into()),
            is_undroppable: false,
        };
        self.enqueue(session, waiting);
    }

    /// Queues a message of an application behind the backlog. If the backlog is empty, returns false without queueing the
    /// message, which the caller can write at once.
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

    /// Drops messages of the backlog until `more` bytes fit into the outbox limit; returns whether
    /// they fit.
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

    /// Returns whether a message may bypass the backlog. This requires that nothing is unsent or
    /// queued for the client, and that little was written in this turn.
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
        // The new message is queued even if it alone exceeds the limit.
        while queued + backlog.bytes + waiting.bytes() > max && backlog.drop_oldest() {
            dropped.oldest += 1;
        }
        backlog.push(waiting);
    }

    /// Writes the next part of the backlog if the transport has nothing unsent.
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

    /// Writes at least one queued message, and more messages until `high` bytes are in the outbox.
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

    /// Writes more of each backlog whose transport sent everything in the last flush, since such a transport
    /// does not report that it has room. Returns whether anything was written, so that another flush is needed.
    pub fn settle_backlogs(&mut self) -> bool {
        if self.backlogs.unflushed.is_empty() {
            return false;
        }
        let mut wrote = false;
        for session in std::mem::take(&mut self.backlogs.unflushed) {
            let Some(outbox) = self.find(session).filter(|outbox| outbox.unsent == 0) else {
                // The session was closed, or bytes are unsent and the transport will report when it has room.
                continue;
            };
            if outbox.buffer.is_empty() {
                self.continue_backlog(session);
                wrote = true;
            } else {
                // The outbox is not empty although the transport is idle, since its content is held
                // back until the session is registered.
                self.backlogs.unflushed.push(session);
            }
        }
        wrote
    }

    /// Returns how many publications were dropped since the last call.
    pub fn take_dropped(&mut self) -> Dropped {
        std::mem::take(&mut self.backlogs.dropped)
    }

    /// Returns the number of bytes in the backlog.
    #[cfg(test)]
    pub(super) fn backlog_bytes(&self, session: ConnectionId) -> usize {
        self.backlogs.bytes(session.index)
    }
}
