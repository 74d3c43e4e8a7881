//! The server process's side of the supervisor: how it comes up, is told things and goes down.
//!
//! [`run`] takes the config and the listening sockets from the control socket, has the server started and
//! then stays as the process's one control thread: it blocks on the control socket and on signals, and calls
//! a [`ServerControl`]. It does not know workers; `ServerControl` turns each call into their mail.
//!
//! Signals: SIGTERM drains, SIGUSR1 opens the logs anew. SIGINT and SIGHUP are for the supervisor, which gets them too
//! when they come from a terminal; they and SIGUSR2 do nothing here. A control socket that ends means that the
//! supervisor died: the process drains and exits, as nobody could stop it any more.

pub(crate) mod inherited;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod passing;
mod restarts;
pub(crate) mod signals;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use tracing::{error, info, warn};
use veche_files::make_folder;
use veche_frontends::Parting;
use veche_script::LoadRun;
use veche_terminal::as_ms;

pub(crate) use self::inherited::{InheritedListener, deal};
use self::link::Link;
use self::message::{ListenerSockets, ToServer, ToSupervisor, VERSION};
pub(crate) use self::restarts::{Ending, Restarts};
use self::signals::Signals;

use crate::decisions;
use crate::dump::Wanted;
use crate::pulse::Stuck;
use crate::sandbox::Confined;
use crate::{acme, memory, sandbox};
use veche_config::Config;
use veche_logging as logging;

/// How long the supervisor may take to say `Start`; it says so at once.
const START_WAIT: Duration = Duration::from_secs(10);
/// How often a draining server is asked whether it is done.
const DRAINED_EVERY: Duration = Duration::from_millis(20);

/// What connections have at least to be closed with a code, however short the drain is.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

/// What connections that outlast the drain have to be cut off; the supervisor's grace is longer.
const CUT_OFF_WAIT: Duration = Duration::from_millis(250);

/// The longest drain of a process whose supervisor is gone: another one may be about to start, and needs the folder of
/// history.
const ORPHAN_DRAIN: Duration = Duration::from_secs(2);

/// What the server is started with.
#[derive(Debug)]
pub(crate) struct Start {
    /// The config in force.
    pub(crate) config: Arc<Config>,
    /// In the order of `config.listeners`.
    pub(crate) listeners: Vec<InheritedListener>,
    /// It is `veche dev`: pages show errors.
    pub(crate) dev: bool,
    /// Its lines and what was lost of them.
    pub(crate) log: logging::ServerLog,
    /// Which start of the machine this is, as read outside of the sandbox.
    pub(crate) boot: Option<String>,
    /// No service begins before [`ServerControl::start_services`].
    pub(crate) holds_services: bool,
    /// Services play the users of this run; `None` of a server.
    pub(crate) load_run: Option<Arc<dyn LoadRun>>,
    /// How often server processes before this one ended by themselves.
    pub(crate) restarts: Restarts,
}

