//! Calls of the server API by applications. The front ends execute them like the API calls of back ends, and the
//! handler that made the call is resumed with the response.
//!
//! A call starts once all earlier publications of this worker's applications have been passed to the hub, so that the
//! call sees their effects. This module does not interpret the methods of the API.

use std::collections::{HashMap, VecDeque};

use veche_calls::{CallError, CallErrorKind, CallOutcome, CallReply};
use veche_frontends::command::{self, PublishTarget};
use veche_frontends::{AppId, Context, DirectCall, DirectCallStatus};
use veche_hub::{HubReply, Ticket};
use veche_runtime::{Runtime, Token};

use super::app_hosts::AppHosts;
use super::recorder::{AppRecorder, RecordedEntry};
use super::requester::Requester;

/// Maximum number of calls in progress on one worker. [`BYTES_MAX`] limits the total bytes of the bodies of calls that
/// have not started. Further calls are refused.
const UNDER_WAY_MAX: usize = 16_384;
const BYTES_MAX: usize = 64 << 20;

/// Maximum number of waiting calls that are resumed in one turn.
const TRIED_MAX: usize = 256;

/// The API calls of one worker.
#[derive(Default)]
pub(super) struct ApiCalls {
    last: u32,
    under_way: HashMap<u32, ServerApiCall>,
    /// The numbers of the calls that have not started, by the handler that waits for the response.
    tokens: HashMap<(AppId, Token), u32>,
    /// The numbers of the calls to start, and of those to retry because the hub did not accept their publication, in
    /// the order in which they are tried. Cancelled calls may still be listed; they are skipped.
    waiting: VecDeque<u32>,
    /// Total bytes of the bodies of calls that have not started.
    bytes: usize,
}

struct ServerApiCall {
    app: AppId,
    token: Token,
    call: DirectCall,
    /// The request body, until the call starts.
    body: Option<Vec<u8>>,
    /// The number of the last deferred publication when the call was made. The call starts once all publications up to
    /// it have been passed to the hub.
    behind: u64,
    /// Whether the call is in [`ApiCalls::waiting`].
    is_waiting: bool,
}

impl ApiCalls {
    /// Returns whether the next turn must start or retry calls.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Cancels a call that no handler waits for any more. A call that has already started is not cancelled.
    pub(super) fn cancel(&mut self, app: AppId, token: Token) {
        let number = self.tokens.remove(&(app, token));
        let command = number.and_then(|number| self.under_way.remove(&number));
        let body = command.and_then(|command| command.body);
        self.bytes -= body.map_or(0, |body| body.len());
    }

    fn next_number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.under_way.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

impl AppHosts {
    /// Starts a call of the server API for a handler of an application.
    pub(super) fn command(
        &mut self,
        app: AppId,
        token: Token,
        method: String,
        body: &[u8],
        shared: &mut Context,
    ) {
        let commands = &mut self.commands;
        if commands.under_way.len() >= UNDER_WAY_MAX || commands.bytes + body.len() > BYTES_MAX {
            let words = format!("api.{method}: too many calls in progress: try again later");
            let fault = CallError::new(CallErrorKind::Refused, words);
            return self.user_searches.complete(app, token, Err(fault));
        }
        if let Some(recorder) = &self.recorder {
            record_publication(recorder, &method, body);
        }
        let number = commands.next_number();
        commands.bytes += body.len();
        let command = ServerApiCall {
            app,
            token,
            call: DirectCall::new(&method),
            body: Some(body.to_vec()),
            behind: self.held.last_number(),
            is_waiting: false,
        };
        commands.under_way.insert(number, command);
        commands.tokens.insert((app, token), number);
        if let Some(outcome) = self.resume_api_call(number, shared) {
            self.user_searches.complete(app, token, outcome);
        }
    }

    /// Retries the waiting calls, at most [`TRIED_MAX`] of them per turn.
    pub(super) fn resume_api_calls(&mut self, shared: &mut Context) {
        for _ in 0..self.commands.waiting.len().min(TRIED_MAX) {
            let Some(number) = self.commands.waiting.pop_front() else {
                break;
            };
            self.deliver_api_call(number, shared);
        }
    }

    /// Handles the reply to a request that an API call has sent to a channel's home or to another worker.
    pub(super) fn api_call_answered(
        &mut self,
        number: u32,
        ticket: Ticket,
        answer: HubReply,
        shared: &mut Context,
    ) {
        let Some(command) = self.commands.under_way.get_mut(&number) else {
            return;
        };
        command.call.answered(ticket, answer);
        // A call in the queue `waiting` is resumed in the order of that queue.
        if !command.is_waiting {
            self.deliver_api_call(number, shared);
        }
    }

    fn deliver_api_call(&mut self, number: u32, shared: &mut Context) {
        let command = self.commands.under_way.get(&number);
        let Some((app, token)) = command.map(|one| (one.app, one.token)) else {
            return;
        };
        if let Some(outcome) = self.resume_api_call(number, shared) {
            self.run(app, None, shared, |app, now| {
                app.runtime.handle_outcome(token, outcome, now);
            });
        }
    }

    /// Starts or continues a call. Returns its outcome if the call is complete, otherwise `None`.
    fn resume_api_call(&mut self, number: u32, shared: &mut Context) -> Option<CallOutcome> {
        let ApiCalls {
            under_way,
            tokens,
            waiting,
            bytes,
            ..
        } = &mut self.commands;
        let command = under_way.get_mut(&number)?;
        command.is_waiting = true;
        if command.body.is_some() && !self.held.are_published(0, command.behind) {
            waiting.push_back(number);
            return None;
        }
        let app = command.app;
        let id = Requester::ApiCall { app, number }.id();
        let direct = match command.body.take() {
            Some(body) => {
                *bytes -= body.len();
                tokens.remove(&(command.app, command.token));
                command.call.begin(&body, id, shared)
            }
            None => command.call.resume(id, shared),
        };
        match direct {
            DirectCallStatus::Answered(body) => {
                under_way.remove(&number);
                Some(Ok(CallReply::Api(body)))
            }
            DirectCallStatus::NeedsCredit => {
                waiting.push_back(number);
                None
            }
            DirectCallStatus::NeedsAnswers => {
                command.is_waiting = false;
                None
            }
        }
    }
}

/// For a test, records the publication that an API call makes, in the same way as a publication of a script.
fn record_publication(recorder: &AppRecorder, method: &str, body: &[u8]) {
    if !matches!(method, "push" | "publish" | "broadcast") {
        return;
    }
    let mut scratch = Vec::new();
    let Ok(command) = command::parse(body, &mut scratch) else {
        return;
    };
    let Some(Ok(payload)) = command.data.map(|data| data.payload(&mut scratch)) else {
        return;
    };
    let kind = payload.kind.message_kind();
    let (names, before) = match &command.target {
        PublishTarget::User(name) => (std::slice::from_ref(name), "#"),
        PublishTarget::Users(names) => (names.as_slice(), "#"),
        PublishTarget::Channel(name) => (std::slice::from_ref(name), ""),
        PublishTarget::Channels(names) => (names.as_slice(), ""),
    };
    for name in names {
        recorder.write(RecordedEntry::Published {
            channel: [before, &*name.0].concat(),
            kind,
            data: payload.bytes.to_vec(),
        });
    }
}
