//! A node's part in the cluster: its state machine, its port, and the bans in force on it.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use fastrand::Rng;
use veche_hub::{Caller, ConnectionId, Epoch, Ticket, WorkerId};
use veche_nodes::engine::peer::{Event, LEASE_RENEWAL_MS, Order};
use veche_nodes::node::{AnswerCoverage, BLOCKS, Node, Output, Part};
use veche_nodes::{Announcement, Ban, BanRequest, Envelope, NodeAnswer, NodeId, NodeMessage};

use super::link::Link;
use super::store::Server;

/// The worker number to which the parts of the node's answers are addressed.
const NODE_WORKER: WorkerId = WorkerId(1);

/// An event for the node `to`, or for all nodes if `to` is `None`.
#[derive(Clone, Debug)]
pub(super) struct ControlMessage {
    pub(super) to: Option<NodeId>,
    pub(super) event: Event,
}

/// A node's part in the cluster: its state machine, its port, and the bans in force on it.
pub(super) struct NodeControl {
    node: Node,
    pub(super) link: Link<Order, Event>,
    /// The server to which the connection of its feed leads.
    pub(super) server: Option<u32>,
    pub(super) items: VecDeque<Event>,
    /// Bans in force on the node; they outlive its process.
    pub(super) bans: BTreeSet<u32>,
    /// Bans that were in the control stream when the connection to the server was established. The node may not
    /// serve without them.
    pub(super) due: BTreeSet<u32>,
    /// The answers to this node's bans: the number of the ban, and the nodes that the answer
    /// covers.
    pub(super) answers: Vec<(u32, AnswerCoverage)>,
    /// The source of random epochs for the control streams that the node begins.
    random: Rng,
    text: Bytes,
    renew_at_ms: u64,
}

impl NodeControl {
    pub(super) fn new(id: NodeId, bans: BTreeSet<u32>, now_ms: u64) -> Self {
        let own = Announcement {
            name: id.0.to_string().into(),
            ..Announcement::default()
        };
        Self {
            node: Node::new(id, own, 1, NODE_WORKER, now_ms),
            link: Link::default(),
            server: None,
            items: VecDeque::new(),
            bans,
            due: BTreeSet::new(),
            answers: Vec::new(),
            random: Rng::with_seed(id.0),
            text: Bytes::new(),
            renew_at_ms: now_ms,
        }
    }

    pub(super) fn id(&self) -> NodeId {
        self.node.id()
    }

    /// Returns whether the node has executed the commands of all other nodes, as far as it knows.
    pub(super) fn is_current(&self) -> bool {
        self.node.is_current()
    }

    /// Bans a user, on behalf of a caller of the API.
    pub(super) fn ban(&mut self, number: u32) {
        self.bans.insert(number);
        let caller = Caller {
            worker: WorkerId(0),
            session: ConnectionId {
                index: number,
                generation: 0,
            },
            ticket: Ticket(number),
        };
        let block = ban(number);
        let caller = Some(caller);
        self.node
            .ask(NodeMessage::Block(BanRequest { block, caller }), None);
        self.end_turn();
    }

    pub(super) fn handle(&mut self, event: Event) {
        self.node.handle_event(event);
        self.end_turn();
    }

    pub(super) fn set_now(&mut self, now_ms: u64) {
        self.node.set_now(now_ms);
        self.node.handle_timeout();
        self.end_turn();
    }

    /// Renews the node's lease if that is due. In production the port renews it.
    pub(super) fn renew(&mut self, server: &mut Server, now_ms: u64) {
        if now_ms >= self.renew_at_ms {
            self.renew_at_ms = now_ms + LEASE_RENEWAL_MS;
            server.state.renew(self.id(), self.text.clone(), now_ms);
        }
    }

    /// Cuts the connection over which the node sends commands.
    pub(super) fn lose_link(&mut self) {
        if self.link.server.is_some() {
            self.link.lose();
            self.handle(Event::Down);
        }
    }

