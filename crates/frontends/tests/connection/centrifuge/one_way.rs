//! Tests one-way clients: bare pushes over each of three transports, and event ids with which a browser recovers.

use serde_json::{Value, json};

use super::streams::{chunks, objects, open};
use super::{ask, in_seconds, publish, take, token};
use crate::world::wire::{ServerMessage, get, post, response, responses, server_messages, text};
use crate::world::{INTERNAL, Options, PUBLIC, PUSH, Peer, World};

/// The transport that a client uses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    WebSocket,
    Lines,
    Events,
    PostedEvents,
}

const ALL: [By; 4] = [By::WebSocket, By::Lines, By::Events, By::PostedEvents];

pub(super) fn encoded(text: &str) -> String {
    let bytes = text.bytes();
    bytes.map(|byte| format!("%{byte:02X}")).collect()
}

/// Connects with this request; returns the client and its first messages. Each push has to be a message of its own.
fn connect(
    world: &mut World,
    worker: usize,
    by: By,
    route: &str,
    request: &Value,
) -> (Peer, Vec<Value>) {
    let request = request.to_string();
    let route = format!("/centrifuge/{route}");
    match by {
        By::WebSocket => {
            let peer = world.open(worker, &format!("{route}/uni_websocket"));
            let received = ask(world, peer, &request);
            assert_eq!(
                (received.closed, received.frames),
                (None, received.lines.len())
            );
            (peer, received.lines)
        }
        By::Lines => open(
            world,
            worker,
            &post(&format!("{route}/uni_http_stream"), &request),
        ),
        By::PostedEvents => open(world, worker, &post(&format!("{route}/uni_sse"), &request)),
        By::Events => {
            let connect = encoded(&request);
            let target = format!("{route}/uni_sse?cf_connect={connect}");
            open(world, worker, &get(&target))
        }
    }
}

/// Returns the pushes received since the last call.
fn take_messages(world: &mut World, peer: Peer, by: By) -> Vec<Value> {
    match by {
        By::WebSocket => {
            let received = take(world, peer);
            assert_eq!(
                (received.closed, received.frames),
                (None, received.lines.len())
            );
            received.lines
        }
        _ => objects(world, peer),
    }
}

fn call(world: &mut World, path: &str, body: &Value) {
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(caller, post(path, &body.to_string()));
    assert_eq!(responses(&answer)[0].status, 200);
}

