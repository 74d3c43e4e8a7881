//! `veche dev`: the server for development, which runs the last saved state.
//!
//! It is `serve` with a watcher of the configuration and of the folders of scripts and static
//! files: when a file is saved, the supervisor gets the signal for a reload. `crate::dev`
//! implements how pages show the result of a reload.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use notify::{EventKind, RecursiveMode, Watcher as _};
use rustix::process::{Signal, getpid, kill_process};

use veche_config::{Config, RouteHandler, StaticRoot};
use veche_terminal::exit::{CommandFailure, Exit};

/// Files saved within this time cause one reload.
const TOGETHER: Duration = Duration::from_millis(60);

/// A file watcher, active until it is dropped.
#[derive(Debug)]
pub(super) struct FileWatch {
    #[expect(dead_code, reason = "watches until dropped")]
    watcher: notify::RecommendedWatcher,
}

/// Starts watching the files of a configuration.
pub(super) fn watch(config: &Config) -> Result<FileWatch, CommandFailure> {
    // One slot is sufficient: if it is full, a reload is already due, and it will also load the
    // file saved last.
    let (saved, saves) = sync_channel(1);
    let failed = |error: notify::Error| {
        CommandFailure::new(
            Exit::Failed,
            format!("can't watch files for changes: {error}"),
        )
    };
    let sources = Sources::of(config);
    let mut watcher = notify::recommended_watcher(move |event| on_event(event, &sources, &saved))
        .map_err(failed)?;
    for folder in folders(config) {
        // Folders are watched, not files, since editors replace a file with a new one.
        watcher
            .watch(&absolute(&folder), RecursiveMode::Recursive)
            .map_err(failed)?;
    }
    thread::spawn(move || {
        while saves.recv().is_ok() {
            while saves.recv_timeout(TOGETHER) != Err(RecvTimeoutError::Timeout) {}
            // The signal can't fail, since it goes to this process.
            let _ = kill_process(getpid(), Signal::HUP);
        }
    });
    Ok(FileWatch { watcher })
}

fn on_event(event: notify::Result<notify::Event>, sources: &Sources, saved: &SyncSender<()>) {
    let Ok(event) = event else { return };
    let is_change = matches!(
        event.kind,
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_)
    );
    if is_change && event.paths.iter().any(|path| sources.contains(path)) {
        // If the channel is full, a reload is already due, so the error is ignored.
        let _ = saved.try_send(());
    }
}

/// The files whose changes cause a reload. Changes of logs, databases and temporary files of editors cause none.
#[derive(Debug, Default)]
struct Sources {
    /// Folders of static files.
    pages: BTreeSet<PathBuf>,
    /// Files and folders in the `watch` setting of applications with processes.
    watched: BTreeSet<PathBuf>,
    /// Folders of applications with processes and without a `watch` setting.
    programs: BTreeSet<PathBuf>,
}

impl Sources {
    fn of(config: &Config) -> Self {
        let mut sources = Self {
            pages: static_folders(config),
            ..Self::default()
        };
        for processes in config.apps.iter().filter_map(|app| app.processes.as_ref()) {
            match processes.watch.is_empty() {
                true => drop(sources.programs.insert(absolute(&processes.folder))),
                false => sources
                    .watched
                    .extend(processes.watch.iter().map(|path| absolute(path))),
            }
        }
        sources
    }

    fn contains(&self, path: &Path) -> bool {
        let is_in =
            |folders: &BTreeSet<PathBuf>| folders.iter().any(|folder| path.starts_with(folder));
        let extension = path.extension().and_then(|extension| extension.to_str());
        is_in(&self.watched)
            || match extension {
                Some("lua" | "php" | "py" | "rb" | "toml") => true,
                Some(extension) => {
                    PAGES.contains(&extension) && is_in(&self.pages)
                        || PROGRAMS.contains(&extension) && is_in(&self.programs)
                }
                None => false,
            }
    }
}

/// Returns a path in the form in which the file watcher reports paths.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Extensions of files that may belong to programs as well as to pages.
const PROGRAMS: &[&str] = &["js", "mjs", "ts"];

/// Extensions of files that belong to pages.
const PAGES: &[&str] = &[
    "html", "htm", "css", "js", "mjs", "json", "svg", "png", "jpg", "jpeg", "gif", "webp", "avif",
    "ico", "woff2", "wasm", "txt", "md",
];

/// Returns the folders of static files of routes and apps.
fn static_folders(config: &Config) -> BTreeSet<PathBuf> {
    let handlers = config.routes.iter().map(|route| &route.handler);
    let folders = handlers.filter_map(|handler| match handler {
        RouteHandler::Static {
            root: StaticRoot::Folder(folder),
            ..
        } => Some(absolute(folder)),
        _ => None,
    });
    let of_apps = config.apps.iter().filter_map(|app| app.files.as_ref());
    folders
        .chain(of_apps.map(|folder| absolute(folder)))
        .collect()
}

fn folders(config: &Config) -> BTreeSet<PathBuf> {
    let services = config.services.iter().map(|service| &service.app);
    let apps = config.apps.iter().chain(services);
    let scripts = apps.filter_map(|app| app.own_script());
    let folder = |file: &Path| match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let sources = scripts.chain([config.file.as_path()]).map(folder);
    let processes = config.apps.iter().filter_map(|app| app.processes.as_ref());
    let watched = processes.flat_map(|processes| &processes.watch);
    let watched = watched.map(|path| match path.is_dir() {
        true => path.clone(),
        false => folder(path),
    });
    sources
        .chain(watched)
        .chain(static_folders(config))
        .collect()
}
