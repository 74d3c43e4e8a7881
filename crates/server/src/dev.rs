//! Notices of `veche dev` for pages: script errors, warnings of loaded scripts, rejected reloads, and changed files.
//!
//! Worker 0 publishes each notice repeatedly for a few seconds, so that a page that has just loaded receives the
//! notices about its own loading. Warnings and the notice of a rejected reload are published until the next successful
//! reload. `web/dev/dev.js`, which `files` adds to served HTML, displays each notice once. None of this is active under
//! `veche serve`.

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

/// The channel on which pages receive notices.
pub(crate) const CHANNEL: &str = "veche-dev";
/// The path of the pages' WebSocket.
pub(crate) const SOCKET_PATH: &str = "/_veche/dev";
/// The path of the files in `web/dev`.
pub(crate) const PAGES_PATH: &str = "/_veche/*";
/// The name of the static root with the files in `web/dev`.
pub(crate) const PAGES_ROOT: &str = "builtin:dev";
/// The script tag that is added to served HTML.
pub(crate) const TAG: &[u8] = b"\n<script type=\"module\" src=\"/_veche/dev.js\"></script>\n";

/// The time for which a notice is published, so that a loading page receives it.
const KEPT: Duration = Duration::from_secs(3);
/// The maximum number of recent notices. Beyond it, a new notice replaces the oldest one, since a flood of errors needs
/// no more.
const NOTICES_MAX: usize = 32;
/// The maximum length of a notice's text in bytes. Longer texts are truncated.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// The maximum number of files below static roots that are checked for changes.
const FILES_MAX: usize = 10_000;

/// The notices of the process.
pub(crate) struct DevMode {
    /// The process's id, which distinguishes its notices from those of other processes.
    run: String,
    board: Mutex<DevNotices>,
}

#[derive(Default)]
struct DevNotices {
    last: u64,
    recent: VecDeque<RecentNotice>,
    /// The notice of the last rejected reload, until a reload succeeds.
    refused: Option<String>,
    /// Notices with warnings about the running code, until the next successful reload.
    warnings: Vec<String>,
    /// The hash of the served files at the last check: see [`fingerprint`].
    fingerprint: u64,
}

struct RecentNotice {
    at: Instant,
    notice: String,
    is_error: bool,
    is_published: bool,
}

impl DevMode {
    /// Creates an empty list of notices. `run` has to be unique to the process.
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

    /// Replaces the warnings by those of the applications that were just loaded.
    pub(crate) fn apps_loaded(&self, warnings: &[(String, String)]) {
        let mut board = self.board.lock();
        let notices = warnings
            .iter()
            .take(NOTICES_MAX)
            .map(|(app, text)| self.notice(&mut board, "warning", app, text))
            .collect();
        board.warnings = notices;
    }

    /// Reports a failed script.
    pub(crate) fn failed(&self, app: &str, text: &str) {
        self.add_notice(&mut self.board.lock(), "error", app, text);
    }

    /// Reports a rejected reload; the old code continues.
    pub(crate) fn refused(&self, why: &str) {
        // A developer needs the reason, not the prefix about server processes.
        let why = why.strip_prefix(PROCESS_REFUSED).unwrap_or(why);
        let mut board = self.board.lock();
        board.refused = Some(self.notice(&mut board, "refused", "The last saved change", why));
    }

    /// Reports a completed reload.
    pub(crate) fn reloaded(&self, config: &Config) {
        let fingerprint = fingerprint(config);
        let mut board = self.board.lock();
        board.refused = None;
        // A page that receives the notice `reloaded` removes the errors that it shows. Saving one file may cause two
        // reloads, the second just after an error. So errors that were not published yet are kept, and published after
        // this notice.
        let unseen: Vec<RecentNotice> = board
            .recent
            .drain(..)
            .filter(|recent| recent.is_error && !recent.is_published)
            .collect();
        self.add_notice(&mut board, "reloaded", "", "");
        board.recent.extend(unseen);
        if std::mem::replace(&mut board.fingerprint, fingerprint) != fingerprint {
            self.add_notice(&mut board, "files", "", "");
        }
    }

    fn add_notice(&self, board: &mut DevNotices, kind: &str, title: &str, text: &str) {
        let notice = self.notice(board, kind, title, text);
        if board.recent.len() == NOTICES_MAX {
            board.recent.pop_front();
        }
        board.recent.push_back(RecentNotice {
            at: now(),
            notice,
            is_error: kind == "error",
            is_published: false,
        });
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

    /// Returns the notices to be published now, as JSON texts: recent notices, the last rejected reload, and warnings.
    fn due(&self) -> Vec<String> {
        let mut board = self.board.lock();
        let now = now();
        board.recent.retain(|recent| now - recent.at < KEPT);
        board
            .recent
            .iter_mut()
            .for_each(|recent| recent.is_published = true);
        let recent = board.recent.iter().map(|recent| &recent.notice);
        let standing = board.refused.iter().chain(&board.warnings);
        recent.chain(standing).cloned().collect()
    }
}

/// Returns whether a file is an HTML page.
pub(crate) fn is_page(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| extension == "html" || extension == "htm")
}

/// Returns a hash of names, sizes and times of the files below the static routes' folders.
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

/// Adds the files of a folder and its subfolders to the hash, at most `left` of them. Unreadable files count as
/// missing.
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
