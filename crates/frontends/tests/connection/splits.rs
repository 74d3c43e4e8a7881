//! The output is the same however the input is split, and no input causes a panic.

use proptest::prelude::*;

use crate::world::wire::{close, control, get, handshake, message, post, text};
use crate::world::{INTERNAL, Options, PUBLIC, PUSH, World};
use veche_proto::websocket::{MessageKind, Opcode};

/// Returns plausible input of a back end or browser, with the listener that receives it.
fn sensible() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let request = prop_oneof![
        Just(get("/health")),
        Just(get("/none")),
        Just(get("/files/hello.txt")),
        Just("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        Just(post("/none", "skip me")),
        Just(get("/app/204")),
        Just(get("/app/bad-value")),
        ".{0,40}".prop_map(|body| post("/room/7", &body)),
        Just("PUT /app/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned()),
        (0..5u8).prop_map(|n| post("/api/push", &format!(r#"{{"user":"u{n}","data":{n}}}"#))),
        (0..5u8).prop_map(|n| post(
            "/api/broadcast",
            &format!(r#"{{"channels":["a","b{n}"],"data":[1, 2]}}"#)
        )),
    ];
    let frame = prop_oneof![
        (0..300usize).prop_map(|length| message(MessageKind::Binary, &vec![1; length])),
        ".{0,40}".prop_map(|words| text(&words)),
        Just(control(Opcode::Ping, b"x")),
        Just(close(Some(1000), "")),
    ];
    let line = prop_oneof![
        (0..5u8).prop_map(|n| format!("{{\"user\":\"u{n}\",\"data\":1,\"id\":{n}}}\n")),
        Just("{\"users\":[\"a\",\"b\",\"c\"],\"data\":1,\"ack\":true}\r\n".to_owned()),
        Just("bad\n".to_owned()),
        Just("\n".to_owned()),
    ];
    prop_oneof![
        (
            prop_oneof![Just(PUBLIC), Just(INTERNAL)],
            prop::collection::vec(request, 1..12)
        )
            .prop_map(|(listener, requests)| (listener, requests.concat().into_bytes())),
        (
            prop_oneof![
                Just("/echo"),
                Just("/lua-echo"),
                Just("/decided?decision=user&open=say")
            ],
            prop::collection::vec(frame, 0..12)
        )
            .prop_map(|(target, frames)| (
                PUBLIC,
                [handshake(target, "").into_bytes(), frames.concat()].concat()
            )),
        prop::collection::vec(line, 1..20).prop_map(|lines| (PUSH, lines.concat().into_bytes())),
    ]
}

/// Sends bytes, in random pieces if there is a seed, and runs turns after some of the pieces.
/// Returns all output, and whether the connection was still open at the end.
fn answers(listener: u16, bytes: &[u8], seed: Option<u64>) -> (Vec<u8>, bool) {
    let mut world = World::new(Options {
        workers: 2,
        credits: 4,
        ..Options::default()
    });
    let peer = world.connect(0, listener);
    let mut random = fastrand::Rng::with_seed(seed.unwrap_or_default());
    let mut at = 0;
    let mut answers = Vec::new();
    while at < bytes.len() {
        let count = if seed.is_some() {
            random.usize(1..=30).min(bytes.len() - at)
        } else {
            bytes.len()
        };
        world.send(peer, &bytes[at..at + count]);
        at += count;
        match random.u8(..4) {
            0 => world.settle(),
            1 => drop(world.turn(random.usize(..2))),
            _ => {}
        }
    }
    world.settle();
    answers.extend(world.take(peer));
    let is_open = world.is_open(peer);
    world.finish(peer);
    world.settle();
    answers.extend(world.take(peer));
    world.advance(5_001);
    world.check_empty();
    (answers, is_open)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn splitting_changes_nothing((listener, bytes) in sensible(), seed: u64) {
        let whole = answers(listener, &bytes, None);
        prop_assert_eq!(answers(listener, &bytes, Some(seed)), whole);
    }

    #[test]
    fn nothing_breaks_it(listener in 0..3u16, bytes in prop::collection::vec(any::<u8>(), 0..400), seed: u64) {
        answers(listener, &bytes, Some(seed));
    }

    #[test]
    fn nothing_breaks_what_began_well(
        (listener, mut bytes) in sensible(), at in any::<prop::sample::Index>(), byte: u8, seed: u64,
    ) {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let whole = answers(listener, &bytes, None);
        prop_assert_eq!(answers(listener, &bytes, Some(seed)), whole);
    }
}
