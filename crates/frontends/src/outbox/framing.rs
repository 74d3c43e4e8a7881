//! Messages to clients without a WebSocket: they are sent as parts of an endless response.

use veche_hub::ConnectionId;
use veche_proto::http::{finish_chunks, write_chunk};

use super::{Outboxes, events};

/// How messages to a client are framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MessageFraming {
    #[default]
    Frames,
    /// One message per line.
    Lines {
        is_chunked: bool,
    },
    /// No separators: each message contains its own length.
    Bytes {
        is_chunked: bool,
    },
    Events {
        is_chunked: bool,
    },
    /// Another message is being written in parts; further messages are queued until it is complete.
    Behind,
}

impl MessageFraming {
    fn is_chunked(self) -> bool {
        match self {
            Self::Frames | Self::Behind => false,
            Self::Lines { is_chunked }
            | Self::Bytes { is_chunked }
            | Self::Events { is_chunked } => is_chunked,
        }
    }
}

impl Outboxes {
    /// Begins a response whose body is a sequence of messages.
    pub(crate) fn begin_stream(&mut self, id: ConnectionId, carried: MessageFraming) {
        let now_ms = self.now_ms;
        let outbox = self.of_mut(id);
        outbox.framing = carried;
        outbox.messaged_ms = now_ms;
        if let MessageFraming::Events { .. } = carried {
            // Some proxies and browsers hold back a response until its first bytes arrive.
            self.write_framed_raw(id, b"\r\n");
        }
    }

    /// Ends the response, after its last message.
    pub(crate) fn end_stream(&mut self, id: ConnectionId) {
        self.refuse_pushes(id);
        if self.of(id).framing.is_chunked() {
            finish_chunks(self.buffer(id));
        }
    }

    pub(super) fn write_framed(&mut self, id: ConnectionId, message: &[u8]) {
        match self.of(id).framing {
            MessageFraming::Frames => {}
            MessageFraming::Behind => self.enqueue_behind_parts(id, message),
            MessageFraming::Bytes { .. } => self.write_framed_raw(id, message),
            MessageFraming::Lines { .. } => {
                let line = [message, b"\n"].concat();
                self.write_framed_raw(id, &line);
            }
            MessageFraming::Events { .. } => {
                let mut event = Vec::with_capacity(message.len() + 16);
                events::encode(&mut event, message);
                self.write_event(id, &event);
            }
        }
    }

    /// Writes an event, with an `id` line before it if the client's position has changed.
    pub(super) fn write_event(&mut self, id: ConnectionId, event: &[u8]) {
        match self.push_state.cursors.take_id_line(id.index) {
            None => self.write_framed_raw(id, event),
            Some(line) => self.write_framed_raw(id, &[line.as_bytes(), event].concat()),
        }
    }

    /// Writes a part of a long message in the framing `carried`.
    pub(super) fn write_framed_part(
        &mut self,
        id: ConnectionId,
        carried: MessageFraming,
        data: &[u8],
        is_first: bool,
        is_last: bool,
    ) {
        let is_chunked = carried.is_chunked();
        let (mut before, mut behind) = (String::new(), "");
        match carried {
            MessageFraming::Events { .. } => {
                if is_first {
                    before = self
                        .push_state
                        .cursors
                        .take_id_line(id.index)
                        .unwrap_or_default();
                    before.push_str("data: ");
                }
                behind = "\n\n";
            }
            MessageFraming::Lines { .. } => behind = "\n",
            MessageFraming::Bytes { .. } | MessageFraming::Frames | MessageFraming::Behind => {}
        }
        let behind = if is_last { behind } else { "" };
        let whole = [before.as_bytes(), data, behind.as_bytes()].concat();
        self.write_raw(id, &whole, is_chunked);
    }

    fn write_framed_raw(&mut self, id: ConnectionId, bytes: &[u8]) {
        let is_chunked = self.of(id).framing.is_chunked();
        self.write_raw(id, bytes, is_chunked);
    }

    fn write_raw(&mut self, id: ConnectionId, bytes: &[u8], is_chunked: bool) {
        let out = self.buffer(id);
        match is_chunked {
            true => write_chunk(out, bytes),
            false => out.extend_from_slice(bytes),
        }
    }
}
