//! Tests the supervisor with real processes, signals and sockets: a server process that dies, hangs, exits or rejects a
//! configuration, and misbehaving clients of the control socket.
//!
//! The server process is real. It is made to misbehave from outside: killed, frozen, starved of descriptors, or with a
//! folder removed between two checks of a configuration.

#[path = "support/mod.rs"]
mod support;

#[path = "supervisor/ask.rs"]
mod ask;
#[path = "supervisor/hang.rs"]
mod hang;
#[path = "supervisor/logs.rs"]
mod logs;
#[path = "supervisor/notify.rs"]
mod notify;
#[path = "supervisor/orphans.rs"]
mod orphans;
#[path = "supervisor/restart.rs"]
mod restart;
#[path = "supervisor/secrets.rs"]
mod secrets;
#[path = "supervisor/services.rs"]
mod services;
#[path = "supervisor/stored.rs"]
mod stored;
#[path = "supervisor/upgrade.rs"]
mod upgrade;
#[path = "supervisor/veche.rs"]
mod veche;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::ask::{RELOAD, STOP, STOP_NOW, ask};
use crate::support::process::{is_alive, kill};
use crate::support::{SOON, now, until};
use crate::veche::Veche;

/// The exit codes of `veche serve`.
const REFUSED_BY_SYSTEM: Option<i32> = Some(5);
const KILLED: Option<i32> = Some(7);

#[test]
fn status_tells_what_runs() {
    let veche = Veche::start("status", "");
    let status = veche.status();
    assert_eq!(status["state"], "ready");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["supervisor"]["pid"], veche.pid());
    assert_eq!(status["restarts"], 0);
    assert!(status["last_exit"].is_null());
    assert_eq!(status["listeners"][0]["role"], "public");
    assert!(status["listeners"][0]["sockets"].as_u64() >= Some(2));
    assert_eq!(status["report"]["workers"], 2);
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert_eq!(status["descriptors_max"].as_u64(), limits.maximum);
    let inherited = fs::read_to_string(format!("/proc/{}/limits", veche.server_pid()));
    let inherited = inherited.expect("it runs");
    let files = inherited
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = files.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    assert_eq!(soft, limits.maximum, "the server inherits the limit");
    assert!(veche.is_answering().expect("an answer"));
}

/// Kills the server process twice, the first time within five seconds of the start and thus with
/// the shortest backoff. No connection is refused.
#[test]
fn killing_the_server_refuses_no_connection() {
    let veche = Arc::new(Veche::start("kill", ""));
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (veche, done) = (Arc::clone(&veche), Arc::clone(&done));
            thread::spawn(move || {
                let mut connects = 0;
                while !done.load(Ordering::Relaxed) {
                    // A refused connection is a failure, but a connection to a killed server may be reset.
                    let mut client = veche.connect().expect("no connection is refused");
                    let _ = client
                        .write_all(veche::REQUEST)
                        .and_then(|()| client.read_to_string(&mut String::new()));
                    connects += 1;
                }
                connects
            })
        })
        .collect();
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(300));
        let old = veche.server_pid();
        kill(old, Signal::KILL);
        let killed = now();
        veche.await_another_than(old);
        let took = now() - killed;
        assert!(
            took < Duration::from_secs(1),
            "answered again after {took:?}"
        );
    }
    done.store(true, Ordering::Relaxed);
    let connects: usize = clients
        .into_iter()
        .map(|client| client.join().expect("no connection was refused"))
        .sum();
    assert!(
        connects > 20,
        "only {connects} connects: the test tested nothing"
    );
    let status = veche.status();
    assert_eq!(status["restarts"], 2);
    assert_eq!(status["last_exit"]["how"], "signal 9 (SIGKILL)");
}

