//! A worker's sockets: the driver interface, its back ends, and timers.
//!
//! Code that uses [`Driver`] works with [`ConnectionId`]s, bytes borrowed for one call, and
//! [`DriverEvent`]s. It does not depend on descriptors, epoll or io_uring. [`Epoll`] is the
//! portable back end, and [`Uring`] needs less CPU time per message. For tests, [`Delayed`] wraps
//! any back end and delays its events, and [`Simulated`] replaces the operating system below the
//! whole stack.
//!
//! The crate does not interpret bytes; the crate `frontends` does that.

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
