//! Long replies to history and presence commands. They are written as their client reads: a client that reads gets
//! the complete reply, and one that does not costs little memory.

use serde_json::{Value, json};
use veche_frontends::outbox::ANSWERS_BYTES_HIGH;
use veche_proto::websocket::deflate::{self, DeflatePolicy};
use veche_proto::websocket::{Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Role};

use super::streams::{objects, open};
use super::{Received, ask, connect, parse_output, publish, world};
use crate::world::wire::{
    ServerMessage, handshake, message, post, response, server_messages, text,
};
use crate::world::{INTERNAL, PUBLIC, PUSH, Peer, World};

const CHANNEL: &str = "long:1";

/// Size of each publication in bytes.
const BYTES: usize = 500;
/// Number of publications that the channel stores.
const KEPT: usize = 500;

/// Maximum number of bytes of a reply in an outbox. It allows for the bytes that may be unsent when a slice is
/// written, the slice, and the publication in which the slice ends.
const OUTBOX_BYTES_MAX: usize = ANSWERS_BYTES_HIGH + (32 << 10) + 2 * BYTES;

fn fill(world: &mut World) -> Peer {
    let back_end = world.connect(0, PUSH);
    for number in 0..KEPT {
        let data = format!("{number:0BYTES$}");
        let line = json!({ "channel": CHANNEL, "data": data, "tags": { "number": "é" } });
        assert!(world.ask(back_end, format!("{line}\n")).is_empty());
    }
    back_end
}

/// Returns a client that is subscribed to the channel.
fn member(world: &mut World, worker: usize) -> Peer {
    let (peer, _) = connect(world, worker, "/centrifuge/named?user=ann", &json!({}));
    let subscribe = json!({ "id": 2, "subscribe": { "channel": CHANNEL } });
    let reply = ask(world, peer, &subscribe.to_string());
    assert!(reply.lines[0]["subscribe"].is_object(), "{reply:?}");
    peer
}

fn history(id: u32) -> Value {
    json!({ "id": id, "history": { "channel": CHANNEL, "limit": -1 } })
}

/// Returns the number of unsent bytes of a client.
fn queued(world: &World, worker: usize, peer: Peer) -> usize {
    let outboxes = &world.workers[worker].shared().requests.outboxes;
    outboxes.of(world.id(peer)).queued()
}

/// Returns the numbers of the publications in a reply to a history command.
fn numbers(reply: &Value) -> Vec<usize> {
    let all = reply["history"]["publications"].as_array().expect("a list");
    let number = |one: &Value| {
        assert_eq!(one["tags"]["number"], "é");
        one["data"].as_str()?.parse().ok()
    };
    all.iter()
        .map(|one| number(one).expect("a number"))
        .collect()
}

/// Reads a part in each round until nothing more arrives; returns the output, and the maximum number of unsent bytes.
fn read_slowly(world: &mut World, worker: usize, peer: Peer) -> (Received, usize) {
    let (mut bytes, mut most) = (Vec::new(), 0);
    loop {
        world.read_at_most(peer, 10_000);
        world.settle();
        most = most.max(queued(world, worker, peer));
        let more = world.take(peer);
        if more.is_empty() {
            return (parse_output(&bytes), most);
        }
        bytes.extend(more);
    }
}

#[test]
fn a_history_is_written_as_its_client_reads_and_before_all_that_follows() {
    for (workers, worker) in [(1, 0), (2, 0), (2, 1)] {
        let mut world = world(workers);
        let back_end = fill(&mut world);
        let peer = member(&mut world, worker);
        world.read_at_most(peer, 0);
        let commands = [
            json!({ "id": 3, "ping": {} }),
            history(4),
            json!({ "id": 5, "ping": {} }),
            history(6),
        ];
        let commands = commands.map(|one| one.to_string()).join("\n");
        assert!(ask(&mut world, peer, &commands).lines.is_empty());
        assert!(queued(&world, worker, peer) <= OUTBOX_BYTES_MAX);
        publish(&mut world, back_end, CHANNEL, 7);
        let (received, most) = read_slowly(&mut world, worker, peer);
        assert!(most <= OUTBOX_BYTES_MAX, "{most}");
        assert_eq!(received.closed, None);
        let [ping, first, push, ping_too, second] = &received.lines[..] else {
            panic!("{} lines", received.lines.len());
        };
        assert_eq!((&ping["id"], &ping_too["id"]), (&json!(3), &json!(5)));
        assert_eq!(first["id"], 4);
        assert_eq!(numbers(first), (0..KEPT).collect::<Vec<_>>());
        assert_eq!(first["history"]["offset"], KEPT);
        assert_eq!(push["push"]["pub"]["data"], 7);
        let second = &second["history"];
        assert_eq!(second["offset"], KEPT + 1);
        assert_eq!(second["publications"].as_array().map(Vec::len), Some(KEPT));
        let answers = [&first["history"], second];
        let places = answers.map(|one| one["publications"][0]["offset"].clone());
        assert_eq!(places, [1, 2], "the stream went on meanwhile");
    }
}

