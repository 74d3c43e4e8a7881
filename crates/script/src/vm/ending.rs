//! Handles the end of a coroutine: starts the connection's next call, answers the request, or sets the state of the
//! service.

use super::{DeferredCall, HandlerName, Vm};
use crate::ConnectionId;
use crate::host_context::EndedRequest;
use crate::raw::{LuaError, RunEnd};
use crate::role::AppRole;
use crate::task::TaskOwner;
use veche_runtime::hooks::HookResponse;
use veche_runtime::{Effect, HandshakeReply, ServiceState};

impl Vm {
    pub(super) fn ended(&mut self, owner: TaskOwner) {
        match owner {
            TaskOwner::Connection(id, _) => self.next_of(id),
            TaskOwner::Start => self.open_gate(),
            // An unanswered request is answered with an error.
            TaskOwner::Request(number) | TaskOwner::Handshake(number) => {
                self.abandon(number, owner)
            }
            TaskOwner::Events => self.is_handling_events = false,
            TaskOwner::Stop => self.is_stopping = false,
            // If a timer of the service has failed, the state is already `Failed`.
            TaskOwner::Run if self.run != ServiceState::Failed => self.run = ServiceState::Over,
            TaskOwner::Run => {}
            TaskOwner::Spawned(number) => {
                self.reports.remove(&number);
            }
            // A hook handler that has ended has already responded.
            TaskOwner::Hook(..) => {}
        }
    }

    pub(super) fn failed(&mut self, owner: TaskOwner, failure: LuaError) {
        match owner {
            TaskOwner::Connection(id, handler) => {
                self.end_of(id, handler, failure);
                self.next_of(id);
            }
            TaskOwner::Start => {
                self.report(owner, &failure);
                self.open_gate();
            }
            TaskOwner::Stop => {
                self.is_stopping = false;
                self.report(owner, &failure);
            }
            TaskOwner::Run => {
                self.run = ServiceState::Failed;
                self.report(owner, &failure);
            }
            TaskOwner::Request(number) | TaskOwner::Handshake(number) => {
                self.report(owner, &failure);
                self.abandon(number, owner);
            }
            TaskOwner::Hook(number, _) => {
                self.report(owner, &failure);
                self.context.set_hook_response(number, HookResponse::Failed);
            }
            TaskOwner::Events => {
                // The handler has failed. The events of its batch are not delivered again.
                self.is_handling_events = false;
                self.report(owner, &failure);
            }
            TaskOwner::Spawned(number) => {
                let result = self.machine.guarded_without_limit(|| {
                    let failed = &self.task_failed;
                    failed.call::<(bool, bool)>((number as f64, failure.words.as_str()))
                });
                let (is_awaited, fails) = result.unwrap_or_default();
                let fails_service = fails && self.role != AppRole::Clients;
                if !is_awaited || fails_service {
                    self.report(owner, &failure);
                }
                if fails_service {
                    self.run = ServiceState::Failed;
                }
            }
        }
    }

    /// Handles the failure of a connection's handler: logs the failure and requests that the connection is closed.
    pub(super) fn end_of(&mut self, id: ConnectionId, handler: HandlerName, failure: LuaError) {
        self.report(TaskOwner::Connection(id, handler), &failure);
        // A connection that the script dialed stays open: its server is not at fault for the error.
        if self.local(id).is_some_and(|local| local.is_client) {
            return;
        }
        self.context.effect(Effect::Failed { of: id });
        self.context.world.connections.borrow_mut().set_closing(id);
    }

    /// Starts the next call of a connection after a suspended handler has finished.
    pub(super) fn next_of(&mut self, id: ConnectionId) {
        loop {
            let is_late = self.is_share_over();
            let Some(local) = self.local(id).filter(|local| local.is_busy) else {
                return;
            };
            if is_late {
                return self.postponed.push_back(DeferredCall::Of(id));
            }
            let Some(place) = local.queue.pop_front() else {
                local.is_busy = false;
                if local.is_ending {
                    return self.forget(id);
                }
                return self.context.effect(Effect::Ready { of: id });
            };
            local.failed_waits = 0;
            let Some(task) = self.tasks.take(place) else {
                continue;
            };
            match self.resume(&task.coroutine, &[], task.owner, task.owner.name()) {
                RunEnd::Ended => self.machine.recycle(task.coroutine),
                RunEnd::Failed(failure) => {
                    self.drop_dead(task.coroutine);
                    if let TaskOwner::Connection(id, handler) = task.owner {
                        self.end_of(id, handler, failure);
                    }
                }
                waits => return self.left(task.coroutine, task.owner, waits),
            }
        }
    }

    /// Removes all state of a connection.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        if self.local(id).is_some_and(|local| local.is_client) {
            self.context.client_gone();
        }
        self.release_connection(id);
        self.context.world.connections.borrow_mut().remove(id);
    }

    /// Responds to a request whose handler ended without a response.
    pub(super) fn abandon(&self, number: u64, owner: TaskOwner) {
        let ended = self.context.requests().end(number);
        match ended {
            Some(EndedRequest {
                id: to,
                has_begun: true,
            }) => {
                let is_whole = false;
                self.context.effect(Effect::End { to, is_whole });
            }
            Some(EndedRequest { id, .. }) => self.refuse(id, owner),
            None => {}
        }
    }

    pub(super) fn refuse(&self, id: ConnectionId, owner: TaskOwner) {
        let headers = vec![("Content-Type".into(), "text/plain; charset=utf-8".into())];
        let body = b"internal error\n";
        let mut effects = self.context.world.effects.borrow_mut();
        let effect = if matches!(owner, TaskOwner::Handshake(_)) {
            let body = body.to_vec();
            Effect::Handshake {
                of: id,
                reply: HandshakeReply::Refuse {
                    status: 500,
                    headers,
                    body,
                },
            }
        } else {
            let body = effects.store(body).unwrap_or_default();
            Effect::Respond {
                to: id,
                status: 500,
                headers,
                body,
            }
        };
        effects.list.push(effect);
    }
}
