//! Dials outgoing connections of applications, with TLS if requested.
//!
//! A dialed connection is treated like an accepted one: it has a slot and an outbox, and the same
//! code handles its events.

use veche_apps::{DialAction, OutgoingConnection};
use veche_frontends::DialId;
use veche_net::{CloseReason, Driver};
use veche_tls::ClientTrust;

use super::tls::TlsLayer;
use super::transport::ConnectionTransport;
use super::{WorkerApps, WorkerState};

/// The error of outgoing connections that are requested while the server is shutting down.
const GOING_AWAY: &str = "the server is going away";

impl<A: WorkerApps> WorkerState<A> {
    /// Dials the connections requested by applications, and drops those that are no longer needed.
    pub(super) fn dial<D: Driver>(&mut self, driver: &mut D) {
        for (outgoing, trust) in self.trust_loader.take_ready() {
            self.dial_one(driver, outgoing, trust.map(Some));
        }
        let asked = self.worker.with_apps(|here, _| here.take_asked());
        for asked in asked.unwrap_or_default() {
            match asked {
                DialAction::Dial(mut outgoing) => match outgoing.tls.take() {
                    None => self.dial_one(driver, *outgoing, Ok(None)),
                    Some(trust_source) => {
                        let (trusts, waker) = (&self.common.trusts, || driver.waker());
                        let ready = self
                            .trust_loader
                            .find(trusts, trust_source, *outgoing, waker);
                        if let Some((outgoing, trust)) = ready {
                            self.dial_one(driver, outgoing, trust.map(Some));
                        }
                    }
                },
                DialAction::HangUp(caller) => self.hang_up(caller),
            }
        }
    }

    fn dial_one<D: Driver>(
        &mut self,
        driver: &mut D,
        outgoing: OutgoingConnection,
        trust: Result<Option<ClientTrust>, String>,
    ) {
        let caller = outgoing.dial.caller;
        if let Err(why) = self.try_dial(driver, outgoing, trust) {
            self.worker.handle_dial_failed(caller, &why);
        }
    }

    fn try_dial<D: Driver>(
        &mut self,
        driver: &mut D,
        outgoing: OutgoingConnection,
        trust: Result<Option<ClientTrust>, String>,
    ) -> Result<(), String> {
        let OutgoingConnection {
            address,
            host,
            dial,
            ..
        } = outgoing;
        if self.worker.has_stopped_servers() {
            return Err(GOING_AWAY.to_owned());
        }
        if self.common.is_at_cap() {
            return Err("this server has reached its connection limit".to_owned());
        }
        let tls = trust?.map(|trust| trust.connect(&host)).transpose();
        let tls = tls.map_err(|error| error.to_string())?;
        let id = driver.connect(address).map_err(|error| error.to_string())?;
        let peer = address.ip();
        self.common.connection_opened();
        let transport = tls.map_or_else(ConnectionTransport::default, |tls| {
            ConnectionTransport::tls(TlsLayer::dialed(*tls))
        });
        self.worker.handle_dialed(id, peer, dial, transport);
        Ok(())
    }

    fn hang_up(&mut self, caller: DialId) {
        if !self.trust_loader.forget(caller) {
            self.worker.hang_up(caller);
        }
    }
}

/// Returns why a transport closed; `None` if this process has closed it.
pub(super) fn error_text(reason: CloseReason) -> Option<String> {
    Some(match reason {
        CloseReason::Requested => return None,
        CloseReason::Reset => "the connection was reset".to_owned(),
        CloseReason::Refused => "connection refused".to_owned(),
        CloseReason::TimedOut => "the network timed out".to_owned(),
        CloseReason::Error(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
    })
}
