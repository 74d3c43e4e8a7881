//! A FastCGI client for php-fpm on tokio: one request at a time per connection, responses as a status, headers and a body.
//!
//! [`Params`] and [`record`] encode requests and decode records, [`Client`] owns the connections.
//! The caller defines the requests and interprets the responses. docs/decisions/18-fastcgi.md
//! explains why no existing crate is used.
//!
//! php-fpm differs from the specification, and this client follows php-fpm:
//!
//! - A process serves one connection until it ends, so an idle connection occupies a process. Idle connections are kept only
//!   for the time in [`ClientLimits`], which may be zero.
//! - Each PARAMS record is parsed separately: a pair must not continue in the next one.
//! - A process that has served `pm.max_requests` closes its connection some time after its last
//!   response. A closed idle connection is not used again, and a request is repeated on another
//!   connection only if no byte of it was sent. A request sent just before the connection closes is
//!   lost and not repeated, since the script may have run. So keep idle connections only if
//!   `pm.max_requests` is 0.
//! - A Unix socket whose backlog is full refuses with EAGAIN, which is [`Error::Overloaded`].
//! - A script stops when its output is not read, so STDOUT and STDERR are read while the body is sent.

mod address;
mod cgi;
mod client;
mod head;
mod params;
pub mod record;
mod response;

pub use address::{Address, AddressError};
pub use cgi::Cgi;
pub use client::{Client, ClientLimits, Error};
pub use head::{CgiHead, HeadError};
pub use params::{PAIR_BYTES_MAX, ParamTooLong, Params};
pub use response::Response;
