//! Effects: the actions that scripts request, as plain data in order.
//!
//! A script never reaches a socket or the hub. It records effects here; its caller executes them afterwards and answers
//! those that have a [`Token`].

use veche_calls::Call;
use veche_calls::channel::AppChannelQuery;
use veche_types::{ConnectionId, MessageKind, PayloadKind, Since, WorkerId};

use crate::dial::Dial;
use crate::hooks::HookResponse;

/// Identifies a wait of a suspended handler. An application on a worker never uses the same token twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Details of interest to developers only.
    Debug,
    /// An event of normal operation.
    Info,
    /// A problem that may need attention.
    Warn,
    /// A failure that needs attention.
    Error,
}

/// A range of [`Effects::bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteSpan {
    from: u32,
    to: u32,
}

impl ByteSpan {
    /// Returns the bytes in the range.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.from as usize..self.to as usize]
    }
}

/// A client's token or password. Its debug form is redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(pub String);

impl std::fmt::Debug for Credential {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Credential(…)")
    }
}

/// A request for the position at which a subscription starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PositionRequest {
    /// The client's last known position; publications after it are recovered. If it is `None`, none are recovered.
    pub since: Option<Since>,
}

/// An action requested by a handler.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Sends a message to a connection.
    Send {
        /// The connection that receives the message.
        to: ConnectionId,
        /// Whether the message is text or binary.
        kind: MessageKind,
        /// The content of the message.
        data: ByteSpan,
    },
    /// Starts the closing handshake of a connection.
    Close {
        /// The connection to close.
        of: ConnectionId,
        /// The close code (RFC 6455, section 7.4): 1000 to 1003, 1007 to 1014, 3000 to 4999.
        code: u16,
        /// The close reason, at most 123 bytes.
        reason: String,
    },
    /// Subscribes a connection to a channel. Answered by [`WaitResult::Done`](crate::WaitResult::Done) once the connection
    /// receives every new publication, or by a call outcome if the position was requested.
    Subscribe {
        /// The connection to subscribe.
        connection: ConnectionId,
        /// The name of the channel, not validated.
        channel: String,
        /// A request for the position at which the subscription starts, if any.
        place: Option<PositionRequest>,
        /// The token of the waiting handler.
        token: Token,
    },
    /// Ends a connection's subscription to a channel.
    Unsubscribe {
        /// The connection to unsubscribe.
        connection: ConnectionId,
        /// The name of the channel, not validated.
        channel: String,
    },
    /// Replaces the token with which a client has opened a connection. Answered by
    /// [`WaitResult::Number`](crate::WaitResult::Number), the new token's lifetime in seconds, or
    /// [`WaitResult::No`](crate::WaitResult::No).
    Renew {
        /// The connection whose token is replaced.
        connection: ConnectionId,
        /// The new token from the client.
        credential: Credential,
        /// The token of the waiting handler.
        token: Token,
    },
    /// Publishes to a channel.
    Publish {
        /// The name of the channel, not validated; `#user` is a user's personal channel.
        channel: String,
        /// The encoding of the data.
        kind: PayloadKind,
        /// The published data, in [`Effects::bytes`].
        data: ByteSpan,
    },
    /// Responds to an HTTP request.
    Respond {
        /// The connection of the request.
        to: ConnectionId,
        /// The status, from 200 to 599.
        status: u16,
        /// Header names as the handler wrote them, and values.
        headers: Vec<(String, String)>,
        /// The response body, in [`Effects::bytes`].
        body: ByteSpan,
    },
    /// Responds to an HTTP request with a file.
    RespondFile {
        /// The connection of the request.
        to: ConnectionId,
        /// The status, from 200 to 599.
        status: u16,
        /// Headers, as in [`Effect::Respond`].
        headers: Vec<(String, String)>,
        /// A path below the script's folder. No segment is empty or begins with a dot.
        path: String,
    },
    /// Starts a streamed response.
    Begin {
        /// The connection of the request.
        to: ConnectionId,
        /// The status, from 200 to 599.
        status: u16,
        /// Headers, as in [`Effect::Respond`].
        headers: Vec<(String, String)>,
    },
    /// Sends a part of a streamed response.
    Part {
        /// The connection of the request.
        to: ConnectionId,
        /// The bytes of the part; never empty.
        data: ByteSpan,
        /// The token of the handler if it waits until there is room to send more; `None` if it does not wait.
        token: Option<Token>,
    },
    /// Ends a streamed response.
    End {
        /// The connection of the request.
        to: ConnectionId,
        /// `false` aborts the response so that the client sees an incomplete body.
        is_whole: bool,
    },
    /// The answer to an [`Event::Handshake`](crate::Event::Handshake).
    Handshake {
        /// The connection whose handshake is answered.
        of: ConnectionId,
        /// Whether the handshake is accepted or refused.
        reply: HandshakeReply,
    },
    /// Sends a message to a connection on another worker.
    SendFar {
        /// The number of the connection's worker.
        worker: WorkerId,
        /// The connection that receives the message.
        to: ConnectionId,
        /// Whether the message is text or binary.
        kind: MessageKind,
        /// The content of the message.
        data: ByteSpan,
    },
    /// Starts the closing handshake of a connection on another worker.
    CloseFar {
        /// The number of the connection's worker.
        worker: WorkerId,
        /// The connection to close.
        of: ConnectionId,
        /// The close code, as in [`Effect::Close`].
        code: u16,
        /// The close reason, at most 123 bytes.
        reason: String,
    },
    /// Searches all workers for connections of a user; answered by a call outcome.
    Find {
        /// The user to search for.
        user: String,
        /// The maximum number of results.
        limit: usize,
        /// The token of the waiting handler.
        token: Token,
    },
    /// Queries a channel; answered by a call outcome.
    Inquire {
        /// The name of the channel, not validated; `#user` is a user's personal channel.
        channel: String,
        /// The kind of the query.
        request: AppChannelQuery,
        /// The token of the waiting handler.
        token: Token,
    },
    /// Calls a method of the server API; answered by a call outcome with [`CallReply::Api`](veche_calls::CallReply::Api).
    Command {
        /// The name of the method, not validated.
        method: String,
        /// The parameters as a JSON object; empty if there are no parameters.
        body: ByteSpan,
        /// The token of the waiting handler.
        token: Token,
    },
    /// Performs a call to an external service; answered by a call outcome.
    Call {
        /// The call to perform.
        call: Box<Call>,
        /// The token of the waiting handler.
        token: Token,
    },
    /// Cancels a call or a search that no handler waits for any more.
    CancelCall {
        /// The token of the call or search.
        token: Token,
    },
    /// Opens an outgoing connection. The runtime is notified of success or failure.
    Dial {
        /// The token of the dialing handler.
        token: Token,
        /// The destination and the options.
        dial: Box<Dial>,
    },
    /// Abandons an outgoing connection; no notification follows.
    HangUp {
        /// The token of the dialing handler.
        token: Token,
    },
    /// Responds to an [`Event::Hook`](crate::Event::Hook). Each such event gets exactly one response.
    Hook {
        /// The number of the request.
        number: u64,
        /// The application's response to the request.
        response: HookResponse,
    },
    /// A suspended handler has finished, so its connection can process the next message.
    Ready {
        /// The connection of the handler.
        of: ConnectionId,
    },
    /// A handler failed. The error has been logged; the connection is closed with close code 1011.
    Failed {
        /// The connection of the handler.
        of: ConnectionId,
    },
    /// Writes a line to the log.
    Log {
        /// The severity of the line.
        level: Level,
        /// One line, or several with a traceback.
        text: String,
        /// The client that the handler ran for, if any.
        about: Option<Box<LogContext>>,
    },
}

