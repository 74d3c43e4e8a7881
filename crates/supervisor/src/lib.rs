//! `veche serve` and its processes: the supervisor, which owns the listening sockets and keeps one server process
//! running, and the server process's side of the connection between them.
//!
//! [`run`] is the supervisor: one thread without an async runtime that never blocks on another process. It polls
//! signals, the control link to the server process and the clients of the control socket (`veche status`, `reload`,
//! `stop`) together, and every buffer is bounded. It never reads data of Veche's clients; only the server process does,
//! and it can crash without closing the sockets. [`process::run`] is the server process: it receives the config and the
//! sockets, and runs a [`ServerProgram`](process::ServerProgram). [`message`] contains the messages between the
//! supervisor and the server process, [`request`] those from commands such as `veche status` to the supervisor.
//!
//! The crate handles processes, signals, file descriptors, listening sockets, reloads of the config and the service
//! manager. Workers, connections and the hub are outside of it, behind the traits
//! [`ServerProgram`](process::ServerProgram) and [`ServerControl`](process::ServerControl).
//!
//! Signals: SIGTERM and SIGINT drain, a second one kills; SIGHUP reloads the config; SIGUSR1 reopens the log files in
//! both processes; SIGUSR2 upgrades the program. Start reading at [`run`], then `Supervisor::turn`.

#![forbid(unsafe_code)]

mod backoff;
mod client;
mod clients;
mod control_socket;
mod handover;
mod inherited;
mod lifecycle;
mod link;
mod listening;
pub mod message;
mod notify;
mod orphans;
pub mod process;
pub mod pulse;
mod reload;
mod replacement;
pub mod request;
mod restarts;
mod server;
mod shutdown;
mod signals;
mod status;
mod stored;
pub mod unsupervised;
mod upgrade;
mod watchdog;
mod watching;
mod worker_spawner;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use tracing::{info, warn};
use veche_config::{Account, AccountError, Config};
use veche_logging::{self as logging, LogError, Logs};
use veche_net::descriptors::{self, RaisedLimit};
use veche_terminal::ProblemReport;

use self::backoff::RestartBackoff;
use self::clients::ControlClients;
use self::control_socket::{ControlSocket, ControlSocketError};
use self::handover::{InheritedState, StartRole};
use self::lifecycle::LastExit;
use self::listening::{ListenError, ListeningSockets, listen_on};
use self::notify::ServiceNotifier;
use self::reload::{LoadedConfig, PendingReload};
use self::replacement::ReplacementKind;
use self::server::ServerChild;
use self::shutdown::Shutdown;
use self::status::PendingStatus;
use self::upgrade::{PendingSelfUpgrade, RetiringServer, UpgradeState};
use self::watchdog::Watchdog;

use crate::message::ToServer;
use crate::signals::poll_once;
use veche_clock::now;

pub use self::restarts::Restarts;
pub use self::signals::Signals;
pub use self::worker_spawner::programs as worker_programs;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor";

/// The argument that makes the binary run as the server process.
pub const SERVER_PROCESS: &str = "server-process";

/// How the supervisor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupervisorEnd {
    /// The server process exited after a drain.
    Drained,
    /// The server process was killed, because this was requested or because the time for its drain ended.
    Killed,
}

