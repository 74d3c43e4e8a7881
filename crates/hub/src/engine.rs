//! The engine: what orders and stores publications, and feeds them back.
//!
//! # Contract
//!
//! The home of a channel is one worker of this node; it alone talks to the engine about that channel. Each clause below
//! has a test of its name in `tests/engine`, which runs on every engine that it concerns.
//!
//! Handing over
//!
//! * `order`: of one channel, publications get their places in the order in which the home hands them over. Other nodes
//!   may publish between them.
//! * `answer`: each publication that is handed over is answered once: at once ([`Order::Done`], [`Order::Skipped`]), or
//!   later by a [`Report`] with its [`Receipt`]. An error means that nothing is known: it may have been stored.
//! * `retry`: an engine hands a publication to its store again only under a key: that of the publisher, or one that it has
//!   made for this. The home forgets the publisher's key of a publication that failed, so the publisher may repeat it; the
//!   store then knows the key. In either case the publication is stored once.
//! * `stale`: a publication whose version is not newer is skipped, and so is one whose key was used; neither is fed.
//! * `handed`: the number of subscribers of a publication is known only where this node has all of them: an engine that
//!   answers by [`Report::Published`] leaves it open.
//! * `room`: an engine never refuses what is handed over; [`Engine::is_full`] makes the home pause the publishers first.
//!
//! Positions
//!
//! * `increase`: within an epoch offsets increase with the order. They need not be dense, so nothing outside an engine
//!   calculates with them: the hub compares them, and stores and sends them as they are.
//! * `epoch`: positions of different epochs can't be compared. An engine that has lost positions begins another epoch and
//!   says so with [`Report::Lost`].
//!
//! Feed
//!
//! * `follow`: the home says when a channel gets its first subscriber on this node and when it loses its last
//!   ([`Engine::follow`], [`Engine::unfollow`]), whether or not the channel remembers. A wildcard channel stands for all
//!   that it matches. A subscription is not answered before the engine follows its channel; once it does,
//!   [`Engine::position`] is where the feed goes on. A subscription fails if the engine can't follow the channel.
//! * `feed`: publications reach subscribers by the feed alone: as the value of [`Order::Done`], or as [`Report::Item`].
//!   The home hands each on in the order of the feed, to all workers of the node; from there nothing is lost.
//! * `stored`: what is fed is stored as far as the engine stores anything: no crash of this node takes back what a
//!   subscriber or a publisher has seen.
//! * `link`: an item carries the offset of its predecessor ([`Item::before`]). The home follows the links: it skips an
//!   item at or below the last offset, and takes an item whose predecessor is not the last offset for a gap.
//! * `gap`: the feed of an engine may lose items, repeat them and reorder them. The home heals a gap by one
//!   [`Engine::read_since`] from the last offset and holds later items back meanwhile. An engine that may lose the latest
//!   item compares tops and reports it again. Publications without a position have no link: they may be lost unnoticed.
//! * `lost`: only a gap that can't be healed reaches subscribers, as [`Outlet::lost`](crate::Outlet::lost): their state is
//!   insufficient, and they have to subscribe again.
//!
//! Reading
//!
//! * `join`: a new subscriber joins at the position that has been fed and gets what it missed up to there. An engine that
//!   does not hold that in this process says [`Step::Later`] and feeds by reports only. The home reads for all subscribers
//!   of a channel together, and keeps what is fed meanwhile. Until then the subscription is pending: it is counted nowhere
//!   and gets nothing.
//! * `chain`: a read returns a [`Chain`]: publications that are linked without a gap, up to the top. It joins a position
//!   only if the position's offset is one of its links in the same epoch. An engine that is not certain of a link leaves
//!   the chain shorter, and the subscriber learns that something is missing.
//! * `share`: subscribers that come while a read is under way share it, as far as it reaches back.
//! * `top`: a read includes every item that the home [has fed](Engine::fed) before it asks.
//! * `removal`: removing the history keeps the position. What was handed over before goes with it.
//!
//! Presence
//!
//! * `member`: the home hands each member over that comes or leaves on this node ([`Engine::member`]), in order. The
//!   engine says, at once or later, whether subscribers are to hear of it: not if the same user is a member on another
//!   node, where only users count.
//! * `lease`: members are valid as long as the lease of their node, which the engine renews. An engine that has lost them
//!   takes them from [`Catalog::members`] again. One node reports members whose lease has ended ([`Report::Departed`]).
//! * `presence`: the members of a channel and their number are a query to the engine, which may answer later.
//!
//! An engine knows no socket or clock here: what it sends and receives is carried by its owner, which calls
//! [`Hub::take_reports`](crate::Hub::take_reports) once reports have arrived.

use std::sync::Arc;

