//! Tests of the engine's contract for subscriptions that the engine confirms later. The channel's home is the
//! session's own worker or another one.

use crate::pair::{Pair, ReceivedEvent, publication};

const KEPT: &str = "kept:1";
const PASSING: &str = "chat";

/// Publishes ten times to a channel to which session 0 is subscribed. Returns the pair of workers, and the offsets
/// that session 0 has received.
fn filled() -> (Pair, Vec<u64>) {
    let mut pair = Pair::new(3);
    pair.subscribe(0, KEPT, &[]);
    pair.settle();
    for number in 0..10 {
        pair.publish(KEPT, &number.to_string());
    }
    pair.settle();
    let (offsets, _) = pair.offsets(0);
    assert_eq!(offsets.len(), 10);
    (pair, offsets)
}

/// Does the same as [`filled`] with two publications to a channel of which only the latest one is stored.
fn filled_latest() -> (Pair, Vec<u64>) {
    let mut pair = Pair::new(5);
    pair.subscribe(0, "latest:1", &[]);
    pair.settle();
    for text in ["a", "b"] {
        pair.publish("latest:1", text);
    }
    pair.settle();
    let (offsets, _) = pair.offsets(0);
    (pair, offsets)
}

/// A subscription is confirmed only when the engine follows its channel.
#[test]
fn follow() {
    for channel in [KEPT, PASSING, "news:*"] {
        let mut pair = Pair::new(1);
        let home = pair.home(channel);
        for index in 0..4 {
            pair.subscribe(index, channel, &[]);
        }
        while pair.carry(0) || pair.carry(1) {}
        for index in 0..4 {
            assert_eq!(
                pair.received(index),
                [],
                "{channel}: nothing is followed yet"
            );
        }
        assert_eq!(pair.hubs[home].gauges().channels, 0);
        pair.settle();
        assert_eq!(pair.hubs[home].gauges().channels, 1);
        for index in 0..4 {
            let received = pair.received(index);
            assert!(
                matches!(received, [ReceivedEvent::Joined(_)]),
                "{channel}: {received:?}"
            );
        }
        let followed: Vec<_> = pair.engine(channel).followed.iter().cloned().collect();
        assert_eq!(followed, [channel.into()]);
        for index in 0..4 {
            assert_eq!(pair.engine(channel).followed.len(), 1);
            pair.close(index);
            pair.settle();
        }
        assert!(pair.engine(channel).followed.is_empty(), "{channel}");
    }
}

/// Publications of other nodes reach the subscribers of channels without history, even if there are only wildcard
/// subscribers.
#[test]
fn follow_without_history() {
    let mut pair = Pair::new(1);
    pair.subscribe(0, PASSING, &[]);
    pair.subscribe(1, "news:*", &[]);
    pair.settle();
    pair.engine(PASSING)
        .pass_elsewhere(&PASSING.into(), publication("a"));
    let news: std::sync::Arc<str> = "news:1".into();
    let engine = pair.engine("news:*");
    engine.followed.insert(std::sync::Arc::clone(&news));
    engine.pass_elsewhere(&news, publication("b"));
    pair.settle();
    for (index, text) in [(0, "a"), (1, "b")] {
        let last = pair.received(index).last();
        assert_eq!(
            last,
            Some(&ReceivedEvent::Item(0, text.to_owned())),
            "{index}"
        );
    }
    assert!(pair.hubs.iter().all(|hub| hub.gauges().entries <= 2));
}

/// If publications of a channel are lost, its wildcard subscribers are notified like its own subscribers.
#[test]
fn lost_for_a_wildcard() {
    let mut pair = Pair::new(1);
    pair.subscribe(0, "news:*", &[]);
    pair.subscribe(1, "news:1", &[]);
    pair.settle();
    pair.publish("news:1", "a");
    pair.settle();
    let slot = pair.engine("news:1").slot_of("news:1");
    let engine = pair.engine("news:1");
    (engine.losing, engine.is_forgetful) = (1, true);
    for text in ["lost", "b"] {
        engine.publish_elsewhere(slot, publication(text));
    }
    pair.settle();
    for index in 0..2 {
        let lost = pair
            .received(index)
            .iter()
            .filter(|one| **one == ReceivedEvent::Lost);
        assert_eq!(lost.count(), 1, "{index}: {:?}", pair.received(index));
    }
}

