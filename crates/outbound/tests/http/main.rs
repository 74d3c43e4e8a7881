//! Tests of the HTTP client with well-behaved and misbehaving servers.

mod acme;
mod faults;
mod pool;
mod server;
mod tls;

use std::io::Write;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use server::{Server, head, ok, until_gone};
use veche_calls::{
    Call, CallError, CallErrorKind, CallId, Handle, HttpCall, HttpReply, HttpRequest, ReplyBody,
};
use veche_calls::{CallOutcome, CallReply, CertificateTrust, ReadBody};
use veche_outbound::{ClientKind, ClientMetrics, Outbound, Port};

const LONG: Duration = Duration::from_secs(20);

/// The port of one worker, and the outcomes that the port received.
struct Bench {
    outbound: Outbound,
    port: Port,
    woken: Receiver<()>,
    last: u64,
    done: Vec<(CallId, CallOutcome)>,
}

fn get(url: &str) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        timeout: LONG,
        connect_timeout: Duration::from_secs(10),
        redirects_max: 5,
        body_bytes_max: 1 << 20,
        connections_max: 100,
        trust: CertificateTrust::System,
        is_stream: false,
    }
}

fn post(url: &str) -> HttpRequest {
    HttpRequest {
        method: "POST".to_owned(),
        body: b"body".to_vec(),
        ..get(url)
    }
}

impl Bench {
    fn new() -> Self {
        let (wake, woken) = channel();
        let outbound = Outbound::default();
        let port = outbound.port(move || {
            let _ = wake.send(());
        });
        Self {
            outbound,
            port,
            woken,
            last: 0,
            done: Vec::new(),
        }
    }

    fn begin(&mut self, call: HttpCall) -> CallId {
        self.last += 1;
        let id = CallId {
            app: 0,
            token: self.last,
        };
        self.port.submit(id, Call::Http(call));
        self.port.flush();
        id
    }

    fn fetch(&mut self, fetch: HttpRequest) -> CallId {
        self.begin(HttpCall::Fetch(Box::new(fetch)))
    }

    fn outcome(&mut self, of: CallId) -> CallOutcome {
        loop {
            if let Some(place) = self.done.iter().position(|(id, _)| *id == of) {
                return self.done.swap_remove(place).1;
            }
            self.woken.recv_timeout(LONG + LONG).expect("a wake");
            self.port.take(&mut self.done);
        }
    }

    fn ask(&mut self, fetch: HttpRequest) -> Result<HttpReply, CallError> {
        let id = self.fetch(fetch);
        match self.outcome(id)? {
            CallReply::Http(reply) => Ok(*reply),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the body of a response that has to be successful.
    fn text(&mut self, fetch: HttpRequest) -> String {
        text(&self.ask(fetch).expect("an answer"))
    }

    fn fault(&mut self, fetch: HttpRequest) -> CallError {
        let fault = self.ask(fetch).expect_err("a fault");
        assert!(fault.words.starts_with("http: "), "{fault:?}");
        fault
    }

    fn stream(&mut self, fetch: HttpRequest) -> Handle {
        let fetch = HttpRequest {
            is_stream: true,
            ..fetch
        };
        match self.ask(fetch).expect("an answer").body {
            ReplyBody::Stream(handle) => handle,
            ReplyBody::Whole(body) => panic!("{body:?}"),
        }
    }

    fn read(&mut self, stream: &Handle) -> Result<Option<Vec<u8>>, CallError> {
        let stream = stream.clone();
        let id = self.begin(HttpCall::Read(ReadBody { stream }));
        match self.outcome(id)? {
            CallReply::Chunk(chunk) => Ok(chunk),
            other => panic!("{other:?}"),
        }
    }

    fn figures(&self) -> &ClientMetrics {
        self.outbound.metrics().of(ClientKind::Http)
    }
}

/// Waits until a condition holds.
fn until(happens: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if happens() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited in vain");
}

fn text(reply: &HttpReply) -> String {
    match &reply.body {
        ReplyBody::Whole(body) => String::from_utf8_lossy(body).into_owned(),
        ReplyBody::Stream(_) => panic!("a stream"),
    }
}

fn header<'a>(reply: &'a HttpReply, name: &str) -> Option<&'a str> {
    let found = reply.headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| std::str::from_utf8(value).expect("ASCII"))
}

