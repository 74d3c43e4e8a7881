//! Recovery after connection losses, whatever their cause: receivers reconnect with the positions of the last messages
//! received, and publishers record unacknowledged publications as unsure.

use std::collections::VecDeque;

use super::positions::{ChannelPositions, MessagePosition};
use crate::engine::LoadIo;
use crate::ledger::{ClientLedger, DeliveryLedger, RecoveryCounts};
use crate::tally::{ErrorCase, ErrorCause};

/// The recovery state of a thread's clients.
pub(super) struct RecoveryState {
    /// The receivers by client index: the clients with the lowest indices are receivers.
    receivers: Vec<Receiver>,
    publishers: Vec<Publisher>,
    pub(super) counts: RecoveryCounts,
}

#[derive(Default)]
struct Receiver {
    places: ChannelPositions,
    status: SubscribeStatus,
    /// Whether the error of a missing position was already reported.
    has_complained: bool,
}

/// The result of recovery on a receiver's current connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SubscribeStatus {
    #[default]
    Nothing,
    Place,
    /// All missed messages were recovered, or the server did not report the result of the recovery.
    Recovered,
    Gone,
}

/// A publication in the log: the publisher, the receiver (`None`: all), and the number.
pub(super) type LoggedPublication = ((u32, Option<u32>), u32);

#[derive(Default)]
struct Publisher {
    /// Unacknowledged publications, in the order in which they were sent.
    asked: VecDeque<LoggedPublication>,
}

impl RecoveryState {
    pub(super) fn new(receivers: u32, publishers: u32) -> Self {
        Self {
            receivers: (0..receivers).map(|_| Receiver::default()).collect(),
            publishers: (0..publishers).map(|_| Publisher::default()).collect(),
            counts: RecoveryCounts::default(),
        }
    }

    /// Adds a receiver's positions to the path with which it connects.
    pub(super) fn amend(&self, client_index: u32, path: &mut String) {
        if let Some(receiver) = self.receivers.get(client_index as usize) {
            receiver.places.write(path);
        }
    }

    /// Handles the opening of a connection. A receiver without a position can't recover missed messages. Its absence ends
    /// at once, and only messages sent from now on are expected.
    pub(super) fn opened(
        &mut self,
        client_index: u32,
        page: Option<&mut ClientLedger>,
        now_ns: u64,
    ) {
        if let (Some(receiver), Some(page)) = (self.receivers.get_mut(client_index as usize), page)
        {
            receiver.status = SubscribeStatus::Nothing;
            if receiver.places.is_empty() {
                page.end_absence(now_ns);
            }
        }
    }

    /// Handles a receiver's subscription to a channel; `page` is the receiver's ledger.
    pub(super) fn joined(
        &mut self,
        io: &mut LoadIo<'_>,
        client_index: u32,
        channel: &str,
        message_position: &MessagePosition<'_>,
        page: &mut ClientLedger,
    ) {
        let receiver = &mut self.receivers[client_index as usize];
        let was_there = receiver.places.knows(channel);
        match &message_position.position {
            Some(position) => receiver.places.set(channel, position),
            None => receiver.places.forget(channel),
        }
        if !was_there {
            // The receiver had no position in this channel, so there is nothing to recover.
            if receiver.status == SubscribeStatus::Nothing {
                receiver.status = SubscribeStatus::Place;
            }
            return;
        }
        let is_first = !matches!(
            receiver.status,
            SubscribeStatus::Recovered | SubscribeStatus::Gone
        );
        self.counts.returned += u64::from(is_first);
        match message_position.recovered {
            Some(true) => {
                if is_first {
                    receiver.status = SubscribeStatus::Recovered;
                }
                page.recover();
            }
            Some(false) => {
                self.counts.refused += u64::from(receiver.status != SubscribeStatus::Gone);
                receiver.status = SubscribeStatus::Gone;
                page.exclude_until(io.net.now_ns);
            }
            None => {
                // The server reported no loss, so it must deliver all messages that the receiver has missed.
                receiver.status = SubscribeStatus::Recovered;
                page.recover();
                let words = "the server did not report whether a receiver's recovery is complete";
                io.net
                    .fault(&ErrorCase::new(ErrorCause::WrongAnswer, words));
            }
        }
    }

