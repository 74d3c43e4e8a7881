//! The short text report of a scenario: a line per phase and a line per objective.
//!
//! It is made for build logs, so it has no colours and no fixed width.

use std::fmt::Write as _;
use std::path::Path;

use crate::report::Report;
use crate::report::model::Objective;

use super::figures::show_time;
use super::merged_report;

/// Returns the text, ending with a new line.
pub(super) fn text(report: &Report, file: &Path) -> String {
    let mut out = String::new();
    let stopped = if report.interrupted {
        ", interrupted"
    } else if report.stopped {
        ", stopped at a broken promise"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "{}: {} phase{}, {:.1} s measured{stopped}\n",
        veche_terminal::shown(file),
        report.phases.len(),
        if report.phases.len() == 1 { "" } else { "s" },
        report.seconds
    );
    let names = report
        .phases
        .iter()
        .map(|phase| name(phase).chars().count());
    let width = names.max().unwrap_or(0).max(5);
    let _ = writeln!(
        out,
        "{:width$}  {:9}  {:>11}  {:>12}  {:>9}  {:>9}  {:>9}  {:>7}",
        "phase", "kind", "connections", "a second", "p50", "p99", "max", "errors"
    );
    for phase in &report.phases {
        line(&mut out, phase, width);
        for check in &phase.checks {
            promise(&mut out, check);
        }
        if phase.generator.bottleneck && phase.checks.iter().all(|check| check.passed) {
            let reasons = phase.generator.reasons.join("; ");
            let _ = writeln!(
                out,
                "  the tester was the bottleneck, which the scenario allows: {reasons}"
            );
        }
    }
    if !report.checks.is_empty() {
        let _ = writeln!(out, "the whole");
        for check in &report.checks {
            promise(&mut out, check);
        }
    }
    let (broken, all) = merged_report::broken(report);
    let _ = match broken {
        0 => writeln!(out, "\nall {all} promises kept"),
        _ => writeln!(out, "\n{broken} of {all} promises BROKEN"),
    };
    out
}

fn line(out: &mut String, phase: &Report, width: usize) {
    let latency = phase.latency_us.as_ref();
    let time = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), short);
    let _ = writeln!(
        out,
        "{:width$}  {:9}  {:>11}  {:>12.0}  {:>9}  {:>9}  {:>9}  {:>7}",
        name(phase),
        phase.kind,
        phase.connections.opened,
        phase.messages.per_second,
        time(latency.map(|latency| latency.p50)),
        time(latency.map(|latency| latency.p99)),
        time(latency.map(|latency| latency.max)),
        phase.errors.count()
    );
}

fn promise(out: &mut String, check: &Objective) {
    let word = if check.passed { "kept   " } else { "BROKEN " };
    let _ = writeln!(
        out,
        "  {word} {}: {}",
        clean(&check.promise),
        clean(&check.measured)
    );
}

fn name(phase: &Report) -> String {
    clean(phase.settings.label.as_deref().unwrap_or(&phase.kind))
}

/// Formats a time with three digits, which suffice for a table.
fn short(us: f64) -> String {
    let factor = 10f64.powf(us.max(0.1).log10().floor() - 2.0);
    show_time((us / factor).round() * factor)
}

/// Replaces control characters in texts that servers have sent.
fn clean(text: &str) -> String {
    let seen = |c: char| if c.is_control() { '·' } else { c };
    text.chars().map(seen).collect()
}

#[cfg(test)]
mod tests {
    use crate::report::model::{Latency, Settings};

    use super::*;

    #[test]
    fn a_line_a_phase_and_a_line_a_promise() {
        let mut phase = Report {
            kind: "echo".to_owned(),
            latency_us: Some(Latency {
                p50: 812.4,
                p99: 12_345.6,
                max: 1_999_999.0,
                ..Latency::default()
            }),
            settings: Settings {
                label: Some("rise\x1b[2J".to_owned()),
                ..Settings::default()
            },
            ..Report::default()
        };
        phase.connections.opened = 10;
        phase.messages.per_second = 1234.5;
        let check = |promise: &str, passed| Objective {
            promise: promise.to_owned(),
            measured: "x".to_owned(),
            passed,
        };
        phase.checks = vec![check("latency.p99 <= 50ms", true)];
        let report = Report {
            phases: vec![phase],
            checks: vec![check("errors == 0", false)],
            ..Report::default()
        };
        let text = text(&report, Path::new("./a.toml"));
        let expected = "\
a.toml: 1 phase, 0.0 s measured

phase     kind       connections      a second        p50        p99        max   errors
rise·[2J  echo                10          1234     812 us    12.3 ms        2 s        0
  kept    latency.p99 <= 50ms: x
the whole
  BROKEN  errors == 0: x

1 of 2 promises BROKEN
";
        assert_eq!(text, expected, "{text}");
    }
}
