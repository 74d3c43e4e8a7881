//! The handshake between Veche and a worker process, before the first event.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::effect_names::CALLS;
use super::frame::FrameLimits;
use super::head::{EventName, FrameKind, nullable};

/// The version of the protocol that this code implements.
pub const VERSION: u32 = 1;

/// The name of the encoding of message heads that every worker process supports.
pub const CODEC: &str = "json";

/// The head of a [`FrameKind::Hello`] frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloHead<'a> {
    /// The type of the frame, `type` in JSON.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The protocol versions that the worker supports.
    pub versions: Vec<u32>,
    /// The worker's library and its version, for logs.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub sdk: Cow<'a, str>,
    /// The process id, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The codecs for later heads that the worker supports, in order of preference; always includes `json`.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub codecs: Vec<String>,
    /// The names of the events that the worker handles. No others are sent.
    pub events: Vec<String>,
    /// The number of events that the worker processes concurrently.
    #[serde(default = "one", deserialize_with = "nullable_one")]
    #[serde(skip_serializing_if = "is_one")]
    pub concurrency: u32,
}

fn nullable_one<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_else(one))
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

/// The head of a [`FrameKind::Welcome`] frame.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WelcomeHead<'a> {
    /// The type of the frame, `type` in JSON.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The negotiated protocol version.
    pub version: u32,
    /// The codec of all further heads.
    #[serde(borrow)]
    pub codec: Cow<'a, str>,
    /// The name of the application.
    #[serde(borrow)]
    pub app: Cow<'a, str>,
    /// The number of the process among the processes of the application, counted from 1.
    pub instance: u32,
    /// The events that will be sent, out of those that the worker handles.
    pub events: Vec<String>,
    /// The calls that are supported.
    pub calls: Vec<String>,
    /// The longest head accepted, in bytes.
    pub head_bytes_max: u32,
    /// The longest payload accepted, in bytes.
    pub payload_bytes_max: u32,
    /// The application's options from its configuration.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub options: Option<&'a RawValue>,
}

/// The head of a [`FrameKind::Refuse`] frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefuseHead<'a> {
    /// The type of the frame, `type` in JSON.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The reason of the refusal, for logs.
    #[serde(borrow)]
    pub message: Cow<'a, str>,
}

/// The settings that a worker process receives.
#[derive(Clone, Copy, Debug)]
pub struct AppDescription<'a> {
    /// The name of the application.
    pub app: &'a str,
    /// The number of the process among the processes of the application, counted from 1.
    pub instance: u32,
    /// The size limits of frames in both directions.
    pub limits: FrameLimits,
    /// The application's options from its configuration.
    pub options: Option<&'a RawValue>,
}

impl<'a> AppDescription<'a> {
    /// Answers a hello. Selects the highest common version, and the worker's first codec that Veche supports.
    ///
    /// # Errors
    /// The worker is rejected: there is no common version, or its concurrency is 0.
    pub fn answer(self, hello: &HelloHead<'_>) -> Result<WelcomeHead<'a>, RefuseHead<'static>> {
        let refuse = |message: String| RefuseHead {
            kind: FrameKind::Refuse,
            message: message.into(),
        };
        if !hello.versions.contains(&VERSION) {
            let message = format!("no version in common: this server speaks {VERSION}");
            return Err(refuse(message));
        }
        if hello.concurrency == 0 {
            return Err(refuse("concurrency must be at least 1".to_owned()));
        }
        let name = |event: &EventName| serde_json::to_value(event).ok();
        let known = EventName::ALL.iter().filter_map(name);
        let known = known.filter_map(|name| name.as_str().map(str::to_owned));
        let bytes = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
        Ok(WelcomeHead {
            kind: FrameKind::Welcome,
            version: VERSION,
            codec: CODEC.into(),
            app: self.app.into(),
            instance: self.instance,
            events: known.filter(|name| hello.events.contains(name)).collect(),
            calls: CALLS.map(str::to_owned).to_vec(),
            head_bytes_max: bytes(self.limits.head_bytes_max),
            payload_bytes_max: bytes(self.limits.payload_bytes_max),
            options: self.options,
        })
    }
}
