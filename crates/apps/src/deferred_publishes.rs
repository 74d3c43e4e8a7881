//! Publications of scripts that the hub could not accept yet. Publications to one channel keep their order; a channel
//! whose home accepts none does not delay the other channels.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

use veche_hub::{ConnectionId, Payload, WorkerId};
use veche_runtime::PublishGate;

/// Maximum number of deferred publications to one channel; [`CHANNEL_BYTES_MAX`] limits their bytes. Above either
/// limit, scripts' publications to the channel are refused. The publications of one run of a handler are always
/// accepted as a whole, even if they exceed the limit.
const CHANNEL_PUBLICATIONS_MAX: usize = 1024;
const CHANNEL_BYTES_MAX: usize = 4 << 20;

/// Maximum number of deferred publications to all channels of a worker; [`BYTES_MAX`] limits their bytes. Above either
/// limit, all publications of scripts are refused.
const PUBLICATIONS_MAX: usize = 16_384;
const BYTES_MAX: usize = 64 << 20;

/// Maximum number of channels that are retried in one turn.
const TRIED_MAX: usize = 256;

/// The deferred publications of a worker, numbered in the order of publishing.
#[derive(Default)]
pub(super) struct DeferredPublishes {
    channels: HashMap<Rc<str>, ChannelQueue>,
    /// The channels with deferred publications, in the order in which they are retried.
    turns: VecDeque<Rc<str>>,
    /// The numbers of all deferred publications.
    waiting: BTreeSet<u64>,
    /// The number of the publication deferred last.
    last: u64,
    bytes: usize,
    is_full: bool,
    /// Tells scripts to which channels publications are currently refused.
    refused: Rc<PublishGate>,
    /// The paused sessions, each with a number: the session stays paused until all publications up to that number have
    /// been passed to the hub.
    sessions: VecDeque<(u64, ConnectionId)>,
}

/// The deferred publications of one channel.
#[derive(Default)]
struct ChannelQueue {
    publications: VecDeque<(u64, Payload)>,
    bytes: usize,
    is_full: bool,
}

impl ChannelQueue {
    fn is_over_limit(&self) -> bool {
        self.publications.len() >= CHANNEL_PUBLICATIONS_MAX || self.bytes >= CHANNEL_BYTES_MAX
    }

    /// Returns whether the queue is at or below half of its limits, so that publishing to the channel is allowed again.
    fn has_room(&self) -> bool {
        self.publications.len() <= CHANNEL_PUBLICATIONS_MAX / 2
            && self.bytes <= CHANNEL_BYTES_MAX / 2
    }
}

impl DeferredPublishes {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether the publications to all channels are currently refused.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns whether publications to the channel are deferred, so that later ones have to be queued behind them.
    pub(super) fn has_queued(&self, channel: &str) -> bool {
        !self.is_empty() && self.channels.contains_key(channel)
    }

    /// Returns the number of the publication deferred last; 0 if there was none.
    pub(super) fn last_number(&self) -> u64 {
        self.last
    }

    /// Returns whether all deferred publications after the number `behind`, up to and including `up_to`, have been
    /// passed to the hub.
    pub(super) fn are_published(&self, behind: u64, up_to: u64) -> bool {
        let between = (Bound::Excluded(behind), Bound::Included(up_to));
        behind >= up_to || self.waiting.range(between).next().is_none()
    }

    /// Pauses the messages of a session until the hub has accepted all publications that are deferred now.
    pub(super) fn pause_session(&mut self, session: ConnectionId) {
        self.sessions.push_back((self.last, session));
    }

    /// Moves the sessions whose pause is over to `into`.
    pub(super) fn take_resumed(&mut self, into: &mut Vec<ConnectionId>) {
        let first = self.waiting.first().copied().unwrap_or(u64::MAX);
        while let Some((_, session)) = self.sessions.pop_front_if(|one| one.0 < first) {
            into.push(session);
        }
    }

    /// Returns the gate that tells scripts to which channels publications are currently refused.
    pub(super) fn refused(&self) -> &Rc<PublishGate> {
        &self.refused
    }

    /// Defers a publication until the hub accepts it.
    pub(super) fn push(&mut self, channel: &str, payload: Payload) {
        self.last += 1;
        self.waiting.insert(self.last);
        self.bytes += payload.bytes.len();
        let name = match self.channels.get_key_value(channel) {
            Some((name, _)) => Rc::clone(name),
            None => {
                let name: Rc<str> = channel.into();
                self.turns.push_back(Rc::clone(&name));
                name
            }
        };
        let queue = self.channels.entry(Rc::clone(&name)).or_default();
        queue.bytes += payload.bytes.len();
        queue.publications.push_back((self.last, payload));
        if queue.is_over_limit() && !queue.is_full {
            queue.is_full = true;
            self.refused.set_refused(&name, true);
        }
        let is_over = self.waiting.len() >= PUBLICATIONS_MAX || self.bytes >= BYTES_MAX;
        if is_over && !self.is_full {
            self.is_full = true;
            self.refused.set_all_refused(true);
        }
    }

