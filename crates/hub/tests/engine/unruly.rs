//! An engine with sparse offsets, with delayed reports, and with a feed that loses, repeats and reorders items. With
//! `is_late` it also defers joins, follows and member changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use veche_hub::engine::{
    Catalog, EngineReply, EngineReport, FeedItem, HistoryRead, HistorySegment, LocalMembers,
    MaintenanceScope, MemberChange, NewPublication, OrderResult, QueryContext, ReadStart,
    RequestContext, StoredChannel,
};
use veche_hub::{
    ClientInfo, Engine, Epoch, FeedEvent, HistoryError, HistoryOptions, HistoryPage, HistoryQuery,
    Payload, Position, PresenceError, PresenceStats, Publication, RECOVERED_MAX, Recovered, Since,
    SubscribeOptions, SubscribeOutcome,
};

/// The clause of the contract that the engine breaks on purpose, to prove that the clause's test
/// can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    Order,
    Answer,
    Increase,
    Link,
    Join,
    Removal,
    Stale,
    Follow,
    Retry,
    Member,
    Lease,
    Presence,
}

#[derive(Debug)]
struct Stored {
    publication: Publication,
    before: u64,
}

#[derive(Debug)]
struct Channel {
    name: Arc<str>,
    epoch: Epoch,
    top: u64,
    stored: BTreeMap<u64, Stored>,
    version: u64,
    /// The offset of the item delivered last.
    last: u64,
    /// The number of requests whose report was not handled yet.
    waiting: u32,
    /// The positions of publications by idempotency key.
    keys: BTreeMap<String, Position>,
}

fn is_chain(report: &EngineReport) -> bool {
    matches!(report, EngineReport::Segment(..))
}

type Member = (Arc<str>, Arc<ClientInfo>);

#[derive(Debug)]
pub(crate) struct Unruly {
    random: fastrand::Rng,
    channels: Vec<Channel>,
    /// The reports in flight, in no particular order.
    under_way: Vec<EngineReport>,
    ready: Vec<EngineReport>,
    /// Whether the feed loses, repeats and reorders items.
    pub(crate) is_lossy: bool,
    /// How many of the next items the feed loses.
    pub(crate) losing: usize,
    /// Whether stored publications are dropped before they are read.
    pub(crate) is_forgetful: bool,
    /// Whether publications fail without being stored.
    pub(crate) is_silent: bool,
    /// Whether the engine reports that it is full.
    pub(crate) is_full: bool,
    /// Whether publications are stored, but their replies are lost.
    pub(crate) is_mute: bool,
    /// Whether joins, follows and member changes are deferred.
    pub(crate) is_late: bool,
    /// Whether following a channel fails.
    pub(crate) cannot_follow: bool,
    pub(crate) reads: u32,
    /// The channels that the engine follows.
    pub(crate) followed: BTreeSet<Arc<str>>,
    /// The members on this node. `members_elsewhere` has the members on other nodes.
    pub(crate) members: Vec<Member>,
    pub(crate) members_elsewhere: Vec<Member>,
    delays_chains: bool,
    broken: Broken,
    held_back: Option<Publication>,
}

