//! Tests the allocations of the hub: none per publication to a user, and little memory per session.

mod common;

use allocation_counter::measure;
use std::sync::Arc;

use veche_hub::{
    Caller, ChannelName, ChannelQuery, ConnectionId, Delivery, HistoryOptions, Hub, HubMessage,
    HubMessageClass, HubReply, NamespaceOptions, Namespaces, Options, Outlet, PayloadKind,
    PayloadRef, RecoveryMode, RequestOutcome, SubscribeOptions, Ticket, UserCommand, WorkerId,
};

use common::{name, session};

/// An outlet that counts deliveries and accepts everything.
#[derive(Default)]
struct Tally(u64);

impl Outlet for Tally {
    fn send_message(&mut self, _: WorkerId, _: HubMessage) {}
    fn has_credit(&self, _: WorkerId, _: HubMessageClass) -> bool {
        true
    }
    fn return_credit(&mut self, _: WorkerId, _: HubMessageClass) {}
    fn deliver(&mut self, _: ConnectionId, _: &mut Delivery<'_>) {
        self.0 += 1;
    }
    fn send_reply(&mut self, _: ConnectionId, _: Ticket, _: HubReply) {}
    fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}
    fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
}

fn alone() -> Hub {
    Hub::new(WorkerId(0), 1, 7, Options::default())
}

fn subscribe(hub: &mut Hub, index: u32, channel: &str) {
    common::subscribe(
        hub,
        session(index),
        name(channel),
        Ticket(0),
        &SubscribeOptions::default(),
        &mut Tally::default(),
    )
    .expect("there is room");
}

/// Adds items with `add`. Returns the highest memory per item in bytes: since tables double their
/// size as they grow, the memory per item depends on the number of items.
fn bytes_each(mut add: impl FnMut(u32)) -> u64 {
    let mut worst = 0;
    let mut total = 0;
    let mut count = 0;
    for target in (8_000..=16_000).step_by(200) {
        total += measure(|| (count..target).for_each(&mut add)).bytes_current;
        count = target;
        worst = worst.max(total as u64 / u64::from(count));
    }
    worst
}

#[test]
fn a_user_with_one_connection_is_small() {
    let mut hub = alone();
    let bytes = bytes_each(|index| subscribe(&mut hub, index, &format!("#user-{index:011}")));
    println!("a connected user with a name of 16 bytes: {bytes} B at worst");
    assert!(bytes <= 250, "{bytes}");
}

#[test]
fn a_subscription_is_small() {
    let mut hub = alone();
    let bytes = bytes_each(|index| subscribe(&mut hub, index, "news"));
    println!("a subscription: {bytes} B at worst");
    assert!(bytes <= 100, "{bytes}");
}

#[test]
fn a_silent_channel_is_small() {
    let mut hub = alone();
    let name = |index: u32| format!("channel:{index:08}");
    let bytes = bytes_each(|index| subscribe(&mut hub, 0, &name(index)));
    println!("a channel with one subscription and a name of 16 bytes: {bytes} B at worst");
    assert!(bytes <= 200 + 16, "{bytes}");
}

#[test]
fn a_push_to_a_user_allocates_nothing() {
    let mut hub = alone();
    for index in 0..1_000 {
        subscribe(&mut hub, index, &format!("#user-{index}"));
    }
    let mut names: Vec<String> = (0..1_000).map(|index| format!("user-{index}")).collect();
    names.push("nobody".to_owned());
    let mut buffer = String::with_capacity(64);
    let mut tally = Tally::default();
    let allocated = measure(|| {
        for user in &names {
            let name = ChannelName::of_user(user, &mut buffer).expect("a valid name");
            let payload = PayloadRef {
                kind: PayloadKind::Text,
                bytes: b"hello",
            };
            let outcome = hub.publish(None, name, payload, None, &mut tally);
            let Ok(RequestOutcome::Done(published)) = outcome else {
                panic!("{outcome:?}");
            };
            assert!(published.receivers <= Some(1));
        }
    });
    assert_eq!(allocated.count_total, 0);
    assert_eq!(tally.0, 1_000);
}

#[test]
fn a_large_fan_out_allocates_per_publication_only() {
    let mut hub = alone();
    for index in 0..5_000 {
        subscribe(&mut hub, index, "news");
    }
    let name = name("news");
    let mut tally = Tally::default();
    let mut burst = |hub: &mut Hub| {
        for _ in 0..16 {
            let payload = PayloadRef {
                kind: PayloadKind::Text,
                bytes: b"hello",
            };
            hub.publish(None, name, payload, None, &mut tally)
                .expect("there is room");
        }
        while hub.sweep(1_000, &mut tally) {}
    };
    burst(&mut hub);
    let allocated = measure(|| burst(&mut hub));
    // Each publication allocates its bytes and their reference count; the queue itself is reused.
    assert!(allocated.count_total <= 2 * 16, "{}", allocated.count_total);
    assert_eq!(tally.0, 2 * 16 * 5_000);
}

