//! The access log: a line for each request that was answered and each session that has ended.
//!
//! The front ends' [`Journal`](veche_frontends::Journal) has the entries, [`template`] makes lines of them, and a log
//! thread of its own writes them ([`veche_logging`]): a worker hands over the lines of a turn in one piece,
//! and waits for nobody. Lines that find no room are lost, which a metric counts.

use std::sync::Arc;

use parking_lot::Mutex;
use veche_frontends::journal::{Choice, Entry};

use veche_config::{self as config, AccessLog, Template};
use veche_logging::{self as logging, Appender, LogError};

/// What a worker needs to write its lines.
#[derive(Clone)]
pub(crate) struct Scribe {
    pub(crate) choice: Choice,
    template: Arc<Template>,
    lines: Arc<Appender>,
}

impl Scribe {
    /// Writes these entries, using `scratch`.
    pub(crate) fn write(&self, entries: &mut Vec<Entry>, scratch: &mut Vec<u8>) {
        let count = entries.len() as u64;
        for entry in entries.drain(..) {
            self.template.write(&entry, scratch);
            scratch.push(b'\n');
        }
        self.lines.push(scratch, count);
        scratch.clear();
    }
}

/// The access log of the process: on or off, and whose lines go where.
#[derive(Default)]
pub(crate) struct Access {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The log thread, once there was a use for it.
    lines: Option<Arc<Appender>>,
    scribe: Option<Scribe>,
}

/// Where a log goes that was opened but is not in use yet.
pub(crate) struct Opened(Option<(AccessLog, logging::Output)>);

impl Access {
    /// Opens what a configuration names, which may fail, without using it.
    pub(crate) fn open(config: &config::Config) -> Result<Opened, LogError> {
        let Some(log) = &config.access_log else {
            return Ok(Opened(None));
        };
        let output = logging::open_file(&log.file, log.rotation, None)?;
        Ok(Opened(Some((log.clone(), output))))
    }

    /// Goes on with what was opened.
    pub(crate) fn switch(&self, opened: Opened) -> Result<(), LogError> {
        let mut kept = self.kept.lock();
        let Some((log, output)) = opened.0 else {
            if let Some(lines) = &kept.lines {
                lines.switch(logging::nowhere());
            }
            kept.scribe = None;
            return Ok(());
        };
        let lines = match &kept.lines {
            Some(lines) => {
                lines.switch(output);
                Arc::clone(lines)
            }
            None => {
                let lines = Arc::new(Appender::start(output)?);
                kept.lines = Some(Arc::clone(&lines));
                lines
            }
        };
        kept.scribe = Some(Scribe {
            choice: Choice {
                share: log.share,
                internal: log.internal,
            },
            template: Arc::new(log.template),
            lines,
        });
        Ok(())
    }

    /// For a worker; `None` while it is off.
    pub(crate) fn scribe(&self) -> Option<Scribe> {
        self.kept.lock().scribe.clone()
    }

    /// Opens the file anew.
    pub(crate) fn reopen(&self) {
        if let Some(lines) = &self.kept.lock().lines {
            lines.reopen();
        }
    }

    /// Waits until all lines so far are written, but not for long.
    pub(crate) fn flush(&self) {
        let lines = self.kept.lock().lines.clone();
        if let Some(lines) = lines {
            lines.flush();
        }
    }

    /// Lines lost since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.kept
            .lock()
            .lines
            .as_ref()
            .map_or(0, |lines| lines.lost())
    }
}
