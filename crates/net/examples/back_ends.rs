//! Compares the cost of a message with epoll and with io_uring: the CPU time of the server's thread, measured alternately.
//!
//! ```sh
//! cargo run --profile bench -p veche-net --example back_ends                    # all, fifteen pairs of 300 ms or a second
//! cargo run --profile bench -p veche-net --example back_ends -- 5 echo          # five pairs of cases with "echo" in their names
//! cargo run --profile bench -p veche-net --example back_ends -- 5 echo 64 16384 # with 64 buffers of 16 KiB in the ring
//! ```
//!
//! For each case, one process runs an epoll server with its clients, and another process runs an io_uring server with its
//! clients. The two processes exist at the same time, but only one of them exchanges messages at a time. Servers run on
//! core 0 and clients on core 1. Clients always use epoll.

use std::io::{BufRead as _, BufReader, Lines, Write as _, stdin};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use veche_mailbox::Wake as _;
use veche_net::{
    Buffer, ConnectionId, Driver, DriverEvent, Epoll, ListenOptions, Options, Uring, Waker, bind,
};

/// Time to wait for messages in flight after a measurement.
const REST: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
enum Case {
    /// Each message is sent back. Fields: number of connections, bytes per message, messages in
    /// flight per connection.
    Echo(usize, usize, usize),
    /// A message of the first connection is sent to all other connections. Fields: number of
    /// connections, bytes per message.
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

    /// Returns the duration of one measurement, which is long enough to serve each connection many
    /// times.
    fn slice(self) -> Duration {
        Duration::from_millis(if self.connections() > 2000 { 1000 } else { 300 })
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

/// Returns the CPU time of a sleeping thread in nanoseconds.
fn processor_ns(thread: u32) -> u64 {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let text = std::fs::read_to_string(path).expect("the thread lives");
    let first = text.split(' ').next().expect("a number");
    first.parse().expect("a number")
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // On a machine with a single core, this fails and all threads share the core.
    let _ = sched_setaffinity(None, &set);
}

/// State shared by the threads of a server and its clients.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// Whether messages are sent. While `false`, clients hold them back.
    is_on: AtomicBool,
    /// Id of the server's thread.
    server: AtomicU32,
    /// Number of connections that clients have opened.
    open: AtomicU64,
    /// Number of bytes that clients received.
    received: AtomicU64,
}

/// Runs the server until the measurement ends.
fn serve<D: Driver>(case: Case, mut driver: D, shared: &Shared, ready: impl FnOnce(SocketAddr)) {
    pin(0);
    let thread = gettid().as_raw_nonzero().get();
    shared.server.store(thread as u32, Ordering::Relaxed);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ListenOptions {
        backlog: 8192,
        ..ListenOptions::default()
    };
    let socket = bind(any, &options).expect("a port");
    let bound = socket2::SockRef::from(&socket).local_addr().expect("bound");
    driver.listen(socket).expect("it listens");
    ready(bound.as_socket().expect("an internet address"));
    let publication = Bytes::from(vec![7; case.bytes()]);
    let mut all: Vec<ConnectionId> = Vec::new();
    let mut spare: Vec<Vec<u8>> = Vec::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        let mut sink = |driver: &mut D, event: DriverEvent<'_>| match event {
            DriverEvent::Accepted { id, .. } => all.push(id),
            DriverEvent::Received { id, bytes } => match case {
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
            DriverEvent::Sent { buffer, .. } => spare.extend(buffer.reclaim()),
            _ => {}
        };
        driver.turn(Some(500), &mut sink).expect("the wait works");
    }
}

/// Runs the clients of all connections.
fn load(case: Case, address: SocketAddr, shared: &Shared, ready: impl FnOnce(Waker)) {
    pin(1);
    let mut driver = Epoll::new(Options::default()).expect("descriptors");
    ready(driver.waker());
    let message = Bytes::from(vec![5; case.bytes()]);
    let mut all: Vec<ConnectionId> = Vec::new();
    // Messages held back while another server is measured.
    let mut kept: Vec<(ConnectionId, Buffer)> = Vec::new();
    let (mut received, mut told) = (0, 0);
    let (mut asked, mut open) = (0, 0);
    while !shared.is_over.load(Ordering::Relaxed) {
        // Connections are opened one after another, so that the server knows which one is the
        // first.
        if asked == open && open < case.connections() {
            all.push(driver.connect(address).expect("a descriptor"));
            asked += 1;
        }
        let is_on = shared.is_on.load(Ordering::Relaxed);
        if is_on {
            for (id, buffer) in kept.drain(..) {
                driver.send(id, buffer, false);
            }
            if let Case::FanOut(subscribers, bytes) = case
                && received == told * (subscribers * bytes) as u64
            {
                told += 1;
                driver.send(all[0], Buffer::Owned(vec![1]), false);
            }
        }
        let mut got = 0;
        let mut sink = |driver: &mut Epoll, event: DriverEvent<'_>| match event {
            DriverEvent::Connected { id } => {
                open += 1;
                if let Case::Echo(_, _, inflight) = case {
                    let messages = (0..inflight).map(|_| (id, Buffer::Shared(message.clone())));
                    kept.extend(messages);
                }
            }
            DriverEvent::Received { id, bytes } => {
                got += bytes.len() as u64;
                if let Case::Echo(..) = case {
                    let back = Buffer::Owned(bytes.to_vec());
                    match is_on {
                        true => drop(driver.send(id, back, false)),
                        false => kept.push((id, back)),
                    }
                }
            }
            _ => {}
        };
        driver.turn(Some(500), &mut sink).expect("the wait works");
        received += got;
        shared.received.store(received, Ordering::Relaxed);
        shared.open.store(open as u64, Ordering::Relaxed);
    }
}

