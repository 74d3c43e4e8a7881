//! The output of connections, with limits and back pressure.
//!
//! An [`Outbox`] collects the output of one turn for one connection. The worker passes it to the
//! transport once, at the end of the turn. Outboxes are separate from connections, so that a
//! publication can be written to any outbox while another connection is being processed. Outboxes
//! do not access sockets: the worker reports how many bytes are unsent.

pub mod access_log_buffer;
mod backlog;
pub(crate) mod cursors;
pub(crate) mod delivery_mode;
mod events;
mod framing;
mod gauges;
mod masks;
mod parts;
mod pool;
mod positions;
mod pushes;
mod sending;
mod subscription_options;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{ConnectionId, Delivery, EncodingId, Encodings, FeedEvent, PayloadKind};
use veche_proto::websocket::deflate::DeflateParams;
use veche_proto::websocket::{self, Codecs, DeflateBudget, Encoder, MessageKind, Opcode, Role};

use crate::outbox::access_log_buffer::AccessLogBuffer;
pub use crate::outbox::delivery_mode::{DeliveryMode, DropPolicy};
use crate::outbox::pool::BufferPool;
use backlog::Backlogs;
pub use backlog::Dropped;
pub(crate) use framing::MessageFraming;
pub use masks::FillRandom;
pub(crate) use masks::MaskSource;
pub(crate) use parts::PartialMessage;
pub(crate) use positions::{write_data, write_value};
pub(crate) use pushes::{MakeDelta, PushFormat};
pub use sending::SendResult;
pub(crate) use subscription_options::{
    DeltaState, PublicationFilter, PushForm, SubscriptionOptions,
};

/// Upper bound of the configured number of channels per client. It limits the length of
/// `Last-Event-ID` for server-sent events, which contains a position for each channel.
pub const CHANNELS_PER_CLIENT_MAX: usize = 1024;

/// Number of unsent bytes above which a connection's input is not processed: a client that sends requests must also
/// read the answers.
pub const ANSWERS_BYTES_HIGH: usize = 64 << 10;

/// Number of bytes of a long answer that are encoded at a time. The next bytes are encoded only
/// while at most [`ANSWERS_BYTES_HIGH`] bytes are unsent.
pub(crate) const SLICE_BYTES: usize = 32 << 10;

/// What happens to the transport once all output is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportEnd {
    /// The transport stays open.
    #[default]
    Open,
    /// After the queued output, FIN is sent. The connection then reads until the peer's FIN or a deadline.
    Shutdown,
    /// The transport is closed immediately; queued bytes are dropped.
    Abort,
}

/// Whether and how publications are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PushMode {
    /// Publications are not written. Either the session receives none, or there is no open session:
    /// the connection is at the HTTP stage, carries a back end's push lines, or is closing.
    #[default]
    Refused,
    /// Publications are written as WebSocket frames of an open session.
    Framed,
    /// Publications are written as WebSocket messages, each with the publication's position.
    Positioned,
    /// Publications are written as WebSocket frames; the client may lose some of them.
    Lossy(DropPolicy),
    /// Publications are written as server-sent events of a response, which is chunked or not.
    Events { is_chunked: bool },
    /// Publications are not written, because an outbound connection has no subscriptions.
    /// Applications can send messages.
    Client,
    /// Publications are written in the push format of the session's protocol.
    Encoded(pushes::FormatIndex, pushes::PushStage),
}

/// The output of one connection.
pub struct Outbox {
    /// Complete frames or response parts that were written in this turn and not yet passed to the transport.
    buffer: Vec<u8>,
    encoder: Encoder,
    generation: u32,
    /// When the last message was written: the low 32 bits of monotonic milliseconds.
    messaged_ms: u32,
    /// Number of bytes that the transport has taken but not sent.
    unsent: u32,
    deflate: Option<DeflateParams>,
    pushes: PushMode,
    end: TransportEnd,
    /// Whether output is held back until home workers have registered the session.
    corked: bool,
    touched: bool,
    /// Whether the application was notified that the outbox is full. Cleared when the outbox has room
    /// again.
    full: bool,
    /// Whether frames are masked, because the server is the client of an outbound connection.
    masked: bool,
    /// Whether the client has missed publications since its outbox was last empty.
    behind: bool,
    framing: MessageFraming,
}

