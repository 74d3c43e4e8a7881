//! HTTP requests that an application answers, and handshakes that it decides on: at once, later, or never.

use veche_frontends::stats::HandshakeOutcome;

use crate::world::apps::{AppCall, app_message, closed, opened};
use crate::world::wire::{
    get, handshake, post, response, responses, server_messages, statuses, text, texts,
};
use crate::world::{Options, PUBLIC, PUSH, Peer, World, limits};

fn request(what: &str) -> AppCall {
    AppCall::Request(what.to_owned())
}

fn asked(what: &str) -> AppCall {
    AppCall::Handshake(what.to_owned())
}

/// Begins a handshake on a new connection, with two subprotocols offered.
fn begin(world: &mut World, target: &str) -> Peer {
    let peer = world.connect(0, PUBLIC);
    let offer = "Sec-WebSocket-Protocol: a, b\r\n";
    world.send(peer, handshake(target, offer).as_bytes());
    world.settle();
    peer
}

#[test]
fn requests_are_handed_over_whole_and_answered() {
    let table: &[(&str, &str, u16)] = &[
        (&get("/app/x?a=b"), "GET /app/x", 200),
        (&get("/app/x/y/z"), "GET /app/x/y/z", 200),
        (&get("/room/7"), "GET /room/7 id=7", 200),
        (&get("/app-user?user=ann"), "GET /app-user user=ann", 200),
        // An anonymous client is passed to the application.
        (&get("/app-user"), "GET /app-user", 200),
        (&post("/app/x", "body"), "POST /app/x body", 200),
        (&post("/app/x", ""), "POST /app/x", 200),
        (
            "PUT /app/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            "PUT /app/x abcde",
            200,
        ),
        (
            "BREW /app/x HTTP/1.1\r\nHost: a\r\n\r\n",
            "BREW /app/x",
            200,
        ),
        // An offer to upgrade to a protocol other than WebSocket is ignored.
        (
            "GET /app/x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            "GET /app/x",
            200,
        ),
        (&get("/app/500"), "GET /app/500", 500),
    ];
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    for (bytes, what, status) in table {
        for step in [usize::MAX, 1, 7] {
            world.send_split(peer, bytes.as_bytes(), |_| step);
            world.settle();
            let answer = responses(&world.take(peer));
            assert_eq!((answer.len(), answer[0].status), (1, *status), "{what}");
            if *status == 200 {
                assert_eq!(answer[0].body, *what);
                assert_eq!(answer[0].header("x-a"), Some("b"));
            }
            assert_eq!(world.app_calls(peer), [request(what)]);
        }
    }
    world.reset_all();
    world.check_empty();
}

#[test]
fn responses_are_framed_by_their_kind() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let head = "HEAD /app/x HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = world.ask(peer, head);
    let (answer, rest) = response(&answer, false);
    assert_eq!(
        (answer.header("content-length"), rest),
        (Some("11"), &b""[..])
    );
    for (path, status) in [("/app/204", 204), ("/app/304", 304)] {
        let answer = world.ask(peer, get(path) + &get("/app/x"));
        let answers = responses(&answer);
        assert_eq!((answers[0].status, answers[1].status), (status, 200));
        assert_eq!(answers[0].header("content-length"), None, "{path}");
    }
    // The head of the application's response is invalid, so its body is dropped, and the client gets a 500 instead.
    for path in [
        "bad-name",
        "bad-value",
        "framing",
        "bad-status",
        "no-status",
    ] {
        world.workers[0].shared_mut().log_notes.clear();
        let answer = world.ask(peer, get(&format!("/app/{path}")));
        let answer = responses(&answer);
        assert_eq!((answer.len(), answer[0].status), (1, 500), "{path}");
        assert!(!answer[0].body.contains("secret"), "{path}");
        let notes = &world.workers[0].shared().log_notes;
        assert_eq!(notes.len(), 1, "{path}: {notes:?}");
        assert!(notes[0].text.contains("can't be written"), "{notes:?}");
    }
    // The request determines whether the connection is kept alive: an HTTP/1.0 request closes it.
    let old = "GET /app/x HTTP/1.0\r\n\r\n";
    assert_eq!(
        responses(&world.ask(peer, old))[0].header("connection"),
        Some("close")
    );
    assert!(!world.is_open(peer));
}

