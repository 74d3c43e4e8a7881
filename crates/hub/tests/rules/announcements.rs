//! Tests joins and leaves: the limits of the queue and of one turn, and the queue space that is
//! freed when items have no subscribers left.

use std::sync::Arc;

use veche_hub::{
    ChannelQuery, FeedEvent, HubMessage, HubReply, MEMBERS_MAX, Options, PresenceError,
    RequestOutcome,
};

use crate::common::session;
use crate::node::{FAR, Node, SOURCE, START_MS, member};

/// Maximum number of queued joins and leaves. This constant, `TOLD_MAX` (sent per turn) and
/// `PASSED_MAX` (skipped per turn) have the values of `src/join_leave_queue.rs`.
const WAITING_MAX: u32 = 65_536;
const TOLD_MAX: usize = 256;
const PASSED_MAX: usize = 1024;

/// Makes a member join a room and leave it.
fn visit(node: &mut Node, room: &str) {
    node.join(session(0), room, &member("ann", "a"));
    node.unsubscribe(0, room);
}

#[test]
fn joins_and_leaves_without_subscribers_release_their_room() {
    let mut node = Node::alone();
    for _ in 0..WAITING_MAX {
        visit(&mut node, "room:1");
        node.sweep(100);
    }
    assert_eq!(node.hub.dropped_join_leaves_total(), 0);
    assert!(!node.hub.has_pending_output() && node.outlet.given.is_empty());
    node.subscribe(1, "room:1");
    node.join(session(0), "room:1", &member("ann", "a"));
    node.sweep(100);
    assert_eq!(node.outlet.given.len(), 2);
}

#[test]
fn queued_joins_and_leaves_are_limited_and_sent_in_batches() {
    let mut node = Node::home();
    let [room] = node.names("room");
    node.subscribe_from(FAR, &room);
    for _ in 0..WAITING_MAX / 2 {
        visit(&mut node, &room);
    }
    assert_eq!(node.hub.dropped_join_leaves_total(), 0);
    visit(&mut node, &room);
    assert_eq!(node.hub.dropped_join_leaves_total(), 2);

    node.outlet.credits = [usize::MAX; 4];
    let mut turns = 1;
    while node.sweep(100) {
        assert_eq!(node.outlet.delivered.len(), turns * TOLD_MAX);
        turns += 1;
    }
    assert_eq!(node.outlet.delivered.len(), WAITING_MAX as usize);
    assert!(!node.hub.has_pending_output());
    node.outlet.credits = [0; 4];
    for _ in 0..WAITING_MAX / 2 {
        visit(&mut node, &room);
    }
    assert_eq!(node.hub.dropped_join_leaves_total(), 2);
}

#[test]
fn a_turn_passes_a_limited_number_of_channels_without_credit() {
    let mut node = Node::home();
    let blocked: [String; PASSED_MAX] = node.names("room");
    for room in &blocked {
        node.subscribe_from(FAR, room);
        visit(&mut node, room);
    }
    let [free] = {
        let all: [String; PASSED_MAX + 1] = node.names("room");
        [all[PASSED_MAX].clone()]
    };
    node.join(session(0), &free, &member("ann", "a"));
    assert!(!node.sweep(100));
    assert!(node.outlet.given.is_empty());
    assert!(!node.sweep(100));
    let deliveries = node
        .outlet
        .given
        .iter()
        .map(|one| (one.channel.as_str(), one.event));
    assert_eq!(
        deliveries.collect::<Vec<_>>(),
        [(&*free, FeedEvent::Joined)]
    );
}

#[test]
fn announcements_keep_their_order_and_channels_alternate() {
    let mut node = Node::alone();
    for (index, room) in ["room:1", "room:2"].into_iter().enumerate() {
        node.subscribe(10 + index as u32, room);
        for client in ["a", "b"] {
            node.join(session(20), room, &member("ann", client));
            node.unsubscribe(20, room);
        }
    }
    node.sweep(100);
    let deliveries = node.outlet.given.iter();
    let deliveries: Vec<_> = deliveries
        .map(|one| (one.channel.as_str(), one.event))
        .collect();
    use FeedEvent::{Joined, Left};
    let each = [Joined, Left, Joined, Left];
    let expected = each.map(|event| [("room:1", event), ("room:2", event)]);
    assert_eq!(deliveries, expected.concat());
}

