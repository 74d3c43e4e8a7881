//! Tests that a fault of one connection ends at most that connection, with the appropriate response.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::server::KEY_HEADER;
use crate::support::{Http, Lines, Options, Seen, Server, Socket, on_all, until};

/// A client that the faults of other connections must not affect.
struct Bystander {
    socket: Socket,
    count: u32,
}

impl Bystander {
    fn of(server: &Server) -> Self {
        Self {
            socket: Socket::open(server.public, "/ws?user=bystander"),
            count: 0,
        }
    }

    #[track_caller]
    fn assert_served(&mut self, server: &Server) {
        self.count += 1;
        let answer = Lines::connect(server.push)
            .ask(&json!({"user": "bystander", "data": self.count, "ack": true}));
        assert_eq!(answer, json!({"result": {"handed": 1}}));
        assert_eq!(self.socket.text(), self.count.to_string());
    }
}

#[test]
fn a_bad_line_gets_one_error_line_and_the_connection_stays() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut bystander = Bystander::of(&server);
        let mut lines = Lines::connect(server.push);
        let bad: &[(&[u8], &str)] = &[
            (b"{\"user\":\"u\",\"mesage\":\"x\"}", "mesage"),
            (b"hello", "line 2: "),
            (b"{", "line 3: "),
            (b"[1,2]", "line 4: expected a JSON object"),
            (b"{\"user\":\"u\"}", "\"data\""),
            (b"{\"data\":1}", "missing"),
            (b"{\"user\":\"\",\"data\":1}", "user"),
            (b"{\"user\":\"a\\nb\",\"data\":1}", "user"),
            (b"{\"user\":\"u\",\"binary\":\"?\"}", "base64"),
            (b"{\"user\":\"u\",\"data\":\"\xff\xfe\"}", "line 10: "),
            (b"{\"user\":\"u\",\"data\":\"\\ud800\"}", "line 11: "),
            (b"GET /\r", "line 12: "),
        ];
        let all: Vec<u8> = bad
            .iter()
            .flat_map(|(line, _)| [line, &b"\n"[..]].concat())
            .collect();
        lines.raw(&all);
        for (line, part) in bad {
            let answer = lines.answer();
            let message = answer["error"]["message"].as_str().expect("an error");
            let line = String::from_utf8_lossy(line);
            assert!(message.contains(part), "{line}: {message}");
            assert_eq!(answer["error"]["code"], 107, "{line}");
        }
        let answer = lines.ask(&json!({"user": "bystander", "data": 1, "id": 5}));
        assert_eq!(
            answer,
            json!({"id": 5, "result": {"handed": 1}}),
            "it goes on"
        );
        assert_eq!(bystander.socket.text(), "1");
        lines.finish();
        bystander.assert_served(&server);
    });
}

/// Sends the packets one by one. Returns the error message of the only response before the connection ends.
#[track_caller]
fn refused(server: &Server, packets: &[&[u8]]) -> String {
    let mut lines = Lines::connect(server.push);
    for packet in packets {
        // The server may have closed the connection already.
        let _ = lines.socket.write_all(packet);
        thread::sleep(Duration::from_millis(20));
    }
    let answer = lines.answer();
    assert_eq!(answer["error"]["code"], 107, "{answer}");
    let message = answer["error"]["message"].as_str().expect("an error");
    lines.finish();
    message.to_owned()
}

#[test]
fn other_protocols_on_the_push_port_have_no_effect() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "body_bytes_max = \"10KiB\"",
                ..Options::default()
            },
        );
        let mut bystander = Bystander::of(&server);
        let command = b"{\"user\":\"bystander\",\"data\":66}\n".as_slice();
        let post = format!(
            "POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: {}\r\n\r\n",
            command.len()
        );
        let long_target = format!("POST /{} HTTP/1.1\r\n\r\n", "a".repeat(10_240));
        // This input begins like a TLS ClientHello with a name that contains a newline.
        let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n".as_slice();
        for begin in [
            post.as_bytes(),
            long_target.as_bytes(),
            hello,
            b"EHLO evil.example\r\n",
            b"GET /\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            let whole = [begin, command].concat();
            let (first, rest) = begin.split_at(5);
            for packets in [
                vec![whole.as_slice()],
                vec![begin, command],
                vec![first, rest, command, command],
            ] {
                let message = refused(&server, &packets);
                assert!(
                    message.contains("line 1: expected one JSON object per line"),
                    "{message}"
                );
            }
        }
        let long = [br#"{"user":""#.as_slice(), &[b'x'; 10_300], b"\n"].concat();
        let whole = [&long[..], command].concat();
        for packets in [
            vec![whole.as_slice()],
            vec![&long[..], command],
            vec![&long[..10_290], &long[10_290..], command],
        ] {
            let message = refused(&server, &packets);
            assert!(
                message.contains("line 1: line longer than 10240 bytes"),
                "{message}"
            );
        }
        bystander.assert_served(&server);
    });
}

