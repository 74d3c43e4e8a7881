//! Tests a home whose engine is outside the process: items of other nodes, limits, and channels without
//! publications. The tests pass each event of the engine to the hub.

use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{
    Budget, ChannelQuery, DeltaMode, Engine as _, EventLevel, HistoryError, HistoryOptions,
    HistoryQuery, HubReply, NamespaceOptions, Namespaces, NoCredit, PayloadKind, PayloadRef,
    RecoveryMode, RemoteEngine, RequestOutcome, SubscribeOptions, Ticket,
};
use veche_nodes::engine::StoreState;
use veche_nodes::engine::channel::{Check, Direction, Event, Found, Order, Published, Read};
use veche_nodes::engine::peer::Entries;

use crate::bench::{Bench, CHANNEL, ROOM};
use crate::common::{name, session, subscribe};
use crate::restarts::{at, begun_since, bench, check_of, item, publish, tell};

/// Sets other options for the namespace with history. If `latest_only`, its channels recover only the latest
/// publication.
fn set_options(bench: &mut Bench<RemoteEngine>, options: NamespaceOptions, latest_only: bool) {
    let history = HistoryOptions {
        size: 100,
        ttl_ms: 60_000,
        position_ttl_ms: 60_000,
        recovery: match latest_only {
            true => RecoveryMode::Latest,
            false => RecoveryMode::Missed,
        },
        budget: Budget::COMMON,
    };
    let mut namespaces = Namespaces::new();
    let options = NamespaceOptions {
        history: Some(history),
        ..options
    };
    namespaces.insert("kept", options);
    bench.hub.set_history(Arc::new(namespaces), usize::MAX);
}

fn read_of(orders: &[Order]) -> Option<Read> {
    orders.iter().find_map(|order| match order {
        Order::Read(read) => Some((**read).clone()),
        _ => None,
    })
}

/// The channel has no history on this node, but another node stores its publications.
#[test]
fn a_feed_without_a_position_begins_with_its_first_item() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    let options = SubscribeOptions::default();
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    let joined = subscribe(hub, session(2), name(ROOM), Ticket(2), &options, outlet);
    joined.expect("there is room");
    tell(&mut bench, Event::Followed(ROOM.into()));
    for (offset, before) in [(9, 4), (11, 9)] {
        let item = Event::Item {
            channel: ROOM.into(),
            place: Some((at(7, offset), before)),
            data: data.clone(),
        };
        tell(&mut bench, item);
    }
    assert_eq!(bench.outlet.offsets(2), [9, 11]);
    assert!(bench.outlet.lost.is_empty());
}

#[test]
fn items_of_other_nodes_come_with_the_preceding_payload() {
    for (delta_mode, expected) in [(DeltaMode::Always, &["a", "b"][..]), (DeltaMode::Off, &[])] {
        let mut bench = bench();
        let options = NamespaceOptions {
            delta_mode,
            ..NamespaceOptions::default()
        };
        set_options(&mut bench, options, false);
        let mut before = 0;
        for (text, offset) in [("a", 3), ("b", 5), ("c", 6)] {
            let data = publish(&mut bench, text, at(1, offset));
            tell(&mut bench, item(at(1, offset), before, &data));
            before = offset;
        }
        assert_eq!(bench.outlet.texts(1), ["a", "b", "c"]);
        assert_eq!(bench.outlet.previous, expected);
    }
}

#[test]
fn ignored_messages_are_counted() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    let garbage = Bytes::from_static(b"garbage");
    let passing = |channel: &str| Event::Item {
        channel: channel.into(),
        place: None,
        data: data.clone(),
    };
    let stored = Event::Item {
        channel: "other:1".into(),
        place: Some((at(1, 3), 0)),
        data: data.clone(),
    };
    let departed = Event::Departed {
        channel: ROOM.into(),
        data: garbage.clone(),
        is_elsewhere: false,
    };
    let steps = [
        (item(at(1, 3), 0, &garbage), 1),
        (passing("other:1"), 2),
        (stored, 3),
        (departed, 4),
        (item(at(1, 3), 0, &data), 4),
        (passing(CHANNEL), 4),
    ];
    assert_eq!(bench.hub.engine().ignored(), 0);
    for (event, ignored) in steps {
        tell(&mut bench, event);
        assert_eq!(bench.hub.engine().ignored(), ignored);
    }
    assert_eq!(bench.outlet.texts(1), ["a", "a"]);
}

