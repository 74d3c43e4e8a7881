//! Tests the guarantees of [`Driver`] in one suite, which runs on every implementation.

#[path = "../common/mod.rs"]
mod common;
mod crowd;
mod ends;
mod fair;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::{Log, Logged, World, echo, has_uring, ignore, now, random, small};
use crowd::*;
use ends::*;
use fair::*;
use veche_mailbox::Wake;
use veche_net::{
    Buffer, CloseReason, ConnectionId, Delayed, Driver, DriverEvent, Epoll, ListenOptions, Options,
    RECEIVE_AFTER_PAUSE_MAX, Uring, bind,
};

fn echoes_every_byte<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), echo);
    let addr = world.addr;
    let peers: Vec<_> = (0..6)
        .map(|seed| {
            thread::spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let bytes = random(seed, 400_000);
                let mut stream = TcpStream::connect(addr).expect("the listener listens");
                let mut reader = stream.try_clone().expect("a second handle");
                let expected = bytes.clone();
                let reads = thread::spawn(move || {
                    let mut got = vec![0; expected.len()];
                    reader.read_exact(&mut got).expect("all comes back");
                    assert!(got == expected, "bytes changed");
                });
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let size = 1_usize << rng.u32(0..17);
                    let (piece, after) = rest.split_at(rng.usize(1..=size).min(rest.len()));
                    stream.write_all(piece).expect("the server reads");
                    rest = after;
                }
                reads.join().expect("the reader is content");
            })
        })
        .collect();
    let ends = |log: &Log| {
        log.events
            .iter()
            .filter(|e| matches!(e, Logged::Closed(..)))
            .count()
    };
    world.until("echo", |log| ends(log) == 6);
    peers
        .into_iter()
        .for_each(|peer| peer.join().expect("every byte came back"));
    world.assert_waits();
}

fn a_slow_reader_is_reported_once<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    let bytes = Bytes::from(random(7, 64 * 1024));
    for round in 1..=2 {
        let (mut kept, mut total) = (0, 0);
        while total < 16 << 20 {
            let sent = world.driver.send(id, Buffer::Shared(bytes.clone()), false);
            kept += usize::from(sent.is_none());
            total += bytes.len();
        }
        assert!(world.driver.unsent(id) > 4 << 20, "the peer does not read");
        world.settle();
        assert!(world.driver.unsent(id) > 1 << 20);
        assert_eq!(world.log.count(&Logged::Drained(id)), round - 1);
        let mut reader = peer.try_clone().expect("a second handle");
        let expected = bytes.clone();
        let reads = thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            for _ in 0..total / expected.len() {
                reader.read_exact(&mut got).expect("all arrives");
                assert!(got == expected, "bytes changed");
            }
        });
        world.until("drained", |log| log.count(&Logged::Drained(id)) == round);
        // `Drained` is reported at the low-water mark. The bytes below the mark must still be sent.
        let sent = Logged::Sent(id, bytes.len());
        world.until("sent", |log| log.count(&sent) == kept);
        reads.join().expect("the peer got all");
        world.settle();
        assert_eq!(world.driver.unsent(id), 0);
        assert_eq!(
            world.log.count(&Logged::Drained(id)),
            round,
            "once per crossing"
        );
        let returned = world.log.count(&Logged::Sent(id, bytes.len()));
        assert_eq!(returned, kept, "each buffer comes back once");
        world
            .log
            .events
            .retain(|event| !matches!(event, Logged::Sent(..)));
    }
    peer.write_all(b"x").expect("still open");
    world.until("the transport lives", |log| log.bytes(id) == b"x");
}

fn a_large_send_tells_how_it_goes<D: Driver>(make: fn(Options) -> D) {
    const TOTAL: usize = 48 << 20;
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    let bytes = Bytes::from(random(8, TOTAL));
    let sent = world.driver.send(id, Buffer::Shared(bytes.clone()), false);
    assert!(sent.is_none() && world.driver.unsent(id) > TOTAL / 2);
    peer.set_nonblocking(true).expect("a socket option");
    let mut piece = vec![0; 1 << 20];
    let (mut got, mut progress_count) = (0, 0);
    let mut unsent = world.driver.unsent(id);
    while got < TOTAL {
        if let Ok(count) = peer.read(&mut piece) {
            assert!(piece[..count] == bytes[got..got + count], "bytes changed");
            got += count;
        }
        let before = world.log.count(&Logged::Progressed(id));
        world.turn(Some(1));
        let now = world.driver.unsent(id);
        // At or below the low-water mark, `Drained` reports the progress instead of `Progressed`.
        if now > world.driver.options().low_water_bytes {
            let events = world.log.count(&Logged::Progressed(id)) - before;
            assert_eq!(events, usize::from(now < unsent), "{unsent} {now}");
            progress_count += events;
        }
        unsent = now;
    }
    assert!(progress_count > 10, "told {progress_count} times");
    let done = Logged::Sent(id, TOTAL);
    world.until("sent", |log| log.has(&done));
    world.log.events.clear();
    // A send that is completed in one step reports no progress.
    for _ in 0..10 {
        world.driver.send(id, Buffer::Owned(vec![1]), false);
        world.until_sent(id);
        world.turn(Some(0));
    }
    assert_eq!(world.log.count(&Logged::Progressed(id)), 0);
}

