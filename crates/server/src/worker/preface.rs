//! The PROXY protocol between a transport and its connection: whom a proxy speaks for, said before TLS and all else.
//!
//! Who is no trusted proxy does not come so far. Once the header is read nothing of it is left: the connection goes on
//! as its client's own, judged and counted as if he had connected himself.

use tracing::debug;
use veche_frontends::stats::TurnedAway;
use veche_net::{Driver, TransportId};
use veche_proto::proxy;

use super::{LOG, Rest, session};

/// A header that has yet to come.
pub(super) struct Preface {
    /// What has come of it.
    begun: Vec<u8>,
    /// It has to be there by then, and whatever else comes before the connection's own.
    until_ms: u64,
    listener: u16,
}

impl Preface {
    pub(super) fn new(listener: u16, until_ms: u64) -> Box<Self> {
        Box::new(Self {
            begun: Vec::new(),
            until_ms,
            listener,
        })
    }

    pub(super) fn until_ms(&self) -> u64 {
        self.until_ms
    }
}

impl Rest {
    /// Bytes of a proxy that has yet to say for whom it speaks.
    pub(super) fn received_preface<D: Driver>(
        &mut self,
        driver: &mut D,
        id: TransportId,
        bytes: &[u8],
    ) {
        let Some(slot) = self.slots.find(session(id)) else {
            return;
        };
        let Some(preface) = &mut slot.preface else {
            return;
        };
        preface.begun.extend_from_slice(bytes);
        let header = match proxy::read(&preface.begun) {
            Ok(None) => return,
            Ok(Some(header)) => header,
            Err(error) => {
                debug!(target: LOG, worker = self.me, peer = %slot.connection.peer, %error, "turned away");
                self.shared.stats.turn_away(TurnedAway::ProxyHeader);
                return driver.close(id);
            }
        };
        let (mut begun, until_ms, listener) = (
            std::mem::take(&mut preface.begun),
            preface.until_ms,
            preface.listener,
        );
        slot.preface = None;
        if let Some(client) = header.client {
            slot.connection.introduced(client);
        }
        let client = slot.connection.peer;
        if let Err(why) = self.may_come(listener, client) {
            debug!(target: LOG, peer = %client, ?why, "turned away");
            self.shared.stats.turn_away(why);
            return driver.close(id);
        }
        let rest = &mut begun[header.length..];
        if self.let_in(driver, id, listener, client, until_ms) && !rest.is_empty() {
            self.received(driver, id, rest);
        }
    }
}
