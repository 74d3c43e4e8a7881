//! A script on one worker: the VM of its code and, after a reload, older VMs whose handlers have not finished.

use veche_calls::CallOutcome;
use veche_runtime::hooks::Hook;
use veche_runtime::{
    Effects, Event, EventKind, HandlerProgress, Host, Replacement, Runtime, ServiceState,
    SlowHandler, Token, WaitResult,
};
use veche_types::{ConnectionId, MessageKind, Now, WorkerId};

use crate::app::AppWorld;
use crate::program::Program;
use crate::vm::{HandlerName, LoadError, Vm};

/// Implements [`Runtime`](veche_runtime::Runtime) with Lua VMs.
pub struct Script {
    worker: WorkerId,
    world: AppWorld,
    vm: Vm,
    before: Vec<RetiredVm>,
}

/// A VM of older code with unfinished handlers.
struct RetiredVm {
    vm: Vm,
    until_ms: u64,
}

impl Script {
    /// Returns all VMs, the newest last.
    fn vms(&mut self) -> impl Iterator<Item = &mut Vm> {
        let old = self.before.iter_mut().map(|old| &mut old.vm);
        old.chain([&mut self.vm])
    }

    fn all(&self) -> impl Iterator<Item = &Vm> {
        self.before.iter().map(|old| &old.vm).chain([&self.vm])
    }

    /// Returns the VM that handles a connection's messages: an older VM if it opened the connection, otherwise the newest VM.
    #[inline]
    fn vm_of(&mut self, id: ConnectionId) -> &mut Vm {
        let older = self.before.len();
        let found = self.vms().take(older).position(|vm| vm.has_client(id));
        match found {
            Some(at) => &mut self.before[at].vm,
            None => &mut self.vm,
        }
    }

    #[inline]
    fn message(
        &mut self,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        now: Now,
    ) -> HandlerProgress {
        self.vm_of(id).message(id, kind, data, now)
    }

    fn closed(&mut self, id: ConnectionId, code: u16, reason: &str, now: Now) {
        let mut old = self.before.iter_mut();
        let is_there = |vm: &mut Vm| vm.is_busy_with(id) || vm.has_client(id);
        match old.find_map(|old| is_there(&mut old.vm).then_some(&mut old.vm)) {
            Some(busy) => {
                // The close is handled by the older VM, after the handler that is suspended there.
                busy.closed(id, code, reason, now);
                self.vm.release_connection(id);
            }
            None => {
                self.vm.closed(id, code, reason, now);
                for old in &mut self.before {
                    old.vm.release_connection(id);
                }
            }
        }
    }

    /// Handles events that are rarer than messages.
    fn handle_other(&mut self, event: Event<'_>, now: Now) -> HandlerProgress {
        match event {
            Event::Message { id, kind, data } => return self.message(id, kind, data, now),
            Event::Open { id, request } => return self.vm.opened(id, request, now),
            Event::Drain { id } => {
                for old in &mut self.before {
                    old.vm.drained_elsewhere(id, now);
                }
                return self.vm_of(id).drained(id, now);
            }
            Event::Close { id, code, reason } => self.closed(id, code, reason, now),
            Event::Handshake { id, request } => self.vm.handshake(id, request, now),
            Event::Request { id, request } => self.vm.request(id, request, now),
            Event::Gone { id, is_late } => {
                for vm in self.vms() {
                    vm.gone(id, is_late, now);
                }
            }
            Event::Hook { number, request } => self.vm.decide(number, request, now),
            Event::HookGone { number } => {
                for vm in self.vms() {
                    vm.fail_undecided(number, now);
                }
            }
            Event::Channels { events, lost } => self.vm.deliver(events, lost, now),
            Event::Run => self.vm.serve(now),
            Event::Stop => self.vm.stop(now),
        }
        HandlerProgress::Done
    }
}

impl Runtime for Script {
    type Program = Program;
    type Error = LoadError;

    fn start(program: &Program, host: &Host, worker: WorkerId) -> Result<Self, LoadError> {
        let world = program.world();
        world.attach(host);
        let vm = program.vm(&world, worker)?;
        Ok(Self {
            worker,
            world,
            vm,
            before: Vec::new(),
        })
    }

    fn attach(&mut self, host: &Host) {
        self.world.attach(host);
    }

    fn replace(
        &mut self,
        program: &Program,
        replacement: Replacement<'_, '_>,
    ) -> Result<(), LoadError> {
        let Replacement {
            stops,
            until_ms,
            hooks,
            now,
        } = replacement;
        let newer = program.vm(&self.world, self.worker)?;
        let mut vm = std::mem::replace(&mut self.vm, newer);
        self.vm.adopt();
        vm.move_calls_to(&mut self.vm, now);
        for (number, request) in hooks {
            if vm.cancel_hook(number) {
                self.vm.decide(number, &request, now);
            }
        }
        if stops {
            vm.stop(now);
        }
        self.before.push(RetiredVm { vm, until_ms });
        Ok(())
    }