fn pause_holds_within_its_bound<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    let bytes = random(8, 16 << 20);
    let expected = bytes.clone();
    let writes = thread::spawn(move || {
        peer.write_all(&bytes).expect("the server reads in the end");
        peer
    });
    let mut seen = 0;
    for _ in 0..5 {
        world.until("bytes", |log| log.bytes(id).len() > seen);
        world.driver.pause(id);
        let at_pause = world.log.bytes(id).len();
        world.settle();
        seen = world.log.bytes(id).len();
        assert!(seen - at_pause <= RECEIVE_AFTER_PAUSE_MAX);
        world.assert_waits();
        assert_eq!(world.log.bytes(id).len(), seen, "it stands still");
        world.driver.resume(id);
    }
    world.until("the rest", |log| log.bytes(id).len() == expected.len());
    assert!(world.log.bytes(id) == expected, "bytes changed");
    drop(writes.join());
    world.until("the end", |log| log.has(&Logged::Ended(id)));
}

fn peer_ends_first<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    peer.write_all(b"last words").expect("open");
    peer.shutdown(Shutdown::Write).expect("open");
    world.until("ended", |log| log.has(&Logged::Ended(id)));
    assert_eq!(world.log.bytes(id), b"last words");
    world.assert_waits();
    world
        .driver
        .send(id, Buffer::Owned(b"answer".to_vec()), false);
    world.driver.shutdown(id);
    world.settle();
    let mut answer = String::new();
    peer.read_to_string(&mut answer)
        .expect("FIN follows the answer");
    assert_eq!(answer, "answer");
    world.assert_waits();
    assert_eq!(world.log.closed(id), None, "closing is ours to do");
    world.close(id);
    world.until("closed", |log| {
        log.closed(id) == Some(CloseReason::Requested)
    });
}

fn we_end_first<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    let bytes = random(9, 8 << 20);
    world.driver.send(id, Buffer::Owned(bytes.clone()), false);
    world.driver.shutdown(id);
    let refused = world
        .driver
        .send(id, Buffer::Owned(b"late".to_vec()), false);
    assert_eq!(refused, Some(Buffer::Owned(b"late".to_vec())));
    let reads = thread::spawn(move || {
        let mut got = Vec::new();
        peer.read_to_end(&mut got).expect("FIN follows the queue");
        assert!(got == bytes, "bytes changed");
        peer.write_all(b"received")
            .expect("our side still receives");
    });
    world.until("both halves", |log| log.has(&Logged::Ended(id)));
    assert_eq!(world.log.bytes(id), b"received");
    reads.join().expect("the peer got all");
    world.assert_waits();
    world.close(id);
    world.until("closed", |log| log.closed(id).is_some());
}

fn paused_across_both_ends<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    world.driver.pause(id);
    peer.write_all(b"unread").expect("open");
    peer.shutdown(Shutdown::Write).expect("open");
    world.driver.shutdown(id);
    world.assert_waits();
    assert!(!world.log.has(&Logged::Ended(id)));
    world.driver.resume(id);
    world.until("ended", |log| log.has(&Logged::Ended(id)));
    assert_eq!(world.log.bytes(id), b"unread");
    world.assert_waits();
}

fn a_pause_holds_from_before_the_connection<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let sent = random(4, 4_000_000);
    let to_send = sent.clone();
    let addr = listener.local_addr().expect("bound");
    let peer = thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a connection");
        peer.write_all(&to_send).expect("it is read in the end");
    });
    let id = world.driver.connect(addr).expect("a descriptor");
    world.log.connecting(id);
    world.driver.pause(id);
    world.until("connected", |log| log.has(&Logged::Connected(id)));
    world.settle();
    assert!(world.log.bytes(id).len() <= RECEIVE_AFTER_PAUSE_MAX);
    world.driver.resume(id);
    world.until("all of it", |log| log.bytes(id).len() == sent.len());
    assert!(world.log.bytes(id) == sent, "bytes changed");
    peer.join().expect("all was read");
}

