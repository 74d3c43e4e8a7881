//! What scripts ask of the world: it goes out through the worker's port, and what comes back is handed in.

use std::collections::VecDeque;

use veche_calls::{Call, CallId, Outcome};
use veche_frontends::shared::Renewal;
use veche_frontends::{AppId, NotRenewed, Shared};
use veche_outbound::Port;
use veche_runtime::{Answer, Dial, Runtime, Token};

use super::here::Here;

/// Where calls go and outcomes come from: see [`Port`], which tests take the place of.
pub trait Gate {
    /// Queues a call.
    fn submit(&mut self, id: CallId, call: Call);
    /// Gives a call up; it has no outcome then.
    fn cancel(&mut self, id: CallId);
    /// Hands over what was queued.
    fn flush(&mut self);
    /// Returns whether outcomes can be taken.
    fn has_outcomes(&self) -> bool;
    /// Moves the outcomes of finished calls to the end of a list.
    fn take(&mut self, into: &mut Vec<(CallId, Outcome)>);

    /// A connection to another WebSocket server is about to be opened; a test leads it elsewhere.
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

/// Calls of all applications of a worker.
pub(super) struct Calls {
    port: Box<dyn Gate>,
    /// Taken from the port and not handed in yet.
    outcomes: VecDeque<(CallId, Outcome)>,
    taken: Vec<(CallId, Outcome)>,
    /// Something was submitted that has not been handed over.
    has_orders: bool,
}

/// Outcomes that are handed to VMs in one turn; the others are in the next.
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

impl Here {
    /// What has become of another token for a connection.
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

    /// Lets coroutines go on whose calls are over.
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
            // A VM that has no time for it now keeps it for its turn.
            self.run(AppId(id.app), None, shared, |app, now| {
                app.runtime.replied(Token(id.token), outcome, now);
            });
        }
    }
}
