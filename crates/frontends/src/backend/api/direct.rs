//! API calls by an application on this worker, without HTTP, keys and rate limits.
//!
//! Bodies and responses are those of the HTTP API. Other modules define how an application makes a
//! call and waits for the response.

use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_types::codes::ErrorCode;

use super::{ApiAnswerBody, ApiMethod, BackendCall};
use crate::backend::Backend;
use crate::context::publish_limiter::PublisherKey;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;
use crate::http::api_error::error_body;
use crate::http::call::{AnswerBody as _, ApiCall as _, CallStatus};

/// Maximum length of a response in bytes. The length is limited because a response is converted to script values in one
/// step.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An API call of an application.
pub struct DirectCall(BackendCall);

/// The status of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum DirectCallStatus {
    /// The response is complete: `{"result":{…}}` or `{"error":{…}}`.
    Answered(Vec<u8>),
    /// The hub currently accepts no publications: [`DirectCall::resume`] has to be called later.
    NeedsCredit,
    /// Other workers have not answered yet.
    NeedsAnswers,
}

impl DirectCall {
    /// Creates a call of the method with this name. A batch is answered as an unknown method, since its commands can be
    /// separate calls.
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

    /// Begins the call. `id` must differ from the ids of connections and of other calls in progress.
    pub fn begin(
        &mut self,
        body: &[u8],
        id: ConnectionId,
        shared: &mut Context,
    ) -> DirectCallStatus {
        finish(self.0.run(body, id, shared))
    }

    /// Continues the call when the hub may accept publications again, or after another worker has
    /// answered.
    pub fn resume(&mut self, id: ConnectionId, shared: &mut Context) -> DirectCallStatus {
        finish(self.0.resume(id, shared))
    }

    /// Handles the answer of another worker. The caller must then call [`resume`](Self::resume).
    pub fn answered(&mut self, ticket: Ticket, answer: HubReply) {
        self.0.answered(ticket, answer);
    }
}

fn finish(end: CallStatus<ApiAnswerBody>) -> DirectCallStatus {
    match end {
        CallStatus::Answered(mut answers) => {
            let mut body = Vec::new();
            if !answers.write(&mut body, ANSWER_BYTES_MAX) {
                let why = "the response exceeds 1 MiB: request less";
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
