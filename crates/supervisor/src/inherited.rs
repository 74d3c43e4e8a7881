//! The listening sockets that the supervisor bound, and how workers share them.
//!
//! Several sockets listen on each address (`SO_REUSEPORT`); the kernel spreads connections over as many of
//! them as the workers divide ([`spread_evenly`](veche_net::spread_evenly)), or over all where it can't be
//! told. Every one has to be adopted by some worker, or what the kernel queues on it waits for ever: another
//! process on the same sockets may have another number of workers. That is all this module sees to; what is
//! accepted goes to the worker's driver.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// One `[[listen]]` with the sockets bound for it.
#[derive(Debug)]
pub struct InheritedListener {
    /// The address bound: where the config says port 0, the port that the system picked.
    pub address: SocketAddr,
    /// Listening, non-blocking, `CLOEXEC`. The supervisor holds duplicates of all of them and never closes
    /// them: closing one here refuses nobody, but takes it out of a poll set only after `EPOLL_CTL_DEL`.
    pub sockets: Vec<OwnedFd>,
}

/// A worker's share: socket `j` of each listener goes to worker `j mod workers`.
///
/// Returns for each worker its sockets with the index of their listener (the place of its `[[listen]]`).
/// With more workers than sockets some workers get none of a listener; the supervisor binds enough.
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
    fn every_socket_has_one_worker_and_every_worker_hears_every_listener() {
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
