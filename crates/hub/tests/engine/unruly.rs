//! An engine with sparse offsets, whose answers and items are delayed, and whose feed loses, repeats and reorders.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use veche_hub::engine::{Item, Kept, Offer, Order, Receipt, Report, Step};
use veche_hub::{
    Engine, Epoch, History, HistoryError, Joined, Page, Payload, Position, Publication, Query,
    Recovered, Since, SubscribeOptions,
};

/// A clause of the contract that the engine breaks, to see its test fail.
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
    /// The last item that was fed.
    last: u64,
    /// Receipts that were not carried out yet.
    waiting: u32,
}

#[derive(Debug)]
pub(crate) struct Unruly {
    random: fastrand::Rng,
    channels: Vec<Channel>,
    /// On their way, in no order.
    under_way: Vec<Report>,
    ready: Vec<Report>,
    /// Items are lost, repeated and reordered.
    pub(crate) is_lossy: bool,
    /// Items that are lost next.
    pub(crate) losing: usize,
    /// What was stored is forgotten before it is read.
    pub(crate) is_forgetful: bool,
    /// Publications are not answered.
    pub(crate) is_silent: bool,
    /// No more may wait.
    pub(crate) is_full: bool,
    pub(crate) reads: u32,
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
            reads: 0,
            broken,
            held_back: None,
        }
    }

    fn of(&mut self, slot: u32) -> &mut Channel {
        &mut self.channels[slot as usize]
    }

    /// Stores a publication and puts its item on the way: of this node or of another.
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
        let item = Item {
            channel: Arc::clone(&channel.name),
            publication: publication.clone(),
            before: if is_linked { before } else { channel.top - 1 },
        };
        let stored = Stored {
            publication,
            before,
        };
        channel.stored.insert(position.offset, stored);
        if self.losing > 0 {
            self.losing -= 1;
            return position;
        }
        let copies = match self.is_lossy {
            true => self.random.usize(0..3),
            false => 1,
        };
        for _ in 0..copies {
            let item = Box::new(item.clone());
            self.under_way.push(Report::Item(item, None));
        }
        position
    }

    /// A publication of another node.
    pub(crate) fn publish_elsewhere(&mut self, slot: u32, publication: Publication) {
        self.store(slot, publication);
    }

    /// The channel begins another epoch, with nothing stored.
    pub(crate) fn begin_epoch(&mut self, slot: u32, bits: u64) {
        let channel = self.of(slot);
        channel.epoch = Epoch::from_bits(bits);
        (channel.top, channel.last) = (0, 0);
        channel.stored.clear();
        let name = Arc::clone(&channel.name);
        self.under_way.push(Report::Lost(name));
    }

    /// Delivers one message that is in flight. Returns `false` if there is none.
    pub(crate) fn arrive(&mut self) -> bool {
        if self.under_way.is_empty() {
            self.compare_tops();
        }
        if self.under_way.is_empty() {
            return false;
        }
        let place = match self.is_lossy {
            true => self.random.usize(..self.under_way.len()),
            false => 0,
        };
        let report = self.under_way.remove(place);
        self.ready.push(report);
        true
    }

    /// The latest items may have been lost: they come once more.
    fn compare_tops(&mut self) {
        for channel in &self.channels {
            let latest = channel.stored.last_key_value();
            if let Some((_, stored)) = latest.filter(|(offset, _)| **offset > channel.last) {
                let item = Item {
                    channel: Arc::clone(&channel.name),
                    publication: stored.publication.clone(),
                    before: stored.before,
                };
                self.under_way.push(Report::Item(Box::new(item), None));
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
            is_whole: true,
            before: if publications.is_empty() { 0 } else { since },
            publications,
            are_latest: false,
        }
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
            });
        }
        slot as u32
    }

    fn close(&mut self, _slot: u32, _name: &Arc<str>) {}

    fn publish(&mut self, offer: &mut Offer<'_, '_>) -> Order {
        let (Some(slot), Some(_)) = (offer.slot, offer.history) else {
            return Order::Done {
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
                    .push(Report::Skipped(offer.receipt(), Some(top)));
                return Order::Later;
            }
            channel.version = version.number;
        }
        if self.is_silent {
            self.under_way.push(Report::Failed(offer.receipt()));
            return Order::Later;
        }
        let publication = offer.to_publication(None);
        if self.broken == Broken::Order && self.held_back.is_none() {
            self.held_back = Some(publication);
            self.under_way
                .push(Report::Published(offer.receipt(), None));
            return Order::Later;
        }
        let position = self.store(slot, publication);
        if let Some(earlier) = self.held_back.take() {
            self.store(slot, earlier);
        }
        if self.broken != Broken::Answer {
            self.under_way
                .push(Report::Published(offer.receipt(), Some(position)));
        }
        Order::Later
    }

    fn is_deferring(&self) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        self.is_full
    }

    fn waiting(&self, slot: u32) -> u32 {
        self.channels[slot as usize].waiting
    }

    fn fence(&mut self, slot: u32, receipt: Receipt) {
        self.of(slot).waiting += 1;
        self.under_way.push(Report::Fence(receipt));
    }

    fn settle(&mut self, slot: u32) {
        self.of(slot).waiting -= 1;
    }

    fn join(&mut self, kept: Kept<'_>, joining: &SubscribeOptions) -> Joined {
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
            recovered.is_whole |= !is_certain;
            recovered
        };
        let since = joining.since.as_ref().and_then(|since| since.first());
        Joined {
            position,
            recovered: since.map(read),
        }
    }

    fn is_empty(&self, slot: u32) -> bool {
        self.channels[slot as usize].stored.is_empty()
    }

    fn read(
        &mut self,
        kept: Kept<'_>,
        query: &Query,
        _answer_max: usize,
        receipt: Receipt,
    ) -> Step<Result<Page, HistoryError>> {
        let channel = self.of(kept.slot);
        channel.waiting += 1;
        let stored = channel
            .stored
            .range(..=channel.last)
            .map(|(_, one)| one.publication.clone());
        let position = Position {
            epoch: channel.epoch,
            offset: channel.last,
        };
        let page = Page::of(position, stored.take(query.limit).collect());
        self.under_way.push(Report::History(receipt, Ok(page)));
        Step::Later
    }

    fn read_since(&mut self, slot: u32, since: Position) {
        self.reads += 1;
        let is_forgetful = self.is_forgetful;
        let channel = self.of(slot);
        if is_forgetful {
            channel.stored.clear();
        }
        let recovered = Self::since(channel, since.offset, channel.top);
        let top = Position {
            epoch: channel.epoch,
            offset: channel.top,
        };
        let is_joined = recovered.is_whole && since.epoch == channel.epoch;
        let read = is_joined.then_some((top, recovered));
        let name = Arc::clone(&channel.name);
        self.under_way.push(Report::Since(name, since, read));
    }

    fn resume(&mut self, slot: u32, position: Position) {
        self.of(slot).last = position.offset;
    }

    fn remove(&mut self, kept: Kept<'_>, receipt: Receipt) -> Step<Result<(), HistoryError>> {
        let is_removed = self.broken != Broken::Removal;
        let channel = self.of(kept.slot);
        channel.waiting += 1;
        if is_removed {
            channel.stored.clear();
        }
        self.under_way.push(Report::Removed(receipt, Ok(())));
        Step::Later
    }

    fn fed(
        &mut self,
        slot: u32,
        publication: &Publication,
        _history: &History,
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

    fn ready(&self) -> usize {
        self.ready.len()
    }

    fn poll(&mut self) -> Option<Report> {
        match self.ready.is_empty() {
            true => None,
            false => Some(self.ready.remove(0)),
        }
    }
}
