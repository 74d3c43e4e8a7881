//! Objectives such as `latency.p99 = "<= 50ms"`, from the file to their results.
//!
//! An objective is missed if its figure was not measured.

use std::cmp::Ordering;

use crate::report::Report;
use crate::report::model::Objective;
use toml::de::DeValue;

use super::figures::{FIGURES, Figure, Figures, Unit};

/// An objective: a figure, and the bound that it has to meet.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct Slo {
    figure: &'static Figure,
    relation: Relation,
    /// The bound in the figure's unit, or as a fraction (1 is 100 %) if `in_share` is set.
    bound: f64,
    /// Whether the bound is a share of the figure's total, for example of all messages.
    in_share: bool,
    /// The text in the file: `latency.p99 <= 50ms`.
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    AtMost,
    Below,
    AtLeast,
    Above,
    Equal,
}

/// The notation of each relation. `<=` precedes its prefix `<`, because the first match counts.
const RELATIONS: [(&str, Relation); 6] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("==", Relation::Equal),
    ("<", Relation::Below),
    (">", Relation::Above),
    ("=", Relation::Equal),
];

const TIMES: [(&str, f64); 6] = [
    ("us", 1.0),
    ("µs", 1.0),
    ("ms", 1e3),
    ("s", 1e6),
    ("m", 60e6),
    ("h", 3600e6),
];

const SIZES: [(&str, f64); 8] = [
    ("", 1.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];

impl Slo {
    /// Returns the default objective: no errors.
    pub(super) fn no_errors() -> Self {
        Self {
            figure: Figure::named("errors").expect("in the table"),
            relation: Relation::Equal,
            bound: 0.0,
            in_share: false,
            text: "errors == 0".to_owned(),
        }
    }

    /// Parses an objective; the error describes the problem of the path or the value.
    pub(super) fn read(path: &str, value: &DeValue<'_>) -> Result<Self, String> {
        let figure = Figure::named(path).ok_or_else(|| unknown(path))?;
        let text = match value {
            DeValue::String(text) => text.trim().to_owned(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            other => {
                return Err(format!(
                    "{path}: expected {}, found {}",
                    expected(figure),
                    veche_terminal::describe(other)
                ));
            }
        };
        let (sign, relation) = RELATIONS
            .into_iter()
            .find(|(sign, _)| text.starts_with(sign))
            .unwrap_or(("", Relation::Equal));
        let bound_text = text[sign.len()..].trim();
        let sign = if relation == Relation::Equal {
            "=="
        } else {
            sign
        };
        let (bound, in_share) = bound(figure, bound_text).ok_or_else(|| {
            format!(
                "{path}: expected {}, found {}",
                expected(figure),
                veche_terminal::describe(value)
            )
        })?;
        Ok(Self {
            figure,
            relation,
            bound,
            in_share,
            text: format!("{path} {sign} {bound_text}"),
        })
    }

    /// Parses an objective of the command line, such as `latency.p99 <= 50ms`.
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>', '=']).ok_or_else(|| {
            format!(
                "expected a figure and its bound such as \"latency.p99 <= 50ms\", found {text:?}"
            )
        })?;
        let (path, value) = text.split_at(at);
        Self::read(path.trim(), &DeValue::String(value.trim().into()))
    }

    /// Returns whether the objective can no longer be met with this number of errors, whatever happens in the rest of the run.
    pub(super) fn is_lost_with(&self, errors: u64) -> bool {
        let is_upper = matches!(
            self.relation,
            Relation::AtMost | Relation::Below | Relation::Equal
        );
        let errors = errors as f64;
        self.is_about_errors() && !self.in_share && is_upper && errors > self.bound
    }

    /// Returns the kinds of phases that measure the objective's figure; empty if all kinds do.
    pub(in crate::cli) fn kinds(&self) -> &'static [&'static str] {
        self.figure.kinds()
    }

    /// Returns whether the objective bounds the number of errors.
    pub(super) fn is_about_errors(&self) -> bool {
        self.figure.path == "errors"
    }

    /// Returns the name of the objective's figure.
    pub(super) fn path(&self) -> &'static str {
        self.figure.path
    }

    /// Returns whether the objective is meaningless if the requested rate was not reached.
    pub(super) fn depends_on_the_rate(&self) -> bool {
        let path = self.figure.path;
        path.starts_with("latency.")
            || path.starts_with("messages.received")
            || path.starts_with("server.cpu")
            || path == "messages.per_second"
    }

    /// Checks the objective for a phase.
    pub(super) fn evaluate(&self, report: &Report) -> Objective {
        match self.measured(report) {
            Some(value) => self.check(self.figure.show(value, self.in_share), self.keeps(value)),
            None => self.check(self.figure.why_absent(report).to_owned(), false),
        }
    }

    /// Checks the objective for a whole scenario. Additive figures are summed over the phases; other
    /// figures have to meet the objective in every phase.
    pub(super) fn evaluate_scenario(&self, whole: &Report) -> Objective {
        if self.figure.adds_up || self.figure.path == "seconds" {
            return self.evaluate(whole);
        }
        let measured = whole.phases.iter().filter_map(|phase| {
            let name = phase.settings.label.clone().unwrap_or_default();
            Some((self.measured(phase)?, name))
        });
        let worst = measured.max_by(|(one, _), (other, _)| self.worse(*one, *other));
        match worst {
            Some((value, name)) => {
                let shown = self.figure.show(value, self.in_share);
                self.check(format!("{shown} in {name}"), self.keeps(value))
            }
            None => self.check(self.figure.why_absent(whole).to_owned(), false),
        }
    }

    /// Returns the result for a phase that did not run.
    pub(super) fn unasked(&self, phase: &str) -> Objective {
        Objective {
            promise: format!("{phase}: {}", self.text),
            measured: "not measured: the scenario ended earlier".to_owned(),
            passed: false,
        }
    }

    fn measured(&self, report: &Report) -> Option<f64> {
        Figures::of(report).measured(self.figure, self.in_share)
    }

    fn keeps(&self, value: f64) -> bool {
        match self.relation {
            Relation::AtMost => value <= self.bound,
            Relation::Below => value < self.bound,
            Relation::AtLeast => value >= self.bound,
            Relation::Above => value > self.bound,
            Relation::Equal => (value - self.bound).abs() <= self.bound.abs() * 1e-9,
        }
    }

    /// Orders values by how badly they miss the objective.
    fn worse(&self, one: f64, other: f64) -> Ordering {
        match self.relation {
            Relation::AtMost | Relation::Below => one.total_cmp(&other),
            Relation::AtLeast | Relation::Above => other.total_cmp(&one),
            Relation::Equal => {
                let distance = |value: f64| (value - self.bound).abs();
                distance(one).total_cmp(&distance(other))
            }
        }
    }

    fn check(&self, measured: String, passed: bool) -> Objective {
        Objective {
            promise: self.text.clone(),
            measured,
            passed,
        }
    }
}

