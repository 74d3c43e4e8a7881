//! Tests a home whose engine is outside the process, while the store restarts. The tests pass each event of the engine
//! to the hub.

use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{
    Epoch, Hub, Namespaces, Options, Position, PublishOptions, RemoteEngine, SubscribeOptions,
    Ticket, WorkerId,
};
use veche_nodes::engine::StoreState;
use veche_nodes::engine::channel::{
    Check, Event, Found, Order, Publish, Published, id_of, is_same_publication,
};
use veche_nodes::engine::peer::Entries;

use crate::bench::{Bench, CHANNEL};
use crate::common::{name, session, subscribe};

pub(crate) fn at(epoch: u64, offset: u64) -> Position {
    let epoch = Epoch::from_bits(epoch);
    Position { epoch, offset }
}

/// Returns a connected hub with a subscription whose feed has not started yet.
fn begun() -> Bench<RemoteEngine> {
    begun_with(&SubscribeOptions::default())
}

/// Returns the same as [`begun`], but the subscriber returns with a position.
pub(crate) fn begun_since(position: Position) -> Bench<RemoteEngine> {
    begun_with(&SubscribeOptions {
        since: Some([position.into()].into()),
        ..SubscribeOptions::default()
    })
}

/// Returns a connected hub.
fn connected() -> Bench<RemoteEngine> {
    let engine = RemoteEngine::new(1);
    let hub = Hub::with_engine(WorkerId(0), 1, 7, Options::default(), engine);
    let mut bench = Bench::with(hub);
    tell(&mut bench, Event::Up(1, StoreState::Same));
    bench
}

fn begun_with(options: &SubscribeOptions) -> Bench<RemoteEngine> {
    let mut bench = connected();
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    let joined = subscribe(hub, session(1), name(CHANNEL), Ticket(1), options, outlet);
    joined.expect("there is room");
    bench
}

/// Returns a connected hub with a subscriber that has joined at the beginning of epoch 1.
pub(crate) fn bench() -> Bench<RemoteEngine> {
    let mut bench = begun();
    let orders = tell(&mut bench, Event::Followed(CHANNEL.into()));
    let ticket = check_of(&orders).ticket;
    tell(&mut bench, found(ticket, at(1, 0), 0, None));
    assert!(bench.outlet.lost.is_empty());
    bench
}

/// Passes an event of the engine to the hub. Returns the resulting orders.
pub(crate) fn tell(bench: &mut Bench<RemoteEngine>, event: Event) -> Vec<Order> {
    bench.hub.engine().handle(event);
    while bench.hub.take_reports(&mut bench.outlet) {}
    std::mem::take(bench.hub.engine().take_orders())
}

pub(crate) fn check_of(orders: &[Order]) -> Check {
    let check = orders.iter().find_map(|order| match order {
        Order::Check(check) => Some((**check).clone()),
        _ => None,
    });
    check.expect("the channel is compared")
}

fn publish_of(orders: Vec<Order>) -> Publish {
    let publish = orders.into_iter().find_map(|order| match order {
        Order::Publish(publish) => Some(*publish),
        _ => None,
    });
    publish.expect("it is submitted")
}

pub(crate) fn found(ticket: u64, top: Position, id: u64, latest: Option<(u64, Bytes)>) -> Event {
    let found = Some(Found {
        top,
        id,
        latest,
        entries: None,
    });
    Event::Checked { ticket, found }
}

/// Publishes a text. The store confirms the publication with a position, but the feed item of the publication is lost.
/// Returns the encoded publication.
pub(crate) fn publish(bench: &mut Bench<RemoteEngine>, text: &str, position: Position) -> Bytes {
    bench.publish(text);
    let orders = std::mem::take(bench.hub.engine().take_orders());
    let publish = publish_of(orders);
    let result = Published::Done(Some(position), Some(1));
    let ticket = publish.ticket;
    tell(bench, Event::Published { ticket, result });
    publish.data
}

