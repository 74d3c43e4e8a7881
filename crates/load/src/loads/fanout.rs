//! Measures publications and their deliveries. A publication goes to all receivers (broadcast) or to one (push).
//! Publishers use WebSocket, HTTP, or lines over TCP.
//!
//! Receivers are the clients of the plan's endpoint 0, publishers those of endpoint 1.

mod positions;
mod recovery;
mod replies;
mod retries;

use std::collections::VecDeque;

use veche_proto::websocket::MessageKind;

use super::load::Load;
use super::open_loop::OpenLoop;
pub use super::plans::FanoutPlan;
use crate::client::{LoadResponse, ResponseExpectation, says_error};
use crate::clock::SECOND;
use crate::engine::{EngineState, LoadIo};
use crate::ledger::{ClientLedger, DeliveryLedger, MessageTag, SentMessage, TagSearch};
use crate::payload::excerpt;
use crate::plan::ThreadPlan;
use crate::schedule::Schedule;
use crate::tally::{ErrorCase, ErrorCause};
use crate::target::ClientTemplate;
use positions::MessagePosition;
use recovery::{LoggedPublication, RecoveryState, doubt};
use replies::{PING, ProtocolLine, ServerProtocol};
use retries::RetryQueue;

/// Placeholder of the numbered message in a body.
const DATA: &str = "{data}";
/// If no delivery arrives for this time, no more deliveries are expected.
const QUIET_NS: u64 = 2 * SECOND;
/// Time to wait for duplicates after the last expected delivery.
const TWICE_NS: u64 = SECOND / 5;

/// Returns whether a JSON body has `"ack":true` or an `id`. The server answers each line with such a body exactly once,
/// in the order of the lines.
#[must_use]
pub fn asks_for_answers(body: &str) -> bool {
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    body["ack"] == true || body["id"].is_number() || body["id"].is_string()
}

/// One thread's part of the run.
pub(crate) struct FanoutLoad {
    plan: FanoutPlan,
    /// The part of a publication's body before the message; `after` is the part after the message.
    before: ClientTemplate,
    after: ClientTemplate,
    hello: Option<ClientTemplate>,
    /// Number of this thread's receivers. Receivers have lower client indices than publishers.
    receivers: u32,
    /// Number of receivers of all threads.
    receivers_in_all: u32,
    publishers: u32,
    wire: PublisherProtocol,
    rate: f64,
    rate_to: Option<f64>,
    phase: f64,
    pace: Option<PublishSchedule>,
    chaos: Option<Schedule>,
    recovery: Option<RecoveryState>,
    retries: RetryQueue,
    /// The protocol state of each client.
    protocol: Vec<ServerProtocol>,
    /// The unacknowledged publications of each publisher. `None` if the server acknowledges none, and with recovery,
    /// where `recovery` contains them.
    asked: Option<Vec<VecDeque<LoggedPublication>>>,
    has_begun: bool,
    ledger: DeliveryLedger,
    greeted: Vec<Greeting>,
    /// Number of publications so far, including those that could not be sent. Determines the next publisher and receiver.
    count: u64,
    last_ns: u64,
    /// Number of deliveries, including corrupted ones.
    arrived: u64,
    scratch: Vec<u8>,
    body: Vec<u8>,
    unanswered: u64,
    request_head: String,
}

/// Whether a receiver may still get a greeting from the server.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Greeting {
    #[default]
    Awaited,
    /// The receiver gets no greeting any more, only publications.
    Over,
}

/// When publications are sent.
enum PublishSchedule {
    /// Each publication is sent when it is due. It is an error if the publisher is not connected.
    InTime(Schedule),
    /// Each publication is sent when it is due. If no publisher can send it then, it waits until one can.
    Patiently(OpenLoop),
}

enum PublisherProtocol {
    Client,
    Http,
    Lines,
}

