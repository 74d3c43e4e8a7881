//! Sessions of applications: their opening, and each way in which they can end.

use veche_proto::websocket::{MessageKind, Opcode};

use crate::world::apps::{AppCall, app_message, closed, opened};
use crate::world::wire::{
    ServerMessage, close, control, handshake, message, post, response, server_messages, text, texts,
};
use crate::world::{INTERNAL, Options, PUBLIC, Peer, World, limits};

#[test]
fn calls_come_in_order_and_answers_go_out_in_order() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let answer = world.ask(peer, handshake("/room/blue%20sky?open=say", ""));
    let (head, frames) = response(&answer, true);
    assert_eq!(
        (head.status, texts(frames)),
        (101, vec!["hello".to_owned()])
    );
    let bytes = [
        text("say one"),
        message(MessageKind::Binary, &[0, 255]),
        control(Opcode::Ping, b"?"),
        text("say two"),
        close(Some(4242), "enough"),
        text("after the end"),
    ]
    .concat();
    let answer = server_messages(&world.ask(peer, bytes));
    let expected = [
        ServerMessage::Text("one".into()),
        ServerMessage::Pong(b"?".to_vec()),
        ServerMessage::Text("two".into()),
        ServerMessage::Close(Some(4242), "enough".into()),
    ];
    assert_eq!(answer, expected);
    let expected = [
        opened("/room/blue sky id=blue sky"),
        app_message("say one"),
        AppCall::Message(MessageKind::Binary, vec![0, 255]),
        app_message("say two"),
        closed(4242, "enough"),
    ];
    assert_eq!(world.app_calls(peer), expected);
    assert!(!world.is_open(peer));
    world.advance(5_001);
    assert_eq!(world.app_calls(peer), []);
    world.check_empty();
}

/// A way in which a session ends.
type Way = fn(&mut World, Peer);