/// For a read without a limit, the hub requests one publication more than a reply may contain. If
/// the store returns all of them, the hub refuses the read.
#[test]
fn reads_beyond_the_limit_are_refused() {
    let mut bench = bench();
    bench.hub.set_history_answer_max(10);
    for (limit, ordered) in [
        (0, Some(0)),
        (10, Some(10)),
        (11, None),
        (usize::MAX, Some(11)),
    ] {
        let query = HistoryQuery {
            limit,
            ..HistoryQuery::default()
        };
        let question = ChannelQuery::History(query);
        let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
        let outcome = hub.query((session(9), Ticket(3)), name(CHANNEL), question, outlet);
        let read = read_of(&std::mem::take(bench.hub.engine().take_orders()));
        assert_eq!(read.map(|read| read.limit), ordered, "{limit}");
        match outcome {
            RequestOutcome::Pending => assert!(ordered.is_some()),
            RequestOutcome::Done(HubReply::History(Err(error))) => {
                assert_eq!((error, ordered), (HistoryError::TooMany(10), None));
            }
            RequestOutcome::Done(other) => panic!("{other:?}"),
        }
    }
}

/// Publishes until the hub refuses a publication. Returns the number of accepted publications.
fn fill(bench: &mut Bench<RemoteEngine>, payload: &[u8]) -> u64 {
    let payload = PayloadRef {
        kind: PayloadKind::Binary,
        bytes: payload,
    };
    let mut accepted = 0;
    loop {
        let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
        match hub.publish(None, name(CHANNEL), payload, None, outlet) {
            Ok(outcome) => assert_eq!(outcome, RequestOutcome::Pending),
            Err(NoCredit) => return accepted,
        }
        accepted += 1;
        assert!(accepted < 100_000, "there is no limit");
    }
}

/// The number of waiting publications is limited, as are their bytes; each publication has a header of 18 bytes.
#[test]
fn publications_that_wait_for_the_store_are_limited() {
    for (length, accepted) in [(1, 65_536), ((1 << 20) - 18, 64), ((1 << 20) - 19, 65)] {
        let mut bench = bench();
        let payload = vec![b'x'; length];
        assert_eq!(fill(&mut bench, &payload), accepted, "{length}");
        let orders = std::mem::take(bench.hub.engine().take_orders());
        let first = orders.into_iter().find_map(|order| match order {
            Order::Publish(publish) => Some(publish.ticket),
            _ => None,
        });
        let result = Published::Done(Some(at(1, 1)), Some(1));
        let ticket = first.expect("it is submitted");
        tell(&mut bench, Event::Published { ticket, result });
        assert_eq!(fill(&mut bench, &payload), 1, "{length}");
    }
}

#[test]
fn an_engine_without_channels_needs_no_maintenance() {
    let mut engine = RemoteEngine::new(1);
    assert!(!engine.has_maintenance());
    let channel = CHANNEL.into();
    let slot = engine.open(0, &channel, 0);
    assert!(engine.has_maintenance());
    engine.close(slot, &channel);
    assert!(!engine.has_maintenance());
}

