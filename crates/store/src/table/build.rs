//! Bulk construction of indexes from existing rows: entries are sorted and put into full leaves, which is faster than inserting
//! row by row.
//!
//! Entries are sorted in pieces, so that little more memory is used than the finished index takes. A sample of the entries
//! determines the bounds of the pieces. Pieces are large at first, while the index is small, and shrink later.

use super::error::TableError;
use super::index::{AnyTree, TableIndex};
use super::job::{Job, JobError};
use super::key::{KeyShape, TreeKey};
use super::rows::{RowPosition, TableRows};
use super::tree::{Entry, Tree};
use super::{State, Table};

/// A part of the maximum memory of a piece, in bytes. The other part is the memory that the finished index will take
/// in addition to the piece.
const PIECE_BYTES: usize = 12 << 20;
/// Size in bytes above which the system's allocator uses a separate memory mapping. Such memory is returned to the system when
/// it is freed, unlike smaller allocations; and pages that are never touched cost nothing.
const OWN_MAPPING: usize = 33 << 20;
/// If the entries of all rows take fewer bytes than this, pieces get no separate memory mapping, because they are too
/// small for it to matter.
const PIECE_BYTES_FEW: usize = 1 << 20;
/// Number of entries in the sample that determines the bounds of pieces. A larger sample gives more even pieces.
const SAMPLE: usize = 16 << 10;
/// Approximate size of an entry in a finished index, in bytes.
const ENTRY_BYTES: usize = 5;

/// Builds all indexes of the table except the index of its keys, on several threads. The rows must not change meanwhile.
pub(super) fn indexes(
    table: &Table,
    rows: &TableRows,
    job: &Job,
) -> Result<Vec<TableIndex>, JobError> {
    let mut empty = State::new(&table.schema, &table.shape).indexes;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done = Vec::with_capacity(empty.len());
    while !empty.is_empty() {
        let some: Vec<TableIndex> = empty.drain(..threads.min(empty.len())).collect();
        let names = table.schema.indexes[done.len()..].iter();
        let pairs = some
            .into_iter()
            .zip(names.map(|index| &*index.name))
            .collect();
        done.extend(run_parallel(pairs, |(index, name)| {
            fill(index, name, table, rows, job)
        })?);
    }
    Ok(done)
}

/// Runs each task on its own thread, except the first, which runs on the current thread.
fn run_parallel<T: Send, R: Send>(
    list: Vec<T>,
    each: impl Fn(T) -> Result<R, JobError> + Sync,
) -> Result<Vec<R>, JobError> {
    let each = &each;
    let mut list = list.into_iter();
    let Some(first) = list.next() else {
        return Ok(Vec::new());
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = list
            .map(|one| {
                let thread = std::thread::Builder::new().name("table".to_owned());
                thread.spawn_scoped(scope, move || each(one))
            })
            .collect();
        let mut done = vec![each(first)];
        for thread in others {
            done.push(match thread {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|cause| std::panic::resume_unwind(cause)),
                Err(error) => Err(JobError::Thread(error.to_string())),
            });
        }
        done.into_iter().collect()
    })
}

/// Fills an empty index.
pub(super) fn fill(
    mut index: TableIndex,
    name: &str,
    table: &Table,
    rows: &TableRows,
    job: &Job,
) -> Result<TableIndex, JobError> {
    let source = IndexBuilder {
        keys: &index.shape,
        unique: index.is_unique.then_some(name),
        table,
        rows,
        job,
    };
    match &mut index.tree {
        AnyTree::Narrow(tree) => source.fill(tree)?,
        AnyTree::Medium(tree) => source.fill(tree)?,
        AnyTree::Wide(tree) => source.fill(tree)?,
    }
    Ok(index)
}

/// The data from which one index is built.
struct IndexBuilder<'a> {
    keys: &'a KeyShape,
    /// The name of the index if it is unique.
    unique: Option<&'a str>,
    table: &'a Table,
    rows: &'a TableRows,
    job: &'a Job,
}

