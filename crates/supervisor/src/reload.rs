//! Reloads the configuration: it is checked here, then applied or rejected by the server process.
//!
//! The file is read once. The server process gets the text that was checked, so that both processes have the same
//! configuration even if the file changes meanwhile. The configuration is in force in the supervisor once the server
//! process confirms it. A server process that reads the message too late rejects the configuration. If it reads the
//! message in time but answers late, the configuration is in force in both processes, and the supervisor logs this.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tracing::{error, info, warn};
use veche_config::Account;
use veche_config::{self as config, Config};
use veche_logging::{self as logging, LogOutput};
use veche_terminal::{ProblemReport, as_ms};

use super::{Supervisor, worker_spawner};
use crate::message::{PROCESS_REFUSED, ToServer};
use veche_clock::{monotonic_ms, now};

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::reload";

/// The time within which the server process has to start applying a configuration. The client that requested the reload
/// waits for the same time.
const RELOAD_WAIT: Duration = Duration::from_secs(10);

/// A parsed configuration and its text.
#[derive(Clone)]
pub(super) struct LoadedConfig {
    pub(super) config: Arc<Config>,
    pub(super) text: String,
}

impl LoadedConfig {
    pub(super) fn read(path: &Path) -> Result<Self, ProblemReport> {
        let text = veche_terminal::read(path)?;
        let config = Arc::new(config::parse(path, &text)?);
        Ok(Self { config, text })
    }

    /// Parses the text of a configuration that a server process has already accepted.
    pub(super) fn of(path: &Path, text: String) -> Result<Self, ProblemReport> {
        let config = Arc::new(config::parse_again(path, &text)?);
        Ok(Self { config, text })
    }
}

/// A configuration that was sent to the server process.
pub(super) struct PendingReload {
    id: u64,
    loaded: LoadedConfig,
    output: LogOutput,
    changed: Vec<String>,
    kept: Vec<String>,
    /// The client of the control socket that waits for the result.
    client: Option<u64>,
    /// The time until which the server process may answer before the client gets an error; `None` once the client has
    /// got that error.
    pub(super) deadline: Option<Instant>,
}

pub(super) fn log_warnings(config: &Config) {
    for warning in &config.warnings {
        warn!(target: TARGET, "{warning}");
    }
}

impl Supervisor {
    /// Reloads the configuration; `client` gets the result, which is also logged.
    pub(super) fn reload(&mut self, client: Option<u64>) {
        if self.was_ready {
            self.notifier.reloading();
        }
        let refused = match self.offer(client) {
            Ok(()) => return,
            Err(refused) => refused,
        };
        for line in refused.lines() {
            error!(target: TARGET, "config refused: {line}");
        }
        warn!(target: TARGET, "the current config stays in force");
        self.show(&refused);
        self.tell(client, Err(refused));
    }

    fn offer(&mut self, client: Option<u64>) -> Result<(), String> {
        if self.stopping.is_some() {
            return Err("veche is stopping".to_owned());
        }
        if let Some(kind) = self.under_way() {
            let under_way = kind.under_way();
            return Err(format!(
                "{under_way} and uses the current config: reload when it has ended"
            ));
        }
        let read = LoadedConfig::read(&self.file).map_err(|report| report.to_string())?;
        let changed = self
            .current
            .config
            .effective
            .changes(&read.config.effective)
            .reload;
        let kept = self
            .started
            .config
            .effective
            .changes(&read.config.effective)
            .restart;
        let config = Arc::new(Config::clone(&read.config).on_top_of(&self.started.config));
        let account = self.account.as_ref();
        worker_spawner::check_accounts(&config, account).map_err(|error| error.to_string())?;
        self.own_logs(&config)?;
        self.own_cache(&config)?;
        let owner = self.account.as_ref().map(Account::owner);
        let log = config.server.log.for_dev(self.dev);
        let output = logging::open(&log, owner).map_err(|error| error.to_string())?;
        let id = self.take_id();
        let loaded = LoadedConfig {
            config,
            text: read.text,
        };
        let deadline = Some(now() + RELOAD_WAIT);
        let until_ms = Some(monotonic_ms() + as_ms(RELOAD_WAIT));
        let text = loaded.text.clone();
        let pending = PendingReload {
            id,
            loaded,
            output,
            changed,
            kept,
            client,
            deadline,
        };
        let Some(server) = &mut self.server else {
            // No server process is running; the next one starts with the new configuration.
            self.put_in_force(pending);
            return Ok(());
        };
        let unsent = |error| format!("can't send the config to the server process: {error}");
        let has_spawner = worker_spawner::is_needed(&pending.loaded.config);
        let setup = worker_spawner::setup(&self.file, &text, self.account.as_ref());
        let message = ToServer::Reload {
            id,
            text,
            until_ms,
            has_spawner,
        };
        match has_spawner {
            true => {
                let socket = server.spawner(&setup).map_err(|error| {
                    format!("can't start the spawner of worker processes: {error}")
                })?;
                server.send_with_descriptors(socket.as_fd(), &message)
            }
            false => server.send(&message),
        }
        .map_err(unsent)?;
        self.reloads.push(pending);
        Ok(())
    }

