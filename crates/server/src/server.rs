//! The running server: starts workers on inherited sockets, and passes the control thread's commands to them.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{debug, info, warn};
use veche_apps::{self as apps, AppHosts, AppRegistry};
use veche_config::{Config, ConnectionCap, MemoryLimit, unix_now_ms};
use veche_frontends::{Context, HubMailer, Outboxes, Requests, ShutdownReason};
use veche_hub::{Hub, Now, WorkerId};
use veche_mailbox::{Class, Mailbox, Wake as _};
use veche_net::Driver;
use veche_nodes::NodeId;
use veche_outbound::engine::RemoteStore;
use veche_runtime::WorkerWaker;
use veche_script::LoadRun;
use veche_spawner::Spawner;
use veche_supervisor::message::{DecisionFilter, DumpRequest};
use veche_supervisor::process::{DrainReason, ServerControl, StartOptions, distribute};
use veche_supervisor::pulse::{PulseWatch, StuckWorker};
use veche_terminal::as_ms;

use crate::access_log::AccessLogFile;
use crate::back_end::{DriverInstance, DriverKind};
use crate::bans::Bans;
use crate::cluster::Cluster;
use crate::cluster::thread::{self as cluster_thread, NodeIdentity};
use crate::dev::DevMode;
use crate::dump::Dumps;
use crate::engine;
use crate::files::DiskFiles;
use crate::history::HistoryArchive;
use crate::memory;
use crate::metrics::MetricsReport;
use crate::process_state::ProcessState;
use crate::site;
use crate::tls_listeners::TlsAcceptors;
use crate::worker::{WorkerLoop, WorkerMail};

/// Descriptors reserved for listeners, logs, epoll and libraries.
const SPARE_DESCRIPTORS: u64 = 64;

/// The intervals at which expired data shared by scripts is removed. The first applies if the last removal left no
/// expired data, the second if it left some.
const EXPIRED_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(20)];

/// Retained compression contexts may use at most `memory_limit` divided by this number.
const CONTEXTS_PART: u64 = 4;

/// The running server, held by the control thread.
pub(crate) struct RunningServer {
    /// The control thread's end of the mailboxes.
    mailbox: Mutex<Mailbox<WorkerMail>>,
    workers: usize,
    common: Arc<ProcessState>,
    report: Arc<MetricsReport>,
    library: AppRegistry,
    dev: Option<Arc<DevMode>>,
    dumps: Dumps,
    watch: PulseWatch,
}

/// The address space of a worker's stack. It is large because scripts may nest C calls.
pub(crate) const WORKER_STACK_BYTES: usize = 16 << 20;