#[test]
fn a_line_without_end_is_cut_off() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "body_bytes_max = \"10KiB\"",
                ..Options::default()
            },
        );
        let mut bystander = Bystander::of(&server);
        let mut lines = Lines::connect(server.push);
        let _ = lines.socket.write_all(&[b'{'; 20_000]);
        let message = lines.answer()["error"]["message"]
            .as_str()
            .expect("an error")
            .to_owned();
        assert!(
            message.contains("line 1: line longer than 10240 bytes"),
            "{message}"
        );
        bystander.assert_served(&server);
    });
}

#[test]
fn bad_requests_get_their_status() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut bystander = Bystander::of(&server);
        let long_target = format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "x".repeat(9_000));
        let long_head = format!(
            "GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n",
            "x".repeat(20_000)
        );
        let many_headers = format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "X: y\r\n".repeat(65));
        let upgrade = |rest: &str| {
            format!("GET /ws{rest}\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        };
        let no_key = format!(
            "{}Sec-WebSocket-Version: 13\r\n\r\n",
            upgrade("?user=u HTTP/1.1")
        );
        let old = format!(
            "{}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 7\r\n\r\n",
            upgrade("?user=u HTTP/1.1")
        );
        let nobody = format!(
            "{}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            upgrade(" HTTP/1.1")
        );
        let forbidden = nobody.replace("/ws", "/ws?user=u&channel=secret");
        let foreign = nobody
            .replace("/ws", "/ws?user=u")
            .replace("\r\n\r\n", "\r\nOrigin: http://evil\r\n\r\n");
        for (request, status) in [
            ("nonsense\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : t\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\nHost: t\r\n\r\n", 505),
            (
                "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                400,
            ),
            (
                "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                400,
            ),
            (
                "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                501,
            ),
            ("GET /../../etc/passwd HTTP/1.1\r\nHost: t\r\n\r\n", 404),
            (
                "GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: t\r\n\r\n",
                404,
            ),
            ("DELETE / HTTP/1.1\r\nHost: t\r\n\r\n", 405),
            ("GET /ws?user=u HTTP/1.1\r\nHost: t\r\n\r\n", 426),
            (&long_target, 414),
            (&long_head, 431),
            (&many_headers, 431),
            (&no_key, 400),
            (&old, 426),
            (&nobody, 401),
            (&forbidden, 403),
            (&foreign, 403),
        ] {
            let mut http = Http::connect(server.public);
            let _ = http.raw(request.as_bytes());
            let response = http
                .response()
                .unwrap_or_else(|error| panic!("{request:?}: {error}"));
            let request = &request[..request.len().min(100)];
            assert_eq!(response.status, status, "{request:?}: {response:?}");
        }
        bystander.assert_served(&server);
    });
}

#[test]
fn bad_calls_get_their_error() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "body_bytes_max = \"1KiB\"",
                ..Options::default()
            },
        );
        let mut bystander = Bystander::of(&server);
        let mut http = Http::connect(server.internal);
        for (method, path, key, body, status) in [
            ("POST", "/api/push", "", "{\"user\":\"u\",\"data\":1}", 401),
            (
                "POST",
                "/api/push",
                "X-API-Key: kez\r\n",
                "{\"user\":\"u\",\"data\":1}",
                401,
            ),
            (
                "POST",
                "/api/push",
                "X-API-Key: keyy\r\n",
                "{\"user\":\"u\",\"data\":1}",
                401,
            ),
            ("GET", "/api/push", KEY_HEADER, "", 405),
            ("GET", "/api/socket", KEY_HEADER, "", 426),
        ] {
            let response = http
                .request(method, path, key, body.as_bytes())
                .expect("an answer");
            assert_eq!(response.status, status, "{method} {path} {key:?}");
        }
        // Errors of the call itself are in the response body; the connection stays open.
        for (path, body, code) in [
            ("/api/push", "", 107),
            ("/api/push", "nonsense", 107),
            ("/api/push", "{\"channel\":\"news\",\"data\":1}", 107),
            ("/api/push", "{\"user\":\"u\"}", 107),
            ("/api/broadcast", "{\"channels\":[],\"data\":1}", 107),
            ("/api/disconnect", "{}", 107),
            ("/api/teleport", "{}", 104),
        ] {
            let mut headers = KEY_HEADER.to_owned();
            if body.is_empty() {
                headers += "Content-Length: 0\r\n";
            }
            let response = http
                .request("POST", path, &headers, body.as_bytes())
                .expect("an answer");
            assert_eq!(
                response.json()["error"]["code"],
                code,
                "{path} {body}: {response:?}"
            );
        }
        let response = http
            .request("POST", "/api/publsh", KEY_HEADER, b"{}")
            .expect("an answer");
        let message = response.json()["error"]["message"].clone();
        assert_eq!(message, "method not found; did you mean \"publish\"?");
        let response = http
            .request("POST", "/api/push", KEY_HEADER, &[b'x'; 2000])
            .expect("an answer");
        assert_eq!(response.status, 413);
        bystander.assert_served(&server);
    });
}

