//! The access log: a line for each answered request and each ended session.
//!
//! The entries come from the front ends' [`Journal`](veche_frontends::Journal), [`template`] formats them, and a
//! separate thread writes them ([`veche_logging`]): a worker passes on all lines of a turn at once and never blocks.
//! Lines that don't fit are dropped, which a metric counts.

use std::sync::Arc;

use parking_lot::Mutex;
use veche_frontends::journal::{Choice, Entry};

use veche_config::{self as config, AccessLog, Template};
use veche_logging::{self as logging, Appender, LogError};

/// A worker's access to the log.
#[derive(Clone)]
pub(crate) struct Scribe {
    pub(crate) choice: Choice,
    template: Arc<Template>,
    lines: Arc<Appender>,
}

impl Scribe {
    /// Formats and writes entries, using `scratch` as a buffer.
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

/// The access log of the process, which may be off.
#[derive(Default)]
pub(crate) struct Access {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The log, once it was enabled.
    lines: Option<Arc<Appender>>,
    scribe: Option<Scribe>,
}

/// An opened log that is not in use yet.
pub(crate) struct Opened(Option<(AccessLog, logging::Output)>);

impl Access {
    /// Opens the configured log without using it, which may fail.
    pub(crate) fn open(config: &config::Config) -> Result<Opened, LogError> {
        let Some(log) = &config.access_log else {
            return Ok(Opened(None));
        };
        let output = logging::open_file(&log.file, log.rotation, None)?;
        Ok(Opened(Some((log.clone(), output))))
    }

    /// Switches to an opened log.
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

    /// Returns a writer for a worker; `None` while the log is off.
    pub(crate) fn scribe(&self) -> Option<Scribe> {
        self.kept.lock().scribe.clone()
    }

    /// Reopens the file.
    pub(crate) fn reopen(&self) {
        if let Some(lines) = &self.kept.lock().lines {
            lines.reopen();
        }
    }

    /// Waits a limited time until all lines so far are written.
    pub(crate) fn flush(&self) {
        let lines = self.kept.lock().lines.clone();
        if let Some(lines) = lines {
            lines.flush();
        }
    }

    /// Returns the number of lines lost since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.kept
            .lock()
            .lines
            .as_ref()
            .map_or(0, |lines| lines.lost())
    }
}