/// If the engine can't follow a channel, subscriptions to it fail. Later subscriptions try again.
#[test]
fn follow_fails() {
    for channel in [KEPT, PASSING] {
        let mut pair = Pair::new(1);
        pair.engine(channel).cannot_follow = true;
        pair.subscribe(0, channel, &[]);
        pair.subscribe(1, channel, &[]);
        pair.settle();
        for index in 0..2 {
            assert_eq!(pair.received(index), [ReceivedEvent::Failed], "{channel}");
            assert!(!pair.unsubscribe(index, channel));
        }
        assert!(
            pair.hubs
                .iter()
                .all(|hub| hub.session_resources().count() == 0)
        );
        pair.engine(channel).cannot_follow = false;
        pair.subscribe(0, channel, &[]);
        pair.subscribe(1, channel, &[]);
        pair.settle();
        for index in 0..2 {
            assert!(matches!(
                pair.received(index),
                [ReceivedEvent::Failed, ReceivedEvent::Joined(_)]
            ));
        }
    }
}

/// A subscriber that leaves while the refusal of its subscription is in flight is not counted and
/// gets no reply.
#[test]
fn follow_fails_for_one_that_has_left() {
    let mut pair = Pair::new(1);
    pair.engine(PASSING).cannot_follow = true;
    let away = 1 - pair.home(PASSING) as u32;
    pair.subscribe(away, PASSING, &[]);
    while pair.carry(away as usize) {}
    while pair.report(1 - away as usize) {}
    // The refusal of the subscription is in flight now.
    assert!(pair.unsubscribe(away, PASSING));
    pair.settle();
    assert_eq!(pair.received(away), []);
    assert!(
        pair.hubs
            .iter()
            .all(|hub| hub.session_resources().count() == 0)
    );
}

/// Subscribers that return at the same time share a read of the history. Those that have missed
/// more than this read covers share a second one.
#[test]
fn share() {
    let (mut pair, offsets) = filled();
    let reads = pair.engine(KEPT).reads;
    for index in 1..=5_000_u32 {
        pair.subscribe(index, KEPT, &[offsets[index as usize * 7 % 10]]);
        while pair.carry(index as usize % 2) {}
    }
    pair.settle();
    assert!(
        pair.engine(KEPT).reads - reads <= 2,
        "{}",
        pair.engine(KEPT).reads
    );
    for index in 1..=5_000_u32 {
        let (found, is_whole) = pair.offsets(index);
        assert_eq!(is_whole, Some(true));
        assert_eq!(found, offsets[index as usize * 7 % 10 + 1..], "{index}");
    }
}

/// Items delivered while the read is in progress are recovered as well.
#[test]
fn join_during_live_publications() {
    let (mut pair, offsets) = filled();
    for index in 1..3 {
        pair.subscribe(index, KEPT, &[offsets[4]]);
    }
    while pair.carry(0) || pair.carry(1) {}
    for number in 10..15 {
        pair.publish(KEPT, &number.to_string());
    }
    // The read was requested before the publications, but its result arrives after them.
    let home = pair.home(KEPT);
    pair.engine(KEPT).delay_chains();
    pair.settle();
    let (all, _) = pair.offsets(0);
    assert_eq!(all.len(), 15);
    for index in 1..3 {
        assert_eq!(pair.offsets(index), (all[5..].to_vec(), Some(true)));
    }
    let under_way: Vec<_> = pair.hubs[home].pending_work().collect();
    assert_eq!(under_way, []);
}

/// If too many bytes are published during a read, the read is repeated; after three reads nothing is recovered.
#[test]
fn join_with_more_than_is_kept() {
    for (rounds, is_whole) in [(1, true), (3, false)] {
        let (mut pair, offsets) = filled();
        pair.subscribe(1, KEPT, &[offsets[9]]);
        while pair.carry(1) {}
        for _ in 0..rounds {
            pair.engine(KEPT).delay_chains();
            let large = "x".repeat(300 << 10);
            for _ in 0..4 {
                pair.publish(KEPT, &large);
            }
            let home = pair.home(KEPT);
            while pair.engine(KEPT).has_more_than_chains() {
                pair.report(home);
            }
            // Delivers the result of the read, which the engine delayed.
            pair.report(home);
            while pair.carry(home) {}
        }
        pair.settle();
        let (found, whole) = pair.offsets(1);
        assert_eq!(whole, Some(is_whole), "{rounds}");
        let (all, _) = pair.offsets(0);
        match is_whole {
            true => assert_eq!(found, all[10..]),
            false => assert_eq!(found, [0; 0]),
        }
        pair.publish(KEPT, "after");
        pair.settle();
        assert!(
            matches!(pair.received(1).last(), Some(ReceivedEvent::Item(_, text)) if text == "after")
        );
    }
}

