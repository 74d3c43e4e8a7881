//! One thread, one core, one loop: connects sockets, TLS, mailboxes and the archive to the
//! [worker](veche_worker::WorkerLoop).
//!
//! This is glue around the object that defines the order of a turn: driver events go in, its requests come out.
//! Decisions made here concern transports only: accepting, the PROXY protocol, TLS, and system calls. Nothing in it
//! blocks.

mod accepting;
mod clients;
mod clock;
mod completions;
mod engine;
mod history;
mod host;
mod journal;
mod log;
mod mail;
#[cfg(test)]
mod observation;
mod preface;
mod readings;
mod requests;
mod sealed;
mod simulation;
mod transport;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, error};
use veche_apps::Here;
use veche_frontends::Shared;
use veche_frontends::journal::SlowKind;
use veche_mailbox::Mailbox;
use veche_net::{CloseReason, ConnectionId, Driver, Event};
use veche_supervisor::pulse::{Pulse, Step};
use veche_worker::{Accepting, TurnLimits, TurnState};

use crate::common::Common;
use crate::sealing::Doors;
use clock::{Clock, clock_now};
use completions::Completions;
use history::Ledger;
pub(crate) use host::{Decide, Host, Log};
use journal::Journal;
pub(crate) use mail::Letter;
use readings::Readings;
use transport::{Layer, Transport};

/// The log target of a worker, in all of its files.
const LOG: &str = "veche::worker";

/// The interval of checks whether accepting can be resumed, in milliseconds.
const ACCEPT_RETRY_MS: u64 = 20;

/// A worker on its driver `D`, with its applications `A`.
pub(crate) struct Worker<D, A: Host = Here> {
    driver: D,
    rest: Rest<A>,
}

/// Everything except the driver, split off so that both can be borrowed during an event.
struct Rest<A: Host> {
    worker: veche_worker::Worker<A, Transport>,
    mailbox: Mailbox<Letter<A::Message>>,
    common: Arc<Common>,
    /// The configured listener of each of the driver's.
    listeners: Vec<u16>,
    accepting: Accepting,
    /// Buffer for decrypted bytes, between two events.
    plain: Vec<u8>,
    line: sealed::Line,
    readings: Readings,
    /// TLS acceptors by listener.
    doors: Doors,
    journal: Journal,
    /// The history writer, if history is stored.
    ledger: Option<Ledger>,
    /// The way to an engine outside the process.
    engine: Option<Box<crate::engine::Port>>,
    /// Replaces the hooks in tests.
    decider: Option<Box<dyn Decide>>,
    /// Receives completions of other threads.
    completions: Arc<Completions>,
    /// Connections closed in this turn that are still counted.
    closed: usize,
    /// Progress for the control thread.
    pulse: Arc<Pulse>,
    /// The time of this turn's first event.
    began: Option<Instant>,
    /// The number of events in this turn.
    events: u64,
    clock: Clock,
}

impl<D: Driver, A: Host> Worker<D, A> {
    /// Creates a worker without listeners.
    pub(crate) fn new(
        driver: D,
        mut shared: Shared,
        mailbox: Mailbox<Letter<A::Message>>,
        common: Arc<Common>,
    ) -> Self {
        mailbox.attach(driver.waker());
        common.attach(driver.waker());
        let completions = Completions::new(driver.waker());
        shared.desk = Arc::clone(&completions) as _;
        shared.set_context_budget(&common.contexts);
        let pulse = Arc::clone(&common.pulses[usize::from(shared.hub.worker().0)]);
        let rest = Rest {
            worker: veche_worker::Worker::new(shared, TurnLimits::default()),
            mailbox,
            common,
            listeners: Vec::new(),
            accepting: Accepting::default(),
            plain: Vec::new(),
            line: sealed::Line::default(),
            readings: Readings::default(),
            doors: Doors::default(),
            journal: Journal::default(),
            ledger: None,
            engine: None,
            decider: None,
            completions,
            closed: 0,
            pulse,
            began: None,
            events: 0,
            clock: Clock::default(),
        };
        let mut worker = Self { driver, rest };
        worker.rest.begin_journal();
        worker
    }

