//! Measures messages and their answers, in a closed loop or at a rate independent of the answers (open loop).

use veche_proto::websocket::MessageKind;

use super::expiry::ExpiryTimer;
use super::flight::InflightQueue;
use super::load::Load;
use super::load::TWICE_NS;
use super::open_loop::OpenLoop;
pub use super::plans::EchoPlan;
use super::think::ThinkTimers;
use crate::clock::{MILLISECOND, SECOND};
use crate::engine::{EngineState, LoadIo};
use crate::payload::{Recognized, TestPayload};
use crate::plan::ThreadPlan;
use crate::schedule::{Arrivals, Schedule};
use crate::tally::{ErrorCase, ErrorCause};

/// One thread's part of an echo run.
pub(crate) struct EchoLoad {
    payload: TestPayload,
    inflight: u32,
    rate: Option<f64>,
    rate_to: Option<f64>,
    arrivals: Arrivals,
    think_timers: Option<ThinkTimers>,
    phase: f64,
    open_loop: Option<OpenLoop>,
    churn: Option<ChurnState>,
    has_begun: bool,
    flights: Vec<InflightQueue>,
    /// The index of the client that sends next in an open loop.
    next: u32,
    expiry: ExpiryTimer,
    unanswered: u64,
}

/// The state of closing and reopening connections during a run.
struct ChurnState {
    per_second: f64,
    pace: Option<Schedule>,
    next: u32,
    /// Clients that wait for their last answers or for the end of the closing handshake, with the
    /// time limit of each.
    leaving: Vec<(u32, u64)>,
    /// Clients that could not be reopened, or whose connection ended unexpectedly. Whenever a reconnect is due,
    /// one of these clients is reopened first.
    absent: Vec<u32>,
}

/// The error of a message that was not answered within the time limit.
const NO_ANSWER: &str = "no answer in time";
/// How long to wait after the measured time for overtaken messages: those without an answer although a
/// later message was answered. The wait applies once all other messages are answered.
const OVERTAKEN_NS: u64 = SECOND;
/// Time limit for the last answers and the closing handshake of a connection that is closed for churn.
const LEAVE_NS: u64 = 2 * SECOND;

impl EchoLoad {
    pub(crate) fn new(plan: &EchoPlan, share: &ThreadPlan) -> Self {
        let clients = share.clients();
        Self {
            payload: TestPayload::new(&plan.payload),
            inflight: plan.inflight.max(1),
            // Threads without a client send nothing.
            rate: plan
                .rate
                .filter(|_| clients > 0)
                .map(|rate| share.rate_of_clients(rate)),
            rate_to: plan.rate_to.map(|rate| share.rate_of_clients(rate)),
            arrivals: plan.arrivals,
            think_timers: plan.think.map(|think| ThinkTimers::new(think, share)),
            phase: share.phase(),
            open_loop: None,
            churn: plan.churn.map(|per_second| ChurnState {
                per_second: share.rate(per_second),
                pace: None,
                next: 0,
                leaving: Vec::new(),
                absent: Vec::new(),
            }),
            has_begun: false,
            flights: vec![InflightQueue::default(); clients],
            next: 0,
            expiry: ExpiryTimer::default(),
            unanswered: 0,
        }
    }

    #[inline]
    fn send(&mut self, io: &mut LoadIo<'_>, client_index: u32, at_ns: u64) {
        let flight = &mut self.flights[client_index as usize];
        let number = flight.answered.wrapping_add(flight.sent.len() as u32);
        let kind = self.payload.kind;
        let data = self
            .payload
            .stamp(io.net.clients[client_index as usize].number, number);
        io.net.sent(at_ns, data.len());
        io.send(client_index, kind, data);
        flight.sent.push_back(at_ns);
    }

    /// Sends due messages of the open loop while a client can send: it must be open, not about to leave, and without
    /// too many unsent bytes.
    fn send_due(&mut self, io: &mut LoadIo<'_>) {
        let Some(mut open_loop) = self.open_loop.take() else {
            return;
        };
        let count = self.flights.len() as u32;
        let find = |echo: &Self, net: &EngineState| {
            net.find_open(echo.next, count, |client_index| {
                !echo.flights[client_index as usize].is_leaving
            })
        };
        while let Some((client_index, due)) = open_loop.next(io.net, |net| find(self, net)) {
            self.next = (client_index + 1) % count;
            self.send(io, client_index, due);
        }
        self.open_loop = Some(open_loop);
    }

