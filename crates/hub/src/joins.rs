//! Subscriptions that wait for the engine: until it follows their channel, and until the history that they missed has
//! been read.
//!
//! Such a subscription is not counted and receives nothing. All of a channel share one read: the first requests as much
//! as it needs, those that arrive meanwhile take their part of the result, and only what reaches further back is read
//! again. Items delivered meanwhile are kept as the *tail*, so that a read that is older than the feed can still be
//! joined with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::{Chain, Item, Kept, Reach, Read, Report, Step};
use crate::lines::Line;
use crate::namespace::Recovery;
use crate::{
    Answer, ConnectionId, Engine, Hub, Joined, Mail, Outlet, Publication, RECOVERED_MAX, Recovered,
    Registration, Since, SubscribeOptions, Ticket, WorkerId,
};

/// Maximum payload bytes in the tail of one channel; beyond that the read starts over.
const TAIL_BYTES_MAX: usize = 1 << 20;

/// Maximum number of reads for one subscription; if none of them joins the feed, it is not recovered.
const ROUNDS_MAX: u8 = 3;

/// Pending subscriptions by the channel's entry.
pub(crate) type Joins = BTreeMap<u32, Pending>;

/// The pending subscriptions of one channel.
#[derive(Debug)]
pub(crate) struct Pending {
    following: Following,
    joiners: Vec<Joiner>,
    /// The read in progress.
    reading: Option<Read>,
    /// Items delivered since that read was requested.
    tail: Vec<Item>,
    tail_bytes: usize,
    /// The tail exceeded its limit and was dropped.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Following {
    Begun,
    Done,
    Refused,
}

/// A subscription that its home has yet to count.
#[derive(Debug)]
pub(crate) struct Joiner {
    pub(crate) from: WorkerId,
    pub(crate) session: ConnectionId,
    pub(crate) ticket: Ticket,
    pub(crate) registration: Registration,
    pub(crate) joining: SubscribeOptions,
    /// Reads so far.
    rounds: u8,
    /// The engine can't follow the channel: the subscriber's worker was told and will remove the subscription.
    is_refused: bool,
}

impl Joiner {
    fn new(
        from: WorkerId,
        (session, ticket): (ConnectionId, Ticket),
        registration: Registration,
        joining: &SubscribeOptions,
    ) -> Self {
        Self {
            from,
            session,
            ticket,
            registration,
            joining: joining.clone(),
            rounds: 0,
            is_refused: false,
        }
    }

    fn reach(&self, recovery: Recovery) -> Reach {
        match (&self.joining.since, recovery) {
            (None, _) => Reach::Top,
            // Without a known position it gets the latest publication.
            (Some(_), Recovery::Latest) => Reach::Since(0),
            (Some(since), Recovery::Missed) => {
                let offsets = since.iter().map(|since| since.offset);
                offsets.min().map_or(Reach::Top, Reach::Since)
            }
        }
    }
}

impl Pending {
    fn new(following: Following) -> Self {
        Self {
            following,
            joiners: Vec::new(),
            reading: None,
            tail: Vec::new(),
            tail_bytes: 0,
            is_cut: false,
        }
    }

    /// Appends an item that is about to be delivered.
    fn note(&mut self, channel: &Arc<str>, before: u64, publication: &Publication) {
        if self.reading.is_none() || self.is_cut {
            return;
        }
        self.tail_bytes += publication.payload.bytes.len();
        // A subscriber that has missed more is not recovered anyway.
        if self.tail.len() == RECOVERED_MAX || self.tail_bytes > TAIL_BYTES_MAX {
            self.is_cut = true;
            self.tail = Vec::new();
            return;
        }
        self.tail.push(Item {
            channel: Arc::clone(channel),
            publication: publication.clone(),
            before,
        });
    }
}

