//! What the system says of a process, from `/proc`.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

fn pid(raw: u32) -> Pid {
    Pid::from_raw(raw.try_into().expect("a pid")).expect("not 0")
}

pub(crate) fn kill(raw: u32, signal: Signal) {
    kill_process(pid(raw), signal).expect("it is there");
}

/// SIGKILL to what may be gone already.
pub(crate) fn end(raw: u32) {
    let _ = kill_process(pid(raw), Signal::KILL);
}

/// Whether it runs; one that nobody reaped yet does not.
pub(crate) fn is_alive(raw: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{raw}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Open descriptors.
pub(crate) fn descriptors(raw: u32) -> usize {
    fs::read_dir(format!("/proc/{raw}/fd"))
        .expect("it runs")
        .count()
}

/// Resident memory.
pub(crate) fn rss_kib(raw: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{raw}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("a process has memory");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

/// Processor time so far, in hundredths of a second.
pub(crate) fn cpu_ticks(raw: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{raw}/stat")).expect("it runs");
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .expect("fields")
        .split(' ')
        .collect();
    [11, 12]
        .iter()
        .map(|&i| fields[i].parse::<u64>().expect("a number"))
        .sum()
}

/// Sets the soft limit on descriptors of a running process.
pub(crate) fn limit_descriptors(raw: u32, soft: u64) {
    let limit = rustix::process::Rlimit {
        current: Some(soft),
        maximum: hard_limit(raw),
    };
    rustix::process::prlimit(Some(pid(raw)), rustix::process::Resource::Nofile, limit)
        .expect("a child of ours");
}

fn hard_limit(raw: u32) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{raw}/limits")).expect("it runs");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a limit");
    line.split_whitespace()
        .nth(4)
        .expect("a hard limit")
        .parse()
        .ok()
}
