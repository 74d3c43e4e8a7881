//! The API's WebSocket: each message is a command, always answered in order.

use veche_hub::{Answer, ConnectionId, Ticket};
use veche_proto::websocket::MessageKind;
use veche_types::codes::CloseCode;

use crate::backend::command;
use crate::backend::{Backend, Progress, Shape};
use crate::context::census::About;
use crate::context::pace::Paced;
use crate::context::session::{Context, Flow, Session};
use crate::context::shared::Shared;
use crate::context::stats::Handshake;
use crate::context::step::Block;
use crate::http::api_error::unauthorized;
use crate::http::protocol::{Begun, Opening, Wanted};
use crate::http::upgrade::Refused;

impl Opening for Box<Backend> {
    fn begin(wanted: &Wanted<'_, '_, '_>, shared: &Shared) -> Result<Begun<Self>, Refused> {
        match shared.site.publisher(wanted.head) {
            Some(publisher) => Ok(Begun::of(Self::new(Backend::of(publisher)))),
            None => Err(Refused {
                refusal: unauthorized(),
                outcome: Handshake::Unauthorized,
            }),
        }
    }
}

impl Session for Box<Backend> {
    fn about(&self) -> About<'_> {
        About::of("api")
    }

    fn counts_commands(&self) -> bool {
        true
    }

    fn message(&mut self, kind: MessageKind, data: &[u8], cx: &mut Context<'_>) -> Flow {
        if Backend::is_full(self) {
            // A decoded frame can't be returned to the input, so it is stored here.
            self.keep(kind, data.to_vec());
            return Flow::Wait(Block::Answer);
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
        let pace = cx.pace.as_mut();
        match pace.map(|pace| pace.publications(count, shared.now.mono_ms)) {
            Some(Paced::Drop) => {
                shared.stats.messages_dropped.add(1);
                return Flow::GoOn;
            }
            Some(Paced::Close) => {
                if cx.is_open {
                    shared.count_outpaced(cx.id);
                }
                return Flow::close(CloseCode::TooFast.parts());
            }
            _ => {}
        }
        let progress = match result {
            Err(error) => {
                self.refuse(None, error.into(), "", cx.id, shared);
                Progress::Done
            }
            Ok(command) => self
                .publish(&command, Shape::Sum, true, cx.id, shared)
                .unwrap_or_else(|why| {
                    self.refuse(command.id, why, "", cx.id, shared);
                    Progress::Done
                }),
        };
        write_answers(self, cx.id, shared);
        match progress {
            Progress::Done => Flow::GoOn,
            Progress::Unfinished => Flow::Wait(Block::Credit),
        }
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Flow {
        if !Backend::resume(self, cx.id, cx.shared) {
            return Flow::Wait(Block::Credit);
        }
        write_answers(self, cx.id, cx.shared);
        match self.take_kept() {
            Some((kind, data)) => self.message(kind, &data, cx),
            None => Flow::GoOn,
        }
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer, cx: &mut Context<'_>) -> Option<Flow> {
        Backend::answered(self, ticket, answer);
        write_answers(self, cx.id, cx.shared).then_some(Flow::GoOn)
    }

    fn is_back_end(&self) -> bool {
        true
    }
}

/// Writes the complete answers; returns whether there were any.
fn write_answers(backend: &mut Backend, id: ConnectionId, shared: &mut Shared) -> bool {
    let mut wrote = false;
    let mut reply = std::mem::take(&mut shared.scratch.reply);
    while backend.write_answer(&mut reply, "result") {
        shared.ports.outboxes.message(id, MessageKind::Text, &reply);
        reply.clear();
        wrote = true;
    }
    shared.scratch.reply = reply;
    wrote
}
