//! Tests of several nodes with an in-memory engine that can be cut off, lose entries and be emptied.

mod bans;
mod losses;

use std::collections::{BTreeMap, HashSet};

use veche_types::{Epoch, Position, WorkerId};

use super::*;
use crate::engine::StoreState;
use crate::engine::peer::{Entries, LEASE_MS};
use crate::{
    BanRequest, CONNECTIONS_LISTED_MAX, ChannelList, ChannelsQuery, ConnectionList, Glob,
    ListConnections, UserAction, UserCommand, UserCommandRequest, UserStatus, UserStatusQuery,
};

const WORKERS: u16 = 2;
const NODE_WORKER: WorkerId = WorkerId(WORKERS);

/// Nodes, and the store that they share: the control stream, the table of bans and the leases.
#[derive(Default)]
struct Cluster {
    nodes: Vec<Member>,
    epoch: u64,
    stream: Vec<(u64, Bytes)>,
    top: u64,
    table: BTreeMap<Bytes, Bytes>,
    leases: BTreeMap<NodeId, Bytes>,
    now_ms: u64,
    /// Whether workers ignore messages, so that no parts of answers arrive.
    is_idle: bool,
    /// Whether appends are stored but their answers are lost.
    is_unsure: bool,
}

struct Member {
    node: Node,
    is_cut: bool,
    settings: u64,
    performed: Vec<NodeMessage>,
    answers: Vec<(Caller, NodeAnswer, AnswerCoverage)>,
    others: Vec<Output>,
    events: VecDeque<Event>,
}

fn id(number: usize) -> NodeId {
    NodeId(number as u64 + 1)
}

fn announcement(number: usize, settings: u64) -> Announcement {
    Announcement {
        name: format!("node{number}").into(),
        settings,
        ..Announcement::default()
    }
}

fn caller(ticket: u32) -> Caller {
    Caller {
        worker: WorkerId(1),
        session: ConnectionId {
            index: 9,
            generation: 3,
        },
        ticket: Ticket(ticket),
    }
}

fn disconnect(ticket: u32) -> NodeMessage {
    NodeMessage::Instruct(UserCommandRequest {
        user: Arc::from("anna"),
        instruction: Arc::new(UserCommand::to_all(UserAction::Disconnect {
            code: 3503,
            reason: Arc::from("bye"),
        })),
        caller: Some(caller(ticket)),
    })
}

fn ban(user: &str, ticket: u32) -> NodeMessage {
    NodeMessage::Block(BanRequest {
        block: Ban::User {
            user: user.to_owned(),
            until_s: None,
        },
        caller: Some(caller(ticket)),
    })
}

fn allow(user: &str, ticket: u32) -> NodeMessage {
    NodeMessage::Block(BanRequest {
        block: allowed(user),
        caller: Some(caller(ticket)),
    })
}

fn allowed(user: &str) -> Ban {
    Ban::UserAllowed {
        user: user.to_owned(),
    }
}

fn status(ticket: u32) -> NodeMessage {
    NodeMessage::UserStatus(UserStatusQuery {
        user: Arc::from("anna"),
        caller: caller(ticket),
    })
}

fn channels(ticket: u32) -> NodeMessage {
    NodeMessage::Channels(ChannelsQuery {
        pattern: Arc::new(Glob::new("*").expect("a pattern")),
        caller: caller(ticket),
    })
}

impl Cluster {
    fn of(nodes: usize) -> Self {
        let mut cluster = Self {
            epoch: 1,
            ..Self::default()
        };
        for _ in 0..nodes {
            cluster.join();
        }
        cluster
    }

    fn join(&mut self) -> usize {
        let number = self.nodes.len();
        let own = announcement(number, 7);
        self.nodes.push(Member {
            node: Node::new(id(number), own, WORKERS, NODE_WORKER, self.now_ms),
            is_cut: false,
            settings: 7,
            performed: Vec::new(),
            answers: Vec::new(),
            others: Vec::new(),
            events: VecDeque::from([Event::Up(StoreState::Same)]),
        });
        self.run();
        number
    }

    fn position(&self, offset: u64) -> Position {
        Position {
            epoch: Epoch::from_bits(self.epoch),
            offset,
        }
    }

    fn ask(&mut self, number: usize, message: NodeMessage) {
        self.nodes[number].node.ask(message, None);
        self.run();
    }

    fn cut(&mut self, number: usize) {
        self.nodes[number].is_cut = true;
        self.nodes[number].events = VecDeque::from([Event::Down]);
        self.run();
    }