/// Starts all workers, and returns when they accept connections. `boot` is the machine's boot id. If `load_run` is
/// given, services simulate its users.
pub(crate) fn start(
    start: StartOptions,
    boot: Option<String>,
    load_run: Option<Arc<dyn LoadRun>>,
) -> Result<RunningServer, String> {
    let config = start.config;
    let holds_services = start.holds_services;
    let (back_end, why) = DriverKind::choose(config.server.io)?;
    let library = AppRegistry::for_load_run(load_run);
    let app_set = library.load_with(&config, start.spawner)?;
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = usize::from(config.server.workers.resolve(cores));
    let common = ProcessState::new(workers, veche_clock::now())
        .with_outbound(&library.outbound)
        .with_log(start.log)
        .with_restarts(start.restarts);
    let seed = random_u64()?;
    let node = NodeId(random_u64()?);
    let engine = engine::connect(&config.engine, &library.outbound, node)?;
    let mut hubs = hubs(&config, workers, seed, engine.is_some())?;
    let history = HistoryArchive::begin(config.history.as_ref(), boot, &mut hubs)?;
    let blocks = Bans::open(config.api.blocks.as_deref());
    let blocks = blocks.map_err(|error| format!("[api] blocks: {error}"))?;
    let cluster = engine.as_ref().map(|engine| (Cluster::new(), engine));
    let has_cluster = cluster.is_some();
    let common = common.with_history(history).with_blocks(blocks);
    let common = common.with_cluster(cluster.as_ref().map(|(cluster, _)| Arc::clone(cluster)));
    let common = Arc::new(common);
    let node_name = config.node_name.clone().unwrap_or_else(host_name);
    if has_cluster {
        common.events.set_node(node.to_string(), node_name.clone());
    }
    let opened = AccessLogFile::open(&config).map_err(|error| error.to_string())?;
    let switched = common.access.switch(opened);
    switched.map_err(|error| error.to_string())?;
    let acceptors = common.tls_listeners.begin(&config);
    common.orders.set(&config);
    common.identities.begin(&config);
    common.events.reload(config.events.clone());
    common.hooks.reload(&config);
    set_caps(&common, &config);
    let report = MetricsReport::new(
        Arc::clone(&common),
        library.outbound.clone(),
        Arc::clone(&library.store),
        node.to_string(),
    );
    let dev = match start.dev {
        true => {
            let dev = DevMode::new(random_uid()?, &config);
            dev.apps_loaded(&apps::warnings(&app_set));
            Some(Arc::new(dev))
        }
        false => None,
    };
    let report = report.with_engine(engine.clone());
    let report = report.with_pools(library.pools.clone());
    let report = Arc::new(report.with_dev(dev.clone()));
    report.configured(&config);
    // The sessions' pending requests bound the number of control messages. `control_max` is far above that number.
    let options = veche_mailbox::Options {
        control_max: 1 << 26,
        ..veche_mailbox::Options::default()
    };
    // A lane for each worker, one for the thread of the node in a cluster, and one for the control thread.
    let lanes = workers + usize::from(has_cluster);
    let mut ends = Mailbox::mesh(lanes + 1, &options);
    let control = ends
        .pop()
        .ok_or("there is no mailbox for the control thread")?;
    if let Some((cluster, engine)) = cluster {
        let mailbox = ends
            .pop()
            .ok_or("there is no mailbox for the thread of the cluster")?;
        let identity = NodeIdentity {
            id: node,
            name: node_name,
            settings: config.effective.agreed(),
        };
        let port = engine.peers(cluster.wake());
        let port = port.map_err(|error| format!("can't start threads for the engine: {error}"))?;
        cluster_thread::start(
            &cluster,
            identity,
            port,
            mailbox,
            seed,
            workers as u16,
            &common,
            &report,
        )?;
    }
    let site = Arc::new(site::build(
        &config,
        &library,
        &common.identities,
        &common.hooks,
        dev.is_some(),
    ));
    let addresses = start.listeners.iter().map(|listener| listener.address);
    let addresses: Vec<_> = addresses.collect();
    debug!(?addresses, "inherited the listening sockets");
    for listener in &start.listeners {
        if let Err(error) = veche_net::spread_evenly(&listener.sockets, workers) {
            let address = listener.address;
            debug!(%address, %error, "connections are not spread evenly over the workers");
        }
    }
    let hands = distribute(start.listeners, workers);
    let (failed, failures) = std::sync::mpsc::sync_channel(workers);
    for (me, ((mailbox, sockets), hub)) in ends.into_iter().zip(hands).zip(hubs).enumerate() {
        let outboxes = Outboxes::new(outbox_bytes_max(&config)).with_random(random);
        let mut ports = Requests::new(outboxes, HubMailer::new(lanes as u16, options.credits - 1));
        ports.nodes = has_cluster.then_some(WorkerId(workers as u16));
        let (site, common) = (Arc::clone(&site), Arc::clone(&common));
        let report: Arc<MetricsReport> = Arc::clone(&report);
        let app_set = Arc::clone(&app_set);
        let outbound = library.outbound.clone();
        let dev = dev.clone();
        let acceptors = Arc::clone(&acceptors);
        let engine = engine.clone();
        let failed = failed.clone();
        thread::Builder::new()
            .name(format!("worker {me}"))
            .stack_size(WORKER_STACK_BYTES)
            .spawn(move || {
                let stats = Arc::clone(&common.stats[me]);
                // The file cache and the applications belong to this worker, so they are created on its thread.
                let mut shared = Context::new(
                    hub,
                    ports,
                    site,
                    stats,
                    Box::new(DiskFiles::new(dev.is_some())),
                    report,
                );
                let driver = match DriverInstance::open(back_end, seed ^ me as u64) {
                    Err(error) => return drop(failed.send(Err(cannot_start(error)))),
                    Ok(driver) => driver,
                };
                let waker = driver.waker();
                let wake: WorkerWaker = Arc::new(move || waker.wake());
                let own = Arc::clone(&wake);
                let port = outbound.port(move || own());
                match AppHosts::start(
                    WorkerId(me as u16),
                    workers as u16,
                    &app_set,
                    Box::new(port),
                ) {
                    Err(error) => return drop(failed.send(Err(error))),
                    Ok(mut here) => {
                        if holds_services {
                            here.hold_services();
                        }
                        here.set_waker(wake);
                        let own = Arc::clone(&common);
                        here.set_is_short(Rc::new(move || own.memory.is_short_now()));
                        if let Some(dev) = dev.filter(|_| me == 0) {
                            here.set_notices(dev);
                        }
                        shared.apps = Some(Box::new(here));
                    }
                }
                let acceptors = (sockets, acceptors);
                match driver {
                    DriverInstance::Epoll(own) => {
                        serve(*own, shared, mailbox, common, (acceptors, engine), &failed)
                    }
                    DriverInstance::Uring(own) => {
                        serve(*own, shared, mailbox, common, (acceptors, engine), &failed)
                    }
                    DriverInstance::Delayed(own) => {
                        serve(*own, shared, mailbox, common, (acceptors, engine), &failed)
                    }
                }
            })
            .map_err(|error| format!("can't start the thread of worker {me}: {error}"))?;
    }
    drop(failed);
    for _ in 0..workers {
        match failures.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err("a worker died while starting".to_owned()),
        }
    }
    info!(workers, io = back_end.name(), %why, connections_max = common.connections_max(), "workers are up");
    common.set_ready(true);
    Ok(RunningServer {
        mailbox: Mutex::new(control),
        workers,
        common,
        report,
        library,
        dev,
        dumps: Dumps::default(),
        watch: PulseWatch::default(),
    })
}

