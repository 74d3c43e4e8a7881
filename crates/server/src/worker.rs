//! One thread, one core, one loop: where sockets, connections, hub and mail meet. No other part knows all of them.
//!
//! A turn: take a batch of events, hand each to its connection; take mail; carry out what the hub asked of other
//! connections; let applications go on; go on with fan-outs; then flush each touched connection once and post the turn's
//! mail. Nothing in it blocks. Every step has a limit, and what is left goes on next turn.

mod accepting;
mod apps;
mod census;
mod clients;
mod clock;
mod desk;
mod drain;
mod events;
mod history;
mod journal;
mod mail;
mod output;
mod preface;
mod questions;
mod readings;
mod relays;
mod sealed;
mod shown;
mod simulation;
mod slots;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, error};
use veche_frontends::journal::SlowKind;
use veche_frontends::{Connection, Shared};
use veche_hub::{Happening, SessionId};
use veche_mailbox::Mailbox;
use veche_net::{Driver, Event, TransportId};

use crate::common::Common;
use crate::sealing::Doors;
use clock::{Clock, clock_now};
use desk::Findings;
use drain::Drain;
use history::Ledger;
use journal::Journal;
pub(crate) use mail::Letter;
use readings::Readings;
use slots::Slots;

/// What log lines of a worker go by, whichever of its files writes them.
const LOG: &str = "veche::worker";

/// Deliveries of queued fan-outs in a turn: about two milliseconds of sends.
const DELIVERIES_MAX: usize = 512;

/// While something waits for credit or for room below the cap, the loop looks again after so long.
const LOOK_AGAIN_MS: u64 = 1;
/// The same for what is less urgent: accepting again, closing the next ones of a drain.
const LOOK_AGAIN_LATER_MS: u64 = 20;

/// Spare memory is looked through so often, until there is no more to give back.
const TRIM_INTERVAL_MS: u64 = 1000;

/// One worker. `D` is its back end.
pub(crate) struct Worker<D> {
    driver: D,
    rest: Rest,
}

/// All but the driver, which lends itself to the handler of its own events.
struct Rest {
    me: usize,
    shared: Shared,
    slots: Slots,
    mailbox: Mailbox<Letter>,
    common: Arc<Common>,
    /// The site's listener of each of the driver's.
    listeners: Vec<u16>,
    accept_paused: bool,
    /// Connections to go on with next turn.
    resumable: Vec<SessionId>,
    /// Reused lists.
    touched: Vec<u32>,
    sessions: Vec<SessionId>,
    /// What TLS has opened, between two events.
    plain: Vec<u8>,
    line: sealed::Line,
    readings: Readings,
    /// How connections come in.
    doors: Doors,
    journal: Journal,
    /// Where what channels remember is written, if it is.
    ledger: Option<Ledger>,
    /// Who clients are, where others had to be asked.
    findings: Arc<Findings>,
    /// Connections that have ended in this turn and still count.
    closed: usize,
    /// When this turn's first event came.
    began: Option<Instant>,
    /// How many have come in it.
    events: u64,
    clock: Clock,
    drain: Option<Drain>,
    /// There is work that waits for nothing.
    busy: bool,
    /// When spare memory is looked through next; `u64::MAX` for never.
    trim_at_ms: u64,
    /// Empty between turns.
    happenings: Vec<Happening>,
    /// Nothing happened since there was none left.
    trimmed: bool,
}

