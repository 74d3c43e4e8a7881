//! The stream of a channel: its position and its latest publications.

use std::sync::Arc;

use crate::accounts::Publisher;
use crate::namespace::RecoveryMode;
use crate::page::{HistoryPage, HistoryQuery};
use crate::records::{LentBytes, RECORD_BYTES, Records, StreamRecord};
use crate::{
    Epoch, HistoryError, HistoryOptions, Payload, Position, Publication, PublicationInfo,
    RECOVERED_MAX, Recovered, RestoredStream, Since, Version,
};

/// How long a stream to which nothing was ever published is kept without subscribers, in milliseconds. Only a
/// subscriber that has just lost its connection could need the stream's position.
pub(crate) const UNUSED_TTL_MS: u64 = 60_000;

/// The stream of a channel.
#[derive(Debug)]
pub(crate) struct Stream {
    epoch: Epoch,
    top: u64,
    records: Records,
    /// The latest version of the channel's state, with the version's epoch.
    version: Option<Box<Version>>,
    /// The time at which the stream was started or last published to, in milliseconds since 1970.
    touched_ms: u64,
}

impl Stream {
    pub(crate) fn new(epoch: Epoch, now_ms: u64) -> Self {
        Self {
            epoch,
            top: 0,
            records: Records::default(),
            version: None,
            touched_ms: now_ms,
        }
    }

