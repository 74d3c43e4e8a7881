//! Replaces a VM by a newer one at a reload. The newer VM takes over the connections. When the older VM
//! ends, its waiting coroutines are resumed or dropped.
//!
//! The caller decides when code is replaced and how long the handlers of the replaced code may continue.

use std::rc::Rc;

use super::{HandlerName, Vm};
use crate::ConnectionId;
use crate::Now;
use crate::modules;
use crate::task::TaskOwner;
use veche_runtime::{Effect, Level};

impl Vm {
    /// Takes over the open connections of the previous VM; `app.open` is not called again.
    pub fn adopt(&mut self) {
        let world = Rc::clone(&self.context.world);
        for id in world.connections.borrow().open_ids() {
            self.know(id);
        }
    }

    /// Returns whether data can be sent to a connection.
    #[must_use]
    pub fn is_open(&self, id: ConnectionId) -> bool {
        self.context.world.connections.borrow().is_open(id)
    }

    /// Marks a connection as closed by something other than the script; returns whether it was
    /// open.
    pub fn closing(&self, id: ConnectionId) -> bool {
        self.context.world.connections.borrow_mut().set_closing(id)
    }

    /// Resumes coroutines of this VM that wait for room on a connection that a newer VM now owns.
    pub fn drained_elsewhere(&mut self, id: ConnectionId, now: Now) {
        self.set_now(now);
        self.room_again(id);
    }

    /// Returns whether a handler of a connection is suspended in this VM.
    #[must_use]
    pub fn is_busy_with(&mut self, id: ConnectionId) -> bool {
        self.local(id).is_some_and(|local| local.is_busy)
    }

    /// Releases a connection that another VM has taken over.
    pub fn release_connection(&mut self, id: ConnectionId) {
        let left = self.leaving.remove(&id).or_else(|| {
            let slot = self.locals.get_mut(id.index as usize)?;
            slot.take_if(|local| local.generation == id.generation)
        });
        if let Some(local) = left {
            self.context.wake_senders(id);
            self.machine.release(local.object);
        }
    }

    /// Returns the open connections.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionId> {
        let world = &self.context.world;
        world.connections.borrow().open_ids().collect()
    }

    /// Calls `app.stop` once, because newer code has taken over, the application was removed, or the server
    /// shuts down.
    pub fn stop(&mut self, now: Now) {
        self.set_now(now);
        if self.context.is_retired() {
            return;
        }
        self.context.retire();
        self.retire_clients();
        let result = self
            .machine
            .guarded_without_limit(|| self.wake_stop_waits.call::<()>(()));
        if let Err(error) = result {
            self.context.log(Level::Error, modules::words(&error));
        }
        if let Some(function) = self.handlers[HandlerName::Stop as usize] {
            let coroutine = self.machine.prepare(function, &[]);
            self.is_stopping = true;
            self.run(coroutine, TaskOwner::Stop, &[]);
        }
        self.settle();
    }

    /// Fails all requests, hooks and calls that wait for a handler of this VM. No other method may be called
    /// afterwards.
    pub fn finish(&mut self) {
        self.context.cancel_calls();
        self.context.streams.borrow_mut().close_all();
        self.leave_queues();
        for of in self.ids(|local| local.is_busy) {
            self.context.effect(Effect::Ready { of });
        }
        // Makes the queued `close` calls of connections that closed while a handler was suspended.
        let mut ending = Vec::new();
        for local in self.locals.iter_mut().flatten() {
            if local.is_ending
                && let Some(place) = local.queue.pop_back()
            {
                ending.push(place);
            }
        }
        for local in self.leaving.values_mut() {
            ending.extend(local.queue.pop_back());
        }
        for place in ending {
            if let Some(task) = self.tasks.take(place) {
                // If the call waits, it is discarded, because the awaited result will not arrive.
                self.machine.resume(&task.coroutine, &[]);
                self.machine.discard(task.coroutine);
            }
        }
        for (number, owner) in self.tasks.requests() {
            self.abandon(number, owner);
        }
        self.context.fail_open_hooks();
        self.end_clients();
    }
}

impl Vm {
    /// Removes the VM's coroutines from the queues in which they wait, so that the remaining waiters are served.
    fn leave_queues(&self) {
        let queues = &self.context.world.queues;
        queues.end_all(|token| self.tasks.is_waiting(token));
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.leave_queues();
    }
}
