//! Resource use of the server's and the tester's processes, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::clock::thread_cpu_ns;
use crate::tally::Tally;

/// A thread's CPU time at the beginning of the measurement.
#[derive(Debug, Default)]
pub(crate) struct CpuMark {
    begun: Option<(u64, u64)>,
}

impl CpuMark {
    /// Called in every iteration of the event loop. The first call after the start of the measurement records the CPU time.
    pub(crate) fn begin_at(&mut self, from_ns: u64, now_ns: u64, tally: &mut Tally) {
        if self.begun.is_none() && now_ns >= from_ns {
            self.begun = Some((thread_cpu_ns(), thread_waited_ns()));
            tally.lag_ns_max = 0;
        }
    }

    pub(crate) fn end(&mut self, tally: &mut Tally) {
        if let Some((cpu_ns, waited_ns)) = self.begun.take() {
            tally.cpu_ns = thread_cpu_ns() - cpu_ns;
            tally.cpu_ns_max = tally.cpu_ns;
            tally.waited_ns_max = thread_waited_ns().saturating_sub(waited_ns);
        }
    }
}

/// Returns how long the calling thread has been ready to run without having a core, in nanoseconds.
fn thread_waited_ns() -> u64 {
    fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

/// The resource use of a process and its descendants so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessUsage {
    pub(crate) processes: u64,
    pub(crate) cpu_ns: u64,
    /// CPU time by thread id.
    pub(crate) threads: BTreeMap<u32, u64>,
    pub(crate) rss_bytes: u64,
}

impl ProcessUsage {
    /// Reads the current resource use; `None` if the process does not exist or has ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        if !is_running(pid) {
            return None;
        }
        let mut usage = Self::default();
        for pid in family(pid) {
            if let Some((threads, rss_bytes)) = of_one(pid)
                && let Some(cpu_ns) = process_cpu_ns(pid)
            {
                usage.processes += 1;
                usage.cpu_ns += cpu_ns;
                usage.threads.extend(threads);
                usage.rss_bytes += rss_bytes;
            }
        }
        (usage.processes > 0).then_some(usage)
    }

    /// Returns the CPU time that the busiest thread has used since `began`.
    pub(crate) fn busiest_ns(&self, began: &Self) -> u64 {
        let since = |(thread, cpu_ns): (&u32, &u64)| {
            let before = began.threads.get(thread).copied().unwrap_or(0);
            cpu_ns.saturating_sub(before)
        };
        self.threads.iter().map(since).max().unwrap_or(0)
    }
}

/// Returns a process and its descendants.
fn family(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            && let Some(parent) = parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut family = vec![root];
    let mut at = 0;
    while at < family.len() {
        family.extend(children.remove(&family[at]).into_iter().flatten());
        at += 1;
    }
    family
}

/// Returns whether a process exists and has not ended. An ended process keeps its id until its
/// parent waits for it.
pub(crate) fn is_running(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

fn parent(pid: u32) -> Option<u32> {
    state_and_parent(pid).map(|(_, parent)| parent)
}

fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name is in parentheses and may itself contain parentheses and spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

/// Returns the CPU time of a process, including ended threads.
fn process_cpu_ns(pid: u32) -> Option<u64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into().ok()?)).ok()?;
    let used: Duration = clock_gettime(clock).ok()?.into();
    used.as_nanos().try_into().ok()
}

/// Returns the CPU time of each thread of a process, and the process's resident memory.
fn of_one(pid: u32) -> Option<(Vec<(u32, u64)>, u64)> {
    let mut threads = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // A thread that has ended since the threads were listed has no such file.
        let cpu_ns = fs::read_to_string(task.path().join("schedstat"))
            .ok()
            .and_then(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok());
        let number = task.file_name().to_str().and_then(|name| name.parse().ok());
        threads.extend(number.zip(cpu_ns));
    }
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((threads, pages * rustix::param::page_size() as u64))
}

/// Returns the resident memory of this process.
pub(crate) fn own_rss_bytes() -> u64 {
    of_one(std::process::id()).map_or(0, |(_, rss)| rss)
}

/// Returns the number of this machine's sockets in TIME_WAIT with one of these addresses at either end.
pub(crate) fn time_wait(targets: &[SocketAddr]) -> u64 {
    let targets: Vec<SocketAddr> = targets.iter().map(canonical).collect();
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .map(|table| {
            let lines = table.lines().skip(1);
            lines.filter(|line| is_time_wait(line, &targets)).count() as u64
        })
        .sum()
}

/// Returns whether a line of `/proc/net/tcp` describes a socket in TIME_WAIT with one of the
/// canonical addresses `targets` at either end.
fn is_time_wait(line: &str, targets: &[SocketAddr]) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let ends = [fields.next(), fields.next()];
    fields.next() == Some("06")
        && ends
            .into_iter()
            .flatten()
            .filter_map(socket_address)
            .any(|end| targets.contains(&end))
}

