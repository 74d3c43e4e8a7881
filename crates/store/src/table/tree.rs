//! An index: the numbers of rows in the order of what they are indexed by.
//!
//! A leaf holds row numbers and nothing else, four bytes each; what its rows are ordered by is read from the rows. Only
//! where a leaf begins is kept, in branches as [rows](super::rows) have them, so that a search touches few rows: those
//! of one leaf.

use super::index::Keys;
use super::key::Key;
use super::leaf::{give_room, heap_bytes, make_room};

/// Most numbers of a leaf.
pub(super) const LEAF_MAX: usize = 128;
/// A leaf with fewer looks for a neighbour to join.
const LEAF_FEW: usize = LEAF_MAX / 4;
const STEP: usize = LEAF_MAX / 8;
/// Most leaves of a branch.
const LEAVES_MAX: usize = 256;

/// An entry in full: what orders it, and the row's number, which tells equal ones apart.
pub(super) type Entry<K> = (K, u32);

#[derive(Debug)]
struct Branch<K> {
    /// An entry that is not behind any of each leaf, and behind all of the leaf before.
    firsts: Vec<Entry<K>>,
    leaves: Vec<Vec<u32>>,
}

/// All entries.
#[derive(Debug)]
pub(super) struct Tree<K> {
    firsts: Vec<Entry<K>>,
    branches: Vec<Branch<K>>,
    count: usize,
    bytes: usize,
}

/// A place between entries: branch, leaf, place in the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    branch: usize,
    leaf: usize,
    place: usize,
}

fn leaf_bytes(leaf: &Vec<u32>) -> usize {
    heap_bytes(leaf.capacity() * 4)
}

/// What a leaf takes in its branch.
fn slot_bytes<K: Key>(first: &Entry<K>) -> usize {
    size_of::<Entry<K>>() + size_of::<Vec<u32>>() + first.0.heap_bytes()
}

/// How many numbers of a leaf are before something, all of them at its beginning.
///
/// Each look costs several accesses to memory that is in no cache. Three places are looked at in one go: their accesses
/// overlap, where those of a binary search would wait for each other.
#[inline]
fn search(leaf: &[u32], is_before: impl Fn(u32) -> bool) -> usize {
    let (mut low, mut high) = (0, leaf.len());
    while high - low > 3 {
        let quarter = (high - low) / 4;
        let places = [low + quarter, low + 2 * quarter, low + 3 * quarter];
        let before = places.map(|place| is_before(leaf[place]));
        match before.iter().filter(|&&is_before| is_before).count() {
            0 => high = places[0],
            1 => (low, high) = (places[0] + 1, places[1]),
            2 => (low, high) = (places[1] + 1, places[2]),
            _ => low = places[2] + 1,
        }
    }
    let rest = leaf[low..high].iter();
    low + rest.filter(|&&row| is_before(row)).count()
}

