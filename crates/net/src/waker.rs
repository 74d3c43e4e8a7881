//! The eventfd that ends a driver's wait from any thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use veche_mailbox::Wake;

/// Wakes one driver. Cheap to clone, usable from any thread, harmless after the driver's end. Each wake costs a system
/// call; the mailbox's sleep flag makes them rare.
#[derive(Clone, Debug)]
pub struct Waker {
    eventfd: Arc<OwnedFd>,
}

impl Waker {
    /// Creates a waker for a driver of another crate that has no wait to end: the kernel counts the wakes, which are
    /// never read.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            eventfd: Arc::new(eventfd),
        })
    }

    pub(crate) fn eventfd(&self) -> &OwnedFd {
        &self.eventfd
    }
}

impl Wake for Waker {
    fn wake(&self) {
        // The only failure is EAGAIN at a count of 2^64 - 2, and then a wake is pending anyway.
        let _ = rustix::io::write(&*self.eventfd, &1_u64.to_ne_bytes());
    }
}
