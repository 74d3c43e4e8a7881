//! Implements [`Runtime`] for an application's worker processes: passes events to them, and returns their effects.

use super::*;

impl CallBridge for Workers {
    fn token(&mut self) -> Token {
        self.last += 1;
        Token(self.last)
    }

    fn set_attribute(&mut self, of: WorkerConnection, name: &str, value: Option<Attribute>) {
        let is_own = of.worker == self.worker;
        let connection = self.connections.get_mut(&of.connection).filter(|_| is_own);
        let Some(connection) = connection else {
            return;
        };
        let attributes = connection.attributes.get_or_insert_default();
        if let Err(error) = attributes.set(name, value) {
            let text = format!("attribute {name:?}: {error}");
            self.effects.log(Level::Error, text, None);
        }
    }
}

impl Runtime for Workers {
    type Program = Program;
    type Error = String;

    fn start(program: &Program, host: &Host, worker: WorkerId) -> Result<Self, String> {
        let mut own = Self {
            program: program.clone(),
            link: None,
            newer: None,
            older: Vec::new(),
            worker,
            wake: WakeOf(host.wake.clone()),
            connections: KnownConnections::default(),
            in_hand: HashMap::default(),
            hook_callers: HashMap::default(),
            opening: HashMap::default(),
            calls: HashMap::default(),
            effects: Effects::default(),
            messages: Vec::new(),
            last: 0,
            generation: 0,
            now_ms: 0,
            is_stopping: false,
            has_new_hooks: false,
        };
        own.link = Some(own.join(program)?);
        Ok(own)
    }

    fn attach(&mut self, host: &Host) {
        self.wake = WakeOf(host.wake.clone());
        if let Some(wake) = &host.wake {
            self.links()
                .for_each(|link| link.outlet.set_wake(wake.clone()));
        }
    }

    fn replace(&mut self, program: &Program, _: Replacement<'_, '_>) -> Result<(), String> {
        let link = self.join(program)?;
        self.newer = Some(link);
        self.program = program.clone();
        Ok(())
    }

    fn restart(&mut self, program: &Program) -> Result<(), String> {
        self.newer = Some(self.join(program)?);
        Ok(())
    }

