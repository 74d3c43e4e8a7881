//! Channel events for back ends: event levels, delays and limits.

use std::sync::Arc;

use veche_hub::{
    ChannelEvent, ChannelEventKind, ChannelQuery, EventLevel, HistoryOptions, HubReply,
    NamespaceOptions, Namespaces, RecoveryMode, RequestOutcome, SubscribeOptions,
};

use crate::common::session;
use crate::node::{Node, START_MS, member};

/// The limits in `src/channel_events.rs`: collected events, empty channels, and the interval of reports in
/// milliseconds.
const HAPPENINGS_MAX: usize = 65_536;
const EMPTY_MAX: u32 = 100_000;
const EMPTY_MS: u64 = 1_000;

const DELAY_MS: u64 = 5_000;

/// Returns a node with namespaces of each event level: `quiet` has no events; `open`, `missed` and `shut` have events
/// of occupancy, `full` and `late` also of members. `shut` and `late` have a leave delay. `open` recovers the latest
/// publication.
fn node() -> Node {
    let mut node = Node::alone();
    let mut all = Namespaces::new();
    let latest = HistoryOptions {
        size: 1,
        ttl_ms: 1_000,
        position_ttl_ms: 1_000,
        recovery: RecoveryMode::Latest,
        budget: veche_hub::Budget::COMMON,
    };
    let mut insert = |name, event_level, leave_delay_ms, history| {
        let options = NamespaceOptions {
            event_level,
            leave_delay_ms,
            history,
            presence: true,
            ..NamespaceOptions::default()
        };
        all.insert(name, options);
    };
    insert("quiet", EventLevel::Off, 0, Some(latest));
    insert("open", EventLevel::Occupancy, 0, Some(latest));
    insert("shut", EventLevel::Occupancy, DELAY_MS, None);
    insert("full", EventLevel::Members, 0, None);
    insert("late", EventLevel::Members, DELAY_MS, None);
    let missed = HistoryOptions {
        recovery: RecoveryMode::Missed,
        ..latest
    };
    insert("missed", EventLevel::Occupancy, 0, Some(missed));
    node.hub.set_history(Arc::new(all), usize::MAX);
    node
}

/// Returns the events since the last call as texts, and the number of lost events.
fn taken(node: &mut Node) -> (Vec<String>, u64) {
    let mut list = Vec::new();
    let lost = node.hub.take_channel_events(&mut list);
    let describe = |one: &ChannelEvent| {
        let what = match &one.kind {
            ChannelEventKind::Joined(client) => format!("{} joined", client.client),
            ChannelEventKind::Left(client) => format!("{} left", client.client),
            other => format!("{other:?}"),
        };
        format!("{} {what} at {}", one.channel, one.at_ms - START_MS)
    };
    (list.iter().map(describe).collect(), lost)
}

#[test]
fn each_namespace_reports_at_its_level() {
    let mut node = node();
    for channel in ["quiet:1", "open:1", "missed:1", "full:1", "other:1"] {
        node.join(session(0), channel, &member("ann", "a"));
        node.unsubscribe(0, channel);
    }
    assert!(node.hub.has_pending_output());
    let (events, lost) = taken(&mut node);
    let expected = [
        "open:1 Empty at 0",
        "open:1 Occupied at 0",
        "open:1 Vacated at 0",
        "missed:1 Occupied at 0",
        "missed:1 Vacated at 0",
        "full:1 Occupied at 0",
        "full:1 a joined at 0",
        "full:1 a left at 0",
        "full:1 Vacated at 0",
    ];
    assert_eq!((&events[..], lost), (&expected.map(str::to_owned)[..], 0));
    assert!(!node.hub.has_pending_output());
}

#[test]
fn a_channel_with_its_latest_publication_is_not_empty() {
    let mut node = node();
    node.put("a", "open:1");
    node.subscribe(0, "open:1");
    assert_eq!(taken(&mut node).0, ["open:1 Occupied at 0"]);
}