    /// Passes to the hub the publications that it accepts now. `home` returns the home worker of a channel; `None` if
    /// the home is this worker. Once another home worker has refused a publication, no further channels of that worker
    /// are tried. `take` passes a publication to the hub and returns whether the hub has accepted it.
    pub(super) fn publish_ready(
        &mut self,
        home: impl Fn(&str) -> Option<WorkerId>,
        mut take: impl FnMut(&str, &Payload) -> bool,
    ) {
        let mut blocked: Vec<WorkerId> = Vec::new();
        for _ in 0..self.turns.len().min(TRIED_MAX) {
            let Some(name) = self.turns.pop_front() else {
                break;
            };
            let home = home(&name);
            let Some(queue) = self.channels.get_mut(&name) else {
                continue;
            };
            let is_blocked = home.is_some_and(|home| blocked.contains(&home));
            while !is_blocked && let Some((number, payload)) = queue.publications.front() {
                if !take(&name, payload) {
                    blocked.extend(home);
                    break;
                }
                self.waiting.remove(number);
                self.bytes -= payload.bytes.len();
                queue.bytes -= payload.bytes.len();
                queue.publications.pop_front();
            }
            if queue.is_full && queue.has_room() {
                queue.is_full = false;
                self.refused.set_refused(&name, false);
            }
            match queue.publications.is_empty() {
                true => drop(self.channels.remove(&name)),
                false => self.turns.push_back(name),
            }
        }
        let has_room = self.waiting.len() <= PUBLICATIONS_MAX / 2 && self.bytes <= BYTES_MAX / 2;
        if self.is_full && has_room {
            self.is_full = false;
            self.refused.set_all_refused(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use veche_hub::PayloadKind;

    use super::*;

    fn payload(bytes: usize) -> Payload {
        Payload {
            kind: PayloadKind::Text,
            bytes: Bytes::from(vec![b'x'; bytes]),
        }
    }

    fn here(_: &str) -> Option<WorkerId> {
        None
    }

    #[test]
    fn a_channel_that_is_stuck_holds_up_no_other_and_keeps_its_order() {
        let mut held = DeferredPublishes::default();
        for (channel, bytes) in [("stuck", 1), ("a", 1), ("stuck", 2), ("a", 2), ("b", 1)] {
            held.push(channel, payload(bytes));
        }
        let session = |index| ConnectionId {
            index,
            generation: 0,
        };
        held.pause_session(session(1));
        let mut taken = Vec::new();
        let is_stuck = |channel: &str| channel == "stuck";
        held.publish_ready(here, |channel, payload| {
            taken.push((channel.to_owned(), payload.bytes.len()));
            !is_stuck(channel)
        });
        let expected = [("stuck", 1), ("a", 1), ("a", 2), ("b", 1)];
        assert_eq!(
            taken,
            expected.map(|(name, bytes)| (name.to_owned(), bytes))
        );
        assert!(held.has_queued("stuck") && !held.has_queued("a"));
        assert!(
            !held.are_published(0, 1) && !held.are_published(2, 3) && !held.are_published(0, 5)
        );
        assert!(held.are_published(1, 2) && held.are_published(3, 5) && held.are_published(3, 3));
        let mut released = Vec::new();
        held.take_resumed(&mut released);
        assert!(released.is_empty(), "it waits for what it has published");
        taken.clear();
        held.publish_ready(here, |_, payload| {
            taken.push((String::new(), payload.bytes.len()));
            true
        });
        assert_eq!(taken, [(String::new(), 1), (String::new(), 2)]);
        held.take_resumed(&mut released);
        assert_eq!(released, [session(1)]);
        assert!(held.is_empty() && held.are_published(0, held.last_number()) && held.bytes == 0);
        assert!(held.channels.is_empty() && held.turns.is_empty());
    }

    #[test]
    fn a_lane_without_credit_is_tried_once_a_turn() {
        let mut held = DeferredPublishes::default();
        for number in 0..10 {
            held.push(&format!("away:{number}"), payload(1));
        }
        held.push("near", payload(1));
        let home = |channel: &str| channel.starts_with("away").then_some(WorkerId(1));
        let mut tried = Vec::new();
        held.publish_ready(home, |channel, _| {
            tried.push(channel.to_owned());
            channel == "near"
        });
        assert_eq!(tried, ["away:0", "near"]);
        assert_eq!(held.turns.len(), 10);
    }

    #[test]
    fn what_waits_is_bounded_for_each_channel_and_for_all() {
        let mut held = DeferredPublishes::default();
        for _ in 0..CHANNEL_PUBLICATIONS_MAX {
            held.push("many", payload(1));
        }
        held.push("large", payload(CHANNEL_BYTES_MAX));
        held.push("small", payload(1));
        let refused = Rc::clone(held.refused());
        let are = |names: [&str; 3]| names.map(|name| refused.is_refused(name));
        let all = ["many", "large", "small"];
        assert_eq!(are(all), [true, true, false]);
        for number in 0.. {
            held.push(&number.to_string(), payload(1 << 20));
            if held.is_full() {
                break;
            }
            assert!(held.bytes < BYTES_MAX);
        }
        assert_eq!(are(all), [true; 3]);
        held.publish_ready(here, |_, _| true);
        assert_eq!(are(all), [false; 3]);
        assert!(held.is_empty() && !held.is_full());
    }
}
