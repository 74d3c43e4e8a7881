//! Subscribing and unsubscribing, on the session's worker and at the home.
//!
//! A subscription lives on its session's worker and is counted by the channel's home. If that is another worker, the
//! subscription is *pending* until the home has replied, and only then enters the list of receivers; so it gets exactly
//! the publications ordered after it was counted.

use std::sync::Arc;

use crate::channel::{Channel, Home};
use crate::engine::Step;
use crate::subscription::{SLOTS_MAX, Standing};
use crate::{
    Answer, ChannelName, ClientInfo, ConnectionId, Engine, Hub, Joined, Mail, Outcome, Outlet,
    Registration, SubscribeOptions, Ticket, WorkerId,
};

/// Why a session can't subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The session is already subscribed to the channel, or subscribing.
    #[error("already subscribed")]
    Already,
    /// The session has ended; callers ignore this.
    #[error("the session has ended")]
    Stale,
    /// The worker has reached its limit of subscriptions or sessions.
    #[error("too many subscriptions on this worker")]
    Full,
}

impl<E: Engine> Hub<E> {
    /// Subscribes a session. The outcome is [`Outcome::Done`] if the channel's home is here and has counted it.
    /// Otherwise [`Answer::Subscribed`] follows, unless the session unsubscribes or closes first, or
    /// [`Answer::Failed`], which ends the subscription: the engine can't follow the channel. Once counted, the session
    /// gets every publication.
    ///
    /// The outcome has to be handled before the hub is called again: what the session gets next follows at once.
    pub fn subscribe(
        &mut self,
        session: ConnectionId,
        channel: ChannelName<'_>,
        ticket: Ticket,
        joining: &SubscribeOptions,
        outlet: &mut impl Outlet,
    ) -> Result<Outcome<Option<Box<Joined>>>, SubscribeError> {
        match self.subscriptions.standing(session) {
            Standing::Open => {}
            Standing::Successor(forerunner) => self.close(forerunner, outlet),
            Standing::Stale => return Err(SubscribeError::Stale),
        }
        let slots_max = self.options.subscriptions_max.min(SLOTS_MAX);
        if self.subscriptions.len() >= slots_max || session.index >= self.options.sessions_max {
            return Err(SubscribeError::Full);
        }

        let hash = self.channels.hash(channel.as_str());
        let index = self.entry(hash, channel.as_str());
        if self.subscriptions.find(session, index).is_some() {
            return Err(SubscribeError::Already);
        }
        let registration = self.subscriptions.insert(session, index);
        if let Some(client) = &joining.client {
            let members = &mut self.presence.members;
            members.insert(registration.slot, Arc::clone(client));
        }
        let Some(home) = self.channels[index].home.elsewhere() else {
            let Step::Done(joined) = self.join(index, joining) else {
                let caller = (session, ticket);
                self.keep_joiner(index, self.me, caller, registration, joining);
                return Ok(Outcome::Pending);
            };
            self.make_live(index, registration.slot);
            self.member_in(index, joining.client.as_ref());
            if joined.is_some() {
                self.keep_to_budget();
            }
            return Ok(Outcome::Done(joined));
        };
        let entry = &mut self.channels[index];
        entry.waiting += 1;
        let channel = entry.name.clone();
        outlet.mail(
            home,
            Mail::Subscribe {
                channel,
                session,
                ticket,
                registration,
                joining: joining.clone(),
            },
        );
        Ok(Outcome::Pending)
    }

    /// Ends one subscription; nothing more is delivered on it. Returns `false` if there was none.
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

    /// Ends all subscriptions of a session and marks its id as stale.
    pub fn close(&mut self, session: ConnectionId, outlet: &mut impl Outlet) {
        while let Some(slot) = self.subscriptions.first(session) {
            self.remove(slot, outlet);
        }
        self.subscriptions.end(session);
    }

    /// Home: counts a subscriber of another worker and returns what it joins; with [`Step::Later`] it is counted later.
    pub(crate) fn count_in(
        &mut self,
        from: WorkerId,
        name: Arc<str>,
        caller: (ConnectionId, Ticket),
        registration: Registration,
        joining: &SubscribeOptions,
    ) -> Step<Option<Box<Joined>>> {
        let hash = self.channels.hash(&name);
        debug_assert_eq!(self.home(hash, &name), self.me, "all workers have one seed");
        let index = match self.channels.find(hash, &name) {
            Some(index) => index,
            None => self.channels.insert(hash, name, Home::HERE),
        };
        let Step::Done(joined) = self.join(index, joining) else {
            self.keep_joiner(index, from, caller, registration, joining);
            return Step::Later;
        };
        self.add_share(index, from, joining.client.as_ref());
        if joined.is_some() {
            self.keep_to_budget();
        }
        Step::Done(joined)
    }

