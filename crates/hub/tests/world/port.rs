//! The outlet of a worker. The outlet also updates the model.

use std::collections::BTreeMap;

use std::sync::Arc;

use veche_hub::{Caller, Delivery, Outlet, UserAction, UserCommand};

use super::{
    Class2, ConnectionId, HubMessage, HubMessageClass, HubReply, Lanes, Member, Ticket, Wires,
    WorkerId,
};

pub(crate) struct Port<'w> {
    pub(crate) me: WorkerId,
    pub(crate) wires: &'w mut Wires,
}

impl Wires {
    pub(crate) fn new(setup: Lanes) -> Self {
        Self {
            setup,
            lanes: BTreeMap::new(),
            taken: BTreeMap::new(),
            returning: Vec::new(),
            orders: BTreeMap::new(),
            lives: BTreeMap::new(),
            current: BTreeMap::new(),
            sources: BTreeMap::new(),
            published: BTreeMap::new(),
            answered: None,
            disconnected: Vec::new(),
            disconnects: BTreeMap::new(),
            settling: Vec::new(),
            settled: BTreeMap::new(),
            epochs: BTreeMap::new(),
            previous: 0,
        }
    }

    /// Records that a home has accepted a publication.
    pub(crate) fn order(&mut self, channel: &str, number: u64) {
        self.orders
            .entry(channel.to_owned())
            .or_default()
            .push(number);
    }

    /// Records that a home has accepted the publication with this ticket, unless that was recorded before.
    fn take_in(&mut self, ticket: Ticket) {
        let published = self.published.get_mut(&ticket).expect("it was published");
        let (channel, number, is_taken) = published;
        if !std::mem::replace(is_taken, true) {
            let (channel, number) = (channel.clone(), *number);
            self.order(&channel, number);
        }
    }

    /// Ends the current subscription of a member. Returns `false` if there is none.
    pub(crate) fn leave(&mut self, member: &Member) -> bool {
        let Some(ticket) = self.current.remove(member) else {
            return false;
        };
        self.lives
            .get_mut(&ticket)
            .expect("members have a life")
            .ended = true;
        true
    }

    /// Records that the home has registered a subscription.
    fn register(&mut self, ticket: Ticket) {
        let life = self.lives.get_mut(&ticket).expect("a ticket of ours");
        let order = self.orders.get(&life.member.2);
        let since = life.since.replace(order.map_or(0, Vec::len));
        assert_eq!(since, None, "registered once");
    }
}

fn key(class: HubMessageClass) -> Class2 {
    match class {
        HubMessageClass::Publish => 0,
        HubMessageClass::Deliver => 1,
        HubMessageClass::Control => panic!("control mail takes no credit"),
    }
}

impl Outlet for Port<'_> {
    fn send_message(&mut self, to: WorkerId, mail: HubMessage) {
        assert_ne!(to, self.me, "a worker writes no mail to itself");
        if mail.class() != HubMessageClass::Control {
            assert!(self.has_credit(to, mail.class()), "sent without credit");
            *self
                .wires
                .taken
                .entry((self.me, to, key(mail.class())))
                .or_default() += 1;
        }
        match &mail {
            HubMessage::Subscribed { ticket, .. } => self.wires.register(*ticket),
            HubMessage::Answer {
                ticket,
                answer: HubReply::Published(_),
                ..
            } => {
                self.wires.take_in(*ticket);
            }
            _ => {}
        }
        self.wires
            .lanes
            .entry((self.me, to))
            .or_default()
            .push_back(mail);
    }

    fn has_credit(&self, to: WorkerId, class: HubMessageClass) -> bool {
        let taken = |class| {
            self.wires
                .taken
                .get(&(self.me, to, class))
                .copied()
                .unwrap_or(0)
        };
        match self.wires.setup {
            Lanes::Apart { credits } => taken(key(class)) < credits,
            Lanes::Shared { credits } => {
                let free = credits - taken(0) - taken(1);
                free > if class == HubMessageClass::Publish {
                    credits / 2
                } else {
                    0
                }
            }
        }
    }

    fn return_credit(&mut self, from: WorkerId, class: HubMessageClass) {
        self.wires.returning.push((from, self.me, key(class)));
    }

    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        let number = delivery.payload.bytes.try_into().expect("eight bytes");
        let number = u64::from_le_bytes(number);
        let member = (self.me, session, delivery.channel.to_owned());
        let ticket = self
            .wires
            .current
            .get(&member)
            .expect("delivered to a member");
        let life = self
            .wires
            .lives
            .get_mut(ticket)
            .expect("members have a life");
        assert!(life.answered, "delivered before the answer");
        // If the receiver received the preceding publication, the delivery must carry the same
        // payload for it.
        if let Some(previous) = delivery.previous
            && let (Some(Some(last)), Some(here)) = (life.positions.last(), delivery.position)
            && last.offset + 1 == here.offset
        {
            let last = life.received.last().expect("it has a position");
            assert_eq!(previous.bytes, last.to_le_bytes());
            self.wires.previous += 1;
        }
        life.received.push(number);
        life.positions.push(delivery.position);
    }

    fn send_reply(&mut self, session: ConnectionId, ticket: Ticket, answer: HubReply) {
        match answer {
            HubReply::Subscribed(joined) => {
                if self.wires.lives[&ticket].since.is_none() {
                    // The home is on this worker, so no message has told the model that the home
                    // registered the subscription.
                    self.wires.register(ticket);
                }
                let life = self.wires.lives.get_mut(&ticket).expect("a ticket of ours");
                assert_eq!((life.member.0, life.member.1), (self.me, session));
                assert!(
                    !life.answered && !life.ended,
                    "answered once, and only while it lasts"
                );
                life.answered = true;
                if let Some(joined) = &joined {
                    let epoch = joined.position.epoch;
                    let channel = life.member.2.clone();
                    let known = self.wires.epochs.entry(channel).or_insert(epoch);
                    assert_eq!(*known, epoch, "no stream is lost here");
                }
                life.joined = joined;
            }
            HubReply::Published(published) => {
                // The home is on this worker, so no message has told the model that the home accepted the publication.
                self.wires.take_in(ticket);
                assert!(
                    self.wires.published.remove(&ticket).is_some(),
                    "answered once"
                );
                self.wires.answered = Some(published);
            }
            HubReply::CommandDispatched(instructed) => {
                assert_eq!(self.wires.disconnects.insert(ticket, instructed), None);
            }
            HubReply::CommandAcknowledged => *self.wires.settled.entry(ticket).or_default() += 1,
            other => unreachable!("no such query is made: {other:?}"),
        }
    }

    fn execute_command(&mut self, session: ConnectionId, instruction: &Arc<UserCommand>) {
        let disconnect = UserAction::Disconnect {
            code: 3000,
            reason: Arc::from("begone"),
        };
        assert!(instruction.applies_to_all() && instruction.action == disconnect);
        self.wires.disconnected.push((self.me, session));
    }

    fn command_dispatched(&mut self, caller: Caller, instruction: &Arc<UserCommand>) {
        let entry = (self.me, caller, Arc::clone(instruction));
        self.wires.settling.push(entry);
    }
}
