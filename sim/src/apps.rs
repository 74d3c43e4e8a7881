//! The back end as an application on each worker: it receives the hub's replies to its requests.

use std::collections::HashMap;
use std::net::SocketAddr;

use veche_frontends::app::{
    AbandonReason, AppProgress, AppResponse, HandshakeDecision, MaybeDeferred, RequestView,
};
use veche_frontends::hooks::HookRequest;
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppId, Apps, Context, DialCommand, RenewError};
use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::websocket::MessageKind;
use veche_worker::AppHost;

use crate::hook_outcome::{self, AppRequest};

/// The session id of the back end in the hub, which no connection has.
pub(crate) const BACK_END: ConnectionId = ConnectionId {
    index: u32::MAX,
    generation: 0,
};

/// An event of a connection that the application has dialed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialEvent {
    Opened,
    Failed,
    Closed,
}

/// The application of the back end. It also answers hook requests of some clients, and echoes messages on connections that it
/// has dialed. No route leads to it, so sessions make no other calls.
#[derive(Debug, Default)]
pub struct BackEndApp {
    answers: Vec<(Ticket, HubReply)>,
    asked: Vec<AppRequest>,
    /// The numbers of dialed connections, including ended ones.
    dialed: HashMap<ConnectionId, u64>,
    dial_events: Vec<(u64, DialEvent)>,
    /// The reasons for which dialed connections ended.
    reasons: Vec<String>,
    dial_requests: Vec<DialRequest>,
    /// The time at which the application's work at shutdown will be done.
    stops_at_ms: Option<u64>,
    has_stopped: bool,
}

/// A connection to another server that the application requests.
#[derive(Debug)]
pub struct DialRequest {
    /// The application's request to open the connection.
    pub dial: DialCommand,
    /// The target. No server listens on port 0.
    pub to: SocketAddr,
}

impl BackEndApp {
    pub(crate) fn request_dial(&mut self, wanted: Option<DialRequest>) {
        self.dial_requests.extend(wanted);
    }

    /// Returns the requested connections, which are to be dialed.
    pub fn take_dial_requests(&mut self) -> Vec<DialRequest> {
        std::mem::take(&mut self.dial_requests)
    }

    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, HubReply)> {
        std::mem::take(&mut self.answers)
    }

    /// Returns the events of dialed connections.
    pub(crate) fn take_dial_events(&mut self) -> Vec<(u64, DialEvent)> {
        std::mem::take(&mut self.dial_events)
    }

    /// Returns the reasons for which dialed connections ended.
    pub(crate) fn take_reasons(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reasons)
    }

    /// Returns the application's hook requests, each with the decision that the application made
    /// within the call, if any.
    pub(crate) fn take_hook_requests(&mut self) -> Vec<AppRequest> {
        std::mem::take(&mut self.asked)
    }
}

/// The unit of time for the application's work at shutdown, in milliseconds. The work takes several
/// units.
const STOP_STEP_MS: u64 = 150;

const UNREACHABLE: &str = "no route leads to an application";

impl Apps for BackEndApp {
    fn has_handshake(&self, _: AppId) -> bool {
        false
    }

    fn handshake(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &RequestView<'_>,
        _: &mut Context,
    ) -> MaybeDeferred<HandshakeDecision> {
        unreachable!("{UNREACHABLE}")
    }

    fn opened(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &RequestView<'_>,
        _: &mut Context,
    ) -> AppProgress {
        unreachable!("{UNREACHABLE}")
    }

    fn message(
        &mut self,
        _: AppId,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Context,
    ) -> AppProgress {
        shared.requests.outboxes.send(id, kind, data);
        AppProgress::Done
    }

    fn drained(&mut self, _: AppId, _: ConnectionId, _: &mut Context) {}

    fn client_opened(
        &mut self,
        _: AppId,
        token: u64,
        id: ConnectionId,
        _: Option<&str>,
        _: &mut Context,
    ) -> Option<()> {
        self.dialed.insert(id, token);
        self.dial_events.push((token, DialEvent::Opened));
        Some(())
    }

    fn client_failed(&mut self, _: AppId, token: u64, why: &str, _: &mut Context) {
        self.reasons.push(why.to_owned());
        self.dial_events.push((token, DialEvent::Failed));
    }

    fn answered(
        &mut self,
        _: AppId,
        _: ConnectionId,
        ticket: Ticket,
        answer: HubReply,
        _: &mut Context,
    ) {
        self.answers.push((ticket, answer));
    }

    fn closed(&mut self, _: AppId, id: ConnectionId, code: u16, why: &str, _: &mut Context) {
        if let Some(token) = self.dialed.get(&id) {
            self.reasons.push(format!("{code} {why}"));
            self.dial_events.push((*token, DialEvent::Closed));
        }
    }

    fn request(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &RequestView<'_>,
        _: &mut Context,
    ) -> MaybeDeferred<AppResponse> {
        unreachable!("{UNREACHABLE}")
    }

    fn written(&mut self, _: AppId, _: ConnectionId, _: &mut Context) {
        unreachable!("{UNREACHABLE}")
    }

    fn abandoned(&mut self, _: AppId, _: ConnectionId, _: AbandonReason, _: &mut Context) {
        unreachable!("{UNREACHABLE}")
    }

    fn turn(&mut self, shared: &mut Context) {
        if self
            .stops_at_ms
            .is_some_and(|at_ms| at_ms <= shared.now.mono_ms)
        {
            self.stops_at_ms = None;
            self.has_stopped = true;
        }
    }

    fn deadline_ms(&self) -> u64 {
        self.stops_at_ms.unwrap_or(u64::MAX)
    }
}

impl AppHost for BackEndApp {
    type Message = std::convert::Infallible;

    fn requesting_app(session: ConnectionId) -> Option<AppId> {
        (session == BACK_END).then_some(AppId(0))
    }

    fn stop(&mut self, shared: &mut Context) {
        let now_ms = shared.now.mono_ms;
        self.stops_at_ms = Some(now_ms + now_ms % 7 * STOP_STEP_MS);
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    fn handle_message(&mut self, message: Self::Message, _: &mut Context) {
        match message {}
    }

    fn decide_hook(&mut self, _: AppId, _: u64, request: &HookRequest, shared: &mut Context) {
        let at_once = hook_outcome::at_once(request);
        let fate = at_once.as_ref().map(|(fate, _)| *fate);
        self.asked.push((request.clone(), fate));
        if let Some((_, decision)) = at_once {
            let decision = (request.session, request.id, decision);
            shared.requests.hook_decisions.push_back(decision);
        }
    }

    fn handle_renewed(
        &mut self,
        _: &TokenRenewal,
        _: Result<Option<u64>, RenewError>,
        _: &mut Context,
    ) {
        unreachable!("{UNREACHABLE}")
    }
}
