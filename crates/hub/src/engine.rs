//! The engine: orders and stores publications, and feeds them back.
//!
//! # Contract
//!
//! The home of a channel is one worker of this node, and only the home communicates with the engine about that channel.
//! Each clause below has a test of the same name in `tests/engine`, which runs on every engine to which the clause
//! applies.
//!
//! Publishing
//!
//! * `order`: the publications of one channel get their positions in the order in which the home submits them. Publications
//!   of other nodes may come in between.
//! * `answer`: each submitted publication is answered exactly once: immediately ([`OrderResult::Ordered`],
//!   [`OrderResult::Skipped`]), or later by an [`EngineReport`] with its [`RequestContext`]. An error means that the
//!   outcome is unknown: the publication may have been stored.
//! * `retry`: an engine submits a publication to its store a second time only under a key: the publisher's, or one that
//!   it has generated for this purpose. If a publication has failed, the home forgets the publisher's key, so that the
//!   publisher may retry under the same key. The store still knows the key. So the publication is stored only once,
//!   whether the engine submits it again or the publisher retries it under its key.
//! * `stale`: a publication is skipped and not delivered if its version is not newer than the stored one, or if its key
//!   was used before.
//! * `handed`: the number of receivers of a publication is reported only if all subscribers are on this node. An engine
//!   that answers with [`EngineReport::Published`] does not report it.
//! * `room`: an engine never refuses a submitted publication. Before it runs out of room, [`Engine::is_full`] makes the
//!   home pause the publishers.
//!
//! Positions
//!
//! * `increase`: within an epoch offsets increase in publication order. They need not be dense, so code outside an
//!   engine never calculates with them: the hub only compares, stores and forwards them.
//! * `epoch`: positions of different epochs can't be compared. An engine that has lost positions starts a new epoch
//!   and reports [`EngineReport::Lost`].
//!
//! Feed
//!
//! * `follow`: the home notifies the engine when a channel, with or without history, gets its first subscriber on this
//!   node, and when it loses its last one ([`Engine::follow`], [`Engine::unfollow`]). A wildcard channel stands for all
//!   channels that it matches. A subscription is confirmed only after the engine follows its channel; from then on
//!   [`Engine::position`] is where the feed continues. A subscription fails if the engine can't follow the channel.
//! * `feed`: publications reach subscribers only through the feed: as the value of [`OrderResult::Ordered`], or as
//!   [`EngineReport::Item`]. The home forwards each item in feed order to all workers of the node; from there on nothing is
//!   lost.
//! * `stored`: an engine with a log, or with a store outside the process, stores a publication that gets a position
//!   before it feeds the item and answers the publisher. So a crash of this process does not undo a publication that a
//!   subscriber has received or whose publisher has been answered. An engine that stores publications only in the memory
//!   of the process does not wait, and a crash loses its publications.
//! * `link`: an item carries the offset of its predecessor ([`FeedItem::predecessor`]). The home follows these links:
//!   it skips an item at or below the last offset, and treats an item whose predecessor is not the last offset as a
//!   gap.
//! * `gap`: the feed may lose, repeat and reorder items. The home closes a gap with one [`Engine::read_since`] from the
//!   last offset, and holds later items back meanwhile. An engine whose feed may lose the latest item compares the
//!   latest stored offset of each channel with the offset of the last item from the feed. If they differ, it reports the
//!   latest item again. Publications without a position have no link and may be lost unnoticed.
//! * `lost`: if a gap can't be closed, subscribers are notified by
//!   [`Outlet::publications_lost`](crate::Outlet::publications_lost): their state is incomplete, so they have to
//!   subscribe again.
//!
//! Reading
//!
//! * `join`: a new subscriber joins at the position reached by the feed, and gets the publications that it has missed
//!   up to there. An engine that does not hold them in this process returns [`EngineReply::Deferred`] and feeds only by
//!   reports. The home then reads once for all waiting subscribers of a channel, and keeps the items delivered
//!   meanwhile. [`Engine::follow`] announces the read for the first subscriber of a channel, so that the engine can
//!   request the publications together with the position. Until the read has completed, the subscription is pending:
//!   it is not counted and receives nothing.
//! * `chain`: a read returns a [`HistorySegment`]: publications linked without a gap, up to the top. It can be joined
//!   with a position only if the position has the same epoch and its offset is one of the links. An engine that is not
//!   certain of a link shortens the segment, and the subscriber learns that publications are missing.
//! * `share`: subscribers that arrive during a read share its result, unless they have missed more than it contains.
//! * `top`: a read includes every item that the home had [delivered](Engine::before_delivery) when it requested the read.
//! * `removal`: removing the history keeps the position. Publications submitted before the removal are removed, too.
//!
//! Presence
//!
//! * `member`: the home reports each member that joins or leaves on this node ([`Engine::member_changed`]), in order. The
//!   engine decides, immediately or later, whether subscribers are notified. Subscribers are not
//!   notified if presence counts only users and the same user is a member on another node.
//! * `lease`: members are valid as long as the lease of their node, which the engine renews. An engine that has lost
//!   the members takes them from [`Catalog::members`] again. If the lease of a node expires, one other node reports its
//!   members ([`EngineReport::LeaseExpired`]).
//! * `presence`: the members of a channel and their number are queried from the engine, which may answer later.
//!
//! Occupancy
//!
//! * `occupancy`: if the namespace of a channel has events, the home reports when the channel gets its first subscriber
//!   on this node, and, after the delay of the namespace, when it no longer has any ([`Engine::occupancy_changed`]). The
//!   engine decides, immediately or later, whether this is an event of the whole cluster; exactly one node reports each
//!   event. An engine that has lost the occupied channels takes them from [`Catalog::occupied`] again. If the last
//!   subscribers of a channel were on a node whose lease has expired, one other node reports the channel as vacated.
//!
//! An engine has no access to sockets or clocks: its owner transports the messages that the engine sends and receives,
//! and calls [`Hub::take_reports`](crate::Hub::take_reports) when reports have arrived.

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
/// A channel with history has a *slot*: a number that the engine assigns and the hub stores with the channel.
pub trait Engine {
    /// Starts the stream of a channel and returns its slot. `channel` is the hub's number of the channel.
    fn open(&mut self, channel: u32, name: &Arc<str>, now_ms: u64) -> u32;

