//! The server process's side of the supervisor: how the process starts, receives commands and stops.
//!
//! [`run`] receives the config and the listening sockets from the control link, starts the server and then remains the
//! process's only control thread: it blocks on the control link and on signals, and calls a [`ServerControl`]. This
//! module does not access workers: `ServerControl` turns each call into messages to workers.
//!
//! Signals: SIGTERM drains, SIGUSR1 reopens the logs. SIGINT, SIGHUP and SIGUSR2 are ignored here, since the supervisor
//! handles them; a terminal sends SIGINT and SIGHUP to both processes. A closed control link means that the supervisor
//! has died: the process drains and exits, because nothing could stop it any more.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::Shutdown;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use tracing::{error, info, warn};
use veche_config::Config;
use veche_logging as logging;
use veche_spawner::Spawner;

use crate::handover::HANDOVER_VERSION;
pub use crate::inherited::{InheritedListener, distribute};
use crate::link::ControlLink;
use crate::message::{
    self, DecisionFilter, DumpRequest, ListenerSockets, ToServer, ToSupervisor, VERSION,
};
use crate::pulse::StuckWorker;
use crate::restarts::Restarts;
use crate::signals::{Signals, poll_once};
use veche_clock::{monotonic_ms, now};

/// The target of this module's log lines.
const TARGET: &str = "veche::process";
/// The time limit for receiving `Start`, which the supervisor sends at once.
const START_WAIT: Duration = Duration::from_secs(10);
/// The interval at which a draining server is checked for completion.
const DRAINED_EVERY: Duration = Duration::from_millis(20);

/// The minimum time for closing connections with a close code, even if the drain time is shorter.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

/// The time for cutting off connections that outlast the drain. The supervisor waits longer before it kills the process.
const CUT_OFF_WAIT: Duration = Duration::from_millis(250);

/// The longest drain of a process whose supervisor has ended. It is short, because another server may be about to start
/// and needs the history folder.
const ORPHAN_DRAIN: Duration = Duration::from_secs(2);

/// The parameters of the server's start.
#[derive(Debug)]
pub struct StartOptions {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The listeners in the order of `config.listeners`.
    pub listeners: Vec<InheritedListener>,
    /// Whether this is `veche dev`, where pages show errors.
    pub dev: bool,
    /// The log of the server process, opened before it was confined.
    pub log: logging::ServerLog,
    /// Whether services wait for [`ServerControl::start_services`].
    pub holds_services: bool,
    /// Counts of server processes that ended unexpectedly.
    pub restarts: Restarts,
    /// The spawner of worker processes, if the supervisor has started one.
    pub spawner: Option<Arc<Spawner>>,
}

/// The reason for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainReason {
    /// The server is stopping.
    Stopping,
    /// Another server process has taken over: clients may reconnect at once.
    Replaced,
}

/// The server-specific part of a server process; [`run`] does the rest.
pub trait ServerProgram {
    /// The handle of the running server.
    type Control: ServerControl;

    /// Drops privileges that the process does not need. Called while the process is single-threaded and has no log yet.
    ///
    /// # Errors
    /// Why the process must not serve with this configuration, as one line.
    fn confine(&mut self, config: &Config) -> Result<(), String>;
    /// Logs the result of [`Self::confine`].
    fn log_confined(&self);
    /// Warns of paths in a new configuration that the confined process can't access.
    fn warn_unreachable(&self, config: &Config);
    /// Starts the workers, and returns once all of them accept connections.
    ///
    /// # Errors
    /// Why the workers can't be started, as one line.
    fn start(&mut self, start: StartOptions) -> Result<Self::Control, String>;
}

