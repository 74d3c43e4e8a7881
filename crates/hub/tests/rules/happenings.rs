//! What back ends are told of channels: only what they want, and as much as there is room for.

use std::sync::Arc;

use veche_hub::{
    Answer, Happening, History, Namespace, Namespaces, Outcome, Question, Recovery,
    SubscribeOptions, Told, What,
};

use crate::common::session;
use crate::node::{Node, START_MS, member};

/// As in `happenings.rs`.
const HAPPENINGS_MAX: usize = 65_536;
const EMPTY_MAX: u32 = 100_000;

const DELAY_MS: u64 = 5_000;

/// In `quiet` nothing is told, in `open` whether there is anybody, in `full` who; in `late` too, with a delay.
fn node() -> Node {
    let mut node = Node::alone();
    let mut all = Namespaces::new();
    let latest = History {
        size: 1,
        ttl_ms: 1_000,
        position_ttl_ms: 1_000,
        recovery: Recovery::Latest,
    };
    let mut insert = |name, told, leave_delay_ms, history| {
        let options = Namespace {
            told,
            leave_delay_ms,
            history,
            presence: true,
            ..Namespace::default()
        };
        all.insert(name, options);
    };
    insert("quiet", Told::Nothing, 0, Some(latest));
    insert("open", Told::Occupancy, 0, Some(latest));
    insert("shut", Told::Occupancy, DELAY_MS, None);
    insert("full", Told::Members, 0, None);
    insert("late", Told::Members, DELAY_MS, None);
    let missed = History {
        recovery: Recovery::Missed,
        ..latest
    };
    insert("missed", Told::Occupancy, 0, Some(missed));
    node.hub.set_history(Arc::new(all), usize::MAX);
    node
}

/// What has happened, as words, and how much was lost.
fn taken(node: &mut Node) -> (Vec<String>, u64) {
    let mut list = Vec::new();
    let lost = node.hub.take_happenings(&mut list);
    let told = |one: &Happening| {
        let what = match &one.what {
            What::Joined(client) => format!("{} joined", client.client),
            What::Left(client) => format!("{} left", client.client),
            other => format!("{other:?}"),
        };
        format!("{} {what} at {}", one.channel, one.at_ms - START_MS)
    };
    (list.iter().map(told).collect(), lost)
}

#[test]
fn each_namespace_tells_what_is_wanted_of_it() {
    let mut node = node();
    for channel in ["quiet:1", "open:1", "missed:1", "full:1", "other:1"] {
        node.join(session(0), channel, &member("ann", "a"));
        node.unsubscribe(0, channel);
    }
    assert!(node.hub.has_to_tell());
    let (told, lost) = taken(&mut node);
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
    assert_eq!((&told[..], lost), (&expected.map(str::to_owned)[..], 0));
    assert!(!node.hub.has_to_tell());
}

#[test]
fn a_channel_with_its_latest_publication_is_not_empty() {
    let mut node = node();
    node.put("a", "open:1");
    node.subscribe(0, "open:1");
    assert_eq!(taken(&mut node).0, ["open:1 Occupied at 0"]);
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let mut node = node();
    assert!(!node.hub.has_to_tell());
    let mut count = 0;
    while count < HAPPENINGS_MAX {
        node.subscribe(0, "missed:1");
        node.unsubscribe(0, "missed:1");
        count += 2;
    }
    node.subscribe(0, "missed:1");
    assert!(node.hub.has_to_tell());
    let (told, lost) = taken(&mut node);
    assert_eq!((told.len(), lost), (HAPPENINGS_MAX, 1));
    assert!(!node.hub.has_to_tell());
    assert_eq!(taken(&mut node), (Vec::new(), 0));
    node.unsubscribe(0, "missed:1");
    assert_eq!(
        taken(&mut node),
        (vec!["missed:1 Vacated at 0".to_owned()], 0)
    );
}

