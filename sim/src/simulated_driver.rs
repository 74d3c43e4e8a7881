//! The simulator's own driver of the real [worker](veche_worker::Worker): transports and lanes in
//! memory.
//!
//! The driver passes the inputs of a world to the worker, and returns the worker's outputs to the network, other
//! workers and the disk. No step of a turn is implemented here.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use veche_frontends::{Context, Now, TransportEnd};
use veche_hub::ConnectionId;
use veche_worker::{
    AcceptPolicy, ConnectionCount, DrainProgress, ExternalRequest, OutgoingMail, PendingWrite,
    TransportCommand, TurnState,
};

use crate::apps::{BackEndApp, DialRequest};
use crate::transports::{PeerEvent, SentBuffers, SimulatedTransports};
use crate::worker_driver::{
    Conditions, LaneMail, TransportEvent, TransportInput, TurnInput, WorkerDriver, WorkerOutput,
    WorldMessage,
};

/// Texts that the worker gets as reasons: for a connection that its peer has reset (`RESET`), and for
/// one that is not dialed because the server drains (`GOING_AWAY`).
const RESET: &str = "the connection was reset";
const GOING_AWAY: &str = "the server is going away";

/// Reason why there is no connection to port 0.
const NOT_THERE: &str = "nothing is there";

/// Starts the workers of a process on this driver.
pub(crate) fn begin(all: Vec<Context>, conditions: &Conditions) -> Vec<Box<dyn WorkerDriver>> {
    let progress = Rc::new(Progress::of(all.len()));
    let worker = |shared| {
        let worker = SimulatedDriver::new(shared, Rc::clone(&progress), conditions);
        Box::new(worker) as Box<dyn WorkerDriver>
    };
    all.into_iter().map(worker).collect()
}

struct SimulatedDriver {
    worker: veche_worker::Worker<BackEndApp>,
    transports: SimulatedTransports,
    accepting: AcceptPolicy,
    mail: LaneInbox,
    is_logged: bool,
    progress: Rc<Progress>,
}

/// The progress of a drain over all workers of a process.
struct Progress {
    /// Number of workers whose applications have not stopped.
    unstopped: Cell<usize>,
    /// Number of workers with clients, in a drain.
    with_clients: Cell<usize>,
    /// Number of workers whose services have not ended.
    with_services: Cell<usize>,
}

impl Progress {
    fn of(workers: usize) -> Self {
        Self {
            unstopped: Cell::new(workers),
            with_clients: Cell::new(workers),
            with_services: Cell::new(workers),
        }
    }

    fn of_drain(&self) -> DrainProgress {
        DrainProgress {
            have_apps_stopped: self.unstopped.get() == 0,
            are_clients_gone: self.with_clients.get() == 0,
            have_services_ended: self.with_services.get() == 0,
        }
    }
}

/// Items that the lanes have delivered and the worker has not processed yet. The senders are served in rounds: a round
/// serves one sender after the other, and each round begins with a different sender.
#[derive(Default)]
struct LaneInbox {
    batches: Vec<VecDeque<LaneMail>>,
    held: usize,
    cursor: usize,
    /// Items that arrived during the current round; they are served in the next round.
    waiting: Vec<VecDeque<LaneMail>>,
}

impl LaneInbox {
    fn add(&mut self, messages: Vec<Vec<LaneMail>>) {
        self.waiting.resize_with(messages.len(), VecDeque::new);
        self.batches.resize_with(messages.len(), VecDeque::new);
        for (lane, messages) in self.waiting.iter_mut().zip(messages) {
            lane.extend(messages);
        }
    }

    fn is_empty(&self) -> bool {
        self.held == 0 && self.waiting.iter().all(VecDeque::is_empty)
    }

    fn next(&mut self) -> Option<(usize, LaneMail)> {
        if self.is_empty() {
            return None;
        }
        if self.held == 0 {
            for (batch, lane) in self.batches.iter_mut().zip(&mut self.waiting) {
                std::mem::swap(batch, lane);
                self.held += batch.len();
            }
            self.cursor = (self.cursor + 1) % self.batches.len();
        }
        loop {
            if let Some(message) = self.batches[self.cursor].pop_front() {
                self.held -= 1;
                return Some((self.cursor, message));
            }
            self.cursor = (self.cursor + 1) % self.batches.len();
        }
    }
}