    /// Sets the TLS acceptors; without any, all connections are plain.
    pub(crate) fn set_doors(&mut self, doors: Doors) {
        self.rest.doors = doors;
    }

    /// Sets the writer of channel history.
    pub(crate) fn keep_history(&mut self, writer: impl Log + 'static) {
        self.rest.ledger = Some(Ledger::new(Box::new(writer)));
    }

    /// Wakes this worker from another thread.
    pub(crate) fn waker(&self) -> veche_net::Waker {
        self.driver.waker()
    }

    /// The hub's engine is outside the process.
    pub(crate) fn set_engine(&mut self, port: crate::engine::Port) {
        self.rest.engine = Some(Box::new(port));
    }

    /// Accepts connections on a socket for the configured listener with an index.
    pub(crate) fn listen(
        &mut self,
        listener: u16,
        socket: std::os::fd::OwnedFd,
    ) -> std::io::Result<()> {
        self.driver.listen(socket)?;
        self.rest.listeners.push(listener);
        Ok(())
    }

    /// Runs turns until the process ends.
    pub(crate) fn run(&mut self) {
        loop {
            if let Err(error) = self.turn() {
                // The wait itself failed, which no peer can cause and no retry would fix.
                let me = self.rest.me();
                error!(worker = me, %error, "the worker's loop failed");
                eprintln!("veche: worker {me}: the loop failed: {error}");
                // The log is written by another thread.
                std::thread::sleep(Duration::from_millis(200));
                std::process::abort();
            }
        }
    }

    /// Runs one turn.
    pub(crate) fn turn(&mut self) -> std::io::Result<()> {
        let timeout = self.rest.patience();
        self.hear(timeout)?;
        let Self { driver, rest } = self;
        let began = rest.began.take().unwrap_or_else(clock_now);
        rest.worker.set_now(rest.clock.at(driver.now_ms()));
        // Also in a turn without events: work that waited for memory may continue.
        rest.look_at_memory(driver.now_ms());
        rest.after_events(driver);
        rest.turned(began.elapsed());
        rest.pulse.rest();
        Ok(())
    }

    /// Waits for driver events and handles them.
    fn hear(&mut self, timeout_ms: Option<u64>) -> std::io::Result<()> {
        let Self { driver, rest } = self;
        driver.turn(timeout_ms, &mut |driver, event| rest.event(driver, event))?;
        rest.mailbox.awake();
        Ok(())
    }
}

impl<A: Host> Rest<A> {
    fn me(&self) -> usize {
        self.worker.index()
    }

    /// Returns how long the driver may wait for events.
    fn patience(&mut self) -> Option<u64> {
        // Applications may have received completions since the turn ended.
        match self.worker.state() {
            _ if self.line.is_waiting() => Some(0),
            TurnState::Busy => Some(0),
            TurnState::Idle(_) if !self.mailbox.sleep() => Some(0),
            TurnState::Idle(within) if self.accepting != Accepting::Everything => {
                Some(within.map_or(ACCEPT_RETRY_MS, |within| within.min(ACCEPT_RETRY_MS)))
            }
            TurnState::Idle(within) => within,
        }
    }

    /// Counts the turn, and records slow steps.
    fn turned(&mut self, lasted: Duration) {
        let us = lasted.as_micros() as u64;
        let (me, events) = (self.me(), std::mem::take(&mut self.events));
        let shared = self.worker.shared_mut();
        shared.stats.turn(us);
        let letters = shared.stats.mailbox_depth.read();
        let now_ms = shared.now.wall_ms;
        let journal = &mut shared.ports.outboxes.journal;
        journal.took(SlowKind::Turn, us / 1000, || {
            format!("{events} events, {letters} letters")
        });
        let slow = journal.take_slow();
        if !slow.is_empty() {
            for slow in slow {
                self.common.slow.note(slow, me, now_ms);
            }
        }
    }

    fn look_at_memory(&mut self, now_ms: u64) {
        self.worker.shared_mut().is_short_of_memory = self.common.memory.is_short(now_ms);
    }

