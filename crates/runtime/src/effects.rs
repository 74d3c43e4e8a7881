//! What scripts want done: plain data, in the order in which it was asked for.
//!
//! A script never reaches a socket or the hub. It notes effects here; whoever ran it carries them out afterwards and
//! answers those that have a [`Token`].

use veche_calls::Call;
use veche_calls::channel::ChannelRequest;
use veche_types::{ConnectionId, MessageKind, Since};

use crate::dial::Dial;
use crate::hooks::HookResponse;

/// What a waiting script waits for. Never used twice by one application of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For developers.
    Debug,
    /// Worth knowing.
    Info,
    /// Something may be wrong.
    Warn,
    /// Something is wrong.
    Error,
}

/// A part of [`Effects::bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteSpan {
    from: u32,
    to: u32,
}

impl ByteSpan {
    /// That part.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.from as usize..self.to as usize]
    }
}

/// A secret of a client, which shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(pub String);

impl std::fmt::Debug for Credential {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Credential(…)")
    }
}

/// The place at which a connection joins a channel is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PositionRequest {
    /// Up to where its client knows the channel: it gets what it has missed.
    pub since: Option<Since>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A message to a connection.
    Send {
        /// Whom to.
        to: ConnectionId,
        /// Text or binary.
        kind: MessageKind,
        /// The message.
        data: ByteSpan,
    },
    /// The closing handshake of a connection.
    Close {
        /// Whose.
        of: ConnectionId,
        /// RFC 6455, section 7.4: 1000 to 1003, 1007 to 1014, 3000 to 4999.
        code: u16,
        /// At most 123 bytes.
        reason: String,
    },
    /// A subscription; answered by [`Answer::Done`](crate::Answer::Done) once the connection gets each publication, or by an
    /// outcome where its place is wanted.
    Subscribe {
        /// Who.
        who: ConnectionId,
        /// The channel's name, not checked.
        channel: String,
        /// Where it joins the channel is to be said.
        place: Option<PositionRequest>,
        /// Whom to answer.
        token: Token,
    },
    /// The end of a subscription.
    Unsubscribe {
        /// Who.
        who: ConnectionId,
        /// The channel's name, not checked.
        channel: String,
    },
    /// Another token in place of the one that has opened a connection; answered by
    /// [`Answer::Number`](crate::Answer::Number), the seconds that it holds, or [`Answer::No`](crate::Answer::No).
    Renew {
        /// Whose.
        who: ConnectionId,
        /// What the client has sent.
        credential: Credential,
        /// Whom to answer.
        token: Token,
    },
    /// A publication to a channel.
    Publish {
        /// The channel's name, not checked; `#user` is a user's personal one.
        channel: String,
        /// Text or binary.
        kind: MessageKind,
        /// It is text, and one value of JSON.
        is_json: bool,
        /// The publication.
        data: ByteSpan,
    },
    /// The answer to an HTTP request.
    Respond {
        /// Whose.
        to: ConnectionId,
        /// 200 to 599.
        status: u16,
        /// Names as they were written, and values.
        headers: Vec<(String, String)>,
        /// The body.
        body: ByteSpan,
    },
    /// The same with a file.
    RespondFile {
        /// Whose.
        to: ConnectionId,
        /// 200 to 599.
        status: u16,
        /// As those of [`Effect::Respond`].
        headers: Vec<(String, String)>,
        /// Below the script's folder; no part of it is empty, or begins with a dot.
        path: String,
    },
    /// The beginning of an answer that comes in parts.
    Begin {
        /// Whose.
        to: ConnectionId,
        /// 200 to 599.
        status: u16,
        /// As those of [`Effect::Respond`].
        headers: Vec<(String, String)>,
    },
    /// A part of it.
    Part {
        /// Whose.
        to: ConnectionId,
        /// Never empty.
        data: ByteSpan,
        /// Whom to answer once there is room for more.
        token: Option<Token>,
    },
    /// Its end.
    End {
        /// Whose.
        to: ConnectionId,
        /// Otherwise it breaks off.
        is_whole: bool,
    },
    /// The answer to an [`Event::Handshake`](crate::Event::Handshake).
    Handshake {
        /// The connection to be.
        of: ConnectionId,
        /// Accepts or refuses it.
        reply: HandshakeReply,
    },
    /// A message to a connection that is another worker's.
    SendFar {
        /// Which worker.
        worker: u16,
        /// Whom to.
        to: ConnectionId,
        /// Text or binary.
        kind: MessageKind,
        /// The message.
        data: ByteSpan,
    },
    /// The closing handshake of a connection that is another worker's.
    CloseFar {
        /// Which worker.
        worker: u16,
        /// Whose.
        of: ConnectionId,
        /// As that of [`Effect::Close`].
        code: u16,
        /// At most 123 bytes.
        reason: String,
    },
    /// Connections of a user are looked for, on all workers; answered by an outcome.
    Find {
        /// Whose.
        user: String,
        /// Most of them.
        limit: usize,
        /// Whom to answer.
        token: Token,
    },
    /// Something is asked of a channel; answered by an outcome.
    Inquire {
        /// The channel's name, not checked; `#user` is a user's personal one.
        channel: String,
        /// What.
        inquiry: ChannelRequest,
        /// Whom to answer.
        token: Token,
    },
    /// A call of the API that back ends have; answered by an outcome with
    /// [`Reply::Api`](veche_calls::Reply::Api).
    Command {
        /// The method's name, not checked.
        method: String,
        /// One JSON object; empty for none.
        body: ByteSpan,
        /// Whom to answer.
        token: Token,
    },
    /// Something is asked of the world; answered by an outcome.
    Call {
        /// What.
        call: Box<Call>,
        /// Whom to answer.
        token: Token,
    },
    /// Nobody waits for that call any more, or for what is looked for.
    CancelCall {
        /// Its.
        token: Token,
    },
    /// A connection to another server; the runtime hears whether it has opened or failed.
    Dial {
        /// Who dials.
        token: Token,
        /// Where to, and how.
        dial: Box<Dial>,
    },
    /// What is dialed is not wanted any more; nothing is to be told.
    HangUp {
        /// Who dialed.
        token: Token,
    },
    /// The answer to an [`Event::Hook`](crate::Event::Hook): exactly one for each.
    Hook {
        /// The request's.
        number: u64,
        /// What the application says to it.
        response: HookResponse,
    },
    /// A handler that had waited has ended: its connection takes the next message.
    Ready {
        /// Whose.
        of: ConnectionId,
    },
    /// A handler has failed; the error is logged, the connection is to be closed with 1011.
    Failed {
        /// Whose.
        of: ConnectionId,
    },
    /// A line for the log.
    Log {
        /// How much it matters.
        level: Level,
        /// One line, or several with a traceback.
        text: String,
        /// For whom the script ran, if for a client.
        about: Option<Box<LogContext>>,
    },
}

