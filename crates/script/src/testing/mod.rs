//! Tests of applications: a script that asks the world around an application, and judges what comes.
//!
//! A test's script runs in a [`TestVm`] of its own, never in the application's. What it asks for (a client, a request,
//! that time passes) it leaves as [`Ask`]s; whoever runs it lets the world go on until there is an answer. This module
//! knows values, texts and their differences; it does not know what a client is.

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

pub use plain::Plain;

/// What a test's script asks for; answered by [`TestVm::answer`].
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Whom to answer.
    pub token: Token,
    /// A map; `ask` in it says what is asked for.
    pub question: Plain,
}

/// One `test.case` of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// As the script calls it.
    pub name: String,
    /// Where it stands.
    pub line: u32,
    /// It is not to be run: `test.skip`.
    pub is_skipped: bool,
    /// The services that run beside it; `None`: all.
    pub services: Option<Vec<String>>,
}

/// How a case came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Well.
    Passed,
    /// Not.
    Failed {
        /// What it says, with the line.
        words: String,
        /// How it came there.
        traceback: String,
    },
}

/// What a script and whoever runs it share.
#[derive(Debug, Default)]
struct Notes {
    cases: RefCell<Vec<Case>>,
    asks: RefCell<Vec<Ask>>,
    answers: RefCell<HashMap<Token, Result<Plain, String>>>,
    has_passed: Cell<bool>,
    failed: RefCell<Option<Ended>>,
    chosen: Cell<usize>,
}

/// A test's script that runs.
pub struct TestVm {
    vm: Vm,
    notes: Rc<Notes>,
}

impl TestVm {
    /// Loads a test's script, which says which cases there are.
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
            0,
            Some(&|lua, parts| native::install(lua, parts, &notes)),
        )?;
        Ok(Self { vm, notes })
    }

    /// The cases in the order of the script.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        self.notes.cases.borrow().clone()
    }

    /// Begins a case, by its number; once, and only one of a VM.
    pub fn begin(&mut self, case: usize, now: Now) {
        self.notes.chosen.set(case);
        self.vm.turn(now);
    }

    /// Lets go on what slept until now.
    pub fn turn(&mut self, now: Now) {
        self.vm.turn(now);
    }

    /// When [`turn`](Self::turn) has something to do, in monotonic milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.vm.deadline_ms()
    }

    /// What was asked since the last call, in order.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        self.notes.asks.take()
    }

    /// Answers; an `Err` is raised where the script asked.
    pub fn answer(&mut self, token: Token, answer: Result<Plain, String>, now: Now) {
        self.notes.answers.borrow_mut().insert(token, answer);
        let number = WaitResult::Number(token.0 as f64);
        self.vm.answer(token, &number, now);
    }

    /// How the case came out, as far as [effects](Self::take_effects) were taken; `None` while it is under way.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        let failed = self.notes.failed.borrow().clone();
        failed.or_else(|| self.notes.has_passed.get().then_some(Ended::Passed))
    }

    /// What else the script has done: lines for the log, publications.
    pub fn take_effects(&mut self, empty: &mut Effects) {
        self.vm.take_effects(empty);
        // Also one of a task or a timer: nobody else would hear of what they assert.
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

/// What is between an error's words and how it came there.
const TRACEBACK: &str = "\nstack traceback:\n";
