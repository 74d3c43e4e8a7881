//! A VM's part of a turn: starts and resumes due handlers, within the turn's [slice](super::slice).
//!
//! Work for which the slice has no time waits for the next turn, in order.

use super::slice::{WorkClass, WorkClasses};
use super::{DeferredCall, HandlerName, Vm};
use veche_calls::CallOutcome;

use crate::Now;
use crate::host_context::{SpawnedCoroutine, WakeReason};
use crate::modules;
use crate::raw::{Argument, Coroutine, LuaError, MemoryRoom};
use crate::task::{Task, TaskOwner};
use veche_runtime::{Token, WaitResult};

/// The maximum number of coroutines of one class that run before another class gets its share.
const SHARE_STEPS_MAX: usize = 64;

/// The number of coroutines run in a turn after which the classes get no further shares.
const STEPS_MAX: usize = 256;

impl Vm {
    /// Ends the wait that has this token, after the awaited effect was executed or has failed.
    pub fn answer(&mut self, token: Token, answer: &WaitResult, now: Now) {
        self.set_now(now);
        if self.is_waiting(token) {
            self.wake(token, WakeReason::Answered(answer.clone()));
        }
        self.settle();
    }

    /// Returns whether a coroutine waits for a token.
    #[must_use]
    pub fn is_waiting(&self, token: Token) -> bool {
        self.tasks.is_waiting(token)
    }

    /// Handles the outcome of a call.
    pub fn replied(&mut self, token: Token, outcome: CallOutcome, now: Now) {
        self.set_now(now);
        if self.is_waiting(token) {
            self.wake(token, WakeReason::Replied(Box::new(outcome)));
        }
        self.settle();
    }

    /// Resumes the coroutine that waits for a token, at once if there is time and no other resumption is queued.
    /// Otherwise queues the resumption.
    fn wake(&mut self, token: Token, how: WakeReason) {
        if self.context.has_woken() || !self.slice.admits(self.context.clock.ticks()) {
            self.context.wake(token, how);
        } else {
            self.wake_now(token, how);
        }
    }

    fn wake_now(&mut self, token: Token, how: WakeReason) {
        let yes = Argument::Boolean(true);
        match how {
            WakeReason::Up => self.go_on(token, &[yes]),
            WakeReason::Cancelled => self.cancel(token.0),
            WakeReason::Answered(WaitResult::Done) => self.go_on(token, &[yes, yes]),
            WakeReason::Answered(WaitResult::Number(number)) => {
                self.go_on(token, &[yes, Argument::Number(number)]);
            }
            WakeReason::Answered(WaitResult::No(words)) => {
                let words = Argument::Bytes(words.as_bytes());
                self.go_on(token, &[yes, Argument::Nil, words]);
            }
            WakeReason::Answered(WaitResult::Failed(words)) => self.fail(token, &words),
            WakeReason::Replied(outcome) => self.go_on_with(token, *outcome),
        }
    }

    fn go_on_with(&mut self, token: Token, outcome: CallOutcome) {
        let Some(task) = self.tasks.take_waiting(token) else {
            return;
        };
        let yes = Argument::Boolean(true);
        if let Some(value) = modules::plain(&outcome) {
            self.context.ended(token);
            self.run(task.coroutine, task.owner, &[yes, yes, value]);
        } else {
            let caller = task.coroutine.reference();
            self.context.set_outcome(token, outcome, caller);
            self.run(task.coroutine, task.owner, &[yes]);
            self.context.clear_outcome();
        }
    }

    /// Runs due handlers. The first call starts `app.start`, before which nothing runs.
    pub fn turn(&mut self, now: Now) {
        self.set_now(now);
        self.slice.open(self.context.clock.ticks());
        if !self.has_begun {
            self.has_begun = true;
            self.start();
        }
        let tasks = &self.tasks;
        let rung = self
            .context
            .world
            .queues
            .take_signals(|token| tasks.is_waiting(token));
        for token in rung {
            self.context.wake(token, WakeReason::Up);
        }
        self.context
            .wake_publishers(tasks.len(), |token| tasks.is_waiting(token));
        let served = self.share_out();
        self.slice.end_turn(served, self.ready());
        self.collect();
        self.context.yields().end_turn();
        let tasks = &self.tasks;
        self.context
            .purge_sleepers(tasks.len(), |token| tasks.is_waiting(token));
    }

    /// Runs each ready class of work for its share of the turn; returns the classes that ran. While time
    /// is left, repeats this, so that coroutines that wake each other don't need a turn for each step.
    fn share_out(&mut self) -> WorkClasses {
        let mut served = WorkClasses::default();
        let mut steps = 0;
        let began = self.context.clock.ticks();
        loop {
            let ready = self.ready();
            if ready.is_empty() {
                return served;
            }
            let order = self.slice.order();
            for class in order.into_iter().filter(|class| ready.has(*class)) {
                if !self.has_time() {
                    return served;
                }
                steps += self.run_share(class);
                served.add(class);
            }
            let is_quick = self.context.clock.ticks() == began && steps < STEPS_MAX;
            if !is_quick {
                return served;
            }
        }
    }

