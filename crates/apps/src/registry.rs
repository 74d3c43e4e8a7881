//! The applications of the process and their code. An application keeps its id across reloads.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use veche_calls::{Databases, Secret};
use veche_frontends::AppId;
use veche_frontends::hooks::HookKinds;
use veche_outbound::Outbound;
use veche_pool::PoolRegistry;
use veche_runtime::wire::EventName;
use veche_runtime::{Effect, Effects, Host, Level, Runtime};
use veche_script::{AppRole, LoadRun, ScriptApp, ScriptLimits, Snapshots, SourceCode};
use veche_spawner::{Spawner, WorkerProgram};
use veche_store::Store;

use veche_config::{self as config, Config, RestartPolicy};
use veche_types::WorkerId;

use super::hosted::{HostedRuntime, Program};
use super::service::Lifecycle;

/// The code and settings of one configured application.
#[derive(Clone, Debug)]
pub struct AppBundle {
    pub(super) program: Program,
    /// The folder from which responses may send files; `None` if they may send none.
    pub files: Option<Arc<Path>>,
    /// The instance, if the application is a service.
    pub slot: Option<InstanceSlot>,
    /// Whether the application handles channel and user events.
    pub receives_events: bool,
    /// The kinds of hooks that the application handles for Centrifuge clients.
    pub kinds: Arc<HookKinds>,
    /// Warnings that the code logged when the registry loaded it to check it, for example about functions that are
    /// never called.
    warnings: Vec<String>,
}

/// Returns the warnings of all applications, each with the name of its application.
pub fn warnings(app_set: &AppSet) -> Vec<(String, String)> {
    let bundles = app_set.iter().flatten();
    let all = bundles.flat_map(|bundle| {
        let named = |text: &String| (bundle.name().to_owned(), text.clone());
        bundle.warnings.iter().map(named)
    });
    all.collect()
}

/// The number and the restart policy of a service's instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceSlot {
    /// The number of the instance, from 1. It determines the worker that runs the instance.
    instance: u32,
    pub restart: RestartPolicy,
}

impl InstanceSlot {
    /// Returns the worker that runs the instance.
    pub fn worker(&self, workers: u16) -> WorkerId {
        WorkerId(((self.instance - 1) % u32::from(workers.max(1))) as u16)
    }
}

impl AppBundle {
    /// Returns the application's name.
    pub(super) fn name(&self) -> &str {
        self.program.name()
    }

    /// Formats an error that prevents the application from running.
    pub(super) fn start_error(&self, error: &dyn std::fmt::Display) -> String {
        format!("app {:?}: {error}", self.name())
    }

    /// Returns the initial lifecycle if the application is a service.
    pub(super) fn lifecycle(&self) -> Option<Lifecycle> {
        self.slot.map(|slot| Lifecycle::new(slot.restart))
    }

    /// Returns whether two bundles behave identically, so that a reload need not replace one with the other.
    pub fn is_same(&self, other: &Self) -> bool {
        self.program.is_same(&other.program)
            && self.files == other.files
            && self.slot == other.slot
            && self.receives_events == other.receives_events
    }
}

/// All applications of a configuration by id; `None` for those that are no longer configured.
pub type AppSet = Arc<Vec<Option<Arc<AppBundle>>>>;

