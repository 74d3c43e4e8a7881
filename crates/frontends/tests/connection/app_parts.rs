//! Responses that an application sends in parts or as a file, and the time limits of applications.

use std::path::Path;

use veche_frontends::app::{AppAnswer, AppBody, AppFile, AppResponse, AppResponseHead};
use veche_hub::{
    ChannelName, HubReply, PayloadKind, PayloadRef, RequestOutcome, SubscribeOptions, Ticket,
};
use veche_proto::http::Status;

use crate::world::apps::AppCall;

use crate::world::wire::{get, response, responses};
use crate::world::{Options, PUBLIC, Peer, TIMEOUT_MS, World, limits};

fn begin(headers: &[(&str, &str)]) -> AppAnswer {
    let headers = headers.iter();
    AppAnswer::Head(AppResponseHead {
        status: Status::OK,
        headers: headers
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    })
}

fn part(text: &str) -> AppAnswer {
    let data = text.as_bytes().to_vec();
    AppAnswer::Chunk { data, asks: false }
}

fn asking(bytes: usize) -> AppAnswer {
    AppAnswer::Chunk {
        data: vec![b'x'; bytes],
        asks: true,
    }
}

const END: AppAnswer = AppAnswer::End { is_whole: true };

/// Sends a request on a new connection, and forgets earlier calls of the application.
fn ask(world: &mut World, request: &str) -> Peer {
    let peer = world.connect(0, PUBLIC);
    assert_eq!(world.ask(peer, request), b"");
    world.app_calls(peer);
    peer
}

fn text(world: &mut World, peer: Peer) -> String {
    String::from_utf8(world.take(peer)).expect("text")
}

#[test]
fn parts_are_chunks_and_the_connection_goes_on() {
    let mut world = World::new(Options::default());
    let peer = ask(&mut world, &(get("/app/later") + &get("/app/next")));
    world.write(peer, begin(&[("X-A", "b")]));
    let head = text(&mut world, peer);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n") && head.contains("\r\nX-A: b\r\n"));
    for (data, chunk) in [("one", "3\r\none\r\n"), ("", ""), ("two", "3\r\ntwo\r\n")] {
        world.write(peer, part(data));
        assert_eq!(text(&mut world, peer), chunk);
    }
    assert!(world.waits_for_app(peer));
    world.write(peer, asking(1));
    assert_eq!(world.app_calls(peer), [AppCall::Written]);
    assert_eq!(text(&mut world, peer), "1\r\nx\r\n");
    world.write(peer, END);
    let end = text(&mut world, peer);
    let next = end.strip_prefix("0\r\n\r\n").expect("an end");
    assert_eq!(responses(next.as_bytes())[0].body, "GET /app/next");
    world.reset_all();
    world.check_empty();
}

