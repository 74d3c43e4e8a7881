//! An index of a table, whose keys are `u64`, `u128` or byte strings.

use std::cmp::Ordering;

use super::cell::Cell;
use super::key::{Bytes, Form, KeyShape, TreeKey};
use super::rows::{RowPosition, TableRows};
use super::shape::Shape;
use super::tree::{Edge, Tree};

/// An index, and the shape of its keys.
#[derive(Debug)]
pub(super) struct TableIndex {
    pub(super) shape: KeyShape,
    pub(super) tree: AnyTree,
    pub(super) is_unique: bool,
}

#[derive(Debug)]
pub(super) enum AnyTree {
    Narrow(Tree<u64>),
    Medium(Tree<u128>),
    Wide(Tree<Bytes>),
}

/// Runs the same code for the tree of an index, whatever the form of its keys.
macro_rules! each_form {
    ($tree:expr, $name:ident => $do:expr) => {
        match $tree {
            AnyTree::Narrow($name) => $do,
            AnyTree::Medium($name) => $do,
            AnyTree::Wide($name) => $do,
        }
    };
}

/// A form of index keys.
pub(super) trait IndexKeyForm: TreeKey {
    /// Returns the tree of an index whose keys have this form. Panics if the keys have another
    /// form.
    fn tree(tree: &AnyTree) -> &Tree<Self>;
}

macro_rules! formed {
    ($key:ty, $form:ident) => {
        impl IndexKeyForm for $key {
            fn tree(tree: &AnyTree) -> &Tree<Self> {
                match tree {
                    AnyTree::$form(tree) => tree,
                    _ => unreachable!("the key type of an index can't change"),
                }
            }
        }
    };
}

formed!(u64, Narrow);
formed!(u128, Medium);
formed!(Bytes, Wide);

/// Runs the same code for the tree of an index and a prepared key, whatever the form of the keys.
macro_rules! each_made {
    ($tree:expr, $made:expr, $name:ident, $key:ident => $do:expr) => {
        match ($tree, $made) {
            (AnyTree::Narrow($name), IndexKey::Narrow($key)) => $do,
            (AnyTree::Medium($name), IndexKey::Medium($key)) => $do,
            (AnyTree::Wide($name), IndexKey::Wide($key)) => $do,
            _ => unreachable!("a key must have the type of its index"),
        }
    };
}

/// A key of any of the three forms, computed from a row's values.
#[derive(Debug)]
pub(super) enum IndexKey {
    Narrow(u64),
    Medium(u128),
    Wide(Bytes),
}

/// Computes the index keys of existing rows from their row numbers.
#[derive(Clone, Copy)]
pub(super) struct KeyReader<'a> {
    keys: &'a KeyShape,
    shape: &'a Shape,
    rows: &'a TableRows,
}

impl<'a> KeyReader<'a> {
    fn new(keys: &'a KeyShape, shape: &'a Shape, rows: &'a TableRows) -> Self {
        Self { keys, shape, rows }
    }

    #[inline]
    pub(super) fn position(&self, row: u32) -> RowPosition<'a> {
        self.rows
            .find(row)
            .expect("every row in an index must exist")
    }

    /// Prefetches the rows at these positions into the CPU's cache.
    #[inline]
    pub(super) fn fetch(&self, positions: &[Option<RowPosition<'_>>]) {
        RowPosition::fetch(self.shape, positions);
    }

    pub(super) fn of<K: TreeKey>(&self, row: u32) -> K {
        self.key_at(self.position(row))
    }

    pub(super) fn key_at<K: TreeKey>(&self, position: RowPosition<'_>) -> K {
        self.keys.key_at(self.shape, position)
    }

    #[inline]
    pub(super) fn compare_at<K: TreeKey>(&self, position: RowPosition<'_>, key: &K) -> Ordering {
        self.keys.compare(self.shape, position, key)
    }

    #[inline]
    pub(super) fn compare<K: TreeKey>(&self, row: u32, key: &K) -> Ordering {
        self.compare_at(self.position(row), key)
    }
}

impl TableIndex {
    pub(super) fn new(shape: KeyShape, is_unique: bool) -> Self {
        let tree = match shape.form() {
            Form::Narrow => AnyTree::Narrow(Tree::new()),
            Form::Medium => AnyTree::Medium(Tree::new()),
            Form::Wide => AnyTree::Wide(Tree::new()),
        };
        Self {
            shape,
            tree,
            is_unique,
        }
    }

    pub(super) fn keys<'a>(&'a self, shape: &'a Shape, rows: &'a TableRows) -> KeyReader<'a> {
        KeyReader::new(&self.shape, shape, rows)
    }

    pub(super) fn bytes(&self) -> usize {
        each_form!(&self.tree, tree => tree.bytes())
    }

    /// Computes the key of a row from its values; `None` if the row does not belong in the index.
    pub(super) fn key_of<'a>(&self, value: impl Fn(usize) -> Cell<'a>) -> Option<IndexKey> {
        if !self.shape.has(&value) {
            return None;
        }
        Some(match &self.tree {
            AnyTree::Narrow(_) => IndexKey::Narrow(self.shape.of(value)),
            AnyTree::Medium(_) => IndexKey::Medium(self.shape.of(value)),
            AnyTree::Wide(_) => IndexKey::Wide(self.shape.of(value)),
        })
    }

    pub(super) fn key_of_row(&self, shape: &Shape, position: RowPosition<'_>) -> Option<IndexKey> {
        self.key_of(|column| position.get(shape, column))
    }

    /// Returns the number of the first row with the key; `None` if no row has it.
    pub(super) fn first(&self, made: &IndexKey, shape: &Shape, rows: &TableRows) -> Option<u32> {
        fn first<K: TreeKey>(tree: &Tree<K>, key: &K, keys: &KeyReader<'_>) -> Option<u32> {
            let at = tree.seek(&(key.clone(), 0), Edge::Before, keys);
            let row = tree.from(at).next()?;
            keys.compare(row, key).is_eq().then_some(row)
        }
        let keys = self.keys(shape, rows);
        each_made!(&self.tree, made, tree, key => first(tree, key, &keys))
    }

    /// Returns the number of the first row in the order of the index; `None` if the index is empty.
    pub(super) fn lowest(&self) -> Option<u32> {
        each_form!(&self.tree, tree => tree.lowest())
    }

    pub(super) fn insert(&mut self, made: IndexKey, row: u32, shape: &Shape, rows: &TableRows) {
        let keys = KeyReader::new(&self.shape, shape, rows);
        each_made!(&mut self.tree, made, tree, key => tree.insert((key, row), &keys));
    }

    pub(super) fn remove(&mut self, made: IndexKey, row: u32, shape: &Shape, rows: &TableRows) {
        let keys = KeyReader::new(&self.shape, shape, rows);
        each_made!(&mut self.tree, made, tree, key => tree.remove(&(key, row), &keys));
    }

    #[cfg(test)]
    pub(super) fn check(&self, shape: &Shape, rows: &TableRows) {
        each_form!(&self.tree, tree => tree.check(&self.keys(shape, rows)));
        let expected = rows
            .from(0)
            .filter(|position| self.shape.has(|column| position.get(shape, column)));
        assert_eq!(
            each_form!(&self.tree, tree => tree.count()),
            expected.count()
        );
    }
}
