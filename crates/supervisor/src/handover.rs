//! Replaces the supervisor by another program in the same process (exec): the pid, children, listening sockets and control
//! socket remain.
//!
//! The state for the new program is a JSON object in a memory file (`memfd`). Its descriptor is sent first, followed by the
//! other descriptors, on a socket that becomes the new program's standard input (`link` explains why descriptors are not passed
//! by number). Signals are blocked from before the exec until the new program catches them, so that no signal is lost or has
//! its default action.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use veche_config::Account;
use veche_logging as logging;
use veche_terminal::as_ms;

use super::control_socket::ControlSocket;
use super::listening::ListeningSockets;
use super::reload::LoadedConfig;
use super::server::ServerChild;
use super::{ServeError, Supervisor, SupervisorEnd};
use crate::link::ControlLink;
use crate::message::ListenerSockets;
use crate::restarts::Restarts;
use veche_clock::now;

/// The version of [`SupervisorState`]: a program takes over only from a program with the same version.
pub(crate) const HANDOVER_VERSION: u32 = 3;
/// The environment variable by which a program finds out that it was started for a handover.
pub(super) const HANDOVER_VARIABLE: &str = "VECHE_HANDOVER";
const REHEARSAL: &str = "rehearsal";

/// The purpose of a program that a supervisor starts for a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartRole {
    /// To verify that the program could take over: the process checks the configuration and exits.
    Rehearsal,
    /// To take over from the previous supervisor in this process.
    Successor,
}

/// The state passed to the new program: plain values only. The descriptors are sent separately, in the order of the fields that
/// refer to them.
#[derive(Debug, Serialize, Deserialize)]
struct SupervisorState {
    version: u32,
    /// The version of the previous program.
    program: String,
    text: String,
    listeners: Vec<ListenerSockets>,
    /// The path of the control socket.
    #[serde(rename = "door")]
    control_socket: PathBuf,
    server: ServerState,
    retiring: Vec<RetiringState>,
    uptime_ms: u64,
    starts: u64,
    #[serde(default)]
    restarts: Restarts,
    upgrades: u64,
    /// The path of the program's file, as given at the first start.
    binary: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct ServerState {
    pid: i32,
    uptime_ms: u64,
    /// The received part of an incomplete line from the server process.
    received: Vec<u8>,
    holds_services: bool,
    have_services_ended: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct RetiringState {
    server: ServerState,
    ends_in_ms: u64,
}

/// The state and descriptors left by the previous program.
pub(super) struct InheritedState {
    pub(super) program: String,
    /// The configuration in force.
    pub(super) text: String,
    pub(super) listening: Vec<ListeningSockets>,
    pub(super) control_socket: ControlSocket,
    pub(super) server: ServerChild,
    /// Replaced server processes with their deadlines.
    pub(super) retiring: Vec<(ServerChild, Instant)>,
    pub(super) begun: Instant,
    pub(super) starts: u64,
    pub(super) restarts: Restarts,
    pub(super) upgrades: u64,
    pub(super) binary: PathBuf,
}

/// The reason why the new program was not executed.
pub(super) enum ExecFailure {
    /// These signals arrived. They have to be handled before the program can be executed.
    Signalled(Vec<i32>),
    Failed(io::Error),
}

/// Returns the purpose of this process in a handover; `None` if it was started without one.
pub(super) fn role() -> Option<StartRole> {
    let marker = std::env::var(HANDOVER_VARIABLE).ok()?;
    if marker == REHEARSAL {
        return Some(StartRole::Rehearsal);
    }
    // An exec keeps the process id, so the variable contains the id of the successor. A child that inherits the
    // variable has another id.
    (marker == std::process::id().to_string()).then_some(StartRole::Successor)
}

/// Starts `binary` to rehearse the handover, with the arguments of this process and the configuration `text`. The new process
/// exits with 0 if it could take over.
pub(super) fn rehearsal(binary: &Path, text: &str) -> io::Result<Child> {
    let mut memory = written(text.as_bytes())?;
    memory.rewind()?;
    Command::new(binary)
        .args(std::env::args_os().skip(1))
        .env(HANDOVER_VARIABLE, REHEARSAL)
        .stdin(memory)
        .spawn()
}

/// Runs the rehearsal in the new program: tries everything that could fail after the exec, when the old program is gone.
pub(super) fn rehearse(file: &Path) -> Result<SupervisorEnd, ServeError> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let loaded = LoadedConfig::of(file, text)?;
    let account = Account::of(loaded.config.server.run_as.as_ref())?;
    logging::open(
        &loaded.config.server.log,
        account.map(|account| account.owner()),
    )?;
    Ok(SupervisorEnd::Drained)
}

/// Unblocks signals, now that they are caught.
pub(super) fn unblock_signals() -> io::Result<()> {
    Ok(SigSet::all().thread_unblock()?)
}

impl ServerState {
    fn of(server: &ServerChild) -> Self {
        Self {
            pid: server.pid().cast_signed(),
            uptime_ms: as_ms(now() - server.started),
            received: server.link_mut().received().to_vec(),
            holds_services: server.holds_services,
            have_services_ended: server.have_services_ended,
        }
    }

