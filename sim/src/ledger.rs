//! The observed state of a world's channels, against which everything that clients receive is
//! checked.
//!
//! The ledger does not use the hub. Each publication has a number that is unique in its channel.
//! The first client that receives a publication at a position determines the number at that
//! position, and all other clients must receive the same number there.

use std::collections::BTreeMap;

use serde_json::Value;
use veche_hub::RESTORE_GRACE_MS;

use crate::channels::CHANNELS;
use crate::coverage::Coverage;
use crate::failure::{Failure, PromiseResult, promise};
use crate::setup::Setup;
use crate::trace::Trace;

/// The bit that marks a source as a client. The other bits are the number of its link.
pub(crate) const CLIENTS: Source = 1 << 31;

/// A position in a channel: the bits of an epoch, and an offset.
pub(crate) type RawPosition = (u64, u64);

/// The publisher of a publication. Publications of one source never overtake each other.
pub(crate) type Source = u32;

pub(crate) struct Ledger {
    channels: Vec<ChannelLedger>,
    pub(crate) trace: Trace,
    pub(crate) seen: Coverage,
    /// The number of the current server process, called its *incarnation*. It increases with each start of a process.
    pub(crate) incarnation: u32,
    pub(crate) now_ms: u64,
    /// For each publication (incarnation, channel, number), the publication (channel, number) that wildcard subscribers
    /// received next.
    followed: BTreeMap<(u32, usize, u64), (usize, u64)>,
    history_ttl_ms: u64,
    /// Until this time in milliseconds nothing expires, because the process started with streams from a disk.
    doubt_until_ms: u64,
    is_logged: bool,
    /// Whether streams may be dropped to stay within the history budget.
    is_scarce: bool,
}

/// The state of one channel.
#[derive(Default)]
struct ChannelLedger {
    publications: Vec<PublicationRecord>,
    /// The number of the publication at each position.
    numbers: BTreeMap<RawPosition, u64>,
    /// For each epoch, the incarnation in which it was first observed, and its greatest offset so far.
    epochs: BTreeMap<u64, (u32, u64)>,
    /// The state of the channel in the latest incarnation.
    current: Option<KnownState>,
    /// The parts of the history that were removed on purpose.
    cleared: Cleared,
}

/// How far a channel's history was removed on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cleared {
    #[default]
    Never,
    /// A removal is or was in progress; its extent is unknown until the world has settled.
    Somewhere,
    UpTo(RawPosition),
}

struct PublicationRecord {
    source: Source,
    fate: PublicationFate,
    place: Option<RawPosition>,
    /// The latest time at which the publication may have been accepted.
    known_ms: Option<u64>,
    /// The version of the published state, with the incarnation in which it was published.
    version: Option<(u32, u64)>,
}

/// What the publisher knows about the result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PublicationFate {
    Unknown,
    Refused,
    Taken,
}

/// What the ledger knew about a channel when a request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownState {
    pub(crate) epoch: u64,
    /// The greatest offset observed.
    pub(crate) top: u64,
    pub(crate) incarnation: u32,
}

impl Ledger {
    pub(crate) fn new(setup: &Setup, now_ms: u64) -> Self {
        Self {
            channels: CHANNELS.iter().map(|_| ChannelLedger::default()).collect(),
            trace: Trace::new(),
            seen: Coverage::default(),
            incarnation: 0,
            now_ms,
            followed: BTreeMap::new(),
            history_ttl_ms: setup.history_ttl_ms,
            doubt_until_ms: 0,
            is_logged: setup.is_logged,
            is_scarce: setup.is_scarce(),
        }
    }

    /// Registers a publication and returns its number.
    pub(crate) fn publish(&mut self, channel: usize, source: Source) -> u64 {
        let publications = &mut self.channels[channel].publications;
        publications.push(PublicationRecord {
            source,
            fate: PublicationFate::Unknown,
            place: None,
            known_ms: None,
            version: None,
        });
        publications.len() as u64 - 1
    }

    /// Sets the version of a publication.
    pub(crate) fn set_version(&mut self, channel: usize, number: u64, version: u64) {
        let version = Some((self.incarnation, version));
        self.channels[channel].publications[number as usize].version = version;
    }

    pub(crate) fn version(&self, channel: usize, number: u64) -> Option<(u32, u64)> {
        self.channels[channel]
            .publications
            .get(number as usize)?
            .version
    }

    /// Returns the latest version that was published in this incarnation and to which the publisher got a reply.
    pub(crate) fn newest_answered(&self, channel: usize) -> Option<u64> {
        let all = self.channels[channel].publications.iter();
        let answered = all.filter(|one| one.known_ms.is_some());
        let versions = answered.filter_map(|one| one.version);
        let of_now = versions.filter(|(incarnation, _)| *incarnation == self.incarnation);
        of_now.map(|(_, version)| version).max()
    }

