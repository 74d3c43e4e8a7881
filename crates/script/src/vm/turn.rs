//! A VM's part of a turn: what has become due begins or goes on, within the time that a turn has.
//!
//! What does not fit waits for the next turn, in order.

use super::{Answer, Handler, Postponed, STEPS_MAX, TURN_TICKS, Vm};
use veche_calls::Outcome;

use crate::Now;
use crate::desk::{Spawned, Woken};
use crate::effects::Token;
use crate::modules;
use crate::raw::{Argument, Coroutine, Failure};
use crate::task::{Owner, Task};

impl Vm {
    /// An effect with a token was carried out, or failed.
    pub fn answer(&mut self, token: Token, answer: &Answer, now: Now) {
        self.set_now(now);
        let yes = Argument::Boolean(true);
        match answer {
            Answer::Done => self.go_on(token, &[yes, yes]),
            Answer::Number(number) => self.go_on(token, &[yes, Argument::Number(*number)]),
            Answer::No(words) => {
                let words = Argument::Bytes(words.as_bytes());
                self.go_on(token, &[yes, Argument::Nil, words]);
            }
            Answer::Failed(words) => self.fail(token, words),
        }
        self.settle();
    }

    /// Whether a coroutine waits with that token.
    #[must_use]
    pub fn is_waiting(&self, token: Token) -> bool {
        self.tasks.is_waiting(token)
    }

    /// A call to the world is over.
    pub fn replied(&mut self, token: Token, outcome: Outcome, now: Now) {
        self.set_now(now);
        if let Some(task) = self.tasks.take_waiting(token) {
            let yes = Argument::Boolean(true);
            if let Some(value) = modules::plain(&outcome) {
                self.desk.ended(token);
                self.run(task.coroutine, task.owner, &[yes, yes, value]);
            } else {
                let caller = task.coroutine.reference();
                self.desk.set_outcome(token, outcome, caller);
                self.run(task.coroutine, task.owner, &[yes]);
                self.desk.clear_outcome();
            }
        }
        self.settle();
    }

    /// Goes on with what has become due; the first call begins `app.start`, and nothing runs before it.
    pub fn turn(&mut self, now: Now) {
        self.set_now(now);
        self.turn_began = self.machine.ticks();
        if !self.has_begun {
            self.has_begun = true;
            self.start();
        }
        self.begin_postponed();
        let tasks = &self.tasks;
        let rung = self
            .desk
            .world
            .queues
            .take_rung(|token| tasks.is_waiting(token));
        for token in rung {
            self.desk.wake(token, Woken::Up);
        }
        self.settle();
        let tasks = &self.tasks;
        self.desk
            .tidy_sleepers(tasks.len(), |token| tasks.is_waiting(token));
    }

    pub(super) fn begin_postponed(&mut self) {
        while !self.is_over_time()
            && let Some(postponed) = self.postponed.pop_front()
        {
            match postponed {
                Postponed::Of(id) => self.next_of(id),
                Postponed::Task(place) => self.begin_prepared(place),
            }
        }
    }

    pub(super) fn begin_prepared(&mut self, place: u32) {
        if let Some(task) = self.tasks.take(place) {
            self.run(task.coroutine, task.owner, &[]);
        }
    }

    /// Whether the calls of this turn have taken their time.
    #[must_use]
    pub fn is_over_time(&self) -> bool {
        // In a test no real clock may decide what runs when.
        !self.desk.world.is_seeded()
            && self.machine.ticks().wrapping_sub(self.turn_began) >= TURN_TICKS
    }

