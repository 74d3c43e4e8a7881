//! Envelopes between a client without a WebSocket and the workers.

use serde_json::json;

use crate::client_transport::ClientTransport;
use crate::coverage::CoverageEvent;
use crate::emulation_connection::{PendingEnvelope, SessionAddress, envelope};
use crate::failure::PromiseResult;
use crate::frontend_config;
use crate::peers::POSTS;
use crate::world::World;

/// The id of a command that no client has sent.
const FORGED_ID: u32 = 1 << 30;

impl World {
    /// Posts the commands of a client without a WebSocket.
    pub(crate) fn post(&mut self, number: usize) {
        let Some(client) = self.peers.clients.get(number) else {
            return;
        };
        if client.unsent_commands.is_empty()
            || client.address.is_none()
            || !self.opens_posts(number)
        {
            return;
        }
        let client = &mut self.peers.clients[number];
        let (Some(address), of) = (&client.address, client.link) else {
            return;
        };
        let commands = std::mem::take(&mut client.unsent_commands);
        let encoding = client.encoding;
        let body = envelope(encoding, &address.node, &address.session, &commands);
        let status = client.emulation.status(address);
        client
            .emulation
            .request(encoding, &body, PendingEnvelope { status, of });
        let elsewhere = self.worker_of(of);
        let client = &self.peers.clients[number];
        if elsewhere.is_some() && self.worker_of(client.emulation.link) != elsewhere {
            self.ledger.seen.note(CoverageEvent::PostedElsewhere);
        }
        self.send_posts(number);
        if let Some(id) = of
            && let Some(link) = self.network.links.get_mut(&id)
        {
            link.owed = self.peers.clients[number].pending.len();
        }
    }

    /// Returns whether a client has a connection for envelopes, and opens one if necessary.
    fn opens_posts(&mut self, number: usize) -> bool {
        let posts = &mut self.peers.clients[number].emulation;
        if posts.link.is_some() {
            return true;
        }
        if self.drain.is_some() {
            return false;
        }
        posts.connections = posts.connections.wrapping_add(1);
        let worker = posts.connections.wrapping_mul(3).wrapping_add(number as u8);
        let link = self.open(POSTS + number, worker, frontend_config::PUBLIC);
        let incarnation = self.ledger.incarnation;
        self.peers.clients[number]
            .emulation
            .begin(link, incarnation);
        true
    }

    fn send_posts(&mut self, number: usize) {
        let posts = &mut self.peers.clients[number].emulation;
        if let Some(id) = posts.link
            && let Some(link) = self.network.links.get_mut(&id)
        {
            link.up.extend(posts.out.drain(..));
            link.owed = 1;
        }
    }

    /// Posts an invalid envelope, or one for another session. The server must refuse or ignore it.
    pub(crate) fn forge(&mut self, number: usize, victim: usize, how: u8) {
        let Some(address) = self.peers.clients[victim].address.clone() else {
            return;
        };
        let client = &self.peers.clients[number];
        if client.transport == ClientTransport::WebSocket || !self.opens_posts(number) {
            return;
        }
        let client = &mut self.peers.clients[number];
        let command = [json!({ "id": FORGED_ID, "rpc": { "method": "echo", "data": 1 } })];
        let SessionAddress { node, session, .. } = &address;
        let (half, rest) = session.split_at(session.len() / 2);
        let (node, session, status) = match how % 4 {
            // No process has this id.
            0 => (format!("{node}0"), session.clone(), 404),
            // The end of the session id is secret, so a wrong end must be refused.
            1 => {
                let rest: String = rest.chars().rev().collect();
                (
                    node.clone(),
                    format!("{half}{rest}"),
                    client.emulation.status(&address),
                )
            }
            2 => (
                node.clone(),
                half.to_owned(),
                client.emulation.status(&address),
            ),
            _ => (node.clone(), session.clone(), 400),
        };
        if status == 204 && session == address.session {
            return;
        }
        let encoding = client.encoding;
        let mut body = envelope(encoding, &node, &session, &command);
        if status == 400 {
            // A truncated body is malformed.
            body.pop();
        }
        client
            .emulation
            .request(encoding, &body, PendingEnvelope { status, of: None });
        self.send_posts(number);
    }

    /// Makes a client change to another connection for envelopes if no envelope is in flight. An envelope on the new
    /// connection could otherwise overtake one on the old connection.
    pub(crate) fn change_posts(&mut self, number: usize) {
        let Some(client) = self.peers.clients.get(number) else {
            return;
        };
        let is_done = client.pending.is_empty() && client.unsent_commands.is_empty();
        if let Some(link) = client.emulation.link.filter(|_| is_done)
            && client.emulation.has_done_enough()
        {
            self.drop_client(link, true);
        }
    }

    /// Handles responses to envelopes. A session whose commands were not accepted is abandoned.
    pub(crate) fn hand_to_posts(&mut self, number: usize, bytes: &[u8]) -> PromiseResult {
        let client = &mut self.peers.clients[number];
        let lost = client.emulation.received(bytes, &mut self.ledger)?;
        if let Some(link) = lost.filter(|lost| client.link == Some(*lost)) {
            self.drop_client(link, true);
        }
        Ok(())
    }
}
