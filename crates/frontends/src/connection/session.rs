//! Events for open sessions only: token renewals, relayed commands, hook decisions, their application.

use veche_hub::ConnectionId;

use super::{Connection, Stage, stays};
use crate::context::hooks::{QuestionId, Verdict};
use crate::context::relay::Relay;
use crate::context::shared::Shared;
use crate::context::step::{Block, Then};
use crate::websocket::NotRenewed;

impl Connection {
    /// Replaces the token of a session that was opened with one; returns how long it is valid, in milliseconds.
    ///
    /// # Errors
    /// The token is invalid; the previous one stays in force.
    pub fn renew(
        &mut self,
        id: ConnectionId,
        token: &str,
        shared: &mut Shared,
    ) -> Result<Option<u64>, NotRenewed> {
        let Stage::Socket(socket) = &mut self.stage else {
            return Err(NotRenewed::Closed);
        };
        let renewed = socket.renew(token, shared);
        self.settle_deadline(id, shared);
        renewed
    }

    /// Handles commands that arrived with another request.
    pub fn relayed(&mut self, id: ConnectionId, relay: &Relay, shared: &mut Shared) {
        let Stage::Socket(socket) = &mut self.stage else {
            return;
        };
        if let Then::Wait(block) = socket.relayed(id, relay, shared).map(stays)
            && self.blocked.is_none()
        {
            self.block(id, block, shared);
        }
        self.settle(id, shared);
    }

    /// Handles the decision on one of the session's commands.
    pub fn judged(
        &mut self,
        id: ConnectionId,
        question: QuestionId,
        verdict: Verdict,
        shared: &mut Shared,
    ) {
        let Stage::Socket(socket) = &mut self.stage else {
            return;
        };
        let goes_on = socket.judged(id, question, verdict, shared);
        if goes_on && self.blocked == Some(Block::Verdict) {
            let then = socket.resume(id, shared).map(stays);
            return self.go_on(id, then, shared);
        }
        self.finish_if_due(id, shared);
        self.settle(id, shared);
    }

    /// Handles the end of an application handler that was waiting.
    pub fn app_ready(&mut self, id: ConnectionId, shared: &mut Shared) {
        let Stage::Socket(socket) = &mut self.stage else {
            return;
        };
        // Input that waits for the client to read is resumed by that.
        if !socket.app_ready() {
            return;
        }
        match self.blocked {
            None | Some(Block::App) => {
                let then = socket.resume(id, shared).map(stays);
                self.go_on(id, then, shared);
            }
            Some(Block::Pace) => {
                // Processes input that was received in time; further input still waits.
                let _ = socket.resume(id, shared);
                self.settle(id, shared);
            }
            _ => {}
        }
    }

    /// Handles that a full outbox has room again.
    pub fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        if let Stage::Socket(socket) = &mut self.stage {
            socket.drained(id, shared);
        }
    }
}
