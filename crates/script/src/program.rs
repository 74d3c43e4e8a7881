//! An application's script with all that its VMs have in common, on all workers.

use std::sync::Arc;

use veche_store::Store;

use crate::app::{AppWorld, ScriptApp};
use crate::code::SourceCode;
use crate::load_run::LoadRun;
use crate::vm::{LoadError, Vm};

/// What each worker runs.
#[derive(Clone, Debug)]
pub struct Program {
    /// The application.
    pub app: ScriptApp,
    /// Its code.
    pub code: Arc<SourceCode>,
    /// The process's dictionaries and counters: the same for all applications.
    pub store: Arc<Store>,
    /// In a test: decides all chance.
    pub seed: Option<u64>,
    /// It plays users of this run.
    pub load_run: Option<Arc<dyn LoadRun>>,
}

impl Program {
    /// Returns what its VMs on one worker share.
    #[must_use]
    pub fn world(&self) -> AppWorld {
        let store = Arc::clone(&self.store);
        match self.seed {
            Some(seed) => AppWorld::seeded(store, seed),
            None => AppWorld::with_store(store),
        }
    }

    /// Loads it for a worker.
    ///
    /// # Errors
    /// The script can't be loaded.
    pub fn vm(&self, world: &AppWorld, worker: u16) -> Result<Vm, LoadError> {
        let Self { app, code, .. } = self;
        match &self.load_run {
            Some(run) => Vm::load_script(app, code, world, worker, run),
            None => Vm::new(app, code, world, worker),
        }
    }

    /// Returns whether the other one would run just the same.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.app == other.app && self.code.is_same(&other.code)
    }
}