/// In a channel that recovers its latest publication, only a read of the history shows whether
/// there is a latest publication.
#[test]
fn only_an_empty_channel_is_reported_as_empty() {
    let options = || NamespaceOptions {
        event_level: EventLevel::Occupancy,
        ..NamespaceOptions::default()
    };
    for is_empty in [false, true] {
        let mut bench = bench();
        set_options(&mut bench, options(), true);
        let data = publish(&mut bench, "a", at(1, 3));
        tell(&mut bench, item(at(1, 3), 0, &data));
        let mut events = Vec::new();
        bench.hub.take_channel_events(&mut events);
        events.clear();
        let joining = SubscribeOptions {
            since: Some([at(1, 1).into()].into()),
            ..SubscribeOptions::default()
        };
        let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
        let joined = subscribe(hub, session(2), name(CHANNEL), Ticket(2), &joining, outlet);
        joined.expect("there is room");
        let read = read_of(&std::mem::take(bench.hub.engine().take_orders()));
        let ticket = read.expect("it is read").ticket;
        let entries = Some(Box::new(Entries {
            top: at(1, 3),
            before: if is_empty { 3 } else { 0 },
            entries: match is_empty {
                true => Vec::new(),
                false => vec![(3, data)],
            },
        }));
        tell(&mut bench, Event::Entries { ticket, entries });
        bench.hub.take_channel_events(&mut events);
        let kinds: Vec<_> = events.iter().map(|event| event.fields().kind).collect();
        assert_eq!(kinds, if is_empty { &["empty"][..] } else { &[] });
    }
}

/// The first subscriber of a channel returns with a position. The publications that the subscriber has missed are read
/// together with the position at which the feed begins.
#[test]
fn the_first_subscriber_is_recovered_with_the_position() {
    // An item that arrives before the position is known is held, and delivered after the recovered publications.
    for is_later_item in [false, true] {
        let mut bench = begun_since(at(1, 1));
        let data = publish(&mut bench, "a", at(1, 5));
        let orders = tell(&mut bench, Event::Followed(CHANNEL.into()));
        let check = check_of(&orders);
        let read = check
            .read
            .as_deref()
            .expect("the publications are read, too");
        assert_eq!((read.since, read.direction), (Some(1), Direction::Latest));
        if is_later_item {
            tell(&mut bench, item(at(1, 7), 5, &data));
        }
        let entries = Entries {
            top: at(1, 5),
            before: 1,
            entries: vec![(3, data.clone()), (5, data.clone())],
        };
        let answer = Event::Checked {
            ticket: check.ticket,
            found: Some(Found {
                top: at(1, 5),
                id: 9,
                latest: None,
                entries: Some(Box::new(entries)),
            }),
        };
        let orders = tell(&mut bench, answer);
        assert_eq!(read_of(&orders), None, "it was read already");
        let recovered = bench.outlet.answers.iter().find_map(|answer| match answer {
            HubReply::Subscribed(Some(joined)) => joined.recovered.clone(),
            _ => None,
        });
        let recovered = recovered.unwrap_or_else(|| panic!("{:?}", bench.outlet.answers));
        let offsets = recovered.publications.iter();
        let offsets: Vec<_> = offsets
            .filter_map(|one| Some(one.position?.offset))
            .collect();
        assert!(recovered.is_complete);
        let mut expected = vec![3, 5];
        if is_later_item {
            match offsets.len() {
                2 => assert_eq!(bench.outlet.offsets(1), [7]),
                _ => expected.push(7),
            }
        }
        assert_eq!(offsets, expected);
        // The result is used once: the next subscriber reads again.
        let options = SubscribeOptions {
            since: Some([at(1, 1).into()].into()),
            ..SubscribeOptions::default()
        };
        let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
        let joined = subscribe(hub, session(2), name(CHANNEL), Ticket(2), &options, outlet);
        joined.expect("there is room");
        assert!(read_of(&std::mem::take(bench.hub.engine().take_orders())).is_some());
    }
}

fn first_answer(check: &Check, entries: Vec<(u64, Bytes)>) -> Event {
    let top = at(1, 5);
    let entries = Entries {
        top,
        before: 1,
        entries,
    };
    Event::Checked {
        ticket: check.ticket,
        found: Some(Found {
            top,
            id: 9,
            latest: None,
            entries: Some(Box::new(entries)),
        }),
    }
}

