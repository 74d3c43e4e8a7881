//! Servers slower than the requested rate: the report contains their real throughput and states
//! that the rate was not reached.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::Duration;

use veche_load::loads::LoadPlan;
use veche_load::loads::echo::EchoPlan;
use veche_load::payload::PayloadPlan;
use veche_load::plan::Plan;
use veche_load::report::Report;
use veche_load::run::{RunControl, run};

use crate::support::{
    assert_clean, at_once, endpoint, now, plan, report, row, serve_at_most, serve_websocket,
};

fn echo(rate: f64, rate_to: Option<f64>) -> LoadPlan {
    LoadPlan::Echo(EchoPlan {
        payload: PayloadPlan::default(),
        inflight: 1,
        rate: Some(rate),
        rate_to,
        ..EchoPlan::default()
    })
}

/// Asserts that all messages were answered eventually, and that the throughput excludes answers
/// after the measured time.
#[track_caller]
fn assert_behind(report: &Report, capacity: f64) {
    assert_clean(report);
    let messages = &report.messages;
    assert_eq!(messages.received, messages.sent, "{messages:?}");
    assert_eq!(messages.rate_reached, Some(false), "{messages:?}");
    assert!(messages.per_second <= capacity * 1.03, "{messages:?}");
    let came: u64 = report.timeline.iter().map(|step| step.received).sum();
    assert_eq!(came, messages.received_in_time, "{:?}", report.timeline);
    let per_second = messages.received_in_time as f64 / report.seconds;
    assert!((messages.per_second - per_second).abs() < 1e-6);
}

#[test]
fn an_overloaded_server_has_the_throughput_that_it_has() {
    let url = format!("ws://{}/", serve_at_most(1000));
    let overload = Plan {
        warmup_ns: 200_000_000,
        ..plan(vec![endpoint(&url, 8)], echo(4000.0, None), 600)
    };
    // With `pid`, the report contains the CPU time per answer. The CPU time and the answers must be
    // those of the same period.
    let run_control = RunControl {
        pid: Some(std::process::id()),
        interrupts: &AtomicUsize::new(0),
        stop: &AtomicBool::new(false),
        hold_ns: 0,
        worker_args: None,
        progress: &mut |_| (),
    };
    let report = run(overload, run_control).expect("a report");
    assert_behind(&report, 1000.0);
    row(
        "echo",
        "1,000 a second at most, asked for 4,000",
        &[
            ("answered in the end", 2400, report.messages.received),
            (
                "came in the measured time, by its timeline",
                report.timeline.iter().map(|step| step.received).sum(),
                report.messages.received_in_time,
            ),
        ],
    );
    let came = report.messages.received_in_time as f64;
    let server = report.server.expect("--pid");
    let each = server.cpu_us_per_message.expect("answers came");
    assert!((each * came - server.cpu_s * 1e6).abs() < 1.0);
    let each = report.generator.cpu_us_per_message.expect("answers came");
    assert!((each * came - report.generator.cpu_s * 1e6).abs() < 1.0);
}

/// The ramp ends above the server's capacity, although its average is below it.
#[test]
fn a_ramp_that_ends_too_high_is_not_reached() {
    let url = format!("ws://{}/", serve_at_most(1000));
    let load = echo(100.0, Some(1900.0));
    let report = report(plan(vec![endpoint(&url, 8)], load, 1500));
    assert_behind(&report, 1000.0);
}

/// A rate counts as reached despite a constant delay, or a stall after which the server catches up.
#[test]
fn a_rate_that_is_kept_up_with_is_reached() {
    let began = now();
    let url = |delay: fn(Duration) -> Duration| {
        let address = serve_websocket(move |mut websocket| {
            while let Some((kind, data)) = websocket.message() {
                thread::sleep(delay(now().duration_since(began)));
                websocket.send(kind, &data);
            }
        });
        format!("ws://{address}/")
    };
    at_once(
        [
            url(|_| Duration::ZERO),
            url(|_| Duration::from_millis(80)),
            url(|at| Duration::from_millis(300).saturating_sub(at)),
        ],
        |url| {
            let report = report(plan(vec![endpoint(&url, 40)], echo(200.0, None), 1000));
            assert_clean(&report);
            let messages = &report.messages;
            assert_eq!((messages.sent, messages.received), (200, 200));
            assert_eq!(messages.rate_reached, Some(true), "{messages:?}");
        },
    );
}
