//! Tests of connection limits, and of how connections end.

use std::io::Write as _;
use std::thread::sleep;
use std::time::Duration;

use veche_calls::{CallErrorKind, CallId, CallReply, Handle, HttpCall, HttpRequest, ReadBody};

use crate::server::{Server, head, ok, until_gone};
use crate::{Bench, get, text, until};

#[test]
fn there_are_never_more_connections_than_allowed() {
    let server = Server::new(|mut stream, _| {
        while head(&mut stream).is_some() {
            sleep(Duration::from_millis(5));
            let _ = stream.write_all(ok("hello").as_bytes());
        }
    });
    let mut bench = Bench::new();
    let limited = || HttpRequest {
        connections_max: 10,
        ..get(&server.url("/"))
    };
    let all: Vec<CallId> = (0..200).map(|_| bench.fetch(limited())).collect();
    for id in all {
        let CallReply::Http(reply) = bench.outcome(id).expect("an answer") else {
            panic!("another reply");
        };
        assert_eq!(text(&reply), "hello");
    }
    assert!(server.most() <= 10, "{}", server.most());
    assert!(server.accepted() <= 10, "{}", server.accepted());
    let figures = bench.figures();
    let waits: u64 = figures.waits().iter().sum();
    assert!(waits >= 190 && figures.wait_us() > 0, "{figures:?}");
    assert_eq!(figures.waiting(), 0);
    // Without a limit all calls run at once.
    let all: Vec<CallId> = (0..200)
        .map(|_| {
            bench.fetch(HttpRequest {
                connections_max: 200,
                ..get(&server.url("/"))
            })
        })
        .collect();
    assert!(all.into_iter().all(|id| bench.outcome(id).is_ok()));
}

#[test]
fn a_long_wait_for_a_connection_is_an_error() {
    let server = Server::new(|mut stream, _| until_gone(&mut stream));
    let mut bench = Bench::new();
    let limited = |timeout_ms| HttpRequest {
        connections_max: 1,
        timeout: Duration::from_millis(timeout_ms),
        ..get(&server.url("/"))
    };
    let first = bench.fetch(limited(600));
    let second = bench.fetch(limited(200));
    let fault = bench.outcome(second).expect_err("a timeout");
    assert_eq!(fault.kind, CallErrorKind::PoolFull, "nothing was sent");
    assert!(
        fault.words.contains("waiting for a connection to"),
        "{fault:?}"
    );
    let fault = bench.outcome(first).expect_err("a timeout");
    assert_eq!(fault.kind, CallErrorKind::Timeout);
    assert!(
        fault.words.contains("waiting for the response from"),
        "{fault:?}"
    );
    server.until_empty();
    assert_eq!(bench.figures().waiting(), 0);
}

#[test]
fn a_cancelled_request_closes_its_connection() {
    let mut bench = Bench::new();
    let silent = Server::new(|mut stream, _| until_gone(&mut stream));
    let halfway = Server::new(|mut stream, _| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
        until_gone(&mut stream);
    });
    for server in [&silent, &halfway] {
        let ids: Vec<CallId> = (0..50)
            .map(|_| bench.fetch(get(&server.url("/"))))
            .collect();
        until(|| server.accepted() >= 50);
        for id in ids {
            bench.port.cancel(id);
        }
        bench.port.flush();
        server.until_empty();
    }
    // The last connections may still be closing.
    until(|| bench.figures().connections() == 0);
}

#[test]
fn streams() {
    let mut bench = Bench::new();
    let server = Server::new(|mut stream, _| {
        while head(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            for piece in ["1\r\na\r\n", "2\r\nbc\r\n", "0\r\n\r\n"] {
                sleep(Duration::from_millis(30));
                let _ = stream.write_all(piece.as_bytes());
            }
        }
    });
    for _ in 0..3 {
        let stream = bench.stream(get(&server.url("/")));
        assert_eq!(bench.read(&stream), Ok(Some(b"a".to_vec())));
        assert_eq!(bench.read(&stream), Ok(Some(b"bc".to_vec())));
        assert_eq!(bench.read(&stream), Ok(None));
        assert_eq!(bench.read(&stream), Ok(None));
    }
    assert_eq!(server.accepted(), 1, "read to its end a connection is kept");
    let stream = bench.stream(get(&server.url("/")));
    assert_eq!(bench.read(&stream), Ok(Some(b"a".to_vec())));
    drop(stream);
    server.until_empty();

    // A call is cancelled while no data arrive.
    let waiting = Server::new(|mut stream, _| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nbegin");
        until_gone(&mut stream);
    });
    let mut short = get(&waiting.url("/"));
    short.timeout = Duration::from_secs(1);
    let stream = bench.stream(short);
    assert_eq!(bench.read(&stream), Ok(Some(b"begin".to_vec())));
    let fault = bench.read(&stream).expect_err("a timeout");
    assert!(
        fault
            .words
            .contains("timeout after 1 s reading the response from"),
        "{fault:?}"
    );
    assert_eq!(
        bench.read(&stream).expect_err("again").kind,
        CallErrorKind::Timeout
    );
    let read = bench.begin(HttpCall::Read(ReadBody {
        stream: stream.clone(),
    }));
    bench.port.cancel(read);
    bench.port.flush();
    drop(stream);
    waiting.until_empty();
    // The outcome of a call is dropped without reading its body.
    let id = bench.fetch(HttpRequest {
        is_stream: true,
        ..get(&waiting.url("/"))
    });
    drop(bench.outcome(id));
    waiting.until_empty();

    // The body of one response exceeds the limit, and the body of another one is truncated.
    let server = Server::saying_once("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nshort");
    let mut limited = get(&server.url("/"));
    limited.body_bytes_max = 3;
    let stream = bench.stream(limited);
    assert!(
        bench
            .read(&stream)
            .expect_err("too long")
            .words
            .contains("longer than 3 bytes")
    );
    let stream = bench.stream(get(&server.url("/")));
    assert_eq!(bench.read(&stream), Ok(Some(b"short".to_vec())));
    assert_eq!(
        bench.read(&stream).expect_err("broken off").kind,
        CallErrorKind::ConnectionLost
    );
    let stranger = Handle::new(());
    assert_eq!(
        bench.read(&stranger).expect_err("none").kind,
        CallErrorKind::Invalid
    );
}
