//! Making a listening socket. Accepting is the driver's.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::sys::reuseport;

/// How a listening socket is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that may wait for `accept`. The kernel cuts it to
    /// `net.core.somaxconn`. Default 4,096.
    pub backlog: u32,
    /// Lets several sockets listen at one address, the kernel spreading
    /// connections over them. Default true.
    pub reuse_port: bool,
    /// Accepted sockets inherit it: small messages leave at once. Default true.
    pub nodelay: bool,
    /// Whether an IPv6 socket leaves IPv4 alone. Default true: an operator who
    /// wants both writes both.
    pub ipv6_only: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 4096,
            reuse_port: true,
            nodelay: true,
            ipv6_only: true,
        }
    }
}

/// Binds and listens, non-blocking and close-on-exec.
///
/// `SO_REUSEADDR` is always set: a restart must not wait for the connections
/// of the last run to leave TIME_WAIT. `TCP_DEFER_ACCEPT` is not: it would hide
/// silent connections from our own timeouts.
///
/// # Errors
/// What the operating system says: the address is in use, not ours, or needs a
/// privilege.
pub fn bind(addr: SocketAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(options.ipv6_only)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(options.reuse_port)?;
    socket.set_tcp_nodelay(options.nodelay)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Has connections spread evenly over workers that share the sockets of one address: `sockets`, in the order in which they
/// began to listen, of which worker `i` accepts from every `j` with `j mod workers == i`.
///
/// By itself the kernel takes each socket equally often, so where `workers` does not divide their number some workers get
/// one socket's share more than others, up to twice as much. From here on it draws among as many of them as `workers`
/// divides. The rest stays open, for another number of workers; no socket has to be closed, and what is queued stays where
/// it is. It holds for all processes that have the sockets, until it is said anew.
///
/// # Errors
/// What the operating system says: the sockets are no group (`SO_REUSEPORT`), or the kernel lacks this (Linux 4.5).
pub fn spread_evenly(sockets: &[OwnedFd], workers: usize) -> io::Result<()> {
    let uneven = sockets.len() % workers.max(1);
    match (sockets.first(), sockets.len() - uneven) {
        // There are fewer sockets than workers.
        (_, 0) | (None, _) => Ok(()),
        (Some(socket), even) => {
            let even = u32::try_from(even).map_err(io::Error::other)?;
            reuseport::spread_among(socket, even)
        }
    }
}
