//! Tests that no state remains after mixed load: errors, endless scripts, clients that come and go, and a reload every
//! few seconds.
//!
//! `VECHE_SOAK_SECONDS` sets the duration. The default of 8 is short enough for the daily tests.

#[path = "../support/mod.rs"]
mod support;

mod clients;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use clients::Load;
use serde_json::Value;
use support::metrics::Metrics;
use support::{Options, SOON, Server, Setup, chosen_io, now, process, until};

const APP: &str = include_str!("app.lua");
const FEED: &str = include_str!("feed.lua");
const HOG: &str = include_str!("hog.lua");

const ROUTES: &str = r#"
[[route]]
path = "/soak"
handler = "lua"
script = "app.lua"
identity = "query:user"
# Twice the default, since on a virtual machine steal time counts as CPU time of the handler.
cpu_budget = "40ms"
[[route]]
path = "/hog"
handler = "lua"
script = "hog.lua"
memory = "4MiB"
"#;

const SERVICE: &str = "[[service]]\nname = \"feed\"\nscript = \"feed.lua\"\ninstances = 3\n";

const RELOAD_EVERY: Duration = Duration::from_secs(5);
fn setup() -> Setup {
    Setup {
        io: chosen_io(),
        workers: 2,
    }
}
/// The shortest duration after which the growth of memory is checked, since shorter runs end during the warm-up.
const JUDGES_MEMORY_FROM: Duration = Duration::from_secs(30);

/// The tolerated growth of memory in KiB, from the first quarter of the run to its end. The memory held by allocators
/// grows for some minutes, faster on a faster machine, and then stays level. So a run of a minute detects only leaks
/// that occur with every response.
fn growth_kib_max(duration: Duration) -> u64 {
    if duration < Duration::from_secs(300) {
        80 << 10
    } else {
        24 << 10
    }
}

