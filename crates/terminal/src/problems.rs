//! Problems of a configuration with their positions, and the report of all of them.
//!
//! This module computes lines and columns from offsets. Other code finds the problems. Reports go to standard
//! error (`veche check`, `veche serve`) or to the log (reload).

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};
use veche_types::nearest;

use crate::colours::{Colour, Colours};

/// A position in the file; lines and columns (in characters) start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLocation {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

/// A problem or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the file.
    pub file: PathBuf,
    /// The position; `None` if the problem concerns the whole file.
    pub place: Option<SourceLocation>,
    /// The message on one line: what was expected and what was found.
    pub message: String,
    /// The line with the problem, if the file is a configuration.
    pub excerpt: Option<Excerpt>,
}

impl Problem {
    /// Returns the message with the excerpt below.
    #[must_use]
    pub fn explained(&self, colour: Colour, colours: Colours) -> String {
        let mut out = String::new();
        let place = format!("{}:", self.location());
        let _ = write!(
            out,
            "{} {}",
            colours.paint(Colour::Bold, &place),
            colours.paint(colour, &self.message)
        );
        let (Some(excerpt), Some(place)) = (&self.excerpt, self.place) else {
            return out;
        };
        let number = place.line.to_string();
        let empty = " ".repeat(number.len());
        let gutter = |text: &str, bar: &str| colours.paint(Colour::Dim, &format!("  {text} {bar}"));
        let carets = format!(
            "{}{}",
            " ".repeat(excerpt.indent),
            "^".repeat(excerpt.carets)
        );
        let _ = write!(
            out,
            "\n{} {}\n{} {}",
            gutter(&number, "|"),
            excerpt.line,
            gutter(&empty, "|"),
            colours.paint(colour, &carets)
        );
        if let Some(example) = &excerpt.example {
            let example = colours.paint(Colour::Green, example);
            let _ = write!(out, "\n{} example: {example}", gutter(&empty, "="));
        }
        out
    }

    /// Returns the problem as a JSON object for editors.
    #[must_use]
    pub fn to_json(&self, severity: &str) -> Json {
        let mut json = Map::new();
        json.insert("severity".to_owned(), severity.into());
        json.insert("file".to_owned(), shown(&self.file).to_string().into());
        if let Some(place) = self.place {
            json.insert("line".to_owned(), place.line.into());
            json.insert("column".to_owned(), place.column.into());
        }
        json.insert("message".to_owned(), self.message.as_str().into());
        if let Some(example) = self.excerpt.as_ref().and_then(|one| one.example.as_ref()) {
            json.insert("example".to_owned(), json!(example));
        }
        Json::Object(json)
    }
}

impl fmt::Display for Problem {
    /// Formats as `veche.toml:12:1: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location(), self.message)
    }
}

impl Problem {
    /// Returns file, line and column, such as `veche.toml:12:1`.
    fn location(&self) -> String {
        let file = shown(&self.file);
        match self.place {
            Some(SourceLocation { line, column }) => format!("{file}:{line}:{column}"),
            None => file.to_string(),
        }
    }
}

/// The excerpt shown below a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line of the file, or the relevant part of a long line.
    pub line: String,
    /// The characters of `line` before the caret.
    pub indent: usize,
    /// The number of characters to mark.
    pub carets: usize,
    /// An example of a valid line: `drain_time = "30s"`.
    pub example: Option<String>,
}

/// The problems of a rejected configuration, in the file's order. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemReport {
    /// The problems in the file's order.
    pub problems: Vec<Problem>,
    /// Whether the file could not be read at all.
    pub unreadable: bool,
}

impl fmt::Display for ProblemReport {
    /// Formats a line for each problem, without a final newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let before = if index == 0 { "" } else { "\n" };
            write!(f, "{before}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ProblemReport {}

impl ProblemReport {
    /// Returns every problem with its excerpt, without a final newline.
    #[must_use]
    pub fn explained(&self, colours: Colours) -> String {
        let all = self.problems.iter();
        let all = all.map(|problem| problem.explained(Colour::Red, colours));
        all.collect::<Vec<_>>().join("\n")
    }
}

/// Collects problems by offset while a file is read.
pub struct Problems<'t> {
    file: &'t Path,
    text: &'t str,
    found: Vec<Problem>,
}

impl<'t> Problems<'t> {
    /// Creates an empty collection for a file and its text.
    pub fn new(file: &'t Path, text: &'t str) -> Self {
        Self {
            file,
            text,
            found: Vec::new(),
        }
    }

    /// Adds a problem at byte `offset` of the text. If `offset` is `None`, the problem concerns the whole file.
    pub fn add(&mut self, offset: Option<usize>, message: impl Into<String>) {
        let problem = self.problem(offset, message);
        self.found.push(problem);
    }

    /// Creates a problem without adding it.
    pub fn problem(&self, offset: Option<usize>, message: impl Into<String>) -> Problem {
        let mut message: String = message.into();
        if message.contains(char::is_control) {
            // Control characters are escaped, so that a value from the file can't break the line or
            // move the cursor.
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

    /// Returns the position of byte `offset`; offsets beyond the end count as the end.
    pub fn place(&self, offset: usize) -> SourceLocation {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        SourceLocation {
            line: number(before.matches('\n').count() + 1),
            column: number(before[line_start..].chars().count() + 1),
        }
    }

    /// Returns whether there are no problems so far.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the number of problems so far.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// Returns all problems in the file's order, those of the whole file last.
    pub fn into_sorted(self) -> Vec<Problem> {
        let mut found = self.found;
        found.sort_by_key(|problem| (problem.place.is_none(), problem.place));
        found.dedup();
        found
    }
}

/// Formats a path without a leading `./`.
pub fn shown(path: &Path) -> std::path::Display<'_> {
    path.strip_prefix("./").unwrap_or(path).display()
}

/// Formats `; did you mean "x"?`.
pub fn did_you_mean(meant: &str) -> String {
    format!("; did you mean {meant:?}?")
}

/// Returns [`did_you_mean`] for the nearest candidate; empty if none is near.
pub fn nearest_hint<'c>(found: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    nearest(found, candidates).map_or_else(String::new, did_you_mean)
}