pub use crate::chain::{Chain, Reach, Read};
use crate::channel::{Channel, Channels};
use crate::mail::Origin;
use crate::payload::Source;
use crate::roster::{Presence, Roster};
use crate::{
    ClientInfo, Event, History, HistoryError, Info, Joined, Namespaces, Page, Payload, Position,
    PresenceError, PresenceStats, Publication, PublishOptions, Published, Query, SubscribeOptions,
    Version,
};

/// Orders and stores the publications of the channels of one home, see the [module](self).
///
/// A channel that remembers has a *slot*, a number that the engine chooses and the hub stores with the channel.
pub trait Engine {
    /// Begins to remember a channel: returns its slot. `channel` is the hub's number for it.
    fn open(&mut self, channel: u32, name: &Arc<str>, now_ms: u64) -> u32;

    /// Forgets a channel.
    fn close(&mut self, slot: u32, name: &Arc<str>);

    /// Orders a publication, joins and leaves included.
    fn publish(&mut self, offer: &mut Offer<'_, '_>) -> Order;

    /// Whether publications may be ordered later: if not, [`publish`](Self::publish) never returns [`Order::Later`].
    fn is_deferring(&self) -> bool {
        false
    }

    /// Whether publications that would be ordered later have to stay with their publishers for now.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether other nodes may have subscribers: publications without any on this node are handed over too.
    fn reaches_others(&self) -> bool {
        false
    }

    /// Returns how many receipts of a channel the engine holds.
    fn waiting(&self, _slot: u32) -> u32 {
        0
    }

    /// Reports the receipt back in its place behind what is handed over already; called while receipts of the channel
    /// wait.
    fn fence(&mut self, slot: u32, receipt: Receipt);

    /// Has the feed of a channel begin, which gets its first subscriber on this node. Where it remembers it has a slot.
    /// [`Report::Following`] brings a later answer, unless [`unfollow`](Self::unfollow) comes first.
    fn follow(&mut self, _name: &Arc<str>, _slot: Option<u32>) -> Step<()> {
        Step::Done(())
    }

    /// Has the feed of a channel end, which has lost its last subscriber on this node.
    fn unfollow(&mut self, _name: &Arc<str>, _slot: Option<u32>) {}

    /// Returns what a new subscriber joins: the position that has been fed, and what it has missed up to there.
    /// [`Step::Later`] where this process does not hold it: the home then reads the [`Chain`].
    fn join(&mut self, kept: Kept<'_>, joining: &SubscribeOptions) -> Step<Joined>;

    /// Returns whether this process knows of no stored publications of the channel.
    fn is_empty(&self, slot: u32) -> bool;

    /// Reads a part of the history.
    fn read(
        &mut self,
        kept: Kept<'_>,
        query: &Query,
        answer_max: usize,
        receipt: Receipt,
    ) -> Step<Result<Page, HistoryError>>;

    /// Reads what is stored from there up to the top, to heal a gap or for subscribers: [`Report::Chain`] brings it.
    fn read_since(&mut self, _slot: u32, _read: Read) {}

    /// Goes on at a position, behind a gap that could not be healed.
    fn resume(&mut self, _slot: u32, _position: Position) {}

    /// Removes the history of a channel; its position stays.
    fn remove(&mut self, kept: Kept<'_>, receipt: Receipt) -> Step<Result<(), HistoryError>>;

    /// Takes note that a removal is about to be answered: what was handed over before it and fed since goes too.
    fn removed(&mut self, _slot: u32) {}

    /// Takes note that an item is about to be handed to subscribers, and returns the payload before it where deltas are
    /// wanted.
    fn fed(
        &mut self,
        slot: u32,
        publication: &Publication,
        history: &History,
        wants_previous: bool,
        now_ms: u64,
    ) -> Option<Payload>;

    /// Returns the number of reports that [`poll`](Self::poll) can return now.
    fn ready(&self) -> usize {
        0
    }

    /// Returns the next report.
    fn poll(&mut self) -> Option<Report> {
        None
    }

    /// Takes note that a report with a receipt has been carried out.
    fn settle(&mut self, _slot: u32) {}

    /// Returns the position of the last item that was fed.
    fn position(&self, slot: u32) -> Position;

    /// Takes note of a member of this node. Returns whether subscribers are to hear of it; [`Report::Member`] brings a later
    /// answer.
    fn member(&mut self, _change: MemberChange<'_>) -> Step<bool> {
        Step::Done(true)
    }

    /// Returns the members of a channel; `here` are those of this node.
    fn presence(
        &mut self,
        here: Members<'_>,
        _asker: Asker,
    ) -> Step<Result<Box<[Arc<ClientInfo>]>, PresenceError>> {
        Step::Done(here.list())
    }

    /// Returns how many are in a channel; `here` are the members of this node.
    fn presence_stats(
        &mut self,
        here: Members<'_>,
        _asker: Asker,
    ) -> Step<Result<PresenceStats, PresenceError>> {
        Step::Done(Ok(here.stats()))
    }

    /// Has changed limits: the namespaces, and the bytes for the history of all workers.
    fn set_limits(&mut self, _namespaces: &Namespaces, _bytes_max: usize, _workers: u16) {}

    /// Drops what is over a limit or too old. `gone` gets the hub's numbers of channels whose slots were closed.
    fn maintain(
        &mut self,
        _catalog: &Catalog<'_>,
        _now_ms: u64,
        _round: Round,
        _gone: &mut Vec<u32>,
    ) {
    }

    /// Whether [`maintain`](Self::maintain) is needed also while nothing happens.
    fn has_maintenance(&self) -> bool {
        false
    }

    /// The gauges of the engine.
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// How much an engine is to maintain in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Behind a publication or a subscription: what keeps the limits.
    Step,
    /// About once a second.
    Full,
}

/// What an engine holds, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Receipts that were not reported yet.
    pub waiting: usize,
    /// Those among them that are ready to be polled.
    pub ready: usize,
    /// The bytes of their payloads.
    pub waiting_bytes: usize,
    /// Channels with a slot.
    pub channels: usize,
    /// The bytes of what is stored in this process.
    pub bytes: usize,
}

/// A channel that remembers.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// Its slot.
    pub slot: u32,
    /// How much it remembers.
    pub history: &'a History,
    /// The wall clock for expiry.
    pub now_ms: u64,
}

