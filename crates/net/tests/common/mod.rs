//! A driver under test with a log of its events. Each event is checked against the driver's contract.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "a module of a test binary has no outside")]

#[path = "../../../../tests/now.rs"]
mod now;

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use veche_net::{
    Buffer, CloseReason, ConnectionId, Driver, DriverEvent, ListenOptions, ListenerId, Options,
    Uring, bind,
};

pub(crate) use now::now;

#[derive(Clone, Debug, PartialEq)]
pub enum Logged {
    Accepted(ConnectionId),
    Stalled,
    Connected(ConnectionId),
    Ended(ConnectionId),
    Sent(ConnectionId, usize),
    Progressed(ConnectionId),
    Drained(ConnectionId),
    Closed(ConnectionId, CloseReason),
    Timer(ConnectionId),
    Woken,
}

/// The state of one connection, derived from its events and the calls of the test.
#[derive(Default)]
struct Life {
    ended: bool,
    close_called: bool,
}

#[derive(Default)]
pub struct Log {
    pub events: Vec<Logged>,
    pub received: HashMap<ConnectionId, Vec<u8>>,
    lives: HashMap<ConnectionId, Life>,
}

impl Log {
    pub fn count(&self, wanted: &Logged) -> usize {
        self.events.iter().filter(|event| *event == wanted).count()
    }

    pub fn has(&self, wanted: &Logged) -> bool {
        self.count(wanted) > 0
    }

    pub fn accepted(&self) -> Vec<ConnectionId> {
        let ids = self.events.iter().filter_map(|event| match event {
            Logged::Accepted(id) => Some(*id),
            _ => None,
        });
        ids.collect()
    }

    pub fn closed(&self, wanted: ConnectionId) -> Option<CloseReason> {
        self.events.iter().find_map(|event| match event {
            Logged::Closed(id, reason) if *id == wanted => Some(*reason),
            _ => None,
        })
    }

    /// Returns the number of connections closed since the last call, and clears the log.
    pub fn drain_closed(&mut self) -> usize {
        self.events
            .drain(..)
            .filter(|event| matches!(event, Logged::Closed(..)))
            .count()
    }

    pub fn bytes(&self, id: ConnectionId) -> &[u8] {
        self.received.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Records that a test is about to close `id`, or has just done so.
    pub fn close_called(&mut self, id: ConnectionId) {
        if let Some(life) = self.lives.get_mut(&id) {
            life.close_called = true;
        }
    }

    /// Records that a test has called `connect`.
    pub fn connecting(&mut self, id: ConnectionId) {
        self.born(id);
    }

    fn born(&mut self, id: ConnectionId) {
        assert!(
            self.lives.keys().all(|live| live.index != id.index),
            "{id:?} reuses an index before Closed"
        );
        self.lives.insert(id, Life::default());
    }

    fn add(&mut self, event: &DriverEvent<'_>) {
        let logged = match event {
            DriverEvent::Accepted { id, .. } => {
                self.born(*id);
                Logged::Accepted(*id)
            }
            DriverEvent::AcceptStalled { .. } => Logged::Stalled,
            DriverEvent::Connected { id } => Logged::Connected(*id),
            DriverEvent::Received { id, bytes } => {
                assert!(!bytes.is_empty());
                assert!(!self.life(*id).ended, "Received after Ended");
                self.received
                    .entry(*id)
                    .or_default()
                    .extend_from_slice(bytes);
                return;
            }
            DriverEvent::Ended { id } => {
                assert!(
                    !std::mem::replace(&mut self.life(*id).ended, true),
                    "Ended twice"
                );
                Logged::Ended(*id)
            }
            DriverEvent::Sent { id, buffer } => {
                self.life(*id);
                Logged::Sent(*id, buffer.len())
            }
            DriverEvent::Progressed { id } => {
                self.life(*id);
                Logged::Progressed(*id)
            }
            DriverEvent::Drained { id } => {
                self.life(*id);
                Logged::Drained(*id)
            }
            DriverEvent::Timer { id } => {
                self.life(*id);
                Logged::Timer(*id)
            }
            DriverEvent::Closed { id, reason } => {
                let life = self.lives.remove(id).expect("Closed once, of a known id");
                assert_eq!(
                    life.close_called,
                    *reason == CloseReason::Requested,
                    "{reason:?}"
                );
                Logged::Closed(*id, *reason)
            }
            DriverEvent::Woken => Logged::Woken,
        };
        self.events.push(logged);
    }

    /// Returns the state of a connection of which an event has arrived. Asserts that the connection
    /// exists and that the test has not closed it.
    fn life(&mut self, id: ConnectionId) -> &mut Life {
        let life = self
            .lives
            .get_mut(&id)
            .expect("events only between birth and Closed");
        assert!(!life.close_called, "only Closed comes after close");
        life
    }
}

/// A test's reaction to an event, called after the event was logged.
pub type React<D> = fn(&mut D, &mut Log, DriverEvent<'_>);

/// A reaction that does nothing, for tests that only examine the log.
pub fn ignore<D>(_: &mut D, _: &mut Log, _: DriverEvent<'_>) {}

/// Echoes received bytes, and pauses reading while the peer does not read the echoes.
pub fn echo<D: Driver>(driver: &mut D, log: &mut Log, event: DriverEvent<'_>) {
    match event {
        DriverEvent::Received { id, bytes } => {
            driver.send(id, Buffer::Owned(bytes.to_vec()), false);
            if driver.unsent(id) > driver.options().low_water_bytes {
                driver.pause(id);
            }
        }
        DriverEvent::Drained { id } => driver.resume(id),
        DriverEvent::Ended { id } => {
            log.close_called(id);
            driver.close(id);
        }
        _ => {}
    }
}

pub struct World<D> {
    pub driver: D,
    pub log: Log,
    pub listener: ListenerId,
    pub addr: SocketAddr,
    react: React<D>,
}

pub fn small() -> Options {
    Options {
        receive_bytes: 8192,
        ..Options::default()
    }
}

impl<D: Driver> World<D> {
    pub fn new(mut driver: D, react: React<D>) -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = bind(any, &ListenOptions::default()).expect("a free port");
        let addr = local_addr(&socket);
        let listener = driver.listen(socket).expect("the listener registers");
        Self {
            driver,
            log: Log::default(),
            listener,
            addr,
            react,
        }
    }

    pub fn turn(&mut self, timeout_ms: Option<u64>) {
        let Self {
            driver, log, react, ..
        } = self;
        driver
            .turn(timeout_ms, &mut |driver, event| {
                log.add(&event);
                react(driver, log, event);
            })
            .expect("the wait works");
    }

    /// Runs turns until `done` returns true. After 30 seconds, the test fails and prints `what`.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Log) -> bool) {
        let start = now();
        while !done(&self.log) {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{what}: {:?}",
                self.log.events
            );
            self.turn(Some(10));
        }
    }

