//! A level-triggered epoll with plain numbers for names.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io;

const EVENTS_MAX: usize = 1024;

pub struct Poll {
    fd: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            fd: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_MAX),
        })
    }

    pub fn readable(&self, fd: impl AsFd, name: usize) -> io::Result<()> {
        epoll::add(
            &self.fd,
            fd,
            EventData::new_u64(name as u64),
            EventFlags::IN,
        )
    }

    pub fn writable(&self, fd: impl AsFd, name: usize) -> io::Result<()> {
        epoll::add(
            &self.fd,
            fd,
            EventData::new_u64(name as u64),
            EventFlags::OUT,
        )
    }

    pub fn change(&self, fd: impl AsFd, name: usize, writable: bool) -> io::Result<()> {
        let flags = if writable {
            EventFlags::IN | EventFlags::OUT
        } else {
            EventFlags::IN
        };
        epoll::modify(&self.fd, fd, EventData::new_u64(name as u64), flags)
    }

    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.fd, fd)
    }

    /// Names of what is ready: readable, writable or in error, which the next call on it tells.
    pub fn wait(
        &mut self,
        timeout: Duration,
    ) -> io::Result<impl Iterator<Item = (usize, EventFlags)>> {
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        self.events.clear();
        match epoll::wait(&self.fd, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(self
            .events
            .iter()
            .map(|event| (event.data.u64() as usize, event.flags)))
    }
}