const _: () = assert!(size_of::<Outbox>() <= 72);

impl Default for Outbox {
    fn default() -> Self {
        Self {
            buffer: Vec::new(),
            encoder: Encoder::new(Role::Server, None),
            generation: 0,
            messaged_ms: 0,
            unsent: 0,
            deflate: None,
            pushes: PushMode::Refused,
            end: TransportEnd::Open,
            corked: false,
            touched: false,
            full: false,
            masked: false,
            behind: false,
            framing: MessageFraming::Frames,
        }
    }
}

impl Outbox {
    /// Returns the number of unsent bytes, in the outbox and in the transport.
    pub fn queued(&self) -> usize {
        self.buffer.len() + self.unsent as usize
    }

    /// Returns the number of bytes not yet passed to the transport.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the time at which the last message was written: the low 32 bits of monotonic milliseconds.
    pub(crate) fn messaged_ms(&self) -> u32 {
        self.messaged_ms
    }

    /// Returns whether the transport may be closed: it is to be shut down, all output was sent, and
    /// no output will follow. Returns false while output of this turn waits for [`Outboxes::take`].
    pub fn is_over(&self) -> bool {
        self.end == TransportEnd::Shutdown && !self.touched && !self.corked && self.queued() == 0
    }
}

/// The outboxes of one worker.
pub struct Outboxes {
    boxes: Vec<Outbox>,
    touched: Vec<u32>,
    pool: BufferPool,
    codecs: Codecs,
    /// Sessions whose outbox overflowed in this turn; the worker closes them.
    overflowed: Vec<ConnectionId>,
    /// Sessions whose client began to miss publications in this turn.
    fallen_behind: Vec<ConnectionId>,
    /// Sessions whose outbox became full in this turn. They are checked after the turn's flush, which
    /// may make room in the outbox again.
    filled: Vec<ConnectionId>,
    /// Sessions whose full outbox has room again.
    drained: Vec<ConnectionId>,
    backlogs: Backlogs,
    push_state: pushes::PushState,
    pushes_encoded: u64,
    deltas_made: u64,
    outbox_bytes_max: usize,
    sent: SentCounts,
    now_ms: u32,
    pub(crate) masks: MaskSource,
    /// The access log. The outboxes keep it, since all output passes through them.
    pub access_log: AccessLogBuffer,
}

/// Numbers of messages written and of their payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentCounts {
    /// Number of written messages.
    pub messages: u64,
    /// Number of payload bytes before compression.
    pub bytes: u64,
}

impl Outboxes {
    /// Creates outboxes, each of which may hold `outbox_bytes_max` unsent bytes of publications.
    pub fn new(outbox_bytes_max: usize) -> Self {
        Self {
            boxes: Vec::new(),
            touched: Vec::new(),
            pool: BufferPool::default(),
            codecs: Codecs::default(),
            overflowed: Vec::new(),
            fallen_behind: Vec::new(),
            filled: Vec::new(),
            drained: Vec::new(),
            backlogs: Backlogs::default(),
            push_state: pushes::PushState::default(),
            pushes_encoded: 0,
            deltas_made: 0,
            outbox_bytes_max,
            sent: SentCounts::default(),
            now_ms: 0,
            masks: MaskSource::new(|_| {
                panic!("no random numbers available: connections to other servers can't be opened")
            }),
            access_log: AccessLogBuffer::default(),
        }
    }

    /// Sets the source of random bytes for the masks and handshake keys of outbound connections.
    #[must_use]
    pub fn with_random(self, random: FillRandom) -> Self {
        Self {
            masks: MaskSource::new(random),
            ..self
        }
    }

    /// Sets the memory budget for compression contexts that are kept between messages.
    pub(crate) fn set_context_budget(&mut self, budget: &Arc<DeflateBudget>) {
        self.codecs = Codecs::with_budget(Arc::clone(budget));
    }