    /// Runs turns until the kernel has taken all sent bytes.
    pub fn until_sent(&mut self, id: ConnectionId) {
        let start = now();
        while self.driver.unsent(id) > 0 {
            assert!(start.elapsed() < Duration::from_secs(30), "nothing moves");
            self.turn(Some(1));
        }
    }

    /// Runs enough turns for all delayed events to arrive.
    pub fn settle(&mut self) {
        for _ in 0..40 {
            self.turn(Some(1));
        }
    }

    /// Asserts that a turn without events waits for its whole timeout.
    pub fn assert_waits(&mut self) {
        self.settle();
        let start = now();
        self.turn(Some(40));
        assert!(
            start.elapsed() >= Duration::from_millis(39),
            "the loop spins"
        );
    }

    pub fn close(&mut self, id: ConnectionId) {
        self.log.close_called(id);
        self.driver.close(id);
    }

    /// Connects to the listener; returns the id of the accepted connection and the peer's socket.
    pub fn accept(&mut self) -> (ConnectionId, TcpStream) {
        let peer = TcpStream::connect(self.addr).expect("the listener listens");
        let before = self.log.accepted().len();
        self.until("accept", |log| log.accepted().len() > before);
        (self.log.accepted()[before], peer)
    }
}

pub fn local_addr(socket: &OwnedFd) -> SocketAddr {
    let addr = socket2::SockRef::from(socket)
        .local_addr()
        .expect("a bound socket");
    addr.as_socket().expect("an internet address")
}

/// Ends a peer's connection with RST.
pub fn reset(peer: TcpStream) {
    socket2::SockRef::from(&peer)
        .set_linger(Some(Duration::ZERO))
        .expect("a socket option");
}

pub fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Returns whether the kernel and the container permit io_uring. If not, prints once that its tests
/// are skipped.
pub fn has_uring() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| match Uring::new(small()) {
        Ok(_) => true,
        Err(error) => {
            // `eprintln` is not used, since the test harness captures its output.
            let line = format!("SKIPPED in part: no test on io_uring: {error}\n");
            std::io::stderr()
                .write_all(line.as_bytes())
                .expect("standard error");
            false
        }
    })
}
