//! Tests of applications: a script that drives the environment of an application and checks the results.
//!
//! A test's script runs in a [`TestVm`] of its own, separate from the application's. What the script asks for (a
//! client, an HTTP request, the passing of time) is recorded as an [`Ask`]; the caller runs the simulated environment
//! until there is an answer. This module formats and compares values; the caller simulates the clients.

mod diff;
mod native;
mod plain;
mod show;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::app::{AppWorld, ScriptApp};
use crate::code::SourceCode;
use crate::vm::{LoadError, START_FAILED, Vm};
use crate::{Now, WaitResult};
use veche_runtime::{Effect, Effects, Token};
use veche_types::WorkerId;

pub use plain::Plain;

/// A request of a test's script, answered by [`TestVm::answer`].
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The token of the waiting coroutine.
    pub token: Token,
    /// A map; its field `ask` names the kind of request.
    pub request: Plain,
}

/// One `test.case` of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The name given in the script.
    pub name: String,
    /// The line on which the case is defined.
    pub line: u32,
    /// The case is skipped (`test.skip`).
    pub is_skipped: bool,
    /// The services that run during the case. With `None`, all services run.
    pub services: Option<Vec<String>>,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The case ended without an error.
    Passed,
    /// The case ended with an error.
    Failed {
        /// The error message with its line number.
        words: String,
        /// The Lua traceback of the error.
        traceback: String,
    },
}

/// The state shared by a test's script and its runner.
#[derive(Debug, Default)]
struct Notes {
    cases: RefCell<Vec<Case>>,
    asks: RefCell<Vec<Ask>>,
    answers: RefCell<HashMap<Token, Result<Plain, String>>>,
    has_passed: Cell<bool>,
    failed: RefCell<Option<Ended>>,
    chosen: Cell<usize>,
}

/// A running test script.
pub struct TestVm {
    vm: Vm,
    notes: Rc<Notes>,
}

impl TestVm {
    /// Loads a test's script, which registers its cases.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(
        app: &ScriptApp,
        code: &Arc<SourceCode>,
        world: &AppWorld,
    ) -> Result<Self, LoadError> {
        let notes = Rc::new(Notes::default());
        let vm = Vm::load(
            app,
            code,
            world,
            WorkerId(0),
            Some(&|lua, parts| native::install(lua, parts, &notes)),
        )?;
        Ok(Self { vm, notes })
    }

    /// Returns the cases in the order of the script.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        self.notes.cases.borrow().clone()
    }

    /// Starts a case by its number. Only one case may be started in a VM.
    pub fn begin(&mut self, case: usize, now: Now) {
        self.notes.chosen.set(case);
        self.vm.turn(now);
    }

    /// Resumes coroutines whose sleep has ended.
    pub fn turn(&mut self, now: Now) {
        self.vm.turn(now);
    }

    /// Returns the time at which [`turn`](Self::turn) has work to do, in monotonic milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.vm.deadline_ms()
    }

    /// Takes the requests since the last call, in order.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        self.notes.asks.take()
    }

    /// Answers a request; an `Err` is raised in the script.
    pub fn answer(&mut self, token: Token, answer: Result<Plain, String>, now: Now) {
        self.notes.answers.borrow_mut().insert(token, answer);
        let number = WaitResult::Number(token.0 as f64);
        self.vm.answer(token, &number, now);
    }

    /// Returns the result of the case once its [effects](Self::take_effects) are taken; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        let failed = self.notes.failed.borrow().clone();
        failed.or_else(|| self.notes.has_passed.get().then_some(Ended::Passed))
    }

    /// Takes the script's log lines and publications.
    pub fn take_effects(&mut self, empty: &mut Effects) {
        self.vm.take_effects(empty);
        // Uncaught errors include failed assertions in tasks and timers, which would otherwise go unnoticed.
        let Some(failure) = self.vm.take_uncaught() else {
            return;
        };
        empty.list.retain(
            |effect| !matches!(effect, Effect::Log { text, .. } if text.starts_with(START_FAILED)),
        );
        let mut failed = self.notes.failed.borrow_mut();
        if failed.is_none() {
            let (_, traceback) = failure
                .traceback
                .split_once(TRACEBACK)
                .unwrap_or((&failure.traceback, ""));
            *failed = Some(Ended::Failed {
                words: failure.words,
                traceback: traceback.to_owned(),
            });
        }
    }
}

/// Separates an error's message from its traceback.
const TRACEBACK: &str = "\nstack traceback:\n";
