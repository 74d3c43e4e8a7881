//! Tests an open WebSocket: echo, control frames, closing handshake and timeouts.

use veche_proto::websocket::{MessageKind, Opcode};

use crate::world::wire::{ServerMessage, close, control, message, server_messages, text, texts};
use crate::world::{Options, World, limits};

#[test]
fn echoes_survive_every_split() {
    let mut bytes = Vec::new();
    for length in [0, 1, 20, 125, 126, 1000, 65_535, 65_536] {
        bytes.extend(message(MessageKind::Binary, &vec![7; length]));
        bytes.extend(text("ä ".repeat(length / 4).as_str()));
        bytes.extend(control(Opcode::Ping, b"are you there"));
    }
    let mut whole = None;
    let mut random = fastrand::Rng::with_seed(5);
    for step in [usize::MAX, 4096, 1, 0, 0, 0] {
        let mut world = World::new(Options::default());
        let peer = world.open(0, "/echo");
        let mut echoed = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let count = if step == 0 {
                random.usize(1..3000)
            } else {
                step
            }
            .min(bytes.len() - at);
            world.send(peer, &bytes[at..at + count]);
            at += count;
            if step != 1 || at % 64 == 0 {
                world.settle();
                echoed.extend(world.take(peer));
            }
        }
        world.settle();
        echoed.extend(world.take(peer));
        let echoed = server_messages(&echoed);
        assert_eq!(echoed.len(), 24);
        assert_eq!(whole.get_or_insert_with(|| echoed.clone()), &echoed);
    }
}

#[test]
fn closing_and_breaking_the_protocol_have_their_codes() {
    let unmasked = b"\x81\x01a".to_vec();
    let bad_utf8 = message(MessageKind::Text, b"\xff");
    let too_long = message(MessageKind::Binary, &[0; (64 << 10) + 1]);
    let reserved = b"\xf1\x80\0\0\0\0".to_vec();
    let bad_code = b"\x88\x82\0\0\0\0\x03\xed".to_vec();
    let table: &[(Vec<u8>, Option<u16>)] = &[
        (close(Some(1000), "bye"), Some(1000)),
        (close(Some(3999), ""), Some(3999)),
        (close(None, ""), None),
        (unmasked, Some(1002)),
        (bad_utf8, Some(1007)),
        (too_long, Some(1009)),
        (reserved, Some(1002)),
        (bad_code, Some(1002)),
    ];
    for (bytes, code) in table {
        let mut world = World::new(Options::default());
        let peer = world.open(0, "/echo");
        let answer = world.ask(
            peer,
            [text("before"), bytes.clone(), text("after")].concat(),
        );
        let answer = server_messages(&answer);
        assert_eq!(answer[0], ServerMessage::Text("before".to_owned()));
        let [_, ServerMessage::Close(got, _)] = &answer[..] else {
            panic!("{code:?}: {answer:?}")
        };
        assert_eq!(got, code);
        assert!(!world.is_open(peer), "{code:?}");
        assert_eq!(world.stats(0).sessions.read(), 0);
        world.advance(5_001);
        assert!(
            world.is_closed(peer),
            "{code:?}: the transport does not wait for ever"
        );
        world.check_empty();
    }
}

#[test]
fn after_the_clients_fin_nothing_keeps_the_transport() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/ws?user=ann");
    world.finish(peer);
    world.settle();
    assert!(world.is_closed(peer));
    world.check_empty();
}

/// The FIN arrives while the echo of the first message is unsent, and the echo of the last message
/// is not yet passed to the transport.
#[test]
fn a_message_right_before_fin_is_echoed() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/echo");
    world.read_at_most(peer, 0);
    world.send(peer, &text("first"));
    world.settle();
    world.send(peer, &text("last"));
    world.finish(peer);
    world.read_at_most(peer, usize::MAX);
    world.settle();
    let echoes = ["first", "last"].map(|echo| ServerMessage::Text(echo.to_owned()));
    assert_eq!(server_messages(&world.take(peer)), echoes);
    assert!(world.is_closed(peer));
    world.check_empty();
}

#[test]
fn silent_clients_are_pinged_then_closed() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/ws?user=ann");
    world.advance(24_990);
    assert_eq!(world.take(peer), b"");
    world.advance(20);
    assert_eq!(server_messages(&world.take(peer)), [ServerMessage::Ping]);
    world.advance(9_000);
    world.send(peer, &control(Opcode::Pong, b""));
    world.advance(24_990);
    assert_eq!(
        (world.take(peer), world.is_open(peer)),
        (Vec::new(), true),
        "the pong was heard"
    );
    world.advance(20);
    assert_eq!(server_messages(&world.take(peer)), [ServerMessage::Ping]);
    world.advance(9_970);
    assert!(world.is_open(peer));
    world.advance(30);
    assert!(world.is_closed(peer));
    assert_eq!(world.stats(0).pong_timeouts.read(), 1);
    world.check_empty();
}

