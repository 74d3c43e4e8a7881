//! Tests the life of a process with real workers: it is killed, stopped and reloaded.

use std::io::Write;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{
    Http, Lines, Options, Seen, Server, Socket, USUAL, call, get, now, on_all, process, until,
};

/// Pushes to a user, and asserts that the push arrives.
#[track_caller]
fn assert_served(server: &Server, user: &str, socket: &mut Socket) {
    let answer = Lines::connect(server.push)
        .ask(&json!({"user": user, "data": "are you there?", "ack": true}));
    assert_eq!(answer, json!({"result": {"handed": 1}}));
    assert_eq!(socket.text(), "are you there?");
}

#[test]
fn a_killed_server_restarts_without_refusing_connections() {
    on_all(|setup| {
        let server = Server::start(setup);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..3)
                .map(|i| {
                    let (server, done) = (&server, &done);
                    scope.spawn(move || {
                        let mut opened = 0;
                        while !done.load(Ordering::Relaxed) {
                            let connected = std::net::TcpStream::connect(server.public);
                            let socket = connected.expect("no connection is refused");
                            // The kill may reset this connection, which is expected; the client connects again.
                            opened += u32::from(
                                Socket::upgrade(socket, &format!("/ws?user=u{i}"), &[]).is_ok(),
                            );
                            thread::sleep(Duration::from_millis(2));
                        }
                        opened
                    })
                })
                .collect();
            let mut open = Socket::open(server.public, "/ws?user=one");
            thread::sleep(Duration::from_millis(200));
            let old = server.pid();
            process::kill(old, Signal::KILL);
            let killed = now();
            assert!(matches!(open.next(), Seen::Reset | Seen::End));
            let mut again = loop {
                match Socket::try_open(server.public, "/ws?user=one") {
                    Ok(socket) => break socket,
                    Err(_) => assert!(now() - killed < Duration::from_secs(10), "no answer"),
                }
            };
            let took = now() - killed;
            eprintln!("{setup:?}: open again {took:?} after the kill");
            // A restart should take less than a second. The limit is higher because several test
            // servers share the machine.
            assert!(took < Duration::from_secs(3), "{took:?}");
            until("its process id", || {
                server.try_pid().is_some_and(|new| new != old)
            });
            assert_served(&server, "one", &mut again);
            done.store(true, Ordering::Relaxed);
            let opened = clients
                .into_iter()
                .map(|client| client.join().expect("no connection was refused"));
            let opened: u32 = opened.sum();
            assert!(
                opened > 5,
                "only {opened} sessions: the test tested nothing"
            );
        });
        assert_eq!(server.status().expect("it runs")["restarts"], 1);
    });
}

#[test]
fn a_stop_drains() {
    on_all(|setup| {
        for signal in [Signal::TERM, Signal::INT] {
            let mut server = Server::with(
                setup,
                &Options {
                    limits: "drain_time = \"1500ms\"",
                    ..Options::default()
                },
            );
            let mut sockets: Vec<Socket> = (0..30)
                .map(|i| Socket::open(server.public, &format!("/ws?user=u{i}")))
                .collect();
            let mut kept = Http::connect(server.internal);
            assert_eq!(
                kept.request("GET", "/health", "", b"")
                    .expect("served")
                    .status,
                200
            );
            let start = now();
            server.signal(signal);
            until("the drain", || {
                get(server.internal, "/health").status == 503
            });
            let times: Vec<Duration> = thread::scope(|scope| {
                let closing: Vec<_> = sockets
                    .iter_mut()
                    .map(|socket| {
                        scope.spawn(move || {
                            assert_eq!(socket.closed(), 1001);
                            now() - start
                        })
                    })
                    .collect();
                closing
                    .into_iter()
                    .map(|closed| closed.join().expect("closed with its code"))
                    .collect()
            });
            let (first, last) = (
                times.iter().min().expect("some"),
                times.iter().max().expect("some"),
            );
            let spread = *last - *first;
            assert!(spread > Duration::from_millis(600), "all within {spread:?}");
            assert_eq!(server.exit_code(), Some(0));
            assert!(now() - start < Duration::from_secs(5));
        }
    });
}

/// Requests during a drain are answered, and not left in the kernel's queue until the process ends.
#[test]
fn whatever_comes_in_a_drain_is_answered() {
    on_all(|setup| {
        let limits = "drain_time = \"20s\"";
        let options = Options {
            limits,
            ..Options::default()
        };
        let mut server = Server::with(setup, &options);
        let mut clients: Vec<Socket> = (0..6)
            .map(|user| Socket::open(server.public, &format!("/ws?user=u{user}")))
            .collect();
        server.signal(Signal::TERM);
        until("the drain", || {
            get(server.internal, "/health").status == 503
        });
        let mut late = Http::connect(server.public);
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let refused = late.request("GET", "/ws?user=late", upgrade, b"");
        let refused = refused.expect("an answer");
        assert_eq!(refused.status, 503);
        assert_eq!(refused.header("retry-after"), Some("1"));
        let page = get(server.public, "/");
        assert_eq!(
            (page.status, page.header("connection")),
            (200, Some("close"))
        );
        // A back end that connects during the drain still reaches connected clients.
        let mut lines = Lines::connect(server.push);
        let left = (0..clients.len()).find(|user| {
            let push = json!({"user": format!("u{user}"), "data": "last", "ack": true});
            lines.ask(&push) == json!({"result": {"handed": 1}})
        });
        let left = left.expect("a client that was not told yet");
        assert_eq!(clients[left].text(), "last");
        drop(clients);
        // The drain ends although the back end stays connected, since no client is left to wait
        // for.
        assert_eq!(server.exit_code(), Some(0));
    });
}