impl Unruly {
    pub(crate) fn new(seed: u64, broken: Broken) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            channels: Vec::new(),
            under_way: Vec::new(),
            ready: Vec::new(),
            is_lossy: false,
            losing: 0,
            is_forgetful: false,
            is_silent: false,
            is_full: false,
            is_mute: false,
            is_late: false,
            cannot_follow: false,
            reads: 0,
            followed: BTreeSet::new(),
            members: Vec::new(),
            members_elsewhere: Vec::new(),
            delays_chains: false,
            broken,
            held_back: None,
        }
    }

    fn of(&mut self, slot: u32) -> &mut Channel {
        &mut self.channels[slot as usize]
    }

    /// Stores a publication of this or another node, and sends its feed item.
    fn store(&mut self, slot: u32, mut publication: Publication) -> Position {
        let step = match self.broken {
            Broken::Increase => 0,
            _ => self.random.u64(1..9),
        };
        let is_linked = self.broken != Broken::Link;
        let channel = &mut self.channels[slot as usize];
        let before = channel.top;
        channel.top += step;
        let position = Position {
            epoch: channel.epoch,
            offset: channel.top,
        };
        publication.position = Some(position);
        let item = FeedItem {
            channel: Arc::clone(&channel.name),
            publication: publication.clone(),
            predecessor: if is_linked { before } else { channel.top - 1 },
        };
        let stored = Stored {
            publication,
            before,
        };
        channel.stored.insert(position.offset, stored);
        let is_followed = self.followed.contains(&item.channel);
        if self.losing > 0 {
            self.losing -= 1;
            return position;
        }
        if !is_followed && self.broken != Broken::Follow {
            return position;
        }
        let copies = match self.is_lossy {
            true => self.random.usize(0..3),
            false => 1,
        };
        for _ in 0..copies {
            let item = Box::new(item.clone());
            self.under_way.push(EngineReport::Item(item, None));
        }
        position
    }

    /// Publishes as another node does.
    pub(crate) fn publish_elsewhere(&mut self, slot: u32, publication: Publication) {
        self.store(slot, publication);
    }

    /// Begins a new epoch of a channel, in which nothing is stored.
    pub(crate) fn begin_epoch(&mut self, slot: u32, bits: u64) {
        let channel = self.of(slot);
        channel.epoch = Epoch::from_bits(bits);
        (channel.top, channel.last) = (0, 0);
        channel.stored.clear();
        let name = Arc::clone(&channel.name);
        self.under_way.push(EngineReport::Lost(name));
    }

    /// Delivers one message that is in flight. Returns `false` if there is none.
    pub(crate) fn arrive(&mut self) -> bool {
        if self.under_way.is_empty() {
            self.compare_tops();
        }
        if self.under_way.is_empty() {
            return false;
        }
        let first = match self.delays_chains {
            true => self.under_way.iter().position(|one| !is_chain(one)),
            false => None,
        };
        let place = match self.is_lossy {
            true => self.random.usize(..self.under_way.len()),
            false => first.unwrap_or(0),
        };
        let report = self.under_way.remove(place);
        if let EngineReport::Following(name, true) = &report {
            self.followed.insert(Arc::clone(name));
            if let Some(channel) = self.channels.iter_mut().find(|one| one.name == *name) {
                channel.last = channel.top;
            }
        }
        self.ready.push(report);
        true
    }

    /// Publishes as another node does, without storing the publication.
    pub(crate) fn pass_elsewhere(&mut self, name: &Arc<str>, publication: Publication) {
        if self.followed.contains(name) {
            let item = FeedItem {
                channel: Arc::clone(name),
                publication,
                predecessor: 0,
            };
            self.under_way
                .push(EngineReport::Item(Box::new(item), None));
        }
    }

    /// From now on, results of reads arrive after everything else in flight.
    pub(crate) fn delay_chains(&mut self) {
        self.delays_chains = true;
    }

    /// Returns whether anything except results of reads is in flight.
    pub(crate) fn has_more_than_chains(&self) -> bool {
        self.under_way.iter().any(|one| !is_chain(one))
    }

    pub(crate) fn slot_of(&self, name: &str) -> u32 {
        let found = self.channels.iter().position(|one| *one.name == *name);
        found.expect("it remembers") as u32
    }

    pub(crate) fn top_of(&self, slot: usize) -> u64 {
        self.channels[slot].top
    }

    /// Returns the offsets of all stored publications of a channel.
    pub(crate) fn offsets_of(&self, slot: usize) -> Vec<u64> {
        self.channels[slot].stored.keys().copied().collect()
    }

    /// Ends the lease of the other nodes, whose members leave.
    pub(crate) fn end_lease(&mut self) {
        for (channel, client) in std::mem::take(&mut self.members_elsewhere) {
            self.under_way
                .push(EngineReport::LeaseExpired(channel, client, false));
        }
    }

    /// Sends the latest item of each channel again, because it may have been lost.
    fn compare_tops(&mut self) {
        for channel in &self.channels {
            if !self.followed.contains(&channel.name) {
                continue;
            }
            let latest = channel.stored.last_key_value();
            if let Some((_, stored)) = latest.filter(|(offset, _)| **offset > channel.last) {
                let item = FeedItem {
                    channel: Arc::clone(&channel.name),
                    publication: stored.publication.clone(),
                    predecessor: stored.before,
                };
                self.under_way
                    .push(EngineReport::Item(Box::new(item), None));
            }
        }
    }

    fn since(channel: &Channel, since: u64, up_to: u64) -> Recovered {
        let first = channel.stored.values().next();
        let is_known = match since {
            0 => first.is_some_and(|one| one.before == 0) || channel.top == 0,
            since => channel.stored.contains_key(&since) || since == channel.top,
        };
        if !is_known || since > up_to {
            return Recovered::default();
        }
        let missed = channel.stored.range((Excluded(since), Included(up_to)));
        let publications: Vec<_> = missed.map(|(_, one)| one.publication.clone()).collect();
        Recovered {
            is_complete: true,
            predecessor: if publications.is_empty() { 0 } else { since },
            publications,
            is_latest_only: false,
        }
    }
}

