//! A worker's sockets: the seam, its back ends, and timers.
//!
//! [`Driver`] is the seam: everything above it sees transports by
//! [`ConnectionId`], bytes lent for one call and [`Event`]s; nothing above it
//! names a descriptor, epoll or io_uring. [`Epoll`] is the back end that works
//! everywhere, [`Uring`] the one that makes messages cheaper; [`Delayed`] wraps any back end and behaves like a badly timed
//! asynchronous one, for tests. [`Simulated`] has no system below it: for tests of
//! what runs on all of it.
//!
//! The crate does not know what the bytes mean: they go on to `frontends`.

mod accept;
mod base;
mod buffer;
mod delayed;
pub mod descriptors;
mod driver;
mod epoll;
mod listener;
mod options;
mod queue;
mod simulated;
mod sys;
mod timer;
mod transport;
mod uring;
mod waker;

pub use buffer::Buffer;
pub use delayed::Delayed;
pub use driver::{CloseReason, Detached, Driver, Event, ListenerId, RECEIVE_AFTER_PAUSE_MAX};
pub use epoll::Epoll;
pub use listener::{ListenOptions, bind, spread_evenly};
pub use options::Options;
pub use simulated::{RemoteState, Simulated};
pub use uring::Uring;
pub use veche_types::ConnectionId;
pub use waker::Waker;
