//! The bounded queue between worker threads, which also wakes sleeping receivers.
//!
//! Workers communicate only by messages: a worker never waits for another worker and never accesses
//! its state. Each ordered pair of workers has one first-in first-out lane. All messages that a
//! worker posts to another worker in a turn are pushed under one short lock. The receiver swaps out
//! the whole queue while it holds the same lock, and is woken only if it sleeps.
//!
//! The crate does not interpret messages except for their [`Class`].

mod mailbox;
#[cfg(all(test, feature = "model"))]
mod model_tests;
mod sync;
mod wake;
mod wake_flag;

pub use mailbox::{Class, Full, Mailbox, Options};
pub use wake::Wake;
