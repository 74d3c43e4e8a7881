//! The framework of all attacks: a server that is attacked, a second server that is not, and the requirements for the
//! attacked server.
//!
//! The latency of an echo also depends on the machine. Equal clients therefore use the second server at the same time;
//! its latency is due to the machine alone. In addition, the busy worker of the attacked server competes for a core with
//! everything else on the machine. The kernel reports how long the worker was runnable, and how much of that time it
//! ran; the measured times are scaled by that share. If the machine pauses nevertheless, the attack is retried.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;

use super::bystanders::{Bystanders, Waits};
use super::evidence::Evidence;
use crate::support::metrics::Metrics;
use crate::support::{Options, Server, Setup, chosen_io, now, process, until};

/// How much the 99th percentile of the attacked server's echo latencies may exceed that of the
/// second server.
const LATER_MAX: Duration = Duration::from_millis(50);

/// The thread under attack.
const WORKER: &str = "worker 0";

/// The maximum number of attempts at an attack. A failed attempt is repeated, because the machine may have been busy.
const TRIES: u32 = 5;

/// The number of bystanders of each server.
const BYSTANDERS: usize = 4;

/// Attacks run one at a time, since they would affect each other.
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

/// Short timeouts, so that the effects of an attack end soon.
const LIMITS: &str = "header_timeout = \"500ms\"\nhandshake_timeout = \"500ms\"\n\
    keep_alive_timeout = \"500ms\"\nwrite_timeout = \"500ms\"\n";

/// The maximum number of turns of an idle worker between two checks. The checks and memory
/// maintenance cause turns.
const TURNS_AT_REST_MAX: f64 = 40.0;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The variable with the duration of an attack.
const SECONDS: &str = "VECHE_ATTACK_SECONDS";

/// Returns whether attacks last longer than in an ordinary run of the tests.
pub(crate) fn is_long() -> bool {
    std::env::var_os(SECONDS).is_some()
}

/// Returns the duration of an attack.
fn duration() -> Duration {
    let seconds = std::env::var(SECONDS).ok();
    let seconds = seconds.map_or(0.7, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs_f64(seconds)
}

/// An attack and its tolerated cost.
pub(crate) struct Attack<'a> {
    /// Options of the server. If they contain no limits, the timeouts in `LIMITS` apply.
    pub(crate) options: Options<'a>,
    /// The number of concurrent attackers.
    pub(crate) attackers: usize,
    /// Whether the first round allocates lasting resources such as threads; if so, it runs before the measurement.
    pub(crate) is_first_costly: bool,
    /// The tolerated growth of memory during the attack.
    pub(crate) memory_mib_max: u64,
    /// The I/O driver of the attacked server and of the second server.
    pub(crate) io: &'static str,
    /// Whether there are also clients that reconnect for each message. They must be served in time, like the clients
    /// that stay.
    pub(crate) has_newcomers: bool,
}

impl Default for Attack<'_> {
    fn default() -> Self {
        Self {
            options: Options::default(),
            attackers: 4,
            is_first_costly: false,
            memory_mib_max: 32,
            io: chosen_io(),
            has_newcomers: false,
        }
    }
}

/// The attacked server, as seen by attackers.
pub(crate) struct Target<'s> {
    pub(crate) server: &'s Server,
    pub(crate) address: SocketAddr,
    ends: Instant,
    landed: AtomicU64,
}

impl<'s> Target<'s> {
    fn of(server: &'s Server, ends: Instant) -> Self {
        Self {
            server,
            address: server.public,
            ends,
            landed: AtomicU64::new(0),
        }
    }

    /// Returns whether the attack is still running, for rounds that take long.
    pub(crate) fn lasts(&self) -> bool {
        now() < self.ends
    }

    /// Waits until the attack is over.
    pub(crate) fn outlast(&self) {
        thread::sleep(self.ends.saturating_duration_since(now()));
    }

    /// Records that the server reacted to one round as expected. An attack without effect would test nothing.
    pub(crate) fn landed(&self) {
        self.landed.fetch_add(1, Relaxed);
    }
}