/// A server with its clients.
struct Pair {
    case: Case,
    shared: Arc<Shared>,
    clients: Waker,
    threads: [JoinHandle<()>; 2],
}

impl Pair {
    fn new(case: Case, is_uring: bool, options: &Options) -> Self {
        let shared = Arc::new(Shared::default());
        let (own, options) = (Arc::clone(&shared), options.clone());
        let (sender, address): (_, Receiver<SocketAddr>) = channel();
        let server = thread::spawn(move || {
            let ready = move |address| sender.send(address).expect("the receiver waits");
            match is_uring {
                true => serve(case, Uring::new(options).expect("io_uring"), &own, ready),
                false => serve(case, Epoll::new(options).expect("epoll"), &own, ready),
            }
        });
        let own = Arc::clone(&shared);
        let address = address.recv().expect("a server");
        let (sender, waker) = channel();
        let clients = thread::spawn(move || {
            load(case, address, &own, move |waker| {
                sender.send(waker).expect("the receiver waits");
            });
        });
        let pair = Self {
            case,
            shared,
            clients: waker.recv().expect("clients"),
            threads: [server, clients],
        };
        while pair.shared.open.load(Ordering::Relaxed) < case.connections() as u64 {
            thread::sleep(REST);
        }
        pair
    }

    /// Runs one measurement. Returns the server's CPU time per message in nanoseconds.
    fn run(&self) -> f64 {
        let look = || {
            let server = self.shared.server.load(Ordering::Relaxed);
            let received = self.shared.received.load(Ordering::Relaxed);
            (processor_ns(server), received)
        };
        let (used, received) = look();
        self.shared.is_on.store(true, Ordering::Relaxed);
        self.clients.wake();
        thread::sleep(self.case.slice());
        self.shared.is_on.store(false, Ordering::Relaxed);
        let mut seen = look();
        let (used_now, received_now) = loop {
            thread::sleep(REST);
            let now = look();
            if now.1 == seen.1 {
                break now;
            }
            seen = now;
        };
        let messages = (received_now - received) as f64 / self.case.bytes() as f64;
        (used_now - used) as f64 / messages
    }

    fn end(self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.clients.wake();
        for thread in self.threads {
            thread.join().expect("it is well");
        }
    }
}

/// A server with its clients in a separate process. It runs one measurement for each line that it reads.
struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn new(case: usize, is_uring: bool, options: &Options) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .env("PAIR", format!("{case} {is_uring}"))
            .args(["0", "", &options.ring_buffers.to_string()])
            .arg(options.ring_buffer_bytes.to_string())
            .arg(u8::from(options.ring_shares_buffers).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self {
            child,
            orders,
            answers,
        }
    }

    /// Runs one measurement in the separate process. Returns the server's CPU time per message in
    /// nanoseconds.
    fn run(&mut self) -> f64 {
        self.orders.write_all(b"\n").expect("it reads");
        let answer = self.answers.next().expect("it answers").expect("text");
        answer.parse().expect("a number")
    }

    fn end(mut self) {
        drop(self.orders);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "a pair failed");
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![Case::FanOut(1000, 100), Case::FanOut(5000, 100)];
    for connections in [240, 5000] {
        for bytes in [20, 1024, 8192] {
            for inflight in [1, 8] {
                cases.push(Case::Echo(connections, bytes, inflight));
            }
        }
    }
    cases
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |place: usize, usual: usize| {
        let own = arguments.get(place);
        own.map_or(usual, |own| own.parse().expect("a number"))
    };
    let (rounds, wanted) = (number(1, 15), arguments.get(2).map_or("", String::as_str));
    let usual = Options::default();
    let options = Options {
        ring_buffers: number(3, usize::from(usual.ring_buffers)) as u16,
        ring_buffer_bytes: number(4, usual.ring_buffer_bytes),
        ring_shares_buffers: number(5, usual.ring_shares_buffers.into()) != 0,
        ..usual
    };
    if let Ok(pair) = std::env::var("PAIR") {
        let (case, is_uring) = pair.split_once(' ').expect("two words");
        let case = cases()[case.parse::<usize>().expect("a number")];
        let pair = Pair::new(case, is_uring == "true", &options);
        for _ in stdin().lines() {
            println!("{}", pair.run());
        }
        return pair.end();
    }
    for (place, case) in cases().into_iter().enumerate() {
        if !case.name().contains(wanted) {
            continue;
        }
        let mut epoll = Process::new(place, false, &options);
        let mut uring = Process::new(place, true, &options);
        // Warm-up, not counted.
        epoll.run();
        uring.run();
        let mut pairs: Vec<_> = (0..rounds).map(|_| (epoll.run(), uring.run())).collect();
        epoll.end();
        uring.end();
        pairs.sort_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
        let middle = pairs[pairs.len() / 2];
        let ratio = |place: usize| pairs[place].1 / pairs[place].0;
        // Of fifteen values, the fourth and the twelfth enclose the median with a probability of 96 % (binomial).
        let edge = pairs.len() / 5;
        println!(
            "{:50} epoll {:6.0} ns, io_uring {:6.0} ns, ratio {:.3} [{:.3} - {:.3}]",
            case.name(),
            middle.0,
            middle.1,
            ratio(pairs.len() / 2),
            ratio(edge),
            ratio(pairs.len() - 1 - edge),
        );
    }
}
