//! Events of channels and users for the back end, collected by the home until the worker takes them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::roster::Due;
use crate::{ClientInfo, Engine, Event, Hub, PayloadKind, Recovery, Told, USERS};

/// Maximum number of events waiting to be taken; further ones are counted as lost.
const HAPPENINGS_MAX: usize = 65_536;

/// Maximum number of empty channels waiting for their delay to pass; further ones are reported as vacated at once. The
/// same limit applies to channels reported as [`What::Empty`].
const EMPTY_MAX: usize = 100_000;

/// Minimum interval between two reports of a channel as [`What::Empty`], however often clients subscribe.
const EMPTY_MS: u64 = 1_000;

/// An event of a channel or a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// The channel; `#user` for a user.
    pub channel: Arc<str>,
    /// The time in milliseconds since 1970.
    pub at_ms: u64,
    /// The type of the event.
    pub what: What,
}

/// The type of a [`Happening`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The channel has got its first subscriber.
    Occupied,
    /// The channel has had no subscriber for the namespace's delay.
    Vacated,
    /// A member has joined.
    Joined(Arc<ClientInfo>),
    /// A member has left.
    Left(Arc<ClientInfo>),
    /// A client subscribed to a channel that keeps its latest publication, but has none.
    Empty,
}

/// The fields of an event as back ends and applications receive them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About<'e> {
    /// The name of the event.
    pub kind: &'static str,
    /// The channel; `None` for a personal channel.
    pub channel: Option<&'e str>,
    /// The user name.
    pub user: Option<&'e str>,
    /// The client's id.
    pub client: Option<&'e str>,
    /// The public data of the connection, as JSON.
    pub info: Option<&'e [u8]>,
}

impl Happening {
    /// Returns the fields of the event.
    #[must_use]
    pub fn about(&self) -> About<'_> {
        let channel = &*self.channel;
        // A personal channel stands for its user.
        let user = channel.strip_prefix(USERS);
        let (kind, client): (_, Option<&ClientInfo>) = match &self.what {
            What::Occupied if user.is_some() => ("online", None),
            What::Vacated if user.is_some() => ("offline", None),
            What::Occupied => ("occupied", None),
            What::Vacated => ("vacated", None),
            What::Joined(client) => ("joined", Some(client)),
            What::Left(client) => ("left", Some(client)),
            What::Empty => ("empty", None),
        };
        let info = client.and_then(|client| client.conn_info.as_ref());
        About {
            kind,
            channel: user.is_none().then_some(channel),
            user: user.or_else(|| client.map(|client| &*client.user)),
            client: client.map(|client| &*client.client),
            info: info
                .filter(|info| info.kind == PayloadKind::Json)
                .map(|info| &*info.bytes),
        }
    }
}

/// The collected events and the timers behind them.
#[derive(Debug, Default)]
pub(crate) struct Happenings {
    list: Vec<Happening>,
    /// Empty channels by the time at which they are reported as vacated; the second number makes the key unique.
    emptying: BTreeMap<Due, (Arc<str>, u64)>,
    by_name: HashMap<Arc<str>, Due, RandomState>,
    serial: u64,
    wanted: Wanted,
    lost: u64,
}

/// Channels reported as [`What::Empty`] within the last [`EMPTY_MS`].
#[derive(Debug, Default)]
struct Wanted {
    /// Ends of the interval, in order, since it is equally long for all channels.
    ends: VecDeque<(u64, Arc<str>)>,
    /// Whether another subscriber has found the channel empty since.
    again: HashMap<Arc<str>, bool, RandomState>,
}

impl Wanted {
    /// Records that a subscriber found the channel empty. Returns whether to report it now.
    fn note(&mut self, channel: &Arc<str>, now_ms: u64) -> bool {
        if let Some(again) = self.again.get_mut(channel) {
            *again = true;
            return false;
        }
        if self.again.len() < EMPTY_MAX {
            self.ends
                .push_back((now_ms + EMPTY_MS, Arc::clone(channel)));
            self.again.insert(Arc::clone(channel), false);
        }
        true
    }

    /// Removes the next channel whose interval is over, with whether it was found empty again.
    fn pop(&mut self, now_ms: u64) -> Option<(Arc<str>, bool)> {
        let (_, channel) = self.ends.pop_front_if(|(end_ms, _)| *end_ms <= now_ms)?;
        let again = self.again.remove(&channel).unwrap_or_default();
        Some((channel, again))
    }
}

impl Happenings {
    fn push(&mut self, channel: &Arc<str>, at_ms: u64, what: What) {
        if self.list.len() >= HAPPENINGS_MAX {
            self.lost += 1;
            return;
        }
        let channel = Arc::clone(channel);
        self.list.push(Happening {
            channel,
            at_ms,
            what,
        });
    }

