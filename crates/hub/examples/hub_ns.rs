//! Measures the hub's time per publication to a user and per delivery of a fan-out, in nanoseconds.
//!
//! `cargo run --profile bench -p veche-hub --example hub_ns`

#[path = "../../../tests/now.rs"]
mod now;

use std::hint::black_box;

use std::sync::Arc;

use veche_hub::{
    Caller, ChannelName, ConnectionId, Delivery, Hub, HubMessage, HubMessageClass, HubReply,
    Options, Outlet, PayloadKind, PayloadRef, SubscribeOptions, Ticket, UserCommand, WorkerId,
};

use now::now;

/// Number of measured rounds. A round is shorter than a time slice of the scheduler, so most rounds are not interrupted
/// even on a busy machine.
const ROUNDS: usize = 301;

/// Accepts deliveries and does almost nothing with them.
#[derive(Default)]
struct Sink(u64);

impl Outlet for Sink {
    fn send_message(&mut self, _: WorkerId, _: HubMessage) {}
    fn has_credit(&self, _: WorkerId, _: HubMessageClass) -> bool {
        true
    }
    fn return_credit(&mut self, _: WorkerId, _: HubMessageClass) {}
    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        self.0 += u64::from(session.index) + delivery.payload.bytes.len() as u64;
    }
    fn send_reply(&mut self, _: ConnectionId, _: Ticket, _: HubReply) {}
    fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}
    fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
}

/// Runs the rounds and returns the median time per item, in nanoseconds; a round processes `count` items.
fn ns_each(count: usize, mut round: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = now();
            round();
            begun.elapsed().as_nanos() as f64 / count as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn hub_with(subscribers: u32, name: impl Fn(u32) -> String) -> Hub {
    let mut hub = Hub::new(WorkerId(0), 1, 42, Options::default());
    for index in 0..subscribers {
        let session = ConnectionId {
            index,
            generation: 1,
        };
        let name = name(index);
        let name = ChannelName::new(&name).expect("a valid name");
        hub.subscribe(
            session,
            name,
            Ticket(0),
            &SubscribeOptions::default(),
            &mut Sink::default(),
        )
        .expect("there is room");
    }
    hub
}

fn main() {
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: &[b'x'; 128],
    };
    let mut sink = Sink::default();

    let mut random = fastrand::Rng::with_seed(1);
    for count in [100, 10_000] {
        let mut hub = hub_with(count, |index| format!("#user-{index:010}"));
        // The names are adjacent in memory, like payloads in received bytes.
        let names: String = (0..count)
            .map(|index| format!("user-{index:010}"))
            .collect();
        let users: Vec<&str> = (0..4_000)
            .map(|_| {
                let begin = 15 * random.usize(..count as usize);
                &names[begin..begin + 15]
            })
            .collect();
        let mut buffer = String::with_capacity(64);
        let ns = ns_each(users.len(), || {
            for user in &users {
                let name = ChannelName::of_user(user, &mut buffer).expect("a valid name");
                black_box(hub.publish(None, name, payload, None, &mut sink))
                    .expect("there is room");
            }
        });
        println!("publish to one of {count} users, its name spelled and checked: {ns:.1} ns");
    }

    for subscribers in [1_000, 5_000] {
        for burst in [1, 16] {
            let mut hub = hub_with(subscribers, |_| "news".to_owned());
            let name = ChannelName::new("news").expect("a valid name");
            let publications = 16;
            let ns = ns_each(publications * subscribers as usize, || {
                for _ in 0..publications / burst {
                    for _ in 0..burst {
                        hub.publish(None, name, payload, None, &mut sink)
                            .expect("there is room");
                    }
                    while hub.sweep(1_000, &mut sink) {}
                }
            });
            println!("fan-out to {subscribers} in bursts of {burst}: {ns:.2} ns per delivery");
        }
    }

    let sessions = 10_000_u32;
    let mut hub = hub_with(0, |_| String::new());
    let name = ChannelName::new("news").expect("a valid name");
    let mut generation = 0;
    let ns = ns_each(sessions as usize, || {
        generation += 1;
        for index in 0..sessions {
            let session = ConnectionId { index, generation };
            hub.subscribe(
                session,
                name,
                Ticket(0),
                &SubscribeOptions::default(),
                &mut sink,
            )
            .expect("there is room");
        }
        for index in 0..sessions {
            hub.close(ConnectionId { index, generation }, &mut sink);
        }
    });
    println!("subscribe and close, {sessions} in one channel: {ns:.1} ns");
    black_box(sink.0);
}
