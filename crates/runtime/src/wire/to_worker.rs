//! Encodes events and answers as frames to a worker process, and decodes such frames for the worker's side.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Deserialize;
use veche_calls::{CallError, CallOutcome, CallReply, WorkerConnection, channel::ChannelReply};
use veche_types::{PayloadKind, WorkerId};

use super::frame::Frame;
use super::from_worker::{ErrorScope, MalformedFrame};
use super::head::{
    AttributeValue, CancelHead, ClientHead, EventHead, EventName, FaultCode, FaultHead,
    FrameHeader, FrameKind, RequestHead, ResultHead,
};
use super::hello::{RefuseHead, WelcomeHead};
use super::outside;
use super::part::PayloadParts;
use crate::call_errors::{self, CodeValue};
use crate::hooks::{AppHookRequest, Hook};
use crate::{Attribute, Attributes, Event, Request, WaitResult};

/// Information about the connection of an event, which the runtime adds to the event.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventConnection<'a> {
    /// The worker thread that owns the connection.
    pub worker: WorkerId,
    /// The user, if known.
    pub user: Option<&'a str>,
    /// The attributes that the application has set.
    pub attributes: Option<&'a Attributes>,
}

/// An event's head and the parts of its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct OutgoingEvent<'a> {
    /// The head of the frame.
    pub head: EventHead<'a>,
    /// The parts of the payload.
    pub parts: Vec<&'a [u8]>,
}

impl<'a> OutgoingEvent<'a> {
    /// Encodes an event; `None` for an event that worker processes don't receive.
    #[must_use]
    pub fn of(event: &'a Event<'a>, id: u64, known: EventConnection<'a>) -> Option<Self> {
        let mut head = EventHead::new(id, EventName::Message);
        let mut parts = Vec::new();
        let connection = match event {
            Event::Handshake { id, request } => {
                head.event = EventName::Open;
                head.request = Some(request_head(request));
                head.user = request.user().map(Cow::from);
                Some(*id)
            }
            Event::Message { id, kind, data } => {
                head.data_kind = Some(Cow::from(kind.name()));
                head.data = Some(0);
                parts.push(*data);
                Some(*id)
            }
            Event::Close { id, code, reason } => {
                head.event = EventName::Close;
                head.code = Some(*code);
                head.reason = Some(Cow::from(*reason));
                Some(*id)
            }
            Event::Request { id, request } => {
                head.event = EventName::Request;
                head.request = Some(request_head(request));
                head.user = request.user().map(Cow::from);
                head.data = Some(0);
                parts.push(&*request.body);
                Some(*id)
            }
            Event::Hook { request, .. } => {
                hook_head(&mut head, request, &mut parts);
                None
            }
            Event::Stop => {
                head.event = EventName::Stop;
                None
            }
            Event::Open { .. }
            | Event::Drain { .. }
            | Event::Gone { .. }
            | Event::HookGone { .. }
            | Event::Channels { .. }
            | Event::Run => return None,
        };
        if let Some(connection) = connection {
            let worker = known.worker;
            let name = WorkerConnection { worker, connection }.to_string();
            head.connection = Some(Cow::from(name));
            head.user = known.user.map(Cow::from).or(head.user);
            let attributes = known.attributes.into_iter().flat_map(Attributes::iter);
            head.attributes = attributes
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
        }
        if parts.len() > 1 {
            // All parts belong to one accepted message, so each length is far below 2^32 bytes.
            let lengths = parts.iter().map(|part| u32::try_from(part.len()));
            head.parts = lengths.map(|length| length.unwrap_or(u32::MAX)).collect();
        }
        Some(Self { head, parts })
    }
}

impl EventHead<'_> {
    /// Returns the head of the event with this id and name. All other fields are empty.
    #[must_use]
    pub fn new(id: u64, event: EventName) -> Self {
        Self {
            kind: FrameKind::Event,
            id,
            event,
            connection: None,
            user: None,
            attributes: Default::default(),
            request: None,
            client: None,
            channel: None,
            method: None,
            token: None,
            channels: Vec::new(),
            code: None,
            reason: None,
            data_kind: None,
            data: None,
            parts: Vec::new(),
        }
    }
}

fn request_head(request: &Request) -> RequestHead<'_> {
    let pair = |(name, value)| (Cow::from(name), Cow::from(value));
    RequestHead {
        method: request.method().into(),
        path: request.path().into(),
        query: request.query().into(),
        headers: request.headers().map(pair).collect(),
        params: request.params().map(pair).collect(),
        remote: address(request.remote),
    }
}

