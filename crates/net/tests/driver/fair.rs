//! Some peers (flooders) send all the time, others (bystanders) send a byte now and then. Each must
//! be served regularly.
//!
//! The test counts turns and bytes, never time.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use veche_net::{ConnectionId, Driver, Options};

use crate::common::{World, ignore};

const FLOODERS: usize = 20;
const BYSTANDERS: usize = 5;
const TURNS: usize = 400;
/// Number of turns after which the next bystander sends a byte.
const SILENCE_TURNS: usize = 20;

fn options() -> Options {
    Options {
        receive_bytes: 8 * 1024,
        receives_max: 8,
        ..Options::default()
    }
}

/// Maximum number of turns until a ready transport is served if all are ready. This includes the
/// turns of the transports before it, a turn in progress, and another turn because the kernel
/// itself serves twenty sockets per call since Linux 6.13.
fn turns_until_served() -> usize {
    (FLOODERS + BYSTANDERS).div_ceil(options().receives_max) + 2
}

/// Maximum number of turns that nested [`Delayed`] drivers add to the wait of a transport.
const LATE_TURNS: usize = 10;

/// Maximum number of bytes of one transport in a turn: the limit of a receive, plus the rest of the
/// last buffer. With delays, the bytes of several turns may be delivered in one turn.
const BYTES_MAX: usize = 3 * 64 * 1024;

/// Flooders and bystanders on one driver.
struct Crowd<D> {
    world: World<D>,
    flooders: Vec<(ConnectionId, TcpStream)>,
    bystanders: Vec<(ConnectionId, TcpStream)>,
    /// For each flooder, the number of turns in which it was served.
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

    /// Writes as much on each flooder's socket as the socket accepts.
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

    /// Runs a turn. Returns the number of transports that it has served.
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

/// A bystander is served within a limited number of turns, however much the flooders send.
pub(crate) fn a_bystander_has_its_turn<D: Driver>(make: fn(Options) -> D) {
    let mut crowd = Crowd::new(make);
    let mut asked: Option<(usize, usize)> = None;
    let mut waits = Vec::new();
    for turn in 0..TURNS {
        crowd.flood();
        if turn % SILENCE_TURNS == 0 {
            let index = turn / SILENCE_TURNS % BYSTANDERS;
            crowd.bystanders[index].1.write_all(b"?").expect("open");
            // Unless the machine is busy, loopback delivers the byte within this time.
            thread::sleep(Duration::from_millis(1));
            asked = Some((index, turn));
        }
        crowd.turn();
        if let Some((index, since)) = asked {
            let waited = turn - since;
            if crowd.world.log.bytes(crowd.bystanders[index].0) == b"?" {
                waits.push(waited);
                asked = None;
            }
            assert!(
                waited < turns_until_served() + LATE_TURNS,
                "a bystander waits for {waited} turns; others {waits:?}; served {:?}",
                crowd.served
            );
        }
    }
    assert!(waits.len() >= TURNS / SILENCE_TURNS - 1, "{waits:?}");
    let (least, most) = crowd.least_and_most();
    assert!(most <= 2 * least + 8, "shares differ: {:?}", crowd.served);
}

/// On drivers without artificial delays, each transport is served once before any is served twice, and no turn serves
/// more transports than its limit.
pub(crate) fn each_is_served_before_any_is_again<D: Driver>(make: fn(Options) -> D) {
    let mut crowd = Crowd::new(make);
    // `since[a][b]` is how often flooder `b` was served since flooder `a` was last served.
    let mut since = vec![vec![0; FLOODERS]; FLOODERS];
    for turn in 0..TURNS {
        crowd.flood();
        if turn % SILENCE_TURNS == 0 {
            for (_, peer) in &mut crowd.bystanders {
                peer.write_all(b"?").expect("open");
            }
            thread::sleep(Duration::from_millis(1));
        }
        let event_count = crowd.turn();
        assert!(
            event_count <= options().receives_max,
            "{event_count} in a turn"
        );
        let bytes = |(id, _): &(ConnectionId, TcpStream)| crowd.world.log.bytes(*id).len();
        let served: Vec<bool> = crowd
            .flooders
            .iter()
            .map(|flooder| bytes(flooder) > 0)
            .collect();
        for (place, since) in since.iter_mut().enumerate() {
            if served[place] {
                since.fill(0);
                continue;
            }
            for (count, is_served) in since.iter_mut().zip(&served) {
                *count += usize::from(*is_served);
            }
            // A count of two is permitted: if a flooder that was served right after flooder `place`
            // has no input for a moment, it may be served a second time before `place`.
            assert!(
                since.iter().all(|count| *count <= 2),
                "turn {turn}: {place} waits while others are served {since:?} times"
            );
        }
    }
    assert!(crowd.least_and_most().0 >= TURNS / FLOODERS);
}
