//! Clients that come back to where they were, whatever becomes of the server: receivers with the position of what they
//! have got, publishers with what was not answered written down as unsure.

use std::collections::VecDeque;

use super::place::{Places, Said};
use crate::engine::Io;
use crate::ledger::{Books, Page, Returns};
use crate::tally::{Cause, Fault};

/// What a thread knows of its clients.
pub(super) struct Comeback {
    /// By client, receivers first.
    receivers: Vec<Receiver>,
    publishers: Vec<Publisher>,
    pub(super) returns: Returns,
}

#[derive(Default)]
struct Receiver {
    places: Places,
    heard: Heard,
    /// It was said that there are no positions.
    has_complained: bool,
}

/// What a receiver has been told on its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Heard {
    #[default]
    Nothing,
    /// Where it is.
    Place,
    /// That it is where it was, or at least nothing else.
    Recovered,
    /// That something is gone.
    Gone,
}

/// A publication, in the log: its publisher and its receiver, and its number.
pub(super) type Entry = ((u32, Option<u32>), u32);

#[derive(Default)]
struct Publisher {
    /// Sent and not answered, in this order.
    asked: VecDeque<Entry>,
}

impl Comeback {
    pub(super) fn new(receivers: u32, publishers: u32) -> Self {
        Self {
            receivers: (0..receivers).map(|_| Receiver::default()).collect(),
            publishers: (0..publishers).map(|_| Publisher::default()).collect(),
            returns: Returns::default(),
        }
    }

    /// Adds what a receiver hands in when it connects.
    pub(super) fn amend(&self, who: u32, path: &mut String) {
        if let Some(receiver) = self.receivers.get(who as usize) {
            receiver.places.write(path);
        }
    }

    /// A connection is open. Who has no place yet gets what comes from now on.
    pub(super) fn opened(&mut self, who: u32, page: Option<&mut Page>, now_ns: u64) {
        if let (Some(receiver), Some(page)) = (self.receivers.get_mut(who as usize), page) {
            receiver.heard = Heard::Nothing;
            if receiver.places.is_empty() {
                page.return_at(now_ns);
            }
        }
    }

    /// A receiver is told that it has joined a channel; `page` is its own.
    pub(super) fn joined(
        &mut self,
        io: &mut Io<'_>,
        who: u32,
        channel: &str,
        said: &Said<'_>,
        page: &mut Page,
    ) {
        let receiver = &mut self.receivers[who as usize];
        let was_there = receiver.places.knows(channel);
        match &said.position {
            Some(position) => receiver.places.set(channel, position),
            None => receiver.places.forget(channel),
        }
        if !was_there {
            // Others of its channels have no place: of these there is nothing to be recovered.
            if receiver.heard == Heard::Nothing {
                receiver.heard = Heard::Place;
            }
            return;
        }
        let is_first = !matches!(receiver.heard, Heard::Recovered | Heard::Gone);
        self.returns.returned += u64::from(is_first);
        match said.recovered {
            Some(true) => {
                if is_first {
                    receiver.heard = Heard::Recovered;
                }
                page.recover();
            }
            Some(false) => {
                self.returns.refused += u64::from(receiver.heard != Heard::Gone);
                receiver.heard = Heard::Gone;
                page.forgo_until(io.net.now_ns);
            }
            None => {
                // Nothing is excused by silence.
                receiver.heard = Heard::Recovered;
                page.recover();
                let words = "the server did not report whether a receiver's recovery is complete";
                io.net.fault(&Fault::new(Cause::WrongAnswer, words));
            }
        }
    }

    /// A publication has been taken in: the receiver is behind it now.
    pub(super) fn advance(&mut self, io: &mut Io<'_>, who: u32, said: Option<&Said<'_>>) {
        let receiver = &mut self.receivers[who as usize];
        let place = said.and_then(|said| {
            let channel = said.channel.as_deref()?;
            Some((channel, said.position.as_deref()?))
        });
        if let Some((channel, position)) = place {
            receiver.places.set(channel, position);
        } else if !std::mem::replace(&mut receiver.has_complained, true) {
            let words = "a delivery without a position: does the route have positions = true, and the channel a history?";
            io.net.fault(&Fault::new(Cause::WrongAnswer, words));
        }
    }

    /// A publisher has asked for something to be published.
    pub(super) fn asked(&mut self, who: u32, entry: Entry) {
        self.publisher(who).asked.push_back(entry);
    }

    /// A publisher was answered: by that the first that it waits for is published, or was refused.
    pub(super) fn answered(&mut self, who: u32, is_taken: bool, books: &mut Books) {
        let entry = self.publisher(who).asked.pop_front();
        if let Some(entry) = entry.filter(|_| !is_taken) {
            doubt(books, entry);
        }
    }

    /// Publications that are not answered yet.
    pub(super) fn unanswered(&self) -> u64 {
        let all = self.publishers.iter();
        all.map(|publisher| publisher.asked.len() as u64).sum()
    }

    /// Nobody answers a publisher any more.
    pub(super) fn give_up_answers(&mut self, who: u32, books: &mut Books) {
        for entry in std::mem::take(&mut self.publisher(who).asked) {
            doubt(books, entry);
        }
    }

    fn publisher(&mut self, who: u32) -> &mut Publisher {
        let index = who as usize - self.receivers.len();
        &mut self.publishers[index]
    }

    /// Whether an end or a failure is none of the run's: a server that is gone for a moment.
    pub(super) fn forgives(&mut self, fault: &Fault, was_open: bool) -> bool {
        match fault.cause {
            Cause::Refused
            | Cause::TimedOut
            | Cause::Reset
            | Cause::Closed
            | Cause::BadHandshake => {}
            Cause::Tls
            | Cause::BadProtocol
            | Cause::WrongAnswer
            | Cause::BadResponse
            | Cause::System
            | Cause::Script => return false,
        }
        let returns = &mut self.returns;
        if was_open {
            returns.ended += 1;
        } else {
            returns.retried += 1;
        }
        returns.example.get_or_insert_with(|| fault.words.clone());
        true
    }

    /// Whether a receiver is where it was, or never had a place.
    pub(super) fn is_back(&self, who: u32) -> bool {
        let receiver = &self.receivers[who as usize];
        receiver.places.is_empty() || receiver.heard != Heard::Nothing
    }
}

/// Writes down that a publication may have happened or not.
pub(super) fn doubt(books: &mut Books, (key, number): Entry) {
    let unsure = &mut books.log.entry(key).or_default().unsure;
    // Connections of one publisher follow each other, and so do its numbers.
    unsure.push(number);
}
