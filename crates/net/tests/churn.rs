//! Connections come and go by the thousand: no descriptor stays behind.
//!
//! The only test of its binary, because it counts the process's descriptors.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use common::{Log, World, echo, has_uring, reset, small};
use veche_net::{Delayed, Driver, Epoll, Event, Options, Uring};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

/// Every third peer resets at once, every third after half an exchange.
fn churn<D: Driver>(driver: D, connections: usize) {
    let mut world = World::new(driver, |driver: &mut D, log: &mut Log, event: Event<'_>| {
        echo(driver, log, event);
        // Bounded: the log would otherwise remember every connection.
        log.received.clear();
    });
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
            // No TIME_WAIT: 20,000 of them would use up the local ports.
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

#[test]
fn nothing_is_left_behind() {
    let epoll = || Epoll::new(small()).expect("descriptors");
    churn(epoll(), 20_000);
    churn(Delayed::new(epoll(), 1), 2_000);
    if !has_uring() {
        return;
    }
    let uring = |ring_buffers| {
        let options = Options {
            ring_buffers,
            ..small()
        };
        Uring::new(options).expect("a kernel that allows io_uring")
    };
    churn(uring(256), 20_000);
    churn(uring(4), 5_000);
    churn(Delayed::new(uring(4), 1), 2_000);
}