impl FanoutLoad {
    pub(crate) fn new(plan: &FanoutPlan, share: &ThreadPlan) -> Self {
        let [receivers, publishers] = [0, 1].map(|index| share.ranges[index].len() as u32);
        let endpoint = &share.plan.endpoints[1];
        let scheme = endpoint.target.scheme;
        let mut request_head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\n",
            endpoint.target.path.as_str(),
            endpoint.target.authority
        );
        for (name, value) in &endpoint.headers {
            request_head += &format!("{name}: {}\r\n", value.as_str());
        }
        let all = f64::from(endpoint.clients);
        let is_acknowledged = !scheme.is_websocket() && asks_for_answers(&plan.body);
        let (before, after) = plan.body.split_once(DATA).unwrap_or(("", ""));
        Self {
            before: ClientTemplate::new(before),
            after: ClientTemplate::new(after),
            hello: plan.hello.as_deref().map(ClientTemplate::new),
            receivers,
            receivers_in_all: share.plan.endpoints[0].clients,
            publishers,
            wire: if scheme.is_websocket() {
                PublisherProtocol::Client
            } else if scheme.is_http() {
                PublisherProtocol::Http
            } else {
                PublisherProtocol::Lines
            },
            // Threads without a publisher publish nothing.
            rate: plan.rate * f64::from(publishers) / all,
            rate_to: plan.rate_to.map(|rate| rate * f64::from(publishers) / all),
            phase: share.phase(),
            pace: None,
            chaos: None,
            recovery: plan
                .recover
                .then(|| RecoveryState::new(receivers, publishers)),
            retries: RetryQueue::new(receivers + publishers),
            protocol: vec![ServerProtocol::default(); (receivers + publishers) as usize],
            asked: (!plan.recover && (scheme.is_http() || is_acknowledged))
                .then(|| vec![VecDeque::new(); publishers as usize]),
            has_begun: false,
            ledger: DeliveryLedger {
                pages: share.ranges[0].clone().map(ClientLedger::new).collect(),
                returns: plan.recover.then(Default::default),
                ..DeliveryLedger::default()
            },
            greeted: vec![Greeting::default(); receivers as usize],
            count: 0,
            last_ns: 0,
            arrived: 0,
            scratch: Vec::new(),
            body: Vec::new(),
            unanswered: 0,
            request_head,
            plan: plan.clone(),
        }
    }

    /// Publishes through the next publisher in round-robin order; counts an error if that publisher can't send.
    fn publish_in_turn(&mut self, io: &mut LoadIo<'_>, at_ns: u64) {
        let client_index = self.receivers + self.turn();
        let fault = match (io.net.is_open(client_index), io.net.is_full(client_index)) {
            (true, false) => {
                self.publish(io, client_index, at_ns);
                return;
            }
            (true, true) => ErrorCase::new(
                ErrorCause::TimedOut,
                "a publication was not sent when scheduled: the server had not read the data sent before",
            ),
            (false, _) => ErrorCase::new(ErrorCause::Closed, "a publisher is not connected"),
        };
        self.count += 1;
        io.net.fault(&fault);
    }

    fn turn(&self) -> u32 {
        (self.bursts() % u64::from(self.publishers)) as u32
    }

    /// Returns the number of bursts so far, which determines the publisher and the receiver of the next burst.
    fn bursts(&self) -> u64 {
        self.count / u64::from(self.plan.burst)
    }

    /// Sends due publications while a publisher is available.
    fn publish_patiently(&mut self, io: &mut LoadIo<'_>, due: &mut OpenLoop) {
        loop {
            let from = self.receivers + self.turn();
            let publishers = self.receivers..self.receivers + self.publishers;
            let find = |net: &EngineState| {
                (from..publishers.end)
                    .chain(publishers.start..from)
                    .find(|client_index| net.is_open(*client_index) && !net.is_full(*client_index))
            };
            let Some((client_index, at_ns)) = due.next(io.net, find) else {
                return;
            };
            self.publish(io, client_index, at_ns);
        }
    }

    fn publish(&mut self, io: &mut LoadIo<'_>, client_index: u32, at_ns: u64) {
        let round = self.bursts() / u64::from(self.publishers);
        self.count += 1;
        let publisher = io.net.clients[client_index as usize].number;
        let receiver = self.plan.to_one.then(|| {
            let step = round * u64::from(io.net.plan.endpoints[1].clients) + u64::from(publisher);
            (step % u64::from(self.receivers_in_all)) as u32
        });
        let sent = self.ledger.log.entry((publisher, receiver)).or_default();
        let note = MessageTag {
            run: self.plan.run,
            publisher,
            number: sent.at_ns.len() as u32,
            at_ns,
        };
        // This is the actual send time, not the time at which the message was due. The ledger uses it to
        // determine which messages were sent while a receiver was absent.
        sent.at_ns.push(io.net.now_ns);
        if let Some(recovery) = &mut self.recovery {
            recovery.asked(client_index, ((publisher, receiver), note.number));
        } else if let Some(asked) = &mut self.asked {
            let index = (client_index - self.receivers) as usize;
            asked[index].push_back(((publisher, receiver), note.number));
        }
        self.scratch.clear();
        note.write(&mut self.scratch, self.plan.size);
        self.write_body(receiver);
        io.net.sent(at_ns, self.scratch.len());
        match self.wire {
            PublisherProtocol::Client => io.send(client_index, MessageKind::Text, &self.body),
            PublisherProtocol::Http => {
                self.scratch.clear();
                self.scratch.extend_from_slice(self.request_head.as_bytes());
                let length = format!("Content-Length: {}\r\n\r\n", self.body.len());
                self.scratch.extend_from_slice(length.as_bytes());
                self.scratch.extend_from_slice(&self.body);
                if self.recovery.is_none() {
                    self.unanswered += 1;
                }
                io.send_bytes(client_index, &self.scratch);
            }
            PublisherProtocol::Lines => {
                self.body.push(b'\n');
                io.send_bytes(client_index, &self.body);
            }
        }
    }

    fn write_body(&mut self, receiver: Option<u32>) {
        self.body.clear();
        let fill = |out: &mut Vec<u8>, part: &ClientTemplate| match receiver {
            Some(receiver) => out.extend_from_slice(part.fill(receiver.into()).as_bytes()),
            None => out.extend_from_slice(part.as_str().as_bytes()),
        };
        fill(&mut self.body, &self.before);
        self.body.extend_from_slice(&self.scratch);
        fill(&mut self.body, &self.after);
    }

    /// Disconnects a receiver, which reconnects later.
    fn inject_chaos(&mut self, io: &mut LoadIo<'_>) {
        if self.receivers == 0 {
            return;
        }
        let client_index = io.net.rng.u32(0..self.receivers);
        if io.net.is_open(client_index) {
            self.ledger.pages[client_index as usize].begin_absence();
            io.cut(client_index);
            self.retries.later(io, client_index);
        }
    }

    /// Returns whether an answer to a publisher is a success. Counts an error if it is not.
    fn classify(&self, io: &mut LoadIo<'_>, answer: &[u8]) -> bool {
        let is_error = says_error(answer);
        if is_error {
            let words = format!("a publication was refused: {}", excerpt(answer));
            io.net
                .fault(&ErrorCase::new(ErrorCause::BadResponse, words));
        }
        !is_error
    }

    /// Handles an answer to a publisher, which belongs to its oldest unacknowledged publication.
    fn answered(&mut self, client_index: u32, is_taken: bool) {
        if let Some(recovery) = &mut self.recovery {
            recovery.answered(client_index, is_taken, &mut self.ledger);
        } else if let Some(asked) = &mut self.asked {
            let entry = asked[(client_index - self.receivers) as usize].pop_front();
            if let Some(entry) = entry.filter(|_| !is_taken) {
                doubt(&mut self.ledger, entry);
            }
        }
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Handles one message to a receiver. A WebSocket frame may contain several such messages.
    fn delivered(&mut self, io: &mut LoadIo<'_>, client_index: u32, data: &[u8]) {
        let position = self
            .recovery
            .as_ref()
            .and_then(|_| MessagePosition::find(data));
        self.last_ns = io.net.now_ns;
        let is_first = std::mem::replace(&mut self.greeted[client_index as usize], Greeting::Over)
            == Greeting::Awaited;
        let page = &mut self.ledger.pages[client_index as usize];
        if let Some(recovery) = &mut self.recovery {
            if let Some(position) = &position
                && let Some(channel) = &position.subscribed
            {
                recovery.joined(io, client_index, channel, position, page);
                return;
            }
        } else if is_first && self.hello.is_some() {
            page.end_absence(io.net.now_ns);
        }
        let found = MessageTag::find(data);
        if let (Some(recovery), TagSearch::Note(_)) = (&mut self.recovery, &found) {
            recovery.advance(io, client_index, position.as_ref());
        }
        match found {
            TagSearch::Note(note) if note.run != self.plan.run => io.net.tally.unasked += 1,
            TagSearch::Note(note) => {
                page.receive(note);
                self.arrived += 1;
                io.net.answered(note.at_ns, note.at_ns, data.len());
            }
            TagSearch::Nothing => match replies::read(data, self.protocol[client_index as usize]) {
                ProtocolLine::Connected(protocol) => {
                    self.protocol[client_index as usize] = protocol
                }
                ProtocolLine::Done => {}
                ProtocolLine::Refused => {
                    let words = format!("the server refused a receiver: {}", excerpt(data));
                    io.net
                        .fault(&ErrorCase::new(ErrorCause::BadResponse, words));
                }
                ProtocolLine::Other => {
                    // The first message may be a greeting.
                    if !is_first && self.has_begun {
                        page.foreign();
                    }
                    io.net.tally.unasked += 1;
                }
            },
            TagSearch::Corrupt => {
                page.corrupted();
                self.arrived += 1;
                let words = format!("a delivery differs from its publication: {}", excerpt(data));
                io.net
                    .fault(&ErrorCase::new(ErrorCause::WrongAnswer, words));
            }
        }
    }

    /// Stops waiting for a publisher's outstanding acknowledgements. The ledger still expects these publications, although
    /// it is unknown whether the server accepted them.
    fn forget_asked(&mut self, client_index: u32) {
        if let Some(asked) = &mut self.asked {
            asked[(client_index - self.receivers) as usize].clear();
        }
    }

    /// Returns whether nothing more is expected, as far as this thread knows: nothing is left to
    /// send or to acknowledge, all receivers are back, and nothing that was certainly published is
    /// missing.
    fn has_all(&self, net: &EngineState, recovery: &RecoveryState) -> bool {
        let is_back = |client_index: &u32| {
            let client = &net.clients[*client_index as usize];
            !client.was_open || (net.is_open(*client_index) && recovery.is_back(*client_index))
        };
        let is_behind = match &self.pace {
            Some(PublishSchedule::Patiently(due)) => due.is_behind(net),
            _ => false,
        };
        !is_behind
            && recovery.unanswered() == 0
            && (0..self.receivers).all(|client_index| is_back(&client_index))
            && self.ledger.reconcile().lost == 0
    }
}