    /// Runs one class of work for its share of the turn; returns the number of coroutines that ran.
    fn run_share(&mut self, class: WorkClass) -> usize {
        self.slice.begin_share(self.context.clock.ticks());
        let mut steps = 0;
        while steps < SHARE_STEPS_MAX && self.step(class) {
            steps += 1;
            if self.is_share_over() || !self.has_time() {
                break;
            }
        }
        steps
    }

    /// Starts or resumes the next coroutine of a class, if there is one.
    fn step(&mut self, class: WorkClass) -> bool {
        match class {
            WorkClass::Replies => {
                let Some((token, how)) = self.context.take_woken() else {
                    return false;
                };
                self.wake_now(token, how);
            }
            WorkClass::Calls if self.is_short() => return false,
            WorkClass::Calls => match self.postponed.pop_front() {
                Some(DeferredCall::Of(id)) => self.next_of(id),
                Some(DeferredCall::Task(place)) => self.begin_prepared(place),
                None => return false,
            },
            WorkClass::Tasks => match self.context.take_spawned() {
                Some(spawned) => self.begin(spawned),
                None => return false,
            },
            WorkClass::Timers => {
                let now_ms = self.context.world.now.get().mono_ms;
                let Some(token) = self.context.take_sleeper(now_ms) else {
                    return false;
                };
                self.go_on(token, &[Argument::Boolean(true)]);
            }
            WorkClass::Yields => {
                let next = self.context.yields().take();
                let Some(token) = next else { return false };
                self.go_on(token, &[Argument::Boolean(true)]);
            }
        }
        true
    }

    /// Returns the classes of work in which a coroutine can run.
    fn ready(&self) -> WorkClasses {
        let now_ms = self.context.world.now.get().mono_ms;
        let mut ready = WorkClasses::default();
        ready.set(WorkClass::Replies, self.context.has_woken());
        ready.set(
            WorkClass::Calls,
            !self.postponed.is_empty() && !self.is_short(),
        );
        ready.set(WorkClass::Tasks, self.context.has_spawned());
        ready.set(WorkClass::Timers, self.context.wakes_ms() <= now_ms);
        ready.set(WorkClass::Yields, self.context.yields().has_ready());
        ready
    }

    /// Returns whether the turn has time for another coroutine, and room for its effects.
    fn has_time(&self) -> bool {
        !self.slice.is_over(self.context.clock.ticks())
            && !self.context.world.effects.borrow().is_large()
    }

    /// Returns whether the current work has used up its share of the turn.
    pub(super) fn is_share_over(&self) -> bool {
        self.slice.is_share_over(self.context.clock.ticks())
    }

    /// Returns whether a call may start at once: there is time and memory for it, and no other call
    /// waits.
    pub(super) fn admits_calls(&mut self) -> bool {
        self.postponed.is_empty()
            && !self.is_short()
            && self.slice.admits(self.context.clock.ticks())
    }

    /// Returns whether there is memory for another call, now or after a garbage collection.
    pub(super) fn has_room(&mut self) -> bool {
        self.machine.room(self.context.world.now.get().mono_ms) != MemoryRoom::No
    }

    /// Returns whether calls wait for the end of a garbage collection.
    fn is_short(&self) -> bool {
        self.machine.is_collecting() && self.machine.is_full()
    }

    /// Continues a running garbage collection.
    fn collect(&mut self) {
        let now_ms = self.context.world.now.get().mono_ms;
        self.machine.collect_if_short(now_ms);
        if self.machine.is_collecting() {
            let clock = &self.context.clock;
            self.slice.begin_share(clock.ticks());
            let slice = &self.slice;
            let now_ms = self.context.world.now.get().mono_ms;
            self.machine
                .collect_some(now_ms, || slice.is_share_over(clock.ticks()));
        }
    }

    fn begin_prepared(&mut self, place: u32) {
        if let Some(task) = self.tasks.take(place) {
            self.run(task.coroutine, task.owner, &[]);
        }
    }

