//! What reaches an open session alone: tokens, relayed commands, decisions, its application.

use veche_hub::ConnectionId;

use super::{Connection, Stage, stays};
use crate::context::hooks::{QuestionId, Verdict};
use crate::context::relay::Relay;
use crate::context::shared::Shared;
use crate::context::step::{Block, Then};
use crate::websocket::NotRenewed;

impl Connection {
    /// Another token for a session that one has opened; how long it holds, in milliseconds.
    ///
    /// # Errors
    /// It is no good, and the one before stays.
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

    /// Commands have come another way.
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

    /// What has been decided on one of its commands.
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

    /// The handler of an application that waited has ended.
    pub fn app_ready(&mut self, id: ConnectionId, shared: &mut Shared) {
        let Stage::Socket(socket) = &mut self.stage else {
            return;
        };
        // What waits for the client to read is taken up when it has.
        if !socket.app_ready() {
            return;
        }
        match self.blocked {
            None | Some(Block::App) => {
                let then = socket.resume(id, shared).map(stays);
                self.go_on(id, then, shared);
            }
            Some(Block::Pace) => {
                // What came in time is handled; what is behind it still waits.
                let _ = socket.resume(id, shared);
                self.settle(id, shared);
            }
            _ => {}
        }
    }

    /// An outbox that was full has room again.
    pub fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        if let Stage::Socket(socket) = &mut self.stage {
            socket.drained(id, shared);
        }
    }
}
