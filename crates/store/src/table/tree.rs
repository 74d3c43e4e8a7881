//! An index: row numbers in the order of the indexed values.
//!
//! A leaf contains only row numbers, four bytes each; the indexed values are read from the rows. Only the key of a leaf's first
//! entry is stored, in branches like those of [rows](super::rows), so a search reads rows of a single leaf only.

use super::index::KeyReader;
use super::key::TreeKey;
use super::room::{heap_bytes, make_room, release_room};
use super::rows::RowPosition;

/// Maximum number of entries of a leaf.
pub(super) const LEAF_MAX: usize = 256;
/// A leaf with fewer entries than this is merged with a neighbour.
const MERGE_BELOW: usize = LEAF_MAX / 4;
const STEP: usize = LEAF_MAX / 16;
/// Maximum number of leaves of a branch.
const LEAVES_MAX: usize = 256;
/// Number of rows that a search in a leaf reads at a time.
const PROBES: usize = 7;

/// A complete entry: the key, and the row number, which distinguishes equal keys.
pub(super) type Entry<K> = (K, u32);

/// A leaf with a lower bound of its entries.
#[derive(Debug)]
struct Leaf<K> {
    /// An entry that is at or before all entries of this leaf, and after all entries of the previous leaf.
    first: Entry<K>,
    rows: Vec<u32>,
}

#[derive(Debug)]
struct Branch<K> {
    /// A lower bound of the entries of the branch's first leaf.
    first: Entry<K>,
    leaves: Vec<Leaf<K>>,
}

#[derive(Debug)]
pub(super) struct Tree<K> {
    branches: Vec<Branch<K>>,
    count: usize,
    bytes: usize,
}

/// A position between entries: branch, leaf, index in the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TreePosition {
    branch: usize,
    leaf: usize,
    place: usize,
}

/// Whether a position is before or after an entry, if the entry exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Before,
    Behind,
}

impl<K: TreeKey> Branch<K> {
    /// Returns the index of `entry` in a leaf. If the entry is missing, or `edge` is `Behind`, returns the index of the
    /// first entry after it.
    ///
    /// The rows of a leaf are scattered in memory, so cache misses dominate the cost of a search. Therefore several rows are
    /// fetched in parallel, which takes little longer than fetching one: the first rows are around the index where the entry
    /// should be if keys are spread evenly, and the next rows are between the two rows that enclose the entry. If the keys
    /// don't permit a guess, the first rows are spread over the whole leaf.
    fn search(&self, leaf: usize, entry: &Entry<K>, edge: Edge, keys: &KeyReader<'_>) -> usize {
        let is_before = |position: RowPosition<'_>| {
            let order = keys.compare_at(position, &entry.0);
            let order = order.then_with(|| position.number().cmp(&entry.1));
            order.is_lt() || edge == Edge::Behind && order.is_eq()
        };
        let Leaf { first, rows } = &self.leaves[leaf];
        let (mut low, mut high) = (0, rows.len());
        let next = self.leaves.get(leaf + 1).filter(|_| high > PROBES);
        let share = next.and_then(|next| entry.0.fraction(&first.0, &next.first.0));
        let mut window = match share {
            Some(share) => {
                let reach = (high / 4).max(PROBES);
                let begin = (share * high as f64) as usize;
                let begin = begin.saturating_sub(reach / 2).min(high - reach);
                begin..begin + reach
            }
            None => 0..high,
        };
        let mut positions = [None; PROBES];
        while low < high {
            let count = window.len().min(PROBES);
            let gaps = window.len() - count;
            let place = |look: usize| window.start + gaps * (look + 1) / (count + 1) + look;
            for (look, position) in positions[..count].iter_mut().enumerate() {
                *position = Some(keys.position(rows[place(look)]));
            }
            keys.fetch(&positions[..count]);
            let (mut from, mut to) = (0, count);
            while from < to {
                let look = from.midpoint(to);
                match positions[look] {
                    Some(position) if is_before(position) => from = look + 1,
                    _ => to = look,
                }
            }
            if from > 0 {
                low = place(from - 1) + 1;
            }
            if from < count {
                high = place(from);
            }
            window = low..high;
        }
        low
    }
}

impl<K: TreeKey> Leaf<K> {
    /// Returns the memory of the leaf in bytes, including its entry in the branch.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.first.0.heap_bytes() + heap_bytes(self.rows.capacity() * 4)
    }
}

