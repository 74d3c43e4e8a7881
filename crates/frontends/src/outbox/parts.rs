//! A long message that is written in parts as its client reads. Other messages to the client wait
//! until its last part is written.
//!
//! Only sessions with a push format have such messages. Publications that arrive while such a
//! message is written are queued with the same limit as publications that arrive before the reply
//! to a connect command.

use veche_hub::ConnectionId;
use veche_proto::websocket::{FragmentFlags, MessageKind};

use super::pushes::PushStage;
use super::{MessageFraming, Outboxes, PushMode};

/// A message that is being written in parts.
#[derive(Debug)]
pub(crate) struct PartialMessage {
    kind: MessageKind,
    /// The outbox's framing before this message; it is restored after the last part.
    carried: MessageFraming,
    is_first: bool,
}

impl Outboxes {
    /// Begins a message that is written in parts. Other messages to the session wait until it is complete.
    pub(crate) fn begin_parts(&mut self, id: ConnectionId, kind: MessageKind) -> PartialMessage {
        let outbox = self.of_mut(id);
        if let PushMode::Encoded(_, stage) = &mut outbox.pushes {
            *stage = PushStage::Early;
        }
        PartialMessage {
            kind,
            carried: std::mem::replace(&mut outbox.framing, MessageFraming::Behind),
            is_first: true,
        }
    }

    /// Writes the next part, which must not be empty. After the last part the waiting messages are written.
    pub(crate) fn part(
        &mut self,
        id: ConnectionId,
        message: &mut PartialMessage,
        data: &[u8],
        is_last: bool,
    ) {
        let is_first = std::mem::take(&mut message.is_first);
        self.sent.messages += u64::from(is_first);
        self.sent.bytes += data.len() as u64;
        if is_first {
            self.access_log.message_sent(id, data.len());
        } else {
            self.access_log.message_continued(id, data.len());
        }
        let now_ms = self.now_ms;
        self.of_mut(id).messaged_ms = now_ms;
        match message.carried {
            MessageFraming::Frames => {
                self.buffer(id);
                let part = FragmentFlags { is_first, is_last };
                let Self { boxes, codecs, .. } = self;
                let outbox = &mut boxes[id.index as usize];
                let buffer = &mut outbox.buffer;
                outbox
                    .encoder
                    .encode_part(buffer, message.kind, data, part, codecs, None);
            }
            carried => self.write_framed_part(id, carried, data, is_first, is_last),
        }
        if is_last {
            self.of_mut(id).framing = message.carried;
            self.begin_pushes(id);
        }
    }

    /// Queues a message behind the message that is being written in parts.
    pub(super) fn enqueue_behind_parts(&mut self, id: ConnectionId, data: &[u8]) {
        // The message was already counted. It is subtracted here, because it will be counted again
        // when it is written.
        self.sent.messages -= 1;
        self.sent.bytes -= data.len() as u64;
        if let PushMode::Encoded(number, PushStage::Early) = self.of(id).pushes {
            let separator = self.push_state.format(number).separator;
            let waiting = self.push_state.early.entry(id.index).or_default();
            if !waiting.is_empty() {
                waiting.extend_from_slice(separator);
            }
            waiting.extend_from_slice(data);
        }
    }
}