/// A load balancer gets 503 before anything else changes, and has time to redirect its clients.
#[test]
fn before_a_drain_health_says_503_while_everything_is_served() {
    on_all(|setup| {
        let options = Options {
            limits: "lame_duck_time = \"1500ms\"\ndrain_time = \"500ms\"",
            ..Options::default()
        };
        let mut server = Server::with(setup, &options);
        let mut open = Socket::open(server.public, "/ws?user=early");
        let start = now();
        server.signal(Signal::TERM);
        until("the end to be announced", || {
            get(server.internal, "/health").status == 503
        });
        let mut late = Socket::open(server.public, "/ws?user=late");
        assert_served(&server, "early", &mut open);
        assert_served(&server, "late", &mut late);
        let page = get(server.public, "/");
        assert_eq!((page.status, page.header("connection")), (200, None));
        for socket in [&mut open, &mut late] {
            assert_eq!(socket.closed(), 1001);
        }
        let lasted = now() - start;
        assert!(lasted >= Duration::from_millis(1_400), "{lasted:?}");
        assert_eq!(server.exit_code(), Some(0));
    });
}

#[test]
fn a_second_signal_ends_it_before_the_drain_too() {
    let options = Options {
        limits: "lame_duck_time = \"1m\"",
        ..Options::default()
    };
    let mut server = Server::with(USUAL, &options);
    server.signal(Signal::TERM);
    until("the end to be announced", || {
        get(server.internal, "/health").status == 503
    });
    server.signal(Signal::TERM);
    assert_eq!(server.exit_code(), Some(7));
}

/// Requests in progress when the drain starts are answered.
#[test]
fn a_drain_lets_requests_finish() {
    on_all(|setup| {
        let mut server = Server::with(
            setup,
            &Options {
                limits: "drain_time = \"2s\"",
                ..Options::default()
            },
        );
        let mut http = Http::connect(server.internal);
        let body = "{\"user\":\"nobody\",\"data\":1}";
        let head = format!(
            "POST /api/push HTTP/1.1\r\nHost: t\r\nX-API-Key: key\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        http.raw(head.as_bytes()).expect("taken");
        until("the request's head to be there", || {
            server.connections() == 1
        });
        server.signal(Signal::TERM);
        thread::sleep(Duration::from_millis(300));
        http.raw(body.as_bytes()).expect("taken");
        let response = http.response().expect("an answer");
        assert_eq!(
            response.json(),
            json!({"result": {"handed": 0, "note": "the user has no connection"}})
        );
        assert_eq!(response.header("connection"), Some("close"));
        assert_eq!(server.exit_code(), Some(0));
    });
}

#[test]
fn a_second_stop_ends_the_drain() {
    on_all(|setup| {
        let mut server = Server::with(
            setup,
            &Options {
                limits: "drain_time = \"1m\"",
                ..Options::default()
            },
        );
        let mut sockets: Vec<Socket> = (0..20)
            .map(|_| Socket::open(server.public, "/echo"))
            .collect();
        let pid = server.pid();
        server.signal(Signal::TERM);
        thread::sleep(Duration::from_millis(300));
        assert!(
            sockets.last_mut().is_some_and(Socket::is_alive),
            "it has a minute"
        );
        let second = now();
        server.signal(Signal::TERM);
        assert_eq!(server.exit_code(), Some(7));
        assert!(now() - second < Duration::from_secs(3));
        assert!(!process::is_alive(pid));
    });
}

const NEW_ROUTE: &str =
    "[[route]]\npath = \"/later\"\nhandler = \"push\"\nidentity = \"query:user\"";

#[test]
fn a_reload_adds_routes_and_drops_no_connection() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut open = Socket::open(server.public, "/ws?user=before&channel=news");
        let pid = server.pid();
        assert!(Socket::try_open(server.public, "/later?user=after").is_err());
        server.configure(&Options {
            routes: NEW_ROUTE,
            ..Options::default()
        });
        server.signal(Signal::HUP);
        // Workers apply the reload one after another, so connections are tried until one reaches
        // the new route.
        let mut after: Vec<Socket> = Vec::new();
        until("the new route", || {
            after.extend(Socket::try_open(server.public, "/later?user=after").ok());
            after.len() == 12
        });
        until("those who tried to be gone", || server.connections() == 13);
        assert_eq!(
            call(
                server.internal,
                "push",
                &json!({"user": "after", "data": 1})
            ),
            json!({"result": {"handed": 12}})
        );
        assert!(after.iter_mut().all(|socket| socket.text() == "1"));
        assert_served(&server, "before", &mut open);
        assert_eq!(
            call(
                server.internal,
                "publish",
                &json!({"channel": "news", "data": 2})
            ),
            json!({"result": {"handed": 1}})
        );
        assert_eq!(open.text(), "2");

        // An invalid configuration is rejected as a whole, and the old one stays.
        let bad = "[[route]]\npath = \"/ever\"\nhandler = \"pusch\"";
        server.configure(&Options {
            routes: bad,
            ..Options::default()
        });
        server.signal(Signal::HUP);
        until("the refusal", || server.log().contains("pusch"));
        assert!(Socket::try_open(server.public, "/ever?user=u").is_err());
        assert!(Socket::try_open(server.public, "/later?user=u").is_ok());
        assert_served(&server, "before", &mut open);
        assert_eq!(server.pid(), pid);

        // A removed route is gone for new connections.
        server.configure(&Options::default());
        server.signal(Signal::HUP);
        until("the end of the route", || {
            Socket::try_open(server.public, "/later?user=u").is_err()
        });
        assert!(after[0].is_alive());
    });
}