    fn is_behind(&self, net: &EngineState) -> bool {
        let open_loop = self.open_loop.as_ref();
        open_loop.is_some_and(|open_loop| open_loop.is_behind(net))
    }

    /// Counts an error for each message whose time limit has passed. In a closed loop, sends other messages in
    /// their place.
    fn expire(&mut self, io: &mut LoadIo<'_>) {
        let Some(limit_ns) = self.expiry.limit_ns(io.net) else {
            return;
        };
        for client_index in 0..self.flights.len() as u32 {
            let flight = &mut self.flights[client_index as usize];
            let mut is_any = false;
            while let Some(since) = flight.expire(limit_ns) {
                is_any = true;
                self.unanswered += u64::from(io.net.is_measured(since));
                io.net
                    .fault(&ErrorCase::new(ErrorCause::TimedOut, NO_ANSWER));
            }
            if is_any {
                self.unanswered += flight.forget_some(io.net);
                if self.open_loop.is_none() && !flight.is_leaving && io.net.is_open(client_index) {
                    self.go_on(io, client_index);
                }
            }
        }
    }

    /// Handles a message other than the expected answer.
    #[cold]
    fn other_message(
        &mut self,
        io: &mut LoadIo<'_>,
        client_index: u32,
        kind: MessageKind,
        data: &[u8],
    ) {
        let flight = &mut self.flights[client_index as usize];
        let number = io.net.clients[client_index as usize].number;
        let seen = self
            .payload
            .recognize(number, flight.answered, kind, data)
            .unwrap_or_else(|| {
                let is_of_other_kind = self.payload.is_of_other_kind(number, 0, kind, data);
                let is_greeting = flight.answered == 0 && !flight.greeted && !is_of_other_kind;
                if flight.sent.is_empty() || is_greeting {
                    Recognized::Foreign
                } else {
                    Recognized::Altered(None)
                }
            });
        if !self.payload.is_stamped() && (flight.sent.is_empty() || flight.answered > 0) {
            io.net.tally.unpaired += 1;
        }
        let wrong = match seen {
            Recognized::Foreign => {
                flight.greeted = true;
                io.net.tally.unasked += 1;
                return;
            }
            Recognized::Answer(found) => {
                let is_late = flight.overtaken_at(found).is_some();
                if let Some(one) = flight.take(found) {
                    flight.expired = 0;
                    io.net.tally.late += u64::from(is_late);
                    if !one.is_expired {
                        let since = one.sent_ns;
                        let counts_from = io.net.counts_from(since, self.open_loop.is_some());
                        io.net.answered(since, counts_from, data.len());
                    }
                    self.unanswered += flight.forget_some(io.net);
                    return;
                }
                if flight.has_been_sent(found) {
                    io.net.tally.duplicated += 1;
                    return;
                }
                None
            }
            Recognized::Altered(found) => found.or(Some(flight.answered)),
        };
        // An altered answer still counts as an answer, so its message no longer waits for one.
        if let Some(number) = wrong {
            flight.take(number);
            self.unanswered += flight.forget_some(io.net);
        }
        let words = self.payload.explain(kind, data);
        io.net
            .fault(&ErrorCase::new(ErrorCause::WrongAnswer, words));
    }

    /// Sends messages until the maximum number of messages in flight is reached.
    fn fill(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        for _ in self.flights[client_index as usize].sent.len()..self.inflight as usize {
            self.send(io, client_index, io.net.now_ns);
        }
    }

    /// Starts a closed loop on a connection that has just opened, or at the start of the run.
    fn start(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        match &mut self.think_timers {
            None => self.fill(io, client_index),
            Some(think_timers) => think_timers.start(client_index, self.inflight, io.net.now_ns),
        }
    }

    /// Sends the next messages after answers, or starts the think time.
    #[inline]
    fn go_on(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        match &mut self.think_timers {
            None => self.fill(io, client_index),
            Some(think_timers) => {
                let in_flight = self.flights[client_index as usize].sent.len() as u32;
                think_timers.pause(
                    client_index,
                    self.inflight.saturating_sub(in_flight),
                    io.net.now_ns,
                );
            }
        }
    }

