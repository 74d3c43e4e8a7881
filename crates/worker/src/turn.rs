//! The turn: the one order of its steps.

use std::sync::Arc;

use veche_frontends::hooks::Decider;
use veche_hub::{Batch, Caller, Happening, Instruction, RemoteEngine};
use veche_nodes::engine::channel::{Event, Order};

use crate::apps::AppHost;
use crate::limits::{MAINTENANCE_MS, RETRY_LATER_MS, RETRY_MS, TurnState};
use crate::worker::{Request, Worker, begin_work};

impl<A: AppHost, T> Worker<A, T> {
    /// Carries out what the turn's events and messages have brought about. Afterwards the driver takes out what is to be
    /// done, in the order that [`Worker`] gives.
    pub fn finish_turn(&mut self) {
        self.is_busy = false;
        self.finish_messages();
        self.continue_connections();
        self.resume_connections();
        self.run_apps();
        self.is_busy |= self
            .shared
            .hub
            .sweep(self.limits.deliveries, &mut self.shared.ports);
        self.carry_out();
        self.ask_hooks();
        self.take_channel_events();
        self.drain_clients();
        self.drain_services();
        self.drain_back_ends();
        self.drain_servers();
        self.set_gauges();
        self.has_writes = true;
    }

    fn finish_messages(&mut self) {
        self.is_busy |= !self.wants_message();
        let depth = std::mem::take(&mut self.messages);
        self.shared.stats.mailbox_depth.set(depth as u64);
    }

    /// Continues connections that have used their share of an earlier turn, each once at most and the one first that
    /// was served longest ago.
    fn continue_connections(&mut self) {
        let waiting = self.shared.waiting_for_turn.len();
        if waiting > 0 {
            self.shared.work.set_left(self.limits.backlog_work.max(1));
        }
        for _ in 0..waiting {
            if self.shared.work.is_turn_over() {
                break;
            }
            if let Some(id) = self.shared.waiting_for_turn.pop() {
                self.with(id, |connection, shared| {
                    connection.resume(id, shared);
                });
            }
        }
    }

    /// Continues connections whose input waited, as far as what they waited for has come. One that got the credit that it
    /// waited for and needs another waits behind those that got none: with little credit a pipeline of publications
    /// would otherwise keep all others out.
    fn resume_connections(&mut self) {
        if self.resumable.is_empty() && self.shared.waiting_for_credit.is_empty() {
            return;
        }
        let mut ids = std::mem::take(&mut self.ids);
        ids.append(&mut self.resumable);
        ids.append(&mut self.shared.waiting_for_credit);
        for id in ids.drain(..) {
            let mut has_come = false;
            self.with(id, |connection, shared| {
                has_come = connection.resume(id, shared);
            });
            let waiting = &mut self.shared.waiting_for_credit;
            if has_come && waiting.last() == Some(&id) {
                waiting.pop();
                self.resumed.push(id);
            }
        }
        self.shared.waiting_for_credit.append(&mut self.resumed);
        self.ids = ids;
    }

    /// Carries out what hub and sessions asked of other connections during this turn.
    fn carry_out(&mut self) {
        self.begin_censuses();
        self.hand_out_answers();
        let settling = std::mem::take(&mut self.shared.ports.settling);
        while !self.shared.ports.kicks.is_empty() {
            for (id, code, reason) in std::mem::take(&mut self.shared.ports.kicks) {
                self.with(id, |connection, shared| {
                    connection.disconnect(id, code, &reason, shared);
                });
            }
        }
        if !self.shared.ports.instructions.is_empty() {
            for (id, instruction) in std::mem::take(&mut self.shared.ports.instructions) {
                self.with(id, |connection, shared| {
                    connection.instructed(id, &instruction, shared);
                });
            }
        }
        if !self.shared.ports.lost.is_empty() {
            for (id, channel) in std::mem::take(&mut self.shared.ports.lost) {
                self.with(id, |connection, shared| {
                    connection.lost(id, &channel, shared)
                });
            }
        }
        if !settling.is_empty() {
            self.settle_instructions(settling);
        }
        self.hand_out_relays();
        if self.shared.ports.outboxes.has_slow() {
            self.tell_slow_clients();
        }
        // A batch whose command before has just been answered asks on next turn.
        self.is_busy |= !self.shared.ports.censuses.is_empty();
    }

