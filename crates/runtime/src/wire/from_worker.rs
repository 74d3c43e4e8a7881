//! Parses and validates frames of a worker process.

use std::borrow::Cow;

use serde::Deserialize;
use veche_calls::WorkerConnection;
use veche_types::{MessageKind, PayloadKind, Position};

pub use super::effect_names::{CALLS, EFFECTS};
use super::frame::Frame;
use super::head::{
    AnswerHead, AttributeValue, CallHead, CancelHead, EffectHead, EventName, FrameHeader,
    FrameKind, ReplyHead,
};
use super::hello::HelloHead;
use super::hook_reply::hook_response;
use super::outside::Outside;
use super::part::{PayloadParts, data_kind};
use super::quick::read_answer;
use veche_types::codes::{CloseCode, REASON_BYTES_MAX};

use crate::close::is_close_code;
use crate::hooks::HookResponse;
use crate::{Level, is_file_path};

/// A frame of a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum FromWorker<'a> {
    /// The first frame of the stream.
    Hello(HelloHead<'a>),
    /// The effects of a handler; also its answer if it has ended.
    Handled(HandlerOutput<'a>),
    /// A call that a handler makes, such as a search for connections.
    Call(WorkerCall<'a>),
    /// Cancels a call whose result is no longer needed.
    Cancel(u64),
}

/// Effects of a handler, and its answer if it has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct HandlerOutput<'a> {
    /// The event's id; `None` if the effects belong to no event.
    pub event: Option<u64>,
    /// The effects in order. Without a connection id, an effect applies to the event's connection.
    pub effects: Vec<WorkerEffect<'a>>,
    /// How the handler ended; `None` if it is still running.
    pub end: Option<HandlerEnd<'a>>,
}

/// The end of a handler, with the answer to its event.
#[derive(Clone, Debug, PartialEq)]
pub enum HandlerEnd<'a> {
    /// The event needs no answer.
    Done,
    /// The handler failed, with text for the log.
    Failed(Cow<'a, str>),
    /// Accepts the handshake of a WebSocket.
    Accept {
        /// The user, if the handler names one.
        user: Option<Cow<'a, str>>,
        /// The selected subprotocol, if any.
        protocol: Option<Cow<'a, str>>,
    },
    /// Responds to a request, or refuses a handshake.
    Response {
        /// The status: 200 to 599 for a response, 300 to 599 for a refusal.
        status: u16,
        /// Header names and values.
        headers: Vec<(String, String)>,
        /// The body of the response.
        body: &'a [u8],
    },
    /// Responds to a request with a file below the application's folder.
    File {
        /// A status from 200 to 599.
        status: u16,
        /// Header names and values.
        headers: Vec<(String, String)>,
        /// A path that [`is_file_path`] accepts.
        path: Cow<'a, str>,
    },
    /// Responds to a hook request.
    Hook(Box<HookResponse>),
}

/// One effect of a handler.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerEffect<'a> {
    /// Sends a message to a connection.
    Send {
        /// The receiving connection; `None` for the connection of the event being handled.
        to: Option<WorkerConnection>,
        /// Whether the message is text or binary.
        kind: MessageKind,
        /// The content of the message.
        data: &'a [u8],
    },
    /// Publishes to a channel; `#user` is a user's personal channel.
    Publish {
        /// A valid channel name.
        channel: Cow<'a, str>,
        /// The format of the data.
        kind: PayloadKind,
        /// The published data, in the format `kind`.
        data: &'a [u8],
    },
    /// Subscribes a connection to a channel.
    Subscribe {
        /// The connection to subscribe; `None` for the connection of the event being handled.
        connection: Option<WorkerConnection>,
        /// A valid channel name.
        channel: Cow<'a, str>,
    },
    /// Ends a connection's subscription to a channel.
    Unsubscribe {
        /// The connection to unsubscribe; `None` for the connection of the event being handled.
        connection: Option<WorkerConnection>,
        /// A valid channel name.
        channel: Cow<'a, str>,
    },
    /// Starts the closing handshake of a connection.
    Close {
        /// The connection to close; `None` for the connection of the event being handled.
        of: Option<WorkerConnection>,
        /// A code that [`is_close_code`] accepts.
        code: u16,
        /// The close reason, at most [`REASON_BYTES_MAX`] bytes.
        reason: Cow<'a, str>,
    },
    /// Changes attributes of a connection.
    Attributes {
        /// The connection to change; `None` for the connection of the event being handled.
        of: Option<WorkerConnection>,
        /// New values by attribute name; `None` removes the attribute.
        set: Vec<(String, Option<AttributeValue>)>,
    },
    /// Starts a streamed response.
    Begin {
        /// A status from 200 to 599.
        status: u16,
        /// Header names and values.
        headers: Vec<(String, String)>,
    },
    /// Sends a part of a streamed response.
    Part {
        /// The bytes of the part; never empty.
        data: &'a [u8],
    },
    /// Ends a streamed response.
    End {
        /// `false` aborts the response so that the client sees an incomplete body.
        is_whole: bool,
    },
    /// Writes a line to the log.
    Log {
        /// The severity of the line.
        level: Level,
        /// The text: one line, or several lines if it has a traceback.
        text: Cow<'a, str>,
    },
}

