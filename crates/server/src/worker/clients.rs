//! Connections that applications open to other servers: dialed here, and sealed where TLS is asked for.
//!
//! Once it is dialed it is a connection as any other: it has a slot, an outbox, and its events come by the same ways.

use std::sync::Arc;

use tracing::debug;
use veche_frontends::{Caller, Connection};
use veche_hub::SessionId;
use veche_net::{CloseReason, Driver};
use veche_tls::Trust;

use super::sealed::Seal;
use super::{LOG, Rest, session};
use crate::apps::{Asked, Outgoing};

/// Why nothing is dialed any more.
const GOING_AWAY: &str = "the server is going away";

impl Rest {
    /// Dials what applications have asked for, and gives up what they want no more.
    pub(super) fn dial<D: Driver>(&mut self, driver: &mut D) {
        for (outgoing, trust) in self.readings.take_ready() {
            self.dial_one(driver, outgoing, trust.map(Some));
        }
        for asked in self.with_here(|here, _| here.take_asked()) {
            match asked {
                Asked::Dial(mut outgoing) => match outgoing.tls.take() {
                    None => self.dial_one(driver, *outgoing, Ok(None)),
                    Some(believe) => {
                        let (trusts, waker) = (&self.common.trusts, || driver.waker());
                        let ready = self.readings.find(trusts, believe, *outgoing, waker);
                        if let Some((outgoing, trust)) = ready {
                            self.dial_one(driver, outgoing, trust.map(Some));
                        }
                    }
                },
                Asked::HangUp(caller) => self.hang_up(driver, caller),
            }
        }
    }

    fn dial_one<D: Driver>(
        &mut self,
        driver: &mut D,
        outgoing: Outgoing,
        trust: Result<Option<Trust>, String>,
    ) {
        let caller = outgoing.dial.caller;
        if let Err(why) = self.try_dial(driver, outgoing, trust) {
            self.shared.with_apps(|apps, shared| {
                apps.client_failed(caller.app, caller.token, &why, shared);
            });
        }
    }

    fn try_dial<D: Driver>(
        &mut self,
        driver: &mut D,
        outgoing: Outgoing,
        trust: Result<Option<Trust>, String>,
    ) -> Result<(), String> {
        let Outgoing {
            address,
            host,
            dial,
            ..
        } = outgoing;
        if self.drain.as_ref().is_some_and(|drain| drain.clients_told) {
            return Err(GOING_AWAY.to_owned());
        }
        if self.common.is_at_cap() {
            return Err("this server has as many connections as it may".to_owned());
        }
        let tls = trust?.map(|trust| trust.connect(&host)).transpose();
        let tls = tls.map_err(|error| error.to_string())?;
        let id = driver.connect(address).map_err(|error| error.to_string())?;
        let peer = address.ip();
        self.common.connection_opened();
        let connection = Connection::dial(session(id), peer, dial, &mut self.shared);
        let slot = self.slots.insert(session(id), connection);
        slot.seal = tls.map(|tls| Seal::dialed(*tls));
        slot.settle(driver, id);
        Ok(())
    }

    fn hang_up<D: Driver>(&mut self, driver: &mut D, caller: Caller) {
        if self.readings.forget(caller) {
            return;
        }
        // Rare, and there is no other way to find it.
        let found = (0..self.slots.end()).find_map(|index| {
            let id = self.slots.at(index)?;
            let slot = self.slots.find(id)?;
            (slot.connection.caller() == Some(caller)).then_some(id)
        });
        if let Some(id) = found {
            self.with(driver, id, |connection, shared| {
                connection.failed(id, "not wanted any more", shared);
            });
        }
    }

    /// The transport of what was dialed is gone: why, if it never was open.
    pub(super) fn dialed_in_vain(&mut self, id: SessionId, reason: CloseReason) {
        if let Some(slot) = self.slots.find(id)
            && slot.connection.caller().is_some()
        {
            debug!(target: LOG, worker = self.me, peer = %slot.connection.peer, ?reason, "dialed in vain");
            if reason != CloseReason::Asked {
                let why = words(reason);
                slot.connection.failed(id, &why, &mut self.shared);
            }
        }
    }

    /// The connections to other servers are closed once neither an application nor a client of ours needs
    /// them, or has the time to.
    pub(super) fn drain_clients<D: Driver>(&mut self, driver: &mut D) {
        let stats = Arc::clone(&self.shared.stats);
        let now_ms = self.shared.now.mono_ms;
        let Some(drain) = &mut self.drain else { return };
        let is_late = now_ms >= drain.until_ms;
        let is_needed = !drain.all_stopped || stats.connections.read() > 0;
        if drain.clients_told || is_needed && !is_late {
            return;
        }
        drain.clients_told = true;
        for index in 0..self.slots.end() {
            if let Some(id) = self.slots.at(index) {
                self.with(driver, id, |connection, shared| {
                    if connection.listener().is_none() {
                        connection.drain(id, shared);
                    }
                });
            }
        }
    }
}

fn words(reason: CloseReason) -> String {
    match reason {
        CloseReason::Asked => "closed".to_owned(),
        CloseReason::Reset => "the connection was reset".to_owned(),
        CloseReason::Refused => "connection refused".to_owned(),
        CloseReason::TimedOut => "the network timed out".to_owned(),
        CloseReason::Error(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
    }
}
