//! Clients of Centrifugo's protocol: what each command is answered, in which order, and why sessions end.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};
use veche_frontends::Limits;

use crate::world::wire::{Said, close, handshake, message, post, response, responses, said, text};
use crate::world::{INTERNAL, Options, PUBLIC, PUSH, Peer, SECRET, World};

const CONNECT: &str = r#"{"id":1,"connect":{}}"#;

fn world(workers: u16) -> World {
    World::new(Options {
        workers,
        ..Options::default()
    })
}

/// What was said: the lines of texts, and the code and reason of a close.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    frames: usize,
    lines: Vec<Value>,
    closed: Option<(u16, String)>,
}

fn heard(bytes: &[u8]) -> Heard {
    let mut heard = Heard::default();
    for said in said(bytes) {
        match said {
            Said::Text(text) => {
                heard.frames += 1;
                let lines = text.split('\n');
                let lines = lines.map(|line| serde_json::from_str(line).expect("JSON"));
                heard.lines.extend(lines);
            }
            Said::Close(code, reason) => heard.closed = Some((code.expect("a code"), reason)),
            other => panic!("neither text nor close: {other:?}"),
        }
    }
    heard
}

fn ask(world: &mut World, peer: Peer, commands: &str) -> Heard {
    let bytes = world.ask(peer, text(commands));
    heard(&bytes)
}

fn take(world: &mut World, peer: Peer) -> Heard {
    world.settle();
    heard(&world.take(peer))
}

/// A session that is connected, and its connect reply.
fn connect(world: &mut World, worker: usize, target: &str, connect: &Value) -> (Peer, Value) {
    let peer = world.open(worker, target);
    let command = json!({ "id": 1, "connect": connect });
    let mut heard = ask(world, peer, &command.to_string());
    assert_eq!((heard.lines.len(), &heard.closed), (1, &None), "{heard:?}");
    assert_eq!(heard.lines[0]["id"], 1);
    (peer, heard.lines[0]["connect"].take())
}

fn ann(world: &mut World, worker: usize) -> Peer {
    connect(world, worker, "/centrifuge/named?user=ann", &json!({})).0
}

fn publish(world: &mut World, back_end: Peer, channel: &str, data: u32) {
    let line = format!("{{\"channel\":\"{channel}\",\"data\":{data}}}\n");
    assert!(world.ask(back_end, line).is_empty());
}

fn token(claims: &Value) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Time passes, and the client answers pings; what else it heard.
fn pass(world: &mut World, peer: Peer, mut ms: u64) -> Vec<Value> {
    let mut lines = Vec::new();
    while ms > 0 {
        let step = ms.min(1_000);
        world.advance(step);
        ms -= step;
        lines.extend(ask(world, peer, "{}").lines);
    }
    lines.retain(|line| *line != json!({}));
    lines
}

/// Seconds since 1970 in the world of the tests.
fn in_seconds(world: &World, seconds: u64) -> u64 {
    (1_800_000_000_000 + world.now_ms) / 1000 + seconds
}

#[test]
fn what_is_no_command_ends_the_session_with_its_code() {
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
        let heard = take(&mut world, peer);
        assert_eq!(heard.closed.as_ref(), expected, "{frames:?}");
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
        (json!({ "subscribe": { "channel": long } }), 102),
        (json!({ "subscribe": { "channel": "a\u{1}" } }), 102),
        (json!({ "subscribe": { "channel": "news" } }), 103),
        (json!({ "subscribe": { "channel": "token:1" } }), 103),
        (json!({ "subscribe": { "channel": "open:$1" } }), 103),
        (json!({ "subscribe": { "channel": "open:1#bob" } }), 103),
        (json!({ "subscribe": { "channel": "#bob" } }), 103),
        // No route of tokens.
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
            108,
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
        (json!({ "history": { "channel": "chat:2" } }), 103),
        (
            json!({ "history": { "channel": "chat:1", "since": { "offset": 1, "epoch": "x" } } }),
            112,
        ),
        (json!({ "presence": { "channel": "chat:2" } }), 103),
        (json!({ "presence": { "channel": "open:1" } }), 108),
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
        let heard = ask(&mut world, peer, &command.to_string());
        assert_eq!(heard.closed, None, "{command}");
        assert_eq!(heard.lines.len(), 1, "{command}");
        assert_eq!(
            (&heard.lines[0]["id"], &heard.lines[0]["error"]["code"]),
            (&json!(7), &json!(code)),
            "{command}"
        );
    }
    // What it never heard it may stop hearing.
    let heard = ask(
        &mut world,
        peer,
        r#"{"id":8,"unsubscribe":{"channel":"nowhere"}}"#,
    );
    assert_eq!(heard.lines, [json!({ "id": 8, "unsubscribe": {} })]);
    let many: Vec<String> = (0..128)
        .map(|n| {
            json!({ "id": n + 1, "subscribe": { "channel": format!("open:n{n}") } }).to_string()
        })
        .collect();
    let heard = ask(&mut world, peer, &many.join("\n"));
    let refused = |line: &&Value| line["error"]["code"] == 106;
    assert_eq!(heard.lines.iter().filter(refused).count(), 4);
    let ids: Vec<u64> = heard
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
        let heard = ask(&mut world, peer, &commands.join("\n"));
        let ids: Vec<u64> = heard
            .lines
            .iter()
            .filter_map(|line| line["id"].as_u64())
            .collect();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8], "{heard:?}");
        assert!(heard.lines.iter().all(|line| line["error"] == Value::Null));
        if workers == 1 {
            // The connect reply goes ahead.
            assert_eq!(heard.frames, 2);
        }
        let (back_end, before) = (world.connect(0, PUSH), 3);
        publish(&mut world, back_end, "chat:1", before);
        let push = &take(&mut world, peer).lines[0]["push"];
        assert_eq!(push["pub"], json!({ "data": 3, "offset": 1 }));
    }
}