#[test]
fn users_leaving_at_the_same_moment_are_each_announced() {
    let mut node = Node::alone();
    node.subscribe(9, "hall:1");
    for (index, user) in ["ann", "bob", "eve"].into_iter().enumerate() {
        node.join(session(index as u32), "hall:1", &member(user, user));
    }
    node.sweep(100);
    node.outlet.given.clear();
    for index in 0..3 {
        node.unsubscribe(index, "hall:1");
    }
    assert!(node.hub.needs_maintenance());
    for (ms, left) in [(4_999, 0), (5_000, 3)] {
        node.at(START_MS + ms);
        node.hub.maintain();
        node.sweep(100);
        let given = node.outlet.given.iter();
        assert_eq!(
            given.filter(|one| one.event == FeedEvent::Left).count(),
            left
        );
    }
    assert!(!node.hub.needs_maintenance());
}

#[test]
fn presence_lists_up_to_the_limit_and_refuses_beyond() {
    let mut node = Node::alone();
    let presence = |node: &mut Node| match node.ask("hall:1", ChannelQuery::Presence) {
        RequestOutcome::Done(HubReply::Presence(present)) => present.map(|present| present.len()),
        other => panic!("{other:?}"),
    };
    for index in 0..=MEMBERS_MAX as u32 {
        if index == MEMBERS_MAX as u32 {
            assert_eq!(presence(&mut node), Ok(MEMBERS_MAX));
        }
        node.join(session(index), "hall:1", &member("", &index.to_string()));
    }
    assert_eq!(presence(&mut node), Err(PresenceError::TooMany));
}

#[test]
fn presence_counts_local_and_remote_subscribers() {
    let mut node = Node::home();
    let [room] = node.names("room");
    node.join(session(0), &room, &member("ann", "a"));
    let mail = node.request_from(FAR, &room, &member("bob", "b"));
    node.receive(FAR, mail);
    // Subscriptions without a client are not members, so they do not count.
    node.subscribe(1, &room);
    node.subscribe_from(FAR, &room);
    let stats = |node: &mut Node| match node.ask(&room, ChannelQuery::PresenceStats) {
        RequestOutcome::Done(HubReply::PresenceStats(Ok(stats))) => (stats.clients, stats.users),
        other => panic!("{other:?}"),
    };
    assert_eq!(stats(&mut node), (2, 2));
    node.unsubscribe(0, &room);
    assert_eq!(stats(&mut node), (1, 1));
    let mail = HubMessage::Unsubscribe {
        channel: Arc::from(room.as_str()),
        client: member("bob", "b").client,
        registration: None,
    };
    node.receive(FAR, mail);
    assert_eq!(stats(&mut node), (0, 0));
}

#[test]
fn announcements_behind_a_stalled_publication_ask_for_the_turn_that_tells_them() {
    let mut node = Node::home();
    let [room] = node.names("room");
    node.subscribe_from(FAR, &room);
    node.join(session(0), &room, &member("ann", "a"));
    node.publish_from(SOURCE, "stalled", &room);
    assert!(!node.sweep(100));
    assert!(!node.hub.needs_sweep(), "only credit helps");
    node.outlet.credits = [9; 4];
    node.sweep(100);
    assert_eq!(
        node.outlet.delivered.len(),
        1,
        "the publication comes first"
    );
    assert!(node.hub.needs_sweep());
    node.sweep(100);
    assert_eq!(node.outlet.delivered.len(), 2);
    assert!(!node.hub.has_pending_output() && !node.hub.needs_sweep());
}

#[test]
fn announcements_behind_a_full_queue_ask_for_the_turn_that_tells_them() {
    let mut node = Node::home_with(Options {
        channel_queue_publications_max: 1,
        ..Options::default()
    });
    let [room] = node.names("room");
    for index in 0..20 {
        node.subscribe(index, &room);
    }
    node.put("queued", &room);
    node.join(session(20), &room, &member("ann", "a"));
    node.sweep(100);
    assert_eq!(node.outlet.given.len(), 20, "the publication comes first");
    assert!(node.hub.needs_sweep());
    while node.sweep(100) {}
    assert_eq!(node.outlet.given.len(), 41);
    assert!(!node.hub.has_pending_output() && !node.hub.needs_sweep());
}
