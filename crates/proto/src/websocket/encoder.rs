//! Messages and control frames to bytes, appended to the caller's buffer, one frame each: who sends whole messages
//! needs no fragments. The bytes go to the connection's outbox next.

use flate2::Compress;

use super::deflate::Agreed;
use super::frame::{Opcode, write_header};
use super::{Codecs, MessageKind, Role, close, mask as masking};

/// Below this a message without context is sent plain: its compressed form is hardly ever shorter by a header's worth.
const COMPRESS_BYTES_MIN: usize = 32;

/// Appends a whole message, not compressed. `mask` is a client's, fresh and unpredictable for each frame (RFC 6455
/// section 5.3); servers give `None`.
#[inline]
pub fn encode_message(out: &mut Vec<u8>, kind: MessageKind, data: &[u8], mask: Option<[u8; 4]>) {
    frame(out, kind.into(), false, data, mask);
}

/// Appends a ping or pong. Of `data` the first 125 bytes are taken, all that fits a control frame.
pub fn encode_control(out: &mut Vec<u8>, opcode: Opcode, data: &[u8], mask: Option<[u8; 4]>) {
    debug_assert!(matches!(opcode, Opcode::Ping | Opcode::Pong));
    frame(
        out,
        opcode,
        false,
        &data[..data.len().min(super::frame::CONTROL_BYTES_MAX)],
        mask,
    );
}

/// Appends a close frame. Without a code there is no reason either, nor with one that [may not be
/// sent](close::is_sendable); a reason over 123 bytes is cut between characters.
pub fn encode_close(out: &mut Vec<u8>, code: Option<u16>, reason: &str, mask: Option<[u8; 4]>) {
    let mut payload = [0; super::frame::CONTROL_BYTES_MAX];
    let length = match code.filter(|&code| close::is_sendable(code)) {
        Some(code) => {
            let reason = close::fit(reason);
            payload[..2].copy_from_slice(&code.to_be_bytes());
            payload[2..2 + reason.len()].copy_from_slice(reason.as_bytes());
            2 + reason.len()
        }
        None => 0,
    };
    frame(out, Opcode::Close, false, &payload[..length], mask);
}

/// One connection's sending side of messages, with its compression context where one is kept.
#[derive(Debug)]
pub struct Encoder {
    /// From the first message that was compressed.
    context: Option<Box<Compress>>,
    deflate: Option<Agreed>,
    role: Role,
}

const _: () = assert!(size_of::<Encoder>() <= 16);

impl Encoder {
    /// `role` is ours; `deflate` what the handshake agreed on.
    #[must_use]
    pub fn new(role: Role, deflate: Option<Agreed>) -> Self {
        Self {
            context: None,
            deflate,
            role,
        }
    }

    /// Appends a whole message, compressed where that was agreed and pays. Returns whether it is compressed.
    ///
    /// Bytes made for one connection may be sent to all with the same [sharing key](Agreed::sharing_key).
    pub fn encode(
        &mut self,
        out: &mut Vec<u8>,
        kind: MessageKind,
        data: &[u8],
        codecs: &mut Codecs,
        mask: Option<[u8; 4]>,
    ) -> bool {
        let Some(agreed) = self.deflate else {
            encode_message(out, kind, data, mask);
            return false;
        };
        if agreed.keeps_context(self.role) {
            // The peer's window holds what we compressed, so that has to be sent even if it has become longer.
            let context = self
                .context
                .get_or_insert_with(|| Box::new(agreed.new_deflate(self.role)));
            frame(
                out,
                kind.into(),
                true,
                codecs.deflate_with(context, data),
                mask,
            );
            return true;
        }
        if data.len() >= COMPRESS_BYTES_MIN {
            let compressed = codecs.deflate_alone(data, agreed.window_bits_of(self.role));
            if compressed.len() < data.len() {
                frame(out, kind.into(), true, compressed, mask);
                return true;
            }
        }
        encode_message(out, kind, data, mask);
        false
    }
}

#[inline]
fn frame(
    out: &mut Vec<u8>,
    opcode: Opcode,
    compressed: bool,
    payload: &[u8],
    mask: Option<[u8; 4]>,
) {
    out.reserve(super::HEADER_BYTES_MAX + payload.len());
    write_header(out, opcode, compressed, payload.len(), mask);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = mask {
        masking::apply(&mut out[start..], key);
    }
}
