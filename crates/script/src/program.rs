//! The parts of an application that its VMs share on all workers.

use std::sync::Arc;

use veche_store::Store;
use veche_types::WorkerId;

use crate::app::{AppWorld, ScriptApp};
use crate::code::SourceCode;
use crate::load_run::LoadRun;
use crate::vm::{LoadError, Vm};

/// The parts of an application that all its workers need.
#[derive(Clone, Debug)]
pub struct Program {
    /// The definition of the application.
    pub app: ScriptApp,
    /// The source code of the program.
    pub code: Arc<SourceCode>,
    /// The process's dictionaries and counters, shared by all applications.
    pub store: Arc<Store>,
    /// The seed of all random numbers in a test; `None` otherwise.
    pub seed: Option<u64>,
    /// The load test whose users the script simulates.
    pub load_run: Option<Arc<dyn LoadRun>>,
}

impl Program {
    /// Returns the state that the VMs of one worker share.
    #[must_use]
    pub fn world(&self) -> AppWorld {
        let store = Arc::clone(&self.store);
        match self.seed {
            Some(seed) => AppWorld::seeded(store, seed),
            None => AppWorld::with_store(store),
        }
    }

    /// Loads the script on a worker.
    ///
    /// # Errors
    /// The script can't be loaded.
    pub fn vm(&self, world: &AppWorld, worker: WorkerId) -> Result<Vm, LoadError> {
        let Self { app, code, .. } = self;
        match &self.load_run {
            Some(run) => Vm::load_script(app, code, world, worker, run),
            None => Vm::new(app, code, world, worker),
        }
    }

    /// Returns whether two programs would behave identically.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.app == other.app && self.code.is_same(&other.code)
    }
}
