//! The system calls in use, with their flags and nothing more.
//!
//! The only place where `unsafe` is allowed; io_uring needs it, and a socket option.

pub(crate) mod epoll;
pub(crate) mod reuseport;
pub(crate) mod socket;
pub(crate) mod uring;
