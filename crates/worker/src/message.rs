//! Messages between workers: plain values on ordered lanes, with flow control by credits for data messages.

use std::sync::Arc;

use veche_frontends::{EmulationRequest, ListConnections, list_connections};
use veche_hub::{Caller, HubMessage, HubMessageClass, Outlet as _};
use veche_nodes::{BanRequest, NodeId};
use veche_types::WorkerId;

use crate::apps::AppHost;
use crate::worker::Worker;

/// A message from one worker to another.
#[derive(Debug)]
pub enum WorkerMessage<M> {
    /// A message for the receiver's hub.
    Hub(HubMessage),
    /// A message for an application on the receiving worker, from the same application on the sending worker.
    App(M),
    /// Commands that a client has sent in a separate request. They belong to the client's streaming response (an HTTP
    /// fallback transport), whose connection is on the receiving worker.
    Relay(EmulationRequest),
    /// A request to list connections.
    ListConnections(Arc<ListConnections>),
    /// Commands that a client has sent in a separate request. They belong to the client's streaming response, whose
    /// connection is on another node. Sent on the lane to the cluster.
    RelayTo(NodeId, EmulationRequest),
    /// A ban for all nodes. Sent on the lane to the cluster.
    Block(BanRequest),
}

impl<M> WorkerMessage<M> {
    /// Returns whether the message uses a credit of its lane until the receiver has processed it.
    #[must_use]
    pub fn is_data(&self) -> bool {
        match self {
            Self::Hub(mail) => mail.class() != HubMessageClass::Control,
            Self::App(_) | Self::Relay(_) | Self::RelayTo(..) => true,
            Self::ListConnections(_) | Self::Block(_) => false,
        }
    }
}

/// An outgoing message with its destination.
#[derive(Debug)]
pub struct OutgoingMail<M> {
    /// Index of the receiving worker.
    pub to: usize,
    /// The content of the message.
    pub message: WorkerMessage<M>,
}

impl<A: AppHost, T> Worker<A, T> {
    /// Sets the number of data messages sent to worker `to` that it has not processed yet. Must be called for each
    /// worker before the first [`handle_message`](Self::handle_message) of a turn and after the last
    /// [`poll_message`](Self::poll_message).
    #[inline]
    pub fn handle_credits(&mut self, to: usize, unfinished: u32) {
        self.shared.requests.mailer.lanes[to].unfinished = unfinished;
    }

    /// Returns whether this turn can handle another message. If not, further messages wait for the next turn.
    #[must_use]
    #[inline]
    pub fn wants_message(&self) -> bool {
        self.messages < self.limits.messages
    }

    /// Handles a message from another worker. Replies in the message reach their sessions before the next message is
    /// handled, so a subscriber receives the reply to its subscription before the publications that follow it.
    pub fn handle_message(&mut self, from: usize, message: WorkerMessage<A::Message>) {
        self.messages += 1;
        match message {
            WorkerMessage::Hub(mail) => {
                let from = WorkerId(from as u16);
                self.shared
                    .hub
                    .receive(from, mail, &mut self.shared.requests);
                self.deliver_answers();
            }
            WorkerMessage::App(message) => {
                self.with_apps(|apps, shared| apps.handle_message(message, shared));
                self.shared.requests.mailer.lanes[from].finished += 1;
            }
            WorkerMessage::Relay(relay) => {
                self.deliver_relay(&relay);
                self.shared.requests.mailer.lanes[from].finished += 1;
            }
            WorkerMessage::ListConnections(list_request) => self.answer_list_request(&list_request),
            // These messages are sent only on the lane to the cluster, so no worker receives them.
            WorkerMessage::RelayTo(..) | WorkerMessage::Block(_) => {}
        }
    }

    /// Takes the number of data messages from worker `of` that this worker has processed in this turn. The driver
    /// returns that many credits.
    #[inline]
    pub fn poll_finished(&mut self, of: usize) -> u32 {
        std::mem::take(&mut self.shared.requests.mailer.lanes[of].finished)
    }

