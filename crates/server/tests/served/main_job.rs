//! Tests the server's main job: browsers connect, a back end pushes, and users receive each message exactly once, in order
//! and unchanged, through every interface.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::server::KEY_HEADER;
use crate::support::{Http, Lines, Seen, Server, Setup, Socket, call, on_all, on_each, until};

/// Three users with two connections each, spread over the workers by the kernel; all subscribe to `news`.
fn crowd(server: &Server) -> Vec<(String, Socket)> {
    (0..6)
        .map(|i| {
            let user = format!("tester{:02}", i % 3);
            let socket = Socket::open(server.public, &format!("/ws?user={user}&channel=news"));
            (user, socket)
        })
        .collect()
}

#[track_caller]
fn everyone_sees(crowd: &mut [(String, Socket)], of: impl Fn(&str) -> bool, seen: &Seen) {
    for (user, socket) in crowd {
        if of(user) {
            assert_eq!(socket.next(), *seen, "{user}");
        }
    }
}

fn text(text: &str) -> Seen {
    Seen::Text(text.to_owned())
}

/// Publishes a last message, and asserts that each client receives it next, so that no other message was pending.
#[track_caller]
fn nothing_else_came(server: &Server, crowd: &mut [(String, Socket)]) {
    let answer = call(
        server.internal,
        "publish",
        &json!({"channel": "news", "data": "the end"}),
    );
    assert_eq!(answer, json!({"result": {"handed": crowd.len()}}));
    everyone_sees(crowd, |_| true, &text("the end"));
}

const AWKWARD: &[&str] = &[
    "",
    " ",
    "a\nb\r\n",
    "\"quoted\" \\ \u{0}",
    "ä€😀",
    "{\"looks\":\"like json\"}",
    "null",
];

#[test]
fn lines_reach_their_users() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut crowd = crowd(&server);
        let mut lines = Lines::connect(server.push);
        // A push line without `ack` gets no response.
        lines.raw(b"{\"user\":\"tester01\",\"message\":\"test\"}\n");
        everyone_sees(&mut crowd, |user| user == "tester01", &text("test"));
        // A push line with `ack` gets a response.
        let handed = json!({"result": {"handed": 2}});
        for awkward in AWKWARD {
            let answer = lines.ask(&json!({"user": "tester02", "message": awkward, "ack": true}));
            assert_eq!(answer, handed);
            everyone_sees(&mut crowd, |user| user == "tester02", &text(awkward));
        }
        let answer =
            lines.ask(&json!({"users": ["tester00", "tester01", "nobody"], "data": 1, "id": "x"}));
        assert_eq!(answer, json!({"id": "x", "result": {"handed": 4}}));
        everyone_sees(&mut crowd, |user| user != "tester02", &text("1"));
        let answer = lines.ask(&json!({"channel": "news", "data": {"a": [1, "b c"]}, "ack": true}));
        assert_eq!(answer, json!({"result": {"handed": 6}}));
        everyone_sees(&mut crowd, |_| true, &text("{\"a\":[1,\"b c\"]}"));
        assert_eq!(
            lines.ask(&json!({"user": "tester00", "binary": "AP8Q", "ack": true})),
            handed
        );
        everyone_sees(
            &mut crowd,
            |user| user == "tester00",
            &Seen::Binary(vec![0, 255, 16]),
        );
        assert_eq!(
            lines.ask(&json!({"user": "nobody", "data": 1, "ack": true})),
            json!({"result": {"handed": 0, "note": "the user has no connection"}})
        );
        nothing_else_came(&server, &mut crowd);
        lines.finish();
    });
}

/// A packet may contain several lines, or only a part of a line. The last line has no line break.
#[test]
fn lines_need_no_packets_of_their_own() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut socket = Socket::open(server.public, "/ws?user=u");
        let mut lines = Lines::connect(server.push);
        let mut stream = Vec::new();
        for number in 0..60 {
            writeln!(stream, "{}", json!({"user": "u", "data": number})).expect("memory");
        }
        for piece in stream.chunks(37) {
            lines.raw(piece);
        }
        lines.raw(&stream);
        lines.raw(b"\r\n\n{\"user\":\"u\",\"data\":\"last\"}");
        lines.finish();
        for number in (0..60).chain(0..60) {
            assert_eq!(socket.text(), number.to_string());
        }
        assert_eq!(socket.text(), "last");
        socket.leave();
    });
}

