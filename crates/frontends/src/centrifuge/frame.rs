//! Replies and pushes of one go, which leave in one frame.

use veche_centrifuge::{BinaryInJson, Encoding, ErrorCode, Outcome, Push, Reply};
use veche_hub::SessionId;
use veche_proto::websocket::MessageKind;

use crate::outbox::Outboxes;

/// What is to leave together, in order. It has to be [sent](Frame::send) before anything that may write a publication
/// into the same outbox.
pub(super) struct Frame {
    encoding: Encoding,
    bytes: Vec<u8>,
}

impl Frame {
    /// Empty; `bytes` lend their memory.
    pub(super) fn new(encoding: Encoding, bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.is_empty());
        Self { encoding, bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn reply(&mut self, id: u32, outcome: Outcome<'_>) -> Result<(), BinaryInJson> {
        self.add(|encoding, out| encoding.write_reply(out, &Reply { id, outcome }))
    }

    pub(super) fn error(&mut self, id: u32, code: ErrorCode) {
        // An error has no data that could be binary.
        let _ = self.reply(id, Outcome::Error(code.into()));
    }

    pub(super) fn push(&mut self, push: &Push<'_>) -> Result<(), BinaryInJson> {
        self.add(|encoding, out| encoding.write_push(out, push))
    }

    pub(super) fn ping(&mut self) {
        // A ping has no data either.
        let _ = self.add(|encoding, out| {
            encoding.write_ping(out);
            Ok(())
        });
    }

    fn add(
        &mut self,
        write: impl FnOnce(Encoding, &mut Vec<u8>) -> Result<(), BinaryInJson>,
    ) -> Result<(), BinaryInJson> {
        let before = self.bytes.len();
        if self.encoding == Encoding::Json && before > 0 {
            self.bytes.push(b'\n');
        }
        write(self.encoding, &mut self.bytes).inspect_err(|_| self.bytes.truncate(before))
    }

    /// Sends what there is, if anything; it is empty again.
    pub(super) fn send(&mut self, id: SessionId, outboxes: &mut Outboxes) {
        if !self.bytes.is_empty() {
            outboxes.message(id, kind(self.encoding), &self.bytes);
            self.bytes.clear();
        }
    }

    /// Gives the memory back.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        debug_assert!(self.bytes.is_empty(), "what was not sent is lost");
        self.bytes
    }
}

/// What carries messages of this encoding.
pub(crate) fn kind(encoding: Encoding) -> MessageKind {
    match encoding {
        Encoding::Json => MessageKind::Text,
        Encoding::Protobuf => MessageKind::Binary,
    }
}
