//! What happens to channels that a back end may want to know: kept by the home until the worker takes it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::channel_members::Due;
use crate::{ClientInfo, Engine, FeedEvent, Hub, PayloadKind, RecoveryMode, USERS};

/// So many wait to be taken; what comes beyond that is counted as lost.
const EVENTS_MAX: usize = 65_536;

/// So many channels may be empty and not yet told to be; beyond that it is told at once. The same holds for channels whose
/// latest publication is wanted.
const EMPTY_MAX: usize = 100_000;

/// A channel is reported as [`ChannelEventKind::Empty`] at most once in this time, however often clients subscribe.
const EMPTY_INTERVAL_MS: u64 = 1_000;

/// What of a channel is told to the back end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventLevel {
    /// Nothing.
    #[default]
    Off,
    /// When it gets its first subscriber and loses its last; when somebody wants its latest publication, and there is none.
    Occupancy,
    /// Also who joins and leaves.
    Members,
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelEvent {
    /// Where: `#user` for a user himself.
    pub channel: Arc<str>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What.
    pub kind: ChannelEventKind,
}

/// What has happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEventKind {
    /// It has a subscriber.
    Occupied,
    /// It has had none for as long as its namespace waits.
    Vacated,
    /// A member has joined.
    Joined(Arc<ClientInfo>),
    /// A member has left.
    Left(Arc<ClientInfo>),
    /// Somebody wants the latest publication of a channel that keeps it, and there is none.
    Empty,
}

/// The fields of an event, as back ends and applications receive them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFields<'e> {
    /// The event's name.
    pub kind: &'static str,
    /// The channel, unless it is a user's own.
    pub channel: Option<&'e str>,
    /// The user.
    pub user: Option<&'e str>,
    /// The client's id.
    pub client: Option<&'e str>,
    /// The public data of the connection, as JSON.
    pub info: Option<&'e [u8]>,
}