/// A publication that is handed to the engine.
pub struct Offer<'a, 'p> {
    pub(crate) channel: u32,
    pub(crate) payload: Source<'p>,
    pub(crate) terms: Option<&'a Arc<PublishOptions>>,
    pub(crate) origin: Origin,
    /// The name of the channel.
    pub name: &'a Arc<str>,
    /// The slot of the channel, if it has one.
    pub slot: Option<u32>,
    /// The history that stores it; `None`: it is not stored and gets no position.
    pub history: Option<&'a History>,
    /// What it tells.
    pub event: Event,
    /// The wall clock.
    pub at_ms: u64,
    /// What is said of it beside its payload.
    pub info: Option<&'a Arc<Info>>,
    /// Whether the payload before it is wanted, for deltas.
    pub wants_previous: bool,
}

impl Offer<'_, '_> {
    /// Returns the payload to keep. The bytes are copied the first time only.
    pub fn payload(&mut self) -> Payload {
        self.payload.keep()
    }

    /// Returns the version of the state that it tells.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        self.terms?.version.as_ref()
    }

    /// Returns the key that tells it from repetitions.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        self.terms?.idempotency_key.as_deref()
    }

    /// Returns what the report about it has to carry.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        Receipt {
            channel: self.channel,
            origin: self.origin,
            terms: self.terms.cloned(),
            first: None,
            has_slot: self.slot.is_some(),
        }
    }

    /// Returns the publication with its place.
    pub fn to_publication(&mut self, position: Option<Position>) -> Publication {
        Publication {
            payload: self.payload.keep(),
            position,
            at_ms: self.at_ms,
            event: self.event,
            info: self.info.cloned(),
        }
    }
}

/// The hub's own record of something that is answered later; opaque to engines.
#[derive(Debug)]
pub struct Receipt {
    pub(crate) channel: u32,
    pub(crate) origin: Origin,
    pub(crate) terms: Option<Arc<PublishOptions>>,
    /// The result of the publication that it repeats.
    pub(crate) first: Option<Published>,
    /// Whether its channel had a slot: then it counts there.
    pub(crate) has_slot: bool,
}

/// A question whose answer is reported later; opaque to engines.
#[derive(Debug)]
pub struct Asker(pub(crate) Origin);

/// A member of this node that has come or left.
#[derive(Debug)]
pub struct MemberChange<'a> {
    /// The channel.
    pub channel: &'a Arc<str>,
    /// The member.
    pub client: &'a Arc<ClientInfo>,
    /// [`Event::Joined`] or [`Event::Left`].
    pub event: Event,
    /// Whether only the first and the last connection of a user are news.
    pub is_by_user: bool,
    /// Whether subscribers hear of it as far as this node knows. If not, an answer changes nothing.
    pub is_news: bool,
}

impl MemberChange<'_> {
    /// Returns what the report about it has to carry.
    #[must_use]
    pub fn notice(&self) -> Notice {
        Notice {
            channel: Arc::clone(self.channel),
            client: Arc::clone(self.client),
            event: self.event,
            is_news: self.is_news,
        }
    }
}

/// A change of membership that is answered later; opaque to engines.
#[derive(Debug)]
pub struct Notice {
    pub(crate) channel: Arc<str>,
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) event: Event,
    pub(crate) is_news: bool,
}

