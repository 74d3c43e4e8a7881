//! Tests fan-out to many subscribers over several turns: slices, queue limits, and the reported
//! numbers of receivers.

use veche_hub::{IMMEDIATE_MAX, NoCredit, Options};

use crate::node::Node;

/// The maximum number of deliveries for one channel before the next channel gets its turn, as in
/// `src/sweep.rs`.
const SLICE_MAX: usize = 512;

const MANY: u32 = 20;

fn crowd(node: &mut Node, channel: &str, indices: std::ops::Range<u32>) {
    for index in indices {
        node.subscribe(index, channel);
    }
}

fn given_to(node: &Node, channel: &str) -> usize {
    let given = node.outlet.given.iter();
    given.filter(|one| one.channel == channel).count()
}

#[test]
fn a_large_channel_gets_one_slice_before_the_next_channel() {
    let mut node = Node::alone();
    crowd(&mut node, "large", 0..2_000);
    crowd(&mut node, "small", 2_000..2_000 + MANY);
    node.put("a", "large");
    node.put("b", "small");
    assert!(node.sweep(SLICE_MAX + 5), "deliveries are left");
    assert_eq!(
        (given_to(&node, "large"), given_to(&node, "small")),
        (SLICE_MAX, 5)
    );
    assert!(node.sweep(600));
    assert_eq!(given_to(&node, "small"), MANY as usize);
    assert_eq!(
        given_to(&node, "large"),
        SLICE_MAX + 600 - (MANY as usize - 5)
    );
    assert!(!node.sweep(2_000));
    assert_eq!(given_to(&node, "large"), 2_000);
    assert_eq!(node.hub.gauges().queued, 0);
}

#[test]
fn small_channels_are_served_immediately_and_larger_ones_by_sweeps() {
    let mut node = Node::alone();
    crowd(&mut node, "chat", 0..IMMEDIATE_MAX as u32);
    node.put("a", "chat");
    assert_eq!(node.texts().len(), IMMEDIATE_MAX);
    assert!(!node.hub.needs_sweep());
    crowd(&mut node, "chat", 100..101);
    node.put("b", "chat");
    assert!(node.hub.needs_sweep() && node.texts().is_empty());
    assert!(!node.sweep(100));
    assert_eq!(node.texts(), ["b"; IMMEDIATE_MAX + 1]);
}

#[test]
fn the_publication_reaching_the_byte_limit_is_the_last_one_accepted() {
    let options = Options {
        queue_bytes_max: 10,
        ..Options::default()
    };
    let mut node = Node::alone_with(options);
    crowd(&mut node, "one", 0..MANY);
    crowd(&mut node, "other", MANY..2 * MANY);
    crowd(&mut node, "few", 100..102);
    node.put("123456789", "one");
    node.put("12345", "one");
    let counts = node.hub.gauges();
    assert_eq!((counts.queued, counts.queued_bytes), (2, 14));
    for channel in ["one", "other"] {
        assert_eq!(node.publish("x", channel), Err(NoCredit), "{channel}");
    }
    // A publication that is delivered immediately needs no room in a queue.
    assert_eq!(node.put("x", "few").receivers, Some(2));
    assert!(!node.sweep(1_000));
    let counts = node.hub.gauges();
    assert_eq!((counts.queued, counts.queued_bytes), (0, 0));
    assert_eq!(node.put("1234567890", "other").receivers, Some(MANY));
    for channel in ["one", "other"] {
        assert_eq!(
            node.publish("x", channel),
            Err(NoCredit),
            "exactly at the limit"
        );
    }
}

#[test]
fn the_publication_limit_of_a_queue_is_per_channel() {
    let options = Options {
        channel_queue_publications_max: 2,
        ..Options::default()
    };
    let mut node = Node::alone_with(options);
    crowd(&mut node, "one", 0..MANY);
    crowd(&mut node, "other", MANY..2 * MANY);
    node.put("a", "one");
    node.put("b", "one");
    assert_eq!(node.publish("c", "one"), Err(NoCredit));
    assert_eq!(node.put("d", "other").receivers, Some(MANY));
}

#[test]
fn a_delivery_states_its_number_of_receivers() {
    let mut node = Node::alone();
    crowd(&mut node, "chat", 0..MANY);
    node.put("first", "chat");
    node.unsubscribe(3, "chat");
    node.unsubscribe(7, "chat");
    assert_eq!(node.put("second", "chat").receivers, Some(MANY - 2));
    crowd(&mut node, "chat", 50..51);
    assert_eq!(node.put("third", "chat").receivers, Some(MANY - 1));
    assert_eq!(node.hub.sessions_of("chat").count() as u32, MANY - 1);
    while node.sweep(7) {}
    let count = |text: &str| {
        let given = node.outlet.given.iter().filter(|one| one.text == text);
        let receivers: Vec<_> = given.map(|one| one.receivers).collect();
        assert!(receivers.iter().all(|one| *one == receivers[0]));
        (receivers.len() as u32, receivers[0])
    };
    assert_eq!(count("first"), (MANY - 2, MANY));
    assert_eq!(count("second"), (MANY - 2, MANY - 2));
    assert_eq!(count("third"), (MANY - 1, MANY - 1));
}

#[test]
fn departed_subscribers_are_compacted_while_publications_wait() {
    let mut node = Node::alone();
    crowd(&mut node, "chat", 0..40);
    for round in 0..10u32 {
        node.put("a", "chat");
        // While the sweep is in progress, more than half of the subscribers leave and others arrive.
        assert!(node.sweep(1));
        for index in 0..30 {
            node.unsubscribe(index, "chat");
        }
        crowd(&mut node, "chat", 0..15);
        node.put("b", "chat");
        crowd(&mut node, "chat", 15..30);
        node.put("c", "chat");
        while node.sweep(5) {}
        let count = |text: &str| {
            let given = node.outlet.given.iter();
            given.filter(|one| one.text == text).count()
        };
        assert_eq!((count("b"), count("c")), (25, 40), "{round}");
        node.texts();
        let counts = node.hub.gauges();
        assert_eq!((counts.queued, counts.queued_bytes), (0, 0));
    }
}