#[test]
fn they_get_bare_pushes_and_need_not_answer() {
    for by in ALL {
        for worker in 0..3 {
            let mut world = super::world(3);
            let back_end = world.connect(0, PUSH);
            let claims = json!({ "sub": "ann", "exp": in_seconds(&world, 600),
                "channels": ["news"], "subs": { "chat:1": { "data": "welcome" } } });
            let request = json!({ "token": token(&claims), "subs": {
                "open:1": {}, "chat:1": { "join_leave": true },
                // The client is not subscribed to these channels, since they need a token, belong
                // to another user, or are invalid.
                "token:1": {}, "nowhere": {}, "#bob": {}, "open:$1": {}, "": {} } });
            let (peer, messages) = connect(&mut world, worker, by, "tokens", &request);
            let reply = &messages[0]["connect"];
            assert_eq!(
                (&reply["ping"], &reply["ttl"]),
                (&json!(25), &json!(600)),
                "{by:?}"
            );
            for missing in ["pong", "session", "node"] {
                assert_eq!(reply[missing], Value::Null, "{by:?}: {missing}");
            }
            let subs = reply["subs"].as_object().expect("subs");
            let mut names: Vec<&String> = subs.keys().collect();
            names.sort();
            assert_eq!(names, ["#ann", "chat:1", "news", "open:1"]);
            assert_eq!(subs["chat:1"]["data"], "welcome");
            assert_eq!(subs["chat:1"]["recoverable"], true);
            // The only join event that may have been received by now is the client's own.
            let own = |one: &Value| one["join"]["info"]["client"] == reply["client"];
            assert!(messages[1..].iter().all(own), "{messages:?}");

            for (channel, data) in [("news", 1), ("#ann", 2), ("chat:1", 3), ("open:1", 4)] {
                publish(&mut world, back_end, channel, data);
                let mut expected = json!({ "channel": channel, "pub": { "data": data } });
                if channel == "chat:1" {
                    expected["pub"]["offset"] = json!(1);
                }
                let mut messages = take_messages(&mut world, peer, by);
                messages.retain(|one| !own(one));
                assert_eq!(messages, [expected], "{by:?}");
            }
            let bob = super::connect(&mut world, 0, "/centrifuge/named?user=bob", &json!({})).0;
            ask(
                &mut world,
                bob,
                r#"{"id":2,"subscribe":{"channel":"chat:1"}}"#,
            );
            let messages = take_messages(&mut world, peer, by);
            assert_eq!(
                (&messages[0]["channel"], messages.len()),
                (&json!("chat:1"), 1)
            );
            assert_eq!(messages[0]["join"]["info"]["user"], "bob");

            // Messages of the client are ignored, and the client need not answer pings.
            if by == By::WebSocket {
                world.send(peer, &text(r#"{"id":9,"ping":{}}"#));
                world.send(peer, &text("hello"));
            }
            for _ in 0..4 {
                world.advance(25_000);
                assert_eq!(take_messages(&mut world, peer, by), [json!({})], "{by:?}");
            }

            let room = json!({ "user": "ann", "channel": "open:2" });
            call(&mut world, "/api/subscribe", &room);
            assert_eq!(
                take_messages(&mut world, peer, by),
                [json!({ "channel": "open:2", "subscribe": {} })]
            );
            call(&mut world, "/api/unsubscribe", &room);
            let unsubscribe = json!({ "code": 2000, "reason": "server unsubscribe" });
            assert_eq!(
                take_messages(&mut world, peer, by),
                [json!({ "channel": "open:2", "unsubscribe": unsubscribe })]
            );
            let later = json!({ "user": "ann", "expire_at": in_seconds(&world, 60) });
            call(&mut world, "/api/refresh", &later);
            let refresh = json!({ "refresh": { "expires": true, "ttl": 60 } });
            assert_eq!(take_messages(&mut world, peer, by), [refresh]);
            call(&mut world, "/api/disconnect", &json!({ "user": "ann" }));
            let end =
                json!({ "disconnect": { "code": 3503, "reason": "disconnected by the back end" } });
            world.settle();
            let bytes = world.take(peer);
            if by == By::WebSocket {
                let received = super::parse_output(&bytes);
                assert_eq!(received.lines, [end]);
                assert_eq!(received.closed.map(|(code, _)| code), Some(3503));
            } else {
                let text = chunks(&bytes).concat();
                assert!(text.contains(&end.to_string()), "{by:?}: {text}");
                assert!(bytes.ends_with(b"0\r\n\r\n"), "{by:?}: it ends");
                world.advance(1);
                assert!(!world.is_open(peer));
            }
        }
    }
}

#[test]
fn what_opens_nothing_ends_with_its_reason() {
    let exp = |world: &World| in_seconds(world, 60);
    for by in ALL {
        for (of, code) in [
            (json!({ "token": "x" }), 3500),
            (json!({}), 3500),
            (json!({ "token": 7 }), 3501),
            (json!([]), 3501),
            (json!("late"), 3005),
            (json!("of a channel"), 3500),
        ] {
            let mut world = super::world(1);
            let request = match of.as_str() {
                Some("late") => {
                    json!({ "token": token(&json!({ "sub": "ann", "exp": exp(&world) - 60 })) })
                }
                Some(_) => {
                    let claims = json!({ "sub": "ann", "exp": exp(&world), "channel": "a" });
                    json!({ "token": token(&claims) })
                }
                None => of,
            };
            if by == By::WebSocket {
                let peer = world.open(0, "/centrifuge/tokens/uni_websocket");
                let received = ask(&mut world, peer, &request.to_string());
                assert_eq!(received.lines.len(), 1, "{request}");
                assert_eq!(received.lines[0]["disconnect"]["code"], code, "{request}");
                assert_eq!(
                    received.closed.map(|(code, _)| code),
                    Some(code),
                    "{request}"
                );
                continue;
            }
            let (peer, messages) = connect(&mut world, 0, by, "tokens", &request);
            assert_eq!(messages.len(), 1, "{by:?} {request}");
            assert_eq!(messages[0]["disconnect"]["code"], code, "{by:?} {request}");
            world.advance(1);
            assert!(!world.is_open(peer));
        }
    }
    // A WebSocket client that sends no connect request is disconnected. A client of another
    // transport need not send one, since its HTTP request is sufficient.
    let mut world = super::world(1);
    let peer = world.open(0, "/centrifuge/all/uni_websocket");
    world.advance(10_000);
    let received = take(&mut world, peer);
    assert_eq!(received.lines[0]["disconnect"]["code"], 3502);
    for request in [
        get("/centrifuge/all/uni_sse"),
        post("/centrifuge/all/uni_sse", ""),
        post("/centrifuge/all/uni_http_stream", ""),
    ] {
        let (_, messages) = open(&mut world, 0, &request);
        assert_eq!(messages[0]["connect"]["ping"], 25, "{request}");
    }
    let exp = in_seconds(&world, 60);
    let good = token(&json!({ "sub": "ann", "exp": exp }));
    let (_, messages) = open(
        &mut world,
        0,
        &get(&format!("/centrifuge/tokens/uni_sse?token={good}")),
    );
    assert_eq!(messages[0]["connect"]["subs"], json!({ "#ann": {} }));
}

#[test]
fn too_many_requested_channels_are_rejected() {
    let mut world = super::world(1);
    for (count, is_refused) in [(128, false), (129, true)] {
        let subs: serde_json::Map<String, Value> = (0..count)
            .map(|n| (format!("chat:{n}"), json!({})))
            .collect();
        let (_, messages) = connect(&mut world, 0, By::Lines, "all", &json!({ "subs": subs }));
        match is_refused {
            true => assert_eq!(messages[0]["disconnect"]["code"], 3505),
            false => assert_eq!(
                messages[0]["connect"]["subs"]
                    .as_object()
                    .map(|all| all.len()),
                Some(128)
            ),
        }
    }
}

/// A browser's parser of events, which stores the last event id.
#[derive(Default)]
struct Browser {
    last: Option<String>,
    pushes: Vec<Value>,
}

impl Browser {
    /// Parses complete events; returns the number of events with an id.
    fn read(&mut self, text: &str) -> usize {
        let mut moved = 0;
        for event in text.split("\n\n") {
            let mut data = Vec::new();
            for line in event.lines().filter(|line| !line.trim().is_empty()) {
                match line.split_once(": ").expect("a field") {
                    ("id", id) => {
                        self.last = Some(id.to_owned());
                        moved += 1;
                    }
                    ("data", line) => data.push(line),
                    other => panic!("{other:?}"),
                }
            }
            // A page passes the data of an event to `JSON.parse`, so an event has to be a single push.
            assert!(data.len() <= 1, "an event is one push: {event}");
            self.pushes.extend(
                data.iter()
                    .map(|data| serde_json::from_str::<Value>(data).expect("JSON")),
            );
        }
        moved
    }

    fn connect(&mut self, world: &mut World, worker: usize, request: &Value) -> Peer {
        let target = format!(
            "/centrifuge/tokens/uni_sse?cf_connect={}",
            encoded(&request.to_string())
        );
        let last = self.last.as_ref();
        let last = last.map_or(String::new(), |last| format!("Last-Event-ID: {last}\r\n"));
        let peer = world.connect(worker, PUBLIC);
        let request = format!("GET {target} HTTP/1.1\r\nHost: veche.test\r\n{last}\r\n");
        let bytes = world.ask(peer, &request);
        let (response, rest) = response(&bytes, false);
        assert_eq!(response.status, 200);
        self.read(&chunks(rest).concat());
        peer
    }

    fn hear(&mut self, world: &mut World, peer: Peer) -> usize {
        world.settle();
        let text = chunks(&world.take(peer)).concat();
        self.read(&text)
    }

    fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.pushes)
    }
}

