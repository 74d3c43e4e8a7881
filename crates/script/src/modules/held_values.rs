//! Rust values that scripts refer to by number. Each number comes with a guard, a Lua value; when the guard is
//! collected, the value is dropped.
//!
//! Scripts see neither the numbers nor the guards. The modules in `lua/` store the guard in the object that uses the number.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, Lua};

/// Values by number; clones share the same values.
pub(crate) struct HeldValues<T>(Rc<Inner<T>>);

struct Inner<T> {
    last: Cell<u64>,
    values: RefCell<HashMap<u64, T>>,
}

/// Owns a value by its number; dropping the guard drops the value.
struct Guard<T> {
    held: HeldValues<T>,
    number: u64,
}

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        drop(self.held.take(self.number as f64));
    }
}

impl<T> Default for HeldValues<T> {
    fn default() -> Self {
        Self(Rc::new(Inner {
            last: Cell::default(),
            values: RefCell::default(),
        }))
    }
}

impl<T> Clone for HeldValues<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T: 'static> HeldValues<T> {
    /// Stores a value; returns its number and its guard.
    pub(crate) fn keep(&self, lua: &Lua, value: T) -> mlua::Result<(f64, Function)> {
        let number = self.0.last.get() + 1;
        self.0.last.set(number);
        self.0.values.borrow_mut().insert(number, value);
        let guard = Guard {
            held: self.clone(),
            number,
        };
        // The whole guard has to be captured, not only its number, so that it is dropped with the function.
        let guard = lua.create_function(move |_, ()| {
            let guard = &guard;
            Ok(guard.number as f64)
        })?;
        Ok((number as f64, guard))
    }
}

impl<T> HeldValues<T> {
    /// Takes a value out; its number becomes invalid.
    pub(crate) fn take(&self, number: f64) -> Option<T> {
        self.0.values.borrow_mut().remove(&(number as u64))
    }
}

impl<T: Clone> HeldValues<T> {
    pub(crate) fn get(&self, number: f64) -> Option<T> {
        self.0.values.borrow().get(&(number as u64)).cloned()
    }
}
