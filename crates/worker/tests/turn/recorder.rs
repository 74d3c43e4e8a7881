//! Applications that record the calls of a worker.

use veche_frontends::app::{Gone, Outcome, Progress, Request, Response, Verdict};
use veche_frontends::hooks::Question;
use veche_frontends::shared::Renewal;
use veche_frontends::{AppId, Apps, Census, NotRenewed, Shared};
use veche_hub::{Answer, Caller, ConnectionId, Happening, Ticket, WorkerId};
use veche_proto::websocket::MessageKind;
use veche_worker::AppHost;

use crate::app::APP;

#[derive(Default)]
pub(crate) struct Recorder {
    /// Dials that failed, by token.
    pub(crate) failed: Vec<(u64, String)>,
    pub(crate) renewed: Vec<Result<Option<u64>, NotRenewed>>,
    /// Number of events of each call, and of those lost before them.
    pub(crate) happened: Vec<(usize, u64)>,
    /// What [`AppHost::happened`] returns.
    pub(crate) has_work: bool,
    /// Number of hook requests.
    pub(crate) decided: u32,
    /// The next answer makes it request the connections again.
    pub(crate) asks_again: bool,
}

pub(crate) fn census(ticket: u32) -> Census {
    Census {
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

    fn drained(&mut self, _: AppId, _: ConnectionId, _: &mut Shared) {
        unreachable!()
    }

    fn answered(&mut self, _: AppId, _: ConnectionId, _: Ticket, _: Answer, shared: &mut Shared) {
        if std::mem::take(&mut self.asks_again) {
            shared.ports.censuses.push(census(2));
        }
    }

    fn closed(&mut self, _: AppId, _: ConnectionId, _: u16, _: &str, _: &mut Shared) {
        unreachable!()
    }

    fn request(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &Request<'_>,
        _: &mut Shared,
    ) -> Outcome<Response> {
        unreachable!()
    }

    fn written(&mut self, _: AppId, _: ConnectionId, _: &mut Shared) {
        unreachable!()
    }

    fn client_failed(&mut self, _: AppId, token: u64, why: &str, _: &mut Shared) {
        self.failed.push((token, why.to_owned()));
    }

    fn gone(&mut self, _: AppId, _: ConnectionId, _: Gone, _: &mut Shared) {
        unreachable!()
    }

    fn turn(&mut self, _: &mut Shared) {}

    fn deadline_ms(&self) -> u64 {
        u64::MAX
    }
}

impl AppHost for Recorder {
    type Message = ();

    fn requester(session: ConnectionId) -> Option<AppId> {
        (session == APP).then_some(AppId(0))
    }

    fn receive(&mut self, (): (), _: &mut Shared) {
        unreachable!()
    }

    fn decide(&mut self, _: AppId, _: u64, _: &Question, _: &mut Shared) {
        self.decided += 1;
    }

    fn renewed(&mut self, _: &Renewal, result: Result<Option<u64>, NotRenewed>, _: &mut Shared) {
        self.renewed.push(result);
    }

    fn happened(&mut self, events: &[Happening], lost: u64) -> bool {
        self.happened.push((events.len(), lost));
        self.has_work
    }
}
