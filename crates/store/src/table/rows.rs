//! The rows of a table in the order of their numbers. Rows are stored in leaves, and leaves in branches. Each leaf and each
//! branch has a lower bound of its row numbers.
//!
//! Two levels suffice: a branch has up to 512 leaves, so the list of branches is short and rarely changes. A clone shares all
//! leaves, and a writer then copies the leaves that it changes.

use super::cell::Cell;
use super::leaf::{Leaf, MERGE_BELOW, ROWS_MAX};
use super::shape::Shape;

/// Maximum number of leaves of a branch.
const LEAVES_MAX: usize = 512;

#[derive(Clone, Debug)]
struct Branch {
    /// A lower bound of the row numbers in each leaf.
    firsts: Vec<u32>,
    leaves: Vec<Leaf>,
}

#[derive(Clone, Debug)]
pub(super) struct TableRows {
    firsts: Vec<u32>,
    /// Neither this list nor a branch is ever empty. Only the first leaf may be empty, in a table without rows.
    branches: Vec<Branch>,
    count: usize,
    bytes: usize,
    /// Total string bytes by column.
    texts: Box<[usize]>,
}

/// The location of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowPosition<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) place: usize,
}

impl<'a> RowPosition<'a> {
    #[inline]
    pub(super) fn get(self, shape: &Shape, column: usize) -> Cell<'a> {
        self.leaf.get(shape, self.place, column)
    }

    /// Prefetches the rows at these positions into the CPU's cache, in safe code by reading one byte of each.
    #[inline]
    pub(super) fn fetch(shape: &Shape, positions: &[Option<Self>]) {
        let mut sum = 0;
        for position in positions.iter().flatten() {
            sum |= position.leaf.first_byte(shape, position.place);
        }
        std::hint::black_box(sum);
    }

    pub(super) fn number(self) -> u32 {
        self.leaf.number(self.place)
    }
}

/// In the ascending list `firsts`, returns the index of the last entry that does not exceed `number`; 0 if there is none.
/// `usual` is the binary logarithm of the distance between entries if row numbers are consecutive.
///
/// Row numbers usually are consecutive; otherwise they are mostly spread evenly. In either case the index can be guessed, which
/// saves most of the search.
#[inline]
fn last_up_to(firsts: &[u32], number: u32, usual: u32) -> usize {
    let last = firsts.len() - 1;
    let (low, high) = (firsts[0], firsts[last]);
    if number >= high {
        return last;
    }
    if number <= low {
        return 0;
    }
    let fits = |guess: usize| guess < last && firsts[guess] <= number && number < firsts[guess + 1];
    let guess = ((number - low) >> usual) as usize;
    if fits(guess) {
        return guess;
    }
    let ahead = u64::from(number - low) * last as u64;
    let guess = (ahead / u64::from(high - low)) as usize;
    if fits(guess) {
        return guess;
    }
    firsts.partition_point(|first| *first <= number) - 1
}

/// Returns where to split a leaf that overflowed when a row was inserted at `position`.
fn cut(leaf: &Leaf, position: usize) -> usize {
    let number = leaf.number(position);
    if position + 1 == leaf.len() {
        return position;
    }
    // If the numbers are consecutive up to this one and a gap follows, the next rows will probably be inserted into the gap.
    let goes_on = position > 0 && leaf.number(position - 1) + 1 == number;
    match goes_on && leaf.number(position + 1) - 1 > number {
        true => position + 1,
        false => leaf.len() / 2,
    }
}