    fn mend(&mut self, number: usize) {
        self.nodes[number].is_cut = false;
        self.nodes[number].events = VecDeque::from([Event::Up(StoreState::Same)]);
        self.run();
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 500 {
            self.now_ms += 500;
            for member in &mut self.nodes {
                member.node.set_now(self.now_ms);
                member.node.handle_timeout();
            }
            self.run();
        }
    }

    /// Sends a message of a node's worker, and has the store execute the node's orders. No events are delivered.
    fn ask_only(&mut self, number: usize, message: NodeMessage) {
        self.nodes[number].node.ask(message, None);
        while let Some(output) = self.nodes[number].node.poll() {
            self.take(number, output);
        }
    }

    /// Delivers outputs and events until none is left.
    fn run(&mut self) {
        loop {
            let mut is_done = true;
            for number in 0..self.nodes.len() {
                while let Some(event) = self.nodes[number].events.pop_front() {
                    self.nodes[number].node.handle_event(event);
                    is_done = false;
                }
                while let Some(output) = self.nodes[number].node.poll() {
                    self.take(number, output);
                    is_done = false;
                }
            }
            if is_done {
                return;
            }
        }
    }

    fn take(&mut self, number: usize, output: Output) {
        match output {
            Output::Order(order) if !self.nodes[number].is_cut => self.carry_out(number, order),
            Output::Order(_) => {}
            Output::Perform(message) => {
                if !self.is_idle {
                    self.perform(number, &message);
                }
                self.nodes[number].performed.push(message);
            }
            Output::Answer(caller, answer, coverage) => {
                self.nodes[number].answers.push((caller, answer, coverage));
            }
            Output::Announce => {
                let own = announcement(number, self.nodes[number].settings);
                self.nodes[number].node.announce(own);
            }
            Output::StoreBlocks => {
                let bans = bans::in_force(&self.nodes[number]);
                self.nodes[number].node.restore_blocks(bans);
                self.nodes[number].others.push(Output::StoreBlocks);
            }
            other => self.nodes[number].others.push(other),
        }
    }

    fn perform(&mut self, number: usize, message: &NodeMessage) {
        let node = &mut self.nodes[number].node;
        let Some(caller) = caller_of(message) else {
            return;
        };
        assert_eq!(caller.worker, NODE_WORKER);
        let parts = match message {
            NodeMessage::Instruct(_) => vec![
                Part::Settled,
                Part::Instructed {
                    connections: number as u32 + 1,
                    open: 2,
                },
                Part::Settled,
            ],
            NodeMessage::Block(_) => vec![Part::Answer(NodeAnswer::Blocked(Ok(())))],
            NodeMessage::UserStatus(_) => vec![Part::Answer(NodeAnswer::UserStatus(UserStatus {
                connections: 1,
                last_seen_ms: None,
            }))],
            NodeMessage::Channels(_) => {
                let part = |name: &str| {
                    let mut listing = ChannelList::default();
                    listing.push(Arc::from(name), 2);
                    Part::Answer(NodeAnswer::Channels(listing))
                };
                vec![part("shared"), part(&format!("own{number}"))]
            }
            NodeMessage::Connections(_) => {
                let none = || Part::Answer(NodeAnswer::Connections(ConnectionList::default()));
                vec![none(), none()]
            }
            other => panic!("{other:?} has no answer"),
        };
        for part in parts {
            node.handle_part(caller, part);
        }
    }

    fn post(&mut self, to: usize, event: Event) {
        if !self.nodes[to].is_cut {
            self.nodes[to].events.push_back(event);
        }
    }