#[test]
fn in_protobuf_it_is_the_same_message() {
    let mut world = world(1);
    fill(&mut world);
    let by_json = member(&mut world, 0);
    let reply = ask(&mut world, by_json, &history(3).to_string());
    let peer = world.open(0, "/centrifuge/named?user=bob&cf_protocol=protobuf");
    // Protobuf for `{"id":1,"connect":{}}` and for `{"id":2,"subscribe":{"channel":"long:1"}}`.
    for command in [
        &b"\x04\x08\x01\x22\x00"[..],
        b"\x0c\x08\x02\x2a\x08\x0a\x06long:1",
    ] {
        world.ask(peer, message(MessageKind::Binary, command));
    }
    let command = b"\x17\x08\x03\x52\x13\x0a\x06long:1\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    world.read_at_most(peer, 0);
    world.ask(peer, message(MessageKind::Binary, command));
    let mut bytes = Vec::new();
    for _ in 0..200 {
        world.read_at_most(peer, 10_000);
        world.settle();
        assert!(queued(&world, 0, peer) <= OUTBOX_BYTES_MAX);
        bytes.extend(world.take(peer));
    }
    let [ServerMessage::Binary(received)] = &server_messages(&bytes)[..] else {
        panic!("one message");
    };
    // The message begins with its length; its publications have to be in order.
    let (length, rest) = varint(received);
    assert_eq!(length, rest.len());
    let numbers = numbers(&reply.lines[0]);
    assert_eq!(numbers.len(), KEPT);
    let mut at = 0;
    for number in numbers {
        let data = format!("\"{number:0BYTES$}\"");
        let found = memchr::memmem::find(&rest[at..], data.as_bytes());
        at += found.expect("in their order") + data.len();
    }
}

#[test]
fn compressed_it_is_one_message_of_the_stream() {
    let mut world = world(1);
    let back_end = fill(&mut world);
    let peer = world.connect(0, PUBLIC);
    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    world.ask(peer, handshake("/centrifuge/named?user=ann", offer));
    let subscribe = json!({ "id": 2, "subscribe": { "channel": CHANNEL } });
    let commands = [
        json!({ "id": 1, "connect": {} }),
        subscribe,
        history(3),
        history(4),
    ];
    let mut bytes = world.ask(peer, text(&commands.map(|one| one.to_string()).join("\n")));
    publish(&mut world, back_end, CHANNEL, 7);
    bytes.extend(world.take(peer));
    let policy = DeflatePolicy {
        takeover: true,
        ..DeflatePolicy::default()
    };
    let agreed = deflate::negotiate(["permessage-deflate"].into_iter(), &policy);
    let (mut decoder, mut codecs) = (Decoder::new(Role::Client, agreed), Codecs::default());
    let limits = MessageLimits {
        message_bytes_max: 1 << 20,
        fragments_max: 100,
        inflate_ratio_max: 0,
    };
    let (mut rest, mut lines) = (&mut bytes[..], Vec::new());
    let length = rest.len();
    while !rest.is_empty() {
        let decoded = decoder.decode(rest, &mut codecs, &limits);
        let (taken, event) = decoded.expect("a stream without gaps");
        if let Some(FrameEvent::Message { data, .. }) = event {
            let text = std::str::from_utf8(data).expect("text");
            let objects = text
                .split('\n')
                .map(|line| serde_json::from_str(line).expect("JSON"));
            lines.extend(objects.collect::<Vec<Value>>());
        }
        rest = &mut rest[taken..];
    }
    assert_eq!(lines.len(), 5);
    for answer in &lines[2..4] {
        assert_eq!(numbers(answer), (0..KEPT).collect::<Vec<_>>());
    }
    assert_eq!(lines[4]["push"]["pub"]["data"], 7);
    assert!(
        length < KEPT * BYTES / 4,
        "{length} bytes: it is compressed"
    );
}

