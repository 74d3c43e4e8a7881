//! The messages to send, and matching of their answers.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use veche_proto::websocket::MessageKind;

/// The length in bytes of a stamp: the numbers of the client and the message, 8 hexadecimal digits each.
const STAMP_BYTES: usize = 16;

/// The content of messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadPlan {
    /// Whether messages are binary instead of text.
    pub binary: bool,
    /// The content of a message.
    pub content: PayloadContent,
}

/// The kind of content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PayloadContent {
    /// Generated messages of this length in bytes. With at least 16 bytes, they contain the numbers
    /// of the client and the message.
    Size(usize),
    /// The same message every time.
    Fixed(Vec<u8>),
}

impl PayloadPlan {
    /// Returns whether messages contain the numbers of the client and the message, so that answers
    /// can be matched in any order.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        matches!(self.content, PayloadContent::Size(size) if size >= STAMP_BYTES)
    }
}

impl Default for PayloadPlan {
    fn default() -> Self {
        Self {
            binary: false,
            content: PayloadContent::Size(20),
        }
    }
}

/// The classification of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recognized {
    /// The message with this number, unchanged.
    Answer(u32),
    /// A changed message of this run, with its number if readable.
    Altered(Option<u32>),
    /// A message that this run did not send.
    Foreign,
}

/// Creates messages and classifies answers.
#[derive(Clone, Debug)]
pub(crate) struct TestPayload {
    pub(crate) kind: MessageKind,
    bytes: Vec<u8>,
    is_stamped: bool,
}

impl TestPayload {
    pub(crate) fn new(plan: &PayloadPlan) -> Self {
        let is_stamped = plan.is_stamped();
        let bytes = match &plan.content {
            // Random text, which does not compress well.
            PayloadContent::Size(size) => {
                let mut rng = fastrand::Rng::with_seed(*size as u64);
                (0..*size).map(|_| rng.alphanumeric() as u8).collect()
            }
            PayloadContent::Fixed(bytes) => bytes.clone(),
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

    /// Returns message `number` of client `client_index`.
    #[inline]
    pub(crate) fn stamp(&mut self, client_index: u32, number: u32) -> &[u8] {
        if self.is_stamped {
            write_hex(&mut self.bytes[..8], client_index);
            write_hex(&mut self.bytes[8..STAMP_BYTES], number);
        }
        &self.bytes
    }

    /// Returns whether messages contain the numbers of the client and the message.
    pub(crate) fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Classifies a message to client `client_index` by its stamp; `None` if messages have no
    /// stamps. `due` is the number of the expected answer.
    pub(crate) fn recognize(
        &mut self,
        client_index: u32,
        due: u32,
        kind: MessageKind,
        data: &[u8],
    ) -> Option<Recognized> {
        if !self.is_stamped {
            return None;
        }
        let own = self.kind;
        let hex = |range: Range<usize>| {
            let digits = std::str::from_utf8(data.get(range)?).ok()?;
            u32::from_str_radix(digits, 16).ok()
        };
        let is_to_us = hex(0..8) == Some(client_index);
        let number = hex(8..STAMP_BYTES).filter(|_| is_to_us);
        if let Some(number) = number
            && data == self.stamp(client_index, number)
        {
            return Some(if kind == own {
                Recognized::Answer(number)
            } else {
                Recognized::Altered(Some(number))
            });
        }
        let due = self.stamp(client_index, due);
        let same = due.iter().zip(data).filter(|(one, other)| one == other);
        let is_like_ours = data.len() == due.len() && same.count() * 2 >= due.len();
        Some(if is_like_ours {
            Recognized::Altered(number)
        } else {
            Recognized::Foreign
        })
    }

    /// Returns whether received data is message `number` of client `client_index` with the wrong kind (text instead of binary,
    /// or vice versa). Such a message can't be a greeting.
    pub(crate) fn is_of_other_kind(
        &mut self,
        client_index: u32,
        number: u32,
        kind: MessageKind,
        data: &[u8],
    ) -> bool {
        kind != self.kind && data == self.stamp(client_index, number)
    }

    /// Describes an unexpected answer.
    pub(crate) fn explain(&self, kind: MessageKind, data: &[u8]) -> String {
        if kind == self.kind {
            return format!(
                "received a message other than the expected one: {}",
                excerpt(data)
            );
        }
        format!(
            "a {} message was answered by a {} one: {}",
            name(self.kind),
            name(kind),
            excerpt(data)
        )
    }

    /// Returns whether received data equals message `number` of client `client_index`.
    #[inline]
    pub(crate) fn is(
        &mut self,
        client_index: u32,
        number: u32,
        kind: MessageKind,
        data: &[u8],
    ) -> bool {
        kind == self.kind && data == self.stamp(client_index, number)
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

/// Returns the beginning of a message for the text of an error.
pub(crate) fn excerpt(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(&data[..data.len().min(60)]);
    let more = if data.len() > 60 { "…" } else { "" };
    format!("{:?}{more} ({} bytes)", text, data.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_distinguished() {
        let mut payload = TestPayload::new(&PayloadPlan::default());
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
    fn messages_are_known_by_their_stamp() {
        let mut payload = TestPayload::new(&PayloadPlan::default());
        let seventh = payload.stamp(3, 7).to_vec();
        let mut seen = |data: &[u8]| payload.recognize(3, 7, MessageKind::Text, data);
        assert_eq!(seen(&seventh), Some(Recognized::Answer(7)));
        for (at, number) in [(17, Some(7)), (3, None), (15, Some(6))] {
            let mut changed = seventh.clone();
            changed[at] ^= 1;
            // Byte 15 is part of the number, so this change makes the message look like the answer
            // to another message.
            let expected = if at == 15 {
                Recognized::Answer(6)
            } else {
                Recognized::Altered(number)
            };
            assert_eq!(seen(&changed), Some(expected), "{at}");
        }
        for foreign in [
            &b"welcome"[..],
            b"{\"type\":\"ping!\"}...",
            b"",
            &seventh[..19],
        ] {
            assert_eq!(seen(foreign), Some(Recognized::Foreign));
        }
        let binary = payload.recognize(3, 7, MessageKind::Binary, &seventh);
        assert_eq!(binary, Some(Recognized::Altered(Some(7))));
        let mut plain = TestPayload::new(&PayloadPlan {
            content: PayloadContent::Size(15),
            ..PayloadPlan::default()
        });
        let message = plain.stamp(3, 7).to_vec();
        let seen = plain.recognize(3, 7, MessageKind::Text, &message);
        assert_eq!(seen, None);
    }

    #[test]
    fn the_wrong_kind_is_named() {
        let mut payload = TestPayload::new(&PayloadPlan::default());
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
            "received a message other than the expected one: \"hi\" (2 bytes)"
        );
    }
}