#[test]
fn pipelined_requests_are_answered_in_order_also_when_one_is_answered_later() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let bytes = [
        get("/app/1"),
        get("/app/later"),
        post("/app/2", "two"),
        post("/app/later", "again"),
        get("/files/hello.txt"),
    ];
    world.send(peer, bytes.concat().as_bytes());
    world.settle();
    assert_eq!(statuses(&world.take(peer)), [200]);
    assert!(world.waits_for_app(peer));
    assert_eq!(
        world.app_calls(peer),
        [request("GET /app/1"), request("GET /app/later")]
    );
    assert!(world.answer(peer, "first"));
    world.settle();
    let bodies: Vec<String> = responses(&world.take(peer))
        .into_iter()
        .map(|answer| answer.body)
        .collect();
    assert_eq!(bodies, ["first", "POST /app/2 two"]);
    // Without a time limit, the second response may take any time.
    world.advance(600_000);
    assert_eq!(world.take(peer), b"");
    assert!(world.answer(peer, "second"));
    world.settle();
    let bodies: Vec<String> = responses(&world.take(peer))
        .into_iter()
        .map(|answer| answer.body)
        .collect();
    assert_eq!(bodies, ["second", "hello\n"]);
    assert!(world.is_open(peer));
    world.reset_all();
    world.check_empty();
}

#[test]
fn a_client_gone_before_the_response_gets_none() {
    // A reset is reported to the application. A FIN alone is not, since the client may still read the response.
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    world.ask(peer, get("/app/later"));
    world.reset(peer);
    assert_eq!(
        world.app_calls(peer),
        [request("GET /app/later"), AppCall::Gone]
    );
    let id = world.id(peer);
    let late = (id, crate::world::apps::app_response("late"));
    world.workers[0]
        .shared_mut()
        .requests
        .app_answers
        .push_back(late.clone());
    world.settle();
    world.check_empty();
    // An answer for the closed connection does not reach the next connection with the same index.
    let next = world.connect(0, PUBLIC);
    world.ask(next, get("/app/later"));
    world.workers[0]
        .shared_mut()
        .requests
        .app_answers
        .push_back(late);
    world.settle();
    assert_eq!(world.take(next), b"");
    world.finish(next);
    world.settle();
    assert!(world.answer(next, "in time"));
    world.settle();
    assert_eq!(responses(&world.take(next))[0].body, "in time");
    assert!(world.is_closed(next));
    // If the worker resumes the connection before the application has answered, the connection continues to wait.
    let patient = world.connect(0, PUBLIC);
    world.ask(patient, get("/app/later"));
    world.resume(patient);
    world.settle();
    world.finish(patient);
    world.settle();
    assert!(world.waits_for_app(patient));
    assert!(world.answer(patient, "at last"));
    world.settle();
    assert_eq!(responses(&world.take(patient))[0].body, "at last");
    // A disconnect by the server also ends a pending request.
    let kicked = world.connect(0, PUBLIC);
    world.ask(kicked, get("/app/later"));
    let kick = (world.id(kicked), 4000, String::new());
    world.workers[0]
        .shared_mut()
        .requests
        .disconnects
        .push(kick);
    world.settle();
    assert_eq!(world.app_calls(kicked).last(), Some(&AppCall::Gone));
    assert!(!world.is_open(kicked));
    world.reset_all();
    world.check_empty();
}

#[test]
fn a_request_under_way_is_answered_in_a_drain() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    world.ask(peer, get("/app/later"));
    world.drain();
    assert!(world.is_open(peer));
    world.answer(peer, "still");
    world.settle();
    let answer = responses(&world.take(peer));
    assert_eq!(
        (answer[0].body.as_str(), answer[0].header("connection")),
        ("still", Some("close"))
    );
    assert!(!world.is_open(peer));
    world.reset_all();
    world.check_empty();
}

#[test]
fn a_body_that_is_too_long_does_not_reach_the_application() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let head = "POST /app/x HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n";
    assert_eq!(statuses(&world.ask(peer, head)), [413]);
    assert_eq!(world.app_calls(peer), []);
    // A request whose body does not arrive completely is not passed to the application.
    let peer = world.connect(0, PUBLIC);
    world.ask(
        peer,
        "POST /app/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc",
    );
    world.advance(30_001);
    assert_eq!(statuses(&world.take(peer)), [408]);
    assert_eq!(world.app_calls(peer), []);
}

