//! Tests clients that do not read, and home workers that fall behind.

use veche_frontends::WaitReason;
use veche_frontends::outbox::ANSWERS_BYTES_HIGH;
use veche_proto::websocket::{MessageKind, Opcode};

use crate::world::wire::{
    ServerMessage, control, get, message, post, responses, server_messages, statuses, text, texts,
};
use crate::world::{INTERNAL, LARGE_BYTES, Options, PUBLIC, PUSH, Peer, World, limits};

#[test]
fn an_unread_echo_pauses_reading_and_resumes() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/echo");
    world.read_at_most(peer, 0);
    let sent: Vec<Vec<u8>> = (0..100).map(|n| vec![n; 5000]).collect();
    for data in &sent {
        world.send(peer, &message(MessageKind::Binary, data));
        world.settle();
    }
    assert_eq!(world.blocked(peer), Some(WaitReason::Output));
    assert!(world.stats(0).messages_received.read() < 20);
    let mut bytes = Vec::new();
    for _ in 0..200 {
        world.read_at_most(peer, 4000);
        world.settle();
        bytes.extend(world.take(peer));
    }
    let expected: Vec<ServerMessage> = sent.into_iter().map(ServerMessage::Binary).collect();
    assert!(server_messages(&bytes) == expected);
    assert_eq!(world.blocked(peer), None);
}

#[test]
fn a_slow_reader_is_not_taken_for_dead() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/echo");
    world.read_at_most(peer, 0);
    for n in 0..40 {
        world.send(peer, &message(MessageKind::Binary, &vec![n; 5000]));
    }
    world.settle();
    // For two minutes the client reads slowly and its input waits, so the server could not receive a pong.
    for _ in 0..120 {
        world.read_at_most(peer, 500);
        world.settle();
        world.advance(1000);
    }
    assert_eq!(world.blocked(peer), Some(WaitReason::Output));
    assert!(world.is_open(peer));
    world.read_at_most(peer, usize::MAX);
    world.settle();
    assert_eq!(server_messages(&world.take(peer)).len(), 40);
    // The interval without input after which the client is pinged begins when its input is read again.
    world.advance(24_000);
    assert_eq!(world.take(peer), b"");
    world.advance(1_001);
    assert_eq!(server_messages(&world.take(peer)), [ServerMessage::Ping]);
}

#[test]
fn pipelined_requests_wait_for_a_reader_however_long_it_takes() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, INTERNAL);
    world.read_at_most(peer, 0);
    world.send(peer, get("/health").repeat(2000).as_bytes());
    world.settle();
    assert_eq!(world.blocked(peer), Some(WaitReason::Output));
    let mut bytes = Vec::new();
    for _ in 0..100 {
        world.read_at_most(peer, 200);
        world.advance(1000);
        bytes.extend(world.take(peer));
    }
    assert!(world.is_open(peer));
    world.read_at_most(peer, usize::MAX);
    world.settle();
    bytes.extend(world.take(peer));
    assert_eq!(statuses(&bytes), vec![200; 2000]);
}

#[test]
fn acks_that_are_not_read_stop_the_lines() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let user = world.user_at(1);
    let ann = world.open(1, &format!("/ws?user={user}"));
    let back_end = world.connect(0, PUSH);
    world.read_at_most(back_end, 0);
    for n in 0..10_000 {
        world.send(
            back_end,
            format!("{{\"user\":\"{user}\",\"data\":{n},\"ack\":true}}\n").as_bytes(),
        );
        if n % 100 == 0 {
            world.settle();
        }
    }
    world.finish(back_end);
    world.settle();
    assert!(world.stats(0).pushes.read() < 6000);
    world.read_at_most(back_end, usize::MAX);
    world.settle();
    assert_eq!(
        world.take(back_end),
        b"{\"result\":{\"handed\":1}}\n".repeat(10_000)
    );
    assert_eq!(
        texts(&world.take(ann)),
        (0..10_000).map(|n: u32| n.to_string()).collect::<Vec<_>>()
    );
    assert!(world.is_closed(back_end));
}

#[test]
fn a_peer_that_reads_nothing_is_closed() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    world.read_at_most(peer, 100);
    world.send(peer, get("/files/large.bin").as_bytes());
    world.settle();
    world.advance(29_990);
    assert!(!world.is_closed(peer));
    world.advance(20);
    assert!(world.is_closed(peer));
    assert_eq!(world.stats(0).slow_consumers.read(), 1);
}

