//! One thread, one core, one loop: where sockets, connections, hub and mail meet. No other part knows all of them.
//!
//! A turn: take a batch of events, hand each to its connection; take mail; carry out what the hub asked of other
//! connections; go on with fan-outs; then flush each touched connection once and post the turn's mail. Nothing in it
//! blocks. Every step has a limit, and what is left goes on next turn.

mod slots;

use std::net::IpAddr;
use std::sync::Arc;

use tracing::{debug, error, info, warn};
use veche_frontends::outbox::ANSWERS_BYTES_HIGH;
use veche_frontends::site::Role;
use veche_frontends::{Block, Connection, End, Note, NoteLevel, Now, Shared, Site};
use veche_hub::{Mail, SessionId, WorkerId};
use veche_mailbox::{Class, Full, Mailbox};
use veche_net::{Buffer, Driver, Event, ListenerId, TransportId};

use crate::common::Common;
use slots::Slots;

/// Mail taken in a turn.
const MAIL_MAX: usize = 4096;

/// Deliveries of queued fan-outs in a turn: about two milliseconds of sends.
const DELIVERIES_MAX: usize = 512;

/// While something waits for credit or for room below the cap, the loop looks again after so long.
const LOOK_AGAIN_MS: u64 = 1;
/// The same for what is less urgent: accepting again, closing the next ones of a drain.
const LOOK_AGAIN_LATER_MS: u64 = 20;

/// What a worker gets: other hubs' mail and orders of the control thread.
pub(crate) enum Letter {
    /// From the hub of another worker.
    Hub(Mail),
    /// A new configuration is in force.
    Reload(Arc<Site>, usize),
    /// Close everything, spread over so many milliseconds.
    Drain(u64),
}

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
    clock: Clock,
    drain: Option<Drain>,
    /// There is work that waits for nothing.
    busy: bool,
}

/// Wall time without asking the system each turn.
struct Clock {
    wall_minus_mono_ms: u64,
    checked_mono_ms: u64,
}

/// A drain under way: connections `next..end` by index are still to be told.
struct Drain {
    next: u32,
    end: u32,
    began_ms: u64,
    within_ms: u64,
}

impl<D: Driver> Worker<D> {
    /// A worker that accepts on nothing yet.
    pub(crate) fn new(
        driver: D,
        shared: Shared,
        mailbox: Mailbox<Letter>,
        common: Arc<Common>,
    ) -> Self {
        mailbox.attach(driver.waker());
        common.attach(driver.waker());
        let me = mailbox.me();
        let clock = Clock {
            wall_minus_mono_ms: 0,
            checked_mono_ms: 0,
        };
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
            clock,
            drain: None,
            busy: false,
        };
        Self { driver, rest }
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
                std::thread::sleep(std::time::Duration::from_millis(200));
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
        let began = clock_now();
        rest.tell_time(driver.now_ms());
        rest.after_events(driver);
        rest.shared.stats.turn(began.elapsed().as_micros() as u64);
        Ok(())
    }
}

impl Rest {
    /// How long the driver may wait for something to happen.
    fn patience(&mut self) -> Option<u64> {
        if std::mem::take(&mut self.busy) || !self.resumable.is_empty() || !self.mailbox.sleep() {
            return Some(0);
        }
        if !self.shared.waiting_for_credit.is_empty() || self.shared.hub.counts().stalled > 0 {
            return Some(LOOK_AGAIN_MS);
        }
        (self.accept_paused || self.drain.is_some()).then_some(LOOK_AGAIN_LATER_MS)
    }

    fn tell_time(&mut self, mono_ms: u64) {
        if mono_ms >= self.clock.checked_mono_ms + 1000 || self.clock.checked_mono_ms == 0 {
            self.clock.checked_mono_ms = mono_ms.max(1);
            self.clock.wall_minus_mono_ms = wall_now_ms().wrapping_sub(mono_ms);
        }
        let wall_ms = mono_ms.wrapping_add(self.clock.wall_minus_mono_ms);
        self.shared.set_now(Now { mono_ms, wall_ms });
    }