fn publication(channel: &str, data: u32, offset: u64) -> Value {
    json!({ "channel": channel, "pub": { "data": data, "offset": offset } })
}

#[test]
fn a_reconnecting_eventsource_recovers_all_channels() {
    for worker in 0..3 {
        let mut world = super::world(3);
        let back_end = world.connect(0, PUSH);
        let claims = json!({ "sub": "ann", "exp": in_seconds(&world, 60), "channels": ["chat:1", "chat:2", "news"] });
        let request = json!({ "token": token(&claims), "subs": { "chat:3": {} } });
        let mut browser = Browser::default();
        publish(&mut world, back_end, "chat:2", 7);
        let peer = browser.connect(&mut world, worker, &request);
        let messages = browser.take();
        assert_eq!(messages.len(), 1);
        let subs = &messages[0]["connect"]["subs"];
        assert_eq!(
            (&subs["chat:2"]["offset"], &subs["chat:1"]["offset"]),
            (&json!(1), &Value::Null)
        );
        assert_eq!(subs["chat:2"]["was_recovering"], Value::Null);
        // The connection ends before any publication; the positions are known from the event with the connect push.
        assert!(browser.last.is_some());
        world.reset(peer);
        publish(&mut world, back_end, "chat:1", 11);
        publish(&mut world, back_end, "chat:3", 31);
        publish(&mut world, back_end, "chat:1", 12);
        let peer = browser.connect(&mut world, (worker + 1) % 3, &request);
        let messages = browser.take();
        let subs = &messages[0]["connect"]["subs"];
        for (channel, offset) in [
            ("chat:1", Value::Null),
            ("chat:2", json!(1)),
            ("chat:3", Value::Null),
        ] {
            let sub = &subs[channel];
            assert_eq!(
                (&sub["recovered"], &sub["was_recovering"]),
                (&json!(true), &json!(true)),
                "{channel}"
            );
            // The missed publications follow as separate pushes, so the connect push contains the position before
            // them.
            assert_eq!(
                (&sub["offset"], &sub["publications"]),
                (&offset, &Value::Null),
                "{channel}"
            );
        }
        // Channels without history have no position.
        for channel in ["#ann", "news"] {
            assert_eq!(subs[channel], json!({}));
        }
        assert_eq!(
            messages[1..],
            [
                publication("chat:1", 11, 1),
                publication("chat:1", 12, 2),
                publication("chat:3", 31, 1)
            ]
        );
        // A publication with an offset advances the position, so its event has an id. A publication
        // without an offset and a ping have no id.
        publish(&mut world, back_end, "chat:2", 22);
        assert_eq!(browser.hear(&mut world, peer), 1);
        publish(&mut world, back_end, "news", 1);
        world.advance(25_000);
        assert_eq!(browser.hear(&mut world, peer), 0);
        assert_eq!(browser.take().len(), 3, "and a ping");
        world.reset(peer);
        publish(&mut world, back_end, "chat:1", 13);
        publish(&mut world, back_end, "chat:2", 23);
        let peer = browser.connect(&mut world, worker, &request);
        assert_eq!(
            browser.take()[1..],
            [publication("chat:1", 13, 3), publication("chat:2", 23, 3)]
        );
        // The client has missed four publications of `chat:1`, which stores only three, so the
        // recovery of `chat:1` is incomplete. The recovery of `chat:3` is complete.
        world.reset(peer);
        for data in 14..18 {
            publish(&mut world, back_end, "chat:1", data);
        }
        publish(&mut world, back_end, "chat:3", 32);
        let peer = browser.connect(&mut world, worker, &request);
        let messages = browser.take();
        let subs = &messages[0]["connect"]["subs"];
        assert_eq!(subs["chat:1"]["recovered"], Value::Null);
        assert_eq!(
            (&subs["chat:1"]["was_recovering"], &subs["chat:1"]["offset"]),
            (&json!(true), &json!(7))
        );
        assert_eq!(subs["chat:3"]["recovered"], true);
        assert_eq!(messages[1..], [publication("chat:3", 32, 2)]);
        // After an incomplete recovery, the next one starts from the position in the connect reply.
        world.reset(peer);
        publish(&mut world, back_end, "chat:1", 18);
        browser.connect(&mut world, worker, &request);
        assert_eq!(browser.take()[1..], [publication("chat:1", 18, 8)]);
    }
}