/// The subscriber for which publications were read has left. The result is used neither for a later gap nor for a later
/// subscriber, because it may be out of date.
#[test]
fn a_first_read_is_dropped_with_its_subscriber() {
    let mut bench = begun_since(at(1, 1));
    let data = publish(&mut bench, "a", at(1, 5));
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    let options = SubscribeOptions::default();
    subscribe(hub, session(2), name(CHANNEL), Ticket(2), &options, outlet).expect("there is room");
    let check = check_of(&tell(&mut bench, Event::Followed(CHANNEL.into())));
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    hub.unsubscribe(session(1), name(CHANNEL), outlet);
    let entries = vec![(3, data.clone()), (5, data.clone())];
    tell(&mut bench, first_answer(&check, entries));
    let returning = SubscribeOptions {
        since: Some([at(1, 1).into()].into()),
        ..SubscribeOptions::default()
    };
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    subscribe(
        hub,
        session(3),
        name(CHANNEL),
        Ticket(3),
        &returning,
        outlet,
    )
    .expect("there is room");
    assert!(read_of(&std::mem::take(bench.hub.engine().take_orders())).is_some());
    let orders = tell(&mut bench, item(at(1, 9), 7, &data));
    assert!(bench.outlet.lost.is_empty());
    assert!(read_of(&orders).is_some_and(|read| read.since == Some(5)));
}

/// A channel was unfollowed and followed again. The publications that were read for the first subscriber are not used
/// for the subscriber that came after it, which has missed more.
#[test]
fn the_first_read_of_an_earlier_subscription_does_not_count() {
    let mut bench = begun_since(at(1, 3));
    let data = publish(&mut bench, "a", at(1, 5));
    let first = check_of(&tell(&mut bench, Event::Followed(CHANNEL.into())));
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    hub.unsubscribe(session(1), name(CHANNEL), outlet);
    let returning = SubscribeOptions {
        since: Some([at(1, 1).into()].into()),
        ..SubscribeOptions::default()
    };
    subscribe(
        hub,
        session(2),
        name(CHANNEL),
        Ticket(2),
        &returning,
        outlet,
    )
    .expect("there is room");
    tell(&mut bench, Event::Followed(CHANNEL.into()));
    let orders = tell(&mut bench, first_answer(&first, vec![(5, data)]));
    assert!(read_of(&orders).is_some_and(|read| read.since == Some(1)));
}

/// The store gives no valid answer to the read that accompanies the position, so the publications are read again.
#[test]
fn a_first_read_that_fails_is_repeated() {
    let mut bench = begun_since(at(1, 1));
    let orders = tell(&mut bench, Event::Followed(CHANNEL.into()));
    let answer = Event::Checked {
        ticket: check_of(&orders).ticket,
        found: Some(Found {
            top: at(1, 5),
            id: 9,
            latest: None,
            entries: None,
        }),
    };
    let read = read_of(&tell(&mut bench, answer)).expect("it is read");
    assert_eq!(read.since, Some(1));
}

/// A request that waits without a connection fails at the fifth maintenance run.
#[test]
fn requests_without_a_connection_fail_after_a_while() {
    let mut bench = bench();
    tell(&mut bench, Event::Down);
    bench.outlet.answers.clear();
    bench.publish("a");
    for look in 1..=5 {
        assert_eq!(bench.outlet.answers, [], "{look}");
        bench.hub.maintain();
        tell(&mut bench, Event::Forgotten);
    }
    assert_eq!(bench.outlet.answers, [HubReply::Failed]);
    // While the engine is connected, requests wait for their answers without a time limit.
    tell(&mut bench, Event::Up(2, StoreState::Same));
    bench.publish("b");
    for _ in 0..10 {
        bench.hub.maintain();
        tell(&mut bench, Event::Forgotten);
    }
    assert_eq!(bench.outlet.answers.len(), 1);
}

/// The time that a request waits while connected does not count towards its timeout: after the
/// connection is lost, the full timeout applies.
#[test]
fn a_wait_with_a_connection_does_not_count() {
    let mut bench = bench();
    bench.outlet.answers.clear();
    bench.publish("a");
    for _ in 0..10 {
        bench.hub.maintain();
    }
    tell(&mut bench, Event::Down);
    for look in 1..=5 {
        assert_eq!(bench.outlet.answers, [], "{look}");
        bench.hub.maintain();
        tell(&mut bench, Event::Forgotten);
    }
    assert_eq!(bench.outlet.answers, [HubReply::Failed]);
}
