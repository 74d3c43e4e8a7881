//! The path of a publication: from the publisher to the channel's home, from there to the engine, and through the
//! engine's feed to the workers with subscribers.

use std::sync::Arc;

use crate::channel::Channel;
use crate::engine::{NewPublication, OrderResult};
use crate::message::Origin;
use crate::payload::{OrderedPublication, PayloadSource};
use crate::stalled::StalledPublish;
use crate::{
    ChannelName, ConnectionId, DeltaMode, Engine, FeedEvent, Hub, HubMessage, HubMessageClass,
    HubReply, Outlet, Payload, PayloadRef, PublishOptions, PublishOutcome, RequestOutcome, Ticket,
    WorkerId,
};

/// Error: a publication can't be accepted now, because there is no credit or no room in a queue. Nothing has changed.
/// The caller pauses the publisher and retries after [`Hub::sweep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the channel can't accept a publication now")]
pub struct NoCredit;

/// The reason why a publication can't be ordered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// An earlier publication of the same channel is stalled.
    BehindEarlier,
    /// A worker with subscribers has no credit, or the next credit of its lane is reserved for an earlier stalled
    /// publication.
    Lane,
    /// The channel's queue on this worker is full, or all queues of this worker have reached their
    /// common limit.
    Queue,
    /// Too many requests wait in the engine.
    Engine,
}

impl<E: Engine> Hub<E> {
    /// Publishes to a channel. If the outcome is [`RequestOutcome::Pending`] and `from` names a session, the session
    /// gets the reply [`HubReply::Published`](crate::HubReply::Published) later.
    ///
    /// A refused publication is not queued. If several local publishers to one channel are refused, the order of their
    /// publications is the order of their successful retries.
    pub fn publish(
        &mut self,
        from: Option<(ConnectionId, Ticket)>,
        channel: ChannelName<'_>,
        payload: PayloadRef<'_>,
        terms: Option<&Arc<PublishOptions>>,
        outlet: &mut impl Outlet,
    ) -> Result<RequestOutcome<PublishOutcome>, NoCredit> {
        let hash = self.channels.hash(channel.as_str());
        let home = self.channels.home(hash, channel.as_str(), &self.namespaces);
        if home != self.me {
            if !outlet.has_credit(home, HubMessageClass::Publish)
                || self.must_wait_for_log(home, channel)
            {
                return Err(NoCredit);
            }
            let channel = self.channel_name(hash, channel.as_str());
            let payload = payload.to_payload();
            outlet.send_message(
                home,
                HubMessage::Publish {
                    channel,
                    payload,
                    terms: terms.cloned(),
                    reply: from,
                },
            );
            return Ok(RequestOutcome::Pending);
        }
        let Some(index) = self.entry_to_publish(hash, channel.as_str(), terms) else {
            return Ok(RequestOutcome::Done(PublishOutcome::default()));
        };
        let is_passing = terms.is_some_and(|terms| terms.skip_history);
        if self.blocked(index, is_passing, outlet).is_some() {
            self.channels.release(index);
            return Err(NoCredit);
        }
        let payload = PayloadSource::Borrowed(payload);
        let origin = Origin {
            from: home,
            reply: from,
        };
        let published = self.order(index, payload, terms, origin, outlet);
        let outcome = published.map_or(RequestOutcome::Pending, RequestOutcome::Done);
        self.channels.release(index);
        self.evict_over_budget();
        Ok(outcome)
    }

