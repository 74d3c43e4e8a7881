//! The bounded queue between worker threads, with its wake.
//!
//! A worker never waits for another and never touches another's state: it posts messages. Each ordered pair of workers
//! has one first-in first-out lane. All messages that a worker posts to another one in a turn are pushed under one
//! short lock, and the receiver swaps the whole queue out under another lock; the receiver is woken only if it sleeps.
//!
//! The crate does not interpret messages except for their [`Class`].

mod lane;
mod mailbox;
#[cfg(all(test, feature = "model"))]
mod model_tests;
mod sync;
mod wake;
mod wake_flag;

pub use lane::Class;
pub use mailbox::{Full, Mailbox, Options};
pub use wake::Wake;