/// Returns a masked client frame with the given first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![
        first,
        0x80 | u8::try_from(payload.len()).expect("a short one"),
        0,
        0,
        0,
        0,
    ];
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn a_broken_protocol_is_closed_with_its_code() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                log: "debug",
                ..Options::default()
            },
        );
        let mut bystander = Bystander::of(&server);
        let huge = [&[0x82, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
        let large = [&[0x82, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[0; 4]].concat();
        let cases: &[(&str, Vec<u8>, u16)] = &[
            ("unmasked", vec![0x81, 1, b'a'], 1002),
            ("reserved bit", frame(0xc1, b"a"), 1002),
            ("reserved opcode", frame(0x83, b"a"), 1002),
            ("fragmented ping", frame(0x09, b"a"), 1002),
            (
                "long ping",
                [&[0x89, 0xfe, 0, 126, 0, 0, 0, 0][..], &[0; 126]].concat(),
                1002,
            ),
            ("continuation of nothing", frame(0x80, b"a"), 1002),
            (
                "message in a message",
                [frame(0x01, b"a"), frame(0x81, b"b")].concat(),
                1002,
            ),
            ("close of one byte", frame(0x88, b"a"), 1002),
            (
                "close with 1005",
                frame(0x88, &1005_u16.to_be_bytes()),
                1002,
            ),
            ("no text", frame(0x81, b"\xff"), 1007),
            (
                "no text in the second fragment",
                [frame(0x01, b"\xe2"), frame(0x00, b"\x28")].concat(),
                1007,
            ),
            ("close with no text", frame(0x88, b"\x03\xe8\xff"), 1007),
            ("2^64-1 bytes", huge, 1002),
            ("2^40 bytes", large, 1009),
            (
                "more fragments than allowed",
                [frame(0x01, b""), frame(0x00, b"").repeat(2000)].concat(),
                1009,
            ),
        ];
        for path in ["/echo", "/ws?user=u"] {
            for (name, bytes, code) in cases {
                let mut socket = Socket::open(server.public, path);
                // The server may have closed the connection before all bytes are sent.
                let _ = socket.socket.write_all(bytes);
                assert_eq!(socket.closed(), *code, "{name} on {path}");
            }
        }
        // A complete message that precedes a malformed one is answered.
        let mut socket = Socket::open(server.public, "/echo");
        socket.raw(&[frame(0x81, b"first"), frame(0x83, b"a")].concat());
        assert_eq!(socket.next(), Seen::Text("first".to_owned()));
        assert_eq!(socket.closed(), 1002);
        drop(socket);
        // The server answers a client's Close frame with the same code.
        for code in [1000, 1001, 3000, 4999] {
            let mut socket = Socket::open(server.public, "/echo");
            socket.close(code);
            assert_eq!(socket.next(), Seen::Close(Some(code), String::new()));
            assert_eq!(socket.next(), Seen::End);
        }
        bystander.assert_served(&server);
        server.await_connections(1);
        // The log has a line for each fault, and a line for each closed connection, including that of the bystander.
        let (faults, ended) = (cases.len() * 2 + 1, cases.len() * 2 + 1 + 4 + 1);
        let lines = |level: &str, what: &str| {
            let of_worker = |line: &&str| line.contains("veche::worker: ");
            let found = |line: &&str| line.contains(level) && line.contains(what);
            let log = server.log();
            log.lines().filter(of_worker).filter(found).count()
        };
        until("the log", || {
            lines(" DEBUG ", ": the connection was closed ") == ended
        });
        assert_eq!(lines(" INFO ", ": closed with 10"), faults);
        assert_eq!(
            lines(" WARN ", "") + lines(" ERROR ", ""),
            0,
            "peers' faults are no trouble of ours"
        );
    });
}

/// Arbitrary bytes are sent to any listener, split in any way.
#[test]
fn noise_does_not_affect_other_clients() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut bystander = Bystander::of(&server);
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..120 {
            let address = [server.public, server.internal, server.push][round % 3];
            let mut bytes: Vec<u8> = (0..random.usize(1..4000)).map(|_| random.u8(..)).collect();
            let mut socket = TcpStream::connect(address).expect("the server takes connections");
            if round % 2 == 0 {
                socket = Socket::upgrade(
                    TcpStream::connect(server.public).expect("as above"),
                    "/echo",
                    &[],
                )
                .expect("a session")
                .socket;
                bytes[0] |= 0x80;
            }
            for piece in bytes.chunks(random.usize(1..1000)) {
                let _ = socket.write_all(piece);
            }
        }
        bystander.assert_served(&server);
        server.await_connections(1);
    });
}
