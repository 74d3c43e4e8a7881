//! Subscribing and unsubscribing, on the session's worker (local) and at the channel's home.
//!
//! A subscription belongs to its session's worker and is counted by the channel's home. If the home is another worker,
//! the subscription is *pending* until the home has replied, and only then enters the list of receivers. So it gets
//! exactly the publications that are ordered after the home has counted it. Subscriptions that the home can't count
//! yet, because the engine has not replied, are in `pending_joins.rs`.

use std::sync::Arc;

use crate::channel::{Channel, Home};
use crate::engine::{EngineReply, ReadStart, StoredChannel};
use crate::namespace::RecoveryMode;
use crate::pending_joins::{ChannelJoins, Following};
use crate::subscription::{SLOTS_MAX, SessionState};
use crate::{
    ChannelName, ClientInfo, ConnectionId, Engine, Hub, HubMessage, HubReply, Outlet, Registration,
    RequestOutcome, SubscribeOptions, SubscribeOutcome, Ticket, WorkerId,
};

/// The reason why a session can't subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The session is already subscribed to the channel, or subscribing.
    #[error("already subscribed")]
    AlreadySubscribed,
    /// The session has ended already. Callers can ignore this error.
    #[error("the session has ended")]
    Stale,
    /// The worker has reached its limit of subscriptions or sessions.
    #[error("the worker has reached its limit of subscriptions or sessions")]
    Full,
}

impl<E: Engine> Hub<E> {
    /// Subscribes a session. The outcome is [`RequestOutcome::Done`] if the channel's home is this worker and has
    /// counted the subscription. Otherwise one of two replies follows: [`HubReply::Subscribed`], or
    /// [`HubReply::Failed`] if the engine can't follow the channel, which ends the subscription. There is no reply if
    /// the session unsubscribes or closes first. Once counted, the session gets every publication.
    ///
    /// The outcome must be handled before the hub is called again, because the next call may deliver publications to
    /// the session.
    pub fn subscribe(
        &mut self,
        session: ConnectionId,
        channel: ChannelName<'_>,
        ticket: Ticket,
        subscribe_options: &SubscribeOptions,
        outlet: &mut impl Outlet,
    ) -> Result<RequestOutcome<Option<Box<SubscribeOutcome>>>, SubscribeError> {
        match self.subscriptions.session_state(session) {
            SessionState::Open => {}
            SessionState::Successor(forerunner) => self.close(forerunner, outlet),
            SessionState::Stale => return Err(SubscribeError::Stale),
        }
        let slots_max = self.options.subscriptions_max.min(SLOTS_MAX);
        if self.subscriptions.len() >= slots_max || session.index >= self.options.sessions_max {
            return Err(SubscribeError::Full);
        }

        let hash = self.channels.hash(channel.as_str());
        let index = self
            .channels
            .entry(hash, channel.as_str(), &self.namespaces);
        if self.subscriptions.find(session, index).is_some() {
            return Err(SubscribeError::AlreadySubscribed);
        }
        let registration = self.subscriptions.insert(session, index);
        if let Some(client) = &subscribe_options.client {
            let members = &mut self.presence.members;
            members.insert(registration.slot, Arc::clone(client));
        }
        let Some(home) = self.channels[index].home.remote_worker() else {
            let EngineReply::Ready(joined) = self.join(index, subscribe_options) else {
                let caller = (session, ticket);
                self.add_pending_subscriber(
                    index,
                    self.me,
                    caller,
                    registration,
                    subscribe_options,
                );
                return Ok(RequestOutcome::Pending);
            };
            self.make_live(index, registration.slot);
            self.member_joined(index, subscribe_options.client.as_ref());
            if joined.is_some() {
                self.evict_over_budget();
            }
            return Ok(RequestOutcome::Done(joined));
        };
        let entry = &mut self.channels[index];
        entry.waiting += 1;
        let channel = entry.name.clone();
        outlet.send_message(
            home,
            HubMessage::Subscribe {
                channel,
                session,
                ticket,
                registration,
                subscribe_options: subscribe_options.clone(),
            },
        );
        Ok(RequestOutcome::Pending)
    }

    /// Ends one subscription; nothing more is delivered for it. Returns `false` if the session had
    /// no subscription to the channel.
    pub fn unsubscribe(
        &mut self,
        session: ConnectionId,
        channel: ChannelName<'_>,
        outlet: &mut impl Outlet,
    ) -> bool {
        let hash = self.channels.hash(channel.as_str());
        let slot = self
            .channels
            .find(hash, channel.as_str())
            .and_then(|index| self.subscriptions.find(session, index));
        match slot {
            Some(slot) => {
                self.remove(slot, outlet);
                true
            }
            None => false,
        }
    }