impl SimulatedDriver {
    fn new(mut shared: Context, progress: Rc<Progress>, conditions: &Conditions) -> Self {
        shared.apps = Some(Box::<BackEndApp>::default());
        Self {
            worker: veche_worker::Worker::new(shared, conditions.limits),
            transports: SimulatedTransports::new(conditions.low_water_bytes, conditions.room_bytes),
            accepting: AcceptPolicy::default(),
            mail: LaneInbox::default(),
            is_logged: conditions.is_logged,
            progress,
        }
    }

    /// Delivers all events of the transports.
    fn poll_transports(&mut self, now: Now, out: &mut Vec<WorkerOutput>) {
        while let Some((id, listener)) = self.transports.accepted() {
            self.deliver_event(id, TransportEvent::Accepted, now, out);
            let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
            self.worker.handle_accepted(id, listener, peer, ());
            self.command_transports(out);
        }
        for id in self.transports.connected() {
            self.deliver_event(id, TransportEvent::Connected, now, out);
            self.command_transports(out);
        }
        for left in self.transports.drain(out) {
            self.left(left, now, out);
        }
        for id in self.transports.due(now.mono_ms) {
            if self.transports.is_live(id) {
                self.deliver_event(id, TransportEvent::Timer, now, out);
                self.worker.handle_timeout(id);
                self.command_transports(out);
            }
        }
        for id in self.transports.ids() {
            match self.transports.poll_peer(id) {
                Some(PeerEvent::Bytes(mut bytes)) => {
                    self.deliver_event(id, TransportEvent::Received(bytes.len()), now, out);
                    self.worker.handle_received(id, &mut bytes);
                }
                Some(PeerEvent::Fin) => {
                    self.deliver_event(id, TransportEvent::Ended, now, out);
                    self.worker.handle_ended(id);
                }
                Some(PeerEvent::Closed { is_reset }) => {
                    self.deliver_event(id, TransportEvent::Closed { is_reset }, now, out);
                    self.worker.handle_closed(id, is_reset.then_some(RESET));
                }
                None => {}
            }
            self.command_transports(out);
        }
    }

    /// Reports the buffers that were sent completely, and whether the transport's send queue has fallen below its
    /// low-water mark.
    fn left(&mut self, left: SentBuffers, now: Now, out: &mut Vec<WorkerOutput>) {
        let SentBuffers {
            id,
            buffers,
            has_drained,
        } = left;
        let mut events = vec![TransportEvent::Sent; buffers.len()];
        if has_drained {
            events.push(TransportEvent::Drained);
        }
        if events.is_empty() {
            events.push(TransportEvent::Progressed);
        }
        let mut buffers = buffers.into_iter();
        for event in events {
            if !self.transports.is_live(id) {
                return;
            }
            self.deliver_event(id, event, now, out);
            if let Some(buffer) = buffers.next() {
                self.worker.recycle(buffer);
            }
            self.worker.handle_sent(id, self.transports.unsent(id));
            self.command_transports(out);
        }
    }

    fn deliver_event(
        &mut self,
        id: ConnectionId,
        event: TransportEvent,
        now: Now,
        out: &mut Vec<WorkerOutput>,
    ) {
        out.push(WorkerOutput::Event(id, event));
        if self.worker.shared().now != now {
            self.worker.set_now(now);
        }
    }

    fn command_transports(&mut self, out: &mut Vec<WorkerOutput>) {
        while let Some(command) = self.worker.poll_transport() {
            match command {
                TransportCommand::Pause(id) => {
                    out.push(WorkerOutput::Paused(id));
                    self.transports.set_paused(id, true);
                }
                TransportCommand::Resume(id) => {
                    out.push(WorkerOutput::Resumed(id));
                    self.transports.set_paused(id, false);
                }
                TransportCommand::SetTimer(id, due_ms) => {
                    out.push(WorkerOutput::TimerSet(id, due_ms));
                    self.transports.set_timer(id, due_ms);
                }
                TransportCommand::Close(id) => self.close(id, out),
            }
        }
    }

