//! Frames of a worker, read and checked: what they ask for is in the words of the contract.

use std::borrow::Cow;

use serde::Deserialize;
use veche_calls::Place;
use veche_types::{MessageKind, PayloadKind, Position};

use super::frame::Frame;
use super::head::{
    AnswerHead, AttributeValue, CallHead, CancelHead, EffectHead, Envelope, EventName, FrameKind,
    GrantHead, HelloHead, ReplyHead,
};
use super::outside::Outside;
use super::part::{Parts, data_kind};
use veche_types::codes::{CHOSEN, CloseCode, REASON_BYTES_MAX};

use crate::close::is_close_code;
use crate::hooks::{Blob, Grant, HookResponse, ServerSubscription};
use crate::{Level, is_file_path};

/// A frame of a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum FromWorker<'a> {
    /// The first frame of the stream.
    Hello(HelloHead<'a>),
    /// A handler has got so far, or to its end.
    Handled(Handled<'a>),
    /// A handler asks for something.
    Call(WorkerCall<'a>),
    /// The result of this call is not wanted any more.
    Cancel(u64),
}

/// What a handler wants done.
#[derive(Clone, Debug, PartialEq)]
pub struct Handled<'a> {
    /// The event's; `None`: the worker acts by itself.
    pub event: Option<u64>,
    /// In order. An id that is absent is that of the event's own connection.
    pub effects: Vec<WorkerEffect<'a>>,
    /// Of a handler that has ended.
    pub end: Option<End<'a>>,
}

/// How a handler has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End<'a> {
    /// Its event needs no reply.
    Done,
    /// It has failed; for the log.
    Failed(Cow<'a, str>),
    /// To an open: the 101 may go.
    Accept {
        /// The user, if the handler names one.
        user: Option<Cow<'a, str>>,
        /// The subprotocol of the WebSocket.
        protocol: Option<Cow<'a, str>>,
    },
    /// To a request; to an open that is refused.
    Response {
        /// 200 to 599; of a refusal 300 to 599.
        status: u16,
        /// Names and values of the headers.
        headers: Vec<(String, String)>,
        /// The body of the response.
        body: &'a [u8],
    },
    /// To a request: a file below the application's folder.
    File {
        /// A status from 200 to 599.
        status: u16,
        /// Names and values of the headers.
        headers: Vec<(String, String)>,
        /// As [`is_file_path`] wants it.
        path: Cow<'a, str>,
    },
    /// To a request of a hook.
    Hook(Box<HookResponse>),
}

/// One effect of a handler.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerEffect<'a> {
    /// A message to a connection.
    Send {
        /// The connection that it is about.
        to: Option<Place>,
        /// Whether it is text or binary.
        kind: MessageKind,
        /// The bytes of the message.
        data: &'a [u8],
    },
    /// A publication to a channel; `#user` is a user's personal one.
    Publish {
        /// A name as Veche takes it.
        channel: Cow<'a, str>,
        /// What the data are.
        kind: PayloadKind,
        /// The bytes of the publication.
        data: &'a [u8],
    },
    /// A subscription of a connection.
    Subscribe {
        /// The connection that it is about.
        who: Option<Place>,
        /// A name as Veche takes it.
        channel: Cow<'a, str>,
    },
    /// The end of one.
    Unsubscribe {
        /// The connection that it is about.
        who: Option<Place>,
        /// A name as Veche takes it.
        channel: Cow<'a, str>,
    },
    /// The closing handshake of a connection.
    Close {
        /// The connection that it is about.
        of: Option<Place>,
        /// As [`is_close_code`] wants it.
        code: u16,
        /// At most [`REASON_BYTES_MAX`] bytes.
        reason: Cow<'a, str>,
    },
    /// Other attributes of a connection.
    Attributes {
        /// The connection that it is about.
        of: Option<Place>,
        /// Values by name; `None` removes one.
        set: Vec<(String, Option<AttributeValue>)>,
    },
    /// The beginning of a response in parts.
    Begin {
        /// A status from 200 to 599.
        status: u16,
        /// Names and values of the headers.
        headers: Vec<(String, String)>,
    },
    /// A part of it.
    Part {
        /// The bytes, of which there are some.
        data: &'a [u8],
    },
    /// The end of a response in parts.
    End {
        /// Otherwise it breaks off.
        is_whole: bool,
    },
    /// A line for the log.
    Log {
        /// How much it matters.
        level: Level,
        /// One line, or several with a trace.
        text: Cow<'a, str>,
    },
}

