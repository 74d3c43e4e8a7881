//! The load of HTTP requests: sends requests and handles their responses.

use std::collections::VecDeque;
use std::sync::Arc;

use super::expiry::ExpiryTimer;
use super::load::Load;
use super::open_loop::OpenLoop;
pub use super::plans::{HttpPlan, HttpRequestPlan};
use super::think::ThinkTimers;
use crate::client::{LoadResponse, ResponseExpectation};
use crate::clock::MILLISECOND;
use crate::engine::{EngineState, LoadIo};
use crate::plan::ThreadPlan;
use crate::schedule::{Arrivals, Schedule};
use crate::tally::{ErrorCase, ErrorCause};

struct RequestBytes {
    all: Vec<u8>,
    /// Length of the body of each request in bytes.
    body: usize,
}

/// One thread's part of the run.
pub(crate) struct HttpLoad {
    /// Maximum number of requests in flight on each connection, at least one.
    inflight: usize,
    /// Whether requests are HEAD, so that responses have no body.
    is_head: bool,
    expect: Option<Arc<[u8]>>,
    rate: Option<f64>,
    rate_to: Option<f64>,
    arrivals: Arrivals,
    think_timers: Option<ThinkTimers>,
    phase: f64,
    open_loop: Option<OpenLoop>,
    has_begun: bool,
    /// The encoded requests: one per client, or a single one if all are equal. If the plan has a
    /// list of requests, its entries in order.
    requests: Vec<RequestBytes>,
    /// If the plan has a list of requests, the number of the next request. After the last request of
    /// the list, the list begins again, but the number keeps increasing.
    turn: Option<usize>,
    flights: Vec<VecDeque<u64>>,
    next: u32,
    /// In an open loop: the idle connections, the longest idle first.
    idle: VecDeque<u32>,
    /// Clients to be reopened, with the time at which each is due.
    retries: VecDeque<(u64, u32)>,
    /// Whether the server has kept the connection open after every response so far; `None` before
    /// the first response. An open loop sends a second request on a busy connection only if this is
    /// `Some(true)`: the request would be lost if the server closed the connection.
    keeps_connections: Option<bool>,
    expiry: ExpiryTimer,
    unanswered: u64,
}

/// Delay after a failed connect.
const RETRY_NS: u64 = 100 * MILLISECOND;

impl HttpLoad {
    pub(crate) fn new(plan: &HttpPlan, share: &ThreadPlan) -> Self {
        let endpoint = &share.plan.endpoints[0];
        let range = share.ranges[0].clone();
        let is_plain = endpoint.target.path.is_plain()
            && plan.body.is_plain()
            && endpoint.headers.iter().all(|(_, value)| value.is_plain());
        let numbers = if is_plain { 0..1 } else { range.clone() };
        let request = |number: u32, method: &str, path: &str, body: &[u8]| {
            let number = u64::from(number);
            let version = if plan.is_http10 { "1.0" } else { "1.1" };
            let mut head = format!("{method} {path} HTTP/{version}\r\n");
            let has = |name: &str| {
                endpoint
                    .headers
                    .iter()
                    .any(|(known, _)| known.eq_ignore_ascii_case(name))
            };
            if !has("host") {
                head += &format!("Host: {}\r\n", endpoint.target.authority);
            }
            if plan.is_http10 && !has("connection") {
                head += "Connection: keep-alive\r\n";
            }
            for (name, value) in &endpoint.headers {
                head += &format!("{name}: {}\r\n", value.fill(number));
            }
            if !body.is_empty() {
                head += &format!("Content-Length: {}\r\n", body.len());
            }
            head += "\r\n";
            let mut all = head.into_bytes();
            all.extend_from_slice(body);
            RequestBytes {
                all,
                body: body.len(),
            }
        };
        let requests: Vec<RequestBytes> = match plan.list.is_empty() {
            true => numbers
                .map(|number| {
                    let path = endpoint.target.path.fill(u64::from(number));
                    let body = plan.body.fill(u64::from(number));
                    request(number, &plan.method, &path, &body)
                })
                .collect(),
            false => {
                let list = plan.list.iter();
                list.map(|one| request(range.start, &one.method, &one.path, &one.body))
                    .collect()
            }
        };
        Self {
            inflight: plan.inflight.max(1) as usize,
            is_head: plan.method == "HEAD",
            expect: plan.expect.as_deref().map(Arc::from),
            // Threads without a client send nothing.
            rate: plan
                .rate
                .filter(|_| !range.is_empty())
                .map(|rate| share.rate_of_clients(rate)),
            rate_to: plan.rate_to.map(|rate| share.rate_of_clients(rate)),
            arrivals: plan.arrivals,
            think_timers: plan.think.map(|think| ThinkTimers::new(think, share)),
            phase: share.phase(),
            open_loop: None,
            has_begun: false,
            turn: (!plan.list.is_empty())
                .then(|| (share.phase() * plan.list.len() as f64) as usize),
            requests,
            flights: vec![VecDeque::new(); range.len()],
            next: 0,
            idle: VecDeque::new(),
            retries: VecDeque::new(),
            keeps_connections: None,
            expiry: ExpiryTimer::default(),
            unanswered: 0,
        }
    }

