//! The turn of a worker. This is the only definition of the order of its steps.

use std::sync::Arc;

use veche_frontends::WaitReason;
use veche_frontends::hooks::HookTarget;
use veche_hub::{Caller, ChannelEvent, LogBatch, RemoteEngine, UserCommand};
use veche_nodes::engine::channel::{Event, Order};

use crate::apps::AppHost;
use crate::limits::{MAINTENANCE_MS, RETRY_LATER_MS, RETRY_MS, TurnState};
use crate::worker::{ExternalRequest, Worker, begin_work};

impl<A: AppHost, T> Worker<A, T> {
    /// Runs the steps of the turn after its events and messages were handled. Afterwards the driver takes the resulting
    /// work in the order documented at [`Worker`].
    pub fn finish_turn(&mut self) {
        self.is_busy = false;
        self.finish_messages();
        self.continue_connections();
        self.resume_connections();
        self.run_apps();
        self.is_busy |= self
            .shared
            .hub
            .sweep(self.limits.deliveries, &mut self.shared.requests);
        self.apply_disconnects();
        self.send_hook_requests();
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

    /// Continues connections that used up their work limit in an earlier turn, each at most once, beginning with the
    /// connection served longest ago.
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
                    connection.resume(id, WaitReason::Turn, shared);
                });
            }
        }
    }

    /// Resumes connections whose input was paused, if the reason is gone. A connection that has used a credit and needs
    /// another one goes to the end of the queue, behind connections that got none: otherwise, when credits are scarce,
    /// one connection that pipelines publications would starve all others.
    fn resume_connections(&mut self) {
        if self.resumable.is_empty() && self.shared.waiting_for_credit.is_empty() {
            return;
        }
        let mut ids = std::mem::take(&mut self.ids);
        ids.append(&mut self.resumable);
        let for_output = ids.len();
        ids.append(&mut self.shared.waiting_for_credit);
        for (position, id) in ids.drain(..).enumerate() {
            let reason = match position < for_output {
                true => WaitReason::Output,
                false => WaitReason::Credit,
            };
            let mut has_come = false;
            self.with(id, |connection, shared| {
                has_come = connection.resume(id, reason, shared);
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

    /// Applies the actions on other connections that the hub and the sessions have requested in this turn.
    fn apply_disconnects(&mut self) {
        self.send_list_requests();
        self.deliver_answers();
        let settling = std::mem::take(&mut self.shared.requests.finished_user_commands);
        while !self.shared.requests.disconnects.is_empty() {
            for (id, code, reason) in std::mem::take(&mut self.shared.requests.disconnects) {
                self.with(id, |connection, shared| {
                    connection.disconnect(id, code, &reason, shared);
                });
            }
        }
        if !self.shared.requests.user_commands.is_empty() {
            for (id, instruction) in std::mem::take(&mut self.shared.requests.user_commands) {
                self.with(id, |connection, shared| {
                    connection.handle_user_command(id, &instruction, shared);
                });
            }
        }
        if !self.shared.requests.lost_histories.is_empty() {
            for (id, channel) in std::mem::take(&mut self.shared.requests.lost_histories) {
                self.with(id, |connection, shared| {
                    connection.handle_lost_history(id, &channel, shared)
                });
            }
        }
        if !settling.is_empty() {
            self.finish_user_commands(settling);
        }
        self.deliver_relays();
        if self.shared.requests.outboxes.has_slow() {
            self.handle_slow_clients();
        }
        // A batch of API commands may have continued with a list request, which the next turn sends.
        self.is_busy |= !self.shared.requests.list_requests.is_empty();
    }

    /// Reports executed user commands to the affected home workers, and to the callers.
    fn finish_user_commands(&mut self, settling: Vec<(Caller, Arc<UserCommand>)>) {
        for (caller, instruction) in settling {
            let (hub, ports) = (&mut self.shared.hub, &mut self.shared.requests);
            hub.acknowledge_command(caller, &instruction, ports);
        }
        self.deliver_answers();
        // API batches that have continued may have added user commands, which the next turn executes.
        let ports = &self.shared.requests;
        self.is_busy |= !(ports.disconnects.is_empty() && ports.user_commands.is_empty());
        self.is_busy |= !ports.finished_user_commands.is_empty();
    }

    /// Handles sessions that have lost publications because their clients are slow, or whose outbox exceeded its limit.
    fn handle_slow_clients(&mut self) {
        let mut ids = std::mem::take(&mut self.ids);
        self.shared.requests.outboxes.take_fallen_behind(&mut ids);
        for id in ids.drain(..) {
            self.with(id, |connection, shared| {
                connection.log_missed_publications(id, shared)
            });
        }
        self.shared.requests.outboxes.take_overflowed(&mut ids);
        for id in ids.drain(..) {
            self.with(id, |connection, shared| {
                connection.handle_overflow(id, shared)
            });
        }
        self.ids = ids;
    }

    /// Delivers the hub's replies to the sessions and applications that made the requests.
    pub(crate) fn deliver_answers(&mut self) {
        while let Some((id, ticket, answer)) = self.shared.requests.answers.pop_front() {
            if let Some(answer) = self.answer_app(id, ticket, answer) {
                self.with(id, |connection, shared| {
                    connection.handle_answer(id, ticket, answer, shared);
                });
            }
        }
    }

    /// Sends the hook requests of this turn and delivers the decisions that have arrived. The effects of the decisions
    /// are handled in the next turn, so that a client whose commands are all refused immediately can't occupy the
    /// worker forever.
    fn send_hook_requests(&mut self) {
        self.deliver_app_requests();
        if self.shared.requests.hook_decisions.is_empty() {
            return;
        }
        for _ in 0..self.shared.requests.hook_decisions.len() {
            if let Some((id, request_id, decision)) =
                self.shared.requests.hook_decisions.pop_front()
            {
                self.with(id, |connection, shared| {
                    connection.handle_hook_decision(id, request_id, decision, shared);
                });
            }
        }
        self.deliver_app_requests();
        // A session may have continued and caused work, which the next turn handles.
        self.is_busy = true;
    }

    fn deliver_app_requests(&mut self) {
        while let Some(request) = self.shared.requests.hook_requests.pop_front() {
            match request.target {
                HookTarget::App { app, timeout_ms } => {
                    self.with_apps(|apps, shared| {
                        apps.decide_hook(app, timeout_ms, &request, shared);
                    });
                    // The application may have published or begun other work, which the next turn handles.
                    self.is_busy = true;
                }
                HookTarget::BackEnd(_) => self.requests.push_back(ExternalRequest::Hook(request)),
            }
        }
    }

    fn take_channel_events(&mut self) {
        let lost = self
            .shared
            .hub
            .take_channel_events(&mut self.channel_events);
        if lost == 0 && self.channel_events.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.channel_events);
        let has_work = self.with_apps(|apps, _| apps.handle_channel_event(&events, lost));
        self.is_busy |= has_work == Some(true);
        self.channel_events = events;
        self.lost_events += lost;
    }

    /// Takes the next request that this worker makes to another component of the process. Must be called after
    /// [`finish_turn`](Self::finish_turn) until it returns `None`.
    pub fn poll_request(&mut self) -> Option<ExternalRequest> {
        self.requests.pop_front()
    }

    /// Returns the channel events for the back end that have not been taken yet, and the number of events lost since
    /// the last call. Must be called once per turn. The caller removes the events that it takes; those left in the list
    /// are returned again.
    pub fn poll_channel_events(&mut self) -> (&mut Vec<ChannelEvent>, u64) {
        let lost = std::mem::take(&mut self.lost_events);
        (&mut self.channel_events, lost)
    }

    /// Takes the turn's batch for the history log. Must not be called while the log can't accept a batch: the hub then
    /// keeps the records up to its limit, and refuses further publications.
    pub fn poll_history(&mut self) -> Option<LogBatch> {
        let is_all = self.limits.maintains && self.shared.now.mono_ms >= self.maintain_at_ms;
        self.shared.hub.take_batch(is_all)
    }

    /// Records that the log has durably stored the batch with this number and all earlier batches.
    pub fn handle_durable(&mut self, batch: u64) {
        self.shared
            .hub
            .batch_durable(batch, &mut self.shared.requests);
    }

    /// Handles events of an engine outside the process.
    pub fn handle_engine(&mut self, events: Vec<Event>) {
        let Some(engine) = self.shared.hub.engine().remote() else {
            return;
        };
        for event in events {
            engine.handle(event);
        }
        while self.shared.hub.take_reports(&mut self.shared.requests) {
            self.deliver_answers();
        }
    }

    /// Returns the orders for an engine outside the process, from which the caller removes those it sends; `None`
    /// without such an engine.
    pub fn engine_orders(&mut self) -> Option<&mut Vec<Order>> {
        self.shared
            .hub
            .engine()
            .remote()
            .map(RemoteEngine::take_orders)
    }

    /// Sets whether the history log fails to make progress. If so, work that waits for the log is retried less often.
    pub fn set_log_failing(&mut self, is_failing: bool) {
        self.is_log_failing = is_failing;
    }

    /// Ends the turn after the driver has taken all work. Once a second it frees spare memory and expires history.
    pub fn end_turn(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        let is_due = now_ms >= self.maintain_at_ms && self.limits.maintains;
        if is_due {
            self.maintain_at_ms = now_ms + MAINTENANCE_MS;
        }
        self.is_trimmed = is_due && !self.shared.trim();
        begin_work(&self.limits, &mut self.shared);
        // The delays of some leave events may have ended during maintenance; these events are sent in the next turn.
        self.is_busy |= is_due && self.shared.hub.has_pending_output();
    }

    /// Returns the time at which the next turn has to begin. Applications can still change this time after
    /// [`end_turn`](Self::end_turn), so drivers call this method right before they wait.
    #[must_use]
    pub fn state(&self) -> TurnState {
        let apps = self.apps_due_in_ms();
        let shared = &self.shared;
        if self.is_busy
            || shared.hub.needs_sweep()
            || !self.resumable.is_empty()
            || !self.shared.waiting_for_turn.is_empty()
            || apps == Some(0)
        {
            return TurnState::Busy;
        }
        let waits = !shared.waiting_for_credit.is_empty()
            || !shared.requests.relays.is_empty()
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

    /// Updates the metrics of this worker's part of the hub.
    fn set_gauges(&self) {
        let counts = self.shared.hub.gauges();
        let stats = Arc::as_ref(&self.shared.stats);
        stats.channels.set(u64::from(
            counts.channels - counts.users.min(counts.channels),
        ));
        stats.users.set(u64::from(counts.users));
        stats.subscriptions.set(u64::from(counts.subscriptions));
        stats.fanned_out.set(self.shared.hub.receivers_total());
        stats.streams.set(u64::from(counts.streams));
        stats.history_bytes.set(counts.history_bytes);
        stats.history_pending.set(u64::from(counts.pending));
        stats.history_evicted.set(self.shared.hub.evicted_total());
        stats
            .join_leaves_dropped
            .set(self.shared.hub.dropped_join_leaves_total());
    }
}
