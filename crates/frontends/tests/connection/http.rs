//! Tests consecutive requests on one connection: their responses, and whether the connection stays open.

use crate::world::wire::{get, post, response, responses, statuses};
use crate::world::{INTERNAL, LARGE_BYTES, Options, PUBLIC, World};

/// Sends bytes on a new connection; returns the statuses of the responses, and whether the connection is still open.
fn ask(listener: u16, bytes: &str) -> (Vec<u16>, bool) {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, listener);
    let answer = world.ask(peer, bytes);
    (statuses(&answer), world.is_open(peer))
}

#[test]
fn each_request_has_its_status() {
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9000));
    let many_headers = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "A: b\r\n".repeat(100)
    );
    let long_header = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n",
        "x".repeat(20_000)
    );
    let table: &[(u16, &str, u16, bool)] = &[
        (
            PUBLIC,
            "GET /files/hello.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            200,
            true,
        ),
        (
            PUBLIC,
            "GET /files/none HTTP/1.1\r\nHost: a\r\n\r\n",
            404,
            true,
        ),
        (
            PUBLIC,
            "GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n",
            404,
            true,
        ),
        (
            PUBLIC,
            "GET /api/info HTTP/1.1\r\nHost: a\r\n\r\n",
            404,
            true,
        ),
        (PUBLIC, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n", 404, true),
        (
            PUBLIC,
            "POST /get HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            405,
            true,
        ),
        (
            PUBLIC,
            "DELETE /files/hello.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            405,
            true,
        ),
        (
            PUBLIC,
            "GET /ws?user=u HTTP/1.1\r\nHost: a\r\n\r\n",
            426,
            true,
        ),
        (PUBLIC, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 426, true),
        (
            INTERNAL,
            "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
            200,
            true,
        ),
        (
            INTERNAL,
            "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
            200,
            true,
        ),
        (
            INTERNAL,
            "GET /api/info HTTP/1.1\r\nHost: a\r\n\r\n",
            200,
            true,
        ),
        (
            INTERNAL,
            "GET /api/push HTTP/1.1\r\nHost: a\r\n\r\n",
            405,
            true,
        ),
        (
            INTERNAL,
            "GET /api/socket HTTP/1.1\r\nHost: a\r\n\r\n",
            426,
            true,
        ),
        // Whether the connection is kept alive depends on the version and the `Connection` header.
        (
            INTERNAL,
            "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            200,
            false,
        ),
        (INTERNAL, "GET /health HTTP/1.0\r\n\r\n", 200, false),
        (
            INTERNAL,
            "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            200,
            true,
        ),
        // After a malformed request the connection ends, since the start of the next request is unknown.
        (PUBLIC, "GET / HTTP/1.1\r\n\r\n", 400, false),
        (PUBLIC, "nonsense\r\n\r\n", 400, false),
        (PUBLIC, "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, false),
        (
            PUBLIC,
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            false,
        ),
        (
            PUBLIC,
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
            400,
            false,
        ),
        (
            PUBLIC,
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            501,
            false,
        ),
        (
            PUBLIC,
            "POST / HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\nContent-Length: 1\r\n\r\n",
            417,
            false,
        ),
        (
            INTERNAL,
            "POST /api/push HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n",
            413,
            false,
        ),
        (PUBLIC, &long_target, 414, false),
        (PUBLIC, &many_headers, 431, false),
        (PUBLIC, &long_header, 431, false),
    ];
    for (listener, request, status, stays) in table {
        let head: String = request.chars().take(100).collect();
        assert_eq!(ask(*listener, request), (vec![*status], *stays), "{head}");
    }
}

#[test]
fn refusals_say_what_would_be_right() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let answer = world.ask(
        peer,
        "POST /get HTTP/1.1\r\nHost: a\r\n\r\nGET /ws HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let answers = responses(&answer);
    assert_eq!(answers[0].header("allow"), Some("GET, HEAD"));
    assert_eq!(answers[1].header("sec-websocket-version"), Some("13"));
    assert_eq!(answers[1].header("upgrade"), Some("websocket"));
}

#[test]
fn http_1_0_gets_connection_keep_alive() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, INTERNAL);
    for _ in 0..3 {
        let answer = world.ask(
            peer,
            "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        );
        assert_eq!(
            responses(&answer)[0].header("connection"),
            Some("keep-alive")
        );
    }
    let answer = world.ask(peer, "GET /health HTTP/1.0\r\n\r\n");
    assert_eq!(responses(&answer)[0].header("connection"), Some("close"));
    assert!(!world.is_open(peer));
}