/// Each way of ending is tested on an idle session, and with a suspended handler, queued messages, and unread input.
#[test]
fn every_close_is_reported_once_with_code_and_reason() {
    let ways: &[(&str, Way, u16, &str, bool)] = &[
        (
            "the peer's Close",
            |world, peer| world.send(peer, &close(Some(3001), "bye")),
            3001,
            "bye",
            true,
        ),
        (
            "the peer's Close without a code",
            |world, peer| world.send(peer, &close(None, "")),
            1005,
            "",
            true,
        ),
        ("FIN", World::finish, 1006, "", true),
        ("reset", World::reset, 1006, "", true),
        (
            "a frame without a mask",
            |world, peer| world.send(peer, b"\x81\x01a"),
            1002,
            "frame from client not masked",
            true,
        ),
        (
            "text that is none",
            |world, peer| world.send(peer, &message(MessageKind::Text, b"\xff")),
            1007,
            "invalid UTF-8",
            true,
        ),
        (
            "a message that is too long",
            |world, peer| {
                let long = message(MessageKind::Binary, &[0; (64 << 10) + 1]);
                world.send(peer, &long);
            },
            1009,
            "message too big",
            true,
        ),
        (
            "a back end's disconnect",
            |world, _| {
                let caller = world.connect(0, INTERNAL);
                world.ask(caller, post("/api/disconnect", r#"{"user":"ann"}"#));
            },
            3503,
            "disconnected by the back end",
            false,
        ),
        (
            "a drain",
            |world, _| world.drain(),
            1001,
            "server is going away",
            false,
        ),
        (
            "a slow consumer",
            |world, peer| {
                world.read_at_most(peer, 0);
                let caller = world.connect(0, INTERNAL);
                let push = post(
                    "/api/push",
                    &format!(r#"{{"user":"ann","data":"{}"}}"#, "x".repeat(90_000)),
                );
                for _ in 0..4 {
                    world.ask(caller, &push);
                }
            },
            1013,
            "too slow: try again later",
            false,
        ),
        (
            "nothing is taken for too long",
            |world, peer| {
                world.read_at_most(peer, 0);
                let caller = world.connect(0, INTERNAL);
                world.ask(caller, post("/api/push", r#"{"user":"ann","data":1}"#));
                world.advance(29_999);
                // A pong is sent, since otherwise the connection would end for the lack of one.
                world.send(peer, &control(Opcode::Pong, b""));
                world.advance(2);
            },
            1006,
            "the client accepted no data for too long",
            true,
        ),
        (
            "no pong",
            |world, _| world.advance(36_000),
            1006,
            "no pong",
            true,
        ),
        (
            "idle",
            |world, peer| {
                world.advance(20_000);
                world.send(peer, &control(Opcode::Ping, b""));
                world.advance(20_001);
            },
            1001,
            "idle for too long",
            false,
        ),
        (
            "an application's kick",
            |world, peer| {
                let id = world.id(peer);
                let kick = (id, 4100, "kicked".to_owned());
                world.workers[0]
                    .shared_mut()
                    .requests
                    .disconnects
                    .push(kick);
            },
            4100,
            "kicked",
            false,
        ),
    ];
    for (name, way, code, reason, by_peer) in ways {
        for before in ["", "wait", "wait|kept|kept too"] {
            let mut limits = limits();
            if *name == "idle" {
                limits.session_idle_timeout_ms = 40_000;
            }
            let mut world = World::new(Options {
                limits,
                ..Options::default()
            });
            let peer = world.open(0, "/app-user?user=ann");
            for content in before.split('|').filter(|content| !content.is_empty()) {
                world.send(peer, &text(content));
            }
            world.settle();
            let mut expected: Vec<AppCall> = before.split('|').take(1).map(app_message).collect();
            expected.retain(|one| *one != app_message(""));
            expected.insert(0, opened("/app-user user=ann"));
            assert_eq!(world.app_calls(peer), expected, "{name}, {before}");
            way(&mut world, peer);
            world.settle();
            // If the peer ended the session, its earlier messages are still passed to the application. If the server
            // ended it, they are dropped.
            let kept = before.split('|').skip(1).filter(|_| *by_peer);
            let mut expected: Vec<AppCall> = kept.map(app_message).collect();
            expected.push(closed(*code, reason));
            assert_eq!(world.app_calls(peer), expected, "{name}, {before}");
            // The end of a session is reported only once: later events, and a late end of the handler, have no effect.
            let id = world.id(peer);
            world.workers[0].shared_mut().app_ready.push(id);
            world.settle();
            world.send(peer, &close(Some(1000), ""));
            world.advance(60_000);
            world.reset_all();
            world.settle();
            assert_eq!(world.app_calls(peer), [], "{name}, {before}");
            world.check_empty();
        }
    }
}

#[test]
fn pending_input_is_discarded_when_the_session_closes() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/app-user?user=ann");
    world.send(peer, &text("wait"));
    for n in 0..40 {
        world.send(peer, &text(&format!("behind {n}")));
    }
    world.send(peer, &close(Some(1000), "not seen yet"));
    world.settle();
    assert!(world.waits_for_app(peer));
    world.app_calls(peer);
    let caller = world.connect(0, INTERNAL);
    world.ask(caller, post("/api/disconnect", r#"{"user":"ann"}"#));
    assert_eq!(
        world.app_calls(peer),
        [closed(3503, "disconnected by the back end")]
    );
    // The peer's Close was behind the input that waited. The Close is now read, so the session ends without waiting for
    // a deadline.
    assert!(!world.is_open(peer));
    assert_eq!(world.blocked(peer), None);
    world.reset_all();
    world.check_empty();
}

#[test]
fn an_application_gets_no_events_of_sessions_it_closed() {
    for pieces in [usize::MAX, 1] {
        let mut world = World::new(Options::default());
        let peer = world.open(0, "/app/x");
        let bytes = [text("say one"), text("close 4005 done"), text("say two")].concat();
        world.send_split(peer, &bytes, |_| pieces);
        world.settle();
        let answer = server_messages(&world.take(peer));
        let expected = [
            ServerMessage::Text("one".into()),
            ServerMessage::Close(Some(4005), "done".into()),
        ];
        assert_eq!(answer, expected);
        let expected = [
            opened("/app/x"),
            app_message("say one"),
            app_message("close 4005 done"),
            closed(4005, "done"),
        ];
        assert_eq!(world.app_calls(peer), expected);
        world.ask(peer, close(Some(4005), ""));
        assert!(!world.is_open(peer));
        world.reset_all();
        world.check_empty();
    }
    // An application that closes a session while handling its opening receives no later events of
    // that session either.
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let handshake = handshake("/app/x?open=close", "");
    let answer = world.ask(peer, [handshake.into_bytes(), text("too late")].concat());
    let frames = response(&answer, true).1;
    assert_eq!(
        server_messages(frames),
        [ServerMessage::Close(Some(4001), "not today".into())]
    );
    assert_eq!(
        world.app_calls(peer),
        [opened("/app/x"), closed(4001, "not today")]
    );
}

#[test]
fn compressed_and_fragmented_messages_arrive_whole() {
    use veche_proto::websocket::{Codecs, Encoder, Role, deflate};
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let mut offer = b"Sec-WebSocket-Extensions: ".to_vec();
    deflate::write_offer(&mut offer, &deflate::DeflatePolicy::default());
    let offer = String::from_utf8(offer).expect("text") + "\r\n";
    let answer = world.ask(peer, handshake("/app-deflate", &offer));
    let answer = response(&answer, true).0;
    let extension = answer
        .header("sec-websocket-extensions")
        .expect("agreed")
        .to_owned();
    let policy = deflate::DeflatePolicy::default();
    let agreed = deflate::read_response([extension.as_str()].into_iter(), Some(&policy))
        .expect("a valid answer");
    let (mut encoder, mut codecs) = (Encoder::new(Role::Client, agreed), Codecs::default());
    let mut bytes = Vec::new();
    let long = "again and again ".repeat(50);
    let mask = Some([1, 2, 3, 4]);
    for content in [&*long, "wait", &*long] {
        encoder.encode(
            &mut bytes,
            MessageKind::Text,
            content.as_bytes(),
            &mut codecs,
            mask,
        );
    }
    // A message in three fragments, with a ping between two of them.
    bytes.extend(b"\x01\x81\0\0\0\0a\x00\x81\0\0\0\0b");
    bytes.extend(control(Opcode::Ping, b""));
    bytes.extend(b"\x80\x81\0\0\0\0c");
    world.send_split(peer, &bytes, |_| 7);
    world.settle();
    assert_eq!(
        world.app_calls(peer)[1..],
        [app_message(&long), app_message("wait")]
    );
    assert!(world.end_wait(peer));
    world.settle();
    assert_eq!(
        world.app_calls(peer),
        [app_message(&long), app_message("abc")]
    );
}