/// Parses the bound of an objective. The flag states whether the bound is a share of the figure's total; if not, it is in
/// the figure's unit. Returns `None` if the text is no bound for this figure.
fn bound(figure: &Figure, text: &str) -> Option<(f64, bool)> {
    let end = text
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '_'))
        .unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    let unit = text[end..].trim();
    if unit == "%" {
        // A figure that is itself a share has no total to compare with.
        let in_share = figure.unit != Unit::Share;
        return figure.has_share().then_some((number / 100.0, in_share));
    }
    let scale = |table: &[(&str, f64)]| {
        let known = table.iter().find(|(name, _)| *name == unit);
        known.map(|(_, factor)| number * factor)
    };
    let bound = match figure.unit {
        Unit::Time if unit.is_empty() && number == 0.0 => Some(0.0),
        Unit::Time => scale(&TIMES),
        Unit::Bytes => scale(&SIZES),
        Unit::Count | Unit::Rate | Unit::Share => unit.is_empty().then_some(number),
    }?;
    Some((bound, false))
}

fn expected(figure: &Figure) -> String {
    let (of, example) = match figure.unit {
        Unit::Time => ("a time with its unit (us, ms, s)", "<= 50ms"),
        Unit::Bytes => ("a size", "<= 4KiB"),
        Unit::Share => ("a share in percent", "<= 80%"),
        Unit::Count if figure.has_share() => ("a number or a percentage", "<= 0.1%"),
        Unit::Count | Unit::Rate => ("a number", ">= 1000"),
    };
    format!("{of} such as {example:?}")
}