fn duration() -> Duration {
    let seconds = std::env::var("VECHE_SOAK_SECONDS").ok();
    let seconds = seconds.map_or(8, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

fn reload(server: &Server, version: u32, with_service: bool) -> Value {
    let app = APP.replace("VERSION = 0", &format!("VERSION = {version}"));
    let app = match version % 4 {
        // Code that does not load is rejected, and the old code stays.
        3 => app + "end",
        _ => app,
    };
    let service = if with_service { SERVICE } else { "" };
    server.configure(&Options {
        routes: &format!("{ROUTES}{service}"),
        files: &[("app.lua", &app)],
        log: "error",
        limits: "connections_per_address = 10000",
        ..Options::default()
    });
    server.ask("reload").expect("an answer")
}

/// Runs `veche bench broadcast` during the whole test. Its ledger shows whether publications arrive once and in order.
fn ledger(server: &Server, duration: Duration) -> Child {
    Command::new(env!("CARGO_BIN_EXE_veche"))
        .args(["bench", "broadcast", "-n", "10", "--rate", "100", "--json"])
        .arg(format!(
            "ws://{}/ws?user=b{{i}}&channel=news",
            server.public
        ))
        .args(["--publish", &format!("tcp://{}", server.push)])
        .args(["--body", r#"{"channel":"news","data":"{data}"}"#])
        .args(["--warmup", "0s", "--duration"])
        .arg(format!("{}ms", duration.as_millis()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

fn assert_is_clean(ledger: Child) {
    let output = ledger.wait_with_output().expect("it ran");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let count = |name: &str| report["ledger"][name].as_u64().expect("a count");
    assert!(count("published") > 100, "{report:#}");
    assert_eq!(count("delivered"), 10 * count("published"), "{report:#}");
    for fault in ["lost", "duplicated", "reordered", "corrupted", "away"] {
        assert_eq!(count(fault), 0, "{fault}: {report:#}");
    }
}

/// Samples of a process's resident memory in KiB and of its number of open descriptors.
#[derive(Default)]
struct Samples(Vec<(u64, usize)>);

impl Samples {
    fn take(&mut self, pid: u32) {
        self.0
            .push((process::rss_kib(pid), process::descriptors(pid)));
    }

    /// Returns the median memory in KiB between the fractions `from`/8 and `to`/8 of the run.
    fn memory_kib(&self, from: usize, to: usize) -> u64 {
        let count = self.0.len();
        let part = &self.0[count * from / 8..count * to / 8];
        let mut sizes: Vec<u64> = part.iter().map(|(rss, _)| *rss).collect();
        sizes.sort_unstable();
        sizes[sizes.len() / 2]
    }
}

/// Reloads repeatedly until the time `until`, and samples the server. Returns the number of reloads and the samples.
fn reload_and_look(server: &Server, until: Instant) -> (u32, Samples) {
    let (mut version, mut samples) = (0, Samples::default());
    let pid = server.pid();
    let mut reload_at = now() + RELOAD_EVERY;
    while now() < until {
        thread::sleep(Duration::from_millis(250));
        samples.take(pid);
        if now() >= reload_at {
            reload_at += RELOAD_EVERY;
            version += 1;
            let answer = reload(server, version, true);
            assert_eq!(answer["ok"], version % 4 != 3, "{answer}");
        }
    }
    assert_eq!(server.pid(), pid, "the same process all along");
    (version, samples)
}

#[test]
fn resources_return_to_their_level() {
    let duration = duration();
    let server = Server::with(
        setup(),
        &Options {
            routes: &format!("{ROUTES}{SERVICE}"),
            files: &[("app.lua", APP), ("feed.lua", FEED), ("hog.lua", HOG)],
            log: "error",
            limits: "connections_per_address = 10000",
            ..Options::default()
        },
    );
    let pid = server.pid();
    let idle = process::descriptors(pid);
    let load = Load::new(server.public);
    let ledger = ledger(&server, duration);
    let (reloads, samples) = thread::scope(|scope| {
        let load = &load;
        for seed in 0..6 {
            scope.spawn(move || load.visit(seed));
        }
        for seed in 6..8 {
            scope.spawn(move || load.request(seed));
        }
        scope.spawn(|| load.hog());
        // The threads of the load have to end even if `reload_and_look` panics.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            reload_and_look(&server, now() + duration)
        }));
        load.is_over.store(true, Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert_is_clean(ledger);

    let (answers, failures) = (load.answers.load(Relaxed), load.failures.load(Relaxed));
    let warm = samples.memory_kib(2, 4);
    let end = samples.memory_kib(6, 8);
    println!(
        "{answers} answers, {failures} failures as asked, {reloads} reloads; {warm} KiB, then {end} KiB"
    );
    assert!(answers > duration.as_secs() * 50 && failures > duration.as_secs());

    // The load is over, so all connections must close.
    server.await_connections(0);
    let metrics = || Metrics::scrape(server.internal);
    until("errors to be counted", || {
        metrics().sum("veche_app_errors_total", &[]) >= failures as f64
    });
    // The failing service may wait for half a minute before it restarts.
    until("the services to run", || {
        metrics().sum("veche_services_running", &[]) >= 2.0
    });
    assert_eq!(reload(&server, 1, false)["ok"], true);
    until("coroutines to end", || {
        metrics().sum("veche_app_coroutines", &[]) == 0.0
    });
    for gauge in [
        "veche_services_running",
        "veche_sessions",
        "veche_subscriptions",
        "veche_channels",
        "veche_users",
    ] {
        // The last unsubscription may still be on its way to the other worker.
        until(gauge, || metrics().sum(gauge, &[]) == 0.0);
    }
    until("descriptors to be closed", || {
        process::descriptors(pid) <= idle + 2
    });
    // During the load the code of several reloads may be in memory, so the limit applies only to the memory afterwards.
    if duration >= JUDGES_MEMORY_FROM {
        let bound = warm + growth_kib_max(duration);
        let deadline = now() + SOON;
        while process::rss_kib(pid) > bound && now() < deadline {
            thread::sleep(Duration::from_millis(100));
        }
        let left = process::rss_kib(pid);
        println!("{left} KiB when all is over");
        assert!(
            left <= bound,
            "{left} KiB when all is over, {warm} KiB before"
        );
    }
    assert_eq!(server.pid(), pid);
}
