//! An index of a table, whatever its keys are.

use std::cmp::Ordering;

use super::cell::Cell;
use super::key::{Bytes, Form, Key, KeyShape};
use super::leaf::Shape;
use super::rows::{Rows, Spot};
use super::tree::Tree;

/// An index and how its keys are made.
#[derive(Debug)]
pub(super) struct Index {
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

/// Does the same with whatever keys an index has.
macro_rules! each_form {
    ($tree:expr, $name:ident => $do:expr) => {
        match $tree {
            AnyTree::Narrow($name) => $do,
            AnyTree::Medium($name) => $do,
            AnyTree::Wide($name) => $do,
        }
    };
}

/// An entry that was made before its row changes.
#[derive(Debug)]
pub(super) enum Made {
    Narrow(u64),
    Medium(u128),
    Wide(Bytes),
}

/// What makes keys of rows by their numbers, all of which are there.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) keys: &'a KeyShape,
    pub(super) shape: &'a Shape,
    pub(super) rows: &'a Rows,
}

impl<'a> Keys<'a> {
    #[inline]
    pub(super) fn spot(&self, row: u32) -> Spot<'a> {
        self.rows.find(row).expect("what is indexed is there")
    }

    pub(super) fn of<K: Key>(&self, row: u32) -> K {
        self.keys.of_spot(self.shape, self.spot(row))
    }

    #[inline]
    pub(super) fn compare<K: Key>(&self, row: u32, key: &K) -> Ordering {
        self.keys.compare(self.shape, self.spot(row), key)
    }
}

impl Index {
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

    fn keys<'a>(&'a self, shape: &'a Shape, rows: &'a Rows) -> Keys<'a> {
        Keys {
            keys: &self.shape,
            shape,
            rows,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        each_form!(&self.tree, tree => tree.bytes())
    }

    /// The key of a row whose values are told; `None` if it is not to be in the index.
    pub(super) fn make<'a>(&self, value: impl Fn(usize) -> Cell<'a>) -> Option<Made> {
        if !self.shape.has(&value) {
            return None;
        }
        Some(match &self.tree {
            AnyTree::Narrow(_) => Made::Narrow(self.shape.of(value)),
            AnyTree::Medium(_) => Made::Medium(self.shape.of(value)),
            AnyTree::Wide(_) => Made::Wide(self.shape.of(value)),
        })
    }

    pub(super) fn make_of_spot(&self, shape: &Shape, spot: Spot<'_>) -> Option<Made> {
        self.make(|column| spot.get(shape, column))
    }

    /// The first row with that key.
    pub(super) fn first(&self, made: &Made, shape: &Shape, rows: &Rows) -> Option<u32> {
        fn first<K: Key>(tree: &Tree<K>, key: &K, keys: &Keys<'_>) -> Option<u32> {
            let at = tree.seek(&(key.clone(), 0), keys);
            let row = tree.from(at).next()?;
            keys.compare(row, key).is_eq().then_some(row)
        }
        match (&self.tree, made) {
            (AnyTree::Narrow(tree), Made::Narrow(key)) => first(tree, key, &self.keys(shape, rows)),
            (AnyTree::Medium(tree), Made::Medium(key)) => first(tree, key, &self.keys(shape, rows)),
            (AnyTree::Wide(tree), Made::Wide(key)) => first(tree, key, &self.keys(shape, rows)),
            _ => unreachable!("an index makes its own keys"),
        }
    }

    /// The row that comes first of all.
    pub(super) fn lowest(&self) -> Option<u32> {
        each_form!(&self.tree, tree => tree.lowest())
    }

    pub(super) fn insert(&mut self, made: Made, row: u32, shape: &Shape, rows: &Rows) {
        let keys = Keys {
            keys: &self.shape,
            shape,
            rows,
        };
        match (&mut self.tree, made) {
            (AnyTree::Narrow(tree), Made::Narrow(key)) => {
                tree.insert((key, row), &keys);
            }
            (AnyTree::Medium(tree), Made::Medium(key)) => {
                tree.insert((key, row), &keys);
            }
            (AnyTree::Wide(tree), Made::Wide(key)) => {
                tree.insert((key, row), &keys);
            }
            _ => unreachable!("an index makes its own keys"),
        }
    }

    pub(super) fn remove(&mut self, made: Made, row: u32, shape: &Shape, rows: &Rows) {
        let keys = Keys {
            keys: &self.shape,
            shape,
            rows,
        };
        match (&mut self.tree, made) {
            (AnyTree::Narrow(tree), Made::Narrow(key)) => {
                tree.remove(&(key, row), &keys);
            }
            (AnyTree::Medium(tree), Made::Medium(key)) => {
                tree.remove(&(key, row), &keys);
            }
            (AnyTree::Wide(tree), Made::Wide(key)) => {
                tree.remove(&(key, row), &keys);
            }
            _ => unreachable!("an index makes its own keys"),
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self, shape: &Shape, rows: &Rows) {
        each_form!(&self.tree, tree => tree.check(&self.keys(shape, rows)));
        let expected = rows
            .from(0)
            .filter(|spot| self.shape.has(|column| spot.get(shape, column)));
        assert_eq!(
            each_form!(&self.tree, tree => tree.count()),
            expected.count()
        );
    }
}
