//! Applications that send numbers to each other.

use std::collections::VecDeque;

use veche_frontends::app::{Gone, Outcome, Progress, Request, Response, Verdict};
use veche_frontends::hooks::Question;
use veche_frontends::shared::Renewal;
use veche_frontends::{AppId, Apps, NotRenewed, Shared};
use veche_hub::{Answer, ConnectionId, Ticket};
use veche_proto::websocket::MessageKind;
use veche_worker::AppHost;

/// A session id that stands for the applications themselves.
pub(crate) const APP: ConnectionId = ConnectionId {
    index: u32::MAX,
    generation: 0,
};

#[derive(Default)]
pub(crate) struct Numbers {
    /// Numbers to be sent, by worker.
    pub(crate) outgoing: Vec<VecDeque<u32>>,
    pub(crate) received: Vec<u32>,
    pub(crate) answers: Vec<Ticket>,
    pub(crate) turns: u32,
    pub(crate) is_stopping: bool,
    pub(crate) has_stopped: bool,
    /// It holds a client whose last handler has not ended.
    pub(crate) has_clients: bool,
    /// Services continue after they were told to stop.
    pub(crate) do_services_go_on: bool,
    /// Time limits of services, for each time that they were told to stop.
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
        _: &Request<'_>,
        _: &mut Shared,
    ) -> Outcome<Verdict> {
        unreachable!()
    }

    fn opened(&mut self, _: AppId, _: ConnectionId, _: &Request<'_>, _: &mut Shared) -> Progress {
        unreachable!()
    }

    fn message(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: MessageKind,
        _: &[u8],
        _: &mut Shared,
    ) -> Progress {
        unreachable!()
    }

    fn drained(&mut self, _: AppId, _: ConnectionId, _: &mut Shared) {}

    fn answered(&mut self, _: AppId, _: ConnectionId, ticket: Ticket, _: Answer, _: &mut Shared) {
        self.answers.push(ticket);
    }

    fn closed(&mut self, _: AppId, _: ConnectionId, _: u16, _: &str, _: &mut Shared) {}

    fn request(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &Request<'_>,
        _: &mut Shared,
    ) -> Outcome<Response> {
        unreachable!()
    }

    fn written(&mut self, _: AppId, _: ConnectionId, _: &mut Shared) {}

    fn gone(&mut self, _: AppId, _: ConnectionId, _: Gone, _: &mut Shared) {}

    fn turn(&mut self, _: &mut Shared) {
        self.turns += 1;
    }

    fn deadline_ms(&self) -> u64 {
        self.due_ms.unwrap_or(u64::MAX)
    }
}

impl AppHost for Numbers {
    type Message = u32;

    fn requester(session: ConnectionId) -> Option<AppId> {
        (session == APP).then_some(AppId(0))
    }

    fn receive(&mut self, message: u32, _: &mut Shared) {
        self.received.push(message);
    }

    fn has_messages(&self) -> bool {
        self.outgoing.iter().any(|queue| !queue.is_empty())
    }

    fn next_message(&mut self, to: usize) -> Option<u32> {
        self.outgoing.get_mut(to)?.pop_front()
    }

    fn decide(&mut self, _: AppId, _: u64, _: &Question, _: &mut Shared) {
        unreachable!()
    }

    fn renewed(&mut self, _: &Renewal, _: Result<Option<u64>, NotRenewed>, _: &mut Shared) {
        unreachable!()
    }

    fn stop(&mut self, _: &mut Shared) {
        self.is_stopping = true;
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    fn has_clients(&self) -> bool {
        self.has_clients
    }

    fn stop_services(&mut self, until_ms: u64, _: &mut Shared) {
        self.services_until_ms.push(until_ms);
    }

    fn have_services_ended(&self) -> bool {
        !self.do_services_go_on
    }
}
