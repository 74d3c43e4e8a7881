//! Events of channels and users for the back end. The home collects them until the worker takes them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::channel_members::Due;
use crate::engine::{EngineReply, OccupancyReport};
use crate::undecided::Undecided;
use crate::{ClientInfo, Engine, EventLevel, FeedEvent, Hub, PayloadKind, RecoveryMode, USERS};

/// Maximum number of events waiting to be taken; further ones are counted as lost.
const EVENTS_MAX: usize = 65_536;

/// Maximum number of empty channels that wait for the delay before their vacated event; further ones are reported as
/// vacated at once. The same limit applies to the channels that are tracked for [`EMPTY_INTERVAL_MS`] after a report as
/// [`ChannelEventKind::Empty`]; beyond it, channels are reported without a minimum interval.
const EMPTY_MAX: usize = 100_000;

/// Minimum interval between two reports of the same channel as [`ChannelEventKind::Empty`], in milliseconds.
const EMPTY_INTERVAL_MS: u64 = 1_000;

/// An event of a channel or of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelEvent {
    /// The channel; for an event of a user, the personal channel `#user`.
    pub channel: Arc<str>,
    /// The time of the event in milliseconds since 1970.
    pub at_ms: u64,
    /// The type of the event.
    pub kind: ChannelEventKind,
}

/// The type of a [`ChannelEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEventKind {
    /// The channel has its first subscriber.
    Occupied,
    /// The channel has had no subscriber for as long as the delay of its namespace.
    Vacated,
    /// A member has joined.
    Joined(Arc<ClientInfo>),
    /// A member has left.
    Left(Arc<ClientInfo>),
    /// A client has subscribed to a channel whose namespace recovers the latest publication, but no publication is
    /// stored.
    Empty,
}

/// The fields of an event as back ends and applications receive them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFields<'e> {
    /// The name of the event's type, such as `occupied` or `online`.
    pub kind: &'static str,
    /// The name of the channel; `None` if it is a personal channel.
    pub channel: Option<&'e str>,
    /// The name of the user; `None` if the event concerns no user.
    pub user: Option<&'e str>,
    /// The id of the client that the event is about, if any.
    pub client: Option<&'e str>,
    /// The public data of the connection of `client`, as JSON.
    pub info: Option<&'e [u8]>,
}

impl ChannelEvent {
    /// Returns the fields of the event.
    #[must_use]
    pub fn fields(&self) -> EventFields<'_> {
        let channel = &*self.channel;
        // An event of a personal channel is reported as an event of its user.
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

/// The collected events, and the timers of events that are not due yet.
#[derive(Debug, Default)]
pub(crate) struct ChannelEvents {
    events: Vec<ChannelEvent>,
    /// Empty channels, ordered by the time at which they will be reported as vacated; a serial number makes the key
    /// unique. The value is the channel with the time at which it became empty.
    vacated_at: BTreeMap<Due, (Arc<str>, u64)>,
    by_name: HashMap<Arc<str>, Due, RandomState>,
    serial: u64,
    empty_reports: EmptyReports,
    undecided: Undecided,
    lost: u64,
}

/// Channels reported as [`ChannelEventKind::Empty`] within the last [`EMPTY_INTERVAL_MS`] milliseconds.
#[derive(Debug, Default)]
struct EmptyReports {
    /// For each reported channel, the time before which it is not reported again. The times are in order, because the
    /// interval is the same for all channels.
    expiries: VecDeque<(u64, Arc<str>)>,
    /// For each reported channel, whether another subscriber has found it empty since the report.
    found_empty_again: HashMap<Arc<str>, bool, RandomState>,
}

impl EmptyReports {
    /// Records that a subscriber found the channel empty. Returns whether this must be reported now.
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

    /// Removes and returns the next channel whose interval has ended, and whether that channel was found empty again.
    fn pop(&mut self, now_ms: u64) -> Option<(Arc<str>, bool)> {
        let (_, channel) = self
            .expiries
            .pop_front_if(|(end_ms, _)| *end_ms <= now_ms)?;
        let again = self.found_empty_again.remove(&channel).unwrap_or_default();
        Some((channel, again))
    }
}

impl ChannelEvents {
    /// Adds an event. If the engine has not made all its decisions about the channel yet, the event waits until they
    /// are made.
    fn push(&mut self, channel: &Arc<str>, at_ms: u64, what: ChannelEventKind) {
        if self.is_full() {
            self.lost += 1;
        } else if let Some(what) = self.undecided.add_behind(channel, at_ms, what) {
            self.add(channel, at_ms, what);
        }
    }