impl Load for FanoutLoad {
    fn begin(&mut self, io: &mut LoadIo<'_>, start_ns: u64) {
        self.has_begun = true;
        self.last_ns = start_ns;
        if self.publishers > 0 {
            let burst = f64::from(self.plan.burst);
            let pace = Schedule::starting(self.rate / burst, start_ns, self.phase);
            let rate_to = self.rate_to.map(|rate| rate / burst);
            let plan = &io.net.plan;
            let pace = pace.ramping(rate_to, plan.warmup_ns, plan.duration_ns.unwrap_or(0));
            let pace = pace.arriving(self.plan.arrivals, &mut io.net.rng);
            self.pace = Some(if self.plan.recover {
                PublishSchedule::Patiently(OpenLoop::new(pace))
            } else {
                PublishSchedule::InTime(pace)
            });
        }
        if let Some(chaos) = self.plan.chaos {
            let share = f64::from(self.receivers) / f64::from(self.receivers_in_all);
            if share > 0.0 {
                self.chaos = Some(Schedule::starting(chaos * share, start_ns, self.phase));
            }
        }
    }

    fn opened(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        self.retries.opened(client_index);
        self.protocol[client_index as usize] = ServerProtocol::default();
        if client_index < self.receivers {
            self.greeted[client_index as usize] = Greeting::Awaited;
            if let Some(hello) = &self.hello {
                let hello = hello.fill(io.net.clients[client_index as usize].number.into());
                io.send(client_index, MessageKind::Text, hello.as_bytes());
            } else if self.recovery.is_none() {
                self.ledger.pages[client_index as usize].end_absence(io.net.now_ns);
            }
        }
        if let Some(recovery) = &mut self.recovery {
            let page = self.ledger.pages.get_mut(client_index as usize);
            recovery.opened(client_index, page, io.net.now_ns);
        }
    }