    /// Ends all subscriptions of a session and marks the session's id as stale.
    pub fn close(&mut self, session: ConnectionId, outlet: &mut impl Outlet) {
        while let Some(slot) = self.subscriptions.first(session) {
            self.remove(slot, outlet);
        }
        self.subscriptions.end(session);
    }

    /// At the channel's home: counts a subscriber on another worker and returns the channel's state for it. With
    /// [`EngineReply::Deferred`], the subscriber is counted later.
    pub(crate) fn register_subscriber(
        &mut self,
        from: WorkerId,
        name: Arc<str>,
        caller: (ConnectionId, Ticket),
        registration: Registration,
        subscribe_options: &SubscribeOptions,
    ) -> EngineReply<Option<Box<SubscribeOutcome>>> {
        let hash = self.channels.hash(&name);
        debug_assert_eq!(
            self.channels.home(hash, &name, &self.namespaces),
            self.me,
            "a subscription may only be processed by the worker that owns its channel"
        );
        let index = match self.channels.find(hash, &name) {
            Some(index) => index,
            None => self.channels.insert(hash, name, Home::LOCAL),
        };
        let EngineReply::Ready(joined) = self.join(index, subscribe_options) else {
            self.add_pending_subscriber(index, from, caller, registration, subscribe_options);
            return EngineReply::Deferred;
        };
        self.add_remote_subscriber(index, from, subscribe_options.client.as_ref());
        if joined.is_some() {
            self.evict_over_budget();
        }
        EngineReply::Ready(joined)
    }

    /// At the channel's home: returns the state that a new subscriber joins; `None` without history. Called before the
    /// subscriber is counted. With [`EngineReply::Deferred`] the caller must [queue](Self::add_pending_subscriber) the
    /// subscriber.
    pub(crate) fn join(
        &mut self,
        index: u32,
        subscribe_options: &SubscribeOptions,
    ) -> EngineReply<Option<Box<SubscribeOutcome>>> {
        let history = self.namespaces.of(&self.channels[index].name).history;
        let slot = history.is_some().then(|| self.open_stream(index));
        let first_read = history.map_or(ReadStart::TopOnly, |history| {
            read_start(subscribe_options, history.recovery)
        });
        if !self.follows(index, slot, first_read) {
            return EngineReply::Deferred;
        }
        let (Some(history), Some(slot)) = (history, slot) else {
            return EngineReply::Ready(None);
        };
        let kept = StoredChannel {
            name: &self.channels[index].name,
            slot,
            history: &history,
            now_ms: self.expiry_clock_ms(),
        };
        let EngineReply::Ready(joined) = self.engine.join(kept, subscribe_options) else {
            let pending = self.joins.entry(index);
            pending.or_insert_with(|| ChannelJoins::new(Following::Done));
            return EngineReply::Deferred;
        };
        if self.engine.is_empty(slot) {
            self.record_empty(index);
        }
        EngineReply::Ready(Some(Box::new(joined)))
    }

    /// At the channel's home: returns whether the engine follows the channel. If not, makes the engine follow it;
    /// `first_read` tells the engine what the subscriber will read.
    #[inline]
    fn follows(&mut self, index: u32, slot: Option<u32>, first_read: ReadStart) -> bool {
        if !self.joins.is_empty() {
            return self.follows_pending(index, slot, first_read);
        }
        let channel = &self.channels[index];
        if channel.total_subscribers() > 0 {
            return true;
        }
        let is_done = matches!(
            self.engine.follow(&channel.name, slot, first_read),
            EngineReply::Ready(())
        );
        if !is_done {
            self.joins
                .insert(index, ChannelJoins::new(Following::Begun));
        }
        is_done
    }

    /// At the channel's home: counts one more subscriber on another worker.
    pub(crate) fn add_remote_subscriber(
        &mut self,
        index: u32,
        from: WorkerId,
        client: Option<&Arc<ClientInfo>>,
    ) {
        let channel = &mut self.channels[index];
        let was_vacant = channel.total_subscribers() == 0;
        channel.add_remote_subscriber(from);
        if was_vacant {
            self.channel_occupied(index);
        }
        self.member_joined(index, client);
    }

    /// At the channel's home: decrements the number of subscribers on another worker, or removes a
    /// pending subscriber.
    pub(crate) fn unregister_subscriber(
        &mut self,
        from: WorkerId,
        name: &str,
        client: Option<&Arc<ClientInfo>>,
        registration: Option<Registration>,
    ) {
        let Some(index) = self.find(name) else {
            debug_assert!(
                false,
                "an unsubscription must not arrive before its subscription"
            );
            return;
        };
        if let Some(registration) = registration
            && self.remove_pending_subscriber(index, from, registration)
        {
            self.channels[index].waiting -= 1;
            return self.channels.release(index);
        }
        let channel = &mut self.channels[index];
        let was_counted = channel.remove_remote_subscriber(from);
        debug_assert!(
            was_counted,
            "an unsubscription must not arrive before its subscription"
        );
        let is_vacant = was_counted && channel.total_subscribers() == 0;
        self.member_left(index, client);
        if is_vacant {
            self.channel_vacated(index);
        }
        self.channels.release(index);
    }

