//! The bounded queue between worker threads, with its wake.
//!
//! A worker never waits for another and never touches another's state: it posts messages. There is one first-in
//! first-out lane per ordered pair of workers. The messages of a turn for one worker are pushed under one short lock,
//! and the receiver swaps the whole batch out under another; the receiver is woken only if it sleeps.
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
