//! A world: the server process, its clients, the network between them, a disk, and the clock. Start reading here.
//!
//! [`World::step`] performs one action and then checks all invariants. Only actions make things happen: neither time
//! nor bytes move by themselves.

use fastrand::Rng;
use veche_frontends::Now;
use veche_hub::{ChannelName, ConnectionId};
use veche_worker::TurnState;

use crate::Failure;
use crate::action::{Action, PAUSE_MS};
use crate::back_end::BackEnd;
use crate::channels::{CHANNELS, COMMON};
use crate::client::PENDING_MAX;
use crate::coverage::CoverageEvent;
use crate::disk::Disk;
use crate::drain::PendingDrain;
use crate::failure::{PromiseResult, promise};
use crate::frontend_config;
use crate::hooks::HookRequests;
use crate::ledger::Ledger;
use crate::network::{LinkId, Network};
use crate::peers::Peers;
use crate::phase::Phase;
use crate::process::Process;
use crate::setup::Setup;
use crate::worker_driver::{
    RECEIVE_BYTES_MAX, StartWorkers, TransportEvent, TransportInput, WorkerOutput,
};

/// The wall-clock time at monotonic time 0, in milliseconds since 1970.
pub(crate) const WALL_MS: u64 = 1_800_000_000_000;

/// Maximum overhead of a publication on the wire in bytes, whether in a push or in a reply. Its data and channel name
/// are not included.
const FRAMING_BYTES: usize = 250;

/// Maximum size in bytes of an empty stream, including its channel name.
pub(crate) const STREAM_BYTES: u64 = 512;

/// Maximum size in bytes of a reply, not counting publications. Most of these bytes are client ids.
const REPLY_BYTES: usize = 10_000;

pub(crate) struct World {
    pub(crate) setup: Setup,
    begin: StartWorkers,
    pub(crate) now_ms: u64,
    pub(crate) process: Process,
    pub(crate) network: Network,
    pub(crate) peers: Peers,
    pub(crate) ledger: Ledger,
    pub(crate) disk: Option<Disk>,
    pub(crate) back_end: BackEnd,
    pub(crate) decisions: HookRequests,
    /// A drain in progress.
    pub(crate) drain: Option<PendingDrain>,
}

impl World {
    /// Creates a world whose workers are started by `begin`.
    pub(crate) fn new(setup: Setup, begin: StartWorkers) -> Result<Self, Failure> {
        frontend_config::count_anew();
        let now_ms = 1_000_000;
        let mut disk = setup.is_logged.then(Disk::default);
        let now = now(now_ms);
        let (count, seed) = (setup.workers, setup.seed);
        let process = Process::begin(begin, &setup, count, seed, now, disk.as_mut())?;
        Ok(Self {
            begin,
            now_ms,
            process,
            network: Network::new(setup.pipe_bytes),
            peers: Peers::new(&setup),
            ledger: Ledger::new(&setup, now_ms),
            disk,
            back_end: BackEnd::default(),
            decisions: HookRequests::default(),
            drain: None,
            setup,
        })
    }

    /// Performs an action and checks all invariants.
    pub(crate) fn step(&mut self, action: Action) -> PromiseResult {
        self.act(action)?;
        self.check_drain()?;
        self.check()
    }