impl<K: Key> Tree<K> {
    pub(super) fn new() -> Self {
        let least = (K::default(), 0);
        Self {
            firsts: vec![least.clone()],
            bytes: slot_bytes(&least),
            branches: vec![Branch {
                firsts: vec![least],
                leaves: vec![Vec::new()],
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

    /// The place of the first entry that is not before that one. `keys` makes those of rows.
    pub(super) fn seek(&self, entry: &Entry<K>, keys: &Keys<'_>) -> Position {
        let branch = self
            .firsts
            .partition_point(|first| first <= entry)
            .saturating_sub(1);
        let Branch { firsts, leaves } = &self.branches[branch];
        let leaf = firsts
            .partition_point(|first| first <= entry)
            .saturating_sub(1);
        let place = search(&leaves[leaf], |row| {
            keys.compare(row, &entry.0).then(row.cmp(&entry.1)).is_lt()
        });
        Position {
            branch,
            leaf,
            place,
        }
    }

    /// Before the first entry.
    pub(super) fn start(&self) -> Position {
        Position {
            branch: 0,
            leaf: 0,
            place: 0,
        }
    }

    /// Behind the last entry.
    pub(super) fn end(&self) -> Position {
        let branch = self.branches.len() - 1;
        let leaf = self.branches[branch].leaves.len() - 1;
        Position {
            branch,
            leaf,
            place: self.branches[branch].leaves[leaf].len(),
        }
    }

    /// The first number of all.
    pub(super) fn lowest(&self) -> Option<u32> {
        self.branches[0].leaves[0].first().copied()
    }

    /// Numbers from a place on, rising.
    pub(super) fn from(&self, at: Position) -> impl Iterator<Item = u32> {
        let leaves = self.branches[at.branch..].iter().enumerate();
        let leaves = leaves.flat_map(move |(ahead, branch)| {
            &branch.leaves[if ahead == 0 { at.leaf } else { 0 }..]
        });
        leaves.enumerate().flat_map(move |(ahead, leaf)| {
            leaf[if ahead == 0 { at.place } else { 0 }..]
                .iter()
                .copied()
        })
    }

    /// Numbers before a place, falling.
    pub(super) fn down_from(&self, at: Position) -> impl Iterator<Item = u32> {
        let leaves = self.branches[..=at.branch].iter().rev().enumerate();
        let leaves = leaves.flat_map(move |(behind, branch)| {
            let end = match behind {
                0 => at.leaf + 1,
                _ => branch.leaves.len(),
            };
            branch.leaves[..end].iter().rev()
        });
        leaves.enumerate().flat_map(move |(behind, leaf)| {
            let end = if behind == 0 { at.place } else { leaf.len() };
            leaf[..end].iter().rev().copied()
        })
    }

    /// How many entries are between two places.
    pub(super) fn between(&self, from: Position, to: Position) -> usize {
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
            count += leaves[first..last].iter().map(Vec::len).sum::<usize>();
        }
        count + to.place - from.place
    }

    /// An entry that is not there yet.
    pub(super) fn insert(&mut self, entry: Entry<K>, keys: &Keys<'_>) {
        let at = self.seek(&entry, keys);
        let branch = &mut self.branches[at.branch];
        let leaf = &mut branch.leaves[at.leaf];
        let before = leaf_bytes(leaf);
        make_room(leaf, 1, STEP);
        leaf.insert(at.place, entry.1);
        self.count += 1;
        if leaf.len() <= LEAF_MAX {
            self.bytes = self.bytes - before + leaf_bytes(leaf);
            return;
        }
        // What rises all the time leaves full leaves behind.
        let cut = if at.place + 1 == leaf.len() {
            at.place
        } else {
            leaf.len() / 2
        };
        let new = leaf[cut..].to_vec();
        leaf.truncate(cut);
        leaf.shrink_to(cut.next_multiple_of(STEP));
        self.bytes = self.bytes - before + leaf_bytes(leaf) + leaf_bytes(&new);
        let first = (keys.of(new[0]), new[0]);
        self.bytes += slot_bytes(&first);
        branch.firsts.insert(at.leaf + 1, first);
        branch.leaves.insert(at.leaf + 1, new);
        self.split(at.branch, at.leaf + 1);
    }

    fn split(&mut self, at: usize, new: usize) {
        let branch = &mut self.branches[at];
        let len = branch.leaves.len();
        if len <= LEAVES_MAX {
            return;
        }
        let cut = if new + 1 == len { new } else { len / 2 };
        let behind = Branch {
            firsts: branch.firsts.split_off(cut),
            leaves: branch.leaves.split_off(cut),
        };
        // It has grown for one more, to twice of what it needs.
        branch.firsts.shrink_to_fit();
        branch.leaves.shrink_to_fit();
        self.firsts.insert(at + 1, behind.firsts[0].clone());
        self.branches.insert(at + 1, behind);
    }

    /// Takes an entry out that is there; its row still is.
    pub(super) fn remove(&mut self, entry: &Entry<K>, keys: &Keys<'_>) {
        let at = self.seek(entry, keys);
        let branch = &mut self.branches[at.branch];
        let leaf = &mut branch.leaves[at.leaf];
        let before = leaf_bytes(leaf);
        let removed = leaf.remove(at.place);
        debug_assert_eq!(removed, entry.1, "the entry is there");
        give_room(leaf, STEP);
        self.count -= 1;
        self.bytes = self.bytes - before + leaf_bytes(leaf);
        let len = leaf.len();
        if len == 0 {
            self.drop_leaf(at);
        } else if len < LEAF_FEW {
            self.join(at);
        }
    }

    fn drop_leaf(&mut self, at: Position) {
        let branch = &mut self.branches[at.branch];
        if branch.leaves.len() > 1 {
            self.bytes -= leaf_bytes(&branch.leaves.remove(at.leaf));
            let mut first = branch.firsts.remove(at.leaf);
            // What belongs before the next leaf belongs into it from now on.
            if at.leaf == 0 {
                std::mem::swap(&mut branch.firsts[0], &mut first);
            }
            self.bytes -= slot_bytes(&first);
        } else if self.branches.len() > 1 {
            let gone = self.branches.remove(at.branch);
            self.bytes -= leaf_bytes(&gone.leaves[0]);
            let first = self.firsts.remove(at.branch);
            let mut gone = gone.firsts.into_iter().next().expect("one leaf");
            if at.branch == 0 {
                std::mem::swap(&mut self.branches[0].firsts[0], &mut gone);
                self.firsts[0] = first;
            }
            self.bytes -= slot_bytes(&gone);
        }
    }

    /// Joins a leaf with the one behind it, or before it, if both are small.
    fn join(&mut self, at: Position) {
        let branch = &mut self.branches[at.branch];
        for place in [Some(at.leaf), at.leaf.checked_sub(1)]
            .into_iter()
            .flatten()
        {
            let Some([one, other]) = branch.leaves.get(place..place + 2) else {
                continue;
            };
            if one.len() + other.len() > LEAF_MAX * 3 / 4 {
                continue;
            }
            let before = leaf_bytes(one) + leaf_bytes(other);
            let other = branch.leaves.remove(place + 1);
            let first = branch.firsts.remove(place + 1);
            let one = &mut branch.leaves[place];
            make_room(one, other.len(), STEP);
            one.extend(other);
            self.bytes = self.bytes - before + leaf_bytes(one) - slot_bytes(&first);
            return;
        }
    }

    /// Puts entries behind all that are there, in full leaves.
    pub(super) fn append(&mut self, entries: &[Entry<K>]) {
        for entry in entries {
            let branch = self.branches.last_mut().expect("never empty");
            let leaf = branch.leaves.last_mut().expect("never empty");
            self.count += 1;
            if leaf.len() < LEAF_MAX {
                let before = leaf_bytes(leaf);
                leaf.reserve_exact(LEAF_MAX - leaf.len());
                leaf.push(entry.1);
                self.bytes = self.bytes - before + leaf_bytes(leaf);
                continue;
            }
            let mut leaf = Vec::with_capacity(LEAF_MAX);
            leaf.push(entry.1);
            let first = entry.clone();
            self.bytes += leaf_bytes(&leaf) + slot_bytes(&first);
            branch.firsts.push(first);
            branch.leaves.push(leaf);
            let new = branch.leaves.len() - 1;
            self.split(self.branches.len() - 1, new);
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self, keys: &Keys<'_>) {
        let entries: Vec<Entry<K>> = self
            .from(self.start())
            .map(|row| (keys.of(row), row))
            .collect();
        assert!(entries.windows(2).all(|two| two[0] < two[1]), "in order");
        assert_eq!(entries.len(), self.count);
        let mut bytes = 0;
        for (branch, first) in self.branches.iter().zip(&self.firsts) {
            assert!(*first <= branch.firsts[0]);
            assert!(branch.firsts.is_sorted());
            for (leaf, first) in branch.leaves.iter().zip(&branch.firsts) {
                assert!(leaf.iter().all(|&row| *first <= (keys.of(row), row)));
                assert!(leaf.len() <= LEAF_MAX);
                bytes += leaf_bytes(leaf) + slot_bytes(first);
            }
        }
        assert_eq!(bytes, self.bytes, "bytes are counted");
    }
}

#[cfg(test)]
mod tests {
    use super::search;

    #[test]
    fn a_leaf_is_searched_as_a_list() {
        for len in 0..140 {
            let leaf: Vec<u32> = (0..len).collect();
            for wanted in 0..=len {
                assert_eq!(search(&leaf, |row| row < wanted), wanted as usize);
            }
        }
    }
}