    fn carry_out(&mut self, number: usize, order: Order) {
        match order {
            Order::Send { to, bytes } => {
                for receiver in 0..self.nodes.len() {
                    if to.is_none_or(|to| to == id(receiver)) {
                        self.post(receiver, Event::Received(bytes.clone()));
                    }
                }
            }
            Order::Append { ticket, bytes } => {
                let before = self.top;
                self.top += 1;
                self.stream.push((self.top, bytes.clone()));
                let position = self.position(self.top);
                for receiver in 0..self.nodes.len() {
                    let bytes = bytes.clone();
                    self.post(
                        receiver,
                        Event::Control {
                            position,
                            before,
                            bytes,
                        },
                    );
                }
                let position = (!self.is_unsure).then_some(position);
                self.post(number, Event::Appended { ticket, position });
            }
            Order::ReadControl { ticket, since } => {
                let entries = self.stream.iter().filter(|(offset, _)| *offset > since);
                let entries: Vec<_> = entries.cloned().collect();
                let before = entries.first().map_or(self.top, |(offset, _)| offset - 1);
                let top = self.position(self.top);
                let stream = Some(Entries {
                    top,
                    before,
                    entries,
                });
                self.post(number, Event::ControlRead { ticket, stream });
            }
            Order::Announce(text) => {
                self.leases.insert(id(number), text);
            }
            Order::Leave => {
                self.leases.remove(&id(number));
            }
            Order::ReadLeases { ticket } => {
                let nodes = self.leases.clone().into_iter().collect();
                let nodes = Some(nodes);
                self.post(number, Event::Leases { ticket, nodes });
            }
            Order::Store {
                ticket,
                name,
                value,
                ..
            } => {
                match value {
                    Some(value) => self.table.insert(name, value),
                    None => self.table.remove(&name),
                };
                let is_stored = true;
                self.post(number, Event::Stored { ticket, is_stored });
            }
            Order::ReadTable { ticket, .. } => {
                let values = Some(self.table.clone().into_iter().collect());
                self.post(number, Event::Table { ticket, values });
            }
        }
    }

    fn answer(&mut self, number: usize) -> (NodeAnswer, u32, u32) {
        let answers = &mut self.nodes[number].answers;
        assert_eq!(answers.len(), 1, "{answers:?}");
        let (_, answer, coverage) = answers.remove(0);
        (answer, coverage.answered, coverage.known)
    }

    /// Returns the number of commands that the workers of a node were ordered to execute.
    fn commands(&self, number: usize) -> usize {
        let performed = self.nodes[number].performed.iter();
        performed.filter(|message| message.is_sequenced()).count()
    }

    fn known(&self, number: usize) -> HashSet<NodeId> {
        self.nodes[number].node.peers().map(|(id, _)| id).collect()
    }
}

#[test]
fn a_query_has_one_answer_for_all_nodes() {
    let mut cluster = Cluster::of(3);
    cluster.ask(1, status(1));
    let all = UserStatus {
        connections: 3,
        last_seen_ms: None,
    };
    let answer = NodeAnswer::UserStatus(all);
    assert_eq!(cluster.answer(1), (answer, 3, 3));
    cluster.ask(0, channels(2));
    let (NodeAnswer::Channels(listing), 3, 3) = cluster.answer(0) else {
        panic!("no list");
    };
    let mut listed = listing.channels().expect("not too long").to_vec();
    listed.sort();
    let expected = [("own0", 2), ("own1", 2), ("own2", 2), ("shared", 6)];
    let expected = expected.map(|(name, clients)| (Arc::from(name), clients));
    assert_eq!(listed, expected);
    let list_request = ListConnections {
        channel: Arc::from("#anna"),
        name: None,
        caller: caller(3),
    };
    cluster.ask(2, NodeMessage::Connections(Arc::new(list_request)));
    let (NodeAnswer::Connections(all), 3, 3) = cluster.answer(2) else {
        panic!("no list");
    };
    assert!(
        all.all()
            .is_some_and(|all| all.len() < CONNECTIONS_LISTED_MAX)
    );
}

#[test]
fn a_single_node_answers_for_itself() {
    let mut cluster = Cluster::of(1);
    cluster.ask(0, disconnect(1));
    let answer = NodeAnswer::Instructed { connections: 1 };
    assert_eq!(cluster.answer(0), (answer, 1, 1));
}

#[test]
fn a_command_is_answered_when_every_node_has_carried_it_out() {
    let mut cluster = Cluster::of(3);
    cluster.is_idle = true;
    cluster.ask(0, disconnect(1));
    assert!(cluster.nodes[0].answers.is_empty());
    for number in [0, 2, 1] {
        assert!(cluster.nodes[0].answers.is_empty(), "{number}");
        let performed = cluster.nodes[number].performed.clone();
        assert_eq!(performed.len(), 1);
        cluster.perform(number, &performed[0]);
        cluster.run();
    }
    let answer = NodeAnswer::Instructed { connections: 6 };
    assert_eq!(cluster.answer(0), (answer, 3, 3));
}

#[test]
fn the_deadline_ends_the_waiting_and_a_later_answer_is_ignored() {
    let mut cluster = Cluster::of(2);
    cluster.is_idle = true;
    cluster.ask(0, status(1));
    let request = cluster.nodes[0].performed[0].clone();
    cluster.perform(0, &request);
    cluster.pass(ANSWER_MS - 500);
    assert!(cluster.nodes[0].answers.is_empty());
    cluster.pass(500);
    let own = UserStatus {
        connections: 1,
        last_seen_ms: None,
    };
    assert_eq!(cluster.answer(0), (NodeAnswer::UserStatus(own), 1, 2));
    let late = cluster.nodes[1].performed[0].clone();
    cluster.perform(1, &late);
    cluster.run();
    assert!(cluster.nodes[0].answers.is_empty());
    assert_eq!(cluster.nodes[0].node.counts().partial, 1);
}

