//! A real server process and its clients: blocking sockets, and none of the server's own code except the client role of
//! `veche-proto`.
//!
//! Each server has a temporary folder and free ports, and ends when the value is dropped.

#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub(crate) mod backing;
pub(crate) mod http;
pub(crate) mod lines;
pub(crate) mod metrics;
pub(crate) mod nginx;
#[path = "../../../../tests/now.rs"]
mod now;
#[path = "../../../../tests/ports.rs"]
mod ports;
pub(crate) mod process;
pub(crate) mod server;
#[path = "../../../../tests/skip.rs"]
mod skip;
pub(crate) mod socket;

use std::io::Write as _;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

pub(crate) use http::{Http, Response, call, get};
pub(crate) use lines::Lines;
pub(crate) use ports::free_address;
pub(crate) use server::{Options, Server};
pub(crate) use skip::skip;
pub(crate) use socket::{Seen, Socket, connect_from};

pub(crate) use now::now;

/// The time limit of operations that are normally quick. It is long, since the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The driver and the number of workers of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) io: &'static str,
    pub(crate) workers: usize,
}

/// All setups. The driver `delayed` simulates asynchronous I/O: it completes operations late and in parts, as its seed
/// determines.
const SETUPS: [Setup; 6] = [
    Setup {
        io: "epoll",
        workers: 1,
    },
    Setup {
        io: "epoll",
        workers: 3,
    },
    Setup {
        io: "io_uring",
        workers: 1,
    },
    Setup {
        io: "io_uring",
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

/// Returns the setups available on this machine: a container may forbid io_uring.
pub(crate) fn setups() -> impl Iterator<Item = Setup> {
    static HAS_URING: OnceLock<bool> = OnceLock::new();
    let has_uring = *HAS_URING.get_or_init(|| {
        let probe = veche_net::Uring::probe();
        if let Err(error) = &probe {
            // The line is written past the test harness, which hides the output of passing tests.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED in part: no test on io_uring: {error}"
            );
        }
        probe.is_ok()
    });
    SETUPS
        .into_iter()
        .filter(move |setup| has_uring || setup.io != "io_uring")
}

/// The usual setup, for tests that do not depend on the I/O driver.
pub(crate) const USUAL: Setup = Setup {
    io: "epoll",
    workers: 3,
};

/// Returns the driver for long load tests, which run on one driver at a time.
pub(crate) fn chosen_io() -> &'static str {
    static CHOSEN: OnceLock<String> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("VECHE_TEST_IO").unwrap_or_else(|_| "epoll".to_owned()))
}

/// [`USUAL`] with one worker.
pub(crate) const USUAL_ONE: Setup = Setup {
    io: "epoll",
    workers: 1,
};

/// Runs a test on all setups concurrently, each with a separate server.
pub(crate) fn on_all(test: impl Fn(Setup) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        let running: Vec<_> = setups()
            .map(|setup| (setup, scope.spawn(move || test(setup))))
            .collect();
        let failed: Vec<_> = running
            .into_iter()
            .filter_map(|(setup, thread)| thread.join().is_err().then_some(setup))
            .collect();
        assert!(failed.is_empty(), "failed on {failed:?}");
    });
}

/// Runs a test on all setups one after another, for tests that load the machine.
pub(crate) fn on_each(test: impl Fn(Setup)) {
    for setup in setups() {
        eprintln!("on {setup:?}");
        test(setup);
    }
}

/// Waits until a condition holds; fails after [`SOON`].
#[track_caller]
pub(crate) fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = now() + SOON;
    while !happens() {
        assert!(now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sorts the samples, and returns the value below which the fraction `share` of them lies. `share` is from 0 to 1.
pub(crate) fn percentile(samples: &mut [Duration], share: f64) -> Duration {
    samples.sort_unstable();
    samples[((samples.len() - 1) as f64 * share) as usize]
}
