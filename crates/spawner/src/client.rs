//! The client's side of a spawner: starts the spawner, and requests worker processes from it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use veche_clock::now;

use crate::helper::SELF;
use crate::wire::{FromSpawner, MessageSocket, SpawnerSetup, ToSpawner, WorkerProgram, to_memory};

/// The longest wait for an answer. It is generous because the spawner may first fork processes for other pools.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How a spawner is started.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The program's file.
    pub binary: &'a Path,
    /// Names of environment variables that the program does not inherit.
    pub removed: &'a [&'a str],
}

/// A spawner whose process is not started yet. Its socket exists already, so it can be given to the process that will use the
/// spawner.
#[derive(Debug)]
pub struct PendingSpawner {
    socket: OwnedFd,
}

impl PendingSpawner {
    /// Prepares a spawner for a configuration. Returns the spawner and the socket for the server process. The spawner's process
    /// ends once that socket and the sockets of all pools are closed.
    ///
    /// # Errors
    /// Errors of the system, such as too many descriptors.
    pub fn new(setup: &SpawnerSetup) -> io::Result<(Self, OwnedFd)> {
        Self::with(&ToSpawner::Setup, to_memory(setup)?)
    }

    fn with(first: &ToSpawner, memory: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let (ours, socket) = MessageSocket::pair()?;
        MessageSocket::new(ours.try_clone()?)?.send(first, &[memory.as_fd()])?;
        Ok((Self { socket }, ours))
    }

    /// Starts the process, whose standard input is the spawner's end of the socket.
    ///
    /// # Errors
    /// The process can't be started; the socket is closed.
    pub fn start(self, how: Start<'_>) -> io::Result<Child> {
        let mut command = Command::new(how.binary);
        for variable in how.removed {
            command.env_remove(variable);
        }
        command
            .arg0("veche")
            .arg(crate::SPAWNER)
            // The spawner gets its own process group, so that signals from a terminal reach only the supervisor.
            .process_group(0)
            .stdin(Stdio::from(self.socket))
            .spawn()
    }
}

/// The connection to a spawner, which starts the processes of all pools of a configuration.
#[derive(Debug)]
pub struct Spawner(Mutex<Source>);

#[derive(Debug)]
enum Source {
    /// The main socket of a spawner that the supervisor started.
    Given(MessageSocket),
    /// A spawner that this process starts on first use. Contains the spawner's programs and, after the start, its
    /// process and main socket.
    Own(Vec<WorkerProgram>, Option<(Child, MessageSocket)>),
}

impl Spawner {
    /// Wraps the socket of a spawner that the supervisor has started.
    ///
    /// # Errors
    /// The descriptor is not a socket.
    pub fn given(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self(Mutex::new(Source::Given(MessageSocket::new(socket)?))))
    }

    /// Creates a spawner that this process starts itself, for programs that run with the rights of this process.
    #[must_use]
    pub fn own(programs: Vec<WorkerProgram>) -> Self {
        Self(Mutex::new(Source::Own(programs, None)))
    }

    /// Switches to another spawner started by the supervisor, after the previous one has ended.
    ///
    /// # Errors
    /// The descriptor is not a socket.
    pub fn replace(&self, socket: OwnedFd) -> io::Result<()> {
        *self.0.lock() = Source::Given(MessageSocket::new(socket)?);
        Ok(())
    }

    /// Returns whether the supervisor's spawner has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match &*self.0.lock() {
            Source::Given(port) => {
                let mut fds = [PollFd::new(port, PollFlags::IN)];
                let polled = poll(&mut fds, Some(&Timespec::default()));
                polled.is_ok() && !fds[0].revents().is_empty()
            }
            Source::Own(..) => false,
        }
    }

    /// Opens a socket for one pool. A spawner of this process that is not running is started first.
    ///
    /// # Errors
    /// The spawner has ended, or can't be started.
    pub fn connect(&self) -> io::Result<PoolLink> {
        let mut source = self.0.lock();
        match &mut *source {
            Source::Given(port) => PoolLink::new(port).map_err(gone),
            Source::Own(programs, running) => {
                if let Some((child, _)) = running
                    && child.try_wait()?.is_some()
                {
                    *running = None;
                }
                if running.is_none() {
                    let how = Start {
                        binary: Path::new(SELF),
                        removed: &[],
                    };
                    let memory = to_memory(programs)?;
                    let (prepared, main) = PendingSpawner::with(&ToSpawner::Programs, memory)?;
                    *running = Some((prepared.start(how)?, MessageSocket::new(main)?));
                }
                let (_, main) = running.as_ref().ok_or(io::ErrorKind::NotConnected)?;
                PoolLink::new(main).map_err(gone)
            }
        }
    }
}

