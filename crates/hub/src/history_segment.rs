//! The result of a history read: consecutive publications up to the channel's latest one (the top).

use crate::engine::FeedItem;
use crate::namespace::RecoveryMode;
use crate::{Position, Publication, RECOVERED_MAX, Recovered, Since};

/// How far back a read should reach. The result may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadStart {
    /// From the publication after this offset on; if that publication is not stored, from the oldest stored one.
    Since(u64),
    /// Only the position of the channel's latest publication is needed.
    TopOnly,
}

/// A read of a channel's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRead {
    /// How far back the read should reach.
    pub start: ReadStart,
    /// Whether the read closes a gap in the feed. If not, its result is for subscribers that wait for it.
    pub closes_gap: bool,
    /// The number that distinguishes the read from all other reads of the home worker.
    pub(crate) number: u64,
}

/// Numbers the reads, so that the result of a read can't be mistaken for the result of a later
/// read.
#[derive(Debug, Default)]
pub(crate) struct ReadCounter(u64);

impl ReadCounter {
    pub(crate) fn next(&mut self, reach: ReadStart, closes_gap: bool) -> HistoryRead {
        self.0 += 1;
        HistoryRead {
            start: reach,
            closes_gap,
            number: self.0,
        }
    }
}

/// Consecutive publications of one epoch up to the channel's latest one: at most
/// [`RECOVERED_MAX`](crate::RECOVERED_MAX).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySegment {
    /// The position of the latest publication.
    pub top: Position,
    /// The offset of the predecessor of the first publication; if there are no publications, the offset of `top`;
    /// `None` if the predecessor is unknown.
    pub predecessor: Option<u64>,
    /// The publications, oldest first; the last one has the position `top`.
    pub publications: Vec<Publication>,
}

impl HistorySegment {
    /// Returns the index of the first publication after an offset of this epoch; `None` if the segment does not reach
    /// back that far.
    pub(crate) fn index_after(&self, offset: u64) -> Option<usize> {
        if self.predecessor == Some(offset) {
            return Some(0);
        }
        let found = self
            .publications
            .binary_search_by_key(&offset, |one| self.offset_of(one));
        found.ok().map(|place| place + 1)
    }

    /// Returns the publications after an offset of this epoch, each with the offset of its
    /// predecessor; `None` if the segment does not reach back that far.
    pub(crate) fn after(&self, offset: u64) -> Option<impl Iterator<Item = (u64, &Publication)>> {
        let place = self.index_after(offset)?;
        let links = std::iter::once(offset);
        let links = links.chain(
            self.publications[place..]
                .iter()
                .map(|one| self.offset_of(one)),
        );
        Some(links.zip(&self.publications[place..]))
    }

    /// Extends or cuts the segment so that it ends at `position`, the last delivered one. `tail` contains the items
    /// delivered since the read was requested, in order. Returns `None` if segment and tail can't be linked.
    pub(crate) fn up_to(mut self, position: Position, tail: &[FeedItem]) -> Option<Self> {
        if self.top.epoch != position.epoch {
            return None;
        }
        for item in tail {
            let Some(place) = item.publication.position else {
                continue;
            };
            if place.epoch == self.top.epoch && item.predecessor == self.top.offset {
                self.top = place;
                self.publications.push(item.publication.clone());
            }
        }
        let place = self.index_after(position.offset)?;
        self.publications.truncate(place);
        self.top = position;
        Some(self)
    }

    /// Returns the publications for a subscriber with these known positions; the first position of
    /// this epoch is used. Depending on the recovery mode, these are the publications that the
    /// subscriber has missed, or up to `latest_max` of the latest ones.
    pub(crate) fn recover(
        &self,
        since: &[Since],
        recovery: RecoveryMode,
        latest_max: usize,
    ) -> Recovered {
        let is_of = |since: &&Since| since.epoch.is_none_or(|epoch| epoch == self.top.epoch);
        let since = since.iter().find(is_of);
        let place = since.and_then(|since| self.index_after(since.offset));
        let place = place.filter(|place| self.publications.len() - place <= RECOVERED_MAX);
        match recovery {
            RecoveryMode::Missed => place.map_or_else(Recovered::default, |place| self.last(place)),
            RecoveryMode::Latest => {
                let is_at_top = place == Some(self.publications.len());
                let place = place.filter(|_| is_at_top || latest_max > 1);
                place.map_or_else(|| self.latest(latest_max), |place| self.last(place))
            }
        }
    }

    /// Returns all publications from an index on as the result of a complete recovery.
    fn last(&self, place: usize) -> Recovered {
        Recovered {
            is_complete: true,
            predecessor: self.predecessor_at(place),
            publications: self.publications[place..].to_vec(),
            is_latest_only: false,
        }
    }

    fn latest(&self, latest_max: usize) -> Recovered {
        let place = self.publications.len().saturating_sub(latest_max);
        let publications = self.publications[place..].to_vec();
        Recovered {
            is_complete: !publications.is_empty(),
            predecessor: self.predecessor_at(place),
            publications,
            is_latest_only: true,
        }
    }

    /// Returns the offset of the predecessor of the publication at an index; 0 if the index is the end of the list.
    fn predecessor_at(&self, place: usize) -> u64 {
        if place == self.publications.len() {
            return 0;
        }
        match place.checked_sub(1) {
            Some(previous) => self.offset_of(&self.publications[previous]),
            None => self.predecessor.unwrap_or_default(),
        }
    }

    fn offset_of(&self, publication: &Publication) -> u64 {
        let position = publication.position;
        debug_assert!(position.is_some_and(|position| position.epoch == self.top.epoch));
        position.map_or(0, |position| position.offset)
    }
}
