//! The simulator's own driver of the real [worker](veche_worker::Worker): transports and lanes in memory.
//!
//! The inputs of a world arrive here, and the outputs of the worker to the network, other workers and the disk leave.
//! No step of a turn is implemented here.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use veche_frontends::{End, Now, Parting, Shared};
use veche_hub::ConnectionId;
use veche_worker::{Accepting, Outgoing, Request, TransportCommand, TurnState, Write};

use crate::apps::{BackEndApp, Wanted};
use crate::glue::{Arrival, Conditions, Glue, Letter, Message, Output, Told, Turn};
use crate::transports::{Heard, Left, Transports};

/// Reasons for the end of a connection, in the server's words: reset by the peer, and not dialed.
const RESET: &str = "the connection was reset";
const GOING_AWAY: &str = "the server is going away";

/// Reason why there is no connection to port 0.
const NOT_THERE: &str = "nothing is there";

/// Starts the workers of a process on this driver.
pub(crate) fn begin(all: Vec<Shared>, conditions: &Conditions) -> Vec<Box<dyn Glue>> {
    let progress = Rc::new(Progress::of(all.len()));
    let worker = |shared| {
        let worker = Worker::new(shared, Rc::clone(&progress), conditions);
        Box::new(worker) as Box<dyn Glue>
    };
    all.into_iter().map(worker).collect()
}

struct Worker {
    worker: veche_worker::Worker<BackEndApp>,
    transports: Transports,
    accepting: Accepting,
    mail: Mail,
    is_logged: bool,
    progress: Rc<Progress>,
}

/// The progress of a drain over all workers of a process.
struct Progress {
    /// Workers whose applications have not stopped.
    unstopped: Cell<usize>,
    /// Workers with clients.
    with_clients: Cell<usize>,
    /// Workers whose services have not ended.
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
}

/// Items received by the lanes and not handed over: one sender's batch after the other, beginning with another sender
/// each time.
#[derive(Default)]
struct Mail {
    batches: Vec<VecDeque<Letter>>,
    held: usize,
    cursor: usize,
    /// Received, but not collected yet.
    waiting: Vec<VecDeque<Letter>>,
}

impl Mail {
    fn add(&mut self, letters: Vec<Vec<Letter>>) {
        self.waiting.resize_with(letters.len(), VecDeque::new);
        self.batches.resize_with(letters.len(), VecDeque::new);
        for (lane, letters) in self.waiting.iter_mut().zip(letters) {
            lane.extend(letters);
        }
    }

    fn is_empty(&self) -> bool {
        self.held == 0 && self.waiting.iter().all(VecDeque::is_empty)
    }

    fn next(&mut self) -> Option<(usize, Letter)> {
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
            if let Some(letter) = self.batches[self.cursor].pop_front() {
                self.held -= 1;
                return Some((self.cursor, letter));
            }
            self.cursor = (self.cursor + 1) % self.batches.len();
        }
    }
}

impl Worker {
    fn new(mut shared: Shared, progress: Rc<Progress>, conditions: &Conditions) -> Self {
        shared.apps = Some(Box::<BackEndApp>::default());
        Self {
            worker: veche_worker::Worker::new(shared, conditions.limits),
            transports: Transports::new(conditions.low_water_bytes, conditions.room_bytes),
            accepting: Accepting::default(),
            mail: Mail::default(),
            is_logged: conditions.is_logged,
            progress,
        }
    }

    /// Delivers all events of the transports.
    fn hear(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some((id, listener)) = self.transports.accepted() {
            self.tell(id, Told::Accepted, now, out);
            let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
            self.worker.handle_accepted(id, listener, peer, ());
            self.command_transports(out);
        }
        for id in self.transports.connected() {
            self.tell(id, Told::Connected, now, out);
            self.command_transports(out);
        }
        for left in self.transports.drain(out) {
            self.left(left, now, out);
        }
        for id in self.transports.due(now.mono_ms) {
            if self.transports.is_live(id) {
                self.tell(id, Told::Timer, now, out);
                self.worker.handle_timeout(id);
                self.command_transports(out);
            }
        }
        for id in self.transports.ids() {
            match self.transports.hear(id) {
                Some(Heard::Bytes(mut bytes)) => {
                    self.tell(id, Told::Received(bytes.len()), now, out);
                    self.worker.handle_received(id, &mut bytes);
                }
                Some(Heard::Fin) => {
                    self.tell(id, Told::Ended, now, out);
                    self.worker.handle_ended(id);
                }
                Some(Heard::Closed { is_reset }) => {
                    self.tell(id, Told::Closed { is_reset }, now, out);
                    self.worker.handle_closed(id, is_reset.then_some(RESET));
                }
                None => {}
            }
            self.command_transports(out);
        }
    }