    /// Takes the next message for another worker. Must be called after [`finish_turn`](Self::finish_turn) until it
    /// returns `None`. Messages to the same worker must be sent in the order in which they are returned.
    #[inline]
    pub fn poll_message(&mut self) -> Option<OutgoingMail<A::Message>> {
        if !self.shared.requests.blocks.is_empty() {
            self.hand_out_blocks();
        }
        if let Some(outgoing) = self.outgoing.pop_front() {
            return Some(outgoing);
        }
        let lanes = self.shared.requests.mailer.lanes.len();
        while self.next_lane < lanes {
            let lane = &mut self.shared.requests.mailer.lanes[self.next_lane];
            if let Some(mail) = lane.outgoing.pop_front() {
                let is_data = u32::from(mail.class() != HubMessageClass::Control);
                lane.outgoing_data -= is_data;
                lane.unfinished += is_data;
                return Some(OutgoingMail {
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

    /// Takes back a message that did not fit into its lane. The next turn returns this message first, and then polls
    /// all lanes again from the first one on, so that no lane is starved.
    pub fn put_back(&mut self, outgoing: OutgoingMail<A::Message>) {
        self.outgoing.push_front(outgoing);
        (self.next_lane, self.next_relay) = (0, 0);
        self.is_busy = true;
    }

    /// Takes a message of an application. Applications may use only a part of a lane's credits, so that they can't
    /// block the hub.
    fn poll_app_message(&mut self) -> Option<OutgoingMail<A::Message>> {
        if !self.apps().is_some_and(AppHost::has_messages) {
            return None;
        }
        let credits = self.limits.app_credits;
        (0..self.shared.requests.mailer.lanes.len()).find_map(|to| {
            if self.shared.requests.mailer.lanes[to].unfinished >= credits {
                return None;
            }
            let message = self.apps_mut()?.next_message(to)?;
            self.shared.requests.mailer.lanes[to].unfinished += 1;
            Some(OutgoingMail {
                to,
                message: WorkerMessage::App(message),
            })
        })
    }

    /// Takes the first relay whose lane has credit, beginning at index `next_relay`. So relays on the same lane keep
    /// their order.
    fn poll_relay(&mut self) -> Option<OutgoingMail<A::Message>> {
        let (me, credits) = (self.index(), self.limits.app_credits);
        let nodes = self.shared.requests.nodes;
        let (relays, lanes) = (
            &mut self.shared.requests.relays,
            &mut self.shared.requests.mailer.lanes,
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
            // A client can forge the address in a relay; a relay to a worker that does not exist is dropped.
            if is_known {
                lanes[to].unfinished += 1;
                let message = WorkerMessage::Relay(relay);
                return Some(OutgoingMail { to, message });
            }
        }
        None
    }

    /// Takes commands of a client whose streaming response is on another node. They are sent on the lane to the cluster.
    fn poll_for_nodes(&mut self) -> Option<OutgoingMail<A::Message>> {
        let ports = &mut self.shared.requests;
        let to = usize::from(ports.nodes?.0);
        let lane = ports.mailer.lanes.get_mut(to)?;
        if lane.unfinished >= self.limits.app_credits {
            return None;
        }
        let (node, relay) = ports.far_relays.pop_front()?;
        lane.unfinished += 1;
        let message = WorkerMessage::RelayTo(node, relay);
        Some(OutgoingMail { to, message })
    }

    /// Passes bans to the cluster, before the user commands that the bans cause.
    fn hand_out_blocks(&mut self) {
        let ports = &mut self.shared.requests;
        let Some(nodes) = ports.nodes else {
            return;
        };
        while let Some(command) = ports.blocks.pop_front() {
            self.outgoing.push_back(OutgoingMail {
                to: nodes.0.into(),
                message: WorkerMessage::Block(command),
            });
        }
    }

    /// Sends the requests for lists of connections to all workers, or to the cluster if this node is part of one.
    pub(crate) fn send_list_requests(&mut self) {
        if self.shared.requests.list_requests.is_empty() {
            return;
        }
        for list_request in std::mem::take(&mut self.shared.requests.list_requests) {
            let list_request = Arc::new(list_request);
            if let Some(nodes) = self.shared.requests.nodes {
                let message = WorkerMessage::ListConnections(list_request);
                let to = nodes.0.into();
                self.outgoing.push_back(OutgoingMail { to, message });
                continue;
            }
            for to in 0..self.shared.requests.mailer.lanes.len() {
                if to != self.index() {
                    let message = WorkerMessage::ListConnections(Arc::clone(&list_request));
                    self.outgoing.push_back(OutgoingMail { to, message });
                }
            }
            self.answer_list_request(&list_request);
        }
    }

    fn answer_list_request(&mut self, list_request: &ListConnections) {
        let slab = &self.slab;
        let answer = list_connections(list_request, &self.shared, |id| {
            slab.get(id).map(|entry| &entry.connection)
        });
        let Caller {
            worker,
            session,
            ticket,
        } = list_request.caller;
        let ports = &mut self.shared.requests;
        if worker == self.id {
            return ports.send_reply(session, ticket, answer);
        }
        let mail = HubMessage::Answer {
            session,
            ticket,
            answer,
        };
        ports.send_message(worker, mail);
    }

    /// Delivers relayed client commands whose streaming response is on this worker.
    pub(crate) fn deliver_relays(&mut self) {
        for _ in 0..self.shared.requests.relays.len() {
            let Some(relay) = self.shared.requests.relays.pop_front() else {
                return;
            };
            match relay.to.worker == self.id {
                true => self.deliver_relay(&relay),
                false => self.shared.requests.relays.push_back(relay),
            }
        }
    }

    fn deliver_relay(&mut self, relay: &EmulationRequest) {
        let id = relay.to.session;
        self.with(id, |connection, shared| {
            connection.handle_relay(id, relay, shared);
        });
    }
}
