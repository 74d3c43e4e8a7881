//! Tests clients without a WebSocket: endless responses, and commands in separate requests.

use serde_json::{Value, json};
use veche_frontends::identity::IdentityResult;

use super::bound::fetch_keys;
use super::{in_seconds, publish, token};
use crate::world::wire::{get, post, response, responses};
use crate::world::{PUBLIC, PUSH, Peer, World};

/// Returns the chunks of a body received so far; an empty chunk is the end of the body.
pub(super) fn chunks(mut bytes: &[u8]) -> Vec<String> {
    let mut chunks = Vec::new();
    while !bytes.is_empty() {
        let end = bytes
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("a length");
        let length = std::str::from_utf8(&bytes[..end]).expect("digits");
        let length = usize::from_str_radix(length, 16).expect("a length");
        let chunk = &bytes[end + 2..end + 2 + length];
        chunks.push(String::from_utf8_lossy(chunk).into_owned());
        bytes = &bytes[end + 4 + length..];
    }
    chunks
}

/// Returns the JSON objects that the peer has received in its response since the last call.
pub(super) fn objects(world: &mut World, peer: Peer) -> Vec<Value> {
    world.settle();
    let text = chunks(&world.take(peer)).concat();
    let lines = text.split('\n').filter_map(|line| {
        let line = line.trim().trim_start_matches("data: ");
        let has_data = !line.is_empty() && !line.starts_with("id: ");
        has_data.then(|| serde_json::from_str(line).expect("JSON"))
    });
    lines.collect()
}

/// Opens an endless response; returns it with its first messages.
pub(super) fn open(world: &mut World, worker: usize, request: &str) -> (Peer, Vec<Value>) {
    let peer = world.connect(worker, PUBLIC);
    let bytes = world.ask(peer, request);
    let (response, rest) = response(&bytes, false);
    assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&bytes));
    assert_eq!(response.header("X-Accel-Buffering"), Some("no"));
    assert_eq!(response.header("Connection"), Some("close"));
    let text = chunks(rest).concat();
    let lines = text.split('\n').filter_map(|line| {
        let line = line.trim().trim_start_matches("data: ");
        let has_data = !line.is_empty() && !line.starts_with("id: ");
        has_data.then(|| serde_json::from_str(line).expect("JSON"))
    });
    (peer, lines.collect())
}

