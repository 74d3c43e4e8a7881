//! The access log: a line for each request that was answered and each session that has ended.
//!
//! The front ends' [`Journal`](veche_frontends::Journal) has the entries, [`template`] makes lines of them, and a log
//! thread of its own writes them ([`veche_logging`]): a worker hands over the lines of a turn in one piece,
//! and waits for nobody. Lines that find no room are lost, which a metric counts.

use std::sync::Arc;

use parking_lot::Mutex;
use veche_frontends::access_log_buffer::{AccessLogEntry, AccessLogFilter};

use veche_config::{self as config, AccessLogConfig, Template};
use veche_logging::{self as logging, Appender, LogError};

/// What a worker needs to write its lines.
#[derive(Clone)]
pub(crate) struct AccessLogWriter {
    pub(crate) choice: AccessLogFilter,
    template: Arc<Template>,
    lines: Arc<Appender>,
}

impl AccessLogWriter {
    /// Writes these entries, using `scratch`.
    pub(crate) fn write(&self, entries: &mut Vec<AccessLogEntry>, scratch: &mut Vec<u8>) {
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
pub(crate) struct AccessLogFile {
    kept: Mutex<AccessLogState>,
}

#[derive(Default)]
struct AccessLogState {
    /// The log thread, once there was a use for it.
    lines: Option<Arc<Appender>>,
    scribe: Option<AccessLogWriter>,
}

/// Where a log goes that was opened but is not in use yet.
pub(crate) struct OpenedLog(Option<(AccessLogConfig, logging::Output)>);

impl AccessLogFile {
    /// Opens what a configuration names, which may fail, without using it.
    pub(crate) fn open(config: &config::Config) -> Result<OpenedLog, LogError> {
        let Some(log) = &config.access_log else {
            return Ok(OpenedLog(None));
        };
        let output = logging::open_file(&log.file, log.rotation, None)?;
        Ok(OpenedLog(Some((log.clone(), output))))
    }

    /// Goes on with what was opened.
    pub(crate) fn switch(&self, opened: OpenedLog) -> Result<(), LogError> {
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
        kept.scribe = Some(AccessLogWriter {
            choice: AccessLogFilter {
                sample_rate: log.share,
                internal: log.internal,
            },
            template: Arc::new(log.template),
            lines,
        });
        Ok(())
    }

    /// For a worker; `None` while it is off.
    pub(crate) fn writer(&self) -> Option<AccessLogWriter> {
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