    /// Restores a stream from the log, with its latest publications back to the first missing offset. Also returns the
    /// size of these publications in bytes.
    pub(crate) fn restored(
        restored: RestoredStream,
        lent: &LentBytes,
        now_ms: u64,
    ) -> (Self, usize) {
        let RestoredStream {
            epoch,
            top,
            version,
            mut publications,
            ..
        } = restored;
        let touched_ms = publications.last().map_or(now_ms, |last| last.at_ms);
        let mut stream = Self {
            epoch,
            top,
            records: Records::default(),
            version: version.map(Box::new),
            touched_ms,
        };
        let mut bytes = 0;
        // Offsets are not stored but counted down from `top`, so publications before a gap can't be kept.
        let offsets = (0..=top).rev();
        let latest = publications.iter().rev().zip(offsets);
        let are_next = |(one, offset): &(&Publication, u64)| {
            one.position.map(|position| position.offset) == Some(*offset)
        };
        let count = latest.take_while(are_next).count();
        for one in publications.drain(publications.len() - count..) {
            let record = StreamRecord {
                payload: one.payload,
                at_ms: one.at_ms,
                info: one.info,
            };
            bytes += record.bytes();
            stream.records.push(record, lent);
        }
        (stream, bytes)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the offset of the oldest stored publication; if there is none, the offset that the next publication will
    /// get.
    pub(crate) fn lowest(&self) -> u64 {
        self.top + 1 - self.records.len() as u64
    }

    pub(crate) fn touched_ms(&self) -> u64 {
        self.touched_ms
    }

    pub(crate) fn position(&self) -> Position {
        Position {
            epoch: self.epoch,
            offset: self.top,
        }
    }

    /// Stores the version as the latest one and returns `true`, unless the latest version has the same epoch and the
    /// same or a higher number.
    pub(crate) fn advance_version(&mut self, version: &Version) -> bool {
        match &mut self.version {
            Some(latest) if latest.epoch == version.epoch && latest.number >= version.number => {
                false
            }
            Some(latest) => {
                (**latest).clone_from(version);
                true
            }
            None => {
                self.version = Some(Box::new(version.clone()));
                true
            }
        }
    }

    /// Stores a publication. Returns its position and its size in bytes.
    pub(crate) fn append(
        &mut self,
        (payload, info): (Payload, Option<Arc<PublicationInfo>>),
        lent: &LentBytes,
        now_ms: u64,
    ) -> (Position, usize) {
        self.top += 1;
        self.touched_ms = now_ms;
        let record = StreamRecord {
            payload,
            at_ms: now_ms,
            info,
        };
        let bytes = record.bytes();
        self.records.push(record, lent);
        (self.position(), bytes)
    }

    /// Drops publications that exceed the maximum number or have expired. Returns the number of bytes freed.
    pub(crate) fn trim(&mut self, history: &HistoryOptions, now_ms: u64) -> usize {
        let mut bytes = 0;
        while let Some(oldest) = self.records.front() {
            let is_late = now_ms.saturating_sub(oldest.at_ms) >= history.ttl_ms;
            if !is_late && self.records.len() <= history.size as usize {
                break;
            }
            bytes += self.drop_oldest();
        }
        bytes
    }

    /// Drops the oldest publication, if there is one. Returns the number of bytes freed.
    pub(crate) fn drop_oldest(&mut self) -> usize {
        self.records.pop_front().map_or(0, |oldest| oldest.bytes())
    }

    /// Drops all publications; the position stays. Returns the number of bytes freed.
    pub(crate) fn clear(&mut self) -> usize {
        let mut bytes = 0;
        while !self.records.is_empty() {
            bytes += self.drop_oldest();
        }
        bytes
    }

    /// Returns whether the stream can be closed, provided that it has no subscribers.
    pub(crate) fn is_expired(&self, history: Option<&HistoryOptions>, now_ms: u64) -> bool {
        let idle_ms = now_ms.saturating_sub(self.touched_ms);
        let kept_ms = match (history, self.top) {
            (None, _) => 0,
            (Some(_), 0) => UNUSED_TTL_MS,
            (Some(history), _) => history.position_ttl_ms,
        };
        self.records.is_empty() && idle_ms >= kept_ms
    }

    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Returns the publications that a recovering subscriber gets. `since` contains the positions that the
    /// subscriber may have reached; the first of them that belongs to this stream is used. Depending on the recovery
    /// mode, the subscriber gets the publications that it has missed, or up to `latest_max` of the latest ones.
    pub(crate) fn recover(
        &self,
        since: &[Since],
        recovery: RecoveryMode,
        latest_max: usize,
    ) -> Recovered {
        let lost = Recovered::default();
        let Some(since) = since.iter().find(|since| self.is_of(since)) else {
            return match recovery {
                RecoveryMode::Missed => lost,
                RecoveryMode::Latest => self.latest(latest_max),
            };
        };
        if recovery == RecoveryMode::Latest {
            let is_known = since.offset == self.top;
            let missed = match (is_known, latest_max) {
                (true, _) => Some(0),
                // A subscriber with a filter (`latest_max` above 1) must not get publications that it already has.
                (false, 2..) => self.missed_since(since.offset),
                (false, _) => None,
            };
            return missed.map_or_else(|| self.latest(latest_max), |missed| self.last(missed));
        }
        let missed = self.missed_since(since.offset);
        missed.map_or(lost, |missed| self.last(missed))
    }

    /// Returns how many publications a subscriber at this offset has missed; `None` if some of these are not stored.
    fn missed_since(&self, offset: u64) -> Option<usize> {
        let missed = self.top.checked_sub(offset)?;
        let missed = usize::try_from(missed).ok()?;
        (missed <= self.records.len().min(RECOVERED_MAX)).then_some(missed)
    }

    /// Returns the latest `missed` publications as the result of a complete recovery.
    fn last(&self, missed: usize) -> Recovered {
        let count = self.records.len();
        Recovered {
            is_complete: true,
            predecessor: self.predecessor_at(count - missed..count),
            publications: self.publications(count - missed..count).collect(),
            is_latest_only: false,
        }
    }

    /// Returns the payload of the latest publication, if that publication is stored.
    pub(crate) fn latest_payload(&self) -> Option<Payload> {
        self.records.back().map(|record| record.payload.clone())
    }

    /// Returns the publisher of the latest publication, if that publication is stored.
    pub(crate) fn latest_publisher(&self) -> Publisher<'_> {
        publisher_of(self.records.back()?)
    }

    /// Returns the publisher of more than half of the stored bytes, or any publisher if none has more than half. Also
    /// returns the counter of Boyer and Moore's majority vote, in bytes.
    pub(crate) fn main_publisher(&self) -> (Publisher<'_>, usize) {
        let mut owner = None;
        let mut lead = 0_usize;
        for record in self.records.range(0..self.records.len()) {
            let (publisher, bytes) = (publisher_of(record), record.bytes());
            if publisher == owner {
                lead += bytes;
                continue;
            }
            if bytes > lead {
                owner = publisher;
            }
            lead = lead.abs_diff(bytes);
        }
        (owner, lead)
    }

    fn latest(&self, latest_max: usize) -> Recovered {
        let count = self.records.len();
        let first = count.saturating_sub(latest_max);
        let publications: Vec<_> = self.publications(first..count).collect();
        Recovered {
            is_complete: !publications.is_empty(),
            predecessor: self.predecessor_at(first..count),
            publications,
            is_latest_only: true,
        }
    }