    fn amend(&self, client_index: u32, path: &mut String) {
        if let Some(recovery) = &self.recovery {
            recovery.amend(client_index, path);
        }
    }

    fn forgives(&mut self, fault: &ErrorCase, was_open: bool) -> bool {
        // A failure before the start of the load is an error.
        let recovery = self.recovery.as_mut().filter(|_| self.has_begun);
        recovery.is_some_and(|recovery| recovery.forgives(fault, was_open))
    }

    fn message(&mut self, io: &mut LoadIo<'_>, client_index: u32, _: MessageKind, data: &mut [u8]) {
        if client_index >= self.receivers {
            // A publisher may get acknowledgements, and publications of other publishers.
            self.classify(io, data);
            return;
        }
        // A fast path for messages with one publication, which is what most servers send.
        if self.protocol[client_index as usize] == ServerProtocol::Any && replies::is_one(data) {
            return self.delivered(io, client_index, data);
        }
        for message in replies::split(data, self.protocol[client_index as usize]) {
            match self.protocol[client_index as usize] {
                ServerProtocol::Centrifugo { wants_pongs } if message == PING => {
                    if wants_pongs {
                        io.send(client_index, MessageKind::Text, PING);
                    }
                }
                _ => self.delivered(io, client_index, message),
            }
        }
    }