/// The store has confirmed a publication, and its feed item was lost with the connection. After the reconnect the item
/// is fetched.
#[test]
fn an_item_that_a_restart_has_lost_is_fetched() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    tell(&mut bench, Event::Down);
    let orders = tell(&mut bench, Event::Up(2, StoreState::Restarted));
    let check = check_of(&orders);
    let seen = check.seen.map(|(seen, _)| seen);
    assert_eq!((check.is_verifying, seen), (true, Some(at(1, 3))));
    let orders = tell(&mut bench, found(check.ticket, at(1, 3), 9, None));
    // The first comparison named the confirmed position, after which the store has nothing. The second comparison
    // names the position of the feed, after which the store has the item.
    let check = check_of(&orders);
    let seen = check.seen.map(|(seen, _)| seen);
    assert_eq!((check.is_verifying, seen), (false, Some(at(1, 0))));
    tell(
        &mut bench,
        found(check.ticket, at(1, 3), 9, Some((0, data))),
    );
    assert_eq!(bench.outlet.texts(1), ["a"]);
    assert!(bench.outlet.lost.is_empty());
}

/// The feed was interrupted while the position of the channel was requested, so the position is requested again. A
/// publication that was stored between the two requests is fetched.
#[test]
fn an_item_between_two_looks_is_fetched() {
    let mut bench = begun();
    let first = check_of(&tell(&mut bench, Event::Followed(CHANNEL.into())));
    let second = check_of(&tell(&mut bench, Event::Followed(CHANNEL.into())));
    tell(&mut bench, found(first.ticket, at(1, 0), 0, None));
    let orders = tell(&mut bench, found(second.ticket, at(1, 3), 9, None));
    let check = check_of(&orders);
    let data = publish(&mut bench, "a", at(1, 3));
    tell(
        &mut bench,
        found(check.ticket, at(1, 3), 9, Some((0, data))),
    );
    assert_eq!(bench.outlet.texts(1), ["a"]);
    assert!(bench.outlet.lost.is_empty());
}

/// Items that arrive after a restart of the store and before the comparison with it are held back: they may have the
/// offsets of lost publications.
#[test]
fn items_wait_for_the_comparison() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    let item = |place, data: &Bytes| Event::Item {
        channel: CHANNEL.into(),
        place: Some(place),
        data: data.clone(),
    };
    tell(&mut bench, item((at(1, 3), 0), &data));
    tell(&mut bench, Event::Down);
    tell(&mut bench, item((at(1, 5), 3), &data));
    let orders = tell(&mut bench, Event::Up(2, StoreState::Restarted));
    assert_eq!(bench.outlet.offsets(1), [3]);
    // The store refuses the comparison, for example because it is out of memory. The comparison is repeated later.
    let ticket = check_of(&orders).ticket;
    let refused = Event::Checked {
        ticket,
        found: None,
    };
    tell(&mut bench, refused);
    tell(&mut bench, item((at(1, 8), 5), &data));
    bench.hub.maintain();
    let orders = std::mem::take(bench.hub.engine().take_orders());
    let check = check_of(&orders);
    assert!(check.is_verifying);
    assert_eq!(
        (bench.outlet.offsets(1), bench.outlet.lost.len()),
        (vec![3], 0)
    );
    tell(&mut bench, found(check.ticket, at(2, 0), 0, None));
    assert_eq!(
        (bench.outlet.offsets(1), bench.outlet.lost.len()),
        (vec![3], 1)
    );
}

/// If only the connection was lost and the store is the same, an item that was held back is delivered.
#[test]
fn items_go_on_with_the_connection() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    tell(&mut bench, Event::Down);
    let item = Event::Item {
        channel: CHANNEL.into(),
        place: Some((at(1, 3), 0)),
        data,
    };
    tell(&mut bench, item);
    assert!(bench.outlet.offsets(1).is_empty());
    tell(&mut bench, Event::Up(2, StoreState::Same));
    assert_eq!(bench.outlet.offsets(1), [3]);
}

