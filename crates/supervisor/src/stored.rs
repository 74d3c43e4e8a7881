//! Listening sockets that outlive the supervisor, in the descriptor store of systemd: connections that come between the end
//! of one run and the start of the next queue on them.
//!
//! [`Notifier::store`](super::notify::Notifier::store) hands them over; the next start gets them by number, from 3 on
//! (`LISTEN_FDS`, sd_listen_fds(3)). All have one name, and their addresses say which is which. Their order may be the
//! reverse of the one in which they began to listen, which leaves the shares of workers
//! [even](veche_net::spread_evenly).

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::listening::ListeningSockets;

/// The name of all sockets in the store.
pub(super) const NAME: &str = "veche-listen";
/// What a service manager says of descriptors that it passes. Children do not get any.
pub(super) const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
/// The number of the first descriptor.
const FIRST: RawFd = 3;

/// Returns the sockets that an earlier run has left, by address, and adds to `remarks` why others are not used. Must be
/// called once only, since their numbers are free afterwards.
pub(super) fn take(remarks: &mut Vec<String>) -> Vec<ListeningSockets> {
    let mut kept = Vec::new();
    for number in numbers() {
        let added = own(number).and_then(|socket| ListeningSockets::add_kept(&mut kept, socket));
        if let Err(error) = added {
            remarks.push(format!(
                "socket {number} of the descriptor store is not used: {error}"
            ));
        }
    }
    kept
}

/// The numbers of our sockets. Other descriptors, such as those of a socket unit, are left alone.
fn numbers() -> Vec<RawFd> {
    let [pid, count, names] = VARIABLES.map(|name| std::env::var(name).unwrap_or_default());
    if pid != std::process::id().to_string() {
        return Vec::new();
    }
    let count = count.parse().unwrap_or(0);
    (FIRST..)
        .zip(names.split(':'))
        .take(count)
        .filter_map(|(number, name)| (name == NAME).then_some(number))
        .collect()
}

/// Makes a descriptor of a number without `unsafe`: a duplicate of it takes its place.
fn own(number: RawFd) -> io::Result<OwnedFd> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let taken = pidfd_getfd(&this, number, PidfdGetfdFlags::empty());
    // Inherited and not closed at `exec`, so every child would have it.
    nix::unistd::close(number)?;
    Ok(taken?)
}
