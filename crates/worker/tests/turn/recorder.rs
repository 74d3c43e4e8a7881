//! Test applications that record the calls of a worker.

use veche_frontends::app::{
    AbandonReason, AppProgress, AppResponse, HandshakeDecision, MaybeDeferred, RequestView,
};
use veche_frontends::hooks::HookRequest;
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppId, Apps, Context, ListConnections, RenewError};
use veche_hub::{Caller, ChannelEvent, ConnectionId, HubReply, Ticket, WorkerId};
use veche_proto::websocket::MessageKind;
use veche_worker::AppHost;

use crate::app::APP;

#[derive(Default)]
pub(crate) struct Recorder {
    /// The outgoing connections that could not be opened: token and reason.
    pub(crate) failed: Vec<(u64, String)>,
    pub(crate) renewed: Vec<Result<Option<u64>, RenewError>>,
    /// For each call with channel events, the number of events and the number of events lost before
    /// them.
    pub(crate) happened: Vec<(usize, u64)>,
    /// The result that [`AppHost::handle_channel_event`] returns.
    pub(crate) has_work: bool,
    /// The number of hook requests received.
    pub(crate) decided: u32,
    /// Whether the next reply makes the application request the list of connections again.
    pub(crate) asks_again: bool,
}

pub(crate) fn list_request(ticket: u32) -> ListConnections {
    ListConnections {
        channel: "news".into(),
        name: None,
        caller: Caller {
            worker: WorkerId(0),
            session: APP,
            ticket: Ticket(ticket),
        },
    }
}

impl Apps for Recorder {
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

    fn drained(&mut self, _: AppId, _: ConnectionId, _: &mut Context) {
        unreachable!()
    }

    fn answered(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: Ticket,
        _: HubReply,
        shared: &mut Context,
    ) {
        if std::mem::take(&mut self.asks_again) {
            shared.requests.list_requests.push(list_request(2));
        }
    }

    fn closed(&mut self, _: AppId, _: ConnectionId, _: u16, _: &str, _: &mut Context) {
        unreachable!()
    }

    fn request(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &RequestView<'_>,
        _: &mut Context,
    ) -> MaybeDeferred<AppResponse> {
        unreachable!()
    }

    fn written(&mut self, _: AppId, _: ConnectionId, _: &mut Context) {
        unreachable!()
    }

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

    fn client_failed(&mut self, _: AppId, token: u64, why: &str, _: &mut Context) {
        self.failed.push((token, why.to_owned()));
    }

    fn abandoned(&mut self, _: AppId, _: ConnectionId, _: AbandonReason, _: &mut Context) {
        unreachable!()
    }

    fn turn(&mut self, _: &mut Context) {}

    fn deadline_ms(&self) -> u64 {
        u64::MAX
    }
}

impl AppHost for Recorder {
    type Message = ();

    fn requesting_app(session: ConnectionId) -> Option<AppId> {
        (session == APP).then_some(AppId(0))
    }

    fn handle_message(&mut self, (): (), _: &mut Context) {
        unreachable!()
    }

    fn decide_hook(&mut self, _: AppId, _: u64, _: &HookRequest, _: &mut Context) {
        self.decided += 1;
    }

    fn handle_renewed(
        &mut self,
        _: &TokenRenewal,
        result: Result<Option<u64>, RenewError>,
        _: &mut Context,
    ) {
        self.renewed.push(result);
    }

    fn handle_channel_event(&mut self, events: &[ChannelEvent], lost: u64) -> bool {
        self.happened.push((events.len(), lost));
        self.has_work
    }
}
