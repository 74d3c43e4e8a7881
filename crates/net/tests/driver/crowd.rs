//! Many connections at once: more than a driver serves in a turn, and more than a small ring has
//! buffers for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use veche_net::{Buffer, ConnectionId, Driver, Options};

use crate::common::{World, echo, ignore, random, small};

const PEERS: usize = 200;

/// Returns a message whose length and bytes differ for each peer and round.
fn message(peer: usize, round: usize) -> Vec<u8> {
    let seed = peer * 100 + round;
    random(seed as u64, 1 + seed * 7 % 1000)
}

fn assert_received(id: ConnectionId, peer: &mut TcpStream, sent: &[u8]) {
    let mut received = vec![0; sent.len()];
    let patience = Some(Duration::from_secs(5));
    peer.set_read_timeout(patience).expect("a socket option");
    peer.read_exact(&mut received).expect("all of it");
    assert!(received == sent, "{id:?} heard something else");
}

/// In each round, all peers send before the server runs a turn. Each peer must receive the echo of
/// its own message.
pub(crate) fn a_crowd_hears_its_own<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), echo);
    let mut peers: Vec<_> = (0..PEERS).map(|_| world.accept()).collect();
    for round in 0..5 {
        for (place, (_, peer)) in peers.iter_mut().enumerate() {
            peer.write_all(&message(place, round)).expect("open");
        }
        world.log.received.clear();
        world.until("all that was said", |log| {
            let ids = peers.iter().enumerate();
            ids.rev()
                .all(|(place, (id, _))| log.bytes(*id).len() == message(place, round).len())
        });
        for (id, _) in &peers {
            world.until_sent(*id);
        }
        for (place, (id, peer)) in peers.iter_mut().enumerate() {
            let sent = message(place, round);
            assert!(
                world.log.bytes(*id) == sent,
                "{id:?} received another's data"
            );
            assert_received(*id, peer, &sent);
        }
    }
    world.assert_waits();
}

/// Publishes to many connections after others were closed. Each open connection must receive every
/// publication.
pub(crate) fn a_crowd_hears_what_is_published<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let mut peers: Vec<_> = (0..PEERS).map(|_| world.accept()).collect();
    for (id, _) in peers.drain(..PEERS / 4) {
        world.close(id);
    }
    let mut sent = Vec::new();
    for round in 0..30 {
        let publication = Bytes::from(message(7, round));
        sent.extend_from_slice(&publication);
        for (id, _) in &peers {
            let buffer = Buffer::Shared(publication.clone());
            world.driver.send(*id, buffer, false);
        }
        if round % 3 == 0 {
            world.turn(Some(1));
        }
    }
    for (id, _) in &peers {
        world.until_sent(*id);
    }
    for (id, peer) in &mut peers {
        assert_received(*id, peer, &sent);
    }
    world.assert_waits();
}
