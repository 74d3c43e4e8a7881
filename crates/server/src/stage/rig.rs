//! One worker for instruction counts: messages go in, turns are made, bytes come out, and nothing else costs anything.

use std::net::{Ipv4Addr, SocketAddr};

use veche_net::{ConnectionId, ListenerId};

use super::direct::DirectDriver;
use super::{FuzzStage, MONO_MS, good};

/// Turns without an event after which the worker has nothing left to do: a delivery may take a turn or two.
const QUIET_TURNS: u32 = 4;

/// A worker, brought up with a configuration.
pub struct WorkerRig(FuzzStage<DirectDriver>);

impl WorkerRig {
    /// Brings up a worker. The configuration names files relative to a folder with a site (`site/index.html`), an
    /// application that echoes (`app.lua`) and a certificate (`own.pem`, `own.key`).
    ///
    /// # Panics
    /// The configuration is not valid.
    #[must_use]
    pub fn new(config: &str) -> Self {
        Self(FuzzStage::on(DirectDriver::new(MONO_MS), &good(config)))
    }

    /// Opens a connection to one of the configuration's listeners, by its place.
    pub fn dial(&mut self, listener: u32) -> ConnectionId {
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_000));
        let id = self.0.network().dial(ListenerId(listener), from);
        self.settle();
        id
    }

    /// Queues bytes of a client, to be received whole in a turn of their own.
    pub fn arrive(&mut self, id: ConnectionId, bytes: Vec<u8>) {
        self.0.network().arrive(id, bytes);
    }

    /// Makes one turn.
    ///
    /// # Panics
    /// Never: the driver does not fail.
    #[inline]
    pub fn turn(&mut self) {
        self.0.worker.turn().expect("a driver that does not fail");
    }

    /// Makes turns until nothing is left to do.
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

    /// Takes what was sent to a client since the last call, unless [`forget`](Self::forget) was called.
    pub fn take_sent(&mut self, id: ConnectionId) -> Vec<u8> {
        self.0.network().take_sent(id)
    }

    /// From now on what is sent is counted and not kept.
    pub fn forget(&mut self) {
        self.0.network().forget();
    }

    /// Bytes sent to all clients so far.
    pub fn sent_bytes(&mut self) -> u64 {
        self.0.network().sent_bytes()
    }
}