    /// Drops the stream of a channel.
    fn close(&mut self, slot: u32, name: &Arc<str>);

    /// Orders a publication. Joins and leaves are publications too.
    fn publish(&mut self, offer: &mut NewPublication<'_, '_>) -> OrderResult;

    /// Returns whether the engine may order publications later. If `false`, [`publish`](Self::publish) never returns
    /// [`OrderResult::Deferred`].
    fn is_deferring(&self) -> bool {
        false
    }

    /// Returns whether the engine has no room for further pending publications, so that publishers
    /// must wait.
    fn is_full(&self) -> bool {
        false
    }

    /// Returns whether other nodes may have subscribers. If so, publications are ordered even without a subscriber on
    /// this node.
    fn reaches_others(&self) -> bool {
        false
    }

    /// Returns the number of pending requests of the channel with this slot.
    fn pending_count(&self, _slot: u32) -> u32 {
        0
    }

    /// Requests a report [`EngineReport::Fence`] with this context. The engine makes the report once all earlier
    /// requests of the channel are completed. Called only while requests of the channel are pending.
    fn fence(&mut self, slot: u32, request_context: RequestContext);

    /// Starts the feed of a channel that gets its first subscriber on this node. `slot` is `None` without history. A
    /// deferred reply arrives as [`EngineReport::Following`], unless [`unfollow`](Self::unfollow) is called first.
    ///
    /// `first_read` says what that subscriber will read; the engine may read it together with the position at which the
    /// feed begins.
    fn follow(
        &mut self,
        _name: &Arc<str>,
        _slot: Option<u32>,
        _first_read: ReadStart,
    ) -> EngineReply<()> {
        EngineReply::Ready(())
    }

    /// Stops the feed of a channel that has lost its last subscriber on this node.
    fn unfollow(&mut self, _name: &Arc<str>, _slot: Option<u32>) {}

    /// Returns the state that a new subscriber joins: the position reached by the feed, and the publications missed up
    /// to there. Returns [`EngineReply::Deferred`] if this process does not hold them; the home then reads a
    /// [`HistorySegment`].
    fn join(
        &mut self,
        kept: StoredChannel<'_>,
        subscribe_options: &SubscribeOptions,
    ) -> EngineReply<SubscribeOutcome>;

    /// Returns whether the channel has no stored publications, as far as this process knows.
    fn is_empty(&self, slot: u32) -> bool;