/// For whom a script runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogContext {
    /// The connection's id, as scripts know it.
    pub connection: String,
    /// Who it is, if that is known.
    pub user: Option<String>,
    /// Of the request: that which has opened a WebSocket.
    pub method: String,
    /// Its path.
    pub path: String,
}

/// The answer to a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeReply {
    /// The 101 may go.
    Accept {
        /// Who it is, if the script says so.
        user: Option<String>,
        /// The subprotocol.
        protocol: Option<String>,
    },
    /// No.
    Refuse {
        /// 300 to 599.
        status: u16,
        /// Names as they were written, and values.
        headers: Vec<(String, String)>,
        /// The body.
        body: Vec<u8>,
    },
}

/// Effects of the calls since they were last carried out.
#[derive(Debug, Default)]
pub struct Effects {
    /// In order.
    pub list: Vec<Effect>,
    bytes: Vec<u8>,
    /// Of lines for the log.
    text_bytes: usize,
}

/// Bytes of effects beyond which nothing more is taken of one run.
const BYTES_MAX: usize = 64 << 20;
/// Effects of one run, likewise.
const COUNT_MAX: usize = 1 << 20;
/// Bytes of lines for the log, likewise.
const LOG_BYTES_MAX: usize = 16 << 20;
/// Longest message: it is checked and copied by one call.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes after which effects are carried out before anything else runs.
const MUCH_BYTES: usize = 1 << 20;

/// Memory that is kept between turns.
const KEPT_BYTES: usize = 256 << 10;

impl Effects {
    /// The bytes of an effect of this list.
    #[must_use]
    pub fn bytes(&self, span: ByteSpan) -> &[u8] {
        span.of(&self.bytes)
    }

    /// Takes the effects out, in order, with the bytes that their [spans](ByteSpan::of) are parts of.
    pub fn drain(&mut self) -> (impl Iterator<Item = Effect>, &[u8]) {
        (self.list.drain(..), &self.bytes)
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets all of them; memory of ordinary size stays.
    pub fn clear(&mut self) {
        self.list.clear();
        self.text_bytes = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Keeps bytes for an effect; `None` if there are too many already.
    #[must_use]
    pub fn store(&mut self, data: &[u8]) -> Option<ByteSpan> {
        if self.bytes.len() + data.len() > BYTES_MAX || self.list.len() >= COUNT_MAX {
            return None;
        }
        let from = u32::try_from(self.bytes.len()).ok()?;
        let to = u32::try_from(self.bytes.len() + data.len()).ok()?;
        self.bytes.extend_from_slice(data);
        Some(ByteSpan { from, to })
    }

    /// Whether they should be carried out soon.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.bytes.len() + self.text_bytes > MUCH_BYTES || self.list.len() > MUCH_BYTES / 64
    }

    /// Keeps a line for the log; drops it where the run has logged too much.
    pub fn log(&mut self, level: Level, text: String, about: Option<Box<LogContext>>) {
        let bytes =
            |about: &LogContext| about.path.len() + about.user.as_ref().map_or(0, String::len);
        let bytes = text.len() + about.as_deref().map_or(0, bytes);
        if self.text_bytes + bytes > LOG_BYTES_MAX || self.list.len() >= COUNT_MAX {
            // A script that writes so much in one run gets no more of it into the log.
            return;
        }
        self.text_bytes += bytes;
        self.list.push(Effect::Log { level, text, about });
    }
}