/// The running server as the control thread sees it. No call may block for long: while one lasts, the
/// supervisor hears nothing.
pub(crate) trait ServerControl {
    /// Puts a new config in force, whole or not at all; open connections stay. What can't change without a
    /// restart has its old value in it.
    ///
    /// # Errors
    /// Why the old config stays, on one line.
    fn reload(&self, config: Arc<Config>) -> Result<(), String>;
    /// Looks whether what was read from files has changed, which is cheap; when to be called again, if ever. Also
    /// called after a reload.
    fn look_around(&self) -> Option<Instant>;
    /// A new config was refused: under `veche dev` the developer should see why.
    fn refused(&self, why: &str);
    /// Makes `/health` answer 503 and changes nothing else.
    fn announce_end(&self);
    /// Take no more connections, close those that are, spread over the time, and end by then what is left. May come
    /// again with a shorter time.
    fn drain(&self, within: Duration, parting: Parting);
    /// The time to drain is over: ends connections that are left as they are, with what there is to log of them.
    fn cut_off(&self);
    /// Begins the services that were held back.
    fn start_services(&self);
    /// Whether a drain has come so far that no service runs any more.
    fn have_services_ended(&self) -> bool;
    /// Whether a drain has come to its end: no connection is left, applications have stopped, and services have ended.
    fn drained(&self) -> bool;
    /// Looks whether the workers still turn. Returns the one that has been in the same turn for the most looks, if one has.
    fn pulse(&self) -> Option<Stuck>;
    /// Figures for `veche status`: an object.
    fn status(&self) -> serde_json::Value;
    /// Begins to write the rows of a table to a descriptor, by a thread of its own.
    fn dump(&self, wanted: Wanted, to: OwnedFd);
    /// Begins to write decisions about clients to a descriptor, by a thread of its own.
    fn watch(&self, wanted: decisions::Wanted, to: OwnedFd);
    /// Somebody has moved the log files away, but for the server's own log: goes on in new ones.
    fn reopen_logs(&self);
    /// The process ends: what was to be kept is written, and let go of.
    fn close(&self);
    /// The process ends: waits a little for what is not written yet of these logs.
    fn flush_logs(&self);
}