    /// Returns the cost of compressing and inflating since the last call, in units of about 1 ns.
    pub(crate) fn take_codec_work(&mut self) -> u64 {
        self.codecs.take_work()
    }

    /// Releases a connection's compression context if it was not used since the last call. Has to be called at
    /// intervals.
    pub(crate) fn release_idle_context(&mut self, id: ConnectionId) {
        self.of_mut(id).encoder.release_idle_context();
    }

    /// Sets the time of the turn, in monotonic milliseconds.
    pub(crate) fn set_now_ms(&mut self, mono_ms: u64) {
        self.now_ms = mono_ms as u32;
    }

    /// Changes the maximum number of unsent bytes of publications per outbox, after a reload.
    pub fn set_outbox_bytes_max(&mut self, bytes: usize) {
        self.outbox_bytes_max = bytes;
    }

    /// Opens an empty outbox for a new connection.
    pub fn open(&mut self, id: ConnectionId) {
        let index = id.index as usize;
        if index >= self.boxes.len() {
            self.boxes.resize_with(index + 1, Outbox::default);
        }
        let touched = self.boxes[index].touched;
        self.boxes[index] = Outbox {
            generation: id.generation,
            touched,
            ..Outbox::default()
        };
    }

    /// Releases the outbox of a closed connection.
    pub fn close(&mut self, id: ConnectionId) {
        if let Some(outbox) = self.find(id) {
            let buffer = std::mem::take(&mut outbox.buffer);
            let touched = outbox.touched;
            // No connection has the generation `u32::MAX`, so late deliveries to this connection find no outbox.
            *outbox = Outbox {
                generation: u32::MAX,
                touched,
                ..Outbox::default()
            };
            self.backlogs.forget(id.index);
            self.push_state.forget(id.index);
            self.recycle(buffer);
        }
    }

    /// Returns the outbox of an open connection.
    ///
    /// # Panics
    /// If `id` is stale. Only the connection itself calls this, while it is open.
    pub fn of(&self, id: ConnectionId) -> &Outbox {
        let outbox = &self.boxes[id.index as usize];
        assert_eq!(
            outbox.generation, id.generation,
            "a connection must be open while its outbox is in use"
        );
        outbox
    }

