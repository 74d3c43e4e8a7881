//! Events of an application. Each event is delivered once, in order; its data is borrowed for the duration of the call.

use veche_types::{ConnectionId, MessageKind};

use crate::channel_event::ChannelEventView;
use crate::hooks::AppHookRequest;
use crate::request::Request;

/// An event that an application is notified of or has to answer.
///
/// The events of one connection come in this order: `Handshake` (if the application has a handler for it), `Open`, then
/// any number of `Message` and `Drain`, and finally `Close`. An application processes the events of one connection one
/// after another.
#[derive(Debug)]
pub enum Event<'a> {
    /// A WebSocket handshake whose 101 response has not been sent. Answered by one
    /// [`Effect::Handshake`](crate::Effect::Handshake).
    Handshake {
        /// The id of the future connection.
        id: ConnectionId,
        /// The request of the handshake.
        request: Box<Request>,
    },
    /// A WebSocket is open. Messages sent from now on are transmitted after the 101 response.
    Open {
        /// The id of the new connection.
        id: ConnectionId,
        /// The handshake request of the connection.
        request: Box<Request>,
    },
    /// A complete message arrived.
    Message {
        /// The id of the connection.
        id: ConnectionId,
        /// Whether the message is text or binary.
        kind: MessageKind,
        /// The content; valid UTF-8 if the message is text.
        data: &'a [u8],
    },
    /// A connection whose outbox was full can send again.
    Drain {
        /// The id of the connection.
        id: ConnectionId,
    },
    /// A WebSocket has closed; nothing can be sent to it any more.
    Close {
        /// The id of the closed connection.
        id: ConnectionId,
        /// The close code (RFC 6455, section 7.1.5).
        code: u16,
        /// The reason of the Close frame, or a description by the server.
        reason: &'a str,
    },
    /// A complete HTTP request. Answered by one [`Effect::Respond`](crate::Effect::Respond) or
    /// [`RespondFile`](crate::Effect::RespondFile), or by [`Begin`](crate::Effect::Begin) and its parts.
    Request {
        /// The connection of the request.
        id: ConnectionId,
        /// The request, including its body.
        request: Box<Request>,
    },
    /// The response to a handshake or request is no longer needed.
    Gone {
        /// The connection of the request.
        id: ConnectionId,
        /// The reason: true if the application exceeded its time limit, false if the connection has closed.
        is_late: bool,
    },
    /// A command of a client of Centrifugo's protocol needs a decision. Answered by one
    /// [`Effect::Hook`](crate::Effect::Hook).
    Hook {
        /// The unique number of the request.
        number: u64,
        /// The request to decide.
        request: &'a AppHookRequest<'a>,
    },
    /// The response to a hook request is no longer needed.
    HookGone {
        /// The number of the hook request.
        number: u64,
    },
    /// Events of channels and users occurred.
    Channels {
        /// The events in order of occurrence.
        events: &'a [ChannelEventView<'a>],
        /// The number of events that were lost before these events, because the queue was full.
        lost: u64,
    },
    /// Starts the application's service.
    Run,
    /// The application's code is about to be replaced or removed, or the server is about to stop.
    Stop,
}

/// The kinds of events, apart from hooks, that an application may have a handler for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// [`Event::Handshake`]. Without a handler every handshake is accepted.
    Handshake,
    /// [`Event::Request`]. Delivered only if there is a handler.
    Request,
    /// [`Event::Channels`]. Delivered only if there is a handler.
    Channels,
}