/// A call that a handler makes, such as a search for connections.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerCall<'a> {
    /// The id of the call, which the frame with its result repeats.
    pub id: u64,
    /// The event whose handler makes the call; `None` if the call belongs to no event.
    pub event: Option<u64>,
    /// The kind of the call with its arguments.
    pub request: CallRequest<'a>,
}

/// The kinds of calls.
#[derive(Clone, Debug, PartialEq)]
pub enum CallRequest<'a> {
    /// A call of the server API.
    Api {
        /// The name of the method, not validated.
        method: Cow<'a, str>,
        /// The parameters as a JSON object; empty for none.
        body: &'a [u8],
    },
    /// A search for connections of a user.
    Connections {
        /// The user to search for.
        user: Cow<'a, str>,
        /// The maximum number of results.
        limit: usize,
    },
    /// A request for the state of a connection.
    Connection {
        /// The connection in question; `None` for the connection of the event being handled.
        of: Option<WorkerConnection>,
    },
    /// Subscribes a connection. The call is answered once the connection receives new publications.
    Subscribe {
        /// The connection to subscribe; `None` for the connection of the event being handled.
        connection: Option<WorkerConnection>,
        /// A valid channel name.
        channel: Cow<'a, str>,
        /// The client's last known position in the channel, if missed publications are to be recovered.
        since: Option<Position>,
    },
    /// Replaces the token with which a connection was opened.
    Renew {
        /// The connection whose token is replaced; `None` for the connection of the event being handled.
        connection: Option<WorkerConnection>,
        /// The new token from the client.
        token: Cow<'a, str>,
    },
    /// A part of a streamed response, answered once there is room for more.
    Part {
        /// The bytes of the part; never empty.
        data: &'a [u8],
    },
    /// A call to an external service.
    Outside(Outside<'a>),
}

/// The default maximum number of results of a search. A call may request up to [`FOUND_MAX`] results.
const FOUND: u32 = 1000;
const FOUND_MAX: u32 = 10_000;

/// The maximum number of effects in a frame.
pub(super) const EFFECTS_MAX: usize = 4096;
/// The maximum number of headers in a response.
const HEADERS_MAX: usize = 256;
/// The longest channel name in bytes.
const CHANNEL_BYTES_MAX: usize = 255;

/// The error of a frame that violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MalformedFrame {
    /// What ends because of the malformed frame.
    pub scope: ErrorScope,
    /// A description for the log.
    pub message: String,
}

/// What a malformed frame ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorScope {
    /// The error closes the connection to the worker process.
    Worker,
    /// The handler of the event with this id fails, and the frame has no effect.
    Event(u64),
    /// The frame belongs to no handler, so it is ignored and no handler fails.
    Frame,
    /// The call with this id fails, and the handler that made it continues.
    Call(u64),
}

impl ErrorScope {
    fn with(self, message: impl Into<String>) -> MalformedFrame {
        let message = message.into();
        MalformedFrame {
            scope: self,
            message,
        }
    }
}