/// A subscriber already has an item that this node has not delivered yet. It joins after the feed has caught up, so it
/// does not get the item twice.
#[test]
fn join_ahead_of_the_feed() {
    let (mut pair, _) = filled();
    pair.engine(KEPT).losing = 2;
    for text in ["lost", "known"] {
        pair.engine(KEPT).publish_elsewhere(0, publication(text));
    }
    let known = pair.engine(KEPT).top_of(0);
    pair.subscribe(1, KEPT, &[known]);
    pair.settle();
    pair.publish(KEPT, "next");
    pair.settle();
    let (all, _) = pair.offsets(0);
    assert_eq!(all.len(), 13);
    assert_eq!(pair.offsets(1), (all[12..].to_vec(), Some(true)));
}

/// A subscriber arrives while a read for another one is in progress, and already has an item that was stored after this
/// read was executed. It recovers by a read that is requested after its arrival.
#[test]
fn join_after_an_older_read() {
    let (mut pair, offsets) = filled();
    let reads = pair.engine(KEPT).reads;
    pair.subscribe(1, KEPT, &[offsets[4]]);
    while pair.carry(0) || pair.carry(1) {}
    pair.engine(KEPT).publish_elsewhere(0, publication("known"));
    let known = pair.engine(KEPT).top_of(0);
    pair.subscribe(2, KEPT, &[known]);
    pair.settle();
    pair.publish(KEPT, "next");
    pair.settle();
    let (all, _) = pair.offsets(0);
    assert_eq!(all.len(), 12);
    assert_eq!(pair.offsets(1), (all[5..].to_vec(), Some(true)));
    assert_eq!(pair.offsets(2), (all[11..].to_vec(), Some(true)));
    assert_eq!(pair.engine(KEPT).reads - reads, 2);
}

/// The same where only the latest publication is recovered. The subscriber does not get an older publication than its
/// own.
#[test]
fn join_after_an_older_read_of_the_latest() {
    let (mut pair, all) = filled_latest();
    pair.subscribe(1, "latest:1", &[all[0]]);
    while pair.carry(0) || pair.carry(1) {}
    let engine = pair.engine("latest:1");
    let slot = engine.slot_of("latest:1");
    engine.publish_elsewhere(slot, publication("known"));
    let known = engine.top_of(slot as usize);
    pair.subscribe(2, "latest:1", &[known]);
    pair.settle();
    assert_eq!(pair.offsets(2), (Vec::new(), Some(true)));
}

/// A subscriber with an offset that was not assigned yet is confirmed without recovery after a second read.
#[test]
fn join_after_the_top() {
    let (mut pair, offsets) = filled();
    let reads = pair.engine(KEPT).reads;
    pair.subscribe(1, KEPT, &[offsets[9] + 5]);
    pair.settle();
    assert_eq!(pair.offsets(1), (Vec::new(), Some(false)));
    assert_eq!(pair.engine(KEPT).reads - reads, 2);
}

/// A pending subscriber that unsubscribes, or whose session ends, receives no publication and is not counted.
#[test]
fn join_of_one_that_leaves() {
    for is_closed in [false, true] {
        let (mut pair, offsets) = filled();
        for index in 1..5 {
            pair.subscribe(index, KEPT, &[offsets[3]]);
        }
        while pair.carry(0) || pair.carry(1) {}
        for index in 1..3 {
            match is_closed {
                true => pair.close(index),
                false => assert!(pair.unsubscribe(index, KEPT)),
            }
        }
        pair.settle();
        pair.publish(KEPT, "after");
        pair.settle();
        for index in 1..3 {
            assert_eq!(pair.received(index), [], "{is_closed}");
        }
        let (all, _) = pair.offsets(0);
        for index in 3..5 {
            assert_eq!(pair.offsets(index), (all[4..].to_vec(), Some(true)));
        }
        let subscriptions: u32 = pair.hubs.iter().map(|hub| hub.gauges().subscriptions).sum();
        assert_eq!(subscriptions, 3);
        for index in [0, 3, 4] {
            pair.close(index);
        }
        pair.settle();
        assert!(
            pair.hubs
                .iter()
                .all(|hub| hub.session_resources().count() == 0)
        );
        assert!(pair.engine(KEPT).followed.is_empty());
    }
}

