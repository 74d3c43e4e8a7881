//! Tests the steps from an upgrade request to an open session.

use veche_frontends::stats::HandshakeOutcome;
use veche_frontends::upgrade::CHANNELS_MAX;

use crate::world::wire::{
    ServerMessage, get, handshake, response, server_messages, statuses, text, texts,
};
use crate::world::{INTERNAL, Options, PUBLIC, PUSH, Peer, World};

fn upgrade(world: &mut World, target: &str, headers: &str) -> (u16, Peer) {
    let peer = world.connect(0, PUBLIC);
    let answer = world.ask(peer, handshake(target, headers));
    (response(&answer, true).0.status, peer)
}

fn push(world: &mut World, worker: usize, line: &str) {
    let peer = world.connect(worker, PUSH);
    world.send(peer, format!("{line}\n").as_bytes());
}

#[test]
fn valid_and_invalid_handshakes() {
    let long = "u".repeat(255);
    let all: String = (0..CHANNELS_MAX)
        .map(|n| format!("&channel=room:{n}"))
        .collect();
    let many = format!("{all}&channel=room:more");
    let table: &[(&str, &str, u16)] = &[
        ("/ws?user=ann", "", 101),
        ("/ws?user=ann%20b&x=1", "", 101),
        ("/ws", "", 401),
        ("/ws?user=", "", 401),
        ("/ws?user=a%00b", "", 400),
        (&format!("/ws?user={long}"), "", 400),
        ("/cookie", "Cookie: a=b; session=ann\r\n", 101),
        ("/cookie", "Cookie: a=b\r\n", 401),
        ("/cookie?session=ann", "", 401),
        ("/header", "X-User: ann\r\n", 101),
        ("/header", "", 401),
        ("/open", "", 101),
        ("/open?channel=anything", "", 101),
        ("/open?channel=%23ann", "", 403),
        ("/ws?user=ann&channel=news", "", 101),
        (
            "/ws?user=ann&channel=news&channel=room:1&channel=news",
            "",
            101,
        ),
        ("/ws?user=ann&channel=news&channel=secret", "", 403),
        ("/ws?user=ann&channel=", "", 403),
        (&format!("/ws?user=ann{all}"), "", 101),
        (&format!("/ws?user=ann{many}"), "", 400),
        ("/ws?user=ann", "Origin: http://veche.test\r\n", 101),
        ("/ws?user=ann", "Origin: http://evil.test\r\n", 403),
        ("/ws?user=ann", "Origin: null\r\n", 403),
        ("/echo", "Origin: http://evil.test\r\n", 403),
        ("/files/hello.txt", "", 200),
        ("/nowhere", "", 404),
    ];
    for (target, headers, status) in table {
        let mut world = World::new(Options::default());
        let (got, peer) = upgrade(&mut world, target, headers);
        assert_eq!(got, *status, "{target} {headers}");
        let opened = world.stats(0).handshakes[HandshakeOutcome::Opened as usize].read();
        assert_eq!(opened, u64::from(*status == 101), "{target}");
        assert_eq!(world.stats(0).sessions.read(), opened, "{target}");
        if *status != 101 && *status != 400 {
            // A refused handshake is an ordinary request: the connection serves further requests.
            assert_eq!(
                statuses(&world.ask(peer, get("/files/hello.txt"))),
                [200],
                "{target}"
            );
        }
        world.reset_all();
        world.check_empty();
    }
}

#[test]
fn a_handshake_has_no_body() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    let answer = world.ask(peer, handshake("/echo", "Content-Length: 3\r\n") + "xyz");
    assert_eq!(statuses(&answer), [400]);
}

#[test]
fn what_follows_the_request_at_once_are_frames() {
    for step in [usize::MAX, 1, 13] {
        let mut world = World::new(Options::default());
        let peer = world.connect(0, PUBLIC);
        let bytes = [
            handshake("/echo", "").into_bytes(),
            text("one"),
            text("two"),
        ]
        .concat();
        world.send_split(peer, &bytes, |_| step);
        world.settle();
        let answer = world.take(peer);
        let (head, frames) = response(&answer, true);
        assert_eq!(
            (head.status, texts(frames)),
            (101, vec!["one".to_owned(), "two".to_owned()])
        );
    }
}