    fn restart(&mut self, program: &Program) -> Result<(), LoadError> {
        self.vm.finish();
        self.vm = program.vm(&self.world, self.worker)?;
        self.vm.adopt();
        Ok(())
    }

    fn handles(&self, kind: EventKind) -> bool {
        self.vm.has(match kind {
            EventKind::Handshake => HandlerName::Handshake,
            EventKind::Request => HandlerName::Request,
            EventKind::Channels => HandlerName::Events,
        })
    }

    fn decides_on(&self, hook: Hook) -> bool {
        self.vm.hooks().any(|own| own == hook)
    }

    #[inline]
    fn handle_event(&mut self, event: Event<'_>, now: Now) -> HandlerProgress {
        match event {
            Event::Message { id, kind, data } => self.message(id, kind, data, now),
            other => self.handle_other(other, now),
        }
    }

    /// Passes a reply to all VMs. VMs in which no coroutine waits for the token ignore the reply.
    fn answer(&mut self, token: Token, answer: &WaitResult, now: Now) {
        for vm in self.vms() {
            vm.answer(token, answer, now);
        }
    }

    fn handle_outcome(&mut self, token: Token, outcome: CallOutcome, now: Now) {
        if let Some(vm) = self.vms().find(|vm| vm.is_waiting(token)) {
            vm.replied(token, outcome, now);
        }
    }

    fn client_opened(
        &mut self,
        token: Token,
        id: ConnectionId,
        protocol: Option<&str>,
        now: Now,
    ) -> bool {
        let vm = self.vms().find(|vm| vm.is_dialing(token));
        vm.is_some_and(|vm| vm.client_opened(token, id, protocol, now))
    }

    fn client_failed(&mut self, token: Token, why: &str, now: Now) {
        if let Some(vm) = self.vms().find(|vm| vm.is_dialing(token)) {
            vm.client_failed(token, why, now);
        }
    }

    fn mark_full(&mut self, id: ConnectionId) {
        self.vm.full(id);
    }

    fn turn(&mut self, now: Now) {
        self.vm.turn(now);
        for old in &mut self.before {
            old.vm.turn(now);
        }
    }

    fn deadline_ms(&self) -> u64 {
        let old = self.before.iter();
        let old = old.map(|old| old.vm.deadline_ms().min(old.until_ms));
        old.min().unwrap_or(u64::MAX).min(self.vm.deadline_ms())
    }

    #[inline]
    fn has_effects(&self) -> bool {
        self.vm.has_effects()
    }

    #[inline]
    fn take_effects(&mut self, empty: &mut Effects) {
        self.vm.take_effects(empty);
    }

    #[inline]
    fn take_slow(&mut self) -> Option<SlowHandler> {
        self.vm.take_slow()
    }

    fn is_open(&self, id: ConnectionId) -> bool {
        self.vm.is_open(id)
    }

    fn mark_closing(&mut self, id: ConnectionId) -> bool {
        self.vm.closing(id)
    }

    fn connections(&self) -> Vec<ConnectionId> {
        self.vm.connections()
    }

    fn takes_channel_events(&self) -> bool {
        self.vm.takes_events()
    }

    fn is_starting(&self) -> bool {
        self.vm.is_starting()
    }

    fn service_state(&self) -> ServiceState {
        self.vm.service()
    }

    fn is_stopping(&self) -> bool {
        self.vm.is_stopping()
    }

    fn is_idle(&self) -> bool {
        self.vm.is_at_rest()
    }

    fn has_no_clients(&self) -> bool {
        self.all().all(Vm::is_deserted)
    }

    fn has_older(&self) -> bool {
        !self.before.is_empty()
    }

    fn is_older_idle(&self) -> bool {
        self.before.iter().all(|old| old.vm.is_at_rest())
    }

    fn retire(&mut self, now: Now) -> Vec<usize> {
        let mut late = Vec::new();
        let mut index = 0;
        while let Some(retired) = self.before.get_mut(index) {
            let is_over = retired.vm.is_at_rest();
            if !is_over && now.mono_ms < retired.until_ms {
                index += 1;
                continue;
            }
            if !is_over {
                late.push(retired.vm.tasks());
            }
            retired.vm.finish();
            self.before.swap_remove(index);
        }
        late
    }

    fn is_broken(&self) -> bool {
        self.vm.is_broken()
    }

    fn tasks(&self) -> usize {
        self.vm.tasks()
    }

    fn all_tasks(&self) -> usize {
        self.all().map(Vm::tasks).sum()
    }

    fn memory_bytes(&self) -> usize {
        self.vm.memory_bytes()
    }

    fn all_memory_bytes(&self) -> usize {
        self.all().map(Vm::memory_bytes).sum()
    }

    fn fail_waiting(&mut self) {
        for vm in self.vms() {
            vm.finish();
        }
    }

    fn abort(&mut self) {
        for mut old in self.before.drain(..) {
            old.vm.abort();
        }
        self.vm.abort();
    }
}
