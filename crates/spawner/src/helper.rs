//! The spawner itself: a single thread that starts, kills and reaps worker processes.
//!
//! It trusts the first message, which comes from the process that started it. Later messages come from a server process that an
//! attacker may control, so they can only start the programs of the configuration.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use veche_clock::now;

use crate::wire::{
    FromSpawner, MessageSocket, SpawnerSetup, ToSpawner, WorkerProgram, from_memory,
};

/// The path of the running binary, which stays valid if the file was replaced.
pub(crate) const SELF: &str = "/proc/self/exe";

/// The time that processes have to end by themselves after their pool has ended, which closes their sockets. Processes
/// that are still running then are killed.
const LEFT_WAIT: Duration = Duration::from_secs(1);

/// The maximum number of messages handled for one pool per loop iteration, so that no pool starves the others.
const MESSAGES_MAX: usize = 64;

/// Runs a spawner, whose standard input is its main socket. `programs` returns the worker programs of a configuration.
pub fn run(programs: impl FnOnce(&SpawnerSetup) -> Result<Vec<WorkerProgram>, String>) -> ExitCode {
    match Spawner::begin(programs) {
        Ok(mut spawner) => {
            while spawner.is_needed() {
                spawner.turn();
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            let name = crate::SPAWNER;
            eprintln!("veche: {name} is for internal use by the server: {why}");
            ExitCode::FAILURE
        }
    }
}

/// A running worker process.
struct Running {
    key: u64,
    child: Child,
}

/// A pool of the server process.
struct Pool {
    /// The pool's socket; `None` once the pool has ended.
    port: Option<MessageSocket>,
    /// Messages that the pool's socket has not accepted yet: at most one per request, and one per process.
    unsent: VecDeque<(FromSpawner, Option<OwnedFd>)>,
    running: Vec<Running>,
    /// When the remaining processes of an ended pool are killed.
    kill_at: Option<Instant>,
}

struct Spawner {
    /// The main socket, over which pools connect; `None` once it is closed and no further pool can connect.
    main: Option<MessageSocket>,
    children: UnixStream,
    programs: Vec<WorkerProgram>,
    pools: Vec<Pool>,
}

impl Spawner {
    fn begin(
        programs: impl FnOnce(&SpawnerSetup) -> Result<Vec<WorkerProgram>, String>,
    ) -> Result<Self, String> {
        let named = |error: io::Error| error.to_string();
        let stdin = io::stdin();
        rustix::net::sockopt::socket_type(&stdin).map_err(|error| error.to_string())?;
        let main = MessageSocket::new(stdin.as_fd().try_clone_to_owned().map_err(named)?)
            .map_err(named)?;
        let null = File::open("/dev/null").map_err(named)?;
        rustix::stdio::dup2_stdin(null).map_err(|error| error.to_string())?;
        // Prevents worker processes from gaining more rights than their account has by executing set-user-ID programs.
        rustix::thread::set_no_new_privs(true).map_err(|error| error.to_string())?;
        // The spawner survives signals sent to the whole service, since its processes are needed until the drain is over.
        // Handlers are installed because ignored signals would be inherited by the worker processes.
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2] {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, flag).map_err(named)?;
        }
        let (children, write) = UnixStream::pair().map_err(named)?;
        children.set_nonblocking(true).map_err(named)?;
        signal_hook::low_level::pipe::register(SIGCHLD, write).map_err(named)?;
        let _ = poll(&mut [PollFd::new(&main, PollFlags::IN)], None);
        let first = main.receive().map_err(named)?;
        let (message, mut with) = first.ok_or("the parent process is gone")?;
        let memory = with.pop().ok_or("the first message has no descriptor")?;
        let programs = match message {
            ToSpawner::Setup => programs(&from_memory(memory).map_err(named)?)?,
            ToSpawner::Programs => from_memory(memory).map_err(named)?,
            _ => return Err("the first message is not the setup of the spawner".to_owned()),
        };
        // Without worker programs the spawner is not needed, so it closes its main socket and ends.
        let main = Some(main).filter(|_| !programs.is_empty());
        Ok(Self {
            main,
            children,
            programs,
            pools: Vec::new(),
        })
    }

    fn is_needed(&self) -> bool {
        self.main.is_some() || !self.pools.is_empty()
    }

    fn turn(&mut self) {
        self.wait();
        let mut bytes = [0; 64];
        while rustix::io::read(&self.children, &mut bytes).is_ok_and(|count| count > 0) {}
        self.read_main();
        let now = now();
        for pool in &mut self.pools {
            pool.read(&self.programs, now);
            pool.reap();
            pool.kill_overdue(now);
            pool.flush(now);
        }
        let is_used = |pool: &Pool| pool.port.is_some() || !pool.running.is_empty();
        self.pools.retain(is_used);
    }

    fn wait(&self) {
        let mut fds = vec![PollFd::new(&self.children, PollFlags::IN)];
        fds.extend(
            self.main
                .iter()
                .map(|main| PollFd::new(main, PollFlags::IN)),
        );
        for pool in &self.pools {
            let Some(port) = &pool.port else { continue };
            let mut wanted = PollFlags::IN;
            if !pool.unsent.is_empty() {
                wanted |= PollFlags::OUT;
            }
            fds.push(PollFd::new(port, wanted));
        }
        let due = self.pools.iter().filter_map(|pool| pool.kill_at).min();
        let timeout =
            due.map(|due| due.saturating_duration_since(now()) + Duration::from_millis(1));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn read_main(&mut self) {
        while let Some(main) = &self.main {
            match main.receive() {
                Ok(Some((ToSpawner::Pool, mut with))) => {
                    let port = with
                        .pop()
                        .and_then(|socket| MessageSocket::new(socket).ok());
                    self.pools.extend(port.map(Pool::new));
                }
                Ok(Some(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => self.main = None,
            }
        }
    }
}

impl Pool {
    fn new(port: MessageSocket) -> Self {
        Self {
            port: Some(port),
            unsent: VecDeque::new(),
            running: Vec::new(),
            kill_at: None,
        }
    }

    fn read(&mut self, programs: &[WorkerProgram], now: Instant) {
        for _ in 0..MESSAGES_MAX {
            let Some(port) = &self.port else { return };
            match port.receive() {
                Ok(Some((ToSpawner::Start { key, app, instance }, with))) => {
                    let program = programs.iter().find(|program| program.app == app);
                    let started = match program {
                        Some(program) => start(program, instance, with),
                        None => Err(io::Error::other(format!(
                            "app {app:?} has no command in the configuration of the spawner"
                        ))),
                    };
                    self.unsent.push_back(match started {
                        Ok(child) => {
                            let pid = child.id();
                            let figures = File::open(format!("/proc/{pid}/statm")).ok();
                            self.running.push(Running { key, child });
                            (
                                FromSpawner::Started { key, pid },
                                figures.map(OwnedFd::from),
                            )
                        }
                        Err(error) => {
                            let (code, why) = (error.raw_os_error(), error.to_string());
                            (FromSpawner::Failed { key, code, why }, None)
                        }
                    });
                }
                Ok(Some((ToSpawner::Kill { key }, _))) => {
                    let running = self.running.iter().filter(|one| one.key == key);
                    running.for_each(Running::kill);
                }
                Ok(Some(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => self.end(now),
            }
        }
    }

    /// Handles the end of a pool, whose socket was closed: sets the time at which its remaining processes are killed.
    fn end(&mut self, now: Instant) {
        self.port = None;
        self.unsent.clear();
        self.kill_at = Some(now + LEFT_WAIT);
    }

    fn reap(&mut self) {
        let unsent = &mut self.unsent;
        let has_port = self.port.is_some();
        self.running.retain_mut(|one| {
            // An error means that the process is no longer our child, which is only possible once it has ended.
            let status = match one.child.try_wait() {
                Ok(None) => return true,
                Ok(Some(status)) => std::os::unix::process::ExitStatusExt::into_raw(status),
                Err(_) => 0,
            };
            if has_port {
                let key = one.key;
                unsent.push_back((FromSpawner::Ended { key, status }, None));
            }
            false
        });
    }

    fn kill_overdue(&mut self, now: Instant) {
        if self.kill_at.is_some_and(|at| now >= at) {
            self.running.iter().for_each(Running::kill);
            self.kill_at = None;
        }
    }

    fn flush(&mut self, now: Instant) {
        while let (Some(port), Some((message, with))) = (&self.port, self.unsent.front()) {
            let with: Vec<BorrowedFd<'_>> = with.iter().map(|one| one.as_fd()).collect();
            match port.send(message, &with) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.end(now),
            }
        }
    }
}

impl Running {
    /// Kills the process and its children. The process is not reaped yet, so its id can't have been reused.
    fn kill(&self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

/// Starts a worker process. `with` has its socket, standard output and standard error.
fn start(program: &WorkerProgram, instance: u32, with: Vec<OwnedFd>) -> io::Result<Child> {
    let [socket, output, errors] =
        <[OwnedFd; 3]>::try_from(with).map_err(|_| io::Error::from(Errno::INVAL))?;
    let mut command = Command::new(SELF);
    command
        .arg0("veche")
        .arg(crate::LAUNCHER)
        .arg(std::process::id().to_string())
        .args(&program.command)
        .env("VECHE_FD", "3")
        .env("VECHE_APP", &program.app)
        .env("VECHE_WORKER", instance.to_string())
        .current_dir(&program.folder)
        .process_group(0);
    if let Some((uid, gid)) = program.account {
        // The process's account becomes the owner of the pipes, since programs that open
        // `/dev/stdout` or `/dev/stderr` need access to them.
        for pipe in [&output, &errors] {
            let owner = (
                rustix::fs::Uid::from_raw(uid),
                rustix::fs::Gid::from_raw(gid),
            );
            let _ = rustix::fs::fchown(pipe, Some(owner.0), Some(owner.1));
        }
        // Setting the user id also drops the supplementary groups of root.
        command.uid(uid).gid(gid);
    }
    command
        .stdin(Stdio::from(socket))
        .stdout(Stdio::from(output))
        .stderr(Stdio::from(errors))
        .spawn()
}
