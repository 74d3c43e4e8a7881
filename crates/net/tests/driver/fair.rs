//! Some send without end, others a byte now and then: each has its turn.
//!
//! What is counted is turns and bytes, never time.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use veche_net::{ConnectionId, Driver, Options};

use crate::common::{World, ignore};

const FLOODERS: usize = 20;
const BYSTANDERS: usize = 5;
const TURNS: usize = 400;
/// Between two bytes of the bystanders, one of whom speaks each time.
const SILENCE_TURNS: usize = 20;

fn options() -> Options {
    Options {
        receive_bytes: 8 * 1024,
        receives_max: 8,
        ..Options::default()
    }
}

/// Turns until one that has something is told of it, when all have something: those before it fill so many turns, one may
/// be under way, and from Linux 6.13 on the kernel itself tells of twenty sockets in a call.
fn told_within() -> usize {
    (FLOODERS + BYSTANDERS).div_ceil(options().receives_max) + 2
}

/// More turns that something may be late where all is late: see `Delayed`, which may have one below.
const LATE_TURNS: usize = 10;

/// Bytes of one transport in a turn: a receive's worth, with the buffer in which that ends; where all is late, what came
/// in some turns may be told in one.
const BYTES_MAX: usize = 3 * 64 * 1024;

/// What came of each in a turn.
struct Crowd<D> {
    world: World<D>,
    flooders: Vec<(ConnectionId, TcpStream)>,
    bystanders: Vec<(ConnectionId, TcpStream)>,
    /// Of each flooder: turns in which it was told of.
    served: Vec<usize>,
}

impl<D: Driver> Crowd<D> {
    fn new(make: fn(Options) -> D) -> Self {
        let mut world = World::new(make(options()), ignore);
        let flooders: Vec<_> = (0..FLOODERS).map(|_| world.accept()).collect();
        for (_, peer) in &flooders {
            peer.set_nonblocking(true).expect("a socket");
        }
        let bystanders = (0..BYSTANDERS).map(|_| world.accept()).collect();
        Self {
            world,
            served: vec![0; flooders.len()],
            flooders,
            bystanders,
        }
    }

    /// As much as the sockets take.
    fn flood(&mut self) {
        let much = [b'f'; 64 * 1024];
        for (_, peer) in &mut self.flooders {
            loop {
                match peer.write(&much) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// A turn of the driver; how many it told of.
    fn turn(&mut self) -> usize {
        self.world.log.received.clear();
        self.world.turn(Some(1));
        for (served, (id, _)) in self.served.iter_mut().zip(&self.flooders) {
            let bytes = self.world.log.bytes(*id).len();
            assert!(bytes <= BYTES_MAX, "{id:?} had {bytes} bytes in a turn");
            *served += usize::from(bytes > 0);
        }
        self.world.log.received.len()
    }

    fn least_and_most(&self) -> (usize, usize) {
        let (least, most) = (self.served.iter().min(), self.served.iter().max());
        (*least.expect("some"), *most.expect("some"))
    }
}

/// However much others send.
pub(crate) fn a_bystander_has_its_turn<D: Driver>(make: fn(Options) -> D) {
    let mut crowd = Crowd::new(make);
    let mut asked: Option<(usize, usize)> = None;
    let mut waits = Vec::new();
    for turn in 0..TURNS {
        crowd.flood();
        if turn % SILENCE_TURNS == 0 {
            let who = turn / SILENCE_TURNS % BYSTANDERS;
            crowd.bystanders[who].1.write_all(b"?").expect("open");
            // Loopback delivers at once, unless the machine is busy.
            thread::sleep(Duration::from_millis(1));
            asked = Some((who, turn));
        }
        crowd.turn();
        if let Some((who, since)) = asked {
            let waited = turn - since;
            if crowd.world.log.bytes(crowd.bystanders[who].0) == b"?" {
                waits.push(waited);
                asked = None;
            }
            assert!(
                waited < told_within() + LATE_TURNS,
                "a bystander waits for {waited} turns; others {waits:?}; served {:?}",
                crowd.served
            );
        }
    }
    assert!(waits.len() >= TURNS / SILENCE_TURNS - 1, "{waits:?}");
    let (least, most) = crowd.least_and_most();
    assert!(most <= 2 * least + 8, "shares differ: {:?}", crowd.served);
}

/// Where nothing is late on purpose: each is served once before any is served twice, and no turn serves more than it may.
pub(crate) fn each_is_served_before_any_is_again<D: Driver>(make: fn(Options) -> D) {
    let mut crowd = Crowd::new(make);
    // Of each flooder: how often each was served since it was itself.
    let mut since = vec![vec![0; FLOODERS]; FLOODERS];
    for turn in 0..TURNS {
        crowd.flood();
        if turn % SILENCE_TURNS == 0 {
            for (_, peer) in &mut crowd.bystanders {
                peer.write_all(b"?").expect("open");
            }
            thread::sleep(Duration::from_millis(1));
        }
        let told = crowd.turn();
        assert!(told <= options().receives_max, "{told} in a turn");
        let bytes = |(id, _): &(ConnectionId, TcpStream)| crowd.world.log.bytes(*id).len();
        let served: Vec<bool> = crowd.flooders.iter().map(|who| bytes(who) > 0).collect();
        for (place, since) in since.iter_mut().enumerate() {
            if served[place] {
                since.fill(0);
                continue;
            }
            for (count, is_served) in since.iter_mut().zip(&served) {
                *count += usize::from(*is_served);
            }
            // The second time: one that was served right after it, and has overtaken it since, when what it had sent was
            // used up for a moment.
            assert!(
                since.iter().all(|count| *count <= 2),
                "turn {turn}: {place} waits while others are served {since:?} times"
            );
        }
    }
    assert!(crowd.least_and_most().0 >= TURNS / FLOODERS);
}