#[test]
fn a_session_without_messages_is_closed_where_that_is_wanted() {
    let limits = veche_frontends::ConnectionLimits {
        session_idle_timeout_ms: 60_000,
        ping_interval_ms: 0,
        ..limits()
    };
    let mut world = World::new(Options {
        limits,
        ..Options::default()
    });
    let (peer, sender, receiver) = (
        world.open(0, "/echo"),
        world.open(0, "/echo"),
        world.open(0, "/ws?user=ann"),
    );
    world.advance(50_000);
    world.ask(sender, text("still here"));
    let back_end = world.connect(0, crate::world::PUSH);
    world.ask(back_end, "{\"user\":\"ann\",\"data\":1}\n");
    // A ping is no message, so it does not extend the idle timeout.
    world.ask(peer, control(Opcode::Ping, b""));
    world.take(peer);
    world.advance(10_001);
    assert!(matches!(
        &server_messages(&world.take(peer))[..],
        [ServerMessage::Close(Some(1001), _)]
    ));
    assert!(world.is_open(sender) && world.is_open(receiver));
    // If the client does not answer the Close frame, the server closes the transport after the close timeout.
    world.advance(5_001);
    assert!(world.is_closed(peer));
    world.advance(45_000);
    assert!(matches!(
        &server_messages(&world.take(receiver))[..],
        [ServerMessage::Text(_), ServerMessage::Close(Some(1001), _)]
    ));
    // If the client answers the Close frame, the server closes the transport at once.
    world.ask(receiver, close(Some(1001), ""));
    assert!(!world.is_open(receiver));
    world.finish(receiver);
    world.settle();
    assert!(world.is_closed(receiver));
}

#[test]
fn the_closing_handshake_is_not_put_off_by_chatter() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/ws?user=ann");
    let caller = world.connect(0, crate::world::INTERNAL);
    world.ask(
        caller,
        crate::world::wire::post("/api/disconnect", r#"{"user":"ann"}"#),
    );
    assert!(matches!(
        &server_messages(&world.take(peer))[..],
        [ServerMessage::Close(Some(3503), _)]
    ));
    for _ in 0..10 {
        world.send(peer, &text("but"));
        world.send(peer, &control(Opcode::Ping, b""));
        world.advance(510);
    }
    assert_eq!(world.take(peer), b"", "nothing follows a Close");
    assert!(world.is_closed(peer));
}

#[test]
fn compression_is_used_only_if_offered() {
    use veche_proto::websocket::{
        Codecs, Decoder, Encoder, FrameEvent, MessageLimits, Role, deflate,
    };
    let mut world = World::new(Options::default());
    let peer = world.connect(0, crate::world::PUBLIC);
    let policy = deflate::DeflatePolicy::default();
    let mut offer = b"Sec-WebSocket-Extensions: ".to_vec();
    deflate::write_offer(&mut offer, &policy);
    let offer = String::from_utf8(offer).expect("text") + "\r\n";
    let answer = world.ask(peer, crate::world::wire::handshake("/deflate", &offer));
    let answer = crate::world::wire::response(&answer, true).0;
    let extension = answer
        .header("sec-websocket-extensions")
        .expect("agreed")
        .to_owned();
    let agreed = deflate::read_response([extension.as_str()].into_iter(), Some(&policy))
        .expect("a valid answer");
    let (mut encoder, mut decoder, mut codecs) = (
        Encoder::new(Role::Client, agreed),
        Decoder::new(Role::Client, agreed),
        Codecs::default(),
    );
    for n in 0..5 {
        let content = format!("{n} {}", "the same again and again ".repeat(50));
        let mut frame = Vec::new();
        assert!(encoder.encode(
            &mut frame,
            MessageKind::Text,
            content.as_bytes(),
            &mut codecs,
            Some([1, 2, 3, 4])
        ));
        let mut answer = world.ask(peer, frame);
        assert!(answer.len() < content.len() / 4);
        let limits = MessageLimits {
            message_bytes_max: 1 << 20,
            fragments_max: 1,
            inflate_ratio_max: 0,
        };
        match decoder.decode(&mut answer, &mut codecs, &limits) {
            Ok((_, Some(FrameEvent::Message { data, .. }))) => assert_eq!(data, content.as_bytes()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn texts_to_a_push_session_are_taken_and_dropped() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/ws?user=ann");
    assert_eq!(
        texts(&world.ask(peer, text("hello?"))),
        Vec::<String>::new()
    );
    assert!(world.is_open(peer));
    assert_eq!(world.stats(0).messages_received.read(), 1);
}

#[test]
fn a_late_ping_still_leaves_time_for_its_pong() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/ws?user=ann");
    world.advance_alone(0, 600_000);
    assert_eq!(server_messages(&world.take(peer)), [ServerMessage::Ping]);
    world.advance(9_999);
    assert!(world.is_open(peer));
    world.advance(1);
    assert!(world.is_closed(peer));
}
