//! What is sent, and how an answer is known to be the one that was due.

use serde::{Deserialize, Serialize};
use veche_proto::websocket::MessageKind;

/// Who sent it and its number, 8 hex digits each.
const STAMP_BYTES: usize = 16;

/// What messages hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadPlan {
    /// Binary instead of text.
    pub binary: bool,
    /// What is sent.
    pub content: Content,
}

/// What a message is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// So many bytes, which name the client and count its messages if there are at least 16.
    Size(usize),
    /// Always this.
    Fixed(Vec<u8>),
}

impl Default for PayloadPlan {
    fn default() -> Self {
        Self {
            binary: false,
            content: Content::Size(20),
        }
    }
}

/// Makes messages, and knows them again.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) kind: MessageKind,
    bytes: Vec<u8>,
    is_stamped: bool,
}

impl Payload {
    pub(crate) fn new(plan: &PayloadPlan) -> Self {
        let (bytes, is_stamped) = match &plan.content {
            // Letters that deflate can't make nothing of, but text all the same.
            Content::Size(size) => {
                let mut rng = fastrand::Rng::with_seed(*size as u64);
                let bytes = (0..*size).map(|_| rng.alphanumeric() as u8).collect();
                (bytes, *size >= STAMP_BYTES)
            }
            Content::Fixed(bytes) => (bytes.clone(), false),
        };
        Self {
            kind: if plan.binary {
                MessageKind::Binary
            } else {
                MessageKind::Text
            },
            bytes,
            is_stamped,
        }
    }

    /// Message `number` of client `who`.
    #[inline]
    pub(crate) fn stamp(&mut self, who: u32, number: u32) -> &[u8] {
        if self.is_stamped {
            write_hex(&mut self.bytes[..8], who);
            write_hex(&mut self.bytes[8..STAMP_BYTES], number);
        }
        &self.bytes
    }

    /// Which message of client `who` this is, if it is one of them at all.
    pub(crate) fn number_of(&mut self, who: u32, kind: MessageKind, data: &[u8]) -> Option<u32> {
        let digits = std::str::from_utf8(data.get(8..STAMP_BYTES)?).ok()?;
        let number = u32::from_str_radix(digits, 16).ok()?;
        (self.is_stamped && self.is(who, number, kind, data)).then_some(number)
    }

    /// Whether it is message `number` of client `who` but for its kind: text as binary or the other way round. That is
    /// no greeting.
    pub(crate) fn is_of_other_kind(
        &mut self,
        who: u32,
        number: u32,
        kind: MessageKind,
        data: &[u8],
    ) -> bool {
        kind != self.kind && data == self.stamp(who, number)
    }

    /// What is wrong with an answer that is not the one that was due.
    pub(crate) fn explain(&self, kind: MessageKind, data: &[u8]) -> String {
        if kind == self.kind {
            return format!("instead of the message that was due: {}", excerpt(data));
        }
        format!(
            "a {} message was answered by a {} one: {}",
            name(self.kind),
            name(kind),
            excerpt(data)
        )
    }

    /// Whether it is message `number` of client `who`.
    #[inline]
    pub(crate) fn is(&mut self, who: u32, number: u32, kind: MessageKind, data: &[u8]) -> bool {
        kind == self.kind && data == self.stamp(who, number)
    }
}

fn name(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::Text => "text",
        MessageKind::Binary => "binary",
    }
}

#[inline]
fn write_hex(out: &mut [u8], mut number: u32) {
    for byte in out.iter_mut().rev() {
        *byte = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// The beginning of a message for an error's example.
pub(crate) fn excerpt(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(&data[..data.len().min(60)]);
    let more = if data.len() > 60 { "…" } else { "" };
    format!("{:?}{more} ({} bytes)", text, data.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let mut payload = Payload::new(&PayloadPlan::default());
        let first = payload.stamp(0xabc, 1).to_vec();
        assert!(first.starts_with(b"00000abc00000001"));
        assert_eq!(first.len(), 20);
        assert!(payload.is(0xabc, 1, MessageKind::Text, &first));
        assert!(!payload.is(0xabc, 2, MessageKind::Text, &first));
        assert!(!payload.is(0xabd, 1, MessageKind::Text, &first));
        assert!(!payload.is(0xabc, 1, MessageKind::Binary, &first));
        assert!(!payload.is(0xabc, 1, MessageKind::Text, &first[..19]));
    }
    #[test]
    fn the_wrong_kind_is_named() {
        let mut payload = Payload::new(&PayloadPlan::default());
        let first = payload.stamp(1, 0).to_vec();
        assert!(payload.is_of_other_kind(1, 0, MessageKind::Binary, &first));
        assert!(!payload.is_of_other_kind(1, 0, MessageKind::Text, &first));
        assert!(!payload.is_of_other_kind(1, 0, MessageKind::Binary, b"welcome"));
        assert_eq!(
            payload.explain(MessageKind::Binary, b"hi"),
            "a text message was answered by a binary one: \"hi\" (2 bytes)"
        );
        assert_eq!(
            payload.explain(MessageKind::Text, b"hi"),
            "instead of the message that was due: \"hi\" (2 bytes)"
        );
    }
}
