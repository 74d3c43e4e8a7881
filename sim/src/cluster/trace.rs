//! Prints a trace of a cluster: its actions, all orders to the store, and all events from it.

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
