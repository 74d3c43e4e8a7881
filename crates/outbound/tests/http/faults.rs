//! Tests with servers that misbehave.

use std::io::Write as _;
use std::net::TcpListener;
use std::thread::sleep;
use std::time::Duration;

use veche_calls::{CallErrorKind, HttpRequest};

use crate::server::{Server, head, ok, until_gone};
use crate::{Bench, get, post, until};

#[test]
fn a_dead_connection_is_never_handed_out() {
    let mut bench = Bench::new();
    // The server closes a connection that it promised to keep.
    let server = Server::saying_once(ok("once"));
    for count in 1..=20 {
        assert_eq!(bench.text(post(&server.url("/"))), "once");
        server.until_empty();
        // Waits until the server's FIN has probably arrived.
        sleep(Duration::from_millis(20));
        assert_eq!(server.accepted(), count);
    }
    // There is no pause between the requests: whichever side is faster, idempotent requests are
    // answered.
    for _ in 0..200 {
        assert_eq!(bench.text(get(&server.url("/"))), "once");
    }
    // The server closes the connection just when the second request has arrived.
    let server = Server::new(|mut stream, _| {
        head(&mut stream);
        let _ = stream.write_all(ok("first").as_bytes());
        head(&mut stream);
    });
    for _ in 0..20 {
        assert_eq!(bench.text(get(&server.url("/"))), "first");
    }
    // A request that is not idempotent is not sent twice.
    let before = server.accepted();
    let fault = bench.fault(post(&server.url("/")));
    assert_eq!(fault.kind, CallErrorKind::ConnectionLost);
    assert!(
        fault
            .words
            .contains("closed the connection without a response"),
        "{fault:?}"
    );
    assert_eq!(server.accepted(), before);
    // The server sends an unrequested response.
    let server = Server::new(|mut stream, _| {
        head(&mut stream);
        let _ = stream.write_all(format!("{}{}", ok("asked"), ok("unasked")).as_bytes());
        until_gone(&mut stream);
    });
    for _ in 0..20 {
        assert_eq!(bench.text(get(&server.url("/"))), "asked");
    }
}

#[test]
fn servers_that_do_not_answer() {
    let mut bench = Bench::new();
    let short = Duration::from_millis(200);
    let silent = Server::new(|mut stream, _| until_gone(&mut stream));
    let mut fetch = get(&silent.url("/"));
    fetch.timeout = short;
    let fault = bench.fault(fetch);
    let at = silent.address;
    assert_eq!(fault.kind, CallErrorKind::Timeout);
    assert_eq!(
        fault.words,
        format!("http: timeout after 0.2 s waiting for the response from {at}")
    );
    silent.until_empty();

    let dripping = Server::new(|mut stream, _| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            sleep(Duration::from_millis(10));
        }
    });
    let mut fetch = get(&dripping.url("/"));
    fetch.timeout = short;
    let fault = bench.fault(fetch);
    assert_eq!(fault.kind, CallErrorKind::Timeout);
    assert!(
        fault.words.contains("0.2 s reading the response from"),
        "{fault:?}"
    );
    dripping.until_empty();

    let mute = Server::new(|_, _| {});
    let fault = bench.fault(get(&mute.url("/")));
    assert_eq!(fault.kind, CallErrorKind::ConnectionLost);
    assert!(
        fault
            .words
            .contains("closed the connection without a response"),
        "{fault:?}"
    );

    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = nobody.local_addr().expect("an address");
    drop(nobody);
    let fault = bench.fault(get(&format!("http://{at}/")));
    assert_eq!(fault.kind, CallErrorKind::Unreachable);
    assert!(
        fault
            .words
            .contains(&format!("cannot connect to {at}: Connection refused")),
        "{fault:?}"
    );
    let fault = bench.fault(get("http://no-such-name.invalid/"));
    assert_eq!(fault.kind, CallErrorKind::Unreachable);
    assert!(
        fault
            .words
            .contains("cannot connect to no-such-name.invalid:80"),
        "{fault:?}"
    );
    assert_eq!(bench.figures().errors(CallErrorKind::Timeout), 2);
    assert_eq!(bench.figures().errors(CallErrorKind::ConnectionLost), 1);
    assert_eq!(bench.figures().errors(CallErrorKind::Unreachable), 2);
}

