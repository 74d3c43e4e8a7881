//! Received bytes to messages and control frames.
//!
//! The path of almost every message is the first branch of [`Decoder::advance`]: its one frame lies whole in the
//! receive buffer, is unmasked there and lent to the caller, so nothing is copied and nothing allocated. All else (a
//! frame cut by the end of a receive, a message in fragments) goes through `partial`, compressed messages through
//! [`Codecs`].

use std::ops::Range;

use super::context::DeflateContext;
use super::deflate::DeflateParams;
use super::frame::{Header, Opcode};
use super::partial::Partial;
use super::{Codecs, MessageKind, MessageLimits, ProtocolError, Role, close, mask, utf8};

/// What a peer sent, lent until the next call.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A whole message: unmasked, inflated, and valid UTF-8 if it is text.
    Message {
        /// Text or binary.
        kind: MessageKind,
        /// The payload. Mutable, so that it can be masked or changed where it lies.
        data: &'a mut [u8],
    },
    /// To be answered by a pong with the same payload, at most 125 bytes.
    Ping(&'a [u8]),
    /// The answer to a ping, or unasked.
    Pong(&'a [u8]),
    /// The peer closes. What it sends after this is taken and dropped.
    Close {
        /// A code that [may be sent](veche_types::codes::is_sendable), or none at all.
        code: Option<u16>,
        /// At most 123 bytes, empty without a code.
        reason: &'a str,
    },
}

/// One connection's receiving side. Holds no buffer while no message or frame is under way.
#[derive(Debug)]
pub struct Decoder {
    /// The message or frame under way. `None` between messages, always.
    partial: Option<Box<Partial>>,
    /// The peer's compression context, where it keeps one (RFC 7692 section 7.2.2); from its first compressed message, or
    /// from the start where its room is reserved.
    context: Option<Box<DeflateContext>>,
    deflate: Option<DeflateParams>,
    role: Role,
    /// A close frame or an error was the last event.
    ended: bool,
}

// Each idle connection holds one.
const _: () = assert!(size_of::<Decoder>() <= 24);

/// Where the payload of an event lies, so that no borrow is needed while the decoder still works.
pub(super) enum PayloadLocation {
    Input(Range<usize>),
    Codecs,
}

pub(super) enum DecodedEvent {
    Message(MessageKind, PayloadLocation),
    Control(Opcode, PayloadLocation),
}

impl Decoder {
    /// `role` is ours; `deflate` what the handshake agreed on. A context of the peer's counts against no budget: servers
    /// use [`Decoder::accept`].
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

    /// A server's, for what it is about to agree on. The room for a context of the client's is reserved in full; where the
    /// budget of `codecs` has none, the client is to keep no context. [`Decoder::deflate`] says what to agree on.
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

    /// Takes bytes from the front of `input`; returns how many, and the event if one is complete. Without an event all
    /// of `input` was taken; with one, call again with the rest.
    ///
    /// Whole frames are unmasked where they lie in `input`. Memory grows with what was received, never with what was
    /// announced, and stays within `limits`.
    ///
    /// # Errors
    /// The peer's violation, as soon as the bytes so far show it. Close the connection with its
    /// [code](ProtocolError::close_code); further input is taken and dropped.
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

    /// Whether a message or a frame is under way: the peer owes us bytes.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        self.partial.is_some()
    }

    /// What the handshake agreed on.
    #[must_use]
    pub fn deflate(&self) -> Option<DeflateParams> {
        self.deflate
    }

    /// Own memory beside `self`, in bytes: what is under way and the compression context.
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

    /// Everything but a whole message in a whole frame.
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

    /// Inflates a whole message into `codecs`.
    fn inflate(
        &mut self,
        kind: MessageKind,
        data: &[u8],
        codecs: &mut Codecs,
        limits: &MessageLimits,
    ) -> Result<(), ProtocolError> {
        let agreed = self
            .deflate
            .expect("RSV1 is refused unless deflate was agreed");
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
            debug_assert!(kept, "its room is reserved, or not limited");
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

/// What [`Partial`] completed.
pub(super) enum CompletedPartial {
    /// A message, in `codecs`.
    Message(MessageKind),
    /// A message still compressed, in the partial itself.
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
