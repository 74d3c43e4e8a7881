//! The listening sockets: bound once, kept for the supervisor's lifetime, and under systemd [beyond it](super::stored).
//!
//! For each address a fixed number of sockets listens with `SO_REUSEPORT`. The server process gets duplicates of the sockets.
//! So while no server process is running, connections wait in the queues of the sockets instead of being refused. No socket is
//! closed early, since closing it resets the connections in its queue. The supervisor never accepts a connection.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::{io, iter, thread};

use rustix::net::Shutdown;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tracing::warn;
use veche_config::ListenerConfig;

use crate::message::ListenerSockets;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::listening";

/// The maximum number of connections queued on each socket; the kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;
/// The number of unsent bytes that the kernel queues for a client that does not read. Further data waits in the client's
/// outbox, where it counts against limits. By default the kernel would queue megabytes per client, and when its TCP memory runs
/// short, all connections of the machine suffer.
const KERNEL_UNSENT_BYTES: u32 = 128 << 10;
/// The idle time before TCP keep-alive probes start. After a number of unanswered probes the kernel ends the
/// connection as timed out. So peers that vanish silently, such as machines that lose power, are detected within two
/// minutes. The pings of a session detect them earlier.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(60);
/// The time between two TCP keep-alive probes.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// The number of unanswered TCP keep-alive probes after which the connection ends.
const KEEP_ALIVE_PROBES: u32 = 4;
/// The maximum number of retries if an address is in use. A server process whose supervisor was killed needs a moment
/// to notice that and to close its listeners.
const IN_USE_RETRIES: u32 = 20;
/// The time between two retries if an address is in use.
const IN_USE_RETRY_EVERY: Duration = Duration::from_millis(100);

/// The sockets of one `[[listen]]` section.
#[derive(Debug)]
pub(crate) struct ListeningSockets {
    /// The bound address; never port 0.
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<OwnedFd>,
}

impl ListeningSockets {
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        let sockets = self.sockets.iter().map(OwnedFd::try_clone);
        Ok(Self {
            address: self.address,
            sockets: sockets.collect::<io::Result<_>>()?,
        })
    }

    /// Adds a socket that an earlier run, possibly of another version of the program, has bound. Sets the socket's
    /// options to those of this version.
    pub(super) fn add_kept(all: &mut Vec<Self>, socket: OwnedFd) -> io::Result<()> {
        let found = SockRef::from(&socket);
        let address = found.local_addr()?.as_socket();
        let Some(address) = address.filter(|_| found.is_listener().unwrap_or(false)) else {
            return Err(io::Error::other("the socket no longer listens"));
        };
        set_options(&found)?;
        match all
            .iter_mut()
            .find(|listening| listening.address == address)
        {
            Some(listening) => listening.sockets.push(socket),
            None => all.push(Self {
                address,
                sockets: vec![socket],
            }),
        }
        Ok(())
    }

    /// Binds more sockets until there are `count`.
    pub(super) fn grow(&mut self, count: usize) -> Result<(), ListenError> {
        let address = self.address;
        let listening = |source| ListenError { address, source };
        for _ in self.sockets.len()..count {
            let socket = bind(address, true).map_err(listening)?;
            socket.listen(BACKLOG).map_err(listening)?;
            self.sockets.push(socket.into());
        }
        Ok(())
    }

    /// Shuts the sockets down for all processes that have them, so that connections are refused.
    pub(super) fn close(self) {
        for socket in self.sockets {
            if let Err(error) = rustix::net::shutdown(&socket, Shutdown::Both) {
                warn!(target: TARGET, %error, address = %self.address, "a listening socket can't be closed");
            }
        }
    }
}

impl ListenerSockets {
    /// Returns the description of the sockets for a message to the server process.
    pub(crate) fn of(listening: &ListeningSockets) -> Self {
        Self {
            address: listening.address,
            sockets: listening.sockets.len(),
        }
    }
}

/// The reason why an address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {}", explain(source))]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

fn explain(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => "the address is in use by another process".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "permission denied (ports below 1024 need CAP_NET_BIND_SERVICE)".to_owned()
        }
        _ => source.to_string(),
    }
}

/// Takes from `kept`, for each listener in order, the sockets that are bound to its address.
pub(super) fn assign(
    listeners: &[ListenerConfig],
    kept: &mut Vec<ListeningSockets>,
) -> Vec<Option<ListeningSockets>> {
    let is_named = |address| listeners.iter().any(|listener| listener.address == address);
    let mut take = |wanted| {
        let is_for = |kept: &ListeningSockets| {
            let address = kept.address;
            // A listener with port 0 must not take a socket whose address another listener configures explicitly.
            ListenerSockets::are_for(address, wanted) && (address == wanted || !is_named(address))
        };
        let place = kept.iter().position(is_for)?;
        Some(kept.remove(place))
    };
    let addresses = listeners.iter().map(|listener| listener.address);
    addresses.map(&mut take).collect()
}

/// Binds `sockets_each` sockets for each listener that has no `assigned` sockets; returns the sockets of all listeners in
/// order.
pub(crate) fn listen_on(
    listeners: &[ListenerConfig],
    sockets_each: usize,
    assigned: impl IntoIterator<Item = Option<ListeningSockets>>,
) -> Result<Vec<ListeningSockets>, ListenError> {
    let assigned = assigned.into_iter().chain(iter::repeat_with(|| None));
    (listeners.iter().zip(assigned))
        .map(|(listener, assigned)| {
            let address = listener.address;
            let bound = assigned.map_or_else(|| bind_set(address, sockets_each), Ok);
            bound.map_err(|source| ListenError { address, source })
        })
        .collect()
}

