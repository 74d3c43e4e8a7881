//! Many connections at once, with one message and its answer on each.

use veche_proto::websocket::MessageKind;

use super::load::Load;
use super::load::TWICE_NS;
pub use super::plans::StormPlan;
use crate::engine::{EngineState, LoadIo};
use crate::payload::{Recognized, TestPayload};
use crate::plan::ThreadPlan;
use crate::tally::{ErrorCase, ErrorCause};

/// One thread's part of a storm.
pub(crate) struct StormLoad {
    payload: TestPayload,
    clients: Vec<ClientProgress>,
    /// The number of clients that have neither been answered nor failed.
    waiting_clients: u32,
}

#[derive(Clone, Copy)]
enum ClientProgress {
    Before,
    /// The client waits for the answer. Contains the send time, and whether another message, a
    /// greeting, has arrived.
    Asked(u64, bool),
    Over,
}

impl StormLoad {
    pub(crate) fn new(plan: &StormPlan, share: &ThreadPlan) -> Self {
        let clients = share.clients();
        Self {
            payload: TestPayload::new(&plan.payload),
            clients: vec![ClientProgress::Before; clients],
            waiting_clients: clients as u32,
        }
    }

    fn over(&mut self, client_index: u32) {
        if !matches!(self.clients[client_index as usize], ClientProgress::Over) {
            self.clients[client_index as usize] = ClientProgress::Over;
            self.waiting_clients -= 1;
        }
    }
}

impl Load for StormLoad {
    fn opens_first(&self) -> bool {
        false
    }

    fn begin(&mut self, _: &mut LoadIo<'_>, _: u64) {}

    fn opened(&mut self, io: &mut LoadIo<'_>, client_index: u32) {
        let now = io.net.now_ns;
        let number = io.net.clients[client_index as usize].number;
        let kind = self.payload.kind;
        let data = self.payload.stamp(number, 0);
        io.net.sent(now, data.len());
        io.send(client_index, kind, data);
        self.clients[client_index as usize] = ClientProgress::Asked(now, false);
    }

    fn message(
        &mut self,
        io: &mut LoadIo<'_>,
        client_index: u32,
        kind: MessageKind,
        data: &mut [u8],
    ) {
        let number = io.net.clients[client_index as usize].number;
        let ClientProgress::Asked(since, greeted) = self.clients[client_index as usize] else {
            if self.payload.is(number, 0, kind, data) {
                io.net.tally.duplicated += 1;
            } else {
                io.net.tally.unasked += 1;
            }
            return;
        };
        if self.payload.is(number, 0, kind, data) {
            io.net.answered(since, io.net.now_ns, data.len());
            io.net.tally.unasked += u64::from(greeted);
            self.over(client_index);
        } else if self.payload.recognize(number, 0, kind, data) == Some(Recognized::Foreign)
            && greeted
        {
            io.net.tally.unasked += 1;
        } else if greeted || self.payload.is_of_other_kind(number, 0, kind, data) {
            let words = self.payload.explain(kind, data);
            io.net
                .fault(&ErrorCase::new(ErrorCause::WrongAnswer, words));
            self.over(client_index);
        } else {
            self.clients[client_index as usize] = ClientProgress::Asked(since, true);
        }
    }

    fn closed(&mut self, _: &mut LoadIo<'_>, client_index: u32, _: bool) {
        self.over(client_index);
    }

    fn is_done(&self, net: &EngineState) -> bool {
        // Ends the run when the time limit has passed after the last connection opened or failed.
        // Answers that are missing then count as unanswered.
        let given_up = net
            .tally
            .settled_ns
            .is_some_and(|settled| net.now_ns > settled.saturating_add(net.plan.timeout_ns));
        self.waiting_clients == 0 || given_up
    }

    fn is_settled(&self, net: &EngineState) -> bool {
        // The run waits a little longer, to detect duplicate answers.
        net.now_ns.saturating_sub(net.until_ns) > TWICE_NS
    }

    fn finish(&mut self, net: &mut EngineState) {
        for progress in &self.clients {
            match progress {
                ClientProgress::Asked(_, false) => {
                    net.tally.unanswered += 1;
                    net.fault(&ErrorCase::new(ErrorCause::TimedOut, "no answer in time"));
                }
                ClientProgress::Asked(_, true) => {
                    net.tally.unanswered += 1;
                    net.fault(&ErrorCase::new(
                        ErrorCause::WrongAnswer,
                        "the received message differs from the one sent: is this an echo endpoint?",
                    ));
                }
                ClientProgress::Before | ClientProgress::Over => {}
            }
        }
    }
}
