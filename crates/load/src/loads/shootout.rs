//! The protocol of the public "websocket-shootout" benchmark: JSON messages of type `echo` or `broadcast`, with growing
//! numbers of clients until round trips take too long.
//!
//! A round trip of `broadcast` ends with the server's `broadcastResult` to the sender.

use std::collections::VecDeque;

use serde::Deserialize;
use veche_proto::websocket::MessageKind;

use super::load::Load;
pub use super::plans::ShootoutPlan;
use crate::client::LoadClient;
use crate::engine::{EngineState, LoadIo};
use crate::latency::Times;
use crate::plan::ThreadPlan;
use crate::report::model::Step;
use crate::tally::{ErrorCase, ErrorCause};

/// One thread's part of a shootout run.
pub(crate) struct ShootoutLoad {
    plan: ShootoutPlan,
    /// Number of clients in the current step.
    clients: u32,
    is_over: bool,
    times: Times,
    errors: u64,
    /// The numbers and send times of messages in flight, by client.
    flights: Vec<VecDeque<(u32, u64)>>,
    /// Number of messages in all steps so far.
    number: u32,
    in_flight: u32,
    sent: u32,
    next: u32,
    /// Whether the clients of this step are all open and samples are being taken.
    is_sampling: bool,
    /// The message type: `echo` or `broadcast`.
    kind: &'static str,
    /// The time in nanoseconds when the last answer arrived or sampling began.
    last_ns: u64,
}

impl ShootoutLoad {
    pub(crate) fn new(plan: &ShootoutPlan, share: &ThreadPlan) -> Self {
        let clients = share.ranges[0].len();
        let kind = if plan.broadcast { "broadcast" } else { "echo" };
        Self {
            clients: plan.step.min(clients as u32),
            is_over: clients == 0,
            times: Times::default(),
            errors: 0,
            flights: vec![VecDeque::new(); clients],
            in_flight: 0,
            sent: 0,
            next: 0,
            is_sampling: false,
            number: 0,
            kind,
            last_ns: 0,
            plan: plan.clone(),
        }
    }

    fn send(&mut self, io: &mut LoadIo<'_>) {
        while self.in_flight < self.plan.concurrent && self.sent < self.plan.samples {
            let Some(client_index) = io.net.find_open(self.next, self.clients, |_| true) else {
                self.end_step(io);
                self.is_over = true;
                return;
            };
            self.next = (client_index + 1) % self.clients;
            self.sent += 1;
            self.in_flight += 1;
            let now = io.net.now_ns;
            let (kind, number) = (self.kind, self.number);
            self.number = self.number.wrapping_add(1);
            self.flights[client_index as usize].push_back((number, now));
            // Same as the original benchmark's message, except that a number replaces the send
            // time. The send time is stored in `flights`.
            let message =
                format!("{{\"type\":\"{kind}\",\"payload\":{{\"sendTime\":\"{number}\"}}}}");
            io.net.sent(now, message.len());
            io.send(client_index, MessageKind::Text, message.as_bytes());
        }
    }

    fn end_step(&mut self, io: &mut LoadIo<'_>) {
        self.is_sampling = false;
        let Some(summary) = self.times.summary() else {
            self.is_over = true;
            return;
        };
        io.net.tally.steps.push(Step {
            clients: u64::from(self.clients),
            samples: summary.count,
            p50_us: summary.p50,
            p95_us: summary.p95,
            max_us: summary.max,
            errors: self.errors,
        });
        let is_slow = self.times.percentile_ns(95.0) > self.plan.limit_ns;
        let all = self.flights.len() as u32;
        if is_slow || self.clients == all {
            self.is_over = true;
            return;
        }
        self.clients = (self.clients + self.plan.step).min(all);
        self.times = Times::default();
        self.errors = 0;
        self.sent = 0;
    }
}

impl Load for ShootoutLoad {
    fn opens_first(&self) -> bool {
        false
    }

    fn opens_until(&self, _: &EngineState) -> u32 {
        self.clients
    }

    fn begin(&mut self, _: &mut LoadIo<'_>, _: u64) {}

    fn opened(&mut self, _: &mut LoadIo<'_>, _: u32) {}

    fn message(&mut self, io: &mut LoadIo<'_>, client_index: u32, _: MessageKind, data: &mut [u8]) {
        #[derive(Deserialize)]
        struct Answer<'a> {
            r#type: &'a str,
            #[serde(default)]
            payload: serde_json::Value,
        }
        let due = if self.plan.broadcast {
            "broadcastResult"
        } else {
            "echo"
        };
        match serde_json::from_slice::<Answer<'_>>(data) {
            Ok(answer) if answer.r#type == due => {
                let flight = &mut self.flights[client_index as usize];
                let stamp = answer.payload["sendTime"].as_str();
                // If the server does not return the message's number, answers are assumed to be in order.
                let at = match stamp.and_then(|stamp| stamp.parse::<u32>().ok()) {
                    Some(number) => flight.iter().position(|one| one.0 == number),
                    None => Some(0),
                };
                let Some((_, since)) = at.and_then(|at| flight.remove(at)) else {
                    io.net.tally.duplicated += 1;
                    return;
                };
                self.in_flight -= 1;
                self.last_ns = io.net.now_ns;
                self.times.record(io.net.now_ns - since);
                io.net.answered(since, io.net.now_ns, data.len());
                self.send(io);
                if self.in_flight == 0 && self.is_sampling {
                    self.end_step(io);
                }
            }
            // Another client's broadcast.
            Ok(answer) if self.plan.broadcast && answer.r#type == "broadcast" => {}
            _ => {
                self.errors += 1;
                let words = format!(
                    "a received message is not part of the shootout's protocol: {}",
                    crate::payload::excerpt(data)
                );
                io.net
                    .fault(&ErrorCase::new(ErrorCause::WrongAnswer, words));
            }
        }
    }

    fn closed(&mut self, _: &mut LoadIo<'_>, client_index: u32, _: bool) {
        self.errors += 1;
        let lost = self.flights[client_index as usize].drain(..).count() as u32;
        self.in_flight -= lost;
    }

    fn due(&mut self, io: &mut LoadIo<'_>) -> u64 {
        if self.is_over {
            return u64::MAX;
        }
        // This check runs only before sampling, because with many clients it takes longer than a
        // round trip.
        let is_settled = |client: &LoadClient| {
            client.was_open || client.began_ns > 0 && !client.state.is_opening()
        };
        if !self.is_sampling {
            let mut clients = io.net.clients[..self.clients as usize].iter();
            if clients.all(is_settled) {
                self.is_sampling = true;
                self.last_ns = io.net.now_ns;
                self.send(io);
            }
        } else if io.net.now_ns > self.last_ns.saturating_add(io.net.plan.timeout_ns) {
            for _ in 0..self.in_flight {
                io.net
                    .fault(&ErrorCase::new(ErrorCause::TimedOut, "no answer in time"));
            }
            self.errors += u64::from(self.in_flight);
            self.end_step(io);
            self.is_over = true;
        } else if self.in_flight == 0 {
            self.end_step(io);
        }
        u64::MAX
    }

    fn is_done(&self, _: &EngineState) -> bool {
        self.is_over
    }

    fn is_settled(&self, _: &EngineState) -> bool {
        true
    }

    fn finish(&mut self, net: &mut EngineState) {
        net.tally.unanswered = u64::from(self.in_flight);
    }
}