#[test]
fn handshake_decisions_apply_at_once_and_later() {
    // Columns: decision, status of the response, log message, later calls of the application.
    let table: &[(&str, u16, &str, &[AppCall])] = &[
        ("accept", 101, "", &[opened("/decided")]),
        ("user", 101, "", &[opened("/decided user=hooked")]),
        ("protocol", 101, "", &[opened("/decided")]),
        ("refuse", 403, "refused with 403", &[]),
        ("redirect", 302, "refused with 302", &[]),
        ("bad-user", 500, "is not a valid user", &[AppCall::Gone]),
        ("bad-protocol", 500, "was not offered", &[AppCall::Gone]),
        ("bad-header", 500, "can't be written", &[]),
        ("bad-status", 500, "can't be written", &[]),
    ];
    for (name, status, noted, after) in table {
        for later in [false, true] {
            let mut world = World::new(Options::default());
            let target = match later {
                false => format!("/decided?decision={name}"),
                true => "/decided?decision=later".to_owned(),
            };
            let peer = begin(&mut world, &target);
            if later {
                // Input that the client sends right after the handshake is buffered until the decision.
                world.send(
                    peer,
                    if *status == 101 {
                        text("early")
                    } else {
                        Vec::new()
                    }
                    .as_slice(),
                );
                world.advance(10_000);
                assert_eq!(world.take(peer), b"");
                assert_eq!(world.app_calls(peer), [asked("/decided")]);
                assert!(world.answer(peer, name));
                world.settle();
            }
            let answer = world.take(peer);
            let (answer, frames) = response(&answer, true);
            assert_eq!((answer.status, frames), (*status, &b""[..]), "{name}");
            let protocol = (*name == "protocol").then_some("b");
            assert_eq!(answer.header("sec-websocket-protocol"), protocol);
            if *name == "refuse" {
                assert_eq!(
                    (answer.header("x-why"), answer.body.as_str()),
                    (Some("full"), "no room\n")
                );
            }
            let mut expected = Vec::new();
            if !later {
                expected.push(asked("/decided"));
            }
            expected.extend(after.to_vec());
            if later && *status == 101 {
                expected.push(app_message("early"));
            }
            assert_eq!(world.app_calls(peer), expected, "{name}");
            let notes = &world.workers[0].shared().log_notes;
            let found = notes.iter().any(|note| note.text.contains(noted));
            assert!(found || noted.is_empty(), "{name}: {notes:?}");
            let opened = world.stats(0).handshakes[HandshakeOutcome::Opened as usize].read();
            let refused = world.stats(0).handshakes[HandshakeOutcome::Refused as usize].read();
            let is_open = u64::from(*status == 101);
            assert_eq!((opened, refused), (is_open, 1 - is_open), "{name}");
            if *status != 101 {
                // After a refused handshake the connection serves further requests.
                assert_eq!(statuses(&world.ask(peer, get("/app/x"))), [200], "{name}");
            }
            world.reset_all();
            world.check_empty();
        }
    }
}

#[test]
fn a_missing_handshake_decision_yields_503() {
    let mut world = World::new(Options::default());
    let peer = begin(&mut world, "/decided?decision=later");
    world.advance(14_999);
    assert_eq!(world.take(peer), b"");
    world.advance(2);
    assert_eq!(statuses(&world.take(peer)), [503]);
    assert!(!world.is_open(peer));
    assert_eq!(world.app_calls(peer), [asked("/decided"), AppCall::Gone]);
    assert_eq!(
        world.stats(0).handshakes[HandshakeOutcome::Refused as usize].read(),
        1
    );
    world.advance(5_001);
    world.check_empty();
}

#[test]
fn a_client_gone_before_the_decision_is_not_opened() {
    let mut world = World::new(Options::default());
    let peer = begin(&mut world, "/decided?decision=later");
    world.reset(peer);
    assert_eq!(world.app_calls(peer), [asked("/decided"), AppCall::Gone]);
    // An answer to a request is ignored while a handshake decision is pending.
    let peer = begin(&mut world, "/decided?decision=later");
    let wrong = (
        world.id(peer),
        crate::world::apps::app_response("no decision"),
    );
    world.workers[0]
        .shared_mut()
        .requests
        .app_answers
        .push_back(wrong);
    world.settle();
    assert_eq!(world.take(peer), b"");
    world.drain();
    world.answer(peer, "accept");
    world.settle();
    assert_eq!(statuses(&world.take(peer)), [503], "the server goes away");
    assert_eq!(world.app_calls(peer), [asked("/decided"), AppCall::Gone]);
    assert!(!world.is_open(peer));
    world.reset_all();
    world.check_empty();
}