    /// Updates a receiver's position after a publication. If the publication has no position, counts an error, but only
    /// once per receiver.
    pub(super) fn advance(
        &mut self,
        io: &mut LoadIo<'_>,
        client_index: u32,
        message_position: Option<&MessagePosition<'_>>,
    ) {
        let receiver = &mut self.receivers[client_index as usize];
        let place = message_position.and_then(|message_position| {
            let channel = message_position.channel.as_deref()?;
            Some((channel, message_position.position.as_deref()?))
        });
        if let Some((channel, position)) = place {
            receiver.places.set(channel, position);
        } else if !std::mem::replace(&mut receiver.has_complained, true) {
            let words = "a delivery has no position: does the route have positions = true, and does the channel have a history?";
            io.net
                .fault(&ErrorCase::new(ErrorCause::WrongAnswer, words));
        }
    }

    /// Records a publication whose acknowledgement is outstanding.
    pub(super) fn asked(&mut self, client_index: u32, entry: LoggedPublication) {
        self.publisher(client_index).asked.push_back(entry);
    }

    /// Handles an answer to a publisher: the publisher's first unacknowledged publication was accepted or refused.
    pub(super) fn answered(
        &mut self,
        client_index: u32,
        is_taken: bool,
        delivery_ledger: &mut DeliveryLedger,
    ) {
        let entry = self.publisher(client_index).asked.pop_front();
        if let Some(entry) = entry.filter(|_| !is_taken) {
            doubt(delivery_ledger, entry);
        }
    }

    /// Returns the number of unacknowledged publications.
    pub(super) fn unanswered(&self) -> u64 {
        let all = self.publishers.iter();
        all.map(|publisher| publisher.asked.len() as u64).sum()
    }

    /// Stops waiting for a publisher's outstanding acknowledgements, and records the outcome of these publications as
    /// unknown.
    pub(super) fn give_up_answers(
        &mut self,
        client_index: u32,
        delivery_ledger: &mut DeliveryLedger,
    ) {
        for entry in std::mem::take(&mut self.publisher(client_index).asked) {
            doubt(delivery_ledger, entry);
        }
    }

    fn publisher(&mut self, client_index: u32) -> &mut Publisher {
        let index = client_index as usize - self.receivers.len();
        &mut self.publishers[index]
    }

    /// Returns whether the end of a connection or a failed connect is excused, because the server may be restarting.
    pub(super) fn forgives(&mut self, fault: &ErrorCase, was_open: bool) -> bool {
        match fault.cause {
            ErrorCause::Refused
            | ErrorCause::TimedOut
            | ErrorCause::Reset
            | ErrorCause::Closed
            | ErrorCause::BadHandshake => {}
            ErrorCause::Tls
            | ErrorCause::BadProtocol
            | ErrorCause::WrongAnswer
            | ErrorCause::BadResponse
            | ErrorCause::System
            | ErrorCause::Script => return false,
        }
        let returns = &mut self.counts;
        if was_open {
            returns.ended += 1;
        } else {
            returns.retried += 1;
        }
        returns.example.get_or_insert_with(|| fault.words.clone());
        true
    }

    /// Returns whether a receiver has recovered, or never had a position.
    pub(super) fn is_back(&self, client_index: u32) -> bool {
        let receiver = &self.receivers[client_index as usize];
        receiver.places.is_empty() || receiver.status != SubscribeStatus::Nothing
    }
}

/// Records a publication with an unknown outcome.
pub(super) fn doubt(delivery_ledger: &mut DeliveryLedger, (key, number): LoggedPublication) {
    let unsure = &mut delivery_ledger.log.entry(key).or_default().unsure;
    // A publisher has one connection at a time, so the numbers are added in ascending order.
    unsure.push(number);
}
