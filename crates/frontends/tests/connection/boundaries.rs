//! Deadlines and limits at their exact values, and the access log entries of requests and sessions.

use std::sync::Arc;

use serde_json::{Value, json};
use veche_frontends::access_log_buffer::{AccessLogEntry, AccessLogFilter, SlowEventKind};
use veche_frontends::hooks::HookDecision;
use veche_frontends::identity::token::{TokenAuth, TokenSource};
use veche_frontends::identity::{AuthError, Identity};
use veche_frontends::route::Route;
use veche_frontends::{ProcessServices, RenewError};
use veche_jwt::TokenError;
use veche_proto::websocket::Opcode;

use super::centrifuge::{in_seconds, token};
use crate::world::wire::{
    ServerMessage, close, control, get, handshake, post, response, responses, server_messages,
    statuses, text, texts,
};
use crate::world::{INTERNAL, LARGE_BYTES, Options, PUBLIC, PUSH, Peer, World, limits};

fn world() -> World {
    World::new(Options::default())
}

fn due_in_ms(world: &World, peer: Peer) -> Option<u64> {
    world.due_ms(peer).map(|due_ms| due_ms - world.now_ms)
}

#[test]
fn the_first_head_has_its_time_from_the_accept_and_others_from_their_first_byte() {
    let limits = limits();
    let mut world = world();
    let peer = world.connect(0, PUBLIC);
    assert_eq!(due_in_ms(&world, peer), Some(limits.header_timeout_ms));
    world.advance(3_000);
    world.send(peer, b"GET /get HT");
    assert_eq!(
        due_in_ms(&world, peer),
        Some(limits.header_timeout_ms - 3_000)
    );
    let bytes = world.ask(peer, b"TP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(statuses(&bytes), [200]);
    assert_eq!(due_in_ms(&world, peer), Some(limits.idle_timeout_ms));
    world.advance(20_000);
    world.send(peer, b"GET /get HT");
    assert_eq!(due_in_ms(&world, peer), Some(limits.header_timeout_ms));
    world.advance(limits.header_timeout_ms - 1);
    assert!(world.is_open(peer));
    world.advance(1);
    assert_eq!(statuses(&world.take(peer)), [408]);
    assert!(!world.is_open(peer));
}

#[test]
fn a_close_that_is_not_answered_is_waited_for_as_long_as_closes_are() {
    let mut world = world();
    let close_timeout_ms = limits().close_timeout_ms;
    // An unmasked frame of a client is a protocol violation in every session.
    for target in ["/echo", "/ws?user=ann", "/centrifuge"] {
        let peer = world.open(0, target);
        let bytes = world.ask(peer, [0x81, 1, b'x']);
        assert!(
            matches!(
                server_messages(&bytes)[..],
                [ServerMessage::Close(Some(1002), _)]
            ),
            "{target}"
        );
        assert_eq!(due_in_ms(&world, peer), Some(close_timeout_ms), "{target}");
        world.advance(close_timeout_ms - 1);
        assert!(!world.is_closed(peer), "{target}");
        world.advance(1);
        assert!(!world.is_open(peer), "{target}");
    }
}

#[test]
fn a_client_that_reads_nothing_is_closed_after_the_write_timeout() {
    let mut limits = limits();
    limits.pong_timeout_ms = 9_000;
    limits.ping_interval_ms = 25_000;
    let mut world = World::new(Options {
        limits,
        ..Options::default()
    });
    let slow = world.open(0, "/ws?user=ann");
    let back_end = world.connect(0, PUSH);
    world.read_at_most(slow, 0);
    world.ask(back_end, "{\"user\":\"ann\",\"data\":1}\n");
    // During this time the client is pinged; the ping does not extend the write timeout.
    world.advance(29_999);
    assert!(world.is_open(slow));
    assert_eq!(world.stats(0).slow_consumers.read(), 0);
    world.advance(1);
    assert!(!world.is_open(slow));
    assert_eq!(world.stats(0).slow_consumers.read(), 1);
}

#[test]
fn unsolicited_pongs_count_as_messages() {
    let mut world = world();
    let peer = world.open(0, "/paced/close/websocket");
    for _ in 0..2 {
        world.ask(peer, control(Opcode::Pong, b""));
        assert_eq!(world.stats(0).rate_limited.read(), 0);
    }
    let bytes = world.ask(peer, control(Opcode::Pong, b""));
    assert!(matches!(
        server_messages(&bytes).last(),
        Some(ServerMessage::Close(..))
    ));
    assert_eq!(world.stats(0).rate_limited.read(), 1);
}

#[test]
fn a_part_of_a_large_file_ends_where_it_ends() {
    let mut world = world();
    let peer = world.connect(0, PUBLIC);
    let last = LARGE_BYTES - 1;
    for (range, bounds) in [
        ("100-199", Some((100, 199))),
        ("70000-200000", Some((70_000, 200_000))),
        ("1048570-", Some((1_048_570, last))),
        ("-3", Some((last - 2, last))),
        ("0-0", Some((0, 0))),
        ("5-2000000", Some((5, last))),
        ("1048576-", None),
    ] {
        let head =
            format!("GET /files/large.bin HTTP/1.1\r\nHost: a\r\nRange: bytes={range}\r\n\r\n");
        let bytes = world.ask(peer, head);
        let Some((first, last)) = bounds else {
            assert_eq!(statuses(&bytes), [416], "{range}");
            continue;
        };
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head")
            + 4;
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        assert!(head.starts_with("http/1.1 206"), "{range}: {head}");
        let says = format!("content-range: bytes {first}-{last}/{LARGE_BYTES}\r\n");
        assert!(head.contains(&says), "{range}: {head}");
        let expected: Vec<u8> = (first..=last).map(|at| (at % 256) as u8).collect();
        assert_eq!(bytes.len() - end, expected.len(), "{range}");
        // The body begins with the byte at the first offset of the range.
        assert_eq!(bytes[end], expected[0], "{range}");
    }
    // A request with two ranges, or with two `Range` headers, gets the whole file.
    let head = "HEAD /files/large.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0\r\n\r\n";
    let bytes = world.ask(peer, head);
    assert_eq!(response(&bytes, false).0.status, 200);
    for headers in [
        "Range: bytes=0-1,3-4\r\n",
        "Range: bytes=0-0\r\nRange: bytes=1-1\r\n",
    ] {
        let head = format!("GET /files/hello.txt HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        assert_eq!(
            responses(&world.ask(peer, head))[0].body,
            "hello\n",
            "{headers}"
        );
    }
    let head = "GET /files/hello.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\n";
    assert_eq!(responses(&world.ask(peer, head))[0].body, "el");
}

fn call(world: &mut World, method: &str, body: &Value) -> Value {
    let caller = world.connect(0, INTERNAL);
    let bytes = world.ask(caller, post(&format!("/api/{method}"), &body.to_string()));
    world.reset(caller);
    serde_json::from_str(&responses(&bytes)[0].body).expect("JSON")
}

#[test]
fn large_queries_of_a_batch_are_limited() {
    let mut world = world();
    let many = |method: &str, count: usize| {
        let body = json!({ "channel": "chat:1" });
        let commands: Vec<Value> = (0..count).map(|_| json!({ method: body })).collect();
        json!({ "commands": commands })
    };
    for method in ["presence", "history"] {
        let answer = call(&mut world, "batch", &many(method, 32));
        assert_eq!(
            answer["replies"].as_array().map(Vec::len),
            Some(32),
            "{answer}"
        );
        let answer = call(&mut world, "batch", &many(method, 33));
        assert_eq!(answer["error"]["code"], 107, "{answer}");
    }
    let answer = call(&mut world, "batch", &many("presence_stats", 33));
    assert_eq!(
        answer["replies"].as_array().map(Vec::len),
        Some(33),
        "{answer}"
    );
    let channels = json!({ "commands": [{ "channels": {} }] });
    assert!(call(&mut world, "batch", &channels)["replies"].is_array());
    let channels = json!({ "commands": [{ "channels": {} }, { "channels": {} }] });
    assert_eq!(call(&mut world, "batch", &channels)["error"]["code"], 107);
    let inner = json!({ "commands": [{ "batch": { "commands": [] } }, { "nonsense": {} }] });
    let answer = call(&mut world, "batch", &inner);
    let codes: Vec<&Value> = answer["replies"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|reply| &reply["error"]["error"]["code"])
        .collect();
    assert_eq!(codes.len(), 2, "{answer}");
}

/// Opens a client of Centrifugo's protocol and sends these commands; returns what it received.
fn sdk(world: &mut World, target: &str, commands: &[Value]) -> (Peer, Vec<Value>) {
    let peer = world.open(0, target);
    let commands: Vec<String> = commands.iter().map(Value::to_string).collect();
    let bytes = world.ask(peer, text(&commands.join("\n")));
    (peer, lines(&bytes))
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    let texts = texts(bytes);
    let lines = texts.iter().flat_map(|text| text.split('\n'));
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn back_ends_see_members_and_publishers() {
    let mut world = world();
    let connect = json!({ "id": 1, "connect": {} });
    let subscribe = json!({ "id": 2, "subscribe": { "channel": "chat:1" } });
    let publish = json!({ "id": 3, "publish": { "channel": "chat:1", "data": 7 } });
    let target = "/centrifuge/named?user=ann";
    let (_, lines) = sdk(&mut world, target, &[connect, subscribe, publish]);
    let client = lines[0]["connect"]["client"].as_str().expect("an id");
    let client_info = json!({ "user": "ann", "client": client });
    let chat = json!({ "channel": "chat:1" });
    let answer = call(&mut world, "presence", &chat);
    assert_eq!(
        answer["result"]["presence"],
        json!({ client: client_info }),
        "{answer}"
    );
    let answer = call(
        &mut world,
        "history",
        &json!({ "channel": "chat:1", "limit": 5 }),
    );
    let publication = &answer["result"]["publications"][0];
    assert_eq!(
        (&publication["data"], &publication["info"]),
        (&json!(7), &client_info),
        "{answer}"
    );
}

#[test]
fn a_repeated_server_side_subscription_recovers() {
    let mut world = world();
    let (peer, _) = sdk(
        &mut world,
        "/centrifuge/named?user=ann",
        &[json!({ "id": 1, "connect": {} })],
    );
    let mut epoch = Value::Null;
    for data in 1..=3 {
        let answer = call(
            &mut world,
            "publish",
            &json!({ "channel": "chat:1", "data": data }),
        );
        epoch = answer["result"]["epoch"].clone();
    }
    let since = json!({ "offset": 1, "epoch": epoch });
    let body = json!({ "user": "ann", "channel": "chat:1", "recover_since": since });
    assert_eq!(
        call(&mut world, "subscribe", &body),
        json!({ "result": {} })
    );
    let received = lines(&world.take(peer));
    let data: Vec<&Value> = received
        .iter()
        .map(|line| &line["push"]["pub"]["data"])
        .collect();
    assert_eq!(data, [&Value::Null, &json!(2), &json!(3)], "{received:?}");
    assert_eq!(received[0]["push"]["subscribe"]["offset"], 1);
    let recoveries: Vec<u64> = world
        .stats(0)
        .recoveries
        .iter()
        .map(|cell| cell.read())
        .collect();
    assert_eq!(recoveries, [1, 0]);
}

#[test]
fn what_a_client_wished_of_a_channel_ends_with_its_subscription() {
    let connect = json!({ "id": 1, "connect": {} });
    let subscribe = json!({ "id": 2, "subscribe": { "channel": "chat:1", "join_leave": true } });
    let unsubscribe = json!({ "id": 3, "unsubscribe": { "channel": "chat:1" } });
    for comes_back in [false, true] {
        let mut world = world();
        let target = "/centrifuge/named?user=ann";
        let (peer, _) = sdk(&mut world, target, &[connect.clone(), subscribe.clone()]);
        if comes_back {
            world.ask(peer, text(&unsubscribe.to_string()));
            call(
                &mut world,
                "subscribe",
                &json!({ "user": "ann", "channel": "chat:1" }),
            );
        }
        world.take(peer);
        let target = "/centrifuge/named?user=bob";
        sdk(&mut world, target, &[connect.clone(), subscribe.clone()]);
        let received = lines(&world.take(peer));
        let joined = received
            .iter()
            .any(|line| line["push"]["join"] != Value::Null);
        assert_eq!(joined, !comes_back, "{received:?}");
    }
}

#[test]
fn a_leave_is_not_sent_for_a_client_that_never_joined() {
    let mut world = world();
    let placed = world.open(0, "/positions?user=ann");
    let plain = world.open(0, "/ws?user=ann&channel=news");
    world.take(placed);
    let body = json!({ "user": "ann", "channel": "news" });
    call(&mut world, "unsubscribe", &body);
    assert_eq!(world.take(placed), b"");
    assert_eq!(world.take(plain), b"", "it has no word for it");
    let answer = call(
        &mut world,
        "publish",
        &json!({ "channel": "news", "data": 1 }),
    );
    assert_eq!(answer["result"]["handed"], 0);
}

#[test]
fn a_session_is_renewed_by_a_token_of_its_own_user_only() {
    let mut world = world();
    let at = |world: &World, user: &str, seconds: u64| {
        token(&json!({ "sub": user, "exp": in_seconds(world, seconds) }))
    };
    let first = at(&world, "ann", 100);
    let connect = json!({ "id": 1, "connect": { "token": first } });
    let (peer, _) = sdk(&mut world, "/centrifuge/jwt", &[connect]);
    let good = at(&world, "ann", 10);
    assert_eq!(world.renew(peer, &good), Some(Ok(Some(10_000))));
    assert_eq!(world.stats(0).tokens_renewed.read(), 1);
    let other = at(&world, "bob", 100);
    assert_eq!(world.renew(peer, &other), Some(Err(RenewError::OtherUser)));
    let late = at(&world, "ann", 0);
    let refused = RenewError::Refused(AuthError::InvalidToken(TokenError::Expired));
    assert_eq!(world.renew(peer, &late), Some(Err(refused)));
    let refusals: u64 = world
        .stats(0)
        .tokens_refused
        .iter()
        .map(|cell| cell.read())
        .sum();
    assert_eq!((refusals, world.stats(0).tokens_renewed.read()), (1, 1));
    // The renewed token expires after 10 seconds. The session ends 25 seconds later, after the grace period.
    world.advance(25_000);
    world.ask(peer, text("{}"));
    world.advance(9_999);
    assert!(world.is_open(peer));
    world.advance(1);
    let received = server_messages(&world.take(peer));
    let expired = ServerMessage::Close(Some(3005), "connection expired".into());
    assert_eq!(received.last(), Some(&expired));
    assert_eq!(world.renew(peer, &good), Some(Err(RenewError::Closed)));
    let named = world.open(0, "/ws?user=ann");
    let good = at(&world, "ann", 100);
    assert_eq!(world.renew(named, &good), Some(Err(RenewError::NoLease)));
}

fn entries(world: &mut World) -> Vec<AccessLogEntry> {
    let mut done = Vec::new();
    let access_log = &mut world.workers[0].shared_mut().requests.outboxes.access_log;
    access_log.take_entries(&mut done);
    done
}

#[test]
fn requests_and_sessions_have_an_entry_each() {
    let mut world = world();
    let choice = Some(AccessLogFilter {
        sample_rate: 1.0,
        internal: false,
    });
    world.workers[0]
        .shared_mut()
        .requests
        .outboxes
        .access_log
        .set_filter(choice, 7);
    let peer = world.connect(0, PUBLIC);
    let request = "GET /get?secret HTTP/1.1\r\nHost: a\r\nUser-Agent: ua\r\n\r\n";
    let answer = world.ask(peer, request).len() as u64;
    let entry = entries(&mut world).remove(0);
    assert_eq!(
        (&*entry.path, &*entry.method, entry.status),
        ("/get", "GET", 200)
    );
    assert_eq!(
        (&*entry.user_agent, entry.bytes_in),
        ("ua", request.len() as u64)
    );
    assert_eq!(entry.bytes_out, answer);
    assert_eq!(entry.route.as_deref(), Some("/get"));
    let refused = world.ask(peer, "nonsense\r\n\r\n").len() as u64;
    let entry = entries(&mut world).remove(0);
    assert_eq!(
        (entry.status, entry.bytes_out, &*entry.path),
        (400, refused, "")
    );
    let session = world.open(0, "/ws?user=ann");
    assert!(entries(&mut world).is_empty());
    call(
        &mut world,
        "push",
        &json!({ "user": "ann", "data": "four" }),
    );
    assert!(
        entries(&mut world).is_empty(),
        "internal requests are not chosen"
    );
    world.ask(session, close(Some(4001), ""));
    let entry = entries(&mut world).remove(0);
    let what = entry.session.expect("a session");
    assert_eq!((what.messages_out, what.close_code), (1, Some(4001)));
    assert_eq!((entry.status, entry.bytes_out), (101, 4));
    assert_eq!(entry.user.as_deref(), Some("ann"));
}

#[test]
fn slow_clients_are_noted_by_name_and_place() {
    let mut world = World::new(Options {
        outbox_bytes: 4_096,
        ..Options::default()
    });
    let data = "x".repeat(3_000);
    let slow = world.open(0, "/ws?user=ann");
    world.read_at_most(slow, 0);
    for _ in 0..2 {
        call(&mut world, "push", &json!({ "user": "ann", "data": data }));
    }
    let access_log = &mut world.workers[0].shared_mut().requests.outboxes.access_log;
    let slow = access_log.take_slow_events();
    let whats: Vec<(SlowEventKind, &str)> =
        slow.iter().map(|one| (one.kind, &*one.subject)).collect();
    let expected = ["ann at 127.0.0.1 on /ws: closed with 2 KiB unsent"];
    assert_eq!(whats, expected.map(|what| (SlowEventKind::Consumer, what)));
    assert_eq!(world.stats(0).slow_consumers.read(), 1);
}

#[test]
fn hook_requests_carry_the_client_address() {
    let mut world = world();
    let peer = world.open(0, "/centrifuge/asked/x/websocket");
    world.ask(peer, text(r#"{"id":1,"connect":{}}"#));
    let hook_requests = world.hook_requests(0);
    assert_eq!(hook_requests[0].caller.address.to_string(), "127.0.0.1");
    assert_eq!(hook_requests[0].caller.transport, "websocket");
}

/// Process services that report the user `ended` as disconnected since authentication began.
struct Ending;

impl ProcessServices for Ending {
    fn is_ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn disconnect_count(&self) -> u64 {
        4
    }

    fn is_disconnected_since(&self, user: &str, endings: u64, _: &str) -> bool {
        user == "ended" && endings == 4
    }

    fn log_error(&self, what: &str) {
        panic!("{what}");
    }

    fn nodes(&self) -> String {
        String::new()
    }
}

#[test]
fn a_client_disconnected_during_its_identity_lookup_is_rejected() {
    let mut world = world();
    world.workers[0].shared_mut().process = Arc::new(Ending);
    for (user, is_open) in [("ann", true), ("ended", false)] {
        let pass = token(&json!({ "sub": user, "exp": in_seconds(&world, 60) }));
        let peer = world.open(0, "/centrifuge/jwt");
        let connect = json!({ "id": 1, "connect": { "token": pass } });
        let received = server_messages(&world.ask(peer, text(&connect.to_string())));
        let end = ServerMessage::Close(Some(3503), "disconnected by the back end".into());
        assert_eq!(received.contains(&end), !is_open, "{received:?}");
    }
}

#[test]
fn upgrades_are_rejected_only_on_routes_without_websocket() {
    let mut world = world();
    for (listener, target, status) in [
        (PUBLIC, "/ws?user=ann", 101),
        (PUBLIC, "/echo", 101),
        (PUBLIC, "/centrifuge", 101),
        (INTERNAL, "/api/socket", 101),
        (INTERNAL, "/api/socket/", 101),
        (INTERNAL, "/api/push", 405),
        (PUBLIC, "/get", 200),
        (PUBLIC, "/files/hello.txt", 200),
    ] {
        let peer = world.connect(0, listener);
        let bytes = world.ask(peer, handshake(target, ""));
        assert_eq!(response(&bytes, true).0.status, status, "{target}");
    }
    let peer = world.connect(0, PUBLIC);
    assert_eq!(statuses(&world.ask(peer, get("/echo"))).len(), 1);
}

/// Makes the route `/header` take its tokens from the offered subprotocols.
fn tokens_by_protocol(world: &mut World) {
    let site = Arc::get_mut(&mut world.workers[0].shared_mut().config).expect("the only one");
    let of = |path: &str| site.routes.iter().position(|route| route.path == path);
    let (place, model) = (
        of("/header").expect("there"),
        of("/centrifuge/jwt").expect("there"),
    );
    let Identity::Token(tokens) = &site.routes[model].identity else {
        panic!("a route of tokens");
    };
    let tokens = TokenAuth::new(vec![TokenSource::Protocol], tokens.connections.clone());
    site.routes[place] = Arc::new(Route {
        identity: Identity::Token(Arc::new(tokens)),
        ..(*site.routes[place]).clone()
    });
}

#[test]
fn a_token_among_subprotocols_is_not_echoed() {
    let mut world = world();
    tokens_by_protocol(&mut world);
    let pass = token(&json!({ "sub": "ann", "exp": in_seconds(&world, 60) }));
    for (offered, status, chosen) in [
        (format!("chat, bearer.{pass}"), 101, Some("chat")),
        (format!("bearer.{pass}, other, chat"), 101, Some("other")),
        (format!("bearer.{pass}"), 101, None),
        ("chat".to_owned(), 401, None),
        (format!("chat, bearer.{pass}x"), 401, None),
    ] {
        let peer = world.connect(0, PUBLIC);
        let offer = format!("Sec-WebSocket-Protocol: {offered}\r\n");
        let bytes = world.ask(peer, handshake("/header", &offer));
        let (head, _) = response(&bytes, true);
        let got = (head.status, head.header("sec-websocket-protocol"));
        assert_eq!(got, (status, chosen), "{offered}");
    }
    // If the client offers no token, the server selects no subprotocol.
    let peer = world.connect(0, PUBLIC);
    let offer = "Sec-WebSocket-Protocol: chat\r\n";
    let bytes = world.ask(peer, handshake("/echo", offer));
    let (head, _) = response(&bytes, true);
    assert_eq!(
        (head.status, head.header("sec-websocket-protocol")),
        (101, None)
    );
}

#[test]
fn not_modified_responses_have_no_content_type() {
    let mut world = world();
    let peer = world.connect(0, PUBLIC);
    let whole = responses(&world.ask(peer, get("/files/hello.txt"))).remove(0);
    let tag = whole.header("etag").expect("a tag");
    assert!(
        whole
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/plain"))
    );
    let head = format!("GET /files/hello.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\r\n");
    let same = responses(&world.ask(peer, head)).remove(0);
    assert_eq!((same.status, same.header("content-type")), (304, None));
    assert_eq!(same.header("etag"), Some(tag));
    let missing = responses(&world.ask(peer, get("/files/none"))).remove(0);
    let kind = Some("text/plain; charset=utf-8");
    assert_eq!(
        (missing.status, missing.header("content-type")),
        (404, kind)
    );
}

#[test]
fn how_long_others_take_does_not_count_against_a_client_that_connects() {
    let mut world = world();
    let peer = world.open(0, "/centrifuge/asked/x/websocket");
    let whole_ms = due_in_ms(&world, peer).expect("a deadline");
    world.advance(2_000);
    world.ask(peer, text(r#"{"id":1,"connect":{}}"#));
    world.advance(7_000);
    let request = world.hook_requests(0).remove(0);
    let decision = HookDecision::Error {
        code: 103,
        message: "no".into(),
        is_temporary: false,
    };
    world.deliver_decision(0, &request, decision);
    world.settle();
    let received = lines(&world.take(peer));
    assert_eq!(received[0]["error"]["code"], 103);
    assert_eq!(due_in_ms(&world, peer), Some(whole_ms - 2_000));
}