    fn act(&mut self, action: Action) -> PromiseResult {
        match action {
            Action::Round { salt } => self.round(salt),
            Action::Turn { worker, salt } => self.turn(self.worker(worker), Some(salt)).map(drop),
            Action::Up { link, bytes } => match self.network.choose(link) {
                Some(link) => self.up(link, bytes.into()).map(drop),
                None => Ok(()),
            },
            Action::Down { link, bytes } => match self.network.choose(link) {
                Some(link) => self.down(link, bytes.into()).map(drop),
                None => Ok(()),
            },
            Action::Advance { ms } => {
                self.advance_time(ms.into());
                Ok(())
            }
            Action::Connect { client, worker } => {
                let client = self.client(client);
                self.connect(client, worker);
                Ok(())
            }
            Action::Listen { listener, worker } => {
                self.listen(listener.into(), worker);
                Ok(())
            }
            Action::Call {
                caller,
                worker,
                channel,
                call,
            } => {
                self.call(caller.into(), worker, call, channel.into());
                Ok(())
            }
            Action::SetReading { client, reads } => {
                self.peers.set_reads(client.into(), reads);
                Ok(())
            }
            Action::Push {
                worker,
                channel,
                pad,
                times,
            } => self.push(self.worker(worker), channel.into(), pad, times),
            Action::Pause => {
                self.wait_for_drain()?;
                self.rest()?;
                self.advance_time(PAUSE_MS);
                Ok(())
            }
            Action::PublishAgain { channel, is_older } => self.push_again(channel.into(), is_older),
            Action::ReadHistory {
                worker,
                channel,
                limit,
                is_reverse,
            } => self.read_history(self.worker(worker), channel.into(), limit, is_reverse),
            Action::Clear { worker, channel } => self.clear(self.worker(worker), channel.into()),
            Action::Cut {
                link,
                client_sees,
                server_sees,
            } => {
                if let Some(link) = self.network.choose(link) {
                    self.cut(link, client_sees, server_sees);
                }
                Ok(())
            }
            Action::Disconnect { worker, user } => self.kick(self.worker(worker), user),
            Action::Commit { worker, batches } => {
                let worker = self.worker(worker);
                for _ in 0..batches {
                    if let Some(disk) = &mut self.disk {
                        disk.commit(worker)?;
                    }
                }
                Ok(())
            }
            Action::Decide { request, salt } => self.decide(request.into(), salt).map(drop),
            Action::Dial { worker, salt } => {
                self.dial(worker, salt);
                Ok(())
            }
            Action::ServerSend { server, closes } => {
                self.server_send(server.into(), closes);
                Ok(())
            }
            Action::Forge {
                client,
                victim,
                how,
            } => {
                self.forge(self.client(client), self.client(victim), how);
                Ok(())
            }
            Action::Drain {
                within_ms,
                is_replaced,
                salt,
            } => self.drain(within_ms.into(), is_replaced, salt),
            Action::Crash { salt } => self.crash(salt),
            Action::Stall { what, worker, salt } => self.stall(what, self.worker(worker), salt),
            Action::Settle { is_long, has_slow } => self.settle(is_long, has_slow),
            Action::Subscribe { client, .. }
            | Action::Unsubscribe { client, .. }
            | Action::Publish { client, .. }
            | Action::Presence { client, .. }
            | Action::History { client, .. }
            | Action::Rpc { client }
            | Action::Close { client } => {
                self.ask(self.client(client), action);
                Ok(())
            }
        }
    }

    /// Performs an action of a client.
    pub(crate) fn ask(&mut self, number: usize, action: Action) {
        let client = &mut self.peers.clients[number];
        match action {
            Action::Subscribe { channel, .. } => {
                let channel = usize::from(channel);
                if channel < COMMON {
                    client.wants.insert(channel);
                    client.subscribe_to_all(&self.ledger);
                }
            }
            Action::Unsubscribe { channel, .. } if usize::from(channel) < COMMON => {
                client.unsubscribe(channel.into());
            }
            Action::Publish { channel, pad, .. } => {
                client.publish(channel.into(), pad, &mut self.ledger);
            }
            Action::Presence { channel, .. } => client.ask_presence(channel.into()),
            Action::History { channel, .. } => client.ask_history(channel.into(), &self.ledger),
            Action::Close { .. } => client.close(),
            Action::Rpc { .. } => client.call(),
            _ => {}
        }
        self.send(number);
    }

    pub(crate) fn worker(&self, number: u8) -> usize {
        usize::from(number) % self.process.workers.len()
    }

    fn client(&self, number: u8) -> usize {
        usize::from(number) % self.peers.clients.len()
    }