    /// Reads a page of the history.
    fn read(
        &mut self,
        kept: StoredChannel<'_>,
        query: &HistoryQuery,
        answer_max: usize,
        request_context: RequestContext,
    ) -> EngineReply<Result<HistoryPage, HistoryError>>;

    /// Reads the stored publications from a position up to the top, to close a gap or for returning subscribers. The
    /// result arrives as [`EngineReport::Segment`].
    fn read_since(&mut self, _slot: u32, _read: HistoryRead) {}

    /// Makes the feed continue after a position. Called if the gap that ends at this position could not be closed.
    fn resume(&mut self, _slot: u32, _position: Position) {}

    /// Removes the stored publications of a channel; its position stays.
    fn remove(
        &mut self,
        kept: StoredChannel<'_>,
        request_context: RequestContext,
    ) -> EngineReply<Result<(), HistoryError>>;

    /// Called before the reply to a removal of history is sent. Removes the publications that were submitted before the
    /// removal and were delivered after it.
    fn before_removal_reply(&mut self, _slot: u32) {}

    /// Called before an item is delivered to subscribers. Returns the payload of the preceding publication if a delta
    /// is wanted.
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

    /// Returns the next report that is ready, if any.
    fn poll(&mut self) -> Option<EngineReport> {
        None
    }

    /// Called at the end of a pass in which the home has polled all reports. The home has then handled all of them,
    /// except those for channels whose subscribers have no room.
    fn reports_passed(&mut self) {}

    /// Called after a report of a pending request of this channel was handled.
    fn report_handled(&mut self, _slot: u32) {}

    /// Returns the position of the last item delivered to subscribers.
    fn position(&self, slot: u32) -> Position;

    /// Records that a member on this node has joined or left. Returns whether subscribers are notified. A deferred
    /// reply arrives as [`EngineReport::Member`].
    fn member_changed(&mut self, _change: MemberChange<'_>) -> EngineReply<bool> {
        EngineReply::Ready(true)
    }

    /// Records that a channel has its first subscriber on this node, or has lost the last one.
    /// Returns whether this is an event of the channel in the whole cluster. A deferred reply
    /// arrives as [`EngineReport::Occupancy`].
    fn occupancy_changed(&mut self, _channel: &Arc<str>, _is_occupied: bool) -> EngineReply<bool> {
        EngineReply::Ready(true)
    }

    /// Returns the members of a channel on all nodes. `here` has the members on this node.
    fn presence(
        &mut self,
        here: LocalMembers<'_>,
        _asker: QueryContext,
    ) -> EngineReply<Result<Box<[Arc<ClientInfo>]>, PresenceError>> {
        EngineReply::Ready(here.list())
    }

    /// Returns the number of members of a channel on all nodes. `here` has the members on this node.
    fn presence_stats(
        &mut self,
        here: LocalMembers<'_>,
        _asker: QueryContext,
    ) -> EngineReply<Result<PresenceStats, PresenceError>> {
        EngineReply::Ready(Ok(here.stats()))
    }

    /// Sets the namespaces, and the limit for the history of all `_workers` workers together, in bytes.
    fn set_limits(&mut self, _namespaces: &Namespaces, _bytes_max: usize, _workers: u16) {}

    /// Drops data that exceeds a limit or has expired. Adds to `gone` the hub's numbers of the channels whose slots
    /// were closed.
    fn maintain(
        &mut self,
        _catalog: &Catalog<'_>,
        _now_ms: u64,
        _round: MaintenanceScope,
        _gone: &mut Vec<u32>,
    ) {
    }

    /// Returns whether [`maintain`](Self::maintain) has to be called even if there is no activity.
    fn has_maintenance(&self) -> bool {
        false
    }

    /// Returns the gauges of the engine.
    fn gauges(&self) -> EngineGauges {
        EngineGauges::default()
    }
}

/// The extent of one call of [`Engine::maintain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceScope {
    /// Enforces only the limits. Requested after a publication or a subscription.
    Incremental,
    /// All maintenance; called about once a second.
    Full,
}

/// Gauges of an engine, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineGauges {
    /// The number of requests that are not completed yet.
    pub waiting: usize,
    /// The number of reports that can be polled now.
    pub ready: usize,
    /// The payload bytes of the pending requests.
    pub waiting_bytes: usize,
    /// The number of channels with a slot.
    pub channels: usize,
    /// The size of the data stored in this process, in bytes.
    pub bytes: usize,
}

