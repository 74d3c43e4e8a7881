//! The engine: orders and stores publications, and feeds them back.
//!
//! # Contract
//!
//! The home of a channel is one worker of this node; only the home talks to the engine about that channel. Each clause
//! below has a test of the same name in `tests/engine`, which runs on every engine that it concerns.
//!
//! Publishing
//!
//! * `order`: the publications of one channel get their positions in the order in which the home submits them. Other
//!   nodes may publish in between.
//! * `answer`: each submitted publication is answered exactly once: immediately ([`OrderResult::Ordered`], [`OrderResult::Skipped`]),
//!   or later by an [`EngineReport`] with its [`RequestContext`]. An error means that the outcome is unknown: the publication may
//!   have been stored.
//! * `retry`: an engine submits a publication to its store again only under a key: the publisher's, or one that it has
//!   generated for this purpose. The home forgets the publisher's key of a failed publication, so the publisher may
//!   retry; the store still knows the key. In either case the publication is stored once.
//! * `stale`: a publication whose version is not newer, or whose key was used before, is skipped and not delivered.
//! * `handed`: the number of receivers of a publication is known only if this node has all subscribers: an engine that
//!   answers with [`EngineReport::Published`] leaves it open.
//! * `room`: an engine never refuses a submitted publication; [`Engine::is_full`] makes the home pause the publishers
//!   first.
//!
//! Positions
//!
//! * `increase`: within an epoch offsets increase in publication order. They need not be dense, so code outside an
//!   engine never calculates with them: the hub only compares, stores and forwards them.
//! * `epoch`: positions of different epochs can't be compared. An engine that has lost positions starts another epoch
//!   and reports [`EngineReport::Lost`].
//!
//! Feed
//!
//! * `follow`: the home notifies the engine when a channel gets its first subscriber on this node and when it loses its
//!   last ([`Engine::follow`], [`Engine::unfollow`]), with or without history. A wildcard channel stands for all
//!   channels that it matches. A subscription is confirmed only after the engine follows its channel; from then on
//!   [`Engine::position`] is where the feed continues. A subscription fails if the engine can't follow the channel.
//! * `feed`: publications reach subscribers only through the feed: as the value of [`OrderResult::Ordered`], or as
//!   [`EngineReport::Item`]. The home forwards each item in feed order to all workers of the node; from there on nothing is
//!   lost.
//! * `stored`: an item in the feed is stored to the extent that the engine stores anything: no crash of this node takes
//!   back what a subscriber or a publisher has seen.
//! * `link`: an item carries the offset of its predecessor ([`FeedItem::predecessor`]). The home follows these links: it skips
//!   an item at or below the last offset, and treats an item whose predecessor is not the last offset as a gap.
//! * `gap`: the feed may lose, repeat and reorder items. The home closes a gap with one [`Engine::read_since`] from the
//!   last offset and holds later items back meanwhile. An engine that may lose the latest item compares tops and
//!   reports it again. Publications without a position have no link and may be lost unnoticed.
//! * `lost`: only a gap that can't be closed reaches subscribers, as [`Outlet::publications_lost`](crate::Outlet::publications_lost): their state
//!   is insufficient and they have to subscribe again.
//!
//! Reading
//!
//! * `join`: a new subscriber joins at the position reached by the feed and gets what it missed up to there. An engine
//!   that does not hold this in the process returns [`EngineReply::Deferred`] and feeds only by reports. The home then reads once
//!   for all waiting subscribers of a channel and keeps the items delivered meanwhile. Until then a subscription is
//!   pending: it is not counted and receives nothing.
//! * `chain`: a read returns a [`HistorySegment`]: publications linked without a gap, up to the top. It joins a position only if
//!   the position's offset is one of its links in the same epoch. An engine that is not certain of a link shortens the
//!   segment, and the subscriber learns that something is missing.
//! * `share`: subscribers that arrive during a read share it as far as it reaches back.
//! * `top`: a read includes every item that the home [delivered](Engine::before_delivery) before requesting it.
//! * `removal`: removing the history keeps the position. Publications submitted before are removed with it.
//!
//! Presence
//!
//! * `member`: the home reports each member that joins or leaves on this node ([`Engine::member_changed`]), in order. The
//!   engine decides, immediately or later, whether subscribers are notified: not if only users count and the same user
//!   is a member on another node.
//! * `lease`: members are valid as long as the lease of their node, which the engine renews. An engine that has lost
//!   them takes them from [`Catalog::members`] again. One node reports members whose lease has expired
//!   ([`EngineReport::LeaseExpired`]).
//! * `presence`: the members of a channel and their number are a query to the engine, which may answer later.
//!
//! Occupancy
//!
//! * `occupancy`: if the namespace of a channel has events, the home reports the channel's first subscriber on this node, and
//!   after the delay of the namespace that it has none any more ([`Engine::occupancy_changed`]). The engine decides,
//!   immediately or later, whether this is an event: each is one of exactly one node. An engine that has lost the occupied
//!   channels takes them from [`Catalog::occupied`] again. One node reports channels whose last subscribers were on a node
//!   whose lease has expired.
//!
//! An engine has no access to sockets or clocks: its owner transports what it sends and receives, and calls
//! [`Hub::take_reports`](crate::Hub::take_reports) when reports have arrived.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::channel::{Channel, Channels};
use crate::channel_members::{ChannelMembers, Due, Presence};
pub use crate::history_segment::{HistoryRead, HistorySegment, ReadStart};
use crate::message::Origin;
use crate::payload::PayloadSource;
use crate::{
    ClientInfo, EventLevel, FeedEvent, HistoryError, HistoryOptions, HistoryPage, HistoryQuery,
    Namespaces, Payload, Position, PresenceError, PresenceStats, Publication, PublicationInfo,
    PublishOptions, PublishOutcome, SubscribeOptions, SubscribeOutcome, Version,
};

