//! Trusted certificates of dialed connections: read on separate threads, since a worker must not wait for files.
//!
//! Connections to be dialed wait here; the thread wakes the worker, which dials in its next turn.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use veche_apps::Outgoing;
use veche_frontends::Caller;
use veche_mailbox::Wake as _;
use veche_net::Waker;
use veche_tls::{Believe, Trust, Trusts};

/// Certificates being read.
#[derive(Default)]
pub(super) struct Readings {
    under_way: Vec<Reading>,
    /// In tests the worker reads by itself, so that nothing depends on the timing of other threads.
    pub(super) is_own: bool,
}

struct Reading {
    believe: Believe,
    read: Receiver<Result<Trust, String>>,
    outgoing: Vec<Outgoing>,
}

/// Wakes the worker however the read ends, after the result is stored.
struct Wakes(Waker);

impl Drop for Wakes {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// A connection that can be dialed, or the error.
pub(super) type Ready = (Outgoing, Result<Trust, String>);

impl Readings {
    /// Returns the trust store of a connection; `None` if it is being read and the connection waits.
    pub(super) fn find(
        &mut self,
        trusts: &Arc<Trusts>,
        believe: Believe,
        outgoing: Outgoing,
        waker: impl FnOnce() -> Waker,
    ) -> Option<Ready> {
        if let Some(trust) = trusts.known(&believe) {
            return Some((outgoing, Ok(trust)));
        }
        if self.is_own {
            return Some((outgoing, read(trusts, &believe)));
        }
        let mut others = self.under_way.iter_mut();
        if let Some(reading) = others.find(|reading| reading.believe == believe) {
            reading.outgoing.push(outgoing);
            return None;
        }
        let (tell, told) = sync_channel(1);
        let (trusts, wanted, waker) = (Arc::clone(trusts), believe.clone(), waker());
        let thread = thread::Builder::new().name("certificates".to_owned());
        let thread = thread.spawn(move || {
            let _wakes = Wakes(waker);
            // The receiver is gone once the server has ended.
            let _ = tell.send(read(&trusts, &wanted));
        });
        if let Err(error) = thread {
            let why = format!("no thread to read certificates: {error}");
            return Some((outgoing, Err(why)));
        }
        self.under_way.push(Reading {
            believe,
            read: told,
            outgoing: vec![outgoing],
        });
        None
    }

    /// Returns the connections that can be dialed now.
    pub(super) fn take_ready(&mut self) -> Vec<Ready> {
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

    /// Removes a connection that is no longer wanted; returns whether it was waiting here.
    pub(super) fn forget(&mut self, caller: Caller) -> bool {
        self.under_way.iter_mut().any(|reading| {
            let before = reading.outgoing.len();
            reading.outgoing.retain(|one| one.dial.caller != caller);
            reading.outgoing.len() < before
        })
    }
}

fn read(trusts: &Trusts, believe: &Believe) -> Result<Trust, String> {
    trusts.find(believe).map_err(|error| error.to_string())
}