/// A question of a handler.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerCall<'a> {
    /// By which its result goes back.
    pub id: u64,
    /// The event whose handler asks.
    pub event: Option<u64>,
    /// What the handler asks for.
    pub what: What<'a>,
}

/// What a handler asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum What<'a> {
    /// A call of the API that back ends have.
    Api {
        /// A name, which is not checked.
        method: Cow<'a, str>,
        /// One JSON object; empty for none.
        body: &'a [u8],
    },
    /// Connections of a user.
    Connections {
        /// The user whose connections they are.
        user: Cow<'a, str>,
        /// The most of them.
        limit: usize,
    },
    /// How a connection is.
    Connection {
        /// The connection that it is about.
        of: Option<Place>,
    },
    /// A subscription, answered once the connection gets each publication.
    Subscribe {
        /// The connection that it is about.
        who: Option<Place>,
        /// A name as Veche takes it.
        channel: Cow<'a, str>,
        /// The position up to which its client knows the channel.
        since: Option<Position>,
    },
    /// Another token in place of the one that has opened a connection.
    Renew {
        /// The connection that it is about.
        who: Option<Place>,
        /// What the client has sent.
        token: Cow<'a, str>,
    },
    /// A part of a response, answered once there is room for more.
    Part {
        /// The bytes, of which there are some.
        data: &'a [u8],
    },
    /// A server outside.
    Outside(Outside<'a>),
}

/// Connections that a search finds unless the call says otherwise, and the most that it finds.
const FOUND: u32 = 1000;
const FOUND_MAX: u32 = 10_000;

/// Effects of one frame, headers of one response and subscriptions of one grant at most.
const EFFECTS_MAX: usize = 4096;
const HEADERS_MAX: usize = 256;
const SUBSCRIPTIONS_MAX: usize = 1024;

/// Bytes of a channel's name.
const CHANNEL_BYTES_MAX: usize = 255;

/// A frame that is none of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Malformed {
    /// How far the damage goes.
    pub scope: Scope,
    /// What the log says about it.
    pub message: String,
}

/// How far the damage of a malformed frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The worker can't be trusted any more.
    Worker,
    /// Its handler has failed, and nothing in the frame is carried out.
    Event(u64),
    /// Nothing in the frame is carried out; no handler belongs to it.
    Frame,
    /// The call fails, and its handler goes on.
    Call(u64),
}

impl Scope {
    fn with(self, message: impl Into<String>) -> Malformed {
        let message = message.into();
        Malformed {
            scope: self,
            message,
        }
    }
}

impl<'a> FromWorker<'a> {
    /// Reads a frame. `event` says which event an id is of; `None`: the worker has no such event in hand.
    ///
    /// # Errors
    /// The frame is malformed; its scope says what that ends.
    pub fn read(
        frame: Frame<'a>,
        event: impl Fn(u64) -> Option<EventName>,
    ) -> Result<Self, Malformed> {
        let envelope: Envelope = json(frame, Scope::Worker)?;
        match envelope.kind {
            FrameKind::Hello => Ok(Self::Hello(json(frame, Scope::Worker)?)),
            FrameKind::Answer | FrameKind::Effects => {
                let is_end = envelope.kind == FrameKind::Answer;
                let event = match envelope.id {
                    Some(id) => match event(id) {
                        Some(name) => Some((id, name)),
                        None => return Err(Scope::Worker.with(format!("no event {id} in hand"))),
                    },
                    None if is_end => return Err(Scope::Worker.with("an answer without an id")),
                    None => None,
                };
                let scope = event.map_or(Scope::Frame, |(id, _)| Scope::Event(id));
                let head = json(frame, scope)?;
                let name = event.map(|(_, name)| name);
                let handled = handled(head, name, is_end, frame.payload);
                handled.map(Self::Handled).map_err(|why| scope.with(why))
            }
            FrameKind::Call => {
                let Some(id) = envelope.id else {
                    return Err(Scope::Worker.with("a call without an id"));
                };
                let scope = Scope::Call(id);
                let head: CallHead<'a> = json(frame, scope)?;
                let event = match head.event {
                    Some(id) => match event(id) {
                        None => return Err(scope.with(format!("no event {id} in hand"))),
                        name => name,
                    },
                    None => None,
                };
                let call = call(head, event, frame.payload);
                call.map(Self::Call).map_err(|why| scope.with(why))
            }
            FrameKind::Cancel => {
                let head: CancelHead = json(frame, Scope::Worker)?;
                Ok(Self::Cancel(head.id))
            }
            FrameKind::Welcome | FrameKind::Refuse | FrameKind::Event | FrameKind::Result => {
                Err(Scope::Worker.with("a frame that only Veche sends"))
            }
        }
    }
}

