//! The socket calls and the clock.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType,
    acceptfrom_with, recv, send, sendmsg, socket_with, sockopt,
};
use rustix::time::{ClockId, clock_gettime};

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Returns the monotonic clock in milliseconds.
#[inline]
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Receives bytes and returns their number; 0 after the peer's FIN.
#[inline]
pub(crate) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    recv(socket, bytes, RecvFlags::empty()).map(|(_, count)| count)
}

/// Sends bytes and returns how many the kernel accepted. If the peer has closed, the error is
/// EPIPE; there is no SIGPIPE.
#[inline]
pub(crate) fn send_one(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    send(socket, bytes, SendFlags::NOSIGNAL)
}

/// Like [`send_one`], from several slices at once.
pub(crate) fn send_many(socket: &OwnedFd, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    sendmsg(
        socket,
        slices,
        &mut SendAncillaryBuffer::default(),
        SendFlags::NOSIGNAL,
    )
}

pub(crate) fn accept(listener: &OwnedFd) -> Result<(OwnedFd, SocketAddr), Errno> {
    let (socket, peer) = acceptfrom_with(listener, FLAGS)?;
    // The peer of a TCP connection is always known.
    let peer = peer
        .and_then(|peer| SocketAddr::try_from(peer).ok())
        .unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    Ok((socket, peer))
}

/// Creates a socket for [`connect`] that sends small messages immediately.
pub(crate) fn new_for(addr: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if addr.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// Binds the socket to a local address; the kernel chooses the port.
pub(crate) fn bind_from(socket: &OwnedFd, from: IpAddr) -> Result<(), Errno> {
    rustix::net::bind(socket, &SocketAddr::new(from, 0))
}

/// Starts to connect. EINPROGRESS counts as success.
pub(crate) fn connect(socket: &OwnedFd, addr: &SocketAddr) -> Result<(), Errno> {
    match rustix::net::connect(socket, addr) {
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
        done => done,
    }
}

/// Returns and clears the pending error of the socket.
pub(crate) fn take_error(socket: impl AsFd) -> Result<(), Errno> {
    sockopt::socket_error(socket)?
}

pub(crate) fn shutdown_write(socket: &OwnedFd) -> Result<(), Errno> {
    rustix::net::shutdown(socket, Shutdown::Write)
}
