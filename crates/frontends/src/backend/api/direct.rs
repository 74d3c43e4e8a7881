//! A call of an application on this worker: the methods of the API without HTTP, keys and rates.
//!
//! Bodies and answers are those of the HTTP API. It does not know how the application asks, and where it waits.

use veche_hub::{Answer, ConnectionId, Ticket};
use veche_types::codes::ErrorCode;

use super::method::Method;
use super::{Answers, Call};
use crate::backend::Backend;
use crate::context::publishing::Publisher;
use crate::context::shared::Shared;
use crate::context::step::Block;
use crate::http::api_error::error_body;
use crate::http::call::{AnswerBody as _, ApiCall as _, CallEnd};

/// Longest answer: it becomes values of a script at once.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// One call, from its body to its answer.
pub struct DirectCall(Call);

/// What came of carrying out a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Direct {
    /// `{"result":{…}}` or `{"error":{…}}`.
    Answered(Vec<u8>),
    /// The hub takes no publication at the moment: [resume](DirectCall::resume) it later.
    NeedsCredit,
    /// Other workers have yet to answer.
    NeedsAnswers,
}

impl DirectCall {
    /// A call of the method with that name. A batch is answered as an unknown method: its commands are calls of their own.
    pub fn new(method: &str) -> Self {
        let method = match Method::of(method) {
            Method::Batch | Method::Lines => Method::Unknown(None),
            method => method,
        };
        Self(Call {
            method,
            backend: Backend::of(Publisher::APPLICATION),
            batch: None,
            has_status: false,
        })
    }

    /// Begins it. `id`: of no connection, and of no other call that is under way.
    pub fn begin(&mut self, body: &[u8], id: ConnectionId, shared: &mut Shared) -> Direct {
        finish(self.0.run(body, id, shared))
    }

    /// Goes on with it, when there may be credit, or after an answer.
    pub fn resume(&mut self, id: ConnectionId, shared: &mut Shared) -> Direct {
        finish(self.0.resume(id, shared))
    }

    /// A home or a worker has answered; [`resume`](Self::resume) comes next.
    pub fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.0.answered(ticket, answer);
    }
}

fn finish(end: CallEnd<Answers>) -> Direct {
    match end {
        CallEnd::Answered(mut answers) => {
            let mut body = Vec::new();
            if !answers.write(&mut body, ANSWER_BYTES_MAX) {
                let why = "the response exceeds 1 MiB: request less";
                body = error_body(ErrorCode::LimitExceeded, why);
            }
            Direct::Answered(body)
        }
        CallEnd::Refused(refusal) => Direct::Answered(refusal.why().as_bytes().to_vec()),
        CallEnd::Waits(Block::Credit) => Direct::NeedsCredit,
        CallEnd::Waits(_) => Direct::NeedsAnswers,
    }
}