/// Creates a hub for each worker and sets its namespaces, its limit of history bytes and its clock. The stored history
/// is loaded later.
fn hubs(config: &Config, workers: usize, seed: u64, is_remote: bool) -> Result<Vec<Hub>, String> {
    let namespaces = Arc::new(veche_config::namespaces(config));
    let bytes_max = site::history_bytes_max(config);
    let hub = |me| {
        let options = veche_hub::Options {
            epoch_seed: random_u64()?,
            ..veche_hub::Options::default()
        };
        let (me, workers) = (WorkerId(me), workers as u16);
        let mut hub = match is_remote {
            false => Hub::new(me, workers, seed, options),
            true => Hub::with_engine(me, workers, seed, options, engine::of_hub(random_u64()?)),
        };
        hub.set_history(Arc::clone(&namespaces), bytes_max);
        hub.set_now(Now {
            // The clock has to be the one that workers use.
            mono_ms: veche_clock::monotonic_ms(),
            wall_ms: unix_now_ms(),
        });
        Ok(hub)
    };
    (0..workers as u16).map(hub).collect()
}

#[expect(
    clippy::type_complexity,
    reason = "a type for the parts of the Redis engine would be used only once"
)]
fn serve<D: Driver>(
    driver: D,
    shared: Context,
    mailbox: Mailbox<WorkerMail>,
    common: Arc<ProcessState>,
    ((sockets, acceptors), engine): ((Vec<(usize, OwnedFd)>, TlsAcceptors), Option<RemoteStore>),
    up: &std::sync::mpsc::SyncSender<Result<(), String>>,
) {
    let waker = driver.waker();
    let writer = common.history.writer(move || waker.wake());
    let mut worker: WorkerLoop<D> = WorkerLoop::new(driver, shared, mailbox, common);
    if let Some(writer) = writer {
        worker.set_history_writer(writer);
    }
    worker.set_acceptors(acceptors);
    let connected = engine.map_or(Ok(()), |engine| {
        let waker = worker.waker();
        worker.set_engine(engine.channels(move || waker.wake())?);
        Ok(())
    });
    let mut sockets = sockets.into_iter();
    let result = connected.and_then(|()| {
        sockets.try_for_each(|(listener, socket)| worker.listen(listener as u16, socket))
    });
    let is_up = result.is_ok();
    let _ = up.send(result.map_err(cannot_start));
    if is_up {
        worker.run();
    }
}

