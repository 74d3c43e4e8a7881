//! Listening sockets that outlive the supervisor in systemd's descriptor store: connections made between two runs queue
//! on them.
//!
//! [`ServiceNotifier::store`](super::notify::ServiceNotifier::store) stores them; the next start gets them by number,
//! from 3 on (`LISTEN_FDS`, sd_listen_fds(3)). All have the same name and are distinguished by their addresses. Their
//! order may be reversed, which leaves the workers' shares [even](veche_net::spread_evenly).

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::listening::ListeningSockets;

/// The name of all stored sockets.
pub(super) const NAME: &str = "veche-listen";
/// The variables with which a service manager passes descriptors. Children don't get them.
pub(super) const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
/// The number of the first descriptor.
const FIRST: RawFd = 3;

/// Returns the sockets left by an earlier run, by address; adds the reasons why others are unusable to `remarks`. Must
/// be called once only, since their numbers are free afterwards.
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

/// Returns the numbers of our sockets. Other descriptors, such as those of a socket unit, are ignored.
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

/// Converts a number to a descriptor without `unsafe`, by duplicating it.
fn own(number: RawFd) -> io::Result<OwnedFd> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let taken = pidfd_getfd(&this, number, PidfdGetfdFlags::empty());
    // It was inherited without `CLOEXEC`, so every child would get it.
    nix::unistd::close(number)?;
    Ok(taken?)
}