    fn of_mut(&mut self, id: ConnectionId) -> &mut Outbox {
        let outbox = &mut self.boxes[id.index as usize];
        assert_eq!(
            outbox.generation, id.generation,
            "a connection must be open while its outbox is in use"
        );
        outbox
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Outbox> {
        self.boxes
            .get_mut(id.index as usize)
            .filter(|outbox| outbox.generation == id.generation)
    }

    /// Returns the buffer with this turn's output, to which more may be appended.
    pub fn buffer(&mut self, id: ConnectionId) -> &mut Vec<u8> {
        let index = id.index as usize;
        let outbox = &mut self.boxes[index];
        debug_assert_eq!(outbox.generation, id.generation);
        if !outbox.touched {
            outbox.touched = true;
            self.touched.push(id.index);
        }
        if outbox.buffer.capacity() == 0 {
            outbox.buffer = self.pool.take();
        }
        &mut self.boxes[index].buffer
    }

    /// Writes a reply or echo to the client. The message is written even if it exceeds the limit for publications.
    /// To bound such output, the connection stops reading input while too many bytes are unsent.
    pub fn message(&mut self, id: ConnectionId, kind: MessageKind, data: &[u8]) {
        self.sent.messages += 1;
        self.sent.bytes += data.len() as u64;
        self.access_log.message_sent(id, data.len());
        self.boxes[id.index as usize].messaged_ms = self.now_ms;
        if self.of(id).framing != MessageFraming::Frames {
            return self.write_framed(id, data);
        }
        let mask = self.mask(id);
        if self.of(id).deflate.is_none() {
            return websocket::encode_message(self.buffer(id), kind, data, mask);
        }
        self.buffer(id);
        let Self { boxes, codecs, .. } = self;
        let outbox = &mut boxes[id.index as usize];
        outbox
            .encoder
            .encode(&mut outbox.buffer, kind, data, codecs, mask);
    }

    /// Returns a masking key for the next frame; `None` if the connection does not mask its frames.
    #[inline]
    fn mask(&mut self, id: ConnectionId) -> Option<[u8; 4]> {
        let masked = self.boxes[id.index as usize].masked;
        masked.then(|| self.masks.bytes())
    }

    /// Begins the session of an outbound connection after its 101 was received.
    pub fn begin_client(&mut self, id: ConnectionId, agreed: Option<DeflateParams>) {
        let now_ms = self.now_ms;
        let outbox = self.of_mut(id);
        outbox.deflate = agreed;
        outbox.encoder = Encoder::new(Role::Client, agreed);
        outbox.pushes = PushMode::Client;
        outbox.masked = true;
        outbox.messaged_ms = now_ms;
    }

    /// Writes a ping or pong.
    pub(crate) fn control(&mut self, id: ConnectionId, opcode: Opcode, data: &[u8]) {
        let mask = self.mask(id);
        websocket::encode_control(self.buffer(id), opcode, data, mask);
    }

    /// Begins a session with WebSocket frames. From now on publications are written as `delivery_mode` specifies. All
    /// output, including the 101 response in the buffer, is held back until [`Outboxes::release`].
    pub fn begin_session(
        &mut self,
        id: ConnectionId,
        agreed: Option<DeflateParams>,
        delivery_mode: DeliveryMode,
    ) {
        let now_ms = self.now_ms;
        let outbox = self.of_mut(id);
        outbox.deflate = agreed;
        outbox.encoder = Encoder::new(Role::Server, agreed);
        outbox.pushes = match delivery_mode {
            DeliveryMode::Disabled => PushMode::Refused,
            DeliveryMode::Reliable => PushMode::Framed,
            DeliveryMode::Lossy(drop_policy) => PushMode::Lossy(drop_policy),
            DeliveryMode::WithPositions => PushMode::Positioned,
        };
        outbox.corked = true;
        outbox.messaged_ms = now_ms;
    }

    /// Sends the output that was held back until the session was registered.
    pub fn release(&mut self, id: ConnectionId) {
        self.of_mut(id).corked = false;
        self.buffer(id);
    }

    /// Drops the buffered output from the offset `from` on, because the session is not opened. The output before that
    /// offset is kept, since it may contain responses to earlier requests.
    pub fn discard_unsent(&mut self, id: ConnectionId, from: usize) {
        let outbox = self.of_mut(id);
        outbox.buffer.truncate(from);
        outbox.pushes = PushMode::Refused;
        outbox.corked = false;
        self.backlogs.forget(id.index);
    }

    /// Stops further publications to the connection; those already queued are sent.
    pub fn refuse_pushes(&mut self, id: ConnectionId) {
        let outbox = self.of_mut(id);
        if let PushMode::Lossy(_) = std::mem::take(&mut outbox.pushes) {
            self.write_backlog(id, usize::MAX);
        }
    }

    /// Sets what happens to the transport once all output is sent. An abort can't be replaced.
    pub fn finish(&mut self, id: ConnectionId, end: TransportEnd) {
        let outbox = self.of_mut(id);
        if outbox.end != TransportEnd::Abort {
            outbox.end = end;
        }
        self.buffer(id);
    }

    /// Sets the number of bytes that the transport has taken but not sent.
    pub fn set_unsent(&mut self, id: ConnectionId, unsent: usize) {
        if let Some(outbox) = self.find(id) {
            outbox.unsent = u32::try_from(unsent).unwrap_or(u32::MAX);
            outbox.behind &= unsent > 0;
            let is_full = outbox.full;
            if let PushMode::Lossy(_) = outbox.pushes {
                self.continue_backlog(id);
            }
            if is_full {
                self.note_room(id);
            }
        }
    }

    /// Returns whether the connection accepts publications or, if it is outbound, messages of its application.
    pub(crate) fn takes_publications(&self, id: ConnectionId) -> bool {
        self.of(id).pushes != PushMode::Refused
    }

    /// Marks a session as overflowed, at most once; the worker closes it in this turn.
    fn overflow(&mut self, session: ConnectionId) {
        self.boxes[session.index as usize].pushes = PushMode::Refused;
        self.backlogs.forget(session.index);
        self.push_state.forget_pushes(session.index);
        self.overflowed.push(session);
    }

    /// Writes a publication to a session's outbox. The publication is encoded once per format. If the outbox has no
    /// room for it, the session is marked as overflowed.
    pub fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        let bytes = delivery.payload.bytes;
        let Some(outbox) = self
            .find(session)
            .filter(|outbox| outbox.pushes != PushMode::Refused)
        else {
            return;
        };
        let pushes = outbox.pushes;
        if delivery.drop_when_slow && delivery.event == FeedEvent::Published {
            // Publications that may be missed use only half of the outbox. The other half is
            // reserved for those that must not be missed.
            let queued = outbox.queued();
            let is_late = queued > 0 && queued + bytes.len() > self.outbox_bytes_max / 2;
            if is_late && !matches!(pushes, PushMode::Lossy(_)) {
                return self.count_missed(session, delivery.channel);
            }
        }
        if let PushMode::Encoded(number, stage) = pushes {
            return self.deliver_encoded(session, number, stage, delivery);
        }
        if delivery.event != FeedEvent::Published {
            // Join and leave events are sent only by protocols with a push format.
            return;
        }
        if pushes != PushMode::Framed {
            if pushes == PushMode::Positioned {
                return self.deliver_positioned(session, delivery);
            }
            if let PushMode::Lossy(drop_policy) = pushes {
                return self.deliver_lossy(session, drop_policy, delivery);
            }
            if delivery.payload.kind == PayloadKind::Binary {
                // Server-sent events are text, so binary publications can't be sent.
                return;
            }
        }
        if !self.has_room(session, bytes.len()) {
            return;
        }
        let kind = delivery.payload.kind.message_kind();
        if let PushMode::Events { is_chunked } = pushes {
            return events::write(self.buffer(session), delivery, is_chunked);
        }
        self.frame(session, kind, bytes, 0, delivery.encodings);
    }

