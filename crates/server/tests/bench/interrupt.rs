//! Tests that Ctrl-C ends a run, and that the report of the run is still written.

use std::process::Child;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::server::Server;
use crate::support::{SOON, Setup, now, process};
use crate::{Outcome, known, serve, silence, spawn};

/// Interrupts the tester after a while and asserts that it ends soon.
fn interrupt(mut tester: Child) -> Outcome {
    thread::sleep(Duration::from_millis(500));
    assert_eq!(tester.try_wait().expect("a child of ours"), None, "it runs");
    process::kill(tester.id(), Signal::INT);
    let deadline = now() + SOON;
    while tester.try_wait().expect("a child of ours").is_none() {
        if now() > deadline {
            let _ = tester.kill();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
    tester.wait_with_output().expect("a child of ours").into()
}

#[test]
fn a_run_still_reports() {
    let server = Server::start(Setup {
        io: "epoll",
        workers: 1,
    });
    let echo = format!("ws://{}/echo", server.public);
    let page = format!("http://{}/", server.public);
    let news = format!("ws://{}/ws?user=u{{i}}&channel=news", server.public);
    let push = format!("tcp://{}", server.push);
    let long = ["--duration", "60s", "--warmup", "0s"];
    let body = r#"{"channel":"news","data":"{data}"}"#;
    // A storm measures while it opens connections. If it is interrupted while it holds them, the
    // measurement is complete, so the run does not count as interrupted.
    for (arguments, interrupted) in [
        (&["echo", &echo][..], true),
        (&["echo", &echo, "--processes", "2"], true),
        (&["http", &page], true),
        (
            &["broadcast", &news, "--publish", &push, "--body", body],
            true,
        ),
        (&["storm", &echo, "--hold", "60s"], false),
    ] {
        let long: &[&str] = if interrupted { &long } else { &[] };
        let outcome = interrupt(spawn(&[arguments, &["-n", "5"], long].concat()));
        let code = if interrupted { 130 } else { 0 };
        assert_eq!(outcome.code, Some(code), "{outcome:#?}");
        assert_eq!(outcome.stderr.contains("partial"), interrupted);
        assert_eq!(outcome.at("/interrupted"), &Value::Bool(interrupted));
        assert!(outcome.count("/messages/received") > 0, "{outcome:#?}");
        assert_eq!(
            outcome.count("/connections/opened"),
            outcome.count("/connections/asked")
        );
        let seconds = outcome.at("/seconds").as_f64().expect("a time");
        assert!(
            seconds < 30.0,
            "what was planned is not what was measured: {seconds}"
        );
    }
}

#[test]
fn so_does_one_that_is_still_connecting() {
    let silent = serve(silence);
    let url = format!("ws://{silent}/");
    let push = format!("tcp://{silent}");
    let long = ["-n", "5", "--timeout", "60s"];
    for arguments in [
        &["echo", &url, "--duration", "60s"][..],
        &["storm", &url],
        &["broadcast", &url, "--publish", &push, "--duration", "60s"],
    ] {
        let outcome = interrupt(spawn(&[arguments, &long].concat()));
        assert_eq!(
            outcome.at("/interrupted"),
            &Value::Bool(true),
            "{outcome:#?}"
        );
        known::row(
            arguments[0],
            "never answers the handshake, and Ctrl-C is pressed",
            &[
                ("received", 0, outcome.count("/messages/received")),
                ("exit code", 130, outcome.code.unwrap_or(0) as u64),
            ],
        );
        assert_eq!(outcome.code, Some(130), "{outcome:#?}");
    }
}
