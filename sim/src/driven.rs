//! A worker of a process on any driver, with a check that each turn has a reason.

use veche_frontends::hooks::{Decider, Question, QuestionId, Verdict};
use veche_frontends::{Now, Parting, Shared};
use veche_hub::{Answer, ConnectionId, Ticket};
use veche_worker::TurnState;

use crate::apps::{BackEndApp, Told, Wanted};
use crate::fate::Asked;
use crate::glue::{Arrival, Glue, Letter, Output, Turn};

/// A worker that wants its next turn within this time has something to retry.
const SOON_MS: u64 = 20;

pub(crate) struct Driven {
    glue: Box<dyn Glue>,
    /// An input requires a turn.
    is_woken: bool,
    /// When the next turn begins without input; `u64::MAX`: never.
    due_ms: u64,
    /// The maximum number of connections it had.
    places: usize,
    /// Hook decisions for its next turn.
    verdicts: Vec<(ConnectionId, QuestionId, Verdict)>,
    /// Hook requests for the back end.
    asked: Vec<Asked>,
    /// Orders of the control side for its next turn.
    orders: Vec<Letter>,
}

/// The result of a turn.
pub(crate) struct Turned {
    pub(crate) outputs: Vec<Output>,
    pub(crate) state: TurnState,
    /// Something has happened, or will at once.
    pub(crate) moved: bool,
    /// A worker without a reason for a turn has sent something.
    pub(crate) is_unasked: bool,
}

impl Driven {
    pub(crate) fn new(glue: Box<dyn Glue>) -> Self {
        Self {
            glue,
            is_woken: true,
            due_ms: 0,
            places: 0,
            verdicts: Vec::new(),
            asked: Vec::new(),
            orders: Vec::new(),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.glue.shared()
    }

    pub(crate) fn shared_mut(&mut self) -> &mut Shared {
        self.is_woken = true;
        self.glue.shared_mut()
    }

    pub(crate) fn connections(&self) -> usize {
        self.glue.connections()
    }

    /// Returns the maximum number of connections it had.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// Records the slot of a connection.
    pub(crate) fn note_place(&mut self, id: ConnectionId) {
        self.places = self.places.max(id.index as usize + 1);
    }

    pub(crate) fn accept(
        &mut self,
        listener: u16,
        room: usize,
        now: Now,
        out: &mut Vec<Output>,
    ) -> ConnectionId {
        self.is_woken = true;
        let id = self.glue.accept(listener, room, now, out);
        self.note_place(id);
        id
    }

    pub(crate) fn arrive(
        &mut self,
        id: ConnectionId,
        arrival: Arrival,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        let before = out.len();
        self.glue.arrive(id, arrival, now, out);
        self.is_woken |= out.len() > before;
    }

    pub(crate) fn receives(&self, id: ConnectionId) -> bool {
        self.glue.receives(id)
    }

    pub(crate) fn turn(
        &mut self,
        now: Now,
        unfinished: Vec<u32>,
        mut letters: Vec<Vec<Letter>>,
        durable: Option<u64>,
    ) -> Turned {
        letters.push(std::mem::take(&mut self.orders));
        let known = self.shared().ports.post.lanes.iter();
        let has_credit = known
            .zip(&unfinished)
            .any(|(lane, unfinished)| lane.unfinished != *unfinished);
        let has_come = durable.is_some() || letters.iter().any(|lane| !lane.is_empty());
        let turn = Turn {
            now,
            unfinished,
            letters,
            durable,
            verdicts: std::mem::take(&mut self.verdicts),
        };
        let is_due = self.due_ms <= now.mono_ms || !turn.verdicts.is_empty();
        let mut outputs = Vec::new();
        let state = self.glue.turn(turn, &mut outputs);
        let is_told = outputs.iter().any(|one| matches!(one, Output::Told(..)));
        let is_woken = std::mem::take(&mut self.is_woken);
        let is_woken = is_woken || is_due || has_come || has_credit || is_told;
        // A batch that nothing waits for may come in any turn.
        let has_left = outputs.iter().any(Output::leaves);
        self.due_ms = match state {
            TurnState::Busy => now.mono_ms,
            // Whatever waits for credit or a log is retried.
            TurnState::Idle(Some(due_ms)) if due_ms <= SOON_MS => now.mono_ms,
            TurnState::Idle(due_ms) => due_ms.map_or(u64::MAX, |due_ms| now.mono_ms + due_ms),
        };
        Turned {
            // The first output is the beginning of the turn.
            moved: has_come || outputs.len() > 1 || state == TurnState::Busy,
            is_unasked: has_left && !is_woken,
            outputs,
            state,
        }
    }

    fn with_back_end<R>(&mut self, mut call: impl FnMut(&mut BackEndApp) -> R) -> Option<R> {
        let mut result = None;
        self.glue
            .with_back_end(&mut |back_end, _| result = Some(call(back_end)));
        result
    }

    /// Returns the replies to the back end.
    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Answer)> {
        self.with_back_end(BackEndApp::take_answers)
            .unwrap_or_default()
    }

    /// Passes a hook request of a session to the back end.
    pub(crate) fn asks(&mut self, question: Question) {
        self.asked.push((question, None));
    }

    /// Returns the hook requests of sessions.
    pub(crate) fn take_questions(&mut self) -> Vec<Asked> {
        let mut all = std::mem::take(&mut self.asked);
        all.extend(
            self.with_back_end(BackEndApp::take_questions)
                .unwrap_or_default(),
        );
        all
    }

    /// Passes a hook decision to the worker.
    pub(crate) fn decided(&mut self, question: &Question, verdict: Verdict, now: Now) {
        let (session, id) = (question.session, question.id);
        match question.decider {
            Decider::BackEnd(_) => self.verdicts.push((session, id, verdict)),
            Decider::App { .. } => {
                let shared = self.shared_mut();
                shared.set_now(now);
                shared.ports.verdicts.push_back((session, id, verdict));
            }
        }
    }

    /// Passes the order to drain to the worker.
    pub(crate) fn drain(&mut self, within_ms: u64, parting: Parting) {
        self.orders.push(Letter::Drain(within_ms, parting));
    }

    /// Passes a dial request of its application to the worker.
    pub(crate) fn dial(&mut self, wanted: Wanted) {
        self.is_woken = true;
        let mut wanted = Some(wanted);
        self.with_back_end(|back_end| back_end.want(wanted.take()));
    }

    /// Returns the events of connections dialed by applications.
    pub(crate) fn take_dialed(&mut self) -> Vec<(u64, Told)> {
        self.with_back_end(BackEndApp::take_dialed)
            .unwrap_or_default()
    }

    /// Returns the reasons of their ends.
    pub(crate) fn take_reasons(&mut self) -> Vec<String> {
        self.with_back_end(BackEndApp::take_reasons)
            .unwrap_or_default()
    }
}
