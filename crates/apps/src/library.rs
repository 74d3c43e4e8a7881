//! The applications of the process: which there are, by numbers that stay over a reload, and their code.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use veche_calls::Secret;
use veche_frontends::AppId;
use veche_frontends::hooks::Kinds;
use veche_outbound::Outbound;
use veche_runtime::wire::EventName;
use veche_runtime::{Effect, Effects, Host, Level, Runtime};
use veche_script::{App, Code, Limits, LoadRun, Role, Snapshots};
use veche_store::Store;

use veche_config::{self as config, Config, Restart};

use super::hosted::{Hosted, Program};
use super::service::Life;

/// One application that can be run.
#[derive(Clone, Debug)]
pub struct Volume {
    /// What runs.
    pub(super) program: Program,
    /// What lies below may be answered with.
    pub files: Option<Arc<Path>>,
    /// Of a service's instance.
    pub seat: Option<Seat>,
    /// It is told what happens to channels and users.
    pub hears_events: bool,
    /// What it decides on for Centrifuge clients, for all that ask it.
    pub kinds: Arc<Kinds>,
    /// What was warned of when its code was tried, such as functions that are never called.
    warnings: Vec<String>,
}

/// The names of the applications on a shelf with what each was warned of.
pub fn warnings(shelf: &Shelf) -> Vec<(String, String)> {
    let volumes = shelf.iter().flatten();
    let all = volumes.flat_map(|volume| {
        let named = |text: &String| (volume.name().to_owned(), text.clone());
        volume.warnings.iter().map(named)
    });
    all.collect()
}

/// The place of a service's instance, and when it begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// From 1.
    instance: u32,
    pub restart: Restart,
}

impl Seat {
    /// The one of so many workers that it runs on.
    pub fn worker(&self, workers: u16) -> u16 {
        ((self.instance - 1) % u32::from(workers.max(1))) as u16
    }
}

impl Volume {
    /// Returns the application's name.
    pub(super) fn name(&self) -> &str {
        self.program.name()
    }

    /// Formats an error that prevents the application from running.
    pub(super) fn failed(&self, error: &dyn std::fmt::Display) -> String {
        format!("app {:?}: {error}", self.name())
    }

    /// Returns the life of a service's instance that is to begin.
    pub(super) fn life(&self) -> Option<Life> {
        self.seat.map(|seat| Life::new(seat.restart))
    }

    /// Whether the other one would run just the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.program.is_same(&other.program)
            && self.files == other.files
            && self.seat == other.seat
            && self.hears_events == other.hears_events
    }
}

/// All applications of a configuration, by id; those that are no more in it are `None`.
pub type Shelf = Arc<Vec<Option<Arc<Volume>>>>;

/// The same code with a store of its own and a seed, and with services of these names; `None`: with all of them. For one run
/// of a test.
pub fn seeded(shelf: &Shelf, seed: u64, services: Option<&[String]>) -> Result<Shelf, String> {
    let is_of = |volume: &Volume, name: &str| {
        let rest = volume.name().strip_prefix(name);
        volume.seat.is_some_and(|seat| {
            rest.is_some_and(|rest| rest.is_empty() || *rest == format!("/{}", seat.instance))
        })
    };
    for name in services.unwrap_or_default() {
        let mut volumes = shelf.iter().flatten();
        if !volumes.any(|volume| is_of(volume, name)) {
            return Err(format!("the configuration has no service {name:?}"));
        }
    }
    let runs = |volume: &Volume| match services {
        Some(names) if volume.seat.is_some() => names.iter().any(|name| is_of(volume, name)),
        _ => true,
    };
    let store = Arc::new(Store::default());
    let volumes = shelf.iter().map(|volume| {
        volume.as_ref().filter(|volume| runs(volume)).map(|volume| {
            let mut volume = Volume::clone(volume);
            volume.program.seed(&store, seed);
            Arc::new(volume)
        })
    });
    Ok(Arc::new(volumes.collect()))
}

/// An application, whether it is in the configuration or not.
#[derive(Debug)]
struct Named {
    name: String,
    /// What it decides on for Centrifuge clients.
    kinds: Arc<Kinds>,
}

/// Gives applications their ids: open sessions keep theirs over a reload, so a name keeps its number for good.
#[derive(Debug, Default)]
pub struct Library {
    names: Mutex<Vec<Named>>,
    /// What all workers and applications share.
    pub store: Arc<Store>,
    /// What applications ask of the world goes through here.
    pub outbound: Outbound,
    /// Services play the users of this run.
    load_run: Option<Arc<dyn LoadRun>>,
}

impl Library {
    /// A library whose services play the users of a run under load, if there is one.
    pub fn playing(load_run: Option<Arc<dyn LoadRun>>) -> Self {
        Self {
            load_run,
            ..Self::default()
        }
    }

    /// Reads the code of all applications and tries whether it loads, before anybody is to run it.
    pub fn shelve(&self, config: &Config) -> Result<Shelf, String> {
        let instances = config.services.iter().map(|service| service.instances);
        if config.apps.len() + instances.sum::<u32>() as usize > VOLUMES_MAX {
            return Err(format!(
                "more than {VOLUMES_MAX} apps and instances of services"
            ));
        }
        let mut shelf = Vec::new();
        let snapshots = Snapshots {
            folder: config.server.snapshots.clone(),
            is_confined: config.server.sandbox,
        };
        let mut put = |AppId(id), mut volume: Volume| {
            volume.program.set_snapshots(&snapshots);
            if shelf.len() <= usize::from(id) {
                shelf.resize_with(usize::from(id) + 1, || None);
            }
            shelf[usize::from(id)] = Some(Arc::new(volume));
        };
        for (place, app) in config.apps.iter().enumerate() {
            let mut volume = self.read(app, Role::Clients, None)?;
            volume.hears_events = config.listener == Some(place);
            put(self.id(&app.name), volume);
        }
        for service in &config.services {
            for (name, volume) in self.instances(service)? {
                put(self.id(&name), volume);
            }
        }
        Ok(Arc::new(shelf))
    }