    /// Returns the number of unsent bytes of a connection.
    pub(crate) fn queued(&self, id: ConnectionId) -> usize {
        self.of(id).queued()
    }

    /// Records that a session's client misses a publication of this channel.
    fn count_missed(&mut self, session: ConnectionId, channel: &str) {
        self.push_state.missed(session.index, channel);
        self.backlogs.note_missed();
        let outbox = &mut self.boxes[session.index as usize];
        if !std::mem::replace(&mut outbox.behind, true) {
            self.fallen_behind.push(session);
        }
    }

    /// Returns whether a publication of this size fits into the outbox, and counts it if it does; otherwise marks the
    /// session as overflowed.
    #[inline]
    fn has_room(&mut self, session: ConnectionId, bytes: usize) -> bool {
        let max = self.outbox_bytes_max;
        let now_ms = self.now_ms;
        let outbox = &mut self.boxes[session.index as usize];
        let queued = outbox.queued();
        if queued > 0 && queued + bytes > max {
            self.overflow(session);
            return false;
        }
        outbox.messaged_ms = now_ms;
        self.sent.messages += 1;
        self.sent.bytes += bytes as u64;
        self.access_log.message_sent(session, bytes);
        true
    }

    /// Writes a frame that is shared by all receivers with the same compression. The key of the cached frame consists
    /// of `form`, which identifies the encoding of the publication, and of the compression.
    #[inline]
    fn frame(
        &mut self,
        session: ConnectionId,
        kind: MessageKind,
        bytes: &[u8],
        form: u32,
        encodings: &mut Encodings,
    ) {
        self.buffer(session);
        let Self { boxes, codecs, .. } = self;
        let outbox = &mut boxes[session.index as usize];
        match outbox.deflate {
            // An uncompressed frame is the payload after a header of 2 to 10 bytes, so caching it saves nothing.
            None => websocket::encode_message(&mut outbox.buffer, kind, bytes, None),
            Some(agreed) => match agreed.sharing_key(Role::Server) {
                // With context takeover, the compressed bytes differ for each receiver.
                None => drop(
                    outbox
                        .encoder
                        .encode(&mut outbox.buffer, kind, bytes, codecs, None),
                ),
                Some(key) => {
                    let frame = encodings.find_or_encode(EncodingId(u32::from(key) | form), || {
                        let mut frame = Vec::new();
                        Encoder::new(Role::Server, Some(agreed))
                            .encode(&mut frame, kind, bytes, codecs, None);
                        Bytes::from(frame)
                    });
                    outbox.buffer.extend_from_slice(&frame);
                }
            },
        }
    }

