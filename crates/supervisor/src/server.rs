//! A server process as a child of the supervisor, from its start until it is reaped.
//!
//! This module does not decide when a process is started or killed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use veche_config::Account;
use veche_spawner::{PendingSpawner, SpawnerSetup};

use super::handover::HANDOVER_VARIABLE;
use super::listening::ListeningSockets;
use super::{notify, stored, worker_spawner};
use crate::link::ControlLink;
use crate::message::{ListenerSockets, StartMessage, ToServer, ToSupervisor};
use veche_clock::now;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::server";

/// The time limit for a server process to be ready before it is killed.
pub(crate) const READY_WAIT: Duration = Duration::from_secs(30);
/// The time limit for a server process that reads history before it is ready. Each million
/// publications takes some seconds.
pub(crate) const RESTORED_WAIT: Duration = Duration::from_secs(300);
/// The path of the running binary, which stays valid even if the file is replaced.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Creates a control link for a server process, and sends the listening sockets and the first
/// message on it. Returns both ends.
pub(super) fn introduce(
    listening: &[ListeningSockets],
    spawner: Option<OwnedFd>,
    mut start: StartMessage,
) -> io::Result<(ControlLink, OwnedFd)> {
    let (mut link, theirs) = ControlLink::pair()?;
    let sockets: Vec<_> = listening
        .iter()
        .flat_map(|l| &l.sockets)
        .chain(&spawner)
        .map(AsFd::as_fd)
        .collect();
    start.has_spawner = spawner.is_some();
    link.send_descriptors(&sockets)?;
    start.listeners = listening.iter().map(ListenerSockets::of).collect();
    link.send(&ToServer::Start(start))?;
    Ok((link, theirs))
}

/// A server process, which is a child of this process. Dropping the value neither ends nor reaps the process.
pub(crate) struct ServerChild {
    pid: Pid,
    link: ControlLink,
    /// The program file of the process. Its spawners are started from the same file.
    binary: PathBuf,
    pub(crate) started: Instant,
    /// The time limit for the process to become ready.
    pub(crate) patience: Duration,
    /// Whether the process has reported that every worker accepts connections.
    pub(crate) is_ready: bool,
    /// When the process reported that it is ready.
    pub(crate) ready_at: Option<Instant>,
    /// Why the process is being killed, if it hangs.
    pub(crate) hung: Option<String>,
    /// The reason for a failed start, as reported by the process.
    pub(crate) failure: Option<String>,
    /// Whether the process must not start its services before the message `StartServices`.
    pub(crate) holds_services: bool,
    /// Whether the process has reported that all its services have ended.
    pub(crate) have_services_ended: bool,
    /// How the process ended; set once it is reaped. Its pid may then be reused.
    ended: Option<String>,
}

