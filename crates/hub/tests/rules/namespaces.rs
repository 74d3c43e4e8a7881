//! Tests the options of namespaces, and their effect on deliveries.

use std::sync::Arc;

use veche_hub::{Epoch, NamespaceOptions, Namespaces, PathPattern};

use crate::node::{Node, namespaces};

fn slow_miss() -> NamespaceOptions {
    NamespaceOptions {
        drop_when_slow: true,
        ..NamespaceOptions::default()
    }
}

/// Publishes once to each channel. Returns for each delivery whether it may be dropped for a slow subscriber.
fn misses(node: &mut Node, channels: &[&str]) -> Vec<bool> {
    for (index, channel) in channels.iter().enumerate() {
        node.subscribe(index as u32, channel);
        node.put("a", channel);
    }
    let given = std::mem::take(&mut node.outlet.given);
    given.iter().map(|one| one.slow_miss).collect()
}

#[test]
fn deliveries_are_marked_missable_by_namespace_and_pattern() {
    let pattern = PathPattern::new("/users/:user").expect("a pattern");
    let mut by_name = namespaces();
    by_name.insert("chat", slow_miss());
    by_name.insert("other", NamespaceOptions::default());
    let mut by_pattern = namespaces();
    by_pattern.insert_pattern(pattern, slow_miss());
    let channels = ["chat:1", "/users/ann", "other:1", "kept:1"];
    for (all, expected) in [
        (namespaces(), [false; 4]),
        (by_name, [true, false, false, false]),
        (by_pattern, [false, true, false, false]),
    ] {
        let mut node = Node::alone();
        node.hub.set_history(Arc::new(all), usize::MAX);
        assert_eq!(misses(&mut node, &channels), expected);
    }
}

#[test]
fn positioned_publications_are_never_missable() {
    let mut all = namespaces();
    let kept = all.of("kept:1");
    all.insert(
        "kept",
        NamespaceOptions {
            drop_when_slow: true,
            ..kept
        },
    );
    let mut node = Node::alone();
    node.hub.set_history(Arc::new(all), usize::MAX);
    assert_eq!(misses(&mut node, &["kept:1"]), [false]);
}

#[test]
fn the_most_specific_pattern_applies_in_any_order_of_insertion() {
    let texts = ["/:kind/:id", "/users/:id", "/users/me", "/:kind/me"];
    let options = |size: u64| NamespaceOptions {
        leave_delay_ms: size,
        ..NamespaceOptions::default()
    };
    for rotation in 0..texts.len() {
        let mut all = Namespaces::new();
        for offset in 0..texts.len() {
            let place = (rotation + offset) % texts.len();
            let pattern = PathPattern::new(texts[place]).expect("a pattern");
            all.insert_pattern(pattern, options(place as u64));
        }
        for (channel, expected) in [
            ("/users/me", 2),
            ("/users/ann", 1),
            ("/rooms/me", 3),
            ("/rooms/7", 0),
        ] {
            assert_eq!(all.of(channel).leave_delay_ms, expected, "{channel}");
        }
    }
}

#[test]
fn epochs_return_their_forty_bits() {
    for bits in [1, 42, (1 << 40) - 1] {
        assert_eq!(Epoch::from_bits(bits).bits(), bits);
    }
    assert_eq!(Epoch::from_bits(1 << 40 | 5).bits(), 5);
    assert_eq!(Epoch::UNKNOWN.bits(), 0);
}