fn varint(bytes: &[u8]) -> (usize, &[u8]) {
    let end = bytes.iter().position(|byte| *byte < 0x80).expect("an end") + 1;
    let digits = bytes[..end].iter().rev();
    let value = digits.fold(0, |value, byte| value << 7 | usize::from(byte & 0x7f));
    (value, &bytes[end..])
}

#[test]
fn responses_carry_it_too() {
    let stream = post("/centrifuge/all/http_stream", r#"{"id":1,"connect":{}}"#);
    let events = "GET /centrifuge/all/sse?cf_connect=%7B%22id%22%3A1%2C%22connect%22%3A%7B%7D%7D \
         HTTP/1.1\r\nHost: veche.test\r\n\r\n";
    for request in [&stream, events] {
        let mut world = world(1);
        let back_end = fill(&mut world);
        let (peer, received) = open(&mut world, 0, request);
        let session = &received[0]["connect"]["session"];
        let subscribe = json!({ "id": 2, "subscribe": { "channel": CHANNEL } });
        let commands = [subscribe, history(3), json!({ "id": 4, "ping": {} })];
        let commands = commands.map(|one| one.to_string()).join("\n");
        let body = json!({ "session": session, "node": "", "data": commands });
        let caller = world.connect(0, PUBLIC);
        world.read_at_most(peer, 0);
        world.ask(caller, post("/centrifuge/all/emulation", &body.to_string()));
        publish(&mut world, back_end, CHANNEL, 7);
        assert!(queued(&world, 0, peer) <= OUTBOX_BYTES_MAX);
        world.read_at_most(peer, usize::MAX);
        let received = objects(&mut world, peer);
        let [_, answer, push, ping] = &received[..] else {
            panic!("{} objects", received.len());
        };
        assert_eq!(numbers(answer), (0..KEPT).collect::<Vec<_>>());
        assert_eq!(push["push"]["pub"]["data"], 7);
        assert_eq!(ping["id"], 4);
    }
}

#[test]
fn a_presence_is_written_in_slices_too() {
    const MEMBERS: usize = 2_000;
    let mut world = world(1);
    let mut last = Peer(0);
    for number in 0..MEMBERS {
        let target = format!("/centrifuge/named?user={}{number}", "x".repeat(60));
        let peer = world.open(0, &target);
        let commands = json!({ "id": 1, "connect": {} }).to_string()
            + "\n"
            + &json!({ "id": 2, "subscribe": { "channel": "long:1" } }).to_string();
        world.send(peer, &text(&commands));
        last = peer;
    }
    world.settle();
    world.take(last);
    world.read_at_most(last, 0);
    let presence = json!({ "id": 3, "presence": { "channel": "long:1" } });
    ask(&mut world, last, &presence.to_string());
    assert!(queued(&world, 0, last) <= OUTBOX_BYTES_MAX);
    let (received, most) = read_slowly(&mut world, 0, last);
    assert!(most <= OUTBOX_BYTES_MAX, "{most}");
    let presence = received.lines[0]["presence"]["presence"].as_object();
    assert_eq!(presence.map(serde_json::Map::len), Some(MEMBERS));
}

#[test]
fn publications_wait_behind_it_within_the_limit_of_an_outbox() {
    let mut world = world(1);
    let back_end = fill(&mut world);
    let peer = member(&mut world, 0);
    world.read_at_most(peer, 0);
    ask(&mut world, peer, &history(3).to_string());
    let data = "x".repeat(3_000);
    let line = format!("{}\n", json!({ "channel": CHANNEL, "data": data }));
    let count = (256 << 10) / line.len() - 2;
    for _ in 0..count {
        assert!(world.ask(back_end, &line).is_empty());
        assert_eq!(world.stats(0).slow_consumers.read(), 0);
    }
    // A push is larger than its data, so three more publications exceed the limit of the outbox.
    (0..3).for_each(|_| drop(world.ask(back_end, &line)));
    assert_eq!(world.stats(0).slow_consumers.read(), 1);
    // The connection is closed although the reply is incomplete.
    world.read_at_most(peer, usize::MAX);
    world.settle();
    let bytes = world.take(peer);
    let close = b"\x0b\xc0slow";
    assert!(memchr::memmem::find(&bytes, close).is_some());
    world.advance(60_000);
    assert!(world.is_closed(peer));
}

#[test]
fn answers_to_back_ends_are_written_as_they_are_read() {
    let mut world = world(2);
    fill(&mut world);
    let member = member(&mut world, 1);
    let history = json!({ "channel": CHANNEL, "limit": -1 });
    let batch = json!({ "commands": [
        { "history": history }, { "presence": { "channel": CHANNEL } }, { "channels": {} },
        { "connections": { "channel": CHANNEL } }, { "history": history }, { "none": {} },
    ] });
    for (path, body) in [("/api/history", &history), ("/api/batch", &batch)] {
        let peer = world.connect(0, INTERNAL);
        world.read_at_most(peer, 0);
        world.ask(peer, post(path, &body.to_string()));
        let mut bytes = Vec::new();
        loop {
            let queued = queued(&world, 0, peer);
            assert!(queued <= OUTBOX_BYTES_MAX, "{queued} for {path}");
            world.read_at_most(peer, 10_000);
            world.settle();
            let more = world.take(peer);
            if more.is_empty() {
                break;
            }
            bytes.extend(more);
        }
        let (answer, rest) = response(&bytes, true);
        assert_eq!(answer.header("Transfer-Encoding"), Some("chunked"));
        assert!(rest.is_empty());
        let by_chunks: Value = serde_json::from_str(&answer.body).expect("JSON");
        let answers = match &by_chunks["replies"] {
            Value::Array(replies) => {
                assert_eq!(replies.len(), 6);
                assert_eq!(
                    replies[1]["presence"]["presence"]
                        .as_object()
                        .map(serde_json::Map::len),
                    Some(1)
                );
                assert_eq!(
                    replies[2]["channels"]["channels"][CHANNEL]["num_clients"],
                    1
                );
                assert_eq!(
                    replies[3]["connections"]["connections"]
                        .as_object()
                        .map(serde_json::Map::len),
                    Some(1)
                );
                assert_eq!(replies[5]["error"]["code"], 104);
                vec![replies[0].clone(), replies[4].clone()]
            }
            _ => vec![json!({ "history": by_chunks["result"] })],
        };
        for answer in &answers {
            assert_eq!(numbers(answer), (0..KEPT).collect::<Vec<_>>());
        }
        // An HTTP/1.0 response has the same body as an HTTP/1.1 response, but no chunks. The connection stays open.
        let peer = world.connect(0, INTERNAL);
        let request = post(path, &body.to_string()).replace("HTTP/1.1", "HTTP/1.0");
        let request = request.replace("\r\n\r\n", "\r\nConnection: keep-alive\r\n\r\n");
        for _ in 0..2 {
            let answer = world.ask(peer, &request);
            let (answer, rest) = response(&answer, true);
            assert!(rest.is_empty());
            let whole: Value = serde_json::from_str(&answer.body).expect("JSON");
            assert_eq!(whole, by_chunks);
        }
    }
    assert!(world.is_open(member));
}

#[test]
fn an_oversized_response_is_rejected_with_the_reason() {
    let mut world = world(1);
    fill(&mut world);
    let peer = member(&mut world, 0);
    let back_end = world.connect(0, INTERNAL);
    for (limit, is_refused) in [(601, true), (600, false), (-1, false)] {
        let history = json!({ "channel": CHANNEL, "limit": limit });
        let command = json!({ "id": 3, "history": history });
        let by_client = ask(&mut world, peer, &command.to_string()).lines[0].take();
        let answer = world.ask(back_end, post("/api/history", &history.to_string()));
        let (answer, _) = response(&answer, true);
        let by_api: Value = serde_json::from_str(&answer.body).expect("JSON");
        for reply in [by_client, by_api] {
            let error = &reply["error"];
            assert_eq!(error["code"] == 106, is_refused, "{limit}: {error}");
            let words = error["message"].as_str().unwrap_or_default();
            assert_eq!(words.contains("at most 600"), is_refused, "{words}");
        }
    }
}
