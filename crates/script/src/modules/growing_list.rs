//! Lists of the objects that a VM has used so far, such as dictionaries and databases. Scripts refer to an object by
//! its number in a list.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use mlua::MultiValue;

use super::argument::as_number;
use super::fault;

/// A list that only grows; clones share the same list.
pub(crate) struct GrowingList<T> {
    inner: Rc<RefCell<Inner<T>>>,
    /// The error for an unknown number.
    missing: &'static str,
}

struct Inner<T> {
    list: Vec<Arc<T>>,
    /// The number of each object, by its address. The address does not change, since the list never releases an object.
    numbers: HashMap<*const T, usize>,
}

impl<T> GrowingList<T> {
    pub(crate) fn new(missing: &'static str) -> Self {
        let inner = Inner {
            list: Vec::new(),
            numbers: HashMap::new(),
        };
        Self {
            inner: Rc::new(RefCell::new(inner)),
            missing,
        }
    }

    /// Adds an object unless it is listed, and returns its number.
    pub(super) fn keep(&self, one: Arc<T>) -> f64 {
        let Inner { list, numbers } = &mut *self.inner.borrow_mut();
        let number = *numbers.entry(Arc::as_ptr(&one)).or_insert_with(|| {
            list.push(one);
            list.len() - 1
        });
        number as f64
    }

    /// Returns the object with this number.
    pub(crate) fn find(&self, number: f64) -> mlua::Result<Arc<T>> {
        let found = self.inner.borrow().list.get(number as usize).cloned();
        found.ok_or_else(|| fault(self.missing))
    }

    /// Takes the first argument of a call, which is the number of an object, and returns the
    /// object.
    pub(super) fn find_first(&self, values: &mut MultiValue) -> mlua::Result<Arc<T>> {
        let number = values.pop_front();
        let number = number.as_ref().and_then(as_number);
        self.find(number.ok_or_else(|| fault(self.missing))?)
    }
}

impl<T: PartialEq> GrowingList<T> {
    /// Returns the number of the object in the list that equals `one`. If there is none, adds `one` and returns its
    /// number, unless the list already has `most` objects: then adds nothing and returns `None`.
    pub(super) fn keep_equal(&self, one: T, most: usize) -> Option<f64> {
        let list = &mut self.inner.borrow_mut().list;
        let known = list.iter().position(|known| **known == one);
        if known.is_none() {
            if list.len() == most {
                return None;
            }
            list.push(Arc::new(one));
        }
        Some(known.unwrap_or(list.len() - 1) as f64)
    }
}

impl<T> Clone for GrowingList<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Rc::clone(&self.inner),
            missing: self.missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, GrowingList};

    #[test]
    fn the_same_one_has_one_number() {
        let kept = GrowingList::new("no such one");
        let (one, other) = (Arc::new(7), Arc::new(7));
        assert_eq!(kept.keep(Arc::clone(&one)), 0.0);
        assert_eq!(kept.clone().keep(Arc::clone(&other)), 1.0);
        assert_eq!(kept.keep(Arc::clone(&one)), 0.0);
        assert!(Arc::ptr_eq(&kept.find(1.0).expect("kept"), &other));
        let error = kept.find(2.0).expect_err("none").to_string();
        assert!(error.contains("no such one"), "{error}");
    }

    #[test]
    fn equal_ones_have_one_number_up_to_a_limit() {
        let kept = GrowingList::new("no such one");
        let numbers = ["a", "b", "a", "c", "b"].map(|one| kept.keep_equal(one, 2));
        assert_eq!(
            numbers,
            [Some(0.0), Some(1.0), Some(0.0), None, Some(1.0)],
            "what is known is found where no other has room"
        );
    }
}
