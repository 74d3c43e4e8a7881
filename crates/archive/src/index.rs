//! The row numbers of each stream's publications. Converts records into row changes. Publications added and removed
//! within one group never reach the file. The module accesses no file and no clock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::record::{ArchiveRecord, StoredPublication, StoredVersion};

/// The rows of all streams.
#[derive(Debug, Default)]
pub(crate) struct Index {
    streams: HashMap<Arc<str>, IndexedStream, foldhash::fast::RandomState>,
    publications: u64,
    /// The highest row number given to a publication.
    number: u64,
    /// The highest row number given to a stream.
    id: u64,
}

/// The state of a stream, kept in memory so that it need not be read from the database.
#[derive(Debug)]
pub(crate) struct IndexedStream {
    pub(crate) id: u64,
    pub(crate) epoch: u64,
    pub(crate) opened_ms: u64,
    pub(crate) top: u64,
    /// The last version, with the offset of its publication; the offset is 0 if that publication is no longer stored.
    version: Option<Box<(u64, StoredVersion)>>,
    rows: VecDeque<RowLocation>,
}

/// The offset of a stored publication, and the number of its row.
#[derive(Clone, Copy, Debug)]
struct RowLocation {
    offset: u64,
    number: u64,
}

/// The changes of one group, which are committed atomically. Applying them twice has the same effect as once.
#[derive(Debug, Default)]
pub(crate) struct ChangeSet {
    /// Publications to add, by row number from `first` on; `None` if the same group removes the
    /// publication again.
    pub(crate) added: Vec<Option<PublicationRow>>,
    pub(crate) first: u64,
    /// Row numbers of publications to delete, as ranges of first and last.
    pub(crate) removed: Vec<(u64, u64)>,
    /// New states of streams.
    pub(crate) streams: Vec<StreamRow>,
    /// Row numbers of streams to delete.
    pub(crate) dropped: Vec<u64>,
    pub(crate) ignored: u64,
    numbers: Vec<u64>,
    changed: HashSet<Arc<str>, foldhash::fast::RandomState>,
}

/// The row of a publication.
#[derive(Debug)]
pub(crate) struct PublicationRow {
    pub(crate) stream: u64,
    pub(crate) publication: StoredPublication,
}

/// The row of a stream. While the stream has publications, their latest offset and version override
/// `top` and `version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRow {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) epoch: u64,
    pub(crate) opened_ms: u64,
    pub(crate) top: u64,
    pub(crate) version: Option<StoredVersion>,
}

impl Index {
    pub(crate) fn streams(&self) -> u64 {
        self.streams.len() as u64
    }

    pub(crate) fn publications(&self) -> u64 {
        self.publications
    }

    /// Adds a stream that was read from the database.
    pub(crate) fn load(&mut self, head: &StreamRow) {
        self.id = self.id.max(head.id);
        let stream = IndexedStream {
            id: head.id,
            epoch: head.epoch,
            opened_ms: head.opened_ms,
            top: head.top,
            version: head.version.clone().map(|version| Box::new((0, version))),
            rows: VecDeque::new(),
        };
        self.streams.insert(Arc::clone(&head.name), stream);
    }

    /// Adds a publication that was read from the database. Publications must be added oldest first.
    pub(crate) fn load_row(
        &mut self,
        name: &Arc<str>,
        number: u64,
        publication: &StoredPublication,
    ) {
        self.skip_to(number);
        if let Some(stream) = self.streams.get_mut(name) {
            stream.push(number, publication);
            self.publications += 1;
        }
    }

    /// Reserves row numbers up to this one, so that no new publication gets them.
    pub(crate) fn skip_to(&mut self, number: u64) {
        self.number = self.number.max(number);
    }

    /// Reserves row numbers up to this one, so that no new stream gets them.
    pub(crate) fn skip_to_stream(&mut self, id: u64) {
        self.id = self.id.max(id);
    }

    /// Converts the records of a group into row changes, which are committed together.
    pub(crate) fn change_set(
        &mut self,
        records: impl IntoIterator<Item = ArchiveRecord>,
    ) -> ChangeSet {
        let mut plan = ChangeSet {
            first: self.number + 1,
            ..ChangeSet::default()
        };
        for record in records {
            self.apply(record, &mut plan);
        }
        plan.finish(self);
        plan
    }

    fn apply(&mut self, record: ArchiveRecord, plan: &mut ChangeSet) {
        match record {
            ArchiveRecord::Opened {
                channel,
                epoch,
                at_ms,
            } => self.open(channel, epoch, at_ms, plan),
            ArchiveRecord::Published {
                channel,
                epoch,
                publication,
            } => self.publish(&channel, epoch, publication, plan),
            ArchiveRecord::Trimmed { channel, below } => self.trim(&channel, below, plan),
            ArchiveRecord::Cleared { channel } => self.trim(&channel, u64::MAX, plan),
            ArchiveRecord::Dropped { channel } => self.forget(&channel, plan),
        }
    }

