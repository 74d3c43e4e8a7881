//! Test applications that send numbers to the same applications on other workers.

use std::collections::VecDeque;

use veche_frontends::app::{
    AbandonReason, AppProgress, AppResponse, HandshakeDecision, MaybeDeferred, RequestView,
};
use veche_frontends::hooks::HookRequest;
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppId, Apps, Context, RenewError};
use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::websocket::MessageKind;
use veche_worker::AppHost;

/// A session id with which the applications make requests to the hub.
pub(crate) const APP: ConnectionId = ConnectionId {
    index: u32::MAX,
    generation: 0,
};

#[derive(Default)]
pub(crate) struct Numbers {
    /// The numbers to be sent, by receiving worker.
    pub(crate) outgoing: Vec<VecDeque<u32>>,
    pub(crate) received: Vec<u32>,
    pub(crate) answers: Vec<Ticket>,
    pub(crate) turns: u32,
    pub(crate) is_stopping: bool,
    pub(crate) has_stopped: bool,
    /// Whether the application still has a client, because the client's last handler has not ended.
    pub(crate) has_clients: bool,
    /// Whether services keep running after the request to stop.
    pub(crate) do_services_go_on: bool,
    /// The time limits of services in monotonic milliseconds, one for each request to stop.
    pub(crate) services_until_ms: Vec<u64>,
    pub(crate) due_ms: Option<u64>,
}

impl Apps for Numbers {
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
        unreachable!()
    }

    fn opened(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &RequestView<'_>,
        _: &mut Context,
    ) -> AppProgress {
        unreachable!()
    }

    fn message(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: MessageKind,
        _: &[u8],
        _: &mut Context,
    ) -> AppProgress {
        unreachable!()
    }

    fn drained(&mut self, _: AppId, _: ConnectionId, _: &mut Context) {}

    fn answered(
        &mut self,
        _: AppId,
        _: ConnectionId,
        ticket: Ticket,
        _: HubReply,
        _: &mut Context,
    ) {
        self.answers.push(ticket);
    }

    fn closed(&mut self, _: AppId, _: ConnectionId, _: u16, _: &str, _: &mut Context) {}

    fn request(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &RequestView<'_>,
        _: &mut Context,
    ) -> MaybeDeferred<AppResponse> {
        unreachable!()
    }

    fn written(&mut self, _: AppId, _: ConnectionId, _: &mut Context) {}

    fn client_opened(
        &mut self,
        _: AppId,
        _: u64,
        _: ConnectionId,
        _: Option<&str>,
        _: &mut Context,
    ) -> Option<()> {
        unreachable!()
    }

    fn abandoned(&mut self, _: AppId, _: ConnectionId, _: AbandonReason, _: &mut Context) {}

    fn turn(&mut self, _: &mut Context) {
        self.turns += 1;
    }

    fn deadline_ms(&self) -> u64 {
        self.due_ms.unwrap_or(u64::MAX)
    }
}

impl AppHost for Numbers {
    type Message = u32;

    fn requesting_app(session: ConnectionId) -> Option<AppId> {
        (session == APP).then_some(AppId(0))
    }

    fn handle_message(&mut self, message: u32, _: &mut Context) {
        self.received.push(message);
    }

    fn has_messages(&self) -> bool {
        self.outgoing.iter().any(|queue| !queue.is_empty())
    }

    fn next_message(&mut self, to: usize) -> Option<u32> {
        self.outgoing.get_mut(to)?.pop_front()
    }

    fn decide_hook(&mut self, _: AppId, _: u64, _: &HookRequest, _: &mut Context) {
        unreachable!()
    }

    fn handle_renewed(
        &mut self,
        _: &TokenRenewal,
        _: Result<Option<u64>, RenewError>,
        _: &mut Context,
    ) {
        unreachable!()
    }

    fn stop(&mut self, _: &mut Context) {
        self.is_stopping = true;
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    fn has_clients(&self) -> bool {
        self.has_clients
    }

    fn stop_services(&mut self, until_ms: u64, _: &mut Context) {
        self.services_until_ms.push(until_ms);
    }

    fn have_services_ended(&self) -> bool {
        !self.do_services_go_on
    }
}