#[test]
fn an_empty_channel_is_reported_once_a_second_however_often_clients_subscribe() {
    let mut node = node();
    let empty = |node: &mut Node| {
        let events = taken(node).0.into_iter();
        events
            .filter(|one| one.contains("Empty"))
            .collect::<Vec<_>>()
    };
    for _ in 0..20 {
        node.subscribe(0, "open:1");
        node.unsubscribe(0, "open:1");
    }
    node.subscribe(1, "open:2");
    let expected = ["open:1 Empty at 0", "open:2 Empty at 0"];
    assert_eq!(empty(&mut node), expected);
    assert!(node.hub.needs_maintenance());
    // `open:1` and `open:2` are found empty a second time. Only `open:1` is reported, because
    // `open:2` has received a publication.
    for (session, channel) in [(0, "open:1"), (2, "open:2")] {
        node.subscribe(session, channel);
    }
    node.put("a", "open:2");
    node.at(START_MS + EMPTY_MS - 1);
    node.hub.maintain();
    assert_eq!(empty(&mut node), [""; 0]);
    node.at(START_MS + EMPTY_MS);
    node.hub.maintain();
    assert_eq!(empty(&mut node), ["open:1 Empty at 1000"]);
    node.unsubscribe(0, "open:1");
    node.subscribe(0, "open:1");
    node.unsubscribe(0, "open:1");
    node.at(START_MS + 2 * EMPTY_MS);
    node.hub.maintain();
    assert_eq!(empty(&mut node), [""; 0], "no timer is set");
    node.subscribe(0, "open:1");
    assert_eq!(empty(&mut node), ["open:1 Empty at 2000"]);
}

#[test]
fn empty_channels_beyond_the_limit_are_reported_each_time() {
    let mut node = node();
    for number in 0..EMPTY_MAX {
        node.subscribe(0, &format!("open:{number}"));
        node.hub.take_channel_events(&mut Vec::new());
    }
    for _ in 0..2 {
        node.subscribe(0, "open:next");
        node.unsubscribe(0, "open:next");
    }
    let events = taken(&mut node).0;
    let count = |what: &str| events.iter().filter(|one| one.contains(what)).count();
    assert_eq!((count("Empty"), count("Occupied")), (2, 2));
}

#[test]
fn happenings_beyond_the_limit_are_counted_as_lost() {
    let mut node = node();
    assert!(!node.hub.has_pending_output());
    let mut count = 0;
    while count < HAPPENINGS_MAX {
        node.subscribe(0, "missed:1");
        node.unsubscribe(0, "missed:1");
        count += 2;
    }
    node.subscribe(0, "missed:1");
    assert!(node.hub.has_pending_output());
    let (events, lost) = taken(&mut node);
    assert_eq!((events.len(), lost), (HAPPENINGS_MAX, 1));
    assert!(!node.hub.has_pending_output());
    assert_eq!(taken(&mut node), (Vec::new(), 0));
    node.unsubscribe(0, "missed:1");
    assert_eq!(
        taken(&mut node),
        (vec!["missed:1 Vacated at 0".to_owned()], 0)
    );
}

#[test]
fn a_vacated_channel_is_reported_after_its_delay_with_the_time_of_vacating() {
    let mut node = node();
    node.join(session(0), "late:1", &member("ann", "a"));
    node.subscribe(1, "late:2");
    taken(&mut node);
    node.at(START_MS + 10);
    assert!(!node.hub.needs_maintenance());
    node.unsubscribe(0, "late:1");
    assert!(node.hub.needs_maintenance());
    node.unsubscribe(1, "late:2");
    node.at(START_MS + 10 + DELAY_MS - 1);
    node.hub.maintain();
    // A subscriber that arrives before the delay has passed cancels the report.
    node.subscribe(1, "late:2");
    assert_eq!(taken(&mut node).0, [""; 0]);
    node.at(START_MS + 10 + DELAY_MS);
    node.hub.maintain();
    let expected = ["late:1 a left at 5010", "late:1 Vacated at 10"];
    assert_eq!(taken(&mut node).0, expected);
    assert!(!node.hub.needs_maintenance());
    node.unsubscribe(1, "late:2");
    assert!(node.hub.needs_maintenance());
    node.at(START_MS + 20 + 2 * DELAY_MS);
    node.hub.maintain();
    assert_eq!(taken(&mut node).0, ["late:2 Vacated at 5010"]);
}

