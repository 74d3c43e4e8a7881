//! Decoding of received bytes to messages and control frames.
//!
//! Almost every message takes the first branch of [`Decoder::advance`]: its single frame is complete in the receive
//! buffer, is unmasked in place and lent to the caller, without copying or allocating. Everything else (a frame cut by
//! the end of a receive, a fragmented message) goes through `partial`, and compressed messages through [`Codecs`].

use std::ops::Range;

use super::context::Context;
use super::deflate::Agreed;
use super::frame::{Header, Opcode};
use super::partial::Partial;
use super::{Codecs, Error, Limits, MessageKind, Role, close, mask, utf8};

/// A received event, borrowed until the next call.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A complete message: unmasked, inflated, and valid UTF-8 if it is text.
    Message {
        /// Whether it is text or binary.
        kind: MessageKind,
        /// The payload. Mutable, so that it can be masked or changed in place.
        data: &'a mut [u8],
    },
    /// To be answered by a pong with the same payload, at most 125 bytes.
    Ping(&'a [u8]),
    /// The answer to a ping, or unsolicited.
    Pong(&'a [u8]),
    /// The peer closes. Later input is consumed and dropped.
    Close {
        /// A code that [may be sent](veche_types::codes::is_sendable), or none at all.
        code: Option<u16>,
        /// At most 123 bytes, empty without a code.
        reason: &'a str,
    },
}

/// The receiving side of one connection. Holds no buffer while no message or frame is in progress.
#[derive(Debug)]
pub struct Decoder {
    /// The message or frame in progress; always `None` between messages.
    partial: Option<Box<Partial>>,
    /// The peer's compression context with context takeover (RFC 7692 section 7.2.2); from its first compressed
    /// message, or from the start if its room is reserved.
    context: Option<Box<Context>>,
    deflate: Option<Agreed>,
    role: Role,
    /// The last event was a close frame or an error.
    ended: bool,
}

// Each idle connection has one.
const _: () = assert!(size_of::<Decoder>() <= 24);

/// The location of an event's payload, so that nothing is borrowed while the decoder still works.
pub(super) enum Place {
    Input(Range<usize>),
    Codecs,
}

pub(super) enum Found {
    Message(MessageKind, Place),
    Control(Opcode, Place),
}

impl Decoder {
    /// Creates a decoder; `role` is ours, `deflate` the result of the handshake. The peer's context counts against no
    /// budget: servers use [`Decoder::accept`].
    #[must_use]
    pub fn new(role: Role, deflate: Option<Agreed>) -> Self {
        Self {
            partial: None,
            context: None,
            deflate,
            role,
            ended: false,
        }
    }

    /// Creates a server's decoder before the parameters are agreed on. Room for the client's context is reserved in
    /// full; if the budget of `codecs` has none, the client must not keep a context. [`Decoder::deflate`] returns the
    /// parameters to agree on.
    #[must_use]
    pub fn accept(agreed: Option<Agreed>, codecs: &Codecs) -> Self {
        let mut decoder = Self::new(Role::Server, agreed);
        if let Some(agreed) = agreed.filter(|agreed| agreed.peer_keeps_context(Role::Server)) {
            let window_bytes = agreed.peer_window_bytes(Role::Server);
            match Context::reserved(codecs.budget(), window_bytes) {
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
        limits: &Limits,
    ) -> Result<(usize, Option<Event<'a>>), Error> {
        let result = match self.advance(input, codecs, limits) {
            Ok((taken, None)) => Ok((taken, None)),
            Ok((taken, Some(found))) => {
                event(found, input, codecs).map(|event| (taken, Some(event)))
            }
            Err(error) => Err(error),
        };
        if matches!(result, Err(_) | Ok((_, Some(Event::Close { .. })))) {
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
    pub fn deflate(&self) -> Option<Agreed> {
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
        limits: &Limits,
    ) -> Result<(usize, Option<Found>), Error> {
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
                    return Err(Error::ContinuationUnexpected);
                }
                mask::apply(payload, header.mask);
                return Ok((
                    end,
                    Some(Found::Control(header.opcode, Place::Input(place))),
                ));
            };
            if limits.fragments_max == 0 {
                return Err(Error::TooManyFragments);
            }
            if header.compressed {
                if payload.len() > Codecs::compressed_bytes_max(limits.message_bytes_max) {
                    return Err(Error::MessageTooBig);
                }
                mask::apply(payload, header.mask);
                self.inflate(kind, payload, codecs, limits)?;
                return Ok((end, Some(Found::Message(kind, Place::Codecs))));
            }
            if payload.len() > limits.message_bytes_max {
                return Err(Error::MessageTooBig);
            }
            mask::apply(payload, header.mask);
            if kind == MessageKind::Text {
                utf8::check(payload)?;
            }
            return Ok((end, Some(Found::Message(kind, Place::Input(place)))));
        }
        self.resume(input, codecs, limits)
    }

    /// Handles everything except a complete message in a complete frame.
    fn resume(
        &mut self,
        input: &mut [u8],
        codecs: &mut Codecs,
        limits: &Limits,
    ) -> Result<(usize, Option<Found>), Error> {
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
            Some(PartialFound::Control(opcode, place)) => Some(Found::Control(opcode, place)),
            Some(PartialFound::Message(kind)) => Some(Found::Message(kind, Place::Codecs)),
            Some(PartialFound::Compressed(kind)) => {
                let inflated = self.inflate(kind, partial.compressed(), codecs, limits);
                partial.forget_message();
                if let Err(error) = inflated {
                    codecs.recycle(partial);
                    return Err(error);
                }
                Some(Found::Message(kind, Place::Codecs))
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
        limits: &Limits,
    ) -> Result<(), Error> {
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
                Error::MessageTooBig if bytes_max < limits.message_bytes_max => {
                    Error::InflatedTooFar
                }
                error => error,
            })?;
        if agreed.peer_keeps_context(self.role) {
            let context = match &mut self.context {
                Some(context) => context,
                none => none.insert(Box::new(Context::new(None))),
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

/// The result of a completed partial.
pub(super) enum PartialFound {
    /// A message, stored in `codecs`.
    Message(MessageKind),
    /// A compressed message, stored in the partial.
    Compressed(MessageKind),
    Control(Opcode, Place),
}

#[inline]
fn event<'a>(
    found: Found,
    input: &'a mut [u8],
    codecs: &'a mut Codecs,
) -> Result<Event<'a>, Error> {
    match found {
        Found::Message(kind, Place::Input(range)) => Ok(Event::Message {
            kind,
            data: &mut input[range],
        }),
        Found::Message(kind, Place::Codecs) => Ok(Event::Message {
            kind,
            data: codecs.message(),
        }),
        Found::Control(opcode, place) => {
            let payload = match place {
                Place::Input(range) => &input[range],
                Place::Codecs => codecs.control(),
            };
            match opcode {
                Opcode::Ping => Ok(Event::Ping(payload)),
                Opcode::Pong => Ok(Event::Pong(payload)),
                _ => close::parse(payload).map(|(code, reason)| Event::Close { code, reason }),
            }
        }
    }
}
