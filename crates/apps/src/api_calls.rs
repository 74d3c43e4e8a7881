//! Calls of the API that applications make: the front ends carry them out as those of back ends, and whoever waits gets
//! the answer.
//!
//! A call begins when all that its worker's applications have published before is with the hub, so that it finds it done.
//! It does not know the methods.

use std::collections::{HashMap, VecDeque};

use veche_calls::{CallError, CallErrorKind, CallOutcome, Reply};
use veche_frontends::command::{self, PublishTarget};
use veche_frontends::{AppId, Context, DirectCall, DirectCallStatus};
use veche_hub::{ConnectionId, HubReply, PayloadKind, Ticket};
use veche_proto::websocket::MessageKind;
use veche_runtime::{Runtime, Token};

use super::app_hosts::AppHosts;
use super::recorder::{AppRecorder, RecordedEntry};

/// In place of a session where a call asks: less the application's number. No connection has so high an index, and no
/// [inquiry](super::inquire) has these.
const CALLERS: u32 = u32::MAX - 1;

/// Calls under way on one worker, and bytes of those that have not begun.
const UNDER_WAY_MAX: usize = 16_384;
const BYTES_MAX: usize = 64 << 20;

/// So many of those that wait are looked at in one turn.
const TRIED_MAX: usize = 256;

/// Whose call it was, if none of a connection's.
pub(super) fn caller(session: ConnectionId) -> Option<AppId> {
    let app = CALLERS.checked_sub(session.index)?;
    u16::try_from(app).ok().map(AppId)
}

/// The number of the call.
pub(super) fn number(session: ConnectionId) -> Option<u32> {
    caller(session).map(|_| session.generation)
}

/// Those of one worker.
#[derive(Default)]
pub(super) struct ApiCalls {
    last: u32,
    under_way: HashMap<u32, ServerApiCall>,
    /// Those that have not begun, by who waits for them.
    tokens: HashMap<(AppId, Token), u32>,
    /// Those that have not begun, or wait for credit, in the order of their turns; those that were cancelled are passed over.
    waiting: VecDeque<u32>,
    /// Of bodies of those that have not begun.
    bytes: usize,
}

struct ServerApiCall {
    app: AppId,
    token: Token,
    call: DirectCall,
    /// Until it begins.
    body: Option<Vec<u8>>,
    /// It begins when the publications up to this number have gone to the hub.
    behind: u64,
    /// It is among those that wait.
    is_waiting: bool,
}

impl ApiCalls {
    /// Whether some should be looked at again soon.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Nobody waits for it any more. What has begun is carried out all the same.
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
    /// Begins a call.
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
            let words = format!("api.{method}: too many calls are under way: try again later");
            let fault = CallError::new(CallErrorKind::Refused, words);
            return self.finds.complete(app, token, Err(fault));
        }
        if let Some(journal) = &self.journal {
            record_publication(journal, &method, body);
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
            self.finds.complete(app, token, outcome);
        }
    }

    /// Goes on with those that wait, as far as they can by now.
    pub(super) fn resume_api_calls(&mut self, shared: &mut Context) {
        for _ in 0..self.commands.waiting.len().min(TRIED_MAX) {
            let Some(number) = self.commands.waiting.pop_front() else {
                break;
            };
            self.deliver_api_call(number, shared);
        }
    }

    /// A home or a worker has answered.
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
        // One that waits for credit has its turn.
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

    /// Returns what has come of it, if it is over.
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
        let id = ConnectionId {
            index: CALLERS - u32::from(command.app.0),
            generation: number,
        };
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
                Some(Ok(Reply::Api(body)))
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

/// A call that publishes is a publication of a test's application like any other.
fn record_publication(journal: &AppRecorder, method: &str, body: &[u8]) {
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
    let kind = match payload.kind {
        PayloadKind::Text | PayloadKind::Json => MessageKind::Text,
        PayloadKind::Binary => MessageKind::Binary,
    };
    let (names, before) = match &command.target {
        PublishTarget::User(name) => (std::slice::from_ref(name), "#"),
        PublishTarget::Users(names) => (names.as_slice(), "#"),
        PublishTarget::Channel(name) => (std::slice::from_ref(name), ""),
        PublishTarget::Channels(names) => (names.as_slice(), ""),
    };
    for name in names {
        journal.write(RecordedEntry::Published {
            channel: [before, &*name.0].concat(),
            kind,
            data: payload.bytes.to_vec(),
        });
    }
}
