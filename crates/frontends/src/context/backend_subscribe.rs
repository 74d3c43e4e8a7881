//! Subscriptions that applications and back ends request for clients.

use std::sync::Arc;

use veche_hub::{
    ChannelName, ConnectionId, HubReply, RequestOutcome, SubscribeAction, SubscribeOptions,
    SubscribeOutcome, Ticket,
};

use crate::context::log_note::NoteLevel;
use crate::context::worker_context::Context;

/// The result of subscribing a session on behalf of a back end.
pub(crate) enum BackendSubscribe {
    /// The channel's home is on this worker and has answered.
    Done(HubReply),
    /// The channel's home is on another worker; its answer follows with the ticket.
    Pending,
    /// The subscription is not possible; the session is not subscribed.
    Rejected,
}

impl Context {
    /// Notifies a client that an application has subscribed it to a channel, with the client's position and the
    /// publications that it missed. Sends nothing if the client's route has no positions. `is_back` tells whether
    /// the client sent a position to recover from. Returns whether the recovery was complete; `None` if the client
    /// requested no recovery.
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

    /// Subscribes a session on behalf of a back end; only for protocols whose sessions don't handle this command
    /// themselves.
    pub(crate) fn subscribe_by_backend(
        &mut self,
        id: ConnectionId,
        wanted: &SubscribeAction,
        ticket: Ticket,
    ) -> BackendSubscribe {
        if wanted.expires_at_s.is_some() {
            let channel = &wanted.channel;
            let why = format!(
                "not subscribed to {channel:?}: only subscriptions of Centrifuge clients can expire"
            );
            self.log(id, NoteLevel::Warn, why);
            return BackendSubscribe::Rejected;
        }
        let Ok(name) = ChannelName::new(&wanted.channel) else {
            return BackendSubscribe::Rejected;
        };
        let subscribe_options = SubscribeOptions {
            since: wanted.since.map(|since| Arc::from([since])),
            client: (!wanted.is_hidden).then(|| self.member(id, name)).flatten(),
            ..SubscribeOptions::default()
        };
        let (hub, ports) = (&mut self.hub, &mut self.requests);
        match hub.subscribe(id, name, ticket, &subscribe_options, ports) {
            Ok(RequestOutcome::Done(joined)) => {
                BackendSubscribe::Done(HubReply::Subscribed(joined))
            }
            Ok(RequestOutcome::Pending) => BackendSubscribe::Pending,
            Err(error) => {
                let why = format!("not subscribed to {:?}: {error}", wanted.channel);
                self.log(id, NoteLevel::Info, why);
                BackendSubscribe::Rejected
            }
        }
    }

    /// Ends a subscription on behalf of a back end. Returns whether the session was subscribed.
    pub(crate) fn unsubscribe_by_backend(&mut self, id: ConnectionId, channel: &str) -> bool {
        ChannelName::new(channel)
            .is_ok_and(|name| self.hub.unsubscribe(id, name, &mut self.requests))
    }
}
