//! Messages between workers: in order within a lane, late or not, with credits for data.

use std::collections::VecDeque;
use std::ops::AddAssign;

use fastrand::Rng;
use veche_nodes::{Envelope, NodeId, SequenceCheck, SequenceTracker, Sequencer};
use veche_types::WorkerId;
use veche_worker::WorkerMessage;

use crate::fairness::FairnessCheck;
use crate::worker_driver::{LaneMail, Message};

/// All lanes, each from one worker to another.
pub(crate) struct Lanes {
    workers: usize,
    lanes: Vec<Lane>,
    /// What a worker takes in a turn.
    messages_max: usize,
    /// By worker: so many messages are there to be taken, and all others are late.
    due: Vec<usize>,
    /// In which order publications are served, where that is looked at.
    pub(crate) watch: Option<FairnessCheck>,
    /// How many have travelled as bytes.
    as_bytes: SerializedCounts,
}

/// Messages that have travelled as bytes, by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SerializedCounts {
    /// Instructions.
    pub instructions: u64,
    /// Commands for responses.
    pub relays: u64,
    /// Questions, and answers to them.
    pub questions: u64,
}

impl AddAssign for SerializedCounts {
    fn add_assign(&mut self, more: Self) {
        self.instructions += more.instructions;
        self.relays += more.relays;
        self.questions += more.questions;
    }
}

/// A message on its way.
enum LaneMessage {
    Value(Message),
    Bytes(Vec<u8>),
}

/// The two ends of a link to another node, as far as they number what they send.
struct NodeLink {
    numbers: Sequencer,
    followed: SequenceTracker,
}

#[derive(Default)]
struct Lane {
    messages: VecDeque<LaneMessage>,
    link: Option<NodeLink>,
    /// Data that was sent and is not finished.
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

    /// How many messages have travelled as bytes.
    pub(crate) fn as_bytes(&self) -> SerializedCounts {
        self.as_bytes
    }

    /// As many more have, in a process before.
    pub(crate) fn add_as_bytes(&mut self, more: SerializedCounts) {
        self.as_bytes += more;
    }

    fn at(&mut self, from: usize, to: usize) -> &mut Lane {
        &mut self.lanes[from * self.workers + to]
    }

    /// By worker: data that `from` has sent there and that is not finished.
    pub(crate) fn unfinished(&self, from: usize) -> Vec<u32> {
        let lanes = &self.lanes[from * self.workers..][..self.workers];
        lanes.iter().map(|lane| lane.unfinished).collect()
    }

    pub(crate) fn post(&mut self, from: usize, to: usize, message: Message) {
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

    /// `to` has finished so much data of `from`. Whether it had got as much.
    pub(crate) fn finish(&mut self, from: usize, to: usize, count: u32) -> bool {
        let lane = self.at(from, to);
        let left = lane.unfinished.checked_sub(count);
        lane.unfinished = left.unwrap_or(0);
        left.is_some()
    }

    /// What arrives at a worker, by lane; without a salt all that is under way and not late.
    pub(crate) fn deliver(&mut self, to: usize, salt: Option<u32>) -> Vec<Vec<LaneMail>> {
        let mut random = Rng::with_seed(salt.unwrap_or(0).into());
        // Now and then some of them come too late for this turn.
        let is_late = salt.is_some() && random.u8(0..4) == 0;
        let begin = random.usize(0..self.workers);
        let mut arrived: Vec<Vec<LaneMail>> = (0..self.workers).map(|_| Vec::new()).collect();
        for step in 0..self.workers {
            let from = (begin + step) % self.workers;
            let mut count = match is_late {
                true => random.usize(0..4),
                false => usize::MAX,
            };
            // The worker takes the letters of a turn lane by lane, but which one is first is not known here.
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

    /// A worker has ended its turn.
    pub(crate) fn end_turn(&mut self, worker: usize) {
        if let Some(watch) = &mut self.watch {
            watch.turned(worker);
        }
    }

    /// Of what is for a worker so many messages are there to be taken, until this is said again.
    pub(crate) fn set_due(&mut self, to: usize, messages: usize) {
        self.due[to] = messages;
    }

    /// The most data that is unfinished in any lane.
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

    /// Encodes what is also a message between nodes.
    fn send(&mut self, message: Message, from: usize, to: usize) -> LaneMessage {
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

/// Decodes a message that has arrived by a link, and holds its number against those before.
fn receive(link: Option<&mut NodeLink>, bytes: &[u8], as_bytes: &mut SerializedCounts) -> Message {
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
        WorkerMessage::Hub(veche_hub::HubMessage::CommandUser { .. }) => &mut as_bytes.instructions,
        _ => &mut as_bytes.questions,
    } += 1;
    message
}