    fn event<D: Driver>(&mut self, driver: &mut D, event: Event<'_>) {
        if self.shared.now.mono_ms != driver.now_ms() {
            self.tell_time(driver.now_ms());
        }
        match event {
            Event::Received { id, bytes } => {
                self.shared.stats.bytes_received.add(bytes.len() as u64);
                let Some(slot) = self.slots.find(session(id)) else {
                    return;
                };
                slot.connection
                    .received(session(id), bytes, &mut self.shared);
                slot.settle(driver, id);
            }
            Event::Accepted { id, listener, peer } => {
                self.accepted(driver, id, listener, peer.ip())
            }
            Event::Ended { id } => {
                if let Some(slot) = self.slots.find(session(id)) {
                    slot.connection.ended(session(id), &mut self.shared);
                    slot.settle(driver, id);
                }
            }
            Event::Sent { id, buffer } => {
                self.recycle(buffer);
                self.sent_more(driver, id);
            }
            Event::Progressed { id } | Event::Drained { id } => self.sent_more(driver, id),
            Event::Closed { id, reason } => {
                if let Some(mut slot) = self.slots.remove(session(id)) {
                    debug!(worker = self.me, peer = %slot.connection.peer, ?reason, "closed");
                    slot.connection.closed(session(id), &mut self.shared);
                    self.shared.stats.connections.sub(1);
                    let counted = self.role(slot.connection.listener()) == Role::Public;
                    self.common.connection_closed(slot.connection.peer, counted);
                }
            }
            Event::Timer { id } => {
                if let Some(slot) = self.slots.find(session(id)) {
                    slot.armed_ms = u64::MAX;
                    let stalled_since = slot.stall.since_ms();
                    slot.connection
                        .timeout(session(id), stalled_since, &mut self.shared);
                    slot.settle(driver, id);
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

    fn accepted<D: Driver>(
        &mut self,
        driver: &mut D,
        id: TransportId,
        listener: ListenerId,
        peer: IpAddr,
    ) {
        let stats = Arc::clone(&self.shared.stats);
        stats.accepted.add(1);
        stats.connections.add(1);
        let listener = self.listeners[listener.0 as usize];
        // The back end is one address for everybody.
        let counted = self.role(listener) == Role::Public;
        let verdict = self.common.connection_opened(peer, counted);
        let connection = Connection::accept(session(id), listener, peer, &mut self.shared);
        let slot = self.slots.insert(session(id), connection);
        slot.settle(driver, id);
        if !verdict.address_allowed {
            debug!(%peer, "too many connections of this address");
            driver.close(id);
        }
        if verdict.at_cap && !self.accept_paused {
            self.common
                .warn_rarely(|| tracing::warn!("the connection cap is reached: accepting pauses"));
            self.pause_accepting(driver);
            // The others would learn of it by accepting one more each.
            self.common.wake_workers();
        }
    }

    fn role(&self, listener: u16) -> Role {
        self.shared.site.listeners[listener as usize].role
    }

    /// At the cap browsers wait; the back end and the operator still get in, on the descriptors kept for them.
    fn pause_accepting<D: Driver>(&mut self, driver: &mut D) {
        self.accept_paused = true;
        self.shared.stats.accepts_stalled.add(1);
        for (index, &listener) in self.listeners.iter().enumerate() {
            if self.role(listener) == Role::Public {
                driver.pause_accept(ListenerId(index as u32));
            }
        }
    }

    fn each_listener(&self, mut then: impl FnMut(ListenerId)) {
        (0..self.listeners.len() as u32).for_each(|index| then(ListenerId(index)));
    }

    /// The transport took more of what was queued.
    fn sent_more<D: Driver>(&mut self, driver: &mut D, id: TransportId) {
        let unsent = driver.unsent(id);
        let session = session(id);
        self.shared.ports.outboxes.set_unsent(session, unsent);
        let Some(slot) = self.slots.find(session) else {
            return;
        };
        slot.stall.progress(unsent, self.shared.now.mono_ms);
        // Before it has left, the connection would only look and wait again.
        if unsent <= ANSWERS_BYTES_HIGH && slot.connection.is_blocked() == Some(Block::Output) {
            self.resumable.push(session);
        }
        if unsent == 0
            && slot.connection.has_ended()
            && self.shared.ports.outboxes.of(session).end() == End::Shutdown
        {
            driver.close(id);
        }
    }

    fn after_events<D: Driver>(&mut self, driver: &mut D) {
        self.take_mail(driver);
        self.go_on(driver);
        self.busy |= self
            .shared
            .hub
            .sweep(DELIVERIES_MAX, &mut self.shared.ports);
        self.carry_out(driver);
        self.go_on_draining(driver);
        self.log();
        self.show_counts();
        self.flush(driver);
        self.post();
        if self.drain.is_some() {
            return;
        }
        if !self.accept_paused && self.common.is_at_cap() {
            self.pause_accepting(driver);
        } else if self.accept_paused && self.common.is_below_cap() {
            self.accept_paused = false;
            self.each_listener(|listener| driver.resume_accept(listener));
        }
    }

    fn take_mail<D: Driver>(&mut self, driver: &mut D) {
        for lane in 0..self.shared.ports.post.lanes.len() {
            self.shared.ports.post.lanes[lane].unfinished = self.mailbox.unfinished(lane);
        }
        let mut depth = 0;
        while depth < MAIL_MAX
            && let Some((from, letter)) = self.mailbox.pop()
        {
            depth += 1;
            match letter {
                Letter::Hub(mail) => {
                    self.shared
                        .hub
                        .receive(WorkerId(from as u16), mail, &mut self.shared.ports)
                }
                Letter::Reload(site, outbox_bytes_max) => {
                    self.shared.site = site;
                    self.shared
                        .ports
                        .outboxes
                        .set_outbox_bytes_max(outbox_bytes_max);
                }
                Letter::Drain(within_ms) => self.start_draining(driver, within_ms),
            }
        }
        self.busy |= depth == MAIL_MAX;
        self.shared.stats.mailbox_depth.set(depth as u64);
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
        while let Some((id, ticket, answer)) = self.shared.ports.answers.pop_front() {
            self.with(driver, id, |connection, shared| {
                connection.answered(id, ticket, answer, shared)
            });
        }
        while let Some((id, code, reason)) = self.shared.ports.kicks.pop() {
            self.with(driver, id, |connection, shared| {
                connection.disconnect(id, code, &reason, shared)
            });
        }
        let mut sessions = std::mem::take(&mut self.sessions);
        self.shared.ports.outboxes.take_overflowed(&mut sessions);
        for id in sessions.drain(..) {
            self.with(driver, id, |connection, shared| {
                connection.overflowed(id, shared)
            });
        }
        self.sessions = sessions;
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

    /// Hands over what the turn made: one write a connection.
    fn flush<D: Driver>(&mut self, driver: &mut D) {
        let mut touched = std::mem::take(&mut self.touched);
        self.shared.ports.outboxes.take_touched(&mut touched);
        for index in touched.drain(..) {
            let Some((session, bytes, end)) = self.shared.ports.outboxes.take(index) else {
                continue;
            };
            let id = transport(session);
            if end == End::Abort {
                driver.close(id);
                continue;
            }
            if !bytes.is_empty() {
                self.shared.stats.bytes_sent.add(bytes.len() as u64);
                if let Some(buffer) = driver.send(id, Buffer::Owned(bytes), false) {
                    self.recycle(buffer);
                } else {
                    self.stalled(driver, id);
                }
            }
            if end == End::Shutdown {
                self.shut_down(driver, id);
            }
        }
        self.touched = touched;
        let sent = self.shared.ports.outboxes.take_sent();
        self.shared.stats.messages_sent.add(sent.messages);
        self.shared.stats.message_bytes_sent.add(sent.bytes);
        // Whoever waited for its own output goes on next turn if it has left; else the driver will tell.
        for id in std::mem::take(&mut self.shared.waiting_for_output) {
            let unsent = driver.unsent(transport(id));
            // Both sides must judge by the same number, or they would ask each other for ever.
            self.shared.ports.outboxes.set_unsent(id, unsent);
            if unsent <= ANSWERS_BYTES_HIGH {
                self.resumable.push(id);
            }
        }
    }

    /// A send is not done: from now on its progress is watched.
    fn stalled<D: Driver>(&mut self, driver: &mut D, id: TransportId) {
        let unsent = driver.unsent(id);
        self.shared.ports.outboxes.set_unsent(session(id), unsent);
        let (now, limit) = (
            self.shared.now.mono_ms,
            self.shared.site.limits.write_timeout_ms,
        );
        if let Some(slot) = self.slots.find(session(id))
            && slot.stall.begin(now)
        {
            slot.arm(driver, id, now + limit);
        }
    }

    fn shut_down<D: Driver>(&mut self, driver: &mut D, id: TransportId) {
        driver.shutdown(id);
        if let Some(slot) = self.slots.find(session(id))
            && slot.connection.has_ended()
            && driver.unsent(id) == 0
        {
            driver.close(id);
        }
    }

    fn recycle(&mut self, buffer: Buffer) {
        if let Buffer::Owned(bytes) = buffer {
            self.shared.ports.outboxes.recycle(bytes);
        }
    }

    /// Shows the hub's gauges to whoever scrapes.
    fn show_counts(&self) {
        let counts = self.shared.hub.counts();
        let stats = &self.shared.stats;
        stats.channels.set(u64::from(
            counts.channels - counts.users.min(counts.channels),
        ));
        stats.users.set(u64::from(counts.users));
        stats.subscriptions.set(u64::from(counts.subscriptions));
        stats.fanned_out.set(self.shared.hub.handed_total());
    }

    /// Writes down what connections noted.
    fn log(&mut self) {
        for Note {
            session,
            level,
            what,
        } in self.shared.notes.drain(..)
        {
            let peer = self.slots.find(session).map(|slot| slot.connection.peer);
            let peer = peer.map_or_else(String::new, |peer| peer.to_string());
            match level {
                NoteLevel::Info => info!(worker = self.me, %peer, "{what}"),
                NoteLevel::Warn => warn!(worker = self.me, %peer, "{what}"),
            }
        }
        match self.shared.take_dropped_notes() {
            0 => {}
            dropped => warn!(
                worker = self.me,
                dropped, "further mistakes of peers, not written down"
            ),
        }
    }

    /// Posts the turn's mail and gives back the credits of what is finished.
    fn post(&mut self) {
        for to in 0..self.shared.ports.post.lanes.len() {
            let lane = &mut self.shared.ports.post.lanes[to];
            for _ in 0..std::mem::take(&mut lane.finished) {
                self.mailbox.done(to);
            }
            while let Some(mail) = lane.outgoing.pop_front() {
                let class = match mail.class() {
                    veche_hub::Class::Control => Class::Control,
                    veche_hub::Class::Publish | veche_hub::Class::Deliver => Class::Data,
                };
                if let Err(Full(Letter::Hub(mail))) =
                    self.mailbox.post(to, class, Letter::Hub(mail))
                {
                    // Data is sent with a credit in hand and control is bounded by the sessions of a worker, so this
                    // is never; were it wrong, the rest would wait in order.
                    debug_assert!(false, "the lane to worker {to} is full");
                    lane.outgoing.push_front(mail);
                    self.busy = true;
                    break;
                }
                lane.outgoing_data -= u32::from(class == Class::Data);
            }
            lane.unfinished = self.mailbox.unfinished(to);
        }
        self.mailbox.flush();
    }

    fn start_draining<D: Driver>(&mut self, driver: &mut D, within_ms: u64) {
        self.shared.start_draining();
        self.accept_paused = true;
        for (index, &listener) in self.listeners.iter().enumerate() {
            let id = ListenerId(index as u32);
            // Whoever watches over the server still gets answers: /health says that it goes.
            if self.role(listener) == Role::Internal {
                driver.resume_accept(id);
            } else {
                driver.pause_accept(id);
            }
        }
        let began_ms = self.shared.now.mono_ms;
        // The last fifth is for the closing handshakes.
        self.drain = Some(Drain {
            next: 0,
            end: self.slots.end(),
            began_ms,
            within_ms: within_ms - within_ms / 5,
        });
    }

    /// Tells the connections whose time in the drain has come.
    fn go_on_draining<D: Driver>(&mut self, driver: &mut D) {
        let Some(drain) = &mut self.drain else { return };
        let elapsed = self.shared.now.mono_ms - drain.began_ms;
        let due = match drain.within_ms {
            0 => drain.end,
            within => (u64::from(drain.end) * elapsed.min(within) / within) as u32,
        };
        // The first connection needn't wait for its share of the time.
        let due = due.max(drain.end.min(1));
        let from = drain.next;
        drain.next = due.max(from);
        for index in from..due {
            if let Some(id) = self.slots.at(index) {
                self.with(driver, id, |connection, shared| {
                    connection.drain(id, shared)
                });
            }
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

#[expect(
    clippy::disallowed_methods,
    reason = "the worker's loop is where time is read"
)]
fn clock_now() -> std::time::Instant {
    std::time::Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the worker's loop is where time is read"
)]
fn wall_now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
