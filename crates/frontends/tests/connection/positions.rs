//! Tests clients that receive their positions in channels and recover from them.

use serde_json::{Value, json};

use crate::world::wire::{handshake, post, response, responses, texts};
use crate::world::{INTERNAL, Options, PUSH, Peer, World};

fn world() -> World {
    World::new(Options {
        workers: 3,
        ..Options::default()
    })
}

/// Opens a client's WebSocket; returns it with its first messages.
fn open(world: &mut World, worker: usize, query: &str) -> (Peer, Vec<Value>) {
    let peer = world.connect(worker, crate::world::PUBLIC);
    let target = format!("/positions?user=ann&{query}");
    let bytes = world.ask(peer, handshake(&target, ""));
    let (response, rest) = response(&bytes, true);
    assert_eq!(response.status, 101, "{}", response.body);
    (peer, values(rest))
}

fn take_output(world: &mut World, peer: Peer) -> Vec<Value> {
    world.settle();
    values(&world.take(peer))
}

/// Returns the messages as JSON, except those about the personal channel, which has no history.
fn values(bytes: &[u8]) -> Vec<Value> {
    let value = |text: &String| serde_json::from_str(text).expect("JSON");
    let values = texts(bytes).iter().map(value).collect::<Vec<Value>>();
    values
        .into_iter()
        .filter(|one| one["subscribed"] != "#ann")
        .collect()
}

fn publish(world: &mut World, back_end: Peer, channel: &str, data: u32) {
    let line = format!("{{\"channel\":\"{channel}\",\"data\":{data}}}\n");
    assert!(world.ask(back_end, line).is_empty());
}

