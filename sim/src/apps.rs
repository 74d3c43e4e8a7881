//! The back end as an application of each worker: it gets the hub's answers to what it asked there.

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

/// As whom the back end asks the hub: a session that no connection has.
pub(crate) const BACK_END: ConnectionId = ConnectionId {
    index: u32::MAX,
    generation: 0,
};

/// What an application is told of a connection that it has dialed, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Opened,
    Failed,
    Closed,
}

/// The application of the back end. It also decides on the commands of some clients, and sends back what comes on
/// connections that it has dialed. No route leads here, so no session calls it otherwise.
#[derive(Debug, Default)]
pub struct BackEndApp {
    answers: Vec<(Ticket, Answer)>,
    asked: Vec<Asked>,
    /// The numbers of connections that it has dialed, also of those that are over.
    dialed: HashMap<ConnectionId, u64>,
    told: Vec<(u64, Told)>,
    /// Why those are over.
    reasons: Vec<String>,
    wanted: Vec<Wanted>,
    /// When it will have done what it does at the end.
    stops_at_ms: Option<u64>,
    has_stopped: bool,
}

/// A connection to another server that the application wants.
#[derive(Debug)]
pub struct Wanted {
    /// How it begins.
    pub dial: Dial,
    /// Where to. There is nothing at port 0.
    pub to: SocketAddr,
}

impl BackEndApp {
    pub(crate) fn want(&mut self, wanted: Option<Wanted>) {
        self.wanted.extend(wanted);
    }

    /// Takes the connections that it wants, to be dialed.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted)
    }

    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// Takes what it was told of connections that it has dialed.
    pub(crate) fn take_dialed(&mut self) -> Vec<(u64, Told)> {
        std::mem::take(&mut self.told)
    }

    /// Takes why connections that it has dialed are over, in words.
    pub(crate) fn take_reasons(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reasons)
    }

    /// Takes what it is to decide, and what it has decided in the call.
    pub(crate) fn take_questions(&mut self) -> Vec<Asked> {
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
