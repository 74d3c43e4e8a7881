//! What `veche dev` tells the pages: errors of scripts, what the scripts that run were warned of, reloads that were refused, files that have changed.
//!
//! Notices lie here for a few seconds, and worker 0 publishes them again and again meanwhile: a page that has just been
//! loaded hears of what its loading has caused. The script that shows them, each once, is `web/dev/dev.js`, which
//! `files` adds to the HTML that is served. It does not know who reads, and nothing of it is there under `veche serve`.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use veche_apps::Notices;
use veche_clock::now;
use veche_config::{Config, RouteHandler, StaticRoot};
use veche_supervisor::message::PROCESS_REFUSED;

/// The channel that pages listen on.
pub(crate) const CHANNEL: &str = "veche-dev";
/// Where they do.
pub(crate) const SOCKET_PATH: &str = "/_veche/dev";
/// The path of what is in `web/dev`.
pub(crate) const PAGES_PATH: &str = "/_veche/*";
/// That folder as a root of static files.
pub(crate) const PAGES_ROOT: &str = "builtin:dev";
/// What is added to HTML.
pub(crate) const TAG: &[u8] = b"\n<script type=\"module\" src=\"/_veche/dev.js\"></script>\n";

/// A page that is loading has so long to listen.
const KEPT: Duration = Duration::from_secs(3);
/// Notices that are kept at most: a flood of errors is one story.
const NOTICES_MAX: usize = 32;
/// Longest text of one.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Files below static roots that are looked at for changes.
const FILES_MAX: usize = 10_000;

/// See the module's text.
pub(crate) struct DevMode {
    /// Of this process: notices of another one are others.
    run: String,
    board: Mutex<DevNotices>,
}

#[derive(Default)]
struct DevNotices {
    last: u64,
    recent: VecDeque<(Instant, String)>,
    /// The last reload was refused.
    refused: Option<String>,
    /// What should be looked at in the code that runs; until the next reload.
    warnings: Vec<String>,
    /// Of the files that are served.
    fingerprint: u64,
}

impl DevMode {
    /// Nothing has happened yet. `run` is unlike that of other processes.
    pub(crate) fn new(run: String, config: &Config) -> Self {
        let board = DevNotices {
            fingerprint: fingerprint(config),
            ..DevNotices::default()
        };
        Self {
            run,
            board: Mutex::new(board),
        }
    }

    /// These applications run from now on, each with what it was warned of.
    pub(crate) fn apps_loaded(&self, warnings: &[(String, String)]) {
        let mut board = self.board.lock();
        let notices = warnings
            .iter()
            .take(NOTICES_MAX)
            .map(|(app, text)| self.notice(&mut board, "warning", app, text))
            .collect();
        board.warnings = notices;
    }

    /// A script has failed.
    pub(crate) fn failed(&self, app: &str, text: &str) {
        self.add_notice(&mut self.board.lock(), "error", app, text);
    }

    /// A reload was refused; the old code goes on.
    pub(crate) fn refused(&self, why: &str) {
        // Developers know what they have saved, and of no processes.
        let why = why.strip_prefix(PROCESS_REFUSED).unwrap_or(why);
        let mut board = self.board.lock();
        board.refused = Some(self.notice(&mut board, "refused", "What was saved last", why));
    }

    /// A reload is done.
    pub(crate) fn reloaded(&self, config: &Config) {
        let fingerprint = fingerprint(config);
        let mut board = self.board.lock();
        board.refused = None;
        board.recent.clear();
        self.add_notice(&mut board, "reloaded", "", "");
        if std::mem::replace(&mut board.fingerprint, fingerprint) != fingerprint {
            self.add_notice(&mut board, "files", "", "");
        }
    }

    fn add_notice(&self, board: &mut DevNotices, kind: &str, title: &str, text: &str) {
        let notice = self.notice(board, kind, title, text);
        if board.recent.len() == NOTICES_MAX {
            board.recent.pop_front();
        }
        board.recent.push_back((now(), notice));
    }

    fn notice(&self, board: &mut DevNotices, kind: &str, title: &str, text: &str) -> String {
        board.last += 1;
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let id = format!("{}-{}", self.run, board.last);
        json!({"id": id, "kind": kind, "title": title, "text": text}).to_string()
    }
}

impl Notices for DevMode {
    fn channel(&self) -> &'static str {
        CHANNEL
    }

    /// Each notice is JSON.
    fn due(&self) -> Vec<String> {
        let mut board = self.board.lock();
        let now = now();
        board.recent.retain(|(at, _)| now - *at < KEPT);
        let recent = board.recent.iter().map(|(_, notice)| notice);
        let standing = board.refused.iter().chain(&board.warnings);
        recent.chain(standing).cloned().collect()
    }
}

/// Whether a file is a page.
pub(crate) fn is_page(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| extension == "html" || extension == "htm")
}

/// Names, sizes and times of the files below the static routes' folders.
fn fingerprint(config: &Config) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut left = FILES_MAX;
    for route in &config.routes {
        if let RouteHandler::Static {
            root: StaticRoot::Folder(folder),
            ..
        } = &route.handler
        {
            visit(folder, &mut left, &mut hasher);
        }
    }
    hasher.finish()
}

/// What can't be read counts as what is not there.
fn visit(folder: &Path, left: &mut usize, hasher: &mut DefaultHasher) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Ok(about) = fs::symlink_metadata(&path) else {
            continue;
        };
        if *left == 0 {
            return;
        }
        *left -= 1;
        if about.is_dir() {
            visit(&path, left, hasher);
        } else {
            path.hash(hasher);
            about.len().hash(hasher);
            about.modified().ok().hash(hasher);
        }
    }
}