/// The reason why `veche serve` did not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The problems of the configuration.
    #[error("{0}")]
    Config(#[from] ProblemReport),
    /// The control socket can't be claimed.
    #[error(transparent)]
    Door(#[from] ControlSocketError),
    /// An address can't be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A log can't be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The user `server.user` is unknown, or can't be made the owner of files.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The first server process reported why it can't start; a retry would not help.
    #[error("{0}")]
    Server(String),
    /// The handover from the previous program failed.
    #[error("can't take over from the previous program: {0}")]
    Handover(io::Error),
    /// An error of the system.
    #[error("the supervisor can't continue: {0}")]
    Io(#[from] io::Error),
}

const NOT_STORED: &str = "the service manager does not store the listening sockets, so connections are refused during a restart";

/// Returns whether this program was executed by a running supervisor in its own process, so that [`run`] continues that
/// supervisor's work.
pub fn goes_on() -> bool {
    handover::role().is_some()
}

/// Runs the supervisor with the configuration at `file` until the server is stopped. With `dev`, errors are shown on the
/// developer's pages. Nothing is started if the configuration or an address can't be used.
pub fn run(file: PathBuf, dev: bool) -> Result<SupervisorEnd, ServeError> {
    let signals = Signals::catch(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD])?;
    match handover::role() {
        Some(StartRole::Rehearsal) => return handover::rehearse(&file),
        Some(StartRole::Successor) => return go_on(file, dev, signals),
        None => {}
    }
    let loaded = LoadedConfig::read(&file)?;
    let config = Arc::clone(&loaded.config);
    let control_socket = ControlSocket::claim(&config.server.control)?;
    let raised = descriptors::raise()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // At least one socket per core, since a later server process may have more workers, up to one
    // per core.
    let sockets_each = cores.max(usize::from(config.server.workers.resolve(cores)));
    // Warnings, which are logged once the log is open.
    let mut remarks = Vec::new();
    let notifier = ServiceNotifier::from_environment(now(), &mut remarks);
    let listening = listen(&config, sockets_each, &notifier, &mut remarks)?;
    let account = Account::of(config.server.run_as.as_ref())?;
    worker_spawner::check_accounts(&config, account.as_ref())?;
    if let Some(account) = &account {
        account.own_logs(&config)?;
        account.own_cache(&config)?;
    }
    let owner = account.as_ref().map(Account::owner);
    let log = config.server.log.for_dev(dev);
    let logs = Signals::keep_from(|| logging::start(&log, owner))??;

    info!(target: TARGET, version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), config = %file.display(), "veche starts");
    log_raised(raised);
    for remark in remarks {
        warn!(target: TARGET, "{remark}");
    }
    for (listening, listener) in listening.iter().zip(&config.listeners) {
        info!(target: TARGET, address = %listening.address, role = %listener.role, tls = listener.tls.is_some(), sockets = listening.sockets.len(), "listening");
    }
    reload::log_warnings(&config);

    let common = SupervisorParts {
        file,
        dev,
        binary: upgrade::installed()?,
        loaded,
        listening,
        raised,
        signals,
        clients: ControlClients::new(control_socket),
        logs,
        notifier,
        account,
    };
    Supervisor::new(common).supervise()
}

/// Continues the work of the supervisor that has executed this program in its own process.
fn go_on(file: PathBuf, dev: bool, signals: Signals) -> Result<SupervisorEnd, ServeError> {
    let InheritedState {
        program,
        text,
        listening,
        control_socket,
        server,
        retiring,
        begun,
        starts,
        restarts,
        upgrades,
        binary,
    } = handover::take().map_err(ServeError::Handover)?;
    handover::unblock_signals()?;
    let loaded = LoadedConfig::of(&file, text)?;
    let control = &loaded.config.server.control;
    let mut clients = ControlClients::new(control_socket);
    let moved = match clients.control_socket().path() == control {
        true => Ok(()),
        false => {
            ControlSocket::claim(control).map(|control_socket| clients.move_to(control_socket))
        }
    };
    let account = Account::of(loaded.config.server.run_as.as_ref())?;
    // From here on no error may end the supervisor, since that would end the running server process too.
    let owner = account.as_ref().map(Account::owner);
    let log = loaded.config.server.log.for_dev(dev);
    let logs = Signals::keep_from(|| logging::start_or_stderr(&log, owner))??;
    let raised = descriptors::raise().unwrap_or_default();
    info!(target: TARGET, from = program,
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        server = server.pid(),
        "upgraded: the supervisor continues"
    );
    if let Err(error) = moved {
        warn!(target: TARGET, "can't move the control socket: {error}");
    }
    reload::log_warnings(&loaded.config);
    let mut remarks = Vec::new();
    let notifier = ServiceNotifier::from_environment(now(), &mut remarks);
    if let Err(error) = notifier.store(&listening) {
        remarks.push(format!("{NOT_STORED}: {error}"));
    }
    for remark in remarks {
        warn!(target: TARGET, "{remark}");
    }
    let common = SupervisorParts {
        file,
        dev,
        binary,
        loaded,
        listening,
        raised,
        signals,
        clients,
        logs,
        notifier,
        account,
    };
    let retiring = retiring
        .into_iter()
        .map(|(server, at)| RetiringServer::new(server, at));
    let mut supervisor = Supervisor {
        server: Some(server),
        revive_at: None,
        begun,
        was_ready: true,
        starts,
        restarts,
        upgrades,
        retiring: retiring.collect(),
        watchdog: Watchdog::begin(now()),
        ..Supervisor::new(common)
    };
    supervisor.supervise()
}

