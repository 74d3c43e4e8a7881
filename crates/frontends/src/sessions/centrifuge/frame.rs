//! Replies and pushes that are written together in one frame.

use veche_centrifuge::{DisconnectCode, Encoding, ErrorCode, Outcome, Push, PushBody, Reply};
use veche_hub::ConnectionId;

use super::pushes::{PushEncoding, kind};
use crate::outbox::Outboxes;

/// Messages that are sent together, in order. The frame has to be [sent](Self::send) before anything is called that
/// may write a publication to the same outbox, so that the order is kept.
pub(super) struct ReplyFrame {
    push_encoding: PushEncoding,
    bytes: Vec<u8>,
    /// The code with which the session is closed if an error occurred and the client can't receive an error reply.
    end: Option<DisconnectCode>,
    /// The code and the message of the last error reply.
    refusal: Option<(u32, Box<str>)>,
}

impl ReplyFrame {
    /// Creates an empty frame that reuses the memory of `bytes`.
    pub(super) fn new(push_encoding: impl Into<PushEncoding>, bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.is_empty());
        Self {
            push_encoding: push_encoding.into(),
            bytes,
            end: None,
            refusal: None,
        }
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.push_encoding.encoding
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a reply. One-way clients receive no replies: the result of their connect request is a push, and an error
    /// closes them with the code in [`end`](Self::end).
    pub(super) fn reply(&mut self, id: u32, outcome: Outcome<'_>) {
        if let Outcome::Error(error) = &outcome {
            self.refusal = Some((error.code, error.message.into()));
        }
        if !self.push_encoding.is_one_way {
            let reply = Reply { id, outcome };
            return self.add(|push_encoding, out| push_encoding.encoding.write_reply(out, &reply));
        }
        match outcome {
            Outcome::Connect(result) => {
                let body = PushBody::Connect(result);
                self.push(&Push { channel: "", body });
            }
            Outcome::Error(error) => self.end = Some(end_of(error.code, error.is_temporary)),
            _ => debug_assert!(
                false,
                "a client without an SDK can't have a pending request other than connect"
            ),
        }
    }

    /// Returns the code with which the session is closed if an error occurred and the client can't receive an error
    /// reply; otherwise `None`.
    pub(super) fn end(&self) -> Option<DisconnectCode> {
        self.end
    }

    /// Takes the code and the message of the last error reply.
    pub(super) fn take_refusal(&mut self) -> Option<(u32, Box<str>)> {
        self.refusal.take()
    }

    pub(super) fn error(&mut self, id: u32, code: ErrorCode) {
        self.reply(id, Outcome::Error(code.into()));
    }

    pub(super) fn push(&mut self, push: &Push<'_>) {
        self.add(|push_encoding, out| push_encoding.write_push(out, push));
    }

    pub(super) fn ping(&mut self) {
        self.add(|push_encoding, out| push_encoding.encoding.write_ping(out));
    }

    fn add(&mut self, write: impl FnOnce(PushEncoding, &mut Vec<u8>)) {
        if self.push_encoding.encoding == Encoding::Json && !self.bytes.is_empty() {
            self.bytes.push(b'\n');
        }
        write(self.push_encoding, &mut self.bytes);
    }

    /// Sends the content of the frame, if it has any, and clears it.
    pub(super) fn send(&mut self, id: ConnectionId, outboxes: &mut Outboxes) {
        if self.bytes.is_empty() {
            return;
        }
        let kind = kind(self.push_encoding.encoding);
        match self.push_encoding.format().is_single {
            false => outboxes.message(id, kind, &self.bytes),
            true => {
                let lines = self.bytes.split(|byte| *byte == b'\n');
                lines.for_each(|line| outboxes.message(id, kind, line));
            }
        }
        self.bytes.clear();
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        debug_assert!(
            self.bytes.is_empty(),
            "data must not be discarded before it was sent"
        );
        self.bytes
    }
}

/// Converts an error code to a close code, for one-way clients, which can't receive error replies.
fn end_of(code: u32, is_temporary: bool) -> DisconnectCode {
    let is = |known: ErrorCode| known.code() == code;
    match () {
        // After this close the client reconnects with a new token.
        () if is(ErrorCode::TokenExpired) || is(ErrorCode::Expired) => DisconnectCode::Expired,
        () if is(ErrorCode::Unauthorized) => DisconnectCode::InvalidToken,
        () if is(ErrorCode::BadRequest) => DisconnectCode::BadRequest,
        () if is(ErrorCode::NotAvailable) => DisconnectCode::NotAvailable,
        () if is(ErrorCode::TooManyRequests) => DisconnectCode::TooManyRequests,
        () if is_temporary => DisconnectCode::Internal,
        () => DisconnectCode::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_whether_to_reconnect() {
        for (code, is_temporary, expected) in [
            (100, true, 3004),
            (101, false, 3500),
            (103, false, 3507),
            (107, false, 3501),
            (109, false, 3005),
            (111, true, 3013),
            (1000, false, 3507),
            (1000, true, 3004),
        ] {
            assert_eq!(end_of(code, is_temporary).code(), expected, "{code}");
        }
    }
}
