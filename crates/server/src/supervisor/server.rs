//! One life of the server process: started, ready, and in the end reaped.
//!
//! It does not decide when to start or to kill one; the supervisor does.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::listening::Listening;
use crate::process::link::Link;
use crate::process::message::{ListenerSockets, Start, ToServer, ToSupervisor};
use crate::process::now;

/// How long a server process may take to be ready before it is killed.
pub(crate) const READY_WAIT: Duration = Duration::from_secs(30);
/// This very binary, even when another has taken its name on disk.
const SELF: &str = "/proc/self/exe";

/// A running server process.
pub(crate) struct Server {
    child: Child,
    link: Link,
    pub(crate) started: Instant,
    /// It said so: every worker accepts.
    pub(crate) is_ready: bool,
    /// What it gave as the reason why it can't start.
    pub(crate) failure: Option<String>,
}

impl Server {
    /// Starts one: this binary in its other part, the control socket as its standard input.
    pub(crate) fn start(listening: &[Listening], mut start: Start) -> io::Result<Self> {
        let (mut link, theirs) = Link::pair()?;
        let sockets: Vec<_> = listening
            .iter()
            .flat_map(|l| &l.sockets)
            .map(AsFd::as_fd)
            .collect();
        link.send_descriptors(&sockets)?;
        start.listeners = listening
            .iter()
            .map(|l| ListenerSockets {
                address: l.address,
                sockets: l.sockets.len(),
            })
            .collect();
        link.send(&ToServer::Start(start))?;
        let child = Command::new(SELF)
            .arg0("veche")
            .arg(crate::SERVER_PROCESS)
            .stdin(Stdio::from(theirs))
            .spawn()?;
        Ok(Self {
            child,
            link,
            started: now(),
            is_ready: false,
            failure: None,
        })
    }

    /// When it should be ready at the latest, unless it is.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.is_ready).then_some(self.started + READY_WAIT)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// For polling: its control socket, while that is open.
    pub(crate) fn link(&self) -> Option<&Link> {
        (!self.link.has_ended()).then_some(&self.link)
    }

    /// Says something, as far as there is somebody to hear: that it died is seen by [`Self::reap`].
    pub(crate) fn say(&mut self, message: &ToServer) -> io::Result<()> {
        self.link.send(message)
    }

    /// What it has said. A server process that breaks the conversation is killed: it is ours, so this is a
    /// bug or the memory is.
    pub(crate) fn hear(&mut self) -> Vec<ToSupervisor> {
        if self.link.has_ended() {
            return Vec::new();
        }
        let received = self.link.receive();
        let mut heard = Vec::new();
        while let Some(message) = self.link.next() {
            match message {
                Ok(message) => heard.push(message),
                Err(error) => {
                    tracing::warn!(%error, "the server process says what this version does not know")
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
                tracing::error!(%error, pid = self.pid(), "the control socket broke: killing the server process");
                self.kill();
            }
            self.link.end();
        }
        heard
    }

    /// SIGKILL. The death is seen by [`Self::reap`].
    pub(crate) fn kill(&mut self) {
        // Fails only for a process that was reaped already.
        let _ = self.child.kill();
    }

    /// How it ended, if it has.
    pub(crate) fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

/// An exit status in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
            format!("signal {signal} ({name})")
        }
        (None, None) => status.to_string(),
    }
}