#[test]
fn a_slow_listener_is_closed_with_1013_after_whole_frames() {
    for workers in [1, 2] {
        let mut world = World::new(Options {
            workers,
            outbox_bytes: 10_000,
            ..Options::default()
        });
        let far = usize::from(workers) - 1;
        let (slow, quick) = (
            world.open(far, "/ws?user=ann"),
            world.open(far, "/ws?user=ann"),
        );
        world.read_at_most(slow, 1234);
        let back_end = world.connect(0, PUSH);
        for n in 0..100 {
            world.send(
                back_end,
                format!("{{\"user\":\"ann\",\"data\":\"{n:0500}\"}}\n").as_bytes(),
            );
            world.settle();
        }
        assert_eq!(texts(&world.take(quick)).len(), 100);
        let mut bytes = world.take(slow);
        world.read_at_most(slow, usize::MAX);
        bytes.extend(world.take(slow));
        let got = server_messages(&bytes);
        let (last, before) = got.split_last().expect("something");
        assert!(
            matches!(last, ServerMessage::Close(Some(1013), _)),
            "{last:?}"
        );
        assert!((15..25).contains(&before.len()), "{}", before.len());
        for (n, message) in before.iter().enumerate() {
            assert_eq!(
                *message,
                ServerMessage::Text(format!("{n:0500}")),
                "no gap before the close"
            );
        }
        assert_eq!(world.stats(far).slow_consumers.read(), 1);
        world.advance(5_001);
        assert!(world.is_closed(slow) && world.is_open(quick));
    }
}

#[test]
fn a_burst_over_the_budget_does_not_swallow_the_101() {
    let mut world = World::new(Options {
        outbox_bytes: 2_000,
        ..Options::default()
    });
    let peer = world.connect(0, PUBLIC);
    let back_end = world.connect(0, PUSH);
    // The handshake and the publications arrive in the same turn.
    world.send(
        peer,
        crate::world::wire::handshake("/ws?user=ann", "").as_bytes(),
    );
    world.send(
        back_end,
        format!("{{\"user\":\"ann\",\"data\":\"{:0500}\"}}\n", 1)
            .repeat(10)
            .as_bytes(),
    );
    world.settle();
    let bytes = world.take(peer);
    let (head, frames) = crate::world::wire::response(&bytes, true);
    assert_eq!(head.status, 101);
    let got = server_messages(frames);
    assert!(
        matches!(got.last(), Some(ServerMessage::Close(Some(1013), _))),
        "{got:?}"
    );
}

#[test]
fn one_message_larger_than_the_budget_arrives_if_nothing_waits() {
    let limits = veche_frontends::ConnectionLimits {
        line_bytes_max: 100_000,
        ..limits()
    };
    let mut world = World::new(Options {
        outbox_bytes: 1_000,
        limits,
        ..Options::default()
    });
    let ann = world.open(0, "/ws?user=ann");
    let back_end = world.connect(0, PUSH);
    for _ in 0..3 {
        world.ask(
            back_end,
            format!("{{\"user\":\"ann\",\"data\":\"{:050000}\"}}\n", 1),
        );
    }
    assert_eq!(texts(&world.take(ann)).len(), 3);
}