impl<E: Engine> Hub<E> {
    /// Home: returns what a subscriber joins that is about to be counted; `None` without history. With [`Step::Later`]
    /// the caller has to [queue](Self::keep_joiner) the subscriber.
    pub(crate) fn join(
        &mut self,
        index: u32,
        joining: &SubscribeOptions,
    ) -> Step<Option<Box<Joined>>> {
        let history = self.namespaces.of(&self.channels[index].name).history;
        let slot = history.is_some().then(|| self.stream_of(index));
        if !self.follows(index, slot) {
            return Step::Later;
        }
        let (Some(history), Some(slot)) = (history, slot) else {
            return Step::Done(None);
        };
        let kept = Kept {
            name: &self.channels[index].name,
            slot,
            history: &history,
            now_ms: self.age_ms(),
        };
        let Step::Done(joined) = self.engine.join(kept, joining) else {
            let pending = self.joins.entry(index);
            pending.or_insert_with(|| Pending::new(Following::Done));
            return Step::Later;
        };
        if self.engine.is_empty(slot) {
            self.happened_empty(index);
        }
        Step::Done(Some(Box::new(joined)))
    }

    /// Home: returns whether the engine follows the channel, and starts following if not.
    #[inline]
    fn follows(&mut self, index: u32, slot: Option<u32>) -> bool {
        if !self.joins.is_empty() {
            return self.follows_pending(index, slot);
        }
        let channel = &self.channels[index];
        if channel.subscribers_all() > 0 {
            return true;
        }
        let is_done = matches!(self.engine.follow(&channel.name, slot), Step::Done(()));
        if !is_done {
            self.joins.insert(index, Pending::new(Following::Begun));
        }
        is_done
    }

    /// Home: the same for a channel with pending subscriptions.
    #[inline(never)]
    fn follows_pending(&mut self, index: u32, slot: Option<u32>) -> bool {
        let channel = &self.channels[index];
        match self.joins.get(&index).map(|pending| pending.following) {
            None if channel.subscribers_all() > 0 => return true,
            Some(Following::Done) => return true,
            Some(Following::Begun) => return false,
            None | Some(Following::Refused) => {}
        }
        let is_done = matches!(self.engine.follow(&channel.name, slot), Step::Done(()));
        let following = match is_done {
            true => Following::Done,
            false => Following::Begun,
        };
        match self.joins.get_mut(&index) {
            Some(pending) => pending.following = following,
            None if is_done => {}
            None => drop(self.joins.insert(index, Pending::new(following))),
        }
        is_done
    }

    /// Home: queues a subscriber until the engine has answered.
    #[inline(never)]
    pub(crate) fn keep_joiner(
        &mut self,
        index: u32,
        from: WorkerId,
        caller: (ConnectionId, Ticket),
        registration: Registration,
        joining: &SubscribeOptions,
    ) {
        let joiner = Joiner::new(from, caller, registration, joining);
        if let Some(pending) = self.joins.get_mut(&index) {
            self.channels[index].waiting += 1;
            pending.joiners.push(joiner);
            self.read_for_joins(index);
        }
    }

    /// Home: returns the number of subscribers of a channel that wait for the engine.
    pub(crate) fn pending_joins(&self, index: u32) -> u32 {
        let pending = self.joins.get(&index);
        pending.map_or(0, |pending| pending.joiners.len() as u32)
    }

    /// Home: removes a subscriber that has left and may not be counted yet. Returns whether it was pending.
    pub(crate) fn drop_joiner(
        &mut self,
        index: u32,
        from: WorkerId,
        registration: Registration,
    ) -> bool {
        let Some(pending) = self.joins.get_mut(&index) else {
            return false;
        };
        let is_it = |one: &Joiner| one.from == from && one.registration == registration;
        let Some(place) = pending.joiners.iter().position(is_it) else {
            return false;
        };
        pending.joiners.swap_remove(place);
        self.end_joins(index);
        true
    }

