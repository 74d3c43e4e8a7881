//! Settings of a log, as plain values.

use std::path::PathBuf;

/// The settings of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The lowest severity logged.
    pub level: LogLevel,
    /// The format of lines.
    pub format: LogFormat,
    /// The path of the log file; `None` means standard error.
    pub file: Option<PathBuf>,
    /// When the file is rotated; `None` means that it grows until another program moves it.
    pub rotation: Option<Rotation>,
}

/// When a log file is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The maximum size of a file in bytes.
    pub bytes_max: u64,
    /// The number of old files kept; at least 1.
    pub keep: u32,
}

/// The lowest severity that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// No line is logged.
    Off,
    /// Errors that need action.
    Error,
    /// Conditions that may need attention.
    Warn,
    /// Events of the process.
    Info,
    /// Events of single connections.
    Debug,
    /// Events of single messages.
    Trace,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text for each event.
    Text,
    /// A JSON object on a line for each event.
    Json,
    /// For development: short, in local time, and coloured on a terminal.
    Short,
}

impl LogSettings {
    /// Returns these settings. Under `veche dev`, text lines on standard error get the short format instead.
    #[must_use]
    pub fn for_dev(&self, is_dev: bool) -> Self {
        let mut log = self.clone();
        if is_dev && log.file.is_none() && log.format == LogFormat::Text {
            log.format = LogFormat::Short;
        }
        log
    }
}
