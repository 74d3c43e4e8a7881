//! The clients of the control socket, limited in number.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde_json::Value;
use tracing::warn;

use super::Supervisor;
use super::client::ControlClient;
use super::control_socket::ControlSocket;
use super::replacement::ReplacementKind;
use super::request::{ControlCommand, ControlRequest};
use crate::message::ToServer;
use veche_clock::now;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::clients";

/// The maximum number of clients at a time; further ones wait in the socket's backlog.
const CLIENTS_MAX: usize = 32;
/// The pause after a failed accept, which happens if the process has no free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The control socket and its connections.
pub(super) struct ControlClients {
    control_socket: ControlSocket,
    clients: Vec<ControlClient>,
    next_id: u64,
    paused_until: Option<Instant>,
}

impl ControlClients {
    pub(super) fn new(control_socket: ControlSocket) -> Self {
        Self {
            control_socket,
            clients: Vec::new(),
            next_id: 0,
            paused_until: None,
        }
    }

    fn accepts(&self) -> bool {
        self.clients.len() < CLIENTS_MAX && self.paused_until.is_none()
    }

    /// Adds the descriptors to be polled.
    pub(super) fn add_to<'f>(&'f self, fds: &mut Vec<PollFd<'f>>) {
        if self.accepts() {
            fds.push(PollFd::new(&self.control_socket, PollFlags::IN));
        }
        for client in &self.clients {
            if let Some(wants) = client.poll_events() {
                fds.push(PollFd::new(client, wants));
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.clients
            .iter()
            .filter_map(ControlClient::deadline)
            .chain(self.paused_until)
            .min()
    }

    /// Drops clients that have received their response or have timed out.
    pub(super) fn expire(&mut self, now: Instant) {
        self.clients.retain(|client| !client.is_done(now));
        self.paused_until = self.paused_until.filter(|&until| now < until);
    }

    /// Accepts clients, and returns complete requests with their clients.
    fn pump(&mut self, now: Instant) -> Vec<(u64, ControlRequest, Option<OwnedFd>)> {
        while self.accepts() {
            match self.control_socket.accept() {
                Ok(Some(socket)) => {
                    self.next_id += 1;
                    self.clients
                        .extend(ControlClient::new(self.next_id, socket, now));
                }
                Ok(None) => break,
                Err(error) => {
                    warn!(target: TARGET, %error, "the control socket temporarily accepts no connections");
                    self.paused_until = Some(now + ACCEPT_PAUSE);
                }
            }
        }
        self.clients
            .iter_mut()
            .filter_map(|client| {
                let request = client.pump(now)?;
                Some((client.id, request, client.take_descriptor()))
            })
            .collect()
    }

    /// Responds to client `id`, if it is still connected.
    pub(super) fn answer(&mut self, id: u64, result: Result<Value, String>) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.answer(result, now());
        }
    }

    /// Returns whether all responses have been sent.
    pub(super) fn reply_all_done(&self) -> bool {
        self.clients.iter().all(ControlClient::reply_done)
    }

    pub(super) fn control_socket(&self) -> &ControlSocket {
        &self.control_socket
    }

    /// Replaces the socket that clients are accepted on.
    pub(super) fn move_to(&mut self, control_socket: ControlSocket) {
        self.control_socket = control_socket;
    }

    fn stay(&mut self, id: u64) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.stay();
        }
    }
}

impl Supervisor {
    pub(super) fn serve_clients(&mut self) {
        for (client, request, descriptor) in self.clients.pump(now()) {
            match request.command {
                ControlCommand::Status => self.ask_status(client),
                ControlCommand::Dump => {
                    let wanted = request.dump.map(ToServer::Dump);
                    let handed = self.hand_on(wanted, descriptor);
                    self.clients.answer(client, handed);
                }
                ControlCommand::Log => {
                    let wanted = ToServer::Watch(request.log.unwrap_or_default());
                    let handed = self.hand_on(Some(wanted), descriptor);
                    self.clients.answer(client, handed);
                }
                ControlCommand::Reload => self.reload(Some(client)),
                ControlCommand::Upgrade => {
                    self.begin_upgrade(ReplacementKind::Upgrade, Some(client))
                }
                ControlCommand::Restart => {
                    self.begin_upgrade(ReplacementKind::Restart, Some(client))
                }
                ControlCommand::Stop => {
                    tracing::info!(target: TARGET, at_once = request.now, "stop requested on the control socket");
                    self.clients.answer(client, Ok(serde_json::json!({})));
                    self.clients.stay(client);
                    self.stop(request.now);
                }
            }
        }
    }
}