/// A channel with history.
#[derive(Clone, Copy, Debug)]
pub struct StoredChannel<'a> {
    /// The name of the channel.
    pub name: &'a Arc<str>,
    /// The slot of the channel in the engine. The number of a closed slot is reused.
    pub slot: u32,
    /// How much history the channel stores, and for how long.
    pub history: &'a HistoryOptions,
    /// The wall-clock time that decides which publications have expired, in milliseconds since
    /// 1970.
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
    /// The history options of the channel; `None` if the publication is not stored and gets no position.
    pub history: Option<&'a HistoryOptions>,
    /// The type of the publication.
    pub event: FeedEvent,
    /// The wall clock in milliseconds since 1970.
    pub at_ms: u64,
    /// Metadata delivered with the payload.
    pub info: Option<&'a Arc<PublicationInfo>>,
    /// Whether the payload of the preceding publication is needed for a delta.
    pub wants_previous: bool,
}

impl NewPublication<'_, '_> {
    /// Returns the payload to store. The bytes are copied on the first call only.
    pub fn payload(&mut self) -> Payload {
        self.payload.to_payload()
    }

    /// Returns the version of the channel's state that the publication contains, if the publisher has set one.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        self.options?.version.as_ref()
    }

    /// Returns the publisher's idempotency key, if there is one.
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

/// The hub's data about a request that the engine completes later. Engines do not interpret it.
#[derive(Debug)]
pub struct RequestContext {
    pub(crate) channel: u32,
    pub(crate) origin: Origin,
    pub(crate) options: Option<Arc<PublishOptions>>,
    /// The result of the earlier publication with the same key; `None` if the request does not repeat a publication.
    pub(crate) repeated: Option<PublishOutcome>,
    /// Whether the channel had a slot when the request was made. If so, the request is counted in the slot.
    pub(crate) has_slot: bool,
}

/// The origin of a query that the engine answers later. Engines do not interpret it.
#[derive(Debug)]
pub struct QueryContext(pub(crate) Origin);

/// A member on this node that has joined or left.
#[derive(Debug)]
pub struct MemberChange<'a> {
    /// The name of the channel.
    pub channel: &'a Arc<str>,
    /// The joining or leaving client, as other clients see it.
    pub client: &'a Arc<ClientInfo>,
    /// Either [`FeedEvent::Joined`] or [`FeedEvent::Left`].
    pub event: FeedEvent,
    /// Whether only the first connection of a user is announced as a join, and only the last one as
    /// a leave.
    pub is_by_user: bool,
    /// Whether subscribers have to be notified as far as this node knows. If `false`, they are not notified whatever
    /// the engine replies.
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

/// A member change about which the engine decides later. Engines do not interpret it.
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
    /// The name of the channel.
    pub channel: &'a str,
    pub(crate) members: Option<&'a ChannelMembers>,
}

impl LocalMembers<'_> {
    /// Returns the members, or [`PresenceError::TooMany`] if there are too many to list.
    pub fn list(&self) -> Result<Box<[Arc<ClientInfo>]>, PresenceError> {
        let Some(channel_members) = self.members else {
            return Ok(Box::default());
        };
        match channel_members.stats().clients as usize <= crate::MEMBERS_MAX {
            true => Ok(channel_members.clients().cloned().collect()),
            false => Err(PresenceError::TooMany),
        }
    }

    /// Returns the number of members and the number of their users.
    #[must_use]
    pub fn stats(&self) -> PresenceStats {
        self.members
            .map_or_else(PresenceStats::default, ChannelMembers::stats)
    }
}

/// The engine's report about a change of a channel's occupancy on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccupancyReport {
    /// The name of the channel.
    pub channel: Arc<str>,
    /// Whether the node has reported that the channel has subscribers (`true`), or no longer has
    /// any.
    pub is_occupied: bool,
    /// Whether the channel's occupancy in the whole cluster has changed, so that the channel has an event. If not,
    /// other nodes have subscribers.
    pub is_changed: bool,
    /// The time of the change by the engine's clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// Whether the channel has become empty because the lease of another node has expired. Exactly
    /// one node, this one, reports the change.
    pub is_of_expired_lease: bool,
}

