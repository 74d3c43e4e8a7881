//! Messages between workers: plain values, carried by lanes that keep their order and give credit for data.

use std::sync::Arc;

use veche_frontends::{EmulationRequest, ListConnections, list_connections};
use veche_hub::{Caller, HubMessage, HubMessageClass, Outlet as _};
use veche_types::WorkerId;

use crate::apps::AppHost;
use crate::worker::Worker;

/// What one worker sends another.
#[derive(Debug)]
pub enum WorkerMessage<M> {
    /// For its hub.
    Hub(HubMessage),
    /// For its applications, of the same applications elsewhere.
    App(M),
    /// Client commands for a response of that worker (HTTP fallback transports).
    Relay(EmulationRequest),
    /// A question for its connections.
    ListConnections(Arc<ListConnections>),
}

impl<M> WorkerMessage<M> {
    /// Returns whether it uses a credit of its lane until its receiver has finished it.
    #[must_use]
    pub fn is_data(&self) -> bool {
        match self {
            Self::Hub(mail) => mail.class() != HubMessageClass::Control,
            Self::App(_) | Self::Relay(_) => true,
            Self::ListConnections(_) => false,
        }
    }
}

/// A message that leaves.
#[derive(Debug)]
pub struct OutgoingMail<M> {
    /// The worker it goes to.
    pub to: usize,
    /// The message itself.
    pub message: WorkerMessage<M>,
}

impl<A: AppHost, T> Worker<A, T> {
    /// Sets how many data messages to a worker are not finished there yet. To be called for each worker before the first
    /// [`handle_message`](Self::handle_message) of a turn, and after the last [`poll_message`](Self::poll_message).
    #[inline]
    pub fn handle_credits(&mut self, to: usize, unfinished: u32) {
        self.shared.requests.mailer.lanes[to].unfinished = unfinished;
    }

    /// Returns whether the turn takes another message: what is left waits for the next one.
    #[must_use]
    #[inline]
    pub fn wants_message(&self) -> bool {
        self.messages < self.limits.messages
    }

    /// Takes a message of another worker. Answers in it reach their sessions before the next message is looked at: a
    /// subscriber gets the answer to its subscription before what it then hears.
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
            WorkerMessage::ListConnections(census) => self.answer_list_request(&census),
        }
    }

    /// Takes how many data messages of a worker were finished in this turn: its credits, to be given back.
    #[inline]
    pub fn poll_finished(&mut self, of: usize) -> u32 {
        std::mem::take(&mut self.shared.requests.mailer.lanes[of].finished)
    }

    /// Takes the next message for another worker. To be called after [`finish_turn`](Self::finish_turn) until it returns
    /// `None`; messages to one worker come in the order in which they have to arrive.
    #[inline]
    pub fn poll_message(&mut self) -> Option<OutgoingMail<A::Message>> {
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
        if outgoing.is_none() {
            (self.next_lane, self.next_relay) = (0, 0);
        }
        outgoing
    }

    /// Takes back a message for which its lane has no room. It comes first next turn, and the lanes are gone through from
    /// the beginning then, so that nothing stays behind.
    pub fn put_back(&mut self, outgoing: OutgoingMail<A::Message>) {
        self.outgoing.push_front(outgoing);
        (self.next_lane, self.next_relay) = (0, 0);
        self.is_busy = true;
    }

    /// Applications use a part of the credits alone, so that they do not hold up the hub; the rest waits.
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

    /// Takes the first relay behind `next_relay` whose lane has room, so that those of one lane keep their order.
    fn poll_relay(&mut self) -> Option<OutgoingMail<A::Message>> {
        let (me, credits) = (self.index(), self.limits.app_credits);
        let (relays, lanes) = (
            &mut self.shared.requests.relays,
            &mut self.shared.requests.mailer.lanes,
        );
        while let Some(relay) = relays.get(self.next_relay) {
            let to = usize::from(relay.to.worker.0);
            let is_known = to < lanes.len() && to != me;
            if is_known && lanes[to].unfinished >= credits {
                self.next_relay += 1;
                continue;
            }
            let relay = relays.remove(self.next_relay)?;
            // Clients can make up addresses of workers that there are not.
            if is_known {
                lanes[to].unfinished += 1;
                let message = WorkerMessage::Relay(relay);
                return Some(OutgoingMail { to, message });
            }
        }
        None
    }

    /// Begins what this worker was asked to ask of all.
    pub(crate) fn send_list_requests(&mut self) {
        if self.shared.requests.list_requests.is_empty() {
            return;
        }
        for census in std::mem::take(&mut self.shared.requests.list_requests) {
            let census = Arc::new(census);
            for to in 0..self.shared.requests.mailer.lanes.len() {
                if to != self.index() {
                    let message = WorkerMessage::ListConnections(Arc::clone(&census));
                    self.outgoing.push_back(OutgoingMail { to, message });
                }
            }
            self.answer_list_request(&census);
        }
    }

    fn answer_list_request(&mut self, census: &ListConnections) {
        let slab = &self.slab;
        let answer = list_connections(census, &self.shared, |id| {
            slab.get(id).map(|entry| &entry.connection)
        });
        let Caller {
            worker,
            session,
            ticket,
        } = census.caller;
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

    /// Hands over the relays whose response is here.
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
