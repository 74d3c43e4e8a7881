//! Handles the events that the engine outside this process sends for the channels of a home.

use std::sync::Arc;

use bytes::Bytes;
use veche_nodes::engine::StoreState;
use veche_nodes::engine::channel::{Check, Direction, Event, Found, Order, Published, id_of};
use veche_nodes::engine::peer::Entries;

use super::entries::{FeedState, FirstRead};
use super::{RemoteEngine, Task, data};
use crate::engine::{EngineReport, FeedItem};
use crate::history_segment::{HistorySegment, ReadStart};
use crate::{Epoch, HistoryError, HistoryPage, HistoryQuery, Position, Publication};

impl RemoteEngine {
    /// Handles an event of the engine. This may result in [reports](crate::Engine::poll) and
    /// [orders](Self::take_orders).
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Up(number, store) => self.connected(number, store),
            Event::Down => self.disconnected(),
            Event::Interrupted => self.interrupted(),
            Event::Followed(topic) => self.followed(&topic),
            Event::Item {
                channel,
                place,
                data,
            } => self.item(channel, place, &data),
            Event::Published { ticket, result } => self.published(ticket, result),
            Event::Checked { ticket, found } => {
                if let Some((_, Task::Check { check, known })) = self.waiting.take(ticket)
                    && let Some(place) = self.entries.find(&check.channel)
                    && let Some(entry) = self.entries.get_mut(place)
                {
                    entry.is_in_doubt = false;
                    entry.is_verifying &= !check.is_verifying;
                    match found {
                        Some(found) => self.compared(place, &check, known, found),
                        None => self.note_unanswered(&check),
                    }
                }
            }
            Event::Entries { ticket, entries } => self.entries_read(ticket, entries),
            Event::Removed { ticket, is_removed } => {
                if let Some((
                    _,
                    Task::Remove {
                        request_context, ..
                    },
                )) = self.waiting.take(ticket)
                {
                    let removed = match is_removed {
                        true => Ok(()),
                        false => Err(HistoryError::Unavailable),
                    };
                    self.reports
                        .push_back(EngineReport::Removed(request_context, removed));
                }
            }
            Event::Member {
                ticket,
                is_elsewhere,
            } => {
                if let Some((_, Task::Member { notice, .. })) = self.waiting.take(ticket)
                    && let Some(notice) = notice
                {
                    self.reports
                        .push_back(EngineReport::Member(notice, !is_elsewhere));
                }
            }
            Event::Members { ticket, found } => match self.waiting.take(ticket) {
                Some((_, task @ Task::Presence { .. })) if found.is_none() => self.give_up(task),
                Some((_, Task::Presence { caller, .. })) => self.members_found(caller, found),
                _ => {}
            },
            Event::Forgotten => self.has_forgotten = true,
            Event::Departed {
                channel,
                data,
                is_elsewhere,
            } => self.departed(channel, &data, is_elsewhere),
            Event::Occupancy { ticket, outcome } => self.occupancy(ticket, outcome),
            Event::Vacated { channel, at_ms } => self.vacated_elsewhere(channel, at_ms),
        }
        self.pass_fences();
    }

    /// Handles a new connection: sends all waiting requests, including those that an earlier connection has sent.
    fn connected(&mut self, number: u64, store: StoreState) {
        self.connection = None;
        self.orders.push(Order::Begin(number));
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|(ticket, (_, task))| (ticket, task.is_verification()));
        let (verifications, others): (Vec<_>, Vec<_>) = waiting.partition(|(_, is)| *is);
        for (ticket, _) in verifications {
            self.drop_verification(ticket);
        }
        self.connection = Some(number);
        self.connected_at = self.ticks;
        let is_same = store == StoreState::Same;
        self.has_forgotten |= !is_same;
        self.has_unsure = false;
        for place in 0..self.entries.end() {
            let Some(entry) = self.entries.get_mut(place) else {
                continue;
            };
            if is_same && !(entry.was_unsure && entry.has_position()) {
                let needs_comparison = entry.needs_comparison;
                self.become_sure(place);
                if needs_comparison {
                    self.check(place, false);
                }
                continue;
            }
            // The held items may come from a server that is no longer the store. If the present store has them, the
            // comparison finds them.
            entry.held = None;
            if !entry.has_position() {
                continue;
            }
            entry.is_unsure = true;
            match entry.is_interrupted {
                true => self.has_unsure = true,
                false => self.verify(place),
            }
        }
        for (ticket, _) in others {
            self.send_after_verification(ticket);
        }
    }

    /// Removes a verification that got no answer: the publication that it names may no longer be the latest known one.
    /// Later a new verification is ordered or, if the store is the same and the channel need not be verified, an
    /// ordinary comparison.
    fn drop_verification(&mut self, ticket: u64) {
        if let Some((_, Task::Check { check, .. })) = self.waiting.take(ticket)
            && let Some(entry) = self.entries.find_mut(&check.channel)
        {
            (entry.is_verifying, entry.needs_comparison) = (false, true);
        }
    }

    /// Sends a request that has waited for the connection. If the request's channel is unsure, sends the channel's
    /// verification first. A comparison of an unsure channel is dropped instead, because its answer would be ignored.
    fn send_after_verification(&mut self, ticket: u64) {
        let Some((_, task)) = self.waiting.get_mut(ticket) else {
            return;
        };
        let place = task.channel().and_then(|name| self.entries.find(name));
        if let Some(place) = place {
            let is_unsure = self.entries.get(place).is_some_and(|one| one.is_unsure);
            if is_unsure && matches!(task, Task::Check { .. }) {
                self.waiting.take(ticket);
                return;
            }
            self.verify(place);
        }
        self.send(ticket);
    }

    /// Handles an interruption of the feed.
    fn interrupted(&mut self) {
        for place in 0..self.entries.end() {
            if let Some(entry) = self.entries.get_mut(place) {
                entry.is_interrupted = entry.feed == FeedState::Live;
            }
        }
    }

    /// Handles the loss of the connection. A publication that was sent to the store fails if it has no key and is not
    /// to be stored, because its outcome can't be determined later.
    fn disconnected(&mut self) {
        self.connection = None;
        for place in 0..self.entries.end() {
            if let Some(entry) = self.entries.get_mut(place) {
                entry.was_unsure |= entry.is_unsure;
                entry.is_unsure = entry.has_position();
                entry.is_in_doubt = false;
            }
        }
        let is_lost = |task: &Task| {
            matches!(task, Task::Publish { publish, sent_at: Some(_), .. }
                if publish.keep.is_none() && publish.key.is_none())
        };
        let waiting = self.waiting.iter();
        let lost = waiting.filter(|(_, (_, task))| is_lost(task));
        let lost: Vec<u64> = lost.map(|(ticket, _)| ticket).collect();
        for ticket in lost {
            if let Some((_, task)) = self.waiting.take(ticket) {
                self.give_up(task);
            }
        }
    }

    /// Reports the fences at the head of the waiting requests: all requests before these fences are completed.
    pub(super) fn pass_fences(&mut self) {
        let is_fence = |(_, task): &(u32, Task)| matches!(task, Task::Fence(_));
        while let Some((_, Task::Fence(request_context))) = self.waiting.take_first_if(is_fence) {
            self.reports.push_back(EngineReport::Fence(request_context));
        }
    }

    fn followed(&mut self, topic: &Arc<str>) {
        if let Some(known) = self.topics.get_mut(topic) {
            if std::mem::replace(&mut known.is_live, true) {
                self.handle_repeated_subscription(topic);
            }
            for place in 0..self.entries.end() {
                let entry = self.entries.get(place);
                let is_of = entry.is_some_and(|one| self.topic(&one.name) == Some(topic));
                if is_of {
                    self.followed_channel(place);
                }
            }
        } else if let Some(place) = self.entries.find(topic) {
            self.followed_channel(place);
        }
    }

    /// Handles a wildcard channel's feed that continues after an interruption. Publications of any channel that the
    /// wildcard covers may have been missed, even of channels unknown to this node. Wildcard subscribers have no
    /// position by which they could notice a missed publication, so the interruption counts as a loss.
    fn handle_repeated_subscription(&mut self, wildcard: &Arc<str>) {
        let place = self.entries.find(wildcard);
        let entry = place.and_then(|place| self.entries.get(place));
        let has_subscribers = entry.is_some_and(|entry| entry.feed == FeedState::Live);
        // In namespaces without history, clients are never notified of lost publications.
        if has_subscribers && self.namespaces.has_history_under(wildcard) {
            self.lost(wildcard);
        }
    }

    fn followed_channel(&mut self, place: u32) {
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        entry.is_interrupted = false;
        let name = Arc::clone(&entry.name);
        match entry.feed {
            FeedState::Off => {}
            FeedState::Begun(_) => {
                if self.place(place) {
                    self.reports.push_back(EngineReport::Following(name, true));
                }
            }
            // The channel was subscribed again after a time without a subscription. The feed lacks the
            // publications of that time, so the position is checked.
            FeedState::Placing(_) => self.compare(place),
            FeedState::Live if entry.channel.is_some() => self.compare(place),
            FeedState::Live => {}
        }
    }

    fn item(&mut self, channel: Arc<str>, place: Option<(Position, u64)>, bytes: &Bytes) {
        let (Some(publication), Some(id)) = (data::decode(bytes), id_of(bytes)) else {
            self.ignored += 1;
            return;
        };
        let Some((position, before)) = place else {
            if !self.follows(&channel) {
                self.ignored += 1;
                return;
            }
            let item = FeedItem {
                channel,
                publication,
                predecessor: 0,
            };
            return self
                .reports
                .push_back(EngineReport::Item(Box::new(item), None));
        };
        let Some(place) = self.place_to_feed(&channel, position, before) else {
            self.ignored += 1;
            return;
        };
        let item = item_of(channel, publication, position, before);
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        entry.is_fresh = true;
        match entry.feed {
            FeedState::Placing(_) => return entry.hold(item, id),
            FeedState::Live if entry.is_unsure => return entry.hold(item, id),
            // The item was sent before the channel was unsubscribed.
            FeedState::Off | FeedState::Begun(_) => return,
            FeedState::Live => {}
        }
        self.feed(place, item, id);
    }

    /// Passes an item to the hub if the item belongs to the channel's epoch. The channel's feed must be live.
    fn feed(&mut self, place: u32, item: FeedItem, id: u64) {
        let (Some(entry), Some(position)) =
            (self.entries.get_mut(place), item.publication.position)
        else {
            return;
        };
        let offset = item.predecessor;
        if !entry.has_position() {
            entry.set_position(Position { offset, ..position }, 0);
        } else if position.epoch != entry.epoch {
            return self.note_other_epoch(place, position.epoch);
        }
        self.emit(place, item, id);
    }

    /// Returns whether this node follows the channel, directly or through a wildcard channel.
    fn follows(&self, channel: &str) -> bool {
        let is_live = |topic: &str| self.topics.get(topic).is_some_and(|topic| topic.is_live);
        let entry = self.entries.find(channel);
        let entry = entry.and_then(|place| self.entries.get(place));
        entry.is_some_and(|entry| entry.feed != FeedState::Off)
            || self.topic(channel).is_some_and(is_live)
    }

    /// Returns the entry of an item's channel; `None` if the channel is not followed. Creates the entry if the channel
    /// is followed only through a wildcard channel.
    fn place_to_feed(&mut self, channel: &Arc<str>, at: Position, before: u64) -> Option<u32> {
        if !self.follows(channel) {
            return None;
        }
        let place = self.entries.find_or_insert(channel);
        let entry = self.entries.get_mut(place)?;
        if entry.feed == FeedState::Off {
            // The channel is new to this node, so no client of this node has a position in it. The feed therefore
            // begins with this item.
            entry.feed = FeedState::Live;
            let offset = before;
            entry.set_position(Position { offset, ..at }, 0);
        }
        Some(place)
    }

    fn emit(&mut self, place: u32, item: FeedItem, id: u64) {
        if let Some(entry) = self.entries.get_mut(place)
            && let Some(position) = item.publication.position
        {
            entry.seen = entry.seen.max(position.offset);
            entry.note_known(position.offset, id);
        }
        self.reports
            .push_back(EngineReport::Item(Box::new(item), None));
    }

    fn published(&mut self, ticket: u64, result: Published) {
        let Some((
            _,
            Task::Publish {
                request_context,
                slot,
                publish,
                ..
            },
        )) = self.waiting.take(ticket)
        else {
            return;
        };
        self.waiting_bytes -= publish.data.len();
        let entry = slot.and_then(|slot| self.entries.get_mut(slot));
        if let (Published::Done(Some(position), nodes), Some(entry)) = (result, entry) {
            // If the number of nodes is missing, an earlier attempt has stored the publication, and the id of that
            // attempt is unknown.
            let id = nodes.and_then(|_| id_of(&publish.data)).unwrap_or_default();
            let is_followed = entry.feed == FeedState::Live;
            if position.epoch == entry.epoch {
                // The known position is later compared with the store, so it must have an id, and
                // must not change while the entry is unsure.
                if !entry.is_unsure && id != 0 {
                    entry.note_known(position.offset, id);
                }
            } else if !entry.has_position() || (!is_followed && nodes.is_some()) {
                // The store may keep the position of a publication with a key for longer than the epoch.
                entry.set_position(position, id);
            }
        }
        self.reports.push_back(match result {
            Published::Done(position, nodes) => {
                EngineReport::Published(request_context, position, nodes)
            }
            Published::Skipped(position) => EngineReport::Skipped(request_context, position),
            Published::Unknown | Published::Refused => EngineReport::Failed(request_context),
        });
    }

    /// Handles the result of a comparison. If the comparison is the verification that an unsure channel waits for,
    /// passes the held items on.
    fn compared(&mut self, place: u32, check: &Check, known: u64, found: Found) {
        self.checked(place, check, known, found);
        if check.is_verifying {
            self.become_sure(place);
        }
    }

    /// Marks a channel as no longer unsure, and passes the held items on.
    pub(super) fn become_sure(&mut self, place: u32) {
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        entry.was_unsure = false;
        if !std::mem::take(&mut entry.is_unsure) || entry.feed != FeedState::Live {
            return;
        }
        for (item, id) in entry.held.take().into_iter().flat_map(|held| *held) {
            self.feed(place, item, id);
        }
    }

    /// Evaluates the answer to a comparison, which contains the top of the channel in the store.
    fn checked(&mut self, place: u32, check: &Check, known: u64, found: Found) {
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        if entry.is_unsure && !check.is_verifying {
            // Until the verification is answered, the answers to all other comparisons are ignored. The verification
            // also finds the latest publication.
            return;
        }
        let Found {
            top,
            id,
            latest,
            entries,
        } = found;
        match entry.feed {
            // The channel waits for its position. This comparison names an item, so it does not request the position
            // but was ordered earlier. Its result may be older than the last item delivered to wildcard subscribers.
            FeedState::Placing(_) if check.seen.is_some() && !check.is_verifying => return,
            FeedState::Placing(_) => return self.placed(place, top, id, check, entries),
            FeedState::Off | FeedState::Begun(_) if entry.epoch == top.epoch => {
                return entry.note_known(top.offset, id);
            }
            FeedState::Off | FeedState::Begun(_) => return entry.set_position(top, id),
            FeedState::Live if !entry.has_position() => return entry.set_position(top, id),
            // The store was rolled back to an epoch that has ended. The verification ordered here makes the store begin
            // a new epoch.
            FeedState::Live if top.epoch == entry.ended => return self.check(place, true),
            FeedState::Live => {}
        }
        if top.epoch != entry.epoch {
            entry.set_position(top, id);
            return self.lost(&check.channel);
        }
        if top.offset < known && !check.is_verifying {
            // The offset in the store is lower than the known one, so the store has lost publications.
            return self.check(place, true);
        }
        entry.note_id(top.offset, id);
        if top.offset <= entry.seen {
            return;
        }
        let latest = latest.and_then(|(before, bytes)| Some((before, data::decode(&bytes)?)));
        match latest {
            Some((before, publication)) => {
                let item = item_of(Arc::clone(&check.channel), publication, top, before);
                self.emit(place, item, id);
            }
            // The comparison named no item, or an item at least as new as the latest stored publication, so the store
            // did not return that publication. The comparison is repeated with the last seen item.
            None if check.seen.is_none_or(|(seen, _)| seen.offset >= top.offset) => {
                self.check(place, false);
            }
            None => {
                entry.set_position(top, id);
                self.lost(&check.channel);
            }
        }
    }

    fn lost(&mut self, channel: &Arc<str>) {
        self.reports
            .push_back(EngineReport::Lost(Arc::clone(channel)));
    }

    /// Handles the store's answer with the current position of a channel. The channel's feed is live from it on.
    fn placed(
        &mut self,
        place: u32,
        top: Position,
        id: u64,
        check: &Check,
        entries: Option<Box<Entries>>,
    ) {
        let expired_ms = self.now_ms.saturating_sub(check.keep.ttl_ms);
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        // The answer may belong to an earlier subscription of the channel, which had another first read.
        let since = check.read.as_ref().and_then(|read| read.since);
        let is_of = |first: &&mut Box<FirstRead>| since.map(ReadStart::Since) == Some(first.start);
        if let Some(first) = entry.first_read.as_mut().filter(is_of) {
            first.segment = entries.map(|entries| Box::new(chain(*entries, expired_ms)));
            self.first_reads.push(place);
        }
        entry.set_position(top, id);
        entry.feed = FeedState::Live;
        (entry.is_unsure, entry.was_unsure) = (false, false);
        let held = entry.held.take();
        let name = Arc::clone(&entry.name);
        self.reports.push_back(EngineReport::Following(name, true));
        for (item, id) in held.into_iter().flat_map(|held| *held) {
            let position = item.publication.position;
            if position.is_some_and(|at| at.epoch == top.epoch && at.offset > top.offset) {
                self.emit(place, item, id);
            }
        }
    }

    fn entries_read(&mut self, ticket: u64, entries: Option<Box<Entries>>) {
        let Some((_, task)) = self.waiting.take(ticket) else {
            return;
        };
        let Some(entries) = entries else {
            return self.give_up(task);
        };
        match task {
            Task::History {
                request_context,
                query,
                answer_max,
                expired_ms,
                read,
            } => {
                self.note_epoch(&read.channel, entries.top);
                let page = page(*entries, &query, answer_max, expired_ms);
                self.reports
                    .push_back(EngineReport::History(request_context, page));
            }
            // The store may have lost publications that precede the returned ones.
            Task::Chain { ref order, .. } if self.is_unsure(&order.channel) => self.give_up(task),
            Task::Chain {
                read,
                order,
                expired_ms,
            } => {
                self.note_epoch(&order.channel, entries.top);
                self.note_read(&order.channel, &entries);
                debug_assert_eq!(order.direction, Direction::Latest);
                let chain = Box::new(chain(*entries, expired_ms));
                self.reports
                    .push_back(EngineReport::Segment(order.channel, read, Some(chain)));
            }
            task => self.give_up(task),
        }
    }

    /// Records the latest publication that a read has found. Subscribers get this publication from the read rather than
    /// from the feed. Later comparisons with the store check that it still has the publication.
    fn note_read(&mut self, channel: &str, entries: &Entries) {
        let entry = self.entries.find_mut(channel);
        if let Some(entry) = entry.filter(|entry| entry.epoch == entries.top.epoch)
            && let Some((offset, data)) = entries.entries.last()
        {
            entry.note_known(*offset, id_of(data).unwrap_or_default());
        }
    }

    fn is_unsure(&self, channel: &str) -> bool {
        let entry = self.entries.find(channel);
        let entry = entry.and_then(|place| self.entries.get(place));
        entry.is_some_and(|entry| entry.is_unsure)
    }

    /// Handles the epoch that a read has found in the store.
    fn note_epoch(&mut self, channel: &str, top: Position) {
        let Some(place) = self.entries.find(channel) else {
            return;
        };
        let entry = self.entries.get(place);
        let is_live = entry.is_some_and(|one| one.feed == FeedState::Live && one.has_position());
        if is_live {
            self.note_other_epoch(place, top.epoch);
        }
    }

    /// Handles an epoch that is not the channel's current one: either the next epoch, or the epoch
    /// of a replaced server. The channel's epoch is then requested from the store. The answer also
    /// contains the id of the latest publication, which later comparisons need.
    fn note_other_epoch(&mut self, place: u32, epoch: Epoch) {
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        let is_other = epoch != entry.epoch && epoch != entry.ended && !entry.is_unsure;
        if is_other && !std::mem::replace(&mut entry.is_in_doubt, true) {
            self.check(place, false);
        }
    }
}

