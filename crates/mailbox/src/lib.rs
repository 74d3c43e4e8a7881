//! The bounded queue between worker threads, with its wake.
//!
//! A worker never waits for another and never touches another's state: it
//! posts mail. There is one lane per ordered pair of workers, first in first
//! out. A turn's mail for one worker is pushed under one short lock, and the
//! receiver swaps the whole batch out under another; the receiver is woken
//! only if it sleeps.
//!
//! The crate does not know what mail means, except its [`Class`].

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
