//! Messages and control frames to bytes, appended to the caller's buffer: one frame each, but for long messages that are
//! sent in parts. The bytes go to the connection's outbox next.

use veche_types::codes::is_sendable;

use super::context::DeflateContext;
use super::deflate::DeflateParams;
use super::frame::{Opcode, clear_fin, write_header};
use super::{Codecs, MessageKind, Role, close, mask as masking};

/// Below this a message without context is sent plain: its compressed form is hardly ever shorter by a header's worth.
const COMPRESS_BYTES_MIN: usize = 32;
/// Below this a message is sent plain even with a context: a match, the end of its block and the flush take four bytes.
const COMPRESS_KEPT_BYTES_MIN: usize = 5;

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
/// sent](is_sendable); a reason over 123 bytes is cut between characters.
pub fn encode_close(out: &mut Vec<u8>, code: Option<u16>, reason: &str, mask: Option<[u8; 4]>) {
    let mut payload = [0; super::frame::CONTROL_BYTES_MAX];
    let length = match code.filter(|&code| is_sendable(code)) {
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

/// Which part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentFlags {
    /// Nothing of the message stands before it.
    pub is_first: bool,
    /// Nothing follows.
    pub is_last: bool,
}

/// One connection's sending side of messages, with its compression context where one is kept.
#[derive(Debug)]
pub struct Encoder {
    /// From the first message that was compressed; forgotten at will, since the peer has to remember more, not less.
    context: Option<Box<DeflateContext>>,
    deflate: Option<DeflateParams>,
    role: Role,
}

const _: () = assert!(size_of::<Encoder>() <= 16);

impl Encoder {
    /// `role` is ours; `deflate` what the handshake agreed on.
    #[must_use]
    pub fn new(role: Role, deflate: Option<DeflateParams>) -> Self {
        Self {
            context: None,
            deflate,
            role,
        }
    }

    /// Appends a whole message, compressed where that was agreed and pays. Returns whether it is compressed.
    ///
    /// Bytes made for one connection may be sent to all with the same [sharing key](DeflateParams::sharing_key).
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
        let keeps_context = agreed.keeps_context(self.role);
        let bytes_min = match keeps_context {
            true => COMPRESS_KEPT_BYTES_MIN,
            false => COMPRESS_BYTES_MIN,
        };
        if data.len() >= bytes_min {
            let window_bits = agreed.window_bits_of(self.role);
            // A message longer than what is kept has more to refer to in itself, with its window in full.
            let refers_back = keeps_context && data.len() <= agreed.own_window_bytes(self.role);
            let compressed = match refers_back {
                true => {
                    let context = self.context.as_ref();
                    let window = context.map_or(&[][..], |context| context.window());
                    codecs.deflate_after(window, data, window_bits)
                }
                false => codecs.deflate_alone(data, window_bits),
            };
            // What is sent plain is in no window: a short one goes compressed even if it has become longer, for those
            // that follow.
            if compressed.len() < data.len() || refers_back {
                frame(out, kind.into(), true, compressed, mask);
                if keeps_context {
                    self.keep(data, agreed, codecs);
                }
                return true;
            }
        }
        encode_message(out, kind, data, mask);
        false
    }

    /// Appends a part of a message as a frame. Until the last part was appended only control frames may stand between.
    ///
    /// Where compression was agreed on, the whole message is compressed, each part by itself.
    pub fn encode_part(
        &mut self,
        out: &mut Vec<u8>,
        kind: MessageKind,
        data: &[u8],
        part: FragmentFlags,
        codecs: &mut Codecs,
        mask: Option<[u8; 4]>,
    ) {
        let opcode = match part.is_first {
            true => kind.into(),
            false => Opcode::Continuation,
        };
        let start = out.len();
        match self.deflate {
            None => frame(out, opcode, false, data, mask),
            Some(agreed) => {
                // The peer's window has what no context has kept: the next message refers to nothing before itself.
                self.context = None;
                let window_bits = agreed.window_bits_of(self.role);
                let compressed = codecs.deflate_part(data, window_bits, part.is_last);
                frame(out, opcode, part.is_first, compressed, mask);
            }
        }
        if !part.is_last {
            clear_fin(&mut out[start..]);
        }
    }

    fn keep(&mut self, data: &[u8], agreed: DeflateParams, codecs: &Codecs) {
        let mut context = self
            .context
            .take()
            .unwrap_or_else(|| Box::new(DeflateContext::new(Some(codecs.budget()))));
        if context.push(data, agreed.own_window_bytes(self.role)) {
            self.context = Some(context);
        }
    }

    /// To be called at intervals: forgets the context if no message was compressed since the last call. The next message
    /// is compressed as the first was.
    pub fn release_idle_context(&mut self) {
        if self
            .context
            .as_mut()
            .is_some_and(|context| context.release_if_idle())
        {
            self.context = None;
        }
    }

    /// Own memory beside `self`, in bytes: the compression context.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.context
            .as_ref()
            .map_or(0, |context| context.heap_bytes())
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
