//! The loop of a worker, which runs on one thread per core. It connects sockets, TLS, mailboxes and the archive to the
//! [worker](veche_worker::Worker).
//!
//! The [worker](veche_worker::Worker) defines the order of a turn. This loop passes driver events to it one by one, and
//! executes its requests and sends its output at the end of the turn. The loop itself decides only about transports:
//! accepting, the PROXY protocol, TLS, and system calls. It never blocks.

mod accepting;
mod access_log;
mod clients;
mod clock;
mod completions;
mod engine;
mod history;
mod host;
mod log;
mod mail;
#[cfg(test)]
mod observation;
mod proxy_header;
mod requests;
mod simulation;
mod tls;
mod transport;
mod trust_loader;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, error};
use veche_apps::AppHosts;
use veche_frontends::access_log_buffer::SlowEventKind;
use veche_frontends::{Context, TransportEnd};
use veche_mailbox::{Class, Full, Mailbox};
use veche_net::{Buffer, CloseReason, ConnectionId, Driver, DriverEvent};
use veche_supervisor::pulse::{TurnStep, WorkerPulse};
use veche_worker::{
    AcceptPolicy, OutgoingMail, PendingWrite, TransportCommand, TurnLimits, TurnState,
};

use crate::process_state::ProcessState;
use crate::tls_listeners::TlsAcceptors;
use access_log::AccessLogBatch;
use clock::{WallClock, clock_now};
use completions::CompletionInbox;
use history::HistoryWriter;
pub(crate) use host::{HistoryLog, HookExecutor, WorkerApps};
pub(crate) use mail::WorkerMail;
use transport::{ConnectionTransport, TransportLayer};
use trust_loader::TrustLoader;

/// The target of all log lines of a worker.
const LOG: &str = "veche::worker";

/// The interval of checks whether accepting can be resumed, in milliseconds.
const ACCEPT_RETRY_MS: u64 = 20;

/// A worker on its driver `D`, with its applications `A`.
pub(crate) struct WorkerLoop<D, A: WorkerApps = AppHosts> {
    driver: D,
    rest: WorkerState<A>,
}

/// Everything except the driver, split off so that both can be borrowed during an event.
struct WorkerState<A: WorkerApps> {
    worker: veche_worker::Worker<A, ConnectionTransport>,
    mailbox: Mailbox<WorkerMail<A::Message>>,
    common: Arc<ProcessState>,
    /// For each listener of the driver, the index of the configured listener.
    listeners: Vec<u16>,
    accepting: AcceptPolicy,
    /// A buffer for decrypted bytes, kept from one event to the next so that it is not allocated again.
    plain: Vec<u8>,
    handshakes: tls::HandshakeQueue,
    trust_loader: TrustLoader,
    /// TLS acceptors by listener.
    acceptors: TlsAcceptors,
    access_log: AccessLogBatch,
    /// The history writer, if history is stored.
    ledger: Option<HistoryWriter>,
    /// The port to an engine outside the process, if there is one.
    engine: Option<Box<crate::engine::HomePort>>,
    /// The executor of hook requests that a test has set; it replaces that of the process.
    hook_executor: Option<Box<dyn HookExecutor>>,
    /// The inbox for results of work that other threads did.
    completions: Arc<CompletionInbox>,
    /// The number of connections that were closed in this turn and not yet subtracted from the process's count.
    closed: usize,
    /// The progress of turns, which the control thread monitors.
    pulse: Arc<WorkerPulse>,
    /// The time of this turn's first event.
    began: Option<Instant>,
    /// The number of events in this turn.
    events: u64,
    clock: WallClock,
}

impl<D: Driver, A: WorkerApps> WorkerLoop<D, A> {
    /// Creates a worker without listeners.
    pub(crate) fn new(
        driver: D,
        mut shared: Context,
        mailbox: Mailbox<WorkerMail<A::Message>>,
        common: Arc<ProcessState>,
    ) -> Self {
        mailbox.attach(driver.waker());
        common.attach(driver.waker());
        let completions = CompletionInbox::new(driver.waker());
        shared.completions = Arc::clone(&completions) as _;
        shared.set_context_budget(&common.contexts);
        let pulse = Arc::clone(&common.pulses[usize::from(shared.hub.worker().0)]);
        let rest = WorkerState {
            worker: veche_worker::Worker::new(shared, TurnLimits::default()),
            mailbox,
            common,
            listeners: Vec::new(),
            accepting: AcceptPolicy::default(),
            plain: Vec::new(),
            handshakes: tls::HandshakeQueue::default(),
            trust_loader: TrustLoader::default(),
            acceptors: TlsAcceptors::default(),
            access_log: AccessLogBatch::default(),
            ledger: None,
            engine: None,
            hook_executor: None,
            completions,
            closed: 0,
            pulse,
            began: None,
            events: 0,
            clock: WallClock::default(),
        };
        let mut worker = Self { driver, rest };
        worker.rest.begin_access_log();
        worker
    }