/// What log lines show about a handler: the client that it runs for, and the worker process that
/// runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogContext {
    /// The connection's id, in the form that scripts see.
    pub connection: Option<String>,
    /// The user, if known.
    pub user: Option<String>,
    /// The method of the request that opened the connection.
    pub method: Option<String>,
    /// The path of the request that opened the connection.
    pub path: Option<String>,
    /// The worker process that runs the handler, if it runs in one.
    pub process: Option<LogProcess>,
}

/// A worker process, as shown in log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogProcess {
    /// The number of this process among the processes of its application.
    pub instance: u32,
    /// The process id.
    pub pid: u32,
}

/// The response to a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeReply {
    /// Accepts the handshake, so that the 101 can be sent.
    Accept {
        /// The user, if the handler determines one.
        user: Option<String>,
        /// The selected subprotocol, if any.
        protocol: Option<String>,
    },
    /// Refuses the handshake with an HTTP response.
    Refuse {
        /// The status, from 300 to 599.
        status: u16,
        /// Header names as the handler wrote them, and values.
        headers: Vec<(String, String)>,
        /// The complete body of the response.
        body: Vec<u8>,
    },
}

/// The effects recorded since they were last executed.
#[derive(Debug, Default)]
pub struct Effects {
    /// The effects in order of recording.
    pub list: Vec<Effect>,
    bytes: Vec<u8>,
    /// Total bytes of the recorded log lines, for [`LOG_BYTES_MAX`].
    text_bytes: usize,
}