    fn is_full(&self) -> bool {
        self.events.len() + self.undecided.len() >= EVENTS_MAX
    }

    fn add(&mut self, channel: &Arc<str>, at_ms: u64, what: ChannelEventKind) {
        let channel = Arc::clone(channel);
        self.events.push(ChannelEvent {
            channel,
            at_ms,
            kind: what,
        });
    }

    /// Returns the channels that are empty but not yet reported as vacated.
    pub(crate) fn emptying(&self) -> &HashMap<Arc<str>, Due, RandomState> {
        &self.by_name
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty() || self.lost > 0
    }

    pub(crate) fn has_timers(&self) -> bool {
        !(self.vacated_at.is_empty() && self.empty_reports.expiries.is_empty())
    }
}

impl<E: Engine> Hub<E> {
    /// Appends the events since the last call to `into`, in order. Returns the number of further events that were lost
    /// because there was no room.
    pub fn take_channel_events(&mut self, into: &mut Vec<ChannelEvent>) -> u64 {
        into.append(&mut self.channel_events.events);
        std::mem::take(&mut self.channel_events.lost)
    }

    /// At the channel's home: handles the first subscriber of a channel.
    pub(crate) fn record_occupied(&mut self, index: u32) {
        let name = &self.channels[index].name;
        let events = &mut self.channel_events;
        let emptying = match events.by_name.is_empty() {
            true => None,
            false => events.by_name.remove(name),
        };
        if let Some(key) = emptying {
            // The channel was not reported as vacated yet, so its new subscriber causes no event.
            events.vacated_at.remove(&key);
        } else if self.namespaces.of(name).event_level >= EventLevel::Occupancy {
            let name = Arc::clone(name);
            self.change_occupancy(&name, self.now.wall_ms, true);
        }
    }

    /// At the channel's home: handles a channel that has its first subscriber on this node, or has
    /// lost the last one. The engine decides whether the change is reported as an event.
    fn change_occupancy(&mut self, channel: &Arc<str>, at_ms: u64, is_occupied: bool) {
        let events = &mut self.channel_events;
        match self.engine.occupancy_changed(channel, is_occupied) {
            EngineReply::Ready(true) => events.push(channel, at_ms, kind_of(is_occupied)),
            EngineReply::Ready(false) => {}
            EngineReply::Deferred if events.is_full() => events.lost += 1,
            EngineReply::Deferred => events.undecided.add(channel, is_occupied),
        }
    }

    /// At the channel's home: handles the engine's decision on whether a channel has become
    /// occupied or vacated.
    pub(crate) fn occupancy_decided(&mut self, report: &OccupancyReport) {
        let OccupancyReport {
            channel,
            is_occupied,
            is_changed,
            at_ms,
            is_of_expired_lease,
        } = report;
        if *is_of_expired_lease {
            // The engines of all workers report a channel that an ended lease has vacated; only the channel's home
            // adds the event.
            let is_mine = self.home_of_name(channel) == self.me;
            if is_mine && self.namespaces.of(channel).event_level >= EventLevel::Occupancy {
                self.channel_events.push(channel, *at_ms, kind_of(false));
            }
            return;
        }
        let events = &mut self.channel_events;
        let behind = events.undecided.decide(channel, *is_occupied);
        if *is_changed {
            events.add(channel, *at_ms, kind_of(*is_occupied));
        }
        for (at_ms, kind) in behind {
            events.add(channel, at_ms, kind);
        }
    }

