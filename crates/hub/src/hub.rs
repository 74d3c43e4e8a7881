//! Membership: who joins, who leaves, who is counted where. Start reading here.
//!
//! Publishing is in `publish.rs`, what can't go on for lack of credit in `stalled.rs`, fan-out in
//! `sweep.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::channel::{Channel, Channels};
use crate::queue::Queue;
use crate::stalled::Stalled;
use crate::subscription::{NONE, SLOTS_MAX, Standing, Subscriptions};
use crate::{
    Answer, ChannelName, Encodings, Mail, NameError, Options, Outlet, Registration, SessionId,
    Ticket, WorkerId,
};

/// One worker's hub.
pub struct Hub {
    pub(crate) me: WorkerId,
    pub(crate) workers: u16,
    pub(crate) options: Options,
    pub(crate) channels: Channels,
    pub(crate) subscriptions: Subscriptions,
    /// Channels with a queue, in the order of their turns.
    pub(crate) busy: VecDeque<u32>,
    pub(crate) stalled: Stalled,
    /// Publications that wait for a sweep, and the bytes of their payloads.
    pub(crate) queued: usize,
    pub(crate) queued_bytes: usize,
    /// For deliveries that are not queued.
    pub(crate) scratch: Encodings,
    /// Empty queues for the next channels that need one.
    #[expect(clippy::vec_box, reason = "channels hold them by a thin pointer")]
    pub(crate) spare_queues: Vec<Box<Queue>>,
    /// As home: channels with a subscriber anywhere, and how many of them are personal.
    occupied: u32,
    users: u32,
}

/// What became of a request at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The home is here and did it: so many registered subscribers, on all workers.
    Handed(u32),
    /// It is on its way to the home; if it had a ticket, its answer comes later.
    Pending,
}

/// Why a session can't subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// It is subscribed to that channel, or about to be.
    #[error("already subscribed")]
    Already,
    /// The session has ended: ours to ignore.
    #[error("the session has ended")]
    Stale,
    /// The worker holds as many subscriptions or sessions as it may.
    #[error("too many subscriptions on this worker")]
    Full,
}

/// The hub's gauges, for metrics. Sum them over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Channels with their home here that have a subscriber on any worker, personal ones included.
    pub channels: u32,
    /// Users with their home here that are connected to any worker.
    pub users: u32,
    /// Subscriptions of this worker's sessions.
    pub subscriptions: u32,
    /// Publications that wait here for a sweep.
    pub queued: u32,
    /// Bytes of their payloads.
    pub queued_bytes: u64,
    /// Publications that wait here, their home, for credit.
    pub stalled: u32,
    /// Entries of the table of channels, in either role.
    pub entries: u32,
}

impl Hub {
    /// The hub of worker `me` of `workers`. `seed` must be the same for all of them, and one that
    /// peers can't guess: it decides about hash collisions.
    ///
    /// # Panics
    /// If `me` is not one of `workers`.
    pub fn new(me: WorkerId, workers: u16, seed: u64, options: Options) -> Self {
        assert!(me.0 < workers, "worker {} of {workers}", me.0);
        Self {
            me,
            workers,
            options,
            channels: Channels::new(seed),
            subscriptions: Subscriptions::new(),
            busy: VecDeque::new(),
            stalled: Stalled::new(workers),
            queued: 0,
            queued_bytes: 0,
            scratch: Encodings::default(),
            spare_queues: Vec::new(),
            occupied: 0,
            users: 0,
        }
    }

