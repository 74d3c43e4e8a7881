//! A worker of a process on any driver, with a check that each turn has a reason.

use veche_frontends::hooks::{HookDecision, HookRequest, HookRequestId, HookTarget};
use veche_frontends::{Context, Now, ShutdownReason};
use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_worker::TurnState;

use crate::apps::{BackEndApp, DialEvent, DialRequest};
use crate::hook_outcome::AppRequest;
use crate::turn_order::TurnOrder;
use crate::worker_driver::{LaneMail, TransportInput, TurnInput, WorkerDriver, WorkerOutput};
use veche_nodes::engine::channel::Event;

/// A worker whose next turn is due within this time, in milliseconds, has something to retry.
const SOON_MS: u64 = 20;

pub(crate) struct DrivenWorker {
    driver: Box<dyn WorkerDriver>,
    /// Whether an input requires a turn.
    is_woken: bool,
    /// When the next turn begins without input; `u64::MAX`: never.
    due_ms: u64,
    /// The number of connection slots that the worker has used so far.
    places: usize,
    /// Hook decisions for the worker's next turn.
    decisions: Vec<(ConnectionId, HookRequestId, HookDecision)>,
    /// The worker's hook requests, to be answered by the back end.
    asked: Vec<AppRequest>,
    /// Mail from the control side (in a server, the control thread) for the worker's next turn.
    orders: Vec<LaneMail>,
    /// Events of the engine outside the process, for the worker's next turn.
    engine_events: Vec<Event>,
    turn_order: TurnOrder,
}

/// The result of a turn.
pub(crate) struct TurnResult {
    pub(crate) outputs: Vec<WorkerOutput>,
    pub(crate) state: TurnState,
    /// Whether the turn had any effect, or the worker is still busy.
    pub(crate) moved: bool,
    /// Whether the worker has sent something although it had no reason for a turn.
    pub(crate) is_unasked: bool,
    /// See [`TurnOrder::turned`].
    pub(crate) passed: Option<(ConnectionId, ConnectionId)>,
}

impl DrivenWorker {
    pub(crate) fn new(glue: Box<dyn WorkerDriver>) -> Self {
        Self {
            driver: glue,
            is_woken: true,
            due_ms: 0,
            places: 0,
            decisions: Vec::new(),
            asked: Vec::new(),
            orders: Vec::new(),
            engine_events: Vec::new(),
            turn_order: TurnOrder::default(),
        }
    }