/// The members of one channel on this node.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    /// The channel.
    pub channel: &'a str,
    pub(crate) roster: Option<&'a Roster>,
}

impl Members<'_> {
    /// Returns the members, or [`PresenceError::TooMany`].
    pub fn list(&self) -> Result<Box<[Arc<ClientInfo>]>, PresenceError> {
        let Some(roster) = self.roster else {
            return Ok(Box::default());
        };
        match roster.stats().clients as usize <= crate::MEMBERS_MAX {
            true => Ok(roster.clients().cloned().collect()),
            false => Err(PresenceError::TooMany),
        }
    }

    /// Returns how many there are.
    #[must_use]
    pub fn stats(&self) -> PresenceStats {
        self.roster
            .map_or_else(PresenceStats::default, Roster::stats)
    }
}

/// What became of a publication that was handed over.
#[derive(Debug)]
pub enum Order {
    /// It is ordered and stored, and is to be fed now.
    Done {
        /// Its position, where it is stored.
        position: Option<Position>,
        /// The payload before it, where deltas are wanted.
        previous: Option<Payload>,
    },
    /// It is stale. With the position of the channel.
    Skipped(Position),
    /// A report follows.
    Later,
}

/// What is answered at once or by a report.
#[derive(Debug)]
pub enum Step<T> {
    /// The answer.
    Done(T),
    /// A report follows.
    Later,
}

/// An item of a channel's feed.
#[derive(Clone, Debug)]
pub struct Item {
    /// The channel.
    pub channel: Arc<str>,
    /// What was published, with its position where it is stored.
    pub publication: Publication,
    /// The offset of its predecessor in the same epoch, 0 for the first.
    pub before: u64,
}

/// Something that an engine answers later, or announces.
#[derive(Debug)]
pub enum Report {
    /// An item of the feed. Has a receipt where this worker has handed it over and it was not answered yet.
    Item(Box<Item>, Option<Receipt>),
    /// A publication is ordered; its item comes by itself. With its position where it is stored, and the number of nodes
    /// with subscribers, where the engine knows it. How many subscribers it has is not known.
    Published(Receipt, Option<Position>, Option<u32>),
    /// The engine has not answered: whether a publication was stored is not known.
    Failed(Receipt),
    /// A publication was stale. With the position of its channel, `None` for that of the last item fed by then.
    Skipped(Receipt, Option<Position>),
    /// A [fence](Engine::fence) is reached.
    Fence(Receipt),
    /// The history was removed, or was not.
    Removed(Receipt, Result<(), HistoryError>),
    /// A part of the history.
    History(Receipt, Result<Page, HistoryError>),
    /// The answer to [`Engine::follow`]: whether the feed of this channel has begun.
    Following(Arc<str>, bool),
    /// The answer to [`Engine::read_since`]: the channel, what was asked for, and what is stored; `None` where that can't
    /// be read.
    Chain(Arc<str>, Read, Option<Box<Chain>>),
    /// The answer to [`Engine::member`]: whether subscribers are to hear of it.
    Member(Notice, bool),
    /// The lease of a member of another node has ended, and this node is the one to say so.
    Departed(Arc<str>, Arc<ClientInfo>),
    /// Who is in a channel.
    Presence(Asker, Result<Box<[Arc<ClientInfo>]>, PresenceError>),
    /// How many are in a channel.
    PresenceStats(Asker, Result<PresenceStats, PresenceError>),
    /// The position of a channel is void, for example because its epoch has ended.
    Lost(Arc<str>),
}

impl Report {
    /// The channel whose subscribers need room for it.
    pub(crate) fn channel(&self) -> Option<u32> {
        match self {
            Self::Item(_, receipt) => receipt.as_ref().map(|receipt| receipt.channel),
            Self::Skipped(receipt, _)
            | Self::Published(receipt, ..)
            | Self::Failed(receipt)
            | Self::Fence(receipt)
            | Self::Removed(receipt, _)
            | Self::History(receipt, _) => Some(receipt.channel),
            Self::Following(..)
            | Self::Chain(..)
            | Self::Member(..)
            | Self::Departed(..)
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
}

impl Catalog<'_> {
    /// Iterates over the members of this node, by channel.
    pub fn members(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<ClientInfo>)> {
        self.presence.members_here()
    }

    fn channel(&self, channel: u32) -> &Channel {
        &self.channels[channel]
    }

    /// Returns the name of a channel.
    #[must_use]
    pub fn name(&self, channel: u32) -> &Arc<str> {
        &self.channel(channel).name
    }

    /// Returns how much a channel remembers.
    #[must_use]
    pub fn history(&self, channel: u32) -> Option<History> {
        self.namespaces.of(self.name(channel)).history
    }

    /// Returns whether the position of a channel is in use.
    #[must_use]
    pub fn is_used(&self, channel: u32) -> bool {
        self.channel(channel).is_used()
    }
}