/// Listens with the sockets left by the previous run and with new ones, and stores all of them for the next run.
fn listen(
    config: &Config,
    sockets_each: usize,
    notifier: &ServiceNotifier,
    remarks: &mut Vec<String>,
) -> Result<Vec<ListeningSockets>, ListenError> {
    let mut kept = stored::take(remarks);
    let mut assigned = listening::assign(&config.listeners, &mut kept);
    // Unused stored sockets are closed first, since their addresses may conflict with those of new sockets.
    kept.into_iter().for_each(ListeningSockets::close);
    notifier.forget_stored();
    for listening in assigned.iter_mut().flatten() {
        listening.grow(sockets_each)?;
    }
    let listening = listen_on(&config.listeners, sockets_each, assigned)?;
    if let Err(error) = notifier.store(&listening) {
        remarks.push(format!("{NOT_STORED}: {error}"));
    }
    Ok(listening)
}

fn log_raised(RaisedLimit { from, to }: RaisedLimit) {
    let shown = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
    if from == to {
        info!(target: TARGET, limit = shown(to),
            "the descriptor limit is already at the hard limit"
        );
    } else {
        info!(target: TARGET, from = shown(from),
            to = shown(to),
            "raised the descriptor limit to the hard limit"
        );
    }
}

/// The state of the supervisor.
struct Supervisor {
    file: PathBuf,
    /// Whether this is `veche dev`.
    dev: bool,
    /// The path of the program's file, which may have been replaced.
    binary: PathBuf,
    /// The configuration at the start, for directives that can't change without a restart.
    started: LoadedConfig,
    /// The configuration that the server process currently uses.
    current: LoadedConfig,
    listening: Vec<ListeningSockets>,
    raised: RaisedLimit,
    signals: Signals,
    clients: ControlClients,
    logs: Logs,
    notifier: ServiceNotifier,
    /// The account of the server process, if it differs from the account of the supervisor.
    account: Option<Account>,
    server: Option<ServerChild>,
    restart_backoff: RestartBackoff,
    /// When the next server process is started, if none is running.
    revive_at: Option<Instant>,
    begun: Instant,
    /// Whether any server process has been ready so far.
    was_ready: bool,
    starts: u64,
    /// Counts of server processes that ended unexpectedly.
    restarts: Restarts,
    upgrades: u64,
    last_exit: Option<LastExit>,
    upgrade: Option<UpgradeState>,
    /// The pending replacement of the supervisor's program. It follows the replacement of the server process.
    change: Option<PendingSelfUpgrade>,
    /// Why the supervisor was not replaced in the last upgrade, for `veche status`.
    change_error: Option<String>,
    retiring: Vec<RetiringServer>,
    stopping: Option<Shutdown>,
    ended: Option<SupervisorEnd>,
    /// The id of the next request to the server process.
    next_id: u64,
    watchdog: Watchdog,
    reloads: Vec<PendingReload>,
    statuses: Vec<PendingStatus>,
}

/// The parts of a supervisor, either new or inherited from the previous program.
struct SupervisorParts {
    file: PathBuf,
    dev: bool,
    binary: PathBuf,
    loaded: LoadedConfig,
    listening: Vec<ListeningSockets>,
    raised: RaisedLimit,
    signals: Signals,
    clients: ControlClients,
    logs: Logs,
    notifier: ServiceNotifier,
    account: Option<Account>,
}

impl Supervisor {
    /// Creates a supervisor that starts its first server process at once.
    fn new(common: SupervisorParts) -> Self {
        Self {
            file: common.file,
            dev: common.dev,
            binary: common.binary,
            started: common.loaded.clone(),
            current: common.loaded,
            listening: common.listening,
            raised: common.raised,
            signals: common.signals,
            clients: common.clients,
            logs: common.logs,
            notifier: common.notifier,
            account: common.account,
            server: None,
            restart_backoff: RestartBackoff::default(),
            revive_at: Some(now()),
            begun: now(),
            was_ready: false,
            starts: 0,
            restarts: Restarts::default(),
            upgrades: 0,
            last_exit: None,
            upgrade: None,
            change: None,
            change_error: None,
            retiring: Vec::new(),
            stopping: None,
            ended: None,
            next_id: 0,
            watchdog: Watchdog::default(),
            reloads: Vec::new(),
            statuses: Vec::new(),
        }
    }

    fn supervise(&mut self) -> Result<SupervisorEnd, ServeError> {
        loop {
            self.turn()?;
            if let Some(ended) = self.ended {
                info!(target: TARGET, ?ended, "veche ends");
                return Ok(ended);
            }
        }
    }