    /// Returns the offset of the predecessor of the first record in this range of indices; 0 if the range is empty.
    fn predecessor_at(&self, places: std::ops::Range<usize>) -> u64 {
        let first = self.lowest() + places.start as u64;
        if places.is_empty() { 0 } else { first - 1 }
    }

    /// Returns a page of the history.
    ///
    /// # Errors
    /// Returns [`HistoryError::Unrecoverable`] if the position belongs to another stream, and [`HistoryError::TooMany`]
    /// if more than `answer_max` publications are requested.
    pub(crate) fn page(
        &self,
        query: &HistoryQuery,
        answer_max: usize,
    ) -> Result<HistoryPage, HistoryError> {
        let count = self.records.len();
        let lowest = self.lowest();
        if query.since.is_some_and(|since| !self.is_of(&since)) {
            return Err(HistoryError::Unrecoverable);
        }
        let mut places = match (&query.since, query.is_reverse) {
            (since, false) => {
                let behind = since.map_or(lowest, |since| since.offset.saturating_add(1));
                let first = behind.saturating_sub(lowest).min(count as u64) as usize;
                first..first.saturating_add(query.limit).min(count)
            }
            (since, true) => {
                let before = since.map_or(self.top.saturating_add(1), |since| since.offset);
                let end = before.saturating_sub(lowest).min(count as u64) as usize;
                end.saturating_sub(query.limit)..end
            }
        };
        // A limit of `usize::MAX` requests all publications.
        let asked = match query.limit {
            usize::MAX => places.len(),
            limit => limit,
        };
        if asked > answer_max {
            return Err(HistoryError::TooMany(answer_max));
        }
        let records = self.records.range(places.clone());
        let fitting = match query.is_reverse {
            false => count_within(records, query.bytes_max),
            true => count_within(records.rev(), query.bytes_max),
        };
        match query.is_reverse {
            false => places.end = places.start + fitting,
            true => places.start = places.end - fitting,
        }
        let lowest = lowest + places.start as u64;
        let excerpt = self.records.share(places);
        Ok(HistoryPage::new(
            self.position(),
            excerpt,
            lowest,
            query.is_reverse,
        ))
    }

    fn is_of(&self, since: &Since) -> bool {
        since.epoch.is_none_or(|epoch| epoch == self.epoch)
    }

    fn publications(&self, places: std::ops::Range<usize>) -> impl Iterator<Item = Publication> {
        let first = self.lowest() + places.start as u64;
        let records = self.records.range(places);
        records.zip(first..).map(|(record, offset)| {
            record.publication(Position {
                epoch: self.epoch,
                offset,
            })
        })
    }
}

fn publisher_of(record: &StreamRecord) -> Publisher<'_> {
    let client = record.info.as_ref()?.client.as_ref()?;
    Some(&client.user)
}