    fn adopt(self, link: OwnedFd) -> io::Result<ServerChild> {
        let pid = Pid::from_raw(self.pid).ok_or(io::ErrorKind::InvalidData)?;
        let link = ControlLink::adopt(link, self.received)?;
        let mut server = ServerChild::adopt(pid, link, ago(self.uptime_ms));
        server.holds_services = self.holds_services;
        server.have_services_ended = self.have_services_ended;
        Ok(server)
    }
}

impl Supervisor {
    /// Executes the program at `self.binary` with the configuration `text`. Returns only on failure, with the supervisor
    /// unchanged.
    pub(super) fn exec_program(&mut self, text: &str) -> ExecFailure {
        self.logs.flush();
        let everything = SigSet::all();
        // Signals are blocked from now on, so that the new program receives them. No other thread of this process receives
        // signals.
        if let Err(error) = everything.thread_block() {
            return ExecFailure::Failed(error.into());
        }
        let signals = self.signals.take();
        let stayed = match signals.is_empty() {
            true => {
                let Err(error) = self.try_exec(&self.binary, text);
                ExecFailure::Failed(error)
            }
            false => ExecFailure::Signalled(signals),
        };
        match everything.thread_unblock() {
            Ok(()) => stayed,
            Err(error) => ExecFailure::Failed(error.into()),
        }
    }

    fn try_exec(&self, binary: &Path, text: &str) -> io::Result<std::convert::Infallible> {
        let server = self.server.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let state = SupervisorState {
            version: HANDOVER_VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            text: text.to_owned(),
            listeners: self.listening.iter().map(ListenerSockets::of).collect(),
            control_socket: self.clients.control_socket().path().to_owned(),
            server: ServerState::of(server),
            retiring: self
                .retiring
                .iter()
                .map(|retiring| RetiringState {
                    server: ServerState::of(&retiring.server),
                    ends_in_ms: as_ms(retiring.kill_at.saturating_duration_since(now())),
                })
                .collect(),
            uptime_ms: as_ms(now() - self.begun),
            starts: self.starts,
            restarts: self.restarts,
            upgrades: self.upgrades,
            binary: self.binary.clone(),
        };
        let memory = written(&serde_json::to_vec(&state)?)?;
        let mut descriptors = vec![memory.as_fd()];
        descriptors.extend(
            self.listening
                .iter()
                .flat_map(|l| &l.sockets)
                .map(AsFd::as_fd),
        );
        descriptors.push(self.clients.control_socket().as_fd());
        descriptors.push(server.link_mut().as_fd());
        descriptors.extend(self.retiring.iter().map(|r| r.server.link_mut().as_fd()));
        let _ours = as_stdin(&descriptors)?;

        let binary = c_string(binary.as_os_str())?;
        let arguments = std::env::args_os().map(|argument| c_string(&argument));
        let arguments = arguments.collect::<io::Result<Vec<_>>>()?;
        let marker = (
            OsString::from(HANDOVER_VARIABLE),
            std::process::id().to_string().into(),
        );
        let environment = std::env::vars_os()
            .filter(|(name, _)| name != HANDOVER_VARIABLE)
            .chain([marker]);
        let environment = environment
            .map(|(mut name, value)| {
                name.push("=");
                name.push(value);
                c_string(&name)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let result = nix::unistd::execve(&binary, &arguments, &environment);
        no_stdin()?;
        Ok(result?)
    }
}

/// Takes the state left by the previous program.
pub(super) fn take() -> io::Result<InheritedState> {
    let mut link = ControlLink::from_stdin()?;
    link.receive()?;
    no_stdin()?;
    let mut one = || link.take_descriptors(1)?.pop();
    let memory = one().ok_or_else(|| bad("no state of the previous supervisor was received"))?;
    let mut text = String::new();
    let mut memory = File::from(memory);
    memory.rewind()?;
    memory.read_to_string(&mut text)?;
    let state: SupervisorState = serde_json::from_str(&text)?;
    if state.version != HANDOVER_VERSION {
        let version = state.version;
        return Err(bad(&format!(
            "the state has version {version}, but this program reads version {HANDOVER_VERSION}"
        )));
    }
    let missing = || bad("the previous supervisor passed too few descriptors");
    let mut listening = Vec::new();
    for ListenerSockets { address, sockets } in state.listeners {
        let sockets = link.take_descriptors(sockets).ok_or_else(missing)?;
        listening.push(ListeningSockets { address, sockets });
    }
    let mut one = || {
        link.take_descriptors(1)
            .and_then(|mut some| some.pop())
            .ok_or_else(missing)
    };
    let control_socket = ControlSocket::adopt(one()?, state.control_socket);
    let server = state.server.adopt(one()?)?;
    let mut retiring = Vec::new();
    for RetiringState { server, ends_in_ms } in state.retiring {
        let ends = now() + Duration::from_millis(ends_in_ms);
        retiring.push((server.adopt(one()?)?, ends));
    }
    Ok(InheritedState {
        program: state.program,
        text: state.text,
        listening,
        control_socket,
        server,
        retiring,
        begun: ago(state.uptime_ms),
        starts: state.starts,
        restarts: state.restarts,
        upgrades: state.upgrades,
        binary: state.binary,
    })
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn ago(uptime_ms: u64) -> Instant {
    let now = now();
    now.checked_sub(Duration::from_millis(uptime_ms))
        .unwrap_or(now)
}

fn written(bytes: &[u8]) -> io::Result<File> {
    const NAME: &str = "veche-handover";
    let sealed = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
    let memory = match sealed {
        // Linux before 6.3 does not know the flag `NOEXEC_SEAL`.
        Err(Errno::INVAL) => memfd_create(NAME, MemfdFlags::CLOEXEC),
        other => other,
    };
    let mut file = File::from(memory?);
    file.write_all(bytes)?;
    Ok(file)
}

fn c_string(text: &std::ffi::OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

/// Replaces standard input by a socket on which these descriptors were sent. Returns the sending end, which has to stay open
/// until the exec.
fn as_stdin(descriptors: &[BorrowedFd<'_>]) -> io::Result<ControlLink> {
    let (mut ours, theirs) = ControlLink::pair()?;
    ours.send_descriptors(descriptors)?;
    rustix::stdio::dup2_stdin(&theirs)?;
    Ok(ours)
}

fn no_stdin() -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(File::open("/dev/null")?)?)
}