/// The maximum number of bytes recorded before the effects are executed; further effects are refused.
pub(crate) const BYTES_MAX: usize = 64 << 20;
/// The maximum number of effects recorded before they are executed.
pub(crate) const COUNT_MAX: usize = 1 << 20;
/// The maximum number of log bytes recorded before the effects are executed; further lines are
/// dropped. The worker formats all recorded lines at once and does nothing else meanwhile.
const LOG_BYTES_MAX: usize = 1 << 20;
/// The number of bytes counted for each log line in addition to its text.
const LOG_LINE_BYTES: usize = 128;
/// The longest message in bytes. It is limited because a message is validated and copied in one step.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// The number of recorded bytes above which effects are executed before another handler runs.
const MUCH_BYTES: usize = 1 << 20;

/// The maximum buffer capacity that [`Effects::clear`] retains, in bytes.
const KEPT_BYTES: usize = 256 << 10;

impl Effects {
    /// Returns the bytes that an effect refers to.
    #[must_use]
    pub fn bytes(&self, span: ByteSpan) -> &[u8] {
        span.of(&self.bytes)
    }

    /// Drains the effects in order, with the bytes that their [spans](ByteSpan::of) refer to.
    pub fn drain(&mut self) -> (impl Iterator<Item = Effect>, &[u8]) {
        (self.list.drain(..), &self.bytes)
    }

    /// Returns whether no effect is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes all effects but retains a moderate buffer capacity.
    pub fn clear(&mut self) {
        self.list.clear();
        self.text_bytes = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Stores bytes for an effect. Returns `None` if this would exceed `BYTES_MAX`, or if
    /// `COUNT_MAX` effects are recorded.
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

    /// Returns whether so much is recorded that the effects should be executed before another handler runs.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.bytes.len() + self.text_bytes > MUCH_BYTES || self.list.len() > MUCH_BYTES / 64
    }

    /// Records a line for the log. Drops it if the recorded lines have reached `LOG_BYTES_MAX`.
    pub fn log(&mut self, level: Level, text: String, about: Option<Box<LogContext>>) {
        let bytes = |about: &LogContext| {
            let texts = [&about.connection, &about.user, &about.method, &about.path];
            let texts = texts.into_iter().flatten().map(String::len);
            size_of::<LogContext>() + texts.sum::<usize>()
        };
        let bytes = LOG_LINE_BYTES + text.len() + about.as_deref().map_or(0, bytes);
        if self.text_bytes + bytes > LOG_BYTES_MAX || self.list.len() >= COUNT_MAX {
            // The log limit protects the log from a script that writes in a loop.
            return;
        }
        self.text_bytes += bytes;
        self.list.push(Effect::Log { level, text, about });
    }
}