impl Unruly {
    fn position_of(channel: &Channel) -> Position {
        Position {
            epoch: channel.epoch,
            offset: channel.top,
        }
    }

    /// Returns the offset up to which the history of a channel is read: for a followed channel, that of the item
    /// delivered last.
    fn read_up_to(&self, slot: u32) -> u64 {
        let channel = &self.channels[slot as usize];
        match self.followed.contains(&channel.name) {
            true => channel.last,
            false => channel.top,
        }
    }

    fn chain(channel: &Channel, reach: ReadStart, is_certain: bool) -> HistorySegment {
        let since = match reach {
            ReadStart::Since(since) => since,
            ReadStart::TopOnly => channel.top,
        };
        let is_stored = channel.stored.contains_key(&since);
        let behind = match is_stored {
            true => Excluded(since),
            false => Unbounded,
        };
        let reached = channel.stored.range((behind, Unbounded));
        let missed = reached.filter(|_| since < channel.top);
        let missed: Vec<_> = missed.map(|(_, one)| one).collect();
        let missed = &missed[missed.len().saturating_sub(RECOVERED_MAX)..];
        let before = missed.first().map_or(channel.top, |first| first.before);
        HistorySegment {
            top: Self::position_of(channel),
            predecessor: Some(if is_certain { before } else { since }),
            publications: missed.iter().map(|one| one.publication.clone()).collect(),
        }
    }

    fn all_members(&self, channel: &str) -> Vec<Arc<ClientInfo>> {
        let all = self.members.iter().chain(&self.members_elsewhere);
        let of = all.filter(|(name, _)| **name == *channel);
        of.map(|(_, client)| Arc::clone(client)).collect()
    }
}

impl Engine for Unruly {
    fn open(&mut self, _channel: u32, name: &Arc<str>, _now_ms: u64) -> u32 {
        let found = self.channels.iter().position(|one| one.name == *name);
        let slot = found.unwrap_or(self.channels.len());
        if found.is_none() {
            self.channels.push(Channel {
                name: Arc::clone(name),
                epoch: Epoch::from_bits(slot as u64 + 1),
                top: 0,
                stored: BTreeMap::new(),
                version: 0,
                last: 0,
                waiting: 0,
                keys: BTreeMap::new(),
            });
        }
        slot as u32
    }

    fn close(&mut self, _slot: u32, _name: &Arc<str>) {}

    fn publish(&mut self, offer: &mut NewPublication<'_, '_>) -> OrderResult {
        let (Some(slot), Some(_)) = (offer.slot, offer.history) else {
            return OrderResult::Ordered {
                position: None,
                previous: None,
            };
        };
        let is_checked = self.broken != Broken::Stale;
        let channel = self.of(slot);
        channel.waiting += 1;
        if let Some(version) = offer.version() {
            if is_checked && version.number <= channel.version {
                let top = Position {
                    epoch: channel.epoch,
                    offset: channel.top,
                };
                self.under_way
                    .push(EngineReport::Skipped(offer.context(), Some(top)));
                return OrderResult::Deferred;
            }
            channel.version = version.number;
        }
        let key = offer.idempotency_key().map(str::to_owned);
        if let Some(first) = key.as_ref().and_then(|key| channel.keys.get(key)) {
            let first = Some(*first);
            self.under_way
                .push(EngineReport::Skipped(offer.context(), first));
            return OrderResult::Deferred;
        }
        if self.is_silent {
            self.under_way.push(EngineReport::Failed(offer.context()));
            return OrderResult::Deferred;
        }
        let publication = offer.to_publication(None);
        if self.broken == Broken::Order && self.held_back.is_none() {
            self.held_back = Some(publication);
            self.under_way
                .push(EngineReport::Published(offer.context(), None, None));
            return OrderResult::Deferred;
        }
        let mut position = self.store(slot, publication.clone());
        if self.is_mute {
            match (key, self.broken) {
                // Breaks the clause `retry`: stores a publication without a key a second time.
                (None, Broken::Retry) => position = self.store(slot, publication),
                // The engine retries the publication with a generated key, so the publication is
                // stored once.
                (None, _) => {}
                (Some(key), _) => {
                    self.of(slot).keys.insert(key, position);
                    self.under_way.push(EngineReport::Failed(offer.context()));
                    return OrderResult::Deferred;
                }
            }
        }
        if let Some(earlier) = self.held_back.take() {
            self.store(slot, earlier);
        }
        if self.broken != Broken::Answer {
            self.under_way.push(EngineReport::Published(
                offer.context(),
                Some(position),
                None,
            ));
        }
        OrderResult::Deferred
    }

