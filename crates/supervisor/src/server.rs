//! One life of the server process: started, ready, and in the end reaped.
//!
//! It does not decide when to start or to kill one; the supervisor does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use veche_config::Account;

use super::handover::SIGN;
use super::listening::ListeningSockets;
use super::{notify, stored};
use crate::link::ControlLink;
use crate::message::{ListenerSockets, StartMessage, ToServer, ToSupervisor};
use veche_clock::now;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::server";

/// How long a server process may take to be ready before it is killed.
pub(crate) const READY_WAIT: Duration = Duration::from_secs(30);
/// The same where it reads history first: millions of publications take some seconds each.
pub(crate) const RESTORED_WAIT: Duration = Duration::from_secs(300);
/// This very binary, even when another has taken its name on disk.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Makes a control socket on which a server process finds its listening sockets and `start`; our end and its own.
pub(super) fn introduce(
    listening: &[ListeningSockets],
    mut start: StartMessage,
) -> io::Result<(ControlLink, OwnedFd)> {
    let (mut link, theirs) = ControlLink::pair()?;
    let sockets: Vec<_> = listening
        .iter()
        .flat_map(|l| &l.sockets)
        .map(AsFd::as_fd)
        .collect();
    link.send_descriptors(&sockets)?;
    start.listeners = listening.iter().map(ListenerSockets::of).collect();
    link.send(&ToServer::Start(start))?;
    Ok((link, theirs))
}

/// A running server process, a child of this one. Dropping it neither ends nor reaps it.
pub(crate) struct ServerChild {
    pid: Pid,
    link: ControlLink,
    pub(crate) started: Instant,
    /// How long it may take to be ready.
    pub(crate) patience: Duration,
    /// It said so: every worker accepts.
    pub(crate) is_ready: bool,
    /// When it said so.
    pub(crate) ready_at: Option<Instant>,
    /// Why it is killed, if it hangs.
    pub(crate) hung: Option<String>,
    /// What it gave as the reason why it can't start.
    pub(crate) failure: Option<String>,
    /// Its services wait for `StartServices`.
    pub(crate) holds_services: bool,
    /// It said that none of its services runs any more.
    pub(crate) have_services_ended: bool,
    /// How, once it is reaped: its number may be another's by now.
    ended: Option<String>,
}

impl ServerChild {
    /// Starts one: `binary` in its other part, the control socket as its standard input; it belongs to `account`, if
    /// not to whoever runs the supervisor.
    pub(crate) fn start(
        binary: &Path,
        listening: &[ListeningSockets],
        account: Option<&Account>,
        start: StartMessage,
    ) -> io::Result<Self> {
        let holds_services = start.holds_services;
        let (link, theirs) = introduce(listening, start)?;
        let mut command = Command::new(binary);
        if let Some(account) = account {
            // Without the supplementary groups of root too.
            command.uid(account.uid).gid(account.gid);
        }
        for variable in stored::VARIABLES {
            command.env_remove(variable);
        }
        let child = command
            .arg0("veche")
            .arg(crate::SERVER_PROCESS)
            .env_remove(SIGN)
            .stdin(Stdio::from(theirs))
            .env_remove(notify::SOCKET)
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self {
            pid: pid.ok_or(io::ErrorKind::InvalidData)?,
            link,
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

    /// A child that another supervisor has started in this process.
    pub(crate) fn adopt(pid: Pid, link: ControlLink, started: Instant) -> Self {
        Self {
            pid,
            link,
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

    /// Whether a service of it may run, now or later.
    pub(crate) fn may_serve(&self) -> bool {
        !self.have_services_ended && self.ended.is_none()
    }

    /// When it should be ready at the latest, unless it is.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.is_ready).then_some(self.started + self.patience)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Its control socket, whatever its state.
    pub(crate) fn link_mut(&self) -> &ControlLink {
        &self.link
    }

    /// For polling: its control socket, while that is open.
    pub(crate) fn link(&self) -> Option<&ControlLink> {
        (!self.link.has_ended()).then_some(&self.link)
    }

    /// Says something, as far as there is somebody to hear: that it died is seen by [`Self::reap`].
    pub(crate) fn send(&mut self, message: &ToServer) -> io::Result<()> {
        self.link.send(message)
    }

    /// The same with a descriptor.
    pub(crate) fn send_with_descriptors(
        &mut self,
        descriptor: BorrowedFd<'_>,
        message: &ToServer,
    ) -> io::Result<()> {
        self.link.send_with(descriptor, message)
    }

    /// What it has said. A server process that breaks the conversation is killed: it is ours, so this is a
    /// bug or the memory is.
    pub(crate) fn receive(&mut self) -> Vec<ToSupervisor> {
        if self.link.has_ended() {
            return Vec::new();
        }
        let received = self.link.receive();
        let mut heard = Vec::new();
        while let Some(message) = self.link.next() {
            match message {
                Ok(ToSupervisor::ServicesEnded) => self.have_services_ended = true,
                Ok(message) => heard.push(message),
                Err(error) => {
                    tracing::warn!(target: TARGET, %error, "the server process says what this version does not know")
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
            // A broken pipe is a death that is about to be reaped.
            if error.kind() != io::ErrorKind::BrokenPipe {
                tracing::error!(target: TARGET, %error, pid = self.pid(), "the control socket broke: killing the server process");
                self.kill();
            }
            self.link.end();
        }
        heard
    }

    /// SIGKILL. The death is seen by [`Self::reap`].
    pub(crate) fn kill(&mut self) {
        if self.ended.is_none() {
            // It is our child and not reaped: nothing can be in the way.
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }

    /// How it ended, in words, if it has.
    pub(crate) fn reap(&mut self) -> io::Result<Option<String>> {
        if self.ended.is_none() {
            self.ended = match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(ended) => ended.map(|(_, status)| describe(status)),
                // What this process ran as before has seen it.
                Err(Errno::CHILD) => Some("no word".to_owned()),
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
