//! Making a listening socket. Accepting is the driver's.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

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
