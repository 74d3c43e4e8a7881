//! One server thread's handle on a pool.

use std::sync::Arc;

use crate::program::Program;
use crate::shared::{Outlet, Shared, Wake};

/// Keeps a pool running until it is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    /// Counts the generations of the application on this server thread.
    pub(crate) generation: u64,
    pub(crate) pool: Arc<Shared>,
    pub(crate) outlet: Arc<Outlet>,
}

impl Link {
    /// Joins the pool of a program and starts its processes if necessary.
    pub(crate) fn new(
        program: &Program,
        wake: Option<Wake>,
        generation: u64,
    ) -> Result<Self, String> {
        let pool = Arc::clone(program.pool()?);
        let outlet = Arc::new(Outlet::new(wake));
        pool.join(&outlet);
        Ok(Self {
            generation,
            pool,
            outlet,
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.pool.leave(&self.outlet);
    }
}
