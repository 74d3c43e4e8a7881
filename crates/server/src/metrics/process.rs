//! Metrics of the server process: its restarts, and figures of the operating system such as CPU time and memory. Their
//! names are those of Prometheus's client libraries.

use std::fmt;
use std::fs;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use veche_config::unix_now_ms;

use crate::process_state::ProcessState;

/// Collects the values at each scrape.
pub(super) struct ProcessCollector {
    common: Arc<ProcessState>,
    /// The start of the process in Unix seconds.
    started_s: f64,
}

impl ProcessCollector {
    /// Creates the collector of the process.
    pub(super) fn new(common: Arc<ProcessState>) -> Self {
        let lived = common.started.elapsed().as_secs_f64();
        Self {
            common,
            started_s: unix_now_ms() as f64 / 1e3 - lived,
        }
    }
}

impl fmt::Debug for ProcessCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ProcessCollector")
    }
}

/// Returns the CPU time of all threads in seconds.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the number of open descriptors; `None` if the system does not report it.
fn open_descriptors() -> Option<u64> {
    let all = fs::read_dir("/proc/self/fd").ok()?;
    // One of the descriptors belongs to the folder that is being read.
    Some((all.count() as u64).saturating_sub(1))
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let limit = getrlimit(Resource::Nofile).current;
        for (name, help, value) in [
            (
                "process_start_time_seconds",
                "Start of the server process, in Unix time",
                Some(self.started_s),
            ),
            (
                "process_open_fds",
                "Open descriptors of the server process",
                open_descriptors().map(|count| count as f64),
            ),
            (
                "process_max_fds",
                "Limit of open descriptors",
                limit.map(|limit| limit as f64),
            ),
            (
                "veche_connections_max",
                "Limit of connections: limits.connections, or as many as descriptors allow",
                Some(self.common.connections_max() as f64),
            ),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            if let Some(value) = value {
                ConstGauge::new(value).encode(family)?;
            }
        }
        let (name, help) = (
            "veche_build_info",
            "The running version, as a label; the value is always 1",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
        let (name, help) = (
            "process_cpu_seconds",
            "CPU time of the server process, of user and system together",
        );
        let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(cpu_seconds()).encode(family)?;
        let (name, help) = (
            "veche_restarts",
            "Restarts of the server process by the supervisor, by reason: an exit code, a signal such as that of the out-of-memory killer, or a hang",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (reason, count) in self.common.restarts.by_reason() {
            ConstCounter::new(count).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }
}
