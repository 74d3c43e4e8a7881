//! The handshake between Veche and a worker process, before the first event.

use serde_json::value::RawValue;

use super::frame::FrameLimits;
use super::head::{EventName, FrameKind, HelloHead, RefuseHead, WelcomeHead};
use super::{CALLS, CODEC, VERSION};

/// The settings that a worker process receives.
#[derive(Clone, Copy, Debug)]
pub struct AppDescription<'a> {
    /// The name of the application.
    pub app: &'a str,
    /// The number of the process among those of the application, from 1.
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
            return Err(refuse("concurrency: from 1".to_owned()));
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
