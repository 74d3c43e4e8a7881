//! One worker of the server on the network of a world: glue around the [worker](veche_worker::Worker) that ships.
//!
//! What a world does to a connection arrives here, what the worker wants of the network, of other workers and of the disk
//! leaves. No step of a turn is written here; what is random is when messages of other workers arrive.

use std::net::{IpAddr, Ipv4Addr};

use fastrand::Rng;
use veche_frontends::hooks::{Decider, Question, Verdict};
use veche_frontends::{Caller, Dial, End, Now, Parting, Shared};
use veche_hub::{Answer, ConnectionId, Ticket};
use veche_worker::{Outgoing, Request, TransportCommand, TurnLimits, TurnState, Write};

pub(crate) use crate::apps::BACK_END;
use crate::apps::BackEndApp;
use crate::decider::Asked;
use crate::dialed::Told;
use crate::disk::Disk;
use crate::failure::{Check, promise};
use crate::lanes::Lanes;
use crate::network::{LinkId, Network};
use crate::setup::Setup;

/// What a worker works with, beside its own.
pub(crate) struct Around<'a> {
    pub(crate) now: Now,
    pub(crate) lanes: &'a mut Lanes,
    pub(crate) network: &'a mut Network,
    pub(crate) disk: Option<&'a mut Disk>,
}

/// A worker that wants its next turn within so many milliseconds has something to try.
const SOON_MS: u64 = 20;

pub(crate) struct Worker {
    worker: veche_worker::Worker<BackEndApp, Transport>,
    slots: Slots,
    /// Transports that the worker wants closed.
    closing: Vec<ConnectionId>,
    scratch: Vec<u8>,
    /// Something has come that begins a turn.
    is_woken: bool,
    /// When the next turn begins if nothing comes; `u64::MAX`: it does not.
    due_ms: u64,
    /// What the back end is to decide.
    asked: Vec<Asked>,
    /// How often it was said that its applications have stopped.
    stopped: u32,
}

/// What is kept of a transport beside its connection.
struct Transport {
    link: LinkId,
    is_paused: bool,
    /// `u64::MAX`: it is not set.
    timer_ms: u64,
}

/// Ids of connections: an index is reused with another generation, the last one freed first.
#[derive(Default)]
struct Slots {
    /// The generation that was last given, by index, and whether its connection is there.
    given: Vec<(u32, bool)>,
    free: Vec<u32>,
}

impl Slots {
    fn take(&mut self) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.given.push((0, false));
            self.given.len() as u32 - 1
        });
        let (generation, is_taken) = &mut self.given[index as usize];
        *generation += 1;
        *is_taken = true;
        ConnectionId {
            index,
            generation: *generation,
        }
    }

    fn give_back(&mut self, id: ConnectionId) {
        self.given[id.index as usize].1 = false;
        self.free.push(id.index);
    }

    fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        let taken = self.given.iter().enumerate().filter(|(_, given)| given.1);
        taken.map(|(index, &(generation, _))| ConnectionId {
            index: index as u32,
            generation,
        })
    }
}