/// Returns a copy of the applications for one test run: with a store of its own, seeded random numbers, and only the
/// services named in `services` (`None`: all services).
pub fn seeded(app_set: &AppSet, seed: u64, services: Option<&[String]>) -> Result<AppSet, String> {
    let is_of = |bundle: &AppBundle, name: &str| {
        let rest = bundle.name().strip_prefix(name);
        bundle.slot.is_some_and(|slot| {
            rest.is_some_and(|rest| rest.is_empty() || *rest == format!("/{}", slot.instance))
        })
    };
    for name in services.unwrap_or_default() {
        let mut bundles = app_set.iter().flatten();
        if !bundles.any(|bundle| is_of(bundle, name)) {
            return Err(format!("there is no service {name:?} in the configuration"));
        }
    }
    let runs = |bundle: &AppBundle| match services {
        Some(names) if bundle.slot.is_some() => names.iter().any(|name| is_of(bundle, name)),
        _ => true,
    };
    let store = Arc::new(Store::default());
    let bundles = app_set.iter().map(|bundle| {
        bundle.as_ref().filter(|bundle| runs(bundle)).map(|bundle| {
            let mut bundle = AppBundle::clone(bundle);
            bundle.program.seed(&store, seed);
            Arc::new(bundle)
        })
    });
    Ok(Arc::new(bundles.collect()))
}

/// The name of an application that is, or once was, configured. Its index is the application's id.
#[derive(Debug)]
struct RegisteredApp {
    name: String,
    /// The kinds of hooks that the application handles for Centrifuge clients.
    kinds: Arc<HookKinds>,
}

/// Assigns ids to applications and loads their code. A name keeps its id for the lifetime of the process, since open
/// sessions refer to the id across reloads.
#[derive(Debug, Default)]
pub struct AppRegistry {
    names: Mutex<Vec<RegisteredApp>>,
    /// The store shared by all workers and applications.
    pub store: Arc<Store>,
    /// Performs the calls of applications to external services.
    pub outbound: Outbound,
    /// Metrics of the applications that run in worker processes.
    pub pools: PoolRegistry,
    /// The load test, if any; the services then act as its simulated users.
    load_run: Option<Arc<dyn LoadRun>>,
}

impl AppRegistry {
    /// Creates a registry. With a load test, the services act as its simulated users.
    pub fn for_load_run(load_run: Option<Arc<dyn LoadRun>>) -> Self {
        Self {
            load_run,
            ..Self::default()
        }
    }

    /// Reads the code of all applications and checks that it loads. Worker processes of applications are
    /// started by this process, not by the supervisor's spawner.
    pub fn load(&self, config: &Config) -> Result<AppSet, String> {
        self.load_with(config, None)
    }

    /// Like [`load`](Self::load), but the supervisor's spawner starts the worker processes if
    /// `spawner` is not `None`.
    pub fn load_with(
        &self,
        config: &Config,
        spawner: Option<Arc<Spawner>>,
    ) -> Result<AppSet, String> {
        let spawner = spawner.map_or_else(|| own_spawner(config), Ok)?;
        let instances = config.services.iter().map(|service| service.instances);
        if config.apps.len() + instances.sum::<u32>() as usize > VOLUMES_MAX {
            return Err(format!(
                "the configuration has more than {VOLUMES_MAX} apps and instances of services together"
            ));
        }
        let mut app_set = Vec::new();
        let snapshots = Snapshots {
            folder: config.server.snapshots.clone(),
            is_confined: config.server.sandbox,
        };
        let mut put = |AppId(id), mut bundle: AppBundle| {
            bundle.program.set_snapshots(&snapshots);
            if app_set.len() <= usize::from(id) {
                app_set.resize_with(usize::from(id) + 1, || None);
            }
            app_set[usize::from(id)] = Some(Arc::new(bundle));
        };
        for (place, app) in config.apps.iter().enumerate() {
            let mut bundle = match &app.processes {
                Some(processes) => {
                    let spawner = Arc::clone(&spawner);
                    self.in_processes(app, processes, spawner, &config.databases)
                }
                None => self.read(app, AppRole::Clients, None, &config.databases)?,
            };
            bundle.receives_events = config.listener == Some(place);
            put(self.id(&app.name), bundle);
        }
        for service in &config.services {
            for (name, bundle) in self.service_instances(service, &config.databases)? {
                put(self.id(&name), bundle);
            }
        }
        Ok(Arc::new(app_set))
    }

