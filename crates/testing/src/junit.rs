//! Test results as JUnit XML, for continuous integration.

use std::fmt::Write as _;
use std::time::Duration;

use super::report::Counts;
use super::{CaseResult, FileResults, Passed};

/// Returns the XML document with the results of all files.
pub fn junit(files: &[FileResults]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let took = |file: &FileResults| -> Duration { file.results.iter().map(|one| one.took).sum() };
    let all: Duration = files.iter().map(took).sum();
    let _ = writeln!(
        out,
        "<testsuites name=\"veche test\"{}>",
        attributes(Counts::of(files), all)
    );
    for file in files {
        let name = escaped(&file.name);
        let attributes = attributes(Counts::of([file]), took(file));
        let _ = writeln!(out, "  <testsuite name=\"{name}\"{attributes}>");
        for outcome in &file.results {
            case(&name, outcome, &mut out);
        }
        out.push_str("  </testsuite>\n");
    }
    out + "</testsuites>\n"
}

fn attributes(counts: Counts, took: Duration) -> String {
    format!(
        " tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3}\"",
        counts.all(),
        counts.failed,
        counts.skipped,
        took.as_secs_f64()
    )
}

fn case(file: &str, outcome: &CaseResult, out: &mut String) {
    let _ = write!(
        out,
        "    <testcase classname=\"{file}\" name=\"{}\" file=\"{file}\" line=\"{}\" time=\"{:.3}\"",
        escaped(&outcome.name),
        outcome.line,
        outcome.took.as_secs_f64()
    );
    match &outcome.result {
        Ok(Passed::Ran) => out.push_str("/>\n"),
        Ok(Passed::Skipped) => out.push_str(">\n      <skipped/>\n    </testcase>\n"),
        Err(failed) => {
            let text = failed.text();
            let first = text.lines().next().unwrap_or_default();
            let _ = write!(
                out,
                ">\n      <failure message=\"{}\">{}\n(seed {})</failure>\n",
                escaped(first),
                escaped(&text),
                failed.seed()
            );
            let log = failed.log_text();
            if !log.is_empty() {
                let _ = writeln!(out, "      <system-out>{}</system-out>", escaped(&log));
            }
            out.push_str("    </testcase>\n");
        }
    }
}

/// Escapes a text or attribute. Characters that XML 1.0 can't represent are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            control if control < ' ' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(
            escaped("<a href=\"x\">&\0\u{1b}[1m\u{fffe}\n"),
            "&lt;a href=&quot;x&quot;&gt;&amp;\u{fffd}\u{fffd}[1m\u{fffd}\n"
        );
    }
}
