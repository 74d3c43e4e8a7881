//! What happens to an application: each event is handed over once, in order, and lent for the call.

use veche_types::{ConnectionId, MessageKind};

use crate::channel_event::ChannelEventView;
use crate::hooks::AppHookRequest;
use crate::request::Request;

/// Something that an application has to know, or to answer.
///
/// For one connection the events come in this order: `Handshake` (where the application has a handler for it), `Open`, any
/// number of `Message` and `Drain`, `Close`. An application handles those of one connection one by one.
#[derive(Debug)]
pub enum Event<'a> {
    /// A handshake whose 101 is not written yet; answered by one [`Effect::Handshake`](crate::Effect::Handshake).
    Handshake {
        /// Of the connection to be.
        id: ConnectionId,
        /// The request that opens it.
        request: Box<Request>,
    },
    /// A WebSocket is open: messages sent from now on follow the 101.
    Open {
        /// The connection that it is about.
        id: ConnectionId,
        /// The request that has opened it.
        request: Box<Request>,
    },
    /// A whole message has come.
    Message {
        /// The connection that it is about.
        id: ConnectionId,
        /// Whether it is text or binary.
        kind: MessageKind,
        /// Valid UTF-8 if it is text.
        data: &'a [u8],
    },
    /// There is room again for messages to a connection that had too much to send.
    Drain {
        /// The connection that it is about.
        id: ConnectionId,
    },
    /// A WebSocket has ended: nothing can be sent to it.
    Close {
        /// The connection that it is about.
        id: ConnectionId,
        /// RFC 6455, section 7.1.5.
        code: u16,
        /// Of the Close frame, or in our own words.
        reason: &'a str,
    },
    /// A whole HTTP request; answered by one [`Effect::Respond`](crate::Effect::Respond),
    /// [`RespondFile`](crate::Effect::RespondFile), or [`Begin`](crate::Effect::Begin) and what follows it.
    Request {
        /// The connection that it came by.
        id: ConnectionId,
        /// The request with its body.
        request: Box<Request>,
    },
    /// The answer to a handshake or request is not waited for any more.
    Gone {
        /// The connection that had asked.
        id: ConnectionId,
        /// The application took longer than it may; otherwise the connection has ended.
        is_late: bool,
    },
    /// A client of Centrifugo's protocol asks for leave; answered by one [`Effect::Hook`](crate::Effect::Hook).
    Hook {
        /// Of the request; no other has it.
        number: u64,
        /// What the client asks for.
        request: &'a AppHookRequest<'a>,
    },
    /// The answer to that is not waited for any more.
    HookGone {
        /// The number of the request of a hook.
        number: u64,
    },
    /// Something has happened to channels and users.
    Channels {
        /// The events, in order.
        events: &'a [ChannelEventView<'a>],
        /// How many were lost before them for lack of room.
        lost: u64,
    },
    /// A service begins its work.
    Run,
    /// The code or the server is about to end.
    Stop,
}

/// The kinds of events that an application may have a handler for, beside hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// See [`Event::Handshake`]. Without a handler each is accepted.
    Handshake,
    /// See [`Event::Request`]. Without a handler none is handed over.
    Request,
    /// See [`Event::Channels`]. Without a handler none is handed over.
    Channels,
}
