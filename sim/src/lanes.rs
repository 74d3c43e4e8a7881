//! Messages between workers: in order within a lane, possibly late, with credits for data.

use std::collections::VecDeque;
use std::ops::AddAssign;

use fastrand::Rng;
use veche_nodes::{Envelope, NodeId, SequenceCheck, SequenceTracker, Sequencer};
use veche_types::WorkerId;
use veche_worker::WorkerMessage;

use crate::fairness::FairnessCheck;
use crate::worker_driver::{LaneMail, WorldMessage};

/// The lanes from each worker to each other worker.
pub(crate) struct Lanes {
    workers: usize,
    lanes: Vec<Lane>,
    /// Maximum number of messages that a worker takes in a turn.
    messages_max: usize,
    /// By worker: the number of messages that it may still take until the next [`set_due`](Self::set_due).
    due: Vec<usize>,
    /// The check of the order in which publications are served; `None` while the order is not
    /// checked.
    pub(crate) watch: Option<FairnessCheck>,
    /// Counts of serialised messages.
    as_bytes: SerializedCounts,
}

/// Counts of serialised messages by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SerializedCounts {
    /// Number of user commands.
    pub user_commands: u64,
    /// Number of messages that relay a client's commands to the node with its streaming response.
    pub relays: u64,
    /// Number of queries and of replies to queries.
    pub queries: u64,
}

impl AddAssign for SerializedCounts {
    fn add_assign(&mut self, more: Self) {
        self.user_commands += more.user_commands;
        self.relays += more.relays;
        self.queries += more.queries;
    }
}

/// A message in flight.
enum LaneMessage {
    Value(WorldMessage),
    Bytes(Vec<u8>),
}

/// The sequence numbers at both ends of a link to another node.
struct NodeLink {
    numbers: Sequencer,
    followed: SequenceTracker,
}

#[derive(Default)]
struct Lane {
    messages: VecDeque<LaneMessage>,
    link: Option<NodeLink>,
    /// The number of data messages that were sent and are not processed yet.
    unfinished: u32,
}

impl Lanes {
    pub(crate) fn new(workers: u16, messages_max: usize, is_link: bool) -> Self {
        let workers = usize::from(workers);
        let lane = |from: usize| Lane {
            link: is_link.then(|| NodeLink::from(NodeId(from as u64))),
            ..Lane::default()
        };
        Self {
            workers,
            lanes: (0..workers * workers)
                .map(|at| lane(at / workers))
                .collect(),
            messages_max,
            due: vec![usize::MAX; workers],
            watch: None,
            as_bytes: SerializedCounts::default(),
        }
    }

    /// Returns the counts of serialised messages.
    pub(crate) fn as_bytes(&self) -> SerializedCounts {
        self.as_bytes
    }

    /// Adds the counts of an earlier process.
    pub(crate) fn add_as_bytes(&mut self, more: SerializedCounts) {
        self.as_bytes += more;
    }

    fn at(&mut self, from: usize, to: usize) -> &mut Lane {
        &mut self.lanes[from * self.workers + to]
    }

    /// Returns, by receiving worker, the number of data messages from `from` that are not processed
    /// yet.
    pub(crate) fn unfinished(&self, from: usize) -> Vec<u32> {
        let lanes = &self.lanes[from * self.workers..][..self.workers];
        lanes.iter().map(|lane| lane.unfinished).collect()
    }

    pub(crate) fn post(&mut self, from: usize, to: usize, message: WorldMessage) {
        if let Some(watch) = &mut self.watch {
            watch.posted(from, to, &message);
        }
        let lane = self.at(from, to);
        lane.unfinished += u32::from(message.is_data());
        let carried = match &mut lane.link {
            Some(link) => link.send(message, from, to),
            None => LaneMessage::Value(message),
        };
        lane.messages.push_back(carried);
    }