#[test]
fn what_the_route_refuses_does_not_reach_the_application() {
    for (target, headers, status) in [
        ("/decided-user", "", 401),
        ("/decided-user?user=", "", 401),
        ("/decided-user?user=a%00b", "", 400),
        ("/decided", "Origin: http://evil.test\r\n", 403),
        ("/app-user", "", 401),
    ] {
        let mut world = World::new(Options::default());
        let peer = world.connect(0, PUBLIC);
        let answer = world.ask(peer, handshake(target, headers));
        assert_eq!(statuses(&answer), [status], "{target}");
        assert_eq!(world.app_calls(peer), []);
    }
    // The application receives the user that the route determined, and may assign another one.
    for (decision, user) in [("accept", "ann"), ("user", "hooked")] {
        let mut world = World::new(Options::default());
        let peer = begin(
            &mut world,
            &format!("/decided-user?user=ann&decision={decision}"),
        );
        let calls = world.app_calls(peer);
        assert_eq!(calls[0], asked("/decided-user user=ann"));
        assert_eq!(calls[1], opened(&format!("/decided-user user={user}")));
    }
}

#[test]
fn a_session_receives_user_pushes_once_open() {
    for later in [false, true] {
        let mut world = World::new(Options {
            workers: 3,
            ..Options::default()
        });
        for n in 0..30 {
            let user = format!("person{n}");
            let target = match later {
                false => format!("/app-user?user={user}"),
                true => format!("/decided-user?user={user}&decision=later"),
            };
            let peer = world.connect(0, PUBLIC);
            world.send(peer, handshake(&target, "").as_bytes());
            world.send(peer, &text("say hi"));
            if later {
                world.turn(0);
                assert!(world.answer(peer, "accept"));
            }
            world.turn(0);
            let is_near = world.home_of(&format!("#{user}")) == 0;
            let is_open = world
                .app_calls(peer)
                .iter()
                .any(|call| matches!(call, AppCall::Opened(_)));
            assert_eq!(
                is_open, is_near,
                "{user}: it is opened when its home has registered it"
            );
            world.settle();
            let back_end = world.connect(n % 3, PUSH);
            let line = format!("{{\"user\":\"{user}\",\"data\":\"pushed\"}}\n");
            world.ask(back_end, line);
            let answer = world.take(peer);
            let (head, frames) = response(&answer, true);
            assert_eq!(
                (head.status, texts(frames)),
                (101, vec!["hi".to_owned(), "pushed".to_owned()])
            );
        }
    }
}

#[test]
fn a_session_that_could_not_be_registered_is_gone() {
    let limits = veche_frontends::ConnectionLimits {
        handshake_timeout_ms: 5_000,
        ..limits()
    };
    let mut world = World::new(Options {
        workers: 2,
        limits,
        ..Options::default()
    });
    let user = world.user_at(1);
    let peer = world.connect(0, PUBLIC);
    world.send(
        peer,
        handshake(&format!("/decided-user?user={user}"), "").as_bytes(),
    );
    world.turn(0);
    world.advance_alone(0, 5_001);
    assert_eq!(statuses(&world.take(peer)), [503]);
    let asked = asked(&format!("/decided-user user={user}"));
    assert_eq!(world.app_calls(peer), [asked, AppCall::Gone]);
    world.settle();
    world.reset_all();
    world.settle();
    world.check_empty();
}

#[test]
fn a_session_opened_in_a_drain_gets_open_and_close() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let user = world.user_at(1);
    let peer = world.connect(0, PUBLIC);
    world.send(
        peer,
        handshake(&format!("/app-user?user={user}"), "").as_bytes(),
    );
    world.turn(0);
    world.drain();
    let answer = world.take(peer);
    let (head, frames) = response(&answer, true);
    assert_eq!((head.status, server_messages(frames).len()), (101, 1));
    let expected = [
        opened(&format!("/app-user user={user}")),
        closed(1001, "server is going away"),
    ];
    assert_eq!(world.app_calls(peer), expected);
}

#[test]
fn without_applications_their_routes_say_so() {
    let mut world = World::new(Options::default());
    world.workers[0].shared_mut().apps = None;
    let peer = world.connect(0, PUBLIC);
    let bytes = get("/app/x") + &handshake("/app/x", "") + &get("/files/hello.txt");
    assert_eq!(statuses(&world.ask(peer, bytes)), [503, 503, 200]);
}