    fn response(&mut self, io: &mut LoadIo<'_>, client_index: u32, response: LoadResponse) {
        self.answered(client_index, response.status < 400 && !response.says_error);
        if response.status >= 400 {
            let words = format!("a publication was answered with status {}", response.status);
            io.net
                .fault(&ErrorCase::new(ErrorCause::BadResponse, words));
        }
        if response.says_error {
            let words = "a publication was answered with an error";
            io.net
                .fault(&ErrorCase::new(ErrorCause::BadResponse, words));
        }
        if response.is_last {
            // The acknowledgements of unacknowledged publications on this connection can no longer
            // arrive.
            if let Some(recovery) = &mut self.recovery {
                recovery.give_up_answers(client_index, &mut self.ledger);
            }
            self.forget_asked(client_index);
            if !io.reopen(client_index) {
                self.retries.later(io, client_index);
            }
        }
    }

    fn line(&mut self, io: &mut LoadIo<'_>, client_index: u32, line: &[u8]) {
        let is_taken = self.classify(io, line);
        self.answered(client_index, is_taken);
    }

    fn closed(&mut self, io: &mut LoadIo<'_>, client_index: u32, was_open: bool) {
        if !self.has_begun {
            return;
        }
        let is_receiver = client_index < self.receivers;
        if is_receiver && was_open {
            self.ledger.pages[client_index as usize].begin_absence();
        }
        if let Some(recovery) = &mut self.recovery {
            if !is_receiver {
                recovery.give_up_answers(client_index, &mut self.ledger);
            }
            self.retries.later(io, client_index);
        } else if is_receiver && self.plan.chaos.is_some() {
            self.retries.later(io, client_index);
        } else if !is_receiver {
            self.forget_asked(client_index);
        }
    }