fn ids_are_reused_by_generation<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (first, _peer) = world.accept();
    world.close(first);
    world.until("closed", |log| log.closed(first).is_some());
    let (second, mut peer) = world.accept();
    assert_eq!(second.index, first.index);
    assert_ne!(second.generation, first.generation);
    // These calls use the id of the first connection, which is closed. They must not affect the
    // second connection, which has the same index.
    world.driver.pause(first);
    world.driver.shutdown(first);
    world.driver.set_timer(first, 0);
    world.driver.close(first);
    assert!(
        world
            .driver
            .send(first, Buffer::Owned(vec![0; 9]), false)
            .is_some()
    );
    assert_eq!(world.driver.unsent(first), 0);
    peer.write_all(b"hello").expect("open");
    world.until("bytes", |log| log.bytes(second) == b"hello");
    world.settle();
    assert_eq!(world.log.closed(second), None);
}

fn connects<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let id = world.driver.connect(world.addr).expect("a descriptor");
    world.log.connecting(id);
    // Data sent before the connection is established must be queued until it is.
    world
        .driver
        .send(id, Buffer::Owned(b"early ".to_vec()), false);
    world
        .driver
        .send(id, Buffer::Owned(b"bird".to_vec()), false);
    world.until("connected", |log| log.has(&Logged::Connected(id)));
    world.until("accepted", |log| log.accepted().len() == 1);
    let other = world.log.accepted()[0];
    world.until("bytes", |log| log.bytes(other) == b"early bird");
    world.driver.shutdown(id);
    world.until("ended", |log| log.has(&Logged::Ended(other)));
    world.close(id);
    world.close(other);
    world.until("closed", |log| {
        log.closed(id).is_some() && log.closed(other).is_some()
    });
}

/// Connects from given source addresses, each with its own local ports. Uses timeouts shorter than
/// a millisecond.
fn connects_from_an_address<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let addr = world.addr;
    for last in [1, 2, 200] {
        let from = Ipv4Addr::new(127, 0, 0, last);
        let id = world
            .driver
            .connect_from(addr, Some(from.into()))
            .expect("loopback is all of 127");
        let mut seen = None;
        let start = now();
        while seen.is_none() {
            assert!(start.elapsed() < Duration::from_secs(30), "{from}");
            world
                .driver
                .turn_within(Some(Duration::from_micros(300)), &mut |_, event| {
                    if let DriverEvent::Accepted { peer, .. } = event {
                        seen = Some(peer.ip());
                    }
                })
                .expect("the wait works");
        }
        assert_eq!(seen, Some(from.into()));
        world.driver.close(id);
    }
    let nowhere = world
        .driver
        .connect_from(addr, Some(Ipv4Addr::new(192, 0, 2, 1).into()));
    assert!(nowhere.is_err(), "no address of this machine");
}

fn connect_is_refused<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let free = bind(
        SocketAddr::from(([127, 0, 0, 1], 0)),
        &ListenOptions::default(),
    );
    let addr = common::local_addr(&free.expect("a free port"));
    let id = world.driver.connect(addr).expect("a descriptor");
    world.log.connecting(id);
    world
        .driver
        .send(id, Buffer::Owned(b"to nobody".to_vec()), false);
    world.until("refused", |log| {
        log.closed(id) == Some(CloseReason::Refused)
    });
    assert!(!world.log.has(&Logged::Connected(id)));
}

fn timers_fire_in_order<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), |driver: &mut D, _, event| {
        if let DriverEvent::Timer { id } = event {
            // If a timer is set while its own event is handled, it must not fire again in the same
            // turn, even if it is due.
            driver.set_timer(id, 0);
            driver.clear_timer(id);
        }
    });
    let peers: Vec<_> = (0..40).map(|_| world.accept()).collect();
    let start_ms = world.driver.now_ms();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut deadlines: Vec<_> = (peers.iter())
        .map(|(id, _)| {
            world.driver.set_timer(*id, start_ms + 5000);
            let deadline_ms = start_ms + rng.u64(0..150);
            world.driver.set_timer(*id, deadline_ms);
            (deadline_ms, *id)
        })
        .collect();
    for (_, id) in deadlines.drain(..5) {
        world.driver.clear_timer(id);
    }
    deadlines.sort_by_key(|&(deadline_ms, _)| deadline_ms);
    let mut fired: Vec<ConnectionId> = Vec::new();
    while fired.len() < deadlines.len() {
        world.turn(None);
        let now_ms = world.driver.now_ms();
        for event in world.log.events.drain(..) {
            if let Logged::Timer(id) = event {
                let due = deadlines.iter().find(|due| due.1 == id).expect("it is set");
                assert!(due.0 <= now_ms, "early");
                fired.push(id);
            }
        }
    }
    let deadline = |id: &ConnectionId| deadlines.iter().find(|due| due.1 == *id).map(|due| due.0);
    let order: Vec<_> = fired.iter().map(deadline).collect();
    // A timer whose deadline is in the past fires in the first millisecond after the start.
    let clamp = |at: &Option<u64>| at.map(|at_ms| at_ms.max(start_ms + 1));
    assert!(order.iter().map(clamp).is_sorted(), "{order:?}");
    world.assert_waits();
}

