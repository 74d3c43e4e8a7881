//! The eventfd that ends a driver's wait from any thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use veche_mailbox::Wake;

/// Wakes one driver. Cheap to clone, usable from any thread, and without effect after the driver
/// has ended. Each wake costs a system call, but the mailbox's sleep flag makes wakes rare.
#[derive(Clone, Debug)]
pub struct Waker {
    eventfd: Arc<OwnedFd>,
}

impl Waker {
    /// Creates a waker that no driver watches yet. Only drivers of this crate can watch it; in a
    /// driver of another crate, its wakes have no effect.
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
        // The write fails only with EAGAIN, when the count is 2^64 - 2. A wake is then pending
        // anyway.
        let _ = rustix::io::write(&*self.eventfd, &1_u64.to_ne_bytes());
    }
}
