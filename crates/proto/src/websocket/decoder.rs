//! Decoding of received bytes to messages and control frames.
//!
//! Almost every message takes the first branch of [`Decoder::advance`]: its single frame is complete in the receive
//! buffer, is unmasked in place and lent to the caller, without copying or allocating. Everything else (a frame cut by
//! the end of a receive, a fragmented message) goes through `partial`, and compressed messages through [`Codecs`].

use std::ops::Range;

use super::context::DeflateContext;
use super::deflate::DeflateParams;
use super::frame::{Header, Opcode};
use super::partial::Partial;
use super::{Codecs, MessageKind, MessageLimits, ProtocolError, Role, close, mask, utf8};

/// A received event, borrowed until the next call.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A complete message: unmasked, inflated, and valid UTF-8 if it is text.
    Message {
        /// Whether the message is text or binary.
        kind: MessageKind,
        /// The payload. Mutable, so that it can be masked or changed in place.
        data: &'a mut [u8],
    },
    /// A ping, which requires a pong with the same payload of at most 125 bytes.
    Ping(&'a [u8]),
    /// A pong: the answer to a ping, or unsolicited.
    Pong(&'a [u8]),
    /// The peer sent a Close frame. Later input is consumed and dropped.
    Close {
        /// The close code, which [may be sent](veche_types::codes::is_sendable); `None` if the frame has none.
        code: Option<u16>,
        /// The close reason: at most 123 bytes, empty without a code.
        reason: &'a str,
    },
}

/// The receiving side of one connection. Holds no buffer while no message or frame is in progress.
#[derive(Debug)]
pub struct Decoder {
    /// The message or frame in progress; always `None` between messages.
    partial: Option<Box<Partial>>,
    /// The peer's compression context, if context takeover was negotiated (RFC 7692 section 7.2.2).
    /// Present from the peer's first compressed message on, or from the start if its memory is
    /// reserved.
    context: Option<Box<DeflateContext>>,
    deflate: Option<DeflateParams>,
    role: Role,
    /// Whether the last event was a close frame or an error.
    ended: bool,
}

// The size matters because each idle connection has a decoder.
const _: () = assert!(size_of::<Decoder>() <= 24);

/// The location of an event's payload. A location borrows nothing, unlike the payload in a [`FrameEvent`].
pub(super) enum PayloadLocation {
    Input(Range<usize>),
    Codecs,
}

pub(super) enum DecodedEvent {
    Message(MessageKind, PayloadLocation),
    Control(Opcode, PayloadLocation),
}

impl Decoder {
    /// Creates a decoder. `role` is the role of this side, `deflate` the result of the handshake. The memory of the
    /// peer's compression context counts against no budget, so servers use [`Decoder::accept`].
    #[must_use]
    pub fn new(role: Role, deflate: Option<DeflateParams>) -> Self {
        Self {
            partial: None,
            context: None,
            deflate,
            role,
            ended: false,
        }
    }

    /// Creates a server's decoder before the parameters are agreed on. The full memory of the client's context is
    /// reserved in the budget of `codecs`. If the budget does not suffice, the parameters change so that the client
    /// must not keep a context. [`Decoder::deflate`] returns the parameters to agree on.
    #[must_use]
    pub fn accept(agreed: Option<DeflateParams>, codecs: &Codecs) -> Self {
        let mut decoder = Self::new(Role::Server, agreed);
        if let Some(agreed) = agreed.filter(|agreed| agreed.peer_keeps_context(Role::Server)) {
            let window_bytes = agreed.peer_window_bytes(Role::Server);
            match DeflateContext::reserved(codecs.budget(), window_bytes) {
                Some(context) => decoder.context = Some(Box::new(context)),
                None => decoder.deflate = Some(agreed.without_client_context()),
            }
        }
        decoder
    }

    /// Consumes bytes from the front of `input`; returns their number, and the event if one is complete. Without an
    /// event all of `input` was consumed; with one, call again with the rest.
    ///
    /// Complete frames are unmasked in place in `input`. Memory grows with received data, never with announced lengths,
    /// and stays within `limits`.
    ///
    /// # Errors
    /// A violation by the peer, detected as early as possible. Close the connection with its close code; further input
    /// is consumed and dropped.
    #[inline(always)]
    pub fn decode<'a>(
        &mut self,
        input: &'a mut [u8],
        codecs: &'a mut Codecs,
        limits: &MessageLimits,
    ) -> Result<(usize, Option<FrameEvent<'a>>), ProtocolError> {
        let result = match self.advance(input, codecs, limits) {
            Ok((taken, None)) => Ok((taken, None)),
            Ok((taken, Some(found))) => {
                event(found, input, codecs).map(|event| (taken, Some(event)))
            }
            Err(error) => Err(error),
        };
        if matches!(result, Err(_) | Ok((_, Some(FrameEvent::Close { .. })))) {
            self.end();
        }
        result
    }

    /// Returns whether a message or frame is in progress.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        self.partial.is_some()
    }

    /// Returns the parameters from the handshake.
    #[must_use]
    pub fn deflate(&self) -> Option<DeflateParams> {
        self.deflate
    }

    /// Returns the heap memory in bytes: data in progress and the compression context.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let partial = self
            .partial
            .as_ref()
            .map_or(0, |partial| partial.heap_bytes());
        let context = self
            .context
            .as_ref()
            .map_or(0, |context| context.heap_bytes());
        partial + context
    }

    #[inline(always)]
    fn advance(
        &mut self,
        input: &mut [u8],
        codecs: &mut Codecs,
        limits: &MessageLimits,
    ) -> Result<(usize, Option<DecodedEvent>), ProtocolError> {
        if self.partial.is_none()
            && !self.ended
            && let Some(header) = Header::parse(input, self.role, self.deflate.is_some())?
            && header.fin
            && let Some(end) = header.end_within(input.len())
        {
            let place = header.size..end;
            let payload = &mut input[place.clone()];
            let Some(kind) = header.opcode.message_kind() else {
                if header.opcode == Opcode::Continuation {
                    return Err(ProtocolError::ContinuationUnexpected);
                }
                mask::apply(payload, header.mask);
                return Ok((
                    end,
                    Some(DecodedEvent::Control(
                        header.opcode,
                        PayloadLocation::Input(place),
                    )),
                ));
            };
            if limits.fragments_max == 0 {
                return Err(ProtocolError::TooManyFragments);
            }
            if header.compressed {
                if payload.len() > Codecs::compressed_bytes_max(limits.message_bytes_max) {
                    return Err(ProtocolError::MessageTooBig);
                }
                mask::apply(payload, header.mask);
                self.inflate(kind, payload, codecs, limits)?;
                return Ok((
                    end,
                    Some(DecodedEvent::Message(kind, PayloadLocation::Codecs)),
                ));
            }
            if payload.len() > limits.message_bytes_max {
                return Err(ProtocolError::MessageTooBig);
            }
            mask::apply(payload, header.mask);
            if kind == MessageKind::Text {
                utf8::check(payload)?;
            }
            return Ok((
                end,
                Some(DecodedEvent::Message(kind, PayloadLocation::Input(place))),
            ));
        }
        self.resume(input, codecs, limits)
    }

    /// Handles input other than a complete message in a single complete frame.
    fn resume(
        &mut self,
        input: &mut [u8],
        codecs: &mut Codecs,
        limits: &MessageLimits,
    ) -> Result<(usize, Option<DecodedEvent>), ProtocolError> {
        if self.ended || input.is_empty() {
            return Ok((input.len(), None));
        }
        let mut partial = self.partial.take().unwrap_or_else(|| codecs.take_partial());
        let (taken, found) =
            match partial.advance(input, self.role, self.deflate.is_some(), codecs, limits) {
                Ok(progress) => progress,
                Err(error) => {
                    codecs.recycle(partial);
                    return Err(error);
                }
            };
        let found = match found {
            None => None,
            Some(CompletedPartial::Control(opcode, place)) => {
                Some(DecodedEvent::Control(opcode, place))
            }
            Some(CompletedPartial::Message(kind)) => {
                Some(DecodedEvent::Message(kind, PayloadLocation::Codecs))
            }
            Some(CompletedPartial::Compressed(kind)) => {
                let inflated = self.inflate(kind, partial.compressed(), codecs, limits);
                partial.forget_message();
                if let Err(error) = inflated {
                    codecs.recycle(partial);
                    return Err(error);
                }
                Some(DecodedEvent::Message(kind, PayloadLocation::Codecs))
            }
        };
        if partial.is_idle() {
            codecs.recycle(partial);
        } else {
            self.partial = Some(partial);
        }
        Ok((taken, found))
    }

    /// Inflates a complete message into `codecs`.
    fn inflate(
        &mut self,
        kind: MessageKind,
        data: &[u8],
        codecs: &mut Codecs,
        limits: &MessageLimits,
    ) -> Result<(), ProtocolError> {
        let agreed = self
            .deflate
            .expect("RSV1 must have been refused if compression was not negotiated");
        let bytes_max = limits.inflated_bytes_max(data.len());
        let window = match &self.context {
            Some(context) => context.window(),
            None => &[],
        };
        codecs
            .inflate(window, data, bytes_max)
            .map_err(|error| match error {
                ProtocolError::MessageTooBig if bytes_max < limits.message_bytes_max => {
                    ProtocolError::InflatedTooFar
                }
                error => error,
            })?;
        if agreed.peer_keeps_context(self.role) {
            let context = match &mut self.context {
                Some(context) => context,
                none => none.insert(Box::new(DeflateContext::new(None))),
            };
            let kept = context.push(codecs.message(), agreed.peer_window_bytes(self.role));
            debug_assert!(
                kept,
                "if memory is limited, it must have been reserved for this context"
            );
        }
        if kind == MessageKind::Text {
            utf8::check(codecs.message())
        } else {
            Ok(())
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.partial = None;
        self.context = None;
    }
}

