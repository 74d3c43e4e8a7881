//! Tests slow clients on routes that drop publications which a client does not read in time.

use veche_proto::websocket::deflate::{self, DeflatePolicy};
use veche_proto::websocket::{Codecs, Decoder, FrameEvent, MessageLimits, Opcode, Role};

use crate::world::wire::{
    ServerMessage, control, handshake, post, response, server_messages, texts,
};
use crate::world::{INTERNAL, Options, PUSH, Peer, World};

fn small() -> World {
    World::new(Options {
        outbox_bytes: 4000,
        ..Options::default()
    })
}

/// Publishes one text of 100 bytes per number, each in a turn of its own. A text begins with the channel's name and the
/// number.
fn publish(world: &mut World, back_end: Peer, channel: &str, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let line = format!(
            "{{\"channel\":\"{channel}\",\"data\":\"{}\"}}\n",
            body(channel, number)
        );
        world.ask(back_end, line);
    }
}

fn body(channel: &str, number: u32) -> String {
    format!("{:<100}", format!("{channel}{number}"))
}

/// Returns how many publications were dropped because they were the oldest, and how many were
/// replaced by later ones.
fn dropped(world: &World) -> (u64, u64) {
    let [oldest, replaced, _] = &world.stats(0).publications_dropped;
    (oldest.read(), replaced.read())
}

#[test]
fn the_newest_come_through_whole_and_in_order() {
    let mut world = small();
    let slow = world.open(0, "/newest?user=ann&channel=a");
    let other = world.open(0, "/ws?user=bob");
    let back_end = world.connect(0, PUSH);
    world.read_at_most(slow, 0);
    publish(&mut world, back_end, "a", 0..500);
    // Messages other than publications, such as a pong, are neither delayed nor dropped for the
    // slow client.
    world.send(slow, &control(Opcode::Ping, b"here?"));
    world.settle();
    assert!(world.is_open(slow));
    world.read_at_most(slow, usize::MAX);
    world.settle();
    publish(&mut world, back_end, "a", 500..501);
    let received = server_messages(&world.take(slow));
    assert_eq!(
        received[0],
        ServerMessage::Text(body("a", 0)),
        "it was on its way"
    );
    assert_eq!(received[1], ServerMessage::Pong(b"here?".to_vec()));
    let numbers: Vec<ServerMessage> = (0..=500)
        .map(|n| ServerMessage::Text(body("a", n)))
        .collect();
    assert!(numbers.ends_with(&received[2..]), "{received:?}");
    let (oldest, replaced) = dropped(&world);
    assert_eq!((oldest, replaced), (501 - (received.len() as u64 - 1), 0));
    assert!((10..40).contains(&received.len()), "{}", received.len());
    assert_eq!(world.stats(0).slow_consumers.read(), 0);
    assert!(world.is_open(other));
}

#[test]
fn of_each_channel_the_latest_waits() {
    let mut world = World::new(Options::default());
    let slow = world.open(0, "/latest?channel=a&channel=b");
    let back_end = world.connect(0, PUSH);
    world.read_at_most(slow, 0);
    for round in 0..50 {
        publish(&mut world, back_end, "a", round..round + 1);
        if round < 40 {
            publish(&mut world, back_end, "b", round..round + 1);
        }
    }
    world.read_at_most(slow, usize::MAX);
    world.settle();
    assert_eq!(
        texts(&world.take(slow)),
        [body("a", 0), body("b", 39), body("a", 49)]
    );
    assert_eq!(dropped(&world), (0, 48 + 39));
    // The client receives every publication as long as it reads.
    publish(&mut world, back_end, "a", 0..20);
    assert_eq!(texts(&world.take(slow)).len(), 20);
    assert_eq!(dropped(&world), (0, 48 + 39));
}

#[test]
fn a_reader_gets_a_burst_whole() {
    let mut world = World::new(Options::default());
    let reader = world.open(0, "/newest?user=ann");
    let back_end = world.connect(0, PUSH);
    let lines: String = (0..1000)
        .map(|n| format!("{{\"user\":\"ann\",\"data\":\"{}\"}}\n", body("", n)))
        .collect();
    world.ask(back_end, lines);
    let expected: Vec<String> = (0..1000).map(|n| body("", n)).collect();
    assert!(texts(&world.take(reader)) == expected);
    assert_eq!(dropped(&world), (0, 0));
}

#[test]
fn queued_messages_are_sent_before_the_close() {
    let mut world = small();
    let slow = world.open(0, "/newest?user=ann&channel=a");
    let (back_end, caller) = (world.connect(0, PUSH), world.connect(0, INTERNAL));
    world.read_at_most(slow, 0);
    publish(&mut world, back_end, "a", 0..5);
    world.ask(caller, post("/api/disconnect", "{\"user\":\"ann\"}"));
    world.read_at_most(slow, usize::MAX);
    world.settle();
    let received = server_messages(&world.take(slow));
    assert_eq!(received.len(), 6);
    assert_eq!(received[4], ServerMessage::Text(body("a", 4)));
    assert!(
        matches!(received[5], ServerMessage::Close(Some(3503), _)),
        "{received:?}"
    );
    world.reset_all();
    world.settle();
    world.check_empty();
}

#[test]
fn dropped_messages_do_not_affect_compression() {
    let mut world = small();
    let slow = world.connect(0, 0);
    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    world.send(
        slow,
        handshake("/newest-deflate?channel=a", offer).as_bytes(),
    );
    world.settle();
    assert_eq!(response(&world.take(slow), true).0.status, 101);
    let back_end = world.connect(0, PUSH);
    world.read_at_most(slow, 0);
    publish(&mut world, back_end, "a", 0..200);
    world.read_at_most(slow, usize::MAX);
    world.settle();
    let policy = DeflatePolicy {
        takeover: true,
        ..DeflatePolicy::default()
    };
    let agreed = deflate::negotiate(["permessage-deflate"].into_iter(), &policy);
    let (mut decoder, mut codecs) = (Decoder::new(Role::Client, agreed), Codecs::default());
    let limits = MessageLimits {
        message_bytes_max: 1 << 20,
        fragments_max: 1,
        inflate_ratio_max: 0,
    };
    let mut bytes = world.take(slow);
    let mut rest = &mut bytes[..];
    let mut received = Vec::new();
    while !rest.is_empty() {
        let (taken, event) = decoder
            .decode(rest, &mut codecs, &limits)
            .expect("a stream without gaps");
        let Some(FrameEvent::Message { data, .. }) = event else {
            panic!("whole messages")
        };
        received.push(String::from_utf8(data.to_vec()).expect("text"));
        rest = &mut rest[taken..];
    }
    assert_eq!(received[0], body("a", 0));
    assert_eq!(received.last(), Some(&body("a", 199)));
    let (oldest, _) = dropped(&world);
    assert!(oldest > 100);
    assert_eq!(oldest as usize + received.len(), 200);
}
