//! The epoll calls.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

pub(crate) use rustix::event::epoll::{Event, EventFlags};

/// The descriptor of an epoll instance.
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

    /// Waits for events, and fills `events` with at most as many as its capacity.
    #[inline]
    pub(crate) fn wait(
        &self,
        events: &mut Vec<Event>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        events.clear();
        let mut timespec = timeout.map(|timeout| {
            // epoll_pwait2 is not available on older kernels and in some containers. It is not
            // needed for a timeout whose milliseconds fit into an `int`.
            let timeout = timeout.min(Duration::from_millis(i32::MAX as u64));
            Timespec {
                tv_sec: timeout.as_secs() as i64,
                tv_nsec: i64::from(timeout.subsec_nanos()),
            }
        });
        if let Some(timeout) = &mut timespec
            && timeout.tv_nsec % 1_000_000 != 0
        {
            // epoll_wait has a resolution of one millisecond, ppoll a finer one.
            let mut ready = [PollFd::new(&self.epoll, PollFlags::IN)];
            poll(&mut ready, Some(timeout))?;
            *timeout = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
        }
        epoll::wait(&self.epoll, spare_capacity(events), timespec.as_ref()).map(drop)
    }
}