/// A repeated publication states the channel's position before the first attempt, including the epoch: a store that has
/// lost data assigns low offsets again.
#[test]
fn a_repetition_names_the_epoch_of_its_offset() {
    let mut bench = bench();
    publish(&mut bench, "a", at(1, 3));
    bench.publish("b");
    tell(&mut bench, Event::Down);
    let orders = tell(&mut bench, Event::Up(2, StoreState::Same));
    let repeated = orders.iter().find_map(|order| match order {
        Order::Publish(publish) => publish.repeats_since,
        _ => None,
    });
    assert_eq!(repeated, Some(at(1, 3)));
}

/// A store that returns to an older copy of its data may continue an ended epoch, with offsets below the position at
/// which the publication was first sent. Once an epoch of the channel has ended, the store therefore searches all stored
/// publications for an earlier attempt.
#[test]
fn a_repetition_names_no_position_of_an_ended_epoch() {
    let mut bench = bench();
    publish(&mut bench, "a", at(1, 9));
    bench.publish("b");
    let mut named = Vec::new();
    for (number, position) in [(2, at(2, 0)), (3, at(3, 0)), (4, at(1, 3)), (5, at(1, 3))] {
        tell(&mut bench, Event::Down);
        let orders = tell(&mut bench, Event::Up(number, StoreState::Restarted));
        let check = check_of(&orders);
        assert_ne!(check.ended, Some(position.epoch));
        named.extend(publish_of(orders).repeats_since);
        tell(&mut bench, found(check.ticket, position, 0, None));
    }
    assert_eq!(
        named,
        [
            at(1, 9),
            Position::UNKNOWN,
            Position::UNKNOWN,
            Position::UNKNOWN
        ]
    );
}

/// A reload removes the history of a channel while a publication waits. The channel is not compared with the restarted
/// store, which may be an older copy, so the repetition names no position.
#[test]
fn a_repetition_without_a_comparison_names_no_position() {
    let mut bench = bench();
    publish(&mut bench, "a", at(1, 9));
    bench.publish("b");
    tell(&mut bench, Event::Down);
    bench
        .hub
        .set_history(Arc::new(Namespaces::new()), usize::MAX);
    let orders = tell(&mut bench, Event::Up(2, StoreState::Restarted));
    assert!(!orders.iter().any(|order| matches!(order, Order::Check(_))));
    assert_eq!(publish_of(orders).repeats_since, Some(Position::UNKNOWN));
}

/// A channel without subscribers: the store answers a repetition with the position of the first attempt, which it keeps
/// with the key for longer than the epoch. The channel's epoch does not return to that position's.
#[test]
fn an_answer_to_a_repetition_does_not_bring_an_epoch_back() {
    let mut bench = connected();
    publish(&mut bench, "a", at(1, 9));
    let options = PublishOptions {
        idempotency_key: Some("k".into()),
        ..PublishOptions::default()
    };
    bench.publish_with("b", Some(options));
    tell(&mut bench, Event::Down);
    let orders = tell(&mut bench, Event::Up(2, StoreState::Promoted));
    let check = check_of(&orders).ticket;
    let ticket = publish_of(orders).ticket;
    tell(&mut bench, found(check, at(2, 5), 0, None));
    let result = Published::Done(Some(at(1, 10)), None);
    tell(&mut bench, Event::Published { ticket, result });
    bench.publish("c");
    tell(&mut bench, Event::Down);
    let orders = tell(&mut bench, Event::Up(3, StoreState::Restarted));
    let check = check_of(&orders);
    assert_eq!(check.seen, Some((at(2, 5), 0)));
    assert_eq!(check.ended, Some(at(1, 0).epoch));
}

/// A subscriber waits for the read that closes a gap. If the epoch ends before the result of that read arrives, the hub
/// starts another read for the subscriber.
#[test]
fn a_subscriber_behind_a_gap_of_a_lost_epoch_is_answered() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    let item = |position, before| Event::Item {
        channel: CHANNEL.into(),
        place: Some((position, before)),
        data: data.clone(),
    };
    let is_read = |order: &Order| matches!(order, Order::Read(_));
    assert!(tell(&mut bench, item(at(1, 5), 4)).iter().any(is_read));
    let options = SubscribeOptions {
        since: Some([at(1, 3).into()].into()),
        ..SubscribeOptions::default()
    };
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    let joined = subscribe(hub, session(2), name(CHANNEL), Ticket(2), &options, outlet);
    joined.expect("there is room");
    assert!(!bench.hub.engine().take_orders().iter().any(is_read));
    let check = check_of(&tell(&mut bench, item(at(2, 1), 0)));
    let orders = tell(&mut bench, found(check.ticket, at(2, 1), 9, None));
    assert!(orders.iter().any(is_read));
    assert_eq!(bench.outlet.lost, [1]);
}

