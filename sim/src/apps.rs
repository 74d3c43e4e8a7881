//! The back end as an application of each worker: it gets the hub's answers to what it asked there.

use std::collections::HashMap;
use std::net::SocketAddr;

use veche_frontends::app::{
    AbandonReason, AppResponse, HandlerProgress, HandshakeDecision, MaybeDeferred, RequestView,
};
use veche_frontends::hooks::HookRequest;
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppId, Apps, Context, DialCommand, RenewError};
use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::websocket::MessageKind;
use veche_worker::AppHost;

use crate::hook_outcome::{self, AppRequest};

/// As whom the back end asks the hub: a session that no connection has.
pub(crate) const BACK_END: ConnectionId = ConnectionId {
    index: u32::MAX,
    generation: 0,
};

/// What an application is told of a connection that it has dialed, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialEvent {
    Opened,
    Failed,
    Closed,
}

/// The application of the back end. It also decides on the commands of some clients, and sends back what comes on
/// connections that it has dialed. No route leads here, so no session calls it otherwise.
#[derive(Debug, Default)]
pub struct BackEndApp {
    answers: Vec<(Ticket, HubReply)>,
    asked: Vec<AppRequest>,
    /// The numbers of connections that it has dialed, also of those that are over.
    dialed: HashMap<ConnectionId, u64>,
    dial_events: Vec<(u64, DialEvent)>,
    /// Why those are over.
    reasons: Vec<String>,
    dial_requests: Vec<DialRequest>,
    /// When it will have done what it does at the end.
    stops_at_ms: Option<u64>,
    has_stopped: bool,
}

/// A connection to another server that the application wants.
#[derive(Debug)]
pub struct DialRequest {
    /// How it begins.
    pub dial: DialCommand,
    /// Where to. There is nothing at port 0.
    pub to: SocketAddr,
}

impl BackEndApp {
    pub(crate) fn request_dial(&mut self, wanted: Option<DialRequest>) {
        self.dial_requests.extend(wanted);
    }

    /// Takes the connections that it wants, to be dialed.
    pub fn take_dial_requests(&mut self) -> Vec<DialRequest> {
        std::mem::take(&mut self.dial_requests)
    }

    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, HubReply)> {
        std::mem::take(&mut self.answers)
    }

    /// Takes what it was told of connections that it has dialed.
    pub(crate) fn take_dial_events(&mut self) -> Vec<(u64, DialEvent)> {
        std::mem::take(&mut self.dial_events)
    }

    /// Takes why connections that it has dialed are over, in words.
    pub(crate) fn take_reasons(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reasons)
    }

    /// Takes what it is to decide, and what it has decided in the call.
    pub(crate) fn take_questions(&mut self) -> Vec<AppRequest> {
        std::mem::take(&mut self.asked)
    }
}

/// What it does at the end takes some of these.
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
    ) -> HandlerProgress {
        unreachable!("{UNREACHABLE}")
    }

    fn message(
        &mut self,
        _: AppId,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Context,
    ) -> HandlerProgress {
        shared.requests.outboxes.send(id, kind, data);
        HandlerProgress::Done
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

    fn worker_id(session: ConnectionId) -> Option<AppId> {
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

    fn decide_hook(&mut self, _: AppId, _: u64, question: &HookRequest, shared: &mut Context) {
        let at_once = hook_outcome::at_once(question);
        let fate = at_once.as_ref().map(|(fate, _)| *fate);
        self.asked.push((question.clone(), fate));
        if let Some((_, verdict)) = at_once {
            let verdict = (question.session, question.id, verdict);
            shared.requests.hook_decisions.push_back(verdict);
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
