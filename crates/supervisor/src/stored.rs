//! Listening sockets that outlive the supervisor in systemd's descriptor store: connections made between two runs queue
//! on them.
//!
//! [`ServiceNotifier::store`](super::notify::ServiceNotifier::store) stores the sockets; the next start gets them as
//! descriptors numbered from 3 (`LISTEN_FDS`, sd_listen_fds(3)). All stored sockets have the same name, and are
//! distinguished by their addresses. Their order may be reversed, which does not change the
//! [even](veche_net::spread_evenly) distribution among workers.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::listening::ListeningSockets;

/// The name of all stored sockets.
pub(super) const NAME: &str = "veche-listen";
/// The environment variables with which a service manager passes descriptors. They are removed from the environment of
/// children.
pub(super) const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
/// The number of the first descriptor passed by a service manager.
const FIRST: RawFd = 3;

/// Returns the sockets left by an earlier run, grouped by address. Adds a remark to `remarks` for each socket that is unusable.
/// Must be called only once, since the descriptor numbers are closed and may be reused afterwards.
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

/// Returns the descriptor numbers of the stored sockets, which have the name [`NAME`]. Descriptors with other names,
/// such as those of a socket unit, are ignored.
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

/// Converts a descriptor number to an owned descriptor without `unsafe`, by duplicating it through a pidfd of this process.
fn own(number: RawFd) -> io::Result<OwnedFd> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let taken = pidfd_getfd(&this, number, PidfdGetfdFlags::empty());
    // The original is closed: it was inherited without `CLOEXEC`, so every child would inherit it.
    nix::unistd::close(number)?;
    Ok(taken?)
}