    /// Home: counts one more subscriber of another worker.
    pub(crate) fn add_share(
        &mut self,
        index: u32,
        from: WorkerId,
        client: Option<&Arc<ClientInfo>>,
    ) {
        let channel = &mut self.channels[index];
        let was_vacant = channel.subscribers_all() == 0;
        channel.add_share(from);
        if was_vacant {
            self.note_occupied(index);
        }
        self.member_in(index, client);
    }

    /// Home: removes a subscriber of another worker.
    pub(crate) fn count_out(
        &mut self,
        from: WorkerId,
        name: &str,
        client: Option<&Arc<ClientInfo>>,
        registration: Option<Registration>,
    ) {
        let Some(index) = self.find(name) else {
            debug_assert!(false, "unsubscribe follows subscribe on the same lane");
            return;
        };
        if let Some(registration) = registration
            && self.drop_joiner(index, from, registration)
        {
            self.channels[index].waiting -= 1;
            return self.channels.release(index);
        }
        let channel = &mut self.channels[index];
        let was_counted = channel.remove_share(from);
        debug_assert!(
            was_counted,
            "unsubscribe follows subscribe on the same lane"
        );
        let is_vacant = was_counted && channel.subscribers_all() == 0;
        self.member_out(index, client);
        if is_vacant {
            self.note_vacated(index);
        }
        self.channels.release(index);
    }

    /// Local: the home has counted the subscription.
    pub(crate) fn subscribed(
        &mut self,
        session: ConnectionId,
        ticket: Ticket,
        registration: Registration,
        joined: Option<Box<Joined>>,
        outlet: &mut impl Outlet,
    ) {
        // If it has unsubscribed meanwhile, the home learns of that next.
        if let Some(index) = self.subscriptions.pending(registration, session) {
            self.channels[index].waiting -= 1;
            self.make_live(index, registration.slot);
            outlet.answer(session, ticket, Answer::Subscribed(joined));
        }
    }

    /// Local: the home has refused the subscription.
    pub(crate) fn refused(
        &mut self,
        session: ConnectionId,
        ticket: Ticket,
        registration: Registration,
        outlet: &mut impl Outlet,
    ) {
        // If it has unsubscribed meanwhile, the home learns of that next.
        if self.subscriptions.pending(registration, session).is_some() {
            self.remove(registration.slot, outlet);
            outlet.answer(session, ticket, Answer::Failed);
        }
    }

    /// Local: adds a slot to the receivers of a channel.
    pub(crate) fn make_live(&mut self, index: u32, slot: u32) {
        let channel = &mut self.channels[index];
        let was_vacant = channel.home.is_here() && channel.subscribers_all() == 0;
        let place = channel.subscribers.push(slot);
        self.subscriptions.set_place(slot, place as u32);
        if was_vacant {
            self.note_occupied(index);
        }
    }

    /// Local: ends a subscription, live or pending, and tells the home.
    fn remove(&mut self, slot: u32, outlet: &mut impl Outlet) {
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
        if let Some(home) = channel.home.elsewhere() {
            outlet.mail(
                home,
                Mail::Unsubscribe {
                    channel: channel.name.clone(),
                    client,
                    registration,
                },
            );
        } else if let Some(registration) = registration {
            self.drop_joiner(index, self.me, registration);
        } else {
            let is_vacant = channel.subscribers_all() == 0;
            self.member_out(index, client.as_ref());
            if is_vacant {
                self.note_vacated(index);
            }
        }
        self.channels.release(index);
    }

    /// Home: a channel got its first subscriber.
    fn note_occupied(&mut self, index: u32) {
        self.occupied += 1;
        self.users += u32::from(is_personal(&self.channels[index]));
        self.happened_occupied(index);
    }

    /// Home: a channel lost its last subscriber.
    fn note_vacated(&mut self, index: u32) {
        self.occupied -= 1;
        self.happened_vacated(index);
        let channel = &self.channels[index];
        if self.joins.is_empty() || self.pending_joins(index) == 0 {
            self.engine.unfollow(&channel.name, channel.home.stream());
        }
        if is_personal(channel) {
            self.users -= 1;
            self.gone.note(&channel.name, self.now.wall_ms);
        }
    }
}

fn is_personal(channel: &Channel) -> bool {
    channel.name.starts_with('#')
}
