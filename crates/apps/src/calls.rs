//! Calls to external services: submitted through the worker's port, with outcomes delivered to the scripts.

use std::collections::VecDeque;

use veche_calls::{Call, CallId, Outcome};
use veche_frontends::shared::Renewal;
use veche_frontends::{AppId, NotRenewed, Shared};
use veche_outbound::Port;
use veche_runtime::{Answer, Dial, Runtime, Token};

use super::here::Here;

/// Performs calls and returns their outcomes: a [`Port`], or a substitute in tests.
pub trait Gate {
    /// Queues a call.
    fn submit(&mut self, id: CallId, call: Call);
    /// Cancels a call, which then has no outcome.
    fn cancel(&mut self, id: CallId);
    /// Submits the queued calls.
    fn flush(&mut self);
    /// Returns whether outcomes are available.
    fn has_outcomes(&self) -> bool;
    /// Appends the outcomes of completed calls to a list.
    fn take(&mut self, into: &mut Vec<(CallId, Outcome)>);

    /// Called before an outgoing WebSocket is opened; tests redirect it.
    fn redirect(&mut self, dial: &mut Dial) {
        let _ = dial;
    }
}

impl Gate for Port {
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

    fn take(&mut self, into: &mut Vec<(CallId, Outcome)>) {
        self.take(into);
    }
}

/// The calls of all applications on a worker.
pub(super) struct Calls {
    port: Box<dyn Gate>,
    /// Outcomes taken from the port but not yet delivered.
    outcomes: VecDeque<(CallId, Outcome)>,
    taken: Vec<(CallId, Outcome)>,
    /// Calls were queued that have not been submitted.
    has_orders: bool,
}

/// The most outcomes delivered in one turn.
const OUTCOMES_MAX: usize = 1024;

impl Calls {
    pub(super) fn new(port: Box<dyn Gate>) -> Self {
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

    /// Returns whether outcomes are left for another turn.
    pub(super) fn is_busy(&self) -> bool {
        self.has_orders || !self.outcomes.is_empty() || self.port.has_outcomes()
    }
}

fn call_id(AppId(app): AppId, Token(token): Token) -> CallId {
    CallId { app, token }
}

impl Here {
    /// Delivers the result of a token refresh.
    pub(super) fn tell_renewed(
        &mut self,
        renewal: &Renewal,
        result: Result<Option<u64>, NotRenewed>,
        shared: &mut Shared,
    ) {
        let answer = match result {
            Ok(left_ms) => {
                let seconds = left_ms.map(|left_ms| left_ms as f64 / 1000.0);
                Answer::Number(seconds.unwrap_or(f64::INFINITY))
            }
            Err(why) => Answer::No(why.to_string()),
        };
        self.run(renewal.app, None, shared, |app, now| {
            app.runtime.answer(Token(renewal.ticket), &answer, now);
        });
    }

    /// Resumes coroutines whose calls have completed.
    pub(super) fn hand_in_outcomes(&mut self, shared: &mut Shared) {
        let calls = &mut self.calls;
        if calls.port.has_outcomes() {
            calls.port.take(&mut calls.taken);
            calls.outcomes.extend(calls.taken.drain(..));
        }
        for _ in 0..OUTCOMES_MAX {
            let Some((id, outcome)) = self.calls.outcomes.pop_front() else {
                return;
            };
            // A VM without time left in this turn queues the outcome.
            self.run(AppId(id.app), None, shared, |app, now| {
                app.runtime.replied(Token(id.token), outcome, now);
            });
        }
    }
}