/// Returns how many records fit into `bytes_max` bytes, but at least one if there is any.
fn count_within<'a>(records: impl Iterator<Item = &'a StreamRecord>, bytes_max: usize) -> usize {
    if bytes_max == usize::MAX {
        return records.count();
    }
    let mut bytes = 0;
    let fits = |record: &&StreamRecord| {
        let is_first = bytes == 0;
        bytes += RECORD_BYTES + record.payload.bytes.len();
        is_first || bytes <= bytes_max
    };
    records.take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::PayloadKind;

    const HISTORY: HistoryOptions = HistoryOptions {
        size: 5,
        ttl_ms: 1_000,
        position_ttl_ms: 10_000,
        recovery: RecoveryMode::Missed,
        budget: crate::Budget::COMMON,
    };

    fn epoch() -> Epoch {
        Epoch::from_bits(7)
    }

    /// Returns a stream to which `count` publications were published, one every 100 ms.
    fn stream(count: u64) -> Stream {
        let mut stream = Stream::new(epoch(), 0);
        for number in 1..=count {
            let payload = Payload {
                kind: PayloadKind::Text,
                bytes: Bytes::from(number.to_string()),
            };
            let (position, _) = stream.append((payload, None), &LentBytes::default(), number * 100);
            assert_eq!(position.offset, number);
            stream.trim(&HISTORY, number * 100);
        }
        stream
    }

    fn since(offset: u64) -> Since {
        Since {
            epoch: Some(epoch()),
            offset,
        }
    }

    fn offsets(publications: &[Publication]) -> Vec<u64> {
        let offset = |one: &Publication| {
            let text = String::from_utf8(one.payload.bytes.to_vec()).expect("digits");
            let offset = one.position.expect("it has one").offset;
            assert_eq!(text, offset.to_string());
            offset
        };
        publications.iter().map(offset).collect()
    }

    #[test]
    fn recovery_is_complete_or_reported_incomplete() {
        let stream = stream(8);
        let foreign = Since {
            epoch: Some(Epoch::UNKNOWN),
            offset: 8,
        };
        let any = Since {
            epoch: None,
            offset: 6,
        };
        let rows: [(&[Since], Option<&[u64]>); 8] = [
            (&[since(8)], Some(&[])),
            (&[since(6)], Some(&[7, 8])),
            (&[since(3)], Some(&[4, 5, 6, 7, 8])),
            (&[since(2)], None),
            (&[since(9)], None),
            (&[foreign], None),
            (&[any], Some(&[7, 8])),
            (&[foreign, since(7)], Some(&[8])),
        ];
        for (asked, expected) in rows {
            let recovered = stream.recover(asked, RecoveryMode::Missed, 1);
            assert_eq!(recovered.is_complete, expected.is_some(), "{asked:?}");
            let expected = expected.unwrap_or_default();
            assert_eq!(offsets(&recovered.publications), expected, "{asked:?}");
        }
    }

    #[test]
    fn new_and_empty_streams_recover_up_to_date_subscribers() {
        let mut stream = Stream::new(epoch(), 0);
        assert!(
            stream
                .recover(&[since(0)], RecoveryMode::Missed, 1)
                .is_complete
        );
        assert!(
            !stream
                .recover(&[since(1)], RecoveryMode::Missed, 1)
                .is_complete
        );
        let latest = stream.recover(&[since(0)], RecoveryMode::Latest, 1);
        assert!(latest.publications.is_empty());
        stream = self::stream(3);
        stream.trim(&HISTORY, 5_000);
        assert!(!stream.has_records());
        assert!(
            stream
                .recover(&[since(3)], RecoveryMode::Missed, 1)
                .is_complete
        );
        assert!(
            !stream
                .recover(&[since(2)], RecoveryMode::Missed, 1)
                .is_complete
        );
        let query = HistoryQuery {
            limit: 9,
            ..HistoryQuery::default()
        };
        let page = stream.page(&query, usize::MAX);
        assert_eq!(page.expect("of this stream").position.offset, 3);
    }

    #[test]
    fn latest_mode_recovers_the_latest() {
        let stream = stream(8);
        let rows: [(&[Since], &[u64]); 4] = [
            (&[since(8)], &[]),
            (&[since(7)], &[8]),
            (&[since(1)], &[8]),
            (&[], &[8]),
        ];
        for (asked, expected) in rows {
            let recovered = stream.recover(asked, RecoveryMode::Latest, 1);
            assert!(recovered.is_complete);
            assert_eq!(offsets(&recovered.publications), expected, "{asked:?}");
        }
    }

    #[test]
    fn more_than_can_be_sent_is_not_recovered() {
        let mut stream = Stream::new(epoch(), 0);
        for _ in 0..RECOVERED_MAX + 1 {
            let payload = Payload {
                kind: PayloadKind::Text,
                bytes: Bytes::new(),
            };
            stream.append((payload, None), &LentBytes::default(), 0);
        }
        assert!(
            !stream
                .recover(&[since(0)], RecoveryMode::Missed, 1)
                .is_complete
        );
        let recovered = stream.recover(&[since(1)], RecoveryMode::Missed, 1);
        assert_eq!(recovered.publications.len(), RECOVERED_MAX);
    }

    #[test]
    fn pages_go_both_ways() {
        // The stream stores the publications 4 to 8.
        let stream = stream(8);
        let rows: [(Option<u64>, usize, bool, &[u64]); 12] = [
            (None, 9, false, &[4, 5, 6, 7, 8]),
            (None, 2, false, &[4, 5]),
            (None, 0, false, &[]),
            (Some(0), 2, false, &[4, 5]),
            (Some(5), 2, false, &[6, 7]),
            (Some(8), 2, false, &[]),
            (Some(u64::MAX), 2, false, &[]),
            (None, 2, true, &[8, 7]),
            (Some(6), 2, true, &[5, 4]),
            (Some(4), 2, true, &[]),
            (Some(0), 2, true, &[]),
            (Some(u64::MAX), usize::MAX, true, &[8, 7, 6, 5, 4]),
        ];
        for (offset, limit, is_reverse, expected) in rows {
            let query = HistoryQuery {
                since: offset.map(since),
                limit,
                is_reverse,
                ..HistoryQuery::default()
            };
            let page = stream.page(&query, 9).expect("of this stream");
            let publications: Vec<_> = page.iter().collect();
            assert_eq!(offsets(&publications), expected, "{query:?}");
            assert_eq!(page.position.offset, 8);
        }
        let foreign = HistoryQuery {
            since: Some(Since {
                epoch: Some(Epoch::UNKNOWN),
                offset: 5,
            }),
            ..HistoryQuery::default()
        };
        let unrecoverable = Err(HistoryError::Unrecoverable);
        assert_eq!(stream.page(&foreign, 9), unrecoverable);
    }

    #[test]
    fn an_answer_with_more_than_it_may_have_is_refused() {
        // The stream stores the publications 4 to 8.
        let stream = stream(8);
        for (offset, limit, is_refused) in [
            (None, usize::MAX, true),
            (Some(4), usize::MAX, false),
            (None, 4, false),
            // A limit above the maximum is refused even if fewer publications are stored after the position.
            (Some(8), 5, true),
            (None, 0, false),
        ] {
            for is_reverse in [false, true] {
                let query = HistoryQuery {
                    since: offset.filter(|_| !is_reverse).map(since),
                    limit,
                    is_reverse,
                    ..HistoryQuery::default()
                };
                let is_refused = is_refused || is_reverse && limit == usize::MAX;
                let page = stream.page(&query, 4);
                let error = is_refused.then_some(HistoryError::TooMany(4));
                assert_eq!(page.err(), error, "{query:?}");
            }
        }
    }

    #[test]
    fn pages_are_limited_by_bytes() {
        const BYTES_MAX: usize = 9_000;
        let mut stream = Stream::new(epoch(), 0);
        for _ in 0..4 {
            let payload = Payload {
                kind: PayloadKind::Binary,
                bytes: Bytes::from(vec![0; BYTES_MAX / 3]),
            };
            stream.append((payload, None), &LentBytes::default(), 0);
        }
        let query = |since: Option<u64>, is_reverse| HistoryQuery {
            since: since.map(self::since),
            limit: usize::MAX,
            is_reverse,
            bytes_max: BYTES_MAX,
        };
        let count = |query| {
            let page = stream.page(&query, usize::MAX);
            page.expect("of this stream").len()
        };
        assert_eq!(count(query(None, false)), 2);
        assert_eq!(count(query(Some(2), false)), 2);
        assert_eq!(count(query(None, true)), 2);
        let large = Payload {
            kind: PayloadKind::Binary,
            bytes: Bytes::from(vec![0; 2 * BYTES_MAX]),
        };
        stream.append((large, None), &LentBytes::default(), 0);
        let count = |query| {
            let page = stream.page(&query, usize::MAX);
            page.expect("of this stream").len()
        };
        assert_eq!(count(query(Some(4), false)), 1);
        let all = HistoryQuery {
            bytes_max: usize::MAX,
            ..query(None, true)
        };
        assert_eq!(count(all), 5);
    }

    #[test]
    fn stale_versions_are_not_taken() {
        let mut stream = stream(0);
        let version = |number, epoch: &str| Version {
            number,
            epoch: epoch.into(),
        };
        for (number, epoch, is_taken) in [
            (5, "a", true),
            (5, "a", false),
            (4, "a", false),
            (6, "a", true),
            (1, "b", true),
            (1, "b", false),
            (6, "a", true),
        ] {
            let taken = stream.advance_version(&version(number, epoch));
            assert_eq!(taken, is_taken, "{number} {epoch}");
        }
    }

    #[test]
    fn bytes_survive_a_round_trip() {
        let mut stream = Stream::new(epoch(), 0);
        let mut bytes = 0;
        for number in 0..20 {
            let payload = Payload {
                kind: PayloadKind::Text,
                bytes: Bytes::from(vec![b'x'; number]),
            };
            bytes += stream.append((payload, None), &LentBytes::default(), 0).1;
            bytes -= stream.trim(&HISTORY, 0);
        }
        bytes -= stream.drop_oldest();
        assert_eq!(bytes - stream.clear(), 0);
        assert!(stream.is_expired(Some(&HISTORY), 10_000));
        assert!(!stream.is_expired(Some(&HISTORY), 9_999));
        assert!(stream.is_expired(None, 0));
    }
}
