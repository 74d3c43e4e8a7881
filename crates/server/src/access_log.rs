//! The access log: a line for each answered request and each ended session.
//!
//! The front ends record entries in an [`AccessLogBuffer`](veche_frontends::AccessLogBuffer). At the end of a turn, a
//! worker formats them with its [`Template`] and queues all lines at once for a separate thread ([`veche_logging`]), so
//! it never waits for the disk. If the queue is full, lines are dropped, and a metric counts them.

use std::sync::Arc;

use parking_lot::Mutex;
use veche_frontends::access_log_buffer::{AccessLogEntry, AccessLogFilter};

use veche_config::{self as config, AccessLogConfig, Template};
use veche_logging::{self as logging, Appender, LogError};

/// Formats and queues the lines of the access log for one worker.
#[derive(Clone)]
pub(crate) struct AccessLogWriter {
    pub(crate) choice: AccessLogFilter,
    template: Arc<Template>,
    lines: Arc<Appender>,
}

impl AccessLogWriter {
    /// Formats and writes entries, using `scratch` as a buffer.
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

/// The access log of the process, which may be off.
#[derive(Default)]
pub(crate) struct AccessLogFile {
    kept: Mutex<AccessLogState>,
}

#[derive(Default)]
struct AccessLogState {
    /// The thread that writes the lines. It starts when a log is opened for the first time, and keeps running while the
    /// log is off.
    lines: Option<Arc<Appender>>,
    writer: Option<AccessLogWriter>,
}

/// An opened log that is not in use yet.
pub(crate) struct OpenedLog(Option<(AccessLogConfig, logging::LogOutput)>);

impl AccessLogFile {
    /// Opens the log that the configuration names, without switching to it yet: an error leaves the current log in use.
    pub(crate) fn open(config: &config::Config) -> Result<OpenedLog, LogError> {
        let Some(log) = &config.access_log else {
            return Ok(OpenedLog(None));
        };
        let output = logging::open_file(&log.file, log.rotation, None)?;
        Ok(OpenedLog(Some((log.clone(), output))))
    }

    /// Switches to an opened log, or switches the log off if the configuration has none.
    pub(crate) fn switch(&self, opened: OpenedLog) -> Result<(), LogError> {
        let mut kept = self.kept.lock();
        let Some((log, output)) = opened.0 else {
            if let Some(lines) = &kept.lines {
                lines.switch(logging::nowhere());
            }
            kept.writer = None;
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
        kept.writer = Some(AccessLogWriter {
            choice: AccessLogFilter {
                sample_rate: log.share,
                internal: log.internal,
            },
            template: Arc::new(log.template),
            lines,
        });
        Ok(())
    }

    /// Returns a writer for a worker; `None` while the log is off.
    pub(crate) fn writer(&self) -> Option<AccessLogWriter> {
        self.kept.lock().writer.clone()
    }

    /// Reopens the file, after a rotation has moved it away.
    pub(crate) fn reopen(&self) {
        if let Some(lines) = &self.kept.lock().lines {
            lines.reopen();
        }
    }

    /// Waits until all lines so far are written, but at most a second.
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
