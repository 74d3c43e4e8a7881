//! What a back end has done to a session: it is subscribed, unsubscribed, kept for longer, closed.

use std::sync::Arc;

use veche_hub::{
    Answer, ChannelName, ConnectionId, Deed, Instruction, Subscribe, SubscribeOptions, Ticket,
};

use super::{Session, Socket};
use crate::context::close::INSUFFICIENT_STATE;
use crate::context::members::connection_id;
use crate::context::note::NoteLevel;
use crate::context::shared::Shared;

/// Channels that a back end has subscribed a session to, until their homes have answered.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    open: Vec<(Ticket, Arc<str>)>,
    next: u32,
}

/// Above those of a handshake.
const FIRST_TICKET: u32 = 1 << 16;

impl Socket {
    /// Carries out what a back end wants, if it means this session.
    pub(crate) fn instructed(
        &mut self,
        id: ConnectionId,
        instruction: &Arc<Instruction>,
        shared: &mut Shared,
    ) {
        let is_meant = match &self.session {
            _ if instruction.means_all() => true,
            Session::Centrifuge(session) => session.is_meant(instruction),
            // By the name by which back ends see it.
            _ => {
                let name = connection_id(shared.hub.worker(), id);
                instruction.session.is_none() && instruction.means(&name)
            }
        };
        if !is_meant || self.is_closing() {
            return;
        }
        let is_close = matches!(
            instruction.deed,
            Deed::Disconnect { .. }
                | Deed::Refresh {
                    is_expired: true,
                    ..
                }
        );
        if matches!(self.session, Session::Centrifuge(_)) && !is_close {
            if let Deed::Refresh { expires_at_s, .. } = &instruction.deed {
                self.prolong(*expires_at_s);
            }
            return self.centrifuge_instructed(id, instruction, shared);
        }
        match &instruction.deed {
            Deed::Disconnect { code, reason } => self.close(id, *code, reason, shared),
            Deed::Subscribe(wanted) => self.enroll(id, wanted, shared),
            Deed::Unsubscribe { channel } => self.dismiss(id, channel, shared),
            Deed::Refresh {
                is_expired: true, ..
            } => {
                let (code, reason) = crate::context::close::EXPIRED;
                self.close(id, code, reason, shared);
            }
            Deed::Refresh { expires_at_s, .. } => self.prolong(*expires_at_s),
        }
    }

    /// Publications of a channel were lost for the session, and its client has no other way to know.
    pub(crate) fn lost(&mut self, id: ConnectionId, channel: &str, shared: &mut Shared) {
        if matches!(self.session, Session::Centrifuge(_)) {
            return self.centrifuge_lost(id, channel, shared);
        }
        let (code, reason) = INSUFFICIENT_STATE;
        self.close(id, code, reason, shared);
    }

    fn enroll(&mut self, id: ConnectionId, wanted: &Subscribe, shared: &mut Shared) {
        if !matches!(self.session, Session::Push(_) | Session::App(_)) {
            return;
        }
        if wanted.expires_at_s.is_some() {
            let why = "not subscribed: only Centrifuge clients' subscriptions can expire";
            return shared.note(id, NoteLevel::Warn, why);
        }
        let Ok(name) = ChannelName::new(&wanted.channel) else {
            return;
        };
        let ticket = match &mut self.session {
            Session::Push(joins) => joins.get_or_insert_default().issue(&wanted.channel),
            // Applications know their own tickets, and this one is none of them.
            _ => Ticket(u32::MAX),
        };
        let joining = SubscribeOptions {
            since: wanted.since.map(|since| Arc::from([since])),
            client: (!wanted.is_hidden)
                .then(|| shared.member(id, name))
                .flatten(),
            ..SubscribeOptions::default()
        };
        let (hub, ports) = (&mut shared.hub, &mut shared.ports);
        let answers = ports.answers.len();
        if let Err(error) = hub.subscribe(id, name, ticket, &joining, ports) {
            self.take_join(ticket);
            return shared.note(id, NoteLevel::Info, format!("not subscribed: {error}"));
        }
        // Answered within the call where the home is here; then before anything else is heard.
        if shared.ports.answers.len() > answers
            && let Some((_, ticket, answer)) = shared.ports.answers.pop_back()
        {
            self.enrolled(id, ticket, &answer, shared);
        }
    }

    /// The home has registered what a back end wanted.
    pub(super) fn enrolled(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: &Answer,
        shared: &mut Shared,
    ) {
        let (Some(channel), Answer::Subscribed(joined)) = (self.take_join(ticket), answer) else {
            if *answer == Answer::Failed {
                let why = "not subscribed: the channel is not available now";
                shared.note(id, NoteLevel::Info, why);
            }
            return;
        };
        if !self.has_positions() {
            return;
        }
        let outboxes = &mut shared.ports.outboxes;
        match joined {
            Some(joined) => {
                let is_whole = outboxes.joined(id, &channel, joined);
                if joined.recovered.is_some() {
                    shared.stats.recovery(is_whole);
                }
            }
            None => outboxes.subscribed(id, &channel, None, None),
        }
    }

    fn dismiss(&mut self, id: ConnectionId, channel: &str, shared: &mut Shared) {
        if let Session::Push(Some(joins)) = &mut self.session {
            joins.open.retain(|(_, open)| **open != *channel);
        }
        let Ok(name) = ChannelName::new(channel) else {
            return;
        };
        let was_there = shared.hub.unsubscribe(id, name, &mut shared.ports);
        if was_there && self.has_positions() {
            shared.ports.outboxes.unsubscribed(id, channel);
        }
    }

    fn take_join(&mut self, ticket: Ticket) -> Option<Arc<str>> {
        match &mut self.session {
            Session::Push(Some(joins)) => joins.take(ticket),
            _ => None,
        }
    }

    /// Whether its client is told of places, and of joining and leaving channels.
    fn has_positions(&self) -> bool {
        matches!(&self.side, super::Side::Server(route) if route.has_positions)
            && matches!(self.session, Session::Push(_))
    }
}

impl Joins {
    fn issue(&mut self, channel: &Arc<str>) -> Ticket {
        let ticket = Ticket(FIRST_TICKET | self.next);
        self.next = (self.next + 1) % FIRST_TICKET;
        self.open.push((ticket, Arc::clone(channel)));
        ticket
    }

    fn take(&mut self, ticket: Ticket) -> Option<Arc<str>> {
        let place = self.open.iter().position(|(open, _)| *open == ticket)?;
        Some(self.open.swap_remove(place).1)
    }
}