    fn handles(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::Handshake => self.takes(EventName::Open),
            EventKind::Request => self.takes(EventName::Request),
            EventKind::Channels => false,
        }
    }

    fn decides_on(&self, hook: Hook) -> bool {
        self.takes(name_of(hook))
    }

    fn has_new_hooks(&mut self) -> bool {
        mem::take(&mut self.has_new_hooks)
    }

    fn handle_event(&mut self, event: Event<'_>, now: Now) -> HandlerProgress {
        self.now_ms = now.mono_ms;
        match &event {
            Event::Handshake { id, .. } => {
                let origin = EventOrigin::Handshake(*id);
                if !self.ask(&event, EventName::Open, origin) {
                    self.pass(origin);
                }
                HandlerProgress::Waits
            }
            Event::Open { id, request } => {
                let connection = self.connections.entry(*id).or_default();
                if connection.user.is_none() {
                    connection.user = request.user().map(Into::into);
                }
                self.opened(*id);
                HandlerProgress::Done
            }
            Event::Message { id, .. } => {
                if !self.ask(&event, EventName::Message, EventOrigin::Connection(*id)) {
                    return HandlerProgress::Done;
                }
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.is_busy = true;
                }
                HandlerProgress::Waits
            }
            Event::Close { id, code, reason } => {
                self.opening.remove(id);
                match self.connections.get_mut(id) {
                    Some(connection) if connection.is_busy => {
                        connection.is_closing = true;
                        connection.end = Some(Box::new((*code, (*reason).to_owned())));
                    }
                    Some(_) => self.close(*id, *code, reason),
                    None => {}
                }
                HandlerProgress::Done
            }
            Event::Request { id, .. } => {
                let origin = EventOrigin::Request(*id);
                if !self.ask(&event, EventName::Request, origin) {
                    self.pass(origin);
                }
                HandlerProgress::Waits
            }
            Event::Gone { id, .. } => {
                self.connections.remove(id);
                self.opening.remove(id);
                self.give_up(|origin| {
                    matches!(origin, EventOrigin::Handshake(of) | EventOrigin::Request(of) if of == *id)
                });
                HandlerProgress::Done
            }
            Event::Hook { number, request } => {
                let origin = EventOrigin::Hook(*number);
                if !self.ask(&event, name_of(request.hook), origin) {
                    // The hook may be left to other handlers only while the application runs; after its end the hook
                    // fails.
                    match self.link {
                        Some(_) => self.pass(origin),
                        None => self.fail(origin),
                    }
                }
                HandlerProgress::Waits
            }
            Event::HookGone { number } => {
                self.give_up(|origin| origin == EventOrigin::Hook(*number));
                self.hook_callers.remove(number);
                HandlerProgress::Done
            }
            Event::Stop => {
                self.is_stopping = true;
                HandlerProgress::Done
            }
            Event::Drain { .. } | Event::Channels { .. } | Event::Run => HandlerProgress::Done,
        }
    }

    fn answer(&mut self, token: Token, answer: &WaitResult, _: Now) {
        match self.calls.remove(&token.0) {
            Some(call) => self.result(call, &ResultHead::of_answer(call.id, answer), &[]),
            None => {
                if let WaitResult::Failed(words) | WaitResult::No(words) = answer {
                    self.effects.log(Level::Error, words.clone(), None);
                }
            }
        }
    }

    fn handle_outcome(&mut self, token: Token, outcome: CallOutcome, _: Now) {
        if let Some(call) = self.calls.remove(&token.0) {
            let (head, data) = ResultHead::of_outcome(call.id, &outcome);
            self.result(call, &head, &data);
        }
    }

    fn client_opened(&mut self, _: Token, _: ConnectionId, _: Option<&str>, _: Now) -> bool {
        false
    }

    fn client_failed(&mut self, _: Token, _: &str, _: Now) {}

    fn mark_full(&mut self, _: ConnectionId) {}

    fn turn(&mut self, now: Now) {
        self.take_messages(now);
        self.links().for_each(PoolHandle::announce_orders);
        self.switch();
        if self.leaves() {
            // Dropping the last reference to the pools ends the processes.
            self.newer = None;
            self.older.extend(self.link.take());
            self.older.clear();
        }
    }

    fn deadline_ms(&self) -> u64 {
        // A turn is due at once if it has to announce orders to the pool or to receive the pool's messages.
        if self.links().any(PoolHandle::has_news) || self.leaves() {
            return 0;
        }
        let is_polled = self.wake.0.is_none() || self.newer.is_some();
        match is_polled && (self.newer.is_some() || !self.in_hand.is_empty()) {
            true => self.now_ms + POLL_MS,
            false => u64::MAX,
        }
    }

    fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    fn take_effects(&mut self, empty: &mut Effects) {
        mem::swap(&mut self.effects, empty);
    }

    fn take_slow(&mut self) -> Option<SlowHandler> {
        None
    }

    fn is_open(&self, id: ConnectionId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|connection| !connection.is_closing)
    }

    fn mark_closing(&mut self, id: ConnectionId) -> bool {
        let connection = self.connections.get_mut(&id);
        connection.is_some_and(|connection| !mem::replace(&mut connection.is_closing, true))
    }

    fn connections(&self) -> Vec<ConnectionId> {
        let open = self.connections.iter();
        let open = open.filter(|(_, connection)| !connection.is_closing);
        open.map(|(id, _)| *id).collect()
    }

    fn takes_channel_events(&self) -> bool {
        false
    }

    fn is_starting(&self) -> bool {
        false
    }

    fn service_state(&self) -> ServiceState {
        ServiceState::Idle
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping && !self.in_hand.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.in_hand.is_empty()
    }

    fn has_no_clients(&self) -> bool {
        self.connections.is_empty() && self.in_hand.is_empty()
    }

    fn has_older(&self) -> bool {
        !self.older.is_empty()
    }

    fn is_older_idle(&self) -> bool {
        !self.older.iter().any(|link| self.is_used(link.generation))
    }

    fn retire(&mut self, _: Now) -> Vec<usize> {
        Vec::new()
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn tasks(&self) -> usize {
        self.in_hand.len()
    }

    fn all_tasks(&self) -> usize {
        self.in_hand.len()
    }

    fn memory_bytes(&self) -> usize {
        self.connections.capacity() * size_of::<(ConnectionId, KnownConnection)>()
    }

    fn all_memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn fail_waiting(&mut self) {
        let numbers: Vec<u64> = self.in_hand.keys().copied().collect();
        for number in numbers {
            if let Some(in_hand) = self.in_hand.remove(&number) {
                let text = "the application ends".to_owned();
                self.unanswered(in_hand, Unanswered::Failed, Some(text), None);
            }
        }
    }

    fn abort(&mut self) {
        self.fail_waiting();
        self.calls.clear();
    }
}
