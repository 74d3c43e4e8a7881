//! Signals as a pollable descriptor: a self-pipe behind `signal-hook`, and a `poll` that tolerates interruptions.
//!
//! The supervisor and the server process both use this module, and neither runs its own code in a
//! signal handler. If the same signal arrives twice before [`Signals::take`], it counts once, as in
//! the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, Timespec, poll};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// Signals as readable events of a socket, instead of their default actions.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Catches `signals` (numbers as in `signal_hook::consts`) until the returned value is dropped.
    /// Their default actions are disabled.
    pub(crate) fn catch(signals: &[i32]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, signals)?;
        Ok(Self { delivery })
    }

    /// Calls `make` with all signals blocked, so that threads started in it never receive any.
    pub fn keep_from<T>(make: impl FnOnce() -> T) -> io::Result<T> {
        let before = SigSet::thread_get_mask()?;
        SigSet::all().thread_block()?;
        let made = make();
        before.thread_set_mask()?;
        Ok(made)
    }

    /// Takes the signals that arrived since the last call.
    pub(crate) fn take(&mut self) -> Vec<i32> {
        self.delivery.pending().collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// Polls once. An interruption by a signal is not an error: the signal is read from the pipe, which is among `fds`.
pub(crate) fn poll_once(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|t| {
        Timespec::try_from(t).unwrap_or(Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        })
    });
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