    fn event<D: Driver>(&mut self, driver: &mut D, event: Event<'_>) {
        // The first event ends the wait.
        if self.began.is_none() {
            self.began = Some(clock_now());
            self.pulse.set(Step::Events);
        }
        self.events += 1;
        if self.worker.shared().now.mono_ms != driver.now_ms() {
            self.worker.set_now(self.clock.at(driver.now_ms()));
            self.look_at_memory(driver.now_ms());
        }
        match event {
            Event::Received { id, bytes } => {
                let stats = &self.worker.shared().stats;
                stats.bytes_received.add(bytes.len() as u64);
                self.received(driver, id, bytes);
            }
            Event::Accepted { id, listener, peer } => {
                self.accepted(driver, id, listener, peer.ip());
            }
            Event::Ended { id } => self.ended(id),
            Event::Sent { id, buffer } => {
                self.recycle(buffer);
                self.worker.handle_sent(id, driver.unsent(id));
            }
            Event::Progressed { id } | Event::Drained { id } => {
                self.worker.handle_sent(id, driver.unsent(id));
            }
            Event::Closed { id, reason } => self.closed(id, reason),
            Event::Timer { id } => match self.lateness(id) {
                Some(why) => self.worker.handle_late(id, why),
                None => {
                    self.worker.handle_timeout(id);
                    self.arm_opening(id);
                }
            },
            Event::AcceptStalled { errno, .. } => {
                self.worker.shared().stats.accepts_stalled.add(1);
                self.common.warn_rarely(|| {
                    let errno = std::io::Error::from_raw_os_error(errno);
                    tracing::warn!(%errno, "can't accept; trying again");
                });
            }
            Event::Connected { .. } | Event::Woken => {}
        }
        self.command_transports(driver);
    }

    /// Passes a peer's bytes to the first layer.
    fn received<D: Driver>(&mut self, driver: &mut D, id: ConnectionId, bytes: &mut [u8]) {
        let Some(transport) = self.worker.transport_mut(id) else {
            return;
        };
        match transport.layer() {
            None => self.worker.handle_received(id, bytes),
            Some(Layer::Tls(_)) => self.received_sealed(driver, id, bytes),
            Some(Layer::Preface(_)) => self.received_preface(driver, id, bytes),
        }
    }

    /// Handles the peer's FIN.
    fn ended(&mut self, id: ConnectionId) {
        let transport = self.worker.transport_mut(id);
        if !transport.is_some_and(Transport::holds_end) {
            self.worker.handle_ended(id);
        }
    }

    fn closed(&mut self, id: ConnectionId, reason: CloseReason) {
        let why = clients::words(reason);
        if let Some(closed) = self.worker.handle_closed(id, why.as_deref()) {
            debug!(worker = self.me(), peer = %closed.peer, ?reason, "closed");
            sealed::gone(closed.transport.seal(), &self.worker.shared().stats);
            self.closed += 1;
        }
    }

    /// Completes the turn after its events; [`veche_worker::Worker`] explains the order.
    fn after_events<D: Driver>(&mut self, driver: &mut D) {
        self.pulse.set(Step::Messages);
        self.go_on_shaking(driver);
        self.take_mail(driver);
        self.hear_history();
        self.hear_engine();
        self.take_completions();
        self.pulse.set(Step::Remainder);
        self.worker.finish_turn();
        self.pulse.set(Step::Requests);
        self.dial(driver);
        self.perform_requests();
        self.write_history();
        self.order_engine();
        self.note_events();
        self.pulse.set(Step::Logs);
        self.log();
        self.write_journal();
        // Not earlier: when the last connection is uncounted the process may end, and its log lines should be written
        // by then.
        for _ in 0..std::mem::take(&mut self.closed) {
            self.common.connection_closed();
        }
        self.pulse.set(Step::Sending);
        self.command_transports(driver);
        self.flush(driver);
        self.post();
        self.settle_accepting(driver);
        self.worker.end_turn();
        self.order_engine();
        self.command_transports(driver);
    }
}