impl<D: Driver> Worker<D> {
    /// A worker that accepts on nothing yet.
    pub(crate) fn new(
        driver: D,
        mut shared: Shared,
        mailbox: Mailbox<Letter>,
        common: Arc<Common>,
    ) -> Self {
        mailbox.attach(driver.waker());
        common.attach(driver.waker());
        let findings = Findings::new(driver.waker());
        shared.desk = Arc::clone(&findings) as _;
        let me = mailbox.me();
        let rest = Rest {
            me,
            shared,
            slots: Slots::default(),
            mailbox,
            common,
            listeners: Vec::new(),
            accept_paused: false,
            resumable: Vec::new(),
            touched: Vec::new(),
            sessions: Vec::new(),
            plain: Vec::new(),
            line: sealed::Line::default(),
            readings: Readings::default(),
            doors: Doors::default(),
            journal: Journal::default(),
            ledger: None,
            findings,
            closed: 0,
            began: None,
            events: 0,
            clock: Clock::default(),
            drain: None,
            busy: false,
            trim_at_ms: 0,
            happenings: Vec::new(),
            trimmed: false,
        };
        let mut worker = Self { driver, rest };
        worker.rest.begin_journal();
        worker
    }

    /// Connections come in by these doors; without any all of them come in as they are.
    pub(crate) fn set_doors(&mut self, doors: Doors) {
        self.rest.doors = doors;
    }

    /// What channels remember is written there.
    pub(crate) fn keep_history(&mut self, writer: veche_archive::Writer) {
        self.rest.ledger = Some(Ledger::new(writer));
    }

    /// Accepts on a socket, for the site's listener with that index.
    pub(crate) fn listen(
        &mut self,
        listener: u16,
        socket: std::os::fd::OwnedFd,
    ) -> std::io::Result<()> {
        self.driver.listen(socket)?;
        self.rest.listeners.push(listener);
        Ok(())
    }

    /// Turns until the process ends.
    pub(crate) fn run(&mut self) {
        loop {
            if let Err(error) = self.turn() {
                // The wait itself failed: nothing that a peer can cause, and nothing that another try would mend.
                error!(worker = self.rest.me, %error, "the worker's loop failed");
                eprintln!("veche: worker {}: the loop failed: {error}", self.rest.me);
                // The log has a thread of its own.
                std::thread::sleep(Duration::from_millis(200));
                std::process::abort();
            }
        }
    }

    /// One turn.
    pub(crate) fn turn(&mut self) -> std::io::Result<()> {
        let Self { driver, rest } = self;
        let timeout = rest.patience();
        driver.turn(timeout, &mut |driver, event| rest.event(driver, event))?;
        rest.mailbox.awake();
        let began = rest.began.take().unwrap_or_else(clock_now);
        rest.shared.set_now(rest.clock.at(driver.now_ms()));
        rest.after_events(driver);
        rest.turned(began.elapsed());
        Ok(())
    }
}

impl Rest {
    /// How long the driver may wait for something to happen.
    fn patience(&mut self) -> Option<u64> {
        let apps = self.apps_due_in_ms();
        // Answers and verdicts are handed out after the sweep, and whoever gets one may publish or join at once.
        if std::mem::take(&mut self.busy)
            || self.shared.hub.has_to_sweep()
            || !self.resumable.is_empty()
            || apps == Some(0)
            || !self.mailbox.sleep()
        {
            return Some(0);
        }
        let own = if !self.shared.waiting_for_credit.is_empty()
            || !self.shared.ports.relays.is_empty()
            || self.shared.hub.counts().stalled > 0
        {
            // Those that wait for a disk that fails are not helped by haste.
            match self.ledger.as_ref().is_some_and(Ledger::is_failing) {
                true => Some(LOOK_AGAIN_LATER_MS),
                false => Some(LOOK_AGAIN_MS),
            }
        } else if self.accept_paused || self.drain.is_some() {
            Some(LOOK_AGAIN_LATER_MS)
        } else {
            (!self.trimmed && self.trim_at_ms != u64::MAX).then_some(TRIM_INTERVAL_MS)
        };
        own.into_iter().chain(apps).min()
    }

    /// Counts the turn, and notes what took long in it.
    fn turned(&mut self, lasted: Duration) {
        let us = lasted.as_micros() as u64;
        self.shared.stats.turn(us);
        let events = std::mem::take(&mut self.events);
        let letters = self.shared.stats.mailbox_depth.read();
        let journal = &mut self.shared.ports.outboxes.journal;
        journal.took(SlowKind::Turn, us / 1000, || {
            format!("{events} events, {letters} letters")
        });
        for slow in journal.take_slow() {
            let now_ms = self.shared.now.wall_ms;
            self.common.slow.note(slow, self.me, now_ms);
        }
    }