#[test]
fn publications_during_connecting_arrive_exactly_once() {
    for worker in 0..3 {
        let mut world = super::world(3);
        let back_end = world.connect(0, PUSH);
        let channels: Vec<String> = (0..9).map(|n| format!("chat:{n}")).collect();
        let claims = json!({ "sub": "ann", "exp": in_seconds(&world, 60), "channels": channels });
        let request = json!({ "token": token(&claims) });
        let mut browser = Browser::default();
        let peer = browser.connect(&mut world, worker, &request);
        browser.take();
        world.reset(peer);
        for channel in &channels {
            publish(&mut world, back_end, channel, 1);
        }
        // The second publication to each channel is sent before the channels' homes on other workers have answered
        // the subscriptions.
        let target = format!(
            "/centrifuge/tokens/uni_sse?cf_connect={}",
            encoded(&request.to_string())
        );
        let last = browser.last.clone().expect("an id");
        let peer = world.connect(worker, PUBLIC);
        let request_head =
            format!("GET {target} HTTP/1.1\r\nHost: veche.test\r\nLast-Event-ID: {last}\r\n\r\n");
        world.send(peer, request_head.as_bytes());
        for channel in &channels {
            world.send(
                back_end,
                format!("{{\"channel\":\"{channel}\",\"data\":2}}\n").as_bytes(),
            );
        }
        world.settle();
        let bytes = world.take(peer);
        let (_, rest) = response(&bytes, false);
        browser.read(&chunks(rest).concat());
        let messages = browser.take();
        assert!(messages[0]["connect"].is_object());
        for channel in &channels {
            let of: Vec<&Value> = messages
                .iter()
                .filter(|one| one["channel"] == **channel)
                .collect();
            assert_eq!(
                of,
                [&publication(channel, 1, 1), &publication(channel, 2, 2)]
            );
        }
        // The position that the browser stored is after these publications, so nothing is recovered.
        world.reset(peer);
        browser.connect(&mut world, worker, &request);
        assert_eq!(browser.take().len(), 1);
    }
}

