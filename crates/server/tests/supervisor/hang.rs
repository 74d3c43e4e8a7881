//! Tests server processes that hang, entirely or with one worker, and late responses.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;

use crate::ask::{RELOAD, ask};
use crate::support::process::kill;
use crate::support::{now, skip};
use crate::veche::{Veche, freeze};

#[test]
fn an_abandoned_reload_does_not_apply_later() {
    let veche = Veche::start("late", "");
    let server = veche.server_pid();
    freeze(server);
    veche.write_config("ping_interval = \"7s\"", "");
    let refused = ask(&veche.control(), RELOAD).expect_err("a timeout");
    assert!(
        refused.contains("has not responded within 10s"),
        "{refused}"
    );
    kill(server, Signal::CONT);
    veche.await_log("reload timed out is not in force");
    assert!(!veche.log().contains("the new config is in force"));
    // Neither supervisor nor server process has applied the changed configuration, so a reload
    // reports the change.
    let answer = ask(&veche.control(), RELOAD).expect("it is put in force");
    assert_eq!(
        answer["changed"],
        serde_json::json!(["limits.ping_interval"])
    );
    assert_eq!(veche.server_pid(), server);
}

#[test]
fn a_process_that_hangs_is_replaced() {
    let veche = Veche::start("hang", "watchdog_timeout = \"1s\"");
    let server = veche.server_pid();
    freeze(server);
    veche.await_another_than(server);
    let log = veche.log();
    assert!(
        log.contains("the server process hangs: no response for 1s; killing it"),
        "{log}"
    );
    let how = veche.status()["last_exit"]["how"].to_string();
    assert!(
        how.contains("SIGKILL") && how.contains("no response for"),
        "{how}"
    );
}

#[test]
fn without_a_watchdog_a_process_may_hang() {
    let veche = Veche::start("unwatched", "watchdog_timeout = \"1s\"");
    let server = veche.server_pid();
    veche.write_config("watchdog_timeout = \"off\"", "");
    ask(&veche.control(), RELOAD).expect("it is put in force");
    freeze(server);
    thread::sleep(Duration::from_secs(3));
    kill(server, Signal::CONT);
    assert_eq!(veche.server_pid(), server);
    // A reload turns the watchdog on again for the same process.
    veche.write_config("watchdog_timeout = \"1s\"", "");
    ask(&veche.control(), RELOAD).expect("it is put in force");
    freeze(server);
    veche.await_another_than(server);
}

/// A debugger stops the worker's thread, within a turn if it is busy; the rest of the process continues.
#[test]
fn a_worker_that_hangs_is_named_and_its_process_replaced() {
    const STOPS: u32 = 60;
    let mut veche = Veche::prepare("stuck", "watchdog_timeout = \"1s\"");
    veche.write_config("watchdog_timeout = \"1s\"", "workers = 1");
    veche.start_again();
    let server = veche.server_pid();
    if ptrace::attach(worker_of(server)) == Err(Errno::EPERM) {
        return skip("this machine does not let a test debug a process");
    }
    waitpid(worker_of(server), Some(WaitPidFlag::__WALL)).expect("it stops");
    ptrace::detach(worker_of(server), None).expect("it is stopped");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| keep_busy(&veche, &is_over));
        let is_replaced = (0..STOPS).any(|_| stop_worker(&veche, worker_of(server)));
        is_over.store(true, Relaxed);
        assert!(is_replaced, "never stopped in the middle of a turn");
    });
    veche.await_another_than(server);
    let log = veche.log();
    let why = "the server process hangs: worker 0 has been in one iteration of its event loop for 1s, in step ";
    assert!(log.contains(why), "{log}");
}

/// Stops the worker for a while. Returns whether the process was killed. It is not killed if the
/// worker was stopped between two turns, while it waited for events.
fn stop_worker(veche: &Veche, worker: Pid) -> bool {
    let all = Some(WaitPidFlag::__WALL);
    ptrace::seize(worker, ptrace::Options::empty()).expect("a process of ours");
    ptrace::interrupt(worker).expect("it is seized");
    waitpid(worker, all).expect("it stops");
    let until = now() + Duration::from_secs(3);
    while now() < until {
        if veche.log().contains("hangs") {
            // The exit of a traced process is reported to its tracer first. Until then no other process could reap it.
            waitpid(worker, all).expect("it is killed");
            return true;
        }
        thread::sleep(Duration::from_millis(50));
    }
    ptrace::detach(worker, None).expect("it is stopped");
    false
}

/// Returns the thread of the only worker.
fn worker_of(server: u32) -> Pid {
    let threads = fs::read_dir(format!("/proc/{server}/task")).expect("it runs");
    let worker = threads
        .map(|thread| thread.expect("it runs"))
        .find(|thread| {
            fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name == "worker 0\n")
        });
    let name = worker.expect("it has a worker").file_name();
    Pid::from_raw(
        name.to_str()
            .and_then(|name| name.parse().ok())
            .expect("a number"),
    )
}

/// Sends more requests than the worker can answer, until `is_over` is set or the connection ends.
fn keep_busy(veche: &Veche, is_over: &AtomicBool) {
    let requests = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    let mut client = veche.connect().expect("it listens");
    client
        .set_write_timeout(Some(Duration::from_millis(100)))
        .expect("a socket");
    let mut answers = client.try_clone().expect("a socket");
    thread::scope(|scope| {
        scope.spawn(move || {
            while answers
                .read(&mut [0; 1 << 16])
                .is_ok_and(|length| length > 0)
            {}
        });
        while !is_over.load(Relaxed) {
            match client.write(&requests) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
    });
}
