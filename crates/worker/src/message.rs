//! Messages between workers: plain values on ordered lanes with credit-based flow control for data.

use std::sync::Arc;

use veche_frontends::{Census, Relay, list_connections};
use veche_hub::{Caller, Class, Mail, Outlet as _};
use veche_nodes::{BlockCommand, NodeId};
use veche_types::WorkerId;

use crate::apps::AppHost;
use crate::worker::Worker;

/// A message from one worker to another.
#[derive(Debug)]
pub enum WorkerMessage<M> {
    /// Mail for the receiver's hub.
    Hub(Mail),
    /// A message for the receiver's applications, from the same applications of the sender.
    App(M),
    /// Client commands for a streaming response of the receiver (HTTP fallback transports).
    Relay(Relay),
    /// A request to list connections.
    Census(Arc<Census>),
    /// Client commands for a response of another node, to the cluster.
    RelayTo(NodeId, Relay),
    /// A block for all nodes, to the cluster.
    Block(BlockCommand),
}

impl<M> WorkerMessage<M> {
    /// Returns whether the message uses a credit of its lane until the receiver has processed it.
    #[must_use]
    pub fn is_data(&self) -> bool {
        match self {
            Self::Hub(mail) => mail.class() != Class::Control,
            Self::App(_) | Self::Relay(_) | Self::RelayTo(..) => true,
            Self::Census(_) | Self::Block(_) => false,
        }
    }
}

/// An outgoing message with its destination.
#[derive(Debug)]
pub struct Outgoing<M> {
    /// Index of the receiving worker.
    pub to: usize,
    /// The content of the message.
    pub message: WorkerMessage<M>,
}

impl<A: AppHost, T> Worker<A, T> {
    /// Sets the number of data messages to a worker that it has not processed yet. To be called for each worker before
    /// the first [`handle_message`](Self::handle_message) of a turn and after the last
    /// [`poll_message`](Self::poll_message).
    #[inline]
    pub fn handle_credits(&mut self, to: usize, unfinished: u32) {
        self.shared.ports.post.lanes[to].unfinished = unfinished;
    }

    /// Returns whether this turn accepts another message; further ones wait for the next turn.
    #[must_use]
    #[inline]
    pub fn wants_message(&self) -> bool {
        self.messages < self.limits.messages
    }

    /// Handles a message of another worker. Answers in it reach their sessions before the next message is handled, so a
    /// subscriber receives the answer to its subscription before publications that follow it.
    pub fn handle_message(&mut self, from: usize, message: WorkerMessage<A::Message>) {
        self.messages += 1;
        match message {
            WorkerMessage::Hub(mail) => {
                let from = WorkerId(from as u16);
                self.shared.hub.receive(from, mail, &mut self.shared.ports);
                self.hand_out_answers();
            }
            WorkerMessage::App(message) => {
                self.with_apps(|apps, shared| apps.receive(message, shared));
                self.shared.ports.post.lanes[from].finished += 1;
            }
            WorkerMessage::Relay(relay) => {
                self.relay(&relay);
                self.shared.ports.post.lanes[from].finished += 1;
            }
            WorkerMessage::Census(census) => self.answer_census(&census),
            // These are for the cluster, which is no worker.
            WorkerMessage::RelayTo(..) | WorkerMessage::Block(_) => {}
        }
    }

    /// Takes the number of a worker's data messages processed in this turn, which are credits to return.
    #[inline]
    pub fn poll_finished(&mut self, of: usize) -> u32 {
        std::mem::take(&mut self.shared.ports.post.lanes[of].finished)
    }

    /// Takes the next message for another worker. To be called after [`finish_turn`](Self::finish_turn) until it
    /// returns `None`; messages to one worker must be sent in this order.
    #[inline]
    pub fn poll_message(&mut self) -> Option<Outgoing<A::Message>> {
        if !self.shared.ports.blocks.is_empty() {
            self.hand_out_blocks();
        }
        if let Some(outgoing) = self.outgoing.pop_front() {
            return Some(outgoing);
        }
        let lanes = self.shared.ports.post.lanes.len();
        while self.next_lane < lanes {
            let lane = &mut self.shared.ports.post.lanes[self.next_lane];
            if let Some(mail) = lane.outgoing.pop_front() {
                let is_data = u32::from(mail.class() != Class::Control);
                lane.outgoing_data -= is_data;
                lane.unfinished += is_data;
                return Some(Outgoing {
                    to: self.next_lane,
                    message: WorkerMessage::Hub(mail),
                });
            }
            self.next_lane += 1;
        }
        let outgoing = self.poll_app_message().or_else(|| self.poll_relay());
        let outgoing = outgoing.or_else(|| self.poll_for_nodes());
        if outgoing.is_none() {
            (self.next_lane, self.next_relay) = (0, 0);
        }
        outgoing
    }