#[test]
fn too_many_publications_during_connecting_are_not_repeated() {
    let mut world = World::new(Options {
        workers: 3,
        outbox_bytes: 400,
        ..Options::default()
    });
    let back_end = world.connect(0, PUSH);
    let channels: Vec<String> = (0..9).map(|n| format!("chat:{n}")).collect();
    let claims = json!({ "sub": "ann", "exp": in_seconds(&world, 60), "channels": channels });
    let request = json!({ "token": token(&claims) });
    let mut browser = Browser::default();
    let peer = browser.connect(&mut world, 0, &request);
    browser.take();
    world.reset(peer);
    for channel in &channels {
        publish(&mut world, back_end, channel, 1);
    }
    let last = browser.last.clone().expect("an id");
    let peer = world.connect(0, PUBLIC);
    let target = format!(
        "/centrifuge/tokens/uni_sse?cf_connect={}",
        encoded(&request.to_string())
    );
    let head =
        format!("GET {target} HTTP/1.1\r\nHost: veche.test\r\nLast-Event-ID: {last}\r\n\r\n");
    world.send(peer, head.as_bytes());
    for worker in 0..3 {
        world.turn(worker);
    }
    // Channels whose home is the client's own worker receive more publications than fit into the outbox, before the
    // homes of the other channels answer.
    let pad = "x".repeat(200);
    for channel in &channels {
        let line = format!("{{\"channel\":\"{channel}\",\"data\":\"{pad}\"}}\n");
        world.send(back_end, line.as_bytes());
    }
    world.settle();
    let bytes = world.take(peer);
    let (_, rest) = response(&bytes, false);
    let moved = browser.read(&chunks(rest).concat());
    let mut messages = browser.take();
    let end = messages.pop().expect("the last words");
    assert_eq!(end["disconnect"]["code"], 3008);
    assert!(messages[0]["connect"].is_object() && messages.len() > 1);
    assert_eq!(moved, messages.len(), "each event says where it is");
    world.settle();
    assert!(!world.is_open(peer));
    // After reconnecting, the client receives what follows its last event, and no publication twice.
    let mut received = messages.split_off(1);
    browser.connect(&mut world, 0, &request);
    received.extend(browser.take().split_off(1));
    let mut publications: Vec<_> = received.iter().map(Value::to_string).collect();
    publications.sort();
    publications.dedup();
    assert_eq!(publications.len(), received.len());
}