    pub(crate) fn advance_time(&mut self, ms: u64) {
        self.now_ms += ms;
        self.ledger.now_ms = self.now_ms;
    }

    pub(crate) fn now(&self) -> Now {
        now(self.now_ms)
    }

    pub(crate) fn connect(&mut self, number: usize, worker: u8) {
        if self.peers.clients[number].phase != Phase::Offline || self.drain.is_some() {
            return;
        }
        let id = self.open(number, worker, frontend_config::PUBLIC);
        self.peers.clients[number].connect(id, self.ledger.incarnation, &self.ledger);
        self.send(number);
    }

    /// Opens a link of a peer to a listener of a worker.
    pub(crate) fn open(&mut self, peer: usize, worker: u8, listener: u16) -> LinkId {
        let worker = self.worker(worker);
        let id = self.network.open(peer);
        let (now, room) = (self.now(), self.network.pipe_bytes);
        let mut out = Vec::new();
        let session = self.process.workers[worker].accept(listener, room, now, &mut out);
        self.network.attach(id, worker, session);
        self.apply_outputs(worker, out);
        id
    }

    /// Removes the client's end of a link, and notifies the client. With `ends` the server gets a
    /// FIN.
    pub(crate) fn drop_client(&mut self, id: LinkId, ends: bool) {
        let mut unsure = None;
        if let Some(link) = self.network.links.get_mut(&id)
            && std::mem::take(&mut link.has_client)
        {
            link.up_ends |= ends;
            self.peers.dropped(link.client);
            unsure = self.peers.unsure(link.client);
        }
        self.network.forget_if_over(id);
        if let Some(session) = unsure {
            self.drop_client(session, true);
        }
    }

    /// Removes the server's end of a link. The server's transport notices a reset.
    pub(crate) fn drop_server(&mut self, id: LinkId) {
        if let Some((worker, session)) = self.network.detach(id) {
            self.arrive(worker, session, TransportInput::Reset);
        }
        self.network.forget_if_over(id);
    }

    /// Passes an input to a transport of a worker.
    fn arrive(&mut self, worker: usize, session: ConnectionId, arrival: TransportInput) {
        let now = self.now();
        let mut out = Vec::new();
        self.process.workers[worker].arrive(session, arrival, now, &mut out);
        self.apply_outputs(worker, out);
    }

    /// Applies the outputs that transports of a worker produce between its turns. All other outputs occur only in a
    /// turn.
    fn apply_outputs(&mut self, worker: usize, out: Vec<WorkerOutput>) {
        for output in out {
            output.note(&mut self.ledger.trace);
            self.apply_transport_output(worker, output);
        }
    }

    /// Applies `output` if it concerns a transport; otherwise returns it.
    fn apply_transport_output(
        &mut self,
        worker: usize,
        output: WorkerOutput,
    ) -> Option<WorkerOutput> {
        match output {
            WorkerOutput::Sent { id, bytes, unsent } => {
                if let Some(link) = self.network.of(worker, id) {
                    self.network.take(link, &bytes, unsent);
                }
            }
            WorkerOutput::ShutDown(id) => {
                if let Some(link) = self.network.of(worker, id) {
                    self.network.shut_down(link);
                }
            }
            WorkerOutput::Event(id, TransportEvent::Closed { .. }) => {
                if let Some(link) = self.network.of(worker, id) {
                    self.network.detach(link);
                    self.network.forget_if_over(link);
                }
            }
            WorkerOutput::Waits(_)
            | WorkerOutput::Event(..)
            | WorkerOutput::Paused(_)
            | WorkerOutput::Resumed(_)
            | WorkerOutput::TimerSet(..)
            | WorkerOutput::Accepts(..)
            | WorkerOutput::Closing(_) => {}
            other => return Some(other),
        }
        None
    }

    fn cut(&mut self, id: LinkId, client_sees: bool, server_sees: bool) {
        if let Some(link) = self.network.links.get_mut(&id) {
            // Bytes and a FIN in flight are lost, whichever side notices the cut.
            link.up.clear();
            link.down.clear();
            link.down_ends = false;
        }
        if server_sees {
            self.drop_server(id);
        }
        // If neither side noticed the cut, both would continue with a gap in their bytes, so the client ends its
        // connection.
        if client_sees || !server_sees {
            self.drop_client(id, false);
        }
    }