#[test]
fn a_request_has_the_configured_content() {
    let server = Server::new(|mut stream, _| {
        while let Some(request) = head(&mut stream) {
            let _ = stream.write_all(ok(&request).as_bytes());
        }
    });
    let mut bench = Bench::new();
    let at = server.address;
    let request = bench.text(get(&server.url("/a%20b?c=d&ä#fragment")));
    assert_eq!(
        request,
        format!(
            "GET /a%20b?c=d&%C3%A4 HTTP/1.1\r\nhost: {at}\r\nuser-agent: veche/0.1.0\r\naccept-encoding: gzip\r\n\r\n"
        )
    );
    let mut fetch = post(&server.url(""));
    fetch.headers.push(("x-own".into(), b"a\xff\tb".to_vec()));
    fetch.headers.push(("user-agent".into(), b"me".to_vec()));
    let request = bench.text(fetch);
    assert!(request.starts_with("POST / HTTP/1.1\r\n"), "{request}");
    for part in [
        "x-own: a\u{fffd}\tb\r\n",
        "user-agent: me\r\n",
        "content-length: 4\r\n",
        "\r\n\r\nbody",
    ] {
        assert!(request.contains(part), "{part:?} in {request:?}");
    }
    let mut empty = post(&server.url("/"));
    empty.body.clear();
    assert!(bench.text(empty).contains("content-length: 0\r\n"));
    let mut own_host = get(&server.url("/"));
    own_host
        .headers
        .push(("host".into(), b"other.test".to_vec()));
    assert!(bench.text(own_host).contains("host: other.test\r\n"));
}

#[test]
fn connections_are_kept() {
    let server = Server::saying(ok("hello"));
    let mut bench = Bench::new();
    for _ in 0..20 {
        assert_eq!(bench.text(get(&server.url("/"))), "hello");
        assert_eq!(bench.text(post(&server.url("/"))), "hello");
    }
    assert_eq!(server.accepted(), 1);
    assert_eq!(
        (bench.figures().calls(), bench.figures().connections()),
        (40, 1)
    );
    // Calls with another `connections_max` have separate connections.
    let mut other = get(&server.url("/"));
    other.connections_max = 1;
    bench.ask(other).expect("an answer");
    assert_eq!(server.accepted(), 2);
}

#[test]
fn all_ways_to_end_an_answer() {
    let mut bench = Bench::new();
    for (answer, body, keeps) in [
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nx-t: 1\r\n\r\n",
            "abc",
            true,
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
        (
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
            "",
            true,
        ),
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno",
            "no",
            true,
        ),
        (
            "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na",
            "a",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nab",
            "ab",
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nab",
            "ab",
            false,
        ),
    ] {
        let server = Server::saying(answer);
        for _ in 0..3 {
            assert_eq!(bench.text(get(&server.url("/"))), body, "{answer:?}");
        }
        assert_eq!(server.accepted(), if keeps { 1 } else { 3 }, "{answer:?}");
    }
    let server = Server::saying_once("HTTP/1.1 200 OK\r\n\r\nto the end");
    assert_eq!(bench.text(get(&server.url("/"))), "to the end");
    // A HEAD response announces a body that does not follow.
    let server =
        Server::saying("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-encoding: gzip\r\n\r\n");
    for _ in 0..3 {
        let mut head = get(&server.url("/"));
        head.method = "HEAD".to_owned();
        let reply = bench.ask(head).expect("an answer");
        assert_eq!(
            (text(&reply).as_str(), header(&reply, "content-length")),
            ("", Some("5"))
        );
    }
    assert_eq!(server.accepted(), 1);
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).expect("memory");
    let body = encoder.finish().expect("memory");
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-encoding: GZip\r\ncontent-length: {length}\r\n\r\n");
    [head.into_bytes(), body].concat()
}

