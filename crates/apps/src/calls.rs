//! What scripts ask of the world: it goes out through the worker's port, and what comes back is handed in.

use std::collections::VecDeque;

use veche_calls::{Call, CallId, CallOutcome};
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppId, Context, RenewError};
use veche_outbound::Port;
use veche_runtime::{Dial, Runtime, Token, WaitResult};

use super::app_hosts::AppHosts;

/// Where calls go and outcomes come from: see [`Port`], which tests take the place of.
pub trait CallExecutor {
    /// Queues a call.
    fn submit(&mut self, id: CallId, call: Call);
    /// Gives a call up; it has no outcome then.
    fn cancel(&mut self, id: CallId);
    /// Hands over what was queued.
    fn flush(&mut self);
    /// Returns whether outcomes can be taken.
    fn has_outcomes(&self) -> bool;
    /// Moves the outcomes of finished calls to the end of a list.
    fn take(&mut self, into: &mut Vec<(CallId, CallOutcome)>);

    /// A connection to another WebSocket server is about to be opened; a test leads it elsewhere.
    fn redirect(&mut self, dial: &mut Dial) {
        let _ = dial;
    }
}

impl CallExecutor for Port {
    fn submit(&mut self, id: CallId, call: Call) {
        self.submit(id, call);
    }

    fn cancel(&mut self, id: CallId) {
        self.cancel(id);
    }

    fn flush(&mut self) {
        self.flush();
    }

    fn has_outcomes(&self) -> bool {
        self.has_outcomes()
    }

    fn take(&mut self, into: &mut Vec<(CallId, CallOutcome)>) {
        self.take(into);
    }
}

/// Calls of all applications of a worker.
pub(super) struct CallQueue {
    port: Box<dyn CallExecutor>,
    /// Taken from the port and not handed in yet.
    outcomes: VecDeque<(CallId, CallOutcome)>,
    taken: Vec<(CallId, CallOutcome)>,
    /// Something was submitted that has not been handed over.
    has_orders: bool,
}

/// Outcomes that are handed to VMs in one turn; the others are in the next.
const OUTCOMES_MAX: usize = 1024;

impl CallQueue {
    pub(super) fn new(port: Box<dyn CallExecutor>) -> Self {
        Self {
            port,
            outcomes: VecDeque::new(),
            taken: Vec::new(),
            has_orders: false,
        }
    }

    pub(super) fn submit(&mut self, app: AppId, token: Token, call: Call) {
        self.port.submit(call_id(app, token), call);
        self.has_orders = true;
    }

    pub(super) fn cancel(&mut self, app: AppId, token: Token) {
        self.port.cancel(call_id(app, token));
        self.has_orders = true;
    }

    pub(super) fn redirect(&mut self, dial: &mut Dial) {
        self.port.redirect(dial);
    }

    /// Hands over what was submitted.
    pub(super) fn flush(&mut self) {
        if std::mem::take(&mut self.has_orders) {
            self.port.flush();
        }
    }

    /// Whether another turn is due at once.
    pub(super) fn is_busy(&self) -> bool {
        self.has_orders || !self.outcomes.is_empty() || self.port.has_outcomes()
    }
}

fn call_id(AppId(app): AppId, Token(token): Token) -> CallId {
    CallId { app, token }
}

impl AppHosts {
    /// What has become of another token for a connection.
    pub(super) fn deliver_refreshed(
        &mut self,
        renewal: &TokenRenewal,
        result: Result<Option<u64>, RenewError>,
        shared: &mut Context,
    ) {
        let answer = match result {
            Ok(left_ms) => {
                let seconds = left_ms.map(|left_ms| left_ms as f64 / 1000.0);
                WaitResult::Number(seconds.unwrap_or(f64::INFINITY))
            }
            Err(why) => WaitResult::No(why.to_string()),
        };
        self.run(renewal.app, None, shared, |app, now| {
            app.runtime.answer(Token(renewal.ticket), &answer, now);
        });
    }

    /// Lets coroutines go on whose calls are over.
    pub(super) fn deliver_call_outcomes(&mut self, shared: &mut Context) {
        let calls = &mut self.calls;
        if calls.port.has_outcomes() {
            calls.port.take(&mut calls.taken);
            calls.outcomes.extend(calls.taken.drain(..));
        }
        for _ in 0..OUTCOMES_MAX {
            let Some((id, outcome)) = self.calls.outcomes.pop_front() else {
                return;
            };
            // A VM that has no time for it now keeps it for its turn.
            self.run(AppId(id.app), None, shared, |app, now| {
                app.runtime.handle_outcome(Token(id.token), outcome, now);
            });
        }
    }
}
