//! Each wait of a connection has a deadline, and clients that meet it are not affected.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::{Http, Lines, Options, Seen, Server, Socket, now, on_all};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn slow_heads_get_408() {
    on_all(|setup| {
        let limits = "header_timeout = \"250ms\"\nhandshake_timeout = \"400ms\"\nkeep_alive_timeout = \"300ms\"";
        let server = Server::with(
            setup,
            &Options {
                limits,
                ..Options::default()
            },
        );
        thread::scope(|scope| {
            // A client that sends nothing.
            scope.spawn(|| {
                let began = now();
                let mut http = Http::connect(server.public);
                let rest = http.rest().expect("a clean end");
                assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408 "));
                assert!((MS(200)..MS(5000)).contains(&(now() - began)));
            });
            // A client that sends a byte now and then.
            scope.spawn(|| {
                let mut http = Http::connect(server.public);
                let began = now();
                for byte in b"GET / HTTP/1.1\r\nHost: t\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyy" {
                    if http.raw(&[*byte]).is_err() || now() - began > MS(600) {
                        break;
                    }
                    thread::sleep(MS(20));
                }
                // Late bytes may have reset the connection before the response was read.
                if let Ok(response) = http.response() {
                    assert_eq!(response.status, 408);
                }
                assert!(http.rest().is_err() || now() - began < MS(5000));
            });
            // A client that sends a request and then nothing more: the connection is closed silently. Further requests
            // within the time limit are served.
            scope.spawn(|| {
                let mut http = Http::connect(server.public);
                for _ in 0..3 {
                    assert_eq!(
                        http.request("GET", "/", "", b"").expect("served").status,
                        200
                    );
                    thread::sleep(MS(50));
                }
                let began = now();
                assert_eq!(http.rest().expect("a clean end"), b"");
                assert!((MS(150)..MS(5000)).contains(&(now() - began)));
            });
            // A request whose body does not arrive.
            scope.spawn(|| {
                let mut http = Http::connect(server.internal);
                let head = b"POST /api/push HTTP/1.1\r\nHost: t\r\nX-API-Key: key\r\nContent-Length: 50\r\n\r\n{";
                http.raw(head).expect("taken");
                assert_eq!(http.response().expect("an answer").status, 408);
                assert_eq!(http.rest().expect("a clean end"), b"");
            });
        });
        server.await_connections(0);
    });
}

#[test]
fn silent_clients_are_closed_and_those_answering_pings_stay() {
    on_all(|setup| {
        let limits = "ping_interval = \"200ms\"\npong_timeout = \"1s\"";
        let server = Server::with(
            setup,
            &Options {
                limits,
                ..Options::default()
            },
        );
        let (mut silent, mut deaf) = (
            Socket::open(server.public, "/ws?user=silent"),
            Socket::open(server.public, "/echo"),
        );
        (silent.answers_pings, deaf.answers_pings) = (false, false);
        let mut answering = Socket::open(server.public, "/ws?user=answering");
        let mut talking = Socket::open(server.public, "/echo");
        thread::scope(|scope| {
            scope.spawn(|| {
                for socket in [&mut silent, &mut deaf] {
                    assert_eq!(socket.next(), Seen::Ping);
                    assert!(matches!(
                        socket.next(),
                        Seen::Close(..) | Seen::End | Seen::Reset
                    ));
                }
            });
            scope.spawn(|| assert_eq!(answering.within(MS(1500)), Seen::Nothing));
            scope.spawn(|| {
                for _ in 0..30 {
                    talking.say("still here");
                    assert_eq!(talking.text(), "still here");
                    thread::sleep(MS(50));
                }
            });
        });
        assert!(answering.is_alive() && talking.is_alive());
        server.await_connections(2);
        let answer = Lines::connect(server.push)
            .ask(&json!({"users": ["silent", "answering"], "data": 1, "ack": true}));
        assert_eq!(answer, json!({"result": {"handed": 1}}));
        assert_eq!(answering.text(), "1");
    });
}

/// Messages in either direction keep a session alive; pings don't.
#[test]
fn idle_sessions_end() {
    on_all(|setup| {
        let limits = "ping_interval = \"100ms\"\nidle_timeout = \"500ms\"";
        let server = Server::with(
            setup,
            &Options {
                limits,
                ..Options::default()
            },
        );
        let mut idle = Socket::open(server.public, "/ws?user=idle");
        let mut pushed = Socket::open(server.public, "/ws?user=pushed");
        let mut talking = Socket::open(server.public, "/echo");
        let mut lines = Lines::connect(server.push);
        for number in 0..15 {
            lines.send(&json!({"user": "pushed", "data": number}));
            assert_eq!(pushed.text(), number.to_string());
            talking.say("a");
            assert_eq!(talking.text(), "a");
            thread::sleep(MS(80));
        }
        assert_eq!(idle.closed(), 1001);
        assert!(pushed.is_alive() && talking.is_alive());
        assert_eq!(pushed.closed(), 1001);
        assert_eq!(talking.closed(), 1001);
    });
}
