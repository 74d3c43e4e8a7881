//! Logs: `tracing` events as lines of text or JSON, to standard error or a file.
//!
//! A thread that logs never waits for a disk or a terminal: a line is copied into a bounded buffer
//! (`sink`), which a separate thread writes out. Lines that don't fit are dropped and counted in
//! the log. Files are rotated by size and reopened on request (`file`). Data from peers can't forge
//! a line or control a terminal, because all control characters are escaped. Panics are logged too
//! (`panics`).
//!
//! The crate does not decide which events are logged at which level, and does not read
//! configuration files.

#![forbid(unsafe_code)]

mod file;
mod log_throttle;
mod panics;
mod settings;
mod sink;
mod terminal_format;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{self, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};
use veche_files::Owner;

use self::file::LogFile;
pub use self::file::{MODE as FILE_MODE, standard};
pub use self::log_throttle::LogThrottle;
pub use self::settings::{LogFormat, LogLevel, LogSettings, Rotation};
use self::sink::{LineWriter, LogSink};

/// The reason why logging can't start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file can't be opened for appending.
    #[error("can't open the log file {path}: {source}")]
    File {
        /// The configured path of the log file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The writing thread can't be started.
    #[error("can't start the log thread: {0}")]
    Thread(io::Error),
    /// Logging was already started in this process.
    #[error("logging was started twice")]
    Twice,
}

/// The running log. Dropping it writes out pending lines.
pub struct Logs {
    sink: Arc<LogSink>,
    level: reload::Handle<LevelFilter, Registry>,
}

/// A destination of lines, created by [`open`].
pub struct LogOutput(Box<dyn sink::LineOutput>);

/// Opens the destination of `log`, but does not write to it yet. A missing file is created and
/// belongs to `owner`.
///
/// # Errors
/// The file can't be opened.
pub fn open(log: &LogSettings, owner: Option<Owner>) -> Result<LogOutput, LogError> {
    let Some(path) = &log.file else {
        return Ok(standard_error(log.format));
    };
    open_file(path, log.rotation, owner)
}

fn standard_error(format: LogFormat) -> LogOutput {
    match format {
        LogFormat::Short => LogOutput(Box::new(terminal_format::TerminalFormat::new())),
        LogFormat::Text | LogFormat::Json => LogOutput(Box::new(io::stderr())),
    }
}