    /// At the channel's home: handles the loss of a channel's last subscriber.
    pub(crate) fn record_vacated(&mut self, index: u32) {
        let name = &self.channels[index].name;
        let namespace = self.namespaces.of(name);
        if namespace.event_level < EventLevel::Occupancy {
            return;
        }
        if namespace.leave_delay_ms == 0 || self.channel_events.vacated_at.len() >= EMPTY_MAX {
            let name = Arc::clone(name);
            // The leaves of the channel's members must precede its vacated event.
            self.expire_leaves_of(&name);
            let at_ms = self.now.wall_ms;
            return self.change_occupancy(&name, at_ms, false);
        }
        let events = &mut self.channel_events;
        events.serial += 1;
        let key = (self.now.mono_ms + namespace.leave_delay_ms, events.serial);
        let entry = (Arc::clone(name), self.now.wall_ms);
        events.vacated_at.insert(key, entry);
        events.by_name.insert(Arc::clone(name), key);
    }

    /// At the channel's home: reports as vacated the channels that have been empty for the whole delay.
    pub(crate) fn report_vacated(&mut self) {
        let now_ms = self.now.mono_ms;
        while let Some(entry) = self.channel_events.vacated_at.first_entry()
            && entry.key().0 <= now_ms
        {
            let (name, at_ms) = entry.remove();
            self.channel_events.by_name.remove(&name);
            self.change_occupancy(&name, at_ms, false);
        }
    }

    /// At the channel's home: adds the event that a member has joined or left.
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

    /// At the channel's home: handles a subscriber that finds no publication in a channel. If the
    /// namespace recovers the latest publication, the channel is reported as empty: at once, and
    /// again after [`EMPTY_INTERVAL_MS`] if another subscriber has joined meanwhile and the channel
    /// is still empty.
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
        let events = &mut self.channel_events;
        if events.empty_reports.note(name, self.now.mono_ms) {
            events.push(name, self.now.wall_ms, ChannelEventKind::Empty);
        }
    }

    /// At the channel's home: reports again the channels that were found empty again during the
    /// interval and are still empty.
    pub(crate) fn report_still_empty(&mut self) {
        let now_ms = self.now.mono_ms;
        while let Some((name, again)) = self.channel_events.empty_reports.pop(now_ms) {
            if again && let Some(index) = self.find_empty_channel(&name) {
                self.record_empty(index);
            }
        }
    }

    /// Returns the index of the channel with that name if it has subscribers and no publication.
    fn find_empty_channel(&self, name: &str) -> Option<u32> {
        let index = self.channels.find(self.channels.hash(name), name)?;
        let channel = &self.channels[index];
        let slot = channel.home.stream();
        let has_records = slot.is_some_and(|slot| !self.engine.is_empty(slot));
        (!has_records && channel.total_subscribers() > 0).then_some(index)
    }
}

fn kind_of(is_occupied: bool) -> ChannelEventKind {
    match is_occupied {
        true => ChannelEventKind::Occupied,
        false => ChannelEventKind::Vacated,
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
        let options = |event_level, leave_delay_ms| NamespaceOptions {
            event_level,
            leave_delay_ms,
            ..NamespaceOptions::default()
        };
        namespaces.insert("#", options(EventLevel::Occupancy, 5_000));
        namespaces.insert("room", options(EventLevel::Members, 5_000));
        namespaces.insert("hall", options(EventLevel::Members, 0));
        let latest = crate::HistoryOptions {
            size: 1,
            ttl_ms: 60_000,
            position_ttl_ms: 60_000,
            recovery: RecoveryMode::Latest,
            budget: crate::Budget::COMMON,
        };
        let price = NamespaceOptions {
            history: Some(latest),
            ..options(EventLevel::Occupancy, 0)
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
        let subscribe_options = SubscribeOptions {
            client: Some(Arc::new(client)),
            ..SubscribeOptions::default()
        };
        let name = ChannelName::new(channel).expect("a valid name");
        let result = hub.subscribe(
            session(generation),
            name,
            Ticket(0),
            &subscribe_options,
            &mut Nowhere,
        );
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
        let describe = |one: &ChannelEvent| {
            let what = match &one.kind {
                ChannelEventKind::Joined(client) => format!("{} joined", client.client),
                ChannelEventKind::Left(client) => format!("{} left", client.client),
                other => format!("{other:?}"),
            };
            format!("{} {what}", one.channel)
        };
        list.iter().map(describe).collect()
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
