//! Decoding of commands. A transport message or request body contains any number of them, which are independent of each
//! other. [`json`] and [`protobuf`] define the formats.

pub(crate) mod filter;
pub(crate) mod json;
pub(crate) mod protobuf;
mod wire;

use crate::request::CommandBuilder;
use crate::{ClientRequest, Command, ConnectRequest, EmulationBody, Encoding, MalformedMessage};

/// Limits on one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Maximum number of bytes of one message or body.
    pub message_bytes_max: usize,
    /// Maximum number of commands in one message or body.
    pub commands_max: usize,
}

impl Default for DecodeLimits {
    /// Permits 64 KiB, as Centrifugo does, and 1024 commands, which a message of that size may reasonably contain.
    fn default() -> Self {
        Self {
            message_bytes_max: 64 * 1024,
            commands_max: 1024,
        }
    }
}

/// An iterator over the commands of one message in order. An error ends it.
pub struct Commands<'a> {
    source: Source<'a>,
    bytes: usize,
    left: usize,
}

enum Source<'a> {
    Json(json::JsonStream<'a>),
    Protobuf(&'a [u8]),
    Failed(MalformedMessage),
    Ended,
}

impl Encoding {
    /// Returns an iterator over the commands of a message or body, which are decoded on demand.
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

    /// Decodes the connect request of a unidirectional transport, which is not part of a command.
    ///
    /// # Errors
    /// The message is invalid.
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
        // The request is validated as part of a command, which needs an id.
        let mut draft = CommandBuilder {
            id: 1,
            ..CommandBuilder::default()
        };
        draft.add(ClientRequest::Connect(connect));
        match draft.finish()?.request {
            ClientRequest::Connect(connect) => Ok(connect),
            _ => Err(MalformedMessage::NoRequest),
        }
    }

    /// Decodes the envelope with which a streaming client sends its commands separately. The worker
    /// of the session decodes the envelope's data with [`commands`](Self::commands).
    ///
    /// # Errors
    /// The envelope is invalid.
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
    /// Returns the number of consumed bytes; the rest can be decoded later as a separate message.
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
            // A further command exceeds `commands_max`, whatever its content.
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
    /// Omits the message, which may contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commands")
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
