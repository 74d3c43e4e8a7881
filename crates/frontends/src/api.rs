//! The back end's HTTP API: which call a path names, who may call, what is answered.
//!
//! Publishing itself is [`backend`](crate::backend)'s. Answers are `{"result":{…}}` or `{"error":{"code","message"}}`,
//! with status 200: the transport did its work.

use veche_hub::{Answer, Question, SessionId, Ticket};
use veche_proto::http::{Framing, Head, Method, Status};

use crate::backend::{
    BAD_REQUEST, Backend, METHOD_NOT_FOUND, Progress, Shape, UNAUTHORIZED, Unwilling, write_error,
};
use crate::command::{self, BadCommand, Command, Inquiry, Target};
use crate::reply::Refusal;
use crate::shared::Shared;
use crate::step::Block;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Push,
    Publish,
    Broadcast,
    Disconnect,
    History,
    HistoryRemove,
    Presence,
    PresenceStats,
    Info,
    Unknown,
}

/// One call, from its head to its answer.
pub(crate) struct Call {
    name: Name,
    backend: Backend,
}

/// What came of carrying out a call.
pub(crate) enum CallEnd {
    /// The body of the answer.
    Answered(Vec<u8>),
    /// It is not carried out now.
    Refused(Refusal),
    /// Resume it later.
    Waits(Block),
}

impl Call {
    /// Judges the head of a call; `below` is the path below `/api`.
    pub(crate) fn begin(head: &Head<'_>, below: &str, shared: &Shared) -> Result<Self, Refusal> {
        let publisher = shared.site.publisher(head).ok_or_else(unauthorized)?;
        let name = match below.trim_matches('/') {
            "push" => Name::Push,
            "publish" => Name::Publish,
            "broadcast" => Name::Broadcast,
            "disconnect" => Name::Disconnect,
            "history" => Name::History,
            "history_remove" => Name::HistoryRemove,
            "presence" => Name::Presence,
            "presence_stats" => Name::PresenceStats,
            "info" => Name::Info,
            "socket" => {
                return Err(Refusal::new(
                    Status::UPGRADE_REQUIRED,
                    "this path speaks WebSocket",
                ));
            }
            _ => Name::Unknown,
        };
        let has_body =
            head.framing != Framing::None || head.header_bytes("content-length").is_some();
        if head.method == Method::Post && !has_body && !matches!(name, Name::Info | Name::Unknown) {
            let why = "this call takes a JSON object, with its Content-Length";
            return Err(Refusal::of_api(Status::LENGTH_REQUIRED, BAD_REQUEST, why));
        }
        match (name, &head.method) {
            (Name::Info, Method::Get | Method::Head) | (_, Method::Post) => {}
            _ => {
                let allow = if name == Name::Info {
                    "GET, HEAD, POST"
                } else {
                    "POST"
                };
                let why = format!("this call takes {allow}");
                return Err(
                    Refusal::of_api(Status::METHOD_NOT_ALLOWED, BAD_REQUEST, &why)
                        .with("Allow", allow),
                );
            }
        }
        Ok(Self {
            name,
            backend: Backend::of(publisher),
        })
    }

    /// Carries the call out.
    pub(crate) fn run(&mut self, body: &[u8], id: SessionId, shared: &mut Shared) -> CallEnd {
        match self.name {
            Name::Unknown => {
                return CallEnd::Answered(error_body(METHOD_NOT_FOUND, "method not found"));
            }
            Name::Info => {
                let nodes = shared.process.nodes();
                return CallEnd::Answered(
                    format!("{{\"result\":{{\"nodes\":{nodes}}}}}").into_bytes(),
                );
            }
            _ => {}
        }
        let progress = match self.inquiry(body) {
            Some(inquiry) => inquiry
                .map_err(Unwilling::from)
                .and_then(|inquiry| self.backend.ask(inquiry, id, shared)),
            None => self.publish(body, id, shared),
        };
        match progress {
            Err(Unwilling::Busy(busy)) => {
                shared.stats.push_turned_away(busy);
                CallEnd::Refused(busy.refusal())
            }
            Err(Unwilling::Bad(BadCommand(why))) => {
                shared.stats.pushes_refused.add(1);
                CallEnd::Answered(error_body(BAD_REQUEST, &why))
            }
            Ok(Progress::Unfinished) => CallEnd::Waits(Block::Credit),
            Ok(Progress::Done) => self.end(),
        }
    }

    /// What the call asks of a channel; `None` for those that don't.
    fn inquiry<'b>(&self, body: &'b [u8]) -> Option<Result<Inquiry<'b>, BadCommand>> {
        let question = match self.name {
            Name::History => return Some(command::parse_history(body)),
            Name::HistoryRemove => Question::RemoveHistory,
            Name::Presence => Question::Presence,
            Name::PresenceStats => Question::PresenceStats,
            _ => return None,
        };
        Some(command::parse_inquiry(body, question))
    }

    fn publish(
        &mut self,
        body: &[u8],
        id: SessionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        let mut scratch = std::mem::take(&mut shared.scratch.payload);
        let parsed = command::parse(body, &mut scratch);
        shared.scratch.payload = scratch;
        let command = parsed?;
        self.check(&command)?;
        let shape = match self.name {
            Name::Disconnect => return self.backend.disconnect(&command, id, shared),
            Name::Broadcast => Shape::Each,
            _ => Shape::Sum,
        };
        self.backend.publish(&command, shape, true, id, shared)
    }

    /// Whether the object says what this call is about.
    fn check(&self, command: &Command<'_>) -> Result<(), BadCommand> {
        let wanted = match (self.name, &command.target) {
            (Name::Push, Target::User(_) | Target::Users(_))
            | (Name::Publish, Target::Channel(_))
            | (Name::Broadcast, Target::Channels(_))
            | (Name::Disconnect, Target::User(_)) => return Ok(()),
            (Name::Push, _) => "\"user\" or \"users\"",
            (Name::Publish, _) => "\"channel\"",
            (Name::Broadcast, _) => "\"channels\"",
            _ => "\"user\"",
        };
        Err(BadCommand(format!("this call takes {wanted}")))
    }

    pub(crate) fn resume(&mut self, id: SessionId, shared: &mut Shared) -> CallEnd {
        if !self.backend.resume(id, shared) {
            return CallEnd::Waits(Block::Credit);
        }
        self.end()
    }

    pub(crate) fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.backend.answered(ticket, answer);
    }

    fn end(&mut self) -> CallEnd {
        let mut body = Vec::new();
        if self.backend.write_answer(&mut body) {
            CallEnd::Answered(body)
        } else {
            CallEnd::Waits(Block::Answer)
        }
    }
}

/// The answer to whoever has no key, or a wrong one.
pub(crate) fn unauthorized() -> Refusal {
    Refusal::of_api(
        Status::UNAUTHORIZED,
        UNAUTHORIZED,
        "X-API-Key is missing or wrong",
    )
    .with("WWW-Authenticate", "X-API-Key")
}

/// `{"error":{…}}`
pub(crate) fn error_body(code: u32, message: &str) -> Vec<u8> {
    let mut text = String::from("{");
    write_error(&mut text, code, message);
    text.push('}');
    text.into_bytes()
}