#[test]
fn calls_reach_their_users() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut crowd = crowd(&server);
        let api = |name: &str, body: Value| call(server.internal, name, &body);
        for awkward in AWKWARD {
            let answer = api("push", json!({"user": "tester01", "data": awkward}));
            assert_eq!(answer, json!({"result": {"handed": 2}}));
            everyone_sees(&mut crowd, |user| user == "tester01", &text(awkward));
        }
        let answer = api(
            "push",
            json!({"users": ["tester00", "tester02"], "data": "both"}),
        );
        assert_eq!(answer, json!({"result": {"handed": 4}}));
        everyone_sees(&mut crowd, |user| user != "tester01", &text("both"));
        let answer = api(
            "push",
            json!({"users": ["nobody", "noone"], "message": "x"}),
        );
        let note = "none of the users has a connection";
        assert_eq!(answer, json!({"result": {"handed": 0, "note": note}}));
        let answer = api("publish", json!({"channel": "empty", "message": "x"}));
        assert_eq!(
            answer,
            json!({"result": {"handed": 0}}),
            "channels may be empty"
        );
        let answer = api("publish", json!({"channel": "news", "data": "all"}));
        assert_eq!(answer, json!({"result": {"handed": 6}}));
        everyone_sees(&mut crowd, |_| true, &text("all"));
        let answer = api(
            "broadcast",
            json!({"channels": ["news", "room:1", "#tester00"], "data": "wide"}),
        );
        let each = |handed: u32| json!({"result": {"handed": handed}});
        if answer["error"].is_null() {
            assert_eq!(
                answer,
                json!({"result": {"responses": [each(6), each(0), each(2)]}})
            );
            everyone_sees(&mut crowd, |_| true, &text("wide"));
            everyone_sees(&mut crowd, |user| user == "tester00", &text("wide"));
        }
        let info = Http::connect(server.internal)
            .request("GET", "/api/info", KEY_HEADER, b"")
            .expect("an answer");
        let node = &info.json()["result"]["nodes"][0];
        assert_eq!(node["num_clients"], 6, "{node}");
        nothing_else_came(&server, &mut crowd);

        let answer = api("disconnect", json!({"user": "tester02"}));
        assert_eq!(answer, json!({"result": {"disconnected": 2}}));
        let (gone, mut left): (Vec<_>, Vec<_>) =
            crowd.into_iter().partition(|(user, _)| user == "tester02");
        for (_, mut socket) in gone {
            assert_eq!(socket.closed(), 3503);
        }
        server.await_connections(4);
        assert_eq!(
            api("push", json!({"user": "tester02", "data": 1})),
            json!({"result": {"handed": 0, "note": "the user has no connection"}})
        );
        nothing_else_came(&server, &mut left);
    });
}

/// `handed` counts the connections that can still receive.
#[test]
fn closing_connections_receive_no_pushes() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut socket = Socket::open(server.public, "/ws?user=u");
        assert_eq!(
            call(server.internal, "disconnect", &json!({"user": "u"})),
            json!({"result": {"disconnected": 1}})
        );
        // The closing handshake is in progress: the client has not answered. The home worker of the user may be another
        // worker than that of the session. It is then notified of the closing a little later.
        until("a push without receivers", || {
            let answer = call(server.internal, "push", &json!({"user": "u", "data": 1}));
            answer == json!({"result": {"handed": 0, "note": "the user has no connection"}})
        });
        let code = loop {
            match socket.next() {
                Seen::Text(_) => {}
                Seen::Close(code, _) => break code,
                other => panic!("expected pushes and then a close, saw {other:?}"),
            }
        };
        assert_eq!(code, Some(3503));
    });
}