    #[inline]
    fn send(&mut self, io: &mut LoadIo<'_>, client_index: u32, at_ns: u64) {
        let index = match &mut self.turn {
            Some(turn) => {
                *turn += 1;
                (*turn - 1) % self.requests.len()
            }
            None if self.requests.len() == 1 => 0,
            None => client_index as usize,
        };
        let RequestBytes { all, body } = &self.requests[index];
        io.net.sent(at_ns, *body);
        io.send_bytes(client_index, all);
        self.flights[client_index as usize].push_back(at_ns);
    }

    fn fill(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        for _ in self.flights[client_index as usize].len()..self.inflight {
            self.send(io, client_index, io.net.now_ns);
        }
    }

    /// Starts a closed loop on a connection that has just opened, or at the start of the run.
    fn start(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        match &mut self.think_timers {
            None => self.fill(io, client_index),
            Some(think_timers) => {
                think_timers.start(client_index, self.inflight as u32, io.net.now_ns)
            }
        }
    }

    /// Sends a request for each client whose think time has ended.
    fn send_thought(&mut self, io: &mut LoadIo<'_>) {
        while let Some(think_timers) = &mut self.think_timers
            && let Some(client_index) = think_timers.next(io.net.now_ns)
        {
            let is_free = self.flights[client_index as usize].len() < self.inflight;
            if is_free && io.net.is_open(client_index) && io.net.now_ns < io.net.until_ns {
                self.send(io, client_index, io.net.now_ns);
            }
        }
    }

    /// Drops the requests in flight on a connection that has ended.
    fn forget(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        for since in self.flights[client_index as usize].drain(..) {
            self.unanswered += u64::from(io.net.is_measured(since));
        }
    }

    /// Reopens a connection that the server has closed, as `ab` and `wrk` do.
    fn reopen(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        if io.net.now_ns < io.net.until_ns || self.is_behind(io.net) {
            io.reopen(client_index);
        }
    }

    /// Closes and reopens connections on which a request has timed out. Otherwise a late response would
    /// be mistaken for the response to the next request.
    fn expire(&mut self, io: &mut LoadIo<'_>) {
        let Some(limit_ns) = self.expiry.limit_ns(io.net) else {
            return;
        };
        for client_index in 0..self.flights.len() as u32 {
            let oldest = self.flights[client_index as usize].front();
            if oldest.is_none_or(|since| *since >= limit_ns) || !io.net.is_open(client_index) {
                continue;
            }
            io.net.tally.dead += 1;
            let count = self.flights[client_index as usize].len() as u64;
            let fault = ErrorCase::new(ErrorCause::TimedOut, "no response in time");
            io.net.tally.faults(&fault, count);
            self.forget(io, client_index);
            io.cut(client_index);
            self.reopen(io, client_index);
        }
    }

    fn retry(&mut self, io: &mut LoadIo<'_>) {
        let now = io.net.now_ns;
        while let Some((_, client_index)) = self.retries.pop_front_if(|retry| retry.0 <= now) {
            self.reopen(io, client_index);
        }
    }

    /// In an open loop: sends due requests while a connection is free.
    fn send_due(&mut self, io: &mut LoadIo<'_>) {
        let Some(mut open_loop) = self.open_loop.take() else {
            return;
        };
        let count = self.flights.len() as u32;
        while let Some((client_index, due)) = open_loop.next(io.net, |net| self.find_free(net)) {
            self.next = (client_index + 1) % count;
            self.send(io, client_index, due);
        }
        self.open_loop = Some(open_loop);
    }

    /// Returns a connection that can accept a request: an idle one, or one with room for another request in flight.
    fn find_free(&mut self, net: &EngineState) -> Option<u32> {
        while let Some(client_index) = self.idle.pop_front() {
            if net.is_open(client_index) && self.flights[client_index as usize].is_empty() {
                return Some(client_index);
            }
        }
        if self.inflight == 1 || self.keeps_connections != Some(true) {
            return None;
        }
        let has_room =
            |client_index: u32| self.flights[client_index as usize].len() < self.inflight;
        net.find_open(self.next, self.flights.len() as u32, has_room)
    }

    fn is_behind(&self, net: &EngineState) -> bool {
        let open_loop = self.open_loop.as_ref();
        open_loop.is_some_and(|open_loop| open_loop.is_behind(net))
    }
}