    /// Returns the time at which [`turn`](Self::turn) has work to do, in monotonic milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        if !self.has_begun
            || !self.postponed.is_empty()
            || self.context.is_busy()
            || !self.context.yields().is_empty()
            || self.machine.is_collecting()
            || self.context.world.queues.has_signals()
        {
            return 0;
        }
        self.context.wakes_ms().min(self.machine.collects_ms())
    }

    pub(super) fn start(&mut self) {
        let Some(function) = self.handlers[HandlerName::Start as usize] else {
            return self.open_gate();
        };
        let coroutine = self.machine.prepare(function, &[]);
        self.run(coroutine, TaskOwner::Start, &[]);
    }

    /// Starts the calls that waited for `app.start`.
    pub(super) fn open_gate(&mut self) {
        let Some(gate) = self.gate.take() else { return };
        self.postponed
            .extend(gate.into_iter().map(DeferredCall::Task));
        // Calls of outgoing connections do not wait for `app.start`.
        let waiting: Vec<_> = self
            .ids(|local| local.is_busy && !local.is_client)
            .collect();
        self.postponed
            .extend(waiting.into_iter().map(DeferredCall::Of));
    }

    pub(super) fn go_on(&mut self, token: Token, answer: &[Argument<'_>]) {
        // The coroutine may have been cancelled.
        if let Some(task) = self.tasks.take_waiting(token) {
            self.run(task.coroutine, task.owner, answer);
        }
    }

    pub(super) fn fail(&mut self, token: Token, words: &str) {
        let arguments = [Argument::Boolean(false), Argument::Bytes(words.as_bytes())];
        self.go_on(token, &arguments);
    }

    pub(super) fn begin(&mut self, spawned: SpawnedCoroutine) {
        let owner = TaskOwner::Spawned(spawned.number);
        if self.tasks.len() >= self.tasks_max && !spawned.is_successor {
            self.machine.discard(spawned.coroutine);
            self.failed(owner, LuaError::error_message("too many coroutines"));
            return self.context.forget_context(owner);
        }
        self.run(spawned.coroutine, owner, &[]);
    }

    /// Starts a prepared coroutine. While `app.start` runs, or if the turn has no time, stores the coroutine to be started
    /// later.
    pub(super) fn begin_or_keep(&mut self, coroutine: Coroutine, owner: TaskOwner) {
        let is_late = !self.admits_calls();
        if let Some(gate) = &mut self.gate {
            gate.push_back(self.tasks.keep_prepared(coroutine, owner));
        } else if is_late {
            let place = self.tasks.keep_prepared(coroutine, owner);
            self.postponed.push_back(DeferredCall::Task(place));
        } else {
            self.run(coroutine, owner, &[]);
            self.settle();
        }
    }

    /// Runs the coroutines that a call made runnable, while the slice has time.
    pub(super) fn settle(&mut self) {
        let mut steps = 0;
        while steps < STEPS_MAX
            && self.context.is_busy()
            && self.slice.admits(self.context.clock.ticks())
            && self.has_time()
            && (self.step(WorkClass::Replies) || self.step(WorkClass::Tasks))
        {
            steps += 1;
        }
    }

    /// Cancels a spawned coroutine: its wait fails.
    pub(super) fn cancel(&mut self, number: u64) {
        let Some(task) = self.tasks.take_spawned(number) else {
            // The task may not have started.
            if let Some(spawned) = self.context.withdraw_spawned(number) {
                self.machine.discard(spawned.coroutine);
                self.failed(
                    TaskOwner::Spawned(number),
                    LuaError::error_message("cancelled"),
                );
                self.context.forget_context(TaskOwner::Spawned(number));
            }
            return;
        };
        self.fail_task(task, "cancelled");
    }

    /// Fails the wait of a request's coroutine. A coroutine that has not started is dropped.
    pub(super) fn cancel_request(&mut self, number: u64, words: &str) {
        let is_it = |owner| match owner {
            TaskOwner::Request(of) | TaskOwner::Handshake(of) => of == number,
            _ => false,
        };
        self.end_task(is_it, words);
    }

    /// Fails the wait of the task whose owner matches; a task that has not started is dropped.
    pub(super) fn end_task(&mut self, is_it: impl Fn(TaskOwner) -> bool, words: &str) {
        match self.tasks.take_of(is_it) {
            Some((_, task)) if task.token.is_some() => self.fail_task(task, words),
            Some((place, task)) => {
                // The task's index will be reused, so no queue may still contain it.
                if let Some(gate) = &mut self.gate {
                    gate.retain(|other| *other != place);
                }
                let is_its =
                    |one: &DeferredCall| matches!(one, DeferredCall::Task(at) if *at == place);
                self.postponed.retain(|one| !is_its(one));
                self.machine.discard(task.coroutine);
                self.context.forget_context(task.owner);
            }
            None => {}
        }
    }

    /// Fails a coroutine's wait.
    fn fail_task(&mut self, task: Task, words: &str) {
        if let Some(token) = task.token {
            self.context.cancel_call(token);
        }
        let arguments = [Argument::Boolean(false), Argument::Bytes(words.as_bytes())];
        self.run(task.coroutine, task.owner, &arguments);
    }
}
