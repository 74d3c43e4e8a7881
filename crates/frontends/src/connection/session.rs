//! Events that concern only open sessions: token renewals, relayed commands, hook decisions, ended application
//! handlers.

use veche_hub::ConnectionId;

use super::{Connection, Stage, no_next_stage};
use crate::context::hooks::{HookDecision, HookRequestId};
use crate::context::relay::EmulationRequest;
use crate::context::step::{NextStep, WaitReason};
use crate::context::worker_context::Context;
use crate::websocket::RenewError;

impl Connection {
    /// Replaces the token of a session that was opened with a token. Returns for how many milliseconds the new token is
    /// valid; `None`: indefinitely.
    ///
    /// # Errors
    /// The token is invalid; the previous one stays in force.
    pub fn renew_token(
        &mut self,
        id: ConnectionId,
        token: &str,
        shared: &mut Context,
    ) -> Result<Option<u64>, RenewError> {
        let Stage::Socket(socket) = &mut self.stage else {
            return Err(RenewError::Closed);
        };
        let renewed = socket.renew(token, shared);
        self.settle_deadline(id, shared);
        renewed
    }

    /// Handles commands that the client sent in a request on another connection.
    pub fn handle_relay(
        &mut self,
        id: ConnectionId,
        relay: &EmulationRequest,
        shared: &mut Context,
    ) {
        let Stage::Socket(socket) = &mut self.stage else {
            return;
        };
        if let NextStep::Wait(block) = socket.handle_relay(id, relay, shared).map(no_next_stage)
            && self.blocked.is_none()
        {
            self.block(id, block, shared);
        }
        self.unblock_if_closed(id, shared);
    }

    /// Handles the decision of a hook on one of the session's commands.
    pub fn handle_hook_decision(
        &mut self,
        id: ConnectionId,
        request_id: HookRequestId,
        decision: HookDecision,
        shared: &mut Context,
    ) {
        let Stage::Socket(socket) = &mut self.stage else {
            return;
        };
        let goes_on = socket.handle_hook_decision(id, request_id, decision, shared);
        if goes_on && self.blocked == Some(WaitReason::HookDecision) {
            let then = socket.resume(id, shared).map(no_next_stage);
            return self.apply_step(id, then, shared);
        }
        self.finish_if_due(id, shared);
        self.unblock_if_closed(id, shared);
    }

    /// Handles the end of a suspended application handler.
    pub fn handle_app_ready(&mut self, id: ConnectionId, shared: &mut Context) {
        let Stage::Socket(socket) = &mut self.stage else {
            return;
        };
        // If the input also waits for the client to read, it is not resumed here but once the output is sent.
        if !socket.app_ready() {
            return;
        }
        match self.blocked {
            None | Some(WaitReason::App) => {
                let then = socket.resume(id, shared).map(no_next_stage);
                self.apply_step(id, then, shared);
            }
            Some(WaitReason::RateLimit) => {
                // Processes messages that were received before the rate was exceeded; later input still waits.
                let _ = socket.resume(id, shared);
                self.unblock_if_closed(id, shared);
            }
            _ => {}
        }
    }

    /// Handles the event that a full outbox has room again.
    pub fn handle_drained(&mut self, id: ConnectionId, shared: &mut Context) {
        if let Stage::Socket(socket) = &mut self.stage {
            socket.drained(id, shared);
        }
    }
}