fn connect() -> String {
    post("/centrifuge/all/http_stream", r#"{"id":1,"connect":{}}"#)
}

fn events() -> String {
    get("/centrifuge/all/sse?cf_connect=%7B%22id%22%3A1%2C%22connect%22%3A%7B%7D%7D")
}

/// Sends commands of the client that got the connect reply `reply`, in a separate request to a
/// worker. Returns the status.
fn relay(world: &mut World, worker: usize, reply: &Value, commands: &str) -> u16 {
    let caller = world.connect(worker, PUBLIC);
    let body = json!({ "session": reply["session"], "node": "", "data": commands });
    let answer = world.ask(caller, post("/centrifuge/all/emulation", &body.to_string()));
    responses(&answer)[0].status
}

#[test]
fn responses_carry_what_sockets_do() {
    for (request, worker) in [(connect(), 0), (connect(), 2), (events(), 1)] {
        let mut world = super::world(3);
        let back_end = world.connect(0, PUSH);
        let (peer, messages) = open(&mut world, worker, &request);
        let reply = &messages[0]["connect"];
        assert_eq!((&reply["ping"], &reply["pong"]), (&json!(25), &json!(true)));
        let subscribe = "{\"id\":2,\"subscribe\":{\"channel\":\"chat:1\"}}\n{\"id\":3,\"ping\":{}}";
        for through in 0..3 {
            let status = relay(&mut world, through, reply, subscribe);
            assert_eq!(status, 204);
            let messages = objects(&mut world, peer);
            match through {
                0 => assert_eq!(messages[0]["subscribe"]["recoverable"], true),
                _ => assert_eq!(messages[0]["error"]["code"], 105),
            }
            assert_eq!(messages[1], json!({ "id": 3, "ping": {} }));
        }
        publish(&mut world, back_end, "chat:1", 7);
        let push = json!({ "push": { "channel": "chat:1", "pub": { "data": 7, "offset": 1 } } });
        assert_eq!(objects(&mut world, peer), [push]);
        // The client has to answer pings on this transport too, with an empty command.
        world.advance(25_000);
        assert_eq!(objects(&mut world, peer), [json!({})]);
        assert_eq!(relay(&mut world, 1, reply, "{}"), 204);
        world.advance(25_000 + 8_000);
        let messages = objects(&mut world, peer);
        let ended = json!({ "push": { "disconnect": { "code": 3012, "reason": "no pong" } } });
        assert_eq!(messages, [json!({}), ended]);
        assert!(!world.is_open(peer));
        assert_eq!(relay(&mut world, 1, reply, "{}"), 204);
    }
}

#[test]
fn commands_require_the_secret_of_the_session() {
    let mut world = super::world(2);
    let (peer, messages) = open(&mut world, 1, &connect());
    let reply = &messages[0]["connect"];
    let session = reply["session"].as_str().expect("one");
    let other = format!("{}AAAA", &session[..session.len() - 4]);
    for session in [&other[..], "", "x", "AAAA"] {
        let made_up = json!({ "session": session });
        assert_eq!(relay(&mut world, 0, &made_up, r#"{"id":9,"ping":{}}"#), 204);
        assert_eq!(objects(&mut world, peer), [] as [Value; 0], "{session}");
    }
    let caller = world.connect(0, PUBLIC);
    let body = json!({ "session": session, "node": "elsewhere", "data": "{}" });
    let answer = world.ask(caller, post("/centrifuge/all/emulation", &body.to_string()));
    assert_eq!(responses(&answer)[0].status, 404);
    let caller = world.connect(0, PUBLIC);
    let answer = world.ask(caller, post("/centrifuge/all/emulation", "no JSON"));
    assert_eq!(responses(&answer)[0].status, 400);
}

#[test]
fn a_response_is_a_token_s_too_and_ends_with_its_reason() {
    let mut world = super::world(3);
    let pass = token(&json!({ "sub": "ann", "exp": in_seconds(&world, 60) }));
    let command = json!({ "id": 1, "connect": { "token": pass } }).to_string();
    let (peer, messages) = open(
        &mut world,
        0,
        &post("/centrifuge/jwt/http_stream", &command),
    );
    assert_eq!(messages[0]["connect"]["subs"], json!({ "#ann": {} }));
    world.drain();
    let ended = json!({ "push": { "disconnect": { "code": 3001, "reason": "shutdown" } } });
    assert_eq!(objects(&mut world, peer), [ended]);
    assert!(!world.is_open(peer));
    let mut world = super::world(1);
    let bad = r#"{"id":1,"connect":{"token":"x"}}"#;
    let (_, messages) = open(&mut world, 0, &post("/centrifuge/jwt/http_stream", bad));
    assert_eq!(messages[0]["push"]["disconnect"]["code"], 3500);
}

/// Some of the subscriptions wait for the home of their channel, which is another worker.
#[test]
fn all_commands_of_a_request_that_waited_for_keys_are_executed() {
    let mut world = super::world(3);
    let keys = fetch_keys(&mut world);
    let pass = token(&json!({ "sub": "ann", "exp": in_seconds(&world, 60) }));
    let mut commands = r#"{"id":1,"connect":{}}"#.to_owned();
    for id in 2..=7 {
        commands += &format!(
            "\n{}",
            json!({ "id": id, "subscribe": { "channel": format!("open:{id}") } })
        );
    }
    let target = format!("/centrifuge/tokens/http_stream?token={pass}");
    let peer = world.connect(0, PUBLIC);
    let bytes = world.ask(peer, post(&target, &commands));
    assert_eq!(bytes, b"", "the token waits for keys");
    keys.arrive();
    world.found(peer, IdentityResult::KeysFetched);
    let bytes = world.take(peer);
    let (response, rest) = response(&bytes, false);
    assert_eq!(response.status, 200);
    let text = chunks(rest).concat();
    let replies = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let ids: Vec<Value> = replies.map(|reply: Value| reply["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7], "{text}");
}

#[test]
fn a_response_that_opens_in_a_drain_is_ended() {
    for (request, is_one_way) in [
        (connect(), false),
        (events(), false),
        (post("/centrifuge/all/uni_http_stream", "{}"), true),
        (post("/centrifuge/all/uni_sse", "{}"), true),
        (get("/centrifuge/all/uni_sse"), true),
    ] {
        let mut world = super::world(3);
        let peer = world.connect(0, PUBLIC);
        let (begin, rest) = request.split_at(request.len() - 1);
        world.send(peer, begin.as_bytes());
        world.drain();
        let bytes = world.ask(peer, rest);
        let (response, body) = response(&bytes, false);
        assert_eq!(response.status, 200, "{request}");
        let chunks = chunks(body);
        assert_eq!(chunks.last().map(String::as_str), Some(""), "{request}");
        let messages = chunks.concat();
        let messages: Value = serde_json::from_str(messages.trim().trim_start_matches("data: "))
            .unwrap_or_else(|error| panic!("{error} in {messages:?}"));
        let end = json!({ "disconnect": { "code": 3001, "reason": "shutdown" } });
        let expected = if is_one_way {
            end
        } else {
            json!({ "push": end })
        };
        assert_eq!(messages, expected, "{request}");
        assert!(!world.is_open(peer), "{request}");
        world.advance(5_001);
        world.check_empty();
    }
}

#[test]
fn unknown_endpoints_are_rejected() {
    let mut world = super::world(1);
    for (request, status) in [
        (get("/centrifuge/all/other"), 404),
        (get("/centrifuge/all/http_stream"), 405),
        (post("/centrifuge/all/sse", "{}"), 405),
        (get("/centrifuge/all/uni_http_stream"), 405),
        (get("/centrifuge/all/uni_websocket"), 426),
        (get("/centrifuge/all/sse"), 400),
        (get("/centrifuge/all/websocket"), 426),
    ] {
        let peer = world.connect(0, PUBLIC);
        let answer = world.ask(peer, &request);
        assert_eq!(responses(&answer)[0].status, status, "{request}");
    }
    let foreign = "OPTIONS /centrifuge/all/http_stream HTTP/1.1\r\nHost: veche.test\r\n\
        Origin: https://elsewhere.test\r\n\r\n";
    let peer = world.connect(0, PUBLIC);
    let answer = world.ask(peer, foreign);
    assert_eq!(responses(&answer)[0].status, 403);
    let own = foreign.replace("https://elsewhere.test", "http://veche.test");
    let peer = world.connect(0, PUBLIC);
    let answer = &responses(&world.ask(peer, own))[0];
    assert_eq!(answer.status, 204);
    assert_eq!(
        answer.header("Access-Control-Allow-Origin"),
        Some("http://veche.test")
    );
    assert_eq!(answer.header("Access-Control-Max-Age"), Some("300"));
}

/// Returns the status of a request, and the number of sessions after it.
fn status(request: &str) -> (u16, u64) {
    let mut world = World::new(crate::world::Options::default());
    let peer = world.connect(0, PUBLIC);
    let bytes = world.ask(peer, request);
    let (response, _) = response(&bytes, false);
    (response.status, world.stats(0).sessions.read())
}

#[test]
fn a_url_carries_one_connect_command_and_nothing_else() {
    let connect = "%7B%22id%22%3A1%2C%22connect%22%3A%7B%7D%7D";
    let rpc = "%7B%22id%22%3A2%2C%22rpc%22%3A%7B%22method%22%3A%22delete_account%22%7D%7D";
    for (commands, expected) in [
        (connect.to_owned(), (200, 1)),
        (rpc.to_owned(), (400, 0)),
        (format!("{connect}%0A{rpc}"), (400, 0)),
        (format!("{connect}{rpc}"), (400, 0)),
        (format!("{connect}%0A{connect}"), (400, 0)),
    ] {
        let request = get(&format!("/centrifuge/all/sse?cf_connect={commands}"));
        assert_eq!(status(&request), expected, "{commands}");
    }
}

#[test]
fn a_page_of_another_site_opens_no_response() {
    let requests = [
        events(),
        get("/centrifuge/all/uni_sse"),
        post("/centrifuge/all/uni_sse", "{}"),
        post("/centrifuge/all/uni_http_stream", "{}"),
        connect(),
        post("/centrifuge/all/emulation", "{}"),
    ];
    for request in requests {
        let host = request.lines().find(|line| line.starts_with("Host: "));
        let host = host.expect("one").trim_start_matches("Host: ");
        for (headers, is_refused) in [
            ("Sec-Fetch-Site: same-origin".to_owned(), false),
            ("Sec-Fetch-Site: none".to_owned(), false),
            (
                format!("Origin: http://{host}\r\nSec-Fetch-Site: cross-site"),
                false,
            ),
            ("Sec-Fetch-Site: same-site".to_owned(), true),
            (
                "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate".to_owned(),
                true,
            ),
            (
                "Content-Type: text/plain\r\nOrigin: http://evil.example".to_owned(),
                true,
            ),
            ("Origin: null".to_owned(), true),
        ] {
            let request = request.replacen("\r\n\r\n", &format!("\r\n{headers}\r\n\r\n"), 1);
            let (status, sessions) = status(&request);
            assert_eq!(status == 403, is_refused, "{status}: {request}");
            assert!(!is_refused || sessions == 0, "{request}");
        }
    }
}