/// Orders and stores the publications of the channels of one home; see the [module](self) for the contract.
///
/// A channel with history has a *slot*, a number chosen by the engine and stored by the hub with the channel.
pub trait Engine {
    /// Starts the stream of a channel and returns its slot. `channel` is the hub's number of the channel.
    fn open(&mut self, channel: u32, name: &Arc<str>, now_ms: u64) -> u32;

    /// Drops the stream of a channel.
    fn close(&mut self, slot: u32, name: &Arc<str>);

    /// Orders a publication. Joins and leaves are publications too.
    fn publish(&mut self, offer: &mut NewPublication<'_, '_>) -> OrderResult;

    /// Returns whether publications may be ordered later; if not, [`publish`](Self::publish) never returns
    /// [`OrderResult::Deferred`].
    fn is_deferring(&self) -> bool {
        false
    }

    /// Returns whether publishers must hold back publications that would be ordered later.
    fn is_full(&self) -> bool {
        false
    }

    /// Returns whether other nodes may have subscribers: then publications without a subscriber on this node are
    /// ordered too.
    fn reaches_others(&self) -> bool {
        false
    }

    /// Returns the number of pending requests of a channel.
    fn pending_count(&self, _slot: u32) -> u32 {
        0
    }

    /// Reports the request once everything submitted before it is done; called while requests of the channel are
    /// pending.
    fn fence(&mut self, slot: u32, request_context: RequestContext);

    /// Starts the feed of a channel that gets its first subscriber on this node. A channel with history has a slot. A
    /// deferred reply arrives as [`EngineReport::Following`], unless [`unfollow`](Self::unfollow) is called first.
    fn follow(&mut self, _name: &Arc<str>, _slot: Option<u32>) -> EngineReply<()> {
        EngineReply::Ready(())
    }

    /// Stops the feed of a channel that lost its last subscriber on this node.
    fn unfollow(&mut self, _name: &Arc<str>, _slot: Option<u32>) {}

