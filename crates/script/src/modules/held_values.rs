//! What scripts have by number for as long as they have it: each number comes with a guard, a value of Lua's, and is
//! forgotten when the collector finds that nobody has the guard any more.
//!
//! Only modules of ours see either. They keep the guard where the script keeps what the number is for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, Lua};

/// By number; clones are the same.
pub(crate) struct HeldValues<T>(Rc<Inner<T>>);

struct Inner<T> {
    last: Cell<u64>,
    things: RefCell<HashMap<u64, T>>,
}

/// Forgets its number when it is dropped.
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
            things: RefCell::default(),
        }))
    }
}

impl<T> Clone for HeldValues<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T: 'static> HeldValues<T> {
    /// The number of a thing, and its guard.
    pub(crate) fn keep(&self, lua: &Lua, thing: T) -> mlua::Result<(f64, Function)> {
        let number = self.0.last.get() + 1;
        self.0.last.set(number);
        self.0.things.borrow_mut().insert(number, thing);
        let guard = Guard {
            held: self.clone(),
            number,
        };
        // What a function has captured is dropped with it: all of the guard, not its number alone.
        let guard = lua.create_function(move |_, ()| {
            let guard = &guard;
            Ok(guard.number as f64)
        })?;
        Ok((number as f64, guard))
    }
}

impl<T> HeldValues<T> {
    /// Takes a thing out: its number stands for nothing any more.
    pub(crate) fn take(&self, number: f64) -> Option<T> {
        self.0.things.borrow_mut().remove(&(number as u64))
    }
}

impl<T: Clone> HeldValues<T> {
    pub(crate) fn get(&self, number: f64) -> Option<T> {
        self.0.things.borrow().get(&(number as u64)).cloned()
    }
}