    /// Sends a message for each client whose think time has ended.
    fn send_thought(&mut self, io: &mut LoadIo<'_>) {
        while let Some(think_timers) = &mut self.think_timers
            && let Some(client_index) = think_timers.next(io.net.now_ns)
        {
            let flight = &self.flights[client_index as usize];
            let is_free = flight.sent.len() < self.inflight as usize && !flight.is_leaving;
            if is_free && io.net.is_open(client_index) && io.net.now_ns < io.net.until_ns {
                self.send(io, client_index, io.net.now_ns);
            }
        }
    }

    /// Closes and reopens the connections for which this is due. Returns the time of the next call.
    fn churn(&mut self, io: &mut LoadIo<'_>) -> u64 {
        let Some(mut churn) = self.churn.take() else {
            return u64::MAX;
        };
        let now = io.net.now_ns;
        let (flights, count) = (&mut self.flights, io.net.clients.len() as u32);
        let (unanswered, absent) = (&mut self.unanswered, &mut churn.absent);
        churn.leaving.retain(|&(client_index, until)| {
            let flight = &mut flights[client_index as usize];
            if io.net.is_closed(client_index) {
                *unanswered += flight.reset(io.net);
                if !io.reopen(client_index) {
                    absent.push(client_index);
                }
                return false;
            }
            if io.net.is_open(client_index) && flight.sent.is_empty() {
                io.leave(client_index);
            }
            if now >= until {
                let words = "a connection was not closed in time";
                io.net.fault(&ErrorCase::new(ErrorCause::TimedOut, words));
                let lost = flight.sent.drain(..).filter(|at| io.net.is_measured(*at));
                *unanswered += lost.count() as u64;
                io.cut(client_index);
            }
            true
        });
        let mut next = u64::MAX;
        if let Some(pace) = &mut churn.pace {
            while pace.due(now) <= now {
                pace.next();
                if let Some(client_index) = churn.absent.pop() {
                    *unanswered += flights[client_index as usize].reset(io.net);
                    if !io.reopen(client_index) {
                        churn.absent.push(client_index);
                    }
                    continue;
                }
                let may = |client_index: u32| !flights[client_index as usize].is_leaving;
                if let Some(client_index) = io.net.find_open(churn.next, count, may) {
                    churn.next = (client_index + 1) % count;
                    flights[client_index as usize].is_leaving = true;
                    churn.leaving.push((client_index, now + LEAVE_NS));
                }
            }
            next = pace.due(now);
        }
        if !churn.leaving.is_empty() {
            next = next.min(now + MILLISECOND);
        }
        self.churn = Some(churn);
        next
    }
}

impl Load for EchoLoad {
    fn begin(&mut self, io: &mut LoadIo<'_>, start_ns: u64) {
        self.has_begun = true;
        if let Some(churn) = &mut self.churn {
            churn.pace = Some(Schedule::starting(churn.per_second, start_ns, self.phase));
        }
        if let Some(rate) = self.rate {
            let pace = Schedule::starting(rate, start_ns, self.phase);
            let pace = pace.ramping(
                self.rate_to,
                io.net.plan.warmup_ns,
                io.net.plan.duration_ns.unwrap_or(0),
            );
            let pace = pace.arriving(self.arrivals, &mut io.net.rng);
            self.open_loop = Some(OpenLoop::new(pace));
            return;
        }
        for client_index in 0..self.flights.len() as u32 {
            if io.net.is_open(client_index) {
                self.start(io, client_index);
            }
        }
    }

    fn opened(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        if self.has_begun && self.open_loop.is_none() {
            self.start(io, client_index);
        }
    }