impl Load for HttpLoad {
    fn begin(&mut self, io: &mut LoadIo<'_>, start_ns: u64) {
        self.has_begun = true;
        if self.expect.is_some() {
            let http = io.net.tally.http.get_or_insert_default();
            http.unexpected_bodies = Some(0);
        }
        // Reopens connections that the server has closed before the first request.
        for client_index in 0..self.flights.len() as u32 {
            if io.net.is_closed(client_index) && io.net.clients[client_index as usize].was_open {
                self.reopen(io, client_index);
            }
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
            self.idle = (0..self.flights.len() as u32)
                .filter(|client_index| io.net.is_open(*client_index))
                .collect();
            return;
        }
        for client_index in 0..self.flights.len() as u32 {
            if io.net.is_open(client_index) {
                self.start(io, client_index);
            }
        }
    }

    fn opened(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        if !self.has_begun {
            return;
        }
        if self.rate.is_some() {
            self.idle.push_back(client_index);
        } else {
            self.start(io, client_index);
        }
    }

    fn response(&mut self, io: &mut LoadIo<'_>, client_index: u32, response: LoadResponse) {
        let Some(since) = self.flights[client_index as usize].pop_front() else {
            io.net.tally.unasked += 1;
            return;
        };
        let counts_from = io.net.counts_from(since, self.open_loop.is_some());
        let least_bad = if self.turn.is_some() { 500 } else { 400 };
        let is_bad = response.status >= least_bad || !response.is_expected;
        if io.net.is_measured(counts_from) {
            let tally = &mut io.net.tally;
            tally.response(response.status, response.body_bytes);
            if !response.is_expected
                && let Some(http) = &mut tally.http
            {
                *http.unexpected_bodies.get_or_insert_default() += 1;
            }
            if is_bad {
                let words = if response.is_expected {
                    format!("status {}", response.status)
                } else {
                    format!(
                        "status {}, body of {} B: not the body that was expected",
                        response.status, response.body_bytes
                    )
                };
                io.net
                    .fault(&ErrorCase::new(ErrorCause::BadResponse, words));
            }
        }
        let bytes = usize::try_from(response.body_bytes).unwrap_or(usize::MAX);
        if is_bad {
            io.net.failed(counts_from, bytes);
        } else {
            io.net.answered(since, counts_from, bytes);
        }
        let all_kept = self.keeps_connections.unwrap_or(true);
        self.keeps_connections = Some(all_kept && !response.is_last);
        if response.is_last {
            self.forget(io, client_index);
            self.reopen(io, client_index);
        } else if self.rate.is_some() {
            if self.flights[client_index as usize].is_empty() {
                self.idle.push_back(client_index);
            }
        } else if io.net.now_ns < io.net.until_ns {
            match &mut self.think_timers {
                None => self.send(io, client_index, io.net.now_ns),
                Some(think_timers) => {
                    let free = self.inflight - self.flights[client_index as usize].len();
                    think_timers.pause(client_index, free as u32, io.net.now_ns);
                }
            }
        }
    }

    fn closed(&mut self, io: &mut LoadIo<'_>, client_index: u32, was_open: bool) {
        self.forget(io, client_index);
        if was_open && self.has_begun {
            self.reopen(io, client_index);
        } else if self.has_begun {
            // The server may be restarting, so the next attempt is delayed.
            self.retries
                .push_back((io.net.now_ns + RETRY_NS, client_index));
        }
    }

    fn due(&mut self, io: &mut LoadIo<'_>) -> u64 {
        self.retry(io);
        self.expire(io);
        self.send_due(io);
        self.send_thought(io);
        let retry = self.retries.front().map_or(u64::MAX, |retry| retry.0);
        let thought_due = self
            .think_timers
            .as_ref()
            .map_or(u64::MAX, ThinkTimers::due);
        let next = retry.min(thought_due);
        let open_loop = self.open_loop.as_mut();
        open_loop.map_or(next, |open_loop| open_loop.due(io.net.now_ns).min(next))
    }

    fn drain(&mut self, io: &mut LoadIo<'_>) {
        if self.is_behind(io.net) {
            self.retry(io);
            self.send_due(io);
        }
    }

    fn is_settled(&self, net: &EngineState) -> bool {
        let has_hope = net.has_opening() || !self.retries.is_empty();
        let may_leave_yet = self.is_behind(net) && has_hope;
        !may_leave_yet && self.flights.iter().all(VecDeque::is_empty)
    }

    fn finish(&mut self, net: &mut EngineState) {
        for since in self.flights.iter().flatten() {
            if net.is_measured(*since) {
                self.unanswered += 1;
                net.tally
                    .fault(&ErrorCase::new(ErrorCause::TimedOut, "no response in time"));
            }
        }
        if let Some(open_loop) = &mut self.open_loop {
            self.unanswered += open_loop.give_up(net, "requests");
        }
        net.tally.unanswered = self.unanswered;
    }

    fn expects(&self) -> ResponseExpectation {
        ResponseExpectation {
            is_head: self.is_head,
            body: self.expect.clone(),
            may_say_error: false,
        }
    }
}