impl<'a> FromWorker<'a> {
    /// Parses a frame. `event` returns the name of the event with an id; `None` if the worker process is not processing such
    /// an event.
    ///
    /// # Errors
    /// The frame is malformed; [`MalformedFrame::scope`] says what the error ends.
    pub fn read(
        frame: Frame<'a>,
        event: impl Fn(u64) -> Option<EventName>,
    ) -> Result<Self, MalformedFrame> {
        if let Some(read) = read_answer(frame, &event) {
            return Ok(read);
        }
        let envelope: FrameHeader = json(frame, ErrorScope::Worker)?;
        match envelope.kind {
            FrameKind::Hello => Ok(Self::Hello(json(frame, ErrorScope::Worker)?)),
            FrameKind::Answer | FrameKind::Effects => {
                let is_end = envelope.kind == FrameKind::Answer;
                let event = match envelope.id {
                    Some(id) => match event(id) {
                        Some(name) => Some((id, name)),
                        None => {
                            return Err(ErrorScope::Worker.with(format!(
                                "event {id} was not sent to the process, or the process has already answered it"
                            )));
                        }
                    },
                    None if is_end => {
                        return Err(ErrorScope::Worker.with("an answer must have an id"));
                    }
                    None => None,
                };
                let scope = event.map_or(ErrorScope::Frame, |(id, _)| ErrorScope::Event(id));
                let head = json(frame, scope)?;
                let name = event.map(|(_, name)| name);
                let handled = handled(head, name, is_end, frame.payload);
                handled.map(Self::Handled).map_err(|why| scope.with(why))
            }
            FrameKind::Call => {
                let Some(id) = envelope.id else {
                    return Err(ErrorScope::Worker.with("a call must have an id"));
                };
                let scope = ErrorScope::Call(id);
                let head: CallHead<'a> = json(frame, scope)?;
                let event =
                    match head.event {
                        Some(id) => match event(id) {
                            None => return Err(scope.with(format!(
                                "event {id} was not sent to the process, or the process has already answered it"
                            ))),
                            name => name,
                        },
                        None => None,
                    };
                let call = call(head, event, frame.payload);
                call.map(Self::Call).map_err(|why| scope.with(why))
            }
            FrameKind::Cancel => {
                let head: CancelHead = json(frame, ErrorScope::Worker)?;
                Ok(Self::Cancel(head.id))
            }
            FrameKind::Welcome | FrameKind::Refuse | FrameKind::Event | FrameKind::Result => {
                Err(ErrorScope::Worker.with("only Veche may send a frame of this kind"))
            }
        }
    }
}

fn json<'a, T: Deserialize<'a>>(frame: Frame<'a>, scope: ErrorScope) -> Result<T, MalformedFrame> {
    let read = serde_json::from_slice(frame.head);
    read.map_err(|error| scope.with(format!("the head of a frame is malformed: {error}")))
}

fn handled<'a>(
    head: AnswerHead<'a>,
    event: Option<EventName>,
    is_end: bool,
    payload: &'a [u8],
) -> Result<HandlerOutput<'a>, String> {
    let parts = PayloadParts::new(payload, &head.parts)?;
    if head.effects.len() > EFFECTS_MAX {
        return Err(format!("a frame may have at most {EFFECTS_MAX} effects"));
    }
    let effects = head.effects.into_iter();
    let effects = effects.map(|effect| {
        let name = effect.effect.clone();
        let effect = self::effect(effect, event, &parts);
        effect.map_err(|why| format!("effect {name:?}: {why}"))
    });
    let effects = effects.collect::<Result<_, _>>()?;
    let ended = event.filter(|_| is_end);
    let end = match (ended, head.failed, head.reply) {
        (None, None, None) => None,
        (None, ..) => return Err("only an answer can have \"reply\" or \"failed\"".to_owned()),
        (Some(_), Some(_), Some(_)) => {
            return Err("an answer can't have both \"reply\" and \"failed\"".to_owned());
        }
        (Some(_), Some(text), None) => Some(HandlerEnd::Failed(text)),
        (Some(event), None, reply) => Some(end(event, reply, &parts)?),
    };
    Ok(HandlerOutput {
        event: head.id,
        effects,
        end,
    })
}