    /// Records that the publisher got a reply, which may say that the publication is outdated.
    pub(crate) fn answered(&mut self, channel: usize, number: u64) {
        let now_ms = self.now_ms;
        let one = &mut self.channels[channel].publications[number as usize];
        one.known_ms.get_or_insert(now_ms);
    }

    /// Records that a process starts with streams from a disk: nothing expires for
    /// [`RESTORE_GRACE_MS`].
    pub(crate) fn restored(&mut self) {
        self.doubt_until_ms = self.now_ms + RESTORE_GRACE_MS;
    }

    /// Returns whether expiry was suspended at `at_ms`, because a process had just started with streams from a disk.
    pub(crate) fn doubts_clock(&self, at_ms: u64) -> bool {
        at_ms < self.doubt_until_ms
    }

    /// Checks that a publication was not too old when a client requested it.
    pub(crate) fn check_age(&self, channel: usize, number: u64, asked_ms: u64) -> PromiseResult {
        let found = self.channels[channel].publications.get(number as usize);
        let Some(known_ms) = found.and_then(|one| one.known_ms) else {
            return Ok(());
        };
        promise!(
            known_ms + self.history_ttl_ms > asked_ms || self.doubts_clock(asked_ms),
            "expired publications are not read",
            "{number} in {}, taken by {known_ms}, read at {asked_ms}",
            CHANNELS[channel].name
        );
        Ok(())
    }

    /// Checks that `next` is the only publication that wildcard subscribers received right after
    /// `before`.
    pub(crate) fn note_wildcard_order(
        &mut self,
        incarnation: u32,
        before: (usize, u64),
        next: (usize, u64),
    ) -> PromiseResult {
        let key = (incarnation, before.0, before.1);
        let first = *self.followed.entry(key).or_insert(next);
        promise!(
            first == next,
            "a namespace has one order",
            "{next:?} behind {before:?}, and {first:?}"
        );
        Ok(())
    }

    /// Returns the position of a publication, if it was observed.
    pub(crate) fn place(&self, channel: usize, number: u64) -> Option<RawPosition> {
        self.channels[channel]
            .publications
            .get(number as usize)?
            .place
    }

    /// Returns the number of the publication at a position.
    pub(crate) fn number_at(&self, channel: usize, place: RawPosition) -> Option<u64> {
        self.channels[channel].numbers.get(&place).copied()
    }

    /// Returns the number of the next publication.
    pub(crate) fn next_number(&self, channel: usize) -> u64 {
        self.channels[channel].publications.len() as u64
    }

    pub(crate) fn refused(&mut self, channel: usize, number: u64) {
        self.channels[channel].publications[number as usize].fate = PublicationFate::Refused;
    }

    /// Records that a hook has allowed a publication.
    pub(crate) fn allowed(&mut self, channel: usize, number: u64) {
        if let Some(one) = self.channels[channel].publications.get_mut(number as usize) {
            one.fate = PublicationFate::Unknown;
        }
    }

    /// Records that the publisher learned that its publication was accepted.
    pub(crate) fn taken(&mut self, channel: usize, number: u64) {
        self.answered(channel, number);
        self.channels[channel].publications[number as usize].fate = PublicationFate::Taken;
    }

    /// Returns whether the publisher does not know the result yet.
    pub(crate) fn is_under_way(&self, channel: usize, number: u64) -> bool {
        let found = self.channels[channel].publications.get(number as usize);
        found.is_some_and(|one| one.fate == PublicationFate::Unknown)
    }

    /// Returns whether the publisher learned that its publication was accepted.
    pub(crate) fn is_taken(&self, channel: usize, number: u64) -> bool {
        let found = self.channels[channel].publications.get(number as usize);
        found.is_some_and(|one| one.fate == PublicationFate::Taken)
    }

    /// Iterates over the accepted publications from a number on.
    pub(crate) fn all_taken(&self, channel: usize, from: u64) -> impl Iterator<Item = u64> {
        let publications = &self.channels[channel].publications;
        let all = publications.iter().zip(0..).skip(from as usize);
        all.filter(|(one, _)| one.fate == PublicationFate::Taken)
            .map(|(_, number)| number)
    }

