//! Tests disks that fill up or fail during publications, bans and startup.

use std::thread;

use rustix::process::Signal;
use serde_json::json;

use super::disk::{FSYNC_FAILS, FULL, OnDisk, Unsynced, WRITE_FAILS};
use super::{Answered, history, is_let_in};
use crate::support::http::Http;
use crate::support::metrics::Metrics;
use crate::support::{call, process, until};

const CHANNEL: &str = "chat:0";

fn is_failing(on: &OnDisk) -> bool {
    let metrics = Metrics::scrape(on.server.internal);
    metrics.sum("veche_history_disk_failing", &[]) == 1.0
}

/// Kills the server process and waits for another one.
fn kill(on: &OnDisk) {
    let old = on.server.pid();
    process::kill(old, Signal::KILL);
    until("another server process", || {
        let is_ready = |status: serde_json::Value| status["state"] == "ready";
        on.server.try_pid().is_some_and(|pid| pid != old)
            && on.server.status().is_some_and(is_ready)
    });
}

#[test]
fn a_full_disk_loses_nothing_that_was_answered_over_a_kill_and_a_start() {
    let Some(mut on) = OnDisk::start("1s", 0) else {
        return;
    };
    let mut answered = Answered::default();
    let mut http = Http::connect(on.server.internal);
    for number in 1..=50 {
        assert!(answered.publish(&mut http, CHANNEL, number));
    }
    on.begin(FULL);
    thread::scope(|scope| {
        // The next publication waits for room on the disk and never gets a response, because the server process is
        // killed.
        let waiting = scope.spawn(|| {
            (51..)
                .take_while(|number| answered.publish(&mut http, CHANNEL, *number))
                .count()
        });
        until("writing to fail", || is_failing(&on));
        let block = json!({ "user": "eve" });
        let refused = call(on.server.internal, "block_user", &block);
        assert_eq!(refused["error"]["code"], 100, "{refused}");
        assert!(!is_let_in(&on.server, "eve"), "it is in force all the same");
        kill(&on);
        waiting.join().expect("it ends");
    });
    // A server that starts on a full disk serves existing data, and defers new writes.
    history(&on.server, CHANNEL).check_has_all(&answered, CHANNEL);
    let passing = json!({ "channel": CHANNEL, "data": 0, "skip_history": true });
    let passing = call(on.server.internal, "publish", &passing);
    assert_eq!(passing["result"], json!({ "handed": 0 }));
    on.server.stop();
    on.start_again(0);
    history(&on.server, CHANNEL).check_has_all(&answered, CHANNEL);
    on.end(FULL);
    let block = json!({ "user": "eve" });
    let blocked = call(on.server.internal, "block_user", &block);
    assert_eq!(blocked["result"], json!({ "disconnected": 0 }));
    let mut http = Http::connect(on.server.internal);
    assert!(answered.publish(&mut http, CHANNEL, 1_000_000));
    kill(&on);
    history(&on.server, CHANNEL).check_has_all(&answered, CHANNEL);
    assert!(!is_let_in(&on.server, "eve"));
}

/// Random faults, with a power cut at the end: acknowledged data is preserved.
#[test]
fn a_disk_with_errors_loses_nothing_that_was_answered() {
    for fault in [WRITE_FAILS, FSYNC_FAILS] {
        let Some(mut on) = OnDisk::start("commit", 0) else {
            return;
        };
        let mut answered = Answered::default();
        thread::scope(|scope| {
            let publisher = scope.spawn(|| {
                let mut http = Http::connect(on.server.internal);
                (1..)
                    .take_while(|number| answered.publish(&mut http, CHANNEL, *number))
                    .count()
            });
            for _ in 0..3 {
                on.begin(fault);
                until("it to fail", || is_failing(&on));
                on.end(fault);
                until("it to work", || !is_failing(&on));
            }
            on.halt();
            publisher.join().expect("it ends");
        });
        on.lose_power(Unsynced::Gone);
        on.start_again(0);
        let history = history(&on.server, CHANNEL);
        println!("{fault}: {} were answered", answered.offsets.len());
        history.check_has_all(&answered, CHANNEL);
        history.check_is_whole(CHANNEL);
        assert_eq!(
            history.epoch,
            answered.epoch,
            "{fault}: {}",
            on.server.log()
        );
    }
}