    /// Returns the instances of a service. Their names begin with a NUL, so no configured app can have the same name.
    fn service_instances(
        &self,
        service: &config::ServiceConfig,
        databases: &Arc<Databases>,
    ) -> Result<Vec<(String, AppBundle)>, String> {
        let config::ServiceConfig {
            app,
            instances,
            restart,
        } = service;
        let role = |instance| AppRole::Service {
            instance,
            instances: *instances,
        };
        let slot = |instance| InstanceSlot {
            instance,
            restart: *restart,
        };
        let first = self.read(app, role(1), Some(slot(1)), databases)?;
        let bundles = (1..=*instances).map(|instance| {
            let mut bundle = first.clone();
            bundle.slot = Some(slot(instance));
            if let Some(program) = bundle.program.script_mut() {
                program.app.role = role(instance);
                if *instances > 1 {
                    program.app.name = format!("{}/{instance}", app.name);
                }
            }
            (format!("\0{}/{instance}", app.name), bundle)
        });
        Ok(bundles.collect())
    }

    /// Returns the id of the application with a name, and assigns one to a new name.
    pub fn id(&self, name: &str) -> AppId {
        let mut names = self.names.lock();
        let known = names.iter().position(|known| known.name == name);
        AppId(known.unwrap_or_else(|| {
            names.push(RegisteredApp {
                name: name.to_owned(),
                kinds: Arc::default(),
            });
            names.len() - 1
        }) as u16)
    }

    /// Returns the set of hooks that an application handles. The set is shared and updated whenever its code is loaded.
    pub fn hook_kinds(&self, AppId(id): AppId) -> Arc<HookKinds> {
        let names = self.names.lock();
        let named = names.get(usize::from(id));
        named.map_or_else(Arc::default, |named| Arc::clone(&named.kinds))
    }

    /// Reads an application's code and checks that it loads.
    fn read(
        &self,
        app: &config::AppConfig,
        role: AppRole,
        slot: Option<InstanceSlot>,
        databases: &Arc<Databases>,
    ) -> Result<AppBundle, String> {
        let failed = |error: &dyn std::fmt::Display| format!("app {:?}: {error}", app.name);
        if let Some(fastcgi) = &app.fastcgi {
            return Ok(self.behind_fastcgi(app, fastcgi));
        }
        let code = Arc::new(SourceCode::read(&app.script).map_err(|error| failed(&error))?);
        let files = app.files.as_deref().map(Arc::from);
        let options = serde_json::to_value(&app.options).map_err(|error| failed(&error))?;
        let limits = match &self.load_run {
            Some(_) => ScriptLimits::of_load_script(),
            None => ScriptLimits::default(),
        };
        let app = ScriptApp {
            name: app.name.clone(),
            options,
            has_files: files.is_some(),
            databases: Arc::clone(databases),
            limits: ScriptLimits {
                memory_bytes_max: usize::try_from(app.memory_bytes_max).unwrap_or(usize::MAX),
                cpu_budget: app.cpu_budget,
                ..limits
            },
            role,
        };
        // Each worker loads the code again. This check finds the errors that would affect all workers, and reads the
        // modules into memory.
        let kinds = match role {
            AppRole::Clients => self.hook_kinds(self.id(&app.name)),
            AppRole::Service { .. } => Arc::default(),
        };
        let store = Arc::clone(&self.store);
        let mut bundle = AppBundle {
            warnings: Vec::new(),
            program: Program::Script(Box::new(veche_script::Program {
                app,
                code,
                store,
                seed: None,
                load_run: self.load_run.clone(),
            })),
            files,
            slot,
            receives_events: false,
            kinds,
        };
        let trial = HostedRuntime::start(&bundle.program, &Host::default(), WorkerId(0));
        let mut trial = trial.map_err(|error| failed(&error))?;
        bundle.warnings = warnings_of(&mut trial);
        Ok(bundle)
    }
}

