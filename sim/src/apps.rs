//! The back end as an application on each worker: it receives the hub's replies to its requests.

use std::collections::HashMap;
use std::net::SocketAddr;

use veche_frontends::app::{Gone, Outcome, Progress, Request, Response, Verdict};
use veche_frontends::hooks::Question;
use veche_frontends::shared::Renewal;
use veche_frontends::{AppId, Apps, Dial, NotRenewed, Shared};
use veche_hub::{Answer, ConnectionId, Ticket};
use veche_proto::websocket::MessageKind;
use veche_worker::AppHost;

use crate::fate::{self, Asked};

/// The session id of the back end in the hub, which no connection has.
pub(crate) const BACK_END: ConnectionId = ConnectionId {
    index: u32::MAX,
    generation: 0,
};

/// An event of a connection that the application has dialed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Opened,
    Failed,
    Closed,
}

/// The application of the back end. It also answers hook requests of some clients, and echoes messages on connections
/// that it has dialed. No route leads to it, so no session calls it otherwise.
#[derive(Debug, Default)]
pub struct BackEndApp {
    answers: Vec<(Ticket, Answer)>,
    asked: Vec<Asked>,
    /// The numbers of dialed connections, including ended ones.
    dialed: HashMap<ConnectionId, u64>,
    told: Vec<(u64, Told)>,
    /// The reasons of their ends.
    reasons: Vec<String>,
    wanted: Vec<Wanted>,
    /// When its work at shutdown will be done.
    stops_at_ms: Option<u64>,
    has_stopped: bool,
}

/// A connection to another server that the application requests.
#[derive(Debug)]
pub struct Wanted {
    /// The request to open it.
    pub dial: Dial,
    /// The target. No server listens on port 0.
    pub to: SocketAddr,
}

impl BackEndApp {
    pub(crate) fn want(&mut self, wanted: Option<Wanted>) {
        self.wanted.extend(wanted);
    }

    /// Returns the requested connections, which are to be dialed.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted)
    }

    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// Returns the events of dialed connections.
    pub(crate) fn take_dialed(&mut self) -> Vec<(u64, Told)> {
        std::mem::take(&mut self.told)
    }

    /// Returns the reasons for which dialed connections ended.
    pub(crate) fn take_reasons(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reasons)
    }

    /// Returns the hook requests, with the answers given within the call.
    pub(crate) fn take_questions(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }
}

/// Its work at shutdown takes some of these.
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
        _: &Request<'_>,
        _: &mut Shared,
    ) -> Outcome<Verdict> {
        unreachable!("{UNREACHABLE}")
    }

    fn opened(&mut self, _: AppId, _: ConnectionId, _: &Request<'_>, _: &mut Shared) -> Progress {
        unreachable!("{UNREACHABLE}")
    }

    fn message(
        &mut self,
        _: AppId,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Shared,
    ) -> Progress {
        shared.ports.outboxes.send(id, kind, data);
        Progress::Done
    }

    fn drained(&mut self, _: AppId, _: ConnectionId, _: &mut Shared) {}

    fn client_opened(
        &mut self,
        _: AppId,
        token: u64,
        id: ConnectionId,
        _: Option<&str>,
        _: &mut Shared,
    ) -> Option<()> {
        self.dialed.insert(id, token);
        self.told.push((token, Told::Opened));
        Some(())
    }

    fn client_failed(&mut self, _: AppId, token: u64, why: &str, _: &mut Shared) {
        self.reasons.push(why.to_owned());
        self.told.push((token, Told::Failed));
    }

    fn answered(
        &mut self,
        _: AppId,
        _: ConnectionId,
        ticket: Ticket,
        answer: Answer,
        _: &mut Shared,
    ) {
        self.answers.push((ticket, answer));
    }

    fn closed(&mut self, _: AppId, id: ConnectionId, code: u16, why: &str, _: &mut Shared) {
        if let Some(token) = self.dialed.get(&id) {
            self.reasons.push(format!("{code} {why}"));
            self.told.push((*token, Told::Closed));
        }
    }

    fn request(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &Request<'_>,
        _: &mut Shared,
    ) -> Outcome<Response> {
        unreachable!("{UNREACHABLE}")
    }

    fn written(&mut self, _: AppId, _: ConnectionId, _: &mut Shared) {
        unreachable!("{UNREACHABLE}")
    }

    fn gone(&mut self, _: AppId, _: ConnectionId, _: Gone, _: &mut Shared) {
        unreachable!("{UNREACHABLE}")
    }

    fn turn(&mut self, shared: &mut Shared) {
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

    fn requester(session: ConnectionId) -> Option<AppId> {
        (session == BACK_END).then_some(AppId(0))
    }

    fn stop(&mut self, shared: &mut Shared) {
        let now_ms = shared.now.mono_ms;
        self.stops_at_ms = Some(now_ms + now_ms % 7 * STOP_STEP_MS);
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    fn receive(&mut self, message: Self::Message, _: &mut Shared) {
        match message {}
    }

    fn decide(&mut self, _: AppId, _: u64, question: &Question, shared: &mut Shared) {
        let at_once = fate::at_once(question);
        let fate = at_once.as_ref().map(|(fate, _)| *fate);
        self.asked.push((question.clone(), fate));
        if let Some((_, verdict)) = at_once {
            let verdict = (question.session, question.id, verdict);
            shared.ports.verdicts.push_back(verdict);
        }
    }

    fn renewed(&mut self, _: &Renewal, _: Result<Option<u64>, NotRenewed>, _: &mut Shared) {
        unreachable!("{UNREACHABLE}")
    }
}
