//! The path of a publication: publisher → home → engine → feed → workers.

use std::sync::Arc;

use crate::channel::Channel;
use crate::engine::{Offer, Order};
use crate::mail::Origin;
use crate::payload::{Ordered, Source};
use crate::stalled::Request;
use crate::{
    Answer, ChannelName, Class, ConnectionId, Differences, Engine, Event, Hub, Mail, Outcome,
    Outlet, Payload, PayloadRef, PublishOptions, Published, Ticket, WorkerId,
};

/// A publication can't be accepted now, for lack of credit or of room in a queue. Nothing has changed: the caller
/// pauses its source and retries after [`Hub::sweep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the channel can't accept a publication now")]
pub struct NoCredit;

/// What prevents a publication from being ordered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// An earlier publication of its channel is stalled.
    Behind,
    /// There is no credit for a worker with subscribers, or an earlier stalled publication needs that lane.
    Lane,
    /// The channel's queue on this worker, or all its queues together, are full.
    Queue,
    /// Too many requests wait in the engine.
    Engine,
}

impl<E: Engine> Hub<E> {
    /// Publishes to a channel. With `from`, [`Answer::Published`](crate::Answer::Published) follows if the outcome is
    /// [`Outcome::Pending`].
    ///
    /// A refused publication has no place in any queue: among several local sources that publish to one channel, the
    /// first to retry comes first.
    pub fn publish(
        &mut self,
        from: Option<(ConnectionId, Ticket)>,
        channel: ChannelName<'_>,
        payload: PayloadRef<'_>,
        terms: Option<&Arc<PublishOptions>>,
        outlet: &mut impl Outlet,
    ) -> Result<Outcome<Published>, NoCredit> {
        let hash = self.channels.hash(channel.as_str());
        let home = self.home(hash, channel.as_str());
        if home != self.me {
            if !outlet.has_credit(home, Class::Publish) || self.is_held(home, channel) {
                return Err(NoCredit);
            }
            let channel = self.channel_name(hash, channel.as_str());
            let payload = payload.to_payload();
            outlet.mail(
                home,
                Mail::Publish {
                    channel,
                    payload,
                    terms: terms.cloned(),
                    reply: from,
                },
            );
            return Ok(Outcome::Pending);
        }
        let Some(index) = self.entry_to_publish(hash, channel.as_str(), terms) else {
            return Ok(Outcome::Done(Published::default()));
        };
        let is_passing = terms.is_some_and(|terms| terms.is_passing);
        if self.blocked(index, is_passing, outlet).is_some() {
            self.channels.release(index);
            return Err(NoCredit);
        }
        let payload = Source::Borrowed(payload);
        let origin = Origin {
            from: home,
            reply: from,
        };
        let published = self.order(index, payload, terms, origin, outlet);
        let outcome = published.map_or(Outcome::Pending, Outcome::Done);
        self.channels.release(index);
        self.keep_to_budget();
        Ok(outcome)
    }

    /// Home: handles a publication of a client on another worker.
    pub(crate) fn receive_publish(
        &mut self,
        from: WorkerId,
        channel: &str,
        payload: Payload,
        terms: Option<Arc<PublishOptions>>,
        reply: Option<(ConnectionId, Ticket)>,
        outlet: &mut impl Outlet,
    ) {
        let hash = self.channels.hash(channel);
        let origin = Origin { from, reply };
        let Some(index) = self.entry_to_publish(hash, channel, terms.as_ref()) else {
            return self.taken(origin, true, Some(Published::default()), outlet);
        };
        let is_passing = terms.as_ref().is_some_and(|terms| terms.is_passing);
        if let Some(blocked) = self.blocked(index, is_passing, outlet) {
            let request = Request {
                payload,
                terms,
                origin,
                has_credit: self.hold(index, from, outlet),
            };
            return self.stall(index, blocked, request);
        }
        let payload = Source::Kept(payload);
        let published = self.order(index, payload, terms.as_ref(), origin, outlet);
        self.channels.release(index);
        self.keep_to_budget();
        self.taken(origin, true, published, outlet);
    }

    /// Home: returns the entry of a channel to publish to, and creates it if a publication without subscribers has to
    /// be stored; `None` if it can be dropped.
    fn entry_to_publish(
        &mut self,
        hash: u64,
        name: &str,
        terms: Option<&Arc<PublishOptions>>,
    ) -> Option<u32> {
        let found = self.channels.find(hash, name);
        if found.is_some() {
            return found;
        }
        let has_key = terms.is_some_and(|terms| terms.idempotency_key.is_some());
        let is_heard = || self.overheard(name).is_some() || self.engine.reaches_others();
        if !has_key && self.namespaces.of(name).history.is_none() && !is_heard() {
            return None;
        }
        Some(self.entry(hash, name))
    }

    /// Home: returns what a publication of this channel has to wait for, if anything. `is_passing`: it is not stored.
    pub(crate) fn blocked(
        &self,
        index: u32,
        is_passing: bool,
        outlet: &impl Outlet,
    ) -> Option<Blocked> {
        let waiting = self.channels[index].waiting;
        if waiting > 0 && waiting > self.pending_of(index) + self.pending_joins(index) {
            return Some(Blocked::Behind);
        }
        self.blocked_by_room(index, outlet)
            .or_else(|| self.blocked_by_engine(index, is_passing))
    }

