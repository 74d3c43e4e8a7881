//! Creates listening sockets. The driver accepts their connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::sys::reuseport;

/// Options of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Maximum number of connections waiting for `accept`. The kernel caps it at `net.core.somaxconn`. Default 4,096.
    pub backlog: u32,
    /// Whether several sockets may listen at one address, with the kernel distributing connections among them. Default
    /// true.
    pub reuse_port: bool,
    /// Whether small messages are sent at once (`TCP_NODELAY`). Accepted sockets inherit the setting. Default true.
    pub nodelay: bool,
    /// Whether an IPv6 socket excludes IPv4. Default true. To listen on IPv4 and IPv6, list an address of each.
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

/// Creates a listening socket, which is non-blocking and close-on-exec.
///
/// `SO_REUSEADDR` is always set, so that a restart need not wait for connections of the previous
/// run to leave TIME_WAIT. `TCP_DEFER_ACCEPT` is not set, because the kernel would then not report a
/// connection that sends nothing, and our own timeouts could not end it.
///
/// # Errors
/// The address is in use, is not local, or requires a privilege.
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

/// Distributes connections evenly over workers that share the sockets of an address. `sockets` are in the order in
/// which they began to listen; worker `i` accepts from every socket `j` with `j mod workers == i`.
///
/// By default, the kernel chooses each socket equally often. If the number of sockets is not a
/// multiple of `workers`, some workers accept from one socket more than others, and get up to twice
/// as many connections. This call makes the kernel choose only among the first sockets, whose
/// number is the largest possible multiple of `workers`. The other sockets stay open, in case the
/// number of workers changes, and connections that are already queued are not affected. The setting
/// applies to all processes that share the sockets until it is changed.
///
/// # Errors
/// The sockets do not form a group (`SO_REUSEPORT`), or the kernel does not support this (before
/// Linux 4.5).
pub fn spread_evenly(sockets: &[OwnedFd], workers: usize) -> io::Result<()> {
    let uneven = sockets.len() % workers.max(1);
    match (sockets.first(), sockets.len() - uneven) {
        // There are no sockets, or fewer sockets than workers.
        (_, 0) | (None, _) => Ok(()),
        (Some(socket), even) => {
            let even = u32::try_from(even).map_err(io::Error::other)?;
            reuseport::spread_among(socket, even)
        }
    }
}
