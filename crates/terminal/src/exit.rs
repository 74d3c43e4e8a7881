//! How a command ends: its exit code, and the line that says why.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::colours::Colours;
use crate::problems::Report;

/// The exit codes, which scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did what it was asked
    Ok = 0,
    /// A configuration or a test has problems
    Config = 1,
    /// The command line makes no sense
    Usage = 2,
    /// No server answers
    NoServer = 3,
    /// The server answered with an error
    Refused = 4,
    /// The system refused something
    Failed = 5,
    /// The server outlasted the wait for its end
    TimedOut = 6,
    /// The server was killed before its drain was done
    Killed = 7,
    /// A run of the load tester went wrong in part
    Errors = 8,
    /// A run of the load tester was interrupted
    Interrupted = 130,
}

/// Each code with its meaning.
pub const CODES: [(Exit, &str); 10] = [
    (Exit::Ok, "done"),
    (
        Exit::Config,
        "the configuration has errors or cannot be read; test: a test has failed",
    ),
    (Exit::Usage, "the command line is invalid"),
    (Exit::NoServer, "no server answers"),
    (
        Exit::Refused,
        "the server answered with an error, for one push at least if there were several",
    ),
    (
        Exit::Failed,
        "a system error: an address in use, a full disk, a missing permission",
    ),
    (
        Exit::TimedOut,
        "the server was still running after the wait",
    ),
    (
        Exit::Killed,
        "serve: the server was killed before its drain was done (a second signal, stop --now, the end of drain_time), so connections may have been cut",
    ),
    (
        Exit::Errors,
        "bench: the report has errors, or a scenario broke a promise",
    ),
    (
        Exit::Interrupted,
        "bench: a signal ended the run; the report covers the time until then",
    ),
];

/// The codes as `--help` shows them.
#[must_use]
pub fn table() -> String {
    let mut table = String::from("Exit codes:");
    for (exit, meaning) in CODES {
        table += &format!("\n  {}  {meaning}", exit as u8);
    }
    table
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// The code that the shell gets
    pub exit: Exit,
    message: String,
    /// Whether the lines say by themselves what they are about: each begins with a file and a place.
    is_list: bool,
}

impl Failure {
    /// `message` is what to do something about, without "veche: " in front.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            is_list: exit == Exit::Config,
        }
    }

    /// One that everything has been said about.
    #[must_use]
    pub fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// Problems of a file, each on a line of its own.
    #[must_use]
    pub fn problems(exit: Exit, report: &Report) -> Self {
        Self {
            is_list: true,
            ..Self::new(exit, report.explained(Colours::of(&io::stderr())))
        }
    }

    /// What to do something about.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Says it on standard error.
    pub fn print(&self) {
        if self.message.is_empty() {
            return;
        }
        let prefix = if self.is_list { "" } else { "veche: " };
        // When even standard error is closed nobody can be told.
        let _ = writeln!(io::stderr().lock(), "{prefix}{}", self.message);
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Self::problems(Exit::Config, &report)
    }
}

/// Writes to standard output.
///
/// # Errors
/// Standard output can't be written.
pub fn print(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    written(out.write_fmt(text).and_then(|()| out.flush()))
}

/// The outcome of writing to standard output. A closed pipe is a success: `| head` has read all it wanted.
///
/// # Errors
/// Any other error of `outcome`.
pub fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Failed,
            format!("standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Writes to standard output, with a newline behind the text.
///
/// # Errors
/// As [`print`].
pub fn print_line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    print(format_args!("{text}\n"))
}