    /// When [`turn`](Self::turn) has something to do, in monotonic milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        if !self.has_begun
            || !self.postponed.is_empty()
            || self.desk.is_busy()
            || self.desk.world.queues.has_rung()
        {
            return 0;
        }
        self.desk.wakes_ms()
    }

    pub(super) fn start(&mut self) {
        let Some(function) = self.handlers[Handler::Start as usize] else {
            return self.open_gate();
        };
        let coroutine = self.machine.prepare(function, &[]);
        self.run(coroutine, Owner::Start, &[]);
    }

    /// `app.start` is over: what has waited for it begins.
    pub(super) fn open_gate(&mut self) {
        let Some(gate) = self.gate.take() else { return };
        self.postponed.extend(gate.into_iter().map(Postponed::Task));
        // Connections to other servers have not waited.
        let waiting: Vec<_> = self
            .ids(|local| local.is_busy && !local.is_client)
            .collect();
        self.postponed
            .extend(waiting.into_iter().map(Postponed::Of));
        self.begin_postponed();
    }

    pub(super) fn go_on(&mut self, token: Token, answer: &[Argument<'_>]) {
        // Whoever waited may have been cancelled.
        if let Some(task) = self.tasks.take_waiting(token) {
            self.run(task.coroutine, task.owner, answer);
        }
    }

    pub(super) fn fail(&mut self, token: Token, words: &str) {
        let arguments = [Argument::Boolean(false), Argument::Bytes(words.as_bytes())];
        self.go_on(token, &arguments);
    }

    pub(super) fn begin(&mut self, spawned: Spawned) {
        let owner = Owner::Spawned(spawned.number);
        if self.tasks.len() >= self.tasks_max {
            self.machine.discard(spawned.coroutine);
            return self.failed(owner, Failure::told("too many coroutines (tasks_max)"));
        }
        self.run(spawned.coroutine, owner, &[]);
    }

    /// Lets a prepared coroutine begin; before `app.start` is over, or where the turn has no time left, it is kept until
    /// then.
    pub(super) fn begin_or_keep(&mut self, coroutine: Coroutine, owner: Owner) {
        let is_late = self.is_over_time();
        if let Some(gate) = &mut self.gate {
            gate.push_back(self.tasks.keep_prepared(coroutine, owner));
        } else if is_late {
            let place = self.tasks.keep_prepared(coroutine, owner);
            self.postponed.push_back(Postponed::Task(place));
        } else {
            self.run(coroutine, owner, &[]);
            self.settle_after_call();
        }
    }

    pub(super) fn settle_after_call(&mut self) {
        if self.desk.is_busy() {
            self.settle();
        }
    }

    /// Lets begin and go on what can, as far as a turn allows.
    pub(super) fn settle(&mut self) {
        let now_ms = self.desk.world.now.get().mono_ms;
        for _ in 0..STEPS_MAX {
            if self.is_over_time() || self.desk.world.effects.borrow().is_much() {
                break;
            }
            if let Some((token, how)) = self.desk.take_woken() {
                match how {
                    Woken::Up => self.go_on(token, &[Argument::Boolean(true)]),
                    Woken::Cancelled => self.cancel(token.0),
                }
            } else if let Some(spawned) = self.desk.take_spawned() {
                self.begin(spawned);
            } else if let Some(token) = self.desk.take_sleeper(now_ms) {
                self.go_on(token, &[Argument::Boolean(true)]);
            } else {
                break;
            }
        }
    }

    /// Ends a spawned coroutine: its wait fails.
    pub(super) fn cancel(&mut self, number: u64) {
        let Some(task) = self.tasks.take_spawned(number) else {
            // It may not have begun.
            if let Some(spawned) = self.desk.withdraw_spawned(number) {
                self.machine.discard(spawned.coroutine);
                self.failed(Owner::Spawned(number), Failure::told("cancelled"));
            }
            return;
        };
        self.fail_task(task, "cancelled");
    }

    /// Ends the coroutine of a request: its wait fails. One that has not begun never does.
    pub(super) fn cancel_request(&mut self, number: u64, words: &str) {
        let is_it = |owner| match owner {
            Owner::Request(of) | Owner::Handshake(of) => of == number,
            _ => false,
        };
        self.end_task(is_it, words);
    }

    /// The same for the one whose owner is so.
    pub(super) fn end_task(&mut self, is_it: impl Fn(Owner) -> bool, words: &str) {
        match self.tasks.take_of(is_it) {
            Some((_, task)) if task.token.is_some() => self.fail_task(task, words),
            Some((place, task)) => {
                // The place is soon another's.
                if let Some(gate) = &mut self.gate {
                    gate.retain(|other| *other != place);
                }
                let is_its = |one: &Postponed| matches!(one, Postponed::Task(at) if *at == place);
                self.postponed.retain(|one| !is_its(one));
                self.machine.discard(task.coroutine);
            }
            None => {}
        }
    }

    /// What a coroutine waits for fails.
    fn fail_task(&mut self, task: Task, words: &str) {
        if let Some(token) = task.token {
            self.desk.cancel_call(token);
        }
        let arguments = [Argument::Boolean(false), Argument::Bytes(words.as_bytes())];
        self.run(task.coroutine, task.owner, &arguments);
    }
}
