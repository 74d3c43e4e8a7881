//! Handlers whose connection is gone: their waits fail, so that none outlives its connection.
//!
//! It does not know what they wait for, and leaves alone the last handler of a connection, whose waits are its own, and
//! those of connections to other servers, which still hand over what has come.

use super::Vm;
use crate::ConnectionId;
use crate::host_context::WakeReason;
use crate::raw::LuaError;
use crate::vm::HandlerName;
use veche_runtime::{Token, WaitResult};

/// A handler that has gone on to wait so often after its connection was gone is ended.
const FAILED_WAITS_MAX: u32 = 64;

/// What is told of it.
const STOPPED: &str = "a handler went on waiting after its connection was closed, and was stopped";

impl Vm {
    /// A handler of that connection waits.
    pub(super) fn waits_of_closed(&mut self, id: ConnectionId, handler: HandlerName, token: Token) {
        let Some(local) = self.local(id).filter(|_| handler != HandlerName::Close) else {
            return;
        };
        local.wait = Some(token);
        if local.is_ending {
            self.fail_wait_of(id, token);
        }
    }

    /// What a handler waits for fails, since its connection is gone.
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
        self.desk.cancel_call(token);
        if !is_over {
            let closed = WaitResult::Failed(veche_runtime::CLOSED.to_owned());
            self.desk.wake(token, WakeReason::Answered(closed));
        } else if let Some(task) = self.tasks.take_waiting(token) {
            self.drop_dead(task.coroutine);
            self.failed(task.owner, LuaError::error_message(STOPPED));
        }
    }
}
