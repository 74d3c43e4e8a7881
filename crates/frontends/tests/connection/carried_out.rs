//! A call of the API is answered only after every worker concerned has executed it.

use serde_json::{Value, json};

use crate::world::wire::{handshake, post, responses, texts};
use crate::world::{INTERNAL, Options, PUBLIC, PUSH, Peer, World};

const WORKERS: usize = 3;

fn world(workers: usize) -> World {
    World::new(Options {
        workers: workers as u16,
        ..Options::default()
    })
}

/// Returns a channel whose home is on this worker.
fn channel_at(world: &World, worker: usize) -> String {
    (0..)
        .map(|n| format!("chat:{n}"))
        .find(|channel| world.home_of(channel) == worker)
        .expect("endless")
}

/// Sends a call, and runs single turns of the workers in this order until the answer is sent.
fn call(world: &mut World, caller: Peer, order: &[usize], method: &str, body: &Value) -> Value {
    world.send(
        caller,
        post(&format!("/api/{method}"), &body.to_string()).as_bytes(),
    );
    for _ in 0..100 {
        for worker in order {
            world.turn(*worker);
            let bytes = world.take(caller);
            if !bytes.is_empty() {
                return serde_json::from_str(&responses(&bytes)[0].body).expect("JSON");
            }
        }
    }
    panic!("{method} is not answered");
}

/// Runs turns until all workers are idle; returns the messages received since the last call.
fn take_output(world: &mut World, peer: Peer) -> Vec<String> {
    world.settle();
    texts(&world.take(peer))
}

/// Runs `check` for all combinations of the worker of the user's connection, the user's home, the
/// channel's home, and the caller's worker, each with two orders of turns. The publisher is on the
/// worker after the caller's.
fn everywhere(mut check: impl FnMut(&mut World, &str, &str, [usize; 3], &[usize])) {
    let orders = [[0, 1, 2], [2, 1, 0]];
    for user_home in 0..WORKERS {
        for channel_home in 0..WORKERS {
            for place in 0..WORKERS {
                for caller in 0..WORKERS {
                    for order in orders {
                        let mut world = world(WORKERS);
                        let user = world.user_at(user_home);
                        let channel = channel_at(&world, channel_home);
                        let publisher = (caller + 1) % WORKERS;
                        let places = [place, caller, publisher];
                        check(&mut world, &user, &channel, places, &order);
                    }
                }
            }
        }
    }
}

#[test]
fn subscribers_receive_publications_after_the_response() {
    everywhere(|world, user, channel, [place, caller, publisher], order| {
        let peer = world.open(place, &format!("/ws?user={user}"));
        let caller = world.connect(caller, INTERNAL);
        let publisher = world.connect(publisher, INTERNAL);
        let one = json!({ "user": user, "channel": channel });
        let answer = call(world, caller, order, "subscribe", &one);
        assert_eq!(answer, json!({ "result": {} }));
        let publication = json!({ "channel": channel, "data": "news" });
        let answer = call(world, publisher, order, "publish", &publication);
        assert_eq!(answer["result"]["handed"], 1, "{answer}");
        assert_eq!(take_output(world, peer), ["news"]);
    });
}

#[test]
fn removed_subscribers_receive_nothing_after_the_response() {
    for method in ["unsubscribe", "disconnect", "refresh"] {
        everywhere(|world, user, channel, [place, caller, publisher], order| {
            let peer = world.open(place, &format!("/newest?user={user}&channel={channel}"));
            let other = world.open(place, "/ws?user=other");
            let caller = world.connect(caller, INTERNAL);
            let publisher = world.connect(publisher, INTERNAL);
            let mut body = json!({ "user": user });
            match method {
                "unsubscribe" => body["channel"] = json!(channel),
                "refresh" => body["expired"] = json!(true),
                _ => {}
            }
            take_output(world, peer);
            let answer = call(world, caller, order, method, &body);
            match method {
                "disconnect" => assert_eq!(answer, json!({ "result": { "disconnected": 1 } })),
                _ => assert_eq!(answer, json!({ "result": {} })),
            }
            let publication = json!({ "channel": channel, "data": "secret" });
            let answer = call(world, publisher, order, "publish", &publication);
            assert_eq!(answer["result"]["handed"], 0, "{method}: {answer}");
            world.settle();
            let bytes = world.take(peer);
            let has_secret = bytes.windows(6).any(|part| part == b"secret");
            assert!(!has_secret, "{method}: it hears what it may not");
            assert!(world.is_open(other));
        });
    }
}