fn json<'a, T: Deserialize<'a>>(frame: Frame<'a>, scope: Scope) -> Result<T, Malformed> {
    serde_json::from_slice(frame.head).map_err(|error| scope.with(format!("the head: {error}")))
}

fn handled<'a>(
    head: AnswerHead<'a>,
    event: Option<EventName>,
    is_end: bool,
    payload: &'a [u8],
) -> Result<Handled<'a>, String> {
    let parts = Parts::new(payload, &head.parts)?;
    if head.effects.len() > EFFECTS_MAX {
        return Err(format!("more than {EFFECTS_MAX} effects in a frame"));
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
        (None, ..) => return Err("only an answer has a reply, or has failed".to_owned()),
        (Some(_), Some(_), Some(_)) => return Err("a reply of a handler that failed".to_owned()),
        (Some(_), Some(text), None) => Some(End::Failed(text)),
        (Some(event), None, reply) => Some(end(event, reply, &parts)?),
    };
    Ok(Handled {
        event: head.id,
        effects,
        end,
    })
}

fn effect<'a>(
    head: EffectHead<'a>,
    event: Option<EventName>,
    parts: &Parts<'a>,
) -> Result<WorkerEffect<'a>, String> {
    let place = || place(head.connection.as_deref(), event);
    let responds = || match event {
        Some(EventName::Request) => Ok(()),
        _ => Err("only a handler of a request responds in parts"),
    };
    let kind = head
        .data_kind
        .as_deref()
        .map_or(Ok(PayloadKind::Text), data_kind);
    let data = || {
        let number = head.data.ok_or("no data")?;
        Ok::<_, String>((kind.clone()?, parts.get_as(number, kind.clone()?)?))
    };
    Ok(match &*head.effect {
        "send" => {
            let (kind, data) = data()?;
            let kind = match kind {
                PayloadKind::Text => MessageKind::Text,
                PayloadKind::Binary => MessageKind::Binary,
                PayloadKind::Json => return Err("a message is text or binary".to_owned()),
            };
            let to = place()?;
            WorkerEffect::Send { to, kind, data }
        }
        "push" | "publish" => {
            let (kind, data) = data()?;
            let channel = match &*head.effect {
                "push" => checked(format!("#{}", head.user.ok_or("no user")?).into())?,
                _ => channel(head.channel)?,
            };
            WorkerEffect::Publish {
                channel,
                kind,
                data,
            }
        }
        "subscribe" => WorkerEffect::Subscribe {
            who: place()?,
            channel: channel(head.channel)?,
        },
        "unsubscribe" => WorkerEffect::Unsubscribe {
            who: place()?,
            channel: channel(head.channel)?,
        },
        "close" => {
            let code = head.code.unwrap_or(CloseCode::Normal.code());
            if !is_close_code(code.into()) {
                return Err(format!("no code to close with: {code}"));
            }
            let reason = head.reason.unwrap_or_default();
            if reason.len() > REASON_BYTES_MAX {
                return Err(format!("a reason of more than {REASON_BYTES_MAX} bytes"));
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
                Some(other) => return Err(format!("no level {other:?}")),
            },
            text: head.text.ok_or("no text")?,
        },
        _ => return Err("there is no such effect".to_owned()),
    })
}

