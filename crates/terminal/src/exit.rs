//! How a command ends: its exit code, and the line that says why.

use std::fmt;
use std::io::{self, Write};

pub use veche_types::codes::Exit;

use crate::colours::Colours;
use crate::problems::ProblemReport;

/// The codes as `--help` shows them.
#[must_use]
pub fn table() -> String {
    let mut table = String::from("Exit codes:");
    for exit in Exit::ALL {
        table += &format!("\n  {}  {}", exit.code(), exit.text());
    }
    table
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub struct CommandFailure {
    /// The code that the shell gets
    pub exit: Exit,
    message: String,
    /// Whether the lines say by themselves what they are about: each begins with a file and a place.
    is_list: bool,
}

impl CommandFailure {
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
    pub fn problems(exit: Exit, report: &ProblemReport) -> Self {
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

impl From<ProblemReport> for CommandFailure {
    fn from(report: ProblemReport) -> Self {
        Self::problems(Exit::Config, &report)
    }
}

/// Writes to standard output.
///
/// # Errors
/// Standard output can't be written.
pub fn print(text: fmt::Arguments<'_>) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    written(out.write_fmt(text).and_then(|()| out.flush()))
}

/// The outcome of writing to standard output. A closed pipe is a success: `| head` has read all it wanted.
///
/// # Errors
/// Any other error of `outcome`.
pub fn written(outcome: io::Result<()>) -> Result<(), CommandFailure> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CommandFailure::new(
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
pub fn print_line(text: fmt::Arguments<'_>) -> Result<(), CommandFailure> {
    print(format_args!("{text}\n"))
}
