//! API calls of an application on this worker, without HTTP, keys and rates.
//!
//! Bodies and responses are those of the HTTP API. How the application calls and waits is not known here.

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

/// Maximum length of a response, which is converted to script values at once.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An API call of an application.
pub struct DirectCall(Call);

/// The status of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Direct {
    /// Done: `{"result":{…}}` or `{"error":{…}}`.
    Answered(Vec<u8>),
    /// The hub currently accepts no publications: [resume](DirectCall::resume) it later.
    NeedsCredit,
    /// Other workers have not answered yet.
    NeedsAnswers,
}

impl DirectCall {
    /// Creates a call of the method with this name. A batch is answered as an unknown method, since its commands can be
    /// separate calls.
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

    /// Begins the call. `id` must differ from those of connections and of other calls in progress.
    pub fn begin(&mut self, body: &[u8], id: ConnectionId, shared: &mut Shared) -> Direct {
        finish(self.0.run(body, id, shared))
    }

    /// Continues when there may be credit, or after an answer.
    pub fn resume(&mut self, id: ConnectionId, shared: &mut Shared) -> Direct {
        finish(self.0.resume(id, shared))
    }

    /// Handles the answer of a worker; [`resume`](Self::resume) follows.
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