/// A part of a response in parts.
fn written<'a>(number: Option<u32>, parts: &Parts<'a>) -> Result<&'a [u8], String> {
    let data = parts.get(number.ok_or("no data")?)?;
    match data {
        [] => Err("a part of a response is not empty".to_owned()),
        data => Ok(data),
    }
}

/// A channel that is not a user's personal one.
fn channel(channel: Option<Cow<'_, str>>) -> Result<Cow<'_, str>, String> {
    match channel {
        None => Err("no channel".to_owned()),
        Some(name) if name.starts_with('#') => {
            Err("a channel that begins with # is a user's: push reaches it".to_owned())
        }
        Some(name) => checked(name),
    }
}

fn checked(name: Cow<'_, str>) -> Result<Cow<'_, str>, String> {
    let is_good = (1..=CHANNEL_BYTES_MAX).contains(&name.len())
        && !name.bytes().any(|byte| byte.is_ascii_control());
    match is_good {
        true => Ok(name),
        false => Err("a channel has 1 to 255 bytes without control characters".to_owned()),
    }
}

/// The connection of that id; `None`: the event's own.
fn place(connection: Option<&str>, event: Option<EventName>) -> Result<Option<Place>, String> {
    let has_own = event.is_some_and(EventName::has_connection);
    match connection {
        None if has_own => Ok(None),
        None => Err("no connection".to_owned()),
        Some(id) => match id.parse() {
            Ok(place) => Ok(Some(place)),
            Err(_) => Err(format!("no id of a connection: {id:?}")),
        },
    }
}

fn status(status: Option<u16>, min: u16) -> Result<u16, String> {
    match status.unwrap_or(200) {
        status if (min..600).contains(&status) => Ok(status),
        status => Err(format!("no status from {min} to 599: {status}")),
    }
}

fn headers(headers: Vec<(String, String)>) -> Result<Vec<(String, String)>, String> {
    match headers.len() <= HEADERS_MAX {
        true => Ok(headers),
        false => Err(format!("more than {HEADERS_MAX} headers")),
    }
}

fn end<'a>(
    event: EventName,
    reply: Option<ReplyHead<'a>>,
    parts: &Parts<'a>,
) -> Result<End<'a>, String> {
    let body = |number: Option<u32>| number.map_or(Ok(&[][..]), |number| parts.get(number));
    match event {
        EventName::Open => {
            let reply = reply.unwrap_or_default();
            if reply.status.is_some() {
                return Ok(End::Response {
                    status: status(reply.status, 300)?,
                    headers: headers(reply.headers)?,
                    body: body(reply.body)?,
                });
            }
            let (user, protocol) = (reply.user, reply.protocol);
            Ok(End::Accept { user, protocol })
        }
        EventName::Request => match reply {
            // It has answered in parts.
            None => Ok(End::Done),
            Some(reply) => {
                let status = status(reply.status, 200)?;
                let headers = headers(reply.headers)?;
                Ok(match reply.file {
                    Some(path) if !is_file_path(&path) => {
                        return Err(format!("no path of a file: {path:?}"));
                    }
                    Some(path) => End::File {
                        status,
                        headers,
                        path,
                    },
                    None => End::Response {
                        status,
                        headers,
                        body: body(reply.body)?,
                    },
                })
            }
        },
        EventName::Start | EventName::Stop | EventName::Message | EventName::Close => match reply {
            None => Ok(End::Done),
            Some(_) => Err("a reply to an event that has none".to_owned()),
        },
        EventName::ClientMessage | EventName::Disconnect if reply.is_none() => {
            Ok(End::Hook(Box::new(HookResponse::Granted(Box::default()))))
        }
        _ => {
            let response = hook_response(reply.ok_or("no reply")?, parts)?;
            Ok(End::Hook(Box::new(response)))
        }
    }
}

fn hook_response(reply: ReplyHead<'_>, parts: &Parts<'_>) -> Result<HookResponse, String> {
    match (reply.result, reply.error, reply.disconnect) {
        (Some(result), None, None) => Ok(HookResponse::Granted(Box::new(grant(result, parts)?))),
        (None, Some(error), None) if error.code > 0 => Ok(HookResponse::Error {
            code: error.code,
            message: error.message.into_owned(),
            is_temporary: error.temporary,
        }),
        (None, None, Some(end)) if CHOSEN.contains(&end.code) => Ok(HookResponse::Disconnect {
            code: end.code,
            reason: end.reason.into_owned(),
        }),
        (None, Some(_), None) => Err("an error has a code from 1".to_owned()),
        (None, None, Some(_)) => Err("a disconnect code must be from 3000 to 4999".to_owned()),
        _ => Err("a reply has one of result, error and disconnect".to_owned()),
    }
}