impl ChannelEvent {
    /// Returns what it is about.
    #[must_use]
    pub fn fields(&self) -> EventFields<'_> {
        let channel = &*self.channel;
        // A user's channel stands for the user.
        let user = channel.strip_prefix(USERS);
        let (kind, client): (_, Option<&ClientInfo>) = match &self.kind {
            ChannelEventKind::Occupied if user.is_some() => ("online", None),
            ChannelEventKind::Vacated if user.is_some() => ("offline", None),
            ChannelEventKind::Occupied => ("occupied", None),
            ChannelEventKind::Vacated => ("vacated", None),
            ChannelEventKind::Joined(client) => ("joined", Some(client)),
            ChannelEventKind::Left(client) => ("left", Some(client)),
            ChannelEventKind::Empty => ("empty", None),
        };
        let info = client.and_then(|client| client.conn_info.as_ref());
        EventFields {
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

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ChannelEvents {
    events: Vec<ChannelEvent>,
    /// Channels that are empty, by when that is told; the second number tells them apart.
    vacated_at: BTreeMap<Due, (Arc<str>, u64)>,
    by_name: HashMap<Arc<str>, Due, RandomState>,
    serial: u64,
    empty_reports: EmptyReports,
    lost: u64,
}

/// Channels that were reported as [`ChannelEventKind::Empty`] within the last [`EMPTY_INTERVAL_MS`].
#[derive(Debug, Default)]
struct EmptyReports {
    /// By the end of that time, which is as long for each of them.
    expiries: VecDeque<(u64, Arc<str>)>,
    /// Whether a further subscriber has found the channel empty since.
    found_empty_again: HashMap<Arc<str>, bool, RandomState>,
}

impl EmptyReports {
    /// Notes that a subscriber found the channel empty. Returns whether to report it now.
    fn note(&mut self, channel: &Arc<str>, now_ms: u64) -> bool {
        if let Some(again) = self.found_empty_again.get_mut(channel) {
            *again = true;
            return false;
        }
        if self.found_empty_again.len() < EMPTY_MAX {
            self.expiries
                .push_back((now_ms + EMPTY_INTERVAL_MS, Arc::clone(channel)));
            self.found_empty_again.insert(Arc::clone(channel), false);
        }
        true
    }

    /// Takes the next channel whose time is over, and whether it was found empty again.
    fn pop(&mut self, now_ms: u64) -> Option<(Arc<str>, bool)> {
        let (_, channel) = self
            .expiries
            .pop_front_if(|(end_ms, _)| *end_ms <= now_ms)?;
        let again = self.found_empty_again.remove(&channel).unwrap_or_default();
        Some((channel, again))
    }
}

impl ChannelEvents {
    fn push(&mut self, channel: &Arc<str>, at_ms: u64, what: ChannelEventKind) {
        if self.events.len() >= EVENTS_MAX {
            self.lost += 1;
            return;
        }
        let channel = Arc::clone(channel);
        self.events.push(ChannelEvent {
            channel,
            at_ms,
            kind: what,
        });
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty() || self.lost > 0
    }

    pub(crate) fn has_timers(&self) -> bool {
        !(self.vacated_at.is_empty() && self.empty_reports.expiries.is_empty())
    }
}

impl<E: Engine> Hub<E> {
    /// Takes what has happened since the last call, in order, and how much of it was lost for lack of room.
    pub fn take_channel_events(&mut self, into: &mut Vec<ChannelEvent>) -> u64 {
        into.append(&mut self.channel_events.events);
        std::mem::take(&mut self.channel_events.lost)
    }

    /// Home: the channel has its first subscriber.
    pub(crate) fn record_occupied(&mut self, index: u32) {
        let name = &self.channels[index].name;
        let happenings = &mut self.channel_events;
        let emptying = match happenings.by_name.is_empty() {
            true => None,
            false => happenings.by_name.remove(name),
        };
        if let Some(key) = emptying {
            // Nobody was told that it was empty.
            happenings.vacated_at.remove(&key);
        } else if self.namespaces.of(name).event_level >= EventLevel::Occupancy {
            happenings.push(name, self.now.wall_ms, ChannelEventKind::Occupied);
        }
    }

    /// Home: the channel has lost its last subscriber.
    pub(crate) fn record_vacated(&mut self, index: u32) {
        let name = &self.channels[index].name;
        let namespace = self.namespaces.of(name);
        if namespace.event_level < EventLevel::Occupancy {
            return;
        }
        if namespace.leave_delay_ms == 0 || self.channel_events.vacated_at.len() >= EMPTY_MAX {
            let name = Arc::clone(name);
            // Its members have left before it is empty.
            self.expire_leaves_of(&name);
            let at_ms = self.now.wall_ms;
            return self
                .channel_events
                .push(&name, at_ms, ChannelEventKind::Vacated);
        }
        let happenings = &mut self.channel_events;
        happenings.serial += 1;
        let key = (
            self.now.mono_ms + namespace.leave_delay_ms,
            happenings.serial,
        );
        let entry = (Arc::clone(name), self.now.wall_ms);
        happenings.vacated_at.insert(key, entry);
        happenings.by_name.insert(Arc::clone(name), key);
    }

    /// Home: tells of channels that have been empty for long enough.
    pub(crate) fn report_vacated(&mut self) {
        let now_ms = self.now.mono_ms;
        while let Some(entry) = self.channel_events.vacated_at.first_entry()
            && entry.key().0 <= now_ms
        {
            let (name, at_ms) = entry.remove();
            self.channel_events.by_name.remove(&name);
            self.channel_events
                .push(&name, at_ms, ChannelEventKind::Vacated);
        }
    }

    /// Home: a member has come or gone.
    pub(crate) fn record_member(
        &mut self,
        channel: &Arc<str>,
        event: FeedEvent,
        client: &Arc<ClientInfo>,
    ) {
        if self.namespaces.of(channel).event_level < EventLevel::Members {
            return;
        }
        let client = Arc::clone(client);
        let what = match event {
            FeedEvent::Joined => ChannelEventKind::Joined(client),
            _ => ChannelEventKind::Left(client),
        };
        self.channel_events.push(channel, self.now.wall_ms, what);
    }

    /// Home: a subscriber joins a channel that keeps its latest publication, and has none. Reported at once, and again
    /// after [`EMPTY_INTERVAL_MS`] if others have found it empty meanwhile and it still is.
    pub(crate) fn record_empty(&mut self, index: u32) {
        let name = &self.channels[index].name;
        let namespace = self.namespaces.of(name);
        let keeps_latest =
            |history: crate::HistoryOptions| history.recovery == RecoveryMode::Latest;
        if namespace.event_level < EventLevel::Occupancy
            || !namespace.history.is_some_and(keeps_latest)
        {
            return;
        }
        let happenings = &mut self.channel_events;
        if happenings.empty_reports.note(name, self.now.mono_ms) {
            happenings.push(name, self.now.wall_ms, ChannelEventKind::Empty);
        }
    }

    /// Home: reports channels that subscribers have found empty again, and that still are.
    pub(crate) fn report_still_empty(&mut self) {
        let now_ms = self.now.mono_ms;
        while let Some((name, again)) = self.channel_events.empty_reports.pop(now_ms) {
            if again && let Some(index) = self.find_empty_channel(&name) {
                self.record_empty(index);
            }
        }
    }

    /// The channel of that name, if it has subscribers and no publication.
    fn find_empty_channel(&self, name: &str) -> Option<u32> {
        let index = self.channels.find(self.channels.hash(name), name)?;
        let channel = &self.channels[index];
        let slot = channel.home.stream();
        let has_records = slot.is_some_and(|slot| !self.engine.is_empty(slot));
        (!has_records && channel.total_subscribers() > 0).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Caller, ChannelName, ConnectionId, Delivery, HubMessage, HubMessageClass, HubReply,
        NamespaceOptions, Namespaces, Now, Options, Outlet, SubscribeOptions, Ticket, UserCommand,
        WorkerId,
    };

    struct Nowhere;

    impl Outlet for Nowhere {
        fn send_message(&mut self, _: WorkerId, _: HubMessage) {}
        fn has_credit(&self, _: WorkerId, _: HubMessageClass) -> bool {
            true
        }
        fn return_credit(&mut self, _: WorkerId, _: HubMessageClass) {}
        fn deliver(&mut self, _: ConnectionId, _: &mut Delivery<'_>) {}
        fn send_reply(&mut self, _: ConnectionId, _: Ticket, _: HubReply) {}
        fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}
        fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
    }

    fn hub() -> Hub {
        let mut namespaces = Namespaces::new();
        let told = |told, leave_delay_ms| NamespaceOptions {
            event_level: told,
            leave_delay_ms,
            ..NamespaceOptions::default()
        };
        namespaces.insert("#", told(EventLevel::Occupancy, 5_000));
        namespaces.insert("room", told(EventLevel::Members, 5_000));
        namespaces.insert("hall", told(EventLevel::Members, 0));
        let latest = crate::HistoryOptions {
            size: 1,
            ttl_ms: 60_000,
            position_ttl_ms: 60_000,
            recovery: RecoveryMode::Latest,
            budget: crate::Budget::COMMON,
        };
        let price = NamespaceOptions {
            history: Some(latest),
            ..told(EventLevel::Occupancy, 0)
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
        hub.maintain();
    }

    fn taken(hub: &mut Hub) -> Vec<String> {
        let mut list = Vec::new();
        assert_eq!(hub.take_channel_events(&mut list), 0);
        let told = |one: &ChannelEvent| {
            let what = match &one.kind {
                ChannelEventKind::Joined(client) => format!("{} joined", client.client),
                ChannelEventKind::Left(client) => format!("{} left", client.client),
                other => format!("{other:?}"),
            };
            format!("{} {what}", one.channel)
        };
        list.iter().map(told).collect()
    }

    #[test]
    fn a_return_within_the_delay_is_not_reported() {
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
                assert!(hub.needs_maintenance());
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
            assert!(!hub.needs_maintenance());
        }
    }

    #[test]
    fn without_a_delay_vacated_is_reported_at_once() {
        let mut hub = hub();
        join(&mut hub, "hall:1", 0);
        hub.close(session(0), &mut Nowhere);
        let expected = ["Occupied", "0 joined", "0 left", "Vacated"];
        assert_eq!(taken(&mut hub), expected.map(|one| format!("hall:1 {one}")));
        join(&mut hub, "other:1", 1);
        assert_eq!(taken(&mut hub), [""; 0]);
    }

    #[test]
    fn a_subscriber_of_an_empty_latest_channel_is_reported() {
        let mut hub = hub();
        join(&mut hub, "price:1", 0);
        let expected = ["Empty", "Occupied"];
        assert_eq!(
            taken(&mut hub),
            expected.map(|one| format!("price:1 {one}"))
        );
    }
}
