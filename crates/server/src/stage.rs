//! A real worker and its control side on a simulated network, for fuzz targets and for benchmarks that count
//! instructions.

mod direct;
mod rig;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use veche_apps::{AppHosts, AppRegistry};
use veche_clock::now;
use veche_config::{self as config, Config};
use veche_frontends::{Context, HubMailer, Outboxes, Requests};
use veche_hub::{Hub, WorkerId};
use veche_mailbox::{Class, Mailbox};
use veche_net::{ConnectionId, Driver, ListenerId, RemoteState, Simulated};

use crate::files::DiskFiles;
use crate::metrics::MetricsReport;
use crate::process_state::ProcessState;
use crate::server::outbox_bytes_max;
use crate::tls_listeners::TlsListeners;
use crate::worker::{WorkerLoop, WorkerMail};

pub use rig::WorkerRig;

/// The times at which the monotonic clock and the wall clock start, in milliseconds.
const MONO_MS: u64 = 1_000_000;
const WALL_MS: u64 = 1_767_225_600_000;

/// The number of turns within which a worker must become idle if no event arrives.
const TURNS_MAX: u32 = 20_000;

/// Returns a folder with files for configurations: a site, two applications, a certificate with its key.
pub(crate) fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("veche-stage-{}", std::process::id()));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
        let made = made.expect("a certificate");
        fs::create_dir_all(folder.join("site")).expect("a folder");
        for (name, text) in [
            ("site/index.html", "<p>hello".to_owned()),
            (
                "app.lua",
                "return { message = function(c, d) c:send(d) end }".to_owned(),
            ),
            (
                "publish.lua",
                "local veche = require 'veche'\n\
                 return { message = function(c, d) veche.publish('news', d) end }"
                    .to_owned(),
            ),
            ("own.pem", made.cert.pem()),
            ("own.key", made.signing_key.serialize_pem()),
        ] {
            fs::write(folder.join(name), text).expect("written");
        }
        folder
    })
}

/// Returns the path of a configuration file.
pub(crate) fn file() -> PathBuf {
    folder().join("veche.toml")
}

/// A worker on a simulated network.
pub(crate) struct FuzzStage<D> {
    worker: WorkerLoop<D>,
    control: Mailbox<WorkerMail>,
    common: Arc<ProcessState>,
    library: AppRegistry,
    tls_listeners: TlsListeners,
}

impl<D: Driver> FuzzStage<D> {
    /// Starts a worker on `network`, whose listeners have to match those of `config`.
    fn on(network: D, config: &Config) -> Self {
        let library = AppRegistry::default();
        let app_set = library.load(config).expect("applications that load");
        let options = veche_mailbox::Options::default();
        let mut ends = Mailbox::mesh(2, &options);
        let control = ends.pop().expect("two ends");
        let mailbox = ends.pop().expect("two ends");
        let common = Arc::new(ProcessState::new(1, now()));
        common.set_ready(true);
        common.set_connections_max(1000);
        let report = MetricsReport::new(
            Arc::clone(&common),
            library.outbound.clone(),
            Arc::default(),
            "fuzz".to_owned(),
        );
        let outboxes = Outboxes::new(outbox_bytes_max(config));
        let outboxes = outboxes.with_random(|bytes| bytes.fill(0x5a));
        let site = crate::site::build(config, &library, &common.identities, &common.hooks, false);
        let mut shared = Context::new(
            Hub::new(WorkerId(0), 1, 7, veche_hub::Options::default()),
            Requests::new(outboxes, HubMailer::new(1, options.credits)),
            Arc::new(site),
            Arc::clone(&common.stats[0]),
            Box::new(DiskFiles::default()),
            Arc::new(report),
        );
        let port = library.outbound.port(|| {});
        let here = AppHosts::start(WorkerId(0), 1, &app_set, Box::new(port))
            .expect("applications that start");
        shared.apps = Some(Box::new(here));
        let mut worker: WorkerLoop<D> =
            WorkerLoop::new(network, shared, mailbox, Arc::clone(&common));
        let tls_listeners = TlsListeners::default();
        worker.set_acceptors(tls_listeners.begin(config));
        worker.simulate(WALL_MS);
        Self {
            worker,
            control,
            common,
            library,
            tls_listeners,
        }
    }

    pub(crate) fn network(&mut self) -> &mut D {
        self.worker.network()
    }
}

impl FuzzStage<Simulated> {
    /// Starts a worker with a valid configuration.
    pub(crate) fn new(config: &Config) -> Self {
        let network = Simulated::new(veche_net::Options::default(), 7, MONO_MS);
        let mut network = network.expect("a descriptor");
        for _ in &config.listeners {
            network.add_listener();
        }
        Self::on(network, config)
    }

    /// Connects to a listener.
    pub(crate) fn dial(&mut self, listener: u32) -> ConnectionId {
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_000));
        self.network().dial(ListenerId(listener), from)
    }

    /// Returns the data received by a client, and whether more may follow.
    pub(crate) fn read(&mut self, id: ConnectionId) -> (Vec<u8>, RemoteState) {
        let mut bytes = Vec::new();
        let state = self.network().read(id, &mut bytes);
        (bytes, state)
    }

    /// Applies another configuration as the control thread does; returns an error if the configuration is rejected.
    pub(crate) fn reload(&mut self, config: &Config) -> Result<(), String> {
        let app_set = self.library.load(config)?;
        let acceptors = self.tls_listeners.reload(config)?;
        let site = Arc::new(crate::site::build(
            config,
            &self.library,
            &self.common.identities,
            &self.common.hooks,
            false,
        ));
        let messages = [
            WorkerMail::Reload(site, outbox_bytes_max(config), app_set),
            WorkerMail::Acceptors(acceptors),
        ];
        for message in messages {
            let posted = self.control.post(0, Class::Control, message);
            assert!(posted.is_ok(), "the worker must accept commands");
        }
        self.control.flush();
        // In the server, the messages would wake the worker. Here, setting the clock makes the worker run another turn,
        // even if the time stays the same.
        let now_ms = self.network().now_ms();
        self.network().set_now_ms(now_ms);
        Ok(())
    }

    /// Runs turns until there is nothing left to do at the current time.
    pub(crate) fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            self.worker
                .turn()
                .expect("the simulated network must not fail");
            if self.network().idle_until_ms().is_some() {
                return;
            }
        }
        panic!("the worker still has work after the maximum number of turns");
    }

    /// Advances the clock and runs all due work.
    pub(crate) fn advance(&mut self, milliseconds: u64) {
        let until_ms = self.network().now_ms() + milliseconds;
        loop {
            self.settle();
            let due_ms = self.network().idle_until_ms().unwrap_or(0);
            let now_ms = self.network().now_ms();
            if due_ms > until_ms || now_ms >= until_ms {
                break;
            }
            self.network().set_now_ms(due_ms.max(now_ms + 1));
        }
        self.network().set_now_ms(until_ms);
        self.settle();
    }

    /// Closes all clients and checks that no state is left.
    pub(crate) fn finish(mut self, all: &[ConnectionId]) {
        for &id in all {
            self.network().reset(id);
        }
        self.settle();
        assert_eq!(
            self.common.connections(),
            0,
            "connections remain open after all clients have disconnected"
        );
        let stats = &self.common.stats[0];
        assert_eq!(stats.connections.read(), 0, "counted connections");
        assert_eq!(stats.sessions.read(), 0, "counted sessions");
    }
}

/// Parses a configuration; panics if it is invalid.
pub(crate) fn good(text: &str) -> Config {
    config::parse(&file(), text).unwrap_or_else(|report| panic!("{report}"))
}