/// The whole life of a server process; to be called on its main thread.
///
/// The link is the control socket's end of this process, by default its standard input. `start` brings the workers up
/// and returns once all of them accept. When this returns, the process is to exit with the code: workers may still run.
pub(crate) fn run<C: ServerControl>(
    link: io::Result<Link>,
    start: impl FnOnce(Start) -> Result<C, String>,
) -> ExitCode {
    match Process::begin(link) {
        Ok((process, started)) => process.serve(start, started),
        Err(error) => {
            if let Some(error) = error {
                eprintln!("veche: the server process can't start: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

struct Process {
    link: Link,
    signals: Signals,
    /// What the supervisor started with: directives that need a restart keep its values.
    started: Arc<Config>,
    /// The config in force.
    config: Arc<Config>,
    /// The sandbox, if it is in one.
    confined: Option<Confined>,
    boot: Option<String>,
    logs: logging::Logs,
    dev: bool,
    /// When a drain begins that was announced, and how long it may take.
    drain_begins: Option<(Instant, Duration)>,
    /// By when a drain ends, if one has begun.
    drain_ends: Option<Instant>,
    /// Connections that outlasted the drain were told to be cut off.
    has_cut_off: bool,
    /// The supervisor was told that services have ended.
    has_told_services: bool,
    holds_services: bool,
    restarts: Restarts,
    /// Duplicates of the listening sockets.
    listening: Vec<OwnedFd>,
}

/// What the supervisor's first message comes to.
struct Prepared {
    started: Arc<Config>,
    config: Arc<Config>,
    confined: Option<Confined>,
    boot: Option<String>,
    logs: logging::Logs,
    dev: bool,
    holds_services: bool,
    restarts: Restarts,
    listeners: Vec<InheritedListener>,
    listening: Vec<OwnedFd>,
}

impl Prepared {
    fn of(link: &mut Link) -> Result<Self, String> {
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
            .ok_or("the supervisor sent fewer sockets than it said")?;
        let sockets = listeners.iter().flat_map(|listener| &listener.sockets);
        let listening = sockets.map(OwnedFd::try_clone).collect::<io::Result<_>>();
        let listening =
            listening.map_err(|error| format!("a listening socket can't be kept: {error}"))?;
        // Where the supervisor has judged it, files of TLS may be worse by now: that is told, and is no reason not to
        // start.
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
        is_listened_on(&start.listeners, &config)?;
        // The sandbox hides it.
        let boot = veche_archive::boot_id();
        let confined = confine(&config)?;
        let gives_back = memory::give_back_when_idle();
        let log = config.server.log.for_dev(start.dev);
        let logs = logging::start(&log, None).map_err(|e| e.to_string())?;
        if let Err(error) = gives_back {
            warn!(error, "unused memory is given back late");
        }
        if let Some(confined) = &confined {
            info!(enforced = %confined, missing = confined.missing(), "sandbox");
        }
        Ok(Self {
            started,
            config,
            confined,
            boot,
            logs,
            dev: start.dev,
            holds_services: start.holds_services,
            restarts: start.restarts,
            listeners,
            listening,
        })
    }

    fn with(self, link: Link, signals: Signals) -> (Process, Vec<InheritedListener>) {
        let process = Process {
            link,
            signals,
            started: self.started,
            config: self.config,
            confined: self.confined,
            boot: self.boot,
            logs: self.logs,
            dev: self.dev,
            drain_begins: None,
            drain_ends: None,
            has_cut_off: false,
            has_told_services: false,
            holds_services: self.holds_services,
            restarts: self.restarts,
            listening: self.listening,
        };
        (process, self.listeners)
    }
}

impl Process {
    /// Fails with what nobody has been told.
    fn begin(link: io::Result<Link>) -> Result<(Self, Vec<InheritedListener>), Option<String>> {
        let signals = Signals::catch(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
            .map_err(|error| Some(error.to_string()))?;
        let mut link = link.map_err(|_| {
            let how = "it is `veche serve` that starts it, with a control socket as standard input";
            Some(how.to_owned())
        })?;
        match Prepared::of(&mut link) {
            Ok(prepared) => Ok(prepared.with(link, signals)),
            Err(error) => {
                let words = error.clone();
                let told = link.send(&ToSupervisor::Failed { error });
                Err(told.is_err().then_some(words))
            }
        }
    }

    fn serve<C: ServerControl>(
        mut self,
        start: impl FnOnce(Start) -> Result<C, String>,
        listeners: Vec<InheritedListener>,
    ) -> ExitCode {
        let control = match start(Start {
            config: Arc::clone(&self.config),
            listeners,
            dev: self.dev,
            log: self.logs.seen(),
            boot: self.boot.take(),
            holds_services: self.holds_services,
            load_run: None,
            restarts: self.restarts,
        }) {
            Ok(control) => control,
            Err(error) => {
                error!(%error, "the server can't start");
                let told = self.link.send(&ToSupervisor::Failed { error });
                return if told.is_ok() {
                    ExitCode::FAILURE
                } else {
                    ExitCode::from(2)
                };
            }
        };
        self.say(&ToSupervisor::Ready {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            handover: crate::supervisor::HANDOVER_VERSION,
        });
        // What came together with `Start` would wake nobody any more.
        self.hear(&control);
        while !self.is_done(&control) {
            if let Err(error) = self.turn(&control) {
                error!(%error, "the control thread can't go on");
                return ExitCode::FAILURE;
            }
        }
        control.close();
        control.flush_logs();
        ExitCode::SUCCESS
    }

    fn is_done(&self, control: &impl ServerControl) -> bool {
        self.drain_ends
            .is_some_and(|end| control.drained() || now() >= end + CUT_OFF_WAIT)
    }

    /// Waits for something to do, and does it.
    fn turn(&mut self, control: &impl ServerControl) -> io::Result<()> {
        let look_at = control.look_around();
        let look_in = look_at.map(|at| at.saturating_duration_since(now()));
        if let Some((begins, within)) = self.drain_begins
            && now() >= begins
        {
            self.drain(control, within, Parting::Stopping);
        }
        if self.drain_ends.is_some_and(|end| now() >= end) && !self.has_cut_off {
            self.has_cut_off = true;
            control.cut_off();
        }
        if self.drain_ends.is_some() && !self.has_told_services && control.have_services_ended() {
            self.has_told_services = true;
            self.say(&ToSupervisor::ServicesEnded);
        }
        let drained = self.drain_ends.map(|_| DRAINED_EVERY);
        let begins = self.drain_begins;
        let begins_in = begins.map(|(at, _)| at.saturating_duration_since(now()));
        let timeout = drained.into_iter().chain(look_in).chain(begins_in).min();
        let readable = wait(&self.link, &self.signals, timeout)?;
        let signals = self.signals.take();
        if signals.contains(&SIGUSR1) {
            self.reopen_logs(control);
        }
        if signals.contains(&SIGTERM) && self.drain_begins.is_none() && self.drain_ends.is_none() {
            info!("SIGTERM: stopping");
            let limits = &self.config.limits;
            self.stop(control, limits.lame_duck_time, limits.drain_time);
        }
        if readable {
            let moved = self.link.receive().and_then(|()| self.link.flush());
            if let Err(error) = moved {
                warn!(%error, "the control socket broke");
                self.link.end();
            }
            self.hear(control);
        }
        Ok(())
    }

    /// Does what the supervisor has said, the end of it included.
    fn hear(&mut self, control: &impl ServerControl) {
        while let Some(message) = self.link.next() {
            match message {
                Ok(message) => self.obey(control, message),
                Err(error) => warn!(%error, "the supervisor said what this version does not know"),
            }
        }
        if self.link.has_ended() {
            if self.drain_ends.is_none() {
                let within = self.config.limits.drain_time.min(ORPHAN_DRAIN);
                error!(?within, "the supervisor is gone: draining");
                self.drain(control, within, Parting::Stopping);
            }
            // Nobody would take what queues there, and another supervisor may want the addresses at once.
            for socket in self.listening.drain(..) {
                if let Err(error) = rustix::net::shutdown(&socket, Shutdown::Both) {
                    warn!(%error, "a listening socket can't be closed");
                }
            }
        }
    }

    fn obey(&mut self, control: &impl ServerControl, message: ToServer) {
        match message {
            ToServer::Start(_) => warn!("the supervisor said `start` twice"),
            ToServer::Reload { id, text, until_ms } => {
                let error = match until_ms.is_some_and(|until_ms| monotonic_ms() >= until_ms) {
                    true => Some("its time was over before it was read".to_owned()),
                    false => self.reload(control, &text).err(),
                };
                self.say(&ToSupervisor::Reloaded { id, error });
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
                    true => self.drain(control, within, Parting::Replaced),
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
                None => warn!("the supervisor wants a dump and sent nothing to write to"),
            },
            ToServer::Watch(wanted) => match self.take_descriptor() {
                Some(to) => control.watch(wanted, to),
                None => warn!("the supervisor wants decisions and sent nothing to write to"),
            },
        }
    }

    /// The descriptor that came with the last message.
    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        let mut some = self.link.take_descriptors(1)?;
        some.pop()
    }

    fn reload(&mut self, control: &impl ServerControl, text: &str) -> Result<(), String> {
        let new =
            veche_config::parse(&self.config.file, text).map_err(|report| report.to_string())?;
        let config = Arc::new(new.on_top_of(&self.started));
        // What may fail comes first, so that a refused config has changed nothing.
        let log = config.server.log.for_dev(self.dev);
        let output = logging::open(&log, None).map_err(|error| error.to_string())?;
        control.reload(Arc::clone(&config))?;
        self.logs.switch(&log, output);
        for port in self.confined.iter().flat_map(|it| it.out_of_reach(&config)) {
            warn!(
                port,
                "server.sandbox: what is named on another port is out of reach until a restart"
            );
        }
        self.config = config;
        Ok(())
    }

    fn reopen_logs(&self, control: &impl ServerControl) {
        self.logs.reopen();
        control.reopen_logs();
        info!("log files opened anew");
    }

    /// Drains after `lame_duck`; at once if a drain has begun.
    fn stop(&mut self, control: &impl ServerControl, lame_duck: Duration, within: Duration) {
        if lame_duck.is_zero() || self.drain_ends.is_some() {
            return self.drain(control, within, Parting::Stopping);
        }
        info!(after = ?lame_duck, "/health says 503; the drain begins later");
        let announced = self.drain_begins.map(|(begins, _)| begins);
        self.drain_begins = Some((announced.unwrap_or_else(|| now() + lame_duck), within));
        control.announce_end();
    }

    fn drain(&mut self, control: &impl ServerControl, within: Duration, parting: Parting) {
        self.drain_begins = None;
        self.has_cut_off = false;
        self.drain_ends = Some(now() + within.max(CLOSE_WAIT));
        control.drain(within, parting);
    }

    /// Nobody to say it to is no error here: the link's end is seen in the same or the next turn.
    fn say(&mut self, message: &ToSupervisor) {
        if let Err(error) = self.link.send(message) {
            warn!(%error, "the supervisor does not take an answer");
        }
    }
}

/// The config may be newer than the sockets, when this process is to replace another.
fn is_listened_on(bound: &[ListenerSockets], config: &Config) -> Result<(), String> {
    let wanted = &config.listeners;
    let fits = bound.len() == wanted.len()
        && bound
            .iter()
            .zip(wanted)
            .all(|(bound, wanted)| ListenerSockets::are_for(bound.address, wanted.address));
    if !fits {
        return Err(
            "the addresses of [[listen]] have changed: that takes `veche restart`".to_owned(),
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
            "workers = {workers} takes a stop and a start: there are {sockets} sockets of each address, and each worker needs its own"
        ));
    }
    Ok(())
}

/// Gives up what the process does not need, while it has one thread only.
fn confine(config: &Config) -> Result<Option<Confined>, String> {
    rustix::thread::set_no_new_privs(true).map_err(|error| format!("no_new_privs: {error}"))?;
    // Where that fails, it is told when something is to be kept there.
    let _ = acme::prepare(config);
    let history = config.history.iter().map(|history| &history.path);
    for folder in history.chain(&config.server.snapshots) {
        let _ = make_folder(folder, None);
    }
    match config.server.sandbox {
        true => sandbox::enter(config)
            .map(Some)
            .map_err(|error| error.to_string()),
        false => Ok(None),
    }
}

/// The first message.
fn await_start(link: &mut Link) -> Result<message::Start, String> {
    let deadline = now() + START_WAIT;
    loop {
        match link.next() {
            Some(Ok(ToServer::Start(start))) if start.version == VERSION => return Ok(start),
            Some(Ok(ToServer::Start(start))) => {
                return Err(format!(
                    "the supervisor speaks version {}, this is {VERSION}",
                    start.version
                ));
            }
            Some(Ok(_)) => return Err("the supervisor did not say `start` first".to_owned()),
            Some(Err(error)) => {
                return Err(format!("the supervisor's `start` makes no sense: {error}"));
            }
            None if link.has_ended() => return Err("the supervisor is gone".to_owned()),
            None if now() >= deadline => {
                return Err("the supervisor does not say `start`".to_owned());
            }
            None => {}
        }
        let mut fds = [PollFd::new(&*link, PollFlags::IN)];
        poll_once(&mut fds, Some(Duration::from_millis(100))).map_err(|e| e.to_string())?;
        link.receive().map_err(|e| e.to_string())?;
    }
}

/// Waits for the link or a signal; whether the link wants attention.
fn wait(link: &Link, signals: &Signals, timeout: Option<Duration>) -> io::Result<bool> {
    let signal = PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN);
    let mut fds = [signal, PollFd::from_borrowed_fd(link.as_fd(), link.wants())];
    // A link that has ended is readable for ever.
    let some = if link.has_ended() {
        &mut fds[..1]
    } else {
        &mut fds[..]
    };
    poll_once(some, timeout)?;
    Ok(!fds[1].revents().is_empty())
}

/// `poll` to which an interrupting signal is no error: its pipe is among what is polled.
pub(crate) fn poll_once(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|t| {
        Timespec::try_from(t).unwrap_or(Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        })
    });
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The clock of the control side.
#[expect(
    clippy::disallowed_methods,
    reason = "supervisor and control thread are the control side"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Milliseconds of the clock that [`now`] reads, which is the same in all processes of a machine.
pub(crate) fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Never negative.
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// Monotonic milliseconds, from when it was made.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(now())
    }

    pub(crate) fn now_ms(&self) -> u64 {
        as_ms(now().saturating_duration_since(self.0))
    }
}