    #[inline]
    fn message(
        &mut self,
        io: &mut LoadIo<'_>,
        client_index: u32,
        kind: MessageKind,
        data: &mut [u8],
    ) {
        let flight = &mut self.flights[client_index as usize];
        let number = io.net.clients[client_index as usize].number;
        let is_due =
            !flight.sent.is_empty() && self.payload.is(number, flight.answered, kind, data);
        if is_due {
            let since = flight.sent.pop_front().unwrap_or(io.net.now_ns);
            flight.expired = 0;
            flight.answered = flight.answered.wrapping_add(1);
            let counts_from = io.net.counts_from(since, self.open_loop.is_some());
            io.net.answered(since, counts_from, data.len());
        } else {
            self.other_message(io, client_index, kind, data);
        }
        let is_leaving = self.flights[client_index as usize].is_leaving;
        if self.open_loop.is_none() && !is_leaving && io.net.now_ns < io.net.until_ns {
            self.go_on(io, client_index);
        }
    }

    fn closed(&mut self, io: &mut LoadIo<'_>, client_index: u32, _: bool) {
        let flight = &mut self.flights[client_index as usize];
        self.unanswered += flight.give_up_overtaken(io.net);
        for since in flight.sent.drain(..) {
            if io.net.is_measured(since) {
                self.unanswered += 1;
            }
        }
        if let Some(churn) = &mut self.churn
            && self.has_begun
            && !flight.is_leaving
        {
            churn.absent.push(client_index);
        }
    }

    fn due(&mut self, io: &mut LoadIo<'_>) -> u64 {
        let churn_due = if io.net.now_ns < io.net.until_ns {
            self.churn(io)
        } else {
            u64::MAX
        };
        self.expire(io);
        self.send_due(io);
        self.send_thought(io);
        let thought_due = self
            .think_timers
            .as_ref()
            .map_or(u64::MAX, ThinkTimers::due);
        let next = churn_due.min(thought_due);
        let open_loop = self.open_loop.as_mut();
        open_loop.map_or(next, |open_loop| open_loop.due(io.net.now_ns).min(next))
    }

    fn drain(&mut self, io: &mut LoadIo<'_>) {
        if !self.is_behind(io.net) {
            return;
        }
        // After the measured time, no connections are closed for churn: clients about to leave stay,
        // and clients that have left are reopened.
        if let Some(churn) = &mut self.churn {
            let flights = &mut self.flights;
            let unanswered = &mut self.unanswered;
            churn.leaving.retain(|&(client_index, _)| {
                if io.net.is_closed(client_index) {
                    *unanswered += flights[client_index as usize].reset(io.net);
                    io.reopen(client_index);
                } else if io.net.is_open(client_index) {
                    flights[client_index as usize].is_leaving = false;
                } else {
                    // The closing handshake is still in progress.
                    return true;
                }
                false
            });
        }
        self.send_due(io);
    }

    fn is_settled(&self, net: &EngineState) -> bool {
        let has_left = self
            .churn
            .as_ref()
            .is_some_and(|churn| !churn.leaving.is_empty());
        let may_leave_yet = self.is_behind(net) && (net.has_opening() || has_left);
        let since_ns = net.now_ns.saturating_sub(net.until_ns);
        let is_answered = |flight: &InflightQueue| {
            let is_late = flight.overtaken.iter().any(|one| !one.is_expired);
            flight.sent.is_empty() && (!is_late || since_ns > OVERTAKEN_NS)
        };
        !may_leave_yet && since_ns > TWICE_NS && self.flights.iter().all(is_answered)
    }

    fn finish(&mut self, net: &mut EngineState) {
        for (client_index, flight) in (0..).zip(&mut self.flights) {
            net.tally.dead += u64::from(flight.expired > 0 && net.is_open(client_index));
            self.unanswered += flight.give_up_overtaken(net);
            for since in &flight.sent {
                // The run waited for answers after its end, so those still missing count as unanswered.
                if net.is_measured(*since) {
                    self.unanswered += 1;
                    let (cause, words) = if flight.greeted && flight.answered == 0 {
                        (
                            ErrorCause::WrongAnswer,
                            "the received message differs from the one sent: is this an echo endpoint?",
                        )
                    } else {
                        (ErrorCause::TimedOut, NO_ANSWER)
                    };
                    net.tally.fault(&ErrorCase::new(cause, words));
                }
            }
        }
        if let Some(open_loop) = &mut self.open_loop {
            self.unanswered += open_loop.give_up(net, "messages");
        }
        net.tally.unanswered = self.unanswered;
    }
}