fn a_wake_is_never_lost<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let waker = world.driver.waker();
    waker.wake();
    waker.wake();
    world.turn(None);
    assert_eq!(
        world.log.count(&Logged::Woken),
        1,
        "two wakes before a wait are one"
    );
    world.assert_waits();
    for round in 2..100 {
        let waker = waker.clone();
        let wakes = thread::spawn(move || {
            thread::sleep(Duration::from_micros(50 * (round % 5)));
            waker.wake();
        });
        let start = now();
        world.until("woken", |log| log.count(&Logged::Woken) as u64 >= round);
        assert!(start.elapsed() < Duration::from_secs(5));
        wakes.join().expect("a wake does not fail");
    }
}

/// Asserts that a turn does not wait after it has delivered an event. On io_uring, replies to the
/// event are sent only when the next turn begins.
fn no_turn_waits_after_delivering_an_event<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), |driver: &mut D, _, event| {
        if let DriverEvent::Received { id, .. } = event {
            driver.pause(id);
        }
    });
    let (id, mut peer) = world.accept();
    let sent = random(1, 100_000);
    peer.write_all(&sent).expect("there is room");
    while world.log.bytes(id).len() < sent.len() {
        world.driver.resume(id);
        let (start, before) = (now(), world.log.bytes(id).len());
        world.turn(Some(3_000));
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "it waited with {} bytes told and {before} before",
            world.log.bytes(id).len()
        );
    }
    assert!(world.log.bytes(id) == sent);
}

fn accept_pauses<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let listener = world.listener;
    world.driver.pause_accept(listener);
    let _peers: Vec<_> = (0..5)
        .map(|_| TcpStream::connect(world.addr).expect("the backlog has room"))
        .collect();
    world.assert_waits();
    assert!(world.log.accepted().is_empty());
    world.driver.resume_accept(listener);
    world.until("accepted", |log| log.accepted().len() == 5);
}

fn more_leaves_in_order<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    let mut expected = Vec::new();
    for number in 0..200_u8 {
        let piece = vec![number; usize::from(number) % 7];
        expected.extend_from_slice(&piece);
        world
            .driver
            .send(id, Buffer::Owned(piece), number % 50 != 49);
    }
    // If no other send follows a send with `more`, its bytes are sent one turn later.
    world
        .driver
        .send(id, Buffer::Owned(b"promised".to_vec()), true);
    expected.extend_from_slice(b"promised");
    world.until_sent(id);
    peer.set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a socket option");
    let mut got = vec![0; expected.len()];
    peer.read_exact(&mut got).expect("all arrives");
    assert_eq!(got, expected);
    peer.set_nonblocking(true).expect("a socket option");
    let nothing = peer.read(&mut got).expect_err("no byte more");
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    // FIN is sent after the bytes that were held back because of `more`.
    world.driver.send(id, Buffer::Owned(b"held".to_vec()), true);
    world.driver.shutdown(id);
    world.settle();
    peer.set_nonblocking(false).expect("a socket option");
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).expect("FIN");
    assert_eq!(rest, b"held");
}

fn empty_sends_are_nothing<D: Driver>(make: fn(Options) -> D) {
    let mut world = World::new(make(small()), ignore);
    let (id, mut peer) = world.accept();
    let empty = Buffer::Owned(Vec::new());
    assert_eq!(
        world.driver.send(id, empty.clone(), false),
        Some(empty.clone())
    );
    assert_eq!(
        world.driver.send(id, empty.clone(), true),
        Some(empty.clone())
    );
    world.driver.send(id, Buffer::Owned(b"a".to_vec()), true);
    assert_eq!(world.driver.send(id, empty.clone(), false), Some(empty));
    world.settle();
    let mut got = [0; 1];
    peer.read_exact(&mut got).expect("it arrives");
    assert_eq!(world.driver.unsent(id), 0);
    world.assert_waits();
}