#[test]
fn a_foreign_event_id_is_not_recovered() {
    let mut world = super::world(1);
    let back_end = world.connect(0, PUSH);
    let claims = json!({ "sub": "ann", "exp": in_seconds(&world, 60), "channels": ["chat:1"] });
    let request = json!({ "token": token(&claims) });
    publish(&mut world, back_end, "chat:1", 1);
    for last in [
        "1",
        "urn:uuid:f81d4fae",
        "AAAAAAAA",
        "*",
        "%00",
        &"A".repeat(3000),
    ] {
        let mut browser = Browser {
            last: Some(last.to_owned()),
            ..Browser::default()
        };
        browser.connect(&mut world, 0, &request);
        let messages = browser.take();
        let sub = &messages[0]["connect"]["subs"]["chat:1"];
        assert_eq!(
            (&sub["recovered"], &sub["was_recovering"]),
            (&Value::Null, &json!(true)),
            "{last}"
        );
        assert_eq!((&sub["offset"], messages.len()), (&json!(1), 1));
    }
    // A browser that reconnects repeats its first request. The id of its last event is newer than the positions in that
    // request, so it takes precedence.
    let mut browser = Browser::default();
    let peer = browser.connect(&mut world, 0, &request);
    let epoch = browser.take()[0]["connect"]["subs"]["chat:1"]["epoch"].clone();
    let mut old = request.clone();
    old["subs"] = json!({ "chat:1": { "recover": true, "offset": 0, "epoch": epoch } });
    world.reset(peer);
    publish(&mut world, back_end, "chat:1", 2);
    browser.connect(&mut world, 0, &old);
    assert_eq!(browser.take()[1..], [publication("chat:1", 2, 2)]);
    // Without an event id, the positions in the request apply, on each transport, whether the token or the request
    // names the channel.
    for by in ALL {
        for asks in [&old, &json!({ "subs": old["subs"] })] {
            let route = if asks["token"].is_null() {
                "all"
            } else {
                "tokens"
            };
            let (_, messages) = connect(&mut world, 0, by, route, asks);
            assert_eq!(messages[0]["connect"]["subs"]["chat:1"]["recovered"], true);
            assert_eq!(
                messages[1..],
                [publication("chat:1", 1, 1), publication("chat:1", 2, 2)],
                "{by:?}"
            );
        }
    }
}