    fn due(&mut self, io: &mut LoadIo<'_>) -> u64 {
        let now = io.net.now_ns;
        let until = io.net.until_ns;
        let mut next = u64::MAX;
        if let Some(mut pace) = self.pace.take() {
            next = match &mut pace {
                PublishSchedule::InTime(pace) => {
                    while let Some(due) = io.net.take_due(pace) {
                        let client_index = self.receivers + self.turn();
                        io.together(client_index, |io| {
                            for _ in 0..self.plan.burst {
                                self.publish_in_turn(io, due);
                            }
                        });
                    }
                    pace.due(now)
                }
                PublishSchedule::Patiently(due) => {
                    self.publish_patiently(io, due);
                    due.due(now)
                }
            };
            self.pace = Some(pace);
        }
        if now < until || self.recovery.is_some() {
            next = next.min(self.retries.retry(io));
        }
        if let Some(mut chaos) = self.chaos.take() {
            while chaos.due(now) <= now && now < until {
                chaos.next();
                self.inject_chaos(io);
            }
            next = next.min(chaos.due(now));
            self.chaos = Some(chaos);
        }
        next
    }

    fn drain(&mut self, io: &mut LoadIo<'_>) {
        if let Some(PublishSchedule::Patiently(mut due)) = self.pace.take() {
            self.publish_patiently(io, &mut due);
            self.pace = Some(PublishSchedule::Patiently(due));
        }
        if self.recovery.is_some() {
            self.retries.retry(io);
        }
    }

    fn is_settled(&self, net: &EngineState) -> bool {
        let since = self.last_ns.max(net.until_ns.min(net.now_ns));
        let quiet_ns = net.now_ns.saturating_sub(since);
        let is_all_here = self.publishers == net.plan.endpoints[1].clients
            && (!self.plan.to_one || self.receivers == self.receivers_in_all);
        if let Some(recovery) = &self.recovery {
            // Waits until no message is missing, but not beyond the time limit after the end of the load.
            return quiet_ns > QUIET_NS && self.has_all(net, recovery);
        }
        if !is_all_here {
            // This thread has only some of the publishers or receivers, so it can't know the number
            // of expected deliveries.
            return quiet_ns > QUIET_NS;
        }
        if self.plan.chaos.is_some() {
            // If messages are neither delivered nor excused by an absence, waits for them until the
            // time limit.
            return quiet_ns > QUIET_NS && self.ledger.reconcile().lost == 0;
        }
        let published: u64 = self.ledger.log.values().map(SentMessage::published).sum();
        let expected = if self.plan.to_one {
            published
        } else {
            published * u64::from(self.receivers)
        };
        // After the last expected delivery, waits a little longer for duplicates. If deliveries are
        // missing, waits for them until the time limit.
        self.arrived >= expected && quiet_ns > TWICE_NS
    }

    fn finish(&mut self, net: &mut EngineState) {
        if let Some(mut recovery) = self.recovery.take() {
            self.unanswered = recovery.unanswered();
            for client_index in self.receivers..self.receivers + self.publishers {
                recovery.give_up_answers(client_index, &mut self.ledger);
            }
            self.ledger.returns = Some(std::mem::take(&mut recovery.counts));
        }
        if let Some(PublishSchedule::Patiently(mut due)) = self.pace.take() {
            due.give_up(net, "publications");
        }
        let mut delivery_ledger = std::mem::take(&mut self.ledger);
        // Removes the ledgers of receivers that never connected.
        let mut receivers = net.clients.iter();
        delivery_ledger
            .pages
            .retain(|_| receivers.next().is_some_and(|client| client.was_open));
        net.tally.delivery_ledger = Some(delivery_ledger);
        net.tally.unanswered = self.unanswered;
    }

    fn expects(&self) -> ResponseExpectation {
        ResponseExpectation {
            may_say_error: true,
            ..ResponseExpectation::default()
        }
    }
}
