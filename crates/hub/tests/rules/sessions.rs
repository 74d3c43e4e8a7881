//! Sessions: generations, limits, and lists of their channels.

use veche_hub::{ConnectionId, Options, SubscribeError, SubscribeOptions};

use crate::common::session;
use crate::node::Node;

fn generation(generation: u32) -> ConnectionId {
    ConnectionId {
        index: 0,
        generation,
    }
}

fn try_subscribe(
    node: &mut Node,
    session: ConnectionId,
    channel: &str,
) -> Result<(), SubscribeError> {
    node.try_subscribe(session, channel, &SubscribeOptions::default())
}

#[test]
fn a_closed_session_cannot_subscribe_again() {
    let mut node = Node::alone();
    node.subscribe(0, "chat");
    node.close(session(0));
    let refused = try_subscribe(&mut node, session(0), "chat");
    assert_eq!(refused, Err(SubscribeError::Stale));
    assert_eq!(node.hub.gauges().subscriptions, 0);
    assert_eq!(node.put("a", "chat").receivers, Some(0));
    assert_eq!(try_subscribe(&mut node, generation(1), "chat"), Ok(()));
    let refused = try_subscribe(&mut node, session(0), "chat");
    assert_eq!(refused, Err(SubscribeError::Stale));
}

#[test]
fn a_successor_closes_its_unclosed_forerunner() {
    let mut node = Node::alone();
    for channel in ["a", "b", "c"] {
        node.subscribe(0, channel);
    }
    assert_eq!(try_subscribe(&mut node, generation(1), "d"), Ok(()));
    assert_eq!(node.hub.gauges().subscriptions, 1);
    for channel in ["a", "b", "c"] {
        assert_eq!(node.put("x", channel).receivers, Some(0));
    }
    assert_eq!(node.put("x", "d").receivers, Some(1));
    let given: Vec<_> = node.outlet.given.iter().map(|one| one.session).collect();
    assert_eq!(given, [generation(1)]);
}

#[test]
fn subscriptions_and_sessions_of_a_worker_are_limited() {
    let options = Options {
        subscriptions_max: 3,
        sessions_max: 2,
        ..Options::default()
    };
    let mut node = Node::alone_with(options);
    assert_eq!(
        try_subscribe(&mut node, session(2), "a"),
        Err(SubscribeError::Full)
    );
    for channel in ["a", "b"] {
        assert_eq!(try_subscribe(&mut node, session(1), channel), Ok(()));
    }
    assert_eq!(try_subscribe(&mut node, session(0), "a"), Ok(()));
    assert_eq!(
        try_subscribe(&mut node, session(0), "b"),
        Err(SubscribeError::Full)
    );
    assert_eq!(node.hub.gauges().subscriptions, 3);
    node.unsubscribe(1, "a");
    assert_eq!(
        try_subscribe(&mut node, session(0), "a"),
        Err(SubscribeError::AlreadySubscribed)
    );
    assert_eq!(try_subscribe(&mut node, session(0), "b"), Ok(()));
    assert_eq!(node.hub.gauges().entries, 2);
}

#[test]
fn channels_of_a_session_are_listed_latest_first() {
    let mut node = Node::alone();
    let channels = |node: &Node, id| -> Vec<String> {
        node.hub
            .channels_of(id)
            .map(|name| name.to_string())
            .collect()
    };
    assert_eq!(channels(&node, session(0)), [""; 0]);
    for channel in ["a", "#ann", "b", "c"] {
        node.subscribe(0, channel);
    }
    node.subscribe(1, "a");
    assert_eq!(channels(&node, session(0)), ["c", "b", "#ann", "a"]);
    assert_eq!(channels(&node, generation(1)), [""; 0]);
    assert_eq!(channels(&node, session(9)), [""; 0]);
    assert_eq!(node.hub.user_of(session(0)), Some("ann"));
    assert_eq!(node.hub.user_of(session(1)), None);
    // Removes subscriptions from the middle, the end and the beginning of the session's list.
    for (gone, left) in [
        ("b", &["c", "#ann", "a"][..]),
        ("a", &["c", "#ann"]),
        ("c", &["#ann"]),
    ] {
        node.unsubscribe(0, gone);
        assert_eq!(channels(&node, session(0)), left);
    }
    assert_eq!(channels(&node, session(1)), ["a"]);
    node.close(session(0));
    assert_eq!(channels(&node, session(0)), [""; 0]);
    assert_eq!(node.hub.user_of(session(0)), None);
}

