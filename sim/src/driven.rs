//! A worker of a process, on whatever drives it, and whether its next turn has begun for a reason.

use veche_frontends::hooks::{Decider, Question, QuestionId, Verdict};
use veche_frontends::{Now, Parting, Shared};
use veche_hub::{Answer, ConnectionId, Ticket};
use veche_worker::TurnState;

use crate::apps::{BackEndApp, Told, Wanted};
use crate::fate::Asked;
use crate::glue::{Arrival, Glue, Letter, Output, Turn};

/// A worker that wants its next turn within so many milliseconds has something to try.
const SOON_MS: u64 = 20;

pub(crate) struct Driven {
    glue: Box<dyn Glue>,
    /// Something has come that begins a turn.
    is_woken: bool,
    /// When the next turn begins if nothing comes; `u64::MAX`: it does not.
    due_ms: u64,
    /// How many connections it had at most.
    places: usize,
    /// What was decided, for its next turn.
    verdicts: Vec<(ConnectionId, QuestionId, Verdict)>,
    /// What the back end is to decide.
    asked: Vec<Asked>,
    /// What the control side has told it, for its next turn.
    orders: Vec<Letter>,
}

/// What a turn has come to.
pub(crate) struct Turned {
    pub(crate) outputs: Vec<Output>,
    pub(crate) state: TurnState,
    /// Anything has happened, or will at once.
    pub(crate) moved: bool,
    /// Something has left a worker that had no reason for a turn.
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

    /// How many connections it had at most.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// A connection has this place.
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
        // A batch of what nobody waits for may wait for any turn.
        let has_left = outputs.iter().any(Output::leaves);
        self.due_ms = match state {
            TurnState::Busy => now.mono_ms,
            // What waits for credit or for a log is tried again.
            TurnState::Idle(Some(due_ms)) if due_ms <= SOON_MS => now.mono_ms,
            TurnState::Idle(due_ms) => due_ms.map_or(u64::MAX, |due_ms| now.mono_ms + due_ms),
        };
        Turned {
            // The first output says that the turn begins.
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

    /// Takes what the back end was answered.
    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Answer)> {
        self.with_back_end(BackEndApp::take_answers)
            .unwrap_or_default()
    }

    /// A session asks the back end.
    pub(crate) fn asks(&mut self, question: Question) {
        self.asked.push((question, None));
    }

    /// Takes what sessions have asked.
    pub(crate) fn take_questions(&mut self) -> Vec<Asked> {
        let mut all = std::mem::take(&mut self.asked);
        all.extend(
            self.with_back_end(BackEndApp::take_questions)
                .unwrap_or_default(),
        );
        all
    }

    /// A question is decided on.
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

    /// The control side says that the process goes away.
    pub(crate) fn drain(&mut self, within_ms: u64, parting: Parting) {
        self.orders.push(Letter::Drain(within_ms, parting));
    }

    /// Its application wants a connection to another server.
    pub(crate) fn dial(&mut self, wanted: Wanted) {
        self.is_woken = true;
        let mut wanted = Some(wanted);
        self.with_back_end(|back_end| back_end.want(wanted.take()));
    }

    /// Takes what applications were told of connections that they have dialed.
    pub(crate) fn take_dialed(&mut self) -> Vec<(u64, Told)> {
        self.with_back_end(BackEndApp::take_dialed)
            .unwrap_or_default()
    }

    /// Takes why these are over.
    pub(crate) fn take_reasons(&mut self) -> Vec<String> {
        self.with_back_end(BackEndApp::take_reasons)
            .unwrap_or_default()
    }
}