/// Converts IPv4-mapped addresses to IPv4, and drops scope and flow label, which `/proc/net/tcp6` lacks.
fn canonical(address: &SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Parses one end of a socket in `/proc/net/tcp`: address and port in hexadecimal. The address
/// consists of 32-bit words. The kernel stores them in network order and prints each as a number in
/// the machine's byte order.
fn socket_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words = address.as_bytes().chunks(8).map(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    });
    let bytes: Vec<u8> = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(octets) => IpAddr::from(octets),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?),
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// Returns the processor's name and the kernel's release.
pub(crate) fn machine() -> (String, String) {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
        .unwrap_or_default();
    let kernel = rustix::system::uname();
    (cpu, kernel.release().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::thread;

    use super::*;

    #[test]
    fn usage_of_a_process() {
        // The process is idle at each sample, but its ended children have used CPU time.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "read go; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; read end",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let before = ProcessUsage::of(child.id()).unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"go\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "done\n");
        let after = ProcessUsage::of(child.id()).unwrap();
        let busiest_ns = after.busiest_ns(&before);
        // The threads' time was read before the process's, and the shell may have been starting in between.
        assert!(busiest_ns > 0 && busiest_ns <= after.cpu_ns);
        assert!(after.cpu_ns > before.cpu_ns);
        assert!(after.rss_bytes > 64 * 1024);
        drop(input);
        child.wait().unwrap();
        assert_eq!(ProcessUsage::of(child.id()), None);
    }

    #[test]
    fn cpu_time_of_ended_threads_counts() {
        let before = process_cpu_ns(std::process::id()).unwrap();
        let used_ns = thread::spawn(|| {
            while thread_cpu_ns() < 5_000_000 {}
            thread_cpu_ns()
        });
        let used_ns = used_ns.join().unwrap();
        assert!(process_cpu_ns(std::process::id()).unwrap() - before >= used_ns);
    }

    /// Returns a line of `/proc/net/tcp` as the kernel writes it, in the machine's byte order.
    fn line(local: &str, remote: &str, state: &str) -> String {
        let end = |address: &str| {
            let address: SocketAddr = address.parse().unwrap();
            let words = match address.ip() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let words = words
                .chunks(4)
                .map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().unwrap())));
            format!("{}:{:04X}", words.collect::<String>(), address.port())
        };
        let (local, remote) = (end(local), end(remote));
        format!("   1: {local} {remote} {state} 00000000:00000000 03:000017 0 0 0 3 x")
    }

    #[test]
    fn lines_of_the_table() {
        const TIME_WAIT: &str = "06";
        let is = |local: &str, remote: &str, targets: &[&str]| {
            let targets: Vec<SocketAddr> = targets
                .iter()
                .map(|target| canonical(&target.parse().unwrap()))
                .collect();
            is_time_wait(&line(local, remote, TIME_WAIT), &targets)
        };
        let (here, there) = ("127.0.0.1:50000", "192.0.2.7:8080");
        // The side that closed first is in TIME_WAIT. Either side may close first.
        assert!(is(here, there, &[there]));
        assert!(is(there, here, &[there]));
        assert!(is(here, there, &["192.0.2.8:8080", there]));
        // Address and port of the same end must both match.
        assert!(!is(here, there, &["192.0.2.8:8080", "192.0.2.7:8081"]));
        assert!(!is(here, "127.0.0.1:9", &["192.0.2.7:50000"]));
        assert!(!is(here, there, &["7.2.0.192:8080"]));
        let (v6, other) = ("[2001:db8::17]:443", "[2001:db8::1]:40000");
        assert!(is(other, v6, &[v6]));
        assert!(!is(other, v6, &["[2001:db8::18]:443"]));
        let mapped = "[::ffff:192.0.2.7]:8080";
        assert!(is("[::ffff:127.0.0.1]:5", mapped, &[there]));
        assert!(is(here, there, &[mapped]));
        let targets = [there.parse().unwrap()];
        assert!(!is_time_wait(&line(here, there, "01"), &targets));
        assert!(!is_time_wait(
            "  sl  local_address rem_address   st",
            &targets
        ));
    }

    /// Parses a line of `/proc/net/tcp` as a little-endian machine prints it.
    #[cfg(target_endian = "little")]
    #[test]
    fn a_line_as_it_is() {
        let line = "   1: 0100007F:1F90 0100007F:C350 06 00000000:00000000 03:000017 0 0 0 3 x";
        assert!(is_time_wait(line, &["127.0.0.1:8080".parse().unwrap()]));
        assert!(!is_time_wait(line, &["1.0.0.127:8080".parse().unwrap()]));
    }
}
