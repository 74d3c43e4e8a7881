//! Tests `veche serve` as PID 1 of a container: it reaps inherited processes.

use std::fs;
use std::process::Command;

use crate::support::{skip, until};
use crate::veche::Veche;

/// Returns state and parent of each process.
fn processes() -> Vec<(u32, String, u32)> {
    let folders = fs::read_dir("/proc").expect("it is mounted");
    let pids = folders.filter_map(|folder| folder.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let stat = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?.to_owned();
        Some((pid, state, fields.next()?.parse().ok()?))
    };
    pids.filter_map(stat).collect()
}

fn children(parent: u32) -> Vec<(u32, String)> {
    let all = processes().into_iter();
    all.filter(|&(_, _, of)| of == parent)
        .map(|(pid, state, _)| (pid, state))
        .collect()
}

#[test]
fn as_the_first_process_it_reaps_what_it_inherits() {
    let namespace = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let is_allowed = Command::new("unshare").args(namespace).arg("true").status();
    if !is_allowed.is_ok_and(|status| status.success()) {
        return skip("this machine does not let a test make a PID namespace");
    }
    let mut veche = Veche::prepare("first", "");
    veche.spawn_with(|command| {
        let inner: Vec<_> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(ToOwned::to_owned)
            .collect();
        let mut outer = Command::new("unshare");
        outer.args(namespace).args(inner);
        *command = outer;
        command
    });
    veche.await_status("ready", |status| status["state"] == "ready");
    let (supervisor, _) = children(veche.pid()).remove(0);
    // The shell ends before its child does, so the child is orphaned.
    let entered = Command::new("nsenter")
        .args(["--target", &supervisor.to_string(), "--pid", "--mount"])
        .args(["sh", "-c", "sleep 0.5 >/dev/null 2>&1 & exit 0"])
        .status();
    assert!(entered.expect("nsenter is there").success());
    assert_eq!(
        children(supervisor).len(),
        2,
        "the server process and an orphan"
    );
    until("the orphan to be reaped", || {
        children(supervisor).len() == 1
    });
}