#[test]
fn pipelined_requests_are_answered_in_order_also_when_one_waits_for_another_worker() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let far = world.user_at(1);
    let peer = world.connect(0, INTERNAL);
    let call = post("/api/push", &format!(r#"{{"user":"{far}","data":1}}"#));
    let requests = [
        get("/health"),
        call.clone(),
        get("/metrics"),
        call,
        get("/none"),
    ]
    .concat();
    world.send(peer, requests.as_bytes());
    world.turn(0);
    let first = world.take(peer);
    assert_eq!(
        statuses(&first),
        [200],
        "the second waits for its answer, the third for the second's"
    );
    world.settle();
    let rest = responses(&world.take(peer));
    let bodies: Vec<&str> = rest.iter().map(|response| response.body.as_str()).collect();
    let pushed = r#"{"result":{"handed":0,"note":"the user has no connection"}}"#;
    assert_eq!(bodies, [pushed, "metric 1\n", pushed, "not found\n"]);
    assert!(world.is_open(peer));
}

#[test]
fn fin_after_pipelined_requests_waits_for_their_answers() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let far = world.user_at(1);
    let peer = world.connect(0, INTERNAL);
    let call = post("/api/push", &format!(r#"{{"user":"{far}","data":1}}"#));
    world.send(peer, [call, get("/health")].concat().as_bytes());
    world.finish(peer);
    world.settle();
    assert_eq!(statuses(&world.take(peer)), [200, 200]);
    assert!(world.is_closed(peer));
}

#[test]
fn expect_100_continue_is_answered() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, INTERNAL);
    let head =
        "POST /api/push HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 21\r\n\r\n";
    assert_eq!(world.ask(peer, head), b"HTTP/1.1 100 Continue\r\n\r\n");
    let answer = world.ask(peer, r#"{"user":"a","data":1}"#);
    assert_eq!(
        responses(&answer)[0].body,
        r#"{"result":{"handed":0,"note":"the user has no connection"}}"#
    );

    // A request whose body is not needed is answered at once. The client's later input is ignored.
    let head =
        "POST /none HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let answer = responses(&world.ask(peer, head));
    assert_eq!(
        (answer[0].status, answer[0].header("connection")),
        (404, Some("close"))
    );
    assert!(!world.is_open(peer));
}

#[test]
fn head_gets_the_length_and_no_body() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let answer = world.ask(peer, "HEAD /files/hello.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let (head, rest) = response(&answer, false);
    assert_eq!(
        (head.status, head.header("content-length"), rest),
        (200, Some("6"), &b""[..])
    );
    let answer = world.ask(peer, "HEAD /none HTTP/1.1\r\nHost: a\r\n\r\n");
    let (head, rest) = response(&answer, false);
    assert_eq!((head.status, rest), (404, &b""[..]));
    assert_eq!(
        responses(&world.ask(peer, get("/files/hello.txt")))[0].body,
        "hello\n"
    );
}

#[test]
fn an_unused_body_is_skipped_if_short_else_the_connection_closes() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let answer = world.ask(
        peer,
        post("/none", "GET /trap HTTP/1.1\r\n") + &get("/files/hello.txt"),
    );
    assert_eq!(statuses(&answer), [404, 200]);

    for head in ["Content-Length: 70000", "Transfer-Encoding: chunked"] {
        let peer = world.connect(0, PUBLIC);
        let answer = world.ask(
            peer,
            format!("POST /none HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n"),
        );
        let answer = responses(&answer);
        assert_eq!(
            (answer[0].status, answer[0].header("connection")),
            (404, Some("close")),
            "{head}"
        );
        assert!(!world.is_open(peer));
        assert_eq!(
            world.ask(peer, get("/files/hello.txt")),
            b"",
            "nothing is answered any more"
        );
    }
}