    /// Handles completed sends.
    fn left(&mut self, left: Left, now: Now, out: &mut Vec<Output>) {
        let Left {
            id,
            buffers,
            has_drained,
        } = left;
        let mut told = vec![Told::Sent; buffers.len()];
        if has_drained {
            told.push(Told::Drained);
        }
        if told.is_empty() {
            told.push(Told::Progressed);
        }
        let mut buffers = buffers.into_iter();
        for told in told {
            if !self.transports.is_live(id) {
                return;
            }
            self.tell(id, told, now, out);
            if let Some(buffer) = buffers.next() {
                self.worker.recycle(buffer);
            }
            self.worker.handle_sent(id, self.transports.unsent(id));
            self.command_transports(out);
        }
    }

    fn tell(&mut self, id: ConnectionId, told: Told, now: Now, out: &mut Vec<Output>) {
        out.push(Output::Told(id, told));
        if self.worker.shared().now != now {
            self.worker.set_now(now);
        }
    }

    fn command_transports(&mut self, out: &mut Vec<Output>) {
        while let Some(command) = self.worker.poll_transport() {
            match command {
                TransportCommand::Pause(id) => {
                    out.push(Output::Paused(id));
                    self.transports.set_paused(id, true);
                }
                TransportCommand::Resume(id) => {
                    out.push(Output::Resumed(id));
                    self.transports.set_paused(id, false);
                }
                TransportCommand::SetTimer(id, due_ms) => {
                    out.push(Output::TimerSet(id, due_ms));
                    self.transports.set_timer(id, due_ms);
                }
                TransportCommand::Close(id) => self.close(id, out),
            }
        }
    }

    fn close(&mut self, id: ConnectionId, out: &mut Vec<Output>) {
        out.push(Output::Closing(id));
        self.transports.close(id);
    }

    fn take_messages(&mut self, unfinished: &[u32], out: &mut Vec<Output>) {
        self.count_unfinished(unfinished);
        while self.worker.wants_message()
            && let Some((from, letter)) = self.mail.next()
        {
            match letter {
                Letter::Message(message) => self.worker.handle_message(from, message),
                Letter::Drain(within_ms, parting) => {
                    self.worker.handle_drain(within_ms, parting);
                    // New connections are for the next process.
                    if parting == Parting::Replaced {
                        self.set_accepting(Accepting::Nothing, out);
                    }
                }
            }
        }
    }

    /// Accepts only on these listeners from now on.
    fn set_accepting(&mut self, accepting: Accepting, out: &mut Vec<Output>) {
        let before = std::mem::replace(&mut self.accepting, accepting);
        let listeners = &self.worker.shared().site.listeners;
        for (index, listener) in (0..).zip(listeners) {
            let accepts = accepting.takes(listener.role);
            if accepts != before.takes(listener.role) {
                out.push(Output::Accepts(index, accepts));
                self.transports.set_accepting(index, accepts);
            }
        }
    }

    /// During a drain back ends are useless without clients, and everything is once the process has nothing left to
    /// wait for.
    fn settle_accepting(&mut self, out: &mut Vec<Output>) {
        if self.accepting == Accepting::Nothing || !self.worker.is_draining() {
            return;
        }
        if self.progress.with_services.get() == 0 {
            self.set_accepting(Accepting::Nothing, out);
        } else if self.progress.with_clients.get() == 0 {
            self.set_accepting(Accepting::Clients, out);
        }
    }

    /// Dials the connections requested by applications.
    fn dial(&mut self, out: &mut Vec<Output>) {
        let wanted = self.worker.with_apps(|app, _| app.take_wanted());
        for Wanted { dial, to } in wanted.unwrap_or_default() {
            let caller = dial.caller;
            if self.worker.has_told_servers() {
                self.worker.handle_dial_failed(caller, GOING_AWAY);
            } else if to.port() == 0 {
                self.worker.handle_dial_failed(caller, NOT_THERE);
            } else {
                let id = self.transports.connect();
                out.push(Output::Dialed(id, to));
                self.worker.handle_dialed(id, to.ip(), dial, ());
            }
        }
    }