    /// Sets the TLS acceptors; without any, all connections are plain.
    pub(crate) fn set_acceptors(&mut self, acceptors: TlsAcceptors) {
        self.rest.acceptors = acceptors;
    }

    /// Sets the writer of channel history.
    pub(crate) fn set_history_writer(&mut self, writer: impl HistoryLog + 'static) {
        self.rest.ledger = Some(HistoryWriter::new(Box::new(writer)));
    }

    /// Returns a handle with which another thread wakes this worker.
    pub(crate) fn waker(&self) -> veche_net::Waker {
        self.driver.waker()
    }

    /// Sets the port to the hub's engine, which is outside the process.
    pub(crate) fn set_engine(&mut self, port: crate::engine::HomePort) {
        self.rest.engine = Some(Box::new(port));
    }

    /// Accepts connections on `socket`. `listener` is the index of the configured listener whose settings apply.
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
                let me = self.rest.index();
                error!(worker = me, %error, "the worker's event loop failed: aborting the process");
                eprintln!("veche: worker {me}: the event loop failed: {error}");
                // Another thread writes the log. This gives it time before the process ends.
                std::thread::sleep(Duration::from_millis(200));
                std::process::abort();
            }
        }
    }

    /// Runs one turn: waits for events, at most until the worker has work to do, and handles them.
    pub(crate) fn turn(&mut self) -> std::io::Result<()> {
        let timeout = self.rest.wait_ms();
        self.poll_driver(timeout)?;
        let Self { driver, rest } = self;
        let began = rest.began.take().unwrap_or_else(clock_now);
        rest.worker.set_now(rest.clock.at(driver.now_ms()));
        // Memory is checked even in a turn without events, so that work that waits for memory continues once there is
        // enough.
        rest.check_memory(driver.now_ms());
        rest.finish_turn(driver);
        rest.record_turn(began.elapsed());
        rest.pulse.set_idle();
        Ok(())
    }

    /// Waits for driver events and handles them.
    fn poll_driver(&mut self, timeout_ms: Option<u64>) -> std::io::Result<()> {
        let Self { driver, rest } = self;
        driver.turn(timeout_ms, &mut |driver, event| rest.event(driver, event))?;
        rest.mailbox.awake();
        Ok(())
    }
}

impl<A: WorkerApps> WorkerState<A> {
    fn index(&self) -> usize {
        self.worker.index()
    }

    /// Returns for how many milliseconds the driver may wait for events; `None` without a limit.
    fn wait_ms(&mut self) -> Option<u64> {
        // The state is computed here and not at the end of the turn, because applications may have received completions
        // since then.
        match self.worker.state() {
            _ if self.handshakes.is_waiting() => Some(0),
            TurnState::Busy => Some(0),
            TurnState::Idle(_) if !self.mailbox.sleep() => Some(0),
            TurnState::Idle(within) if self.accepting != AcceptPolicy::Everything => {
                Some(within.map_or(ACCEPT_RETRY_MS, |within| within.min(ACCEPT_RETRY_MS)))
            }
            TurnState::Idle(within) => within,
        }
    }

    /// Counts the turn and its duration, and records slow operations in the process's slow log.
    fn record_turn(&mut self, lasted: Duration) {
        let us = lasted.as_micros() as u64;
        let (me, events) = (self.index(), std::mem::take(&mut self.events));
        let shared = self.worker.shared_mut();
        shared.stats.turn(us);
        let messages = shared.stats.mailbox_depth.read();
        let now_ms = shared.now.wall_ms;
        let access_log = &mut shared.requests.outboxes.access_log;
        access_log.record_duration(SlowEventKind::Turn, us / 1000, || {
            format!("{events} network events, {messages} mailbox messages")
        });
        let slow = access_log.take_slow_events();
        if !slow.is_empty() {
            for slow in slow {
                self.common.slow.note(slow, me, now_ms);
            }
        }
    }

