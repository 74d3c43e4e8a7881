//! Compares measured times with known delays: a server that stalls, a server with a fixed delay,
//! and a server that shares its core with the tester.
//!
//! The tests run one at a time, since they would disturb each other. Other load on the machine can
//! delay an answer, but never speed it up. A test that could mistake such a delay for a fault uses
//! the best of several runs.

#[path = "../../../../tests/skip.rs"]
mod skip;
#[path = "../support/mod.rs"]
mod support;

use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use veche_load::loads::LoadPlan;
use veche_load::loads::echo::EchoPlan;
use veche_load::payload::PayloadPlan;
use veche_load::plan::Plan;
use veche_load::report::Report;

use support::{WebSocket, assert_clean, endpoint, now, plan, report, serve_websocket};

static ALONE: Mutex<()> = Mutex::new(());
/// Number of runs from which the best one is used.
const TRIES: usize = 5;

fn echo(inflight: u32, rate: Option<f64>) -> LoadPlan {
    LoadPlan::Echo(EchoPlan {
        payload: PayloadPlan::default(),
        inflight,
        rate,
        ..EchoPlan::default()
    })
}

const STALL: Duration = Duration::from_millis(300);
const STALL_EVERY: Duration = Duration::from_millis(1500);

/// Starts an echo server. Once in every [`STALL_EVERY`], all its connections stall together for
/// [`STALL`].
fn stalling() -> std::net::SocketAddr {
    let began = now();
    serve_websocket(move |mut websocket| {
        while let Some((kind, data)) = websocket.message() {
            let since = now().duration_since(began).as_micros() as u64;
            let at = Duration::from_micros(since % STALL_EVERY.as_micros() as u64);
            let left = (at + STALL).saturating_sub(STALL_EVERY);
            if !left.is_zero() {
                thread::sleep(STALL - left);
            }
            websocket.send(kind, &data);
        }
    })
}

/// During a stall, a closed loop waits with the server, so it records one sample per stall and
/// connection. An open loop records all messages that were due during the stall.
#[test]
fn an_open_loop_shows_a_stall_and_a_closed_one_hides_it() {
    let _alone = ALONE.lock();
    let url = format!("ws://{}/", stalling());
    let run = |load| report(plan(vec![endpoint(&url, 4)], load, 3000));
    let stall_us = STALL.as_micros() as f64;

    let open = run(echo(1, Some(500.0)));
    assert_clean(&open);
    assert_eq!(open.messages.sent, 1500);
    assert_eq!(
        open.messages.received, open.messages.sent,
        "no message is lost"
    );
    let latency = open.latency_us.expect("latencies");
    assert_eq!(latency.count, 1500);
    // The server stalls for a fifth of the time, so a fifth of the messages waited, for up to 300
    // ms.
    assert!(latency.p90 > stall_us * 0.3, "{latency:?}");
    assert!(latency.p99 > stall_us * 0.8, "{latency:?}");
    assert!(latency.max >= stall_us * 0.95, "{latency:?}");
    assert!(latency.p50 < stall_us * 0.3, "{latency:?}");

    let closed = run(echo(1, None));
    assert_clean(&closed);
    let latency = closed.latency_us.expect("latencies");
    assert!(latency.count > 1000, "{latency:?}");
    assert!(latency.max >= stall_us * 0.9, "it was there: {latency:?}");
    assert!(latency.p99 < stall_us * 0.3, "{latency:?}");
}

/// Each answer takes 20 ms, so every percentile must be 20 ms.
#[test]
fn a_fixed_delay_is_every_percentile() {
    const DELAY: Duration = Duration::from_millis(20);
    let _alone = ALONE.lock();
    let address = serve_websocket(|mut websocket| {
        while let Some((kind, data)) = websocket.message() {
            thread::sleep(DELAY);
            websocket.send(kind, &data);
        }
    });
    let url = format!("ws://{address}/");
    // The rate of the open loop is low enough for each connection to answer before its next
    // message.
    for load in [echo(1, None), echo(1, Some(200.0))] {
        let mut seen = Vec::new();
        let is_right = (0..TRIES).any(|_| {
            let report = report(plan(vec![endpoint(&url, 10)], load.clone(), 1000));
            assert_clean(&report);
            let latency = report.latency_us.expect("latencies");
            assert!(latency.count >= 50, "{latency:?}");
            // Answers are never early; the tolerance is for the histogram, which has three
            // significant digits.
            assert!(latency.min >= 19_990.0, "{latency:?}");
            let is_right = latency.p50 < 23_000.0 && latency.p99 < 30_000.0;
            seen.push(latency);
            is_right
        });
        assert!(is_right, "{seen:#?}");
    }
}

/// Returns the cores available to this process.
fn cores() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("our own");
    (0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect()
}

/// Pins threads started from now on to this core.
fn stay_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("a core of ours");
}

/// Runs a server on the core `server` and a load on the core `tester`. Each answer takes `work` of
/// the server's CPU time.
fn on_cores(server: usize, tester: usize, work: Duration, plan: impl Fn(&str) -> Plan) -> Report {
    stay_on(server);
    let address = serve_websocket(move |mut websocket| {
        while let Some((kind, data)) = websocket.message() {
            let until = now() + work;
            while now() < until {
                std::hint::spin_loop();
            }
            websocket.send(kind, &data);
        }
    });
    stay_on(tester);
    report(plan(&format!("ws://{address}/")))
}

#[test]
fn a_tester_on_the_servers_core_is_reported() {
    let _alone = ALONE.lock();
    let core = cores()[0];
    let report = on_cores(core, core, Duration::from_micros(100), |url| {
        plan(vec![endpoint(url, 50)], echo(4, None), 1000)
    });
    assert_clean(&report);
    let generator = &report.generator;
    assert!(generator.bottleneck, "{generator:?}");
    assert!(generator.waited >= 0.05, "{generator:?}");
    let reasons = generator.reasons.join("; ");
    assert!(reasons.contains("waited for a core"), "{reasons}");
}

#[test]
fn a_tester_with_time_to_spare_does_not_blame_itself() {
    let _alone = ALONE.lock();
    let [server, .., tester] = cores()[..] else {
        return skip::skip("one core only, so the server can't have one of its own");
    };
    // With or without a rate, the tester needs far less than a core.
    for load in [echo(1, Some(1000.0)), echo(1, None)] {
        let mut seen = Vec::new();
        let is_quiet = (0..4 * TRIES).any(|_| {
            let report = on_cores(server, tester, Duration::from_micros(400), |url| {
                plan(vec![endpoint(url, 2)], load.clone(), 400)
            });
            assert_clean(&report);
            seen.push(report.generator);
            seen.last()
                .is_some_and(|last| !last.bottleneck && last.reasons.is_empty())
        });
        // If other load on the machine delayed every run, the test can't decide.
        if !is_quiet && seen.iter().all(|one| one.waited > 0.01) {
            return skip::skip("others keep the core of the tester busy");
        }
        assert!(is_quiet, "{seen:#?}");
    }
}

/// One core is not enough to send at this rate, so late sends are reported.
#[test]
fn a_rate_beyond_the_tester_is_the_testers_limit() {
    let _alone = ALONE.lock();
    let address = serve_websocket(WebSocket::echo);
    let url = format!("ws://{address}/");
    let report = report(Plan {
        timeout_ns: 500_000_000,
        ..plan(vec![endpoint(&url, 4)], echo(1, Some(2_000_000.0)), 200)
    });
    let generator = &report.generator;
    assert!(generator.bottleneck, "{generator:?}");
    assert!(generator.late_sends > 0, "{generator:?}");
}