    /// Waits for an event and then performs all checks, whatever the event was. Each check is cheap, and
    /// performing all of them ensures that none is forgotten.
    fn turn(&mut self) -> Result<(), ServeError> {
        self.wait()?;
        for signal in self.signals.take() {
            self.obey_signal(signal);
        }
        self.read_server();
        self.read_other_servers();
        self.reap_server()?;
        self.reap_others()?;
        self.start_services();
        self.serve_clients();
        self.meet_deadlines(now());
        self.self_upgrade_when_due();
        self.end_when_stopped();
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let candidate = self.upgrade.as_ref().map(UpgradeState::candidate);
        let retiring = self.retiring.iter().map(|retiring| &retiring.server);
        let servers = self.server.iter().chain(candidate).chain(retiring);
        for link in servers.filter_map(ServerChild::link) {
            fds.push(PollFd::new(link, link.wants()));
        }
        self.clients.add_to(&mut fds);
        let deadline = [
            self.revive_at,
            self.stopping.as_ref().and_then(Shutdown::deadline),
            self.server.as_ref().and_then(ServerChild::deadline),
            self.reloads.iter().filter_map(|r| r.deadline).min(),
            self.statuses.iter().map(|s| s.deadline).min(),
            self.clients.deadline(),
            self.upgrade.as_ref().map(UpgradeState::deadline),
            self.change.as_ref().map(|change| change.at),
            self.retiring
                .iter()
                .filter_map(RetiringServer::deadline)
                .min(),
            self.notifier.deadline().filter(|_| !self.watchdog.is_hung),
            self.watchdog.deadline(),
        ];
        let timeout = deadline.into_iter().flatten().min().map(|deadline| {
            // Rounded up to the next millisecond, since a wakeup just before the deadline would
            // make the loop spin until the deadline.
            deadline.saturating_duration_since(now()) + Duration::from_millis(1)
        });
        poll_once(&mut fds, timeout)
    }

    fn obey_signal(&mut self, signal: i32) {
        match signal {
            SIGTERM | SIGINT => {
                let name = if signal == SIGTERM {
                    "SIGTERM"
                } else {
                    "SIGINT"
                };
                let at_once = self.stopping.is_some();
                info!(target: TARGET, signal = name, at_once, "stop requested");
                self.stop(at_once);
            }
            SIGHUP => {
                info!(target: TARGET, "SIGHUP: reloading the config");
                self.reload(None);
            }
            SIGUSR1 => {
                if let Err(error) = self.own_logs(&self.current.config) {
                    warn!(target: TARGET, "{error}");
                }
                self.logs.reopen();
                info!(target: TARGET, "SIGUSR1: log files reopened");
                let retiring = self
                    .retiring
                    .iter_mut()
                    .map(|retiring| &mut retiring.server);
                let candidate = self.upgrade.as_mut().map(UpgradeState::candidate_mut);
                for server in self.server.iter_mut().chain(candidate).chain(retiring) {
                    if let Err(error) = server.send(&ToServer::ReopenLogs) {
                        warn!(target: TARGET, %error, pid = server.pid(),
                            "can't tell the server process to reopen its log files"
                        );
                    }
                }
            }
            SIGUSR2 => {
                info!(target: TARGET, "SIGUSR2: upgrading");
                self.begin_upgrade(ReplacementKind::Upgrade, None);
            }
            // The server process itself is reaped by `reap_server` in every turn.
            SIGCHLD => self.reap_other_children(),
            _ => {}
        }
    }

    /// Creates log files that the server process, under its account, can write.
    fn own_logs(&self, config: &Config) -> Result<(), String> {
        match &self.account {
            None => Ok(()),
            Some(account) => account.own_logs(config).map_err(|error| {
                format!("can't change the owner of a log file to server.user: {error}")
            }),
        }
    }

    /// Creates the folders for ACME certificates, history and saved tables, owned by the server process's account.
    fn own_cache(&self, config: &Config) -> Result<(), String> {
        match &self.account {
            None => Ok(()),
            Some(account) => account.own_cache(config).map_err(|error| {
                format!("can't change the owner of a folder to server.user: {error}")
            }),
        }
    }

    fn meet_deadlines(&mut self, now: Instant) {
        if self.revive_at.is_some_and(|at| now >= at) {
            self.start_server();
        }
        self.end_drain(now);
        self.end_start(now);
        self.expire_upgrade(now);
        self.expire_pending_requests(now);
        self.clients.expire(now);
        self.watch(now);
        // While a server process hangs, no watchdog notification is sent. So if that process can't be killed, the
        // service manager restarts the service.
        if !self.watchdog.is_hung {
            self.notifier.tick(now);
        }
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
