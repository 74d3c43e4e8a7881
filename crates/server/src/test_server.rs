//! The server under test of `veche test`: the configuration's routes and applications, and a real worker for each run.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use veche_apps::{AppHosts, AppRegistry, AppSet};
use veche_clock::now;
use veche_config::Config;
use veche_frontends::access::ListenerAccess;
use veche_frontends::frontend_config::{FrontendListener, ListenerRole};
use veche_frontends::route::Router;
use veche_frontends::{Context, FrontendConfig, HubMailer, Outboxes, Requests};
use veche_hub::{Hub, WorkerId};
use veche_identity::IdentityProviders;
use veche_mailbox::Mailbox;
use veche_net::{ListenerId, Simulated};
use veche_outbound::Outbound;
use veche_testing::{RunOptions, TestServer, TestWorker};
use veche_webhooks::hooks::HookClient;

use crate::files::DiskFiles;
use crate::metrics::MetricsReport;
use crate::process_state::ProcessState;
use crate::worker::WorkerLoop;

/// The parts that all test cases of one `veche test` share.
pub(crate) struct ConfiguredServer {
    site: Arc<FrontendConfig>,
    app_set: AppSet,
    listeners: Vec<TestListener>,
    outbox_bytes_max: usize,
}

struct TestListener {
    role: ListenerRole,
    name: Option<String>,
    address: SocketAddr,
}

impl ConfiguredServer {
    /// Loads the applications of a configuration.
    pub(crate) fn load(config: &Config) -> Result<Self, String> {
        let library = AppRegistry::default();
        let app_set = library.load(config)?;
        let identities = IdentityProviders::new(library.outbound.clone());
        identities.begin(config);
        let mut site =
            crate::site::build(config, &library, &identities, &HookClient::default(), false);
        let listeners = config.listeners.iter().zip(&site.listeners);
        let listeners = listeners.map(|(listener, of_site)| TestListener {
            role: of_site.role,
            name: listener.name.clone(),
            address: listener.address,
        });
        let listeners = listeners.collect();
        // A listener for the back end is added even if none is configured.
        site.listeners.push(FrontendListener {
            role: ListenerRole::Push,
            is_tls: false,
            access: ListenerAccess::default(),
            router: Router::new([]),
        });
        Ok(Self {
            site: Arc::new(site),
            app_set,
            listeners,
            outbox_bytes_max: usize::try_from(config.limits.outbox_bytes).unwrap_or(usize::MAX),
        })
    }
}

impl TestServer for ConfiguredServer {
    fn listener(&self, wanted: &str) -> Result<(ListenerId, String), String> {
        let is_it = |test_listener: &TestListener| match wanted {
            "" | "public" => test_listener.role == ListenerRole::Public,
            "internal" => test_listener.role == ListenerRole::Internal,
            name => {
                test_listener.name.as_deref() == Some(name)
                    && test_listener.role != ListenerRole::Push
            }
        };
        let found = self.listeners.iter().position(is_it);
        let place = found.ok_or_else(|| match wanted {
            "" => "the configuration has no public listener".to_owned(),
            name => format!("the configuration has no listener {name:?} for HTTP"),
        })?;
        let address = self.listeners[place].address.to_string();
        Ok((ListenerId(place as u32), address))
    }

    fn push_listener(&self) -> ListenerId {
        ListenerId(self.listeners.len() as u32)
    }

    fn start(&self, run: RunOptions<'_>) -> Result<Box<dyn TestWorker>, String> {
        let app_set = veche_apps::seeded(&self.app_set, run.seed, run.services)?;
        let options = veche_mailbox::Options::default();
        let mailbox = Mailbox::mesh(1, &options).pop();
        let mailbox = mailbox.ok_or("the test server has no mailbox")?;
        let common = Arc::new(ProcessState::new(1, now()));
        common.set_ready(true);
        let outbound = Outbound::default();
        let report = MetricsReport::new(
            Arc::clone(&common),
            outbound,
            Arc::default(),
            "test".to_owned(),
        );
        let outboxes = Outboxes::new(self.outbox_bytes_max);
        // Fixed masks of WebSocket frames keep runs deterministic.
        let outboxes = outboxes.with_random(|bytes| bytes.fill(0x5a));
        let mut shared = Context::new(
            Hub::new(WorkerId(0), 1, run.seed, veche_hub::Options::default()),
            Requests::new(outboxes, HubMailer::new(1, options.credits)),
            Arc::clone(&self.site),
            Arc::clone(&common.stats[0]),
            Box::new(DiskFiles::default()),
            Arc::new(report),
        );
        let mut hosts = AppHosts::start(WorkerId(0), 1, &app_set, run.calls)?;
        hosts.record_to(run.recorder);
        shared.apps = Some(Box::new(hosts));
        let mut network = Simulated::new(veche_net::Options::default(), run.seed, run.mono_ms)
            .map_err(|error| format!("can't create the simulated network: {error}"))?;
        for _ in &self.site.listeners {
            network.add_listener();
        }
        let mut worker: WorkerLoop<Simulated> = WorkerLoop::new(network, shared, mailbox, common);
        worker.simulate(run.wall_ms);
        Ok(Box::new(worker))
    }
}

impl TestWorker for WorkerLoop<Simulated> {
    fn network(&mut self) -> &mut Simulated {
        self.network()
    }

    fn turn(&mut self) -> io::Result<()> {
        self.turn()
    }

    fn apps_deadline_ms(&self) -> u64 {
        self.apps_deadline_ms()
    }
}
