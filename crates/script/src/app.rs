//! What an application is, before it runs.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use veche_store::Store;

use crate::desk;

/// An application as the configuration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct App {
    /// For logs.
    pub name: String,
    /// Handed to the script as `veche.config`.
    pub options: serde_json::Value,
    /// There is a folder for what it answers with `veche.file`.
    pub has_files: bool,
    /// What it may use.
    pub limits: Limits,
    /// What it is there for.
    pub role: Role,
}

/// What an application is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Connections and requests: its handlers are called.
    #[default]
    Clients,
    /// Work of its own: `run` is called, in one of several VMs.
    Service {
        /// Which of them, from 1.
        instance: u32,
        /// How many there are.
        instances: u32,
    },
}

/// What an application may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of one VM in bytes; at least 1 MiB is needed to start.
    pub memory_bytes_max: usize,
    /// CPU time between two waits.
    pub cpu_budget: Duration,
    /// Coroutines of one VM that wait or are about to begin; beyond it `spawn` fails.
    pub tasks_max: usize,
    /// Connections to other WebSocket servers on one worker, those included that are being opened.
    pub clients_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes_max: 256 << 20,
            cpu_budget: Duration::from_millis(20),
            tasks_max: 1 << 20,
            clients_max: 10_000,
        }
    }
}

/// What the VMs of one application on one worker share, so that connections outlive a reload.
#[derive(Clone, Debug, Default)]
pub struct World(pub(crate) Rc<desk::World>);

impl World {
    /// With the dictionaries and counters of the process; by default a world has some of its own.
    #[must_use]
    pub fn with_store(store: Arc<Store>) -> Self {
        Self(Rc::new(desk::World::with_store(store)))
    }

    /// What wakes this worker's thread, for what other threads end: waits at queues. Without it whoever runs the VMs has
    /// to look by itself, at [`Vm::deadline_ms`](crate::Vm::deadline_ms). The first counts.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.0.queues.set_wake(wake);
    }

    /// As [`with_store`](Self::with_store), for tests: whatever is chance or the system's clock elsewhere is the
    /// seed's and the turn's here, so equal seeds and equal calls make equal runs.
    #[must_use]
    pub fn seeded(store: Arc<Store>, seed: u64) -> Self {
        Self(Rc::new(desk::World::seeded(store, seed)))
    }
}