    fn close(&mut self, id: ConnectionId, out: &mut Vec<WorkerOutput>) {
        out.push(WorkerOutput::Closing(id));
        self.transports.close(id);
    }

    fn take_messages(&mut self, unfinished: &[u32], out: &mut Vec<WorkerOutput>) {
        self.count_unfinished(unfinished);
        while self.worker.wants_message()
            && let Some((from, message)) = self.mail.next()
        {
            match message {
                LaneMail::Message(message) => self.worker.handle_message(from, message),
                LaneMail::Drain(within_ms, shutdown_reason) => {
                    self.worker.handle_drain(within_ms, shutdown_reason);
                    self.set_accepting(self.accepting.in_drain(shutdown_reason), out);
                }
            }
        }
    }

    /// Sets which listeners accept connections from now on.
    fn set_accepting(&mut self, accepting: AcceptPolicy, out: &mut Vec<WorkerOutput>) {
        let before = std::mem::replace(&mut self.accepting, accepting);
        let listeners = &self.worker.shared().config.listeners;
        for (index, listener) in (0..).zip(listeners) {
            let accepts = accepting.accepts(listener.role);
            if accepts != before.accepts(listener.role) {
                out.push(WorkerOutput::Accepts(index, accepts));
                self.transports.set_accepting(index, accepts);
            }
        }
    }

    /// Updates which listeners accept connections. No world reaches the connection limit.
    fn settle_accepting(&mut self, out: &mut Vec<WorkerOutput>) {
        let is_draining = self.worker.is_draining();
        let drain = is_draining.then(|| self.progress.of_drain());
        let accepting = self.accepting.settled(drain, ConnectionCount::Low);
        self.set_accepting(accepting, out);
    }

    /// Dials the connections requested by applications.
    fn dial(&mut self, out: &mut Vec<WorkerOutput>) {
        let wanted = self.worker.with_apps(|app, _| app.take_dial_requests());
        for DialRequest { dial, to } in wanted.unwrap_or_default() {
            let caller = dial.caller;
            if self.worker.has_stopped_servers() {
                self.worker.handle_dial_failed(caller, GOING_AWAY);
            } else if to.port() == 0 {
                self.worker.handle_dial_failed(caller, NOT_THERE);
            } else {
                let id = self.transports.connect();
                out.push(WorkerOutput::Dialed(id, to));
                self.worker.handle_dialed(id, to.ip(), dial, ());
            }
        }
    }

    /// Handles the requests that the worker passes to its driver. Returns whether one of them reports that the worker's
    /// applications have stopped.
    fn ask(&mut self, out: &mut Vec<WorkerOutput>) -> bool {
        let mut have_stopped = false;
        while let Some(request) = self.worker.poll_request() {
            match request {
                ExternalRequest::Hook(hook) => out.push(WorkerOutput::Asked(hook)),
                ExternalRequest::AppsStopped => {
                    self.progress.unstopped.update(|workers| workers - 1);
                    have_stopped = true;
                }
                ExternalRequest::ClientsGone => {
                    self.progress.with_clients.update(|workers| workers - 1)
                }
                ExternalRequest::ServicesEnded => {
                    self.progress.with_services.update(|workers| workers - 1)
                }
            }
        }
        self.worker.handle_drain_progress(self.progress.of_drain());
        have_stopped
    }

    /// Passes the turn's orders to the engine outside the process.
    fn order_engine(&mut self, out: &mut Vec<WorkerOutput>) {
        let orders = self.worker.engine_orders();
        if let Some(orders) = orders.filter(|orders| !orders.is_empty()) {
            out.push(WorkerOutput::Ordered(std::mem::take(orders)));
        }
    }

    fn count_unfinished(&mut self, unfinished: &[u32]) {
        for (to, unfinished) in unfinished.iter().enumerate() {
            self.worker.handle_credits(to, *unfinished);
        }
    }