fn effect<'a>(
    head: EffectHead<'a>,
    event: Option<EventName>,
    parts: &PayloadParts<'a>,
) -> Result<WorkerEffect<'a>, String> {
    let place = || place(head.connection.as_deref(), event);
    let responds = || match event {
        Some(EventName::Request) => Ok(()),
        _ => Err("only a handler of a request can respond in parts"),
    };
    let kind = head
        .data_kind
        .as_deref()
        .map_or(Ok(PayloadKind::Text), data_kind);
    let data = || {
        let number = head.data.ok_or("the field \"data\" is missing")?;
        Ok::<_, String>((kind.clone()?, parts.get_as(number, kind.clone()?)?))
    };
    Ok(match &*head.effect {
        "send" => {
            let (kind, data) = data()?;
            let kind = match kind {
                PayloadKind::Text => MessageKind::Text,
                PayloadKind::Binary => MessageKind::Binary,
                PayloadKind::Json => return Err("a message must be text or binary".to_owned()),
            };
            let to = place()?;
            WorkerEffect::Send { to, kind, data }
        }
        "push" | "publish" => {
            let (kind, data) = data()?;
            let channel = match &*head.effect {
                "push" => {
                    let user = head.user.ok_or("the field \"user\" is missing")?;
                    checked(format!("#{user}").into())?
                }
                _ => channel(head.channel)?,
            };
            WorkerEffect::Publish {
                channel,
                kind,
                data,
            }
        }
        "subscribe" => WorkerEffect::Subscribe {
            connection: place()?,
            channel: channel(head.channel)?,
        },
        "unsubscribe" => WorkerEffect::Unsubscribe {
            connection: place()?,
            channel: channel(head.channel)?,
        },
        "close" => {
            let code = head.code.unwrap_or(CloseCode::Normal.code());
            if !is_close_code(code.into()) {
                return Err(format!("invalid close code: {code}"));
            }
            let reason = head.reason.unwrap_or_default();
            if reason.len() > REASON_BYTES_MAX {
                return Err(format!(
                    "a reason may have at most {REASON_BYTES_MAX} bytes"
                ));
            }
            let of = place()?;
            WorkerEffect::Close { of, code, reason }
        }
        "attributes" => WorkerEffect::Attributes {
            of: place()?,
            set: head.set.into_iter().collect(),
        },
        "begin" => {
            responds()?;
            let status = status(head.status, 200)?;
            let headers = headers(head.headers)?;
            WorkerEffect::Begin { status, headers }
        }
        "part" => {
            responds()?;
            let data = written(head.data, parts)?;
            WorkerEffect::Part { data }
        }
        "end" => {
            responds()?;
            let is_whole = head.complete.unwrap_or(true);
            WorkerEffect::End { is_whole }
        }
        "log" => WorkerEffect::Log {
            level: match head.level.as_deref() {
                Some("debug") => Level::Debug,
                None | Some("info") => Level::Info,
                Some("warn") => Level::Warn,
                Some("error") => Level::Error,
                Some(other) => return Err(format!("unknown level {other:?}")),
            },
            text: head.text.ok_or("the field \"text\" is missing")?,
        },
        _ => return Err("unknown effect".to_owned()),
    })
}

/// Returns the data of a piece of a streamed response. `number` is the number of the payload part that contains it.
fn written<'a>(number: Option<u32>, parts: &PayloadParts<'a>) -> Result<&'a [u8], String> {
    let data = parts.get(number.ok_or("the field \"data\" is missing")?)?;
    match data {
        [] => Err("a part of a response can't be empty".to_owned()),
        data => Ok(data),
    }
}

