//! A worker's sockets: the seam, its back ends, timers and buffers.

mod buffer;
mod driver;
mod options;
mod waker;

pub use buffer::{Buffer, BufferPool};
pub use driver::{CloseReason, Driver, Event, ListenerId, RECEIVE_AFTER_PAUSE_MAX, TransportId};
pub use options::Options;
pub use waker::Waker;