    /// Sends the output of the turn: one write per connection.
    fn flush(&mut self, out: &mut Vec<WorkerOutput>) {
        while let Some(PendingWrite { id, bytes, end }) = self.worker.poll_write() {
            if end == TransportEnd::Abort {
                self.close(id, out);
                continue;
            }
            if !bytes.is_empty() {
                match self.transports.send(id, bytes, out) {
                    Some(buffer) => self.worker.recycle(buffer),
                    None => self.worker.handle_stalled(id, self.transports.unsent(id)),
                }
            }
            if end == TransportEnd::Shutdown {
                out.push(WorkerOutput::ShutDown(id));
                self.transports.shut_down(id);
                let unsent = self.transports.unsent(id);
                self.worker.handle_shut_down(id, unsent);
            }
        }
        while let Some(id) = self.worker.poll_unsent() {
            self.worker.handle_unsent(id, self.transports.unsent(id));
        }
        self.command_transports(out);
    }

    fn post(&mut self, mut unfinished: Vec<u32>, out: &mut Vec<WorkerOutput>) {
        let mut posted: Vec<(usize, Vec<WorldMessage>)> = Vec::new();
        let finished: Vec<_> = (0..self.worker.workers())
            .map(|of| (of, self.worker.poll_finished(of)))
            .collect();
        while let Some(OutgoingMail { to, message }) = self.worker.poll_message() {
            unfinished[to] += u32::from(message.is_data());
            match posted.iter_mut().find(|(place, _)| *place == to) {
                Some((_, messages)) => messages.push(message),
                None => posted.push((to, vec![message])),
            }
        }
        self.count_unfinished(&unfinished);
        let posted = posted.into_iter();
        out.extend(posted.map(|(to, messages)| WorkerOutput::Posted(to, messages)));
        self.settle_accepting(out);
        let finished = finished.into_iter().filter(|(_, count)| *count > 0);
        out.extend(finished.map(|(of, count)| WorkerOutput::Finished(of, count)));
    }
}

impl WorkerDriver for SimulatedDriver {
    fn shared(&self) -> &Context {
        self.worker.shared()
    }

    fn shared_mut(&mut self) -> &mut Context {
        self.worker.shared_mut()
    }

    fn connections(&self) -> usize {
        self.worker.connections()
    }

    fn pending_work(&self) -> Vec<(&'static str, u64)> {
        self.worker.pending_work().collect()
    }

    fn with_back_end(&mut self, call: &mut dyn FnMut(&mut BackEndApp, &mut Context)) {
        self.worker.with_apps(call);
    }

    fn accept(
        &mut self,
        listener: u16,
        room: usize,
        now: Now,
        out: &mut Vec<WorkerOutput>,
    ) -> ConnectionId {
        let id = self.transports.dial(listener, room);
        self.poll_transports(now, out);
        id
    }

    fn arrive(
        &mut self,
        id: ConnectionId,
        arrival: TransportInput,
        now: Now,
        out: &mut Vec<WorkerOutput>,
    ) {
        if self.transports.put(id, arrival) {
            self.poll_transports(now, out);
        }
    }

    fn receives(&self, id: ConnectionId) -> bool {
        self.transports.receives(id)
    }

    fn turn(&mut self, turn: TurnInput, out: &mut Vec<WorkerOutput>) -> TurnState {
        self.mail.add(turn.mail);
        out.push(WorkerOutput::Waits(match self.worker.state() {
            TurnState::Idle(within_ms) if self.mail.is_empty() => within_ms,
            _ => Some(0),
        }));
        self.poll_transports(turn.now, out);
        self.worker.set_now(turn.now);
        self.take_messages(&turn.unfinished, out);
        if let Some(durable) = turn.durable {
            self.worker.handle_durable(durable);
        }
        if !turn.engine.is_empty() {
            self.worker.handle_engine(turn.engine);
        }
        for (id, request_id, decision) in turn.decisions {
            self.worker.handle_hook_decision(id, request_id, decision);
        }
        self.worker.finish_turn();
        self.dial(out);
        let have_stopped = self.ask(out);
        if self.is_logged {
            out.extend(self.worker.poll_history().map(WorkerOutput::Batch));
        }
        self.order_engine(out);
        // No back end receives channel events, and nothing reads the log.
        self.worker.poll_channel_events().0.clear();
        self.worker.shared_mut().log_notes.clear();
        self.command_transports(out);
        self.flush(out);
        self.post(turn.unfinished, out);
        self.worker.end_turn();
        self.order_engine(out);
        self.command_transports(out);
        out.extend(have_stopped.then_some(WorkerOutput::Stopped));
        self.worker.state()
    }
}