    /// Establishes the node's connection for commands to the server.
    pub(super) fn connected(&mut self, number: u32, server: &mut Server) {
        let found = server.verify(&mut self.link.known);
        self.link.server = Some(number);
        self.due.clone_from(&server.state.bans);
        self.handle(Event::Up(found));
    }

    /// Loses the connection of the feed, and all messages in flight on it.
    pub(super) fn lose_feed(&mut self) {
        self.server = None;
        self.items.clear();
    }

    /// Makes the server execute the next order. Returns the message that the server publishes for the order, if any.
    pub(super) fn serve(&mut self, server: &mut Server, now_ms: u64) -> Option<ControlMessage> {
        let order = self.link.orders.pop_front()?;
        let (id, state) = (self.id(), &mut server.state);
        let epoch = Epoch::from_bits(self.random.u64(..));
        let answer = match order {
            Order::Send { to, bytes } => {
                let event = Event::Received(bytes);
                return Some(ControlMessage { to, event });
            }
            Order::Append { ticket, bytes } => {
                if let Ok(Envelope {
                    message: NodeMessage::Block(command),
                    ..
                }) = Envelope::decode(&bytes)
                    && let Some(number) = number_of(&command.block)
                {
                    state.banned(number);
                }
                let (position, before) = state.append(epoch, bytes.clone());
                let position = Some(position);
                self.link
                    .answers
                    .push_back(Event::Appended { ticket, position });
                let position = position?;
                let event = Event::Control {
                    position,
                    before,
                    bytes,
                };
                return Some(ControlMessage { to: None, event });
            }
            Order::ReadControl { ticket, since } => {
                let stream = Some(state.read_control(epoch, since));
                Event::ControlRead { ticket, stream }
            }
            Order::Announce(_) => {
                state.renew(id, self.text.clone(), now_ms);
                return None;
            }
            Order::Leave => {
                state.end_lease(id);
                return None;
            }
            Order::ReadLeases { ticket } => {
                let nodes = Some(state.leases(now_ms));
                Event::Leases { ticket, nodes }
            }
            Order::Store {
                ticket,
                name,
                value,
                ..
            } => {
                state.store(name, value);
                let is_stored = true;
                Event::Stored { ticket, is_stored }
            }
            Order::ReadTable { ticket, table } => {
                debug_assert_eq!(&*table, BLOCKS);
                let values = state.table().clone().into_iter().collect();
                let values = Some(values);
                Event::Table { ticket, values }
            }
        };
        self.link.answers.push_back(answer);
        None
    }

    fn end_turn(&mut self) {
        while let Some(output) = self.node.poll() {
            match output {
                Output::Order(order) => self.order(order),
                Output::Perform(NodeMessage::Block(command)) => {
                    self.bans.extend(number_of(&command.block));
                    if let Some(caller) = command.caller {
                        let answer = Part::Answer(NodeAnswer::Blocked(Ok(())));
                        self.node.handle_part(caller, answer);
                    }
                }
                Output::Answer(caller, _, coverage) => {
                    self.answers.push((caller.ticket.0, coverage));
                }
                Output::Announce => {
                    let own = self.node.announced().clone();
                    self.node.announce(own);
                }
                Output::StoreBlocks => {
                    self.node.restore_blocks(self.bans.iter().copied().map(ban));
                }
                Output::Perform(_) | Output::Lost | Output::Disagree(..) => {}
            }
        }
    }

    fn order(&mut self, order: Order) {
        if let Order::Announce(text) = &order {
            self.text = text.clone();
        }
        if self.link.server.is_some() {
            self.link.orders.push_back(order);
        }
    }
}

fn ban(number: u32) -> Ban {
    Ban::User {
        user: number.to_string(),
        until_s: None,
    }
}

fn number_of(ban: &Ban) -> Option<u32> {
    match ban {
        Ban::User { user, .. } => user.parse().ok(),
        _ => None,
    }
}
