//! Subscriptions that clients have not asked for: by an application, and by a back end.

use std::sync::Arc;

use veche_hub::{
    ChannelName, ConnectionId, HubReply, SubscribeAction, SubscribeOptions, SubscribeOutcome,
    Ticket,
};

use crate::context::log_note::NoteLevel;
use crate::context::worker_context::Context;

/// What became of a subscription for a back end.
pub(crate) enum BackendSubscribe {
    /// The channel's home is here and has answered.
    Done(HubReply),
    /// The answer comes with the ticket.
    Pending,
    /// The session is not subscribed.
    Rejected,
}

impl Context {
    /// Tells a client where an application has subscribed it, where its route tells positions, and gives it what it has
    /// missed. Whether that is all of it; `None` if it has not come back. `is_back`: it was somewhere before.
    pub fn send_subscribed(
        &mut self,
        session: ConnectionId,
        channel: &str,
        joined: Option<&SubscribeOutcome>,
        is_back: bool,
    ) -> Option<bool> {
        let outboxes = &mut self.requests.outboxes;
        if !outboxes.sends_positions(session) {
            return is_back.then_some(false);
        }
        let Some(joined) = joined else {
            let recovered = is_back.then_some(false);
            outboxes.write_subscribed(session, channel, None, recovered);
            return recovered;
        };
        let is_whole = outboxes.write_joined(session, channel, joined);
        joined.recovered.as_ref()?;
        self.stats.recovery(is_whole);
        Some(is_whole)
    }

    /// Subscribes a session to what a back end wants, where its protocol has no subscriptions of its own.
    pub(crate) fn subscribe_by_backend(
        &mut self,
        id: ConnectionId,
        wanted: &SubscribeAction,
        ticket: Ticket,
    ) -> BackendSubscribe {
        if wanted.expires_at_s.is_some() {
            let why = "not subscribed: only Centrifuge clients' subscriptions can expire";
            self.log(id, NoteLevel::Warn, why);
            return BackendSubscribe::Rejected;
        }
        let Ok(name) = ChannelName::new(&wanted.channel) else {
            return BackendSubscribe::Rejected;
        };
        let joining = SubscribeOptions {
            since: wanted.since.map(|since| Arc::from([since])),
            client: (!wanted.is_hidden).then(|| self.member(id, name)).flatten(),
            ..SubscribeOptions::default()
        };
        let answers = self.requests.answers.len();
        if let Err(error) = self
            .hub
            .subscribe(id, name, ticket, &joining, &mut self.requests)
        {
            self.log(id, NoteLevel::Info, format!("not subscribed: {error}"));
            return BackendSubscribe::Rejected;
        }
        // Answered within the call where the home is here; then before anything else is heard.
        match self.requests.answers.len() > answers {
            true => self
                .requests
                .answers
                .pop_back()
                .map_or(BackendSubscribe::Pending, |(.., answer)| {
                    BackendSubscribe::Done(answer)
                }),
            false => BackendSubscribe::Pending,
        }
    }

    /// Ends a subscription for a back end. Returns whether there was one.
    pub(crate) fn unsubscribe_by_backend(&mut self, id: ConnectionId, channel: &str) -> bool {
        ChannelName::new(channel)
            .is_ok_and(|name| self.hub.unsubscribe(id, name, &mut self.requests))
    }
}