    /// Home: returns what prevents a publication of this channel from being delivered now.
    pub(crate) fn blocked_by_room(&self, index: u32, outlet: &impl Outlet) -> Option<Blocked> {
        let channel = &self.channels[index];
        let blocked = self.blocked_there(channel, outlet);
        blocked.or_else(|| {
            let overheard = self.overheard(&channel.name)?;
            self.blocked_there(&self.channels[overheard], outlet)
        })
    }

    fn blocked_there(&self, channel: &Channel, outlet: &impl Outlet) -> Option<Blocked> {
        for share in channel.shares.as_slice() {
            let is_free = !self.stalled.reserves(share.worker)
                && outlet.has_credit(share.worker, Class::Deliver);
            if !is_free {
                return Some(Blocked::Lane);
            }
        }
        if !self.has_queue_room(channel) {
            return Some(Blocked::Queue);
        }
        None
    }

    /// Orders a publication in its channel unless its options forbid it, and delivers it. `None`: the result arrives
    /// with a report of the engine.
    pub(crate) fn order(
        &mut self,
        index: u32,
        payload: Source<'_>,
        terms: Option<&Arc<PublishOptions>>,
        origin: Origin,
        outlet: &mut impl Outlet,
    ) -> Option<Published> {
        let name = &self.channels[index].name;
        let key = terms.and_then(|terms| terms.idempotency_key.as_deref());
        if let Some(key) = key
            && let Some(first) = self.recent.find(name, key, self.now.mono_ms)
        {
            return self.repeat(index, first, terms, origin);
        }
        let namespace = self.namespaces.of(name);
        let (history, differences) = (namespace.history, namespace.differences);
        if history.is_none() {
            // A publication without an offset would be missing if the channel gets a history again.
            self.lose_stream(index);
        }
        let history = history.filter(|_| !terms.is_some_and(|terms| terms.is_passing));
        let slot = match &history {
            Some(_) => Some(self.stream_of(index)),
            None => self.channels[index].home.stream(),
        };
        let info = terms.and_then(|terms| terms.info.as_ref());
        let at_ms = self.now.wall_ms;
        let has_slot = slot.is_some();
        let mut offer = Offer {
            channel: index,
            payload,
            terms,
            origin,
            name: &self.channels[index].name,
            slot,
            history: history.as_ref(),
            event: Event::Published,
            at_ms,
            info,
            wants_previous: wants_previous(differences, terms.map(|terms| &**terms)),
        };
        let mut published = Published::default();
        match self.engine.publish(&mut offer) {
            Order::Done { position, previous } => {
                published.position = position;
                let ordered = Ordered {
                    payload: offer.payload,
                    position,
                    at_ms,
                    event: Event::Published,
                    info: info.cloned(),
                    previous,
                };
                published.handed = Some(self.feed(index, ordered, outlet));
            }
            Order::Skipped(position) => {
                published.position = Some(position);
                published.is_skipped = true;
            }
            Order::Later => {
                self.wait_in_engine(index, has_slot);
                // Repetitions with the same key are ordered behind it.
                self.keep_key(index, terms.map(|terms| &**terms), published);
                return None;
            }
        }
        self.keep_key(index, terms.map(|terms| &**terms), published);
        Some(published)
    }

    /// Delivers an ordered publication to the subscribers of its channel and of the wildcard channel. Returns their
    /// number. [`blocked`](Self::blocked) has checked the credits.
    pub(crate) fn feed(
        &mut self,
        index: u32,
        mut ordered: Ordered<'_>,
        outlet: &mut impl Outlet,
    ) -> u32 {
        let overheard = match ordered.event {
            Event::Published => self.feed_overheard(index, &mut ordered, outlet),
            Event::Joined | Event::Left => 0,
        };
        overheard + self.hand_out(index, ordered, outlet)
    }

    /// Sends a publication to every worker with subscribers of one entry, including this one. Returns the number of
    /// registered subscribers.
    pub(crate) fn hand_out(
        &mut self,
        index: u32,
        mut ordered: Ordered<'_>,
        outlet: &mut impl Outlet,
    ) -> u32 {
        let channel = &self.channels[index];
        let is_publication = ordered.event == Event::Published;
        let handed = channel.subscribers_all();
        for share in channel.shares.as_slice() {
            let channel = channel.name.clone();
            outlet.mail(
                share.worker,
                Mail::Deliver {
                    channel,
                    publication: ordered.keep(),
                    previous: ordered.previous.clone(),
                },
            );
        }
        self.fan_out(index, ordered, None, outlet);
        if is_publication {
            self.handed += u64::from(handed);
        }
        handed
    }

    /// Completes the acceptance of a publication: returns its credit if it came from another worker and still has it,
    /// and replies unless the reply has to wait for the engine. Requests in the engine have their own limit; with their
    /// credits they would block the lane for channels without history.
    pub(crate) fn taken(
        &self,
        origin: Origin,
        has_credit: bool,
        published: Option<Published>,
        outlet: &mut impl Outlet,
    ) {
        if let Some(published) = published {
            self.reply(origin, Answer::Published(published), outlet);
        }
        if has_credit && origin.from != self.me {
            outlet.mail_done(origin.from, Class::Publish);
        }
    }
}

/// Returns whether a publication needs the preceding payload for a delta.
pub(crate) fn wants_previous(differences: Differences, terms: Option<&PublishOptions>) -> bool {
    match differences {
        Differences::Off => false,
        Differences::Asked => terms.is_some_and(|terms| terms.has_difference),
        Differences::Always => true,
    }
}
