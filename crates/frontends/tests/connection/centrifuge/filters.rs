//! Tests clients that filter publications by tags.

use serde_json::{Value, json};
use veche_proto::websocket::MessageKind;

use super::{ask, connect, take, world};
use crate::world::wire::{ServerMessage, message, server_messages};
use crate::world::{PUSH, Peer, World};

fn publish(world: &mut World, back_end: Peer, channel: &str, data: u32, tags: &Value) {
    let line = json!({ "channel": channel, "data": data, "tags": tags });
    assert!(world.ask(back_end, format!("{line}\n")).is_empty());
}

/// Connects and subscribes; returns the client and the reply to its subscribe command.
fn subscribe(world: &mut World, worker: usize, request: &Value) -> (Peer, Value) {
    let (peer, _) = connect(world, worker, "/centrifuge/named?user=ann", &json!({}));
    let command = json!({ "id": 2, "subscribe": request });
    let mut received = ask(world, peer, &command.to_string());
    assert_eq!(received.lines.len(), 1, "{received:?}");
    (peer, received.lines[0].take())
}

/// Returns the offset and the data of each publication received since the last call.
fn take_publications(world: &mut World, peer: Peer) -> Vec<(u64, u64)> {
    let received = take(world, peer);
    let publications = received.lines.iter().map(|line| &line["push"]["pub"]);
    publications.map(numbers).collect()
}

fn numbers(publication: &Value) -> (u64, u64) {
    let number = |name: &str| publication[name].as_u64().expect("a number");
    (number("data"), number("offset"))
}

fn only(side: &str) -> Value {
    json!({ "key": "side", "cmp": "eq", "val": side })
}

#[test]
fn subscribers_receive_only_matching_publications() {
    let mut world = world(3);
    let back_end = world.connect(0, PUSH);
    for channel in ["chat:1", "chat:2", "chat:3"] {
        let (all, _) = subscribe(&mut world, 0, &json!({ "channel": channel }));
        let filtered = |filter: Value| json!({ "channel": channel, "tf": filter });
        let (sell, _) = subscribe(&mut world, 1, &filtered(only("sell")));
        let not = json!({ "op": "not", "nodes": [only("sell")] });
        let (rest, _) = subscribe(&mut world, 2, &filtered(not));
        // The filter `side = sell` in Protobuf: a node with the fields `key`, `cmp` and `val`.
        let leaf = b"\x12\x04side\x1a\x02eq\x22\x04sell";
        let mut request = vec![0x0a, channel.len() as u8];
        request.extend_from_slice(channel.as_bytes());
        request.extend_from_slice(&[0x6a, leaf.len() as u8]);
        request.extend_from_slice(leaf);
        let command = [&[8, 2, 0x2a, request.len() as u8], &request[..]].concat();
        let both = [
            &b"\x04\x08\x01\x22\x00"[..],
            &[command.len() as u8],
            &command,
        ]
        .concat();
        let binary = world.open(2, "/centrifuge?cf_protocol=protobuf");
        world.ask(binary, message(MessageKind::Binary, &both));

        let sides = ["sell", "buy", "buy", "sell", ""];
        for (number, side) in (1..).zip(sides) {
            let tags = match side {
                "" => json!({}),
                side => json!({ "side": side, "n": "1" }),
            };
            publish(&mut world, back_end, channel, number, &tags);
        }
        let of = |numbers: &[u64]| -> Vec<_> { numbers.iter().map(|one| (*one, *one)).collect() };
        assert_eq!(take_publications(&mut world, all), of(&[1, 2, 3, 4, 5]));
        assert_eq!(take_publications(&mut world, sell), of(&[1, 4]));
        assert_eq!(take_publications(&mut world, rest), of(&[2, 3, 5]));
        let bytes = world.take(binary);
        let pushes = server_messages(&bytes);
        assert_eq!(pushes.len(), 2, "{pushes:?}");
        assert!(
            pushes
                .iter()
                .all(|one| matches!(one, ServerMessage::Binary(_)))
        );
        for peer in [all, sell, rest, binary] {
            world.reset(peer);
        }
    }
}

#[test]
fn recovered_publications_are_filtered_too() {
    let mut world = world(3);
    let back_end = world.connect(0, PUSH);
    for channel in ["chat:1", "chat:2", "chat:3"] {
        let (first, reply) = subscribe(&mut world, 0, &json!({ "channel": channel }));
        let epoch = &reply["subscribe"]["epoch"];
        for (number, side) in (1..).zip(["buy", "sell", "buy", "sell", "buy"]) {
            publish(
                &mut world,
                back_end,
                channel,
                number,
                &json!({ "side": side }),
            );
        }
        for (side, offset, expected) in [
            ("buy", 2, &[(3, 3), (5, 5)][..]),
            ("sell", 3, &[(4, 4)]),
            ("sell", 4, &[]),
            ("none", 2, &[]),
        ] {
            let request = json!({ "channel": channel, "tf": only(side), "recover": true, "offset": offset, "epoch": epoch });
            let (peer, reply) = subscribe(&mut world, 1, &request);
            let result = &reply["subscribe"];
            assert_eq!(result["recovered"], true, "{reply}");
            assert_eq!(result["offset"], 5, "{reply}");
            let missed = result["publications"].as_array().into_iter().flatten();
            assert_eq!(missed.map(numbers).collect::<Vec<_>>(), expected, "{reply}");
            world.reset(peer);
        }
        world.reset(first);
    }
}

