//! CPU time and memory as `/proc` tells them, the driver's own idleness, and the descriptor limit.

use std::fs;
use std::time::Instant;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// A measured interval: what the server and the driver burned in it.
#[derive(Serialize)]
pub struct Usage {
    pub wall_ms: f64,
    /// Nanoseconds on a core, all threads of the server's process; absent without `--pid`.
    pub server_cpu_ns: Option<u64>,
    /// The part of the interval in which the driver slept, 0 to 1.
    pub driver_idle: f64,
}

impl Usage {
    /// The server's CPU time for each of so many.
    pub fn cpu_ns_per(&self, count: u64) -> Option<f64> {
        let cpu_ns = self.server_cpu_ns?;
        Some(cpu_ns as f64 / count.max(1) as f64)
    }
}

/// Begins a measured interval.
pub struct Meter {
    pid: Option<u32>,
    wall: Instant,
    server_ns: u64,
    own_ns: u64,
}

impl Meter {
    pub fn start(pid: Option<u32>) -> anyhow::Result<Self> {
        let server_ns = pid.map_or(Ok(0), process_cpu_ns)?;
        Ok(Self {
            pid,
            wall: Instant::now(),
            server_ns,
            own_ns: own_cpu_ns(),
        })
    }

    pub fn stop(&self) -> anyhow::Result<Usage> {
        let wall = self.wall.elapsed();
        let own = own_cpu_ns() - self.own_ns;
        let server_cpu_ns = self
            .pid
            .map(|pid| Ok::<_, anyhow::Error>(process_cpu_ns(pid)? - self.server_ns))
            .transpose()?;
        let driver_idle = (1.0 - own as f64 / wall.as_nanos() as f64).max(0.0);
        Ok(Usage {
            wall_ms: wall.as_secs_f64() * 1e3,
            server_cpu_ns,
            driver_idle,
        })
    }
}

/// On-core nanoseconds of all threads of a process (`schedstat`, first field).
pub fn process_cpu_ns(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("the server has gone")? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        let first = text.split(' ').next().unwrap_or_default();
        sum += first.parse::<u64>().context("schedstat")?;
    }
    Ok(sum)
}

fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Raises the soft limit of descriptors to the hard one.
pub fn raise_descriptor_limit() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .context("descriptor limit")
}