#[test]
fn a_crowded_channel_returns_its_memory() {
    let mut hub = alone();
    for index in 0..20_000 {
        subscribe(&mut hub, index, "lobby");
    }
    let subscribed = measure(|| {
        for index in 0..20_000 {
            subscribe(&mut hub, index, "news");
        }
    });
    let channel = name("news");
    let left = measure(|| {
        for index in 100..20_000 {
            assert!(hub.unsubscribe(session(index), channel, &mut Tally::default()));
        }
    });
    // The slots of subscriptions are kept for reuse; the channel's list of subscribers is freed.
    let list_bytes = 20_000 * size_of::<u32>() as i64;
    assert!(
        left.bytes_current < -list_bytes * 9 / 10,
        "{}",
        left.bytes_current
    );
    assert!(subscribed.bytes_current > list_bytes);
    // The list of subscribers shrinks in a few reallocations, not in one for each subscriber that leaves.
    assert!(left.count_total < 30, "{}", left.count_total);
}

#[test]
fn subscriber_churn_under_a_filled_queue_takes_no_memory() {
    const STAYING: u32 = 20;
    const MOVING: std::ops::Range<u32> = STAYING..2 * STAYING;
    let mut hub = alone();
    for index in 0..2 * STAYING {
        subscribe(&mut hub, index, "news");
    }
    let channel = name("news");
    let mut tally = Tally::default();
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: b"hello",
    };
    let publish = |hub: &mut Hub, tally: &mut Tally| {
        let outcome = hub.publish(None, channel, payload, None, tally);
        assert!(outcome.is_ok());
    };
    publish(&mut hub, &mut tally);
    let mut turns = |count: u32| {
        for _ in 0..count {
            for index in [MOVING; 3].into_iter().flatten() {
                assert!(hub.unsubscribe(session(index), channel, &mut tally));
                subscribe(&mut hub, index, "news");
            }
            // A publication arrives during each sweep, so the queue is never empty and never removed.
            hub.sweep(1, &mut tally);
            publish(&mut hub, &mut tally);
            assert!(hub.sweep(STAYING as usize - 1, &mut tally));
        }
    };
    turns(1);
    let first = measure(|| turns(100)).bytes_current;
    let more = measure(|| turns(2_000)).bytes_current;
    assert!(
        first.abs() < 10_000 && more.abs() < 1_000,
        "{first}, then {more}"
    );
}

#[test]
fn tables_grow_in_few_allocations() {
    const MANY: u32 = 16_000;
    let mut hub = alone();
    let users: Vec<_> = (0..MANY).map(|index| format!("#user-{index}")).collect();
    let allocated = measure(|| {
        for (index, user) in users.iter().enumerate() {
            subscribe(&mut hub, index as u32, user);
        }
    });
    // Each channel name is one allocation. All other allocations are for the growth of tables.
    let steps = allocated.count_total - u64::from(MANY);
    assert!(steps < 200, "{steps}");
}

#[test]
fn sixteen_queues_are_kept_for_reuse() {
    let channels: Vec<_> = (0..17).map(|number| format!("channel-{number}")).collect();
    let mut hub = alone();
    for channel in &channels {
        for index in 0..20 {
            subscribe(&mut hub, index, channel);
        }
    }
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: b"hello",
    };
    let mut round = |count: usize| {
        let allocated = measure(|| {
            for channel in &channels[..count] {
                let outcome =
                    hub.publish(None, name(channel), payload, None, &mut Tally::default());
                assert!(outcome.is_ok());
            }
            while hub.sweep(1_000, &mut Tally::default()) {}
        });
        allocated.count_total
    };
    round(17);
    let one = round(1);
    assert_eq!(round(16), 16 * one);
    assert!(round(17) > 17 * one);
}

#[test]
fn counted_history_bytes_match_allocated_bytes() {
    let mut namespaces = Namespaces::new();
    let options = NamespaceOptions {
        history: Some(HistoryOptions {
            size: 1 << 20,
            ttl_ms: 1_000,
            position_ttl_ms: 1_000,
            recovery: RecoveryMode::Missed,
            budget: veche_hub::Budget::COMMON,
        }),
        ..NamespaceOptions::default()
    };
    namespaces.insert("", options);
    let mut hub = alone();
    hub.set_history(Arc::new(namespaces), usize::MAX);
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: &[b'x'; 100],
    };
    let publish = |hub: &mut Hub, channel: &str| {
        let outcome = hub.publish(None, name(channel), payload, None, &mut Tally::default());
        assert!(outcome.is_ok());
    };
    let share = |hub: &Hub, before: u64, allocated: i64| {
        let counted = (hub.gauges().history_bytes - before) as f64;
        counted / allocated as f64
    };
    // The number of publications is a power of two, so that the tables have no spare capacity.
    let allocated = measure(|| (0..1 << 13).for_each(|_| publish(&mut hub, "one")));
    let records = share(&hub, 0, allocated.bytes_current);
    println!("counted of the bytes of publications: {records:.2}");
    assert!((0.9..1.2).contains(&records), "{records}");

    let names: Vec<_> = (0..1 << 13).map(|number| format!("{number:016}")).collect();
    let caller = (session(0), Ticket(0));
    let before = hub.gauges().history_bytes;
    let allocated = measure(|| {
        for channel in &names {
            let query = ChannelQuery::RemoveHistory;
            hub.query(caller, name(channel), query, &mut Tally::default());
        }
    });
    let streams = share(&hub, before, allocated.bytes_current);
    println!("counted of the bytes of streams: {streams:.2}");
    assert!((0.98..1.02).contains(&streams), "{streams}");
}
