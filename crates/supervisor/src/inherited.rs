//! The listening sockets bound by the supervisor, and their distribution among workers.
//!
//! Several sockets listen on each address (`SO_REUSEPORT`). [`spread_evenly`](veche_net::spread_evenly) makes the
//! kernel distribute connections over the largest number of sockets that is a multiple of the number of workers. If the
//! kernel refuses this setting, it distributes them over all sockets. Every socket must belong to some worker, or
//! connections queued on it would wait forever. The number of sockets may differ from the number of workers, because
//! another process on the same sockets may have had another number of workers.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A `[[listen]]` section with its bound sockets.
#[derive(Debug)]
pub struct InheritedListener {
    /// The bound address, with the port chosen by the system if the configuration has port 0.
    pub address: SocketAddr,
    /// The sockets: listening, non-blocking and `CLOEXEC`. The supervisor holds duplicates of all of them until it ends. So
    /// closing one here refuses no connection, and epoll keeps reporting it unless it is removed with `EPOLL_CTL_DEL` before.
    pub sockets: Vec<OwnedFd>,
}

/// Assigns socket `j` of each listener to worker `j mod workers`.
///
/// Returns for each worker its sockets, each with the index of its listener. If there were more workers than sockets, some
/// workers would get no socket of a listener; the supervisor binds enough to prevent this.
pub fn distribute(listeners: Vec<InheritedListener>, workers: usize) -> Vec<Vec<(usize, OwnedFd)>> {
    let mut hands: Vec<Vec<(usize, OwnedFd)>> = (0..workers).map(|_| Vec::new()).collect();
    for (listener, inherited) in listeners.into_iter().enumerate() {
        for (j, socket) in inherited.sockets.into_iter().enumerate() {
            hands[j % workers].push((listener, socket));
        }
    }
    hands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_has_one_socket_of_every_listener() {
        for (sockets, workers) in [(1, 1), (2, 2), (8, 3), (8, 8), (5, 2)] {
            let listeners = (0..3)
                .map(|_| InheritedListener {
                    address: ([127, 0, 0, 1], 1).into(),
                    sockets: (0..sockets)
                        .map(|_| {
                            std::net::UdpSocket::bind("127.0.0.1:0")
                                .expect("a port")
                                .into()
                        })
                        .collect(),
                })
                .collect();
            let hands = distribute(listeners, workers);
            assert_eq!(hands.len(), workers);
            assert_eq!(hands.iter().map(Vec::len).sum::<usize>(), 3 * sockets);
            for hand in &hands {
                for listener in 0..3 {
                    assert!(hand.iter().any(|(of, _)| *of == listener));
                }
            }
        }
    }
}