    fn open(&mut self, channel: Arc<str>, epoch: u64, at_ms: u64, plan: &mut ChangeSet) {
        if self
            .streams
            .get(&channel)
            .is_some_and(|stream| stream.epoch == epoch)
        {
            plan.ignored += 1;
            return;
        }
        if self.streams.contains_key(&channel) {
            self.forget(&channel, plan);
        }
        self.id += 1;
        let stream = IndexedStream {
            id: self.id,
            epoch,
            opened_ms: at_ms,
            top: 0,
            version: None,
            rows: VecDeque::new(),
        };
        plan.changed.insert(Arc::clone(&channel));
        self.streams.insert(channel, stream);
    }

    fn publish(
        &mut self,
        channel: &Arc<str>,
        epoch: u64,
        publication: StoredPublication,
        plan: &mut ChangeSet,
    ) {
        let is_known = self
            .streams
            .get(channel)
            .is_some_and(|stream| stream.epoch == epoch);
        if !is_known {
            self.open(Arc::clone(channel), epoch, publication.at_ms, plan);
        }
        let Some(stream) = self.streams.get_mut(channel) else {
            return;
        };
        if publication.offset <= stream.top {
            plan.ignored += 1;
            return;
        }
        self.number += 1;
        self.publications += 1;
        stream.push(self.number, &publication);
        plan.added.push(Some(PublicationRow {
            stream: stream.id,
            publication,
        }));
    }

    fn trim(&mut self, channel: &Arc<str>, below: u64, plan: &mut ChangeSet) {
        let Some(stream) = self.streams.get_mut(channel) else {
            plan.ignored += 1;
            return;
        };
        let gone = stream.rows.partition_point(|place| place.offset < below);
        if gone == 0 {
            plan.ignored += 1;
            return;
        }
        for place in stream.rows.drain(..gone) {
            plan.remove(place.number);
        }
        self.publications -= gone as u64;
        if stream.rows.capacity() > 4 * (stream.rows.len() + 8) {
            stream.rows.shrink_to(2 * stream.rows.len());
        }
        // Data that was stored only with the removed publications must now be written to the
        // stream's row.
        let is_version_gone = stream
            .version
            .as_ref()
            .is_some_and(|version| version.0 != 0 && version.0 < below);
        if stream.rows.is_empty() || is_version_gone {
            if let Some(version) = stream.version.as_mut().filter(|_| is_version_gone) {
                version.0 = 0;
            }
            plan.changed.insert(Arc::clone(channel));
        }
    }

    fn forget(&mut self, channel: &Arc<str>, plan: &mut ChangeSet) {
        let Some(stream) = self.streams.remove(channel) else {
            plan.ignored += 1;
            return;
        };
        self.publications -= stream.rows.len() as u64;
        for place in stream.rows {
            plan.remove(place.number);
        }
        plan.changed.remove(channel);
        plan.dropped.push(stream.id);
    }
}

impl IndexedStream {
    fn push(&mut self, number: u64, publication: &StoredPublication) {
        self.top = publication.offset;
        if let Some(version) = &publication.version {
            self.version = Some(Box::new((publication.offset, version.clone())));
        }
        self.rows.push_back(RowLocation {
            offset: publication.offset,
            number,
        });
    }
}

impl ChangeSet {
    /// Returns a change set that only removes rows.
    pub(crate) fn of_repairs(publications: Vec<u64>, streams: Vec<u64>) -> Self {
        let mut plan = Self {
            numbers: publications,
            dropped: streams,
            ..Self::default()
        };
        plan.finish(&Index::default());
        plan
    }

    /// Returns whether there are no changes.
    pub(crate) fn is_empty(&self) -> bool {
        let has_rows = self.added.iter().any(Option::is_some);
        !has_rows && self.removed.is_empty() && self.streams.is_empty() && self.dropped.is_empty()
    }

    fn remove(&mut self, number: u64) {
        match number.checked_sub(self.first) {
            Some(at) => self.added[at as usize] = None,
            None => self.numbers.push(number),
        }
    }