/// A request that was sent may have had an effect, regardless of what the call was waiting for when
/// it failed.
#[test]
fn after_a_request_was_sent_no_kind_says_that_nothing_was() {
    let mut bench = Bench::new();
    let moved = |to: String| {
        Server::saying(format!(
            "HTTP/1.1 307 Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"
        ))
    };
    let short = |url: &str| HttpRequest {
        timeout: Duration::from_millis(300),
        connections_max: 1,
        ..post(url)
    };
    // The only connection to the target of the redirect is in use.
    let silent = Server::new(|mut stream, _| until_gone(&mut stream));
    let busy = bench.fetch(HttpRequest {
        timeout: Duration::from_secs(2),
        ..short(&silent.url("/"))
    });
    until(|| silent.accepted() == 1);
    let redirecting = moved(silent.url("/"));
    let fault = bench.fault(short(&redirecting.url("/")));
    assert!(
        fault.words.contains("waiting for a connection to"),
        "{fault:?}"
    );
    assert_eq!(fault.kind, CallErrorKind::Timeout, "{fault:?}");
    assert!(bench.outcome(busy).is_err());

    // Connecting to the target takes too long: the target never answers the TLS handshake.
    let redirecting = moved(format!("https://{}/", silent.address));
    let fault = bench.fault(HttpRequest {
        connect_timeout: Duration::from_millis(100),
        ..short(&redirecting.url("/"))
    });
    assert!(fault.words.contains("connecting to"), "{fault:?}");
    assert_eq!(fault.kind, CallErrorKind::Timeout, "{fault:?}");

    // Nothing listens on this port.
    let unused = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = unused.local_addr().expect("an address");
    drop(unused);
    let redirecting = moved(format!("http://{at}/"));
    let fault = bench.fault(short(&redirecting.url("/")));
    assert!(fault.words.contains("cannot connect to"), "{fault:?}");
    assert_eq!(fault.kind, CallErrorKind::ConnectionLost, "{fault:?}");
}

#[test]
fn invalid_responses() {
    let mut bench = Bench::new();
    let long_head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(5000));
    for (answer, words) in [
        ("no http at all\r\n\r\n", "malformed response from"),
        ("HTTP/2 200\r\n\r\n", "malformed response from"),
        (
            "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
            "malformed response from",
        ),
        (
            "HTTP/1.1 200 OK\r\na: b\0c\r\n\r\n",
            "malformed response from",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            "malformed response from",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nab",
            "malformed response from",
        ),
        (
            "HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            "switches to another protocol",
        ),
        (&long_head, "malformed response from"),
        (&many, "malformed response from"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
            "closed in the middle of the response",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
            "closed in the middle",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
            "closed in the middle",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nab\r\n",
            "was interrupted",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
            "was interrupted",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
            "was interrupted",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-encoding: gzip\r\n\r\nabc",
            "but is not gzip",
        ),
    ] {
        let server = Server::saying_once(answer);
        let fault = bench.fault(get(&server.url("/")));
        let kind = match words.starts_with("closed in the middle") {
            true => CallErrorKind::ConnectionLost,
            false => CallErrorKind::Broken,
        };
        assert_eq!(fault.kind, kind, "{answer:.60}: {fault:?}");
        assert!(fault.words.contains(words), "{answer:.60}: {fault:?}");
        server.until_empty();
    }
    // A response whose head never ends is abandoned.
    let endless = Server::new(|mut stream, _| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ");
        while stream.write_all(&[b'y'; 4096]).is_ok() {}
    });
    assert_eq!(
        bench.fault(get(&endless.url("/"))).kind,
        CallErrorKind::Broken
    );
    endless.until_empty();
}

#[test]
fn bodies_have_a_limit() {
    let mut bench = Bench::new();
    let limited = |url: &str, bytes| HttpRequest {
        body_bytes_max: bytes,
        ..get(url)
    };
    let server = Server::saying(ok("hello"));
    assert_eq!(bench.text(limited(&server.url("/"), 5)), "hello");
    let fault = bench.fault(limited(&server.url("/"), 4));
    assert_eq!(fault.kind, CallErrorKind::Broken);
    assert!(
        fault.words.contains("longer than 4 bytes (max_body)"),
        "{fault:?}"
    );
    for start in [
        &b"HTTP/1.1 200 OK\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffff\r\n",
    ] {
        let endless = Server::new(move |mut stream, _| {
            head(&mut stream);
            let _ = stream.write_all(start);
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        let fault = bench.fault(limited(&endless.url("/"), 1 << 20));
        assert!(
            fault.words.contains("longer than 1048576 bytes"),
            "{fault:?}"
        );
        endless.until_empty();
    }
}

#[test]
fn bad_urls() {
    let mut bench = Bench::new();
    for url in [
        "http://",
        "http://[::1",
        "http://a:99999/",
        "http://u:p@a/",
        "http://u@a/",
        "ftp://a/",
        "http://a b/",
        "x",
    ] {
        let fault = bench.fault(get(url));
        assert_eq!(fault.kind, CallErrorKind::Invalid, "{url}: {fault:?}");
    }
}
