//! `veche status`: reports the supervisor's state, and that of the server process if it answers in time. Also passes the
//! requests of `veche dump` and `veche log` on to the server process.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use veche_terminal::as_ms;

use super::Supervisor;
use super::server::ServerChild;
use crate::message::ToServer;
use veche_clock::now;

/// The time limit for the server process's answer. It is short because a person waits for the output.
const REPORT_WAIT: Duration = Duration::from_millis(500);

/// A client of the control socket that waits for the server process's part of the status.
pub(super) struct PendingStatus {
    id: u64,
    client: u64,
    pub(super) deadline: Instant,
}

impl Supervisor {
    pub(super) fn ask_status(&mut self, client: u64) {
        let id = self.take_id();
        let server = match self.ready_server() {
            Ok(server) => server,
            Err(why) => return self.send_status(client, Err(why.to_owned())),
        };
        match server.send(&ToServer::Status { id }) {
            Ok(()) => self.statuses.push(PendingStatus {
                id,
                client,
                deadline: now() + REPORT_WAIT,
            }),
            Err(error) => self.send_status(client, Err(error.to_string())),
        }
    }

    /// Passes a client's request and its descriptor on to the server process.
    pub(super) fn hand_on(
        &mut self,
        wanted: Option<ToServer>,
        to: Option<OwnedFd>,
    ) -> Result<Value, String> {
        let (Some(wanted), Some(to)) = (wanted, to) else {
            return Err("the request lacks a name or the descriptor to write to".to_owned());
        };
        let server = self.ready_server();
        let server = server.map_err(|why| format!("can't query the server process: {why}"))?;
        let sent = server.send_with_descriptors(to.as_fd(), &wanted);
        sent.map_err(|error| format!("can't send the request to the server process: {error}"))?;
        Ok(json!({}))
    }

    fn ready_server(&mut self) -> Result<&mut ServerChild, &'static str> {
        match self.server.as_mut() {
            Some(server) if server.is_ready => Ok(server),
            Some(_) => Err("the server process is still starting"),
            None => Err("the server process is not running"),
        }
    }

    /// Handles the server process's part of the status; an answer that is late is dropped.
    pub(super) fn answer_status(&mut self, id: u64, report: Result<Value, String>) {
        if let Some(place) = self.statuses.iter().position(|status| status.id == id) {
            let pending = self.statuses.swap_remove(place);
            self.send_status(pending.client, report);
        }
    }

    /// Answers waiting clients without the server process's part, since that process has ended or was replaced.
    pub(super) fn fail_pending_requests(&mut self, why: &str) {
        for pending in std::mem::take(&mut self.statuses) {
            self.send_status(pending.client, Err(why.to_owned()));
        }
        self.forget_reloads();
    }

    pub(super) fn expire_pending_requests(&mut self, now: Instant) {
        while let Some(place) = self
            .statuses
            .iter()
            .position(|status| now >= status.deadline)
        {
            let pending = self.statuses.swap_remove(place);
            let why = format!("no response within {REPORT_WAIT:?}");
            self.send_status(pending.client, Err(why));
        }
        self.expire_reloads(now);
    }

    fn send_status(&mut self, client: u64, report: Result<Value, String>) {
        let now = now();
        let state = match (&self.server, self.under_way()) {
            _ if self.stopping.is_some() => "stopping",
            (_, Some(kind)) => kind.state(),
            (None, None) => "waiting to restart",
            (Some(server), None) if server.is_ready => "ready",
            (Some(_), None) => "starting",
        };
        let (report, report_error) = match report {
            Ok(report) => (report, None),
            Err(error) => (Value::Null, Some(error)),
        };
        let server = self
            .server
            .as_ref()
            .map(|server| json!({"pid": server.pid(), "uptime_ms": as_ms(now - server.started)}));
        let draining: Vec<Value> = self
            .retiring
            .iter()
            .map(|r| json!({"pid": r.server.pid(), "ends_in_ms": as_ms(r.kill_at.saturating_duration_since(now))}))
            .collect();
        let last_exit = self.last_exit.as_ref().map(|exit| {
            json!({"pid": exit.pid, "how": exit.how, "lived_ms": as_ms(exit.lived), "ago_ms": as_ms(now - exit.at)})
        });
        let listeners: Vec<Value> = self
            .listening
            .iter()
            .zip(&self.started.config.listeners)
            .map(|(listening, listener)| {
                json!({
                    "address": listening.address.to_string(),
                    "name": listener.name,
                    "role": format!("{:?}", listener.role).to_lowercase(),
                    "sockets": listening.sockets.len(),
                })
            })
            .collect();
        let status = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "state": state,
            "config": self.file.display().to_string(),
            "supervisor": {"pid": std::process::id(), "uptime_ms": as_ms(now - self.begun)},
            "server": server,
            "restarts": self.starts.saturating_sub(1 + self.upgrades),
            "upgrades": self.upgrades,
            "upgrade_error": self.change_error,
            "draining": draining,
            "last_exit": last_exit,
            "listeners": listeners,
            "descriptors_max": self.raised.to,
            "report": report,
            "report_error": report_error,
        });
        self.clients.answer(client, Ok(json!({"status": status})));
    }
}