    /// Returns the numbers of messages and bytes written since the last call.
    pub fn take_sent(&mut self) -> SentCounts {
        std::mem::take(&mut self.sent)
    }

    /// Returns whether [`Outboxes::take_overflowed`] or [`Outboxes::take_fallen_behind`] has sessions to return.
    #[inline]
    pub fn has_slow(&self) -> bool {
        !self.overflowed.is_empty() || !self.fallen_behind.is_empty()
    }

    /// Appends to `into` the sessions whose outbox has overflowed since the last call.
    pub fn take_overflowed(&mut self, into: &mut Vec<ConnectionId>) {
        into.append(&mut self.overflowed);
    }

    /// Appends to `into` the sessions whose client has begun to miss publications since the last
    /// call.
    pub fn take_fallen_behind(&mut self, into: &mut Vec<ConnectionId>) {
        into.append(&mut self.fallen_behind);
    }

    /// Appends to `into` the index of each connection that was written to or ended since the last
    /// call, without duplicates. The worker flushes these connections.
    pub fn take_touched(&mut self, into: &mut Vec<u32>) {
        into.append(&mut self.touched);
    }

    /// Takes the output of a connection for its transport: the bytes to send, possibly none, and what happens to the
    /// transport afterwards. Returns `None` while the output is held back, unless the transport is aborted.
    // Called once per receiver of a publication. Inlining keeps the buffer in registers.
    #[inline]
    pub fn take(&mut self, index: u32) -> Option<(ConnectionId, Vec<u8>, TransportEnd)> {
        let outbox = &mut self.boxes[index as usize];
        outbox.touched = false;
        let id = ConnectionId {
            index,
            generation: outbox.generation,
        };
        if outbox.corked && outbox.end != TransportEnd::Abort {
            return None;
        }
        self.access_log.bytes_sent(id, outbox.buffer.len());
        Some((id, std::mem::take(&mut outbox.buffer), outbox.end))
    }

    /// Returns an empty buffer for output, which has to be returned with [`Outboxes::recycle`].
    pub fn spare(&mut self) -> Vec<u8> {
        self.pool.take()
    }

    /// Returns the number of spare buffers.
    pub fn spare_buffers(&self) -> usize {
        self.pool.spare()
    }

    /// Takes back a buffer after its content was sent.
    #[inline]
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.pool.give(buffer);
    }

    /// Frees memory that was not needed since the last call; returns whether the next call may free more.
    pub(crate) fn trim(&mut self) -> bool {
        self.codecs.trim();
        self.pool.trim()
    }

    /// Completes the access log entry of an answered request or ended session.
    pub(crate) fn end_entry(&mut self, id: ConnectionId, client: IpAddr) {
        let queued = self.find(id).map_or(0, |outbox| outbox.buffer.len());
        self.access_log.end(id, client, queued);
    }

    /// Writes a Close frame and stops publications to the connection.
    pub fn close_frame(&mut self, id: ConnectionId, code: Option<u16>, reason: &str) {
        self.refuse_pushes(id);
        self.access_log.closed(id, code);
        let mask = self.mask(id);
        websocket::encode_close(self.buffer(id), code, reason, mask);
    }
}

#[cfg(test)]
mod tests;