/// The store may be replaced by an older copy of itself, in which an ended epoch is still current. The comparison of
/// positions with the store therefore names the ended epoch, so that the store begins a new one.
#[test]
fn an_epoch_that_has_ended_does_not_come_back() {
    let mut bench = bench();
    publish(&mut bench, "a", at(1, 3));
    tell(&mut bench, Event::Down);
    let orders = tell(&mut bench, Event::Up(2, StoreState::Restarted));
    let check = check_of(&orders);
    assert_eq!(check.ended, None);
    tell(&mut bench, found(check.ticket, at(2, 0), 0, None));
    assert_eq!(bench.outlet.lost, [1]);
    tell(&mut bench, Event::Down);
    let orders = tell(&mut bench, Event::Up(3, StoreState::Restarted));
    let check = check_of(&orders);
    assert_eq!(check.ended, Some(Epoch::from_bits(1)));
    // The store begins a new epoch. The session gets no second notice, because its subscription ended with the first
    // loss.
    tell(&mut bench, found(check.ticket, at(3, 0), 0, None));
    assert_eq!(bench.outlet.lost, [1]);
}

/// Returns the event that delivers a publication as a feed item.
pub(crate) fn item(position: Position, before: u64, data: &Bytes) -> Event {
    Event::Item {
        channel: CHANNEL.into(),
        place: Some((position, before)),
        data: data.clone(),
    }
}

fn refused(ticket: u64) -> Event {
    let found = None;
    Event::Checked { ticket, found }
}

/// A server of the store has sent an item to the feed, and ended before it wrote the item to disk. The item must be
/// dropped.
#[test]
fn items_of_a_server_that_has_ended_are_dropped() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    let id = id_of(&data).expect("it has one");
    tell(&mut bench, item(at(1, 3), 0, &data));
    tell(&mut bench, Event::Down);
    tell(&mut bench, item(at(1, 5), 3, &data));
    let orders = tell(&mut bench, Event::Up(2, StoreState::Restarted));
    let check = check_of(&orders);
    tell(&mut bench, found(check.ticket, at(1, 3), id, None));
    assert_eq!(
        (bench.outlet.offsets(1), bench.outlet.lost.len()),
        (vec![3], 0)
    );
    // The store assigns the offset of the dropped item again, and this item is delivered.
    tell(&mut bench, item(at(1, 5), 3, &data));
    assert_eq!(bench.outlet.offsets(1), [3, 5]);
}

/// The store may be rolled back to a time before the channel's epoch began. Each order therefore
/// proposes a different new epoch, so that a repeated order does not begin the same epoch twice.
#[test]
fn a_repeated_order_begins_an_epoch_of_its_own() {
    let mut bench = begun();
    let first = check_of(&tell(&mut bench, Event::Followed(CHANNEL.into())));
    bench.publish("a");
    let is_publish = |order: &Order| match order {
        Order::Publish(publish) => publish.keep.map(|keep| keep.epoch),
        _ => None,
    };
    let mut epochs = vec![first.keep.epoch];
    epochs.extend({ bench.hub.engine().take_orders().drain(..) }.find_map(|one| is_publish(&one)));
    tell(&mut bench, Event::Down);
    let orders = tell(&mut bench, Event::Up(2, StoreState::Restarted));
    epochs.push(check_of(&orders).keep.epoch);
    epochs.extend(orders.iter().find_map(is_publish));
    assert_eq!(epochs.len(), 4);
    let different: std::collections::HashSet<_> = epochs.iter().collect();
    assert_eq!(different.len(), 4, "{epochs:?}");
}