/// The running server as seen by the control thread. No call may block for long, since the supervisor gets no answers during
/// the call.
pub trait ServerControl {
    /// Applies a new configuration completely or not at all; open connections stay. Settings in `config` that can't change
    /// without a restart have their old values. `spawner` starts the worker processes of the configuration's applications.
    ///
    /// # Errors
    /// Why the configuration was rejected, as one line; the old configuration stays in
    /// force.
    fn reload(&self, config: Arc<Config>, spawner: Option<Arc<Spawner>>) -> Result<(), String>;
    /// Runs cheap periodic checks, such as for changed files. Returns the time at which the checks have to run again,
    /// if ever. Also called after a reload.
    fn run_periodic(&self) -> Option<Instant>;
    /// Shows the reason why a configuration was rejected on the developer's pages, under `veche dev`.
    fn refused(&self, why: &str);
    /// Makes `/health` return 503 and changes nothing else.
    fn announce_end(&self);
    /// Closes all connections, spread evenly over the time `within`; [`Self::cut_off`] then ends the remaining ones.
    /// Only with [`DrainReason::Replaced`] does the server stop accepting at once. May be called again with a shorter
    /// time.
    fn drain(&self, within: Duration, reason: DrainReason);
    /// Ends the remaining connections at the end of the drain, and logs them.
    fn cut_off(&self);
    /// Starts the services that were held back because of [`StartOptions::holds_services`].
    fn start_services(&self);
    /// Returns whether a drain has ended all services.
    fn have_services_ended(&self) -> bool;
    /// Returns whether a drain is complete: no connections are left, applications have stopped and services have ended.
    fn drained(&self) -> bool;
    /// Checks whether workers make progress. Returns the worker that has been in the same turn for the most checks, if
    /// any.
    fn pulse(&self) -> Option<StuckWorker>;
    /// Returns the figures for `veche status`, as an object.
    fn status(&self) -> serde_json::Value;
    /// Starts writing the rows of a table to a descriptor, on a separate thread.
    fn dump(&self, wanted: DumpRequest, to: OwnedFd);
    /// Starts writing decisions about clients to a descriptor, on a separate thread.
    fn watch(&self, wanted: DecisionFilter, to: OwnedFd);
    /// Reopens log files that were moved away, except the server's own log.
    fn reopen_logs(&self);
    /// Writes and releases persistent state, since the process is ending.
    fn close(&self);
    /// Waits a limited time until the lines of all logs except the server's own are written, since
    /// the process is ending.
    fn flush_logs(&self);
}

/// Runs a server process started by a supervisor; must be called on its main thread.
///
/// When this returns, the process has to exit with the returned code at once, because workers may still be running.
pub fn run(program: impl ServerProgram) -> ExitCode {
    run_on(ControlLink::from_stdin(), program)
}