    /// Tells the homes concerned, and the callers, that sessions have carried their instructions out.
    fn settle_instructions(&mut self, settling: Vec<(Caller, Arc<Instruction>)>) {
        for (caller, instruction) in settling {
            let (hub, ports) = (&mut self.shared.hub, &mut self.shared.ports);
            hub.settle(caller, &instruction, ports);
        }
        self.hand_out_answers();
        // The batches that go on may have given further instructions.
        let ports = &self.shared.ports;
        self.is_busy |= !(ports.kicks.is_empty() && ports.instructions.is_empty());
        self.is_busy |= !ports.settling.is_empty();
    }

    /// Tells sessions that publications were missed, or that more waited for their clients than may.
    fn tell_slow_clients(&mut self) {
        let mut ids = std::mem::take(&mut self.ids);
        self.shared.ports.outboxes.take_fallen_behind(&mut ids);
        for id in ids.drain(..) {
            self.with(id, |connection, shared| connection.fell_behind(id, shared));
        }
        self.shared.ports.outboxes.take_overflowed(&mut ids);
        for id in ids.drain(..) {
            self.with(id, |connection, shared| connection.overflowed(id, shared));
        }
        self.ids = ids;
    }

    /// Hands the hub's answers to those who asked.
    pub(crate) fn hand_out_answers(&mut self) {
        while let Some((id, ticket, answer)) = self.shared.ports.answers.pop_front() {
            if let Some(answer) = self.answer_app(id, ticket, answer) {
                self.with(id, |connection, shared| {
                    connection.answered(id, ticket, answer, shared);
                });
            }
        }
    }

    /// Takes the turn's questions to whoever decides, and hands over the verdicts that are there. What these bring about
    /// is taken up next turn, so that a client whose commands are all refused at once cannot hold the worker.
    fn ask_hooks(&mut self) {
        self.hand_in_questions();
        if self.shared.ports.verdicts.is_empty() {
            return;
        }
        for _ in 0..self.shared.ports.verdicts.len() {
            if let Some((id, question, verdict)) = self.shared.ports.verdicts.pop_front() {
                self.with(id, |connection, shared| {
                    connection.judged(id, question, verdict, shared);
                });
            }
        }
        self.hand_in_questions();
        // They may have published, or have been decided on.
        self.is_busy = true;
    }

    fn hand_in_questions(&mut self) {
        while let Some(question) = self.shared.ports.questions.pop_front() {
            match question.decider {
                Decider::App { app, timeout_ms } => {
                    self.with_apps(|apps, shared| {
                        apps.decide(app, timeout_ms, &question, shared);
                    });
                    // It may have published, or begun something.
                    self.is_busy = true;
                }
                Decider::BackEnd(_) => self.requests.push_back(Request::Hook(question)),
            }
        }
    }