#[test]
fn a_client_hears_itself_behind_the_answer_to_its_subscription() {
    for worker in 0..3 {
        let mut world = world(3);
        let peer = ann(&mut world, worker);
        let commands = "{\"id\":2,\"subscribe\":{\"channel\":\"chat:1\"}}\n\
            {\"id\":3,\"publish\":{\"channel\":\"chat:1\",\"data\":{\"a\":1}}}";
        let heard = ask(&mut world, peer, commands);
        assert_eq!(heard.lines.len(), 3, "{heard:?}");
        assert_eq!(heard.lines[0]["id"], 2);
        let of = |key: &str| heard.lines.iter().find(|line| line[key] != Value::Null);
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
fn who_comes_back_gets_what_he_missed() {
    for worker in 0..3 {
        let mut world = world(3);
        let back_end = world.connect(0, PUSH);
        let peer = ann(&mut world, worker);
        let heard = ask(
            &mut world,
            peer,
            r#"{"id":2,"subscribe":{"channel":"chat:1"}}"#,
        );
        let joined = &heard.lines[0]["subscribe"];
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
        // Three are kept.
        let (_, line) = again(&mut world, 1, 0);
        let expected = json!({ "recoverable": true, "positioned": true, "epoch": epoch, "offset": 5,
            "was_recovering": true });
        assert_eq!(line["subscribe"], expected);
        let (peer, line) = again(&mut world, 1, 2);
        assert_eq!(line["error"]["code"], 112);
        publish(&mut world, back_end, "chat:1", 6);
        assert_eq!(
            take(&mut world, peer),
            Heard::default(),
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
        // The home of some channels is here: they are subscribed before the others answer.
        let back_end = world.connect(0, PUSH);
        for channel in channels.iter().map(String::as_str).chain(["#ann"]) {
            let line = format!("{{\"channel\":\"{channel}\",\"data\":\"{channel}\"}}\n");
            world.send(back_end, line.as_bytes());
        }
        let heard = take(&mut world, peer);
        assert_eq!(heard.lines[0]["id"], 1, "{heard:?}");
        let subs = heard.lines[0]["connect"]["subs"].as_object().expect("subs");
        let given = if target.contains("jwt") { 10 } else { 1 };
        assert_eq!(subs.len(), given);
        assert_eq!(subs["#ann"], json!({}));
        for line in &heard.lines[1..] {
            let push = &line["push"];
            assert_eq!(push["channel"], push["pub"]["data"]);
            // Where the reply says that the client is, the next one follows.
            let told = subs[push["channel"].as_str().expect("a name")]["offset"].as_u64();
            let offset = push["pub"]["offset"].as_u64().unwrap_or(1);
            assert_eq!(told.unwrap_or(0) + 1, offset);
        }
        let told = subs.values().filter(|sub| sub["offset"] == 1).count();
        assert!(heard.lines.len() - 1 + told >= given - 1);
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
    assert_eq!(ask(&mut world, peer, "{}"), Heard::default());
    for _ in 0..3 {
        // Whoever speaks is pinged all the same: clients go by the interval.
        world.advance(24_000);
        let heard = ask(&mut world, peer, r#"{"id":2,"ping":{}}"#);
        assert_eq!(heard.lines, [json!({ "id": 2, "ping": {} })]);
        world.advance(1_000);
        assert_eq!(take(&mut world, peer).lines, [json!({})]);
        assert_eq!(ask(&mut world, peer, "{}"), Heard::default());
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
fn tokens_end_and_are_renewed() {
    let mut world = world(3);
    let claims = |world: &World, seconds: u64, user: &str| {
        token(&json!({ "sub": user, "exp": in_seconds(world, seconds), "info": { "a": 1 } }))
    };
    let good = claims(&world, 60, "ann");
    let (peer, reply) = connect(&mut world, 1, "/centrifuge/jwt", &json!({ "token": good }));
    assert_eq!(
        (&reply["expires"], &reply["ttl"]),
        (&json!(true), &json!(60))
    );
    assert!(pass(&mut world, peer, 50_000).is_empty());
    let next = claims(&world, 60, "ann");
    let command = json!({ "id": 2, "refresh": { "token": next } }).to_string();
    let refreshed = ask(&mut world, peer, &command).lines;
    assert_eq!(
        (
            &refreshed[0]["refresh"]["expires"],
            &refreshed[0]["refresh"]["ttl"]
        ),
        (&json!(true), &json!(60))
    );
    // A subscription by token, which is shorter.
    let sub = |world: &World, seconds: u64, channel: &str, user: &str| {
        let exp = in_seconds(world, seconds);
        token(&json!({ "sub": user, "exp": exp, "channel": channel, "info": "guest" }))
    };
    let asks = |world: &mut World, id: u64, channel: &str, token: String| {
        let request = json!({ "channel": channel, "token": token });
        let command = json!({ "id": id, "subscribe": request }).to_string();
        ask(world, peer, &command).lines[0].clone()
    };
    for (channel, of, user, code) in [
        ("token:1", "token:2", "ann", 103),
        ("token:1", "token:1", "bob", 103),
        ("open:$1", "open:1", "ann", 103),
    ] {
        let token = sub(&world, 60, of, user);
        assert_eq!(asks(&mut world, 3, channel, token)["error"]["code"], code);
    }
    let late = sub(&world, 0, "token:1", "ann");
    assert_eq!(asks(&mut world, 3, "token:1", late)["error"]["code"], 109);
    let good = sub(&world, 20, "token:1", "ann");
    let joined = asks(&mut world, 4, "token:1", good);
    assert_eq!(joined["subscribe"], json!({ "expires": true, "ttl": 20 }));
    pass(&mut world, peer, 19_000);
    let renewed = sub(&world, 20, "token:1", "ann");
    let request = json!({ "channel": "token:1", "token": renewed });
    let command = json!({ "id": 5, "sub_refresh": request }).to_string();
    let heard = ask(&mut world, peer, &command);
    assert_eq!(
        heard.lines.last(),
        Some(&json!({ "id": 5, "sub_refresh": { "expires": true, "ttl": 20 } }))
    );
    // Its time is over, and so is the grace.
    assert!(pass(&mut world, peer, 44_999).is_empty());
    let lines = pass(&mut world, peer, 1);
    let push = json!({ "push": { "channel": "token:1",
        "unsubscribe": { "code": 2501, "reason": "subscription expired" } } });
    assert_eq!(lines, [push]);
    // So it is with the connection.
    let short = claims(&world, 3, "ann");
    let command = json!({ "id": 6, "refresh": { "token": short } }).to_string();
    assert_eq!(ask(&mut world, peer, &command).closed, None);
    assert!(pass(&mut world, peer, 3_000 + 25_000 - 1).is_empty());
    world.advance(1);
    assert_eq!(
        take(&mut world, peer).closed,
        Some((3005, "connection expired".to_owned()))
    );
}

#[test]
fn tokens_that_do_not_hold_open_nothing() {
    let mut world = world(1);
    let exp = in_seconds(&world, 60);
    let good = token(&json!({ "sub": "ann", "exp": exp }));
    for (pass, code, closed) in [
        (String::new(), Some(101), None),
        ("x.y.z".to_owned(), None, Some(3500)),
        (format!("{good}x"), None, Some(3500)),
        (
            token(&json!({ "sub": "ann", "exp": exp, "channel": "a" })),
            None,
            Some(3500),
        ),
        (token(&json!({ "sub": "ann" })), None, Some(3500)),
        (token(&json!({ "exp": exp })), None, Some(3500)),
        (
            token(&json!({ "sub": "ann", "exp": exp - 60 })),
            Some(109),
            None,
        ),
        (
            token(&json!({ "sub": "ann", "exp": exp, "channels": ["a\u{1}"] })),
            None,
            Some(3500),
        ),
    ] {
        let peer = world.open(0, "/centrifuge/jwt");
        let command = json!({ "id": 1, "connect": { "token": pass } }).to_string();
        let heard = ask(&mut world, peer, &command);
        let error = heard
            .lines
            .first()
            .and_then(|line| line["error"]["code"].as_u64());
        assert_eq!(error, code, "{pass}");
        assert_eq!(heard.closed.map(|(code, _)| code), closed, "{pass}");
        if closed.is_none() {
            // Another one may be good.
            let command = json!({ "id": 2, "connect": { "token": good } }).to_string();
            let heard = ask(&mut world, peer, &command);
            assert_eq!(heard.lines[0]["connect"]["ttl"], 60);
        }
        world.reset(peer);
        world.settle();
    }
    // One may come with the handshake too, and then in the connect command only one of the same user.
    let target = format!("/centrifuge/jwt?token={good}");
    let (_, reply) = connect(&mut world, 0, &target, &json!({}));
    assert_eq!(
        (&reply["ttl"], &reply["subs"]),
        (&json!(60), &json!({ "#ann": {} }))
    );
    let peer = world.open(0, &target);
    let bob = token(&json!({ "sub": "bob", "exp": exp }));
    let command = json!({ "id": 1, "connect": { "token": bob } }).to_string();
    assert_eq!(
        ask(&mut world, peer, &command).closed.map(|(code, _)| code),
        Some(3500)
    );
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
            // The same two in Protobuf: ids, and the fields 4 and 5 of a command.
            _ => message(
                veche_proto::websocket::MessageKind::Binary,
                b"\x04\x08\x01\x22\x00\x0c\x08\x02\x2a\x08\x0a\x06open:1",
            ),
        };
        world.ask(peer, subscribe);
        peers.push(peer);
    }
    let encoded = |world: &World| -> u64 {
        let of = |worker: usize| world.workers[worker].shared.ports.outboxes.pushes_encoded();
        of(0) + of(1)
    };
    let before = encoded(&world);
    publish(&mut world, back_end, "open:1", 7);
    // Two workers, two encodings.
    assert_eq!(encoded(&world) - before, 4);
    for peer in peers {
        let bytes = world.take(peer);
        match &said(&bytes)[..] {
            [Said::Text(text)] => {
                assert_eq!(text, r#"{"push":{"channel":"open:1","pub":{"data":7}}}"#)
            }
            [Said::Binary(push)] => {
                assert_eq!(push, b"\x0f\x22\x0d\x12\x06open:1\x22\x03\x22\x017");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn sessions_end_with_the_protocol_s_own_codes() {
    let mut world = World::new(Options {
        outbox_bytes: 4 << 10,
        ..Options::default()
    });
    let back_end = world.connect(0, PUSH);
    let subscribe = r#"{"id":2,"subscribe":{"channel":"open:1"}}"#;
    // Data that no JSON can hold.
    let misfit = ann(&mut world, 0);
    ask(&mut world, misfit, subscribe);
    world.ask(back_end, "{\"channel\":\"open:1\",\"binary\":\"AP8=\"}\n");
    let closed = take(&mut world, misfit).closed;
    assert_eq!(closed, Some((3506, "inappropriate protocol".to_owned())));
    // A client that reads nothing.
    let slow = ann(&mut world, 0);
    ask(&mut world, slow, subscribe);
    world.read_at_most(slow, 0);
    for number in 0..200 {
        publish(&mut world, back_end, "open:1", number);
    }
    world.read_at_most(slow, usize::MAX);
    assert_eq!(
        take(&mut world, slow).closed,
        Some((3008, "slow".to_owned()))
    );
    // The back end wants it so.
    let ended = ann(&mut world, 0);
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(caller, post("/api/disconnect", r#"{"user":"ann"}"#));
    assert_eq!(responses(&answer)[0].status, 200);
    assert_eq!(
        take(&mut world, ended).closed.map(|(code, _)| code),
        Some(3503)
    );
    // The server ends.
    let last = ann(&mut world, 0);
    world.drain();
    assert_eq!(
        take(&mut world, last).closed,
        Some((3001, "shutdown".to_owned()))
    );
}

#[test]
fn the_subprotocol_is_said_back() {
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
    let limits = Limits {
        ping_interval_ms: 0,
        ..Limits::default()
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
    assert_eq!(take(&mut world, peer), Heard::default());
}

#[test]
fn who_is_there_is_told_to_those_who_are_there_too() {
    for worker in 0..3 {
        let mut world = world(3);
        let peer = ann(&mut world, worker);
        let subscribe = r#"{"id":2,"subscribe":{"channel":"chat:1","join_leave":true}}"#;
        // Her own joining is told behind the answer, if it is.
        let heard = ask(&mut world, peer, subscribe);
        assert_eq!(heard.lines[0]["id"], 2, "{heard:?}");
        let (bob, reply) = connect(
            &mut world,
            (worker + 1) % 3,
            "/centrifuge/named?user=bob",
            &json!({}),
        );
        let client = reply["client"].as_str().expect("a name").to_owned();
        ask(
            &mut world,
            bob,
            r#"{"id":2,"subscribe":{"channel":"chat:1"}}"#,
        );
        let who = json!({ "user": "bob", "client": client });
        let push = |kind: &str| json!({ "push": { "channel": "chat:1", kind: { "info": who } } });
        assert_eq!(take(&mut world, peer).lines, [push("join")]);
        let heard = ask(
            &mut world,
            peer,
            r#"{"id":3,"presence":{"channel":"chat:1"}}"#,
        );
        let presence = &heard.lines[0]["presence"]["presence"];
        assert_eq!(presence[&client], who);
        assert_eq!(presence.as_object().map(serde_json::Map::len), Some(2));
        let stats = ask(
            &mut world,
            peer,
            r#"{"id":4,"presence_stats":{"channel":"chat:1"}}"#,
        );
        let counts = json!({ "num_clients": 2, "num_users": 2 });
        assert_eq!(stats.lines[0]["presence_stats"], counts);
        // Whoever does not ask for it is not told.
        assert_eq!(take(&mut world, bob).lines.len(), 0);
        ask(
            &mut world,
            bob,
            r#"{"id":3,"unsubscribe":{"channel":"chat:1"}}"#,
        );
        world.advance(4_999);
        assert_eq!(take(&mut world, peer), Heard::default(), "he may come back");
        world.advance(2_000);
        for worker in &mut world.workers {
            worker.shared.trim();
        }
        assert_eq!(take(&mut world, peer).lines, [push("leave")]);
    }
}

#[test]
fn a_back_end_subscribes_and_unsubscribes_connections() {
    for worker in 0..3 {
        let mut world = world(3);
        let back_end = world.connect(0, PUSH);
        publish(&mut world, back_end, "chat:1", 1);
        let (peer, reply) = connect(&mut world, worker, "/centrifuge/named?user=ann", &json!({}));
        let other = ann(&mut world, 2);
        let call = |world: &mut World, method: &str, body: Value| {
            let caller = world.connect(1, INTERNAL);
            let answer = world.ask(caller, post(&format!("/api/{method}"), &body.to_string()));
            let answer = &responses(&answer)[0];
            assert_eq!(answer.status, 200);
            assert!(!answer.body.contains("error"), "{}", answer.body);
        };
        let client = &reply["client"];
        let body =
            json!({ "user": "ann", "client": client, "channel": "chat:1", "data": { "a": 1 } });
        call(&mut world, "subscribe", body);
        let lines = take(&mut world, peer).lines;
        let subscribe = &lines[0]["push"]["subscribe"];
        assert_eq!(lines[0]["push"]["channel"], "chat:1");
        assert_eq!(
            (&subscribe["offset"], &subscribe["data"]),
            (&json!(1), &json!({ "a": 1 }))
        );
        publish(&mut world, back_end, "chat:1", 2);
        let lines = take(&mut world, peer).lines;
        assert_eq!(lines[0]["push"]["pub"], json!({ "data": 2, "offset": 2 }));
        assert_eq!(take(&mut world, other), Heard::default());
        call(
            &mut world,
            "unsubscribe",
            json!({ "user": "ann", "channel": "chat:1" }),
        );
        let lines = take(&mut world, peer).lines;
        let ended = json!({ "code": 2000, "reason": "server unsubscribe" });
        assert_eq!(lines[0]["push"]["unsubscribe"], ended);
        publish(&mut world, back_end, "chat:1", 3);
        assert_eq!(take(&mut world, peer), Heard::default());
        // Only that one.
        call(
            &mut world,
            "disconnect",
            json!({ "user": "ann", "client": client }),
        );
        assert_eq!(
            take(&mut world, peer).closed.map(|(code, _)| code),
            Some(3503)
        );
        assert_eq!(take(&mut world, other), Heard::default());
    }
}