    /// Handles the server process's answer to a reload.
    pub(super) fn reloaded(&mut self, id: u64, error: Option<String>) {
        let Some(place) = self.reloads.iter().position(|reload| reload.id == id) else {
            return;
        };
        let pending = self.reloads.remove(place);
        let is_late = pending.deadline.is_none();
        match error {
            None => {
                if is_late {
                    warn!(target: TARGET, "a config whose reload timed out is now in force: the server process was slow");
                }
                self.put_in_force(pending);
            }
            Some(error) if is_late => {
                info!(target: TARGET, "the config whose reload timed out is not in force: {error}")
            }
            Some(error) => self.refuse(pending.client, format!("{PROCESS_REFUSED}{error}")),
        }
    }

    fn put_in_force(&mut self, pending: PendingReload) {
        let PendingReload {
            loaded,
            output,
            changed,
            kept,
            client,
            ..
        } = pending;
        let log = loaded.config.server.log.for_dev(self.dev);
        self.logs.switch(&log, output);
        log_warnings(&loaded.config);
        let warnings: Vec<String> = loaded
            .config
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect();
        info!(target: TARGET, changed = changed.join(", "), "the new config is in force");
        for name in &kept {
            warn!(target: TARGET, "{name}: a change requires a restart; the old value stays in force until then");
        }
        let has_scripts = !loaded.config.apps.is_empty() || !loaded.config.services.is_empty();
        self.current = loaded;
        self.watchdog.config_changed(now());
        let answer = json!({
            "changed": changed,
            "needs_restart": kept,
            "warnings": warnings,
            "has_scripts": has_scripts,
        });
        self.tell(client, Ok(answer));
    }

    fn refuse(&mut self, client: Option<u64>, why: String) {
        error!(target: TARGET, "config refused: {why}");
        self.show(&why);
        self.tell(client, Err(why));
    }

    /// Under `veche dev`, shows an error on the pages in the developer's browser.
    fn show(&mut self, why: &str) {
        let why = why.to_owned();
        if self.dev
            && let Some(server) = &mut self.server
            && let Err(error) = server.send(&ToServer::Refused { why })
        {
            warn!(target: TARGET, %error, "can't send the error of the reload to the server process");
        }
    }

    fn tell(&mut self, client: Option<u64>, outcome: Result<serde_json::Value, String>) {
        // Before any server process was ready, the notification `READY=1` would be wrong.
        if self.was_ready && self.stopping.is_none() {
            self.notifier.ready();
        }
        if let Some(client) = client {
            self.clients.answer(client, outcome);
        }
    }

    /// Drops reloads that a dead server process had not confirmed. The next process starts with the old configuration, since
    /// the new one may have caused the death.
    pub(super) fn forget_reloads(&mut self) {
        for pending in std::mem::take(&mut self.reloads) {
            self.refuse(
                pending.client,
                "the server process died while loading the config".to_owned(),
            );
        }
    }

    pub(super) fn expire_reloads(&mut self, now: Instant) {
        let is_over =
            |pending: &&mut PendingReload| pending.deadline.is_some_and(|deadline| now >= deadline);
        let mut clients = Vec::new();
        for pending in self.reloads.iter_mut().filter(is_over) {
            pending.deadline = None;
            clients.push(pending.client.take());
        }
        for client in clients {
            let why = format!(
                "the server process has not responded within {RELOAD_WAIT:?}; the log shows whether the config comes into force"
            );
            self.refuse(client, why);
        }
    }
}