fn cannot_start(error: std::io::Error) -> String {
    format!("can't start a worker: {error}")
}

impl RunningServer {
    fn refresh_bans(&self) -> Option<Instant> {
        let (next, result) = self.common.blocks.refresh(unix_now_ms() / 1000)?;
        if let Err(error) = result {
            let what = "[api] blocks: can't read, write or sync the file of bans; will retry";
            self.common
                .warn_throttled(|| tracing::warn!(%error, "{what}"));
        }
        Some(next)
    }

    fn send_all(&self, message: impl Fn() -> WorkerMail) {
        let mut mailbox = self.mailbox.lock();
        for worker in 0..self.workers {
            if mailbox.post(worker, Class::Control, message()).is_err() {
                warn!(
                    worker,
                    "the worker's queue is full: dropped a command for the worker"
                );
            }
        }
        mailbox.flush();
    }

    /// Removes some expired entries of data shared by scripts. Expiry follows the workers' clock. Returns when this
    /// method has to be called again.
    fn expire_shared(&self) -> Instant {
        let may_be_more = self.library.store.expire(veche_clock::monotonic_ms());
        veche_clock::now() + EXPIRED_EVERY[usize::from(may_be_more)]
    }
}

impl ServerControl for RunningServer {
    fn reload(&self, config: Arc<Config>, spawner: Option<Arc<Spawner>>) -> Result<(), String> {
        let app_set = self.library.load_with(&config, spawner)?;
        let access = AccessLogFile::open(&config).map_err(|error| error.to_string())?;
        let keys = self.common.identities.read(&config)?;
        let acceptors = self.common.tls_listeners.reload(&config)?;
        let switched = self.common.access.switch(access);
        switched.map_err(|error| error.to_string())?;
        self.common.identities.reload(&config, keys);
        self.common.events.reload(config.events.clone());
        self.common.hooks.reload(&config);
        self.common.orders.set(&config);
        set_caps(&self.common, &config);
        self.report.configured(&config);
        let site = Arc::new(site::build(
            &config,
            &self.library,
            &self.common.identities,
            &self.common.hooks,
            self.dev.is_some(),
        ));
        self.send_all(|| {
            WorkerMail::Reload(
                Arc::clone(&site),
                outbox_bytes_max(&config),
                Arc::clone(&app_set),
            )
        });
        self.send_all(|| WorkerMail::Acceptors(Arc::clone(&acceptors)));
        if let Some(dev) = &self.dev {
            dev.reloaded(&config);
            dev.apps_loaded(&apps::warnings(&app_set));
        }
        Ok(())
    }

    fn run_periodic(&self) -> Option<Instant> {
        let (acceptors, next) = self.common.tls_listeners.reload_changed();
        if let Some(acceptors) = acceptors {
            self.send_all(|| WorkerMail::Acceptors(Arc::clone(&acceptors)));
        }
        let others = [
            self.common.identities.fetch_due_keys(),
            self.common.orders.look(),
            self.common.history.look(),
            self.refresh_bans(),
            Some(self.expire_shared()),
        ];
        next.into_iter().chain(others.into_iter().flatten()).min()
    }

