//! Thin wrappers around the system calls that the crate uses.
//!
//! This is the only module of the crate that may contain `unsafe` code, which io_uring and one
//! socket option require.

pub(crate) mod epoll;
pub(crate) mod reuseport;
pub(crate) mod socket;
pub(crate) mod uring;
