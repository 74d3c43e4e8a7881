//! The definition of an application, before it runs.

use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use veche_calls::Databases;
use veche_store::Store;

use crate::clock::ClockMode;
use crate::host_context;
use crate::role::AppRole;
use veche_runtime::Host;

/// An application as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptApp {
    /// The name shown in logs.
    pub name: String,
    /// The options that the script sees as `veche.config`.
    pub options: serde_json::Value,
    /// Whether a folder for `veche.file` is configured.
    pub has_files: bool,
    /// The databases that scripts may connect to by name.
    pub databases: Arc<Databases>,
    /// The resource limits of the application's scripts.
    pub limits: ScriptLimits,
    /// Whether the application serves clients or is a service.
    pub role: AppRole,
}

/// Resource limits of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Maximum memory of one VM in bytes. A VM needs at least 1 MiB to start.
    pub memory_bytes_max: usize,
    /// Maximum CPU time of a run, which lasts from one wait of a coroutine to the next.
    pub cpu_budget: Duration,
    /// The maximum number of coroutines of one VM that are suspended or about to start; above it `spawn` fails.
    pub tasks_max: usize,
    /// Maximum number of outgoing WebSocket connections on one worker, including those being opened.
    pub clients_max: usize,
    /// The default limit of `veche.http` connections to one host.
    pub http_per_host: u32,
    /// The folder in which the application saves tables.
    pub snapshots: Snapshots,
}

/// The folder to which scripts save tables, and from which they load tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// The base of relative paths. With `None`, paths are relative to the script's folder.
    pub folder: Option<PathBuf>,
    /// Whether the sandbox allows writing only to this folder.
    pub is_confined: bool,
}

impl Snapshots {
    /// Returns the path of the file that a script in `folder` means by `path` when it loads a table.
    pub(crate) fn to_load(&self, folder: &Path, path: &str) -> PathBuf {
        self.folder.as_deref().unwrap_or(folder).join(path)
    }

    /// Returns the path to save a table to. The error names the configuration key that would allow saving.
    pub(crate) fn to_save(&self, folder: &Path, path: &str) -> Result<PathBuf, String> {
        let place = self.to_load(folder, path);
        if !self.is_confined {
            return Ok(place);
        }
        let Some(allowed) = &self.folder else {
            let words =
                "server.sandbox prevents saving tables: set a folder for them in server.snapshots";
            return Err(words.to_owned());
        };
        let is_name = |piece: Component<'_>| matches!(piece, Component::Normal(_));
        let beneath = place.strip_prefix(allowed);
        match beneath.is_ok_and(|path| path.components().all(is_name)) {
            true => Ok(place),
            false => Err(format!(
                "server.sandbox allows saving tables only below {} (server.snapshots), not as {}",
                allowed.display(),
                place.display()
            )),
        }
    }
}

impl ScriptLimits {
    /// Returns the limits of a load script. They allow many connections, since each simulated user has its own
    /// connections.
    #[must_use]
    pub fn of_load_script() -> Self {
        Self {
            clients_max: LOAD_CONNECTIONS_MAX,
            http_per_host: LOAD_CONNECTIONS_MAX as u32,
            ..Self::default()
        }
    }
}

/// The maximum number of connections of a load script on one thread; in practice file descriptors limit them earlier.
const LOAD_CONNECTIONS_MAX: usize = 65_536;

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            memory_bytes_max: 256 << 20,
            cpu_budget: Duration::from_millis(20),
            tasks_max: 1 << 20,
            clients_max: 10_000,
            http_per_host: 100,
            snapshots: Snapshots::default(),
        }
    }
}

/// The state that the VMs of one application on one worker share, so that connections survive a reload.
#[derive(Clone, Default)]
pub struct AppWorld(pub(crate) Rc<host_context::AppState>);

impl AppWorld {
    /// Creates the state with a shared store of dictionaries and counters. The default state has a store of its own.
    #[must_use]
    pub fn with_store(store: Arc<Store>) -> Self {
        Self(Rc::new(host_context::AppState::with_store(store)))
    }

    /// Sets the worker's facilities; later calls don't replace those already set. Without a wake function the owner of
    /// the VMs has to poll at [`Vm::deadline_ms`](crate::Vm::deadline_ms). Memory shortage is checked whenever a VM has
    /// grown by a megabyte.
    pub fn attach(&self, host: &Host) {
        if let Some(wake) = &host.wake {
            let wake = Arc::clone(wake);
            self.0.queues.set_wake(move || wake());
        }
        if let Some(is_short) = &host.is_short {
            let _ = self.0.is_short.set(Rc::clone(is_short));
        }
        let _ = self.0.refused.set(Rc::clone(&host.refused));
    }

    /// Creates a state in which each run takes a fixed part of the turn's time instead of a
    /// measured one. For tests of turns.
    #[must_use]
    pub fn counting_runs() -> Self {
        Self(Rc::new(host_context::AppState::with_pace(ClockMode::Runs)))
    }

    /// Creates a state in which turns have unlimited time. For tests that must not depend on the
    /// machine's load.
    #[must_use]
    pub fn with_virtual_time() -> Self {
        Self(Rc::new(host_context::AppState::with_pace(ClockMode::Still)))
    }

    /// Creates a state [with a store](Self::with_store) for tests. Random numbers come from `seed`, and the time is
    /// that of the turn, so equal seeds and equal calls give equal runs.
    #[must_use]
    pub fn seeded(store: Arc<Store>, seed: u64) -> Self {
        Self(Rc::new(host_context::AppState::seeded(store, seed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_saved_where_the_sandbox_lets_them() {
        let snapshots = |folder: Option<&str>, is_confined| Snapshots {
            folder: folder.map(PathBuf::from),
            is_confined,
        };
        let script = Path::new("/apps");
        for (folder, is_confined, path, saved) in [
            (None, false, "a", Some("/apps/a")),
            (None, false, "/b/a", Some("/b/a")),
            (None, true, "a", None),
            (None, true, "/b/a", None),
            (Some("/s"), false, "a", Some("/s/a")),
            (Some("/s"), false, "../a", Some("/s/../a")),
            (Some("/s"), true, "a", Some("/s/a")),
            (Some("/s"), true, "/s/b/a", Some("/s/b/a")),
            (Some("/s"), true, "../a", None),
            (Some("/s"), true, "b/../../a", None),
            (Some("/s"), true, "/apps/a", None),
            (Some("/s"), true, "/sa", None),
            (Some("../s"), true, "a", Some("../s/a")),
        ] {
            let snapshots = snapshots(folder, is_confined);
            let found = snapshots.to_save(script, path);
            assert_eq!(
                found.as_deref().ok(),
                saved.map(Path::new),
                "{folder:?} {is_confined} {path}"
            );
            if let Err(words) = found {
                assert!(words.contains("server.snapshots"), "{words}");
            }
        }
        assert_eq!(
            snapshots(Some("/s"), true).to_load(script, "/apps/a"),
            Path::new("/apps/a")
        );
    }
}
