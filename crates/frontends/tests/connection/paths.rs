//! A request with any spelling of a path gets the same response as one with the plain path, on every route.

use proptest::prelude::*;

use crate::world::apps::{AppCall, opened};
use crate::world::wire::{Response, get, handshake, response};
use crate::world::{INTERNAL, Options, PUBLIC, World};

/// Plain paths of every kind of route and handler, and similar paths to which other rules apply.
const PLAIN: &[(u16, &str)] = &[
    (PUBLIC, "/files/hello.txt"),
    (PUBLIC, "/files/none"),
    (PUBLIC, "/files/"),
    (PUBLIC, "/files/private/secret.txt"),
    (PUBLIC, "/files/private/"),
    (PUBLIC, "/files/x%2Fhello.txt"),
    (PUBLIC, "/app/free/7"),
    (PUBLIC, "/app/staff/7"),
    (PUBLIC, "/app/staff"),
    (PUBLIC, "/app/%2561"),
    (PUBLIC, "/room/7"),
    (PUBLIC, "/room/lobby"),
    (PUBLIC, "/room/a b\u{e9}"),
    (PUBLIC, "/room/a%2Fb"),
    (PUBLIC, "/room/%2570"),
    (PUBLIC, "/room/"),
    (PUBLIC, "/ws"),
    (PUBLIC, "/decided"),
    (PUBLIC, "/centrifuge"),
    (PUBLIC, "/centrifuge/all/websocket"),
    (PUBLIC, "/centrifuge/all/sse"),
    (PUBLIC, "/centrifuge/all/none"),
    (PUBLIC, "/echo"),
    (PUBLIC, "/nowhere"),
    (INTERNAL, "/api/info"),
    (INTERNAL, "/api/none"),
    (INTERNAL, "/api/socket"),
    (INTERNAL, "/admin/"),
    (INTERNAL, "/admin/api/figures"),
    (INTERNAL, "/health"),
    (INTERNAL, "/healthy"),
];

/// Returns another spelling of a plain path, with percent-encoded bytes, dot segments and empty segments.
fn spell(plain: &str, choices: &[u8]) -> String {
    let mut choices = choices.iter().copied().cycle();
    let mut spelling = String::new();
    let mut bytes = plain.bytes();
    while let Some(byte) = bytes.next() {
        let choice = choices.next().unwrap_or_default();
        match (byte, choice % 8) {
            (b'/', 0) => spelling += "//",
            (b'/', 1) => spelling += "/./",
            (b'/', 2) => spelling += "/x%2fy/%2E./",
            (b'/', 3) => spelling += "/%2e/",
            (b'/', _) => spelling.push('/'),
            // Bytes that are percent-encoded in the plain path stay encoded; their digits may be in either case.
            (b'%', _) => {
                let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                spelling += "%";
                spelling += &match choice % 2 {
                    0 => digits.to_ascii_lowercase(),
                    _ => digits,
                };
            }
            (b' ' | 0x80.., _) | (_, 0 | 1) => spelling += &format!("%{byte:02X}"),
            (_, 2) => spelling += &format!("%{byte:02x}"),
            _ => spelling.push(char::from(byte)),
        }
    }
    spelling
}

/// Returns the response to a request, and the calls that the application received.
fn outcome(listener: u16, request: &str) -> (Response, Vec<AppCall>) {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, listener);
    let bytes = world.ask(peer, request);
    let (mut answer, _) = response(&bytes, !is_endless(&bytes));
    answer.headers.retain(|(name, _)| name != "Date");
    let received = world.app_calls(peer);
    world.reset_all();
    (answer, received)
}

fn is_endless(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).contains("Transfer-Encoding: chunked")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_spelling_is_answered_as_the_plain_path(choices in prop::collection::vec(any::<u8>(), 1..40)) {
        for (listener, plain) in PLAIN {
            let spelling = spell(plain, &choices);
            let plain = plain.replace(' ', "%20");
            for absolute in ["", "http://veche.test"] {
                let spelling = format!("{absolute}{spelling}?user=ann");
                let plain = format!("{plain}?user=ann");
                prop_assert_eq!(
                    outcome(*listener, &get(&spelling)), outcome(*listener, &get(&plain)), "{}", spelling
                );
                prop_assert_eq!(
                    outcome(*listener, &handshake(&spelling, "")),
                    outcome(*listener, &handshake(&plain, "")),
                    "{}", spelling
                );
            }
        }
    }
}

#[test]
fn rules_of_a_route_hold_for_each_spelling() {
    for (target, status) in [
        ("/files/hello.txt", 200),
        ("/files/private/secret.txt", 403),
        ("/files/%70rivate/secret.txt", 403),
        ("/%66iles/./private/secret.txt", 403),
        ("/files//private/secret.txt", 403),
        ("/room/%2e%2e/files/private/secret.txt", 403),
        ("/files/%2570rivate/secret.txt", 404),
        ("/files/private%2Fsecret.txt", 404),
        ("/files/private%5Csecret.txt", 400),
        ("/files/private/secret.txt%00", 400),
        ("/files/%zz", 400),
    ] {
        let (answer, _) = outcome(PUBLIC, &get(target));
        assert_eq!(answer.status, status, "{target}");
        let (answer, _) = outcome(PUBLIC, &get(&format!("http://veche.test{target}")));
        assert_eq!(answer.status, status, "absolute: {target}");
    }
    for path in [
        "/app/staff/7",
        "/app/st%61ff/7",
        "/app/free/%2E%2e//staff/7",
    ] {
        let (answer, _) = outcome(PUBLIC, &handshake(path, ""));
        assert_eq!(answer.status, 401, "{path}");
        let (answer, received) = outcome(PUBLIC, &handshake(&format!("{path}?user=ann"), ""));
        assert_eq!(answer.status, 101, "{path}");
        assert_eq!(received, [opened("/app/staff/7 user=ann")], "{path}");
    }
}

#[test]
fn request_paths_are_decoded_once() {
    for (target, received) in [
        ("/room/a%20b", "GET /room/a b id=a b"),
        ("/room/a%2fb", "GET /room/a%2Fb id=a/b"),
        ("/room/%2570", "GET /room/%2570 id=%70"),
        ("/app/%7e/..%2f?x=%31", "GET /app/~/..%2F"),
        ("/app//a/../b", "GET /app/b"),
    ] {
        assert_eq!(outcome(PUBLIC, &get(target)).0.body, received, "{target}");
    }
}
