//! Tests the drain: every client is notified, and work in progress is completed.

use crate::world::wire::{
    ServerMessage, close, get, handshake, post, response, responses, server_messages,
};
use crate::world::{INTERNAL, Options, PUBLIC, PUSH, World};

#[test]
fn sessions_are_closed_and_idle_connections_end() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let sessions = [
        world.open(0, "/echo"),
        world.open(1, "/ws?user=ann"),
        world.open_on(1, INTERNAL, "/api/socket"),
    ];
    let fresh = world.connect(0, PUBLIC);
    let idle = world.connect(1, INTERNAL);
    world.ask(idle, get("/health"));
    let lines = world.connect(0, PUSH);
    world.drain();
    for session in sessions {
        assert_eq!(
            server_messages(&world.take(session)),
            [ServerMessage::Close(
                Some(1001),
                "server is going away".into()
            )]
        );
        assert!(world.is_open(session), "its Close is awaited");
        world.ask(session, close(Some(1001), ""));
        assert!(!world.is_open(session));
    }
    for peer in [fresh, idle, lines] {
        assert_eq!((world.take(peer), world.is_open(peer)), (Vec::new(), false));
    }
    world.advance(5_001);
    world.settle();
    world.check_empty();
}

#[test]
fn a_request_under_way_is_answered_and_the_connection_ends() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let far = world.user_at(1);
    let call = post("/api/push", &format!(r#"{{"user":"{far}","data":1}}"#));
    let (head, body) = call.split_at(call.len() - 5);
    let waiting = world.connect(0, INTERNAL);
    world.send(waiting, call.as_bytes());
    let half = world.connect(0, INTERNAL);
    world.send(half, head.as_bytes());
    let streaming = world.connect(0, PUBLIC);
    world.read_at_most(streaming, 1000);
    world.send(streaming, get("/files/large.bin").as_bytes());
    world.drain();
    world.send(half, body.as_bytes());
    world.read_at_most(streaming, usize::MAX);
    world.settle();
    for peer in [waiting, half] {
        let answer = responses(&world.take(peer));
        assert_eq!(
            (
                answer.len(),
                answer[0].status,
                answer[0].header("connection")
            ),
            (1, 200, Some("close"))
        );
        assert!(!world.is_open(peer));
    }
    let bytes = world.take(streaming);
    let (_, body) = response(&bytes, false);
    assert_eq!(body.len() as u64, crate::world::LARGE_BYTES);
    assert!(!world.is_open(streaming));
}

#[test]
fn new_sessions_are_rejected_and_opening_ones_drained() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let far = world.user_at(1);
    let registering = world.connect(0, PUBLIC);
    world.send(
        registering,
        handshake(&format!("/ws?user={far}"), "").as_bytes(),
    );
    world.turn(0);
    let late = world.connect(0, PUBLIC);
    world.send(late, b"GET ");
    world.drain();
    let bytes = world.take(registering);
    let (head, frames) = response(&bytes, true);
    assert_eq!(head.status, 101);
    assert!(matches!(
        &server_messages(frames)[..],
        [ServerMessage::Close(Some(1001), _)]
    ));
    let answer = world.ask(late, &handshake("/echo", "")[4..]);
    assert_eq!(responses(&answer)[0].status, 503);
    assert!(!world.is_open(late));
}

#[test]
fn a_back_end_gets_the_answers_that_it_is_owed() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let far = world.user_at(1);
    let lines = world.connect(0, PUSH);
    let line = format!("{{\"user\":\"{far}\",\"data\":1,\"ack\":true}}\n");
    world.send(lines, line.as_bytes());
    world.drain();
    world.settle();
    let answer = String::from_utf8(world.take(lines)).expect("JSON");
    assert_eq!(
        answer,
        "{\"result\":{\"handed\":0,\"note\":\"the user has no connection\"}}\n"
    );
    assert!(!world.is_open(lines));
}
