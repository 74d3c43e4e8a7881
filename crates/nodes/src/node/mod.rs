//! One server process in a cluster: a state machine without clock, socket or thread.
//!
//! A [`Node`] receives messages of its own workers ([`ask`](Node::ask)), the workers' answers to messages of other
//! nodes ([`handle_part`](Node::handle_part)), and the events of its [port](crate::engine::peer) to the engine. It
//! returns [`Output`]s: orders to the engine, messages for its workers, and answers to callers.
//!
//! # Guarantees
//!
//! * *Queries and commands* go to every node with a valid lease, this node included. A caller gets one
//!   [`Output::Answer`]: once all of these nodes have answered, or at the deadline, with the number of nodes that the
//!   answer [covers](AnswerCoverage). A node that leaves, or whose lease ends, is no longer waited for.
//! * *Commands* are sent through the control stream, which every node reads in order. A command is executed once per node:
//!   entries are identified by their offset and by the number that their source assigned, so a source may append a command
//!   again after a broken connection.
//! * *Gaps* of the stream are read again. If the stream no longer contains commands, [`Output::Lost`] reports it.
//! * *Leases* of other nodes are measured by the clock of this node: they end [`LEASE_MS`](crate::engine::peer::LEASE_MS)
//!   after the last announcement. While this node is cut off no lease ends, and answers report the others as missing.
//! * *Return*: after a lost connection the node reads the stream to its end before it announces itself.
//! * *Bans* are also stored in a table: a node that starts later reads there the bans that the stream no longer
//!   contains. It reads both, because a store that loses its data between storing a ban and appending it has the ban in
//!   only one of the two. Of two commands about the same ban, the later one in the stream is in force on each node.
//! * *Rollbacks*: each read of the stream begins with the last known entry. If the store has a different entry at that
//!   offset, it has lost entries. The node then reads all entries, and stores and appends the bans that are missing.

mod callers;
mod cluster_request;
mod commands;
mod control_stream;
mod output;
mod peers;
mod restore;
mod stores;
mod task;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use veche_types::{ConnectionId, WorkerId};

use crate::engine::peer::{Event, LEASE_RENEWAL_MS, Order};
use crate::{
    Announcement, Ban, Caller, DecodeError, Envelope, NodeAnswer, NodeId, NodeMessage, NodeReply,
    Sequencer, Ticket,
};

use callers::{caller_of, clear_caller, empty, set_caller};
use cluster_request::ClusterRequest;
use commands::NodeCommands;
pub use output::{AnswerCoverage, NodeCounts, Output, Part};
use peers::PeerNodes;
pub use peers::{Disagreement, Peer};
use restore::Restore;
use stores::Stores;
use task::{NodeTask, TaskOrigin};

/// The time limit of a query or command, in milliseconds. When it has passed, the answer contains the replies received
/// so far.
pub const ANSWER_MS: u64 = 5_000;

/// The name of the engine's table that stores bans.
pub const BLOCKS: &str = "blocks";

/// A node that has not received its own announcements for this time, in milliseconds, counts as cut off. The time is
/// shorter than a lease, so that a node that is cut off notices this before the leases of the other nodes appear to
/// end.
const CUT_OFF_MS: u64 = 2 * LEASE_RENEWAL_MS + 500;

/// The maximum number of messages of other nodes that this node's workers execute at a time. Beyond it, queries are
/// dropped and commands are executed without an answer.
const TASKS_MAX: usize = 4_096;

/// The state of this node in the cluster. It uses neither sockets nor clocks.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    workers: u32,
    node_worker: WorkerId,
    now_ms: u64,
    numbers: Sequencer,
    own: Announcement,
    peers: PeerNodes,
    commands: NodeCommands,
    stores: Stores,
    /// The comparison of the stored bans with those of this node. Present while stored bans may be missing.
    restore: Option<Restore>,
    cluster_requests: HashMap<Caller, ClusterRequest>,
    tasks: HashMap<u32, NodeTask>,
    next_task: u32,
    next_ticket: u64,
    is_linked: bool,
    is_current: bool,
    is_leaving: bool,
    has_left: bool,
    /// The time up to which this node has received all commands of other nodes.
    current_until_ms: u64,
    announce_at_ms: u64,
    last_echo_ms: u64,
    outputs: VecDeque<Output>,
    counts: NodeCounts,
}