    /// Home: the engine follows a channel, or can't.
    pub(crate) fn take_following(
        &mut self,
        channel: &str,
        is_following: bool,
        outlet: &mut impl Outlet,
    ) {
        let Some(index) = self.find(channel) else {
            return;
        };
        let Some(pending) = self.joins.get_mut(&index) else {
            return;
        };
        if pending.following != Following::Begun {
            return;
        }
        if !is_following {
            pending.following = Following::Refused;
            return self.refuse_joins(index, outlet);
        }
        pending.following = Following::Done;
        let joiners = std::mem::take(&mut pending.joiners);
        for joiner in joiners {
            match joiner.is_refused {
                true => self.put_back(index, joiner),
                false => match self.join(index, &joiner.joining) {
                    Step::Done(joined) => self.admit(index, &joiner, joined, outlet),
                    Step::Later => self.put_back(index, joiner),
                },
            }
        }
        self.read_for_joins(index);
        self.end_joins(index);
        self.keep_to_budget();
    }

    fn put_back(&mut self, index: u32, joiner: Joiner) {
        if let Some(pending) = self.joins.get_mut(&index) {
            pending.joiners.push(joiner);
        }
    }

    /// Home: refuses the pending subscriptions of a channel that can't be followed, on other workers with
    /// [`Mail::Refused`].
    fn refuse_joins(&mut self, index: u32, outlet: &mut impl Outlet) {
        let Some(pending) = self.joins.get_mut(&index) else {
            return;
        };
        let mut here = Vec::new();
        for joiner in &mut pending.joiners {
            if joiner.is_refused {
                continue;
            }
            joiner.is_refused = true;
            let (session, ticket) = (joiner.session, joiner.ticket);
            let registration = joiner.registration;
            match joiner.from == self.me {
                true => here.push((session, ticket, registration)),
                false => outlet.mail(
                    joiner.from,
                    Mail::Refused {
                        session,
                        ticket,
                        registration,
                    },
                ),
            }
        }
        for (session, ticket, registration) in here {
            self.refused(session, ticket, registration, outlet);
        }
    }

    /// Home: counts a subscriber that has waited.
    fn admit(
        &mut self,
        index: u32,
        joiner: &Joiner,
        joined: Option<Box<Joined>>,
        outlet: &mut impl Outlet,
    ) {
        self.channels[index].waiting -= 1;
        let client = joiner.joining.client.as_ref();
        let (session, ticket) = (joiner.session, joiner.ticket);
        let registration = joiner.registration;
        if joiner.from == self.me {
            self.has_admitted = true;
            self.make_live(index, registration.slot);
            self.member_in(index, client);
            return outlet.answer(session, ticket, Answer::Subscribed(joined));
        }
        self.add_share(index, joiner.from, client);
        let mail = Mail::Subscribed {
            session,
            ticket,
            registration,
            joined,
        };
        outlet.mail(joiner.from, mail);
    }

    /// Home: starts a read for pending subscribers unless one is in progress.
    pub(crate) fn read_for_joins(&mut self, index: u32) {
        let slot = self.channels[index].home.stream();
        let history = self.namespaces.of(&self.channels[index].name).history;
        let (Some(pending), Some(slot), Some(history)) =
            (self.joins.get_mut(&index), slot, history)
        else {
            return;
        };
        if pending.following != Following::Done || pending.reading.is_some() {
            return;
        }
        // Closing a gap moves the position at which they join.
        if self.lines.get(&index).is_some_and(Line::is_healing) {
            return;
        }
        let waiting = pending.joiners.iter().filter(|one| !one.is_refused);
        let Some(reach) = waiting.map(|one| one.reach(history.recovery)).min() else {
            return;
        };
        let read = self.reads.next(reach);
        pending.reading = Some(read);
        pending.tail.clear();
        (pending.tail_bytes, pending.is_cut) = (0, false);
        self.engine.read_since(slot, read);
    }

    /// Home: keeps an item that is about to be delivered for subscribers that wait for a read.
    pub(crate) fn note_for_joins(&mut self, index: u32, slot: u32, publication: &Publication) {
        if let Some(pending) = self.joins.get_mut(&index) {
            let before = self.engine.position(slot).offset;
            pending.note(&self.channels[index].name, before, publication);
        }
    }

