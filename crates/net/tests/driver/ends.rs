//! Tests the ways in which a transport ends: by a reset, by `close`, or by detaching it from its driver.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use veche_net::{Buffer, CloseReason, ConnectionId, Driver, DriverEvent, Options};

use crate::common::{Logged, World, ignore, now, random, reset, small};

/// A connection is detached during an exchange, while it is read or paused. No bytes are lost: the
/// new owner continues where the driver stopped.
pub(crate) fn a_connection_leaves_with_its_descriptor<D: Driver>(make: fn(Options) -> D) {
    for turns in 0..12 {
        let mut world = World::new(make(small()), ignore);
        let (id, mut peer) = world.accept();
        let (sent, answered) = (random(turns, 1_000_000), random(turns + 100, 3_000_000));
        let (to_say, to_hear) = (sent.clone(), answered.clone());
        let mut reader = peer.try_clone().expect("a second handle");
        let writer = thread::spawn(move || {
            peer.write_all(&to_say).expect("it is read");
            peer.shutdown(Shutdown::Write).expect("open");
        });
        let listener = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            let mut received = Vec::new();
            reader.read_to_end(&mut received).expect("all, and an end");
            assert!(received == to_hear, "answers changed");
        });
        for piece in answered.chunks(50_000) {
            world.driver.send(id, Buffer::Owned(piece.to_vec()), false);
        }
        for turn in 0..turns {
            world.turn(Some(1));
            if turn == 7 {
                world.driver.pause(id);
            }
        }
        world.log.close_called(id);
        let detached = world.driver.detach(id).expect("it is open");
        assert!(world.driver.detach(id).is_none(), "it has left");
        world.until("the end", |log| log.closed(id).is_some());
        assert_eq!(world.log.closed(id), Some(CloseReason::Requested));
        let mut stream = TcpStream::from(detached.socket);
        stream.set_nonblocking(false).expect("a socket");
        let mut received = world.log.bytes(id).to_vec();
        received.extend(detached.received);
        let mut others = stream.try_clone().expect("a second handle");
        let rest = thread::spawn(move || {
            others.read_to_end(&mut received).expect("all, and an end");
            received
        });
        stream.write_all(&detached.unsent).expect("it is read");
        stream.shutdown(Shutdown::Write).expect("open");
        assert!(rest.join().expect("read") == sent, "bytes changed");
        for thread in [writer, listener] {
            thread.join().expect("the peer is content");
        }
        world.assert_waits();
    }
}

/// The sink detaches the connection while received bytes, or bytes kept during a pause, are being delivered. No bytes
/// are lost.
pub(crate) fn a_connection_leaves_inside_the_sink<D: Driver>(make: fn(Options) -> D) {
    for was_paused in [false, true] {
        let mut world = World::new(make(small()), ignore);
        let (id, mut peer) = world.accept();
        let sent = random(5, 300_000);
        let to_say = sent.clone();
        let writer = thread::spawn(move || {
            peer.write_all(&to_say).expect("it is read");
            peer.shutdown(Shutdown::Write).expect("open");
        });
        if was_paused {
            // On io_uring, some bytes still arrive and are kept until the connection is resumed.
            world.driver.pause(id);
            world.settle();
            world.driver.resume(id);
        }
        let mut received = world.log.bytes(id).to_vec();
        let mut left = None;
        let begin = now();
        while left.is_none() && begin.elapsed() < Duration::from_secs(30) {
            let mut sink = |driver: &mut D, event: DriverEvent<'_>| {
                if let DriverEvent::Received { bytes, .. } = event {
                    received.extend_from_slice(bytes);
                    left = driver.detach(id);
                }
            };
            let turned = world.driver.turn(Some(10), &mut sink);
            turned.expect("the wait works");
        }
        world.log.close_called(id);
        let detached = left.expect("it is open");
        received.extend(detached.received);
        let mut stream = TcpStream::from(detached.socket);
        stream.set_nonblocking(false).expect("a socket");
        stream.read_to_end(&mut received).expect("all, and an end");
        assert!(received == sent, "bytes changed");
        writer.join().expect("the peer is content");
        world.assert_waits();
    }
}

pub(crate) fn input_before_a_reset_is_delivered<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    world.settle();
    let sent = random(3, 30_000);
    peer.write_all(&sent).expect("there is room");
    thread::sleep(Duration::from_millis(20));
    reset(peer);
    thread::sleep(Duration::from_millis(20));
    world.until("the end", |log| log.closed(id).is_some());
    assert_eq!(world.log.closed(id), Some(CloseReason::Reset));
    assert!(world.log.bytes(id) == sent, "it was read and thrown away");
}

pub(crate) fn close_drops_what_is_unsent<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    world
        .driver
        .send(id, Buffer::Owned(vec![1; 16 << 20]), false);
    world.driver.set_timer(id, world.driver.now_ms() + 1);
    world.close(id);
    world.driver.close(id);
    assert_eq!(world.log.closed(id), None, "never from inside a call");
    assert_eq!(world.driver.unsent(id), 0);
    let back = Buffer::Owned(b"stale".to_vec());
    assert_eq!(world.driver.send(id, back.clone(), false), Some(back));
    world.until("closed", |log| log.closed(id).is_some());
    world.settle();
    assert_eq!(
        world.log.count(&Logged::Closed(id, CloseReason::Requested)),
        1
    );
    let mut got = Vec::new();
    let _ = peer.read_to_end(&mut got);
    assert!(got.len() < 16 << 20);
}

pub(crate) fn reset_is_noticed_in_every_state<D: Driver>(make: fn(Options) -> D) {
    type Prepare<D> = fn(&mut World<D>, ConnectionId, &mut TcpStream);
    let states: [(&str, Prepare<D>); 7] = [
        ("reading", |_, _, _| {}),
        ("paused", |world, id, _| world.driver.pause(id)),
        ("paused with bytes waiting", |world, id, peer| {
            world.driver.pause(id);
            peer.write_all(b"waiting").expect("open");
            world.settle();
        }),
        ("ended by the peer", |world, id, peer| {
            peer.shutdown(Shutdown::Write).expect("open");
            world.until("ended", |log| log.has(&Logged::Ended(id)));
        }),
        ("ended by us", |world, id, _| {
            world.driver.shutdown(id);
            world.settle();
        }),
        ("blocked", |world, id, _| {
            world
                .driver
                .send(id, Buffer::Owned(vec![1; 16 << 20]), false);
            world.settle();
            assert!(world.driver.unsent(id) > 0);
        }),
        ("paused and blocked", |world, id, _| {
            world.driver.pause(id);
            world
                .driver
                .send(id, Buffer::Owned(vec![1; 16 << 20]), false);
            world.settle();
        }),
    ];
    let mut world = World::new(make(small()), ignore);
    for (state, prepare) in states {
        let (id, mut peer) = world.accept();
        prepare(&mut world, id, &mut peer);
        reset(peer);
        world.until(state, |log| log.closed(id).is_some());
        assert_eq!(world.log.closed(id), Some(CloseReason::Reset), "{state}");
        world.assert_waits();
    }
}
