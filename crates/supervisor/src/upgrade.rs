//! Upgrades and restarts: a server process of the installed program is started beside the running one and takes over once it
//! has passed its tests. Then the supervisor [executes](super::handover) that program too.
//!
//! Both processes have the same listening sockets, so no connection is refused at any time. If anything fails before
//! the new process takes over, that process is killed and the old one continues. Afterwards the old process closes its
//! connections, spread over `limits.upgrade_drain_time`, and exits. A restart differs in two points: the old process
//! closes its connections over `limits.drain_time`, and the addresses of `[[listen]]` may change.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::json;
use tracing::{error, info, warn};
use veche_config as config;
use veche_terminal::as_ms;
use veche_tls::{FileFingerprint, fingerprint};

use super::handover::{self, ExecFailure, HANDOVER_VERSION};
use super::listening::{self, ListeningSockets, listen_on};
use super::reload::LoadedConfig;
use super::replacement::{
    ReplacementContext, ReplacementKind, SelfUpgradeContext, SelfUpgradeStep,
};
use super::server::{READY_WAIT, SELF, ServerChild};
use super::shutdown::DRAIN_GRACE;
use super::{NOT_STORED, ServeError, Supervisor};
use crate::message::{StartMessage, ToServer, ToSupervisor, VERSION};
use veche_clock::now;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::upgrade";

/// The time that clients of the control socket have to read their responses before the supervisor is replaced.
const TELL_WAIT: Duration = Duration::from_secs(1);

/// An upgrade or restart in progress.
pub(super) struct UpgradeState {
    kind: ReplacementKind,
    /// In a restart: the sockets of the new configuration.
    listening: Option<Vec<ListeningSockets>>,
    candidate: ServerChild,
    /// The configuration of the new process.
    text: String,
    /// Identifies the program file from which the new process was started.
    file: FileFingerprint,
    /// The version of the new process's program, once it is ready.
    program: String,
    /// The id of the test request, which is sent once the new process is ready.
    test_request: Option<u64>,
    /// The process that rehearses the handover, started after the new server process has answered the test request.
    rehearsal: Option<Child>,
    /// The client of the control socket that requested the upgrade or restart.
    client: Option<u64>,
}

/// The pending replacement of the supervisor, after the server process has been replaced.
pub(super) struct PendingSelfUpgrade {
    kind: ReplacementKind,
    text: String,
    file: FileFingerprint,
    /// The process id of the new server process.
    pid: u32,
    /// The time until which the supervisor waits for pending messages and responses to be read.
    pub(super) at: Instant,
}

/// A replaced server process that drains.
pub(super) struct RetiringServer {
    pub(super) server: ServerChild,
    pub(super) kill_at: Instant,
    killed: bool,
}

impl UpgradeState {
    pub(super) fn candidate(&self) -> &ServerChild {
        &self.candidate
    }

    pub(super) fn candidate_mut(&mut self) -> &mut ServerChild {
        &mut self.candidate
    }

    /// Returns the pid of the rehearsal, if it is running.
    pub(super) fn rehearsal_pid(&self) -> Option<u32> {
        self.rehearsal.as_ref().map(Child::id)
    }

    /// Returns the deadline of the upgrade.
    pub(super) fn deadline(&self) -> Instant {
        self.candidate.started + READY_WAIT
    }
}

impl RetiringServer {
    pub(super) fn new(server: ServerChild, kill_at: Instant) -> Self {
        Self {
            server,
            kill_at,
            killed: false,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.killed).then_some(self.kill_at)
    }

    pub(super) fn kill(&mut self) {
        self.killed = true;
        self.server.kill();
    }
}