impl Node {
    /// Creates a node without a connection. `own` contains its name, and the settings to compare
    /// with those of other nodes. Parts of answers to [`Output::Perform`] are addressed to the
    /// worker number `node_worker`, which must differ from the numbers of the `workers` workers.
    #[must_use]
    pub fn new(
        id: NodeId,
        own: Announcement,
        workers: u16,
        node_worker: WorkerId,
        now_ms: u64,
    ) -> Self {
        Self {
            id,
            workers: workers.into(),
            node_worker,
            now_ms,
            numbers: Sequencer::new(id),
            own,
            peers: PeerNodes::default(),
            commands: NodeCommands::default(),
            stores: Stores::default(),
            restore: None,
            cluster_requests: HashMap::new(),
            tasks: HashMap::new(),
            next_task: 0,
            next_ticket: 0,
            is_linked: false,
            is_current: false,
            is_leaving: false,
            has_left: false,
            current_until_ms: now_ms,
            announce_at_ms: now_ms,
            last_echo_ms: now_ms,
            outputs: VecDeque::new(),
            counts: NodeCounts::default(),
        }
    }

    /// Returns the id of this node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the last announcement of this node.
    #[must_use]
    pub fn announced(&self) -> &Announcement {
        &self.own
    }

    /// Returns the other nodes with a valid lease, by id.
    pub fn peers(&self) -> impl Iterator<Item = (NodeId, &Peer)> {
        self.peers.iter()
    }

    /// Returns the counters for metrics.
    #[must_use]
    pub fn counts(&self) -> NodeCounts {
        self.counts
    }

