//! Outbound WebSocket connections of applications.
//!
//! [`DialingStage`] handles the connection until the 101. Afterwards the connection is an ordinary WebSocket in the
//! client role, and the application receives messages through the same calls as from its own clients. The worker
//! resolves names, connects, and handles TLS.

use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::websocket::deflate::DeflatePolicy;
use veche_proto::websocket::{self, Decoder, handshake};

use super::AppSession;
use crate::context::step::{NextStep, StageStep};
use crate::context::worker_context::Context;
use crate::websocket::client::{ClientOptions, DialCommand, DialId};

/// An open outbound connection.
pub(crate) struct DialedSession {
    pub(crate) decoder: Decoder,
    pub(crate) session: AppSession,
    pub(crate) terms: Arc<ClientOptions>,
}

/// An outbound connection whose server has not answered 101 yet.
pub(crate) struct DialingStage {
    dial: DialCommand,
    key: String,
    /// Number of bytes of the response that were already searched for the end of its head.
    scanned: usize,
    /// Monotonic time in milliseconds at which the attempt to connect began.
    since_ms: u64,
    /// Whether the success or failure of the attempt was reported to the application.
    is_over: bool,
}

impl DialingStage {
    /// Starts the handshake of an outbound connection: writes its request into the outbox.
    pub(crate) fn new(id: ConnectionId, dial: DialCommand, shared: &mut Context) -> Self {
        let key = handshake::new_key(shared.requests.outboxes.masks.bytes());
        let headers = dial.headers.iter();
        handshake::write_request(
            shared.requests.outboxes.buffer(id),
            &dial.authority,
            &dial.target,
            &key,
            &dial.protocols,
            policy(&dial).as_ref(),
            headers.map(|(name, value)| (name.as_str(), value.as_str())),
        );
        Self {
            dial,
            key,
            scanned: 0,
            since_ms: shared.now.mono_ms,
            is_over: false,
        }
    }

    pub(crate) fn caller(&self) -> DialId {
        self.dial.caller
    }

    pub(crate) fn deadline_ms(&self) -> u64 {
        self.since_ms + self.dial.timeout_ms
    }

    /// Handles the response once its head is complete.
    pub(crate) fn step(
        &mut self,
        id: ConnectionId,
        input: &[u8],
        shared: &mut Context,
    ) -> StageStep<DialedSession> {
        // The last three bytes of the previous search may be part of the four that end the head.
        let from = self.scanned.saturating_sub(3);
        let has_end = memchr::memmem::find(&input[from..], b"\r\n\r\n").is_some();
        self.scanned = input.len();
        if !has_end && input.len() < handshake::RESPONSE_BYTES_MAX {
            return StageStep {
                consumed: 0,
                then: NextStep::NeedInput,
            };
        }
        let policy = policy(&self.dial);
        let read =
            handshake::read_response(input, &self.key, &self.dial.protocols, policy.as_ref());
        match read {
            Ok(None) => StageStep {
                consumed: 0,
                then: NextStep::NeedInput,
            },
            Err(error) => {
                self.failed(&error.to_string(), shared);
                StageStep {
                    consumed: input.len(),
                    then: NextStep::End,
                }
            }
            Ok(Some((taken, accepted))) => {
                let then = match self.open(id, &accepted, shared) {
                    Some(dialed) => NextStep::Become(dialed),
                    None => NextStep::End,
                };
                StageStep {
                    consumed: taken,
                    then,
                }
            }
        }
    }

    /// Handles the 101 response; returns `None` if the application no longer needs the connection.
    fn open(
        &mut self,
        id: ConnectionId,
        accepted: &handshake::HandshakeResponse<'_>,
        shared: &mut Context,
    ) -> Option<DialedSession> {
        let DialId { app, token } = self.caller();
        self.is_over = true;
        shared.requests.outboxes.begin_client(id, accepted.deflate);
        let opened = shared.with_apps(|apps, shared| {
            apps.client_opened(app, token, id, accepted.protocol, shared)
        });
        opened.flatten()?;
        shared.stats.clients.add(1);
        Some(DialedSession {
            decoder: Decoder::new(websocket::Role::Client, accepted.deflate),
            session: AppSession::of_client(app),
            terms: Arc::new(self.dial.options),
        })
    }

    /// Reports a failure to the application. Only the first failure is reported.
    pub(crate) fn failed(&mut self, why: &str, shared: &mut Context) {
        if !std::mem::replace(&mut self.is_over, true) {
            let DialId { app, token } = self.caller();
            shared.with_apps(|apps, shared| apps.client_failed(app, token, why, shared));
        }
    }

    pub(crate) fn timed_out(&mut self, shared: &mut Context) {
        let seconds = self.dial.timeout_ms as f64 / 1000.0;
        self.failed(
            &format!("the connection was not open within {seconds} s"),
            shared,
        );
    }
}

/// Returns the compression that the handshake offers: without context takeover, so that an idle connection needs no
/// memory for it.
fn policy(dial: &DialCommand) -> Option<DeflatePolicy> {
    dial.compresses.then(DeflatePolicy::default)
}
