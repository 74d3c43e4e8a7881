//! Decisions about clients, filtered by user and channel for `veche log`, and logged at level `debug`.
//!
//! A watcher is a running `veche log`. The descriptor of its socket arrives over the control socket and is passed to
//! the server process, where a separate thread writes to it, so that no worker waits for a reader. Lines beyond
//! [`LINES_MAX`] are dropped, and the next line gives the number of dropped lines. A watcher is removed when its reader
//! has disconnected. Without watchers a decision costs one load of a flag.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::net::RecvFlags;
use tracing::{debug, warn};
use veche_config::unix_now_ms;
use veche_frontends::AuthDecision;
use veche_supervisor::message::DecisionFilter;

/// The maximum number of watchers. It is small, since each watcher has a thread.
const WATCHERS_MAX: usize = 4;
/// The maximum number of lines queued for one watcher.
const LINES_MAX: usize = 4096;
/// The interval at which an idle thread checks that its reader is connected.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The log target of lines about decisions.
const TARGET: &str = "veche::decision";

/// Returns whether a watcher's filter matches a decision.
fn wants(filter: &DecisionFilter, decision: &AuthDecision<'_>) -> bool {
    let is =
        |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
    is(&filter.user, decision.user) && is(&filter.channel, decision.channel)
}

/// Passes authorization decisions to the watchers of this process and to the log.
#[derive(Default)]
pub(crate) struct DecisionLog {
    is_watched: AtomicBool,
    watchers: Mutex<Vec<DecisionWatcher>>,
}

struct DecisionWatcher {
    wanted: DecisionFilter,
    lines: SyncSender<String>,
    dropped: u64,
}

impl DecisionLog {
    /// Returns whether decisions have a recipient: a watcher, or the log at level `debug`.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed) || tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
    }

    /// Passes a decision to the watchers with a matching filter, and to the log.
    pub(crate) fn report(&self, decision: &AuthDecision<'_>) {
        let AuthDecision {
            what,
            user,
            client,
            channel,
            code,
            reason,
        } = *decision;
        debug!(target: TARGET, user, client, channel, code, reason, "{what}");
        if !self.is_watched.load(Relaxed) {
            return;
        }
        let mut watchers = self.watchers.lock();
        watchers.retain_mut(|watcher| !wants(&watcher.wanted, decision) || watcher.offer(decision));
        self.is_watched.store(!watchers.is_empty(), Relaxed);
    }

    /// Adds a watcher, without blocking. If there are `WATCHERS_MAX` watchers already, closes the descriptor.
    pub(crate) fn add_watcher(&self, wanted: DecisionFilter, to: OwnedFd) {
        let (lines, waiting) = sync_channel(LINES_MAX);
        let mut watchers = self.watchers.lock();
        watchers.retain(|watcher| !watcher.is_gone());
        if watchers.len() >= WATCHERS_MAX {
            return warn!(
                "the limit of {WATCHERS_MAX} readers of decisions about clients is reached"
            );
        }
        let spawned = thread::Builder::new()
            .name("decisions".to_owned())
            .spawn(move || write(&waiting, to));
        if let Err(error) = spawned {
            return warn!(%error, "can't start a thread for a reader of decisions about clients");
        }
        watchers.push(DecisionWatcher {
            wanted,
            lines,
            dropped: 0,
        });
        self.is_watched.store(true, Relaxed);
    }
}

impl DecisionWatcher {
    /// Queues a line without blocking; returns `false` once the reader has disconnected.
    fn offer(&mut self, decision: &AuthDecision<'_>) -> bool {
        let mut line = line(decision);
        if self.dropped > 0 {
            line = format!("{} lines were dropped\n{line}", self.dropped);
        }
        match self.lines.try_send(line) {
            Ok(()) => self.dropped = 0,
            Err(TrySendError::Full(_)) => self.dropped += 1,
            Err(TrySendError::Disconnected(_)) => return false,
        }
        true
    }

    /// Returns whether the watcher's thread has ended.
    fn is_gone(&self) -> bool {
        matches!(
            self.lines.try_send(String::new()),
            Err(TrySendError::Disconnected(_))
        )
    }
}

/// Formats a line: `2026-11-27T18:30:02.123Z subscribe user="bob" client="…" channel="news" code=103 reason="permission
/// denied"`
fn line(decision: &AuthDecision<'_>) -> String {
    let now = UNIX_EPOCH + Duration::from_millis(unix_now_ms());
    let now = humantime::format_rfc3339_millis(now);
    let mut line = format!("{now} {}", decision.what);
    for (name, text) in [
        ("user", decision.user),
        ("client", decision.client),
        ("channel", decision.channel),
    ] {
        if !text.is_empty() {
            // The text is quoted, so that data from clients can't forge a line. Writing to a string can't fail.
            let _ = write!(line, " {name}={text:?}");
        }
    }
    let _ = write!(line, " code={}", decision.code);
    if !decision.reason.is_empty() {
        let _ = write!(line, " reason={:?}", decision.reason);
    }
    line.push('\n');
    line
}

/// Writes lines to a reader until it disconnects.
fn write(lines: &Receiver<String>, to: OwnedFd) {
    let mut to = File::from(to);
    loop {
        let line = match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) if is_open(&to) => continue,
            Err(_) => return,
        };
        if to.write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

/// Returns whether the other end of a socket is open. The other end never sends data, so a readable socket means that
/// it was closed.
fn is_open(socket: &impl AsFd) -> bool {
    let peeked = rustix::net::recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    peeked.is_err_and(|error| error == rustix::io::Errno::AGAIN)
}