/// Returns the path from which the program was started, unresolved. So a symbolic link is resolved again at an upgrade, and
/// leads to the newly installed program.
pub(super) fn installed() -> io::Result<PathBuf> {
    let own = fingerprint(Path::new(SELF));
    let named = std::env::args_os().next().map(PathBuf::from);
    let places: Vec<PathBuf> = match named {
        Some(named) if named.components().count() > 1 => vec![std::path::absolute(named)?],
        Some(named) => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path)
                .map(|folder| folder.join(&named))
                .collect()
        }
        None => Vec::new(),
    };
    let is_own =
        |place: &PathBuf| place.is_absolute() && own.is_some() && fingerprint(place) == own;
    places
        .into_iter()
        .find(is_own)
        .map_or_else(std::env::current_exe, Ok)
}

impl Supervisor {
    /// Starts a replacement; `client` gets the result, which is also logged.
    pub(super) fn begin_upgrade(&mut self, kind: ReplacementKind, client: Option<u64>) {
        match self.start_candidate(kind, client) {
            Ok(upgrade) => {
                info!(target: TARGET, pid = upgrade.candidate.pid(), binary = %self.binary.display(), "{}: started another server process", kind.name());
                self.upgrade = Some(upgrade);
            }
            Err(why) => self.refuse_upgrade(kind, client, &why),
        }
    }

    /// Returns the kind of the replacement in progress, if any.
    pub(super) fn under_way(&self) -> Option<ReplacementKind> {
        let upgrade = self.upgrade.as_ref().map(|upgrade| upgrade.kind);
        upgrade.or_else(|| self.change.as_ref().map(|change| change.kind))
    }

    fn start_candidate(
        &self,
        kind: ReplacementKind,
        client: Option<u64>,
    ) -> Result<UpgradeState, String> {
        let context = ReplacementContext {
            is_stopping: self.stopping.is_some(),
            under_way: self.under_way(),
            is_reloading: !self.reloads.is_empty(),
            has_archive: self.started.config.history.is_some(),
            retiring: self.retiring.len(),
        };
        if let Some(why) = context.refusal() {
            return Err(why);
        }
        // The text is not parsed here, because the new program may know directives that this one does not.
        let text = veche_terminal::read(&self.file).map_err(|report| report.to_string())?;
        let start = StartMessage {
            version: VERSION,
            config_path: self.file.clone(),
            text: text.clone(),
            started_text: None,
            dev: self.dev,
            restarts: self.restarts,
            is_unjudged: true,
            // The new process must not start its services yet, since those of the running process go on until it is
            // replaced.
            holds_services: true,
            has_spawner: false,
            listeners: Vec::new(),
        };
        let listening = match kind {
            ReplacementKind::Upgrade => None,
            ReplacementKind::Restart => Some(self.sockets_for(&text)?),
        };
        let named = |error: io::Error| format!("{}: {error}", self.binary.display());
        let file = fingerprint(&self.binary);
        let account = self.account.as_ref();
        let sockets = listening.as_ref().unwrap_or(&self.listening);
        let candidate = ServerChild::start(&self.binary, sockets, account, true, start);
        let candidate = candidate.map_err(named)?;
        Ok(UpgradeState {
            kind,
            listening,
            candidate,
            text,
            file,
            program: String::new(),
            test_request: None,
            rehearsal: None,
            client,
        })
    }

