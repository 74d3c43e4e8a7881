//! Publications as server-sent events (WHATWG HTML section 9.2) in a response: each publication is one event.

use bytes::Bytes;
use veche_hub::{ConnectionId, Delivery, EncodingId};
use veche_proto::http::write_chunk;

use super::{Outboxes, PushMode};

/// The encoding id of server-sent events in chunks. Each id has to be unique among the modules of `outbox`.
const CHUNKED: EncodingId = EncodingId(u32::MAX);
/// The encoding id of server-sent events without chunks.
const PLAIN: EncodingId = EncodingId(u32::MAX - 1);

impl Outboxes {
    /// Begins an event stream: later publications to this connection are written to its response as events.
    pub(crate) fn begin_events(&mut self, id: ConnectionId, is_chunked: bool) {
        self.of_mut(id).pushes = PushMode::Events { is_chunked };
    }
}

/// Appends a publication as a server-sent event.
pub(super) fn write(out: &mut Vec<u8>, delivery: &mut Delivery<'_>, is_chunked: bool) {
    let text = delivery.payload.bytes;
    let format = if is_chunked { CHUNKED } else { PLAIN };
    let event = delivery.encodings.find_or_encode(format, || {
        let mut event = Vec::with_capacity(text.len() + 32);
        encode(&mut event, text);
        if !is_chunked {
            return Bytes::from(event);
        }
        let mut chunk = Vec::with_capacity(event.len() + 16);
        write_chunk(&mut chunk, &event);
        Bytes::from(chunk)
    });
    out.extend_from_slice(&event);
}

/// Writes a `data` line for each line of the text, which may use any line ending.
pub(super) fn encode(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
        out.push(b'\n');
        let Some(end) = end else { break };
        let is_pair = rest[end..].starts_with(b"\r\n");
        rest = &rest[end + 1 + usize::from(is_pair)..];
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_end_an_event_or_begin_a_field() {
        for (text, event) in [
            ("", "data: \n\n"),
            ("a", "data: a\n\n"),
            ("a\nb", "data: a\ndata: b\n\n"),
            ("a\r\nb\r", "data: a\ndata: b\ndata: \n\n"),
            ("\n\nevent: x", "data: \ndata: \ndata: event: x\n\n"),
        ] {
            let mut out = Vec::new();
            encode(&mut out, text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&out), event, "{text:?}");
        }
    }
}