    /// Returns what a new subscriber joins: the position reached by the feed, and the publications missed up to there.
    /// Returns [`EngineReply::Deferred`] if this process does not hold them; the home then reads a [`HistorySegment`].
    fn join(
        &mut self,
        kept: StoredChannel<'_>,
        subscribe_options: &SubscribeOptions,
    ) -> EngineReply<SubscribeOutcome>;

    /// Returns whether this process knows of no stored publications of the channel.
    fn is_empty(&self, slot: u32) -> bool;

    /// Reads a page of the history.
    fn read(
        &mut self,
        kept: StoredChannel<'_>,
        query: &HistoryQuery,
        answer_max: usize,
        request_context: RequestContext,
    ) -> EngineReply<Result<HistoryPage, HistoryError>>;

    /// Reads the stored publications from a position up to the top, to close a gap or for subscribers;
    /// [`EngineReport::Segment`] returns them.
    fn read_since(&mut self, _slot: u32, _read: HistoryRead) {}

    /// Continues the feed at a position after a gap that could not be closed.
    fn resume(&mut self, _slot: u32, _position: Position) {}

    /// Removes the history of a channel; its position stays.
    fn remove(
        &mut self,
        kept: StoredChannel<'_>,
        request_context: RequestContext,
    ) -> EngineReply<Result<(), HistoryError>>;

    /// Called before a removal is answered: publications submitted before it and delivered since are removed too.
    fn before_removal_reply(&mut self, _slot: u32) {}

    /// Called before an item is delivered to subscribers; returns the preceding payload if a delta is wanted.
    fn before_delivery(
        &mut self,
        slot: u32,
        publication: &Publication,
        history: &HistoryOptions,
        wants_previous: bool,
        now_ms: u64,
    ) -> Option<Payload>;

    /// Returns the number of reports that [`poll`](Self::poll) can return now.
    fn ready_reports(&self) -> usize {
        0
    }

    /// Returns the next report.
    fn poll(&mut self) -> Option<EngineReport> {
        None
    }

    /// Called after a report of a pending request was handled.
    fn report_handled(&mut self, _slot: u32) {}

    /// Returns the position of the last delivered item.
    fn position(&self, slot: u32) -> Position;

    /// Records a member change of this node. Returns whether subscribers are notified; [`EngineReport::Member`] brings a
    /// deferred reply.
    fn member_changed(&mut self, _change: MemberChange<'_>) -> EngineReply<bool> {
        EngineReply::Ready(true)
    }

    /// Records that a channel has its first subscriber on this node, or has none any more. Returns whether this is an event
    /// of the channel; [`EngineReport::Occupancy`] brings a deferred reply.
    fn occupancy_changed(&mut self, _channel: &Arc<str>, _is_occupied: bool) -> EngineReply<bool> {
        EngineReply::Ready(true)
    }

    /// Returns the members of a channel; `here` are those of this node.
    fn presence(
        &mut self,
        here: LocalMembers<'_>,
        _asker: QueryContext,
    ) -> EngineReply<Result<Box<[Arc<ClientInfo>]>, PresenceError>> {
        EngineReply::Ready(here.list())
    }

    /// Returns the number of members of a channel; `here` are those of this node.
    fn presence_stats(
        &mut self,
        here: LocalMembers<'_>,
        _asker: QueryContext,
    ) -> EngineReply<Result<PresenceStats, PresenceError>> {
        EngineReply::Ready(Ok(here.stats()))
    }

    /// Updates the namespaces and the limit in bytes for the history of all workers.
    fn set_limits(&mut self, _namespaces: &Namespaces, _bytes_max: usize, _workers: u16) {}

    /// Drops data that exceeds a limit or has expired. `gone` collects the hub's numbers of channels whose slots were
    /// closed.
    fn maintain(
        &mut self,
        _catalog: &Catalog<'_>,
        _now_ms: u64,
        _round: MaintenanceScope,
        _gone: &mut Vec<u32>,
    ) {
    }

    /// Returns whether [`maintain`](Self::maintain) has to be called even without activity.
    fn has_maintenance(&self) -> bool {
        false
    }