#[test]
fn frames_of_the_back_end_reach_their_users() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut crowd = crowd(&server);
        let connect =
            || TcpStream::connect(server.internal).expect("the listener takes connections");
        assert!(
            Socket::upgrade(connect(), "/api/socket", &[]).is_err(),
            "without a key"
        );
        let mut back =
            Socket::upgrade(connect(), "/api/socket", &[("X-API-Key", "key")]).expect("a socket");
        // All requests are sent before a response is read: responses are in order and have the ids of their requests.
        for id in 0..200 {
            let user = format!("tester{:02}", id % 3);
            back.say(&json!({"user": user, "data": format!("number {id}"), "id": id}).to_string());
        }
        for id in 0..200 {
            let answer: Value = serde_json::from_str(&back.text()).expect("JSON");
            assert_eq!(answer, json!({"id": id, "result": {"handed": 2}}));
        }
        for id in 0..200 {
            let seen = text(&format!("number {id}"));
            everyone_sees(
                &mut crowd,
                |user| user == format!("tester{:02}", id % 3),
                &seen,
            );
        }
        back.say(&json!({"channel": "news", "data": "all"}).to_string());
        assert_eq!(back.text(), "{\"result\":{\"handed\":6}}");
        everyone_sees(&mut crowd, |_| true, &text("all"));
        nothing_else_came(&server, &mut crowd);
        back.leave();
    });
}

#[test]
fn the_command_reaches_its_users() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut crowd = crowd(&server);
        let address = server.push.to_string();
        let push = |arguments: &[&str], input: &str| {
            let mut command = server.command(&["push", "--address", &address]);
            command
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut child = command.spawn().expect("it starts");
            child
                .stdin
                .take()
                .expect("piped")
                .write_all(input.as_bytes())
                .expect("it reads");
            let output = child.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).expect("text")
        };
        assert_eq!(
            push(&["--user", "tester01", "hello there"], ""),
            "handed to 2 connections\n"
        );
        everyone_sees(&mut crowd, |user| user == "tester01", &text("hello there"));
        assert_eq!(
            push(&["--users", "tester00,tester02", "both"], ""),
            "handed to 4 connections\n"
        );
        everyone_sees(&mut crowd, |user| user != "tester01", &text("both"));
        assert_eq!(
            push(&["--channel", "news", "all"], ""),
            "handed to 6 connections\n"
        );
        everyone_sees(&mut crowd, |_| true, &text("all"));
        let input: String = (0..300).map(|number| format!("line {number}\n")).collect();
        assert_eq!(
            push(&["--user", "tester00", "-"], &input),
            "300 pushes, handed to 600 connections in all\n"
        );
        for number in 0..300 {
            let seen = text(&format!("line {number}"));
            everyone_sees(&mut crowd, |user| user == "tester00", &seen);
        }
        nothing_else_came(&server, &mut crowd);
    });
}

/// A client that has received `open` gets the next push, whichever worker handles the push. The test connects, and
/// then pushes from another connection.
#[test]
fn a_push_after_open_is_received() {
    const ROUNDS: usize = 500;
    on_each(|setup: Setup| {
        let server = Server::start(setup);
        let mut back_ends: Vec<Lines> = (0..4).map(|_| Lines::connect(server.push)).collect();
        for round in 0..ROUNDS {
            let user = format!("u{}", round % 7);
            let mut socket = Socket::open(server.public, &format!("/ws?user={user}&channel=news"));
            let mark = format!("round {round}");
            let back_end = &mut back_ends[round % 4];
            if round % 2 == 0 {
                back_end.send(&json!({"user": user, "data": mark}));
            } else {
                back_end.send(&json!({"channel": "news", "data": mark}));
            }
            assert_eq!(socket.text(), mark);
        }
    });
}

/// A client receives messages with lengths around the limits of the frame format, and one of a megabyte.
#[test]
fn size_is_no_matter() {
    on_all(|setup| {
        let options = crate::support::Options {
            limits: "outbox_bytes = \"4MiB\"",
            ..Default::default()
        };
        let server = Server::with(setup, &options);
        let mut socket = Socket::open(server.public, "/ws?user=u");
        let mut lines = Lines::connect(server.push);
        for size in [125, 126, 127, 65_535, 65_536, 65_537, 1_000_000] {
            let data: String = (0..size)
                .map(|i| char::from(b'a' + (i % 26) as u8))
                .collect();
            lines.send(&json!({"user": "u", "data": data}));
            assert!(socket.text() == data, "{size} bytes");
        }
        lines.finish();
    });
}