/// While routes and limits change, each new session is either opened or refused, and none is stuck.
#[test]
fn reloads_under_load_lose_nothing() {
    on_all(|setup| {
        let server = Server::start(setup);
        let (done, arrived) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let (server, done, arrived) = (&server, &done, &arrived);
            let pushing = scope.spawn(move || {
                let mut socket = Socket::open(server.public, "/ws?user=steady");
                let mut lines = Lines::connect(server.push);
                while !done.load(Ordering::Relaxed) {
                    let count = arrived.load(Ordering::Relaxed);
                    lines.send(&json!({"user": "steady", "data": count}));
                    assert_eq!(socket.text(), count.to_string());
                    arrived.store(count + 1, Ordering::Relaxed);
                }
            });
            let opening = scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    Socket::open(server.public, "/ws?user=fleeting").leave();
                }
            });
            for round in 0..10 {
                let limits = format!("outbox_bytes = \"{}KiB\"", 100 + round);
                server.configure(&Options {
                    limits: &limits,
                    ..Options::default()
                });
                let answer = server.ask("reload").expect("an answer");
                assert_eq!(answer["ok"], true, "{answer}");
                // A push that starts after the response to this reload has to arrive before the next reload.
                let seen = arrived.load(Ordering::Relaxed);
                until("the pushes to go on", || {
                    pushing.is_finished() || arrived.load(Ordering::Relaxed) > seen + 1
                });
            }
            done.store(true, Ordering::Relaxed);
            pushing.join().expect("all arrived");
            opening.join().expect("all opened");
        });
    });
}

fn code_and_output(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn the_commands_of_the_operator() {
    let mut server = Server::start(USUAL);
    let mut open = Socket::open(server.public, "/ws?user=u");
    let run = |server: &Server, arguments: &[&str]| {
        code_and_output(&server.command(arguments).output().expect("it runs"))
    };
    let (code, text) = run(&server, &["status"]);
    assert_eq!(code, Some(0));
    for part in ["ready", "sessions", &server.public.to_string()] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let (code, text) = run(&server, &["reload"]);
    assert_eq!(code, Some(0), "{text}");
    server.configure(&Options {
        routes: "[[route]]\npaht = \"/x\"",
        ..Options::default()
    });
    let (code, text) = run(&server, &["reload"]);
    assert_ne!(code, Some(0));
    assert!(text.contains("paht") && text.contains("path"), "{text}");
    assert_served(&server, "u", &mut open);
    server.configure(&Options::default());
    let stopping = server.command(&["stop"]).spawn().expect("it starts");
    assert_eq!(open.closed(), 1001);
    assert_eq!(server.exit_code(), Some(0));
    let (code, text) = code_and_output(&stopping.wait_with_output().expect("it ends"));
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run(&server, &["status"]);
    assert_eq!(code, Some(3), "{text}");
    std::io::stdout().flush().expect("a standard output");
}

/// The exit code shows whether a drain was completed, whichever way the drain was requested.
#[test]
fn stopped_at_once_it_ends_as_killed() {
    let limits = Options {
        limits: "drain_time = \"1m\"",
        ..Options::default()
    };
    let mut server = Server::with(USUAL, &limits);
    let _open = Socket::open(server.public, "/echo");
    let mut stop = server
        .command(&["stop", "--now"])
        .spawn()
        .expect("it starts");
    assert_eq!(server.exit_code(), Some(7));
    assert!(
        server.log().contains("before its drain was done"),
        "{}",
        server.log()
    );
    let stopped = stop.wait().expect("it ends");
    assert_eq!(stopped.code(), Some(0), "the stop succeeded");
}