#[test]
fn a_new_member_of_a_vacated_channel_is_reported_and_a_returning_one_is_not() {
    let mut node = node();
    node.join(session(0), "late:1", &member("ann", "a"));
    node.unsubscribe(0, "late:1");
    taken(&mut node);
    node.join(session(1), "late:1", &member("bob", "b"));
    assert_eq!(taken(&mut node).0, ["late:1 b joined at 0"]);
    assert!(node.hub.needs_maintenance(), "an absence may end");
    node.join(session(2), "late:1", &member("ann", "c"));
    assert_eq!(taken(&mut node).0, [""; 0], "her leave was not reported");
    node.at(START_MS + DELAY_MS);
    node.hub.maintain();
    assert_eq!(taken(&mut node).0, [""; 0]);
}

#[test]
fn channels_beyond_the_limit_are_reported_vacated_at_once() {
    let mut node = node();
    let stay = SubscribeOptions::default();
    for number in 0..EMPTY_MAX + 2 {
        let channel = format!("late:{number}");
        node.join(session(0), &channel, &stay);
        node.unsubscribe(0, &channel);
        node.hub.take_channel_events(&mut Vec::new());
        if number + 1 == EMPTY_MAX {
            // The limit on empty channels is reached, so one more empty channel is reported as
            // vacated at once.
            node.join(session(0), "late:next", &stay);
            node.unsubscribe(0, "late:next");
            let expected = ["late:next Occupied at 0", "late:next Vacated at 0"];
            assert_eq!(taken(&mut node).0, expected);
        }
    }
    node.at(START_MS + DELAY_MS);
    let mut count = 0;
    while node.hub.needs_maintenance() {
        node.hub.maintain();
        let (list, lost) = taken(&mut node);
        count += list.len() as u64 + lost;
    }
    assert_eq!(count, u64::from(EMPTY_MAX));
}

#[test]
fn absent_members_beyond_the_limit_are_reported_at_once() {
    let mut node = node();
    let ann = member("ann", "a");
    for number in 0..EMPTY_MAX {
        let channel = format!("late:{number}");
        node.join(session(0), &channel, &ann);
        node.unsubscribe(0, &channel);
        node.hub.take_channel_events(&mut Vec::new());
    }
    node.join(session(0), "late:next", &ann);
    node.unsubscribe(0, "late:next");
    let expected = [
        "late:next Occupied at 0",
        "late:next a joined at 0",
        "late:next a left at 0",
        "late:next Vacated at 0",
    ];
    assert_eq!(taken(&mut node).0, expected);
}

#[test]
fn absences_are_kept_only_for_namespaces_reporting_members() {
    let mut node = node();
    node.join(session(0), "shut:1", &member("ann", "a"));
    node.unsubscribe(0, "shut:1");
    node.at(START_MS + DELAY_MS);
    node.hub.maintain();
    let expected = ["shut:1 Occupied at 0", "shut:1 Vacated at 0"];
    assert_eq!(taken(&mut node).0, expected);
}

#[test]
fn presence_announcements_and_reports_each_require_members() {
    let mut all = Namespaces::new();
    let none = NamespaceOptions::default();
    let presence = NamespaceOptions {
        presence: true,
        ..none
    };
    let join_leave = NamespaceOptions {
        join_leave: true,
        ..none
    };
    let with_events = NamespaceOptions {
        event_level: EventLevel::Members,
        ..none
    };
    for (name, options, has_members) in [
        ("none", none, false),
        ("asked", presence, true),
        ("heard", join_leave, true),
        ("told", with_events, true),
    ] {
        assert_eq!(options.has_members(), has_members, "{name}");
        all.insert(name, options);
    }
    let mut node = Node::alone();
    node.hub.set_history(Arc::new(all), usize::MAX);
    for channel in ["none:1", "asked:1", "heard:1", "told:1"] {
        node.join(session(0), channel, &member("ann", "a"));
    }
    node.sweep(100);
    let received: Vec<_> = node.outlet.given.iter().map(|one| &*one.channel).collect();
    assert_eq!(received, ["heard:1"]);
    let expected = ["told:1 Occupied at 0", "told:1 a joined at 0"];
    assert_eq!(taken(&mut node).0, expected);
    let RequestOutcome::Done(HubReply::Presence(Ok(present))) =
        node.ask("asked:1", ChannelQuery::Presence)
    else {
        panic!("it is kept");
    };
    assert_eq!(present.len(), 1);
}
