//! A worker for benchmarks that count instructions. The test code around it executes almost no instructions.

use std::net::{Ipv4Addr, SocketAddr};

use veche_net::{ConnectionId, ListenerId};

use super::direct::DirectDriver;
use super::{FuzzStage, MONO_MS, good};

/// The number of turns without an event after which the worker counts as idle. It is more than one, since delivering a
/// message may take a turn or two.
const QUIET_TURNS: u32 = 4;

/// A worker with a configuration.
pub struct WorkerRig(FuzzStage<DirectDriver>);

impl WorkerRig {
    /// Starts a worker. The configuration may refer to these files: a site (`site/index.html`), an echo application
    /// (`app.lua`), an application that publishes messages in the channel `news` (`publish.lua`), and a certificate
    /// with its key (`own.pem`, `own.key`).
    ///
    /// # Panics
    /// The configuration is not valid.
    #[must_use]
    pub fn new(config: &str) -> Self {
        Self(FuzzStage::on(DirectDriver::new(MONO_MS), &good(config)))
    }

    /// Opens a connection to a configured listener, by its index.
    pub fn dial(&mut self, listener: u32) -> ConnectionId {
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_000));
        let id = self.0.network().dial(ListenerId(listener), from);
        self.settle();
        id
    }

    /// Queues bytes of a client, to be received in a turn of their own.
    pub fn arrive(&mut self, id: ConnectionId, bytes: Vec<u8>) {
        self.0.network().arrive(id, bytes);
    }

    /// Runs one turn.
    ///
    /// # Panics
    /// Never: the driver does not fail.
    #[inline]
    pub fn turn(&mut self) {
        self.0
            .worker
            .turn()
            .expect("the simulated network must not fail");
    }

    /// Runs turns until the worker is idle.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < QUIET_TURNS {
            quiet = match self.0.network().is_empty() {
                true => quiet + 1,
                false => 0,
            };
            self.turn();
        }
    }

    /// Takes the data sent to a client since the last call. Once [`forget`](Self::forget) was called, the result is
    /// always empty.
    pub fn take_sent(&mut self, id: ConnectionId) -> Vec<u8> {
        self.0.network().take_sent(id)
    }

    /// Discards the sent data that has not been taken. From now on, sent data is only counted.
    pub fn forget(&mut self) {
        self.0.network().forget();
    }

    /// Returns the number of bytes sent to all clients.
    pub fn sent_bytes(&mut self) -> u64 {
        self.0.network().sent_bytes()
    }
}