#[test]
fn the_101_waits_for_the_home_and_what_comes_in_between_follows_it() {
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    let user = world.user_at(1);
    assert_ne!(
        world.home_of("news"),
        0,
        "another home, so that the test says something"
    );
    let peer = world.connect(0, PUBLIC);
    world.send(
        peer,
        handshake(&format!("/ws?user={user}&channel=news"), "").as_bytes(),
    );
    world.turn(0);
    assert_eq!(world.take(peer), b"", "it is not registered");
    // The user's home registers the session, and then receives a push to the user, before the channel's home has
    // received the registration.
    world.turn(1);
    push(
        &mut world,
        1,
        &format!(r#"{{"user":"{user}","data":"early"}}"#),
    );
    world.turn(1);
    if world.home_of("news") == 2 {
        world.turn(0);
        assert_eq!(world.take(peer), b"", "one home has not answered");
    }
    world.settle();
    let answer = world.take(peer);
    let (head, frames) = response(&answer, true);
    assert_eq!(
        (head.status, texts(frames)),
        (101, vec!["early".to_owned()])
    );
}

#[test]
fn a_push_after_the_101_is_received() {
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    for n in 0..50 {
        let user = format!("person{n}");
        let peer = world.open(n % 3, &format!("/ws?user={user}"));
        push(
            &mut world,
            (n + 1) % 3,
            &format!(r#"{{"user":"{user}","data":"hi"}}"#),
        );
        world.settle();
        assert_eq!(texts(&world.take(peer)), ["hi"], "{user}");
    }
}

#[test]
fn a_refused_registration_leaves_earlier_answers_alone() {
    let hub = veche_hub::Options {
        subscriptions_max: 0,
        ..veche_hub::Options::default()
    };
    let mut world = World::new(Options {
        hub,
        ..Options::default()
    });
    let peer = world.connect(0, PUBLIC);
    let answer = world.ask(
        peer,
        get("/files/hello.txt") + &handshake("/ws?user=ann", "") + &get("/files/hello.txt"),
    );
    assert_eq!(statuses(&answer), [200, 503, 200]);
}

#[test]
fn a_home_that_does_not_answer_in_time_costs_a_503_not_a_session() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let user = world.user_at(1);
    let peer = world.connect(0, PUBLIC);
    world.send(peer, handshake(&format!("/ws?user={user}"), "").as_bytes());
    world.turn(0);
    world.advance_alone(0, 15_001);
    assert_eq!(statuses(&world.take(peer)), [503]);
    assert!(!world.is_open(peer));
    world.settle();
    world.finish(peer);
    world.settle();
    assert!(world.is_closed(peer));
    world.check_empty();
}

#[test]
fn a_user_disconnected_while_registering_gets_no_false_reply() {
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    let user = world.user_at(0);
    assert_ne!(world.home_of("news"), 0);
    let peer = world.connect(0, PUBLIC);
    world.send(
        peer,
        handshake(&format!("/ws?user={user}&channel=news"), "").as_bytes(),
    );
    world.turn(0);
    let caller = world.connect(0, INTERNAL);
    world.send(
        caller,
        crate::world::wire::post("/api/disconnect", &format!(r#"{{"user":"{user}"}}"#)).as_bytes(),
    );
    world.settle();
    assert_eq!(statuses(&world.take(caller)), [200]);
    assert_eq!(statuses(&world.take(peer)), [503]);
    assert!(!world.is_open(peer));
    world.reset_all();
    world.settle();
    world.check_empty();
}

#[test]
fn one_user_on_all_workers_is_one_user() {
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    let peers: Vec<Peer> = (0..3)
        .flat_map(|w| [w, w])
        .map(|w| world.open(w, "/ws?user=ann"))
        .collect();
    push(&mut world, 2, r#"{"user":"ann","binary":"AAEC"}"#);
    world.settle();
    for peer in peers {
        assert_eq!(
            server_messages(&world.take(peer)),
            [ServerMessage::Binary(vec![0, 1, 2])]
        );
    }
    world.reset_all();
    world.settle();
    world.check_empty();
}
