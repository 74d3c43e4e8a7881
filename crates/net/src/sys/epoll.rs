//! The epoll calls.

use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

pub(crate) use rustix::event::epoll::{Event, EventFlags};

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    pub(crate) fn add(&self, fd: impl AsFd, tag: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(tag), flags)
    }

    pub(crate) fn modify(&self, fd: impl AsFd, tag: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(tag), flags)
    }

    pub(crate) fn delete(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, fd)
    }

    /// Fills `events` up to its capacity.
    #[inline]
    pub(crate) fn wait(
        &self,
        events: &mut Vec<Event>,
        timeout_ms: Option<u64>,
    ) -> Result<(), Errno> {
        events.clear();
        let timeout = timeout_ms.map(|ms| {
            // What fits an `int` of milliseconds needs no epoll_pwait2, which
            // older kernels and some containers refuse.
            let ms = ms.min(i32::MAX as u64) as i64;
            Timespec {
                tv_sec: ms / 1000,
                tv_nsec: (ms % 1000) * 1_000_000,
            }
        });
        epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()).map(drop)
    }
}