/// The result of completing a message or frame in a [`Partial`].
pub(super) enum CompletedPartial {
    /// A message, stored in `codecs`.
    Message(MessageKind),
    /// A compressed message, stored in the [`Partial`].
    Compressed(MessageKind),
    Control(Opcode, PayloadLocation),
}

#[inline]
fn event<'a>(
    found: DecodedEvent,
    input: &'a mut [u8],
    codecs: &'a mut Codecs,
) -> Result<FrameEvent<'a>, ProtocolError> {
    match found {
        DecodedEvent::Message(kind, PayloadLocation::Input(range)) => Ok(FrameEvent::Message {
            kind,
            data: &mut input[range],
        }),
        DecodedEvent::Message(kind, PayloadLocation::Codecs) => Ok(FrameEvent::Message {
            kind,
            data: codecs.message(),
        }),
        DecodedEvent::Control(opcode, place) => {
            let payload = match place {
                PayloadLocation::Input(range) => &input[range],
                PayloadLocation::Codecs => codecs.control(),
            };
            match opcode {
                Opcode::Ping => Ok(FrameEvent::Ping(payload)),
                Opcode::Pong => Ok(FrameEvent::Pong(payload)),
                _ => close::parse(payload).map(|(code, reason)| FrameEvent::Close { code, reason }),
            }
        }
    }
}
