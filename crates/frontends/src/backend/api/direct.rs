//! A call of an application on this worker: the methods of the API without HTTP, keys and rates.
//!
//! Bodies and answers are those of the HTTP API. It does not know how the application asks, and where it waits.

use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_types::codes::ErrorCode;

use super::method::ApiMethod;
use super::{ApiAnswerBody, BackendCall};
use crate::backend::Backend;
use crate::context::publish_limiter::PublisherKey;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;
use crate::http::api_error::error_body;
use crate::http::call::{AnswerBody as _, ApiCall as _, CallStatus};

/// Longest answer: it becomes values of a script at once.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// One call, from its body to its answer.
pub struct DirectCall(BackendCall);

/// What came of carrying out a call.
#[derive(Debug, PartialEq, Eq)]
pub enum DirectCallStatus {
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
        let method = match ApiMethod::of(method) {
            ApiMethod::Batch | ApiMethod::Lines => ApiMethod::Unknown(None),
            method => method,
        };
        Self(BackendCall {
            method,
            backend: Backend::of(PublisherKey::APPLICATION),
            batch: None,
            has_status: false,
        })
    }

    /// Begins it. `id`: of no connection, and of no other call that is under way.
    pub fn begin(
        &mut self,
        body: &[u8],
        id: ConnectionId,
        shared: &mut Context,
    ) -> DirectCallStatus {
        finish(self.0.run(body, id, shared))
    }

    /// Goes on with it, when there may be credit, or after an answer.
    pub fn resume(&mut self, id: ConnectionId, shared: &mut Context) -> DirectCallStatus {
        finish(self.0.resume(id, shared))
    }

    /// A home or a worker has answered; [`resume`](Self::resume) comes next.
    pub fn answered(&mut self, ticket: Ticket, answer: HubReply) {
        self.0.answered(ticket, answer);
    }
}

fn finish(end: CallStatus<ApiAnswerBody>) -> DirectCallStatus {
    match end {
        CallStatus::Answered(mut answers) => {
            let mut body = Vec::new();
            if !answers.write(&mut body, ANSWER_BYTES_MAX) {
                let why = "the answer is longer than 1 MiB: ask for less";
                body = error_body(ErrorCode::LimitExceeded, why);
            }
            DirectCallStatus::Answered(body)
        }
        CallStatus::Refused(refusal) => {
            DirectCallStatus::Answered(refusal.why().as_bytes().to_vec())
        }
        CallStatus::Pending(WaitReason::Credit) => DirectCallStatus::NeedsCredit,
        CallStatus::Pending(_) => DirectCallStatus::NeedsAnswers,
    }
}
