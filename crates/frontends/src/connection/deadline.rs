//! Deadlines of a connection.

use veche_hub::ConnectionId;

use super::{Connection, Stage};
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;

impl Connection {
    /// Sets the next deadline. If the session is closing and uses a streamed HTTP response instead of a WebSocket, ends
    /// the connection.
    pub(super) fn settle_deadline(&mut self, id: ConnectionId, shared: &mut Context) {
        if let Stage::Socket(socket) = &self.stage
            && socket.is_closing()
            && socket.is_response()
        {
            // The peer does not acknowledge the final chunk, so nothing is awaited.
            self.end(id, shared);
        }
        self.deadline_ms = match &self.stage {
            // While input waits for output to be sent, nothing is read from the peer, so only `write_timeout` checks
            // whether the peer still reads.
            Stage::Http(_) if self.blocked == Some(WaitReason::Output) => u64::MAX,
            Stage::Socket(socket)
                if self.blocked == Some(WaitReason::RateLimit) && !socket.is_closing() =>
            {
                socket.throttled_deadline_ms(shared)
            }
            Stage::Socket(socket)
                if self.blocked == Some(WaitReason::HookDecision) && !socket.is_closing() =>
            {
                socket.hook_deadline_ms(shared)
            }
            Stage::Socket(socket) if self.blocked.is_some() && !socket.is_closing() => {
                socket.blocked_deadline_ms(shared)
            }
            Stage::Http(http) => http.deadline_ms(shared),
            Stage::Dialing(dialing) => dialing.deadline_ms(),
            Stage::Socket(socket) => socket.deadline_ms(id, shared),
            Stage::Lines(_) => u64::MAX,
            Stage::Ending => self.deadline_ms,
        };
    }
}
