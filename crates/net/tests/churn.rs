//! Thousands of connections are opened and ended in every possible way. No descriptor may leak, and
//! no connection may receive the bytes of another connection or be closed in its place.
//!
//! It is the only test of its binary, because it counts the descriptors of the process. `VECHE_CHURN_SECONDS`
//! (default 5) is the duration in seconds for io_uring with a ring of four buffers; the other back ends run for half
//! or a fifth of it.

mod common;

use std::io::{Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{Log, Logged, World, echo, has_uring, ignore, now, reset, small};
use veche_net::{Buffer, Delayed, Driver, DriverEvent, Epoll, Options, Uring};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

/// Opens the given number of connections one after another and resets them. Of every three
/// connections, one is reset immediately, one after an exchange, and one during an exchange.
fn churn<D: Driver>(driver: D, connections: usize) {
    let mut world = World::new(
        driver,
        |driver: &mut D, log: &mut Log, event: DriverEvent<'_>| {
            echo(driver, log, event);
            // The log is cleared because it would keep the received bytes of every connection.
            log.received.clear();
        },
    );
    let before = descriptors();
    let addr = world.addr;
    let waker = world.driver.waker();
    let peers = thread::spawn(move || {
        for round in 0..connections {
            let mut peer = TcpStream::connect(addr).expect("the listener listens");
            if round % 3 != 0 {
                peer.write_all(b"ping").expect("open");
            }
            if round % 3 == 1 {
                let mut got = [0; 4];
                peer.read_exact(&mut got).expect("an echo");
                assert_eq!(&got, b"ping");
            }
            // A reset leaves no socket in TIME_WAIT. 20,000 sockets in TIME_WAIT would use up the
            // local ports.
            reset(peer);
        }
        veche_mailbox::Wake::wake(&waker);
    });
    let mut closed = 0;
    while closed < connections {
        world.turn(Some(100));
        closed += world.log.drain_closed();
    }
    peers.join().expect("every peer was served");
    world.settle();
    assert_eq!(descriptors(), before, "descriptors leaked");
}

/// Maximum number of writes by a peer that reads nothing. They amount to ten megabytes on average,
/// which exceeds the capacity of all buffers between peer and server.
const WRITES_MAX: usize = 1000;

/// The byte that asks the server to close the connection. Messages do not contain it.
const CLOSE: u8 = 0xFF;

fn message(random: &mut fastrand::Rng, bytes_max: usize) -> Vec<u8> {
    let length = random.usize(1..=bytes_max);
    (0..length).map(|_| random.u8(..CLOSE)).collect()
}

/// Writes the bytes and reads their echo at the same time, since they may exceed the capacity of
/// all buffers between peer and server.
fn flood(peer: &mut TcpStream, sent: &[u8]) {
    let mut writer = peer.try_clone().expect("a descriptor");
    thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(sent).expect("it is read");
            writer.shutdown(Shutdown::Write).expect("open");
        });
        let mut got = Vec::new();
        peer.read_to_end(&mut got).expect("all, and an end");
        assert!(got == sent, "other bytes came back");
    });
}

/// Opens one connection and ends it in a randomly chosen way.
fn visit(addr: SocketAddr, random: &mut fastrand::Rng) {
    let mut peer = TcpStream::connect(addr).expect("the listener listens");
    let sent = message(random, 20_000);
    let exchange = |peer: &mut TcpStream| {
        peer.write_all(&sent).expect("open");
        let mut got = vec![0; sent.len()];
        peer.read_exact(&mut got).expect("an echo");
        assert!(got == sent, "other bytes came back");
    };
    match random.u8(..6) {
        0 => {}
        1 => peer.write_all(&sent).expect("open"),
        2 => exchange(&mut peer),
        // The client ends the connection with a FIN, after which the server closes it.
        3 => return flood(&mut peer, &message(random, 1 << 20)),
        // The server closes the connection, so that the next one gets its descriptor.
        4 => {
            exchange(&mut peer);
            peer.write_all(&[CLOSE]).expect("open");
            assert_eq!(peer.read(&mut [0]).expect("an end"), 0);
        }
        // The client reads none of its echoes.
        _ => {
            peer.set_nonblocking(true).expect("a socket");
            // The kernel may accept short writes without end, so their number is limited.
            let _ = (0..WRITES_MAX).try_for_each(|_| peer.write(&sent).map(drop));
        }
    }
    // A reset leaves no socket in TIME_WAIT. Tens of thousands of sockets in TIME_WAIT would use up
    // the local ports.
    reset(peer);
}

