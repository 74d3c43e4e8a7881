//! The plan of a run: everything that a thread needs, as plain data that is sent to other processes.

use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::heartbeat::Heartbeat;
use crate::loads::LoadPlan;
use crate::target::{ClientTemplate, Target};

/// The plan of a run that generates one kind of load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The endpoints. Clients are numbered consecutively over all of them.
    pub endpoints: Vec<Endpoint>,
    /// The kind of load that the clients generate.
    pub load: LoadPlan,
    /// Measured time in nanoseconds; `None` if the load ends by itself.
    pub duration_ns: Option<u64>,
    /// Warm-up before the measured time in nanoseconds.
    pub warmup_ns: u64,
    /// Time limit for a handshake and for each answer in nanoseconds.
    pub timeout_ns: u64,
    /// Maximum number of connections that may be opening at the same time, over all threads.
    pub opening_max: u32,
    /// Connections started per second, over all threads.
    pub connect_rate: Option<f64>,
    /// Local addresses, used in turn; if empty, the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of threads per process.
    pub threads: u32,
    /// Number of processes of the tester.
    pub processes: u32,
}

/// A number of clients with the same target and settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    /// The URL of the endpoint.
    pub target: Target,
    /// The number of clients.
    pub clients: u32,
    /// Additional header lines of the handshake or of each request.
    pub headers: Vec<(String, ClientTemplate)>,
    /// Subprotocols to offer, in order.
    pub subprotocols: Vec<String>,
    /// Whether compression is offered.
    pub deflate: bool,
    /// How certificates are verified.
    pub tls: TlsPlan,
    /// WebSocket messages answered immediately and not passed to the load.
    pub heartbeats: Vec<Heartbeat>,
}

impl Endpoint {
    /// Creates an endpoint with `clients` clients and default settings.
    #[must_use]
    pub fn new(target: Target, clients: u32) -> Self {
        Self {
            target,
            clients,
            headers: Vec::new(),
            subprotocols: Vec::new(),
            deflate: false,
            tls: TlsPlan::default(),
            heartbeats: Vec::new(),
        }
    }
}

/// How certificates are verified.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TlsPlan {
    /// Whether any certificate is accepted.
    pub insecure: bool,
    /// PEM file with the certificates to trust, instead of the system's.
    pub ca: Option<PathBuf>,
    /// Whether each connection makes a full handshake instead of resuming an earlier TLS session.
    pub full_handshakes: bool,
}

impl Plan {
    /// Returns the number of clients of all endpoints.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.endpoints.iter().map(|endpoint| endpoint.clients).sum()
    }

    /// Returns the part of thread `index` among all threads of all processes: a range of clients of each endpoint.
    pub(crate) fn share(self: &Arc<Self>, index: u32) -> ThreadPlan {
        let parts = self.threads.max(1) * self.processes.max(1);
        ThreadPlan {
            plan: Arc::clone(self),
            index,
            parts,
            ranges: self
                .endpoints
                .iter()
                .map(|endpoint| part(endpoint.clients, index, parts))
                .collect(),
        }
    }
}

/// Divides the numbers from 0 to `total` into `parts` consecutive ranges, whose lengths differ by at most 1; returns range
/// `index`.
pub(crate) fn part(total: u32, index: u32, parts: u32) -> Range<u32> {
    let cut = |at: u32| (u64::from(total) * u64::from(at) / u64::from(parts)) as u32;
    cut(index)..cut(index + 1)
}

/// One thread's part of a plan.
#[derive(Clone, Debug)]
pub(crate) struct ThreadPlan {
    pub(crate) plan: Arc<Plan>,
    pub(crate) index: u32,
    pub(crate) parts: u32,
    /// This thread's range of clients of each endpoint.
    pub(crate) ranges: Vec<Range<u32>>,
}

impl ThreadPlan {
    /// Returns this thread's part of a total rate, per second.
    pub(crate) fn rate(&self, total: f64) -> f64 {
        total / f64::from(self.parts)
    }

    /// Returns this thread's part of a total rate that is divided equally among all clients; 0 if the thread has no clients.
    pub(crate) fn rate_of_clients(&self, total: f64) -> f64 {
        let all = self.plan.clients().max(1);
        total * self.clients() as f64 / f64::from(all)
    }

    /// Returns the number of clients of all endpoints.
    pub(crate) fn clients(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    /// Returns the offset of this thread's schedule as a fraction of a step, so that threads send
    /// in turn.
    pub(crate) fn phase(&self) -> f64 {
        f64::from(self.index) / f64::from(self.parts)
    }

    /// Returns this thread's part of a limit, at least 1.
    pub(crate) fn limit(&self, total: u32) -> u32 {
        (total / self.parts).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::storm::StormPlan;
    use crate::payload::PayloadPlan;

    #[test]
    fn shares_are_everything_once() {
        let target = Target::parse("ws://127.0.0.1:1/").unwrap();
        let plan = Arc::new(Plan {
            endpoints: vec![
                Endpoint::new(target.clone(), 1001),
                Endpoint::new(target, 2),
            ],
            load: LoadPlan::Storm(StormPlan {
                payload: PayloadPlan::default(),
            }),
            duration_ns: None,
            warmup_ns: 0,
            timeout_ns: 1,
            opening_max: 10,
            connect_rate: None,
            sources: Vec::new(),
            seed: 0,
            threads: 3,
            processes: 2,
        });
        for endpoint in 0..2 {
            let mut next = 0;
            for index in 0..6 {
                let range = plan.share(index).ranges[endpoint].clone();
                assert_eq!(range.start, next);
                next = range.end;
            }
            assert_eq!(next, plan.endpoints[endpoint].clients);
        }
    }
}