impl TableRows {
    pub(super) fn new(shape: &Shape) -> Self {
        let leaf = Leaf::new();
        let bytes = leaf.bytes();
        Self {
            firsts: vec![0],
            branches: vec![Branch {
                firsts: vec![0],
                leaves: vec![leaf],
            }],
            count: 0,
            bytes,
            texts: vec![0; shape.columns()].into(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory of a column's values in bytes, including spare capacity. For a key that is the row number, returns
    /// the memory of the row numbers.
    pub(super) fn column_bytes(&self, shape: &Shape, column: usize) -> usize {
        let width = shape.column_width(column);
        let leaves = self.leaves().map(|leaf| match column {
            0 => leaf.number_bytes() + leaf.room(shape) * width,
            _ => leaf.room(shape) * width,
        });
        leaves.sum::<usize>() + self.texts[column]
    }

    /// Returns the branch and the leaf of a row number.
    #[inline]
    fn seek(&self, number: u32) -> (usize, usize) {
        let branch = last_up_to(&self.firsts, number, (ROWS_MAX * LEAVES_MAX).ilog2());
        let leaf = last_up_to(&self.branches[branch].firsts, number, ROWS_MAX.ilog2());
        (branch, leaf)
    }

    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<RowPosition<'_>> {
        let (branch, leaf) = self.seek(number);
        let leaf = &self.branches[branch].leaves[leaf];
        let place = leaf.find(number).ok()?;
        Some(RowPosition { leaf, place })
    }

    /// Inserts a new row.
    pub(super) fn insert(&mut self, shape: &Shape, number: u32, row: &[Cell<'_>]) {
        let (at, place) = self.seek(number);
        let branch = &mut self.branches[at];
        self.count += 1;
        for (bytes, cell) in self.texts.iter_mut().zip(row) {
            *bytes += cell.text_bytes();
        }
        let last = branch.leaves[place].len().wrapping_sub(1);
        if last == ROWS_MAX - 1 && branch.leaves[place].number(last) < number {
            // Further rows usually follow at the end. So the full leaf is not split, and a new leaf
            // is created with its full capacity.
            let mut new = Leaf::with_room(shape);
            new.insert(shape, 0, number, row);
            self.add(at, place + 1, new);
            return;
        }
        let before = branch.leaves[place].bytes();
        let leaf = &mut branch.leaves[place];
        let Err(position) = leaf.find(number) else {
            unreachable!("a row with this number must not exist yet");
        };
        leaf.insert(shape, position, number, row);
        let new = leaf
            .is_over(shape)
            .then(|| leaf.split_off(shape, cut(leaf, position)));
        self.bytes = self.bytes - before + leaf.bytes();
        if let Some(new) = new {
            self.add(at, place + 1, new);
        }
    }

    fn add(&mut self, at: usize, place: usize, leaf: Leaf) {
        self.bytes += leaf.bytes();
        let branch = &mut self.branches[at];
        branch.firsts.insert(place, leaf.number(0));
        branch.leaves.insert(place, leaf);
        self.split(at, place);
    }

    /// Splits the branch `at` if it has too many leaves. The leaf at index `new` was inserted last.
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
        // Adding one leaf to the full list has doubled the list's capacity.
        branch.firsts.shrink_to_fit();
        branch.leaves.shrink_to_fit();
        self.firsts.insert(at + 1, behind.firsts[0]);
        self.branches.insert(at + 1, behind);
    }

    /// Changes values of an existing row.
    pub(super) fn set<'a>(
        &mut self,
        shape: &Shape,
        number: u32,
        changes: impl IntoIterator<Item = (usize, Cell<'a>)>,
    ) {
        let (at, place) = self.seek(number);
        let branch = &mut self.branches[at];
        let before = branch.leaves[place].bytes();
        let leaf = &mut branch.leaves[place];
        let position = leaf.find(number).expect("the row exists");
        for (column, cell) in changes {
            if shape.texts > 0 {
                let before = leaf.get(shape, position, column).text_bytes();
                self.texts[column] = self.texts[column] - before + cell.text_bytes();
            }
            leaf.set(shape, position, column, cell);
        }
        let new = leaf
            .is_over(shape)
            .then(|| leaf.split_off(shape, leaf.len() / 2));
        self.bytes = self.bytes - before + leaf.bytes();
        if let Some(new) = new {
            self.add(at, place + 1, new);
        }
    }

    /// Removes an existing row.
    pub(super) fn remove(&mut self, shape: &Shape, number: u32) {
        let (at, place) = self.seek(number);
        let branch = &mut self.branches[at];
        let before = branch.leaves[place].bytes();
        let leaf = &mut branch.leaves[place];
        let position = leaf.find(number).expect("the row exists");
        if shape.texts > 0 {
            for (column, bytes) in self.texts.iter_mut().enumerate() {
                *bytes -= leaf.get(shape, position, column).text_bytes();
            }
        }
        leaf.remove(shape, position);
        self.count -= 1;
        self.bytes = self.bytes - before + leaf.bytes();
        let len = leaf.len();
        if len == 0 {
            self.drop_leaf(at, place);
        } else if len < MERGE_BELOW {
            self.join(shape, at, place);
        }
    }

    fn drop_leaf(&mut self, at: usize, place: usize) {
        let branch = &mut self.branches[at];
        if branch.leaves.len() > 1 {
            self.bytes -= branch.leaves[place].bytes();
            branch.leaves.remove(place);
            let first = branch.firsts.remove(place);
            // If the first leaf of a branch was removed, the next leaf takes over its range of row numbers.
            if place == 0 {
                branch.firsts[0] = first;
            }
        } else if self.branches.len() > 1 {
            self.bytes -= self.branches[at].leaves[0].bytes();
            self.branches.remove(at);
            let first = self.firsts.remove(at);
            if at == 0 {
                (self.firsts[0], self.branches[0].firsts[0]) = (first, first);
            }
        }
    }

    /// Merges a leaf with the next or the previous one if both are small.
    fn join(&mut self, shape: &Shape, at: usize, place: usize) {
        let branch = &mut self.branches[at];
        for place in [Some(place), place.checked_sub(1)].into_iter().flatten() {
            let Some([one, other]) = branch.leaves.get(place..place + 2) else {
                continue;
            };
            if !one.can_merge(shape, other) {
                continue;
            }
            let before = one.bytes() + other.bytes();
            let other = branch.leaves.remove(place + 1);
            branch.firsts.remove(place + 1);
            let one = &mut branch.leaves[place];
            one.append(shape, &other);
            self.bytes = self.bytes - before + one.bytes();
            return;
        }
    }

    /// Iterates over the rows from a number on, ascending.
    pub(super) fn from(&self, number: u32) -> impl Iterator<Item = RowPosition<'_>> {
        let (at, place) = self.seek(number);
        let leaves = self.branches[at..].iter().enumerate();
        let leaves = leaves
            .flat_map(move |(ahead, branch)| &branch.leaves[if ahead == 0 { place } else { 0 }..]);
        leaves.enumerate().flat_map(move |(ahead, leaf)| {
            let from = match ahead {
                0 => leaf.find(number).unwrap_or_else(|place| place),
                _ => 0,
            };
            (from..leaf.len()).map(move |place| RowPosition { leaf, place })
        })
    }

    /// Iterates over the rows up to a number, descending.
    pub(super) fn down_from(&self, number: u32) -> impl Iterator<Item = RowPosition<'_>> {
        let (at, place) = self.seek(number);
        let leaves = self.branches[..=at].iter().rev().enumerate();
        let leaves = leaves.flat_map(move |(behind, branch)| {
            let end = match behind {
                0 => place + 1,
                _ => branch.leaves.len(),
            };
            branch.leaves[..end].iter().rev()
        });
        leaves.enumerate().flat_map(move |(behind, leaf)| {
            let end = match behind {
                0 => leaf
                    .find(number)
                    .map_or_else(|place| place, |place| place + 1),
                _ => leaf.len(),
            };
            (0..end).rev().map(move |place| RowPosition { leaf, place })
        })
    }

