//! Problems of a configuration with their places, and the report of all of them at once.
//!
//! Knows offsets, lines and columns; what is a problem the other modules decide. The lines go to standard
//! error (`veche check`, `veche serve`) or to the log (reload).

use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use veche_frontends::spelling::nearest;

use super::excerpt::Excerpt;
use crate::colours::{Colour, Colours};

/// A place in the file; lines and columns (in characters) start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// One thing that is wrong, or (among the warnings) one that should be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) file: PathBuf,
    /// `None`: it is about the file as a whole.
    pub(crate) place: Option<Place>,
    /// What was expected and what was found, on one line.
    pub(crate) message: String,
    /// The line that it is about, of errors of a configuration.
    pub(crate) excerpt: Option<Excerpt>,
}

impl fmt::Display for Problem {
    /// `veche.toml:12:1: message`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location(), self.message)
    }
}

impl Problem {
    /// Returns file, line and column, such as `veche.toml:12:1`.
    pub(super) fn location(&self) -> String {
        let file = shown(&self.file);
        match self.place {
            Some(Place { line, column }) => format!("{file}:{line}:{column}"),
            None => file.to_string(),
        }
    }
}

/// Why a configuration was not accepted: every problem of it, in the file's order. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) problems: Vec<Problem>,
    /// Whether the file could not even be read, so that what it says is unknown.
    pub(crate) unreadable: bool,
}

impl fmt::Display for Report {
    /// A line for each problem, without a newline after the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let before = if index == 0 { "" } else { "\n" };
            write!(f, "{before}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

impl Report {
    /// Every problem with its excerpt, without a newline after the last.
    pub(crate) fn explained(&self, colours: Colours) -> String {
        let all = self.problems.iter();
        let all = all.map(|problem| problem.explained(Colour::Red, colours));
        all.collect::<Vec<_>>().join("\n")
    }
}

/// Collects problems by offset while a file is walked.
pub(crate) struct Problems<'t> {
    file: &'t Path,
    text: &'t str,
    found: Vec<Problem>,
}

impl<'t> Problems<'t> {
    /// For a file of that name with that text.
    pub(crate) fn new(file: &'t Path, text: &'t str) -> Self {
        Self {
            file,
            text,
            found: Vec::new(),
        }
    }

    /// Adds one at byte `offset` of the text, or about the file as a whole.
    pub(crate) fn add(&mut self, offset: Option<usize>, message: impl Into<String>) {
        let problem = self.problem(offset, message);
        self.found.push(problem);
    }

    /// Makes one without adding it.
    pub(crate) fn problem(&self, offset: Option<usize>, message: impl Into<String>) -> Problem {
        let mut message: String = message.into();
        if message.contains(char::is_control) {
            // Paths and the like come from the file: one line stays one line, and moves no cursor.
            let escaped = |c: char| {
                if c.is_control() {
                    c.escape_debug().to_string()
                } else {
                    c.to_string()
                }
            };
            message = message.chars().map(escaped).collect();
        }
        let place = offset.map(|offset| self.place(offset));
        Problem {
            file: self.file.to_owned(),
            place,
            message,
            excerpt: None,
        }
    }

    /// The place of byte `offset`; offsets behind the end count as the end.
    pub(crate) fn place(&self, offset: usize) -> Place {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Place {
            line: number(before.matches('\n').count() + 1),
            column: number(before[line_start..].chars().count() + 1),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// How many there are so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// Everything found, in the file's order; what is about the whole file comes last.
    pub(crate) fn into_sorted(self) -> Vec<Problem> {
        let mut found = self.found;
        found.sort_by_key(|problem| (problem.place.is_none(), problem.place));
        found.dedup();
        found
    }
}

/// A path as people write it: without a leading `./`.
pub(crate) fn shown(path: &Path) -> std::path::Display<'_> {
    path.strip_prefix("./").unwrap_or(path).display()
}

/// `; did you mean "x"?`
pub(crate) fn did_you_mean(meant: &str) -> String {
    format!("; did you mean {meant:?}?")
}

/// [`did_you_mean`] for the nearest candidate; nothing if none is near.
pub(super) fn nearest_hint<'c>(
    found: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> String {
    nearest(found, candidates).map_or_else(String::new, did_you_mean)
}
