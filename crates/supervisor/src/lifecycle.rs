//! The server process's life cycle: started, ready, dead, restarted.

use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use veche_config::ListenerRole;

use super::backoff::served;
use super::server::{RESTORED_WAIT, SELF, ServerChild};
use super::watchdog::Watchdog;
use super::{ServeError, Supervisor, worker_spawner};
use crate::message::{StartMessage, ToServer, ToSupervisor, VERSION};
use crate::restarts::ExitReason;
use veche_clock::now;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::life";

/// How the last server process ended.
pub(super) struct LastExit {
    pub(super) how: String,
    pub(super) pid: u32,
    pub(super) lived: Duration,
    pub(super) at: Instant,
}

impl Supervisor {
    pub(super) fn start_server(&mut self) {
        self.revive_at = None;
        self.starts += 1;
        let start = StartMessage {
            version: VERSION,
            config_path: self.file.clone(),
            text: self.current.text.clone(),
            started_text: (self.current.text != self.started.text)
                .then(|| self.started.text.clone()),
            dev: self.dev,
            restarts: self.restarts,
            is_unjudged: false,
            holds_services: self.must_hold_services(),
            has_spawner: false,
            listeners: Vec::new(),
        };
        match ServerChild::start(
            Path::new(SELF),
            &self.listening,
            self.account.as_ref(),
            worker_spawner::is_needed(&self.current.config),
            start,
        ) {
            Ok(mut server) => {
                if self.started.config.history.is_some() {
                    server.patience = RESTORED_WAIT;
                }
                info!(target: TARGET, pid = server.pid(), "started the server process");
                self.server = Some(server);
            }
            Err(error) => {
                // The start may have failed for a temporary reason, such as too many processes or too little memory.
                let wait = self.restart_backoff.wait_after(Duration::ZERO);
                error!(target: TARGET, %error, ?wait, "can't start the server process");
                self.revive_at = Some(now() + wait);
            }
        }
    }

    pub(super) fn read_server(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        for message in server.receive() {
            self.take_message(message);
        }
    }

    fn take_message(&mut self, message: ToSupervisor) {
        match message {
            ToSupervisor::Ready { version, .. } => {
                let Some(server) = &mut self.server else {
                    return;
                };
                server.is_ready = true;
                server.ready_at = Some(now());
                let is_first = !std::mem::replace(&mut self.was_ready, true);
                self.notifier.ready();
                let took = now() - server.started;
                info!(target: TARGET, pid = server.pid(),
                    version,
                    "ready in {} ms",
                    took.as_millis()
                );
                if self.dev && is_first {
                    self.log_addresses();
                }
                self.begin_watch();
            }
            ToSupervisor::Failed { error } => {
                error!(target: TARGET, %error, "the server process can't start");
                if let Some(server) = &mut self.server {
                    server.failure = Some(error);
                }
            }
            ToSupervisor::Reloaded { id, error } => self.reloaded(id, error),
            ToSupervisor::Status { id, report } => self.answer_status(id, Ok(report)),
            ToSupervisor::Pulse { stuck } => self.take_pulse(stuck),
            ToSupervisor::SpawnerEnded => self.replace_spawner(),
            // `ServerChild::receive` has already recorded the end of the services.
            ToSupervisor::ServicesEnded => {}
        }
    }

    /// Starts a new spawner of worker processes for the server process, whose spawner has ended.
    fn replace_spawner(&mut self) {
        let setup = worker_spawner::setup(&self.file, &self.current.text, self.account.as_ref());
        let Some(server) = &mut self.server else {
            return;
        };
        warn!(target: TARGET, pid = server.pid(), "the spawner of worker processes has ended: starting another one");
        let sent = server
            .spawner(&setup)
            .and_then(|socket| server.send_with_descriptors(socket.as_fd(), &ToServer::Spawner));
        if let Err(error) = sent {
            error!(target: TARGET, %error, "can't give the server process a spawner of worker processes");
        }
    }

    pub(super) fn reap_server(&mut self) -> Result<(), ServeError> {
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        let Some(mut how) = server.reap()? else {
            return Ok(());
        };
        // The process's last messages may have arrived after the previous read.
        self.read_server();
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        let mut ending = match how.starts_with("signal") {
            true => ExitReason::Signal,
            false => ExitReason::Exit,
        };
        if let Some(why) = &server.hung {
            how = format!("{how}, because {why}");
            ending = ExitReason::Hang;
        }
        self.watchdog = Watchdog::default();
        let (pid, lived) = (server.pid(), now() - server.started);
        self.last_exit = Some(LastExit {
            how: how.clone(),
            pid,
            lived,
            at: now(),
        });
        self.fail_pending_requests("the server process just died");
        if self.stopping.is_some() {
            info!(target: TARGET, pid, how, "the server process ended");
            return Ok(());
        }
        if let Some(failure) = server.failure.filter(|_| !self.was_ready) {
            return Err(ServeError::Server(failure));
        }
        self.restarts.count(ending);
        let served = served(server.ready_at, now());
        let wait = self.restart_backoff.wait_after(served);
        error!(target: TARGET, pid,
            how,
            ?lived,
            ?served,
            ?wait,
            "the server process died: starting a new one"
        );
        self.revive_at = Some(now() + wait);
        self.notifier
            .waits(&format!("the server process died: {how}"));
        Ok(())
    }

    /// Logs the addresses that a developer can open in a browser, under `veche dev`.
    fn log_addresses(&self) {
        let listeners = self.current.config.listeners.iter();
        for (listener, listening) in listeners.zip(&self.listening) {
            if listener.role != ListenerRole::Public {
                continue;
            }
            let scheme = if listener.tls.is_some() {
                "https"
            } else {
                "http"
            };
            let mut address = listening.address;
            // An unspecified address is shown as the loopback address, which a browser on this machine can open.
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            info!(target: "veche::dev", "open {scheme}://{address}/");
        }
    }

    /// Kills a server process that took too long to get ready.
    pub(super) fn end_start(&mut self, now: Instant) {
        if let Some(server) = self
            .server
            .as_mut()
            .filter(|s| s.deadline().is_some_and(|deadline| now >= deadline))
        {
            error!(target: TARGET, pid = server.pid(), wait = ?server.patience, "the server process did not become ready in time: killing it");
            server.kill();
            // Ends the deadline, so that the process is killed only once. Its death is handled in a later turn.
            server.is_ready = true;
        }
    }
}
