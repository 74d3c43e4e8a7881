//! What we ask of the kernel, call by call, with its flags and nothing more.
//!
//! The only place where `unsafe` would be allowed; rustix's safe API makes do
//! without it so far.

pub(crate) mod epoll;
pub(crate) mod socket;
