//! The API's WebSocket: each message is a command, and every command is answered, in order.

use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::websocket::MessageKind;
use veche_types::codes::CloseCode;

use crate::backend::command;
use crate::backend::{AnswerShape, Backend, CommandProgress};
use crate::context::rate_limiter::RateDecision;
use crate::context::session::{Flow, Session, SessionContext};
use crate::context::session_info::SessionInfo;
use crate::context::stats::HandshakeOutcome;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;
use crate::http::api_error::unauthorized;
use crate::http::protocol::{HandshakeRequest, NewSession, OpenSession};
use crate::http::upgrade::RefusedUpgrade;

impl OpenSession for Box<Backend> {
    fn begin(
        wanted: &HandshakeRequest<'_, '_, '_>,
        shared: &Context,
    ) -> Result<NewSession<Self>, RefusedUpgrade> {
        match shared.config.publisher(wanted.head) {
            Some(publisher) => Ok(NewSession::of(Self::new(Backend::of(publisher)))),
            None => Err(RefusedUpgrade {
                refusal: unauthorized(),
                outcome: HandshakeOutcome::Unauthorized,
            }),
        }
    }
}

impl Session for Box<Backend> {
    fn info(&self) -> SessionInfo<'_> {
        SessionInfo::of("api")
    }

    fn counts_commands(&self) -> bool {
        true
    }

    fn handle_message(
        &mut self,
        kind: MessageKind,
        data: &[u8],
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        if Backend::is_full(self) {
            // The frame is already decoded and can't be returned to the input, so it is stored.
            self.store_unwritten(kind, data.to_vec());
            return Flow::Wait(WaitReason::Answer);
        }
        let shared = &mut *cx.shared;
        let mut scratch = std::mem::take(&mut shared.scratch.payload);
        let result = match kind {
            MessageKind::Text => command::parse(data, &mut scratch),
            MessageKind::Binary => Err(command::BadCommand::new(
                "expected a text message with a JSON object",
            )),
        };
        shared.scratch.payload = scratch;
        let count = result.as_ref().map_or(1, |command| command.target.count());
        let pace = cx.rate_limiter.as_mut();
        match pace.map(|pace| pace.publications(count, shared.now.mono_ms)) {
            Some(RateDecision::Drop) => {
                shared.stats.messages_dropped.add(1);
                return Flow::Continue;
            }
            Some(RateDecision::Close) => {
                if cx.is_open {
                    shared.count_rate_limited(cx.id);
                }
                return Flow::close(CloseCode::TooFast.parts());
            }
            _ => {}
        }
        let progress = match result {
            Err(error) => {
                self.refuse(None, error.into(), "", cx.id, shared);
                CommandProgress::Done
            }
            Ok(command) => self
                .publish(&command, AnswerShape::Sum, true, cx.id, shared)
                .unwrap_or_else(|why| {
                    self.refuse(command.id, why, "", cx.id, shared);
                    CommandProgress::Done
                }),
        };
        write_answers(self, cx.id, shared);
        match progress {
            CommandProgress::Done => Flow::Continue,
            CommandProgress::Unfinished => Flow::Wait(WaitReason::Credit),
        }
    }

    fn resume(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        if !Backend::resume(self, cx.id, cx.shared) {
            return Flow::Wait(WaitReason::Credit);
        }
        write_answers(self, cx.id, cx.shared);
        match self.take_unwritten() {
            Some((kind, data)) => self.handle_message(kind, &data, cx),
            None => Flow::Continue,
        }
    }

    fn handle_answer(
        &mut self,
        ticket: Ticket,
        answer: HubReply,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        Backend::answered(self, ticket, answer);
        write_answers(self, cx.id, cx.shared).then_some(Flow::Continue)
    }

    fn is_back_end(&self) -> bool {
        true
    }
}

/// Writes the complete answers; returns whether there were any.
fn write_answers(backend: &mut Backend, id: ConnectionId, shared: &mut Context) -> bool {
    let mut wrote = false;
    let mut reply = std::mem::take(&mut shared.scratch.reply);
    while backend.write_answer(&mut reply, "result") {
        shared
            .requests
            .outboxes
            .message(id, MessageKind::Text, &reply);
        reply.clear();
        wrote = true;
    }
    shared.scratch.reply = reply;
    wrote
}
