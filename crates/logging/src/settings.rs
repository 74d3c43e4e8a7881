//! How a log is kept: plain values.

use std::path::PathBuf;

/// What is logged, how and to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// What is important enough
    pub level: LogLevel,
    /// Text or JSON
    pub format: LogFormat,
    /// `None`: standard error.
    pub file: Option<PathBuf>,
    /// `None`: the file grows until somebody else moves it away.
    pub rotation: Option<Rotation>,
}

/// When a log file is replaced by a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Before it would have more.
    pub bytes_max: u64,
    /// How many old ones are kept; at least 1.
    pub keep: u32,
}

/// The least important events that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing at all
    Off,
    /// What went wrong, and can't be ignored
    Error,
    /// What may need a person's attention
    Warn,
    /// What happens to the process
    Info,
    /// What happens to connections
    Debug,
    /// What happens to messages
    Trace,
}

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text for each event
    Text,
    /// A JSON object on a line for each event
    Json,
    /// For development: short, in local time, in colours on a terminal.
    Short,
}

impl LogSettings {
    /// The same as `veche dev` has it: short where it goes to the terminal and the file asks for nothing else.
    #[must_use]
    pub fn for_dev(&self, is_dev: bool) -> Self {
        let mut log = self.clone();
        if is_dev && log.file.is_none() && log.format == LogFormat::Text {
            log.format = LogFormat::Short;
        }
        log
    }
}