impl Worker {
    pub(crate) fn new(mut shared: Shared, setup: &Setup) -> Self {
        shared.apps = Some(Box::<BackEndApp>::default());
        let limits = TurnLimits {
            deliveries: setup.deliveries_max,
            ..TurnLimits::default()
        };
        Self {
            worker: veche_worker::Worker::new(shared, limits),
            slots: Slots::default(),
            closing: Vec::new(),
            scratch: Vec::new(),
            is_woken: true,
            due_ms: 0,
            asked: Vec::new(),
            stopped: 0,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.worker.shared()
    }

    pub(crate) fn shared_mut(&mut self) -> &mut Shared {
        self.is_woken = true;
        self.worker.shared_mut()
    }

    /// A connection of a client.
    pub(crate) fn accept(&mut self, link: LinkId, listener: u16, now: Now) -> ConnectionId {
        self.is_woken = true;
        self.worker.set_now(now);
        let id = self.slots.take();
        let transport = Transport {
            link,
            is_paused: false,
            timer_ms: u64::MAX,
        };
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.worker.handle_accepted(id, listener, peer, transport);
        self.command_transports();
        id
    }

    /// Whether a connection takes what its client sends.
    pub(crate) fn is_open_to(&mut self, id: ConnectionId) -> bool {
        let transport = self.worker.transport_mut(id);
        transport.is_some_and(|transport| !transport.is_paused)
    }

    pub(crate) fn received(&mut self, id: ConnectionId, bytes: impl Iterator<Item = u8>, now: Now) {
        self.is_woken = true;
        self.worker.set_now(now);
        self.scratch.clear();
        self.scratch.extend(bytes);
        self.worker.handle_received(id, &mut self.scratch);
        self.command_transports();
    }

    /// The client's FIN.
    pub(crate) fn ended(&mut self, id: ConnectionId, now: Now) {
        self.is_woken = true;
        self.worker.set_now(now);
        self.worker.handle_ended(id);
        self.command_transports();
    }

    /// The transport took more. Whether it is to be closed.
    pub(crate) fn sent_more(&mut self, id: ConnectionId, unsent: usize) -> bool {
        self.is_woken = true;
        self.worker.handle_sent(id, unsent);
        self.command_transports();
        let place = self.closing.iter().position(|closing| *closing == id);
        place.map(|place| self.closing.remove(place)).is_some()
    }

    /// The transport is gone by itself.
    pub(crate) fn closed(&mut self, id: ConnectionId) {
        self.forget(id, Some("reset"));
    }

    /// The transport is gone, for this reason if the worker has not asked for it.
    fn forget(&mut self, id: ConnectionId, why: Option<&str>) {
        self.is_woken = true;
        if self.worker.handle_closed(id, why).is_some() {
            self.slots.give_back(id);
        }
        self.command_transports();
    }

    fn command_transports(&mut self) {
        while let Some(command) = self.worker.poll_transport() {
            let (id, change): (_, fn(&mut Transport, u64)) = match command {
                TransportCommand::Pause(id) => (id, |transport, _| transport.is_paused = true),
                TransportCommand::Resume(id) => (id, |transport, _| transport.is_paused = false),
                TransportCommand::SetTimer(id, _) => {
                    (id, |transport, due| transport.timer_ms = due)
                }
                TransportCommand::Close(id) => {
                    self.closing.push(id);
                    continue;
                }
            };
            let due_ms = match command {
                TransportCommand::SetTimer(_, due_ms) => due_ms,
                _ => 0,
            };
            if let Some(transport) = self.worker.transport_mut(id) {
                change(transport, due_ms);
            }
        }
    }

    /// One turn. Whether anything moved.
    pub(crate) fn turn(
        &mut self,
        around: &mut Around<'_>,
        salt: Option<u32>,
    ) -> Result<bool, crate::Failure> {
        let mut random = Rng::with_seed(salt.unwrap_or(0).into());
        self.worker.set_now(around.now);
        self.fire_timers(around.now.mono_ms);
        let is_due = self.due_ms <= around.now.mono_ms;
        let mut moved = self.take_messages(around, salt.is_none(), &mut random);
        let me = self.worker.index();
        if let Some(disk) = &mut around.disk
            && let Some(durable) = disk.news(me)
        {
            self.worker.handle_durable(durable);
            moved = true;
        }
        let is_woken = std::mem::take(&mut self.is_woken) || is_due || moved;
        self.worker.finish_turn();
        while let Some(request) = self.worker.poll_request() {
            match request {
                Request::Hook(question) => self.asked.push((question, None)),
                Request::AppsStopped => self.stopped += 1,
            }
        }
        if let Some(disk) = &mut around.disk
            && let Some(batch) = self.worker.poll_history()
        {
            disk.take(me, batch)?;
            moved = true;
        }
        // No back end listens for events of channels, and nobody reads the log.
        self.worker.poll_channel_events().0.clear();
        self.worker.shared_mut().notes.clear();
        self.command_transports();
        let has_left = self.flush(around) | self.post(around)?;
        // A batch of what nobody waits for may wait for any turn.
        promise!(
            is_woken || !has_left,
            "a worker that waits has nothing to do",
            "worker {me} did not ask for this turn"
        );
        moved |= has_left;
        self.worker.end_turn();
        self.command_transports();
        self.close_transports(around.network);
        let now_ms = around.now.mono_ms;
        let state = self.worker.state();
        self.due_ms = match state {
            TurnState::Busy => now_ms,
            // What waits for credit or for a log is tried again.
            TurnState::Idle(Some(due_ms)) if due_ms <= SOON_MS => now_ms,
            TurnState::Idle(due_ms) => due_ms.map_or(u64::MAX, |due_ms| now_ms + due_ms),
        };
        Ok(moved || state == TurnState::Busy)
    }

    fn fire_timers(&mut self, now_ms: u64) {
        for id in self.slots.ids().collect::<Vec<_>>() {
            if let Some(transport) = self.worker.transport_mut(id)
                && transport.timer_ms <= now_ms
            {
                transport.timer_ms = u64::MAX;
                self.is_woken = true;
                self.worker.handle_timeout(id);
                self.command_transports();
            }
        }
    }

    fn take_messages(&mut self, around: &mut Around<'_>, is_all: bool, random: &mut Rng) -> bool {
        self.count_unfinished(around.lanes);
        // Now and then some of them come too late for this turn.
        let most = match random.u8(0..4) {
            0 if !is_all => random.usize(0..4),
            _ => usize::MAX,
        };
        let mut taken = 0;
        while taken < most
            && self.worker.wants_message()
            && let Some((from, message)) = around.lanes.next(self.worker.index(), random)
        {
            self.worker.handle_message(from, message);
            taken += 1;
        }
        taken > 0
    }

    fn count_unfinished(&mut self, lanes: &mut Lanes) {
        let me = self.worker.index();
        for to in 0..self.worker.workers() {
            let unfinished = lanes.unfinished(me, to);
            self.is_woken |= self.shared().ports.post.lanes[to].unfinished != unfinished;
            self.worker.handle_credits(to, unfinished);
        }
    }

    /// What the turn made leaves: one write a connection.
    fn flush(&mut self, around: &mut Around<'_>) -> bool {
        let mut moved = false;
        while let Some(Write { id, bytes, end }) = self.worker.poll_write() {
            moved = true;
            let Some(transport) = self.worker.transport_mut(id) else {
                continue;
            };
            let link = transport.link;
            if end == End::Abort {
                self.closing.push(id);
                continue;
            }
            if !bytes.is_empty() {
                let was_unsent = around.network.unsent(link) > 0;
                let unsent = around.network.send(link, &bytes);
                self.worker.recycle(bytes);
                if unsent > 0 {
                    self.worker.handle_stalled(id, unsent);
                } else if was_unsent {
                    // An event of the next turn, which comes early.
                    self.is_woken = true;
                    self.worker.handle_sent(id, 0);
                }
            }
            if end == End::Shutdown {
                around.network.shut_down(link);
                let unsent = around.network.unsent(link);
                self.worker.handle_shut_down(id, unsent);
            }
        }
        while let Some(id) = self.worker.poll_unsent() {
            if let Some(transport) = self.worker.transport_mut(id) {
                let unsent = around.network.unsent(transport.link);
                self.worker.handle_unsent(id, unsent);
            }
        }
        self.command_transports();
        moved
    }

    /// The server's ends of transports are closed.
    fn close_transports(&mut self, network: &mut Network) {
        while let Some(id) = self.closing.pop() {
            let Some(transport) = self.worker.transport_mut(id) else {
                continue;
            };
            let link = transport.link;
            self.forget(id, None);
            if let Some(link) = network.links.get_mut(&link) {
                link.server = None;
            }
            network.forget_if_over(link);
        }
    }

    fn post(&mut self, around: &mut Around<'_>) -> Result<bool, crate::Failure> {
        let me = self.worker.index();
        let mut moved = false;
        for to in 0..self.worker.workers() {
            let finished = self.worker.poll_finished(to);
            moved |= finished > 0;
            let had = around.lanes.finish(to, me, finished);
            promise!(had, "credits go back once", "from {me} to {to}");
        }
        while let Some(Outgoing { to, message }) = self.worker.poll_message() {
            around.lanes.post(me, to, message);
            moved = true;
        }
        self.count_unfinished(around.lanes);
        Ok(moved)
    }

    /// Takes what the back end was answered.
    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Answer)> {
        let answers = self.worker.with_apps(|back_end, _| back_end.take_answers());
        answers.unwrap_or_default()
    }

