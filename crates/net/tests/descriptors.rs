//! When descriptors run out, the listener retries at intervals without spinning, and recovers.
//!
//! This is the only test of its binary, because it lowers the descriptor limit of the whole
//! process.

mod common;

use std::fs::File;
use std::net::TcpStream;

use common::{Logged, World, has_uring, ignore, now, small};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use veche_net::{Driver, Epoll, Uring};

fn limit(current: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(current),
            maximum,
        },
    )
    .expect("below the maximum");
}

#[test]
fn a_listener_without_descriptors_rests_and_recovers() {
    rests_and_recovers(Epoll::new(small()).expect("descriptors"));
    if has_uring() {
        rests_and_recovers(Uring::new(small()).expect("a kernel that allows io_uring"));
    }
}

fn rests_and_recovers<D: Driver>(driver: D) {
    let mut world = World::new(driver, ignore);
    // The peers get their descriptors before the limit leaves none for accepted sockets.
    let peers: Vec<_> = (0..3)
        .map(|_| TcpStream::connect(world.addr).expect("listening"))
        .collect();
    limit(128);
    let mut hoard: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    let start = now();
    let mut turns = 0;
    while start.elapsed().as_millis() < 350 {
        world.turn(Some(50));
        turns += 1;
    }
    let stalls = world.log.count(&Logged::Stalled);
    assert!(
        (1..=4).contains(&stalls),
        "{stalls} stalls in 350 ms, one attempt each 100 ms"
    );
    assert!(turns < 30, "{turns} turns: it spins");
    assert!(world.log.accepted().is_empty());
    // While the listener is paused, it does not try to accept connections.
    world.driver.pause_accept(world.listener);
    world.turn(Some(150));
    world.turn(Some(50));
    assert_eq!(world.log.count(&Logged::Stalled), stalls);
    drop(hoard);
    world.driver.resume_accept(world.listener);
    world.until("accepted", |log| log.accepted().len() == peers.len());
    world.assert_waits();
}
