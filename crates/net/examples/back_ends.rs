//! What a message costs on each back end: processor time of the server's thread, in turns of the two.
//!
//! ```sh
//! cargo run --profile bench -p veche-net --example back_ends              # all, five rounds of a second each
//! cargo run --profile bench -p veche-net --example back_ends -- 15 echo   # fifteen rounds of what has "echo" in its name
//! ```
//!
//! The server's thread has core 0, that of the clients core 1. Clients stand on epoll in every case.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use veche_net::{Buffer, Driver, Epoll, Event, ListenOptions, Options, TransportId, Uring, bind};

const ROUND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
enum Case {
    /// Each message is sent back: connections, bytes, in flight on each.
    Echo(usize, usize, usize),
    /// A message of the first connection goes to all others: connections, bytes.
    FanOut(usize, usize),
}

impl Case {
    fn name(self) -> String {
        match self {
            Self::Echo(connections, bytes, inflight) => {
                format!("echo, {bytes} B, {inflight} in flight, {connections} connections")
            }
            Self::FanOut(connections, bytes) => {
                format!("fan-out, {bytes} B, {connections} subscribers")
            }
        }
    }

    fn connections(self) -> usize {
        match self {
            Self::Echo(connections, ..) => connections,
            Self::FanOut(connections, _) => connections + 1,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Echo(_, bytes, _) | Self::FanOut(_, bytes) => bytes,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program that measures reads the clock"
)]
fn now() -> Instant {
    Instant::now()
}

fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // On one core alone both share it.
    let _ = sched_setaffinity(None, &set);
}

/// What the threads tell each other.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// Bytes that clients got.
    received: AtomicU64,
}

/// Serves until it is over; nanoseconds of its thread for a message.
fn serve<D: Driver>(
    case: Case,
    mut driver: D,
    address: &mut dyn FnMut(SocketAddr),
    shared: &Shared,
) -> f64 {
    pin(0);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ListenOptions {
        backlog: 8192,
        ..ListenOptions::default()
    };
    let socket = bind(any, &options).expect("a port");
    let bound = socket2::SockRef::from(&socket).local_addr().expect("bound");
    driver.listen(socket).expect("it listens");
    address(bound.as_socket().expect("an internet address"));
    let publication = Bytes::from(vec![7; case.bytes()]);
    let mut all: Vec<TransportId> = Vec::new();
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let mut turn = |driver: &mut D| {
        let mut sink = |driver: &mut D, event: Event<'_>| match event {
            Event::Accepted { id, .. } => all.push(id),
            Event::Received { id, bytes } => match case {
                Case::Echo(..) => {
                    let mut out = spare.pop().unwrap_or_default();
                    out.extend_from_slice(bytes);
                    let back = driver.send(id, Buffer::Owned(out), false);
                    spare.extend(back.and_then(Buffer::reclaim));
                }
                Case::FanOut(..) => {
                    for to in &all[1..] {
                        driver.send(*to, Buffer::Shared(publication.clone()), false);
                    }
                }
            },
            Event::Sent { buffer, .. } => spare.extend(buffer.reclaim()),
            _ => {}
        };
        driver.turn(Some(20), &mut sink).expect("the wait works");
    };
    let warm = now();
    while warm.elapsed() < ROUND / 2 {
        turn(&mut driver);
    }
    let (begun, used, before) = (
        now(),
        processor_ns(),
        shared.received.load(Ordering::Relaxed),
    );
    while begun.elapsed() < ROUND {
        turn(&mut driver);
    }
    let used = processor_ns() - used;
    let bytes = shared.received.load(Ordering::Relaxed) - before;
    shared.is_over.store(true, Ordering::Relaxed);
    used as f64 / (bytes as f64 / case.bytes() as f64)
}

/// Clients of all connections.
fn load(case: Case, address: SocketAddr, shared: &Shared) {
    pin(1);
    let mut driver = Epoll::new(Options::default()).expect("descriptors");
    let mut first = None;
    let mut open = 0;
    let message = Bytes::from(vec![5; case.bytes()]);
    let (mut received, mut told) = (0, 0);
    let mut asked = 0;
    while !shared.is_over.load(Ordering::Relaxed) {
        // One after the other, so that the server knows the first.
        if asked == open && open < case.connections() {
            let id = driver.connect(address).expect("a descriptor");
            first.get_or_insert(id);
            asked += 1;
        }
        let mut got = 0;
        driver
            .turn(Some(20), &mut |driver, event| match event {
                Event::Connected { id } => {
                    open += 1;
                    if let Case::Echo(_, _, inflight) = case {
                        for _ in 0..inflight {
                            driver.send(id, Buffer::Shared(message.clone()), false);
                        }
                    }
                }
                Event::Received { id, bytes } => {
                    got += bytes.len() as u64;
                    if let Case::Echo(..) = case {
                        driver.send(id, Buffer::Owned(bytes.to_vec()), false);
                    }
                }
                _ => {}
            })
            .expect("the wait works");
        received += got;
        shared.received.fetch_add(got, Ordering::Relaxed);
        if let Case::FanOut(subscribers, bytes) = case
            && open == case.connections()
            && received == told * (subscribers * bytes) as u64
            && let Some(first) = first
        {
            told += 1;
            driver.send(first, Buffer::Owned(vec![1]), false);
        }
    }
}

fn run(case: Case, is_uring: bool) -> f64 {
    let shared = Arc::new(Shared::default());
    let (sender, receiver) = std::sync::mpsc::channel();
    let own = Arc::clone(&shared);
    let server = thread::spawn(move || {
        let mut address = |address| sender.send(address).expect("somebody waits");
        let options = Options::default();
        match is_uring {
            true => serve(
                case,
                Uring::new(options).expect("io_uring"),
                &mut address,
                &own,
            ),
            false => serve(
                case,
                Epoll::new(options).expect("epoll"),
                &mut address,
                &own,
            ),
        }
    });
    let address = receiver.recv().expect("a server");
    let own = Arc::clone(&shared);
    let clients = thread::spawn(move || load(case, address, &own));
    let cost = server.join().expect("the server is well");
    clients.join().expect("the clients are well");
    cost
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments
        .next()
        .map_or(5, |rounds| rounds.parse().expect("rounds"));
    let wanted = arguments.next().unwrap_or_default();
    let mut cases = vec![Case::FanOut(1000, 100), Case::FanOut(5000, 100)];
    for connections in [240, 5000] {
        for bytes in [20, 1024, 8192] {
            for inflight in [1, 8] {
                cases.push(Case::Echo(connections, bytes, inflight));
            }
        }
    }
    for case in cases
        .into_iter()
        .filter(|case| case.name().contains(&wanted))
    {
        let (mut epoll, mut uring, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            epoll.push(run(case, false));
            uring.push(run(case, true));
            ratios.push(uring[uring.len() - 1] / epoll[epoll.len() - 1]);
        }
        println!(
            "{:52} epoll {:7.0} ns, io_uring {:7.0} ns, ratio {:.2} ({:.2?})",
            case.name(),
            median(&mut epoll),
            median(&mut uring),
            median(&mut ratios),
            ratios
        );
    }
}