fn gone(error: io::Error) -> io::Error {
    io::Error::other(format!(
        "the spawner of worker processes has ended: {error}"
    ))
}

/// A process that was started.
#[derive(Debug)]
pub struct Spawned {
    /// The process id, which is also the id of its process group.
    pub pid: u32,
    /// The process's socket, which is non-blocking.
    pub socket: UnixStream,
    /// The process's standard output.
    pub stdout: File,
    /// The process's standard error.
    pub stderr: File,
    /// The open file `/proc/PID/statm`, for the memory of the process.
    pub statm: Option<File>,
}

/// A pool's socket to the spawner. Dropping it ends all processes that were started over it.
#[derive(Debug)]
pub struct PoolLink {
    port: MessageSocket,
    ended: VecDeque<(u64, ExitStatus)>,
}

impl PoolLink {
    fn new(main: &MessageSocket) -> io::Result<Self> {
        let (ours, theirs) = MessageSocket::pair()?;
        main.send(&ToSpawner::Pool, &[theirs.as_fd()])?;
        Ok(Self {
            port: MessageSocket::new(ours)?,
            ended: VecDeque::new(),
        })
    }

    /// Starts a process of an application, and waits until the process runs its command or the start has failed.
    ///
    /// # Errors
    /// A system error; [`io::ErrorKind::NotConnected`] if the spawner has ended.
    pub fn start(&mut self, key: u64, app: &str, instance: u32) -> io::Result<Spawned> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let (stdout, output) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, errors) = pipe_with(PipeFlags::CLOEXEC)?;
        let app = app.to_owned();
        let request = ToSpawner::Start { key, app, instance };
        let with = [theirs.as_fd(), output.as_fd(), errors.as_fd()];
        self.send(&request, &with)?;
        let until = now() + ANSWER_WAIT;
        loop {
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                // The process may still start later, so it has to be killed.
                self.kill(key);
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.wait(PollFlags::IN, left);
            let (message, mut with) = match self.port.receive() {
                Ok(Some(message)) => message,
                Err(error) if is_temporary(&error) => continue,
                Ok(None) | Err(_) => return Err(io::ErrorKind::NotConnected.into()),
            };
            match message {
                FromSpawner::Started { key: of, pid } if of == key => {
                    return Ok(Spawned {
                        pid,
                        socket,
                        stdout: stdout.into(),
                        stderr: stderr.into(),
                        statm: with.pop().map(File::from),
                    });
                }
                FromSpawner::Failed { key: of, code, why } if of == key => {
                    return Err(match code {
                        Some(code) => io::Error::from_raw_os_error(code),
                        None => io::Error::other(why),
                    });
                }
                FromSpawner::Ended { key, status } => self.note_end(key, status),
                FromSpawner::Started { .. } | FromSpawner::Failed { .. } => {}
            }
        }
    }

    /// Kills a process and its children.
    pub fn kill(&mut self, key: u64) {
        // An error means that the spawner has ended, and all its processes with it.
        let _ = self.send(&ToSpawner::Kill { key }, &[]);
    }

    /// Returns whether [`take_ended`](Self::take_ended) has results that arrived during a start.
    #[must_use]
    pub fn has_ends(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Calls `end` for each process that was reaped, with its key and exit status; returns `false` once the spawner has ended.
    pub fn take_ended(&mut self, mut end: impl FnMut(u64, ExitStatus)) -> bool {
        let is_alive = loop {
            match self.port.receive() {
                Ok(Some((FromSpawner::Ended { key, status }, _))) => self.note_end(key, status),
                Ok(Some(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => break false,
            }
        };
        for (key, status) in self.ended.drain(..) {
            end(key, status);
        }
        is_alive
    }

    fn note_end(&mut self, key: u64, status: i32) {
        self.ended.push_back((key, ExitStatus::from_raw(status)));
    }

    /// Sends a request. Receives messages while it waits for the socket, so that the two sides can't deadlock.
    fn send(&mut self, message: &ToSpawner, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let until = now() + ANSWER_WAIT;
        loop {
            match self.port.send(message, with) {
                Ok(()) => return Ok(()),
                Err(error) if is_temporary(&error) => {}
                Err(_) => return Err(io::ErrorKind::NotConnected.into()),
            }
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.wait(PollFlags::OUT, left);
        }
    }

    fn wait(&self, flags: PollFlags, left: Duration) {
        let timeout = Timespec::try_from(left).ok();
        let _ = poll(&mut [PollFd::new(&self.port, flags)], timeout.as_ref());
    }
}

impl AsFd for PoolLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

fn is_temporary(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::WouldBlock || kind == io::ErrorKind::Interrupted
}
