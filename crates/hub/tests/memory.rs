//! What the hub allocates: nothing per push to a user, and little to remember somebody.

mod common;

use allocation_counter::measure;
use std::sync::Arc;

use veche_hub::{
    Answer, ChannelName, Class, ConnectionId, Delivery, Hub, Instruction, Mail, Options, Outcome,
    Outlet, PayloadKind, PayloadRef, SubscribeOptions, Ticket, WorkerId,
};

use common::{name, session};

/// Counts deliveries.
#[derive(Default)]
struct Tally(u64);

impl Outlet for Tally {
    fn mail(&mut self, _: WorkerId, _: Mail) {}
    fn has_credit(&self, _: WorkerId, _: Class) -> bool {
        true
    }
    fn mail_done(&mut self, _: WorkerId, _: Class) {}
    fn deliver(&mut self, _: ConnectionId, _: &mut Delivery<'_>) {
        self.0 += 1;
    }
    fn answer(&mut self, _: ConnectionId, _: Ticket, _: Answer) {}
    fn instruct(&mut self, _: ConnectionId, _: &Arc<Instruction>) {}
}

fn alone() -> Hub {
    Hub::new(WorkerId(0), 1, 7, Options::default())
}

fn subscribe(hub: &mut Hub, index: u32, channel: &str) {
    hub.subscribe(
        session(index),
        name(channel),
        Ticket(0),
        &SubscribeOptions::default(),
        &mut Tally::default(),
    )
    .expect("there is room");
}

/// Bytes per one of `count` things that `add` adds, at the worst moment of all tables' growth
/// within a doubling.
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
            let Ok(Outcome::Done(published)) = outcome else {
                panic!("{outcome:?}");
            };
            assert!(published.handed <= 1);
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
    // The bytes of each, and the count that `Bytes` shares them by; the queue is reused.
    assert!(allocated.count_total <= 2 * 16, "{}", allocated.count_total);
    assert_eq!(tally.0, 2 * 16 * 5_000);
}

#[test]
fn a_channel_that_was_crowded_gives_its_memory_back() {
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
    // Slots are kept for the next ones; the list of the channel's own is not.
    let list_bytes = 20_000 * size_of::<u32>() as i64;
    assert!(
        left.bytes_current < -list_bytes * 9 / 10,
        "{}",
        left.bytes_current
    );
    assert!(subscribed.bytes_current > list_bytes);
    // Not at each step: that would move all that are left.
    assert!(left.count_total < 30, "{}", left.count_total);
}

#[test]
fn subscribers_that_come_and_go_while_publications_wait_take_no_memory() {
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
    let mut turns = |count: u32| {
        for _ in 0..count {
            for index in MOVING {
                assert!(hub.unsubscribe(session(index), channel, &mut tally));
            }
            for index in MOVING {
                subscribe(&mut hub, index, "news");
            }
            // The next one comes while the one before it goes out, so the queue is never empty.
            hub.sweep(1, &mut tally);
            publish(&mut hub, &mut tally);
            assert!(hub.sweep(STAYING as usize - 1, &mut tally));
        }
    };
    turns(0);
    let first = measure(|| turns(100)).bytes_current;
    let more = measure(|| turns(2_000)).bytes_current;
    assert!(
        first.abs() < 10_000 && more.abs() < 1_000,
        "{first}, then {more}"
    );
}