    /// Marks `count` data messages of `from` as processed by `to`. Returns false if fewer were
    /// unprocessed.
    pub(crate) fn finish(&mut self, from: usize, to: usize, count: u32) -> bool {
        let lane = self.at(from, to);
        let left = lane.unfinished.checked_sub(count);
        lane.unfinished = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns the items that arrive at a worker, by lane. With a salt, some items are delayed at
    /// random. [`set_due`](Self::set_due) limits the number in any case.
    pub(crate) fn deliver(&mut self, to: usize, salt: Option<u32>) -> Vec<Vec<LaneMail>> {
        let mut random = Rng::with_seed(salt.unwrap_or(0).into());
        // With a salt, in about every fourth call each lane delivers only a few messages, and the others stay for
        // later.
        let is_late = salt.is_some() && random.u8(0..4) == 0;
        let begin = random.usize(0..self.workers);
        let mut arrived: Vec<Vec<LaneMail>> = (0..self.workers).map(|_| Vec::new()).collect();
        for step in 0..self.workers {
            let from = (begin + step) % self.workers;
            let mut count = match is_late {
                true => random.usize(0..4),
                false => usize::MAX,
            };
            // The worker takes the items of a turn lane by lane, in an order that is unknown here.
            // While the order of service is checked, all items of a turn therefore come from one
            // lane.
            if self.watch.is_some() {
                let is_first = arrived.iter().all(Vec::is_empty);
                count = if is_first { self.messages_max } else { 0 };
            }
            let there = self.at(from, to).messages.len();
            count = count.min(self.due[to]).min(there);
            if self.due[to] != usize::MAX {
                self.due[to] -= count;
            }
            let mut as_bytes = SerializedCounts::default();
            let lane = self.at(from, to);
            let messages = lane.messages.drain(..count);
            let messages: Vec<_> = messages
                .map(|carried| match carried {
                    LaneMessage::Value(message) => message,
                    LaneMessage::Bytes(bytes) => receive(lane.link.as_mut(), &bytes, &mut as_bytes),
                })
                .collect();
            self.as_bytes += as_bytes;
            if let Some(watch) = &mut self.watch {
                messages.iter().for_each(|message| watch.taken(to, message));
            }
            arrived[from].extend(messages.into_iter().map(LaneMail::Message));
        }
        arrived
    }

    /// Records the end of a worker's turn.
    pub(crate) fn end_turn(&mut self, worker: usize) {
        if let Some(watch) = &mut self.watch {
            watch.turned(worker);
        }
    }

    /// Limits the number of messages that a worker may take, until the next call.
    pub(crate) fn set_due(&mut self, to: usize, messages: usize) {
        self.due[to] = messages;
    }

    /// Returns the highest number of unprocessed data messages in a lane.
    pub(crate) fn unfinished_max(&self) -> u32 {
        let all = self.lanes.iter().map(|lane| lane.unfinished);
        all.max().unwrap_or(0)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let mut all = self.lanes.iter();
        all.all(|lane| lane.messages.is_empty() && lane.unfinished == 0)
    }
}

impl NodeLink {
    fn from(source: NodeId) -> Self {
        Self {
            numbers: Sequencer::new(source),
            followed: SequenceTracker::default(),
        }
    }

    /// Serialises a message if nodes also exchange messages of its type; otherwise returns it as a
    /// value.
    fn send(&mut self, message: WorldMessage, from: usize, to: usize) -> LaneMessage {
        let (from, to) = (WorkerId(from as u16), WorkerId(to as u16));
        match message.into_node_message(from, to) {
            Err(message) => LaneMessage::Value(message),
            Ok(message) => {
                let envelope = self.numbers.wrap(message, 0);
                let bytes = envelope.encode().expect("a message that can be encoded");
                LaneMessage::Bytes(bytes)
            }
        }
    }
}

/// Deserialises a message received over a link, and checks its sequence number.
fn receive(
    link: Option<&mut NodeLink>,
    bytes: &[u8],
    as_bytes: &mut SerializedCounts,
) -> WorldMessage {
    let Envelope {
        source,
        sequence,
        message,
        ..
    } = Envelope::decode(bytes).expect("a message that can be decoded");
    if let Some(link) = link {
        let arrival = link
            .followed
            .check(source, sequence, message.is_sequenced());
        let is_expected = matches!(arrival, SequenceCheck::InOrder | SequenceCheck::First);
        assert!(is_expected, "{arrival:?} at {sequence}");
    }
    let message = WorkerMessage::from_node_message(message).expect("a message for a worker");
    *match &message {
        WorkerMessage::Relay(_) => &mut as_bytes.relays,
        WorkerMessage::Hub(veche_hub::HubMessage::CommandUser { .. }) => {
            &mut as_bytes.user_commands
        }
        _ => &mut as_bytes.queries,
    } += 1;
    message
}