    fn take_channel_events(&mut self) {
        let lost = self.shared.hub.take_happenings(&mut self.channel_events);
        if lost == 0 && self.channel_events.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.channel_events);
        let has_work = self.with_apps(|apps, _| apps.happened(&events, lost));
        self.is_busy |= has_work == Some(true);
        self.channel_events = events;
        self.lost_events += lost;
    }

    /// Takes the next thing that somebody outside is asked for. To be called after [`finish_turn`](Self::finish_turn)
    /// until it returns `None`.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Returns what happened in channels since the last call, for a back end, and how many events were lost. To be called
    /// once a turn; what is left in the list comes again.
    pub fn poll_channel_events(&mut self) -> (&mut Vec<Happening>, u64) {
        let lost = std::mem::take(&mut self.lost_events);
        (&mut self.channel_events, lost)
    }

    /// Takes the turn's batch for the log of history. Not to be called while the log has no room: the hub keeps what
    /// comes, as far as it has room, and refuses publications beyond.
    pub fn poll_history(&mut self) -> Option<Batch> {
        let is_all = self.limits.maintains && self.shared.now.mono_ms >= self.maintain_at_ms;
        self.shared.hub.take_batch(is_all)
    }

    /// The log has everything up to this batch.
    pub fn handle_durable(&mut self, batch: u64) {
        self.shared.hub.durable(batch, &mut self.shared.ports);
    }

    /// Takes events of an engine outside the process.
    pub fn handle_engine(&mut self, events: Vec<Event>) {
        let Some(engine) = self.shared.hub.engine().remote() else {
            return;
        };
        for event in events {
            engine.handle(event);
        }
        while self.shared.hub.take_reports(&mut self.shared.ports) {
            self.hand_out_answers();
        }
    }

    /// Returns the orders for an engine outside the process, which the driver takes out; `None` where there is none.
    pub fn engine_orders(&mut self) -> Option<&mut Vec<Order>> {
        self.shared
            .hub
            .engine()
            .remote()
            .map(RemoteEngine::take_orders)
    }

    /// Says whether the log makes no progress now, so that waiting for it needs no haste.
    pub fn set_log_failing(&mut self, is_failing: bool) {
        self.is_log_failing = is_failing;
    }

    /// Ends the turn after everything was taken out: trims memory and expires history when that is due.
    pub fn end_turn(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        let is_due = now_ms >= self.maintain_at_ms && self.limits.maintains;
        if is_due {
            self.maintain_at_ms = now_ms + MAINTENANCE_MS;
        }
        self.is_trimmed = is_due && !self.shared.trim();
        begin_work(&self.limits, &mut self.shared);
        // Clients that were given up just now are told of in the next turn.
        self.is_busy |= is_due && self.shared.hub.has_to_tell();
    }

    /// Returns when the next turn has to begin. After [`end_turn`](Self::end_turn) it changes only with what applications
    /// wait for, so a driver asks right before it waits.
    #[must_use]
    pub fn state(&self) -> TurnState {
        let apps = self.apps_due_in_ms();
        let shared = &self.shared;
        if self.is_busy
            || shared.hub.has_to_sweep()
            || !self.resumable.is_empty()
            || !self.shared.waiting_for_turn.is_empty()
            || apps == Some(0)
        {
            return TurnState::Busy;
        }
        let waits = !shared.waiting_for_credit.is_empty()
            || !shared.ports.relays.is_empty()
            || shared.hub.has_stalled();
        let own = if waits {
            Some(match self.is_log_failing {
                true => RETRY_LATER_MS,
                false => RETRY_MS,
            })
        } else if self.drain.is_some() {
            Some(RETRY_LATER_MS)
        } else {
            (!self.is_trimmed && self.limits.maintains).then_some(MAINTENANCE_MS)
        };
        TurnState::Idle(own.into_iter().chain(apps).min())
    }

    /// Sets the gauges of this worker's part of the hub.
    fn set_gauges(&self) {
        let counts = self.shared.hub.counts();
        let stats = Arc::as_ref(&self.shared.stats);
        stats.channels.set(u64::from(
            counts.channels - counts.users.min(counts.channels),
        ));
        stats.users.set(u64::from(counts.users));
        stats.subscriptions.set(u64::from(counts.subscriptions));
        stats.fanned_out.set(self.shared.hub.handed_total());
        stats.streams.set(u64::from(counts.streams));
        stats.history_bytes.set(counts.history_bytes);
        stats.history_pending.set(u64::from(counts.pending));
        stats.history_evicted.set(self.shared.hub.evicted_total());
        stats.joins_untold.set(self.shared.hub.untold_total());
    }
}
