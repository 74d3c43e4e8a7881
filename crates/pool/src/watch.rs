//! The sources that the thread of a pool waits for: its waker, the spawner, and the sockets and output of processes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Result;

use crate::shared::ProcessKey;

/// Maximum number of sources that one wait reports; the next wait reports the others.
const READY_MAX: usize = 256;

/// A source that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchSource {
    /// A server thread has sent orders to the pool, has joined it or has left it.
    Waker,
    /// The spawner has sent something, or has ended.
    Spawner,
    /// Output of a process for the log.
    Output(ProcessKey),
    /// The socket of a process can be read, or, if that was requested, written.
    Socket(ProcessKey),
}

impl WatchSource {
    /// Returns the number that identifies the source in epoll's data. The two lowest bits are the variant.
    fn number(self) -> u64 {
        match self {
            Self::Waker => 0,
            Self::Spawner => 1,
            Self::Output(key) => (key.0 << 2) | 2,
            Self::Socket(key) => (key.0 << 2) | 3,
        }
    }

    fn of(number: u64) -> Self {
        let key = ProcessKey(number >> 2);
        match number & 3 {
            0 => Self::Waker,
            1 => Self::Spawner,
            2 => Self::Output(key),
            _ => Self::Socket(key),
        }
    }

    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(self.number())
    }
}

/// The set of sources, an epoll descriptor. The kernel removes a source when its descriptor is closed.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Arc<OwnedFd>);

impl Watch {
    pub(crate) fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self(Arc::new(epoll)))
    }

    /// Adds a source. A wait reports the source while it can be read.
    pub(crate) fn add(&self, fd: impl AsFd, source: WatchSource) -> Result<()> {
        epoll::add(&*self.0, fd, source.data(), epoll::EventFlags::IN)
    }

    /// Sets whether a source is also reported while it can be written.
    pub(crate) fn set_writes(
        &self,
        fd: impl AsFd,
        source: WatchSource,
        writes: bool,
    ) -> Result<()> {
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, writes);
        epoll::modify(&*self.0, fd, source.data(), flags)
    }

    /// Waits until a source is ready or `timeout` has passed, and stores the ready sources in `ready`. Output precedes
    /// sockets, so that in the log the lines that a handler printed precede the effects of its answer.
    pub(crate) fn wait(&self, timeout: Duration, ready: &mut ReadySources) {
        ready.events.clear();
        ready.sources.clear();
        let timeout = Timespec::try_from(timeout).ok();
        // If a signal interrupts the wait, the wait only ends early.
        let _ = epoll::wait(
            &*self.0,
            spare_capacity(&mut ready.events),
            timeout.as_ref(),
        );
        let numbers = ready.events.iter().map(|event| event.data.u64());
        ready.sources.extend(numbers.map(WatchSource::of));
        ready.sources.sort_unstable();
        // Both outputs of a process are the same source, since they are read together.
        ready.sources.dedup();
    }
}

/// The sources that a wait has found ready.
pub(crate) struct ReadySources {
    events: Vec<epoll::Event>,
    sources: Vec<WatchSource>,
}

impl ReadySources {
    pub(crate) fn new() -> Self {
        Self {
            events: Vec::with_capacity(READY_MAX),
            sources: Vec::with_capacity(READY_MAX),
        }
    }

    pub(crate) fn sources(&self) -> &[WatchSource] {
        &self.sources
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_source_is_reported_while_it_is_ready_and_until_it_is_closed() {
        let (key, other) = (ProcessKey(7), ProcessKey(1 << 40));
        let (mut socket, mut peer) = UnixStream::pair().expect("a pair");
        let (output, mut writer) = UnixStream::pair().expect("a pair");
        let watch = Watch::new().expect("a watch");
        let mut ready = ReadySources::new();
        watch
            .add(&socket, WatchSource::Socket(key))
            .expect("is added");
        watch
            .add(&output, WatchSource::Output(other))
            .expect("is added");
        let mut wait = || {
            watch.wait(Duration::ZERO, &mut ready);
            ready.sources().to_vec()
        };
        assert_eq!(wait(), []);
        peer.write_all(b"1").expect("is written");
        writer.write_all(b"1").expect("is written");
        let both = [WatchSource::Output(other), WatchSource::Socket(key)];
        assert_eq!(wait(), both);
        assert_eq!(wait(), both);
        socket.read_exact(&mut [0]).expect("is read");
        drop(output);
        assert_eq!(wait(), []);
        let set = |writes| watch.set_writes(&socket, WatchSource::Socket(key), writes);
        set(true).expect("is set");
        assert_eq!(wait(), [WatchSource::Socket(key)]);
        set(false).expect("is set");
        assert_eq!(wait(), []);
        drop(peer);
        assert_eq!(wait(), [WatchSource::Socket(key)]);
    }
}