#[test]
fn a_channel_is_told_to_be_empty_when_its_delay_is_over_and_when_it_became_so() {
    let mut node = node();
    node.join(session(0), "late:1", &member("ann", "a"));
    node.subscribe(1, "late:2");
    taken(&mut node);
    node.at(START_MS + 10);
    assert!(!node.hub.has_looks_due());
    node.unsubscribe(0, "late:1");
    assert!(node.hub.has_looks_due());
    node.unsubscribe(1, "late:2");
    node.at(START_MS + 10 + DELAY_MS - 1);
    node.hub.look_after();
    // Who is back is known to have been there all the time; another one is not.
    node.subscribe(1, "late:2");
    assert_eq!(taken(&mut node).0, [""; 0]);
    node.at(START_MS + 10 + DELAY_MS);
    node.hub.look_after();
    let expected = ["late:1 Vacated at 10", "late:1 a left at 5010"];
    assert_eq!(taken(&mut node).0, expected);
    assert!(!node.hub.has_looks_due());
    node.unsubscribe(1, "late:2");
    assert!(node.hub.has_looks_due());
    node.at(START_MS + 20 + 2 * DELAY_MS);
    node.hub.look_after();
    assert_eq!(taken(&mut node).0, ["late:2 Vacated at 5010"]);
}

#[test]
fn another_member_of_a_channel_that_was_empty_is_told_of() {
    let mut node = node();
    node.join(session(0), "late:1", &member("ann", "a"));
    node.unsubscribe(0, "late:1");
    taken(&mut node);
    node.join(session(1), "late:1", &member("bob", "b"));
    assert_eq!(taken(&mut node).0, ["late:1 b joined at 0"]);
    assert!(node.hub.has_looks_due(), "she may be given up");
    node.join(session(2), "late:1", &member("ann", "c"));
    assert_eq!(taken(&mut node).0, [""; 0], "she was not told to have left");
    node.at(START_MS + DELAY_MS);
    node.hub.look_after();
    assert_eq!(taken(&mut node).0, [""; 0]);
}

#[test]
fn so_many_channels_wait_for_the_end_of_their_delay() {
    let mut node = node();
    let stay = SubscribeOptions::default();
    for number in 0..EMPTY_MAX + 2 {
        let channel = format!("late:{number}");
        node.join(session(0), &channel, &stay);
        node.unsubscribe(0, &channel);
        node.hub.take_happenings(&mut Vec::new());
        if number + 1 == EMPTY_MAX {
            // The next one is told of at once.
            node.join(session(0), "late:next", &stay);
            node.unsubscribe(0, "late:next");
            let expected = ["late:next Occupied at 0", "late:next Vacated at 0"];
            assert_eq!(taken(&mut node).0, expected);
        }
    }
    node.at(START_MS + DELAY_MS);
    let mut told = 0;
    while node.hub.has_looks_due() {
        node.hub.look_after();
        let (list, lost) = taken(&mut node);
        told += list.len() as u64 + lost;
    }
    assert_eq!(told, u64::from(EMPTY_MAX));
}

#[test]
fn so_many_members_are_waited_for_where_channels_are_empty() {
    let mut node = node();
    let ann = member("ann", "a");
    for number in 0..EMPTY_MAX {
        let channel = format!("late:{number}");
        node.join(session(0), &channel, &ann);
        node.unsubscribe(0, &channel);
        node.hub.take_happenings(&mut Vec::new());
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
fn where_members_are_not_told_of_nobody_is_waited_for() {
    let mut node = node();
    node.join(session(0), "shut:1", &member("ann", "a"));
    node.unsubscribe(0, "shut:1");
    node.at(START_MS + DELAY_MS);
    node.hub.look_after();
    let expected = ["shut:1 Occupied at 0", "shut:1 Vacated at 0"];
    assert_eq!(taken(&mut node).0, expected);
}

#[test]
fn any_one_reason_to_know_the_members_is_enough() {
    let mut all = Namespaces::new();
    let none = Namespace::default();
    let presence = Namespace {
        presence: true,
        ..none
    };
    let join_leave = Namespace {
        join_leave: true,
        ..none
    };
    let told = Namespace {
        told: Told::Members,
        ..none
    };
    for (name, options, has_members) in [
        ("none", none, false),
        ("asked", presence, true),
        ("heard", join_leave, true),
        ("told", told, true),
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
    let heard: Vec<_> = node.desk.given.iter().map(|one| &*one.channel).collect();
    assert_eq!(heard, ["heard:1"]);
    let expected = ["told:1 Occupied at 0", "told:1 a joined at 0"];
    assert_eq!(taken(&mut node).0, expected);
    let Outcome::Done(Answer::Presence(Ok(present))) = node.ask("asked:1", Question::Presence)
    else {
        panic!("it is kept");
    };
    assert_eq!(present.len(), 1);
}