fn unknown(path: &str) -> String {
    let names = || FIGURES.iter().map(|figure| figure.path);
    if let Some(meant) = veche_types::nearest(path, names()) {
        return format!(
            "unknown figure {path:?}{}",
            veche_terminal::did_you_mean(meant)
        );
    }
    let group = path.split('.').next().unwrap_or_default();
    let of_group: Vec<&str> = names()
        .filter(|name| name.split('.').next() == Some(group))
        .collect();
    if of_group.is_empty() {
        let mut groups: Vec<&str> = names().filter_map(|name| name.split('.').next()).collect();
        groups.dedup();
        groups.sort_unstable();
        groups.dedup();
        format!(
            "unknown figure {path:?}; the figures are {}",
            groups.join(", ")
        )
    } else {
        format!(
            "unknown figure {path:?}; the figures are {}",
            of_group.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::report::model::{Latency, LedgerCounts, Settings};

    use super::*;

    fn promise(path: &str, value: &str) -> Result<Slo, String> {
        Slo::read(path, DeValue::parse(value).unwrap().get_ref())
    }

    fn report(p99: f64, sent: u64, refused: u64) -> Report {
        let mut report = Report {
            latency_us: Some(Latency {
                p99,
                ..Latency::default()
            }),
            settings: Settings {
                label: Some(format!("p{p99}")),
                ..Settings::default()
            },
            ..Report::default()
        };
        report.messages.sent = sent;
        report.errors.refused = refused;
        report
    }

    #[test]
    fn kept_and_broken() {
        let report = report(50_000.0, 1000, 2);
        for (path, value, kept) in [
            ("latency.p99", "\"<= 50ms\"", true),
            ("latency.p99", "\"< 50ms\"", false),
            ("latency.p99", "\"<= 0.05 s\"", true),
            ("latency.p99", "\"<=49_999us\"", false),
            ("latency.p99", "\"> 49.9ms\"", true),
            ("errors", "2", true),
            ("errors", "\"== 0\"", false),
            ("errors", "\"<= 0.2%\"", true),
            ("errors", "\"<= 0.1%\"", false),
            ("errors.refused", "\"<= 2\"", true),
            ("errors.reset", "0", true),
            ("messages.sent", "\">= 1_000\"", true),
            // These figures are not measured, so the objectives are missed.
            ("ledger.lost", "0", false),
            ("handshake.p99", "\"<= 1h\"", false),
            ("server.bytes_per_connection", "\"<= 1GiB\"", false),
        ] {
            let check = promise(path, value).unwrap().evaluate(&report);
            assert_eq!(check.passed, kept, "{path} {value}: {check:?}");
        }
        let check = promise("latency.p99", "\"<=50ms\"")
            .unwrap()
            .evaluate(&report);
        assert_eq!(check.promise, "latency.p99 <= 50ms");
        assert_eq!(check.measured, "50 ms");
        let check = promise("errors", "\"<= 0.1%\"").unwrap().evaluate(&report);
        assert_eq!(
            (check.promise.as_str(), check.measured.as_str()),
            ("errors <= 0.1%", "0.2 %")
        );
    }

    #[test]
    fn of_the_whole_the_sum_or_the_worst_phase() {
        let mut whole = report(0.0, 3000, 3);
        whole.latency_us = None;
        whole.ledger = Some(LedgerCounts::default());
        whole.phases = vec![report(10.0, 1000, 3), report(30.0, 2000, 0)];
        let check = promise("latency.p99", "\"<= 20us\"")
            .unwrap()
            .evaluate_scenario(&whole);
        assert_eq!(
            (check.measured.as_str(), check.passed),
            ("30 us in p30", false)
        );
        let check = promise("latency.p99", "\">= 20us\"")
            .unwrap()
            .evaluate_scenario(&whole);
        assert_eq!(
            (check.measured.as_str(), check.passed),
            ("10 us in p10", false)
        );
        let check = promise("errors", "\"<= 0.1%\"")
            .unwrap()
            .evaluate_scenario(&whole);
        assert_eq!((check.measured.as_str(), check.passed), ("0.1 %", true));
        let check = promise("ledger.lost", "0")
            .unwrap()
            .evaluate_scenario(&whole);
        assert!(check.passed);
        let check = promise("handshake.max", "\"< 1s\"")
            .unwrap()
            .evaluate_scenario(&whole);
        assert_eq!(
            (check.measured.as_str(), check.passed),
            ("not measured: no connection was opened", false)
        );
    }

    #[test]
    fn invalid_objectives_are_rejected() {
        for (path, value, message) in [
            (
                "latency.p98",
                "0",
                "unknown figure \"latency.p98\"; did you mean \"latency.p90\"?",
            ),
            (
                "ledger.losses",
                "0",
                "unknown figure \"ledger.losses\"; did you mean \"ledger.lost\"?",
            ),
            (
                "latency.p99",
                "\"<= 50\"",
                "latency.p99: expected a time with its unit (us, ms, s) such as \"<= 50ms\", found \"<= 50\"",
            ),
            (
                "latency.p99",
                "50",
                "latency.p99: expected a time with its unit (us, ms, s) such as \"<= 50ms\", found 50",
            ),
            (
                "latency.p99",
                "\"<= 5%\"",
                "latency.p99: expected a time with its unit (us, ms, s) such as \"<= 50ms\", found \"<= 5%\"",
            ),
            (
                "errors",
                "\"few\"",
                "errors: expected a number or a percentage such as \"<= 0.1%\", found \"few\"",
            ),
            (
                "messages.sent",
                "true",
                "messages.sent: expected a number such as \">= 1000\", found true",
            ),
        ] {
            assert_eq!(promise(path, value), Err(message.to_owned()));
        }
        let message = promise("speed", "1").unwrap_err();
        assert!(
            message.starts_with("unknown figure \"speed\"; the figures are connections, errors,"),
            "{message}"
        );
    }
}
