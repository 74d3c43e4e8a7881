//! Tests the occupied channels of a node whose engine is outside the process. The tests pass each
//! event of the engine to the hub.

use veche_hub::{Engine as _, EventLevel, Hub, NamespaceOptions, Options, RemoteEngine, WorkerId};
use veche_nodes::engine::StoreState;
use veche_nodes::engine::channel::{Event, Occupancy, Order};

use crate::bench::{Bench, ROOM, client};
use crate::common::{name, session, subscribe};
use veche_hub::{SubscribeOptions, Ticket};

fn bench() -> Bench<RemoteEngine> {
    let engine = RemoteEngine::new(1);
    let hub = Hub::with_engine(WorkerId(0), 1, 7, Options::default(), engine);
    let mut bench = Bench::with(hub);
    bench.set_rooms(NamespaceOptions {
        event_level: EventLevel::Members,
        ..NamespaceOptions::default()
    });
    tell(&mut bench, Event::Up(1, StoreState::Same));
    bench
}

/// Subscribes a member. Returns the changes of occupancy that the engine is ordered to record.
fn enter(bench: &mut Bench<RemoteEngine>, index: u32) -> Vec<Occupancy> {
    let subscribe_options = SubscribeOptions {
        client: Some(client(index, "ann")),
        ..SubscribeOptions::default()
    };
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    let joined = subscribe(
        hub,
        session(index),
        name(ROOM),
        Ticket(1),
        &subscribe_options,
        outlet,
    );
    joined.expect("there is room");
    tell(bench, Event::Followed(ROOM.into()))
}

fn leave(bench: &mut Bench<RemoteEngine>, index: u32) -> Vec<Occupancy> {
    bench.hub.close(session(index), &mut bench.outlet);
    orders(bench)
}

/// Passes an event of the engine to the hub. Returns the changes of occupancy that the engine is
/// ordered to record afterwards.
fn tell(bench: &mut Bench<RemoteEngine>, event: Event) -> Vec<Occupancy> {
    bench.hub.engine().handle(event);
    while bench.hub.take_reports(&mut bench.outlet) {}
    orders(bench)
}

fn orders(bench: &mut Bench<RemoteEngine>) -> Vec<Occupancy> {
    let orders = std::mem::take(bench.hub.engine().take_orders());
    let recorded = orders.into_iter().filter_map(|order| match order {
        Order::Occupancy(occupancy) => Some(*occupancy),
        _ => None,
    });
    recorded.collect()
}

fn only(mut recorded: Vec<Occupancy>) -> Occupancy {
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    recorded.remove(0)
}

fn answer(recorded: &Occupancy, is_changed: bool) -> Event {
    Event::Occupancy {
        ticket: recorded.ticket,
        outcome: Some((is_changed, 77)),
    }
}

fn events(bench: &mut Bench<RemoteEngine>) -> Vec<String> {
    let mut events = Vec::new();
    bench.hub.take_channel_events(&mut events);
    let kind = |event: &veche_hub::ChannelEvent| {
        let fields = event.fields();
        match fields.client {
            Some(client) => format!("{} {client}", fields.kind),
            None => format!("{} at {}", fields.kind, event.at_ms),
        }
    };
    events.iter().map(kind).collect()
}

#[test]
fn events_of_a_channel_wait_for_the_decision_in_order() {
    let mut bench = bench();
    let first = only(enter(&mut bench, 1));
    assert!(first.is_occupied && !first.is_repeated);
    assert_eq!(leave(&mut bench, 1), [], "one at a time");
    assert_eq!(events(&mut bench), [""; 0]);
    tell(&mut bench, answer(&first, true));
    assert_eq!(events(&mut bench), ["occupied at 77", "joined 1", "left 1"]);
    bench.hub.maintain();
    let second = only(orders(&mut bench));
    assert!(!second.is_occupied);
    tell(&mut bench, answer(&second, true));
    assert_eq!(events(&mut bench), ["vacated at 77"]);
}

#[test]
fn a_channel_that_another_node_has_occupied_is_not_reported() {
    let mut bench = bench();
    let first = only(enter(&mut bench, 1));
    tell(&mut bench, answer(&first, false));
    assert_eq!(events(&mut bench), ["joined 1"]);
    let last = only(leave(&mut bench, 1));
    tell(&mut bench, answer(&last, false));
    assert_eq!(events(&mut bench), ["left 1"]);
}

#[test]
fn a_change_without_an_answer_is_recorded_again() {
    let mut bench = bench();
    let first = only(enter(&mut bench, 1));
    tell(&mut bench, Event::Down);
    let again = only(tell(&mut bench, Event::Up(2, StoreState::Same)));
    assert!(again.is_repeated && again.channel == first.channel);
    // The store refuses writes for a while.
    let (ticket, outcome) = (again.ticket, None);
    assert_eq!(tell(&mut bench, Event::Occupancy { ticket, outcome }), []);
    bench.hub.maintain();
    let again = only(orders(&mut bench));
    assert!(again.is_repeated);
    tell(&mut bench, answer(&again, true));
    assert_eq!(events(&mut bench), ["occupied at 77", "joined 1"]);
}

#[test]
fn changes_during_a_long_break_are_recorded_after_it() {
    let mut bench = bench();
    let first = only(enter(&mut bench, 1));
    tell(&mut bench, answer(&first, true));
    tell(&mut bench, Event::Down);
    assert_eq!(leave(&mut bench, 1), []);
    for _ in 0..30 {
        bench.hub.maintain();
        while bench.hub.take_reports(&mut bench.outlet) {}
    }
    assert_eq!(orders(&mut bench), []);
    assert!(bench.hub.engine().has_maintenance());
    tell(&mut bench, Event::Up(2, StoreState::Same));
    bench.hub.maintain();
    let last = only(orders(&mut bench));
    assert!(!last.is_occupied && !last.is_repeated);
    events(&mut bench);
    tell(&mut bench, answer(&last, true));
    assert!(!bench.hub.engine().has_maintenance());
    assert_eq!(events(&mut bench), ["vacated at 77"]);
}

#[test]
fn what_a_store_has_lost_is_recorded_again() {
    let mut bench = bench();
    let first = only(enter(&mut bench, 1));
    tell(&mut bench, answer(&first, true));
    events(&mut bench);
    tell(&mut bench, Event::Forgotten);
    bench.hub.maintain();
    let again = only(orders(&mut bench));
    assert!(again.is_occupied && !again.is_repeated);
    tell(&mut bench, answer(&again, false));
    assert_eq!(events(&mut bench), [""; 0]);
}

#[test]
fn a_channel_of_a_dead_node_is_vacated() {
    let mut bench = bench();
    for (channel, expected) in [(ROOM, &["vacated at 9"][..]), ("other:1", &[])] {
        let channel = channel.into();
        tell(&mut bench, Event::Vacated { channel, at_ms: 9 });
        assert_eq!(events(&mut bench), expected);
    }
}
