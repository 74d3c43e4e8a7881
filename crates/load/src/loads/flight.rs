//! Messages in flight on a connection: which of them an answer belongs to, and which are late or lost.

use std::collections::VecDeque;

use crate::engine::Net;
use crate::tally::{Cause, Fault};

/// Overtaken messages of a connection that are waited for; of more the oldest is lost.
const OVERTAKEN_MAX: usize = 4096;

/// Messages of one connection that wait for their answers.
///
/// With stamps an answer is that of its number, wherever it comes: those that it overtakes make room in a closed loop, and
/// are late if they still come and lost otherwise. Without, answers come in the order of the messages, or are wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    /// When the messages were sent, or were to be sent, the oldest first.
    pub(super) sent: VecDeque<u64>,
    /// The number of the oldest.
    pub(super) answered: u32,
    /// Messages without an answer though a later one has one; numbers rise.
    pub(super) overtaken: VecDeque<Overtaken>,
    /// Messages that expired since the last answer.
    pub(super) expired: u32,
    /// Something came before the first answer: a greeting, perhaps.
    pub(super) greeted: bool,
    /// It takes no further message: its connection is about to be closed.
    pub(super) is_leaving: bool,
}

/// A message that may be answered late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overtaken {
    pub(super) number: u32,
    pub(super) sent_ns: u64,
    /// Its time was over, so it is counted as unanswered already.
    pub(super) is_expired: bool,
}

impl Flight {
    /// Takes a message out that is answered; `None` if it waits for no answer.
    pub(super) fn take(&mut self, number: u32) -> Option<Overtaken> {
        let ahead = number.wrapping_sub(self.answered) as usize;
        if ahead < self.sent.len() {
            for since in self.sent.drain(..ahead) {
                self.overtaken.push_back(Overtaken {
                    number: self.answered,
                    sent_ns: since,
                    is_expired: false,
                });
                self.answered = self.answered.wrapping_add(1);
            }
            self.answered = self.answered.wrapping_add(1);
            return self.sent.pop_front().map(|sent_ns| Overtaken {
                number,
                sent_ns,
                is_expired: false,
            });
        }
        let at = self.overtaken_at(number)?;
        self.overtaken.remove(at)
    }

    /// Takes the oldest message out if it has waited since before `limit_ns`; when it was sent.
    pub(super) fn expire(&mut self, limit_ns: u64) -> Option<u64> {
        let sent_ns = *self.sent.front().filter(|since| **since < limit_ns)?;
        self.sent.pop_front();
        self.overtaken.push_back(Overtaken {
            number: self.answered,
            sent_ns,
            is_expired: true,
        });
        self.answered = self.answered.wrapping_add(1);
        self.expired += 1;
        Some(sent_ns)
    }

    pub(super) fn overtaken_at(&self, number: u32) -> Option<usize> {
        let found = self
            .overtaken
            .binary_search_by_key(&number, |one| one.number);
        found.ok()
    }

    /// Whether a message of this number has left on this connection, not too long ago.
    pub(super) fn has_been_sent(&self, number: u32) -> bool {
        let next = self.answered.wrapping_add(self.sent.len() as u32);
        (next.wrapping_sub(number) as i32) > 0
    }

    /// Counts overtaken messages above [`OVERTAKEN_MAX`] as lost; returns how many of them were measured.
    pub(super) fn forget_some(&mut self, net: &mut Net) -> u64 {
        let surplus = self.overtaken.len().saturating_sub(OVERTAKEN_MAX);
        self.lose(surplus, net)
    }

    /// Starts anew for another connection. Counts overtaken messages as lost; returns how many of them were measured.
    pub(super) fn reset(&mut self, net: &mut Net) -> u64 {
        let measured = self.give_up_overtaken(net);
        *self = Self::default();
        measured
    }

    /// Counts all overtaken messages as lost; returns how many of them were measured.
    pub(super) fn give_up_overtaken(&mut self, net: &mut Net) -> u64 {
        self.lose(self.overtaken.len(), net)
    }

    fn lose(&mut self, count: usize, net: &mut Net) -> u64 {
        let mut lost = 0;
        let mut measured = 0;
        for one in self.overtaken.drain(..count).filter(|one| !one.is_expired) {
            lost += 1;
            measured += u64::from(net.is_measured(one.sent_ns));
        }
        net.tally.lost += lost;
        let words = "an answer is missing although a later one arrived";
        let fault = Fault::new(Cause::WrongAnswer, words);
        net.tally.faults(&fault, lost);
        measured
    }
}