/// A store that was rolled back may store a repeated publication at the offset of its lost first attempt, after another
/// publication that the subscribers do not have. The two attempts have different ids, so that the comparison with the
/// known publication finds the loss.
#[test]
fn a_repetition_differs_from_its_lost_first_attempt() {
    let mut bench = bench();
    bench.publish("a");
    let first = publish_of(std::mem::take(bench.hub.engine().take_orders()));
    let first_id = id_of(&first.data).expect("it has one");
    tell(&mut bench, item(at(1, 3), 0, &first.data));
    let mut ids = vec![first_id];
    for number in 2..5 {
        tell(&mut bench, Event::Down);
        let orders = tell(&mut bench, Event::Up(number, StoreState::Restarted));
        assert_eq!(check_of(&orders).seen, Some((at(1, 3), first_id)));
        let second = publish_of(orders);
        assert!(second.repeats_since.is_some());
        assert_eq!(second.data[9..], first.data[9..]);
        let id = id_of(&second.data).expect("it has one");
        assert!(is_same_publication(first_id, id));
        assert!(!ids.contains(&id), "{id:x} of {ids:x?}");
        ids.push(id);
    }
}

/// If an earlier attempt to publish has stored the publication, this node does not know the id of that attempt. A
/// restarted store is then compared with the preceding publication, whose id is known. If the latest attempt has stored
/// the publication, the comparison names the id of that attempt.
#[test]
fn the_store_is_compared_with_a_publication_of_known_id() {
    for (nodes, offset) in [(None, 3), (Some(1), 5)] {
        let mut bench = bench();
        let data = publish(&mut bench, "a", at(1, 3));
        bench.publish("b");
        tell(&mut bench, Event::Down);
        let again = publish_of(tell(&mut bench, Event::Up(2, StoreState::Same)));
        let (ticket, result) = (again.ticket, Published::Done(Some(at(1, 5)), nodes));
        tell(&mut bench, Event::Published { ticket, result });
        tell(&mut bench, Event::Down);
        let check = check_of(&tell(&mut bench, Event::Up(3, StoreState::Restarted)));
        let data = if offset == 3 { data } else { again.data };
        let id = id_of(&data).expect("it has one");
        assert_eq!(check.seen, Some((at(1, offset), id)));
    }
}

/// A subscription begins at a publication whose id the store did not report. The id is learned from
/// the feed.
#[test]
fn the_feed_tells_an_unknown_id() {
    let mut bench = begun();
    let check = check_of(&tell(&mut bench, Event::Followed(CHANNEL.into())));
    tell(&mut bench, found(check.ticket, at(1, 3), 0, None));
    bench.publish("a");
    let data = publish_of(std::mem::take(bench.hub.engine().take_orders())).data;
    tell(&mut bench, item(at(1, 3), 0, &data));
    tell(&mut bench, Event::Down);
    let check = check_of(&tell(&mut bench, Event::Up(2, StoreState::Restarted)));
    let id = id_of(&data).expect("it has one");
    assert_eq!(check.seen, Some((at(1, 3), id)));
}

/// Before the comparison with the restarted store is answered, no other answer changes the known position of a channel.
#[test]
fn nothing_counts_before_the_comparison() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    let id = id_of(&data).expect("it has one");
    tell(&mut bench, item(at(1, 3), 0, &data));
    let check = check_of(&tell(&mut bench, Event::Followed(CHANNEL.into())));
    assert!(!check.is_verifying);
    tell(&mut bench, Event::Down);
    // The known position has to be compared with the store. Until then, neither the result of an ordinary check nor the
    // position of a confirmed publication changes it.
    let latest = Some((3, data));
    let orders = tell(&mut bench, found(check.ticket, at(1, 5), 9, latest));
    assert!(orders.is_empty(), "{orders:?}");
    let orders = tell(&mut bench, Event::Up(2, StoreState::Restarted));
    tell(&mut bench, refused(check_of(&orders).ticket));
    bench.publish("b");
    let orders = std::mem::take(bench.hub.engine().take_orders());
    tell(&mut bench, refused(check_of(&orders).ticket));
    let result = Published::Done(Some(at(1, 7)), Some(1));
    let ticket = publish_of(orders).ticket;
    tell(&mut bench, Event::Published { ticket, result });
    bench.hub.maintain();
    let check = check_of(&std::mem::take(bench.hub.engine().take_orders()));
    assert_eq!(
        (check.is_verifying, check.seen),
        (true, Some((at(1, 3), id)))
    );
    assert_eq!(bench.outlet.offsets(1), [3]);
}

