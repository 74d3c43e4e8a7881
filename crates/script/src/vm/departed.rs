//! Handlers of closed connections: their waits fail, so that no handler outlives its connection for long.
//!
//! All kinds of waits fail, except in the connection's last handler, and in handlers of outgoing
//! connections, which still deliver received messages.

use super::Vm;
use crate::ConnectionId;
use crate::host_context::WakeReason;
use crate::raw::LuaError;
use crate::vm::HandlerName;
use veche_runtime::{Token, WaitResult};

/// The maximum number of waits that a handler may start after its connection has closed.
const FAILED_WAITS_MAX: u32 = 64;

/// The error of a handler that exceeds [`FAILED_WAITS_MAX`].
const STOPPED: &str =
    "a handler was stopped, because it kept waiting after its connection was closed";

impl Vm {
    /// Records the wait of a handler, and fails the wait if the handler's connection has closed. Waits of `app.close`
    /// don't fail.
    pub(super) fn waits_of_closed(&mut self, id: ConnectionId, handler: HandlerName, token: Token) {
        let Some(local) = self.local(id).filter(|_| handler != HandlerName::Close) else {
            return;
        };
        local.wait = Some(token);
        if local.is_ending {
            self.fail_wait_of(id, token);
        }
    }

    /// Fails a wait, since the connection has closed.
    pub(super) fn fail_wait_of(&mut self, id: ConnectionId, token: Token) {
        let is_waiting = self.is_waiting(token);
        let Some(local) = self.local(id).filter(|local| !local.is_client) else {
            return;
        };
        if !is_waiting {
            return;
        }
        local.failed_waits += 1;
        let is_over = local.failed_waits > FAILED_WAITS_MAX;
        self.context.cancel_call(token);
        if !is_over {
            let closed = WaitResult::Failed(veche_runtime::CLOSED.to_owned());
            self.context.wake(token, WakeReason::Answered(closed));
        } else if let Some(task) = self.tasks.take_waiting(token) {
            self.drop_dead(task.coroutine);
            self.failed(task.owner, LuaError::error_message(STOPPED));
        }
    }
}