/// If the read lacks missed publications, the subscription is confirmed without recovery, and no further read is made.
#[test]
fn join_without_history() {
    let (mut pair, offsets) = filled();
    pair.engine(KEPT).is_forgetful = true;
    pair.subscribe(1, KEPT, &[offsets[3]]);
    pair.settle();
    assert_eq!(pair.offsets(1), (Vec::new(), Some(false)));
    pair.publish(KEPT, "after");
    pair.settle();
    assert_eq!(pair.offsets(1).0.len(), 1);
}

/// If only the latest publication is stored, a returning subscriber receives it unless the
/// subscriber already has it.
#[test]
fn join_where_the_latest_is_kept() {
    let (mut pair, all) = filled_latest();
    pair.subscribe(1, "latest:1", &[all[0]]);
    pair.subscribe(3, "latest:1", &[all[1]]);
    pair.settle();
    assert_eq!(pair.offsets(1), (vec![all[1]], Some(true)));
    assert_eq!(pair.offsets(3), (Vec::new(), Some(true)));
}

/// If the channel loses its history while a subscription waits for a read, the subscription is
/// confirmed without history.
#[test]
fn join_of_a_channel_that_remembers_no_more() {
    let (mut pair, offsets) = filled();
    pair.subscribe(1, KEPT, &[offsets[3]]);
    while pair.carry(1) {}
    pair.engine(KEPT).delay_chains();
    pair.forget_history();
    pair.publish(KEPT, "passing");
    pair.settle();
    assert!(matches!(
        pair.received(1),
        [ReceivedEvent::Joined(None), ..]
    ));
}

/// Publications are lost, delayed and reordered, and come from this node and others. A subscriber whose recovery is
/// complete receives each missed and each following publication once and in order.
#[test]
fn join_in_any_order() {
    let mut whole = 0;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pair = Pair::new(seed);
        pair.subscribe(0, KEPT, &[]);
        pair.settle();
        pair.engine(KEPT).is_lossy = random.bool();
        let mut next = 1;
        let mut known: std::collections::BTreeMap<u32, Option<u64>> = [(0, None)].into();
        for step in 0..120 {
            match random.u8(..9) {
                0 => pair.publish(KEPT, &step.to_string()),
                1 => {
                    let text = step.to_string();
                    pair.engine(KEPT).publish_elsewhere(0, publication(&text));
                }
                2 => {
                    let top = pair.engine(KEPT).offsets_of(0);
                    let place = top.get(random.usize(..top.len().max(1))).copied();
                    pair.subscribe(next, KEPT, place.as_slice());
                    known.insert(next, place);
                    next += 1;
                }
                3 => {
                    let index = random.u32(1..next.max(2));
                    if known.remove(&index).is_some() {
                        pair.close(index);
                    }
                }
                4 | 5 => drop(pair.carry(random.usize(..2))),
                6 => drop(pair.report(0)),
                7 => drop(pair.report(1)),
                _ => {
                    let worker = random.usize(..2);
                    pair.hubs[worker].sweep(10, &mut pair.outlets[worker]);
                }
            }
        }
        pair.engine(KEPT).is_lossy = false;
        pair.settle();
        pair.publish(KEPT, "last");
        pair.settle();
        let all = pair.engine(KEPT).offsets_of(0);
        assert_eq!(pair.offsets(0).0, all, "seed {seed}");
        for (index, known) in known.into_iter().skip(1) {
            let (found, is_whole) = pair.offsets(index);
            let behind = match (is_whole, known) {
                (Some(true), Some(known)) => {
                    whole += 1;
                    all.partition_point(|offset| *offset <= known)
                }
                _ => all.len() - found.len(),
            };
            assert_eq!(found, all[behind..], "session {index} of seed {seed}");
        }
        assert!(pair.outlets.iter().all(|outlet| {
            let mut received = outlet.received.values().flatten();
            received.all(|one| !matches!(one, ReceivedEvent::Lost | ReceivedEvent::Failed))
        }));
    }
    assert!(whole > 1_000, "{whole} came back");
}