    fn event<D: Driver>(&mut self, driver: &mut D, event: Event<'_>) {
        // The wait is over with the first.
        self.began.get_or_insert_with(clock_now);
        self.events += 1;
        if self.shared.now.mono_ms != driver.now_ms() {
            self.shared.set_now(self.clock.at(driver.now_ms()));
            self.shared.is_short_of_memory = self.common.memory.is_short(driver.now_ms());
        }
        match event {
            Event::Received { id, bytes } => {
                self.shared.stats.bytes_received.add(bytes.len() as u64);
                self.received(driver, id, bytes);
            }
            Event::Accepted { id, listener, peer } => {
                self.accepted(driver, id, listener, peer.ip())
            }
            Event::Ended { id } => self.ended(driver, id),
            Event::Sent { id, buffer } => {
                self.recycle(buffer);
                self.sent_more(driver, id);
            }
            Event::Progressed { id } | Event::Drained { id } => self.sent_more(driver, id),
            Event::Closed { id, reason } => {
                self.dialed_in_vain(session(id), reason);
                if let Some(mut slot) = self.slots.remove(session(id)) {
                    debug!(worker = self.me, peer = %slot.connection.peer, ?reason, "closed");
                    sealed::gone(slot.seal.as_deref(), &self.shared.stats);
                    slot.connection.closed(session(id), &mut self.shared);
                    if slot.connection.listener().is_some() {
                        self.shared.stats.connections.sub(1);
                    }
                    self.closed += 1;
                }
            }
            Event::Timer { id } => {
                let is_late = self.is_late(session(id));
                if let Some(slot) = self.slots.find(session(id)) {
                    slot.armed_ms = u64::MAX;
                    if is_late {
                        return slot.settle(driver, id);
                    }
                    let stalled_since = slot.stall.since_ms();
                    slot.connection
                        .timeout(session(id), stalled_since, &mut self.shared);
                    slot.settle(driver, id);
                    slot.arm(driver, id, slot.begin_by_ms());
                    if let Some(since) = stalled_since {
                        slot.arm(driver, id, since + self.shared.site.limits.write_timeout_ms);
                    }
                }
            }
            Event::AcceptStalled { errno, .. } => {
                self.shared.stats.accepts_stalled.add(1);
                self.common.warn_rarely(|| {
                    let errno = std::io::Error::from_raw_os_error(errno);
                    tracing::warn!(%errno, "can't accept; trying again");
                });
            }
            Event::Connected { .. } | Event::Woken => {}
        }
    }

    /// Bytes of a peer, for whatever lies first on their way.
    fn received<D: Driver>(&mut self, driver: &mut D, id: TransportId, bytes: &mut [u8]) {
        let Some(slot) = self.slots.find(session(id)) else {
            return;
        };
        if slot.preface.is_some() {
            return self.received_preface(driver, id, bytes);
        }
        if slot.seal.is_some() {
            return self.received_sealed(driver, id, bytes);
        }
        slot.connection
            .received(session(id), bytes, &mut self.shared);
        slot.settle(driver, id);
    }

    /// The peer sends nothing more.
    fn ended<D: Driver>(&mut self, driver: &mut D, id: TransportId) {
        let Some(slot) = self.slots.find(session(id)) else {
            return;
        };
        if slot
            .seal
            .as_deref_mut()
            .is_some_and(sealed::Seal::holds_end)
        {
            return;
        }
        slot.connection.ended(session(id), &mut self.shared);
        slot.settle(driver, id);
    }