    pub(crate) fn has_some(&self) -> bool {
        !self.list.is_empty() || self.lost > 0
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !(self.emptying.is_empty() && self.wanted.ends.is_empty())
    }
}

impl<E: Engine> Hub<E> {
    /// Moves the events since the last call to `into`, in order. Returns how many were lost for lack of room.
    pub fn take_happenings(&mut self, into: &mut Vec<Happening>) -> u64 {
        into.append(&mut self.happenings.list);
        std::mem::take(&mut self.happenings.lost)
    }

    /// Home: the channel has its first subscriber.
    pub(crate) fn happened_occupied(&mut self, index: u32) {
        let name = &self.channels[index].name;
        let happenings = &mut self.happenings;
        let emptying = match happenings.by_name.is_empty() {
            true => None,
            false => happenings.by_name.remove(name),
        };
        if let Some(key) = emptying {
            // Vacated was not reported, so occupied must not be either.
            happenings.emptying.remove(&key);
        } else if self.namespaces.of(name).told >= Told::Occupancy {
            happenings.push(name, self.now.wall_ms, What::Occupied);
        }
    }

    /// Home: the channel has lost its last subscriber.
    pub(crate) fn happened_vacated(&mut self, index: u32) {
        let name = &self.channels[index].name;
        let namespace = self.namespaces.of(name);
        if namespace.told < Told::Occupancy {
            return;
        }
        if namespace.leave_delay_ms == 0 || self.happenings.emptying.len() >= EMPTY_MAX {
            let name = Arc::clone(name);
            // Its members leave before it is vacated.
            self.end_absences_of(&name);
            let at_ms = self.now.wall_ms;
            return self.happenings.push(&name, at_ms, What::Vacated);
        }
        let happenings = &mut self.happenings;
        happenings.serial += 1;
        let key = (
            self.now.mono_ms + namespace.leave_delay_ms,
            happenings.serial,
        );
        let entry = (Arc::clone(name), self.now.wall_ms);
        happenings.emptying.insert(key, entry);
        happenings.by_name.insert(Arc::clone(name), key);
    }

    /// Home: reports channels that have been empty for the whole delay as vacated.
    pub(crate) fn end_emptying(&mut self) {
        let now_ms = self.now.mono_ms;
        while let Some(entry) = self.happenings.emptying.first_entry()
            && entry.key().0 <= now_ms
        {
            let (name, at_ms) = entry.remove();
            self.happenings.by_name.remove(&name);
            self.happenings.push(&name, at_ms, What::Vacated);
        }
    }

    /// Home: a member has joined or left.
    pub(crate) fn happened_member(
        &mut self,
        channel: &Arc<str>,
        event: Event,
        client: &Arc<ClientInfo>,
    ) {
        if self.namespaces.of(channel).told < Told::Members {
            return;
        }
        let client = Arc::clone(client);
        let what = match event {
            Event::Joined => What::Joined(client),
            _ => What::Left(client),
        };
        self.happenings.push(channel, self.now.wall_ms, what);
    }

    /// Home: a subscriber joins a channel that keeps its latest publication, but has none. Reported at once, and again
    /// after [`EMPTY_MS`] if another subscriber found it empty meanwhile and it still is.
    pub(crate) fn happened_empty(&mut self, index: u32) {
        let name = &self.channels[index].name;
        let namespace = self.namespaces.of(name);
        let keeps_latest = |history: crate::History| history.recovery == Recovery::Latest;
        if namespace.told < Told::Occupancy || !namespace.history.is_some_and(keeps_latest) {
            return;
        }
        let happenings = &mut self.happenings;
        if happenings.wanted.note(name, self.now.mono_ms) {
            happenings.push(name, self.now.wall_ms, What::Empty);
        }
    }

    /// Home: reports channels that were found empty again and still are.
    pub(crate) fn end_wanted(&mut self) {
        let now_ms = self.now.mono_ms;
        while let Some((name, again)) = self.happenings.wanted.pop(now_ms) {
            if again && let Some(index) = self.empty_and_used(&name) {
                self.happened_empty(index);
            }
        }
    }

    /// Returns the channel of that name if it has subscribers and no publication.
    fn empty_and_used(&self, name: &str) -> Option<u32> {
        let index = self.channels.find(self.channels.hash(name), name)?;
        let channel = &self.channels[index];
        let slot = channel.home.stream();
        let has_records = slot.is_some_and(|slot| !self.engine.is_empty(slot));
        (!has_records && channel.subscribers_all() > 0).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Answer, Caller, ChannelName, Class, ConnectionId, Delivery, Instruction, Mail, Namespace,
        Namespaces, Now, Options, Outlet, SubscribeOptions, Ticket, WorkerId,
    };

    struct Nowhere;