/// In an ascending list, returns the index of the last item whose lower bound is at or before `entry`; 0 if there is none.
///
/// Where the keys permit it, the index is guessed first; since keys are usually spread evenly, the right index is near the
/// guess.
fn last_up_to<K: TreeKey, T>(
    list: &[T],
    entry: &Entry<K>,
    first: impl Fn(&T) -> &Entry<K>,
) -> usize {
    let is_up_to = |place: usize| first(&list[place]) <= entry;
    let last = list.len() - 1;
    let (mut low, mut high) = (0, list.len());
    if let Some(share) = entry.0.fraction(&first(&list[0]).0, &first(&list[last]).0) {
        let guess = ((share * last as f64) as usize).min(last);
        let mut step = 1;
        if is_up_to(guess) {
            low = guess;
            while low + step <= last && is_up_to(low + step) {
                low += step;
                step *= 2;
            }
            high = high.min(low + step);
        } else {
            high = guess;
            while step <= high && !is_up_to(high - step) {
                high -= step;
                step *= 2;
            }
            low = high.saturating_sub(step);
        }
    }
    while low + 1 < high {
        let middle = low.midpoint(high);
        match is_up_to(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

impl<K: TreeKey> Tree<K> {
    pub(super) fn new() -> Self {
        let first = (K::default(), 0);
        let leaf = Leaf {
            first: first.clone(),
            rows: Vec::new(),
        };
        Self {
            bytes: leaf.bytes(),
            branches: vec![Branch {
                first,
                leaves: vec![leaf],
            }],
            count: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the position of `entry`. If the entry is missing, or `edge` is `Behind`, returns the position of the first
    /// entry after it. `keys` computes the keys of rows.
    pub(super) fn seek(&self, entry: &Entry<K>, edge: Edge, keys: &KeyReader<'_>) -> TreePosition {
        let branch = last_up_to(&self.branches, entry, |branch| &branch.first);
        let leaves = &self.branches[branch].leaves;
        let leaf = last_up_to(leaves, entry, |leaf| &leaf.first);
        TreePosition {
            branch,
            leaf,
            place: self.branches[branch].search(leaf, entry, edge, keys),
        }
    }

    /// Returns the position before the first entry.
    pub(super) fn start(&self) -> TreePosition {
        TreePosition {
            branch: 0,
            leaf: 0,
            place: 0,
        }
    }

    /// Returns the position after the last entry.
    pub(super) fn end(&self) -> TreePosition {
        let branch = self.branches.len() - 1;
        let leaf = self.branches[branch].leaves.len() - 1;
        TreePosition {
            branch,
            leaf,
            place: self.branches[branch].leaves[leaf].rows.len(),
        }
    }

    /// Returns the row number of the first entry; `None` if there are no entries.
    pub(super) fn lowest(&self) -> Option<u32> {
        self.branches[0].leaves[0].rows.first().copied()
    }

    /// Iterates over the row numbers from a position on, ascending.
    pub(super) fn from(&self, at: TreePosition) -> impl Iterator<Item = u32> {
        let leaves = self.branches[at.branch..].iter().enumerate();
        let leaves = leaves.flat_map(move |(ahead, branch)| {
            &branch.leaves[if ahead == 0 { at.leaf } else { 0 }..]
        });
        leaves.enumerate().flat_map(move |(ahead, leaf)| {
            let from = if ahead == 0 { at.place } else { 0 };
            leaf.rows[from..].iter().copied()
        })
    }

    /// Iterates over the row numbers before a position, descending.
    pub(super) fn down_from(&self, at: TreePosition) -> impl Iterator<Item = u32> {
        let leaves = self.branches[..=at.branch].iter().rev().enumerate();
        let leaves = leaves.flat_map(move |(behind, branch)| {
            let end = match behind {
                0 => at.leaf + 1,
                _ => branch.leaves.len(),
            };
            branch.leaves[..end].iter().rev()
        });
        leaves.enumerate().flat_map(move |(behind, leaf)| {
            let end = match behind {
                0 => at.place,
                _ => leaf.rows.len(),
            };
            leaf.rows[..end].iter().rev().copied()
        })
    }

    /// Returns the number of entries between two positions.
    pub(super) fn between(&self, from: TreePosition, to: TreePosition) -> usize {
        if to <= from {
            return 0;
        }
        let mut count = 0;
        for branch in from.branch..=to.branch {
            let leaves = &self.branches[branch].leaves;
            let first = if branch == from.branch { from.leaf } else { 0 };
            let last = if branch == to.branch {
                to.leaf
            } else {
                leaves.len()
            };
            let leaves = leaves[first..last].iter();
            count += leaves.map(|leaf| leaf.rows.len()).sum::<usize>();
        }
        count + to.place - from.place
    }

    /// Inserts a new entry.
    pub(super) fn insert(&mut self, entry: Entry<K>, keys: &KeyReader<'_>) {
        let at = self.seek(&entry, Edge::Before, keys);
        let branch = &mut self.branches[at.branch];
        let leaf = &mut branch.leaves[at.leaf];
        let before = leaf.bytes();
        make_room(&mut leaf.rows, 1, STEP);
        leaf.rows.insert(at.place, entry.1);
        self.count += 1;
        let len = leaf.rows.len();
        if len <= LEAF_MAX {
            self.bytes = self.bytes - before + leaf.bytes();
            return;
        }
        // If the entry was inserted at the end, the leaf is split there, so that ascending inserts leave full leaves behind.
        let cut = if at.place + 1 == len {
            at.place
        } else {
            len / 2
        };
        let rows = leaf.rows[cut..].to_vec();
        leaf.rows.truncate(cut);
        leaf.rows.shrink_to(cut.next_multiple_of(STEP));
        let new = Leaf {
            first: (keys.of(rows[0]), rows[0]),
            rows,
        };
        self.bytes = self.bytes - before + leaf.bytes() + new.bytes();
        branch.leaves.insert(at.leaf + 1, new);
        self.split(at.branch, at.leaf + 1);
    }

    fn split(&mut self, at: usize, new: usize) {
        let leaves = &mut self.branches[at].leaves;
        let len = leaves.len();
        if len <= LEAVES_MAX {
            return;
        }
        let cut = if new + 1 == len { new } else { len / 2 };
        let behind = leaves.split_off(cut);
        // Adding one item to the full list has doubled the list's capacity.
        leaves.shrink_to_fit();
        let branch = Branch {
            first: behind[0].first.clone(),
            leaves: behind,
        };
        self.branches.insert(at + 1, branch);
    }

    /// Removes an existing entry, whose row still exists.
    pub(super) fn remove(&mut self, entry: &Entry<K>, keys: &KeyReader<'_>) {
        let at = self.seek(entry, Edge::Before, keys);
        let leaf = &mut self.branches[at.branch].leaves[at.leaf];
        let before = leaf.bytes();
        let removed = leaf.rows.remove(at.place);
        debug_assert_eq!(removed, entry.1, "the entry exists");
        release_room(&mut leaf.rows, STEP);
        self.count -= 1;
        self.bytes = self.bytes - before + leaf.bytes();
        let len = leaf.rows.len();
        if len == 0 {
            self.drop_leaf(at);
        } else if len < MERGE_BELOW {
            self.join(at);
        }
    }

    fn drop_leaf(&mut self, at: TreePosition) {
        let branch = &mut self.branches[at.branch];
        if branch.leaves.len() > 1 {
            let gone = branch.leaves.remove(at.leaf);
            self.bytes -= gone.bytes();
            // If the first leaf of a branch was removed, the next leaf takes over its range.
            if at.leaf == 0 {
                self.begin_at(at.branch, gone.first);
            }
        } else if self.branches.len() > 1 {
            let gone = self.branches.remove(at.branch);
            self.bytes -= gone.leaves[0].bytes();
            if at.branch == 0 {
                self.branches[0].first = gone.first.clone();
                self.begin_at(0, gone.first);
            }
        }
    }

    /// Lowers the lower bound of a branch's first leaf to `first`.
    fn begin_at(&mut self, branch: usize, first: Entry<K>) {
        let leaf = &mut self.branches[branch].leaves[0];
        let before = leaf.bytes();
        leaf.first = first;
        self.bytes = self.bytes - before + leaf.bytes();
    }

    /// Merges a leaf with the next or the previous one if both are small.
    fn join(&mut self, at: TreePosition) {
        let leaves = &mut self.branches[at.branch].leaves;
        for place in [Some(at.leaf), at.leaf.checked_sub(1)]
            .into_iter()
            .flatten()
        {
            let Some([one, other]) = leaves.get(place..place + 2) else {
                continue;
            };
            if one.rows.len() + other.rows.len() > LEAF_MAX * 3 / 4 {
                continue;
            }
            let before = one.bytes() + other.bytes();
            let other = leaves.remove(place + 1);
            let one = &mut leaves[place];
            make_room(&mut one.rows, other.rows.len(), STEP);
            one.rows.extend(other.rows);
            self.bytes = self.bytes - before + one.bytes();
            return;
        }
    }

    /// Appends entries that come after all others, filling leaves completely.
    pub(super) fn append(&mut self, entries: &[Entry<K>]) {
        for entry in entries {
            let leaves = &mut self.branches.last_mut().expect("never empty").leaves;
            let leaf = leaves.last_mut().expect("never empty");
            self.count += 1;
            if leaf.rows.len() < LEAF_MAX {
                let before = leaf.bytes();
                leaf.rows.reserve_exact(LEAF_MAX - leaf.rows.len());
                leaf.rows.push(entry.1);
                self.bytes = self.bytes - before + leaf.bytes();
                continue;
            }
            let mut rows = Vec::with_capacity(LEAF_MAX);
            rows.push(entry.1);
            let new = Leaf {
                first: entry.clone(),
                rows,
            };
            self.bytes += new.bytes();
            leaves.push(new);
            let new = leaves.len() - 1;
            self.split(self.branches.len() - 1, new);
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self, keys: &KeyReader<'_>) {
        let entries: Vec<Entry<K>> = self
            .from(self.start())
            .map(|row| (keys.of(row), row))
            .collect();
        assert!(entries.windows(2).all(|two| two[0] < two[1]), "in order");
        assert_eq!(entries.len(), self.count);
        assert!(self.branches.is_sorted_by_key(|branch| &branch.first));
        let mut bytes = 0;
        for branch in &self.branches {
            assert!(branch.first <= branch.leaves[0].first);
            assert!(branch.leaves.is_sorted_by_key(|leaf| &leaf.first));
            for leaf in &branch.leaves {
                let mut rows = leaf.rows.iter();
                assert!(rows.all(|&row| leaf.first <= (keys.of(row), row)));
                assert!(leaf.rows.len() <= LEAF_MAX);
                bytes += leaf.bytes();
            }
        }
        assert_eq!(bytes, self.bytes, "bytes are counted");
    }
}
