//! Logs panics, because they are bugs, and could go unnoticed on standard error if the log is a
//! file.
//!
//! A panic in any thread ends the process, because its state can no longer be trusted. The
//! supervisor immediately starts another process. The log line is written out before the process
//! ends. If logging fails, the standard library reports the panic on standard error as usual.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::{process, thread};

use tracing::{Level, enabled, error};

use super::sink::LogSink;

/// The log target of panics.
const TARGET: &str = "veche::logging::panics";

/// Installs a panic hook, which logs each panic and then ends the process.
pub(super) fn log(sink: Arc<LogSink>) {
    let standard = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if LogSink::is_writer() || !enabled!(target: TARGET, Level::ERROR) {
            standard(info);
        } else {
            tell(info);
            sink.flush();
        }
        process::abort();
    }));
}

fn tell(info: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let message = info.payload_as_str().unwrap_or("no message");
    match info.location() {
        Some(place) => error!(target: TARGET, thread, "panicked at {place}: {message}"),
        None => error!(target: TARGET, thread, "panicked: {message}"),
    }
    // The backtrace is included if RUST_BACKTRACE requests it. Each line of the backtrace is a
    // separate log record, so that it is readable.
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        for line in backtrace.to_string().lines() {
            error!(target: TARGET, thread, "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output};

    use super::*;
    use crate::{LogFormat, LogLevel, LogSettings};

    const TELLS: &str = "VECHE_TEST_PANIC";

    /// Logs to the file that an environment variable names, and panics.
    #[test]
    #[ignore = "not a test: a process that panics, for the test"]
    fn act_as_panicking() {
        let Some(setting) = std::env::var_os(TELLS) else {
            return;
        };
        let setting = setting.into_string().expect("text");
        let (level, file) = setting.split_once(' ').expect("two words");
        let _logs = crate::start(
            &LogSettings {
                level: if level == "off" {
                    LogLevel::Off
                } else {
                    LogLevel::Info
                },
                format: LogFormat::Text,
                file: (!file.is_empty()).then(|| PathBuf::from(file)),
                rotation: None,
            },
            None,
        )
        .expect("logs");
        let worker = thread::Builder::new().name("worker 7".to_owned());
        let dead = worker.spawn(|| panic!("a bug\nof {}", "ours"));
        let _ = dead.expect("a thread").join();
        unreachable!("the process has ended");
    }

    fn dies(level: &str, file: &Path, backtrace: &str) -> (String, String) {
        let _ = fs::remove_file(file);
        let me = "panics::tests::act_as_panicking";
        let Output { stderr, .. } = Command::new(std::env::current_exe().expect("this binary"))
            .args([me, "--exact", "--ignored", "--nocapture"])
            .env(TELLS, format!("{level} {}", file.display()))
            .env("RUST_BACKTRACE", backtrace)
            .output()
            .expect("it runs");
        let log = fs::read_to_string(file).unwrap_or_default();
        let _ = fs::remove_file(file);
        (log, String::from_utf8_lossy(&stderr).into_owned())
    }

    #[test]
    fn a_panic_is_a_line_of_the_log_before_the_process_dies() {
        let file = std::env::temp_dir().join(format!("veche-panic-{}.log", process::id()));
        let is_logged = |line: &str| {
            line.contains("ERROR")
                && line.contains("panicked at ")
                && line.contains("panics.rs:")
                && line.contains("a bug\\nof ours")
                && line.contains("thread=\"worker 7\"")
        };
        let (log, stderr) = dies("info", &file, "0");
        assert!(log.lines().count() == 1 && is_logged(&log), "{log}");
        assert!(!stderr.contains("a bug"), "said twice: {stderr}");

        let (log, _) = dies("info", &file, "1");
        assert!(log.lines().next().is_some_and(is_logged), "{log}");
        assert!(log.contains("act_as_panicking"), "no backtrace: {log}");

        let (_, stderr) = dies("info", Path::new(""), "0");
        assert!(stderr.lines().any(is_logged), "{stderr}");

        // If logging is off, the panic is reported on standard error as in any other program.
        let (log, stderr) = dies("off", &file, "0");
        assert_eq!(log, "");
        assert!(
            stderr.contains("thread 'worker 7'") && stderr.contains("a bug\nof ours"),
            "{stderr}"
        );
    }
}
