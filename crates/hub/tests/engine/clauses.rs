//! The tests of the contract in `engine.rs`, one for each clause. They run on every engine.

use veche_hub::{
    ChannelQuery, EventLevel, HistoryQuery, NamespaceOptions, PublishOptions, Version,
};

use crate::bench::{Bench, Driven};

/// Returns the texts that the feed has delivered to the subscriber `index` of the room.
fn received<E: Driven>(bench: &mut Bench<E>, index: u32) -> Vec<String> {
    let texts = bench.outlet.texts(index);
    texts.into_iter().map(str::to_owned).collect()
}

pub(crate) fn order<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    let texts: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    for text in &texts {
        bench.publish(text);
    }
    bench.settle();
    assert_eq!(bench.outlet.texts(1), texts);
}

pub(crate) fn answer<E: Driven>(mut bench: Bench<E>) {
    for number in 0..5 {
        bench.publish(&number.to_string());
    }
    bench.settle();
    assert_eq!(bench.published.len(), 5, "each is answered once");
    let handed = bench.publish_and_settle("after");
    assert!(handed.position.is_some() && !handed.is_skipped);
}

pub(crate) fn stale<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    for (number, is_skipped) in [(5, false), (5, true), (4, true), (6, false)] {
        let version = Some(Version {
            number,
            epoch: "a".into(),
        });
        let options = PublishOptions {
            version,
            ..PublishOptions::default()
        };
        bench.publish_with(&format!("v{number}"), Some(options));
        bench.settle();
        let published = bench.published.pop().expect("it is answered");
        assert_eq!(published.is_skipped, is_skipped, "{number}");
    }
    let keyed = || PublishOptions {
        idempotency_key: Some("key".into()),
        ..PublishOptions::default()
    };
    bench.publish_with("once", Some(keyed()));
    bench.publish_with("twice", Some(keyed()));
    bench.settle();
    assert_eq!(bench.outlet.texts(1), ["v5", "v6", "once"]);
}

pub(crate) fn increase<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    for number in 0..30 {
        bench.publish(&number.to_string());
    }
    bench.settle();
    let offsets = bench.outlet.offsets(1);
    assert_eq!(offsets.len(), 30);
    assert!(offsets.is_sorted_by(|one, next| one < next), "{offsets:?}");
}

pub(crate) fn feed<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    bench.publish("a");
    bench.settle();
    bench.subscribe(2, None);
    bench.publish("b");
    bench.settle();
    assert_eq!(bench.outlet.texts(1), ["a", "b"]);
    assert_eq!(bench.outlet.texts(2), ["b"]);
}

/// A publication that the engine defers reaches neither the subscribers nor its publisher before the engine has stored
/// it.
pub(crate) fn stored<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    bench.publish("a");
    if bench.hub.engine().is_deferring() {
        assert_eq!(bench.outlet.texts(1), [""; 0]);
        assert!(bench.published.is_empty());
    }
    bench.settle();
    assert_eq!(bench.outlet.texts(1), ["a"]);
    assert_eq!(bench.published.len(), 1);
}

/// A subscriber that returns after any of the items recovers all later items. A subscriber whose
/// offset is beyond the top learns that it can't recover.
pub(crate) fn join<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    for number in 0..5 {
        bench.publish(&number.to_string());
    }
    bench.settle();
    let offsets = bench.outlet.offsets(1);
    for (place, offset) in offsets.iter().enumerate() {
        let joined = bench.subscribe(place as u32 + 2, Some(*offset));
        let recovered = joined.recovered.expect("it was asked for");
        assert!(recovered.is_complete, "{offset}");
        let found = recovered.publications.iter();
        let found: Vec<_> = found.filter_map(|one| Some(one.position?.offset)).collect();
        assert_eq!(found, offsets[place + 1..]);
        if !found.is_empty() {
            assert_eq!(recovered.predecessor, *offset);
        }
        assert_eq!(joined.position.offset, *offsets.last().expect("five"));
    }
    let beyond = offsets.last().expect("five") + 1;
    let joined = bench.subscribe(9, Some(beyond));
    assert!(!joined.recovered.expect("it was asked for").is_complete);
}

pub(crate) fn top<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    for number in 0..5 {
        bench.publish(&number.to_string());
    }
    bench.settle();
    let query = HistoryQuery {
        limit: 100,
        ..HistoryQuery::default()
    };
    let page = bench.read(query);
    let found = page.iter().filter_map(|one| Some(one.position?.offset));
    assert_eq!(found.collect::<Vec<_>>(), bench.outlet.offsets(1));
    assert_eq!(Some(&page.position.offset), bench.outlet.offsets(1).last());
}

