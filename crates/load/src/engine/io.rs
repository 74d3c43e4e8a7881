//! Operations of a load on its clients.

use veche_net::{Driver, Epoll};
use veche_proto::websocket::{MessageKind, encode_close};

use super::EngineState;
use crate::client::{AddressFamilyChoice, ClientState};
use crate::clock::{MILLISECOND, now_ns};
use crate::tally::{ErrorCase, ErrorCause};

/// The interface of a load to its clients.
pub(crate) struct LoadIo<'a> {
    pub(crate) driver: &'a mut Epoll,
    pub(crate) net: &'a mut EngineState,
}

impl LoadIo<'_> {
    /// Begins to connect a closed client; the load is notified by `opened` or `closed`.
    pub(crate) fn open(&mut self, client_index: u32) -> Result<(), ErrorCase> {
        self.open_due(client_index, now_ns())
    }

    /// Begins to connect a client. Its handshake time is measured from `due_ns`, when the connect
    /// was due.
    pub(crate) fn open_due(&mut self, client_index: u32, due_ns: u64) -> Result<(), ErrorCase> {
        let endpoint = self.net.clients[client_index as usize].endpoint;
        let family = self.net.families[endpoint as usize].preferred;
        self.open_family(client_index, due_ns, family)
    }

    /// Begins to connect to an address of this family.
    pub(super) fn open_family(
        &mut self,
        client_index: u32,
        due_ns: u64,
        family: AddressFamilyChoice,
    ) -> Result<(), ErrorCase> {
        let net = &mut *self.net;
        net.set_unsent(client_index, 0);
        let client = &mut net.clients[client_index as usize];
        client.family = family;
        let addresses = &net.families[client.endpoint as usize].addresses[family.index()];
        let address = addresses[client.number as usize % addresses.len()];
        let source = if net.sources.is_empty() {
            None
        } else {
            net.next_source = (net.next_source + 1) % net.sources.len();
            Some(net.sources[net.next_source])
        };
        client.began_ns = due_ns;
        client.state = ClientState::Connecting;
        net.opening += 1;
        net.tally.first_connect_ns.get_or_insert(client.began_ns);
        let id = self
            .driver
            .connect_from(address, source)
            .map_err(|error| ErrorCase::new(ErrorCause::System, error.to_string()))?;
        client.transport = id;
        if net.client_by_slot.len() <= id.index as usize {
            net.client_by_slot.resize(id.index as usize + 1, 0);
        }
        net.client_by_slot[id.index as usize] = client_index;
        let deadline_ms = self.driver.now_ms() + net.plan.timeout_ns / MILLISECOND;
        self.driver.set_timer(id, deadline_ms);
        Ok(())
    }

    /// Begins to connect a client again. Counts an immediate failure and returns `false` in that
    /// case.
    pub(crate) fn reopen(&mut self, client_index: u32) -> bool {
        let opened = self.open(client_index);
        if let Err(fault) = &opened {
            self.net.fault(fault);
            self.cut(client_index);
        }
        opened.is_ok()
    }

    /// Sends a message on an open WebSocket.
    #[inline]
    pub(crate) fn send(&mut self, client_index: u32, kind: MessageKind, data: &[u8]) {
        let net = &mut *self.net;
        let begun = net.begin_other(client_index);
        if let ClientState::WebSocket(_, encoder) = &mut net.clients[client_index as usize].state {
            let mask = net.rng.u32(..).to_le_bytes();
            encoder.encode(&mut net.out, kind, data, &mut net.codecs, Some(mask));
        }
        net.end_other(self.driver, client_index, begun);
    }

    /// Sends raw bytes, such as requests or lines.
    #[inline]
    pub(crate) fn send_bytes(&mut self, client_index: u32, bytes: &[u8]) {
        let net = &mut *self.net;
        let begun = net.begin_other(client_index);
        if net.clients[client_index as usize].state.is_open() {
            net.out.extend_from_slice(bytes);
        }
        net.end_other(self.driver, client_index, begun);
    }

    /// Combines everything that `send` sends to a client into one write.
    pub(crate) fn together(&mut self, client_index: u32, send: impl FnOnce(&mut Self)) {
        let begun = self.net.begin_other(client_index);
        let current = self.net.current.replace(client_index);
        send(self);
        self.net.current = current;
        self.net.end_other(self.driver, client_index, begun);
    }

    /// Closes a client cleanly, without notifying the load.
    pub(crate) fn leave(&mut self, client_index: u32) {
        let net = &mut *self.net;
        let client = &mut net.clients[client_index as usize];
        let id = client.transport;
        match client.state {
            ClientState::WebSocket(..) => {
                let begun = net.begin_other(client_index);
                let mask = net.rng.u32(..).to_le_bytes();
                encode_close(&mut net.out, Some(1000), "", Some(mask));
                net.end_other(self.driver, client_index, begun);
                net.clients[client_index as usize].state = ClientState::Leaving;
            }
            ClientState::Connecting | ClientState::Handshaking(_) => {
                net.opening -= 1;
                client.state = ClientState::Closed;
                self.driver.close(id);
            }
            ClientState::Http(_) | ClientState::Lines(_) => {
                client.state = ClientState::Closed;
                self.driver.close(id);
            }
            ClientState::Closed | ClientState::Leaving => {}
        }
    }

    /// Closes a client's connection without a closing handshake, as if the network had failed. Does not notify the load.
    pub(crate) fn cut(&mut self, client_index: u32) {
        let client = &mut self.net.clients[client_index as usize];
        if client.state.is_opening() {
            self.net.opening -= 1;
        }
        client.state = ClientState::Closed;
        client.tls = None;
        self.driver.close(client.transport);
        self.net.set_unsent(client_index, 0);
    }
}