/// Runs a server process like [`run`], with the given end of the control link.
pub(crate) fn run_on(link: io::Result<ControlLink>, program: impl ServerProgram) -> ExitCode {
    match ServerRun::begin(link, program) {
        Ok((process, started)) => process.serve(started),
        Err(error) => {
            if let Some(error) = error {
                eprintln!("veche: the server process can't start: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

struct ServerRun<P> {
    program: P,
    link: ControlLink,
    signals: Signals,
    /// The configuration at the supervisor's start. Directives that need a restart keep the values of this
    /// configuration.
    started: Arc<Config>,
    /// The configuration in force.
    config: Arc<Config>,
    logs: logging::Logs,
    dev: bool,
    /// The start and the duration of a drain that was announced (`/health` returns 503) but has not started yet.
    drain_begins: Option<(Instant, Duration)>,
    /// When the drain in progress ends.
    drain_ends: Option<Instant>,
    /// Whether the connections that outlasted the drain have been cut off.
    has_cut_off: bool,
    /// Whether the supervisor was notified that all services have ended.
    has_reported_services_ended: bool,
    holds_services: bool,
    restarts: Restarts,
    /// Duplicates of the listening sockets.
    listening: Vec<OwnedFd>,
    /// The spawner of the configuration in force, if it has worker processes.
    spawner: Option<Arc<Spawner>>,
    /// Whether another spawner was requested from the supervisor and has not arrived yet.
    asks_spawner: bool,
}

/// The state prepared from the supervisor's first message.
struct PreparedServer {
    started: Arc<Config>,
    config: Arc<Config>,
    logs: logging::Logs,
    dev: bool,
    holds_services: bool,
    restarts: Restarts,
    listeners: Vec<InheritedListener>,
    listening: Vec<OwnedFd>,
    spawner: Option<Arc<Spawner>>,
}

impl PreparedServer {
    fn of(link: &mut ControlLink, program: &mut impl ServerProgram) -> Result<Self, String> {
        let start = await_start(link)?;
        let listeners = start
            .listeners
            .iter()
            .map(|of| {
                let sockets = link.take_descriptors(of.sockets)?;
                Some(InheritedListener {
                    address: of.address,
                    sockets,
                })
            })
            .collect::<Option<Vec<_>>>()
            .ok_or("the supervisor sent fewer listening sockets than it announced")?;
        let spawner = match start.has_spawner {
            true => Some(take_spawner(link)?),
            false => None,
        };
        let sockets = listeners.iter().flat_map(|listener| &listener.sockets);
        let listening = sockets.map(OwnedFd::try_clone).collect::<io::Result<_>>();
        let listening =
            listening.map_err(|error| format!("can't duplicate a listening socket: {error}"))?;
        // If the supervisor has checked the configuration, TLS files that have become invalid since are reported but
        // don't prevent the start.
        let parse = |text: &str| {
            let parse = match start.is_unjudged {
                true => veche_config::parse,
                false => veche_config::parse_again,
            };
            parse(&start.config_path, text).map_err(|report| report.to_string())
        };
        let new = parse(&start.text)?;
        let (started, config) = match &start.started_text {
            None => {
                let config = Arc::new(new);
                (Arc::clone(&config), config)
            }
            Some(text) => {
                let started = Arc::new(parse(text)?);
                let config = Arc::new(new.on_top_of(&started));
                (started, config)
            }
        };
        check_listeners(&start.listeners, &config)?;
        program.confine(&config)?;
        let log = config.server.log.for_dev(start.dev);
        let logs = logging::start(&log, None).map_err(|e| e.to_string())?;
        program.log_confined();
        Ok(Self {
            started,
            config,
            logs,
            dev: start.dev,
            holds_services: start.holds_services,
            restarts: start.restarts,
            listeners,
            listening,
            spawner,
        })
    }

    fn with<P>(
        self,
        program: P,
        link: ControlLink,
        signals: Signals,
    ) -> (ServerRun<P>, Vec<InheritedListener>) {
        let process = ServerRun {
            program,
            link,
            signals,
            started: self.started,
            config: self.config,
            logs: self.logs,
            dev: self.dev,
            drain_begins: None,
            drain_ends: None,
            has_cut_off: false,
            has_reported_services_ended: false,
            holds_services: self.holds_services,
            restarts: self.restarts,
            listening: self.listening,
            spawner: self.spawner,
            asks_spawner: false,
        };
        (process, self.listeners)
    }
}

impl<P: ServerProgram> ServerRun<P> {
    /// Receives the first message and prepares the server. The error is `None` if it has already been reported to the
    /// supervisor.
    fn begin(
        link: io::Result<ControlLink>,
        mut program: P,
    ) -> Result<(Self, Vec<InheritedListener>), Option<String>> {
        let signals = Signals::catch(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
            .map_err(|error| Some(error.to_string()))?;
        let mut link = link.map_err(|_| {
            let how = "only `veche serve` can start the server process, since it passes the control link as standard input";
            Some(how.to_owned())
        })?;
        match PreparedServer::of(&mut link, &mut program) {
            Ok(prepared) => Ok(prepared.with(program, link, signals)),
            Err(error) => {
                let words = error.clone();
                let sent = link.send(&ToSupervisor::Failed { error });
                Err(sent.is_err().then_some(words))
            }
        }
    }

    fn serve(mut self, listeners: Vec<InheritedListener>) -> ExitCode {
        let started = self.program.start(StartOptions {
            config: Arc::clone(&self.config),
            listeners,
            dev: self.dev,
            log: self.logs.seen(),
            holds_services: self.holds_services,
            restarts: self.restarts,
            spawner: self.spawner.clone(),
        });
        let control = match started {
            Ok(control) => control,
            Err(error) => {
                error!(target: TARGET, %error, "the server can't start");
                let sent = self.link.send(&ToSupervisor::Failed { error });
                return if sent.is_ok() {
                    ExitCode::FAILURE
                } else {
                    ExitCode::from(2)
                };
            }
        };
        self.say(&ToSupervisor::Ready {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            handover: HANDOVER_VERSION,
        });
        // Messages that arrived together with `Start` are already in the buffer, so polling would not report them.
        self.read_messages(&control);
        while !self.is_done(&control) {
            if let Err(error) = self.turn(&control) {
                error!(target: TARGET, %error, "the control thread can't continue");
                return ExitCode::FAILURE;
            }
        }
        control.close();
        control.flush_logs();
        ExitCode::SUCCESS
    }

    fn is_done(&self, control: &P::Control) -> bool {
        self.drain_ends
            .is_some_and(|end| control.drained() || now() >= end + CUT_OFF_WAIT)
    }

    /// Waits for an event and handles it.
    fn turn(&mut self, control: &P::Control) -> io::Result<()> {
        let look_at = control.run_periodic();
        let look_in = look_at.map(|at| at.saturating_duration_since(now()));
        if let Some((begins, within)) = self.drain_begins
            && now() >= begins
        {
            self.drain(control, within, DrainReason::Stopping);
        }
        if self.drain_ends.is_some_and(|end| now() >= end) && !self.has_cut_off {
            self.has_cut_off = true;
            control.cut_off();
        }
        if self.drain_ends.is_some()
            && !self.has_reported_services_ended
            && control.have_services_ended()
        {
            self.has_reported_services_ended = true;
            self.say(&ToSupervisor::ServicesEnded);
        }
        let drained = self.drain_ends.map(|_| DRAINED_EVERY);
        let begins = self.drain_begins;
        let begins_in = begins.map(|(at, _)| at.saturating_duration_since(now()));
        let timeout = drained.into_iter().chain(look_in).chain(begins_in).min();
        self.watch_spawner();
        let readable = wait(&self.link, &self.signals, timeout)?;
        let signals = self.signals.take();
        if signals.contains(&SIGUSR1) {
            self.reopen_logs(control);
        }
        if signals.contains(&SIGTERM) && self.drain_begins.is_none() && self.drain_ends.is_none() {
            info!(target: TARGET, "SIGTERM: stopping");
            let limits = &self.config.limits;
            self.stop(control, limits.lame_duck_time, limits.drain_time);
        }
        if readable {
            let moved = self.link.receive().and_then(|()| self.link.flush());
            if let Err(error) = moved {
                warn!(target: TARGET, %error, "the control link to the supervisor failed");
                self.link.end();
            }
            self.read_messages(control);
        }
        Ok(())
    }

    /// Requests another spawner from the supervisor if the current one has ended.
    fn watch_spawner(&mut self) {
        let has_ended = self.spawner.as_ref().is_some_and(|one| one.has_ended());
        let is_used = self.config.apps.iter().any(|app| app.processes.is_some());
        if has_ended && is_used && !self.asks_spawner && self.drain_ends.is_none() {
            self.asks_spawner = true;
            self.say(&ToSupervisor::SpawnerEnded);
        }
    }

    /// Handles the supervisor's messages and the end of the link.
    fn read_messages(&mut self, control: &P::Control) {
        while let Some(message) = self.link.next() {
            match message {
                Ok(message) => self.handle_message(control, message),
                Err(error) => {
                    warn!(target: TARGET, %error, "unknown message from the supervisor")
                }
            }
        }
        if self.link.has_ended() {
            if self.drain_ends.is_none() {
                let within = self.config.limits.drain_time.min(ORPHAN_DRAIN);
                error!(target: TARGET, ?within, "the supervisor is gone: draining");
                self.drain(control, within, DrainReason::Stopping);
            }
            // The listening sockets are shut down. Otherwise connections would wait in their queues unanswered, and a
            // new supervisor could not use the addresses.
            for socket in self.listening.drain(..) {
                if let Err(error) = rustix::net::shutdown(&socket, Shutdown::Both) {
                    warn!(target: TARGET, %error, "a listening socket can't be closed");
                }
            }
        }
    }

    fn handle_message(&mut self, control: &P::Control, message: ToServer) {
        match message {
            ToServer::Start(_) => warn!(target: TARGET, "the supervisor sent `start` twice"),
            ToServer::Reload {
                id,
                text,
                until_ms,
                has_spawner,
            } => {
                let spawner = match has_spawner {
                    true => take_spawner(&mut self.link).map(Some),
                    false => Ok(None),
                };
                let error = match until_ms.is_some_and(|until_ms| monotonic_ms() >= until_ms) {
                    true => {
                        Some("the server process read the request after its time limit".to_owned())
                    }
                    false => {
                        let reloaded = spawner.and_then(|one| self.reload(control, &text, one));
                        reloaded.err()
                    }
                };
                self.say(&ToSupervisor::Reloaded { id, error });
            }
            ToServer::Spawner => {
                self.asks_spawner = false;
                let socket = self.take_descriptor();
                if let (Some(spawner), Some(socket)) = (&self.spawner, socket)
                    && let Err(error) = spawner.replace(socket)
                {
                    warn!(target: TARGET, %error, "the spawner of worker processes can't be used");
                }
            }
            ToServer::Refused { why } => control.refused(&why),
            ToServer::StartServices => control.start_services(),
            ToServer::ReopenLogs => self.reopen_logs(control),
            ToServer::Drain {
                within_ms,
                lame_duck_ms,
                replaced,
            } => {
                let within = Duration::from_millis(within_ms);
                match replaced {
                    true => self.drain(control, within, DrainReason::Replaced),
                    false => self.stop(control, Duration::from_millis(lame_duck_ms), within),
                }
            }
            ToServer::Status { id } => {
                let report = control.status();
                self.say(&ToSupervisor::Status { id, report });
            }
            ToServer::Pulse => {
                let stuck = control.pulse();
                self.say(&ToSupervisor::Pulse { stuck });
            }
            ToServer::Dump(wanted) => match self.take_descriptor() {
                Some(to) => control.dump(wanted, to),
                None => {
                    warn!(target: TARGET, "the supervisor requested a dump without a descriptor to write to")
                }
            },
            ToServer::Watch(wanted) => match self.take_descriptor() {
                Some(to) => control.watch(wanted, to),
                None => {
                    warn!(target: TARGET, "the supervisor requested decisions about clients without a descriptor to write to")
                }
            },
        }
    }

    /// Takes the descriptor received with the last message.
    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        let mut some = self.link.take_descriptors(1)?;
        some.pop()
    }

    fn reload(
        &mut self,
        control: &P::Control,
        text: &str,
        spawner: Option<Arc<Spawner>>,
    ) -> Result<(), String> {
        let new =
            veche_config::parse(&self.config.file, text).map_err(|report| report.to_string())?;
        let config = Arc::new(new.on_top_of(&self.started));
        // All steps that can fail come first, so that a rejected configuration has no effect.
        let log = config.server.log.for_dev(self.dev);
        let output = logging::open(&log, None).map_err(|error| error.to_string())?;
        control.reload(Arc::clone(&config), spawner.clone())?;
        self.spawner = spawner;
        self.logs.switch(&log, output);
        self.program.warn_unreachable(&config);
        self.config = config;
        Ok(())
    }

    fn reopen_logs(&self, control: &P::Control) {
        self.logs.reopen();
        control.reopen_logs();
        info!(target: TARGET, "log files reopened");
    }

    /// Starts to drain after the time `lame_duck`. If a drain is already in progress, replaces it at once by one that ends
    /// after the time `within`.
    fn stop(&mut self, control: &P::Control, lame_duck: Duration, within: Duration) {
        if lame_duck.is_zero() || self.drain_ends.is_some() {
            return self.drain(control, within, DrainReason::Stopping);
        }
        info!(target: TARGET, after = ?lame_duck, "/health answers 503; the drain begins after limits.lame_duck_time");
        let announced = self.drain_begins.map(|(begins, _)| begins);
        self.drain_begins = Some((announced.unwrap_or_else(|| now() + lame_duck), within));
        control.announce_end();
    }

    fn drain(&mut self, control: &P::Control, within: Duration, reason: DrainReason) {
        self.drain_begins = None;
        self.has_cut_off = false;
        self.drain_ends = Some(now() + within.max(CLOSE_WAIT));
        control.drain(within, reason);
    }

    /// Sends a message. Errors are only logged: the end of the link is handled in this or the next turn.
    fn say(&mut self, message: &ToSupervisor) {
        if let Err(error) = self.link.send(message) {
            warn!(target: TARGET, %error, "can't send a message to the supervisor");
        }
    }
}

/// Checks that the sockets match a configuration. They can differ if this process replaces another one, whose sockets
/// it gets, and the configuration was changed in between.
fn check_listeners(bound: &[ListenerSockets], config: &Config) -> Result<(), String> {
    let wanted = &config.listeners;
    let fits = bound.len() == wanted.len()
        && bound
            .iter()
            .zip(wanted)
            .all(|(bound, wanted)| ListenerSockets::are_for(bound.address, wanted.address));
    if !fits {
        return Err(
            "the addresses of [[listen]] have changed: this needs `veche restart`".to_owned(),
        );
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = usize::from(config.server.workers.resolve(cores));
    let sockets = bound
        .iter()
        .map(|bound| bound.sockets)
        .min()
        .unwrap_or(workers);
    if workers > sockets {
        return Err(format!(
            "workers = {workers} requires a stop and a start: there are {sockets} sockets for each address, and each worker needs its own"
        ));
    }
    Ok(())
}

/// Takes the socket of a spawner, received with the last message.
fn take_spawner(link: &mut ControlLink) -> Result<Arc<Spawner>, String> {
    let socket = link.take_descriptors(1).and_then(|mut one| one.pop());
    let socket = socket
        .ok_or("the supervisor did not send the socket to the spawner of worker processes")?;
    let spawner = Spawner::given(socket).map_err(|error| {
        format!("can't use the socket to the spawner of worker processes: {error}")
    })?;
    Ok(Arc::new(spawner))
}

/// Waits for the first message.
fn await_start(link: &mut ControlLink) -> Result<message::StartMessage, String> {
    let deadline = now() + START_WAIT;
    loop {
        match link.next() {
            Some(Ok(ToServer::Start(start))) if start.version == VERSION => return Ok(start),
            Some(Ok(ToServer::Start(start))) => {
                return Err(format!(
                    "the supervisor speaks version {} of the control protocol, but this server process speaks version {VERSION}",
                    start.version
                ));
            }
            Some(Ok(_)) => return Err("the supervisor did not send `start` first".to_owned()),
            Some(Err(error)) => {
                return Err(format!("the supervisor's `start` is invalid: {error}"));
            }
            None if link.has_ended() => return Err("the supervisor is gone".to_owned()),
            None if now() >= deadline => {
                return Err("the supervisor did not send `start`".to_owned());
            }
            None => {}
        }
        let mut fds = [PollFd::new(&*link, PollFlags::IN)];
        poll_once(&mut fds, Some(Duration::from_millis(100))).map_err(|e| e.to_string())?;
        link.receive().map_err(|e| e.to_string())?;
    }
}

/// Waits for the control link or a signal. Returns whether the link has an event.
fn wait(link: &ControlLink, signals: &Signals, timeout: Option<Duration>) -> io::Result<bool> {
    let signal = PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN);
    let mut fds = [signal, PollFd::from_borrowed_fd(link.as_fd(), link.wants())];
    // An ended link is not polled, since it is always readable.
    let some = if link.has_ended() {
        &mut fds[..1]
    } else {
        &mut fds[..]
    };
    poll_once(some, timeout)?;
    Ok(!fds[1].revents().is_empty())
}