    /// Returns the gauges of the engine.
    fn gauges(&self) -> EngineGauges {
        EngineGauges::default()
    }
}

/// The extent of one maintenance call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceScope {
    /// After a publication or a subscription: enforces the limits.
    Incremental,
    /// About once a second: everything.
    Full,
}

/// Gauges of an engine, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineGauges {
    /// Pending requests that were not reported yet.
    pub waiting: usize,
    /// The number of them that are ready to be polled.
    pub ready: usize,
    /// Payload bytes of the pending requests.
    pub waiting_bytes: usize,
    /// Channels with a slot.
    pub channels: usize,
    /// Bytes stored in this process.
    pub bytes: usize,
}

/// A channel with history.
#[derive(Clone, Copy, Debug)]
pub struct StoredChannel<'a> {
    /// Name of the channel, as the log and the engine know it.
    pub name: &'a Arc<str>,
    /// Index of the channel in the hub's table, reused after its removal.
    pub slot: u32,
    /// How much history the channel stores, and for how long.
    pub history: &'a HistoryOptions,
    /// The wall clock for expiry, in milliseconds.
    pub now_ms: u64,
}

/// A publication submitted to the engine.
pub struct NewPublication<'a, 'p> {
    pub(crate) channel: u32,
    pub(crate) payload: PayloadSource<'p>,
    pub(crate) options: Option<&'a Arc<PublishOptions>>,
    pub(crate) origin: Origin,
    /// The name of the channel.
    pub name: &'a Arc<str>,
    /// The slot of the channel, if it has one.
    pub slot: Option<u32>,
    /// The history options; `None`: the publication is not stored and gets no position.
    pub history: Option<&'a HistoryOptions>,
    /// The type of the publication.
    pub event: FeedEvent,
    /// The wall clock in milliseconds since 1970.
    pub at_ms: u64,
    /// Metadata delivered with the payload.
    pub info: Option<&'a Arc<PublicationInfo>>,
    /// Whether the preceding payload is needed for a delta.
    pub wants_previous: bool,
}

impl NewPublication<'_, '_> {
    /// Returns the payload to store. The bytes are copied on the first call only.
    pub fn payload(&mut self) -> Payload {
        self.payload.to_payload()
    }

    /// Returns the version of the channel's state.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        self.options?.version.as_ref()
    }

    /// Returns the idempotency key.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        self.options?.idempotency_key.as_deref()
    }

    /// Returns the context that the report about the publication must carry.
    #[must_use]
    pub fn context(&self) -> RequestContext {
        RequestContext {
            channel: self.channel,
            origin: self.origin,
            options: self.options.cloned(),
            repeated: None,
            has_slot: self.slot.is_some(),
        }
    }

    /// Returns the publication with its position.
    pub fn to_publication(&mut self, position: Option<Position>) -> Publication {
        Publication {
            payload: self.payload.to_payload(),
            position,
            at_ms: self.at_ms,
            event: self.event,
            info: self.info.cloned(),
        }
    }
}

/// The hub's record of a request that is answered later; opaque to engines.
#[derive(Debug)]
pub struct RequestContext {
    pub(crate) channel: u32,
    pub(crate) origin: Origin,
    pub(crate) options: Option<Arc<PublishOptions>>,
    /// The result of the publication that this one repeats.
    pub(crate) repeated: Option<PublishOutcome>,
    /// Whether the channel had a slot when the request was made: then the request is counted in the slot.
    pub(crate) has_slot: bool,
}

/// The origin of a query that is answered later; opaque to engines.
#[derive(Debug)]
pub struct QueryContext(pub(crate) Origin);

/// A member of this node that joined or left.
#[derive(Debug)]
pub struct MemberChange<'a> {
    /// Name of the channel that the member belongs to.
    pub channel: &'a Arc<str>,
    /// The joining or leaving client, as others see it.
    pub client: &'a Arc<ClientInfo>,
    /// Either [`FeedEvent::Joined`] or [`FeedEvent::Left`].
    pub event: FeedEvent,
    /// Whether only the first and last connection of a user are announced.
    pub is_by_user: bool,
    /// Whether subscribers are notified as far as this node knows. If not, the engine's reply changes nothing.
    pub is_announced: bool,
}

