//! The test report on a terminal: a line for each file, failures with a command to reproduce them, and a summary.
//!
//! If the output is not a terminal, the text depends only on the tests and the seed: it has no times and no colours.

use std::fmt::Write as _;
use std::time::Duration;

use super::runner::name_of;
use super::{CaseResult, Failed, FileResults, Passed};
use veche_terminal::{Colour, Colours};

/// Maximum number of log lines shown for a failed run. If there are more, the last ones are shown.
const LOG_LINES_MAX: usize = 40;

/// The style of the report.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportStyle {
    /// The colours of the terminal, or none.
    pub colours: Colours,
    /// Whether real times are shown.
    pub has_times: bool,
}

/// The formatter of reports.
#[derive(Clone, Copy, Debug)]
pub struct TestReport {
    /// The format of the lines.
    pub style: ReportStyle,
    /// Whether each case was run with more than one seed.
    pub has_many_seeds: bool,
}

impl TestReport {
    fn paint(&self, colour: Colour, text: &str) -> String {
        self.style.colours.paint(colour, text)
    }

    fn time(&self, took: Duration) -> String {
        match self.style.has_times {
            true => self.paint(Colour::Dim, &format!("  {} ms", took.as_millis())),
            false => String::new(),
        }
    }

    /// Formats a completed file.
    pub fn file(&self, file: &FileResults) -> String {
        let took = file.results.iter().map(|outcome| outcome.took).sum();
        let tests = match file.results.len() {
            1 => "1 test".to_owned(),
            count => format!("{count} tests"),
        };
        let failed = file
            .results
            .iter()
            .filter(|outcome| outcome.result.is_err());
        let mut out = match failed.clone().count() {
            0 => format!(
                "{}      {}  {tests}",
                self.paint(Colour::Green, "ok"),
                file.name
            ),
            count => format!(
                "{}  {}  {count} of {tests}",
                self.paint(Colour::Red, "FAILED"),
                file.name
            ),
        };
        out += &self.time(took);
        out.push('\n');
        for outcome in failed {
            self.outcome(file, outcome, &mut out);
        }
        if file.results.iter().any(|outcome| outcome.result.is_err()) {
            out.push('\n');
        }
        out
    }

    fn outcome(&self, file: &FileResults, outcome: &CaseResult, out: &mut String) {
        let Err(failed) = &outcome.result else { return };
        let place = match outcome.line {
            0 => String::new(),
            line => format!(" ({}:{line})", file.name),
        };
        let _ = writeln!(out, "\n  {}{place}", self.paint(Colour::Red, &outcome.name));
        for line in failed.words.lines() {
            let _ = writeln!(out, "    {}", self.differing(line));
        }
        for line in failed.calls() {
            let _ = writeln!(out, "      {line}");
        }
        if !failed.log.is_empty() {
            out.push_str("    log:\n");
            let left_out = failed.log.len().saturating_sub(LOG_LINES_MAX);
            if left_out > 0 {
                let _ = writeln!(out, "      … earlier lines left out: {left_out}");
            }
            for line in &failed.log[left_out..] {
                let level = name_of(line.level);
                let text = line
                    .text
                    .replace('\t', "  ")
                    .replace('\n', "\n             ");
                let _ = writeln!(out, "      {level:5}  {text}");
            }
        }
        let again = self.paint(Colour::Dim, &again(file, outcome, failed));
        let _ = writeln!(out, "    again: {again}");
    }

    /// Colours one line of a diff.
    fn differing(&self, line: &str) -> String {
        match line.as_bytes() {
            [b' ', b' ', b'-', b' ', ..] => self.paint(Colour::Red, line),
            [b' ', b' ', b'+', b' ', ..] => self.paint(Colour::Green, line),
            _ => line.to_owned(),
        }
    }

    /// Formats the summary of all files.
    pub fn summary(&self, files: &[FileResults], seed: u64, took: Duration) -> String {
        let counts = Counts::of(files);
        let mut parts = vec![format!("{} passed", counts.passed)];
        if counts.failed > 0 {
            parts.push(self.paint(Colour::Red, &format!("{} failed", counts.failed)));
        }
        if counts.skipped > 0 {
            parts.push(format!("{} skipped", counts.skipped));
        }
        let seeds = if self.has_many_seeds {
            "seeds from"
        } else {
            "seed"
        };
        format!("{} ({seeds} {seed}){}\n", parts.join(", "), self.time(took))
    }
}

impl Failed {
    /// Returns the lines of a failure's call stack; empty if the failure is in the test itself.
    fn calls(&self) -> Vec<&str> {
        let lines = self.traceback.lines().map(str::trim);
        let places = lines.filter(|line| {
            let is_ours = line.starts_with("[C]") || line.starts_with("veche:");
            line.contains(": in ") && !is_ours
        });
        let places: Vec<&str> = places.collect();
        match places.len() {
            0 | 1 => Vec::new(),
            _ => places,
        }
    }

    /// Formats the failure as one text, for the JUnit file.
    pub(super) fn text(&self) -> String {
        let mut text = self.words.clone();
        for line in self.calls() {
            let _ = write!(text, "\n  {line}");
        }
        text
    }

    /// Formats the log lines of the run as one text.
    pub(super) fn log_text(&self) -> String {
        let lines = self.log.iter();
        let lines = lines.map(|line| format!("{:5}  {}\n", name_of(line.level), line.text));
        lines.collect()
    }

    /// Returns the seed of the run.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }
}

/// Returns the shell command that reproduces a failure.
fn again(file: &FileResults, outcome: &CaseResult, failed: &Failed) -> String {
    let mut command = format!("veche test --seed {}", failed.seed);
    if outcome.line > 0 {
        let _ = write!(command, " --filter {}", quoted(&outcome.name));
    }
    format!("{command} {}", quoted(&file.name))
}

/// Quotes a text for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The number of results of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of cases that passed with each of their seeds.
    pub passed: usize,
    /// Number of cases that failed, and of files that can't be loaded.
    pub failed: usize,
    /// Number of cases that were skipped.
    pub skipped: usize,
}

impl Counts {
    /// Counts the results of these files.
    pub fn of<'f>(files: impl IntoIterator<Item = &'f FileResults>) -> Self {
        let mut counts = Self::default();
        for outcome in files.into_iter().flat_map(|file| &file.results) {
            match &outcome.result {
                Ok(Passed::Ran) => counts.passed += 1,
                Ok(Passed::Skipped) => counts.skipped += 1,
                Err(_) => counts.failed += 1,
            }
        }
        counts
    }

    pub(super) fn all(&self) -> usize {
        self.passed + self.failed + self.skipped
    }
}