/// Validates a channel name. Personal channels are refused.
fn channel(channel: Option<Cow<'_, str>>) -> Result<Cow<'_, str>, String> {
    match channel {
        None => Err("the field \"channel\" is missing".to_owned()),
        Some(name) if name.starts_with('#') => {
            Err("channels that begin with # are personal: use push".to_owned())
        }
        Some(name) => checked(name),
    }
}

fn checked(name: Cow<'_, str>) -> Result<Cow<'_, str>, String> {
    let is_good = (1..=CHANNEL_BYTES_MAX).contains(&name.len())
        && !name.bytes().any(|byte| byte.is_ascii_control());
    match is_good {
        true => Ok(name),
        false => {
            Err("a channel name must have 1 to 255 bytes without control characters".to_owned())
        }
    }
}

/// Parses a connection id. A missing id means the connection of the event being handled; the result is
/// then `None`.
fn place(
    connection: Option<&str>,
    event: Option<EventName>,
) -> Result<Option<WorkerConnection>, String> {
    let has_own = event.is_some_and(EventName::has_connection);
    match connection {
        None if has_own => Ok(None),
        None => Err(
            "the field \"connection\" is missing, and the event has no connection of its own"
                .to_owned(),
        ),
        Some(id) => match id.parse() {
            Ok(place) => Ok(Some(place)),
            Err(_) => Err(format!("invalid connection id: {id:?}")),
        },
    }
}

fn status(status: Option<u16>, min: u16) -> Result<u16, String> {
    match status.unwrap_or(200) {
        status if (min..600).contains(&status) => Ok(status),
        status => Err(format!("the status must be from {min} to 599: {status}")),
    }
}

fn headers(headers: Vec<(String, String)>) -> Result<Vec<(String, String)>, String> {
    match headers.len() <= HEADERS_MAX {
        true => Ok(headers),
        false => Err(format!("a response may have at most {HEADERS_MAX} headers")),
    }
}

fn end<'a>(
    event: EventName,
    reply: Option<ReplyHead<'a>>,
    parts: &PayloadParts<'a>,
) -> Result<HandlerEnd<'a>, String> {
    let body = |number: Option<u32>| number.map_or(Ok(&[][..]), |number| parts.get(number));
    match event {
        EventName::Open => {
            let reply = reply.unwrap_or_default();
            if reply.status.is_some() {
                return Ok(HandlerEnd::Response {
                    status: status(reply.status, 300)?,
                    headers: headers(reply.headers)?,
                    body: body(reply.body)?,
                });
            }
            let (user, protocol) = (reply.user, reply.protocol);
            Ok(HandlerEnd::Accept { user, protocol })
        }
        EventName::Request => match reply {
            // The handler has already responded with a streamed response.
            None => Ok(HandlerEnd::Done),
            Some(reply) => {
                let status = status(reply.status, 200)?;
                let headers = headers(reply.headers)?;
                Ok(match reply.file {
                    Some(path) if !is_file_path(&path) => {
                        return Err(format!("invalid file path: {path:?}"));
                    }
                    Some(path) => HandlerEnd::File {
                        status,
                        headers,
                        path,
                    },
                    None => HandlerEnd::Response {
                        status,
                        headers,
                        body: body(reply.body)?,
                    },
                })
            }
        },
        EventName::Start | EventName::Stop | EventName::Message | EventName::Close => match reply {
            None => Ok(HandlerEnd::Done),
            Some(_) => Err("the answer to this event can't have \"reply\"".to_owned()),
        },
        EventName::ClientMessage | EventName::Disconnect if reply.is_none() => Ok(
            HandlerEnd::Hook(Box::new(HookResponse::Granted(Box::default()))),
        ),
        _ => {
            let reply = reply.ok_or("the answer to this event must have \"reply\"")?;
            let response = hook_response(reply, parts)?;
            Ok(HandlerEnd::Hook(Box::new(response)))
        }
    }
}

fn call<'a>(
    mut head: CallHead<'a>,
    event: Option<EventName>,
    payload: &'a [u8],
) -> Result<WorkerCall<'a>, String> {
    let parts = PayloadParts::new(payload, &[])?;
    if let Some(outside) = Outside::read(&mut head, &parts) {
        return Ok(WorkerCall {
            id: head.id,
            event: head.event,
            request: CallRequest::Outside(outside?),
        });
    }
    let place = || place(head.connection.as_deref(), event);
    let what = match &*head.call {
        "api" => CallRequest::Api {
            method: head.method.ok_or("the field \"method\" is missing")?,
            body: head.data.map_or(Ok(&[][..]), |number| parts.get(number))?,
        },
        "connections" => CallRequest::Connections {
            user: head.user.ok_or("the field \"user\" is missing")?,
            limit: head.limit.unwrap_or(FOUND).min(FOUND_MAX) as usize,
        },
        "connection" => CallRequest::Connection { of: place()? },
        "subscribe" => CallRequest::Subscribe {
            connection: place()?,
            channel: channel(head.channel)?,
            since: match head.since {
                None => None,
                Some(since) => Some(since.parse().map_err(|error| format!("since: {error}"))?),
            },
        },
        "renew" => CallRequest::Renew {
            connection: place()?,
            token: head.token.ok_or("the field \"token\" is missing")?,
        },
        "part" if event == Some(EventName::Request) => CallRequest::Part {
            data: written(head.data, &parts)?,
        },
        "part" => return Err("only a handler of a request can respond in parts".to_owned()),
        other => return Err(format!("unknown call {other:?}")),
    };
    Ok(WorkerCall {
        id: head.id,
        event: head.event,
        request: what,
    })
}
