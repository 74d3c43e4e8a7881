//! Clients of Centrifugo's protocol: replies and their order, and the ends of sessions.

mod audience;
mod bound;
mod claims;
mod deadlines;
mod decided;
mod deltas;
mod filters;
mod granted;
mod in_address;
mod long_answers;
mod long_requests;
mod looked_up;
mod lost;
mod members;
mod numbers;
mod one_way;
mod paced;
mod streams;
mod tokens;
mod waits;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};
use veche_frontends::ConnectionLimits;

use crate::world::wire::{
    ServerMessage, close, handshake, message, response, server_messages, text,
};
use crate::world::{Options, PUBLIC, PUSH, Peer, SECRET, World};

const CONNECT: &str = r#"{"id":1,"connect":{}}"#;

fn world(workers: u16) -> World {
    World::new(Options {
        workers,
        ..Options::default()
    })
}

/// The output that a client received: the lines of its messages, and the code and reason of a close.
#[derive(Debug, Default, PartialEq)]
struct Received {
    frames: usize,
    lines: Vec<Value>,
    closed: Option<(u16, String)>,
}

fn parse_output(bytes: &[u8]) -> Received {
    let mut received = Received::default();
    for message in server_messages(bytes) {
        match message {
            ServerMessage::Text(text) => {
                received.frames += 1;
                let lines = text.split('\n');
                let lines = lines.map(|line| serde_json::from_str(line).expect("JSON"));
                received.lines.extend(lines);
            }
            ServerMessage::Close(code, reason) => {
                received.closed = Some((code.expect("a code"), reason))
            }
            other => panic!("neither text nor close: {other:?}"),
        }
    }
    received
}

fn ask(world: &mut World, peer: Peer, commands: &str) -> Received {
    let bytes = world.ask(peer, text(commands));
    parse_output(&bytes)
}

fn take(world: &mut World, peer: Peer) -> Received {
    world.settle();
    parse_output(&world.take(peer))
}

/// Opens a session and connects; returns it with the reply to its connect command.
fn connect(world: &mut World, worker: usize, target: &str, connect: &Value) -> (Peer, Value) {
    let peer = world.open(worker, target);
    let command = json!({ "id": 1, "connect": connect });
    let mut received = ask(world, peer, &command.to_string());
    assert_eq!(
        (received.lines.len(), &received.closed),
        (1, &None),
        "{received:?}"
    );
    assert_eq!(received.lines[0]["id"], 1);
    (peer, received.lines[0]["connect"].take())
}

fn ann(world: &mut World, worker: usize) -> Peer {
    connect(world, worker, "/centrifuge/named?user=ann", &json!({})).0
}

fn publish(world: &mut World, back_end: Peer, channel: &str, data: u32) {
    let line = format!("{{\"channel\":\"{channel}\",\"data\":{data}}}\n");
    assert!(world.ask(back_end, line).is_empty());
}

pub(super) fn token(claims: &Value) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Returns the time this many seconds from now, in seconds since 1970, by the clock of the test's world.
pub(super) fn in_seconds(world: &World, seconds: u64) -> u64 {
    (1_800_000_000_000 + world.now_ms) / 1000 + seconds
}

