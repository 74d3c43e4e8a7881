//! Tests that the load tester hides secrets, reports its own pauses, and needs little memory if a server does not read.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::known::serve_websocket;
use crate::support::process;
use crate::{Outcome, bench, known, spawn};

#[test]
fn reports_hold_no_secrets() {
    let address = serve_websocket(known::WebSocket::echo);
    let url = format!("ws://{address}/");
    let page = std::env::temp_dir().join(format!("veche-secrets-{}.html", std::process::id()));
    let shown = page.to_str().expect("UTF-8");
    let common = [
        "-n",
        "1",
        "--duration",
        "50ms",
        "--warmup",
        "0s",
        "--html",
        shown,
    ];
    for secret in [
        &["-H", "Authorization: Bearer hunter2"][..],
        &["-HX-Api-Key: hunter2"],
        &["--header", "X-Token:hunter2"],
        &["--header=Cookie: a=hunter2"],
        &["--cookie", "sid=hunter2"],
        &["--cookie=sid=hunter2"],
    ] {
        let outcome = bench(&[&["echo", &url][..], secret, &common].concat());
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        let json = outcome.report.expect("a report").to_string();
        let html = fs::read_to_string(&page).expect("a page");
        for report in [json, html] {
            assert!(!report.contains("hunter2"), "{secret:?}: {report}");
            assert!(report.contains("***"), "{secret:?}: {report}");
        }
    }
    let _ = fs::remove_file(&page);
}

/// A closed loop sends nothing while the tester is stopped, which is not the server's fault.
#[test]
fn a_paused_tester_is_reported() {
    let address = serve_websocket(known::WebSocket::echo);
    let url = format!("ws://{address}/");
    let tester = spawn(&[
        "echo",
        &url,
        "-n",
        "4",
        "--duration",
        "3s",
        "--warmup",
        "0s",
    ]);
    thread::sleep(Duration::from_millis(1000));
    process::kill(tester.id(), Signal::STOP);
    thread::sleep(Duration::from_millis(1000));
    process::kill(tester.id(), Signal::CONT);
    let outcome: Outcome = tester.wait_with_output().expect("a child of ours").into();
    let paused_us = outcome
        .at("/generator/pause_us_max")
        .as_f64()
        .expect("a time");
    assert!((900e3..2_000e3).contains(&paused_us), "{outcome:#?}");
    known::row(
        "echo",
        "is fast, and the tester is stopped for 1 s (SIGSTOP)",
        &[(
            "whole seconds without the tester",
            1,
            ((paused_us + 100e3) / 1e6) as u64,
        )],
    );
    assert_eq!(outcome.at("/generator/bottleneck"), &Value::Bool(true));
    let reasons = outcome.at("/generator/reasons").to_string();
    assert!(reasons.contains("did not run for"), "{reasons}");
}

/// Due messages wait in the schedule, not in memory, and are reported as unanswered.
#[test]
fn a_server_that_does_not_read_fills_no_memory() {
    let address = serve_websocket(|websocket| {
        // The server keeps the connection and stops reading.
        thread::sleep(Duration::from_secs(30));
        drop(websocket);
    });
    let url = format!("ws://{address}/");
    let mut tester = spawn(&[
        "echo",
        &url,
        "-n",
        "2",
        "--size",
        "64KiB",
        "--rate",
        "4000",
        "--duration",
        "2s",
        "--warmup",
        "0s",
        "--timeout",
        "1s",
    ]);
    let mut most_kib: u64 = 0;
    while tester.try_wait().expect("a child of ours").is_none() {
        let status =
            fs::read_to_string(format!("/proc/{}/status", tester.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        most_kib = most_kib.max(kib.unwrap_or(0));
        thread::sleep(Duration::from_millis(20));
    }
    let outcome: Outcome = tester.wait_with_output().expect("a child of ours").into();
    assert!(most_kib < 100 * 1024, "{most_kib} KiB");
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    known::row(
        "echo",
        "reads nothing behind the handshake; 4,000 messages of 64 KiB a second are due for 2 s",
        &[
            ("received", 0, outcome.count("/messages/received")),
            ("unanswered", 8000, outcome.count("/messages/unanswered")),
        ],
    );
    assert_eq!(outcome.count("/messages/received"), 0);
    assert_eq!(outcome.count("/messages/unanswered"), 8000, "{outcome:#?}");
    let unsent = outcome.count("/generator/unsent_bytes_max");
    assert!((1 << 20..4 << 20).contains(&unsent), "{outcome:#?}");
}