    /// Home: completes the subscriptions that a finished read covers.
    pub(crate) fn settle_joins(
        &mut self,
        index: u32,
        read: Read,
        chain: Option<&Chain>,
        outlet: &mut impl Outlet,
    ) {
        let (slot, history) = (
            self.channels[index].home.stream(),
            self.namespaces.of(&self.channels[index].name).history,
        );
        let Some(pending) = self.joins.get_mut(&index) else {
            return;
        };
        if pending.reading != Some(read) {
            return;
        }
        pending.reading = None;
        let (Some(slot), Some(history)) = (slot, history) else {
            return self.forget_history(index, outlet);
        };
        let joiners = std::mem::take(&mut pending.joiners);
        let position = self.engine.position(slot);
        let reaches = |offset| chain.is_some_and(|chain| chain.place_after(offset).is_some());
        let is_behind = |since: &Since| {
            since.epoch.is_none_or(|epoch| epoch == position.epoch)
                && since.offset > position.offset
                && reaches(since.offset)
        };
        let fed = chain.and_then(|chain| chain.clone().up_to(position, &pending.tail));
        let is_empty = fed
            .as_ref()
            .is_some_and(|fed| read.reach <= Reach::Since(0) && fed.publications.is_empty());
        let mut is_ahead = false;
        for mut joiner in joiners {
            if joiner.is_refused {
                self.put_back(index, joiner);
                continue;
            }
            joiner.rounds += 1;
            // Another read may still help: this one does not reach back far enough, or the feed has not reached the
            // segment.
            let since = joiner.joining.since.as_deref().unwrap_or_default();
            let knows_more = since.iter().any(is_behind);
            let reaches_further = joiner.reach(history.recovery) < read.reach;
            let is_open = chain.is_some() && (fed.is_none() || reaches_further || knows_more);
            let recovered = match (&joiner.joining.since, &fed) {
                (None, _) => None,
                (Some(_), None) => Some(Recovered::default()),
                (Some(since), Some(fed)) => {
                    let latest_max = if joiner.joining.picks {
                        RECOVERED_MAX
                    } else {
                        1
                    };
                    Some(fed.recover(since, history.recovery, latest_max))
                }
            };
            let is_whole = recovered.as_ref().is_none_or(|one| one.is_whole);
            if !is_whole && is_open && joiner.rounds < ROUNDS_MAX {
                is_ahead |= knows_more;
                self.put_back(index, joiner);
                continue;
            }
            if is_empty {
                self.happened_empty(index);
            }
            let joined = Joined {
                position,
                recovered,
            };
            self.admit(index, &joiner, Some(Box::new(joined)), outlet);
        }
        if is_ahead {
            // They know items that this node has not delivered yet.
            self.heal(index, slot);
        }
        self.read_for_joins(index);
        self.end_joins(index);
        self.keep_to_budget();
    }

    /// Home: the channel no longer has history, so a pending read is abandoned.
    pub(crate) fn give_up_read(&mut self, index: u32) {
        let reading = self.joins.get(&index).and_then(|pending| pending.reading);
        if let Some(read) = reading {
            let name = Arc::clone(&self.channels[index].name);
            self.arrived.push_back(Report::Chain(name, read, None));
        }
    }

    /// Home: the channel no longer has history, so subscribers that wait for it join without it.
    fn forget_history(&mut self, index: u32, outlet: &mut impl Outlet) {
        let Some(pending) = self.joins.get_mut(&index) else {
            return;
        };
        if pending.following != Following::Done {
            return;
        }
        pending.reading = None;
        let joiners = std::mem::take(&mut pending.joiners);
        let (refused, waiting): (Vec<_>, Vec<_>) =
            joiners.into_iter().partition(|one| one.is_refused);
        pending.joiners = refused;
        for joiner in waiting {
            self.admit(index, &joiner, None, outlet);
        }
        self.end_joins(index);
    }

    /// Home: removes the record of pending subscriptions if it is empty.
    fn end_joins(&mut self, index: u32) {
        let pending = self.joins.get(&index);
        if pending.is_none_or(|pending| !pending.joiners.is_empty()) {
            return;
        }
        let following = self.joins.remove(&index).map(|pending| pending.following);
        let channel = &self.channels[index];
        if channel.subscribers_all() == 0 && following != Some(Following::Refused) {
            self.engine.unfollow(&channel.name, channel.home.stream());
        }
    }
}
