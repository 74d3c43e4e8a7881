//! The handle of one server thread on a pool of worker processes.

use std::cell::Cell;
use std::sync::Arc;

use veche_runtime::WorkerWaker;

use crate::program::Program;
use crate::shared::{PoolOrder, Shared, ThreadOutlet};

/// Keeps a pool running until it is dropped.
#[derive(Debug)]
pub(crate) struct PoolHandle {
    /// The number of this generation of the application, counted on this server thread.
    pub(crate) generation: u64,
    pub(crate) pool: Arc<Shared>,
    pub(crate) outlet: Arc<ThreadOutlet>,
    /// Whether some orders have not been announced to the pool yet.
    has_orders: Cell<bool>,
}

impl PoolHandle {
    /// Joins the pool of a program and starts its processes if necessary.
    pub(crate) fn new(
        program: &Program,
        wake: Option<WorkerWaker>,
        generation: u64,
    ) -> Result<Self, String> {
        let pool = Arc::clone(program.pool()?);
        let outlet = Arc::new(ThreadOutlet::new(wake));
        pool.join(&outlet);
        Ok(Self {
            generation,
            pool,
            outlet,
            has_orders: Cell::new(false),
        })
    }

    /// Queues an order for the pool, to be announced at the end of the turn.
    pub(crate) fn order(&self, order: PoolOrder) {
        self.pool.orders.push(order);
        self.has_orders.set(true);
    }

    pub(crate) fn announce_orders(&self) {
        if self.has_orders.take() {
            self.pool.announce_orders();
        }
    }

    /// Returns whether the pool has messages for this thread, or this thread has an order to
    /// announce.
    pub(crate) fn has_news(&self) -> bool {
        self.has_orders.get() || self.outlet.messages.is_announced()
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.pool.leave(&self.outlet);
    }
}