#[test]
fn gzip_is_inflated_within_the_limit() {
    let mut bench = Bench::new();
    let long = "0123456789".repeat(50_000);
    let server = Server::saying(gzip(long.as_bytes()));
    let reply = bench.ask(get(&server.url("/"))).expect("an answer");
    assert_eq!(text(&reply), long);
    assert_eq!(header(&reply, "content-encoding"), None);
    assert_eq!(header(&reply, "content-length"), None);
    // A script that requests gzip itself gets the compressed body unchanged.
    let mut raw = get(&server.url("/"));
    raw.headers
        .push(("accept-encoding".into(), b"gzip".to_vec()));
    let reply = bench.ask(raw).expect("an answer");
    assert_eq!(header(&reply, "content-encoding"), Some("GZip"));
    assert!(matches!(&reply.body, ReplyBody::Whole(body) if body.starts_with(&[0x1f, 0x8b])));
    assert_eq!(server.accepted(), 1);
    // A decompression bomb.
    let server = Server::saying(gzip(&vec![0; 256 << 20]));
    let fault = bench.fault(get(&server.url("/")));
    assert!(
        fault.words.contains("longer than 1048576 bytes"),
        "{fault:?}"
    );
    let mut piecewise = get(&server.url("/"));
    piecewise.body_bytes_max = u64::MAX;
    let stream = bench.stream(piecewise);
    let piece = bench.read(&stream).expect("a piece").expect("not the end");
    assert!(piece.len() <= 4 << 20, "{}", piece.len());
}

#[test]
fn redirects_are_followed() {
    let other = Server::new(|mut stream, _| {
        while let Some(request) = head(&mut stream) {
            let _ = stream.write_all(ok(&request).as_bytes());
        }
    });
    let there = other.url("/there");
    let server = Server::new(move |mut stream, _| {
        while let Some(request) = head(&mut stream) {
            let path = request.split(' ').nth(1).expect("a path").to_owned();
            let (status, to) = match path.as_str() {
                "/other" => (307, there.as_str()),
                "/loop" => (302, "/loop"),
                "/bad" => (302, "ftp://a.test/"),
                "/post" => (303, "/end"),
                _ => (200, ""),
            };
            let answer = match status {
                200 => ok(&request),
                _ => {
                    format!("HTTP/1.1 {status} X\r\nlocation: {to}\r\ncontent-length: 3\r\n\r\nsee")
                }
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let mut bench = Bench::new();
    let secret = |mut fetch: HttpRequest| {
        fetch
            .headers
            .push(("authorization".into(), b"secret".to_vec()));
        fetch
    };
    let reply = bench
        .ask(secret(post(&server.url("/post"))))
        .expect("an answer");
    let request = text(&reply);
    assert!(
        request.starts_with("GET /end ") && !request.contains("body"),
        "{request}"
    );
    assert!(request.contains("authorization: secret"), "{request}");
    assert_eq!(reply.url, server.url("/end"));
    let reply = bench
        .ask(secret(post(&server.url("/other"))))
        .expect("an answer");
    let request = text(&reply);
    assert!(
        request.starts_with("POST /there ") && request.ends_with("\r\n\r\nbody"),
        "{request}"
    );
    assert!(!request.contains("secret"), "{request}");
    assert!(
        request.contains(&format!("host: {}", other.address)),
        "{request}"
    );
    let fault = bench.fault(get(&server.url("/loop")));
    assert_eq!(fault.kind, CallErrorKind::Broken);
    assert!(
        fault
            .words
            .contains("more than 5 redirects, the last one to"),
        "{fault:?}"
    );
    let fault = bench.fault(get(&server.url("/bad")));
    assert!(
        fault
            .words
            .contains("\"ftp://a.test/\": the URL begins with neither http:// nor"),
        "{fault:?}"
    );
    let mut unfollowed = get(&server.url("/loop"));
    unfollowed.redirects_max = 0;
    let reply = bench.ask(unfollowed).expect("an answer");
    assert_eq!((reply.status, text(&reply).as_str()), (302, "see"));
    // Short bodies of redirects are read, so that connections can be reused.
    assert_eq!(
        server.accepted(),
        3,
        "two were closed by redirects that were refused"
    );
}

#[test]
fn ipv6() {
    let server = Server::at("[::1]:0", |mut stream, _| {
        while let Some(request) = head(&mut stream) {
            let _ = stream.write_all(ok(&request).as_bytes());
        }
    });
    let mut bench = Bench::new();
    let request = bench.text(get(&server.url("/")));
    assert!(
        request.contains(&format!("host: {}\r\n", server.address)),
        "{request}"
    );
}