    impl Outlet for Nowhere {
        fn mail(&mut self, _: WorkerId, _: Mail) {}
        fn has_credit(&self, _: WorkerId, _: Class) -> bool {
            true
        }
        fn mail_done(&mut self, _: WorkerId, _: Class) {}
        fn deliver(&mut self, _: ConnectionId, _: &mut Delivery<'_>) {}
        fn answer(&mut self, _: ConnectionId, _: Ticket, _: Answer) {}
        fn instruct(&mut self, _: ConnectionId, _: &Arc<Instruction>) {}
        fn instructed(&mut self, _: Caller, _: &Arc<Instruction>) {}
    }

    fn hub() -> Hub {
        let mut namespaces = Namespaces::new();
        let told = |told, leave_delay_ms| Namespace {
            told,
            leave_delay_ms,
            ..Namespace::default()
        };
        namespaces.insert("#", told(Told::Occupancy, 5_000));
        namespaces.insert("room", told(Told::Members, 5_000));
        namespaces.insert("hall", told(Told::Members, 0));
        let latest = crate::History {
            size: 1,
            ttl_ms: 60_000,
            position_ttl_ms: 60_000,
            recovery: Recovery::Latest,
            budget: crate::Budget::COMMON,
        };
        let price = Namespace {
            history: Some(latest),
            ..told(Told::Occupancy, 0)
        };
        namespaces.insert("price", price);
        let mut hub = Hub::new(WorkerId(0), 1, 1, Options::default());
        hub.set_history(Arc::new(namespaces), usize::MAX);
        hub
    }

    fn session(generation: u32) -> ConnectionId {
        ConnectionId {
            index: 0,
            generation,
        }
    }

    fn join(hub: &mut Hub, channel: &str, generation: u32) {
        let client = ClientInfo {
            user: "ann".into(),
            client: generation.to_string().into(),
            conn_info: None,
            chan_info: None,
        };
        let joining = SubscribeOptions {
            client: Some(Arc::new(client)),
            ..SubscribeOptions::default()
        };
        let name = ChannelName::new(channel).expect("a valid name");
        let result = hub.subscribe(session(generation), name, Ticket(0), &joining, &mut Nowhere);
        result.expect("there is room");
    }

    fn pass(hub: &mut Hub, mono_ms: u64) {
        hub.set_now(Now {
            mono_ms,
            wall_ms: mono_ms,
        });
        hub.look_after();
    }

    fn taken(hub: &mut Hub) -> Vec<String> {
        let mut list = Vec::new();
        assert_eq!(hub.take_happenings(&mut list), 0);
        let told = |one: &Happening| {
            let what = match &one.what {
                What::Joined(client) => format!("{} joined", client.client),
                What::Left(client) => format!("{} left", client.client),
                other => format!("{other:?}"),
            };
            format!("{} {what}", one.channel)
        };
        list.iter().map(told).collect()
    }

    #[test]
    fn who_is_back_in_time_was_never_away() {
        for channel in ["#ann", "room:1"] {
            let mut hub = hub();
            join(&mut hub, channel, 0);
            let mut expected = vec![format!("{channel} Occupied")];
            if channel == "room:1" {
                expected.push("room:1 0 joined".to_owned());
            }
            assert_eq!(taken(&mut hub), expected);
            for generation in 0..3u32 {
                hub.close(session(generation), &mut Nowhere);
                assert!(hub.has_looks_due());
                pass(&mut hub, u64::from(generation) * 10_000 + 4_998);
                join(&mut hub, channel, generation + 1);
                pass(&mut hub, u64::from(generation) * 10_000 + 9_999);
            }
            assert_eq!(taken(&mut hub), [""; 0]);
            hub.close(session(3), &mut Nowhere);
            pass(&mut hub, 100_000);
            let mut expected = vec![format!("{channel} Vacated")];
            if channel == "room:1" {
                expected.insert(0, "room:1 3 left".to_owned());
            }
            assert_eq!(taken(&mut hub), expected);
            assert!(!hub.has_looks_due());
        }
    }

    #[test]
    fn without_a_delay_it_is_told_at_once() {
        let mut hub = hub();
        join(&mut hub, "hall:1", 0);
        hub.close(session(0), &mut Nowhere);
        let expected = ["Occupied", "0 joined", "0 left", "Vacated"];
        assert_eq!(taken(&mut hub), expected.map(|one| format!("hall:1 {one}")));
        join(&mut hub, "other:1", 1);
        assert_eq!(taken(&mut hub), [""; 0]);
    }

    #[test]
    fn who_wants_the_latest_and_finds_nothing_is_told_of() {
        let mut hub = hub();
        join(&mut hub, "price:1", 0);
        let expected = ["Empty", "Occupied"];
        assert_eq!(
            taken(&mut hub),
            expected.map(|one| format!("price:1 {one}"))
        );
    }
}
