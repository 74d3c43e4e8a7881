//! The slowest calls of Lua functions: handlers repeat each call until they are stopped, while a
//! client uses another route on the same worker.
//!
//! The calls are listed in the tests of `veche-script`, which measure the CPU time and the memory
//! of single handlers. These tests measure the whole server: the longest round trip of an echo, and
//! the peak of the process's memory. An idle server is measured at the same time: its round trips
//! are the machine's own delay. The kernel reports for what share of its runnable time the worker
//! had a core; the bound on the round trip is divided by that share.
//!
//! Without `VECHE_ATTACK_SECONDS` only some calls are measured. `VECHE_TEST_BIN` names an optimised
//! build of the server, which must keep the bounds of the guide. `--nocapture` prints a table of
//! all calls, for bench/results.

#[path = "../../../script/tests/costs/worst.rs"]
mod worst;

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::attack::{ALONE, is_long, share};
use crate::raw::{CLOSE, TEXT, connect, frame, handshake, hear, status};
use crate::support::{Server, Setup, Socket, chosen_io, now, process};
use worst::{WORST, Worst};

/// The default CPU time after which a handler is stopped.
const BUDGET: Duration = Duration::from_millis(20);
/// The default memory limit of a VM, in MiB.
const MEMORY_MIB: u64 = 64;

/// The tolerated wait of a client, in addition to the handler's CPU budget and to the wait of the
/// idle server's client.
const LATER_MAX: Duration = Duration::from_millis(25);

/// Replaces [`LATER_MAX`] in a test build, which is less optimised, contains LuaJIT's assertions,
/// and runs on shared machines. It equals the limit for one handler in the tests of `veche-script`.
const LATER_MAX_IN_TESTS: Duration = Duration::from_millis(80);

/// The memory that the process may use in addition to the VM's limit.
const EXCESS_MIB_MAX: u64 = 16;

/// Additional memory for functions that send. The data stays outside the VM until the handler
/// suspends: at most 64 MiB, and 32 MiB more while the buffer grows.
const SENT_MIB_MAX: u64 = 96;
const SENDING: &[&str] = &["conn:send", "veche.publish", "veche.push"];

/// Functions with wider bounds. Fields: the function, the additional memory in MiB, and the reason,
/// which the printed table shows.
const EXCEPTIONS: &[(&str, u64, &str)] = &[
    ("queue:try_push", 48, "values of a queue are outside the VM"),
    (
        "router:get",
        16,
        "a VM may exceed its limit before it is ended",
    ),
    (
        "veche.base64.decode",
        8,
        "pages of freed buffers stay with the allocator for a moment",
    ),
    (
        "veche.spawn",
        16,
        "a VM may exceed its limit before it is ended",
    ),
];

/// The functions that were slowest in a full run. Without `VECHE_ATTACK_SECONDS`, only the last
/// entry of `WORST` for each of them is measured.
const QUICK: &[&str] = &[
    "string.upper",
    "table.concat",
    "xpcall debug.traceback",
    "coroutine.wrap",
    "veche.json.encode",
    "veche.hmac.sha256 veche.hmac.sha1",
    "print veche.log.info",
    "conn:send",
    "table:batch table:clear",
];

/// The duration of one measurement of a call.
const ROW: Duration = Duration::from_secs(1);
/// The same duration if only some calls are measured.
const ROW_QUICK: Duration = Duration::from_millis(400);

/// The pause between two echoes of a client.
const PAUSE: Duration = Duration::from_millis(1);

/// The maximum number of measurements of a call. Since the machine may pause, a call is measured
/// again until its round trip is within the bound.
const TRIES: u32 = 5;

const WORKER: &str = "worker 0";

/// Returns a script that repeats a call until it is stopped. If the call contains a programming
/// error, the script reports the error to the client.
fn script((_, setup, call): &Worst) -> String {
    // The server loads a script twice, first to check it and then to run it. The rows inserted by
    // the check persist, so an insert would fail the second time.
    let setup = setup.replace("batch:insert", "batch:upsert");
    format!(
        "local veche = require 'veche'
        local app = {{}}
        {setup}
        function app.message(conn, data)
          while true do
            local ok, why = pcall(function() {call} end)
            if not ok and #tostring(why) < 200 and why:find('attempt to', 1, true) then
              return conn:send('mistake: ' .. why)
            end
          end
        end
        return app"
    )
}

fn server(script: &str) -> Server {
    let setup = Setup {
        io: chosen_io(),
        workers: 1,
    };
    let routes = format!(
        "[[route]]\npath = \"/app\"\nhandler = \"lua\"\nscript = \"app.lua\"\n\
         memory = \"{MEMORY_MIB}MiB\"\ncpu_budget = \"{}ms\"",
        BUDGET.as_millis()
    );
    Server::serving(setup, &routes, &[("app.lua", script)])
}

/// Starts handlers until `until`. Returns how many of them were stopped.
fn attack(server: SocketAddr, until: Instant) -> u32 {
    // A real client uses another machine, so this thread has a lower priority than the server.
    let _ = rustix::process::nice(10);
    let mut stopped = 0;
    while now() < until {
        let mut socket = connect(server);
        let opened = socket.write_all(&handshake("/app", ""));
        // A VM at its memory limit may refuse handshakes.
        if opened.is_err() || status(&mut socket) != Some(101) {
            thread::sleep(PAUSE);
            continue;
        }
        socket.write_all(&frame(TEXT, b"go")).expect("it is read");
        loop {
            let left = until.saturating_duration_since(now()).max(PAUSE);
            socket.set_read_timeout(Some(left)).expect("a socket");
            match hear(&mut socket) {
                Some((CLOSE, _)) => {
                    stopped += 1;
                    break;
                }
                Some((_, text)) if text.starts_with(b"mistake") => {
                    panic!("{}", String::from_utf8_lossy(&text))
                }
                // A message that the handler has sent.
                Some(_) => {}
                // No message arrives while the handler is suspended, for example until its publications are
                // accepted.
                None => break,
            }
        }
    }
    stopped
}

