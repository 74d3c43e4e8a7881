//! The system calls in use, with their flags and nothing more.
//!
//! The only module of this crate where `unsafe` is allowed: io_uring and one socket option need it.

pub(crate) mod epoll;
pub(crate) mod reuseport;
pub(crate) mod socket;
pub(crate) mod uring;
