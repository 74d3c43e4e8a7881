//! Outbound connections of applications. The peer is the server, and its bytes arrive in arbitrary
//! pieces.

use veche_frontends::{AppId, ClientOptions, DialCommand, DialId};
use veche_proto::http::{HeadLimits, parse_head};
use veche_proto::websocket::{
    Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Role, encode_close, encode_control,
    encode_message, handshake,
};
use veche_proto::websocket::{Opcode, deflate};

use crate::world::apps::{AppCall, ECHOING, SCRIPTED, app_message, closed};
use crate::world::{Options, Peer, World};

fn dial(app: AppId, token: u64) -> DialCommand {
    DialCommand {
        caller: DialId { app, token },
        authority: "other:81".to_owned(),
        target: "/feed?a=b".to_owned(),
        protocols: "v2, v1".to_owned(),
        headers: vec![("Origin".to_owned(), "https://example.org".to_owned())],
        compresses: false,
        timeout_ms: 5000,
        options: ClientOptions {
            message_limits: MessageLimits {
                message_bytes_max: 64 << 10,
                fragments_max: 100,
                inflate_ratio_max: 0,
            },
            ping_interval_ms: 10_000,
            pong_timeout_ms: 3000,
        },
    }
}

/// Returns the 101 response to the handshake that the peer received.
fn agreement(world: &mut World, peer: Peer) -> Vec<u8> {
    let request = world.take(peer);
    let head = parse_head(&request, &HeadLimits::default()).expect("a request");
    assert_eq!((&*head.path, head.query), ("/feed", "a=b"));
    assert_eq!(head.header("host"), Some("other:81"));
    assert_eq!(head.header("origin"), Some("https://example.org"));
    let upgrade = handshake::read(&head).expect("right").expect("an upgrade");
    assert_eq!(upgrade.protocols().collect::<Vec<_>>(), ["v2", "v1"]);
    let agreed = deflate::negotiate(upgrade.extensions(), &deflate::DeflatePolicy::default());
    let mut out = Vec::new();
    handshake::write_response(&mut out, upgrade.key, Some("v1"), agreed);
    out
}

fn open(world: &mut World, app: AppId) -> Peer {
    let peer = world.dial(0, dial(app, 1));
    let agreement = agreement(world, peer);
    world.send(peer, &agreement);
    world.settle();
    assert_eq!(world.stats(0).clients.read(), 1);
    peer
}

/// Returns what the peer received in its role as the server; an unmasked frame is an error.
fn parse_output(bytes: &[u8]) -> Vec<String> {
    let mut bytes = bytes.to_vec();
    let (mut decoder, mut codecs) = (Decoder::new(Role::Server, None), Codecs::new());
    let limits = MessageLimits {
        message_bytes_max: 1 << 20,
        fragments_max: 100,
        inflate_ratio_max: 0,
    };
    let (mut at, mut received) = (0, Vec::new());
    while at < bytes.len() {
        let result = decoder.decode(&mut bytes[at..], &mut codecs, &limits);
        let (taken, event) = result.expect("a client's frames");
        at += taken;
        received.extend(event.map(|event| match event {
            FrameEvent::Message { data, .. } => String::from_utf8_lossy(data).into_owned(),
            FrameEvent::Ping(_) => "ping".to_owned(),
            FrameEvent::Pong(data) => format!("pong {}", String::from_utf8_lossy(data)),
            FrameEvent::Close { code, reason } => format!("close {code:?} {reason}"),
        }));
    }
    received
}

fn text(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(&mut out, MessageKind::Text, text.as_bytes(), None);
    out
}

#[test]
fn a_conversation_in_any_split() {
    let mut random = fastrand::Rng::with_seed(7);
    for step in [usize::MAX, 1, 0, 0, 0] {
        let mut world = World::new(Options::default());
        let peer = world.dial(0, dial(SCRIPTED, 1));
        let mut bytes = agreement(&mut world, peer);
        bytes.extend(text("say hello"));
        encode_control(&mut bytes, Opcode::Ping, b"there?", None);
        bytes.extend(b"\x01\x03say\x89\x00\x80\x06 again");
        bytes.extend(text("wait"));
        bytes.extend(text("behind it"));
        world.send_split(peer, &bytes, |left| match step {
            0 => random.usize(1..40).min(left),
            step => step,
        });
        world.settle();
        assert_eq!(
            world.app_calls(peer),
            [
                AppCall::Dialed(Ok(1)),
                app_message("say hello"),
                app_message("say again"),
                app_message("wait")
            ]
        );
        let answers = world.take(peer);
        assert_eq!(
            parse_output(&answers),
            ["hello", "pong there?", "pong ", "again"]
        );
        // When the handler's wait ends, the application receives the message that was queued.
        assert!(world.end_wait(peer));
        world.settle();
        assert_eq!(world.app_calls(peer), [app_message("behind it")]);
        let mut end = Vec::new();
        encode_close(&mut end, Some(4000), "enough", None);
        world.send(peer, &end);
        world.settle();
        assert_eq!(world.app_calls(peer), [closed(4000, "enough")]);
        assert_eq!(parse_output(&world.take(peer)), ["close Some(4000) enough"]);
        world.finish(peer);
        world.settle();
        assert!(world.is_closed(peer));
        assert_eq!(world.stats(0).clients.read(), 0);
    }
}

