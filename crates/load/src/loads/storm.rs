//! Many connections at once, and one message and its answer on each.

use veche_proto::websocket::MessageKind;

use super::load::Load;
use super::load::TWICE_NS;
pub use super::plans::StormPlan;
use crate::engine::{Io, Net};
use crate::payload::{Payload, Seen};
use crate::plan::Share;
use crate::tally::{Cause, Fault};

/// One thread's part of a storm.
pub(crate) struct Storm {
    payload: Payload,
    clients: Vec<Progress>,
    /// Clients neither answered nor failed.
    open_questions: u32,
}

#[derive(Clone, Copy)]
enum Progress {
    Before,
    /// Send time, and whether something other than the answer arrived: a greeting.
    Asked(u64, bool),
    Over,
}

impl Storm {
    pub(crate) fn new(plan: &StormPlan, share: &Share) -> Self {
        let clients = share.clients();
        Self {
            payload: Payload::new(&plan.payload),
            clients: vec![Progress::Before; clients],
            open_questions: clients as u32,
        }
    }

    fn over(&mut self, who: u32) {
        if !matches!(self.clients[who as usize], Progress::Over) {
            self.clients[who as usize] = Progress::Over;
            self.open_questions -= 1;
        }
    }
}

impl Load for Storm {
    fn opens_first(&self) -> bool {
        false
    }

    fn begin(&mut self, _: &mut Io<'_>, _: u64) {}

    fn opened(&mut self, io: &mut Io<'_>, who: u32) {
        let now = io.net.now_ns;
        let number = io.net.clients[who as usize].number;
        let kind = self.payload.kind;
        let data = self.payload.stamp(number, 0);
        io.net.sent(now, data.len());
        io.send(who, kind, data);
        self.clients[who as usize] = Progress::Asked(now, false);
    }

    fn message(&mut self, io: &mut Io<'_>, who: u32, kind: MessageKind, data: &mut [u8]) {
        let number = io.net.clients[who as usize].number;
        let Progress::Asked(since, greeted) = self.clients[who as usize] else {
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
            self.over(who);
        } else if self.payload.recognize(number, 0, kind, data) == Some(Seen::Foreign) && greeted {
            io.net.tally.unasked += 1;
        } else if greeted || self.payload.is_of_other_kind(number, 0, kind, data) {
            let words = self.payload.explain(kind, data);
            io.net.fault(&Fault::new(Cause::WrongAnswer, words));
            self.over(who);
        } else {
            self.clients[who as usize] = Progress::Asked(since, true);
        }
    }

    fn closed(&mut self, _: &mut Io<'_>, who: u32, _: bool) {
        self.over(who);
    }

    fn is_done(&self, net: &Net) -> bool {
        // Answers not received by then are given up.
        let given_up = net
            .tally
            .settled_ns
            .is_some_and(|settled| net.now_ns > settled.saturating_add(net.plan.timeout_ns));
        self.open_questions == 0 || given_up
    }

    fn is_settled(&self, net: &Net) -> bool {
        // To detect duplicates.
        net.now_ns.saturating_sub(net.until_ns) > TWICE_NS
    }

    fn finish(&mut self, net: &mut Net) {
        for progress in &self.clients {
            match progress {
                Progress::Asked(_, false) => {
                    net.tally.unanswered += 1;
                    net.fault(&Fault::new(Cause::TimedOut, "no answer in time"));
                }
                Progress::Asked(_, true) => {
                    net.tally.unanswered += 1;
                    net.fault(&Fault::new(
                        Cause::WrongAnswer,
                        "the received message differs from the one sent: is this an echo endpoint?",
                    ));
                }
                Progress::Before | Progress::Over => {}
            }
        }
    }
}
