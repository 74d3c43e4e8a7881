//! What we ask of the kernel, call by call, with its flags and nothing more.
//!
//! The only place where `unsafe` is allowed, and io_uring alone needs it.

pub(crate) mod epoll;
pub(crate) mod socket;
pub(crate) mod uring;
