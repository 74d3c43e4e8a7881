//! What messages cost in the steady state: no allocation, in the connection, the outboxes and the hub.

#[path = "world/mod.rs"]
mod world;

use allocation_counter::measure;
use veche_proto::websocket::MessageKind;
use world::wire::message;
use world::{Options, PUSH, World};

const MESSAGES: usize = 10_000;
const WARM_UP: usize = 100;

/// Repeats what one message causes, and counts allocations after the first ones.
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
    // Strings with escapes and nested values cost what the JSON parser takes for them, and nothing after it.
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