impl ServerChild {
    /// Starts `binary` as a server process with the control link as its standard input, under
    /// `account` if given.
    pub(crate) fn start(
        binary: &Path,
        listening: &[ListeningSockets],
        account: Option<&Account>,
        needs_spawner: bool,
        start: StartMessage,
    ) -> io::Result<Self> {
        let holds_services = start.holds_services;
        let (spawner, socket) = match needs_spawner {
            true => {
                let setup = worker_spawner::setup(&start.config_path, &start.text, account);
                Some(PendingSpawner::new(&setup)?).unzip()
            }
            false => (None, None),
        };
        let (link, theirs) = introduce(listening, socket, start)?;
        let mut command = Command::new(binary);
        if let Some(account) = account {
            // In a process of root, `Command::uid` also makes the child drop root's supplementary groups.
            command.uid(account.uid).gid(account.gid);
        }
        for variable in stored::VARIABLES {
            command.env_remove(variable);
        }
        let child = command
            .arg0("veche")
            .arg(crate::SERVER_PROCESS)
            .env_remove(HANDOVER_VARIABLE)
            .stdin(Stdio::from(theirs))
            .env_remove(notify::SOCKET)
            .spawn()?;
        // The spawner is started after the server process, so that the server process is the first child.
        if let Some(spawner) = spawner
            && let Err(error) = worker_spawner::start(binary, spawner)
        {
            tracing::error!(target: TARGET, %error, "can't start the spawner of worker processes");
        }
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self {
            pid: pid.ok_or(io::ErrorKind::InvalidData)?,
            link,
            binary: binary.to_owned(),
            started: now(),
            patience: READY_WAIT,
            is_ready: false,
            ready_at: None,
            hung: None,
            failure: None,
            holds_services,
            have_services_ended: false,
            ended: None,
        })
    }

    /// Wraps a child started by the previous program in this process.
    pub(crate) fn adopt(pid: Pid, link: ControlLink, started: Instant) -> Self {
        Self {
            pid,
            link,
            binary: PathBuf::from(SELF),
            started,
            patience: READY_WAIT,
            is_ready: true,
            ready_at: Some(started),
            hung: None,
            failure: None,
            holds_services: false,
            have_services_ended: false,
            ended: None,
        }
    }

    /// Starts a spawner for a configuration, from the server process's program file.
    pub(crate) fn spawner(&self, setup: &SpawnerSetup) -> io::Result<OwnedFd> {
        let (prepared, socket) = PendingSpawner::new(setup)?;
        worker_spawner::start(&self.binary, prepared)?;
        Ok(socket)
    }

    /// Returns whether a service of the process may be running or may still start.
    pub(crate) fn may_serve(&self) -> bool {
        !self.have_services_ended && self.ended.is_none()
    }

    /// Returns the deadline for becoming ready; `None` if the process is ready.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.is_ready).then_some(self.started + self.patience)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns the control link to the process, even if it is closed.
    pub(crate) fn link_mut(&self) -> &ControlLink {
        &self.link
    }

    /// Returns the control link to the process for polling; `None` if it is closed.
    pub(crate) fn link(&self) -> Option<&ControlLink> {
        (!self.link.has_ended()).then_some(&self.link)
    }

    /// Sends a message if the process is alive; its death is noticed by [`Self::reap`].
    pub(crate) fn send(&mut self, message: &ToServer) -> io::Result<()> {
        self.link.send(message)
    }

    /// Sends a message with a descriptor.
    pub(crate) fn send_with_descriptors(
        &mut self,
        descriptor: BorrowedFd<'_>,
        message: &ToServer,
    ) -> io::Result<()> {
        self.link.send_with(descriptor, message)
    }

    /// Returns messages of the process. A process that violates the protocol is killed: it runs Veche's own program, so
    /// a violation means a bug or corrupted memory.
    pub(crate) fn receive(&mut self) -> Vec<ToSupervisor> {
        if self.link.has_ended() {
            return Vec::new();
        }
        let received = self.link.receive();
        let mut messages = Vec::new();
        while let Some(message) = self.link.next() {
            match message {
                Ok(ToSupervisor::ServicesEnded) => self.have_services_ended = true,
                Ok(message) => messages.push(message),
                Err(error) => {
                    tracing::warn!(target: TARGET, %error, "unknown message from the server process")
                }
            }
        }
        if let Err(error) = received.and_then(|()| {
            if self.link.has_ended() {
                Ok(())
            } else {
                self.link.flush()
            }
        }) {
            // A broken pipe means that the process has died and will be reaped.
            if error.kind() != io::ErrorKind::BrokenPipe {
                tracing::error!(target: TARGET, %error, pid = self.pid(), "the control link to the server process failed: killing that process");
                self.kill();
            }
            self.link.end();
        }
        messages
    }

    /// Sends SIGKILL. The death is noticed by [`Self::reap`].
    pub(crate) fn kill(&mut self) {
        if self.ended.is_none() {
            // This can't fail, since the process is our child and is not reaped.
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }

    /// Returns a description of how the process ended; `None` while it is running.
    pub(crate) fn reap(&mut self) -> io::Result<Option<String>> {
        if self.ended.is_none() {
            self.ended = match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(ended) => ended.map(|(_, status)| describe(status)),
                // The supervisor's previous program, which ran in this process, has reaped the
                // child. So the exit status is unknown.
                Err(Errno::CHILD) => Some("exit status unknown".to_owned()),
                Err(error) => return Err(error.into()),
            };
        }
        Ok(self.ended.clone())
    }
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
            format!("signal {signal} ({name})")
        }
        (None, None) => format!("wait status {:#x}", status.as_raw()),
    }
}