    /// Takes what sessions have asked.
    pub(crate) fn take_questions(&mut self) -> Vec<Asked> {
        let of_app = self.worker.with_apps(|app, _| app.take_questions());
        let mut all = std::mem::take(&mut self.asked);
        all.extend(of_app.unwrap_or_default());
        all
    }

    /// A question is decided on.
    pub(crate) fn decided(&mut self, question: &Question, verdict: Verdict, now: Now) {
        self.is_woken = true;
        self.worker.set_now(now);
        let (session, id) = (question.session, question.id);
        match question.decider {
            Decider::BackEnd => self.worker.handle_verdict(session, id, verdict),
            Decider::App { .. } => {
                let ports = &mut self.worker.shared_mut().ports;
                ports.verdicts.push_back((session, id, verdict));
            }
        }
        self.command_transports();
    }

    /// The process begins to go away.
    pub(crate) fn drain(&mut self, within_ms: u64, parting: Parting, now: Now) {
        self.is_woken = true;
        self.worker.set_now(now);
        self.worker.handle_drain(within_ms, parting);
    }

    /// The applications of all workers have stopped.
    pub(crate) fn apps_stopped(&mut self) {
        self.is_woken = true;
        self.worker.handle_apps_stopped();
    }

    /// How often it was said that those of this worker have, since the last time.
    pub(crate) fn take_stopped(&mut self) -> u32 {
        std::mem::take(&mut self.stopped)
    }