impl AppRegistry {
    /// Creates an application whose script runs behind FastCGI.
    fn behind_fastcgi(&self, app: &config::AppConfig, fastcgi: &config::Fastcgi) -> AppBundle {
        let is_named = |event: &&EventName| fastcgi.events.iter().any(|name| name == event.name());
        let options = serde_json::to_string(&app.options).unwrap_or_else(|_| "{}".to_owned());
        let key = |key: &config::SecretValue| Secret(key.expose().to_owned());
        let program = veche_remote::Program {
            name: app.name.clone(),
            options,
            pool: Arc::clone(&fastcgi.pool),
            events: EventName::ALL.iter().filter(is_named).copied().collect(),
            api: fastcgi
                .api
                .as_ref()
                .map(|(url, secret)| (url.clone(), secret.as_ref().map(key))),
        };
        AppBundle {
            warnings: Vec::new(),
            program: Program::PerEvent(Arc::new(program)),
            files: None,
            slot: None,
            receives_events: false,
            kinds: self.hook_kinds(self.id(&app.name)),
        }
    }

    /// Creates an application that runs in worker processes. Each call starts a new generation of these processes.
    fn in_processes(
        &self,
        app: &config::AppConfig,
        processes: &config::Processes,
        spawner: Arc<Spawner>,
        databases: &Arc<Databases>,
    ) -> AppBundle {
        let options = serde_json::to_string(&app.options).unwrap_or_else(|_| "{}".to_owned());
        let options = veche_pool::Options {
            name: app.name.clone(),
            databases: Arc::clone(databases),
            options,
            workers: processes.workers,
            jobs_max: processes.jobs_max,
            ttl: processes.ttl,
            idle_ttl: processes.idle_ttl,
            queue: processes.queue,
            queue_timeout: processes.queue_timeout,
            start_timeout: processes.start_timeout,
            stop_timeout: processes.stop_timeout,
            event_timeout: processes.event_timeout,
            rss_bytes_max: processes.rss_bytes_max,
        };
        let program = veche_pool::Program::new(options, spawner, self.pools.of(&app.name));
        AppBundle {
            warnings: Vec::new(),
            program: Program::Workers(program),
            files: app.files.as_deref().map(Arc::from),
            slot: None,
            receives_events: false,
            kinds: self.hook_kinds(self.id(&app.name)),
        }
    }
}

/// Returns a spawner that starts processes from this process, for use without a supervisor. The processes run under
/// this process's account, unless another one is configured.
fn own_spawner(config: &Config) -> Result<Arc<Spawner>, String> {
    let programs = config.apps.iter().filter_map(|app| {
        let processes = app.processes.as_ref()?;
        let account = match config::Account::of_app(app, None) {
            Ok(account) => account,
            // Only root can change the account, so the configuration is meant for a server started
            // by root. Here the processes keep the account of this process.
            Err(config::AccountError::NotRoot { .. }) => None,
            Err(error) => return Some(Err(error.to_string())),
        };
        Some(Ok(WorkerProgram {
            app: app.name.clone(),
            command: processes.command.clone(),
            folder: processes.folder.clone(),
            account: account.map(|account| (account.uid, account.gid)),
        }))
    });
    let programs = programs.collect::<Result<_, String>>()?;
    Ok(Arc::new(Spawner::own(programs)))
}

/// Returns the warnings that a script logged while it was loaded.
fn warnings_of(runtime: &mut HostedRuntime) -> Vec<String> {
    let mut effects = Effects::default();
    runtime.take_effects(&mut effects);
    let (effects, _) = effects.drain();
    let warnings = effects.filter_map(|effect| match effect {
        Effect::Log {
            level: Level::Warn,
            text,
            ..
        } => Some(text),
        _ => None,
    });
    warnings.collect()
}

/// Maximum number of applications and service instances of a configuration. Each has a VM and a 16-bit id.
const VOLUMES_MAX: usize = 4096;