/// The immediate result of submitting a publication.
#[derive(Debug)]
pub enum OrderResult {
    /// The publication was ordered, and stored if the channel has history. It must be delivered now.
    Ordered {
        /// The position of the publication, if it is stored.
        position: Option<Position>,
        /// The payload of the preceding publication, if a delta is wanted.
        previous: Option<Payload>,
    },
    /// The publication is stale and was not stored. Contains the position of the channel.
    Skipped(Position),
    /// The result follows in an [`EngineReport`].
    Deferred,
}

/// The reply to a query: immediate, or in a later report.
#[derive(Debug)]
pub enum EngineReply<T> {
    /// The reply is known at once.
    Ready(T),
    /// The reply follows in an [`EngineReport`].
    Deferred,
}

/// An item of a channel's feed.
#[derive(Clone, Debug)]
pub struct FeedItem {
    /// The name of the channel that was published to.
    pub channel: Arc<str>,
    /// The publication, with its position if it is stored.
    pub publication: Publication,
    /// The offset of the item's predecessor in the same epoch; 0 if the item is the first.
    pub predecessor: u64,
}

/// A deferred reply or a notification of an engine.
#[derive(Debug)]
pub enum EngineReport {
    /// An item of the feed. It has a context if this worker has submitted the publication and has
    /// not received a report about it yet.
    Item(Box<FeedItem>, Option<RequestContext>),
    /// A publication was ordered; it will be delivered as an item. Contains its position if it is stored, and the
    /// number of nodes with subscribers if the engine knows it. The number of subscribers is unknown.
    Published(RequestContext, Option<Position>, Option<u32>),
    /// The engine got no answer about a publication, so it is unknown whether it was stored.
    Failed(RequestContext),
    /// A publication was stale. Contains the position of its channel; `None` stands for the position of the last
    /// delivered item.
    Skipped(RequestContext, Option<Position>),
    /// All requests before a [fence](Engine::fence) are completed.
    Fence(RequestContext),
    /// The result of [`Engine::remove`].
    Removed(RequestContext, Result<(), HistoryError>),
    /// The result of [`Engine::read`].
    History(RequestContext, Result<HistoryPage, HistoryError>),
    /// The reply to [`Engine::follow`]: the channel, and whether its feed has started.
    Following(Arc<str>, bool),
    /// The result of [`Engine::read_since`]: the channel, the read, and the stored publications; `None` if they can't
    /// be read.
    Segment(Arc<str>, HistoryRead, Option<Box<HistorySegment>>),
    /// The reply to [`Engine::member_changed`]: whether subscribers are notified.
    Member(MemberChangeContext, bool),
    /// A member on another node has left because the lease of that node has expired. Exactly one
    /// node, this one, reports it. The last value is whether the same user is a member on
    /// a node whose lease is valid.
    LeaseExpired(Arc<str>, Arc<ClientInfo>, bool),
    /// The reply to [`Engine::occupancy_changed`].
    Occupancy(OccupancyReport),
    /// The reply to [`Engine::presence`].
    Presence(QueryContext, Result<Box<[Arc<ClientInfo>]>, PresenceError>),
    /// The reply to [`Engine::presence_stats`].
    PresenceStats(QueryContext, Result<PresenceStats, PresenceError>),
    /// The position of the channel is no longer valid, for example because its epoch has ended.
    Lost(Arc<str>),
}

impl EngineReport {
    /// Returns the channel whose subscribers must have room for a publication before the report can be handled; `None`
    /// if the report need not wait for room.
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

/// The hub's channels by number, as engines need them for maintenance.
pub struct Catalog<'a> {
    pub(crate) channels: &'a Channels,
    pub(crate) namespaces: &'a Namespaces,
    pub(crate) presence: &'a Presence,
    /// Channels that have lost their last subscriber, but are not reported as vacated yet.
    pub(crate) emptying: &'a HashMap<Arc<str>, Due, RandomState>,
}

impl Catalog<'_> {
    /// Iterates over the members on this node, each with its channel.
    pub fn members(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<ClientInfo>)> {
        self.presence.local_members()
    }

    /// Iterates over the channels of this home that count as occupied: they have subscribers, or have lost them but are
    /// not reported as vacated yet. Only channels whose namespace has events are included.
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

    /// Returns whether a client has the position of the channel, or may get it because requests are pending.
    #[must_use]
    pub fn is_position_used(&self, channel: u32) -> bool {
        self.channel(channel).is_used()
    }
}