impl MemberChange<'_> {
    /// Returns the context that the report about the change must carry.
    #[must_use]
    pub fn context(&self) -> MemberChangeContext {
        MemberChangeContext {
            channel: Arc::clone(self.channel),
            client: Arc::clone(self.client),
            event: self.event,
            is_announced: self.is_announced,
        }
    }
}

/// A member change that is answered later; opaque to engines.
#[derive(Debug)]
pub struct MemberChangeContext {
    pub(crate) channel: Arc<str>,
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) event: FeedEvent,
    pub(crate) is_announced: bool,
}

/// The members of one channel on this node.
#[derive(Clone, Copy, Debug)]
pub struct LocalMembers<'a> {
    /// Name of the channel that is queried.
    pub channel: &'a str,
    pub(crate) members: Option<&'a ChannelMembers>,
}

impl LocalMembers<'_> {
    /// Returns the members, or [`PresenceError::TooMany`].
    pub fn list(&self) -> Result<Box<[Arc<ClientInfo>]>, PresenceError> {
        let Some(channel_members) = self.members else {
            return Ok(Box::default());
        };
        match channel_members.stats().clients as usize <= crate::MEMBERS_MAX {
            true => Ok(channel_members.clients().cloned().collect()),
            false => Err(PresenceError::TooMany),
        }
    }

    /// Returns the number of members and of their users.
    #[must_use]
    pub fn stats(&self) -> PresenceStats {
        self.members
            .map_or_else(PresenceStats::default, ChannelMembers::stats)
    }
}

/// Whether the occupancy of a channel in the whole cluster has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccupancyReport {
    /// Name of the channel.
    pub channel: Arc<str>,
    /// Whether the channel has subscribers.
    pub is_occupied: bool,
    /// Whether this is an event of the channel: if not, other nodes have subscribers.
    pub is_changed: bool,
    /// The time by the clock of the engine, in milliseconds since 1970.
    pub at_ms: u64,
    /// The lease of the node with the last subscribers has expired, and this node is the one that reports it.
    pub is_of_expired_lease: bool,
}

/// The immediate result of submitting a publication.
#[derive(Debug)]
pub enum OrderResult {
    /// Ordered and stored; to be delivered now.
    Ordered {
        /// The position, if stored.
        position: Option<Position>,
        /// The preceding payload, if a delta is needed.
        previous: Option<Payload>,
    },
    /// Stale, and not stored; with the channel's position.
    Skipped(Position),
    /// The result follows in an [`EngineReport`].
    Deferred,
}

/// The result of a query: immediate, or in a later report.
#[derive(Debug)]
pub enum EngineReply<T> {
    /// The result is known at once.
    Ready(T),
    /// The result follows in an [`EngineReport`].
    Deferred,
}

/// An item of a channel's feed.
#[derive(Clone, Debug)]
pub struct FeedItem {
    /// Name of the channel that was published to.
    pub channel: Arc<str>,
    /// The publication, with its position if it is stored.
    pub publication: Publication,
    /// The offset of the predecessor in the same epoch; 0 for the first.
    pub predecessor: u64,
}

