//! What is to be run: everything that a thread has to know, as plain data that also reaches other processes.

use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::heartbeat::Heartbeat;
use crate::loads::LoadPlan;
use crate::target::{Target, Template};

/// One run of one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Where clients go and how they speak. Clients are numbered through, endpoint by endpoint.
    pub endpoints: Vec<Endpoint>,
    /// What they do.
    pub load: LoadPlan,
    /// Measured time in nanoseconds; `None` if the load ends by itself.
    pub duration_ns: Option<u64>,
    /// Left out before it.
    pub warmup_ns: u64,
    /// How long a handshake, and each answer, may take.
    pub timeout_ns: u64,
    /// Most connections that are being opened at a time, in all.
    pub opening_max: u32,
    /// Connections begun a second, in all.
    pub connect_rate: Option<f64>,
    /// Local addresses, taken in turn; empty: the kernel's choice.
    pub sources: Vec<IpAddr>,
    /// Seed of everything random.
    pub seed: u64,
    /// Threads of each process.
    pub threads: u32,
    /// Processes.
    pub processes: u32,
}

/// Clients of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    /// Where to.
    pub target: Target,
    /// How many.
    pub clients: u32,
    /// Further header lines of the handshake or of each request.
    pub headers: Vec<(String, Template)>,
    /// Subprotocols to offer, in order.
    pub subprotocols: Vec<String>,
    /// Whether compression is offered.
    pub deflate: bool,
    /// How certificates are verified.
    pub tls: TlsPlan,
    /// WebSocket messages that are answered at once, and reach no load.
    pub heartbeats: Vec<Heartbeat>,
}

impl Endpoint {
    /// `clients` plain clients of a target.
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
    /// Not at all.
    pub insecure: bool,
    /// Against the certificates of this PEM file instead of the system's.
    pub ca: Option<PathBuf>,
    /// No connection resumes the session of an earlier one.
    pub full_handshakes: bool,
}

impl Plan {
    /// Clients of all endpoints.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.endpoints.iter().map(|endpoint| endpoint.clients).sum()
    }

    /// The part of thread `index` of all threads of all processes: of each endpoint a range of its clients, counted
    /// within the endpoint.
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

/// Part `index` of so many consecutive parts, equal but for 1, of the numbers up to `total`.
pub(crate) fn part(total: u32, index: u32, parts: u32) -> Range<u32> {
    let cut = |at: u32| (u64::from(total) * u64::from(at) / u64::from(parts)) as u32;
    cut(index)..cut(index + 1)
}

/// What one thread does of a plan.
#[derive(Clone, Debug)]
pub(crate) struct ThreadPlan {
    pub(crate) plan: Arc<Plan>,
    /// Which of `parts`.
    pub(crate) index: u32,
    pub(crate) parts: u32,
    /// Of each endpoint, which of its clients.
    pub(crate) ranges: Vec<Range<u32>>,
}

impl ThreadPlan {
    /// This thread's part of something that is so much a second in all.
    pub(crate) fn rate(&self, total: f64) -> f64 {
        total / f64::from(self.parts)
    }

    /// This thread's part of what all clients do together so often a second: each client has the same part. 0 without
    /// clients.
    pub(crate) fn rate_of_clients(&self, total: f64) -> f64 {
        let all = self.plan.clients().max(1);
        total * self.clients() as f64 / f64::from(all)
    }

    /// Clients of all endpoints.
    pub(crate) fn clients(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    /// Where in a step of all threads this one has its turn, from 0 to 1.
    pub(crate) fn phase(&self) -> f64 {
        f64::from(self.index) / f64::from(self.parts)
    }

    /// This thread's part of a limit, at least 1.
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
