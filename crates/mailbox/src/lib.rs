//! The bounded queue between worker threads, with its wake.

mod wake;

pub use wake::Wake;