    /// Delivers bytes from a client to the server. Returns whether anything moved.
    pub(crate) fn up(&mut self, id: LinkId, bytes: usize) -> Result<bool, Failure> {
        let Some(link) = self.network.links.get_mut(&id) else {
            return Ok(false);
        };
        let Some((worker, session)) = link.server else {
            // The server's end is gone, so the client gets a reset.
            let has_sent = !link.up.is_empty() || link.up_ends;
            if has_sent {
                self.drop_client(id, false);
            }
            return Ok(has_sent);
        };
        if !self.process.workers[worker].receives(session) || link.up_ended {
            self.ledger.seen.note(CoverageEvent::Blocked);
            return Ok(false);
        }
        let count = bytes.min(link.up.len()).min(RECEIVE_BYTES_MAX);
        if count > 0 {
            let bytes = link.up.drain(..count).collect();
            self.arrive(worker, session, TransportInput::Bytes(bytes));
            return Ok(true);
        }
        if link.up_ends {
            link.up_ended = true;
            self.arrive(worker, session, TransportInput::Fin);
            return Ok(true);
        }
        Ok(false)
    }

    /// Delivers bytes from the server to the client. Returns whether anything moved.
    pub(crate) fn down(&mut self, id: LinkId, bytes: usize) -> Result<bool, Failure> {
        let Some(link) = self.network.links.get(&id) else {
            return Ok(false);
        };
        let client = link.client;
        if !link.has_client || !self.peers.reads(client) {
            return Ok(false);
        }
        if link.down.is_empty() {
            // The client sees the end of the connection once it has read all bytes and a FIN, or when the server's end
            // is gone.
            let is_over = link.unsent == 0 && link.down_ends || link.server.is_none();
            if is_over {
                let is_notified = !link.down_ends || !self.peers.is_online(client);
                promise!(
                    is_notified,
                    "sessions end with a Close",
                    "the session of client {client} ended without one"
                );
                self.drop_client(id, link.down_ends);
            }
            return Ok(is_over);
        }
        let server = link.server;
        let read = self.network.read(id, bytes);
        if let Some((worker, session)) = server {
            self.arrive(worker, session, TransportInput::Room(read.len()));
        }
        self.deliver_to_peer(client, read)?;
        Ok(true)
    }

    /// Runs a worker's turn. With a `salt`, some messages from other workers may arrive only in a later turn. Returns
    /// whether anything moved.
    pub(crate) fn turn(&mut self, worker: usize, salt: Option<u32>) -> Result<bool, Failure> {
        let now = self.now();
        let lanes = &mut self.process.lanes;
        let (unfinished, messages) = (lanes.unfinished(worker), lanes.deliver(worker, salt));
        let durable = self
            .disk
            .as_mut()
            .and_then(|disk| disk.take_durable(worker));
        let driven = &mut self.process.workers[worker];
        let before = driven.dropped();
        let turned = driven.turn(now, unfinished, messages, durable);
        let [_, replaced, missed] = driven.dropped();
        if replaced > before[1] {
            self.ledger.seen.note(CoverageEvent::DroppedForLater);
        }
        if missed > before[2] {
            self.ledger.seen.note(CoverageEvent::MissedByNamespace);
        }
        if !driven.shared().waiting_for_turn.is_empty() {
            self.ledger.seen.note(CoverageEvent::WaitedForTurn);
        }
        promise!(
            turned.passed.is_none(),
            "no connection is continued twice while another waits",
            "{:?} on worker {worker}: the waiting one, the continued one",
            turned.passed
        );
        let mut dialed = Vec::new();
        for output in turned.outputs {
            output.note(&mut self.ledger.trace);
            if let WorkerOutput::Dialed(id, _) = output {
                dialed.push(id);
            }
            if let Some(output) = self.apply_transport_output(worker, output) {
                self.apply_turn_output(worker, output)?;
            }
        }
        self.note_rest(worker, turned.state);
        promise!(
            !turned.is_unasked,
            "an idle worker has nothing to do",
            "worker {worker} did not ask for this turn"
        );
        self.process.lanes.end_turn(worker);
        for id in dialed {
            self.arrive(worker, id, TransportInput::Connected);
        }
        for (ticket, answer) in self.process.workers[worker].take_answers() {
            self.ledger.seen.note(CoverageEvent::TakenLater);
            self.answered(ticket, answer)?;
        }
        self.take_hook_requests(worker)?;
        self.take_dialed(worker)?;
        Ok(turned.moved)
    }