    fn is_deferring(&self) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        self.is_full
    }

    fn pending_count(&self, slot: u32) -> u32 {
        self.channels[slot as usize].waiting
    }

    fn fence(&mut self, slot: u32, request_context: RequestContext) {
        self.of(slot).waiting += 1;
        self.under_way.push(EngineReport::Fence(request_context));
    }

    fn report_handled(&mut self, slot: u32) {
        self.of(slot).waiting -= 1;
    }

    fn follow(
        &mut self,
        name: &Arc<str>,
        slot: Option<u32>,
        _first_read: ReadStart,
    ) -> EngineReply<()> {
        if self.is_late {
            let report = EngineReport::Following(Arc::clone(name), !self.cannot_follow);
            self.under_way.push(report);
            return EngineReply::Deferred;
        }
        if self.followed.insert(Arc::clone(name))
            && let Some(slot) = slot
        {
            let channel = self.of(slot);
            channel.last = channel.top;
        }
        EngineReply::Ready(())
    }

    fn unfollow(&mut self, name: &Arc<str>, _slot: Option<u32>) {
        self.followed.remove(name);
        let is_other = |report: &EngineReport| !matches!(report, EngineReport::Following(one, _) if one == name);
        self.under_way.retain(is_other);
        self.ready.retain(is_other);
    }

    fn member_changed(&mut self, change: MemberChange<'_>) -> EngineReply<bool> {
        let (channel, client) = (change.channel, change.client);
        let is_it = |one: &Member| one.0 == *channel && one.1.client == client.client;
        match change.event {
            _ if self.broken == Broken::Member => {}
            FeedEvent::Left => self.members.retain(|one| !is_it(one)),
            _ => {
                self.members.retain(|one| !is_it(one));
                self.members.push((Arc::clone(channel), Arc::clone(client)));
            }
        }
        let is_same = |one: &Member| one.0 == *channel && one.1.user == client.user;
        let is_elsewhere = self.members_elsewhere.iter().any(is_same);
        let notifies_subscribers = !(change.is_by_user && is_elsewhere);
        if self.is_late {
            let report = EngineReport::Member(change.context(), notifies_subscribers);
            // The reports of member changes stay in order.
            self.ready.push(report);
            return EngineReply::Deferred;
        }
        EngineReply::Ready(notifies_subscribers)
    }

    fn presence(
        &mut self,
        here: LocalMembers<'_>,
        caller: QueryContext,
    ) -> EngineReply<Result<Box<[Arc<ClientInfo>]>, PresenceError>> {
        let found = match self.broken {
            Broken::Presence => Ok(Box::default()),
            _ => Ok(self.all_members(here.channel).into()),
        };
        if self.is_late {
            self.under_way.push(EngineReport::Presence(caller, found));
            return EngineReply::Deferred;
        }
        EngineReply::Ready(found)
    }

    fn presence_stats(
        &mut self,
        here: LocalMembers<'_>,
        caller: QueryContext,
    ) -> EngineReply<Result<PresenceStats, PresenceError>> {
        let members = self.all_members(here.channel);
        let users: BTreeSet<_> = members.iter().map(|one| one.user.clone()).collect();
        let stats = PresenceStats {
            clients: members.len() as u32,
            users: users.len() as u32,
        };
        if self.is_late {
            self.under_way
                .push(EngineReport::PresenceStats(caller, Ok(stats)));
            return EngineReply::Deferred;
        }
        EngineReply::Ready(Ok(stats))
    }

    fn maintain(
        &mut self,
        catalog: &Catalog<'_>,
        _now_ms: u64,
        round: MaintenanceScope,
        _gone: &mut Vec<u32>,
    ) {
        if round == MaintenanceScope::Full && self.broken != Broken::Lease {
            let members = catalog.members();
            let members = members.map(|(name, one)| (Arc::clone(name), Arc::clone(one)));
            self.members = members.collect();
        }
    }

    fn join(
        &mut self,
        kept: StoredChannel<'_>,
        subscribe_options: &SubscribeOptions,
    ) -> EngineReply<SubscribeOutcome> {
        if self.is_late {
            return EngineReply::Deferred;
        }
        let is_certain = self.broken != Broken::Join;
        let channel = self.of(kept.slot);
        let position = Position {
            epoch: channel.epoch,
            offset: channel.last,
        };
        let read = |since: &Since| {
            let is_of = since.epoch.is_none_or(|epoch| epoch == channel.epoch);
            let mut recovered = match is_of {
                true => Self::since(channel, since.offset, channel.last),
                false => Recovered::default(),
            };
            recovered.is_complete |= !is_certain;
            recovered
        };
        let since = subscribe_options
            .since
            .as_ref()
            .and_then(|since| since.first());
        EngineReply::Ready(SubscribeOutcome {
            position,
            recovered: since.map(read),
        })
    }

    fn is_empty(&self, slot: u32) -> bool {
        self.channels[slot as usize].stored.is_empty()
    }

    fn read(
        &mut self,
        kept: StoredChannel<'_>,
        query: &HistoryQuery,
        _answer_max: usize,
        request_context: RequestContext,
    ) -> EngineReply<Result<HistoryPage, HistoryError>> {
        let up_to = self.read_up_to(kept.slot);
        let channel = self.of(kept.slot);
        channel.waiting += 1;
        let stored = channel
            .stored
            .range(..=up_to)
            .map(|(_, one)| one.publication.clone());
        let position = Position {
            epoch: channel.epoch,
            offset: up_to,
        };
        let page = HistoryPage::from_publications(position, stored.take(query.limit).collect());
        self.under_way
            .push(EngineReport::History(request_context, Ok(page)));
        EngineReply::Deferred
    }

    fn read_since(&mut self, slot: u32, read: HistoryRead) {
        self.reads += 1;
        let is_forgetful = self.is_forgetful;
        let is_certain = self.broken != Broken::Join;
        let channel = self.of(slot);
        if is_forgetful {
            channel.stored.clear();
        }
        let chain = Self::chain(channel, read.start, is_certain);
        let name = Arc::clone(&channel.name);
        let chain = Some(Box::new(chain));
        self.under_way
            .push(EngineReport::Segment(name, read, chain));
    }

    fn resume(&mut self, slot: u32, position: Position) {
        self.of(slot).last = position.offset;
    }

    fn remove(
        &mut self,
        kept: StoredChannel<'_>,
        request_context: RequestContext,
    ) -> EngineReply<Result<(), HistoryError>> {
        let is_removed = self.broken != Broken::Removal;
        let channel = self.of(kept.slot);
        channel.waiting += 1;
        if is_removed {
            channel.stored.clear();
        }
        self.under_way
            .push(EngineReport::Removed(request_context, Ok(())));
        EngineReply::Deferred
    }

    fn before_delivery(
        &mut self,
        slot: u32,
        publication: &Publication,
        _history: &HistoryOptions,
        _wants_previous: bool,
        _now_ms: u64,
    ) -> Option<Payload> {
        if let Some(position) = publication.position {
            self.of(slot).last = position.offset;
        }
        None
    }

    fn position(&self, slot: u32) -> Position {
        let channel = &self.channels[slot as usize];
        Position {
            epoch: channel.epoch,
            offset: channel.last,
        }
    }

    fn ready_reports(&self) -> usize {
        self.ready.len()
    }

    fn poll(&mut self) -> Option<EngineReport> {
        match self.ready.is_empty() {
            true => None,
            false => Some(self.ready.remove(0)),
        }
    }
}
