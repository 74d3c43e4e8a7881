//! From bytes to commands. One of the transport's messages, or the body of a request, holds any number of them; what
//! one of them means does not depend on the others. [`json`] and [`protobuf`] say what they look like.

mod command_builder;
pub(crate) mod filter;
pub(crate) mod json;
pub(crate) mod protobuf;
mod wire;

pub use command_builder::ENTRIES_MAX;

use crate::{Command, ConnectRequest, EmulationBody, Encoding, MalformedMessage, Request};
use command_builder::CommandBuilder;

/// What a client may send at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Bytes of one message, or of a body.
    pub message_bytes_max: usize,
    /// Commands in it.
    pub commands_max: usize,
}

impl Default for DecodeLimits {
    /// 64 KiB, as the original server has it, and as many commands as that may reasonably hold.
    fn default() -> Self {
        Self {
            message_bytes_max: 64 * 1024,
            commands_max: 1024,
        }
    }
}

/// The commands of one message, in order. Nothing follows an error.
pub struct Commands<'a> {
    source: Source<'a>,
    bytes: usize,
    left: usize,
}

enum Source<'a> {
    Json(json::Stream<'a>),
    Protobuf(&'a [u8]),
    Failed(MalformedMessage),
    Ended,
}

impl Encoding {
    /// The commands that a message or a body holds. They are read one by one, as they are asked for.
    #[must_use]
    pub fn commands(self, message: &[u8], limits: DecodeLimits) -> Commands<'_> {
        let source = match (self, bounded(message, limits)) {
            (_, Err(malformed)) => Source::Failed(malformed),
            (Self::Protobuf, Ok(message)) => Source::Protobuf(message),
            (Self::Json, Ok(message)) => match text(message) {
                Ok(text) => Source::Json(json::stream(text)),
                Err(malformed) => Source::Failed(malformed),
            },
        };
        Commands {
            source,
            bytes: message.len(),
            left: limits.commands_max,
        }
    }

    /// The request with which a client of a unidirectional transport begins: without a command around it.
    ///
    /// # Errors
    /// What came is not one.
    pub fn connect_request(
        self,
        message: &[u8],
        limits: DecodeLimits,
    ) -> Result<ConnectRequest<'_>, MalformedMessage> {
        let message = bounded(message, limits)?;
        let connect = match self {
            Self::Json => json::one(text(message)?)?,
            Self::Protobuf => protobuf::message(message)?,
        };
        // Looked at as if it came in a command.
        let mut draft = CommandBuilder {
            id: 1,
            ..CommandBuilder::default()
        };
        draft.add(Request::Connect(connect));
        match draft.finish()?.request {
            Request::Connect(connect) => Ok(connect),
            _ => Err(MalformedMessage::NoRequest),
        }
    }

    /// The envelope in which a client of a stream sends its commands another way. They are read by
    /// [`commands`](Self::commands) of the envelope's data, where the session is.
    ///
    /// # Errors
    /// What came is not one.
    pub fn emulation(
        self,
        body: &[u8],
        limits: DecodeLimits,
    ) -> Result<EmulationBody<'_>, MalformedMessage> {
        let body = bounded(body, limits)?;
        match self {
            Self::Json => json::one(text(body)?),
            Self::Protobuf => protobuf::message(body),
        }
    }
}

fn bounded(message: &[u8], limits: DecodeLimits) -> Result<&[u8], MalformedMessage> {
    match message.len() > limits.message_bytes_max {
        true => Err(MalformedMessage::TooBig),
        false => Ok(message),
    }
}

fn text(message: &[u8]) -> Result<&str, MalformedMessage> {
    simdutf8::basic::from_utf8(message).map_err(|_| MalformedMessage::Utf8)
}

impl<'a> Commands<'a> {
    /// Bytes of the message that are done with: those behind them can be read later, as a message of their own.
    #[must_use]
    pub fn consumed(&self) -> usize {
        match &self.source {
            Source::Json(stream) => stream.byte_offset(),
            Source::Protobuf(rest) => self.bytes - rest.len(),
            Source::Failed(_) | Source::Ended => self.bytes,
        }
    }

    fn draft(&mut self) -> Option<Result<CommandBuilder<'a>, MalformedMessage>> {
        match &mut self.source {
            Source::Json(stream) => json::next(stream),
            Source::Protobuf([]) | Source::Ended => None,
            Source::Protobuf(rest) => {
                Some(wire::delimited(rest).and_then(protobuf::message::<CommandBuilder<'_>>))
            }
            Source::Failed(malformed) => Some(Err(*malformed)),
        }
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<Command<'a>, MalformedMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        let draft = self.draft()?;
        let command = match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                draft.and_then(CommandBuilder::finish)
            }
            // Whatever it is, it is one too many.
            None => Err(MalformedMessage::TooManyCommands),
        };
        if command.is_err() {
            self.source = Source::Ended;
        }
        Some(command)
    }
}

impl std::iter::FusedIterator for Commands<'_> {}

impl std::fmt::Debug for Commands<'_> {
    /// Not what came, which holds secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commands")
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
