//! What an application is, before it runs.

use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use veche_store::Store;

use crate::clock::ClockMode;
use crate::host_context;
use crate::role::AppRole;
use veche_runtime::Host;

/// An application as the configuration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptApp {
    /// For logs.
    pub name: String,
    /// Handed to the script as `veche.config`.
    pub options: serde_json::Value,
    /// There is a folder for what it answers with `veche.file`.
    pub has_files: bool,
    /// What it may use.
    pub limits: ScriptLimits,
    /// What it is there for.
    pub role: AppRole,
}

/// What an application may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Memory of one VM in bytes; at least 1 MiB is needed to start.
    pub memory_bytes_max: usize,
    /// CPU time between two waits.
    pub cpu_budget: Duration,
    /// Coroutines of one VM that wait or are about to begin; beyond it `spawn` fails.
    pub tasks_max: usize,
    /// Connections to other WebSocket servers on one worker, those included that are being opened.
    pub clients_max: usize,
    /// Connections of `veche.http` to one host, where a call does not say otherwise.
    pub http_per_host: u32,
    /// Where it saves tables.
    pub snapshots: Snapshots,
}

/// Where tables are saved, and loaded from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// Relative paths begin there; `None`: in the folder of the script.
    pub folder: Option<PathBuf>,
    /// A sandbox lets nothing be written elsewhere.
    pub is_confined: bool,
}

impl Snapshots {
    /// Where a table is loaded from that a script in `folder` names by `path`.
    pub(crate) fn to_load(&self, folder: &Path, path: &str) -> PathBuf {
        self.folder.as_deref().unwrap_or(folder).join(path)
    }

    /// Where it is saved; an error names the directive that lets it be.
    pub(crate) fn to_save(&self, folder: &Path, path: &str) -> Result<PathBuf, String> {
        let place = self.to_load(folder, path);
        if !self.is_confined {
            return Ok(place);
        }
        let Some(allowed) = &self.folder else {
            let words =
                "server.sandbox lets no table be saved: name a folder for them in server.snapshots";
            return Err(words.to_owned());
        };
        let is_name = |piece: Component<'_>| matches!(piece, Component::Normal(_));
        let beneath = place.strip_prefix(allowed);
        match beneath.is_ok_and(|path| path.components().all(is_name)) {
            true => Ok(place),
            false => Err(format!(
                "server.sandbox lets tables be saved below {} (server.snapshots), not as {}",
                allowed.display(),
                place.display()
            )),
        }
    }
}

impl ScriptLimits {
    /// Those of a script that plays users under load: each of them has connections of its own.
    #[must_use]
    pub fn of_load_script() -> Self {
        Self {
            clients_max: LOAD_CONNECTIONS_MAX,
            http_per_host: LOAD_CONNECTIONS_MAX as u32,
            ..Self::default()
        }
    }
}

/// Connections of a load script on one thread: those that there are descriptors for.
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

/// What the VMs of one application on one worker share, so that connections outlive a reload.
#[derive(Clone, Default)]
pub struct AppWorld(pub(crate) Rc<host_context::AppState>);

impl AppWorld {
    /// With the dictionaries and counters of the process; by default a world has some of its own.
    #[must_use]
    pub fn with_store(store: Arc<Store>) -> Self {
        Self(Rc::new(host_context::AppState::with_store(store)))
    }

    /// Takes what the worker has to offer; of each the first counts. Without a wake the owner of the VMs has to poll by
    /// itself, at [`Vm::deadline_ms`](crate::Vm::deadline_ms); whether memory is short is asked each time that a VM has grown
    /// by a megabyte.
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

    /// As the default one, for tests of turns: instead of the clock each run of a coroutine takes up a fixed part of its
    /// turn's time.
    #[must_use]
    pub fn counting_runs() -> Self {
        Self(Rc::new(host_context::AppState::with_pace(ClockMode::Runs)))
    }

    /// As the default one, for tests whose turns have all the time that they need, however busy the machine is.
    #[must_use]
    pub fn with_virtual_time() -> Self {
        Self(Rc::new(host_context::AppState::with_pace(ClockMode::Still)))
    }

    /// As [`with_store`](Self::with_store), for tests: whatever is chance or the system's clock elsewhere is the
    /// seed's and the turn's here, so equal seeds and equal calls make equal runs.
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