/// Worker 0 is the user's home and handles the handshake. Worker 1, the channel's home, runs no turns, so the
/// registration stays pending.
#[test]
fn a_handshake_that_is_disconnected_while_it_registers_is_subscribed_to_nothing() {
    let mut world = world(2);
    let (user, channel) = (world.user_at(0), channel_at(&world, 1));
    let peer = world.connect(0, PUBLIC);
    let target = format!("/newest?user={user}&channel={channel}");
    world.send(peer, handshake(&target, "").as_bytes());
    while world.turn(0) {}
    let subscriptions = |world: &World| world.workers[0].shared().hub.gauges().subscriptions;
    assert_eq!(subscriptions(&world), 2, "its own channel and that one");
    let caller = world.connect(0, INTERNAL);
    let body = json!({ "user": user });
    let answer = call(&mut world, caller, &[0, 1], "disconnect", &body);
    assert_eq!(answer, json!({ "result": { "disconnected": 1 } }));
    assert_eq!(subscriptions(&world), 0);
    assert_eq!(responses(&world.take(peer))[0].status, 503);
}

#[test]
fn in_a_batch_each_command_sees_what_those_before_it_have_done() {
    for workers in [1, WORKERS] {
        for caller in 0..workers {
            let mut world = world(workers);
            let caller = world.connect(caller, INTERNAL);
            for place in 0..workers {
                let user = format!("ann{place}");
                let channel = format!("room:{place}");
                let peer = world.open(place, &format!("/ws?user={user}"));
                let one = json!({ "user": user, "channel": channel });
                let say = |data: &str| json!({ "publish": { "channel": channel, "data": data } });
                let order = &[0, 1, 2][..workers];
                // A publication is answered once it has been sent to the subscribers' workers, so
                // subscribers receive it before the next batch affects them.
                let batches = [
                    (
                        json!([say("early"), { "subscribe": one }, say("one"), say("two")]),
                        &[0, 1, 1][..],
                        &["one", "two"][..],
                    ),
                    (
                        json!([{ "unsubscribe": one }, say("secret"), { "subscribe": one }, say("three")]),
                        &[0, 1],
                        &["three"],
                    ),
                    (
                        json!([{ "disconnect": { "user": user } }, say("secret"), { "user_status": { "user": user } }]),
                        &[0],
                        &["3503"],
                    ),
                ];
                for (commands, handed, received) in batches {
                    let body = json!({ "commands": commands });
                    let answer = call(&mut world, caller, order, "batch", &body);
                    let replies = answer["replies"].as_array().expect("replies").iter();
                    let all: Vec<_> = replies
                        .filter_map(|reply| reply["publish"]["handed"].as_u64())
                        .collect();
                    assert_eq!(all, handed, "{answer}");
                    if received == ["3503"] {
                        assert_eq!(answer["replies"][0]["disconnect"]["disconnected"], 1);
                        assert_eq!(answer["replies"][2]["user_status"]["online"], false);
                    }
                    world.settle();
                    let messages = crate::world::wire::server_messages(&world.take(peer));
                    let messages: Vec<_> = messages.iter().map(|one| format!("{one:?}")).collect();
                    assert_eq!(messages.len(), received.len(), "{messages:?}");
                    for (message, expected) in messages.iter().zip(received) {
                        assert!(message.contains(expected), "{message}");
                    }
                }
            }
        }
    }
}

#[test]
fn publications_of_a_batch_are_pipelined() {
    let mut world = world(2);
    let caller = world.connect(0, INTERNAL);
    let channel = channel_at(&world, 1);
    let say = json!({ "publish": { "channel": channel, "data": 1 } });
    let body = json!({ "commands": vec![say; 100] }).to_string();
    world.send(caller, post("/api/batch", &body).as_bytes());
    // Worker 0 sends all publications, worker 1 (the channel's home) answers all, and worker 0 writes the response:
    // three turns.
    world.turn(0);
    world.turn(1);
    world.turn(0);
    let answer = responses(&world.take(caller));
    assert_eq!(answer.len(), 1);
    let answer: Value = serde_json::from_str(&answer[0].body).expect("JSON");
    assert_eq!(answer["replies"][99]["publish"]["offset"], 100);
}

#[test]
fn a_caller_that_disconnects_leaves_no_state() {
    let mut world = world(WORKERS);
    let user = world.user_at(1);
    let peer = world.open(2, &format!("/ws?user={user}&channel=room:1"));
    let caller = world.connect(0, INTERNAL);
    let body = json!({ "commands": [
        { "unsubscribe": { "user": user, "channel": "room:1" } },
        { "subscribe": { "user": user, "channel": "room:2" } },
    ] });
    world.send(caller, post("/api/batch", &body.to_string()).as_bytes());
    world.turn(0);
    world.reset(caller);
    // When the answers arrive, another connection has the index of the closed one. It must not receive them.
    let next = world.connect(0, INTERNAL);
    let answer = world.ask(next, post("/api/presence_stats", r#"{"channel":"chat:1"}"#));
    assert_eq!(responses(&answer).len(), 1);
    world.settle();
    let back_end = world.connect(0, PUSH);
    for (channel, data) in [("room:1", "gone"), ("room:2", "never reached")] {
        let line = json!({ "channel": channel, "data": data });
        world.ask(back_end, format!("{line}\n"));
    }
    assert!(
        take_output(&mut world, peer).is_empty(),
        "the first was carried out alone"
    );
    world.reset_all();
    world.settle();
    world.check_empty();
}