impl Attack<'_> {
    /// Runs `attempt` repeatedly in every attacker, and checks the requirements that the module
    /// documentation describes.
    #[track_caller]
    pub(crate) fn run(&self, attempt: impl Fn(&Target<'_>, &mut Rng) + Sync) {
        let _alone = ALONE.lock();
        let limits = match self.options.limits {
            "" => LIMITS.to_owned(),
            own => own.to_owned(),
        };
        let options = Options {
            limits: &limits,
            log: if self.options.log.is_empty() {
                "warn"
            } else {
                self.options.log
            },
            ..self.options
        };
        // With one worker, all clients share the worker that is attacked.
        let setup = Setup {
            io: self.io,
            workers: 1,
        };
        let (attacked, beside) = (Server::with(setup, &options), Server::with(setup, &options));
        let bystanders_of = |server: &Server| {
            Bystanders::of(server.public, BYSTANDERS).with_newcomers(self.has_newcomers)
        };
        let mut bystanders = bystanders_of(&attacked);
        let mut others = bystanders_of(&beside);
        let pid = attacked.pid();
        if self.is_first_costly {
            attempt(&Target::of(&attacked, now()), &mut Rng::with_seed(0));
            attacked.await_connections(bystanders.count());
        }
        let before = (process::descriptors(pid), State::of(&attacked));

        let (mut tried, mut landed) = (0, 0);
        let (waits, before_kib) = loop {
            tried += 1;
            // The allocator releases the memory of an attempt some seconds later, so the memory is measured before each
            // attempt.
            let before_kib = process::rss_kib(pid);
            process::forget_peak(pid);
            let target = Target::of(&attacked, now() + duration());
            let ran_before = process::ran_and_waited(pid, WORKER);
            let (here, there) = self.attempts(&target, &attempt, &mut bystanders, &mut others);
            landed += target.landed.load(Relaxed);
            let share = share(ran_before, process::ran_and_waited(pid, WORKER));
            let io = self.io;
            eprintln!("{io}: {here:?}, beside {there:?}; share {share:.2}; {landed} landed");
            if here.is_within(&there, LATER_MAX.div_f64(share)) {
                break ([here, there], before_kib);
            }
            assert!(
                tried < TRIES,
                "on {io} bystanders waited {here:?}, those of a server beside {there:?}; \
                 the worker had a core for {share:.2} of the time that it wanted one"
            );
            attacked.await_connections(bystanders.count());
        };
        let ended = now();
        assert!(landed > 0, "the attack never came to anything");
        let peak = process::peak_kib(pid);
        eprintln!("memory: {} KiB before, {peak} at its peak", before_kib);
        assert!(
            peak <= before_kib + (self.memory_mib_max << 10),
            "{} KiB grew to {peak}",
            before_kib
        );

        let evidence = Evidence {
            io: self.io,
            waits,
            before_kib,
            peak_kib: peak,
            ended,
        };

        // After the attack the server keeps no state of the attackers.
        attacked.await_connections(bystanders.count());
        until("descriptors to be closed", || {
            process::descriptors(pid) <= before.0
        });
        until("sessions and the like to be gone", || {
            State::of(&attacked) == before.1
        });
        drop(bystanders);
        attacked.await_connections(0);
        until("the worker to rest", || {
            let turns = || Metrics::scrape(attacked.internal).sum("veche_turn_seconds_count", &[]);
            let first = turns();
            thread::sleep(BETWEEN_LOOKS);
            turns() - first < TURNS_AT_REST_MAX
        });
        assert_eq!(attacked.pid(), pid, "the same process all along");
        evidence.write(pid);
    }

    /// Runs one attempt. Returns the echo latencies of the attacked server and of the second server.
    fn attempts(
        &self,
        target: &Target<'_>,
        attempt: &(impl Fn(&Target<'_>, &mut Rng) + Sync),
        bystanders: &mut Bystanders,
        others: &mut Bystanders,
    ) -> (Waits, Waits) {
        thread::scope(|scope| {
            for seed in 0..self.attackers {
                scope.spawn(move || {
                    // Real attackers use other machines, so these threads have a lower priority than the server.
                    let _ = rustix::process::nice(10);
                    let mut rng = Rng::with_seed(seed as u64);
                    while target.lasts() {
                        attempt(target, &mut rng);
                    }
                });
            }
            let here = scope.spawn(|| bystanders.speak(target.ends));
            let there = scope.spawn(|| others.speak(target.ends));
            let word = "all of them are served";
            (here.join().expect(word), there.join().expect(word))
        })
    }
}

/// Returns the share of a thread's runnable time in which it had a core. Each reading contains how long the thread has
/// run, and how long it was runnable without a core.
pub(crate) fn share(before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> f64 {
    let (Some(before), Some(after)) = (before, after) else {
        return 1.0;
    };
    let (ran, waited) = (after.0 - before.0, after.1 - before.1);
    (ran as f64 / (ran + waited).max(1) as f64).clamp(0.1, 1.0)
}

/// Numbers of objects that the server keeps for clients, such as connections and subscriptions.
#[derive(Debug, PartialEq)]
struct State([u64; 6]);

impl State {
    fn of(server: &Server) -> Self {
        let metrics = Metrics::scrape(server.internal);
        let gauges = [
            "veche_connections",
            "veche_sessions",
            "veche_users",
            "veche_channels",
            "veche_subscriptions",
            "veche_app_coroutines",
        ];
        Self(gauges.map(|name| metrics.sum(name, &[]) as u64))
    }
}