fn call(world: &mut World, path: &str, body: &Value) -> Value {
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(caller, post(path, &body.to_string()));
    let answer = &responses(&answer)[0];
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

/// Returns the position in a message, as `EPOCH:OFFSET`.
fn position(message: &Value) -> String {
    message["position"].as_str().expect("a position").to_owned()
}

fn at(position: &str, offset: u64) -> String {
    let (epoch, _) = position.split_once(':').expect("a position");
    format!("{epoch}:{offset}")
}

#[test]
fn recovered_publications_come_first_and_once_on_any_worker() {
    for worker in 0..3 {
        let mut world = world();
        let back_end = world.connect(1, PUSH);
        let (client, joined) = open(&mut world, worker, "channel=chat:1");
        let start = position(&joined[0]);
        assert_eq!(
            joined,
            [json!({ "subscribed": "chat:1", "position": at(&start, 0) })]
        );
        publish(&mut world, back_end, "chat:1", 1);
        let messages = take_output(&mut world, client);
        let first = json!({ "channel": "chat:1", "position": at(&start, 1), "data": 1 });
        assert_eq!(messages, [first]);
        world.reset(client);
        world.settle();

        publish(&mut world, back_end, "chat:1", 2);
        publish(&mut world, back_end, "chat:1", 3);
        let query = format!("channel=chat:1&since={}", at(&start, 1));
        let (client, messages) = open(&mut world, (worker + 1) % 3, &query);
        let data =
            |offset| json!({ "channel": "chat:1", "position": at(&start, offset), "data": offset });
        let joined =
            json!({ "subscribed": "chat:1", "position": at(&start, 1), "recovered": true });
        assert_eq!(messages, [joined, data(2), data(3)]);
        publish(&mut world, back_end, "chat:1", 4);
        assert_eq!(take_output(&mut world, client), [data(4)]);
        let recovered = |world: &World| {
            (0..3)
                .map(|w| world.stats(w).recoveries[0].read())
                .sum::<u64>()
        };
        assert_eq!(recovered(&world), 1);
    }
}

#[test]
fn an_incomplete_recovery_is_reported() {
    let mut world = world();
    let back_end = world.connect(0, PUSH);
    let (_, joined) = open(&mut world, 0, "channel=chat:1");
    let start = position(&joined[0]);
    for number in 1..=5 {
        publish(&mut world, back_end, "chat:1", number);
    }
    for since in [at(&start, 1), at(&start, 6), "00000000:5".to_owned()] {
        let query = format!("channel=chat:1&since={since}");
        let (_, messages) = open(&mut world, 1, &query);
        let lost = json!({ "subscribed": "chat:1", "position": at(&start, 5), "recovered": false });
        assert_eq!(messages, [lost], "{since}");
    }
    // A minute later the publications have expired, and only the position of the channel is left.
    world.advance(60_000);
    let (_, messages) = open(
        &mut world,
        2,
        &format!("channel=chat:1&since={}", at(&start, 5)),
    );
    assert_eq!(messages[0]["recovered"], true);
    let (_, messages) = open(
        &mut world,
        2,
        &format!("channel=chat:1&since={}", at(&start, 4)),
    );
    assert_eq!(messages[0]["recovered"], false);
}

#[test]
fn positions_find_their_channels_by_themselves() {
    let mut world = world();
    let back_end = world.connect(0, PUSH);
    let channels = "channel=chat:1&channel=chat:2&channel=price:1&channel=plain";
    let (client, joined) = open(&mut world, 0, channels);
    // The fourth channel has no history, so the client gets no position in it.
    assert_eq!(joined.len(), 3, "{joined:?}");
    for number in 1..=3 {
        for channel in ["chat:1", "chat:2", "price:1", "plain"] {
            publish(&mut world, back_end, channel, number);
        }
    }
    let messages = take_output(&mut world, client);
    assert_eq!(messages.len(), 12);
    let plain = messages.iter().find(|one| one["channel"] == "plain");
    assert_eq!(plain, Some(&json!({ "channel": "plain", "data": 1 })));
    let since: Vec<String> = joined
        .iter()
        .rev()
        .map(|one| format!("&since={}", position(one)))
        .collect();
    let (_, messages) = open(&mut world, 1, &format!("{channels}{}", since.concat()));
    let of = |channel: &str| -> Vec<&Value> {
        let data = messages.iter().filter(|one| one["channel"] == channel);
        data.map(|one| &one["data"]).collect()
    };
    assert_eq!(of("chat:1"), [1, 2, 3]);
    assert_eq!(of("chat:2"), [1, 2, 3]);
    assert_eq!(of("price:1"), [3]);
    // In a channel without history nothing is recovered.
    let plain = json!({ "subscribed": "plain", "recovered": false });
    assert!(messages.contains(&plain), "{messages:?}");
    assert_eq!(messages.len(), 11, "{messages:?}");
}

#[test]
fn invalid_and_unsupported_positions_are_rejected() {
    let mut world = world();
    for (target, why) in [
        (
            "/positions?user=ann&since=7",
            "since: a position is an epoch and an offset",
        ),
        ("/positions?user=ann&since=", "since: a position is"),
        (
            "/ws?user=ann&since=28t5cy4t:1",
            "since: this route sends no positions",
        ),
    ] {
        let peer = world.connect(0, crate::world::PUBLIC);
        let answer = world.ask(peer, handshake(target, ""));
        let answer = &responses(&answer)[0];
        assert_eq!(answer.status, 400, "{target}");
        assert!(answer.body.contains(why), "{}", answer.body);
    }
    let many = "&since=28t5cy4t:1".repeat(34);
    let peer = world.connect(0, crate::world::PUBLIC);
    let answer = world.ask(peer, handshake(&format!("/positions?user=ann{many}"), ""));
    assert_eq!(responses(&answer)[0].status, 400);
}

#[test]
fn all_payload_kinds_carry_their_position() {
    let mut world = world();
    let back_end = world.connect(0, PUSH);
    let (client, _) = open(&mut world, 0, "channel=chat:1");
    for (line, key, expected) in [
        (r#""data":{"a":1}"#, "data", json!({ "a": 1 })),
        (r#""data":"say \"hi\"""#, "data", json!("say \"hi\"")),
        (r#""binary":"AP8=""#, "base64", json!("AP8=")),
    ] {
        world.ask(back_end, format!("{{\"channel\":\"chat:1\",{line}}}\n"));
        let messages = take_output(&mut world, client);
        assert_eq!(messages[0][key], expected);
    }
}

#[test]
fn the_back_end_reads_and_removes_history() {
    let mut world = world();
    for channel in ["chat:1", "chat:2", "chat:3", "chat:4"] {
        let mut epoch = Value::Null;
        for offset in 1..=4 {
            let answer = call(
                &mut world,
                "/api/publish",
                &json!({ "channel": channel, "data": { "n": offset } }),
            );
            let result = &answer["result"];
            assert_eq!(
                (&result["handed"], &result["offset"]),
                (&json!(0), &json!(offset))
            );
            epoch = result["epoch"].clone();
        }
        let history = |world: &mut World, more: Value| {
            let mut body = json!({ "channel": channel });
            body.as_object_mut()
                .expect("one")
                .extend(more.as_object().expect("one").clone());
            call(world, "/api/history", &body)["result"].take()
        };
        let offsets = |page: &Value| -> Vec<u64> {
            let publications = page["publications"].as_array().expect("a list");
            publications
                .iter()
                .map(|one| one["offset"].as_u64().expect("a number"))
                .collect()
        };
        let page = history(&mut world, json!({ "limit": -1 }));
        assert_eq!(offsets(&page), [2, 3, 4]);
        assert_eq!(page["publications"][0]["data"], json!({ "n": 2 }));
        assert_eq!((&page["offset"], &page["epoch"]), (&json!(4), &epoch));
        let since = json!({ "limit": 1, "since": { "offset": 2, "epoch": epoch } });
        assert_eq!(offsets(&history(&mut world, since)), [3]);
        let back = json!({ "limit": 2, "reverse": true });
        assert_eq!(offsets(&history(&mut world, back)), [4, 3]);
        assert_eq!(offsets(&history(&mut world, json!({}))), [0; 0]);

        let foreign = json!({ "channel": channel, "since": { "offset": 2, "epoch": "zzzzzzzz" } });
        assert_eq!(
            call(&mut world, "/api/history", &foreign)["error"]["code"],
            112
        );
        let removed = call(
            &mut world,
            "/api/history_remove",
            &json!({ "channel": channel }),
        );
        assert_eq!(removed, json!({ "result": {} }));
        let page = history(&mut world, json!({ "limit": -1 }));
        assert_eq!((offsets(&page), &page["offset"]), (vec![], &json!(4)));
    }
    for path in ["/api/history", "/api/history_remove"] {
        let answer = call(&mut world, path, &json!({ "channel": "plain" }));
        assert_eq!(answer["error"]["code"], 108, "{answer}");
        let answer = call(&mut world, path, &json!({ "chanel": "plain" }));
        assert_eq!(answer["error"]["code"], 107, "{answer}");
    }
}

#[test]
fn repeated_and_outdated_publications_are_skipped() {
    let mut world = world();
    for channel in ["chat:1", "chat:2", "chat:3", "chat:4"] {
        let mut publish = |more: Value| {
            let mut body = json!({ "channel": channel, "data": 1 });
            body.as_object_mut()
                .expect("one")
                .extend(more.as_object().expect("one").clone());
            call(&mut world, "/api/publish", &body)["result"]["offset"].take()
        };
        assert_eq!(publish(json!({ "idempotency_key": "a" })), 1);
        assert_eq!(publish(json!({ "idempotency_key": "a" })), 1);
        assert_eq!(publish(json!({ "idempotency_key": "b" })), 2);
        assert_eq!(publish(json!({ "version": 5 })), 3);
        assert_eq!(publish(json!({ "version": 4 })), 3);
        assert_eq!(publish(json!({ "version": 1, "version_epoch": "new" })), 4);
        assert_eq!(publish(json!({ "skip_history": true })), Value::Null);
        assert_eq!(publish(json!({})), 5);
    }
    for bad in [
        json!({ "idempotency_key": "" }),
        json!({ "version_epoch": "a" }),
        json!({ "version": -1 }),
        json!({ "version": 1, "skip_history": true }),
    ] {
        let mut body = json!({ "channel": "chat:1", "data": 1 });
        body.as_object_mut()
            .expect("one")
            .extend(bad.as_object().expect("one").clone());
        assert_eq!(
            call(&mut world, "/api/publish", &body)["error"]["code"],
            107
        );
    }
}

/// If the missed publications of a channel do not fit into the outbox, its recovery is incomplete. Other channels
/// are recovered completely. A client that retries gets the same result.
#[test]
fn a_recovery_too_large_for_the_outbox_is_reported_as_lost() {
    for worker in 0..3 {
        let mut world = World::new(Options {
            workers: 3,
            outbox_bytes: 40_000,
            ..Options::default()
        });
        let back_end = world.connect(0, PUSH);
        let channels = "channel=chat:1&channel=chat:2&channel=chat:3";
        let (_, joined) = open(&mut world, 0, channels);
        let since: Vec<String> = joined
            .iter()
            .map(|one| format!("&since={}", position(one)))
            .collect();
        let large = "x".repeat(20_000);
        for _ in 0..3 {
            for (channel, data) in [("chat:1", "small"), ("chat:2", &large), ("chat:3", "small")] {
                let body = json!({ "channel": channel, "data": data });
                call(&mut world, "/api/publish", &body);
            }
        }
        let query = format!("{channels}{}", since.concat());
        for _ in 0..2 {
            let (client, messages) = open(&mut world, worker, &query);
            for (channel, count) in [("chat:1", 3), ("chat:2", 0), ("chat:3", 3)] {
                let joined = messages.iter().find(|one| one["subscribed"] == channel);
                assert_eq!(joined.expect("told")["recovered"], count > 0, "{channel}");
                let data = messages.iter().filter(|one| one["channel"] == channel);
                assert_eq!(data.count(), count, "{channel}");
            }
            world.ask(back_end, "{\"channel\":\"chat:2\",\"data\":1}\n");
            let live = take_output(&mut world, client);
            assert_eq!((live.len(), &live[0]["data"]), (1, &json!(1)));
        }
    }
}