#[test]
fn a_publication_is_encoded_once_for_all_that_only_listen() {
    let mut world = super::world(1);
    let back_end = world.connect(0, PUSH);
    let request = json!({ "subs": { "chat:1": {} } });
    let mut peers = Vec::new();
    for _ in 0..10 {
        for by in ALL {
            peers.push((by, connect(&mut world, 0, by, "all", &request).0));
        }
    }
    let encoded = |world: &World| world.workers[0].shared().requests.outboxes.pushes_encoded();
    let before = encoded(&world);
    publish(&mut world, back_end, "chat:1", 7);
    assert_eq!(encoded(&world) - before, 1);
    for (by, peer) in peers {
        assert_eq!(
            take_messages(&mut world, peer, by),
            [publication("chat:1", 7, 1)],
            "{by:?}"
        );
    }
}

#[test]
fn one_way_protobuf_is_spoken_where_it_is_asked_for() {
    let mut world = super::world(1);
    let back_end = world.connect(0, PUSH);
    // A connect request in Protobuf with `subs` (field 3), a map of names (1) to options (2).
    let connect = b"\x1a\x0a\x0a\x06open:1\x12\x00";
    let peer = world.open(0, "/centrifuge/all/uni_websocket?cf_protocol=protobuf");
    let binary = veche_proto::websocket::MessageKind::Binary;
    let bytes = world.ask(peer, crate::world::wire::message(binary, connect));
    let ServerMessage::Binary(push) = &server_messages(&bytes)[0] else {
        panic!("not binary")
    };
    // The push begins with its length; field 10 is the connect push.
    assert_eq!((usize::from(push[0]), push[1]), (push.len() - 1, 0x52));
    publish(&mut world, back_end, "open:1", 7);
    let expected = ServerMessage::Binary(b"\x0d\x12\x06open:1\x22\x03\x22\x017".to_vec());
    let bytes = world.take(peer);
    assert_eq!(server_messages(&bytes), [expected]);
    let request = format!(
        "POST /centrifuge/all/uni_http_stream HTTP/1.1\r\nHost: veche.test\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        connect.len()
    );
    let peer = world.connect(0, PUBLIC);
    let bytes = world.ask(peer, [request.as_bytes(), connect].concat());
    let (response, _) = response(&bytes, false);
    assert_eq!(
        response.header("Content-Type"),
        Some("application/octet-stream")
    );
    publish(&mut world, back_end, "open:1", 7);
    assert_eq!(
        chunks(&world.take(peer)),
        ["\u{d}\u{12}\u{6}open:1\"\u{3}\"\u{1}7"]
    );
}

#[test]
fn a_partial_recovery_sends_what_fits() {
    // Event ids with the positions of 128 channels are larger than the events themselves.
    let mut world = super::world(1);
    let back_end = world.connect(0, PUSH);
    let channels: Vec<String> = (0..127).map(|n| format!("chat:{n}")).collect();
    let claims = json!({ "sub": "ann", "exp": in_seconds(&world, 60), "channels": channels });
    let request = json!({ "token": token(&claims) });
    let mut browser = Browser::default();
    let peer = browser.connect(&mut world, 0, &request);
    browser.take();
    world.reset(peer);
    for channel in &channels {
        for data in 1..=3 {
            publish(&mut world, back_end, channel, data);
        }
    }
    // The test's world checks after each turn that no outbox exceeds its limit.
    browser.connect(&mut world, 0, &request);
    let messages = browser.take();
    let subs = &messages[0]["connect"]["subs"];
    let mut recovered = 0;
    for channel in &channels {
        let sub = &subs[channel];
        let is_whole = sub["recovered"] == true;
        recovered += usize::from(is_whole);
        assert_eq!(sub["was_recovering"], true);
        let of = messages.iter().filter(|one| one["channel"] == **channel);
        assert_eq!(of.count(), if is_whole { 3 } else { 0 }, "{channel}");
    }
    assert!((20..120).contains(&recovered), "{recovered}");
}