#[test]
fn a_node_that_leaves_or_dies_is_not_waited_for() {
    let mut cluster = Cluster::of(3);
    cluster.nodes[2].node.leave();
    assert!(!cluster.nodes[2].node.has_left());
    cluster.run();
    assert!(cluster.nodes[2].node.has_left());
    cluster.pass(2 * LEASE_RENEWAL_MS);
    cluster.nodes[2].is_cut = true;
    assert_eq!(cluster.known(0), HashSet::from([id(1)]));
    // A node ends without leaving the cluster.
    cluster.nodes[1].is_cut = true;
    cluster.ask(0, status(1));
    cluster.pass(ANSWER_MS);
    let (_, answered, known) = cluster.answer(0);
    assert_eq!((answered, known), (1, 2), "its lease is valid");
    cluster.pass(LEASE_MS);
    assert_eq!(cluster.known(0), HashSet::new());
    cluster.ask(0, status(2));
    let (_, answered, known) = cluster.answer(0);
    assert_eq!((answered, known), (1, 1));
    // The lease of a node ends while a query waits for the node.
    let mut cluster = Cluster::of(2);
    cluster.nodes[1].is_cut = true;
    cluster.pass(LEASE_MS - 1_000);
    cluster.ask(0, status(3));
    assert!(cluster.nodes[0].answers.is_empty());
    cluster.pass(1_500);
    let (_, answered, known) = cluster.answer(0);
    assert_eq!((answered, known), (1, 1));
}

#[test]
fn a_cut_off_node_recovers_before_it_announces_itself() {
    let mut cluster = Cluster::of(3);
    cluster.cut(2);
    assert!(!cluster.nodes[2].node.is_current());
    cluster.pass(2 * LEASE_MS);
    // The cut-off node gets only its own answer, but still counts the other nodes as known.
    cluster.ask(2, status(1));
    let (_, answered, known) = cluster.answer(2);
    assert_eq!((answered, known), (1, 3));
    cluster.ask(0, ban("boris", 2));
    let (_, answered, known) = cluster.answer(0);
    assert_eq!((answered, known), (2, 2), "its lease has ended");
    assert_eq!(cluster.commands(2), 0);
    // A command of the cut-off node reaches the others once the node is connected again.
    cluster.ask(2, ban("carla", 3));
    let (_, answered, known) = cluster.answer(2);
    assert_eq!((answered, known), (1, 3));
    assert_eq!(
        cluster.commands(0),
        0,
        "a block is in force where it is set"
    );
    assert_eq!(cluster.commands(1), 1);
    cluster.mend(2);
    assert_eq!(cluster.commands(2), 1);
    assert_eq!(cluster.commands(0), 1);
    assert_eq!(cluster.commands(1), 2);
    cluster.ask(0, status(4));
    let (_, answered, known) = cluster.answer(0);
    assert_eq!((answered, known), (3, 3));
}

#[test]
fn a_node_without_announcements_does_not_claim_full_coverage() {
    let mut cluster = Cluster::of(2);
    // The node's connection to the store is lost, and the loss is not reported.
    cluster.nodes[0].is_cut = true;
    cluster.pass(LEASE_MS + 2_000);
    assert_eq!(cluster.known(0), HashSet::from([id(1)]));
    cluster.ask(0, status(1));
    let (_, answered, known) = cluster.answer(0);
    assert_eq!((answered, known), (1, 2));
}

#[test]
fn entries_that_the_feed_loses_are_read() {
    let mut cluster = Cluster::of(2);
    // In the first round nothing follows the lost entry; in the second, another entry does.
    for (ticket, next) in [(1, None), (2, Some(3))] {
        let before = cluster.commands(1);
        cluster.nodes[1].is_cut = true;
        cluster.ask(0, disconnect(ticket));
        cluster.nodes[1].is_cut = false;
        assert_eq!(cluster.commands(1), before);
        match next {
            None => cluster.pass(LEASE_RENEWAL_MS),
            Some(next) => cluster.ask(0, disconnect(next)),
        }
        let expected = before + 1 + usize::from(next.is_some());
        assert_eq!(cluster.commands(1), expected, "{ticket}");
    }
}

