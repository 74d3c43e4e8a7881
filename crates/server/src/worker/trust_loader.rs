//! Reads the trusted certificates of dialed connections on separate threads, since a worker must
//! not wait for files.
//!
//! Connections wait here until their certificates are read. The reading thread wakes the worker,
//! which dials in its next turn.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use veche_apps::OutgoingConnection;
use veche_frontends::DialId;
use veche_mailbox::Wake as _;
use veche_net::Waker;
use veche_tls::{ClientTrust, TrustSource, TrustStores};

/// Certificates for outgoing connections, read by threads other than the worker.
#[derive(Default)]
pub(super) struct TrustLoader {
    under_way: Vec<TrustRead>,
    /// Whether the worker reads the certificates itself, as in tests, so that nothing depends on the timing of other
    /// threads.
    pub(super) is_own: bool,
}

struct TrustRead {
    trust_source: TrustSource,
    read: Receiver<Result<ClientTrust, String>>,
    outgoing: Vec<OutgoingConnection>,
}

/// Wakes the worker when dropped, which happens after the result was sent, or when the reading thread panics.
struct WakeOnDrop(Waker);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// A connection to open, with its trust store, or with the error if its certificates could not be read.
pub(super) type LoadedTrust = (OutgoingConnection, Result<ClientTrust, String>);

impl TrustLoader {
    /// Returns the connection with its trust store, or with the error if that could not be read. Returns `None` if
    /// another thread is reading the certificates; the connection then waits for [`take_ready`](Self::take_ready).
    pub(super) fn find(
        &mut self,
        trusts: &Arc<TrustStores>,
        trust_source: TrustSource,
        outgoing: OutgoingConnection,
        waker: impl FnOnce() -> Waker,
    ) -> Option<LoadedTrust> {
        if let Some(trust) = trusts.cached(&trust_source) {
            return Some((outgoing, Ok(trust)));
        }
        if self.is_own {
            return Some((outgoing, read(trusts, &trust_source)));
        }
        let mut others = self.under_way.iter_mut();
        if let Some(reading) = others.find(|reading| reading.trust_source == trust_source) {
            reading.outgoing.push(outgoing);
            return None;
        }
        let (sender, receiver) = sync_channel(1);
        let (trusts, wanted, waker) = (Arc::clone(trusts), trust_source.clone(), waker());
        let thread = thread::Builder::new().name("certificates".to_owned());
        let thread = thread.spawn(move || {
            let _wakes = WakeOnDrop(waker);
            // Sending fails only if the server has ended, so the error is ignored.
            let _ = sender.send(read(&trusts, &wanted));
        });
        if let Err(error) = thread {
            let why = format!("can't start a thread to read certificates: {error}");
            return Some((outgoing, Err(why)));
        }
        self.under_way.push(TrustRead {
            trust_source,
            read: receiver,
            outgoing: vec![outgoing],
        });
        None
    }

    /// Removes and returns the connections whose certificates have been read, each with the outcome.
    pub(super) fn take_ready(&mut self) -> Vec<LoadedTrust> {
        let mut ready = Vec::new();
        self.under_way.retain_mut(|reading| {
            let trust = match reading.read.try_recv() {
                Ok(trust) => trust,
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => Err("certificates could not be read".to_owned()),
            };
            let outgoing = reading.outgoing.drain(..);
            ready.extend(outgoing.map(|outgoing| (outgoing, trust.clone())));
            false
        });
        ready
    }

    /// Removes a connection that is no longer needed. Returns whether it was waiting for
    /// certificates.
    pub(super) fn forget(&mut self, caller: DialId) -> bool {
        self.under_way.iter_mut().any(|reading| {
            let before = reading.outgoing.len();
            reading.outgoing.retain(|one| one.dial.caller != caller);
            reading.outgoing.len() < before
        })
    }
}

fn read(trusts: &TrustStores, trust_source: &TrustSource) -> Result<ClientTrust, String> {
    trusts.load(trust_source).map_err(|error| error.to_string())
}
