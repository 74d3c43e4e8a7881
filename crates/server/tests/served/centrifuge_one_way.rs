//! Receive-only clients of Centrifugo's protocol on the real server: bare pushes by three transports, and event stream
//! readers that reconnect.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::jwt::handshake;
use crate::support::{Lines, Options, Server, Setup, Socket, call, on_all};

const CONFIG: &str = "[[route]]\npath = \"/all/*\"\nhandler = \"centrifuge\"\n\
    [[route]]\npath = \"/users/*\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n\
    [[namespace]]\nname = \"chat\"\nhistory_size = 1000\nsubscribe = \"client\"\n\
    [[namespace]]\nname = \"#\"\nhistory_size = 10\n\
    [[namespace]]\nname = \"open\"\nsubscribe = \"client\"\n";

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: CONFIG,
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// A streamed response, read by lines or by events.
struct Response {
    lines: BufReader<TcpStream>,
    /// The id of the last event.
    last: Option<String>,
}

impl Response {
    fn open(server: &Server, request: &str) -> Self {
        let mut socket = TcpStream::connect(server.public).expect("a connection");
        let timeout = Some(Duration::from_secs(20));
        socket.set_read_timeout(timeout).expect("a socket");
        socket.write_all(request.as_bytes()).expect("it is taken");
        let mut response = Self {
            lines: BufReader::new(socket),
            last: None,
        };
        assert!(response.line().starts_with("HTTP/1.1 200 "), "{request}");
        while response.line() != "" {}
        response
    }

    /// Sends `POST /…/uni_http_stream`, with HTTP/1.0, whose responses have no chunks.
    fn stream(server: &Server, path: &str, connect: &Value) -> Self {
        let body = connect.to_string();
        let length = body.len();
        let request =
            format!("POST {path} HTTP/1.0\r\nHost: test\r\nContent-Length: {length}\r\n\r\n{body}");
        Self::open(server, &request)
    }