/// Opens and ends connections concurrently, as [`visit`] does. One peer stays connected and must be
/// served throughout.
fn trouble<D: Driver>(driver: D, lasts: Duration) {
    const VISITORS: u64 = 4;
    let mut world = World::new(driver, ignore);
    let before = descriptors();
    let addr = world.addr;
    let until = now() + lasts;
    let running = Arc::new(());
    let peers: Vec<_> = (0..=VISITORS)
        .map(|seed| {
            let running = Arc::clone(&running);
            thread::spawn(move || {
                let _running = running;
                let mut random = fastrand::Rng::with_seed(seed);
                let mut witness = (seed == 0).then(|| TcpStream::connect(addr).expect("listens"));
                while now() < until {
                    match &mut witness {
                        None => visit(addr, &mut random),
                        Some(peer) => {
                            let sent = message(&mut random, 200);
                            peer.write_all(&sent).expect("it stays open");
                            let mut got = vec![0; sent.len()];
                            peer.read_exact(&mut got).expect("an echo");
                            assert!(got == sent, "other bytes came back");
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                }
                witness.into_iter().for_each(reset);
            })
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(7);
    let (mut accepted, mut closed) = (0_u64, 0);
    let (mut paused, mut ending) = (Vec::new(), Vec::new());
    while Arc::strong_count(&running) > 1 || closed < accepted {
        world.turn(Some(10));
        for event in world.log.events.drain(..) {
            match event {
                Logged::Accepted(_) => accepted += 1,
                Logged::Closed(..) => closed += 1,
                Logged::Ended(id) => ending.push(id),
                _ => {}
            }
        }
        for id in paused.extract_if(.., |_| random.bool()) {
            world.driver.resume(id);
        }
        for (id, bytes) in mem::take(&mut world.log.received) {
            if bytes.last() == Some(&CLOSE) {
                world.close(id);
                continue;
            }
            world.driver.send(id, Buffer::Owned(bytes), random.bool());
            if random.u8(..8) == 0 || world.driver.unsent(id) > 1 << 16 {
                world.driver.pause(id);
                paused.push(id);
            }
        }
        ending.retain(|id| {
            let is_done = world.driver.unsent(*id) == 0;
            if is_done {
                world.log.close_called(*id);
                world.driver.close(*id);
            }
            !is_done
        });
    }
    for peer in peers {
        peer.join().expect("every peer got what it should");
    }
    world.settle();
    assert!(accepted > VISITORS, "no visitors connected");
    assert_eq!(descriptors(), before, "descriptors leaked");
}

#[test]
fn nothing_is_left_behind() {
    let epoll = || Epoll::new(small()).expect("descriptors");
    churn(epoll(), 20_000);
    churn(Delayed::new(epoll(), 1), 2_000);
    let seconds = std::env::var("VECHE_CHURN_SECONDS").ok();
    let seconds = seconds.map_or(5, |text| text.parse().expect("a number of seconds"));
    let lasts = Duration::from_secs(seconds);
    trouble(epoll(), lasts / 5);
    trouble(Delayed::new(epoll(), 2), lasts / 5);
    if !has_uring() {
        return;
    }
    let uring = |ring_buffers, ring_buffer_bytes, ring_shares_buffers| {
        let options = Options {
            ring_buffers,
            ring_buffer_bytes,
            ring_shares_buffers,
            ..small()
        };
        Uring::new(options).expect("a kernel that allows io_uring")
    };
    let usual = || Uring::new(small()).expect("a kernel that allows io_uring");
    let four = || uring(4, 4096, true);
    // The kernel does not share a buffer between receives, so each receive uses up one of eight buffers.
    let eight = || uring(1, 8 * 4096, false);
    churn(usual(), 20_000);
    churn(four(), 5_000);
    churn(eight(), 5_000);
    churn(Delayed::new(four(), 1), 2_000);
    trouble(usual(), lasts / 5);
    trouble(Delayed::new(four(), 2), lasts / 5);
    trouble(eight(), lasts / 2);
    trouble(four(), lasts);
}