    fn finish(&mut self, index: &Index) {
        let mut numbers = mem::take(&mut self.numbers);
        numbers.sort_unstable();
        let runs = numbers.chunk_by(|before, after| before + 1 == *after);
        self.removed = runs.map(|run| (run[0], run[run.len() - 1])).collect();
        for name in mem::take(&mut self.changed) {
            if let Some(stream) = index.streams.get(&name) {
                self.streams.push(StreamRow {
                    id: stream.id,
                    epoch: stream.epoch,
                    opened_ms: stream.opened_ms,
                    top: stream.top,
                    version: stream.version.as_ref().map(|version| version.1.clone()),
                    name,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn published(channel: &str, epoch: u64, offset: u64, version: Option<u64>) -> ArchiveRecord {
        let publication = StoredPublication {
            offset,
            at_ms: 1000 + offset,
            kind: 1,
            payload: Bytes::from_static(b"x"),
            version: version.map(|number| StoredVersion {
                number,
                epoch: None,
            }),
            extra: None,
        };
        ArchiveRecord::Published {
            channel: channel.into(),
            epoch,
            publication,
        }
    }

    fn trimmed(channel: &str, below: u64) -> ArchiveRecord {
        ArchiveRecord::Trimmed {
            channel: channel.into(),
            below,
        }
    }

    #[test]
    fn a_publication_added_and_removed_in_one_group_is_not_written() {
        let mut index = Index::default();
        let plan = index.change_set([
            published("a", 7, 1, None),
            published("a", 7, 2, None),
            trimmed("a", 2),
        ]);
        assert!(plan.added[0].is_none());
        assert_eq!(
            plan.added[1].as_ref().map(|row| row.publication.offset),
            Some(2)
        );
        assert!(plan.removed.is_empty());
        let plan = index.change_set([
            published("b", 7, 1, None),
            ArchiveRecord::Dropped {
                channel: "b".into(),
            },
        ]);
        assert!(plan.streams.is_empty() && plan.added[0].is_none());
        assert_eq!((index.streams(), index.publications()), (1, 1));
    }

    #[test]
    fn rows_go_in_runs() {
        let mut index = Index::default();
        let _ = index.change_set((1..=6).flat_map(|offset| {
            [
                published("a", 1, offset, None),
                published("b", 1, offset, None),
            ]
        }));
        let plan = index.change_set([trimmed("b", 4), trimmed("a", 3)]);
        // Stream `a` has the rows 1 and 3, stream `b` the rows 2, 4 and 6.
        assert_eq!(plan.removed, [(1, 4), (6, 6)]);
        assert!(plan.streams.is_empty());
    }

    #[test]
    fn the_last_word_on_top_and_version_moves_to_the_stream() {
        let mut index = Index::default();
        let _ = index.change_set([published("a", 1, 1, Some(5)), published("a", 1, 2, None)]);
        let plan = index.change_set([trimmed("a", 2)]);
        assert_eq!(
            plan.streams[0]
                .version
                .as_ref()
                .map(|version| version.number),
            Some(5)
        );
        let plan = index.change_set([ArchiveRecord::Cleared {
            channel: "a".into(),
        }]);
        assert_eq!(plan.streams[0].top, 2);
        assert_eq!(
            plan.streams[0]
                .version
                .as_ref()
                .map(|version| version.number),
            Some(5)
        );
    }

    #[test]
    fn another_epoch_is_another_stream() {
        let mut index = Index::default();
        let _ = index.change_set([published("a", 1, 9, None)]);
        let plan = index.change_set([published("a", 2, 1, None)]);
        assert_eq!(
            (plan.dropped.as_slice(), plan.removed.as_slice()),
            ([1].as_slice(), [(1, 1)].as_slice())
        );
        assert_eq!((plan.streams[0].epoch, plan.streams[0].top), (2, 1));
        assert_eq!(index.publications(), 1);
    }

    #[test]
    fn a_streams_memory_shrinks_when_most_of_it_is_gone_and_not_before() {
        let mut index = Index::default();
        let _ = index.change_set((1..=1000).map(|offset| published("a", 1, offset, None)));
        let capacity = |index: &Index| index.streams["a"].rows.capacity();
        let full = capacity(&index);
        assert!((1000..2000).contains(&full), "{full}");
        let _ = index.change_set([trimmed("a", 700)]);
        assert_eq!(capacity(&index), full, "about a third is left");
        let _ = index.change_set([trimmed("a", 901)]);
        assert_eq!(capacity(&index), 200, "room for as much as is left");
        let _ = index.change_set([ArchiveRecord::Cleared {
            channel: "a".into(),
        }]);
        assert_eq!(capacity(&index), 0);
    }

    #[test]
    fn redundant_records_are_counted_and_change_nothing() {
        let mut index = Index::default();
        let _ = index.change_set([published("a", 1, 4, None)]);
        let plan = index.change_set([
            published("a", 1, 4, None),
            trimmed("a", 2),
            trimmed("nobody", 2),
            ArchiveRecord::Cleared {
                channel: "nobody".into(),
            },
            ArchiveRecord::Dropped {
                channel: "nobody".into(),
            },
            ArchiveRecord::Opened {
                channel: "a".into(),
                epoch: 1,
                at_ms: 5,
            },
        ]);
        assert!(plan.is_empty());
        assert_eq!(plan.ignored, 6);
    }
}