pub(crate) fn removal<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    bench.publish("a");
    bench.publish("b");
    bench.settle();
    bench.ask(ChannelQuery::RemoveHistory);
    bench.settle();
    let query = HistoryQuery {
        limit: 100,
        ..HistoryQuery::default()
    };
    let page = bench.read(query);
    assert!(page.is_empty());
    assert_eq!(Some(&page.position.offset), bench.outlet.offsets(1).last());
    bench.publish("c");
    bench.settle();
    assert_eq!(bench.outlet.texts(1), ["a", "b", "c"]);
}

/// Publications submitted before a removal are removed by it, even if they were not delivered yet.
pub(crate) fn removal_of_what_waits<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    bench.publish("a");
    bench.publish("b");
    bench.ask(ChannelQuery::RemoveHistory);
    bench.settle();
    let query = HistoryQuery {
        limit: 100,
        ..HistoryQuery::default()
    };
    assert!(bench.read(query).is_empty());
}

/// The number of receivers is reported if the engine knows it.
pub(crate) fn handed<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    bench.subscribe(2, None);
    let published = bench.publish_and_settle("a");
    let expected = E::KNOWS_SUBSCRIBERS.then_some(2);
    assert_eq!(published.receivers, expected);
}

/// After a read of the history, the feed continues without a gap or an overlap, even if publications arrive during the
/// read.
pub(crate) fn chain<E: Driven>(mut bench: Bench<E>) {
    bench.subscribe(1, None);
    for round in 0..20 {
        for number in 0..3 {
            bench.publish(&format!("{round}.{number}"));
        }
        let known = bench.outlet.offsets(1).last().copied();
        let index = round + 2;
        let joined = bench.subscribe(index, known);
        bench.settle();
        let recovered = joined.recovered.unwrap_or_default();
        let missed = recovered.publications.iter();
        let mut offsets: Vec<_> = missed
            .filter_map(|one| Some(one.position?.offset))
            .collect();
        offsets.extend(bench.outlet.offsets(index));
        let all = bench.outlet.offsets(1);
        let behind = known.map_or(0, |known| {
            assert!(recovered.is_complete, "{known} in round {round}");
            all.partition_point(|offset| *offset <= known)
        });
        if known.is_some() {
            assert_eq!(offsets, all[behind..], "round {round}");
        }
        let end = recovered.publications.last().and_then(|one| one.position);
        assert!(end.is_none_or(|end| end == joined.position));
    }
}

pub(crate) fn member<E: Driven>(mut bench: Bench<E>) {
    bench.enter(1, "ann");
    bench.enter(2, "ben");
    bench.leave(2);
    assert_eq!(received(&mut bench, 1), ["Joined 1", "Joined 2", "Left 2"]);
    let (members, _) = bench.presence();
    assert_eq!(members, ["1"]);
}

/// The members of this node are recorded again after the store has lost them.
pub(crate) fn lease<E: Driven>(mut bench: Bench<E>) {
    bench.enter(1, "ann");
    bench.forget_members();
    bench.hub.maintain();
    assert_eq!(bench.presence().0, ["1"]);
}

pub(crate) fn presence<E: Driven>(mut bench: Bench<E>) {
    assert_eq!(bench.presence(), (Vec::new(), (0, 0)));
    bench.enter(1, "ann");
    bench.enter(2, "ann");
    bench.enter(3, "ben");
    let names = ["1", "2", "3"].map(str::to_owned).to_vec();
    assert_eq!(bench.presence(), (names, (3, 2)));
}

/// A channel has an event when its first subscriber arrives and when its last subscriber leaves.
pub(crate) fn occupancy<E: Driven>(mut bench: Bench<E>) {
    bench.set_rooms(NamespaceOptions {
        event_level: EventLevel::Occupancy,
        ..NamespaceOptions::default()
    });
    for round in 0..3 {
        bench.enter(2 * round, "ann");
        bench.enter(2 * round + 1, "ben");
        bench.leave(2 * round);
        bench.leave(2 * round + 1);
    }
    let mut events = Vec::new();
    assert_eq!(bench.hub.take_channel_events(&mut events), 0);
    let kinds: Vec<_> = events.iter().map(|event| event.fields().kind).collect();
    assert_eq!(kinds, ["occupied", "vacated"].repeat(3));
}