    /// How many connections it had at most.
    pub(crate) fn places(&self) -> usize {
        self.slots.given.len()
    }

    /// An application's connection to another server is being opened.
    pub(crate) fn dial(&mut self, link: LinkId, dial: Dial, now: Now) -> ConnectionId {
        self.is_woken = true;
        self.worker.set_now(now);
        let id = self.slots.take();
        let transport = Transport {
            link,
            is_paused: false,
            timer_ms: u64::MAX,
        };
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.worker.handle_dialed(id, peer, dial, transport);
        self.command_transports();
        id
    }

    /// It cannot be opened.
    pub(crate) fn dial_failed(&mut self, caller: Caller, now: Now) {
        self.is_woken = true;
        self.worker.set_now(now);
        self.worker.handle_dial_failed(caller, "no such host");
    }

    /// Takes what applications were told of connections that they have dialed.
    pub(crate) fn take_dialed(&mut self) -> Vec<(u64, Told)> {
        let told = self.worker.with_apps(|app, _| app.take_dialed());
        told.unwrap_or_default()
    }

    /// The link of a connection that is there.
    pub(crate) fn link_of(&mut self, id: ConnectionId) -> Option<LinkId> {
        let transport = self.worker.transport_mut(id);
        transport.map(|transport| transport.link)
    }

    /// What its outboxes hold, each with its link.
    pub(crate) fn queued(&mut self) -> Vec<(LinkId, usize)> {
        let ids: Vec<_> = self.slots.ids().collect();
        let queued = ids.into_iter().filter_map(|id| {
            let link = self.worker.transport_mut(id)?.link;
            Some((link, self.worker.shared().ports.outboxes.of(id).queued()))
        });
        queued.collect()
    }

    /// Nothing is left of connections that are gone.
    pub(crate) fn check_empty(&self) -> Check {
        let (me, connections) = (self.worker.index(), self.worker.connections());
        let stats = &self.shared().stats;
        let (sessions, counted) = (stats.sessions.read(), stats.connections.read());
        promise!(
            connections == 0 && sessions == 0 && counted == 0,
            "connections end",
            "{connections} connections, {counted} of them counted, and {sessions} sessions of worker {me}"
        );
        let counts = self.shared().hub.counts();
        let left = [
            counts.channels,
            counts.users,
            counts.subscriptions,
            counts.queued,
            counts.stalled,
            counts.pending,
        ];
        promise!(
            left == [0; 6] && counts.queued_bytes == 0,
            "hubs empty",
            "worker {me}: {counts:?}"
        );
        Ok(())
    }
}
