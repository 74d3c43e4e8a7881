//! The bounded queue between worker threads, with its wake.