/// A deferred reply or a notification of an engine.
#[derive(Debug)]
pub enum EngineReport {
    /// An item of the feed. It has a context if this worker submitted it and was not answered yet.
    Item(Box<FeedItem>, Option<RequestContext>),
    /// A publication was ordered; it will be delivered as an item. Contains its position if it is stored, and the
    /// number of nodes with subscribers, if the engine knows it. The number of subscribers is unknown.
    Published(RequestContext, Option<Position>, Option<u32>),
    /// The engine did not answer: whether a publication was stored is unknown.
    Failed(RequestContext),
    /// A publication was stale. With the position of its channel; `None` stands for that of the last delivered item.
    Skipped(RequestContext, Option<Position>),
    /// A [fence](Engine::fence) was reached.
    Fence(RequestContext),
    /// The result of removing the history.
    Removed(RequestContext, Result<(), HistoryError>),
    /// A page of the history.
    History(RequestContext, Result<HistoryPage, HistoryError>),
    /// The reply to [`Engine::follow`]: whether the feed of the channel has started.
    Following(Arc<str>, bool),
    /// The reply to [`Engine::read_since`]: the channel, the read, and the stored publications; `None` if they can't be
    /// read.
    Segment(Arc<str>, HistoryRead, Option<Box<HistorySegment>>),
    /// The reply to [`Engine::member_changed`]: whether subscribers are notified.
    Member(MemberChangeContext, bool),
    /// The lease of a member of another node has expired, and this node is the one that reports it. Whether the same user is
    /// a member elsewhere comes last.
    LeaseExpired(Arc<str>, Arc<ClientInfo>, bool),
    /// The reply to [`Engine::occupancy_changed`].
    Occupancy(OccupancyReport),
    /// The members of a channel.
    Presence(QueryContext, Result<Box<[Arc<ClientInfo>]>, PresenceError>),
    /// The number of members of a channel.
    PresenceStats(QueryContext, Result<PresenceStats, PresenceError>),
    /// The position of a channel is void, for example because its epoch has ended.
    Lost(Arc<str>),
}

impl EngineReport {
    /// The channel whose subscribers need room for the entry.
    pub(crate) fn channel(&self) -> Option<u32> {
        match self {
            Self::Item(_, request_context) => request_context
                .as_ref()
                .map(|request_context| request_context.channel),
            Self::Skipped(request_context, _)
            | Self::Published(request_context, ..)
            | Self::Failed(request_context)
            | Self::Fence(request_context)
            | Self::Removed(request_context, _)
            | Self::History(request_context, _) => Some(request_context.channel),
            Self::Following(..)
            | Self::Segment(..)
            | Self::Member(..)
            | Self::LeaseExpired(..)
            | Self::Occupancy(_)
            | Self::Presence(..)
            | Self::PresenceStats(..)
            | Self::Lost(_) => None,
        }
    }
}

/// The hub's channels by number, for maintenance.
pub struct Catalog<'a> {
    pub(crate) channels: &'a Channels,
    pub(crate) namespaces: &'a Namespaces,
    pub(crate) presence: &'a Presence,
    /// Channels that have lost their last subscriber, within the delay of their namespace.
    pub(crate) emptying: &'a HashMap<Arc<str>, Due, RandomState>,
}

impl Catalog<'_> {
    /// Iterates over the members of this node, by channel.
    pub fn members(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<ClientInfo>)> {
        self.presence.local_members()
    }

    /// Iterates over the channels of this home that have subscribers, or have lost them within the delay of their namespace, as
    /// far as their namespace has events.
    pub fn occupied(&self) -> impl Iterator<Item = &Arc<str>> {
        let all = self.channels.iter();
        let all = all.filter(|one| one.home.is_local() && one.total_subscribers() > 0);
        let has_events =
            |name: &&Arc<str>| self.namespaces.of(name).event_level >= EventLevel::Occupancy;
        let names = all.map(|one| &one.name).filter(has_events);
        names.chain(self.emptying.keys())
    }

    fn channel(&self, channel: u32) -> &Channel {
        &self.channels[channel]
    }

    /// Returns the name of a channel.
    #[must_use]
    pub fn name(&self, channel: u32) -> &Arc<str> {
        &self.channel(channel).name
    }

    /// Returns the history options of a channel; `None` without history.
    #[must_use]
    pub fn history(&self, channel: u32) -> Option<HistoryOptions> {
        self.namespaces.of(self.name(channel)).history
    }

    /// Returns whether the position of a channel is in use.
    #[must_use]
    pub fn is_position_used(&self, channel: u32) -> bool {
        self.channel(channel).is_used()
    }
}
