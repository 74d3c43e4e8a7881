//! Calls of applications to external services. They are submitted through the worker's port, and their outcomes resume
//! the scripts that wait for them.

use std::collections::VecDeque;

use veche_calls::{Call, CallId, CallOutcome};
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppId, Context, RenewError};
use veche_outbound::Port;
use veche_runtime::{Dial, Runtime, Token, WaitResult};

use super::app_hosts::AppHosts;

/// Performs calls and returns their outcomes: a [`Port`], or a substitute in tests.
pub trait CallExecutor {
    /// Queues a call until the next [`flush`](Self::flush).
    fn submit(&mut self, id: CallId, call: Call);
    /// Cancels a call, which then has no outcome.
    fn cancel(&mut self, id: CallId);
    /// Submits the queued calls.
    fn flush(&mut self);
    /// Returns whether outcomes are available.
    fn has_outcomes(&self) -> bool;
    /// Appends the outcomes of completed calls to a list.
    fn take(&mut self, into: &mut Vec<(CallId, CallOutcome)>);

    /// Called before an outgoing WebSocket connection is opened. Tests replace its address here.
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

/// The calls of all applications on a worker.
pub(super) struct CallQueue {
    port: Box<dyn CallExecutor>,
    /// Outcomes taken from the port but not yet delivered.
    outcomes: VecDeque<(CallId, CallOutcome)>,
    taken: Vec<(CallId, CallOutcome)>,
    /// Whether calls have been queued since the last submission.
    has_orders: bool,
}

/// Maximum number of outcomes delivered in one turn.
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

    /// Submits the queued calls.
    pub(super) fn flush(&mut self) {
        if std::mem::take(&mut self.has_orders) {
            self.port.flush();
        }
    }

    /// Returns whether another turn is needed: calls are not submitted yet, or outcomes are not delivered yet.
    pub(super) fn is_busy(&self) -> bool {
        self.has_orders || !self.outcomes.is_empty() || self.port.has_outcomes()
    }
}

fn call_id(AppId(app): AppId, Token(token): Token) -> CallId {
    CallId { app, token }
}

impl AppHosts {
    /// Delivers the result of a token refresh.
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

    /// Resumes coroutines whose calls have completed.
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
            // A VM that has used up its time in this turn queues the outcome.
            self.run(AppId(id.app), None, shared, |app, now| {
                app.runtime.handle_outcome(Token(id.token), outcome, now);
            });
        }
    }
}
