//! Reads facts about a process from `/proc`, and sends signals and limits to it.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

fn pid(raw: u32) -> Pid {
    Pid::from_raw(raw.try_into().expect("a pid")).expect("not 0")
}

pub(crate) fn kill(raw: u32, signal: Signal) {
    kill_process(pid(raw), signal).expect("it is there");
}

/// Kills a process that may have ended already.
pub(crate) fn end(raw: u32) {
    let _ = kill_process(pid(raw), Signal::KILL);
}

/// Returns whether a process is running; zombies don't count.
pub(crate) fn is_alive(raw: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{raw}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Returns the number of open descriptors.
pub(crate) fn descriptors(raw: u32) -> usize {
    fs::read_dir(format!("/proc/{raw}/fd"))
        .expect("it runs")
        .count()
}

/// Returns the resident memory in KiB.
pub(crate) fn rss_kib(raw: u32) -> u64 {
    memory_kib(raw, "VmRSS:")
}

/// Returns the peak of the resident memory in KiB, since the start or the last [`forget_peak`].
pub(crate) fn peak_kib(raw: u32) -> u64 {
    memory_kib(raw, "VmHWM:")
}

/// Returns the resident pages of files in KiB: those of the program and its libraries.
pub(crate) fn file_kib(raw: u32) -> u64 {
    memory_kib(raw, "RssFile:")
}

/// Resets the peak of resident memory (proc(5), `clear_refs`).
pub(crate) fn forget_peak(raw: u32) {
    fs::write(format!("/proc/{raw}/clear_refs"), "5").expect("a process of ours");
}

fn memory_kib(raw: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{raw}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("a process has memory");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

/// Returns the CPU time in hundredths of a second.
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

/// Returns how long the thread with this name has run and how long it has waited for a core, in
/// nanoseconds; `None` if the kernel does not count this.
pub(crate) fn ran_and_waited(raw: u32, thread: &str) -> Option<(u64, u64)> {
    let threads = fs::read_dir(format!("/proc/{raw}/task")).ok()?.flatten();
    let is_it = |folder: &Path| {
        let name = fs::read_to_string(folder.join("comm"));
        name.is_ok_and(|name| name.trim_end() == thread)
    };
    let folder = { threads }.map(|entry| entry.path()).find(|f| is_it(f))?;
    let counts = fs::read_to_string(folder.join("schedstat")).ok()?;
    let mut counts = counts.split(' ').map(str::parse);
    Some((counts.next()?.ok()?, counts.next()?.ok()?))
}

/// Sets the soft limit of descriptors of a running process.
pub(crate) fn limit_descriptors(raw: u32, soft: u64) {
    let limit = rustix::process::Rlimit {
        current: Some(soft),
        maximum: hard_limit(raw),
    };
    rustix::process::prlimit(Some(pid(raw)), rustix::process::Resource::Nofile, limit)
        .expect("a child of ours");
}

/// Sets the soft limit of file sizes of a running process; `None` removes the limit.
pub(crate) fn limit_files(raw: u32, soft: Option<u64>) {
    let limit = rustix::process::Rlimit {
        current: soft,
        maximum: None,
    };
    rustix::process::prlimit(Some(pid(raw)), rustix::process::Resource::Fsize, limit)
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