fn bind_set(address: SocketAddr, count: usize) -> io::Result<ListeningSockets> {
    wait_until_free(address)?;
    let first = bind(address, true)?;
    let address = first.local_addr()?.as_socket().unwrap_or(address);
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(bind(address, true)?);
    }
    // Listening starts when all sockets are bound, so that no connection is lost if binding fails.
    for socket in &sockets {
        socket.listen(BACKLOG)?;
    }
    Ok(ListeningSockets {
        address,
        sockets: sockets.into_iter().map(OwnedFd::from).collect(),
    })
}

/// Waits until no other server uses the address. With `SO_REUSEPORT` two servers of the same user would silently share it; a
/// bind without the option detects the other server.
fn wait_until_free(address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let mut retries = 0;
    loop {
        match bind(address, false) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && retries < IN_USE_RETRIES => {
                retries += 1;
                thread::sleep(IN_USE_RETRY_EVERY);
            }
            Err(e) => return Err(e),
        }
    }
}

fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Connections of an earlier run in TIME_WAIT must not prevent the start.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    set_options(&SockRef::from(&socket))?;
    if address.is_ipv6() {
        // The socket accepts only IPv6, so `[::]:80` does not conflict with `0.0.0.0:80`, and IPv4 clients are seen with IPv4
        // addresses.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Sets the options that accepted sockets inherit. Their values may differ between versions of the program.
fn set_options(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // Disables Nagle's algorithm: a turn's output is already one write, and later data must not wait for the acknowledgement of
    // earlier data.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(KERNEL_UNSENT_BYTES)?;
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_AFTER)
        .with_interval(KEEP_ALIVE_EVERY)
        .with_retries(KEEP_ALIVE_PROBES);
    socket.set_tcp_keepalive(&keep_alive)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Keep-alive is needed because back ends on push listeners may be silent for any time, so nothing else would detect that
    /// they have vanished.
    #[test]
    fn accepted_connections_are_kept_alive() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(set) = bind_set(address.parse().expect("an address"), 1) else {
                continue;
            };
            let _peer = TcpStream::connect(set.address).expect("it listens");
            let listener = TcpListener::from(set.sockets.into_iter().next().expect("a socket"));
            listener.set_nonblocking(false).expect("a socket");
            let (accepted, _) = listener.accept().expect("it is there");
            let accepted = SockRef::from(&accepted);
            assert!(accepted.keepalive().expect("an option"));
            let (after, every) = (
                accepted.tcp_keepalive_time().expect("an option"),
                accepted.tcp_keepalive_interval().expect("an option"),
            );
            let probes = accepted.tcp_keepalive_retries().expect("an option");
            assert_eq!(after + every * probes, Duration::from_secs(120));
            assert_eq!((after, probes), (KEEP_ALIVE_AFTER, KEEP_ALIVE_PROBES));
        }
    }

    /// Opens 5,000 connections, and returns how many of them each worker accepts.
    fn shares(set: &ListeningSockets, workers: usize) -> Vec<usize> {
        let listeners: Vec<TcpListener> = (set.sockets.iter())
            .map(|socket| socket.try_clone().expect("a descriptor").into())
            .collect();
        let mut shares = vec![0; workers];
        for _ in 0..50 {
            // The kernel queues each connection before `connect` returns.
            let connect = || TcpStream::connect(set.address).expect("it listens");
            let peers: Vec<_> = (0..100).map(|_| connect()).collect();
            let before: usize = shares.iter().sum();
            for (place, listener) in listeners.iter().enumerate() {
                loop {
                    match listener.accept() {
                        Ok(_) => shares[place % workers] += 1,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            // No connection waits on a socket without a worker.
            assert_eq!(shares.iter().sum::<usize>() - before, peers.len());
        }
        shares
    }

    /// The number of workers may change while the sockets stay the same.
    #[test]
    fn workers_have_even_shares_where_they_do_not_divide_the_sockets() {
        let set = bind_set(([127, 0, 0, 1], 0).into(), 8).expect("a free port");
        for workers in [5, 3, 8, 5] {
            veche_net::spread_evenly(&set.sockets, workers).expect("Linux 4.5");
            let shares = shares(&set, workers);
            let mean = 5000.0 / workers as f64;
            // The tolerance is more than four standard deviations. Without `spread_evenly`, some workers get 60 % more
            // connections than others, or even twice as many.
            let slack = 5.0 * mean.sqrt();
            let is_even = |share: &usize| (*share as f64 - mean).abs() < slack;
            assert!(shares.iter().all(is_even), "{workers} workers: {shares:?}");
        }
    }

    #[test]
    fn a_set_shares_one_port() {
        let set = bind_set(([127, 0, 0, 1], 0).into(), 4).expect("a free port");
        assert_eq!(set.sockets.len(), 4);
        for socket in set.sockets {
            let address = TcpListener::from(socket).local_addr().expect("bound");
            assert_eq!(address, set.address);
            assert_ne!(address.port(), 0);
        }
    }

    #[test]
    fn an_address_in_use_is_refused_even_with_reuse_port() {
        let other = bind_set(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
        assert_eq!(
            bind_set(other.address, 1).expect_err("in use").kind(),
            ErrorKind::AddrInUse
        );
    }

    #[test]
    fn an_address_that_gets_free_is_taken() {
        let other = bind_set(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
        let address = other.address;
        let frees = thread::spawn(move || {
            thread::sleep(2 * IN_USE_RETRY_EVERY);
            drop(other);
        });
        bind_set(address, 1).expect("free by now");
        frees.join().expect("no panic");
    }

    #[test]
    fn both_families_may_have_one_port() {
        let Ok(six) = bind_set("[::]:0".parse().expect("an address"), 1) else {
            return;
        };
        bind_set(([0, 0, 0, 0], six.address.port()).into(), 1).expect("IPv4 beside IPv6");
    }
}