#[test]
fn an_append_without_an_answer_is_repeated_and_carried_out_once() {
    let mut cluster = Cluster::of(2);
    cluster.is_unsure = true;
    cluster.ask(0, disconnect(1));
    cluster.ask(0, disconnect(2));
    cluster.is_unsure = false;
    cluster.pass(2 * LEASE_RENEWAL_MS);
    assert_eq!(cluster.stream.len(), 4);
    assert_eq!(cluster.commands(1), 2);
    assert_eq!(cluster.commands(0), 2);
}

#[test]
fn a_command_that_comes_behind_a_later_one_is_carried_out() {
    let mut commands = NodeCommands::default();
    let source = NodeId(4);
    for (sequence, is_new) in [
        (3, true),
        (5, true),
        (4, true),
        (5, false),
        (3, false),
        (7, true),
        (6, true),
        (7, false),
        (u64::MAX, true),
        (u64::MAX, false),
    ] {
        assert_eq!(commands.is_new(source, sequence), is_new, "{sequence}");
    }
}

#[test]
fn a_new_node_has_the_blocks_that_are_in_force() {
    let mut cluster = Cluster::of(1);
    cluster.ask(0, ban("boris", 1));
    cluster.ask(0, ban("carla", 2));
    cluster.ask(0, allow("boris", 3));
    let number = cluster.join();
    let carla = Ban::User {
        user: "carla".to_owned(),
        until_s: None,
    };
    assert_eq!(bans::in_force(&cluster.nodes[number]), [carla]);
    // The node also executes the end of boris's ban: a restarted node may have saved that ban before its process ended.
    assert!(bans::of(&cluster.nodes[number]).contains(&allowed("boris")));
    assert_eq!(cluster.commands(number), 2);
    assert_eq!(cluster.known(number), HashSet::from([id(0)]));
    assert_eq!(cluster.known(0), HashSet::from([id(number)]));
}

#[test]
fn disagreements_are_reported_once() {
    let mut cluster = Cluster::of(2);
    assert!(cluster.nodes[0].others.is_empty());
    cluster.nodes[1].settings = 8;
    cluster.pass(4 * LEASE_RENEWAL_MS);
    let expected = [Output::Disagree(id(1), Disagreement::Settings)];
    assert_eq!(cluster.nodes[0].others, expected);
    let expected = [Output::Disagree(id(0), Disagreement::Settings)];
    assert_eq!(cluster.nodes[1].others, expected);
    let (_, peer) = cluster.nodes[0].node.peers().next().expect("one");
    assert_eq!(peer.disagreement, Some(Disagreement::Settings));
    cluster.nodes[1].settings = 7;
    cluster.pass(LEASE_RENEWAL_MS);
    let (_, peer) = cluster.nodes[0].node.peers().next().expect("one");
    assert_eq!(peer.disagreement, None);
}

#[test]
fn foreign_and_misplaced_messages_are_counted_and_ignored() {
    let mut cluster = Cluster::of(2);
    let mut numbers = Sequencer::new(NodeId(77));
    let command = numbers.wrap(disconnect(1), 0).encode().expect("short");
    let leave = numbers.wrap(NodeMessage::Leave, 0).encode().expect("short");
    let before = cluster.nodes[0].performed.len();
    cluster.post(0, Event::Received(Bytes::from_static(b"hello")));
    cluster.post(0, Event::Received(command.into()));
    let top = cluster.top;
    for (offset, bytes) in [b"hello".to_vec(), leave].into_iter().enumerate() {
        let offset = top + offset as u64;
        let position = cluster.position(offset + 1);
        cluster.post(
            0,
            Event::Control {
                position,
                before: offset,
                bytes: bytes.into(),
            },
        );
    }
    cluster.run();
    assert_eq!(cluster.nodes[0].performed.len(), before);
    let ignored = cluster.nodes[0].node.counts().ignored;
    assert_eq!(ignored.foreign, 4);
}

#[test]
fn requests_of_other_nodes_are_forgotten() {
    let mut cluster = Cluster::of(2);
    cluster.is_idle = true;
    for ticket in 0..TASKS_MAX as u32 + 10 {
        cluster.nodes[1].node.ask(status(ticket), None);
    }
    cluster.run();
    assert_eq!(cluster.nodes[0].node.tasks.len(), TASKS_MAX);
    let before = cluster.commands(0);
    cluster.ask(1, disconnect(1));
    assert_eq!(cluster.commands(0), before + 1, "commands have room");
    cluster.pass(ANSWER_MS + 500);
    assert_eq!(cluster.nodes[0].node.tasks.len(), 0);
}