/// Sends messages to be echoed until `until`. Returns the longest round trip.
fn worst_trip(client: &mut Socket, until: Instant) -> Duration {
    let mut worst = Duration::ZERO;
    while now() < until {
        let sent = now();
        client.say("hello");
        assert_eq!(client.text(), "hello");
        worst = worst.max(sent.elapsed());
        thread::sleep(PAUSE);
    }
    worst
}

/// One measurement of a call.
struct Measured {
    /// The longest round trip of the server under test. `beside` is that of the idle server.
    here: Duration,
    beside: Duration,
    /// The share of the worker's runnable time in which it had a core.
    share: f64,
    stopped: u32,
}

impl Measured {
    fn take(server: &Server, clients: &mut [Socket; 2]) -> Self {
        let until = now() + if is_long() { ROW } else { ROW_QUICK };
        let pid = server.pid();
        let ran_before = process::ran_and_waited(pid, WORKER);
        let [here, beside] = clients;
        let (here, beside, stopped) = thread::scope(|scope| {
            let stopped = scope.spawn(|| attack(server.public, until));
            let here = scope.spawn(|| worst_trip(here, until));
            let beside = scope.spawn(|| worst_trip(beside, until));
            let word = "all of them are served";
            (
                here.join().expect(word),
                beside.join().expect(word),
                stopped.join().expect("the row has no mistake"),
            )
        });
        Self {
            here,
            beside,
            share: share(ran_before, process::ran_and_waited(pid, WORKER)),
            stopped,
        }
    }

    /// Returns by how much the longest round trip exceeded that of the idle server.
    fn stall(&self) -> Duration {
        self.here.saturating_sub(self.beside)
    }

    fn is_good(&self) -> bool {
        let later_max = match is_optimised() {
            true => LATER_MAX,
            false => LATER_MAX_IN_TESTS,
        };
        self.stall() <= (BUDGET + later_max).div_f64(self.share)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let (here, beside) = (ms(self.here), ms(self.beside));
        let share = self.share * 100.0;
        write!(f, "{here:.1} ({beside:.1}; {share:.0} %)")
    }
}

/// Returns whether the server under test is an optimised build.
fn is_optimised() -> bool {
    std::env::var_os("VECHE_TEST_BIN").is_some() || !cfg!(debug_assertions)
}

/// Measures a call up to [`TRIES`] times, until its round trip is within the bound. Prints its line
/// of the table. Returns the line if the last measurement exceeds the bound on time or memory.
fn measure(row: &Worst, idle: &Server) -> Option<String> {
    let (names, _, call) = row;
    let server = server(&script(row));
    let pid = server.pid();
    process::forget_peak(pid);
    let mut clients = [
        Socket::open(server.public, "/echo"),
        Socket::open(idle.public, "/echo"),
    ];
    let exception = EXCEPTIONS.iter().find(|known| names.starts_with(known.0));
    let (more_mib, reason) = match exception {
        Some((_, more_mib, reason)) => (*more_mib, *reason),
        None => (0, ""),
    };
    let is_last_good = |all: &[Measured]| all.last().is_some_and(Measured::is_good);
    let mut all: Vec<Measured> = Vec::new();
    while all.len() < TRIES as usize && !is_last_good(&all) {
        all.push(Measured::take(&server, &mut clients));
    }
    assert_eq!(server.pid(), pid, "{names}: the same process all along");
    let grown_mib = process::peak_kib(pid).saturating_sub(process::rss_kib(idle.pid())) >> 10;
    let is_sending = SENDING.iter().any(|name| names.contains(name));
    let sent_mib = if is_sending { SENT_MIB_MAX } else { 0 };
    let memory_mib_max = MEMORY_MIB + EXCESS_MIB_MAX + sent_mib + more_mib;
    let is_good = is_last_good(&all) && grown_mib <= memory_mib_max;
    let stopped: u32 = all.iter().map(|one| one.stopped).sum();
    let all: Vec<String> = all.iter().map(Measured::to_string).collect();
    let line = format!(
        "| `{}` | `{:.60}` | {stopped} | {} | {grown_mib} | {} |",
        names.replace(' ', "`, `"),
        call.replace('|', "¦"),
        all.join(", "),
        if is_good { reason } else { "over" },
    );
    println!("{line}");
    (!is_good).then_some(line)
}

#[test]
fn what_takes_longest_in_lua() {
    let _alone = ALONE.lock();
    let idle = server("return { message = function(conn, data) conn:send(data) end }");
    println!(
        "| function | call | handlers stopped | longest round trip (idle server's; worker's share of a core), ms, of each measurement | memory, MiB | |"
    );
    println!("|---|---|---|---|---|---|");
    let is_chosen = |row: &&Worst| {
        let last = || WORST.iter().rfind(|(names, ..)| *names == row.0);
        is_long() || QUICK.contains(&row.0) && last() == Some(*row)
    };
    let rows: Vec<&Worst> = WORST.iter().filter(is_chosen).collect();
    assert!(rows.len() >= QUICK.len(), "each name has a row");
    let over: Vec<String> = rows.iter().filter_map(|row| measure(row, &idle)).collect();
    assert!(over.is_empty(), "over a bound:\n{}", over.join("\n"));
}
