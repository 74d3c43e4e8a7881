//! Signals as something to poll: a self-pipe behind `signal-hook`, and the `poll` that it interrupts.
//!
//! Used by the supervisor and by the server process; neither does anything inside a signal handler. The same
//! signal twice before [`Signals::take`] counts once, as it does in the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, Timespec, poll};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// See the module.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Catches `signals` (numbers as in `signal_hook::consts`) until it is dropped; they no longer do what
    /// they do by default.
    pub(crate) fn catch(signals: &[i32]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, signals)?;
        Ok(Self { delivery })
    }

    /// Makes something whose threads get no signals: while a signal waits for this thread, none of them takes it.
    pub fn keep_from<T>(make: impl FnOnce() -> T) -> io::Result<T> {
        let before = SigSet::thread_get_mask()?;
        SigSet::all().thread_block()?;
        let made = make();
        before.thread_set_mask()?;
        Ok(made)
    }

    /// Those that came since the last call.
    pub(crate) fn take(&mut self) -> Vec<i32> {
        self.delivery.pending().collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// `poll` to which an interrupting signal is no error: its pipe is among what is polled.
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