/// Opens a file for the lines of any log, but does not write to it yet. A missing file is created
/// and belongs to `owner`.
///
/// # Errors
/// The file can't be opened.
pub fn open_file(
    path: &Path,
    rotation: Option<Rotation>,
    owner: Option<Owner>,
) -> Result<LogOutput, LogError> {
    match LogFile::open(path, rotation, owner) {
        Ok(file) => Ok(LogOutput(Box::new(file))),
        Err(source) => Err(LogError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Returns a destination that discards all lines.
#[must_use]
pub fn nowhere() -> LogOutput {
    LogOutput(Box::new(io::sink()))
}

/// A log whose lines the caller formats, such as the access log. The server's own log is [`Logs`].
pub struct Appender(Arc<LogSink>);

impl Appender {
    /// Starts the writing thread of the log, which lives as long as the process.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(output: LogOutput) -> Result<Self, LogError> {
        let sink = Arc::new(LogSink::silent());
        sink.start(output.0).map_err(LogError::Thread)?;
        Ok(Self(sink))
    }

    /// Queues `count` lines, each with its newline, or drops them; never blocks.
    pub fn push(&self, lines: &[u8], count: u64) {
        self.0.push_lines(lines, count);
    }

    /// Switches to another destination.
    pub fn switch(&self, output: LogOutput) {
        self.0.switch(false, output.0);
    }

    /// Reopens the file by its name, for example after it was renamed.
    pub fn reopen(&self) {
        self.0.reopen();
    }

    /// Waits at most a second until all lines so far are written.
    pub fn flush(&self) {
        self.0.flush();
    }

    /// Returns the number of lines lost since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.lost()
    }
}

/// Starts logging events and panics of this process as configured. Files that are created belong to
/// `owner`.
///
/// # Errors
/// See [`LogError`].
pub fn start(log: &LogSettings, owner: Option<Owner>) -> Result<Logs, LogError> {
    start_with(log, open(log, owner)?)
}

/// Starts logging. If the file can't be opened, the log goes to standard error.
///
/// # Errors
/// Logging was already started, or the thread can't be started.
pub fn start_or_stderr(log: &LogSettings, owner: Option<Owner>) -> Result<Logs, LogError> {
    match open(log, owner) {
        Ok(output) => start_with(log, output),
        Err(error) => {
            let logs = start_with(log, standard_error(log.format))?;
            tracing::error!(target: "veche::logging", %error, "logs go to standard error");
            Ok(logs)
        }
    }
}

fn start_with(log: &LogSettings, output: LogOutput) -> Result<Logs, LogError> {
    let sink = Arc::new(LogSink::new(log.format == LogFormat::Json));
    let is_short = log.format == LogFormat::Short;
    let (level_layer, level) = reload::Layer::new(filter(log.level));
    let lines = fmt::layer()
        .with_ansi(false)
        .event_format(LineFormat::new(&sink, is_short))
        .with_writer(LineWriter(Arc::clone(&sink)));
    tracing_subscriber::registry()
        .with(level_layer)
        .with(is_short.then(|| filter_fn(terminal_format::is_shown)))
        .with(lines)
        .try_init()
        .map_err(|_| LogError::Twice)?;
    sink.start(output.0).map_err(LogError::Thread)?;
    panics::log(Arc::clone(&sink));
    Ok(Logs { sink, level })
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

impl Logs {
    /// Switches to the level and format of `log`, and to `output`, which was created from `log` by
    /// [`open`].
    pub fn switch(&self, log: &LogSettings, output: LogOutput) {
        // Fails only if the subscriber no longer exists, but it lives as long as the process.
        let _ = self.level.reload(filter(log.level));
        self.sink.switch(log.format == LogFormat::Json, output.0);
    }

    /// Reopens the file by its name, for example after it was renamed.
    pub fn reopen(&self) {
        self.sink.reopen();
    }

    /// Returns a view of the log's last lines and counters, for other parts of this process.
    #[must_use]
    pub fn seen(&self) -> ServerLog {
        ServerLog(Some(Arc::clone(&self.sink)))
    }
}

/// A view of the server log's last lines and counters, for other parts of the process; empty if there is no log.
#[derive(Clone, Default)]
pub struct ServerLog(Option<Arc<LogSink>>);

impl ServerLog {
    /// Returns the number of lines lost since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.as_ref().map_or(0, |sink| sink.lost())
    }

    /// Returns the last lines, without those among the first `after` lines of the process. Also
    /// returns the number of all lines so far.
    #[must_use]
    pub fn recent(&self, after: u64) -> (Vec<Box<str>>, u64) {
        self.0
            .as_ref()
            .map_or_else(Default::default, |sink| sink.recent(after))
    }
}

impl std::fmt::Debug for ServerLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerLog({} lost)", self.lost())
    }
}

impl Logs {
    /// Waits at most a second until pending lines are written.
    pub fn flush(&self) {
        self.sink.flush();
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Formats lines in the sink's current format.
struct LineFormat {
    sink: Arc<LogSink>,
    /// Whether text lines use the short format.
    is_short: bool,
    text: format::Format,
    json: format::Format<format::Json>,
}

impl LineFormat {
    fn new(sink: &Arc<LogSink>, is_short: bool) -> Self {
        let json = format::json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false);
        Self {
            sink: Arc::clone(sink),
            is_short,
            text: format::format().with_ansi(false),
            json,
        }
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: format::Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        if self.sink.is_json() {
            self.json.format_event(context, writer, event)
        } else if self.is_short {
            terminal_format::format(context, writer, event)
        } else {
            self.text.format_event(context, writer, event)
        }
    }
}