fn item_of(
    channel: Arc<str>,
    publication: Publication,
    position: Position,
    before: u64,
) -> FeedItem {
    let position = Some(position);
    FeedItem {
        channel,
        publication: Publication {
            position,
            ..publication
        },
        predecessor: before,
    }
}

/// Decodes the publications of a read, each with its offset. A malformed publication yields `None`.
fn publications(
    epoch_of: Position,
    entries: Vec<(u64, Bytes)>,
) -> impl Iterator<Item = (u64, Option<Publication>)> {
    entries.into_iter().map(move |(offset, bytes)| {
        let position = Some(Position { offset, ..epoch_of });
        let publication = data::decode(&bytes).map(|one| Publication { position, ..one });
        (offset, publication)
    })
}

/// Returns the longest segment up to the top whose publications are all valid and not expired.
fn chain(entries: Entries, expired_ms: u64) -> HistorySegment {
    let mut before = entries.before;
    let mut list = Vec::with_capacity(entries.entries.len());
    for (offset, publication) in publications(entries.top, entries.entries) {
        match publication {
            Some(publication) if publication.at_ms >= expired_ms => list.push(publication),
            _ => {
                list.clear();
                before = offset;
            }
        }
    }
    HistorySegment {
        top: entries.top,
        predecessor: Some(before),
        publications: list,
    }
}

fn page(
    entries: Entries,
    query: &HistoryQuery,
    answer_max: usize,
    expired_ms: u64,
) -> Result<HistoryPage, HistoryError> {
    let epoch = entries.top.epoch;
    let is_of = |since: &crate::Since| since.epoch.is_none_or(|one| one == epoch);
    if !query.since.as_ref().is_none_or(is_of) {
        return Err(HistoryError::Unrecoverable);
    }
    if entries.entries.len() > answer_max {
        return Err(HistoryError::TooMany(answer_max));
    }
    let mut left = query.bytes_max;
    let found = publications(entries.top, entries.entries).filter_map(|(_, one)| one);
    let mut list: Vec<Publication> = Vec::new();
    for publication in found.filter(|one| one.at_ms >= expired_ms) {
        let bytes = publication.payload.bytes.len();
        if bytes > left && !list.is_empty() {
            break;
        }
        left = left.saturating_sub(bytes);
        list.push(publication);
    }
    Ok(HistoryPage::from_publications(entries.top, list))
}