    /// Returns the sockets for a configuration: the open ones, and new ones for new addresses.
    fn sockets_for(&self, text: &str) -> Result<Vec<ListeningSockets>, String> {
        let config = config::parse(&self.file, text).map_err(|report| report.to_string())?;
        let kept = self.listening.iter().map(ListeningSockets::try_clone);
        let mut kept = kept
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| error.to_string())?;
        let sockets_each = kept.iter().map(|listening| listening.sockets.len()).max();
        let assigned = listening::assign(&config.listeners, &mut kept);
        let bound = listen_on(&config.listeners, sockets_each.unwrap_or(1), assigned);
        bound.map_err(|error| error.to_string())
    }

    /// Replaces the listening sockets, and closes those of removed addresses.
    fn replace_sockets(&mut self, listening: Vec<ListeningSockets>) {
        let is_left =
            |old: &ListeningSockets| listening.iter().all(|new| new.address != old.address);
        let before = self.listening.extract_if(.., |old| is_left(old));
        // The draining process has duplicates of the removed sockets but accepts no connections from them. If these
        // sockets stayed open, clients would connect to them but never be served.
        before.for_each(ListeningSockets::close);
        self.listening = listening;
        if let Err(error) = self.notifier.store(&self.listening) {
            warn!(target: TARGET, "{NOT_STORED}: {error}");
        }
    }

    fn refuse_upgrade(&mut self, kind: ReplacementKind, client: Option<u64>, why: &str) {
        error!(target: TARGET, "{} refused: {why}", kind.name());
        warn!(target: TARGET, "the running server process continues");
        if let Some(client) = client {
            self.clients.answer(client, Err(why.to_owned()));
        }
    }

    /// Aborts the replacement in progress.
    pub(super) fn fail_upgrade(&mut self, why: &str) {
        if let Some(mut upgrade) = self.upgrade.take() {
            if let Some(mut rehearsal) = upgrade.rehearsal {
                // The process was killed, so the wait returns at once.
                let _ = rehearsal.kill().and_then(|()| rehearsal.wait());
            }
            upgrade.candidate.kill();
            // The services of the new process were never started.
            upgrade.candidate.have_services_ended = true;
            // The killed process is reaped later, together with draining processes.
            self.retiring.push(RetiringServer {
                server: upgrade.candidate,
                kill_at: now(),
                killed: true,
            });
            self.refuse_upgrade(upgrade.kind, upgrade.client, why);
        }
    }

    /// Reads messages of the new server process and of draining ones.
    pub(super) fn read_other_servers(&mut self) {
        for retiring in &mut self.retiring {
            // The messages are dropped: answers of a draining process are no longer needed, and `receive` itself records that
            // its services have ended.
            retiring.server.receive();
        }
        let messages = self
            .upgrade
            .as_mut()
            .map(|upgrade| upgrade.candidate.receive())
            .unwrap_or_default();
        for message in messages {
            match message {
                ToSupervisor::Ready {
                    program, handover, ..
                } => self.examine(program, handover),
                ToSupervisor::Failed { error } => {
                    if let Some(upgrade) = &mut self.upgrade {
                        upgrade.candidate.failure = Some(error);
                    }
                }
                ToSupervisor::Status { id, .. } => {
                    if self
                        .upgrade
                        .as_ref()
                        .is_some_and(|u| u.test_request == Some(id))
                    {
                        self.rehearse_self_upgrade();
                    }
                }
                ToSupervisor::Reloaded { .. }
                | ToSupervisor::Pulse { .. }
                | ToSupervisor::SpawnerEnded
                | ToSupervisor::ServicesEnded => {}
            }
        }
    }

    /// Starts the tests of the new process, which has become ready: it must answer a request, and its program must be
    /// able to take over as the supervisor.
    fn examine(&mut self, program: String, handover: u32) {
        if handover != HANDOVER_VERSION {
            let why = format!(
                "veche {program} can't take over from {}: stop and start the server instead",
                env!("CARGO_PKG_VERSION")
            );
            return self.fail_upgrade(&why);
        }
        let id = self.take_id();
        let Some(upgrade) = &mut self.upgrade else {
            return;
        };
        upgrade.candidate.is_ready = true;
        upgrade.candidate.ready_at = Some(now());
        upgrade.program = program;
        upgrade.test_request = Some(id);
        if let Err(error) = upgrade.candidate.send(&ToServer::Status { id }) {
            self.fail_upgrade(&format!("can't query the new server process: {error}"));
        }
    }

    /// Starts the rehearsal of the handover, after the new server process has answered the test request.
    fn rehearse_self_upgrade(&mut self) {
        let Some(upgrade) = &mut self.upgrade else {
            return;
        };
        match handover::rehearsal(&self.binary, &upgrade.text) {
            Ok(rehearsal) => upgrade.rehearsal = Some(rehearsal),
            Err(error) => self.fail_upgrade(&format!("{}: {error}", self.binary.display())),
        }
    }

    /// If the rehearsal of the handover has ended, continues or aborts the upgrade.
    fn end_rehearsal(&mut self) -> io::Result<()> {
        let Some(upgrade) = &mut self.upgrade else {
            return Ok(());
        };
        let Some(rehearsal) = &mut upgrade.rehearsal else {
            return Ok(());
        };
        let Some(status) = rehearsal.try_wait()? else {
            return Ok(());
        };
        if !status.success() {
            self.fail_upgrade(&format!(
                "the new program can't run as the supervisor: {status}"
            ));
        } else if let Some(how) = upgrade.candidate.reap()? {
            self.fail_upgrade(&format!("the new server process died: {how}"));
        } else {
            self.replace_server();
        }
        Ok(())
    }

    /// Makes the new server process the current one, and drains the old one.
    fn replace_server(&mut self) {
        let Some(upgrade) = self.upgrade.take() else {
            return;
        };
        let (kind, new_pid, program) = (upgrade.kind, upgrade.candidate.pid(), upgrade.program);
        self.fail_pending_requests("the server process was just replaced");
        self.revive_at = None;
        self.was_ready = true;
        self.starts += 1;
        self.upgrades += 1;
        self.change_error = None;
        let limits = &self.current.config.limits;
        let drain_time = match kind {
            ReplacementKind::Upgrade => limits.upgrade_drain_time,
            ReplacementKind::Restart => limits.drain_time,
        };
        let old_pid = self.server.replace(upgrade.candidate).map(|mut old| {
            if let Err(error) = old.send(&ToServer::drain_replaced(drain_time)) {
                warn!(target: TARGET, %error, "can't tell the old server process to drain");
            }
            let pid = old.pid();
            self.retiring
                .push(RetiringServer::new(old, now() + drain_time + DRAIN_GRACE));
            pid
        });
        if let Some(listening) = upgrade.listening {
            self.replace_sockets(listening);
        }
        self.begin_watch();
        info!(target: TARGET, old_pid, new_pid, program, within = ?drain_time, "{}: the new server process accepts connections, the old one drains", kind.name());
        if let Some(client) = upgrade.client {
            let answer = json!({
                "from": env!("CARGO_PKG_VERSION"),
                "to": program,
                "old_pid": old_pid,
                "pid": new_pid,
                "drain_ms": as_ms(drain_time),
            });
            self.clients.answer(client, Ok(answer));
        }
        self.change = Some(PendingSelfUpgrade {
            kind,
            text: upgrade.text,
            file: upgrade.file,
            pid: new_pid,
            at: now() + TELL_WAIT,
        });
    }

    /// Replaces the supervisor's program once all pending responses are delivered.
    pub(super) fn self_upgrade_when_due(&mut self) {
        let Some(change) = &self.change else {
            return;
        };
        let is_flushed = |server: &ServerChild| server.link_mut().is_flushed();
        let server = self.server.as_ref();
        let retiring = self.retiring.iter().map(|retiring| &retiring.server);
        let context = SelfUpgradeContext {
            is_flushed: server.is_some_and(is_flushed) && retiring.into_iter().all(is_flushed),
            are_clients_answered: self.clients.reply_all_done(),
            is_late: now() >= change.at,
            is_stopping: self.stopping.is_some(),
            is_served: server.is_some_and(|server| server.pid() == change.pid),
            is_same_file: change.file.is_some() && fingerprint(&self.binary) == change.file,
        };
        let next = context.next(change.kind);
        if next == SelfUpgradeStep::Wait {
            return;
        }
        let Some(change) = self.change.take() else {
            return;
        };
        match next {
            SelfUpgradeStep::Wait | SelfUpgradeStep::Drop => return,
            SelfUpgradeStep::Stay(why) => return self.abandon_self_upgrade(change, &why),
            SelfUpgradeStep::Follow => {}
        }
        info!(target: TARGET, binary = %self.binary.display(), "{}: the supervisor is being replaced too", change.kind.name());
        let error = match self.exec_program(&change.text) {
            ExecFailure::Signalled(signals) => {
                self.change = Some(change);
                for signal in signals {
                    self.obey_signal(signal);
                }
                return;
            }
            ExecFailure::Failed(error) => error,
        };
        error!(target: TARGET, %error, "the supervisor was not replaced; the new server process accepts connections");
        self.change_error = Some(error.to_string());
        self.take_config(change.text);
    }

    /// Puts the new server process's configuration in force in this supervisor, so that later server processes start with it
    /// too.
    fn take_config(&mut self, text: String) {
        match LoadedConfig::of(&self.file, text) {
            Ok(loaded) => {
                self.started = loaded.clone();
                self.current = loaded;
            }
            Err(report) => {
                error!(target: TARGET, "this version does not understand the new config: {report}")
            }
        }
    }

    fn abandon_self_upgrade(&mut self, change: PendingSelfUpgrade, why: &str) {
        error!(target: TARGET, "the supervisor was not replaced: {why}");
        self.change_error = Some(why.to_owned());
        // The server process was already restarted with the new configuration, which the sockets match.
        if change.kind == ReplacementKind::Restart {
            self.take_config(change.text);
        }
    }

    /// Reaps the new and draining processes that have ended.
    pub(super) fn reap_others(&mut self) -> Result<(), ServeError> {
        self.end_rehearsal()?;
        let mut died = Vec::new();
        for (place, retiring) in self.retiring.iter_mut().enumerate() {
            if let Some(how) = retiring.server.reap()? {
                info!(target: TARGET, pid = retiring.server.pid(),
                    how, "a server process that is no longer needed has ended"
                );
                died.push(place);
            }
        }
        for place in died.into_iter().rev() {
            self.retiring.remove(place);
        }
        let Some(upgrade) = &mut self.upgrade else {
            return Ok(());
        };
        let Some(how) = upgrade.candidate.reap()? else {
            return Ok(());
        };
        // Among the last messages of the new process, only the reason for its failure matters.
        for message in upgrade.candidate.receive() {
            if let ToSupervisor::Failed { error } = message {
                upgrade.candidate.failure = Some(error);
            }
        }
        let failure = upgrade.candidate.failure.take();
        self.fail_upgrade(
            &failure.unwrap_or_else(|| format!("the new server process died: {how}")),
        );
        Ok(())
    }

    /// Returns whether services of a replaced process may still be running.
    pub(super) fn must_hold_services(&self) -> bool {
        let mut retiring = self.retiring.iter();
        retiring.any(|retiring| retiring.server.may_serve())
    }

    /// Starts the services of the server process once the services of all replaced processes have ended. No time limit is
    /// needed: each replaced process ends its services on its own, or is killed at the end of its drain.
    pub(super) fn start_services(&mut self) {
        if self.stopping.is_some() || self.must_hold_services() {
            return;
        }
        let Some(server) = self.server.as_mut().filter(|it| it.holds_services) else {
            return;
        };
        if let Err(error) = server.send(&ToServer::StartServices) {
            warn!(target: TARGET, %error, "can't tell the server process to start its services");
            return;
        }
        server.holds_services = false;
        info!(target: TARGET, pid = server.pid(),
            "starting services: those of other server processes have ended"
        );
    }

    pub(super) fn expire_upgrade(&mut self, now: Instant) {
        for retiring in &mut self.retiring {
            if retiring.deadline().is_some_and(|deadline| now >= deadline) {
                warn!(target: TARGET, pid = retiring.server.pid(),
                    "drain time is over: killing the old server process"
                );
                retiring.kill();
            }
        }
        if self
            .upgrade
            .as_ref()
            .is_some_and(|upgrade| now >= upgrade.deadline())
        {
            self.fail_upgrade(&format!(
                "the new server process did not become ready within {READY_WAIT:?}"
            ));
        }
    }
}