    /// Takes back a message that did not fit in its lane. It is the first of the next turn, which visits the lanes from
    /// the beginning, so that none is starved.
    pub fn put_back(&mut self, outgoing: Outgoing<A::Message>) {
        self.outgoing.push_front(outgoing);
        (self.next_lane, self.next_relay) = (0, 0);
        self.is_busy = true;
    }

    /// Takes an application message; applications may use only a part of the credits, so that they do not block the
    /// hub.
    fn poll_app_message(&mut self) -> Option<Outgoing<A::Message>> {
        if !self.apps().is_some_and(AppHost::has_messages) {
            return None;
        }
        let credits = self.limits.app_credits;
        (0..self.shared.ports.post.lanes.len()).find_map(|to| {
            if self.shared.ports.post.lanes[to].unfinished >= credits {
                return None;
            }
            let message = self.apps_mut()?.next_message(to)?;
            self.shared.ports.post.lanes[to].unfinished += 1;
            Some(Outgoing {
                to,
                message: WorkerMessage::App(message),
            })
        })
    }

    /// Takes the first relay from `next_relay` on whose lane has room, which preserves the order within each lane.
    fn poll_relay(&mut self) -> Option<Outgoing<A::Message>> {
        let (me, credits) = (self.index(), self.limits.app_credits);
        let nodes = self.shared.ports.nodes;
        let (relays, lanes) = (
            &mut self.shared.ports.relays,
            &mut self.shared.ports.post.lanes,
        );
        while let Some(relay) = relays.get(self.next_relay) {
            let to = usize::from(relay.to.worker.0);
            let is_worker = nodes.is_none_or(|nodes| to != usize::from(nodes.0));
            let is_known = to < lanes.len() && to != me && is_worker;
            if is_known && lanes[to].unfinished >= credits {
                self.next_relay += 1;
                continue;
            }
            let relay = relays.remove(self.next_relay)?;
            // Clients can forge addresses of workers that do not exist.
            if is_known {
                lanes[to].unfinished += 1;
                let message = WorkerMessage::Relay(relay);
                return Some(Outgoing { to, message });
            }
        }
        None
    }

    /// Takes what is for the cluster and not for the hub of a worker.
    fn poll_for_nodes(&mut self) -> Option<Outgoing<A::Message>> {
        let ports = &mut self.shared.ports;
        let to = usize::from(ports.nodes?.0);
        let lane = ports.post.lanes.get_mut(to)?;
        if lane.unfinished >= self.limits.app_credits {
            return None;
        }
        let (node, relay) = ports.far_relays.pop_front()?;
        lane.unfinished += 1;
        let message = WorkerMessage::RelayTo(node, relay);
        Some(Outgoing { to, message })
    }

    /// Hands blocks to the cluster, before instructions that follow them.
    fn hand_out_blocks(&mut self) {
        let ports = &mut self.shared.ports;
        let Some(nodes) = ports.nodes else {
            return;
        };
        while let Some(command) = ports.blocks.pop_front() {
            self.outgoing.push_back(Outgoing {
                to: nodes.0.into(),
                message: WorkerMessage::Block(command),
            });
        }
    }

    /// Begins what this worker was asked to ask of all.
    pub(crate) fn begin_censuses(&mut self) {
        if self.shared.ports.censuses.is_empty() {
            return;
        }
        for census in std::mem::take(&mut self.shared.ports.censuses) {
            let census = Arc::new(census);
            if let Some(nodes) = self.shared.ports.nodes {
                let message = WorkerMessage::Census(census);
                let to = nodes.0.into();
                self.outgoing.push_back(Outgoing { to, message });
                continue;
            }
            for to in 0..self.shared.ports.post.lanes.len() {
                if to != self.index() {
                    let message = WorkerMessage::Census(Arc::clone(&census));
                    self.outgoing.push_back(Outgoing { to, message });
                }
            }
            self.answer_census(&census);
        }
    }

    fn answer_census(&mut self, census: &Census) {
        let slab = &self.slab;
        let answer = list_connections(census, &self.shared, |id| {
            slab.get(id).map(|entry| &entry.connection)
        });
        let Caller {
            worker,
            session,
            ticket,
        } = census.caller;
        let ports = &mut self.shared.ports;
        if worker == self.id {
            return ports.answer(session, ticket, answer);
        }
        let mail = Mail::Answer {
            session,
            ticket,
            answer,
        };
        ports.mail(worker, mail);
    }

    /// Delivers the relays for responses of this worker.
    pub(crate) fn hand_out_relays(&mut self) {
        for _ in 0..self.shared.ports.relays.len() {
            let Some(relay) = self.shared.ports.relays.pop_front() else {
                return;
            };
            match relay.to.worker == self.id {
                true => self.relay(&relay),
                false => self.shared.ports.relays.push_back(relay),
            }
        }
    }

    fn relay(&mut self, relay: &Relay) {
        let id = relay.to.session;
        self.with(id, |connection, shared| {
            connection.relayed(id, relay, shared);
        });
    }
}