    fn check_memory(&mut self, now_ms: u64) {
        self.worker.shared_mut().is_short_of_memory = self.common.memory.is_short(now_ms);
    }

    fn event<D: Driver>(&mut self, driver: &mut D, event: DriverEvent<'_>) {
        // The worker was waiting until this event, so the turn is measured from here.
        if self.began.is_none() {
            self.began = Some(clock_now());
            self.pulse.set(TurnStep::Events);
        }
        self.events += 1;
        if self.worker.shared().now.mono_ms != driver.now_ms() {
            self.worker.set_now(self.clock.at(driver.now_ms()));
            self.check_memory(driver.now_ms());
        }
        match event {
            DriverEvent::Received { id, bytes } => {
                let stats = &self.worker.shared().stats;
                stats.bytes_received.add(bytes.len() as u64);
                self.received(driver, id, bytes);
            }
            DriverEvent::Accepted { id, listener, peer } => {
                self.accepted(driver, id, listener, peer.ip());
            }
            DriverEvent::Ended { id } => self.ended(id),
            DriverEvent::Sent { id, buffer } => {
                self.recycle(buffer);
                self.worker.handle_sent(id, driver.unsent(id));
            }
            DriverEvent::Progressed { id } | DriverEvent::Drained { id } => {
                self.worker.handle_sent(id, driver.unsent(id));
            }
            DriverEvent::Closed { id, reason } => self.closed(id, reason),
            DriverEvent::Timer { id } => match self.timeout_reason(id) {
                Some(why) => self.worker.handle_late(id, why),
                None => {
                    self.worker.handle_timeout(id);
                    self.arm_opening(id);
                }
            },
            DriverEvent::AcceptStalled { errno, .. } => {
                self.worker.shared().stats.accepts_stalled.add(1);
                self.common.warn_throttled(|| {
                    let errno = std::io::Error::from_raw_os_error(errno);
                    tracing::warn!(%errno, "can't accept connections; trying again");
                });
            }
            DriverEvent::Connected { .. } | DriverEvent::Woken => {}
        }
        self.command_transports(driver);
    }

    /// Passes a peer's bytes to the PROXY header's parser, to TLS, or directly to the worker.
    fn received<D: Driver>(&mut self, driver: &mut D, id: ConnectionId, bytes: &mut [u8]) {
        let Some(transport) = self.worker.transport_mut(id) else {
            return;
        };
        match transport.layer() {
            None => self.worker.handle_received(id, bytes),
            Some(TransportLayer::Tls(_)) => self.received_tls(driver, id, bytes),
            Some(TransportLayer::ProxyHeader(_)) => self.received_proxy_header(driver, id, bytes),
        }
    }

    /// Handles the peer's FIN.
    fn ended(&mut self, id: ConnectionId) {
        let transport = self.worker.transport_mut(id);
        if !transport.is_some_and(ConnectionTransport::holds_end) {
            self.worker.handle_ended(id);
        }
    }

    fn closed(&mut self, id: ConnectionId, reason: CloseReason) {
        let why = clients::error_text(reason);
        if let Some(closed) = self.worker.handle_closed(id, why.as_deref()) {
            debug!(worker = self.index(), peer = %closed.peer, ?reason, "the connection was closed");
            tls::handshake_gone(closed.transport.tls_layer(), &self.worker.shared().stats);
            self.closed += 1;
        }
    }

    /// Completes the turn after its events; [`veche_worker::Worker`] explains the order.
    fn finish_turn<D: Driver>(&mut self, driver: &mut D) {
        self.pulse.set(TurnStep::Messages);
        self.resume_handshakes(driver);
        self.receive_messages(driver);
        self.take_durable_history();
        self.hear_engine();
        self.take_completions();
        self.pulse.set(TurnStep::Remainder);
        self.worker.finish_turn();
        self.pulse.set(TurnStep::Requests);
        self.dial(driver);
        self.perform_requests();
        self.write_history();
        self.order_engine();
        self.note_events();
        self.pulse.set(TurnStep::Logs);
        self.log();
        self.write_access_log();
        // Closed connections are subtracted only after their log lines are written, since the
        // process may end when no connection is left.
        for _ in 0..std::mem::take(&mut self.closed) {
            self.common.connection_closed();
        }
        self.pulse.set(TurnStep::Sending);
        self.command_transports(driver);
        self.flush(driver);
        self.send_messages();
        self.settle_accepting(driver);
        self.worker.end_turn();
        self.order_engine();
        self.command_transports(driver);
    }