    /// Returns whether the worker has a reason for a turn at this time, other than messages.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        self.is_woken || self.due_ms <= now_ms
    }

    pub(crate) fn shared(&self) -> &Context {
        self.driver.shared()
    }

    pub(crate) fn shared_mut(&mut self) -> &mut Context {
        self.is_woken = true;
        self.driver.shared_mut()
    }

    pub(crate) fn connections(&self) -> usize {
        self.driver.connections()
    }

    /// Returns the non-empty queues and counters of the worker.
    pub(crate) fn pending_work(&self) -> Vec<(&'static str, u64)> {
        self.driver.pending_work()
    }

    /// Returns the numbers of publications that the worker's slow clients have lost: of the oldest ones in an outbox,
    /// of those replaced by a later one of their channel, and of those whose namespace permits the loss.
    pub(crate) fn dropped(&self) -> [u64; 3] {
        let dropped = &self.shared().stats.publications_dropped;
        dropped.each_ref().map(|count| count.read())
    }

    /// Returns the number of connection slots that the worker has used so far.
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
        out: &mut Vec<WorkerOutput>,
    ) -> ConnectionId {
        self.is_woken = true;
        let id = self.driver.accept(listener, room, now, out);
        self.note_place(id);
        id
    }

    pub(crate) fn arrive(
        &mut self,
        id: ConnectionId,
        arrival: TransportInput,
        now: Now,
        out: &mut Vec<WorkerOutput>,
    ) {
        let before = out.len();
        self.driver.arrive(id, arrival, now, out);
        self.is_woken |= out.len() > before;
    }

    pub(crate) fn receives(&self, id: ConnectionId) -> bool {
        self.driver.receives(id)
    }

    pub(crate) fn turn(
        &mut self,
        now: Now,
        unfinished: Vec<u32>,
        mut messages: Vec<Vec<LaneMail>>,
        durable: Option<u64>,
    ) -> TurnResult {
        messages.push(std::mem::take(&mut self.orders));
        let known = self.shared().requests.mailer.lanes.iter();
        let has_credit = known
            .zip(&unfinished)
            .any(|(lane, unfinished)| lane.unfinished != *unfinished);
        let engine = std::mem::take(&mut self.engine_events);
        let has_come =
            durable.is_some() || !engine.is_empty() || messages.iter().any(|lane| !lane.is_empty());
        let turn = TurnInput {
            now,
            unfinished,
            mail: messages,
            durable,
            engine,
            decisions: std::mem::take(&mut self.decisions),
        };
        let is_due = self.due_ms <= now.mono_ms || !turn.decisions.is_empty();
        let mut outputs = Vec::new();
        let state = self.driver.turn(turn, &mut outputs);
        let waiting = self.driver.shared().waiting_for_turn.waiting();
        let passed = self.turn_order.turned(waiting);
        let has_event = outputs
            .iter()
            .any(|one| matches!(one, WorkerOutput::Event(..)));
        let is_woken = std::mem::take(&mut self.is_woken);
        let is_woken = is_woken || is_due || has_come || has_credit || has_event;
        // Batches for the log and orders for the engine need no reason, since they may be sent in
        // any turn.
        let has_left = outputs.iter().any(WorkerOutput::leaves);
        self.due_ms = match state {
            TurnState::Busy => now.mono_ms,
            // Work that waits for credit or for the log is retried at once.
            TurnState::Idle(Some(due_ms)) if due_ms <= SOON_MS => now.mono_ms,
            TurnState::Idle(due_ms) => due_ms.map_or(u64::MAX, |due_ms| now.mono_ms + due_ms),
        };
        TurnResult {
            // The first output only marks the beginning of the turn.
            moved: has_come || outputs.len() > 1 || state == TurnState::Busy,
            is_unasked: has_left && !is_woken,
            passed,
            outputs,
            state,
        }
    }

    fn with_back_end<R>(&mut self, mut call: impl FnMut(&mut BackEndApp) -> R) -> Option<R> {
        let mut result = None;
        self.driver
            .with_back_end(&mut |back_end, _| result = Some(call(back_end)));
        result
    }

    /// Returns the replies to the back end.
    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, HubReply)> {
        self.with_back_end(BackEndApp::take_answers)
            .unwrap_or_default()
    }

    /// Passes a hook request of a session to the back end.
    pub(crate) fn ask_back_end(&mut self, request: HookRequest) {
        self.asked.push((request, None));
    }

    /// Returns the hook requests of sessions.
    pub(crate) fn take_hook_requests(&mut self) -> Vec<AppRequest> {
        let mut all = std::mem::take(&mut self.asked);
        all.extend(
            self.with_back_end(BackEndApp::take_hook_requests)
                .unwrap_or_default(),
        );
        all
    }

    /// Passes a hook decision to the worker.
    pub(crate) fn deliver_decision(
        &mut self,
        request: &HookRequest,
        decision: HookDecision,
        now: Now,
    ) {
        let (session, id) = (request.session, request.id);
        match request.target {
            HookTarget::BackEnd(_) => self.decisions.push((session, id, decision)),
            HookTarget::App { .. } => {
                let shared = self.shared_mut();
                shared.set_now(now);
                shared
                    .requests
                    .hook_decisions
                    .push_back((session, id, decision));
            }
        }
    }

    /// Passes the order to drain to the worker.
    pub(crate) fn drain(&mut self, within_ms: u64, shutdown_reason: ShutdownReason) {
        self.orders
            .push(LaneMail::Drain(within_ms, shutdown_reason));
    }

    /// Passes an event of the engine to the worker.
    pub(crate) fn add_engine_event(&mut self, event: Event) {
        self.engine_events.push(event);
    }

    /// Passes a dial request of the worker's application to the worker.
    pub(crate) fn dial(&mut self, wanted: DialRequest) {
        self.is_woken = true;
        let mut wanted = Some(wanted);
        self.with_back_end(|back_end| back_end.request_dial(wanted.take()));
    }

    /// Returns the events of connections dialed by applications.
    pub(crate) fn take_dialed(&mut self) -> Vec<(u64, DialEvent)> {
        self.with_back_end(BackEndApp::take_dial_events)
            .unwrap_or_default()
    }

    /// Returns the reasons for which dialed connections ended.
    pub(crate) fn take_reasons(&mut self) -> Vec<String> {
        self.with_back_end(BackEndApp::take_reasons)
            .unwrap_or_default()
    }
}