    /// The instances of a service, and what they go by here: a name that no app can have.
    fn instances(&self, service: &config::Service) -> Result<Vec<(String, Volume)>, String> {
        let config::Service {
            app,
            instances,
            restart,
        } = service;
        let role = |instance| Role::Service {
            instance,
            instances: *instances,
        };
        let seat = |instance| Seat {
            instance,
            restart: *restart,
        };
        let first = self.read(app, role(1), Some(seat(1)))?;
        let volumes = (1..=*instances).map(|instance| {
            let mut volume = first.clone();
            volume.seat = Some(seat(instance));
            if let Some(program) = volume.program.script_mut() {
                program.app.role = role(instance);
                if *instances > 1 {
                    program.app.name = format!("{}/{instance}", app.name);
                }
            }
            (format!("\0{}/{instance}", app.name), volume)
        });
        Ok(volumes.collect())
    }

    /// The number of an application.
    pub fn id(&self, name: &str) -> AppId {
        let mut names = self.names.lock();
        let known = names.iter().position(|known| known.name == name);
        AppId(known.unwrap_or_else(|| {
            names.push(Named {
                name: name.to_owned(),
                kinds: Arc::default(),
            });
            names.len() - 1
        }) as u16)
    }

    /// What it decides on: whoever loads its code says so there.
    pub fn kinds(&self, AppId(id): AppId) -> Arc<Kinds> {
        let names = self.names.lock();
        let named = names.get(usize::from(id));
        named.map_or_else(Arc::default, |named| Arc::clone(&named.kinds))
    }

    /// Reads an application's code, and tries it.
    fn read(&self, app: &config::App, role: Role, seat: Option<Seat>) -> Result<Volume, String> {
        let failed = |error: &dyn std::fmt::Display| format!("app {:?}: {error}", app.name);
        if let Some(fastcgi) = &app.fastcgi {
            return Ok(self.behind_fastcgi(app, fastcgi));
        }
        if let Some(processes) = &app.processes {
            return Ok(self.in_processes(app, processes));
        }
        let code = Arc::new(Code::read(&app.script).map_err(|error| failed(&error))?);
        let files = app.files.as_deref().map(Arc::from);
        let options = serde_json::to_value(&app.options).map_err(|error| failed(&error))?;
        let limits = match &self.load_run {
            Some(_) => Limits::of_load_script(),
            None => Limits::default(),
        };
        let app = App {
            name: app.name.clone(),
            options,
            has_files: files.is_some(),
            limits: Limits {
                memory_bytes_max: usize::try_from(app.memory_bytes_max).unwrap_or(usize::MAX),
                cpu_budget: app.cpu_budget,
                ..limits
            },
            role,
        };
        // Each worker loads it again; what all of them would stumble over is found here, and the modules are read.
        let kinds = match role {
            Role::Clients => self.kinds(self.id(&app.name)),
            Role::Service { .. } => Arc::default(),
        };
        let store = Arc::clone(&self.store);
        let mut volume = Volume {
            warnings: Vec::new(),
            program: Program::Script(Box::new(veche_script::Program {
                app,
                code,
                store,
                seed: None,
                load_run: self.load_run.clone(),
            })),
            files,
            seat,
            hears_events: false,
            kinds,
        };
        let trial = Hosted::start(&volume.program, &Host::default(), 0);
        let mut trial = trial.map_err(|error| failed(&error))?;
        volume.warnings = warnings_of(&mut trial);
        Ok(volume)
    }
}

impl Library {
    /// An application whose script another server runs.
    fn behind_fastcgi(&self, app: &config::App, fastcgi: &config::Fastcgi) -> Volume {
        let is_named = |event: &&EventName| fastcgi.events.iter().any(|name| name == event.name());
        let options = serde_json::to_string(&app.options).unwrap_or_else(|_| "{}".to_owned());
        let key = |key: &config::Secret| Secret(key.expose().to_owned());
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
        Volume {
            warnings: Vec::new(),
            program: Program::PerEvent(Arc::new(program)),
            files: None,
            seat: None,
            hears_events: false,
            kinds: self.kinds(self.id(&app.name)),
        }
    }

    /// An application that runs in processes of its own. Each time it is read it is another generation of them.
    fn in_processes(&self, app: &config::App, processes: &config::Processes) -> Volume {
        let options = serde_json::to_string(&app.options).unwrap_or_else(|_| "{}".to_owned());
        let program = veche_pool::Program::new(veche_pool::Options {
            name: app.name.clone(),
            command: processes.command.clone(),
            folder: processes.folder.clone(),
            options,
            workers: processes.workers,
            jobs_max: processes.jobs_max,
            ttl: processes.ttl,
            queue: processes.queue,
            queue_timeout: processes.queue_timeout,
            start_timeout: processes.start_timeout,
            stop_timeout: processes.stop_timeout,
            event_timeout: processes.event_timeout,
            rss_bytes_max: processes.rss_bytes_max,
        });
        Volume {
            warnings: Vec::new(),
            program: Program::Workers(program),
            files: app.files.as_deref().map(Arc::from),
            seat: None,
            hears_events: false,
            kinds: self.kinds(self.id(&app.name)),
        }
    }
}

/// What a script was warned of while it was loaded.
fn warnings_of(runtime: &mut Hosted) -> Vec<String> {
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

/// Applications and instances of services of one configuration: each has a VM, and a number of 16 bits.
const VOLUMES_MAX: usize = 4096;