#[test]
fn a_crash_loop_backs_off_and_does_not_spin() {
    let veche = Veche::start("crash", "");
    let end = now() + Duration::from_secs(3);
    while now() < end {
        if let Some(pid) = veche.child() {
            kill(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
    let status = veche.status();
    let restarts = status["restarts"].as_u64().expect("a number");
    // The delays between restarts are 0.2, 0.4, 0.8 and 1.6 s.
    assert!(
        (3..=4).contains(&restarts),
        "{restarts} restarts in three seconds"
    );
    assert_eq!(status["last_exit"]["how"], "signal 9 (SIGKILL)");
    let ticks = veche.cpu_ticks();
    assert!(
        ticks <= 15,
        "the supervisor took {ticks} hundredths of a second"
    );
    veche.await_status("the end of the loop", |status| status["state"] == "ready");
    assert!(veche.is_answering().expect("an answer"));
}

#[test]
fn sigterm_drains() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut veche = Veche::start("drain", "drain_time = \"500ms\"");
        let mut client = veche.open();
        veche.signal(signal);
        assert_eq!(client.closed(), 1001);
        assert_eq!(veche.exit_code(), Some(0));
        assert!(veche.log().contains("draining"));
        assert!(!veche.control().exists());
    }
}

/// With a time limit of zero, connections are cut off at once, but only after they were closed with a code.
#[test]
fn a_drain_without_time_closes_with_a_code() {
    for _ in 0..10 {
        let mut veche = Veche::start("drain-zero", "drain_time = \"0\"");
        let mut clients = [veche.open(), veche.open(), veche.open()];
        let asked = now();
        veche.signal(Signal::TERM);
        for client in &mut clients {
            assert_eq!(client.closed(), 1001);
        }
        assert_eq!(veche.exit_code(), Some(0));
        assert!(now() - asked < Duration::from_secs(1));
    }
}

/// A SIGTERM during the start of the server process is not lost.
#[test]
fn sigterm_right_after_the_start_drains() {
    for delay_ms in [20, 22, 25, 30, 40] {
        let mut veche = Veche::prepare("early", "drain_time = \"1m\"");
        veche.spawn();
        veche.await_log("veche starts");
        thread::sleep(Duration::from_millis(delay_ms - 20));
        veche.signal(Signal::TERM);
        assert_eq!(veche.exit_code(), Some(0));
    }
}

#[test]
fn a_second_sigterm_kills() {
    let mut veche = Veche::start("twice", "drain_time = \"1m\"");
    // The drain lasts a minute, since a client stays connected.
    let _open = veche.open();
    let server = veche.server_pid();
    veche.signal(Signal::TERM);
    veche.await_status("draining", |status| status["state"] == "stopping");
    thread::sleep(Duration::from_millis(200));
    assert!(is_alive(server));
    let second = now();
    veche.signal(Signal::TERM);
    assert_eq!(veche.exit_code(), KILLED);
    assert!(now() - second < Duration::from_secs(1));
    assert!(!is_alive(server));
}

#[test]
fn the_end_of_drain_time_kills_even_a_frozen_server() {
    let mut veche = Veche::start("frozen", "drain_time = \"300ms\"");
    let server = veche.server_pid();
    veche::freeze(server);
    let start = now();
    veche.signal(Signal::TERM);
    assert_eq!(veche.exit_code(), KILLED);
    let took = now() - start;
    assert!(
        (Duration::from_millis(300)..Duration::from_secs(2)).contains(&took),
        "{took:?}"
    );
    assert!(!is_alive(server));
}

#[test]
fn sighup_puts_a_good_config_in_force() {
    let veche = Veche::start("hup", "connections = 100");
    let server = veche.server_pid();
    let mut client = veche.open();
    assert_eq!(veche.status()["report"]["connections_max"], 100);
    veche.write_config("connections = 200", "workers = 3");
    veche.signal(Signal::HUP);
    veche.await_status("the new config", |status| {
        status["report"]["connections_max"] == 200
    });
    assert_eq!(veche.server_pid(), server);
    assert!(client.is_alive(), "the connection stayed");
    veche.await_log("requires a restart");
    let log = veche.log();
    assert!(
        log.contains("workers") && log.contains("requires a restart"),
        "{log}"
    );
    assert_eq!(veche.status()["report"]["workers"], 2);

    // A new server process has the new configuration, except for values that need a restart of the supervisor.
    kill(server, Signal::KILL);
    veche.await_another_than(server);
    let report = &veche.status()["report"];
    assert_eq!(report["connections_max"], 200);
    assert_eq!(report["workers"], 2);
}

#[test]
fn sighup_with_a_bad_config_changes_nothing() {
    let veche = Veche::start("bad", "connections = 100");
    let server = veche.server_pid();
    veche.write_config(
        "connections = 200\nconections_per_adress = 3\nidle_timeout = \"soon\"",
        "",
    );
    veche.signal(Signal::HUP);
    veche.await_log("the current config stays in force");
    let log = veche.log();
    assert!(
        log.contains("conections_per_adress") && log.contains("idle_timeout"),
        "all of them: {log}"
    );
    let status = veche.status();
    assert_eq!(status["server"]["pid"], server);
    assert_eq!(status["report"]["connections_max"], 100);
    let refused = ask(&veche.control(), RELOAD).expect_err("still bad");
    assert!(
        refused.contains("conections_per_adress") && refused.contains("idle_timeout"),
        "{refused}"
    );
}

/// A folder in the configuration exists when the supervisor checks the configuration, but no longer
/// when the server process does.
#[test]
fn what_the_server_refuses_is_not_in_force() {
    let veche = Veche::start("refuse", "connections = 100");
    let old = veche.server_pid();
    let site = veche.folder().join("site");
    fs::create_dir(&site).expect("a folder");
    let root = "[[route]]\npath = \"/site/*\"\nhandler = \"static\"\nroot = \"site\"";
    veche.write_config(&format!("connections = 200\n{root}"), "");
    veche::freeze(old);
    let refused = thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&veche.control(), RELOAD));
        thread::sleep(Duration::from_millis(300));
        fs::remove_dir(&site).expect("empty");
        kill(old, Signal::CONT);
        asking.join().expect("no panic").expect_err("refused")
    });
    assert!(
        refused.contains("the server process refused the configuration")
            && refused.contains("does not exist"),
        "{refused}"
    );
    kill(old, Signal::KILL);
    veche.await_another_than(old);
    assert_eq!(veche.status()["report"]["connections_max"], 100);
    fs::create_dir(&site).expect("a folder");
    let answer = ask(&veche.control(), RELOAD).expect("taken");
    assert_eq!(
        answer["changed"].as_array().map(Vec::len),
        Some(2),
        "{answer}"
    );
}