    /// On the subscriber's worker: handles the home's confirmation that a subscription is counted.
    pub(crate) fn subscription_confirmed(
        &mut self,
        session: ConnectionId,
        ticket: Ticket,
        registration: Registration,
        joined: Option<Box<SubscribeOutcome>>,
        outlet: &mut impl Outlet,
    ) {
        // If the session has already unsubscribed, its `Unsubscribe` message is on the way to the
        // home, and there is nothing to do here.
        if let Some(index) = self.subscriptions.pending(registration, session) {
            self.channels[index].waiting -= 1;
            self.make_live(index, registration.slot);
            outlet.send_reply(session, ticket, HubReply::Subscribed(joined));
        }
    }

    /// On the subscriber's worker: handles the home's refusal of a subscription.
    pub(crate) fn subscription_refused(
        &mut self,
        session: ConnectionId,
        ticket: Ticket,
        registration: Registration,
        outlet: &mut impl Outlet,
    ) {
        // If the session has already unsubscribed, its `Unsubscribe` message is on the way to the
        // home, and there is nothing to do here.
        if self.subscriptions.pending(registration, session).is_some() {
            self.remove(registration.slot, outlet);
            outlet.send_reply(session, ticket, HubReply::Failed);
        }
    }

    /// On the subscriber's worker: adds the subscription in a slot to the receivers of a channel.
    pub(crate) fn make_live(&mut self, index: u32, slot: u32) {
        let channel = &mut self.channels[index];
        let was_vacant = channel.home.is_local() && channel.total_subscribers() == 0;
        let place = channel.subscribers.push(slot);
        self.subscriptions.set_place(slot, place as u32);
        if was_vacant {
            self.channel_occupied(index);
        }
    }

    /// On the subscriber's worker: ends a subscription, live or pending, and notifies the home.
    pub(crate) fn remove(&mut self, slot: u32, outlet: &mut impl Outlet) {
        let removed = self.subscriptions.remove(slot);
        let client = match self.presence.members.is_empty() {
            true => None,
            false => self.presence.members.remove(&slot),
        };
        let index = removed.channel;
        let channel = &mut self.channels[index];
        let mut registration = None;
        match removed.place() {
            Some(place) => {
                if let Some(moved) = channel.remove_subscriber(place) {
                    self.subscriptions.set_place(moved, place);
                }
            }
            None => {
                registration = removed.registration(slot);
                channel.waiting -= 1;
            }
        }
        if let Some(home) = channel.home.remote_worker() {
            outlet.send_message(
                home,
                HubMessage::Unsubscribe {
                    channel: channel.name.clone(),
                    client,
                    registration,
                },
            );
        } else if let Some(registration) = registration {
            self.remove_pending_subscriber(index, self.me, registration);
        } else {
            let is_vacant = channel.total_subscribers() == 0;
            self.member_left(index, client.as_ref());
            if is_vacant {
                self.channel_vacated(index);
            }
        }
        self.channels.release(index);
    }

    /// At the channel's home: handles the first subscriber of a channel.
    fn channel_occupied(&mut self, index: u32) {
        self.occupied += 1;
        self.users += u32::from(is_personal(&self.channels[index]));
        self.record_occupied(index);
    }

    /// At the channel's home: handles the loss of a channel's last subscriber.
    fn channel_vacated(&mut self, index: u32) {
        self.occupied -= 1;
        self.record_vacated(index);
        let channel = &self.channels[index];
        if self.joins.is_empty() || self.pending_joins(index) == 0 {
            self.engine.unfollow(&channel.name, channel.home.stream());
        }
        if is_personal(channel) {
            self.users -= 1;
            self.last_seen.note(&channel.name, self.now.wall_ms);
        }
    }
}

/// Returns how far back the read for a subscriber with these options should reach.
pub(crate) fn read_start(
    subscribe_options: &SubscribeOptions,
    recovery: RecoveryMode,
) -> ReadStart {
    match (&subscribe_options.since, recovery) {
        (None, _) => ReadStart::TopOnly,
        // The latest publication must be read whatever its offset. The subscriber receives this publication unless the
        // subscriber's position shows that it was received before.
        (Some(_), RecoveryMode::Latest) => ReadStart::Since(0),
        (Some(since), RecoveryMode::Missed) => {
            let offsets = since.iter().map(|since| since.offset);
            offsets.min().map_or(ReadStart::TopOnly, ReadStart::Since)
        }
    }
}

fn is_personal(channel: &Channel) -> bool {
    channel.name.starts_with('#')
}