fn address(remote: IpAddr) -> Cow<'static, str> {
    remote.to_canonical().to_string().into()
}

fn hook_head<'a>(
    head: &mut EventHead<'a>,
    request: &'a AppHookRequest<'a>,
    parts: &mut Vec<&'a [u8]>,
) {
    let some = |text: &'a str| (!text.is_empty()).then_some(Cow::from(text));
    let caller = &request.caller;
    head.event = match request.hook {
        Hook::Connect => EventName::Connect,
        Hook::Refresh => EventName::Refresh,
        Hook::Subscribe => EventName::Subscribe,
        Hook::SubRefresh => EventName::SubRefresh,
        Hook::Publish => EventName::Publish,
        Hook::Rpc => EventName::Rpc,
        Hook::Message => EventName::ClientMessage,
        Hook::Disconnect => EventName::Disconnect,
    };
    match request.hook {
        Hook::Rpc => head.method = Some(request.subject.into()),
        Hook::Disconnect => {
            head.reason = Some(request.subject.into());
            head.code = Some(request.code);
        }
        _ => head.channel = some(request.subject),
    }
    head.user = some(caller.user);
    head.token = some(request.token);
    head.channels = request
        .channels
        .iter()
        .map(|name| Cow::from(&**name))
        .collect();
    if let Some(data) = request.data {
        let kind = match data.kind {
            PayloadKind::Json => "json",
            PayloadKind::Text => "text",
            PayloadKind::Binary => "binary",
        };
        head.data_kind = Some(kind.into());
        head.data = Some(parts.len() as u32);
        parts.push(data.bytes);
    }
    let meta = caller.meta.map(|meta| {
        parts.push(meta);
        parts.len() as u32 - 1
    });
    let headers = caller.headers.iter();
    head.client = Some(ClientHead {
        id: caller.id.into(),
        transport: caller.transport.into(),
        protocol: caller.protocol.into(),
        name: caller.name.into(),
        version: caller.version.into(),
        remote: address(caller.remote),
        headers: headers
            .map(|(name, value)| (Cow::from(&**name), String::from_utf8_lossy(value)))
            .collect(),
        meta,
    });
}

impl From<&Attribute> for AttributeValue {
    fn from(value: &Attribute) -> Self {
        match value {
            Attribute::Boolean(value) => Self::Boolean(*value),
            Attribute::Number(value) if value.fract() == 0.0 && value.abs() < WHOLE_MAX => {
                Self::Whole(*value as i64)
            }
            Attribute::Number(value) => Self::Number(*value),
            Attribute::Bytes(bytes) => Self::Text(String::from_utf8_lossy(bytes).into_owned()),
        }
    }
}

impl From<AttributeValue> for Attribute {
    fn from(value: AttributeValue) -> Self {
        match value {
            AttributeValue::Boolean(value) => Self::Boolean(value),
            AttributeValue::Whole(value) => Self::Number(value as f64),
            AttributeValue::Number(value) => Self::Number(value),
            AttributeValue::Text(text) => Self::Bytes(text.into_bytes().into()),
        }
    }
}

/// All integers below this value are exact in 64-bit floats.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

