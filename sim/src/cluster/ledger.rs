//! The actual content of channels: each publication as the store has stored it, with its predecessor.
//!
//! After a rollback the store assigns offsets again, so a position does not identify a publication. The ledger assigns
//! a serial number to each stored publication, and a [`Chain`] follows a subscriber by these numbers.

use std::collections::BTreeMap;

use veche_hub::{Epoch, Position};

use crate::failure::{PromiseResult, promise};

/// The index of an entry in the ledger.
pub(super) type Serial = u32;

/// A stored publication, or the beginning of an epoch.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The number of the publication; `None` for the beginning of an epoch.
    number: Option<u64>,
    before: Serial,
}

/// The stored publications and epochs of all channels of a cluster.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Vec<Entry>,
    /// The serials of the publications stored at a position, by channel and position.
    places: BTreeMap<(usize, u64, u64), Vec<Serial>>,
}

impl Ledger {
    /// Records the beginning of an epoch.
    pub(super) fn begin(&mut self, channel: usize, epoch: Epoch) -> Serial {
        let before = self.entries.len() as Serial;
        self.add(channel, Position { epoch, offset: 0 }, None, before)
    }

    /// Records that the store has stored a publication right after the entry `before`.
    pub(super) fn store(
        &mut self,
        channel: usize,
        position: Position,
        number: u64,
        before: Serial,
    ) -> Serial {
        self.add(channel, position, Some(number), before)
    }

    fn add(
        &mut self,
        channel: usize,
        position: Position,
        number: Option<u64>,
        before: Serial,
    ) -> Serial {
        let serial = self.entries.len() as Serial;
        self.entries.push(Entry { number, before });
        let place = (channel, position.epoch.bits(), position.offset);
        self.places.entry(place).or_default().push(serial);
        serial
    }

    /// Returns whether this publication was ever stored at this position.
    pub(super) fn has(&self, channel: usize, position: Position, number: u64) -> bool {
        let mut all = self.at(channel, position).iter();
        all.any(|serial| self.entries[*serial as usize].number == Some(number))
    }

    fn at(&self, channel: usize, position: Position) -> &[Serial] {
        let place = (channel, position.epoch.bits(), position.offset);
        self.places.get(&place).map_or(&[], Vec::as_slice)
    }
}

/// A subscriber's progress in a channel.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) position: Position,
    /// The subscriber's entry at this position. There are several if the store has assigned the position more than
    /// once.
    serials: Vec<Serial>,
}

impl Chain {
    /// Returns a chain that begins at a position. Fails if the store never had this position.
    pub(super) fn join(
        ledger: &Ledger,
        channel: usize,
        position: Position,
    ) -> Result<Self, crate::Failure> {
        let serials = ledger.at(channel, position).to_vec();
        promise!(
            !serials.is_empty(),
            "a subscription joins at a position of the store",
            "channel {channel} never had {position}"
        );
        Ok(Self { position, serials })
    }

    /// Checks that a publication is the subscriber's next one, and moves the subscriber's position to it.
    pub(super) fn follow(
        &mut self,
        ledger: &Ledger,
        channel: usize,
        position: Position,
        number: u64,
    ) -> PromiseResult {
        promise!(
            position.epoch == self.position.epoch,
            "an epoch does not end unnoticed",
            "publication {number} of channel {channel} has {position}, after {}",
            self.position
        );
        promise!(
            position.offset > self.position.offset,
            "no publication comes twice",
            "publication {number} of channel {channel} has {position}, after {}",
            self.position
        );
        let all = ledger.at(channel, position).iter().copied();
        let is_next = |serial: &Serial| {
            let entry = ledger.entries[*serial as usize];
            entry.number == Some(number) && self.serials.contains(&entry.before)
        };
        let serials: Vec<_> = all.filter(is_next).collect();
        promise!(
            !serials.is_empty(),
            "publications follow each other without a hole or a reused offset",
            "publication {number} of channel {channel} at {position} does not follow what the subscriber has at {}",
            self.position
        );
        *self = Self { position, serials };
        Ok(())
    }

    /// Returns whether the subscriber is at this entry.
    pub(super) fn is_at(&self, position: Position, serial: Serial) -> bool {
        self.position == position && self.serials.contains(&serial)
    }
}
