//! The end of a command: its exit code and message.

use std::fmt;
use std::io::{self, Write};

pub use veche_types::codes::Exit;

use crate::colours::Colours;
use crate::problems::ProblemReport;

/// Returns the table of exit codes for `--help`.
#[must_use]
pub fn table() -> String {
    let mut table = String::from("Exit codes:");
    for exit in Exit::ALL {
        table += &format!("\n  {}  {}", exit.code(), exit.text());
    }
    table
}

/// The failure of a command.
#[derive(Debug)]
pub struct CommandFailure {
    /// Exit code of the process.
    pub exit: Exit,
    message: String,
    /// Whether each line already begins with a file and a position.
    is_list: bool,
}

impl CommandFailure {
    /// Creates a failure. `message` should state what the user can do. It must not begin with "veche: ", which
    /// [`print`](Self::print) adds.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            is_list: exit == Exit::Config,
        }
    }

    /// Creates a failure that has already been reported.
    #[must_use]
    pub fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// Creates a failure whose message lists the problems of a file, one per line.
    #[must_use]
    pub fn problems(exit: Exit, report: &ProblemReport) -> Self {
        Self {
            is_list: true,
            ..Self::new(exit, report.explained(Colours::of(&io::stderr())))
        }
    }

    /// Returns the message without a prefix, as given.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints the message to standard error.
    pub fn print(&self) {
        if self.message.is_empty() {
            return;
        }
        let prefix = if self.is_list { "" } else { "veche: " };
        // If standard error is closed, there is no way to report the failure.
        let _ = writeln!(io::stderr().lock(), "{prefix}{}", self.message);
    }
}

impl From<ProblemReport> for CommandFailure {
    fn from(report: ProblemReport) -> Self {
        Self::problems(Exit::Config, &report)
    }
}

/// Prints to standard output.
///
/// # Errors
/// Standard output can't be written.
pub fn print(text: fmt::Arguments<'_>) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    written(out.write_fmt(text).and_then(|()| out.flush()))
}

/// Converts the result of writing to standard output. A closed pipe is a success, as in `| head`.
///
/// # Errors
/// Any other error of `outcome`.
pub fn written(outcome: io::Result<()>) -> Result<(), CommandFailure> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CommandFailure::new(
            Exit::Failed,
            format!("can't write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Prints a line to standard output.
///
/// # Errors
/// As [`print`].
pub fn print_line(text: fmt::Arguments<'_>) -> Result<(), CommandFailure> {
    print(format_args!("{text}\n"))
}