#[test]
fn bodies_come_sized_and_in_chunks() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, INTERNAL);
    let head = "POST /api/push HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = "5\r\n{\"use\r\n10;x=y\r\nr\":\"a\",\"data\":1}\r\n0\r\nTrailer: x\r\n\r\n";
    let whole = [head, body, &get("/health")].concat();
    for step in [whole.len(), 1, 7] {
        world.send_split(peer, whole.as_bytes(), |_| step);
        world.settle();
        let answer = world.take(peer);
        assert_eq!(
            responses(&answer)[0].body,
            r#"{"result":{"handed":0,"note":"the user has no connection"}}"#
        );
        assert_eq!(statuses(&answer), [200, 200]);
    }
    // A body of unknown length is refused when it exceeds the limit.
    let piece = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let answer = world.ask(peer, [head, &piece.repeat(4)].concat());
    assert_eq!(statuses(&answer), [413]);
    assert!(!world.is_open(peer));
}

#[test]
fn a_large_file_comes_whole_as_the_client_reads() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    world.read_at_most(peer, 0);
    world.send(
        peer,
        (get("/files/large.bin") + &get("/files/hello.txt")).as_bytes(),
    );
    world.settle();
    let mut bytes = Vec::new();
    let mut reads = 0;
    while world.is_open(peer) && reads < 1000 && (bytes.len() as u64) < LARGE_BYTES + 500 {
        world.read_at_most(peer, 10_000);
        world.settle();
        bytes.extend(world.take(peer));
        reads += 1;
    }
    assert!(reads > 100);
    let (head, rest) = response(&bytes, false);
    assert_eq!(head.header("content-length"), Some("1048576"));
    let (body, next) = rest.split_at(LARGE_BYTES as usize);
    assert!(body.iter().enumerate().all(|(at, byte)| *byte == at as u8));
    assert_eq!(responses(next)[0].body, "hello\n");
}

#[test]
fn waiting_has_an_end() {
    let slow = "GET /health HTTP/1.1\r\nHost: a\r\n";
    let body = "POST /api/push HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{";
    let health = get("/health");
    let again = health.clone() + slow;
    // Columns: first input, statuses of its responses, time in milliseconds until the deadline, and statuses after
    // that.
    let table: [(&str, &[u16], u64, &[u16]); 4] = [
        (slow, &[], 10_000, &[408]),
        (body, &[], 30_000, &[408]),
        (&health, &[200], 75_000, &[]),
        (&again, &[200], 10_000, &[408]),
    ];
    for (sent, answered, patience_ms, last) in table {
        let mut world = World::new(Options::default());
        let peer = world.connect(0, INTERNAL);
        assert_eq!(statuses(&world.ask(peer, sent)), answered);
        world.advance(patience_ms - 1);
        assert_eq!(
            (world.take(peer), world.is_open(peer)),
            (Vec::new(), true),
            "{sent}"
        );
        world.advance(1);
        assert_eq!(
            (statuses(&world.take(peer)), world.is_open(peer)),
            (last.to_vec(), false),
            "{sent}"
        );
        // If the client never closes its end, the transport is closed after the close timeout.
        world.advance(5_000);
        assert!(world.is_closed(peer));
        world.check_empty();
    }
}

#[test]
fn dripping_a_head_byte_by_byte_wins_no_time() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, INTERNAL);
    for byte in b"GET /health HTTP/1.1\r\nHost: a" {
        world.send(peer, &[*byte]);
        world.advance(500);
    }
    assert_eq!(statuses(&world.take(peer)), [408]);
    assert!(!world.is_open(peer));
}