#[test]
fn http_1_0_streams_end_with_the_connection() {
    let mut world = World::new(Options::default());
    let request = "GET /app/later HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let peer = ask(&mut world, request);
    for answer in [begin(&[]), part("one"), part("two"), END] {
        world.write(peer, answer);
    }
    let answer = text(&mut world, peer);
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(!answer.contains("hunked"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nonetwo"), "{answer}");
    assert!(!world.is_open(peer));
    world.reset_all();
    world.check_empty();
}

#[test]
fn to_head_the_head_is_all() {
    let mut world = World::new(Options::default());
    let peer = ask(&mut world, "HEAD /app/later HTTP/1.1\r\nHost: a\r\n\r\n");
    for answer in [begin(&[]), part("one"), END] {
        world.write(peer, answer);
    }
    let answer = text(&mut world, peer);
    assert!(answer.ends_with("chunked\r\n\r\n"), "{answer}");
    assert_eq!(responses(&world.ask(peer, get("/app/x"))).len(), 1);
}

#[test]
fn a_client_that_does_not_read_pauses_the_stream() {
    let mut world = World::new(Options::default());
    let peer = ask(&mut world, &get("/timed/later"));
    world.read_at_most(peer, 0);
    world.write(peer, begin(&[]));
    let mut parts = 0;
    loop {
        world.write(peer, asking(10_000));
        parts += 1;
        if world.app_calls(peer).is_empty() {
            break;
        }
    }
    assert_eq!(parts, 7, "64 KiB and one part more");
    // The application's time limit does not include the time in which the client does not read.
    world.advance(limits().write_timeout_ms / 2);
    world.read_at_most(peer, usize::MAX);
    world.settle();
    assert_eq!(world.app_calls(peer), [AppCall::Written]);
    world.write(peer, END);
    assert!(text(&mut world, peer).ends_with("\r\n0\r\n\r\n"));
    assert!(world.is_open(peer));
}

#[test]
fn a_lost_client_and_an_aborted_stream_are_reported() {
    let mut world = World::new(Options::default());
    let peer = ask(&mut world, &get("/app/later"));
    world.write(peer, begin(&[]));
    world.reset(peer);
    assert_eq!(world.app_calls(peer), [AppCall::Gone]);
    let peer = ask(&mut world, &get("/app/later"));
    for answer in [begin(&[]), part("one"), AppAnswer::End { is_whole: false }] {
        world.write(peer, answer);
    }
    assert!(text(&mut world, peer).ends_with("3\r\none\r\n"));
    assert!(!world.is_open(peer));
    let peer = ask(&mut world, &(get("/app/later") + &get("/app/next")));
    world.write(peer, begin(&[("A", "b\r\nC: d")]));
    let answers = responses(&world.take(peer));
    assert_eq!((answers[0].status, answers[1].status), (500, 200));
    let calls = [AppCall::Gone, AppCall::Request("GET /app/next".to_owned())];
    assert_eq!(world.app_calls(peer), calls);
    world.reset_all();
    world.check_empty();
}

#[test]
fn an_application_that_takes_too_long_is_answered_for() {
    let mut world = World::new(Options::default());
    let peer = ask(&mut world, &get("/timed/later"));
    world.advance(TIMEOUT_MS - 10);
    assert_eq!(world.take(peer), b"");
    world.advance(10);
    let answer = responses(&world.take(peer)).remove(0);
    assert_eq!(
        (answer.status, answer.header("connection")),
        (504, Some("close"))
    );
    assert_eq!(world.app_calls(peer), [AppCall::TooLate]);
    assert!(!world.is_open(peer));
    // Each part of a response restarts the application's time limit.
    let peer = ask(&mut world, &get("/timed/later"));
    world.write(peer, begin(&[]));
    for _ in 0..3 {
        world.advance(TIMEOUT_MS - 10);
        world.write(peer, part("x"));
    }
    assert!(world.is_open(peer));
    world.advance(TIMEOUT_MS);
    assert_eq!(world.app_calls(peer), [AppCall::TooLate]);
    assert!(!text(&mut world, peer).contains("0\r\n\r\n"));
    assert!(!world.is_open(peer));
    world.reset_all();
    world.check_empty();
}

#[test]
fn publications_are_events_until_the_response_ends() {
    let mut world = World::new(Options::default());
    let peer = ask(&mut world, &get("/app/later"));
    let id = world.id(peer);
    world.write(peer, begin(&[("Content-Type", "text/event-stream")]));
    world.take(peer);
    let publish = |world: &mut World, kind, bytes: &[u8]| {
        let shared = world.workers[0].shared_mut();
        let name = ChannelName::new("news").expect("a name");
        let payload = PayloadRef { kind, bytes };
        shared
            .hub
            .publish(None, name, payload, None, &mut shared.requests)
            .expect("credit");
        world.settle();
    };
    let shared = world.workers[0].shared_mut();
    let name = ChannelName::new("news").expect("a name");
    let (hub, ports) = (&mut shared.hub, &mut shared.requests);
    let subscribed = hub.subscribe(id, name, Ticket(7), &SubscribeOptions::default(), ports);
    let Ok(RequestOutcome::Done(joined)) = subscribed else {
        panic!("{subscribed:?}");
    };
    // This is how an application subscribes the response: it calls the hub with the connection's id, and the answer
    // follows.
    let answer = HubReply::Subscribed(joined);
    ports.answers.push_back((id, Ticket(7), answer));
    world.settle();
    assert_eq!(world.app_calls(peer), [AppCall::Answered(Ticket(7))]);
    publish(&mut world, PayloadKind::Text, b"hi\nyou");
    publish(&mut world, PayloadKind::Binary, b"\xff");
    assert_eq!(text(&mut world, peer), "14\r\ndata: hi\ndata: you\n\n\r\n");
    world.write(peer, END);
    publish(&mut world, PayloadKind::Text, b"nobody");
    assert_eq!(text(&mut world, peer), "0\r\n\r\n");
    // A drain ends endless responses at once.
    world.ask(peer, get("/app/later"));
    world.write(
        peer,
        begin(&[("content-type", "text/event-stream; charset=utf-8")]),
    );
    world.drain();
    world.settle();
    assert!(!world.is_open(peer));
    world.reset_all();
    world.check_empty();
}

#[test]
fn files_are_answered_with_what_the_application_adds() {
    let file = |status, headers: &[(&str, &str)], relative: &str| {
        let headers = headers.iter();
        AppAnswer::Response(AppResponse {
            status: Status(status),
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            body: AppBody::File(AppFile {
                root: Path::new("root").into(),
                relative: relative.to_owned(),
            }),
        })
    };
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let mut answer = |request: &str, answer| {
        world.ask(peer, request);
        world.answer(peer, "");
        world.workers[0].shared_mut().requests.app_answers.clear();
        world.write(peer, answer);
        let bytes = world.take(peer);
        let (answer, rest) = response(&bytes, !request.starts_with("HEAD"));
        assert_eq!(rest, b"");
        (answer.status, answer)
    };
    let later = get("/app/later");
    let (status, whole) = answer(
        &later,
        file(
            200,
            &[("X-A", "b"), ("cache-control", "private")],
            "hello.txt",
        ),
    );
    assert_eq!((status, &*whole.body), (200, "hello\n"));
    assert_eq!(whole.header("cache-control"), Some("private"));
    assert_eq!(whole.header("x-a"), Some("b"));
    let etag = whole.header("etag").expect("a tag").to_owned();
    let part = "GET /app/later HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\n";
    let (status, some) = answer(part, file(200, &[], "hello.txt"));
    assert_eq!((status, &*some.body), (206, "el"));
    let same = format!("GET /app/later HTTP/1.1\r\nHost: a\r\nIf-None-Match: {etag}\r\n\r\n");
    assert_eq!(answer(&same, file(200, &[], "hello.txt")).0, 304);
    let (status, page) = answer(part, file(404, &[], "hello.txt"));
    assert_eq!((status, &*page.body), (404, "hello\n"));
    let head = "HEAD /app/later HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(
        answer(head, file(200, &[], "hello.txt"))
            .1
            .header("content-length"),
        Some("6")
    );
    for path in [
        "nothing",
        "../secret",
        "/etc/passwd",
        ".hidden",
        "a/../hello.txt",
        "",
    ] {
        let (status, none) = answer(&later, file(200, &[("X-A", "b")], path));
        assert_eq!((status, none.header("x-a")), (404, None), "{path}");
    }
    let (status, _) = answer(&later, file(200, &[("A", "b\r\n")], "hello.txt"));
    assert_eq!(status, 500);
}