    /// Passes requests on; returns whether applications have stopped.
    fn ask(&mut self, out: &mut Vec<Output>) -> bool {
        let mut have_stopped = false;
        while let Some(request) = self.worker.poll_request() {
            match request {
                Request::Hook(question) => out.push(Output::Asked(question)),
                Request::AppsStopped => {
                    self.progress.unstopped.update(|workers| workers - 1);
                    have_stopped = true;
                }
                Request::ClientsGone => self.progress.with_clients.update(|workers| workers - 1),
                Request::ServicesEnded => self.progress.with_services.update(|workers| workers - 1),
            }
        }
        if self.worker.is_draining() {
            if self.progress.unstopped.get() == 0 {
                self.worker.handle_apps_stopped();
            }
            if self.progress.with_clients.get() == 0 {
                self.worker.handle_clients_gone();
            }
            if self.progress.with_services.get() == 0 {
                self.worker.handle_services_ended();
            }
        }
        have_stopped
    }

    fn count_unfinished(&mut self, unfinished: &[u32]) {
        for (to, unfinished) in unfinished.iter().enumerate() {
            self.worker.handle_credits(to, *unfinished);
        }
    }

    /// Sends the output of the turn: one write per connection.
    fn flush(&mut self, out: &mut Vec<Output>) {
        while let Some(Write { id, bytes, end }) = self.worker.poll_write() {
            if end == End::Abort {
                self.close(id, out);
                continue;
            }
            if !bytes.is_empty() {
                match self.transports.send(id, bytes, out) {
                    Some(buffer) => self.worker.recycle(buffer),
                    None => self.worker.handle_stalled(id, self.transports.unsent(id)),
                }
            }
            if end == End::Shutdown {
                out.push(Output::ShutDown(id));
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

    fn post(&mut self, mut unfinished: Vec<u32>, out: &mut Vec<Output>) {
        let mut posted: Vec<(usize, Vec<Message>)> = Vec::new();
        let finished: Vec<_> = (0..self.worker.workers())
            .map(|of| (of, self.worker.poll_finished(of)))
            .collect();
        while let Some(Outgoing { to, message }) = self.worker.poll_message() {
            unfinished[to] += u32::from(message.is_data());
            match posted.iter_mut().find(|(place, _)| *place == to) {
                Some((_, messages)) => messages.push(message),
                None => posted.push((to, vec![message])),
            }
        }
        self.count_unfinished(&unfinished);
        let posted = posted.into_iter();
        out.extend(posted.map(|(to, messages)| Output::Posted(to, messages)));
        self.settle_accepting(out);
        let finished = finished.into_iter().filter(|(_, count)| *count > 0);
        out.extend(finished.map(|(of, count)| Output::Finished(of, count)));
    }
}

impl Glue for Worker {
    fn shared(&self) -> &Shared {
        self.worker.shared()
    }

    fn shared_mut(&mut self) -> &mut Shared {
        self.worker.shared_mut()
    }

    fn connections(&self) -> usize {
        self.worker.connections()
    }

    fn with_back_end(&mut self, call: &mut dyn FnMut(&mut BackEndApp, &mut Shared)) {
        self.worker.with_apps(call);
    }

    fn accept(
        &mut self,
        listener: u16,
        room: usize,
        now: Now,
        out: &mut Vec<Output>,
    ) -> ConnectionId {
        let id = self.transports.dial(listener, room);
        self.hear(now, out);
        id
    }

    fn arrive(&mut self, id: ConnectionId, arrival: Arrival, now: Now, out: &mut Vec<Output>) {
        if self.transports.put(id, arrival) {
            self.hear(now, out);
        }
    }

    fn receives(&self, id: ConnectionId) -> bool {
        self.transports.receives(id)
    }

    fn turn(&mut self, turn: Turn, out: &mut Vec<Output>) -> TurnState {
        self.mail.add(turn.letters);
        out.push(Output::Waits(match self.worker.state() {
            TurnState::Idle(within_ms) if self.mail.is_empty() => within_ms,
            _ => Some(0),
        }));
        self.hear(turn.now, out);
        self.worker.set_now(turn.now);
        self.take_messages(&turn.unfinished, out);
        if let Some(durable) = turn.durable {
            self.worker.handle_durable(durable);
        }
        for (id, question, verdict) in turn.verdicts {
            self.worker.handle_verdict(id, question, verdict);
        }
        self.worker.finish_turn();
        self.dial(out);
        let have_stopped = self.ask(out);
        if self.is_logged {
            out.extend(self.worker.poll_history().map(Output::Batch));
        }
        // No back end receives channel events, and no one reads the log.
        self.worker.poll_channel_events().0.clear();
        self.worker.shared_mut().notes.clear();
        self.command_transports(out);
        self.flush(out);
        self.post(turn.unfinished, out);
        self.worker.end_turn();
        self.command_transports(out);
        out.extend(have_stopped.then_some(Output::Stopped));
        self.worker.state()
    }
}
