//! Chooses ports for the servers that tests start.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Socket, Type};

/// The ports for test servers, below the range from which the system assigns ports.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Returns a free loopback address. Its port is outside the range from which the system assigns
/// ports. Otherwise the system could assign the port to another socket before the server binds it.
/// Each test process begins at a different port.
pub(crate) fn free_address() -> SocketAddr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let next = || {
        let number = COUNT
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(std::process::id().wrapping_mul(61));
        let port = PORTS.start + (number % PORTS.len() as u32) as u16;
        SocketAddr::from(([127, 0, 0, 1], port))
    };
    std::iter::repeat_with(next)
        .take(PORTS.len())
        .find(|&address| is_free(address))
        .expect("a free port")
}

/// Returns whether no server listens on an address. The socket that finds this out doesn't listen: a server of another
/// test process can bind the same address meanwhile, and its clients are never connected to this socket.
fn is_free(address: SocketAddr) -> bool {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("an option");
    socket.bind(&address.into()).is_ok()
}