    /// Checks that a publication received by a client was published and not refused. Returns the publication's source.
    pub(crate) fn note_delivery(&self, channel: usize, number: u64) -> Result<Source, Failure> {
        let name = CHANNELS[channel].name;
        let found = self.channels[channel].publications.get(number as usize);
        let fate = found.map(|one| one.fate);
        promise!(
            matches!(
                fate,
                Some(PublicationFate::Taken | PublicationFate::Unknown)
            ),
            "only published data is received",
            "{number} in {name}: {fate:?}"
        );
        Ok(found.map_or(0, |one| one.source))
    }

    /// Records that a publication was observed at a position, and checks that no other publication has this position
    /// and that the publication has no other position.
    pub(crate) fn note_publication_position(
        &mut self,
        channel: usize,
        number: u64,
        place: RawPosition,
        incarnation: u32,
    ) -> PromiseResult {
        let name = CHANNELS[channel].name;
        let (epoch, offset) = place;
        self.note_delivery(channel, number)?;
        self.note_position(channel, place, incarnation)?;
        let book = &mut self.channels[channel];
        let before = *book.numbers.entry(place).or_insert(number);
        promise!(
            before == number,
            "one place has one publication",
            "{number} and {before} in {name} at {place:?}"
        );
        let found = book.publications.get_mut(number as usize);
        let before = found.map(|one| *one.place.get_or_insert(place));
        promise!(
            before == Some(place),
            "one publication has one place",
            "{number} in {name} at {place:?} and {before:?}"
        );
        if incarnation == self.incarnation {
            self.answered(channel, number);
        }
        for (before, after) in [(offset.wrapping_sub(1), offset), (offset, offset + 1)] {
            self.check_versions(channel, (epoch, before), (epoch, after))?;
        }
        Ok(())
    }

    /// Checks that the version at position `after` is greater than the one at `before`, if both positions have versions
    /// of the same incarnation.
    fn check_versions(
        &self,
        channel: usize,
        before: RawPosition,
        after: RawPosition,
    ) -> PromiseResult {
        let version = |place| self.version(channel, self.number_at(channel, place)?);
        let (Some((incarnation, before)), Some((next_incarnation, after))) =
            (version(before), version(after))
        else {
            return Ok(());
        };
        promise!(
            incarnation != next_incarnation || before < after,
            "versions increase",
            "version {after} behind {before} in {}",
            CHANNELS[channel].name
        );
        Ok(())
    }

    /// Records that a channel was observed at a position. Without a log, checks that the epoch belongs to a single
    /// incarnation.
    pub(crate) fn note_position(
        &mut self,
        channel: usize,
        (epoch, offset): RawPosition,
        incarnation: u32,
    ) -> PromiseResult {
        let name = CHANNELS[channel].name;
        let book = &mut self.channels[channel];
        let is_new = !book.epochs.contains_key(&epoch);
        let (first_incarnation, top) = book.epochs.entry(epoch).or_insert((incarnation, 0));
        promise!(
            self.is_logged || *first_incarnation == incarnation,
            "an epoch ends with its process",
            "{epoch:x} of {name} in incarnation {first_incarnation} and {incarnation}"
        );
        *top = offset.max(*top);
        let known = KnownState {
            epoch,
            top: *top,
            incarnation,
        };
        match &mut book.current {
            Some(current) if current.incarnation > incarnation => {}
            // The reply to a repeated publication has the position of the original, whose stream may have ended since.
            // Such a position does not replace the current state.
            Some(current)
                if current.incarnation == incarnation && current.epoch != epoch && !is_new => {}
            current => *current = Some(known),
        }
        Ok(())
    }

    /// Records that a channel's history is about to be removed.
    pub(crate) fn clear(&mut self, channel: usize) {
        self.channels[channel].cleared = Cleared::Somewhere;
    }

    /// Records the position that the channel's home reports at rest. It replaces the known state, which may be a
    /// position in an earlier stream that a client has reported.
    pub(crate) fn settled(&mut self, channel: usize, place: RawPosition) {
        let (epoch, top) = place;
        let incarnation = self.incarnation;
        self.channels[channel].current = Some(KnownState {
            epoch,
            top,
            incarnation,
        });
        let cleared = &mut self.channels[channel].cleared;
        if *cleared == Cleared::Somewhere {
            *cleared = Cleared::UpTo(place);
        }
    }

    /// Returns whether nothing after the given position was removed on purpose.
    pub(crate) fn is_kept_behind(&self, channel: usize, (epoch, offset): RawPosition) -> bool {
        match self.channels[channel].cleared {
            Cleared::Never => true,
            Cleared::Somewhere => false,
            Cleared::UpTo((of, top)) => of != epoch || offset >= top,
        }
    }

    pub(crate) fn known(&self, channel: usize) -> Option<KnownState> {
        self.channels[channel].current
    }