#[test]
fn what_does_not_open_says_why_once() {
    let refusals: &[(&[u8], &str)] = &[
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "status 404"),
        (b"HTTP/1.1 101 X\r\n\r\n", "did not upgrade"),
        (b"\x15\x03\x01\r\n\r\n", "not HTTP"),
        (&[b'x'; 20_000], "not HTTP"),
    ];
    for (answer, words) in refusals {
        let mut world = World::new(Options::default());
        let peer = world.dial(0, dial(SCRIPTED, 1));
        world.send(peer, answer);
        world.settle();
        world.finish(peer);
        world.advance(60_000);
        let failures = world.failures(0);
        assert!(
            failures.len() == 1 && failures[0].contains(words),
            "{failures:?}"
        );
        assert!(world.is_closed(peer) && world.app_calls(peer).is_empty());
    }
    let mut world = World::new(Options::default());
    let silent = world.dial(0, dial(SCRIPTED, 1));
    world.advance(4999);
    assert!(world.failures(0).is_empty());
    world.advance(2);
    assert_eq!(
        world.failures(0),
        ["1: the connection was not open within 5 s"]
    );
    assert!(world.is_closed(silent));
    let gone = world.dial(0, dial(SCRIPTED, 3));
    world.reset(gone);
    let words = "3: the server closed the connection before it answered";
    assert_eq!(world.failures(0), [words]);
    world.dial(0, dial(SCRIPTED, 5));
    world.drain();
    assert_eq!(world.failures(0), ["5: server is going away"]);
    // The application no longer needs the connection, so it ends without a further call.
    let mut world = World::new(Options::default());
    let peer = world.dial(0, dial(SCRIPTED, 2));
    let agreement = agreement(&mut world, peer);
    world.send(peer, &agreement);
    world.settle();
    assert_eq!(world.app_calls(peer), [AppCall::Dialed(Ok(2))]);
    assert!(!world.is_open(peer) && world.failures(0).is_empty());
    assert_eq!(world.stats(0).clients.read(), 0);
}

#[test]
fn a_silent_server_is_pinged_and_abandoned() {
    let mut world = World::new(Options::default());
    let peer = open(&mut world, SCRIPTED);
    world.app_calls(peer);
    world.advance(9_999);
    assert!(world.take(peer).is_empty());
    world.advance(1);
    assert_eq!(parse_output(&world.take(peer)), ["ping"]);
    let mut pong = Vec::new();
    encode_control(&mut pong, Opcode::Pong, b"", None);
    world.send(peer, &pong);
    world.advance(10_000);
    assert_eq!(parse_output(&world.take(peer)), ["ping"]);
    world.advance(2_999);
    assert!(world.is_open(peer));
    world.advance(1);
    assert_eq!(world.app_calls(peer), [closed(1006, "no pong")]);
    assert!(world.is_closed(peer));
}

#[test]
fn each_frame_has_a_mask_of_its_own() {
    let mut world = World::new(Options::default());
    let peer = open(&mut world, ECHOING);
    let mut masks = std::collections::HashSet::new();
    for _ in 0..100 {
        world.send(peer, &text("x"));
        world.settle();
        let frame = world.take(peer);
        assert_eq!((frame.len(), frame[1]), (7, 0x81));
        assert!(masks.insert(frame[2..6].to_vec()));
    }
}

/// Messages are received even while the peer does not read: if each end waited for the other to
/// read, both would be stuck.
#[test]
fn a_server_that_does_not_read_is_still_read() {
    let mut world = World::new(Options::default());
    let peer = open(&mut world, SCRIPTED);
    world.read_at_most(peer, 0);
    for _ in 0..20 {
        world.send(peer, &text(&format!("say {}", "x".repeat(10_000))));
        world.settle();
    }
    assert_eq!(world.blocked(peer), None);
    let calls = world.app_calls(peer);
    assert_eq!(calls.len(), 21);
    // The connection is not closed as a slow consumer.
    assert!(world.is_open(peer));
}

#[test]
fn compression_is_offered_where_it_is_wanted() {
    for compresses in [false, true] {
        let mut world = World::new(Options::default());
        let wanted = DialCommand {
            compresses,
            ..dial(SCRIPTED, 1)
        };
        let peer = world.dial(0, wanted);
        let request = String::from_utf8(world.take(peer)).expect("UTF-8");
        let offer = "sec-websocket-extensions: permessage-deflate";
        assert_eq!(
            request.to_lowercase().contains(offer),
            compresses,
            "{request}"
        );
    }
}