#[test]
fn without_supervisor_the_server_drains_and_another_can_start() {
    let mut veche = Veche::start("orphan", "drain_time = \"500ms\"");
    let server = veche.server_pid();
    let mut client = veche.open();
    let address = veche.address();
    veche.kill_supervisor();
    assert_eq!(client.closed(), 1001);
    until("the server to exit", || !is_alive(server));
    assert!(
        veche.control().exists(),
        "a stale control socket is what this is about"
    );
    veche.set_address(address);
    veche.start_again();
    assert_eq!(veche.address(), address);
    assert!(veche.is_answering().expect("an answer"));
}

#[test]
fn a_second_start_is_one_clear_line() {
    let veche = Veche::start("double", "");
    let output = veche
        .command()
        .stderr(Stdio::piped())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), REFUSED_BY_SYSTEM);
    let error = String::from_utf8_lossy(&output.stderr);
    let line = error
        .lines()
        .find(|line| line.starts_with("veche: "))
        .expect("an error");
    assert!(line.contains("already running"), "{line}");
    assert_eq!(veche.status()["restarts"], 0);
}

#[test]
fn a_server_that_says_why_it_cannot_start_ends_the_first_start() {
    let veche = Veche::prepare("fail", "");
    veche.write_config("", "workers = 24");
    // The limit of descriptors is sufficient for the supervisor's sockets, but not for 24 workers.
    let serve = veche.command();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]);
    shell.arg(serve.get_program()).args(serve.get_args());
    let output = shell.stdin(Stdio::null()).output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), REFUSED_BY_SYSTEM, "{printed}");
    assert!(
        printed.contains("veche: can't start a worker: "),
        "{printed}"
    );
}

#[test]
fn signals_from_the_terminal_do_not_reach_through_to_the_server() {
    let veche = Veche::start("terminal", "");
    let server = veche.server_pid();
    for signal in [Signal::INT, Signal::HUP, Signal::USR2] {
        kill(server, signal);
    }
    thread::sleep(Duration::from_millis(200));
    assert!(veche.is_answering().expect("it lives"));
    assert_eq!(veche.server_pid(), server);
    // A server process that receives SIGTERM directly drains and is replaced.
    kill(server, Signal::TERM);
    veche.await_another_than(server);
    veche.await_status("another", |status| {
        status["last_exit"]["how"] == "exit code 0"
    });
}