    /// Returns whether the node reaches the other nodes and has executed all their commands.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.is_current && self.is_connected()
    }

    /// Removes and returns the next output; `None` if there is none.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Sets the current time of a monotonic clock, in milliseconds.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Announces the state of this node. This renews the node's lease.
    pub fn announce(&mut self, announcement: Announcement) {
        self.own = announcement;
        self.announce_at_ms = self.now_ms + LEASE_RENEWAL_MS;
        if !self.is_current || self.is_leaving {
            return;
        }
        if let Some(bytes) = self.announcement() {
            self.order(Order::Announce(bytes.clone()));
            self.order(Order::Send { to: None, bytes });
        }
        // Finds entries that the feed has lost after the last known one, and detects that the store has lost the
        // stream.
        self.read_on();
    }

    /// Ends the lease of this node, so that other nodes no longer wait for it.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.send(None, NodeMessage::Leave, 0);
        self.order(Order::Leave);
    }

    /// Returns whether this node has received its own [`NodeMessage::Leave`], which shows that the
    /// engine has sent the message to all nodes.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Stores a ban for nodes that start later. If `block` ends a ban, removes the stored ban.
    fn store_block(&mut self, block: &Ban) {
        self.store(commands::block_name(block), commands::block_value(block));
    }

    fn store(&mut self, name: Bytes, value: Option<Bytes>) {
        let ticket = self.ticket();
        self.stores.ordered(ticket, name.clone(), value.clone());
        let block = value.as_deref().and_then(commands::read_block);
        self.order(Order::Store {
            ticket,
            table: Arc::from(BLOCKS),
            name,
            value,
            until_s: block.and_then(|block| block.until_s()),
        });
    }

    /// Sends a message of a worker to the node `to`, or to all nodes if `to` is `None`. If the message is a ban, the
    /// process has already applied it on this node.
    pub fn ask(&mut self, message: NodeMessage, to: Option<NodeId>) {
        if to.is_some() {
            return self.send(to, message, 0);
        }
        let caller = caller_of(&message);
        if let Some(caller) = caller {
            self.counts.asked += 1;
            let (peers, missing) = match self.is_current() {
                true => (self.peers.ids(), 0),
                false => (Vec::new(), self.peers.len()),
            };
            let deadline_ms = self.now_ms + ANSWER_MS;
            let mut request = ClusterRequest::new(peers, missing, empty(&message), deadline_ms);
            if matches!(message, NodeMessage::Block(_)) {
                request.answered(None, NodeAnswer::Blocked(Ok(())));
            }
            self.cluster_requests.insert(caller, request);
        }
        if message.is_sequenced() {
            self.command(message.clone());
        } else if self.is_current {
            self.send(None, message.clone(), ANSWER_MS as u32);
        }
        if matches!(message, NodeMessage::Block(_)) {
            return self.finish_cluster_requests();
        }
        self.begin(message, caller.map(TaskOrigin::Own), ANSWER_MS);
    }

    /// Makes all nodes execute a command of this node. A ban is stored as well.
    fn command(&mut self, message: NodeMessage) {
        let ban = match &message {
            NodeMessage::Block(command) => Some(command.block.clone()),
            _ => None,
        };
        if let Some(ban) = &ban {
            self.store_block(ban);
        }
        let envelope = self.numbers.wrap(message, ANSWER_MS as u32);
        if let Ok(bytes) = envelope.encode() {
            self.commands.keep(self.now_ms, envelope, ban);
            if self.is_current {
                self.append(bytes.into());
            }
        }
    }

    /// Handles an event of the engine.
    pub fn handle_event(&mut self, event: Event) {
        match event {
            Event::Up(_) => self.linked(),
            Event::Down => self.cut(),
            Event::Received(bytes) => self.received(&bytes),
            Event::Control {
                position,
                before,
                bytes,
            } => self.entry(position, before, &bytes),
            Event::Appended { position: None, .. } => self.commands.is_unsure = true,
            // The answer is not used: only the command's entry in the stream shows that the command is stored.
            Event::Appended { .. } => {}
            Event::Stored { ticket, is_stored } => match is_stored {
                true => self.stores.mark_stored(ticket),
                false => self.commands.is_unsure = true,
            },
            Event::ControlRead { ticket, stream } => {
                // If the read failed, it is repeated with the next announcement.
                if let Some(known) = self.commands.take_known_offset(ticket)
                    && let Some(stream) = stream
                {
                    self.control_read(stream, known);
                }
            }
            Event::Leases {
                nodes: Some(nodes), ..
            } => {
                for (id, text) in nodes {
                    let is_other = id != self.id && !text.is_empty();
                    if let Some(NodeMessage::Announce(announcement)) = is_other
                        .then(|| self.decode(&text))
                        .flatten()
                        .map(|envelope| envelope.message)
                    {
                        self.announced_by(id, *announcement);
                    }
                }
            }
            Event::Table {
                ticket,
                values: Some(values),
            } => self.table(ticket, &values),
            Event::Table { values: None, .. } if !self.is_current => self.commands.forget(),
            Event::Leases { nodes: None, .. } | Event::Table { values: None, .. } => {}
        }
    }

    /// Handles a part of the answer to [`Output::Perform`].
    pub fn handle_part(&mut self, caller: Caller, part: Part) {
        let number = caller.session.index;
        let Some(task) = self.tasks.get_mut(&number) else {
            return;
        };
        task.add(part);
        if task.is_complete()
            && let Some(task) = self.tasks.remove(&number)
        {
            self.end_task(task);
        }
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) has to be called, on the monotonic clock.
    #[must_use]
    pub fn next_timeout_ms(&self) -> u64 {
        let cluster_requests = self
            .cluster_requests
            .values()
            .map(|request| request.deadline_ms);
        let leases = self.peers.next_end_ms().filter(|_| self.is_connected());
        let all = cluster_requests.chain(leases).chain([self.announce_at_ms]);
        all.min().unwrap_or(self.announce_at_ms)
    }

    /// Handles requests whose deadline has passed, leases that have ended, and a due announcement.
    pub fn handle_timeout(&mut self) {
        let now_ms = self.now_ms;
        if now_ms >= self.announce_at_ms {
            self.announce_at_ms = now_ms + LEASE_RENEWAL_MS;
            self.outputs.push_back(Output::Announce);
            if self.is_linked && !self.is_current {
                self.begin_reading();
            } else if self.is_current && std::mem::take(&mut self.commands.is_unsure) {
                self.append_again();
            }
        }
        if self.is_connected() {
            for ended in self.peers.ended(now_ms) {
                self.forget(ended);
            }
        }
        self.tasks.retain(|_, task| task.deadline_ms > now_ms);
        self.finish_cluster_requests();
    }

    /// Returns whether messages of this node seem to reach the other nodes.
    fn is_connected(&self) -> bool {
        self.is_linked && self.now_ms < self.last_echo_ms + CUT_OFF_MS
    }

    fn linked(&mut self) {
        self.is_linked = true;
        self.is_current = false;
        self.last_echo_ms = self.now_ms;
        self.begin_reading();
    }

    fn cut(&mut self) {
        self.is_linked = false;
        self.is_current = false;
        for request in self.cluster_requests.values_mut() {
            request.give_up();
        }
        self.finish_cluster_requests();
    }

    fn received(&mut self, bytes: &[u8]) {
        let Some(envelope) = self.decode(bytes) else {
            return;
        };
        let source = envelope.source;
        if source == self.id {
            if !self.is_connected() && self.is_linked {
                self.peers.renew_all(self.now_ms);
            }
            self.last_echo_ms = self.now_ms;
            self.has_left |= envelope.message == NodeMessage::Leave;
            return;
        }
        match envelope.message {
            NodeMessage::Announce(announcement) => self.announced_by(source, *announcement),
            NodeMessage::Leave => self.forget(source),
            NodeMessage::Answer(NodeReply { caller, answer }) => {
                if let Some(request) = self.cluster_requests.get_mut(&caller) {
                    request.answered(Some(source), answer);
                    self.finish_cluster_requests();
                }
            }
            // Commands are valid only in the control stream.
            NodeMessage::Instruct(_) | NodeMessage::Block(_) => {
                self.counts.ignored.add(DecodeError::Foreign)
            }
            message => {
                let origin = caller_of(&message).map(|caller| TaskOrigin::Node(source, caller));
                self.begin(message, origin, envelope.within_ms.into());
            }
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Envelope> {
        match Envelope::decode(bytes) {
            Ok(envelope) => Some(envelope),
            Err(ignored) => {
                self.counts.ignored.add(ignored);
                None
            }
        }
    }

    fn announced_by(&mut self, source: NodeId, announcement: Announcement) {
        let found = self
            .peers
            .announced(source, announcement, &self.own, self.now_ms);
        if let Some(disagreement) = found {
            self.outputs
                .push_back(Output::Disagree(source, disagreement));
        }
    }

    /// Handles a node that has left, or whose lease has ended.
    fn forget(&mut self, source: NodeId) {
        self.peers.remove(source);
        for request in self.cluster_requests.values_mut() {
            request.left(source);
        }
        self.finish_cluster_requests();
    }

    /// Passes a message to the workers of this node. With an `origin`, the workers' replies are combined into an
    /// answer; without one, no answer is made.
    fn begin(&mut self, mut message: NodeMessage, origin: Option<TaskOrigin>, within_ms: u64) {
        let Some(origin) = origin else {
            return self.outputs.push_back(Output::Perform(message));
        };
        if self.tasks.len() >= TASKS_MAX && matches!(origin, TaskOrigin::Node(..)) {
            // There are too many tasks: a query is dropped, and a command is executed without an
            // answer.
            if message.is_sequenced() {
                clear_caller(&mut message);
                self.outputs.push_back(Output::Perform(message));
            }
            return;
        }
        let number = self.next_task;
        self.next_task = self.next_task.wrapping_add(1);
        let within_ms = if within_ms == 0 { ANSWER_MS } else { within_ms };
        let task = NodeTask::new(&message, origin, self.workers, self.now_ms + within_ms);
        self.tasks.insert(number, task);
        let caller = Caller {
            worker: self.node_worker,
            session: ConnectionId {
                index: number,
                generation: 0,
            },
            ticket: Ticket(0),
        };
        set_caller(&mut message, caller);
        self.outputs.push_back(Output::Perform(message));
    }

    fn end_task(&mut self, task: NodeTask) {
        let Some(answer) = task.answer else {
            return;
        };
        match task.origin {
            TaskOrigin::Own(caller) => {
                if let Some(request) = self.cluster_requests.get_mut(&caller) {
                    request.answered(None, answer);
                }
                self.finish_cluster_requests();
            }
            TaskOrigin::Node(node, caller) => {
                self.send(
                    Some(node),
                    NodeMessage::Answer(NodeReply { caller, answer }),
                    0,
                );
            }
        }
    }

    fn finish_cluster_requests(&mut self) {
        let now_ms = self.now_ms;
        let finished = self
            .cluster_requests
            .extract_if(|_, request| request.is_finished(now_ms));
        for (caller, request) in finished {
            let coverage = request.coverage();
            self.counts.partial += u64::from(!coverage.is_complete());
            let answer = request.answer;
            self.outputs
                .push_back(Output::Answer(caller, answer, coverage));
        }
    }

    fn announcement(&mut self) -> Option<Bytes> {
        let message = NodeMessage::Announce(Box::new(self.own.clone()));
        let encoded = self.numbers.wrap(message, 0).encode();
        encoded.ok().map(Bytes::from)
    }

    fn send(&mut self, to: Option<NodeId>, message: NodeMessage, within_ms: u32) {
        match self.numbers.wrap(message, within_ms).encode() {
            Ok(bytes) => {
                let bytes = bytes.into();
                self.order(Order::Send { to, bytes });
            }
            // The message, such as a long list of channels, exceeds the maximum length. It is not sent, so the answer
            // lacks this node's part.
            Err(_) => self.counts.ignored.add(DecodeError::TooLarge),
        }
    }

    fn order(&mut self, order: Order) {
        self.outputs.push_back(Output::Order(order));
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}