    /// Subscribes a session. [`Answer::Subscribed`] comes when the channel's home has counted it:
    /// within this call if the home is here. From the answer on it gets every publication. There is
    /// no answer if it unsubscribes or closes first.
    pub fn subscribe(
        &mut self,
        session: SessionId,
        channel: ChannelName<'_>,
        ticket: Ticket,
        outlet: &mut impl Outlet,
    ) -> Result<(), SubscribeError> {
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
        let home = self.home(hash);
        let index = match self.channels.find(hash, channel.as_str()) {
            Some(index) => index,
            None => self
                .channels
                .insert(hash, Arc::from(channel.as_str()), home),
        };
        if self.subscriptions.find(session, index).is_some() {
            return Err(SubscribeError::Already);
        }
        let registration = self.subscriptions.insert(session, index);
        if home == self.me {
            self.make_live(index, registration.slot);
            outlet.answer(session, ticket, Answer::Subscribed);
        } else {
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
                },
            );
        }
        Ok(())
    }

    /// Ends one subscription; nothing more is delivered on it. False if there was none.
    pub fn unsubscribe(
        &mut self,
        session: SessionId,
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

    /// Ends all subscriptions of a session; from now on its id is stale.
    pub fn close(&mut self, session: SessionId, outlet: &mut impl Outlet) {
        while let Some(slot) = self.subscriptions.first(session) {
            self.remove(slot, outlet);
        }
        self.subscriptions.end(session);
    }

    /// Asks for the end of all connections of a user, on all workers. The answer, or
    /// [`Outcome::Handed`], says how many there were.
    pub fn disconnect_user(
        &mut self,
        from: Option<(SessionId, Ticket)>,
        user: &str,
        code: u16,
        reason: &str,
        outlet: &mut impl Outlet,
    ) -> Result<Outcome, NameError> {
        let mut buffer = String::new();
        let name = ChannelName::of_user(user, &mut buffer)?;
        let hash = self.channels.hash(name.as_str());
        let home = self.home(hash);
        if home == self.me {
            let found = self.channels.find(hash, name.as_str());
            let count = found.map_or(0, |index| self.disconnect(index, code, reason, outlet));
            return Ok(Outcome::Handed(count));
        }
        let channel = self.channel_name(hash, name.as_str());
        let mail = Mail::DisconnectUser {
            channel,
            code,
            reason: Arc::from(reason),
            reply: from,
        };
        outlet.mail(home, mail);
        Ok(Outcome::Pending)
    }

    /// Takes a mail from the hub of another worker.
    pub fn receive(&mut self, from: WorkerId, mail: Mail, outlet: &mut impl Outlet) {
        match mail {
            Mail::Subscribe {
                channel,
                session,
                ticket,
                registration,
            } => {
                self.count_in(from, channel);
                outlet.mail(
                    from,
                    Mail::Subscribed {
                        session,
                        ticket,
                        registration,
                    },
                );
            }
            Mail::Subscribed {
                session,
                ticket,
                registration,
            } => {
                self.subscribed(session, ticket, registration, outlet);
            }
            Mail::Unsubscribe { channel } => self.count_out(from, &channel),
            Mail::Publish {
                channel,
                payload,
                reply,
            } => {
                self.receive_publish(from, &channel, payload, reply, outlet);
            }
            Mail::Published {
                session,
                ticket,
                handed,
            } => {
                outlet.answer(session, ticket, Answer::Published { handed });
            }
            Mail::Deliver { channel, payload } => {
                self.receive_deliver(from, &channel, payload, outlet);
            }
            Mail::DisconnectUser {
                channel,
                code,
                reason,
                reply,
            } => {
                let found = self.find(&channel);
                let count = found.map_or(0, |index| self.disconnect(index, code, &reason, outlet));
                if let Some((session, ticket)) = reply {
                    outlet.mail(
                        from,
                        Mail::Disconnected {
                            session,
                            ticket,
                            count,
                        },
                    );
                }
            }
            Mail::Disconnect {
                channel,
                code,
                reason,
            } => {
                if let Some(index) = self.find(&channel) {
                    self.disconnect_here(index, code, &reason, outlet);
                }
            }
            Mail::Disconnected {
                session,
                ticket,
                count,
            } => {
                outlet.answer(session, ticket, Answer::Disconnected { count });
            }
        }
    }

    /// The gauges as they stand.
    pub fn counts(&self) -> Counts {
        Counts {
            channels: self.occupied,
            users: self.users,
            subscriptions: self.subscriptions.len(),
            queued: self.queued as u32,
            queued_bytes: self.queued_bytes as u64,
            stalled: self.stalled.len() as u32,
            entries: self.channels.len() as u32,
        }
    }

    /// The worker that orders a channel: all hubs of one seed agree.
    pub fn home_of(&self, channel: ChannelName<'_>) -> WorkerId {
        self.home(self.channels.hash(channel.as_str()))
    }

    pub(crate) fn home(&self, hash: u64) -> WorkerId {
        // Scaled instead of divided. The bits in the middle: the table of names uses both ends.
        let bits = u64::from((hash >> 24) as u32);
        WorkerId(((bits * u64::from(self.workers)) >> 32) as u16)
    }

    pub(crate) fn find(&self, channel: &str) -> Option<u32> {
        self.channels.find(self.channels.hash(channel), channel)
    }

    /// The name to send, shared with the entry if there is one.
    pub(crate) fn channel_name(&self, hash: u64, name: &str) -> Arc<str> {
        match self.channels.find(hash, name) {
            Some(index) => self.channels[index].name.clone(),
            None => Arc::from(name),
        }
    }

    /// Home: counts a subscriber of another worker.
    fn count_in(&mut self, from: WorkerId, name: Arc<str>) {
        let hash = self.channels.hash(&name);
        debug_assert_eq!(self.home(hash), self.me, "all workers have one seed");
        let index = match self.channels.find(hash, &name) {
            Some(index) => index,
            None => self.channels.insert(hash, name, self.me),
        };
        let channel = &mut self.channels[index];
        let was_vacant = channel.subscribers_all() == 0;
        channel.add_share(from);
        if was_vacant {
            self.note_occupied(index);
        }
    }

    /// Home: counts a subscriber of another worker out.
    fn count_out(&mut self, from: WorkerId, name: &str) {
        let Some(index) = self.find(name) else {
            debug_assert!(false, "unsubscribe follows subscribe on the same lane");
            return;
        };
        let channel = &mut self.channels[index];
        let was_counted = channel.remove_share(from);
        debug_assert!(
            was_counted,
            "unsubscribe follows subscribe on the same lane"
        );
        if was_counted && channel.subscribers_all() == 0 {
            self.note_vacated(index);
        }
        self.channels.release(index);
    }

    /// Local: the home has counted it.
    fn subscribed(
        &mut self,
        session: SessionId,
        ticket: Ticket,
        registration: Registration,
        outlet: &mut impl Outlet,
    ) {
        // It may have unsubscribed meanwhile; then the home hears of that next.
        if let Some(index) = self.subscriptions.pending(registration, session) {
            self.channels[index].waiting -= 1;
            self.make_live(index, registration.slot);
            outlet.answer(session, ticket, Answer::Subscribed);
        }
    }

    /// Local: from now on publications go to this slot.
    fn make_live(&mut self, index: u32, slot: u32) {
        let channel = &mut self.channels[index];
        let was_vacant = channel.home == self.me && channel.subscribers_all() == 0;
        let place = channel.subscribers.push(slot);
        self.subscriptions.set_place(slot, place as u32);
        if was_vacant {
            self.note_occupied(index);
        }
    }

    /// Local: ends a subscription, live or not, and tells the home.
    fn remove(&mut self, slot: u32, outlet: &mut impl Outlet) {
        let removed = self.subscriptions.remove(slot);
        let index = removed.channel;
        let channel = &mut self.channels[index];
        match removed.place() {
            Some(place) => {
                if let Some(moved) = channel.remove_subscriber(place) {
                    self.subscriptions.set_place(moved, place);
                }
            }
            None => channel.waiting -= 1,
        }
        if channel.home != self.me {
            outlet.mail(
                channel.home,
                Mail::Unsubscribe {
                    channel: channel.name.clone(),
                },
            );
        } else if channel.subscribers_all() == 0 {
            self.note_vacated(index);
        }
        self.channels.release(index);
    }

    /// Home: a channel got its first subscriber.
    fn note_occupied(&mut self, index: u32) {
        self.occupied += 1;
        self.users += u32::from(is_personal(&self.channels[index]));
    }

    /// Home: a channel lost its last subscriber.
    fn note_vacated(&mut self, index: u32) {
        self.occupied -= 1;
        self.users -= u32::from(is_personal(&self.channels[index]));
    }

    /// Home: tells all workers with subscribers. Returns how many these are.
    fn disconnect(&mut self, index: u32, code: u16, reason: &str, outlet: &mut impl Outlet) -> u32 {
        let channel = &self.channels[index];
        if !channel.shares.is_empty() {
            let reason: Arc<str> = Arc::from(reason);
            for share in channel.shares.as_slice() {
                let channel = channel.name.clone();
                let mail = Mail::Disconnect {
                    channel,
                    code,
                    reason: reason.clone(),
                };
                outlet.mail(share.worker, mail);
            }
        }
        self.disconnect_here(index, code, reason, outlet);
        self.channels[index].subscribers_all()
    }

    fn disconnect_here(&self, index: u32, code: u16, reason: &str, outlet: &mut impl Outlet) {
        for slot in self.channels[index].subscribers.as_slice() {
            if *slot != NONE {
                outlet.disconnect(self.subscriptions.session(*slot), code, reason);
            }
        }
    }
}

fn is_personal(channel: &Channel) -> bool {
    channel.name.starts_with('#')
}
