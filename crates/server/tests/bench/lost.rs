//! Tests runs during which a process of the tester or the server process named by `--pid` dies.

use std::fs;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::server::Server;
use crate::support::{Setup, process, until};
use crate::{Outcome, spawn};

const SETUP: Setup = Setup {
    io: "epoll",
    workers: 1,
};

/// Returns the child processes of `parent`.
fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        behind_name.split(' ').nth(1) == Some(parent.to_string().as_str())
    };
    let names = fs::read_dir("/proc").expect("Linux").flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_child).collect()
}

fn ended(tester: Child) -> Outcome {
    tester.wait_with_output().expect("a child of ours").into()
}

#[test]
fn a_lost_process_costs_its_own_figures_only() {
    let server = Server::start(SETUP);
    let url = format!("ws://{}/echo", server.public);
    let asked = ["-n", "9", "--duration", "1500ms", "--warmup", "0s"];
    let tester = spawn(&[&["echo", &url, "--processes", "3"][..], &asked].concat());
    until("all connections", || server.connections() >= 9);
    thread::sleep(Duration::from_millis(300));
    let member = children(tester.id())[0];
    process::kill(member, Signal::KILL);

    let outcome = ended(tester);
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    assert!(
        outcome.stderr.contains("1 of 3 tester processes lost"),
        "{outcome:#?}"
    );
    assert_eq!(outcome.at("/incomplete"), &Value::Bool(true));
    assert_eq!(outcome.at("/generator/lost/0/how"), "killed by signal 9");
    assert_eq!(outcome.at("/generator/lost/1"), &Value::Null);
    assert_eq!(outcome.count("/connections/opened"), 6);
    assert!(outcome.count("/messages/received") > 0, "{outcome:#?}");
    assert_eq!(outcome.count("/messages/unanswered"), 0, "{outcome:#?}");
}

/// The process named by `--pid` has ended, or is a zombie, which still has a pid but uses no CPU time.
#[test]
fn a_server_that_ends_is_reported() {
    let server = Server::start(SETUP);
    let url = format!("ws://{}/echo", server.public);
    for is_reaped in [true, false] {
        let mut measured = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = measured.id().to_string();
        let tester = spawn(&[
            "echo",
            &url,
            "-n",
            "2",
            "--duration",
            "1s",
            "--warmup",
            "0s",
            "--pid",
            &pid,
        ]);
        until("all connections", || server.connections() >= 2);
        thread::sleep(Duration::from_millis(300));
        measured.kill().expect("it runs");
        if is_reaped {
            measured.wait().expect("a child of ours");
        }
        let outcome = ended(tester);
        let _ = measured.wait();
        outcome.assert_clean();
        assert_eq!(outcome.at("/server"), &Value::Null);
        assert_eq!(outcome.at("/server_ended").to_string(), pid);
        until("the connections' end", || server.connections() == 0);
    }
}