    /// At the channel's home: handles a publication from another worker.
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
            return self.acknowledge(origin, true, Some(PublishOutcome::default()), outlet);
        };
        let is_passing = terms.as_ref().is_some_and(|terms| terms.skip_history);
        if let Some(blocked) = self.blocked(index, is_passing, outlet) {
            let request = StalledPublish {
                payload,
                options: terms,
                origin,
                has_credit: self.announce_full_log(index, from, outlet),
            };
            return self.stall(index, blocked, request);
        }
        let payload = PayloadSource::Owned(payload);
        let published = self.order(index, payload, terms.as_ref(), origin, outlet);
        self.channels.release(index);
        self.evict_over_budget();
        self.acknowledge(origin, true, published, outlet);
    }

    /// At the channel's home: returns the entry of the channel to publish to. A missing entry is
    /// created if the publication has to be stored, remembered by its key, or delivered to wildcard
    /// subscribers or other nodes. Otherwise returns `None`, and the publication is dropped.
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
        let has_receivers = || self.wildcard_entry(name).is_some() || self.engine.reaches_others();
        if !has_key && self.namespaces.of(name).history.is_none() && !has_receivers() {
            return None;
        }
        Some(self.channels.entry(hash, name, &self.namespaces))
    }

    /// At the channel's home: returns the reason why a publication to this channel has to wait, if any. `is_passing` is
    /// set if the publication is not stored.
    pub(crate) fn blocked(
        &self,
        index: u32,
        is_passing: bool,
        outlet: &impl Outlet,
    ) -> Option<Blocked> {
        let waiting = self.channels[index].waiting;
        if waiting > 0 && waiting > self.pending_of(index) + self.pending_joins(index) {
            return Some(Blocked::BehindEarlier);
        }
        self.blocked_by_room(index, outlet)
            .or_else(|| self.blocked_by_engine(index, is_passing))
    }

    /// At the channel's home: returns the reason why a publication to this channel can't be delivered now, if any.
    pub(crate) fn blocked_by_room(&self, index: u32, outlet: &impl Outlet) -> Option<Blocked> {
        let channel = &self.channels[index];
        let blocked = self.blocked_by_lane(channel, outlet);
        blocked.or_else(|| {
            let wildcard = self.wildcard_entry(&channel.name)?;
            self.blocked_by_lane(&self.channels[wildcard], outlet)
        })
    }

    fn blocked_by_lane(&self, channel: &Channel, outlet: &impl Outlet) -> Option<Blocked> {
        for share in channel.remote_subscribers.as_slice() {
            let is_free = !self.stalled.reserves(share.worker)
                && outlet.has_credit(share.worker, HubMessageClass::Deliver);
            if !is_free {
                return Some(Blocked::Lane);
            }
        }
        if !self.has_queue_room(channel) {
            return Some(Blocked::Queue);
        }
        None
    }

    /// At the channel's home: orders and delivers a publication, unless the publication is skipped because of its
    /// idempotency key or version. Returns the result; `None` if the result arrives with a report of the engine.
    pub(crate) fn order(
        &mut self,
        index: u32,
        payload: PayloadSource<'_>,
        terms: Option<&Arc<PublishOptions>>,
        origin: Origin,
        outlet: &mut impl Outlet,
    ) -> Option<PublishOutcome> {
        let name = &self.channels[index].name;
        let key = terms.and_then(|terms| terms.idempotency_key.as_deref());
        if let Some(key) = key
            && let Some(first) = self.idempotency.find(name, key, self.now.mono_ms)
        {
            return self.repeat(index, first, terms, origin);
        }
        let namespace = self.namespaces.of(name);
        let (history, differences) = (namespace.history, namespace.delta_mode);
        if history.is_none() {
            // This publication gets no offset, so the stream must end: otherwise, if the channel gets history again, a
            // subscriber could miss the publication without noticing.
            self.detach_stream(index);
        }
        let history = history.filter(|_| !terms.is_some_and(|terms| terms.skip_history));
        let slot = match &history {
            Some(_) => Some(self.open_stream(index)),
            None => self.channels[index].home.stream(),
        };
        let info = terms.and_then(|terms| terms.info.as_ref());
        let at_ms = self.now.wall_ms;
        let has_slot = slot.is_some();
        let mut offer = NewPublication {
            channel: index,
            payload,
            options: terms,
            origin,
            name: &self.channels[index].name,
            slot,
            history: history.as_ref(),
            event: FeedEvent::Published,
            at_ms,
            info,
            wants_previous: wants_previous(differences, terms.map(|terms| &**terms)),
        };
        let mut published = PublishOutcome::default();
        match self.engine.publish(&mut offer) {
            OrderResult::Ordered { position, previous } => {
                published.position = position;
                let ordered = OrderedPublication {
                    payload: offer.payload,
                    position,
                    at_ms,
                    event: FeedEvent::Published,
                    info: info.cloned(),
                    previous,
                };
                published.receivers = Some(self.feed(index, ordered, outlet));
            }
            OrderResult::Skipped(position) => {
                published.position = Some(position);
                published.is_skipped = true;
            }
            OrderResult::Deferred => {
                self.wait_in_engine(index, has_slot);
                // The idempotency key is recorded now, so that repetitions are ordered behind this publication.
                self.record_key(index, terms.map(|terms| &**terms), published);
                return None;
            }
        }
        self.record_key(index, terms.map(|terms| &**terms), published);
        Some(published)
    }

    /// At the channel's home: delivers an ordered publication to the subscribers of its channel and to those of the
    /// wildcard channel. Returns their number. The caller has checked the credits with [`blocked`](Self::blocked).
    pub(crate) fn feed(
        &mut self,
        index: u32,
        mut ordered: OrderedPublication<'_>,
        outlet: &mut impl Outlet,
    ) -> u32 {
        let wildcard_count = match ordered.event {
            FeedEvent::Published => self.feed_wildcard_subscribers(index, &mut ordered, outlet),
            FeedEvent::Joined | FeedEvent::Left => 0,
        };
        wildcard_count + self.send_to_workers(index, ordered, outlet)
    }

    /// At the channel's home: sends a publication to every worker, including this one, with subscribers of the channel
    /// or wildcard channel at `index`. Returns the number of these subscribers.
    pub(crate) fn send_to_workers(
        &mut self,
        index: u32,
        mut ordered: OrderedPublication<'_>,
        outlet: &mut impl Outlet,
    ) -> u32 {
        let channel = &self.channels[index];
        let is_publication = ordered.event == FeedEvent::Published;
        let handed = channel.total_subscribers();
        for share in channel.remote_subscribers.as_slice() {
            let channel = channel.name.clone();
            outlet.send_message(
                share.worker,
                HubMessage::Deliver {
                    channel,
                    publication: ordered.to_publication(),
                    previous: ordered.previous.clone(),
                },
            );
        }
        self.fan_out(index, ordered, None, outlet);
        if is_publication {
            self.receivers_total += u64::from(handed);
        }
        handed
    }

    /// At the channel's home: called when a publication was accepted. Returns the credit of a publication from another
    /// worker, unless the credit was returned before, and sends the reply if the result is known already. Publications
    /// that wait in the engine do not keep their credits: they have a limit of their own, and would block the lane for
    /// channels without history.
    pub(crate) fn acknowledge(
        &self,
        origin: Origin,
        has_credit: bool,
        published: Option<PublishOutcome>,
        outlet: &mut impl Outlet,
    ) {
        if let Some(published) = published {
            self.reply(origin, HubReply::Published(published), outlet);
        }
        if has_credit && origin.from != self.me {
            outlet.return_credit(origin.from, HubMessageClass::Publish);
        }
    }
}

/// Returns whether the payload of the preceding publication is needed for a delta.
pub(crate) fn wants_previous(differences: DeltaMode, terms: Option<&PublishOptions>) -> bool {
    match differences {
        DeltaMode::Off => false,
        DeltaMode::OnRequest => terms.is_some_and(|terms| terms.use_delta),
        DeltaMode::Always => true,
    }
}
