//! Publications with their positions, as JSON objects, for clients that recover.
//!
//! A publication is `{"channel":"news","position":"9x3kd07f:17","data":…}`. When the client is subscribed to a
//! channel with history, it gets `{"subscribed":"news","position":"9x3kd07f:16","recovered":true}`; the next
//! publication has offset 17.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use veche_hub::{
    ConnectionId, Delivery, EncodingId, PayloadKind, PayloadRef, Position, Publication,
    SubscribeOutcome,
};
use veche_proto::websocket::MessageKind;

use super::{Outboxes, PushMode};

/// The key under which a publication's JSON object with its position is cached.
const OBJECT: EncodingId = EncodingId(u32::MAX - 4);
/// Base of the cache keys of frames that contain the JSON object with the position. The lower bits
/// of a key identify the compression.
const FORM: u32 = 1 << 16;

/// Size in bytes of output that may precede recovered publications without being counted against the limit: the 101
/// response and the positions in all channels.
const GREETING_BYTES: usize = 16 << 10;

impl Outboxes {
    pub(super) fn deliver_positioned(
        &mut self,
        session: ConnectionId,
        delivery: &mut Delivery<'_>,
    ) {
        let Delivery {
            channel,
            payload,
            position,
            ref mut encodings,
            ..
        } = *delivery;
        let object = encodings.find_or_encode(OBJECT, || object(channel, payload, position));
        if self.has_room(session, object.len()) {
            self.frame(session, MessageKind::Text, &object, FORM, encodings);
        }
    }

    /// Returns whether the session's client receives positions.
    pub fn sends_positions(&self, session: ConnectionId) -> bool {
        self.of(session).pushes == PushMode::Positioned
    }

    /// Sends a client its position after it was subscribed to a channel with history, and the
    /// recovered publications.
    ///
    /// The first message has the position before the first recovered publication, and each recovered
    /// publication has its own position. If the connection is lost in between, the client can
    /// therefore recover from the last publication that it has received. If the publications do not
    /// fit into the outbox, none is sent and the recovery counts as incomplete. Returns whether the
    /// recovery is complete.
    pub(crate) fn write_joined(
        &mut self,
        session: ConnectionId,
        channel: &str,
        joined: &SubscribeOutcome,
    ) -> bool {
        if !self.sends_positions(session) {
            return false;
        }
        let mut position = joined.position;
        let Some(recovered) = &joined.recovered else {
            self.write_subscribed(session, channel, Some(position), None);
            return false;
        };
        let missed = &recovered.publications;
        let object = |one: &Publication| object(channel, one.payload.borrow(), one.position);
        let objects: Vec<Bytes> = missed.iter().map(object).collect();
        let bytes: usize = objects.iter().map(Bytes::len).sum();
        if self.of(session).queued() + bytes > self.outbox_bytes_max + GREETING_BYTES {
            self.write_subscribed(session, channel, Some(position), Some(false));
            return false;
        }
        if !missed.is_empty() {
            position.offset = recovered.predecessor;
        }
        self.write_subscribed(
            session,
            channel,
            Some(position),
            Some(recovered.is_complete),
        );
        for object in objects {
            self.message(session, MessageKind::Text, &object);
        }
        recovered.is_complete
    }

    /// Notifies a client that it is subscribed to a channel. The message has the client's position if
    /// the channel has history, and whether the recovery is complete if the client requested recovery.
    pub(crate) fn write_subscribed(
        &mut self,
        session: ConnectionId,
        channel: &str,
        position: Option<Position>,
        recovered: Option<bool>,
    ) {
        let mut text = String::from("{\"subscribed\":");
        write_string(&mut text, channel);
        write_position(&mut text, position);
        if let Some(recovered) = recovered {
            let _ = write!(text, ",\"recovered\":{recovered}");
        }
        text.push('}');
        self.message(session, MessageKind::Text, text.as_bytes());
    }

    /// Tells a client that it is no longer subscribed to a channel.
    pub(crate) fn write_unsubscribed(&mut self, session: ConnectionId, channel: &str) {
        let mut text = String::from("{\"unsubscribed\":");
        write_string(&mut text, channel);
        text.push('}');
        self.message(session, MessageKind::Text, text.as_bytes());
    }
}

fn object(channel: &str, payload: PayloadRef<'_>, position: Option<Position>) -> Bytes {
    let mut text = String::with_capacity(payload.bytes.len() + channel.len() + 64);
    text.push_str("{\"channel\":");
    write_string(&mut text, channel);
    write_position(&mut text, position);
    write_data(&mut text, payload);
    text.push('}');
    Bytes::from(text)
}

fn write_position(text: &mut String, position: Option<Position>) {
    if let Some(position) = position {
        // Writing to a string can't fail.
        let _ = write!(text, ",\"position\":\"{position}\"");
    }
}

/// Writes `,"data":…`, or `,"base64":…` for a payload that is neither text nor JSON.
pub(crate) fn write_data(text: &mut String, payload: PayloadRef<'_>) {
    let is_text = payload.kind != PayloadKind::Binary && str::from_utf8(payload.bytes).is_ok();
    text.push_str(if is_text {
        ",\"data\":"
    } else {
        ",\"base64\":"
    });
    write_value(text, payload);
}

/// Writes a payload as a JSON value: JSON unchanged, text as a string, anything else as a string in base64.
pub(crate) fn write_value(text: &mut String, payload: PayloadRef<'_>) {
    match (payload.kind, str::from_utf8(payload.bytes)) {
        (PayloadKind::Json, Ok(json)) => text.push_str(json),
        (PayloadKind::Text, Ok(plain)) => write_string(text, plain),
        _ => {
            text.push('"');
            STANDARD.encode_string(payload.bytes, text);
            text.push('"');
        }
    }
}

fn write_string(text: &mut String, plain: &str) {
    text.push_str(&serde_json::Value::from(plain).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_written_by_its_kind() {
        for (kind, bytes, expected) in [
            (PayloadKind::Json, &b"{\"a\":1}"[..], ",\"data\":{\"a\":1}"),
            (
                PayloadKind::Text,
                b"say \"hi\"",
                ",\"data\":\"say \\\"hi\\\"\"",
            ),
            (PayloadKind::Binary, b"text", ",\"base64\":\"dGV4dA==\""),
            (PayloadKind::Binary, &[0, 255], ",\"base64\":\"AP8=\""),
        ] {
            let mut text = String::new();
            write_data(&mut text, PayloadRef { kind, bytes });
            assert_eq!(text, expected);
        }
    }
}