fn grant(head: GrantHead<'_>, parts: &Parts<'_>) -> Result<Grant, String> {
    if head.subscriptions.len() > SUBSCRIPTIONS_MAX {
        return Err(format!("more than {SUBSCRIPTIONS_MAX} subscriptions"));
    }
    let channels = head.subscriptions.into_iter().map(|one| {
        Ok::<_, String>(ServerSubscription {
            channel: one.channel.into_owned(),
            info: blob(one.info, one.info_kind.as_deref(), parts)?,
            data: blob(one.data, one.data_kind.as_deref(), parts)?,
            expires_at_s: one.expire_at,
        })
    });
    Ok(Grant {
        user: head.user.into_owned(),
        expires_at_s: head.expire_at,
        is_expired: head.expired,
        info: blob(head.info, head.info_kind.as_deref(), parts)?,
        data: blob(head.data, head.data_kind.as_deref(), parts)?,
        channels: channels.collect::<Result<_, _>>()?,
        meta: blob(head.meta, None, parts)?,
        skips_history: head.skip_history,
    })
}

fn blob(
    number: Option<u32>,
    kind: Option<&str>,
    parts: &Parts<'_>,
) -> Result<Option<Blob>, String> {
    let Some(number) = number else {
        return Ok(None);
    };
    let kind = kind.map_or(Ok(PayloadKind::Json), data_kind)?;
    let bytes = parts.get_as(number, kind)?.to_vec();
    match kind {
        PayloadKind::Json => Ok(Some(Blob::Json(bytes))),
        PayloadKind::Binary => Ok(Some(Blob::Bytes(bytes))),
        PayloadKind::Text => Err("data of a grant is json or binary".to_owned()),
    }
}

fn call<'a>(
    mut head: CallHead<'a>,
    event: Option<EventName>,
    payload: &'a [u8],
) -> Result<WorkerCall<'a>, String> {
    let parts = Parts::new(payload, &[])?;
    if let Some(outside) = Outside::read(&mut head, &parts) {
        return Ok(WorkerCall {
            id: head.id,
            event: head.event,
            what: What::Outside(outside?),
        });
    }
    let place = || place(head.connection.as_deref(), event);
    let what = match &*head.call {
        "api" => What::Api {
            method: head.method.ok_or("no method")?,
            body: head.data.map_or(Ok(&[][..]), |number| parts.get(number))?,
        },
        "connections" => What::Connections {
            user: head.user.ok_or("no user")?,
            limit: head.limit.unwrap_or(FOUND).min(FOUND_MAX) as usize,
        },
        "connection" => What::Connection { of: place()? },
        "subscribe" => What::Subscribe {
            who: place()?,
            channel: channel(head.channel)?,
            since: match head.since {
                None => None,
                Some(since) => Some(since.parse().map_err(|error| format!("since: {error}"))?),
            },
        },
        "renew" => What::Renew {
            who: place()?,
            token: head.token.ok_or("no token")?,
        },
        "part" if event == Some(EventName::Request) => What::Part {
            data: written(head.data, &parts)?,
        },
        "part" => return Err("only a handler of a request responds in parts".to_owned()),
        other => return Err(format!("there is no call {other:?}")),
    };
    Ok(WorkerCall {
        id: head.id,
        event: head.event,
        what,
    })
}

/// The calls that there are.
pub const CALLS: [&str; 9] = [
    "api",
    "connections",
    "connection",
    "subscribe",
    "renew",
    "part",
    "http",
    "mysql",
    "redis",
];

/// The effects that there are.
pub const EFFECTS: [&str; 11] = [
    "send",
    "push",
    "publish",
    "subscribe",
    "unsubscribe",
    "close",
    "attributes",
    "begin",
    "part",
    "end",
    "log",
];