/// Until the restarted store is compared with the known position, the results of reads are ignored, because their
/// publications may have reused offsets.
#[test]
fn a_read_before_the_comparison_closes_no_gap() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    tell(&mut bench, item(at(1, 3), 0, &data));
    tell(&mut bench, item(at(1, 7), 5, &data));
    tell(&mut bench, Event::Down);
    let orders = tell(&mut bench, Event::Up(2, StoreState::Restarted));
    tell(&mut bench, refused(check_of(&orders).ticket));
    let read = orders.iter().find_map(|order| match order {
        Order::Read(read) => Some(read.ticket),
        _ => None,
    });
    let entries = Some(Box::new(Entries {
        top: at(1, 7),
        before: 3,
        entries: vec![(5, data.clone()), (7, data)],
    }));
    let ticket = read.expect("it is repeated");
    tell(&mut bench, Event::Entries { ticket, entries });
    assert_eq!(
        (bench.outlet.offsets(1), bench.outlet.lost),
        (vec![3], vec![1])
    );
}

/// A read has closed a gap. After a restart, the store is compared with the last publication of that read, because
/// subscribers have received it.
#[test]
fn a_read_publication_is_compared() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    tell(&mut bench, item(at(1, 3), 0, &data));
    let orders = tell(&mut bench, item(at(1, 7), 5, &data));
    let read = orders.iter().find_map(|order| match order {
        Order::Read(read) => Some(read.ticket),
        _ => None,
    });
    let mut last = data.to_vec();
    last[1] ^= 1;
    let last = Bytes::from(last);
    let entries = Entries {
        top: at(1, 9),
        before: 3,
        entries: vec![(5, data.clone()), (7, data), (9, last.clone())],
    };
    let answer = Event::Entries {
        ticket: read.expect("it is read"),
        entries: Some(Box::new(entries)),
    };
    tell(&mut bench, answer);
    assert_eq!(bench.outlet.offsets(1), [3, 5, 7, 9]);
    tell(&mut bench, Event::Down);
    let check = check_of(&tell(&mut bench, Event::Up(2, StoreState::Restarted)));
    assert_eq!(
        check.seen,
        Some((at(1, 9), id_of(&last).expect("it has one")))
    );
}

/// A replaced server of the store sends items of an epoch that is neither the current nor the previous one. Such items
/// are ignored.
#[test]
fn an_item_of_an_old_epoch_does_not_bring_it_back() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    for epoch in [2, 3] {
        tell(&mut bench, Event::Down);
        let orders = tell(&mut bench, Event::Up(epoch, StoreState::Promoted));
        tell(
            &mut bench,
            found(check_of(&orders).ticket, at(epoch, 0), 0, None),
        );
    }
    bench.outlet.lost.clear();
    let options = SubscribeOptions::default();
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    let joined = subscribe(hub, session(2), name(CHANNEL), Ticket(2), &options, outlet);
    joined.expect("there is room");
    let orders = tell(&mut bench, Event::Followed(CHANNEL.into()));
    tell(
        &mut bench,
        found(check_of(&orders).ticket, at(3, 0), 0, None),
    );
    let orders = tell(&mut bench, item(at(1, 5), 3, &data));
    let check = check_of(&orders);
    assert!(!check.is_verifying);
    // A second item of the old epoch causes no second check.
    assert!(tell(&mut bench, item(at(1, 7), 5, &data)).is_empty());
    tell(&mut bench, found(check.ticket, at(3, 0), 0, None));
    tell(&mut bench, item(at(3, 1), 0, &data));
    assert_eq!(
        (bench.outlet.offsets(2), bench.outlet.lost.len()),
        (vec![1], 0)
    );
}
