//! A printed trace of a cluster: its actions, and everything that goes to the store and comes from there.

use std::cell::Cell;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
}

/// Prints a trace of all clusters of this thread from here on.
pub fn print_traces() {
    IS_ON.set(true);
}

pub(super) fn is_on() -> bool {
    IS_ON.get()
}

/// Prints a line of the trace.
macro_rules! say {
    ($($words:tt)*) => {
        if $crate::cluster::trace::is_on() {
            println!($($words)*);
        }
    };
}

pub(super) use say;
