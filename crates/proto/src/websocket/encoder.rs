//! Encoding of messages and control frames, appended to the caller's buffer: one frame each, except for long messages
//! sent in parts.

use veche_types::codes::is_sendable;

use super::context::DeflateContext;
use super::deflate::DeflateParams;
use super::frame::{Opcode, clear_fin, write_header};
use super::{Codecs, MessageKind, Role, close, mask as masking};

/// If no context is kept, messages with fewer bytes are sent uncompressed, because compression
/// rarely saves as many bytes as a frame header has.
const COMPRESS_BYTES_MIN: usize = 32;
/// Messages with fewer bytes are sent uncompressed even if a context is kept, because a match, the end of its block and
/// the flush take four bytes.
const COMPRESS_KEPT_BYTES_MIN: usize = 5;

/// Appends a complete uncompressed message. Clients pass a `mask` that is fresh and unpredictable
/// for each frame (RFC 6455 section 5.3); servers pass `None`.
#[inline]
pub fn encode_message(out: &mut Vec<u8>, kind: MessageKind, data: &[u8], mask: Option<[u8; 4]>) {
    frame(out, kind.into(), false, data, mask);
}

/// Appends a ping or pong with at most the first 125 bytes of `data`, the limit of control frames.
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

/// Appends a close frame. Without a code, or with one that [may not be sent](is_sendable), the frame has neither code
/// nor reason. A reason over 123 bytes is cut between characters.
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

/// The position of a part in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentFlags {
    /// Whether this is the first part.
    pub is_first: bool,
    /// Whether this is the last part.
    pub is_last: bool,
}

/// The sending side of one connection, with its compression context if one is kept.
#[derive(Debug)]
pub struct Encoder {
    /// The compression context, from the first compressed message on. It may be dropped at any time: the peer then
    /// keeps history to which no message refers.
    context: Option<Box<DeflateContext>>,
    deflate: Option<DeflateParams>,
    role: Role,
}

const _: () = assert!(size_of::<Encoder>() <= 16);

impl Encoder {
    /// Creates an encoder for this end's `role`. `deflate` is the result of the handshake.
    #[must_use]
    pub fn new(role: Role, deflate: Option<DeflateParams>) -> Self {
        Self {
            context: None,
            deflate,
            role,
        }
    }

    /// Appends a complete message, compressed if that was negotiated and pays off. Returns whether it is compressed.
    ///
    /// Bytes encoded for one connection may be sent to all connections with the same [sharing
    /// key](DeflateParams::sharing_key).
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
            // A message longer than the kept context refers only to its own bytes, within the full window.
            let refers_back = keeps_context && data.len() <= agreed.own_window_bytes(self.role);
            let compressed = match refers_back {
                true => {
                    let context = self.context.as_ref();
                    let window = context.map_or(&[][..], |context| context.window());
                    codecs.deflate_after(window, data, window_bits)
                }
                false => codecs.deflate_alone(data, window_bits),
            };
            // Uncompressed messages are not in the window. So a short message is compressed, even
            // if it becomes longer, to let later messages refer to it.
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

    /// Appends a part of a message as a frame. Until the last part, only control frames may be appended between the parts.
    ///
    /// If compression was negotiated, each part is compressed without references to the parts before it, and the frames
    /// form one compressed message.
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
                // The peer's window now differs from the kept context, so the context is dropped: the next message
                // refers to nothing before itself.
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

    /// Drops the compression context if no message was compressed since the last call. The next message is then
    /// compressed like the first one. Has to be called at intervals.
    pub fn release_idle_context(&mut self) {
        if self
            .context
            .as_mut()
            .is_some_and(|context| context.release_if_idle())
        {
            self.context = None;
        }
    }

    /// Returns the heap memory in bytes: the compression context.
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