impl IndexBuilder<'_> {
    fn entries<K: TreeKey>(&self, mut each: impl FnMut(Entry<K>)) -> Result<(), JobError> {
        let shape = &self.table.shape;
        for leaf in self.rows.leaves() {
            self.job.check()?;
            for place in 0..leaf.len() {
                let position = RowPosition { leaf, place };
                if self.keys.has(|column| position.get(shape, column)) {
                    each((self.keys.key_at(shape, position), leaf.number(place)));
                }
            }
        }
        Ok(())
    }

    /// Returns a sorted sample of entries, evenly spread over the rows.
    fn sample<K: TreeKey>(&self) -> Result<Vec<Entry<K>>, JobError> {
        let every = (self.rows.count() / SAMPLE).max(1);
        let mut sample = Vec::with_capacity(SAMPLE * 2);
        let mut seen = 0_usize;
        let shape = &self.table.shape;
        for leaf in self.rows.leaves() {
            self.job.check()?;
            let first = (every - seen % every) % every;
            for place in (first..leaf.len()).step_by(every) {
                let position = RowPosition { leaf, place };
                if self.keys.has(|column| position.get(shape, column)) {
                    sample.push((self.keys.key_at(shape, position), leaf.number(place)));
                }
            }
            seen += leaf.len();
        }
        sample.sort_unstable();
        Ok(sample)
    }

    fn fill<K: TreeKey>(&self, tree: &mut Tree<K>) -> Result<(), JobError> {
        let sample = self.sample::<K>()?;
        let count = self.rows.count();
        let each_stands_for = (count / sample.len().max(1)).max(1);
        // Keys of the widest form are stored on the heap.
        let heap = sample.iter().map(|entry| entry.0.heap_bytes()).max();
        let entry_bytes = size_of::<Entry<K>>() + heap.unwrap_or(0);
        let mut piece: Vec<Entry<K>> = Vec::new();
        let mut low: Option<Entry<K>> = None;
        let mut last: Option<Entry<K>> = None;
        let mut sampled = 0;
        loop {
            let lacking = count.saturating_sub(tree.count()) * ENTRY_BYTES;
            let most = (lacking + PIECE_BYTES) / entry_bytes;
            sampled += (most / each_stands_for).max(1);
            let high = sample.get(sampled).cloned();
            // The number of entries is estimated, with a margin, so that the vector need not grow.
            let expected = match high {
                Some(_) => most,
                None => lacking / ENTRY_BYTES,
            };
            let expected = expected.min(count) * 17 / 16;
            piece.reserve_exact(match count * size_of::<Entry<K>>() {
                0..PIECE_BYTES_FEW => expected,
                _ => expected.max(OWN_MAPPING / size_of::<Entry<K>>()),
            });
            self.entries(|entry| {
                let is_in = low.as_ref().is_none_or(|low| entry >= *low)
                    && high.as_ref().is_none_or(|high| entry < *high);
                if is_in {
                    piece.push(entry);
                }
            })?;
            piece.sort_unstable();
            self.check_unique(last.as_ref(), &piece)?;
            tree.append(&piece);
            last = piece.pop().or(last);
            piece = Vec::new();
            low = Some(match high {
                Some(high) => high,
                None => return Ok(()),
            });
        }
    }

    fn check_unique<K: TreeKey>(
        &self,
        last: Option<&Entry<K>>,
        piece: &[Entry<K>],
    ) -> Result<(), TableError> {
        let Some(name) = self.unique else {
            return Ok(());
        };
        let others = last.into_iter().chain(piece);
        let offset = usize::from(last.is_none());
        for (one, other) in others.zip(&piece[offset.min(piece.len())..]) {
            if one.0 != other.0 {
                continue;
            }
            let position = self
                .rows
                .find(other.1)
                .expect("the row was found before and must still exist");
            let value = |column: usize| position.get(&self.table.shape, column);
            if self.keys.is_whole(value) {
                return Err(self.table.unique_violation(name, self.keys, value));
            }
        }
        Ok(())
    }
}