#[test]
fn bad_clients_of_the_control_socket_block_nothing() {
    let veche = Veche::start("clients", "");
    let mut bad: Vec<UnixStream> = Vec::new();
    for i in 0..20 {
        let mut client = UnixStream::connect(veche.control()).expect("connected");
        match i % 4 {
            0 => {}
            1 => client.write_all(b"{\"version\":1,").expect("sent"),
            2 => client.write_all(&[b'x'; 8192]).expect("sent"),
            _ => client.write_all(b"\xff\x00garbage\n").expect("sent"),
        }
        bad.push(client);
    }
    let asked = now();
    assert_eq!(veche.status()["state"], "ready");
    assert!(now() - asked < Duration::from_secs(1));
    let mut answer = String::new();
    bad.pop()
        .expect("the last")
        .read_to_string(&mut answer)
        .expect("answered");
    assert!(
        answer.contains("\"ok\":false") && answer.contains("invalid request"),
        "{answer}"
    );
    // 40 silent clients reach the limit of control clients. They time out, and then other clients are accepted.
    let more: Vec<_> = (0..40)
        .map(|_| UnixStream::connect(veche.control()).expect("queued"))
        .collect();
    thread::sleep(Duration::from_millis(100));
    let ticks = veche.cpu_ticks();
    assert_eq!(veche.status()["state"], "ready");
    assert!(now() - asked < Duration::from_secs(12));
    assert!(veche.cpu_ticks() - ticks < 10, "a full crowd must not spin");
    drop(more);

    let mut raw = UnixStream::connect(veche.control()).expect("connected");
    raw.write_all(b"{\"version\":7,\"command\":\"status\"}\n")
        .expect("sent");
    let mut answer = String::new();
    raw.read_to_string(&mut answer).expect("answered");
    assert!(answer.contains("version 7"), "{answer}");
}

#[test]
fn a_frozen_server_does_not_freeze_status() {
    let veche = Veche::start("slow", "");
    veche::freeze(veche.server_pid());
    let asked = now();
    let status = veche.status();
    let took = now() - asked;
    assert!(
        (Duration::from_millis(400)..Duration::from_millis(1500)).contains(&took),
        "{took:?}"
    );
    assert!(status["report"].is_null());
    assert!(
        status["report_error"]
            .as_str()
            .expect("why")
            .contains("no response")
    );
    kill(veche.server_pid(), Signal::CONT);
    assert_eq!(veche.status()["report"]["workers"], 2);
}

#[test]
fn stop_waits_for_the_end_and_stop_now_kills() {
    let mut veche = Veche::start("stop", "");
    ask(&veche.control(), STOP).expect("stopped");
    assert!(!veche.control().exists());
    assert_eq!(veche.exit_code(), Some(0));

    let mut veche = Veche::start("stop-now", "drain_time = \"1m\"");
    let _open = veche.open();
    let asked = now();
    ask(&veche.control(), STOP_NOW).expect("stopped");
    assert!(now() - asked < SOON);
    assert_eq!(veche.exit_code(), KILLED);
}

#[test]
fn logs_can_move_to_a_file_as_json() {
    let veche = Veche::start("logs", "");
    let file = veche.folder().join("veche.log");
    veche.write_config(
        "",
        &format!(
            "log_format = \"json\"\nlog_file = {:?}",
            file.display().to_string()
        ),
    );
    ask(&veche.control(), RELOAD).expect("taken");
    kill(veche.server_pid(), Signal::KILL);
    until("lines of both processes", || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.contains("the server process died") && text.contains("workers are up")
    });
    for line in fs::read_to_string(&file).expect("text").lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(
            line["level"].is_string() && line["timestamp"].is_string(),
            "{line}"
        );
    }
    let nowhere = veche.folder().join("nowhere/veche.log");
    veche.write_config(
        "",
        &format!("log_file = {:?}", nowhere.display().to_string()),
    );
    let refused = ask(&veche.control(), RELOAD).expect_err("refused");
    assert!(refused.contains("nowhere"), "{refused}");
}