    /// Returns how many rows have a lower number.
    pub(super) fn count_below(&self, number: u32) -> usize {
        let (at, place) = self.seek(number);
        let before = self.branches[..at].iter().flat_map(|branch| &branch.leaves);
        let leaves = &self.branches[at].leaves;
        let before = before.chain(&leaves[..place]).map(|leaf| leaf.len());
        let here = leaves[place].find(number).unwrap_or_else(|place| place);
        before.sum::<usize>() + here
    }

    /// Iterates over the leaves in order.
    pub(super) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.branches.iter().flat_map(|branch| &branch.leaves)
    }

    /// Iterates over the leaves by value, so that the caller can drop each after use.
    pub(super) fn into_leaves(self) -> impl Iterator<Item = Leaf> {
        self.branches.into_iter().flat_map(|branch| branch.leaves)
    }

    /// Releases the spare capacity that leaves have reserved for more rows.
    pub(super) fn shrink_to_fit(&mut self, shape: &Shape) {
        let leaves = self
            .branches
            .iter_mut()
            .flat_map(|branch| &mut branch.leaves);
        for leaf in leaves.filter(|leaf| leaf.len() < ROWS_MAX) {
            let before = leaf.bytes();
            leaf.shrink_to_fit(shape);
            self.bytes = self.bytes - before + leaf.bytes();
        }
    }

    /// Returns the highest row number in use; `None` if there are no rows.
    pub(super) fn last(&self) -> Option<u32> {
        let leaf = self.branches.last()?.leaves.last()?;
        let last = leaf.len().checked_sub(1)?;
        Some(leaf.number(last))
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let numbers: Vec<u32> = self
            .leaves()
            .flat_map(|leaf| (0..leaf.len()).map(|place| leaf.number(place)))
            .collect();
        assert!(numbers.windows(2).all(|two| two[0] < two[1]), "in order");
        assert_eq!(numbers.len(), self.count);
        let bytes: usize = self.leaves().map(|leaf| leaf.bytes()).sum();
        assert_eq!(bytes, self.bytes, "bytes are counted");
        for (branch, first) in self.branches.iter().zip(&self.firsts) {
            assert!(branch.leaves.len() == branch.firsts.len() && !branch.leaves.is_empty());
            assert!(*first <= branch.firsts[0]);
            for (leaf, first) in branch.leaves.iter().zip(&branch.firsts) {
                assert!(leaf.len() <= ROWS_MAX);
                assert!(leaf.len() == 0 || *first <= leaf.number(0));
            }
        }
    }
}
