//! Servers with known behaviour on real sockets, and runs against them. The servers record their
//! actions, so that tests can compare reports with the truth.

#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub(crate) mod http;
#[path = "../../../../tests/now.rs"]
mod now;
pub(crate) mod websocket;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::Duration;

use veche_load::loads::LoadPlan;
use veche_load::plan::{Endpoint, Plan};
use veche_load::report::Report;
use veche_load::run::{RunControl, run};
use veche_load::target::Target;

pub(crate) use websocket::{Next, WebSocket};

pub(crate) use now::now;

/// A time limit that no step exceeds, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Starts a server with one thread per connection. It runs until the test process ends.
pub(crate) fn serve(talk: impl Fn(u32, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let talk = std::sync::Arc::new(talk);
    thread::spawn(move || {
        for (number, socket) in (0..).zip(listener.incoming()) {
            let Ok(socket) = socket else { return };
            socket.set_nodelay(true).expect("a TCP socket");
            let talk = std::sync::Arc::clone(&talk);
            thread::spawn(move || talk(number, socket));
        }
    });
    address
}

/// Starts a WebSocket server: `talk` is called with each connection after its handshake.
pub(crate) fn serve_websocket(
    talk: impl Fn(WebSocket<TcpStream>) + Send + Sync + 'static,
) -> SocketAddr {
    serve(move |_, socket| {
        if let Some(websocket) = WebSocket::accept(socket) {
            talk(websocket);
        }
    })
}

/// Returns a function that blocks its callers to limit their rate.
pub(crate) fn at_most(per_second: u32) -> impl Fn() + Send + Sync + 'static {
    let step = Duration::from_secs(1) / per_second;
    let next = parking_lot::Mutex::new(now());
    move || {
        let turn = {
            let mut next = next.lock();
            let turn = (*next).max(now());
            *next = turn + step;
            turn
        };
        thread::sleep(turn.saturating_duration_since(now()));
    }
}

/// Starts a server that echoes at most `per_second` messages a second.
pub(crate) fn serve_at_most(per_second: u32) -> SocketAddr {
    let turn = at_most(per_second);
    serve_websocket(move |mut websocket| {
        while let Some((kind, data)) = websocket.message() {
            turn();
            websocket.send(kind, &data);
        }
    })
}

/// Returns an endpoint for `clients` clients that connect to `url`.
pub(crate) fn endpoint(url: &str, clients: u32) -> Endpoint {
    Endpoint::new(Target::parse(url).expect("a URL of this test"), clients)
}

/// Returns the plan of a run of this duration, on one thread and without a warm-up.
pub(crate) fn plan(endpoints: Vec<Endpoint>, load: LoadPlan, duration_ms: u64) -> Plan {
    let ends_by_itself = matches!(load, LoadPlan::Storm(_) | LoadPlan::Shootout(_));
    Plan {
        endpoints,
        load,
        duration_ns: (!ends_by_itself).then_some(duration_ms * 1_000_000),
        warmup_ns: 0,
        timeout_ns: 5_000_000_000,
        opening_max: 64,
        connect_rate: None,
        sources: Vec::new(),
        seed: 7,
        threads: 1,
        processes: 1,
    }
}

/// Runs a plan; returns its report.
pub(crate) fn report(plan: Plan) -> Report {
    let run_control = RunControl {
        pid: None,
        interrupts: &AtomicUsize::new(0),
        stop: &AtomicBool::new(false),
        hold_ns: 0,
        worker_args: None,
        progress: &mut |_| (),
    };
    run(plan, run_control).expect("a report")
}

/// Runs a test's cases concurrently, since they spend most of their time waiting.
pub(crate) fn at_once<C: Send>(cases: impl IntoIterator<Item = C>, test: impl Fn(C) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || test(case));
        }
    });
}

/// Asserts that there were no errors.
#[track_caller]
pub(crate) fn assert_clean(report: &Report) {
    assert_eq!(report.errors.count(), 0, "{:#?}", report.errors);
    let connections = &report.connections;
    assert_eq!(connections.opened, connections.asked, "{connections:?}");
    assert_eq!(
        (connections.failed, connections.disconnected),
        (0, 0),
        "{connections:?}"
    );
    assert_eq!(report.messages.unanswered, 0, "{:?}", report.messages);
}

/// Asserts that the figures of a report equal the true counts, and prints both as a row of the
/// table in bench/results (`cargo test --test truth -- --nocapture --test-threads 1 | grep '^| '`).
#[track_caller]
pub(crate) fn row(case: &str, server: &str, figures: &[(&str, u64, u64)]) {
    let words = |of: fn(&(&str, u64, u64)) -> u64| {
        let all: Vec<_> = figures
            .iter()
            .map(|figure| format!("{} {}", of(figure), figure.0))
            .collect();
        all.join(", ")
    };
    let (truth, reported) = (words(|figure| figure.1), words(|figure| figure.2));
    println!("| {case} | {server} | {truth} | {reported} |");
    assert_eq!(reported, truth, "{server}");
}