fn closes_inside_the_sink<D: Driver>(make: fn(Options) -> D) {
    // The connection that receives first closes all others, although the same batch of events
    // contains bytes for them.
    let mut world = World::new(make(small()), |driver: &mut D, log, event| {
        if let DriverEvent::Received { .. } = event {
            for id in log.accepted() {
                log.close_called(id);
                driver.close(id);
            }
        }
    });
    let mut peers: Vec<_> = (0..20).map(|_| world.accept()).collect();
    for (_, peer) in &mut peers {
        peer.write_all(b"me").expect("open");
    }
    world.until("all closed", |log| {
        peers.iter().all(|(id, _)| log.closed(*id).is_some())
    });
    assert_eq!(world.log.received.len(), 1);
    world.assert_waits();
}

macro_rules! suite {
    ($make:expr, $allowed:expr; $($test:ident),* $(,)?) => {
        $(#[test]
        fn $test() {
            if $allowed {
                super::$test($make);
            }
        })*
    };
}

macro_rules! backends {
    ($($backend:ident: $make:expr, $allowed:expr;)*) => {
        $(mod $backend {
            use super::*;

            suite! { $make, $allowed;
                echoes_every_byte, a_slow_reader_is_reported_once,
                a_large_send_tells_how_it_goes, pause_holds_within_its_bound,
                peer_ends_first, we_end_first, paused_across_both_ends,
                reset_is_noticed_in_every_state, close_drops_what_is_unsent,
                a_connection_leaves_with_its_descriptor, a_connection_leaves_inside_the_sink, input_before_a_reset_is_delivered,
                a_pause_holds_from_before_the_connection,
                ids_are_reused_by_generation, connects, connects_from_an_address, connect_is_refused,
                timers_fire_in_order,
                a_wake_is_never_lost, no_turn_waits_after_delivering_an_event, accept_pauses, more_leaves_in_order, empty_sends_are_nothing,
                closes_inside_the_sink, a_crowd_hears_its_own, a_crowd_hears_what_is_published,
                a_bystander_has_its_turn,
            }
        })*
    };
}

fn epoll(options: Options) -> Epoll {
    Epoll::new(options).expect("descriptors")
}

fn uring(options: Options) -> Uring {
    Uring::new(options).expect("a kernel that allows io_uring")
}

/// Creates an io_uring driver with few small buffers, which are often all in use.
fn starved(options: Options) -> Uring {
    uring(Options {
        ring_buffers: 4,
        ring_buffer_bytes: 512,
        ..options
    })
}

/// Creates an io_uring driver whose completion queue is too small for its events.
fn crowded(options: Options) -> Uring {
    uring(Options {
        ring_buffers: 4096,
        ring_buffer_bytes: 64,
        ring_completions: 512,
        ..options
    })
}

/// Creates an io_uring driver on which each receive uses a whole buffer, as before Linux 6.12.
fn unshared(options: Options) -> Uring {
    uring(Options {
        ring_shares_buffers: false,
        ..options
    })
}

backends! {
    on_epoll: epoll, true;
    on_uring: uring, has_uring();
    on_uring_with_four_buffers: starved, has_uring();
    on_uring_with_few_completions: crowded, has_uring();
    on_uring_with_unshared_buffers: unshared, has_uring();
    delayed_on_uring: |options| Delayed::new(uring(options), 6), has_uring();
    delayed_by_seed_1: |options| Delayed::new(epoll(options), 1), true;
    delayed_by_seed_2: |options| Delayed::new(epoll(options), 2), true;
    delayed_by_seed_3: |options| Delayed::new(epoll(options), 3), true;
    delayed_twice: |options| Delayed::new(Delayed::new(epoll(options), 4), 5), true;
}

macro_rules! punctual_backends {
    ($($backend:ident: $make:expr, $allowed:expr;)*) => {
        $(mod $backend {
            use super::*;

            suite! { $make, $allowed; each_is_served_before_any_is_again }
        })*
    };
}

punctual_backends! {
    punctual_on_epoll: epoll, true;
    punctual_on_uring: uring, has_uring();
    punctual_on_uring_with_four_buffers: starved, has_uring();
    punctual_on_uring_with_few_completions: crowded, has_uring();
    punctual_on_uring_with_unshared_buffers: unshared, has_uring();
}