#[test]
fn departed_subscribers_are_not_listed() {
    let mut node = Node::alone();
    let sessions = |node: &Node, channel: &str| {
        let mut all: Vec<_> = node.hub.sessions_of(channel).map(|one| one.index).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(sessions(&node, "chat"), []);
    for index in 0..20 {
        node.subscribe(index, "chat");
    }
    // While publications are queued, the list entries of departed subscribers are kept but not
    // counted.
    node.put("a", "chat");
    for index in 0..17 {
        node.unsubscribe(index, "chat");
    }
    assert_eq!(sessions(&node, "chat"), [17, 18, 19]);
    while node.sweep(100) {}
    assert_eq!(sessions(&node, "chat"), [17, 18, 19]);
}

#[test]
fn a_session_without_subscriptions_is_not_closed() {
    let mut node = Node::alone();
    let come_and_go = |node: &mut Node, session| {
        assert_eq!(try_subscribe(node, session, "a"), Ok(()));
        let channel = crate::common::name("a");
        assert!(node.hub.unsubscribe(session, channel, &mut node.outlet));
    };
    come_and_go(&mut node, generation(5));
    let refused = try_subscribe(&mut node, generation(4), "a");
    assert_eq!(refused, Err(SubscribeError::Stale));
    come_and_go(&mut node, generation(5));
    come_and_go(&mut node, generation(6));
    let refused = try_subscribe(&mut node, generation(5), "a");
    assert_eq!(refused, Err(SubscribeError::Stale));
    // Closing a stale id has no effect.
    node.close(generation(5));
    come_and_go(&mut node, generation(6));
    node.close(generation(6));
    let refused = try_subscribe(&mut node, generation(6), "a");
    assert_eq!(refused, Err(SubscribeError::Stale));
}

#[test]
fn subscriptions_are_found_by_session_and_channel_only() {
    const MANY: u32 = 2_000;
    let mut node = Node::alone();
    for number in 0..MANY {
        node.subscribe(0, &format!("own:{number}"));
        node.subscribe(1 + number, "all");
    }
    let unsubscribe = |node: &mut Node, index, channel: &str| {
        let channel = crate::common::name(channel);
        node.hub
            .unsubscribe(session(index), channel, &mut node.outlet)
    };
    assert!(!unsubscribe(&mut node, 0, "all"));
    for number in 0..MANY {
        let own = format!("own:{number}");
        assert!(!unsubscribe(&mut node, 1 + number, &own), "{number}");
        let other = ConnectionId {
            index: 1 + number,
            generation: 1,
        };
        let all = crate::common::name("all");
        assert!(!node.hub.unsubscribe(other, all, &mut node.outlet));
    }
    assert_eq!(node.hub.gauges().subscriptions, 2 * MANY);
}

#[test]
fn resources_of_sessions_are_listed_until_they_end() {
    let mut node = Node::alone();
    let resources = |node: &Node| node.hub.session_resources().collect::<Vec<_>>();
    assert_eq!(resources(&node), []);
    for (session, channel) in [(0, "a"), (0, "b"), (1, "b")] {
        node.subscribe(session, channel);
    }
    let expected = [("subscriptions", 3), ("channels with subscribers", 2)];
    assert_eq!(resources(&node), expected);
    node.close(session(1));
    assert_eq!(resources(&node)[0], ("subscriptions", 2));
    node.close(session(0));
    assert_eq!(resources(&node), []);
}
