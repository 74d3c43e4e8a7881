//! In the steady state, a message causes no allocation in the connection, the outboxes and the hub.

#[path = "world/mod.rs"]
mod world;

use allocation_counter::measure;
use veche_frontends::WaitReason;
use veche_proto::websocket::MessageKind;
use world::wire::{message, post, responses, text, texts};
use world::{INTERNAL, Options, PUSH, World};

const MESSAGES: usize = 10_000;
const WARM_UP: usize = 100;

/// Calls `once` repeatedly; returns the average number of allocations per call after the warm-up.
fn allocations_each(mut once: impl FnMut()) -> f64 {
    (0..WARM_UP).for_each(|_| once());
    let counted = measure(|| (0..MESSAGES).for_each(|_| once()));
    counted.count_total as f64 / MESSAGES as f64
}

#[test]
fn an_echo_allocates_nothing() {
    for length in [20, 1024] {
        for kind in [MessageKind::Text, MessageKind::Binary] {
            let mut world = World::new(Options::default());
            let peer = world.open(0, "/echo");
            let frame = message(kind, &vec![b'x'; length]);
            let each = allocations_each(|| {
                world.send(peer, &frame);
                world.settle();
                assert!(world.drop_received(peer) > length);
            });
            assert_eq!(each, 0.0, "{kind:?} of {length} bytes");
        }
    }
}

#[test]
fn a_message_to_an_application_and_its_answer_allocate_nothing() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/lua-echo");
    for length in [20, 1024] {
        let frame = message(MessageKind::Text, &vec![b'x'; length]);
        let each = allocations_each(|| {
            world.send(peer, &frame);
            world.settle();
            assert!(world.drop_received(peer) > length);
        });
        assert_eq!(each, 0.0, "{length} bytes");
    }
}

#[test]
fn an_idle_session_of_an_application_holds_what_an_echo_holds() {
    let held = |target: &str, warm_up: usize| {
        let mut world = World::new(Options::default());
        let frame = text(&"x".repeat(3000));
        let mut open = |count: usize| {
            for _ in 0..count {
                let peer = world.open(0, target);
                world.ask(peer, &frame);
            }
        };
        open(warm_up);
        measure(|| open(500)).bytes_current
    };
    // The warm-up opens the same number of sessions in both worlds, so that their tables grow equally.
    assert_eq!(held("/lua-echo", 524), held("/echo", 524));
}

#[test]
fn a_frame_in_two_pieces_allocates_nothing_more_than_its_buffer() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/echo");
    let frame = message(MessageKind::Text, &[b'x'; 1024]);
    let counted = measure(|| {
        for _ in 0..100 {
            world.send(peer, &frame[..500]);
            world.send(peer, &frame[500..]);
            world.settle();
            assert!(world.drop_received(peer) > 1024);
        }
    });
    assert!(counted.count_total <= 1000, "{}", counted.count_total);
    assert!(counted.bytes_max < 64 << 10, "{}", counted.bytes_max);
}

#[test]
fn a_push_to_a_user_of_the_same_worker_allocates_nothing() {
    // Columns: data, maximum number of allocations per push. Only the JSON parser allocates, for strings with escapes
    // and for nested values.
    let table = [
        (r#""twenty bytes of data""#.to_owned(), 0),
        (format!("\"{}\"", "x".repeat(1024)), 0),
        ("1234.5".to_owned(), 0),
        (r#"{"a": [1, 2, 3]}"#.to_owned(), 1),
        (r#""twenty bytes\nof data""#.to_owned(), 3),
    ];
    for (data, each_max) in table {
        let mut world = World::new(Options::default());
        let peers: Vec<_> = (0..3).map(|_| world.open(0, "/ws?user=tester01")).collect();
        let back_end = world.connect(0, PUSH);
        let line = format!("{{\"user\":\"tester01\",\"message\":{data}}}\n");
        let each = allocations_each(|| {
            world.send(back_end, line.as_bytes());
            world.settle();
            for peer in &peers {
                assert!(world.drop_received(*peer) > 5);
            }
        });
        assert!(each <= each_max as f64, "{each} allocations for {data}");
    }
}

#[test]
fn a_command_that_waits_for_credit_is_not_read_again() {
    // Parsing this line allocates, because its data has an escape; so an additional parse would be noticed.
    let command =
        |user: &str, n: usize| format!(r#"{{"user":"{user}","data":"{n}\n","ack":true}}"#);
    for front_end in ["lines", "socket", "calls"] {
        let mut world = World::new(Options {
            workers: 2,
            credits: 2,
            ..Options::default()
        });
        let user = world.user_at(1);
        let ann = world.open(1, &format!("/ws?user={user}"));
        let back_end = match front_end {
            "lines" => world.connect(0, PUSH),
            "socket" => world.open_on(0, INTERNAL, "/api/socket"),
            _ => world.connect(0, INTERNAL),
        };
        let other = world.connect(0, PUSH);
        world.send(other, format!("{}\n", command(&user, 0)).as_bytes());
        for n in 1..=3 {
            let command = command(&user, n);
            match front_end {
                "lines" => world.send(back_end, format!("{command}\n").as_bytes()),
                "socket" => world.send(back_end, &text(&command)),
                _ => world.send(back_end, post("/api/push", &command).as_bytes()),
            }
        }
        // Worker 1 runs no turns, so it returns no credit.
        world.turn(0);
        assert_eq!(
            world.blocked(back_end),
            Some(WaitReason::Credit),
            "{front_end}"
        );
        world.turn(0);
        let refused = world.stats(0).credits_refused.read();
        let counted = measure(|| {
            for _ in 0..1000 {
                world.turn(0);
            }
        });
        assert_eq!(world.stats(0).credits_refused.read(), refused + 1000);
        assert_eq!(counted.count_total, 0, "{front_end}");

        world.settle();
        assert_eq!(texts(&world.take(ann)), ["0\n", "1\n", "2\n", "3\n"]);
        let answers = world.take(back_end);
        let count = match front_end {
            "lines" => answers.split(|&byte| byte == b'\n').count() - 1,
            "socket" => texts(&answers).len(),
            _ => responses(&answers).len(),
        };
        assert_eq!(count, 3, "{front_end}");
    }
}

#[test]
fn memory_of_a_spike_is_released() {
    const BYTES: usize = 16 << 10;
    let mut world = World::new(Options::default());
    let peers: Vec<_> = (0..200).map(|_| world.open(0, "/echo")).collect();
    let frame = message(MessageKind::Binary, &[b'x'; BYTES]);
    // All responses are in the outboxes in the same turn, so each of them needs a buffer of its own.
    peers.iter().for_each(|peer| world.send(*peer, &frame));
    world.settle();
    let counted = measure(|| {
        let trims = (0..20).position(|_| !world.workers[0].shared_mut().trim());
        assert!(trims.expect("it comes to rest") < 10);
    });
    assert!(counted.bytes_current < -190 * BYTES as i64, "{counted:?}");
}