impl<'a> ResultHead<'a> {
    /// Creates the result of a successful call that returns no value.
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self {
            kind: FrameKind::Result,
            id,
            error: None,
            connections: None,
            position: None,
            recovered: None,
            expires_in: None,
            open: None,
            user: None,
            attributes: Default::default(),
            request: None,
            columns: None,
            affected: None,
            last_id: None,
            status: None,
            headers: Vec::new(),
            url: None,
            data: None,
        }
    }

    /// Returns the result of a failed call.
    #[must_use]
    pub fn failed(id: u64, fault: &'a CallError) -> Self {
        let (code, retryable) = call_errors::of_call(fault);
        let code = code.map(|code| match code {
            CodeValue::Number(number) => FaultCode::Number(number),
            CodeValue::Name(name) => FaultCode::Name(name.into()),
        });
        let error = FaultHead {
            kind: fault.kind.name().into(),
            message: fault.words.as_str().into(),
            code,
            retryable,
        };
        Self {
            error: Some(error),
            ..Self::new(id)
        }
    }

    /// Returns the result of a call that was refused because a queue is full.
    #[must_use]
    pub fn full(id: u64, fault: &'a CallError) -> Self {
        let mut head = Self::failed(id, fault);
        if let Some(error) = &mut head.error {
            error.retryable = true;
        }
        head
    }

    /// Returns the result of a call that requests the state of a connection, which is open.
    #[must_use]
    pub fn connection(id: u64, known: EventConnection<'a>, request: &'a Request) -> Self {
        let attributes = known.attributes.into_iter().flat_map(Attributes::iter);
        Self {
            open: Some(true),
            user: known.user.map(Cow::from),
            attributes: attributes
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect(),
            request: Some(request_head(request)),
            ..Self::new(id)
        }
    }

    /// Returns the head and the payload of the frame that reports a call's outcome.
    #[must_use]
    pub fn of_outcome(id: u64, outcome: &'a CallOutcome) -> (Self, Cow<'a, [u8]>) {
        let mut head = Self::new(id);
        let mut payload = Cow::Borrowed(&[][..]);
        match outcome {
            Err(fault) => head = Self::failed(id, fault),
            Ok(CallReply::Api(body)) => {
                head.data = Some(0);
                payload = Cow::Borrowed(body);
            }
            Ok(CallReply::Places(places)) => {
                head.connections = Some(places.iter().map(WorkerConnection::to_string).collect());
            }
            Ok(CallReply::Channel(ChannelReply::Joined {
                position,
                recovered,
            })) => {
                let position = position.as_ref();
                head.position = position.map(|(epoch, offset)| format!("{epoch}:{offset}").into());
                head.recovered = *recovered;
            }
            Ok(reply) => payload = outside::result(&mut head, reply),
        }
        (head, payload)
    }

    /// Returns the result of a call whose effect was answered with a [`WaitResult`].
    #[must_use]
    pub fn of_answer(id: u64, answer: &'a WaitResult) -> Self {
        let mut head = Self::new(id);
        match answer {
            WaitResult::Done => {}
            // An infinite number stands for a token that does not expire.
            WaitResult::Number(number) if number.is_infinite() => {}
            WaitResult::Number(number) => head.expires_in = Some(*number as u64),
            WaitResult::No(words) | WaitResult::Failed(words) => {
                let kind = veche_calls::CallErrorKind::Refused.name().into();
                head.error = Some(FaultHead {
                    kind,
                    message: words.as_str().into(),
                    code: None,
                    retryable: false,
                });
            }
        }
        head
    }
}

/// A frame to a worker, as the worker reads it.
#[derive(Clone, Debug)]
pub enum ToWorker<'a> {
    /// The worker process may start.
    Welcome(WelcomeHead<'a>),
    /// The worker process is rejected.
    Refuse(RefuseHead<'a>),
    /// An event to be handled.
    Event(EventHead<'a>),
    /// The result of a call, with its payload.
    Result(ResultHead<'a>, &'a [u8]),
    /// The answer to this event is no longer needed.
    Cancel(u64),
}

impl<'a> ToWorker<'a> {
    /// Decodes a frame from Veche.
    ///
    /// # Errors
    /// The frame is malformed, so the sender is not Veche.
    pub fn read(frame: Frame<'a>) -> Result<Self, MalformedFrame> {
        let envelope: FrameHeader = json(frame)?;
        Ok(match envelope.kind {
            FrameKind::Welcome => Self::Welcome(json(frame)?),
            FrameKind::Refuse => Self::Refuse(json(frame)?),
            FrameKind::Event => {
                let head: EventHead<'a> = json(frame)?;
                PayloadParts::new(frame.payload, &head.parts).map_err(broken)?;
                Self::Event(head)
            }
            FrameKind::Result => Self::Result(json(frame)?, frame.payload),
            FrameKind::Cancel => {
                let head: CancelHead = json(frame)?;
                Self::Cancel(head.id)
            }
            FrameKind::Hello | FrameKind::Effects | FrameKind::Answer | FrameKind::Call => {
                return Err(broken(
                    "only processes of applications may send a frame of this kind".to_owned(),
                ));
            }
        })
    }
}

/// Returns a part of an event's payload, for the worker side.
///
/// # Errors
/// The part doesn't exist.
pub fn part<'a>(head: &EventHead<'_>, payload: &'a [u8], number: u32) -> Result<&'a [u8], String> {
    PayloadParts::new(payload, &head.parts)?.get(number)
}

fn broken(message: String) -> MalformedFrame {
    let scope = ErrorScope::Worker;
    MalformedFrame { scope, message }
}

fn json<'a, T: Deserialize<'a>>(frame: Frame<'a>) -> Result<T, MalformedFrame> {
    let read = serde_json::from_slice(frame.head);
    read.map_err(|error| broken(format!("the head of a frame is malformed: {error}")))
}
