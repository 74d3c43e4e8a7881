//! Carries orders and events between the hub and an engine outside the process.

use super::{WorkerApps, WorkerState};

impl<A: WorkerApps> WorkerState<A> {
    /// Passes the engine's events to the worker.
    pub(super) fn hear_engine(&mut self) {
        let Some(port) = &mut self.engine else {
            return;
        };
        if port.has_events() {
            let mut events = Vec::new();
            port.take(&mut events);
            self.worker.handle_engine(events);
        }
    }

    /// Passes the turn's orders to the engine.
    pub(super) fn order_engine(&mut self) {
        if let Some(port) = &mut self.engine
            && let Some(orders) = self.worker.engine_orders()
        {
            port.append(orders);
            port.flush();
        }
    }
}