    /// Receives the messages of other workers and of the control thread.
    fn receive_messages<D: Driver>(&mut self, driver: &mut D) {
        self.count_unfinished();
        while self.worker.wants_message()
            && let Some((from, message)) = self.mailbox.pop()
        {
            match message {
                WorkerMail::Worker(message) => self.worker.handle_message(from, message),
                WorkerMail::Reload(site, outbox_bytes_max, app_set) => {
                    self.begin_access_log();
                    self.worker
                        .with_apps(|here, shared| here.reload(&app_set, shared));
                    self.worker.set_config(site, outbox_bytes_max);
                }
                WorkerMail::Acceptors(acceptors) => self.acceptors = acceptors,
                WorkerMail::StartServices => {
                    self.worker.with_apps(|here, _| here.start_services());
                }
                WorkerMail::Drain(within_ms, shutdown_reason) => {
                    self.start_draining(driver, within_ms, shutdown_reason)
                }
                WorkerMail::CutOff => self.worker.handle_drain_over(),
                WorkerMail::Reconnect => self.worker.handle_commands_lost(),
            }
        }
    }

    /// Executes the worker's commands for transports.
    fn command_transports<D: Driver>(&mut self, driver: &mut D) {
        while let Some(command) = self.worker.poll_transport() {
            match command {
                TransportCommand::Pause(id) => driver.pause(id),
                TransportCommand::Resume(id) => driver.resume(id),
                TransportCommand::SetTimer(id, due_ms) => driver.set_timer(id, due_ms),
                TransportCommand::Close(id) => driver.close(id),
            }
        }
    }

    /// Sends the turn's output with one write per connection.
    fn flush<D: Driver>(&mut self, driver: &mut D) {
        let mut sent_bytes = 0;
        while let Some(PendingWrite { id, bytes, end }) = self.worker.poll_write() {
            if end == TransportEnd::Abort {
                driver.close(id);
                continue;
            }
            let transport = self.worker.transport_mut(id);
            let bytes = match transport.is_some_and(|transport| transport.tls_layer().is_some()) {
                true => self.encrypt(id, bytes, end),
                false => bytes,
            };
            if !bytes.is_empty() {
                sent_bytes += bytes.len() as u64;
                self.send(driver, id, bytes);
            }
            if end == TransportEnd::Shutdown {
                driver.shutdown(id);
                self.worker.handle_shut_down(id, driver.unsent(id));
            }
        }
        self.worker.shared().stats.bytes_sent.add(sent_bytes);
        while let Some(id) = self.worker.poll_unsent() {
            self.worker.handle_unsent(id, driver.unsent(id));
        }
        self.command_transports(driver);
    }

    /// Sends bytes that the caller has already added to the statistics.
    #[inline]
    fn send<D: Driver>(&mut self, driver: &mut D, id: ConnectionId, bytes: Vec<u8>) {
        match driver.send(id, Buffer::Owned(bytes), false) {
            Some(buffer) => self.recycle(buffer),
            None => self.worker.handle_stalled(id, driver.unsent(id)),
        }
    }

    #[inline]
    fn recycle(&mut self, buffer: Buffer) {
        if let Some(bytes) = buffer.reclaim() {
            self.worker.recycle(bytes);
        }
    }

    /// Sends this turn's messages to other workers, and returns the credits of processed messages to the workers that
    /// sent them.
    fn send_messages(&mut self) {
        for to in 0..self.worker.workers() {
            for _ in 0..self.worker.poll_finished(to) {
                self.mailbox.done(to);
            }
        }
        while let Some(OutgoingMail { to, message }) = self.worker.poll_message() {
            let class = match message.is_data() {
                true => Class::Data,
                false => Class::Control,
            };
            if let Err(Full(WorkerMail::Worker(message))) =
                self.mailbox.post(to, class, WorkerMail::Worker(message))
            {
                // Only a control message can find no room: data is sent with a credit, which guarantees room. Even
                // control messages have far more room than sessions can use. The message is put back and sent in a
                // later turn, before those behind it, so none is lost.
                debug_assert!(
                    class == Class::Control,
                    "data must not be sent to worker {to} without a credit"
                );
                self.worker.put_back(OutgoingMail { to, message });
                break;
            }
        }
        self.count_unfinished();
        self.mailbox.flush();
    }

    fn count_unfinished(&mut self) {
        for to in 0..self.worker.workers() {
            self.worker.handle_credits(to, self.mailbox.unfinished(to));
        }
    }
}