#[test]
fn where_the_latest_counts_it_is_the_latest_that_passes() {
    let mut world = world(3);
    let back_end = world.connect(0, PUSH);
    for channel in ["price:1", "price:2", "price:3"] {
        for (number, side) in (1..).zip(["buy", "sell", "sell", "buy"]) {
            publish(
                &mut world,
                back_end,
                channel,
                number,
                &json!({ "side": side }),
            );
        }
        let mut epoch = Value::Null;
        for (filter, offset, is_whole, expected) in [
            (Value::Null, None, true, &[(4, 4)][..]),
            (only("buy"), None, true, &[(4, 4)]),
            (only("sell"), None, true, &[(3, 3)]),
            (only("none"), None, true, &[]),
            // The client's position is ahead of the channel and thus invalid, so it is unknown whether the client
            // missed matching publications.
            (only("sell"), Some(99), true, &[(3, 3)]),
            (only("none"), Some(99), false, &[]),
            // A client with a valid position receives no publication twice. If no missed publication matches, its
            // recovery is complete.
            (only("sell"), Some(1), true, &[(3, 3)]),
            (only("sell"), Some(2), true, &[(3, 3)]),
            (only("sell"), Some(3), true, &[]),
            (only("none"), Some(1), true, &[]),
        ] {
            let mut request = json!({ "channel": channel, "tf": filter, "recover": true });
            if let Some(offset) = offset {
                request["offset"] = json!(offset);
                request["epoch"] = epoch.clone();
            }
            let (peer, reply) = subscribe(&mut world, 1, &request);
            let result = &reply["subscribe"];
            epoch = result["epoch"].clone();
            assert_eq!(result["recovered"] == true, is_whole, "{reply}");
            let missed = result["publications"].as_array().into_iter().flatten();
            assert_eq!(missed.map(numbers).collect::<Vec<_>>(), expected, "{reply}");
            world.reset(peer);
        }
    }
}

#[test]
fn filters_that_may_not_be_are_refused() {
    let mut world = world(1);
    let good = only("buy");
    for (request, code) in [
        (json!({ "channel": "chat:1", "tf": good }), Value::Null),
        (json!({ "channel": "chat:1", "tf": null }), Value::Null),
        (json!({ "channel": "chat:1", "tf": {} }), json!(107)),
        (json!({ "channel": "chat:1", "tf": 7 }), json!(107)),
        (
            json!({ "channel": "chat:1", "tf": { "op": "and", "nodes": [good, {}] } }),
            json!(107),
        ),
        (
            json!({ "channel": "chat:1", "tf": good, "delta": "fossil" }),
            json!(107),
        ),
        // The namespace of this channel does not permit filters.
        (json!({ "channel": "open:1", "tf": good }), json!(107)),
        // A client that may not subscribe gets error 103 (permission denied), even if its filter is invalid.
        (json!({ "channel": "news", "tf": {} }), json!(103)),
    ] {
        let (peer, reply) = subscribe(&mut world, 0, &request);
        assert_eq!(reply["error"]["code"], code, "{request}: {reply}");
        world.reset(peer);
    }
}

#[test]
fn a_filter_ends_with_its_subscription() {
    let mut world = world(1);
    let back_end = world.connect(0, PUSH);
    let (ann, _) = connect(&mut world, 0, "/centrifuge/named?user=ann", &json!({}));
    let request = json!({ "channel": "chat:1", "tf": only("sell"), "join_leave": true });
    let received = ask(
        &mut world,
        ann,
        &json!({ "id": 2, "subscribe": request }).to_string(),
    );
    assert_eq!(received.lines[0]["error"], Value::Null, "{received:?}");
    take(&mut world, ann);
    let (bob, _) = connect(&mut world, 0, "/centrifuge/named?user=bob", &json!({}));
    ask(
        &mut world,
        bob,
        &json!({ "id": 2, "subscribe": { "channel": "chat:1" } }).to_string(),
    );
    let received = take(&mut world, ann);
    let user = &received.lines[0]["push"]["join"]["info"]["user"];
    assert_eq!(user, "bob", "{received:?}");
    publish(&mut world, back_end, "chat:1", 1, &json!({ "side": "buy" }));
    assert_eq!(take_publications(&mut world, ann), []);
    ask(
        &mut world,
        ann,
        &json!({ "id": 3, "unsubscribe": { "channel": "chat:1" } }).to_string(),
    );
    ask(
        &mut world,
        ann,
        &json!({ "id": 4, "subscribe": { "channel": "chat:1" } }).to_string(),
    );
    publish(&mut world, back_end, "chat:1", 2, &json!({ "side": "buy" }));
    assert_eq!(take_publications(&mut world, ann), [(2, 2)]);
}