    /// Checks the position in a reply. `known` is the channel's state at the time of the request.
    pub(crate) fn check_position(
        &self,
        channel: usize,
        known: Option<KnownState>,
        (epoch, offset): RawPosition,
        incarnation: u32,
    ) -> PromiseResult {
        let name = CHANNELS[channel].name;
        let Some(known) = known.filter(|known| known.top > 0) else {
            return Ok(());
        };
        if known.epoch == epoch {
            promise!(
                offset >= known.top,
                "offsets don't regress",
                "{name} is at {offset} after {}",
                known.top
            );
            return Ok(());
        }
        let may_be_lost = self.is_scarce || (!self.is_logged && known.incarnation != incarnation);
        promise!(
            may_be_lost,
            "a stream lasts",
            "{name} at {epoch:x}:{offset} in incarnation {incarnation} after {known:x?}"
        );
        Ok(())
    }
}

/// Returns the position in a reply.
pub(crate) fn place_of(reply: &Value) -> Result<RawPosition, Failure> {
    let epoch = reply["epoch"].as_str().unwrap_or_default();
    let epoch: Result<veche_hub::Epoch, _> = epoch.parse();
    promise!(
        epoch.is_ok(),
        "stored publications have a position",
        "{reply}"
    );
    let offset = reply["offset"].as_u64().unwrap_or(0);
    Ok((epoch.map_or(0, veche_hub::Epoch::bits), offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: usize = 0;
    const EPOCH: u64 = 7;

    /// A ledger with ten publications.
    fn ledger(is_logged: bool) -> Ledger {
        let setup = Setup {
            is_logged,
            ..Setup::new(1)
        };
        let mut ledger = Ledger::new(&setup, 0);
        ledger.is_scarce = false;
        (0..10).for_each(|_| {
            ledger.publish(CHAT, 0);
        });
        ledger
    }

    fn broken(check: PromiseResult) -> String {
        check.err().map_or_else(String::new, |failure| failure.name)
    }

    #[test]
    fn all_clients_receive_the_same() {
        let mut ledger = ledger(false);
        assert_eq!(
            ledger.note_publication_position(CHAT, 3, (EPOCH, 1), 0),
            Ok(())
        );
        assert_eq!(
            ledger.note_publication_position(CHAT, 3, (EPOCH, 1), 0),
            Ok(())
        );
        let other = ledger.note_publication_position(CHAT, 4, (EPOCH, 1), 0);
        assert_eq!(broken(other), "one place has one publication");
        let other = ledger.note_publication_position(CHAT, 3, (EPOCH, 2), 0);
        assert_eq!(broken(other), "one publication has one place");
        ledger.refused(CHAT, 5);
        for number in [5, 10] {
            let result = ledger.note_delivery(CHAT, number).map(drop);
            assert_eq!(broken(result), "only published data is received");
        }
    }

    #[test]
    fn a_repetition_does_not_bring_back_a_stream_that_is_gone() {
        let mut ledger = ledger(false);
        assert_eq!(
            ledger.note_publication_position(CHAT, 3, (EPOCH, 5), 0),
            Ok(())
        );
        assert_eq!(ledger.note_position(CHAT, (EPOCH + 1, 0), 0), Ok(()));
        assert_eq!(
            ledger.note_publication_position(CHAT, 3, (EPOCH, 5), 0),
            Ok(())
        );
        let known = ledger.known(CHAT).map(|known| (known.epoch, known.top));
        assert_eq!(known, Some((EPOCH + 1, 0)));
        assert_eq!(ledger.note_position(CHAT, (EPOCH + 1, 2), 0), Ok(()));
        let known = ledger.known(CHAT).map(|known| (known.epoch, known.top));
        assert_eq!(known, Some((EPOCH + 1, 2)));
    }

    #[test]
    fn positions_advance_or_restart_for_a_reason() {
        for is_logged in [false, true] {
            let mut ledger = ledger(is_logged);
            assert_eq!(ledger.note_position(CHAT, (EPOCH, 5), 0), Ok(()));
            let known = ledger.known(CHAT);
            let check =
                |place, incarnation| broken(ledger.check_position(CHAT, known, place, incarnation));
            assert_eq!(check((EPOCH, 5), 0), "");
            assert_eq!(check((EPOCH, 4), 0), "offsets don't regress");
            assert_eq!(check((EPOCH + 1, 9), 0), "a stream lasts");
            // A new process has exactly the streams on disk.
            let lost = check((EPOCH + 1, 0), 1);
            assert_eq!(lost == "a stream lasts", is_logged);
            let again = broken(ledger.note_position(CHAT, (EPOCH, 5), 1));
            assert_eq!(again == "an epoch ends with its process", !is_logged);
        }
    }
}