    fn refused(&self, why: &str) {
        if let Some(dev) = &self.dev {
            dev.refused(why);
        }
    }

    fn announce_end(&self) {
        self.common.set_ready(false);
    }

    fn drain(&self, within: Duration, reason: DrainReason) {
        let shutdown_reason = match reason {
            DrainReason::Stopping => ShutdownReason::Stopping,
            DrainReason::Replaced => ShutdownReason::Replaced,
        };
        self.common.set_ready(false);
        self.common.orders.stop();
        self.send_all(|| WorkerMail::Drain(as_ms(within), shutdown_reason));
        self.common.identities.refuse_queued();
    }

    fn cut_off(&self) {
        let connections = self.common.connections();
        if connections > 0 {
            warn!(
                connections,
                "drain time is over: closing the remaining connections"
            );
        }
        self.send_all(|| WorkerMail::CutOff);
    }

    fn start_services(&self) {
        self.send_all(|| WorkerMail::StartServices);
    }

    fn have_services_ended(&self) -> bool {
        self.common.have_services_ended()
    }

    fn drained(&self) -> bool {
        self.common.connections() == 0
            && self.common.have_apps_stopped()
            && self.common.have_services_ended()
            && !self.library.pools.have_processes()
    }

    fn status(&self) -> serde_json::Value {
        self.report.status()
    }

    fn pulse(&self) -> Option<StuckWorker> {
        self.watch.look(self.common.pulses.iter().map(Arc::as_ref))
    }

    fn dump(&self, wanted: DumpRequest, to: OwnedFd) {
        self.dumps.begin(&self.library.store, wanted, to);
    }

    fn watch(&self, wanted: DecisionFilter, to: OwnedFd) {
        self.common.decisions.add_watcher(wanted, to);
    }

    fn reopen_logs(&self) {
        self.common.access.reopen();
    }

    fn close(&self) {
        if let Some(cluster) = &self.common.cluster {
            cluster.leave();
        }
        self.common.history.close();
    }

    fn flush_logs(&self) {
        self.common.access.flush();
    }
}

fn set_caps(common: &ProcessState, config: &Config) {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX);
    let fit = usize::try_from(descriptors.saturating_sub(SPARE_DESCRIPTORS))
        .unwrap_or(usize::MAX)
        .max(1);
    let connections = match config.limits.connections {
        ConnectionCap::Auto => fit,
        ConnectionCap::Count(count) => fit.min(count as usize),
    };
    common.set_connections_max(connections);
    let limits = &config.limits;
    common.memory.set_limit(match limits.memory {
        MemoryLimit::Auto => memory::auto_limit(),
        MemoryLimit::Off => 0,
        MemoryLimit::Bytes(bytes) => bytes,
    });
    common.contexts.set_bytes_max(match common.memory.limit() {
        0 => usize::MAX,
        limit => usize::try_from(limit / CONTEXTS_PART).unwrap_or(usize::MAX),
    });
    common.addresses.set_limits(
        limits.connections_per_address.map_or(0, |max| max as usize),
        limits.handshakes_per_address,
    );
}

/// Returns the limit of unsent bytes on a connection.
pub(crate) fn outbox_bytes_max(config: &Config) -> usize {
    usize::try_from(config.limits.outbox_bytes).unwrap_or(usize::MAX)
}

/// Provides random bytes for masks and keys of outgoing connections.
fn random(bytes: &mut [u8]) {
    // The generator worked when the process started, so it does not fail now.
    getrandom::fill(bytes).expect("the system must provide random numbers");
}

fn random_u64() -> Result<u64, String> {
    getrandom::u64().map_err(|error| format!("can't get random numbers from the system: {error}"))
}

/// Returns the name of this machine.
fn host_name() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

fn random_uid() -> Result<String, String> {
    Ok(format!("{:016x}", random_u64()?))
}
