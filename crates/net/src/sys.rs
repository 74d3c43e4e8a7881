//! What we ask of the kernel, call by call, with its flags and nothing more.
//!
//! The only place where `unsafe` is allowed; io_uring needs it, and a socket option.

pub(crate) mod epoll;
pub(crate) mod reuseport;
pub(crate) mod socket;
pub(crate) mod uring;
