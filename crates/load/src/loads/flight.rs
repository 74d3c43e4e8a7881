//! Messages in flight on a connection: matching of answers, and detection of late and lost ones.

use std::collections::VecDeque;

use crate::engine::EngineState;
use crate::tally::{ErrorCase, ErrorCause};

/// Maximum number of overtaken messages per connection. If it is exceeded, the oldest one counts as
/// lost.
const OVERTAKEN_MAX: usize = 4096;

/// The unanswered messages of one connection.
///
/// If messages are stamped, an answer is matched by its number. A message is overtaken if a later message
/// is answered first. It then no longer counts as in flight. It counts as late if it is answered
/// afterwards, otherwise as lost. Without stamps, answers must arrive in the order of the messages.
#[derive(Clone, Debug, Default)]
pub(super) struct InflightQueue {
    /// Times of the messages in nanoseconds, the oldest first: due times in an open loop, otherwise
    /// send times.
    pub(super) sent: VecDeque<u64>,
    /// Sequence number of the oldest message in `sent`.
    pub(super) answered: u32,
    /// Unanswered messages that no longer count as in flight, by ascending number: those that were overtaken by the
    /// answer to a later message, and those that have expired.
    pub(super) overtaken: VecDeque<OutOfOrderMessage>,
    /// Number of messages that expired since the last answer.
    pub(super) expired: u32,
    /// Whether a message, which may be a greeting, arrived before the first answer.
    pub(super) greeted: bool,
    /// Whether the connection is about to be closed, so that no further message is sent.
    pub(super) is_leaving: bool,
}

/// A message that may be answered late.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOfOrderMessage {
    pub(super) number: u32,
    pub(super) sent_ns: u64,
    /// Whether the message has reached the time limit and so is already counted as unanswered.
    pub(super) is_expired: bool,
}

impl InflightQueue {
    /// Removes an answered message; `None` if it is not awaiting an answer.
    pub(super) fn take(&mut self, number: u32) -> Option<OutOfOrderMessage> {
        let ahead = number.wrapping_sub(self.answered) as usize;
        if ahead < self.sent.len() {
            for since in self.sent.drain(..ahead) {
                self.overtaken.push_back(OutOfOrderMessage {
                    number: self.answered,
                    sent_ns: since,
                    is_expired: false,
                });
                self.answered = self.answered.wrapping_add(1);
            }
            self.answered = self.answered.wrapping_add(1);
            return self.sent.pop_front().map(|sent_ns| OutOfOrderMessage {
                number,
                sent_ns,
                is_expired: false,
            });
        }
        let at = self.overtaken_at(number)?;
        self.overtaken.remove(at)
    }

    /// If the oldest message in `sent` is from before `limit_ns`, marks it as expired and returns its time.
    pub(super) fn expire(&mut self, limit_ns: u64) -> Option<u64> {
        let sent_ns = *self.sent.front().filter(|since| **since < limit_ns)?;
        self.sent.pop_front();
        self.overtaken.push_back(OutOfOrderMessage {
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

    /// Returns whether a message with this number was already sent on this connection.
    pub(super) fn has_been_sent(&self, number: u32) -> bool {
        let next = self.answered.wrapping_add(self.sent.len() as u32);
        (next.wrapping_sub(number) as i32) > 0
    }

    /// Removes the messages of `overtaken` in excess of [`OVERTAKEN_MAX`]. Counts those that have not expired as lost, and
    /// returns how many of these belong to the measured time.
    pub(super) fn forget_some(&mut self, net: &mut EngineState) -> u64 {
        let surplus = self.overtaken.len().saturating_sub(OVERTAKEN_MAX);
        self.lose(surplus, net)
    }

    /// Resets the state for another connection. Like [`give_up_overtaken`](Self::give_up_overtaken), counts lost messages
    /// and returns how many of them belong to the measured time.
    pub(super) fn reset(&mut self, net: &mut EngineState) -> u64 {
        let measured = self.give_up_overtaken(net);
        *self = Self::default();
        measured
    }

    /// Removes all messages of `overtaken`. Counts those that have not expired as lost, and returns how many of these
    /// belong to the measured time.
    pub(super) fn give_up_overtaken(&mut self, net: &mut EngineState) -> u64 {
        self.lose(self.overtaken.len(), net)
    }

    fn lose(&mut self, count: usize, net: &mut EngineState) -> u64 {
        let mut lost = 0;
        let mut measured = 0;
        for one in self.overtaken.drain(..count).filter(|one| !one.is_expired) {
            lost += 1;
            measured += u64::from(net.is_measured(one.sent_ns));
        }
        net.tally.lost += lost;
        let words = "an answer is missing although a later one arrived";
        let fault = ErrorCase::new(ErrorCause::WrongAnswer, words);
        net.tally.faults(&fault, lost);
        measured
    }
}
