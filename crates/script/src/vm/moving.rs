//! Moves calls that wait for `app.start` to the VM with the newer code.
//!
//! A prepared call is a coroutine, which can't leave its VM. So its arguments are read back from its stack, and the
//! newer VM prepares a new call with them.

use std::collections::VecDeque;

use super::{HandlerName, Vm};
use crate::ConnectionId;
use crate::Now;
use crate::raw::{Argument, Coroutine};
use crate::task::TaskOwner;
use veche_runtime::Effect;

impl Vm {
    /// Returns whether calls wait for the end of `app.start`.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.gate.is_some()
    }

    /// Moves the calls of connections, requests and handshakes that wait for the end of `app.start` to a VM that has
    /// [adopted](Self::adopt) the open connections. No state of these connections remains here.
    pub fn move_calls_to(&mut self, newer: &mut Self, now: Now) {
        let Some(gate) = self.gate.take() else { return };
        newer.set_now(now);
        let waiting: Vec<_> = self
            .ids(|local| local.is_busy && !local.is_client)
            .collect();
        for id in waiting {
            self.move_connection_to(newer, id);
        }
        let mut left = VecDeque::new();
        for place in gate {
            match self.tasks.owner_at(place) {
                Some(TaskOwner::Request(number) | TaskOwner::Handshake(number)) => {
                    self.move_request_to(newer, place, number, now);
                }
                _ => left.push_back(place),
            }
        }
        self.gate = Some(left);
    }

    fn move_connection_to(&mut self, newer: &mut Self, id: ConnectionId) {
        let Some(local) = self.local(id) else { return };
        let queue = std::mem::take(&mut local.queue);
        if newer.local(id).is_none() {
            newer.know(id);
        }
        for place in queue {
            let Some(task) = self.tasks.take(place) else {
                continue;
            };
            if let TaskOwner::Connection(_, handler) = task.owner {
                self.move_call_to(newer, id, handler, &task.coroutine);
            }
            self.machine.discard(task.coroutine);
        }
        self.release_connection(id);
        match newer.local(id) {
            Some(local) if local.is_busy => {}
            Some(local) if local.is_ending => newer.forget(id),
            // The newer code runs no handler for this connection, so the connection can get its next event.
            _ => newer.context.effect(Effect::Ready { of: id }),
        }
    }

    fn move_call_to(
        &self,
        newer: &mut Self,
        id: ConnectionId,
        handler: HandlerName,
        prepared: &Coroutine,
    ) {
        let Some(local) = newer.local(id) else { return };
        local.is_ending |= handler == HandlerName::Close;
        let object = Argument::Registered(local.object);
        let argument = |place| self.machine.argument(prepared, place);
        let arguments: &[Argument<'_>] = match handler {
            HandlerName::Message => &[object, argument(2), argument(3)],
            HandlerName::Close => &[object, argument(2), argument(3)],
            _ => &[object],
        };
        newer.call(id, handler, arguments);
    }

    fn move_request_to(&mut self, newer: &mut Self, place: u32, number: u64, now: Now) {
        let Some(task) = self.tasks.take(place) else {
            return;
        };
        let request = self.context.requests().take(number);
        self.machine.discard(task.coroutine);
        let Some((id, request)) = request else { return };
        match task.owner {
            TaskOwner::Handshake(_) => newer.handshake(id, request, now),
            _ => newer.request(id, request, now),
        }
    }

    /// Withdraws a hook request that waits for the end of `app.start`, so that another VM can handle it; returns
    /// whether the request was waiting.
    pub fn cancel_hook(&mut self, number: u64) -> bool {
        let is_it = |owner| matches!(owner, TaskOwner::Hook(of, _) if of == number);
        let Some(gate) = &mut self.gate else {
            return false;
        };
        let tasks = &mut self.tasks;
        let waits = |place: &u32| tasks.owner_at(*place).is_some_and(is_it);
        let Some(at) = gate.iter().position(waits) else {
            return false;
        };
        let place = gate.remove(at);
        if let Some(task) = place.and_then(|place| tasks.take(place)) {
            self.machine.discard(task.coroutine);
            self.context.forget_context(task.owner);
        }
        self.context.close_hook(number);
        true
    }
}
