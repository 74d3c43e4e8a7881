//! Subscriptions not requested by clients: those of applications and back ends.

use std::sync::Arc;

use veche_hub::{
    Answer, ChannelName, ConnectionId, Joined, Outcome, Subscribe, SubscribeOptions, Ticket,
};

use crate::context::note::NoteLevel;
use crate::context::shared::Shared;

/// The result of a subscription for a back end.
pub(crate) enum Enrolled {
    /// The channel's home is on this worker and has answered.
    Now(Answer),
    /// The answer follows with the ticket.
    Later,
    /// The session is not subscribed.
    Not,
}

impl Shared {
    /// Sends a client its position after an application subscribed it, if its route has positions, with the missed
    /// publications. Returns whether recovery was complete; `None` without recovery. `is_back`: the client had a
    /// position.
    pub fn tell_joined(
        &mut self,
        session: ConnectionId,
        channel: &str,
        joined: Option<&Joined>,
        is_back: bool,
    ) -> Option<bool> {
        let outboxes = &mut self.ports.outboxes;
        if !outboxes.tells_positions(session) {
            return is_back.then_some(false);
        }
        let Some(joined) = joined else {
            let recovered = is_back.then_some(false);
            outboxes.subscribed(session, channel, None, recovered);
            return recovered;
        };
        let is_whole = outboxes.joined(session, channel, joined);
        joined.recovered.as_ref()?;
        self.stats.recovery(is_whole);
        Some(is_whole)
    }

    /// Subscribes a session for a back end, if its protocol has no subscriptions of its own.
    pub(crate) fn enroll(
        &mut self,
        id: ConnectionId,
        wanted: &Subscribe,
        ticket: Ticket,
    ) -> Enrolled {
        if wanted.expires_at_s.is_some() {
            let why = "not subscribed: only Centrifuge clients' subscriptions can expire";
            self.note(id, NoteLevel::Warn, why);
            return Enrolled::Not;
        }
        let Ok(name) = ChannelName::new(&wanted.channel) else {
            return Enrolled::Not;
        };
        let joining = SubscribeOptions {
            since: wanted.since.map(|since| Arc::from([since])),
            client: (!wanted.is_hidden).then(|| self.member(id, name)).flatten(),
            ..SubscribeOptions::default()
        };
        let (hub, ports) = (&mut self.hub, &mut self.ports);
        match hub.subscribe(id, name, ticket, &joining, ports) {
            Ok(Outcome::Done(joined)) => Enrolled::Now(Answer::Subscribed(joined)),
            Ok(Outcome::Pending) => Enrolled::Later,
            Err(error) => {
                self.note(id, NoteLevel::Info, format!("not subscribed: {error}"));
                Enrolled::Not
            }
        }
    }

    /// Ends a subscription for a back end. Returns whether there was one.
    pub(crate) fn dismiss(&mut self, id: ConnectionId, channel: &str) -> bool {
        ChannelName::new(channel).is_ok_and(|name| self.hub.unsubscribe(id, name, &mut self.ports))
    }
}
