//! The frame of all attacks: a server that is attacked, one beside it that is not, and what is asked of the first.
//!
//! How long an echo takes is a matter of the machine too. So the same clients speak to a second server at the same
//! time, which nobody attacks: what it takes there is the machine's doing and not the attack's. And a worker that is
//! busy, as only the attacked one is, waits for a core behind whatever else the machine does: of the time that it
//! wanted to run it ran for a share only, which the kernel tells, and what it did took so much longer. Where the
//! machine pauses it all the same, another try tells.

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

/// What the 99th percentile of an echo may be longer than that of the server beside.
const LATER_MAX: Duration = Duration::from_millis(50);

/// The thread that is attacked.
const WORKER: &str = "worker 0";

/// Tries, since the machine may be busy with other things.
const TRIES: u32 = 5;

/// Bystanders of each server.
const BYSTANDERS: usize = 4;

/// One attack at a time: each would be another's.
static ALONE: Mutex<()> = Mutex::new(());

/// Short, so that what they end has ended soon.
const LIMITS: &str = "header_timeout = \"500ms\"\nhandshake_timeout = \"500ms\"\n\
    keep_alive_timeout = \"500ms\"\nwrite_timeout = \"500ms\"\n";

/// Turns of a worker that has nothing to do, between two looks: the looks themselves and the care of its memory.
const TURNS_AT_REST_MAX: f64 = 40.0;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// How long an attack lasts.
fn duration() -> Duration {
    let seconds = std::env::var("VECHE_ATTACK_SECONDS").ok();
    let seconds = seconds.map_or(0.7, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs_f64(seconds)
}

/// An attack, and what it may cost.
pub(crate) struct Attack<'a> {
    /// What the server is told besides: its limits are those of an attack where nothing else is said.
    pub(crate) options: Options<'a>,
    /// Who attack at the same time.
    pub(crate) attackers: usize,
    /// The first blow brings up what stays, such as threads: it is dealt before anything is measured.
    pub(crate) is_first_dear: bool,
    /// Memory that the server may have more while it lasts than before.
    pub(crate) memory_mib_max: u64,
    /// The back end of both servers.
    pub(crate) io: &'static str,
    /// Clients that connect anew each time are served as those that stay.
    pub(crate) has_newcomers: bool,
}

impl Default for Attack<'_> {
    fn default() -> Self {
        Self {
            options: Options::default(),
            attackers: 4,
            is_first_dear: false,
            memory_mib_max: 32,
            io: chosen_io(),
            has_newcomers: false,
        }
    }
}

/// The server that is attacked, as attackers see it.
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

    /// Whether the attack lasts; for those that take longer than a moment.
    pub(crate) fn lasts(&self) -> bool {
        now() < self.ends
    }

    /// Waits until the attack is over.
    pub(crate) fn outlast(&self) {
        thread::sleep(self.ends.saturating_duration_since(now()));
    }

    /// The server did what it should about one blow: an attack that never gets so far tests nothing.
    pub(crate) fn landed(&self) {
        self.landed.fetch_add(1, Relaxed);
    }
}

impl Attack<'_> {
    /// Every attacker does `blow` again and again; then see the module's text.
    #[track_caller]
    pub(crate) fn run(&self, blow: impl Fn(&Target<'_>, &mut Rng) + Sync) {
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
        // All clients are one worker's.
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
        if self.is_first_dear {
            blow(&Target::of(&attacked, now()), &mut Rng::with_seed(0));
            attacked.await_connections(bystanders.count());
        }
        let before = (process::descriptors(pid), State::of(&attacked));

        let (mut tried, mut landed) = (0, 0);
        let (waits, before_kib) = loop {
            tried += 1;
            // The allocator gives back what a try has left some seconds later.
            let before_kib = process::rss_kib(pid);
            process::forget_peak(pid);
            let target = Target::of(&attacked, now() + duration());
            let ran_before = process::ran_and_waited(pid, WORKER);
            let (here, there) = self.blows(&target, &blow, &mut bystanders, &mut others);
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

        // Nothing of it is left.
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

    /// One try: what echoes took meanwhile, here and beside.
    fn blows(
        &self,
        target: &Target<'_>,
        blow: &(impl Fn(&Target<'_>, &mut Rng) + Sync),
        bystanders: &mut Bystanders,
        others: &mut Bystanders,
    ) -> (Waits, Waits) {
        thread::scope(|scope| {
            for seed in 0..self.attackers {
                scope.spawn(move || {
                    // Attackers have machines of their own: here they should not take the server's.
                    let _ = rustix::process::nice(10);
                    let mut rng = Rng::with_seed(seed as u64);
                    while target.lasts() {
                        blow(target, &mut rng);
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

/// The share of the time in which a thread wanted to run that it ran, between two looks.
fn share(before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> f64 {
    let (Some(before), Some(after)) = (before, after) else {
        return 1.0;
    };
    let (ran, waited) = (after.0 - before.0, after.1 - before.1);
    (ran as f64 / (ran + waited).max(1) as f64).clamp(0.1, 1.0)
}

/// What the server holds for its clients.
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