    /// Passes the outputs of a turn to their recipients, such as other workers and the log.
    fn apply_turn_output(&mut self, worker: usize, output: WorkerOutput) -> PromiseResult {
        match output {
            WorkerOutput::Asked(request) => self.process.workers[worker].ask_back_end(request),
            WorkerOutput::Dialed(id, to) => self.dialed(worker, id, to),
            WorkerOutput::Stopped => self.note_stopped(worker)?,
            WorkerOutput::Batch(batch) => {
                if let Some(disk) = &mut self.disk {
                    disk.take(worker, batch)?;
                }
            }
            WorkerOutput::Posted(to, messages) => {
                for message in messages {
                    self.process.lanes.post(worker, to, message);
                }
            }
            WorkerOutput::Finished(of, count) => {
                let had = self.process.lanes.finish(of, worker, count);
                promise!(
                    had,
                    "credits return once",
                    "worker {worker} returned more credits to worker {of} than it had"
                );
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds to the trace the work that remains in a worker after its turn.
    fn note_rest(&mut self, worker: usize, state: TurnState) {
        let trace = &mut self.ledger.trace;
        let pending = self.process.workers[worker].pending_work();
        let ports = &self.process.workers[worker].shared().requests;
        let kept = ports
            .outboxes
            .queue_lengths()
            .chain(ports.outboxes.session_state_counts());
        let spare = ("spare buffers", ports.outboxes.spare_buffers() as u64);
        for count in pending.into_iter().chain(kept).chain([spare]) {
            trace.note_text(count.0);
            trace.note(&[count.1]);
            trace.count_output(&count);
        }
        for lane in &ports.mailer.lanes {
            trace.note(&[lane.unfinished.into(), lane.outgoing.len() as u64]);
            trace.count_output(lane);
        }
        trace.note_debug(16, &state);
        trace.count_output(&state);
    }

    fn round(&mut self, salt: u32) -> PromiseResult {
        let mut random = Rng::with_seed(salt.into());
        let mut workers: Vec<_> = (0..self.process.workers.len()).collect();
        random.shuffle(&mut workers);
        let links: Vec<_> = self.network.links.keys().copied().collect();
        for link in &links {
            if random.u8(0..4) > 0 {
                self.up(*link, random.usize(1..4_000))?;
            }
        }
        for worker in workers {
            self.turn(worker, Some(random.u32(..)))?;
        }
        for link in &links {
            if random.u8(0..4) > 0 {
                self.down(*link, random.usize(1..4_000))?;
            }
        }
        Ok(())
    }

    /// Crashes the process and starts another one.
    pub(crate) fn crash(&mut self, salt: u32) -> PromiseResult {
        let mut random = Rng::with_seed(salt.into());
        // Before the crash, some queued batches reach the disk, but the process does not learn of this.
        if let Some(disk) = &mut self.disk {
            for worker in 0..self.process.workers.len() {
                for _ in 0..random.usize(0..3) {
                    disk.commit(worker)?;
                }
            }
        }
        let links: Vec<_> = self.network.links.keys().copied().collect();
        for id in links {
            self.network.detach(id);
            if let Some(link) = self.network.links.get_mut(&id) {
                link.down_ends = false;
                link.up.clear();
                // Half of the clients lose the bytes that were in flight to them.
                if random.bool() {
                    link.down.clear();
                }
            }
            if random.u8(0..4) == 0 {
                self.drop_client(id, false);
            }
            self.network.forget_if_over(id);
        }
        self.back_end = BackEnd::default();
        self.decisions = HookRequests::default();
        self.drain = None;
        self.peers.dials.crashed();
        self.ledger.incarnation += 1;
        self.ledger.seen.note(CoverageEvent::Crashed);
        if let Some(disk) = &self.disk {
            if disk.restored().any(|one| one.top > 0) {
                self.ledger.seen.note(CoverageEvent::Restored);
            }
            if disk.restored().next().is_some() {
                self.ledger.restored();
            }
        }
        let count = if self.peers.clients.len() > 10 {
            1..=2
        } else {
            1..=4
        };
        let (setup, now, disk) = (&self.setup, self.now(), self.disk.as_mut());
        let count = random.u16(count);
        let as_bytes = self.process.lanes.as_bytes();
        self.process = Process::begin(self.begin, setup, count, random.u64(..), now, disk)?;
        self.process.lanes.add_as_bytes(as_bytes);
        Ok(())
    }

    /// Checks the invariants after every step.
    fn check(&mut self) -> PromiseResult {
        let publications = self.setup.publication_bytes_max() + FRAMING_BYTES;
        // An outbox may contain up to its limit or one larger publication, and in addition pings and the pending replies.
        let budget = self.setup.outbox_bytes.max(publications) + FRAMING_BYTES;
        let recovered_max = 120.max(self.setup.history_size as usize);
        let reply = self.setup.outbox_bytes * 2 + 3 * recovered_max * FRAMING_BYTES + REPLY_BYTES;
        for (id, link) in &self.network.links {
            let Some((worker, session)) = link.server else {
                continue;
            };
            let outboxes = &self.process.workers[worker].shared().requests.outboxes;
            let (queued, owed) = (outboxes.of(session).queued(), link.owed);
            promise!(
                owed <= PENDING_MAX.max(1) && queued <= budget + owed * reply,
                "outboxes stay in budget",
                "{queued} bytes on worker {worker} for link {id}, of {budget} and {owed} replies"
            );
        }
        self.check_history()?;
        let unfinished = self.process.lanes.unfinished_max();
        // The credit of a publication also covers a second message, which is for wildcard subscribers. So one message
        // more than the credits may be unprocessed.
        promise!(
            unfinished <= self.setup.credits + 1,
            "data messages need credits",
            "{unfinished} in a lane of {}",
            self.setup.credits
        );
        Ok(())
    }

    /// Checks that histories are within their budgets. Empty streams are allowed on top, because they stay while their
    /// position is in use.
    fn check_history(&self) -> PromiseResult {
        let share = self.setup.history_bytes_max / self.process.workers.len();
        for (number, worker) in self.process.workers.iter().enumerate() {
            let hub = &worker.shared().hub;
            let counts = hub.gauges();
            let (bytes, streams) = (counts.history_bytes, counts.streams);
            let most = share as u64 + u64::from(streams) * STREAM_BYTES;
            promise!(
                bytes <= most,
                "history stays in budget",
                "{bytes} bytes of {streams} streams on worker {number}, of {share}"
            );
            for (namespace, bytes, bytes_max) in hub.budgets() {
                promise!(
                    bytes <= bytes_max,
                    "history stays in budget",
                    "{bytes} bytes of {namespace:?} on worker {number}, of {bytes_max}"
                );
            }
        }
        Ok(())
    }
}

fn now(mono_ms: u64) -> Now {
    Now {
        mono_ms,
        wall_ms: WALL_MS + mono_ms,
    }
}

/// # Panics
/// Never: the names of [`CHANNELS`] are valid.
pub(crate) fn channel_name(channel: usize) -> ChannelName<'static> {
    ChannelName::new(CHANNELS[channel].name).expect("a valid name")
}
