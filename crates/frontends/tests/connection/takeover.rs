//! Compression contexts: their memory is reserved when they are negotiated, and released later.

use std::sync::Arc;

use veche_proto::websocket::DeflateBudget;

use crate::world::wire::{handshake, response};
use crate::world::{Options, PUBLIC, World};

const OFFER: &str = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
const SMALL: &str = "permessage-deflate; client_max_window_bits=12";

/// "Hello" as a compressed frame, masked with zeros. Its echo makes the server keep a context too.
const HELLO: &[u8] = b"\xc1\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\0";

fn world(budget: &Arc<DeflateBudget>) -> World {
    let mut world = World::new(Options::default());
    world.workers[0].shared_mut().set_context_budget(budget);
    world
}

#[test]
fn a_context_is_agreed_on_while_there_is_room_for_it() {
    let budget = Arc::new(DeflateBudget::new(10_000));
    let mut world = world(&budget);
    let mut open = |offer: &str| {
        let peer = world.connect(0, PUBLIC);
        let answer = world.ask(peer, handshake("/takeover", offer));
        let answer = response(&answer, true).0;
        let agreed = answer.header("sec-websocket-extensions").expect("agreed");
        (peer, agreed.to_owned())
    };
    let (first, agreed) = open(OFFER);
    assert_eq!(agreed, SMALL);
    // A client's context of 32 KiB exceeds the budget, so no client context is negotiated.
    let (_, agreed) = open("Sec-WebSocket-Extensions: permessage-deflate\r\n");
    assert_eq!(agreed, "permessage-deflate; client_no_context_takeover");
    let (_, agreed) = open(OFFER);
    assert_eq!(agreed, SMALL);
    assert_eq!(budget.bytes(), 8192);
    let (last, agreed) = open(OFFER);
    let none = "permessage-deflate; client_no_context_takeover; client_max_window_bits=12";
    assert_eq!(agreed, none);
    world.finish(first);
    world.settle();
    assert_eq!(budget.bytes(), 4096);
    // The negotiated extension forbids the client to keep its compression context (`client_no_context_takeover`), but
    // the server keeps its context.
    let echo = world.ask(last, HELLO);
    assert_eq!(echo, b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\0");
    assert!((4097..=4096 + 64).contains(&budget.bytes()));
}

#[test]
fn an_idle_compression_window_is_released() {
    let budget = Arc::new(DeflateBudget::default());
    let mut world = world(&budget);
    let peer = world.connect(0, PUBLIC);
    world.ask(peer, handshake("/takeover", OFFER));
    let reserved = budget.bytes();
    assert_eq!(reserved, 4096);
    let first = world.ask(peer, HELLO);
    let again = world.ask(peer, HELLO);
    assert!(budget.bytes() > reserved && again.len() < first.len());
    for _ in 0..2 {
        world.advance(25_010);
        world.ask(peer, b"\x8a\x80\0\0\0\0");
    }
    assert_eq!(budget.bytes(), reserved);
    assert_eq!(world.ask(peer, HELLO), first);
}