    fn after_events<D: Driver>(&mut self, driver: &mut D) {
        self.go_on_shaking(driver);
        self.take_mail(driver);
        self.hear_history();
        self.take_findings(driver);
        self.go_on(driver);
        self.turn_apps(driver);
        self.dial(driver);
        self.busy |= self
            .shared
            .hub
            .sweep(DELIVERIES_MAX, &mut self.shared.ports);
        self.carry_out(driver);
        // Of a batch whose command before has just been answered.
        self.busy |= !self.shared.ports.censuses.is_empty();
        self.ask_questions(driver);
        self.write_history();
        self.note_events();
        self.go_on_draining(driver);
        self.drain_clients(driver);
        self.log();
        self.show_counts();
        self.write_journal();
        // Not before: when the last is counted out the process may end, and their lines should be written.
        for _ in 0..std::mem::take(&mut self.closed) {
            self.common.connection_closed();
        }
        self.flush(driver);
        self.post();
        self.settle_accepting(driver);
        self.trim();
    }

    /// Gives back what a spike has left, once a second while something happens and a few times after.
    fn trim(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        let due = now_ms >= self.trim_at_ms;
        if due {
            self.trim_at_ms = now_ms + TRIM_INTERVAL_MS;
        }
        self.trimmed = due && !self.shared.trim();
        // Who was given up just now is told of in the next turn.
        self.busy |= due && self.shared.hub.has_to_tell();
    }

    /// Connections whose input waited go on, as far as what they waited for has come.
    fn go_on<D: Driver>(&mut self, driver: &mut D) {
        let mut sessions = std::mem::take(&mut self.sessions);
        sessions.append(&mut self.resumable);
        sessions.append(&mut self.shared.waiting_for_credit);
        for id in sessions.drain(..) {
            self.with(driver, id, |connection, shared| {
                connection.resume(id, shared)
            });
        }
        self.sessions = sessions;
    }

    /// What the hub asked of connections during this turn.
    fn carry_out<D: Driver>(&mut self, driver: &mut D) {
        self.begin_censuses();
        self.hand_answers(driver);
        while !self.shared.ports.kicks.is_empty() {
            for (id, code, reason) in std::mem::take(&mut self.shared.ports.kicks) {
                self.with(driver, id, |connection, shared| {
                    connection.disconnect(id, code, &reason, shared)
                });
            }
        }
        for (id, instruction) in std::mem::take(&mut self.shared.ports.instructions) {
            self.with(driver, id, |connection, shared| {
                connection.instructed(id, &instruction, shared)
            });
        }
        self.hand_relays(driver);
        let mut sessions = std::mem::take(&mut self.sessions);
        self.shared.ports.outboxes.take_fallen_behind(&mut sessions);
        for id in sessions.drain(..) {
            self.with(driver, id, |connection, shared| {
                connection.fell_behind(id, shared)
            });
        }
        self.shared.ports.outboxes.take_overflowed(&mut sessions);
        for id in sessions.drain(..) {
            self.with(driver, id, |connection, shared| {
                connection.overflowed(id, shared)
            });
        }
        self.sessions = sessions;
    }

    /// Hands the hub's answers to those who asked.
    fn hand_answers<D: Driver>(&mut self, driver: &mut D) {
        while let Some((id, ticket, answer)) = self.shared.ports.answers.pop_front() {
            if let Some(app) = crate::apps::asker(id) {
                self.shared
                    .with_apps(|apps, shared| apps.answered(app, id, ticket, answer, shared));
                continue;
            }
            self.with(driver, id, |connection, shared| {
                connection.answered(id, ticket, answer, shared)
            });
        }
    }

    fn with<D: Driver>(
        &mut self,
        driver: &mut D,
        id: SessionId,
        work: impl FnOnce(&mut Connection, &mut Shared),
    ) {
        if let Some(slot) = self.slots.find(id) {
            work(&mut slot.connection, &mut self.shared);
            slot.settle(driver, transport(id));
        }
    }
}

fn session(id: TransportId) -> SessionId {
    SessionId {
        index: id.index,
        generation: id.generation,
    }
}

fn transport(id: SessionId) -> TransportId {
    TransportId {
        index: id.index,
        generation: id.generation,
    }
}
