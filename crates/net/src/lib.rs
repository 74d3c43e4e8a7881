//! A worker's sockets: the driver interface, its back ends, and timers.
//!
//! Code above [`Driver`] sees transports by [`ConnectionId`], bytes lent for one call and [`DriverEvent`]s, but no
//! descriptor, epoll or io_uring. [`Epoll`] is the portable back end, [`Uring`] the one with cheaper messages.
//! [`Delayed`] wraps any back end and behaves like a badly timed asynchronous one, for tests. [`Simulated`] has no
//! operating system below it, for tests of the whole stack.
//!
//! The crate does not interpret bytes: they go on to `frontends`.

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
pub mod scm_rights;
mod simulated;
mod sys;
mod timer;
mod transport;
mod uring;
mod waker;

pub use buffer::Buffer;
pub use delayed::Delayed;
pub use driver::{CloseReason, Detached, Driver, DriverEvent, ListenerId, RECEIVE_AFTER_PAUSE_MAX};
pub use epoll::Epoll;
pub use listener::{ListenOptions, bind, spread_evenly};
pub use options::Options;
pub use simulated::{RemoteState, Simulated};
pub use uring::Uring;
pub use veche_types::ConnectionId;
pub use waker::Waker;