#[test]
fn invalid_commands_close_the_session_with_their_code() {
    let bad = (3501, "bad request".to_owned());
    for (frames, expected) in [
        (&["{"][..], Some(&bad)),
        (&[""], Some(&bad)),
        (&[r#"{"id":1,"ping":{}}"#], Some(&bad)),
        (
            &[r#"{"id":1,"subscribe":{"channel":"open:1"}}"#],
            Some(&bad),
        ),
        (&["{}"], Some(&bad)),
        (&[CONNECT, CONNECT], Some(&bad)),
        (&[CONNECT, r#"{"id":2}"#], Some(&bad)),
        (&[CONNECT, r#"{"id":2,"rpc":{},"ping":{}}"#], Some(&bad)),
        (&[CONNECT, r#"{"ping":{}}"#], Some(&bad)),
        (&[CONNECT, r#"{"id":-1,"ping":{}}"#], Some(&bad)),
        (&[CONNECT, r#"{"id":2,"subscribe":[]}"#], Some(&bad)),
        (
            &[CONNECT, r#"{"id":2,"subscribe":{"channel":7}}"#],
            Some(&bad),
        ),
        (
            &[CONNECT, r#"{"send":{"data":1}}"#],
            Some(&(3508, "not available".to_owned())),
        ),
        (&[CONNECT, "{}"], None),
        (&[CONNECT, r#"{"id":2,"ping":{}}"#], None),
    ] {
        let mut world = world(1);
        let peer = world.open(0, "/centrifuge");
        for frame in frames {
            world.send(peer, &text(frame));
        }
        let received = take(&mut world, peer);
        assert_eq!(received.closed.as_ref(), expected, "{frames:?}");
    }
}

#[test]
fn commands_that_fail_say_why() {
    let mut world = world(3);
    let peer = ann(&mut world, 0);
    let mut subscribed = vec!["open:1", "chat:1", "open:x#bob,ann"];
    let joins = subscribed.iter().enumerate().map(|(number, channel)| {
        json!({ "id": 100 + number, "subscribe": { "channel": channel } }).to_string()
    });
    let joins = joins.collect::<Vec<_>>().join("\n");
    let joined = ask(&mut world, peer, &joins);
    assert!(joined.lines.iter().all(|line| line["error"] == Value::Null));
    subscribed.push("#ann");
    let long = "x".repeat(256);
    for (command, code) in [
        (json!({ "subscribe": { "channel": "open:1" } }), 105),
        (json!({ "subscribe": { "channel": "#ann" } }), 105),
        (json!({ "subscribe": { "channel": "" } }), 102),
        (json!({ "subscribe": { "channel": long } }), 107),
        (json!({ "subscribe": { "channel": "a\u{1}" } }), 102),
        (json!({ "subscribe": { "channel": "news" } }), 103),
        (json!({ "subscribe": { "channel": "token:1" } }), 103),
        (json!({ "subscribe": { "channel": "open:$1" } }), 103),
        (json!({ "subscribe": { "channel": "open:1#bob" } }), 103),
        (json!({ "subscribe": { "channel": "#bob" } }), 103),
        // The route of this client does not use tokens.
        (
            json!({ "subscribe": { "channel": "token:1", "token": "x" } }),
            103,
        ),
        (
            json!({ "subscribe": { "channel": "open:2", "type": 1 } }),
            108,
        ),
        (
            json!({ "subscribe": { "channel": "open:2", "tf": {} } }),
            107,
        ),
        (json!({ "unsubscribe": { "channel": "#ann" } }), 103),
        (json!({ "unsubscribe": { "channel": "" } }), 102),
        (
            json!({ "publish": { "channel": "chat:2", "data": 1 } }),
            103,
        ),
        (json!({ "publish": { "channel": "news", "data": 1 } }), 103),
        (json!({ "publish": { "channel": "#bob", "data": 1 } }), 103),
        (json!({ "publish": { "channel": "open:1" } }), 107),
        (json!({ "history": { "channel": "open:1" } }), 108),
        (json!({ "history": { "channel": "open:2" } }), 108),
        (json!({ "history": { "channel": "news" } }), 108),
        (json!({ "history": { "channel": long } }), 107),
        (json!({ "history": { "channel": "chat:2" } }), 103),
        (
            json!({ "history": { "channel": "chat:1", "since": { "offset": 1, "epoch": "x" } } }),
            112,
        ),
        (json!({ "presence": { "channel": "chat:2" } }), 103),
        (json!({ "presence": { "channel": "open:1" } }), 108),
        (json!({ "presence": { "channel": "open:2" } }), 108),
        (json!({ "presence_stats": { "channel": "news" } }), 108),
        (json!({ "presence_stats": { "channel": "chat:2" } }), 103),
        (json!({ "presence_stats": { "channel": "open:1" } }), 108),
        (json!({ "rpc": { "method": "m" } }), 108),
        (json!({ "refresh": { "token": "t" } }), 108),
        (
            json!({ "sub_refresh": { "channel": "chat:2", "token": "t" } }),
            103,
        ),
        (
            json!({ "sub_refresh": { "channel": "chat:1", "token": "t" } }),
            107,
        ),
    ] {
        let mut command = command;
        command["id"] = json!(7);
        let received = ask(&mut world, peer, &command.to_string());
        assert_eq!(received.closed, None, "{command}");
        assert_eq!(received.lines.len(), 1, "{command}");
        assert_eq!(
            (
                &received.lines[0]["id"],
                &received.lines[0]["error"]["code"]
            ),
            (&json!(7), &json!(code)),
            "{command}"
        );
    }
    // An unsubscribe command succeeds even if the client is not subscribed to the channel.
    let received = ask(
        &mut world,
        peer,
        r#"{"id":8,"unsubscribe":{"channel":"nowhere"}}"#,
    );
    assert_eq!(received.lines, [json!({ "id": 8, "unsubscribe": {} })]);
    let many: Vec<String> = (0..128)
        .map(|n| {
            json!({ "id": n + 1, "subscribe": { "channel": format!("open:n{n}") } }).to_string()
        })
        .collect();
    let received = ask(&mut world, peer, &many.join("\n"));
    let refused = |line: &&Value| line["error"]["code"] == 106;
    assert_eq!(received.lines.iter().filter(refused).count(), 4);
    let ids: Vec<u64> = received
        .lines
        .iter()
        .filter_map(|line| line["id"].as_u64())
        .collect();
    assert_eq!(ids, (1..=128).collect::<Vec<u64>>());
}

#[test]
fn several_commands_are_answered_in_order_and_here_in_one_frame() {
    for workers in [1, 3] {
        let mut world = world(workers);
        let peer = world.open(0, "/centrifuge/named?user=ann");
        let commands = [
            CONNECT,
            r#"{"id":2,"subscribe":{"channel":"chat:1"}}"#,
            r#"{"id":3,"subscribe":{"channel":"chat:2"}}"#,
            r#"{"id":4,"subscribe":{"channel":"chat:3"}}"#,
            r#"{"id":5,"history":{"channel":"chat:1"}}"#,
            r#"{"id":6,"unsubscribe":{"channel":"chat:1"}}"#,
            r#"{"id":7,"subscribe":{"channel":"chat:1"}}"#,
            r#"{"id":8,"ping":{}}"#,
        ];
        let received = ask(&mut world, peer, &commands.join("\n"));
        let ids: Vec<u64> = received
            .lines
            .iter()
            .filter_map(|line| line["id"].as_u64())
            .collect();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8], "{received:?}");
        assert!(
            received
                .lines
                .iter()
                .all(|line| line["error"] == Value::Null)
        );
        if workers == 1 {
            // The reply to the connect command is in a frame of its own, before the other replies.
            assert_eq!(received.frames, 2);
        }
        let (back_end, before) = (world.connect(0, PUSH), 3);
        publish(&mut world, back_end, "chat:1", before);
        let push = &take(&mut world, peer).lines[0]["push"];
        assert_eq!(push["pub"], json!({ "data": 3, "offset": 1 }));
    }
}

#[test]
fn a_client_sees_its_own_join_after_the_subscribe_reply() {
    for worker in 0..3 {
        let mut world = world(3);
        let peer = ann(&mut world, worker);
        let commands = "{\"id\":2,\"subscribe\":{\"channel\":\"chat:1\"}}\n\
            {\"id\":3,\"publish\":{\"channel\":\"chat:1\",\"data\":{\"a\":1}}}";
        let received = ask(&mut world, peer, commands);
        assert_eq!(received.lines.len(), 3, "{received:?}");
        assert_eq!(received.lines[0]["id"], 2);
        let of = |key: &str| received.lines.iter().find(|line| line[key] != Value::Null);
        let push = &of("push").expect("a push")["push"];
        assert_eq!(push["channel"], "chat:1");
        assert_eq!(
            (&push["pub"]["data"], &push["pub"]["offset"]),
            (&json!({ "a": 1 }), &json!(1))
        );
        assert_eq!(push["pub"]["info"]["user"], "ann");
        assert!(of("publish").is_some());
    }
}

#[test]
fn a_reconnecting_client_recovers_missed_publications() {
    for worker in 0..3 {
        let mut world = world(3);
        let back_end = world.connect(0, PUSH);
        let peer = ann(&mut world, worker);
        let received = ask(
            &mut world,
            peer,
            r#"{"id":2,"subscribe":{"channel":"chat:1"}}"#,
        );
        let joined = &received.lines[0]["subscribe"];
        let epoch = joined["epoch"].as_str().expect("an epoch").to_owned();
        let expected = json!({ "recoverable": true, "positioned": true, "epoch": epoch });
        assert_eq!(joined, &expected);
        for number in 1..=4 {
            publish(&mut world, back_end, "chat:1", number);
        }
        let again = |world: &mut World, offset: u64, flag: u64| {
            let peer = ann(world, (worker + 1) % 3);
            let request = json!({ "channel": "chat:1", "recover": true, "offset": offset,
                "epoch": epoch, "flag": flag });
            let command = json!({ "id": 2, "subscribe": request }).to_string();
            (peer, ask(world, peer, &command).lines[0].clone())
        };
        let (peer, line) = again(&mut world, 2, 0);
        let joined = &line["subscribe"];
        let publications = json!([{ "data": 3, "offset": 3 }, { "data": 4, "offset": 4 }]);
        let expected = json!({ "recoverable": true, "positioned": true, "epoch": epoch, "offset": 4,
            "publications": publications, "recovered": true, "was_recovering": true });
        assert_eq!(joined, &expected);
        publish(&mut world, back_end, "chat:1", 5);
        let push = &take(&mut world, peer).lines[0]["push"];
        assert_eq!(push["pub"], json!({ "data": 5, "offset": 5 }));
        // The channel stores three publications, so a client whose position is older can't recover completely.
        let (_, line) = again(&mut world, 1, 0);
        let expected = json!({ "recoverable": true, "positioned": true, "epoch": epoch, "offset": 5,
            "was_recovering": true });
        assert_eq!(line["subscribe"], expected);
        let (peer, line) = again(&mut world, 1, 2);
        assert_eq!(line["error"]["code"], 112);
        publish(&mut world, back_end, "chat:1", 6);
        assert_eq!(
            take(&mut world, peer),
            Received::default(),
            "it is not subscribed"
        );
    }
}

#[test]
fn what_comes_while_a_client_connects_comes_behind_its_reply() {
    for target in ["/centrifuge/jwt", "/centrifuge/deflate?user=ann"] {
        let mut world = world(3);
        let channels: Vec<String> = (0..9).map(|n| format!("chat:{n}")).collect();
        let claims = json!({ "sub": "ann", "exp": in_seconds(&world, 60), "channels": channels });
        let command = json!({ "id": 1, "connect": { "token": token(&claims) } });
        let peer = world.open(0, target);
        world.send(peer, &text(&command.to_string()));
        // The channels whose home is on this worker are subscribed before the other homes answer, so they may receive
        // these publications.
        let back_end = world.connect(0, PUSH);
        for channel in channels.iter().map(String::as_str).chain(["#ann"]) {
            let line = format!("{{\"channel\":\"{channel}\",\"data\":\"{channel}\"}}\n");
            world.send(back_end, line.as_bytes());
        }
        let output = take(&mut world, peer);
        assert_eq!(output.lines[0]["id"], 1, "{output:?}");
        let subs = output.lines[0]["connect"]["subs"]
            .as_object()
            .expect("subs");
        let given = if target.contains("jwt") { 10 } else { 1 };
        assert_eq!(subs.len(), given);
        assert_eq!(subs["#ann"], json!({}));
        for line in &output.lines[1..] {
            let push = &line["push"];
            assert_eq!(push["channel"], push["pub"]["data"]);
            // The offset of the first publication after the reply is the offset in the reply plus 1.
            let joined_at = subs[push["channel"].as_str().expect("a name")]["offset"].as_u64();
            let offset = push["pub"]["offset"].as_u64().unwrap_or(1);
            assert_eq!(joined_at.unwrap_or(0) + 1, offset);
        }
        let current = subs.values().filter(|sub| sub["offset"] == 1).count();
        assert!(output.lines.len() - 1 + current >= given - 1);
    }
}

#[test]
fn pings_come_in_time_and_want_an_answer() {
    let mut world = world(1);
    let stale = world.open(0, "/centrifuge");
    let (peer, reply) = connect(&mut world, 0, "/centrifuge", &json!({}));
    assert_eq!((&reply["ping"], &reply["pong"]), (&json!(25), &json!(true)));
    world.advance(10_000);
    let closed = take(&mut world, stale).closed;
    assert_eq!(closed, Some((3502, "stale".to_owned())));
    world.advance(15_000);
    assert_eq!(take(&mut world, peer).lines, [json!({})]);
    assert_eq!(ask(&mut world, peer, "{}"), Received::default());
    for _ in 0..3 {
        // A client that sends commands is pinged as well, since SDKs expect pings at the interval.
        world.advance(24_000);
        let received = ask(&mut world, peer, r#"{"id":2,"ping":{}}"#);
        assert_eq!(received.lines, [json!({ "id": 2, "ping": {} })]);
        world.advance(1_000);
        assert_eq!(take(&mut world, peer).lines, [json!({})]);
        assert_eq!(ask(&mut world, peer, "{}"), Received::default());
    }
    world.advance(25_000 + 7_999);
    assert_eq!(take(&mut world, peer).lines, [json!({})]);
    world.advance(1);
    let closed = take(&mut world, peer).closed;
    assert_eq!(closed, Some((3012, "no pong".to_owned())));
    world.ask(peer, close(Some(3012), ""));
    assert!(!world.is_open(peer));
}

#[test]
fn an_anonymous_client_has_no_channel_of_its_own() {
    let mut world = world(1);
    let (_, reply) = connect(&mut world, 0, "/centrifuge", &json!({}));
    assert_eq!(reply["subs"], Value::Null);
    assert_eq!(reply["expires"], Value::Null);
}

#[test]
fn a_publication_is_encoded_once_for_all_of_an_encoding() {
    let mut world = world(2);
    let back_end = world.connect(0, PUSH);
    let mut peers = Vec::new();
    for number in 0..40 {
        let target = if number % 2 == 0 {
            "/centrifuge"
        } else {
            "/centrifuge?cf_protocol=protobuf"
        };
        let peer = world.open(number % 4 / 2, target);
        let subscribe = match number % 2 {
            0 => {
                text("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"open:1\"}}")
            }
            // In Protobuf: command 1 with field 4 (connect), command 2 with field 5 (subscribe to `open:1`).
            _ => message(
                veche_proto::websocket::MessageKind::Binary,
                b"\x04\x08\x01\x22\x00\x0c\x08\x02\x2a\x08\x0a\x06open:1",
            ),
        };
        world.ask(peer, subscribe);
        peers.push(peer);
    }
    let encoded = |world: &World| -> u64 {
        let of = |worker: usize| {
            world.workers[worker]
                .shared()
                .requests
                .outboxes
                .pushes_encoded()
        };
        of(0) + of(1)
    };
    let before = encoded(&world);
    publish(&mut world, back_end, "open:1", 7);
    // The publication is encoded once by each of two workers in each of two encodings.
    assert_eq!(encoded(&world) - before, 4);
    for peer in peers {
        let bytes = world.take(peer);
        match &server_messages(&bytes)[..] {
            [ServerMessage::Text(text)] => {
                assert_eq!(text, r#"{"push":{"channel":"open:1","pub":{"data":7}}}"#)
            }
            [ServerMessage::Binary(push)] => {
                assert_eq!(push, b"\x0f\x22\x0d\x12\x06open:1\x22\x03\x22\x017");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_text_is_the_same_json_to_clients_of_both_encodings() {
    let mut world = world(1);
    let back_end = world.connect(0, PUSH);
    let binary = |bytes: &[u8]| message(veche_proto::websocket::MessageKind::Binary, bytes);
    // A connect command (id 1, field 4) and a subscribe command (id 2, field 5) in Protobuf.
    let subscribe = b"\x04\x08\x01\x22\x00\x0c\x08\x02\x2a\x08\x0a\x06chat:1";
    let peer = world.open(0, "/centrifuge?cf_protocol=protobuf");
    world.ask(peer, binary(subscribe));
    let other = world.open(0, "/centrifuge");
    world.ask(
        other,
        text("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"chat:1\"}}"),
    );
    let expected = br#""say \"hi\"""#;
    let is_notified = |world: &mut World| {
        let bytes = world.take(peer);
        let [ServerMessage::Binary(frame)] = &server_messages(&bytes)[..] else {
            panic!("one frame")
        };
        frame.windows(expected.len()).any(|part| part == expected)
    };
    for line in [
        r#"{"channel":"chat:1","data":"say \"hi\""}"#,
        r#"{"channel":"chat:1","message":"say \"hi\""}"#,
    ] {
        assert!(world.ask(back_end, format!("{line}\n")).is_empty());
        assert!(is_notified(&mut world), "{line}");
        let push = &take(&mut world, other).lines[0]["push"]["pub"];
        assert_eq!(push["data"], "say \"hi\"");
    }
    // The history, like the pushes, contains the data as a JSON string. The history command is field 10. It requests
    // all publications (limit -1 in field 7).
    let history = b"\x17\x08\x03\x52\x13\x0a\x06chat:1\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    world.send(peer, &binary(history));
    world.settle();
    assert!(is_notified(&mut world));
}

#[test]
fn the_subprotocol_is_echoed() {
    for (offered, expected) in [
        ("centrifuge-protobuf", Some("centrifuge-protobuf")),
        ("centrifuge-json", Some("centrifuge-json")),
        ("other", None),
    ] {
        let mut world = world(1);
        let peer = world.connect(0, PUBLIC);
        let header = format!("Sec-WebSocket-Protocol: {offered}\r\n");
        let bytes = world.ask(peer, handshake("/centrifuge", &header));
        let (response, _) = response(&bytes, true);
        assert_eq!(response.status, 101);
        assert_eq!(
            response.header("Sec-WebSocket-Protocol"),
            expected,
            "{offered}"
        );
    }
}

#[test]
fn limits_of_the_site_count_for_pings_too() {
    let limits = ConnectionLimits {
        ping_interval_ms: 0,
        ..ConnectionLimits::default()
    };
    let mut world = World::new(Options {
        limits,
        ..Options::default()
    });
    let (peer, reply) = connect(&mut world, 0, "/centrifuge", &json!({}));
    assert_eq!(
        (&reply["ping"], &reply["pong"]),
        (&Value::Null, &Value::Null)
    );
    world.advance(1_000_000);
    assert_eq!(take(&mut world, peer), Received::default());
}
