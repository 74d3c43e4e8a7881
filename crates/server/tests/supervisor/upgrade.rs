//! Upgrades of the running server: the new program takes over, or the old one continues unaffected.
//!
//! The new program is always a copy of the running program in a new file, since the steps are the same for any
//! version. Bad programs are shell scripts.
//!
//! `VECHE_UPGRADES` and `VECHE_KILLS` set the numbers of upgrades and kills under load; by default they are small.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::ask::{RELOAD, STATUS, STOP, UPGRADE, ask};
use crate::support::process::{is_alive, kill};
use crate::support::{Seen, now, until};
use crate::veche::{self, Veche};

const DRAIN: &str = "drain_time = \"1s\"\nupgrade_drain_time = \"1s\"";

/// Starts a server whose program can be replaced.
pub(crate) fn start(name: &str, limits: &str) -> Veche {
    let mut veche = Veche::prepare(name, limits);
    veche.install();
    veche.start_again();
    veche
}

fn upgrade(veche: &Veche) -> Result<Value, String> {
    let answer = ask(&veche.control(), UPGRADE)?;
    // The supervisor is about to be replaced, so a request to it may be cut off.
    veche.await_status("ready", |status| status["state"] == "ready");
    Ok(answer)
}

fn times(name: &str, default: usize) -> usize {
    let times = std::env::var(name).ok();
    times.map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn an_upgrade_replaces_both_processes_without_refusing_connections() {
    let veche = start("upgrade", DRAIN);
    let (pid, old) = (veche.pid(), veche.server_pid());
    let mut session = veche.open();
    veche.install();
    let exe = || fs::read_link(format!("/proc/{pid}/exe")).expect("it runs");
    assert!(exe().display().to_string().ends_with("(deleted)"));

    let answer = upgrade(&veche).expect("upgraded");
    assert_eq!(answer["old_pid"], old);
    assert_eq!(answer["to"], env!("CARGO_PKG_VERSION"));
    let new = veche.server_pid();
    assert_ne!(new, old);
    assert_eq!(answer["pid"], new);
    assert_eq!(exe(), veche.program(), "the supervisor runs the new file");
    let is_restart =
        |seen| matches!(seen, Seen::Close(Some(1012), reason) if reason == "server is restarting");
    assert!(is_restart(session.next()));
    let mut later = veche.open();
    until("the old server process to end", || !is_alive(old));

    let status = veche.status();
    assert_eq!(status["supervisor"]["pid"], pid);
    assert_eq!(
        (&status["upgrades"], &status["restarts"]),
        (&1.into(), &0.into())
    );
    until("no process to drain", || {
        veche.status()["draining"] == Value::Array(Vec::new())
    });
    assert!(later.is_alive());

    // The supervisor works as before: it reloads, restarts processes, and stops.
    ask(&veche.control(), RELOAD).expect("in force");
    kill(new, Signal::KILL);
    let revived = veche.await_another_than(new);
    assert_eq!(veche.status()["restarts"], 1);
    veche.signal(Signal::USR2);
    veche.await_another_than(revived);
    ask(&veche.control(), STOP).expect("stopped");
    let mut veche = veche;
    assert_eq!(veche.exit_code(), Some(0));
    assert!(!veche.control().exists());
}

#[test]
fn what_takes_a_restart_comes_with_an_upgrade() {
    let veche = start("upgrade-config", DRAIN);
    assert_eq!(veche.status()["report"]["workers"], 2);
    veche.write_config(&format!("{DRAIN}\nconnections = 100"), "workers = 1");
    upgrade(&veche).expect("upgraded");
    assert_eq!(veche.status()["report"]["workers"], 1);
    let answer = ask(&veche.control(), RELOAD).expect("in force");
    assert_eq!(answer["needs_restart"], Value::Array(Vec::new()));
    assert_eq!(answer["changed"], Value::Array(Vec::new()));
}

#[test]
fn a_program_that_is_no_good_changes_nothing() {
    let veche = start("upgrade-bad", DRAIN);
    let old = veche.server_pid();
    let mut session = veche.open();
    let mut refused = |what: &str, expected: &str| {
        let error = upgrade(&veche).expect_err(what);
        assert!(error.contains(expected), "{what}: {error}");
        let status = veche.status();
        assert_eq!(status["server"]["pid"], old, "{what}");
        assert_eq!(status["upgrades"], 0, "{what}");
        assert!(session.is_alive(), "{what}");
        assert!(veche.is_answering().expect("an answer"), "{what}");
    };
    veche.install_script("exit 3");
    refused(
        "a program that ends",
        "the new server process died: exit code 3",
    );
    veche.install_script("kill -SEGV $$");
    refused("a program that crashes", "signal 11 (SIGSEGV)");
    veche.install_script(
        r#"echo '{"ready":{"version":1,"program":"9.9","handover":999999}}' >&0; sleep 60"#,
    );
    refused("another kind of handover", "veche 9.9 can't take over");
    let half = "test \"$1\" = server-process && exec PROGRAM \"$@\"; exit 7";
    veche.install_script(&half.replace("PROGRAM", env!("CARGO_BIN_EXE_veche")));
    refused(
        "no supervisor",
        "the new program can't run as the supervisor: exit status: 7",
    );
    veche.install_text("no program at all");
    refused("no program", "xec format error");
    fs::remove_file(veche.program()).expect("removed");
    refused("no file", "No such file");

    veche.install();
    veche.write_config("drain_time = \"x\"", "");
    refused("a bad config", "drain_time");
    let text = fs::read_to_string(veche.folder().join("veche.toml")).expect("a config");
    let text = text.replace("\"x\"", "\"1s\"");
    let moved = text.replace(&veche.address().to_string(), "127.0.0.1:1");
    assert_ne!(moved, text);
    fs::write(veche.folder().join("veche.toml"), moved).expect("written");
    refused("another address", "this needs `veche restart`");
    fs::write(veche.folder().join("veche.toml"), text).expect("written");
    upgrade(&veche).expect("upgraded at last");
}

#[test]
fn one_at_a_time_and_a_stop_ends_it() {
    let mut veche = start("upgrade-stop", DRAIN);
    veche.install_script("sleep 60");
    veche.signal(Signal::USR2);
    veche.await_status("the upgrade to begin", |status| {
        status["state"] == "upgrading"
    });
    for request in [UPGRADE, RELOAD] {
        let error = ask(&veche.control(), request).expect_err("one at a time");
        assert!(error.contains("an upgrade is under way"), "{error}");
    }
    assert!(veche.is_answering().expect("an answer"));
    ask(&veche.control(), STOP).expect("stopped");
    assert_eq!(veche.exit_code(), Some(0));
}

#[test]
fn a_server_that_dies_meanwhile_is_replaced_by_the_new_one() {
    let veche = start("upgrade-dies", DRAIN);
    let old = veche.server_pid();
    veche.install_script(&format!(
        "sleep 1; exec {} \"$@\"",
        env!("CARGO_BIN_EXE_veche")
    ));
    veche.signal(Signal::USR2);
    veche.await_status("the upgrade to begin", |status| {
        status["state"] == "upgrading"
    });
    kill(old, Signal::KILL);
    veche.await_status("the upgrade to end", |status| {
        status["upgrades"] == 1 && status["state"] == "ready"
    });
    assert!(veche.is_answering().expect("an answer"));
    until("one server process", || {
        let pid = veche.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children.is_ok_and(|children| children.split_whitespace().count() == 1)
    });
}

#[test]
fn signals_that_come_in_the_middle_are_obeyed() {
    for round in 0..6 {
        let mut veche = start("upgrade-signals", DRAIN);
        ask(&veche.control(), UPGRADE).expect("upgraded");
        veche.signal(if round % 2 == 0 {
            Signal::HUP
        } else {
            Signal::USR1
        });
        veche.await_log(if round % 2 == 0 {
            "SIGHUP: reloading"
        } else {
            "SIGUSR1: log files reopened"
        });
        veche.await_status("ready", |status| status["state"] == "ready");
        ask(&veche.control(), UPGRADE).expect("upgraded");
        veche.signal(Signal::TERM);
        assert_eq!(veche.exit_code(), Some(0));
    }
}

#[test]
fn server_and_supervisor_run_the_same_program_after_a_death() {
    for _ in 0..4 {
        let veche = start("upgrade-both", DRAIN);
        veche.install();
        let answer = ask(&veche.control(), UPGRADE).expect("upgraded");
        let new = answer["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok());
        kill(new.expect("a pid"), Signal::KILL);
        until("both to be of one program", || {
            let exe = |pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
            let status = ask(&veche.control(), STATUS);
            let server = status
                .ok()
                .and_then(|answer| answer["status"]["server"]["pid"].as_u64());
            server.is_some_and(|server| {
                server != u64::from(new.unwrap_or(0))
                    && exe(server).is_some()
                    && exe(server) == exe(veche.pid().into())
            })
        });
        veche.await_status("ready", |status| status["state"] == "ready");
        assert!(veche.is_answering().expect("an answer"));
    }
}

#[test]
fn a_link_is_followed_to_where_it_leads_by_now() {
    let mut veche = Veche::prepare("upgrade-link", DRAIN);
    let program = veche.program();
    let versions = ["v1", "v2"].map(|name| veche.folder().join(name));
    for version in &versions {
        veche.install();
        fs::rename(&program, version).expect("moved");
    }
    std::os::unix::fs::symlink(&versions[0], &program).expect("a link");
    veche.start_again();
    for version in [&versions[1], &versions[0]] {
        fs::remove_file(&program).expect("removed");
        std::os::unix::fs::symlink(version, &program).expect("a link");
        upgrade(&veche).expect("upgraded");
        for pid in [veche.pid(), veche.server_pid()] {
            let exe = fs::read_link(format!("/proc/{pid}/exe")).expect("it runs");
            assert_eq!(exe, *version);
        }
    }
}

#[test]
fn more_workers_than_sockets_take_a_stop() {
    let veche = start("upgrade-workers", DRAIN);
    veche.write_config(DRAIN, "workers = 200");
    let error = upgrade(&veche).expect_err("refused");
    assert!(
        error.contains("workers = 200 requires a stop and a start"),
        "{error}"
    );
}

/// The addresses are free even while a server process without a supervisor is still closing its connections.
#[test]
fn addresses_are_free_as_soon_as_the_supervisor_is_gone() {
    let mut veche = start("orphan", "drain_time = \"20s\"");
    let session = veche.open();
    let old = veche.server_pid();
    let address = veche.address();
    veche.kill_supervisor();
    veche.set_address(address);
    veche.start_again();
    assert!(veche.is_answering().expect("an answer"));
    assert!(is_alive(old), "the session is still there");
    drop(session);
    until("the old one to end", || !is_alive(old));
}

/// Clients that connect and send requests all the time; no connection may be refused.
struct Load {
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn on(address: SocketAddr) -> Self {
        let (is_over, answers) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let clients = (0..3).map(|_| {
            let (is_over, answers) = (Arc::clone(&is_over), Arc::clone(&answers));
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mut client =
                        std::net::TcpStream::connect(address).expect("no connection is refused");
                    let asked = client.write_all(veche::REQUEST);
                    let mut answer = String::new();
                    if asked
                        .and_then(|()| client.read_to_string(&mut answer))
                        .is_ok()
                        && !answer.is_empty()
                    {
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        });
        let clients = clients.collect();
        Self {
            is_over,
            answers,
            clients,
        }
    }

    /// Waits for a number of further responses.
    fn await_answers(&self, more: u64) {
        let from = self.answers.load(Ordering::Relaxed);
        until("answers", || {
            self.answers.load(Ordering::Relaxed) >= from + more
        });
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("no connection was refused");
        }
    }
}

/// A stop would take an hour, but an upgrade closes the old process's connections within half a second. The output
/// of the command names that time.
#[test]
fn an_upgrade_has_a_drain_time_of_its_own() {
    let limits = "drain_time = \"1h\"\nupgrade_drain_time = \"500ms\"";
    let mut veche = start("upgrade-drain", limits);
    let old = veche.server_pid();
    let mut sessions = [veche.open(), veche.open()];
    let config = veche.folder().join("veche.toml");
    let output = Command::new(veche.program())
        .args(["upgrade", "-c"])
        .arg(config)
        .output()
        .expect("it runs");
    let printed = String::from_utf8(output.stdout).expect("text");
    let expected = "the old one had 2 connections and closes them within 1 s";
    assert!(printed.contains(expected), "{printed}");
    for session in &mut sessions {
        assert!(matches!(session.next(), Seen::Close(Some(1012), _)));
    }
    drop(sessions);
    until("the old server process to end", || !is_alive(old));
    veche.await_status("ready", |status| status["state"] == "ready");
    veche.signal(Signal::TERM);
    assert_eq!(veche.exit_code(), Some(0));
}

#[test]
fn upgrades_under_load() {
    let veche = start("upgrades", "upgrade_drain_time = \"500ms\"");
    let load = Load::on(veche.address());
    let times = times("VECHE_UPGRADES", 4);
    for _ in 0..times {
        load.await_answers(5);
        // SIGWINCH and SIGUSR1 arrive at any moment, also during the replacement.
        let signals = thread::scope(|scope| {
            let upgrades = scope.spawn(|| ask(&veche.control(), UPGRADE).is_ok());
            let mut signals = 0;
            while !upgrades.is_finished() || signals < 5 {
                veche.signal(Signal::WINCH);
                veche.signal(Signal::USR1);
                signals += 1;
                thread::sleep(Duration::from_millis(2));
            }
            assert!(upgrades.join().expect("an answer"));
            signals
        });
        assert!(signals >= 5);
        veche.await_status("ready", |status| status["state"] == "ready");
    }
    load.await_answers(5);
    load.end();
    let status = veche.status();
    assert_eq!(status["upgrades"], times as u64);
    assert_eq!(status["restarts"], 0, "{status}");
    until("those that were replaced to end", || {
        veche.status()["draining"] == Value::Array(Vec::new())
    });
}

/// Kills the server process at intervals that cause no backoff. Some kills follow an upgrade.
#[test]
fn kills_under_load() {
    let veche = start("kills", DRAIN);
    let load = Load::on(veche.address());
    let mut took_max = Duration::ZERO;
    for time in 0..times("VECHE_KILLS", 2) {
        // The server process lives long enough for a restart without backoff.
        let ready = now();
        if time % 10 == 9 {
            veche.install();
            upgrade(&veche).expect("upgraded");
        }
        let old = veche.server_pid();
        until("it to be old enough", || {
            thread::sleep(Duration::from_millis(20));
            now() - ready > Duration::from_millis(5_200)
        });
        kill(old, Signal::KILL);
        let killed = now();
        veche.await_another_than(old);
        took_max = took_max.max(now() - killed);
    }
    println!("back after {took_max:?} at worst");
    load.await_answers(5);
    load.end();
    assert_eq!(
        ask(&veche.control(), STATUS).expect("an answer")["status"]["state"],
        "ready"
    );
}
