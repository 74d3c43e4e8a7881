//! A real server process and the clients that talk to it: blocking sockets, nothing of the server's own parts but the
//! client role of `veche-proto`.
//!
//! Everything lies in a temporary folder, listens on free ports and ends with the value that holds it.

#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub(crate) mod backing;
pub(crate) mod http;
pub(crate) mod lines;
pub(crate) mod metrics;
pub(crate) mod nginx;
pub(crate) mod process;
pub(crate) mod server;
pub(crate) mod socket;

use std::thread;
use std::time::{Duration, Instant};

pub(crate) use http::{Http, call, get};
pub(crate) use lines::Lines;
pub(crate) use server::{Options, Server};
pub(crate) use socket::{Seen, Socket, connect_from};

/// How long anything may take that should take a moment; the machine may be busy with other things.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Back end and number of workers: what every test runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) io: &'static str,
    pub(crate) workers: usize,
}

/// All of them. The fake asynchronous back end completes late and in parts, from a seed of its own.
pub(crate) const SETUPS: [Setup; 4] = [
    Setup {
        io: "epoll",
        workers: 1,
    },
    Setup {
        io: "epoll",
        workers: 3,
    },
    Setup {
        io: "delayed",
        workers: 1,
    },
    Setup {
        io: "delayed",
        workers: 3,
    },
];

/// For what is about processes and not about bytes.
pub(crate) const USUAL: Setup = Setup {
    io: "epoll",
    workers: 3,
};

/// Runs a test on all setups at the same time; each has a server of its own.
pub(crate) fn on_all(test: impl Fn(Setup) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        let running = SETUPS.map(|setup| (setup, scope.spawn(move || test(setup))));
        let failed: Vec<_> = running
            .into_iter()
            .filter_map(|(setup, thread)| thread.join().is_err().then_some(setup))
            .collect();
        assert!(failed.is_empty(), "failed on {failed:?}");
    });
}

/// The same, one after the other: for tests that load the machine.
pub(crate) fn on_each(test: impl Fn(Setup)) {
    for setup in SETUPS {
        eprintln!("on {setup:?}");
        test(setup);
    }
}

#[expect(clippy::disallowed_methods, reason = "tests live in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits for something that comes by and by.
#[track_caller]
pub(crate) fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = now() + SOON;
    while !happens() {
        assert!(now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The value below which this share of the samples lies.
pub(crate) fn percentile(samples: &mut [Duration], share: f64) -> Duration {
    samples.sort_unstable();
    samples[((samples.len() - 1) as f64 * share) as usize]
}