    /// Connects like the event stream reader of a browser, with the id of the last event if there
    /// is one.
    fn events(server: &Server, path: &str, connect: &Value, last: Option<&str>) -> Self {
        let connect = connect.to_string().replace('"', "%22");
        let last = last.map_or(String::new(), |last| format!("Last-Event-ID: {last}\r\n"));
        let sign = if path.contains('?') { '&' } else { '?' };
        let request =
            format!("GET {path}{sign}cf_connect={connect} HTTP/1.0\r\nHost: test\r\n{last}\r\n");
        Self::open(server, &request)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    /// Returns the next push that is not a ping.
    fn push(&mut self) -> Value {
        loop {
            let line = self.line();
            if let Some(id) = line.strip_prefix("id: ") {
                self.last = Some(id.to_owned());
            }
            let data = line.strip_prefix("data: ").unwrap_or(&line);
            if data.starts_with('{') && data != "{}" {
                return serde_json::from_str(data).expect("JSON");
            }
        }
    }

    fn ends(mut self) {
        let mut rest = String::new();
        self.lines
            .read_to_string(&mut rest)
            .expect("the end in time");
        assert_eq!(rest.trim(), "");
    }
}

fn publish(lines: &mut Lines, channel: &str, data: u64) {
    lines.ask(&json!({ "channel": channel, "data": data, "ack": true }));
}

#[test]
fn one_way_clients_receive_pushes_and_the_disconnect_reason() {
    on_all(|setup| {
        let server = start(setup);
        let mut lines = Lines::connect(server.push);
        let connect = json!({ "subs": { "open:1": {}, "nowhere": {} } });
        let mut socket = Socket::open(server.public, "/users/uni_websocket?user=ann");
        socket.say(&connect.to_string());
        let mut stream = Response::stream(&server, "/users/uni_http_stream?user=ann", &connect);
        let mut events = Response::events(&server, "/users/uni_sse?user=ann", &connect, None);
        let text = socket.text();
        let first: Value = serde_json::from_str(&text).expect("JSON");
        for first in [first, stream.push(), events.push()] {
            let subs = first["connect"]["subs"].as_object().expect("subs");
            let names: Vec<&String> = subs.keys().collect();
            assert_eq!(names, ["#ann", "open:1"]);
            assert_eq!(first["connect"]["pong"], Value::Null);
        }
        publish(&mut lines, "open:1", 7);
        let expected = json!({ "channel": "open:1", "pub": { "data": 7 } });
        assert_eq!(socket.text(), expected.to_string());
        assert_eq!([stream.push(), events.push()], [expected.clone(), expected]);
        call(
            server.internal,
            "push",
            &json!({ "user": "ann", "data": { "for": "her" } }),
        );
        let pushes = [
            serde_json::from_str(&socket.text()).expect("JSON"),
            stream.push(),
            events.push(),
        ];
        for push in pushes {
            assert_eq!(
                push,
                json!({ "channel": "#ann", "pub": { "data": { "for": "her" }, "offset": 1 } })
            );
        }
        // The connect request may be in the query of the handshake's URL.
        let encoded = connect.to_string().replace('"', "%22");
        let target = format!("/users/uni_websocket?user=eve&cf_connect={encoded}");
        let mut by_address = Socket::open(server.public, &target);
        let first: Value = serde_json::from_str(&by_address.text()).expect("JSON");
        assert_eq!(first["connect"]["subs"]["open:1"], json!({}));
        let bad = handshake(server.public, "/all/uni_websocket?cf_connect=[]", "");
        assert_eq!(bad.status, 400, "{bad:?}");
        drop(by_address);
        // An unusable request is answered with an error.
        let mut bad = Response::stream(&server, "/all/uni_http_stream", &json!([]));
        assert_eq!(bad.push()["disconnect"]["code"], 3501);
        bad.ends();
        server.signal(Signal::TERM);
        for response in [&mut stream, &mut events] {
            assert_eq!(response.push()["disconnect"]["code"], 3001);
        }
        let last: Value = serde_json::from_str(&socket.text()).expect("JSON");
        assert_eq!(last["disconnect"]["code"], 3001);
        assert_eq!(socket.closed(), 3001);
        stream.ends();
        events.ends();
    });
}

#[test]
fn a_reader_of_events_that_is_cut_off_again_and_again_misses_nothing() {
    on_all(|setup| {
        let server = start(setup);
        const LAST: u64 = 200;
        let channels = ["chat:1", "chat:2", "chat:3"];
        thread::scope(|scope| {
            for reader in 0..3_u64 {
                let server = &server;
                let subs = channels.map(|channel| (channel.to_owned(), json!({})));
                let connect = json!({ "subs": serde_json::Map::from_iter(subs) });
                // The reader subscribes before the first publication, so that it has a position to recover from.
                let mut response = Response::events(server, "/all/uni_sse", &connect, None);
                let reply = response.push();
                assert_eq!(reply["connect"]["subs"]["chat:1"]["recoverable"], true);
                scope.spawn(move || {
                    let mut received = [0; 3];
                    let mut visits = 0;
                    while received != [LAST; 3] {
                        for _ in 0..=(visits + reader) % 7 {
                            if received == [LAST; 3] {
                                break;
                            }
                            let push = response.push();
                            let of = channels.iter().position(|one| push["channel"] == **one);
                            let received = &mut received[of.expect("one of these")];
                            *received += 1;
                            let expected = json!({ "data": *received, "offset": *received });
                            assert_eq!(push["pub"], expected, "{push}");
                        }
                        visits += 1;
                        let last = response.last.take().expect("each has an id");
                        response = Response::events(server, "/all/uni_sse", &connect, Some(&last));
                        let reply = response.push();
                        for channel in channels {
                            let sub = &reply["connect"]["subs"][channel];
                            assert_eq!(sub["recovered"], true, "{reply}");
                        }
                    }
                });
            }
            let mut lines = Lines::connect(server.push);
            for number in 1..=LAST {
                for channel in channels {
                    publish(&mut lines, channel, number);
                }
            }
        });
    });
}

#[test]
fn a_stated_position_recovers_and_an_unknown_one_does_not() {
    on_all(|setup| {
        let server = start(setup);
        let mut lines = Lines::connect(server.push);
        let connect = json!({ "subs": { "chat:1": {} } });
        let mut stream = Response::stream(&server, "/all/uni_http_stream", &connect);
        let sub = stream.push()["connect"]["subs"]["chat:1"].clone();
        publish(&mut lines, "chat:1", 1);
        let push = stream.push();
        drop(stream);
        publish(&mut lines, "chat:1", 2);
        publish(&mut lines, "chat:1", 3);
        let was =
            json!({ "recover": true, "epoch": sub["epoch"], "offset": push["pub"]["offset"] });
        let back = json!({ "subs": { "chat:1": was } });
        let missed =
            [2, 3].map(|n| json!({ "channel": "chat:1", "pub": { "data": n, "offset": n } }));
        let mut stream = Response::stream(&server, "/all/uni_http_stream", &back);
        assert_eq!(
            stream.push()["connect"]["subs"]["chat:1"]["recovered"],
            true
        );
        assert_eq!([stream.push(), stream.push()], missed);
        let mut socket = Socket::open(server.public, "/all/uni_websocket");
        socket.say(&back.to_string());
        let reply: Value = serde_json::from_str(&socket.text()).expect("JSON");
        assert_eq!(reply["connect"]["subs"]["chat:1"]["recovered"], true);
        assert_eq!(socket.text(), missed[0].to_string());
        for last in ["17", "urn:uuid:1", "AAAAAAAAAAAA"] {
            let mut events = Response::events(&server, "/all/uni_sse", &connect, Some(last));
            let sub = events.push()["connect"]["subs"]["chat:1"].clone();
            assert_eq!(
                (&sub["was_recovering"], &sub["recovered"]),
                (&json!(true), &Value::Null)
            );
            assert_eq!(sub["offset"], 3);
        }
    });
}

#[test]
fn cross_site_pages_are_rejected_and_urls_carry_only_connect() {
    on_all(|setup| {
        let server = start(setup);
        let connect = "%7B%22id%22%3A1%2C%22connect%22%3A%7B%7D%7D";
        let sse = format!("/users/sse?user=ann&cf_connect={connect}");
        let rpc = format!("{sse}%0A%7B%22id%22%3A2%2C%22rpc%22%3A%7B%7D%7D");
        let status = |target: &str, headers: &[u8]| {
            let mut socket = TcpStream::connect(server.public).expect("a connection");
            let line = format!("GET {target} HTTP/1.1\r\nHost: test\r\n");
            let request = [line.as_bytes(), headers, b"\r\n"].concat();
            socket.write_all(&request).expect("it is taken");
            let mut line = String::new();
            BufReader::new(socket)
                .read_line(&mut line)
                .expect("an answer");
            line[9..12].parse::<u16>().expect("a status")
        };
        assert_eq!(status(&rpc, b""), 400);
        for target in [&sse[..], "/users/uni_sse?user=ann"] {
            assert_eq!(status(target, b""), 200);
            assert_eq!(status(target, b"Sec-Fetch-Site: same-origin\r\n"), 200);
            for headers in [
                b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n".as_slice(),
                b"Sec-Fetch-Site: same-site\r\n",
                b"Origin: http://test\xff\r\n",
            ] {
                assert_eq!(status(target, headers), 403, "{target}");
            }
        }
    });
}
