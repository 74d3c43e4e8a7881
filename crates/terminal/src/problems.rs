//! Problems of a configuration with their places, and the report of all of them at once.
//!
//! Knows offsets, lines and columns; what is a problem the other modules decide. The lines go to standard
//! error (`veche check`, `veche serve`) or to the log (reload).

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};
use veche_types::nearest;

use crate::colours::{Colour, Colours};

/// A place in the file; lines and columns (in characters) start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLocation {
    /// From 1
    pub line: u32,
    /// In characters, from 1
    pub column: u32,
}

/// One thing that is wrong, or (among the warnings) one that should be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file that it is in
    pub file: PathBuf,
    /// `None`: it is about the file as a whole.
    pub place: Option<SourceLocation>,
    /// What was expected and what was found, on one line.
    pub message: String,
    /// The line that it is about, of errors of a configuration.
    pub excerpt: Option<Excerpt>,
}

impl Problem {
    /// Its message, and below it the excerpt.
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
    /// `veche.toml:12:1: message`
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

/// What is shown of a problem beside its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line of the file, or the part of a long line around the mistake
    pub line: String,
    /// Characters of `line` before the caret.
    pub indent: usize,
    /// Characters to mark
    pub carets: usize,
    /// A line that is right: `drain_time = "30s"`.
    pub example: Option<String>,
}

/// Why a configuration was not accepted: every problem of it, in the file's order. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemReport {
    /// In the order of the file
    pub problems: Vec<Problem>,
    /// Whether the file could not even be read, so that what it says is unknown.
    pub unreadable: bool,
}

impl fmt::Display for ProblemReport {
    /// A line for each problem, without a newline after the last.
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
    /// Every problem with its excerpt, without a newline after the last.
    #[must_use]
    pub fn explained(&self, colours: Colours) -> String {
        let all = self.problems.iter();
        let all = all.map(|problem| problem.explained(Colour::Red, colours));
        all.collect::<Vec<_>>().join("\n")
    }
}

/// Collects problems by offset while a file is walked.
pub struct Problems<'t> {
    file: &'t Path,
    text: &'t str,
    found: Vec<Problem>,
}

impl<'t> Problems<'t> {
    /// For a file of that name with that text.
    pub fn new(file: &'t Path, text: &'t str) -> Self {
        Self {
            file,
            text,
            found: Vec::new(),
        }
    }

    /// Adds one at byte `offset` of the text, or about the file as a whole.
    pub fn add(&mut self, offset: Option<usize>, message: impl Into<String>) {
        let problem = self.problem(offset, message);
        self.found.push(problem);
    }

    /// Makes one without adding it.
    pub fn problem(&self, offset: Option<usize>, message: impl Into<String>) -> Problem {
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

    /// Whether none was found so far.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// How many there are so far.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// Everything found, in the file's order; what is about the whole file comes last.
    pub fn into_sorted(self) -> Vec<Problem> {
        let mut found = self.found;
        found.sort_by_key(|problem| (problem.place.is_none(), problem.place));
        found.dedup();
        found
    }
}

/// A path as people write it: without a leading `./`.
pub fn shown(path: &Path) -> std::path::Display<'_> {
    path.strip_prefix("./").unwrap_or(path).display()
}

/// `; did you mean "x"?`
pub fn did_you_mean(meant: &str) -> String {
    format!("; did you mean {meant:?}?")
}

/// [`did_you_mean`] for the nearest candidate; nothing if none is near.
pub fn nearest_hint<'c>(found: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    nearest(found, candidates).map_or_else(String::new, did_you_mean)
}