#[test]
fn with_two_credits_everything_still_arrives_once_and_in_order() {
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new(Options {
            workers: 3,
            credits: 2,
            seed,
            outbox_bytes: 8 << 20,
            ..Options::default()
        });
        let listeners: Vec<_> = (0..60)
            .map(|n| world.open(n % 3, &format!("/ws?user=u{}&channel=news", n % 20)))
            .collect();
        // Each source (push lines, calls, the API's WebSocket) has a connection on every worker.
        let lines: Vec<_> = (0..3).map(|worker| world.connect(worker, PUSH)).collect();
        let sockets: Vec<_> = (0..3)
            .map(|worker| world.open_on(worker, INTERNAL, "/api/socket"))
            .collect();
        let callers: Vec<_> = (0..3)
            .map(|worker| world.connect(worker, INTERNAL))
            .collect();
        let users: Vec<String> = (0..20).map(|n| format!("\"u{n}\"")).collect();
        let users = users.join(",");
        for n in 0..60 {
            for worker in 0..3 {
                let news =
                    format!("{{\"channel\":\"news\",\"data\":\"l{worker} {n}\",\"ack\":true}}\n");
                let personal =
                    format!("{{\"users\":[{users}],\"data\":\"p{worker} {n}\",\"ack\":true}}\n");
                world.send(lines[worker], (news + &personal).as_bytes());
                world.send(
                    sockets[worker],
                    &text(&format!(
                        "{{\"channel\":\"news\",\"data\":\"s{worker} {n}\"}}"
                    )),
                );
                let call =
                    format!("{{\"channels\":[\"news\",\"none\"],\"data\":\"c{worker} {n}\"}}");
                world.send(callers[worker], post("/api/broadcast", &call).as_bytes());
                if random.u8(..) < 40 {
                    world.turn(random.usize(..3));
                }
            }
        }
        world.settle();
        assert!(
            world.stats(0).credits_refused.read() > 0,
            "the test says something"
        );
        for worker in 0..3 {
            assert_eq!(world.blocked(lines[worker]), None);
            let answers = String::from_utf8(world.take(lines[worker])).expect("UTF-8");
            let counts: Vec<&str> = answers.lines().collect();
            assert_eq!(counts, vec![r#"{"result":{"handed":60}}"#; 120]);
            assert_eq!(
                texts(&world.take(sockets[worker])),
                vec![r#"{"result":{"handed":60}}"#; 60]
            );
            assert_eq!(responses(&world.take(callers[worker])).len(), 60);
        }
        let mut order_of_news = None;
        for listener in listeners {
            let got = texts(&world.take(listener));
            assert_eq!(got.len(), 60 * 3 * 4);
            for source in [
                "l0", "l1", "l2", "p0", "p1", "p2", "s0", "s1", "s2", "c0", "c1", "c2",
            ] {
                let of_source: Vec<&String> =
                    got.iter().filter(|text| text.starts_with(source)).collect();
                let expected: Vec<String> = (0..60).map(|n| format!("{source} {n}")).collect();
                assert!(of_source.into_iter().eq(&expected), "{source}, seed {seed}");
            }
            let news: Vec<String> = got
                .into_iter()
                .filter(|text| !text.starts_with('p'))
                .collect();
            assert_eq!(
                order_of_news.get_or_insert_with(|| news.clone()),
                &news,
                "one order for all"
            );
        }
        world.reset_all();
        world.settle();
        world.check_empty();
    }
}

#[test]
fn a_flood_of_pings_is_answered_only_as_fast_as_it_is_read() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/ws?user=ann");
    world.read_at_most(peer, 0);
    let ping = control(Opcode::Ping, &[b'x'; 125]);
    for _ in 0..100 {
        world.send(peer, &ping.repeat(30));
        world.settle();
    }
    assert_eq!(world.blocked(peer), Some(WaitReason::Output));
    world.read_at_most(peer, usize::MAX);
    world.settle();
    assert_eq!(world.drop_received(peer), 3000 * 127);
    const { assert!(3000 * 127 > 4 * ANSWERS_BYTES_HIGH) };
}

/// Reads `rate` bytes a second until the large file is complete, or until nothing more arrives.
fn read_steadily(world: &mut World, peer: Peer, rate: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        world.read_at_most(peer, rate);
        world.settle();
        let read = world.take(peer);
        if read.is_empty() || bytes.len() as u64 > LARGE_BYTES {
            return bytes;
        }
        bytes.extend(read);
        world.advance(1000);
    }
}

#[test]
fn a_response_that_ends_its_connection_is_sent_whole_however_slowly_it_is_read() {
    let close_timeout_ms = limits().close_timeout_ms;
    let requests = [
        "GET /files/large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /files/large.bin HTTP/1.0\r\nHost: a\r\n\r\n",
    ];
    for request in requests {
        let mut world = World::new(Options::default());
        let peer = world.connect(0, PUBLIC);
        world.read_at_most(peer, 0);
        world.send(peer, request.as_bytes());
        world.settle();
        // After the server has written the last byte, the client needs longer to read the rest than the close
        // timeout.
        let body = read_steadily(&mut world, peer, 5_000);
        assert!(body.len() as u64 > LARGE_BYTES, "{request}: {}", body.len());
        assert!(body.ends_with(&[(LARGE_BYTES - 1) as u8]), "{request}");
        // The close timeout begins when all bytes are sent.
        assert!(!world.is_closed(peer));
        world.advance(close_timeout_ms);
        assert!(world.is_closed(peer));
    }
}

#[test]
fn a_closing_connection_without_progress_is_aborted() {
    let request = "GET /files/large.bin HTTP/1.0\r\nHost: a\r\n\r\n";
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    world.read_at_most(peer, 0);
    world.send(peer, request.as_bytes());
    world.read_at_most(peer, LARGE_BYTES as usize - 10_000);
    world.settle();
    let write_timeout_ms = limits().write_timeout_ms;
    world.advance(write_timeout_ms - 1);
    assert!(!world.is_closed(peer));
    world.advance(1);
    assert!(world.is_closed(peer));
}
