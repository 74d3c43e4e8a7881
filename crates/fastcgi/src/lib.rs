//! A FastCGI client for php-fpm on tokio: one request at a time on a connection, answers as a status, headers and a body.
//!
//! [`Params`] and [`record`] write requests and read records, [`Client`] has the connections. What is asked and what an
//! answer means is the caller's business. Why this is no crate of the ecosystem: docs/decisions/18-fastcgi.md.
//!
//! php-fpm differs from the specification, and this client goes by php-fpm:
//!
//! - A process serves one connection until it ends, so a kept connection occupies a process. Connections are kept only
//!   for the time that [`Limits`] name, which may be none.
//! - Each PARAMS record is read by itself: a pair must not continue in the next one.
//! - A process that has served `pm.max_requests` closes its connection some time after its last answer. A kept connection
//!   that is closed is not used again, and a request of which nothing was sent goes out on another; but one that was
//!   sent in between is lost, and is not repeated, as the script may have run. So connections are to be kept only where
//!   `pm.max_requests` is 0.
//! - A Unix socket whose backlog is full refuses with EAGAIN, which is [`Error::Overloaded`].
//! - Output that is not read stops a script, so STDOUT and STDERR are read while the body is sent.

mod address;
mod cgi;
mod client;
mod head;
mod params;
pub mod record;
mod response;

pub use address::{Address, AddressError};
pub use cgi::Cgi;
pub use client::{Client, Error, Limits};
pub use head::{Head, HeadError};
pub use params::{PAIR_BYTES_MAX, ParamTooLong, Params};
pub use response::Response;
