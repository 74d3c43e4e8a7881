//! `--find-rate`: the highest rate at which a server meets its objectives.
//!
//! Each step is a separate run at one rate. The rate doubles until an objective is missed (or halves until all are
//! met); then the interval between the highest rate that passed and the lowest that failed is halved until it is
//! narrow.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::plan::Plan;
use crate::report::Report;
use crate::report::model::{Search, SearchStep};

use super::options::CommonArgs;
use super::progress_line::ProgressLine;
use super::running::{check_complete, deliver, measure};
use super::scenario::{Slo, check_phase, rate_reached, show_time};
use veche_terminal::exit::{self, CommandFailure, Exit};

/// The search ends when the highest passing rate and the lowest failing rate differ by at most this
/// factor.
const NARROW: f64 = 1.05;
/// Maximum number of steps of a search.
const STEPS_MAX: usize = 20;
/// The search ends when the rate falls below this fraction of the first rate.
const PART_MIN: f64 = 1.0 / 256.0;

/// The interval of rates that the search narrows.
#[derive(Clone, Copy, Debug)]
struct RateSearch {
    first: f64,
    /// The highest rate that passed; `None` if no rate has passed yet.
    held: Option<f64>,
    /// The lowest rate that failed; `None` if no rate has failed yet.
    broken: Option<f64>,
}

impl RateSearch {
    fn new(first: f64) -> Self {
        Self {
            first,
            held: None,
            broken: None,
        }
    }

    /// Returns the next rate to try; `None` at the end.
    fn next(&self) -> Option<f64> {
        match (self.held, self.broken) {
            (None, None) => Some(self.first),
            (Some(held), None) => Some(held * 2.0),
            (None, Some(broken)) => {
                let next = broken / 2.0;
                (next >= self.first * PART_MIN).then_some(next)
            }
            (Some(held), Some(broken)) => {
                (broken > held * NARROW).then_some(f64::midpoint(held, broken))
            }
        }
    }

    fn record_step(&mut self, rate: f64, is_held: bool) {
        if is_held {
            self.held = Some(rate);
        } else {
            self.broken = Some(rate);
        }
    }
}

/// Searches for the highest passing rate, starting at the rate of `plan`. Prints a line for each step. The
/// report describes the run at the rate that was found, or the last run if no rate passed.
pub(super) fn run(
    kind: &str,
    common: &CommonArgs,
    plan: &Plan,
    promises: &[String],
    interrupts: &AtomicUsize,
) -> Result<(), CommandFailure> {
    let promises = promises
        .iter()
        .map(|text| read(kind, text))
        .collect::<Result<Vec<_>, CommandFailure>>()?;
    let rate = plan.load.rate().unwrap_or_default();
    let mut interval = RateSearch::new(rate);
    let mut search = Search::default();
    let mut best = None;
    let mut last = None;
    while let Some(rate) = interval.next().filter(|_| search.steps.len() < STEPS_MAX) {
        let mut plan = plan.clone();
        plan.load.set_rate(rate);
        let planned_ns = plan.duration_ns.map(|ns| ns + plan.warmup_ns);
        let mut line = ProgressLine::new(common.output.json, planned_ns)
            .of_phase(format!("{rate:.0} a second"));
        let report = measure(
            kind,
            common,
            plan,
            common.output.pid,
            interrupts,
            &AtomicBool::new(false),
            &mut |progress| line.show(&progress),
        );
        line.clear();
        let report = report?;
        if report.interrupted {
            last = Some(report);
            break;
        }
        let step = evaluate(rate, &report, &promises);
        interval.record_step(rate, step.held);
        if !common.output.json {
            exit::print_line(format_args!("{}", shown(&step)))?;
        }
        if step.held {
            best = Some(report);
        } else {
            last = Some(report);
        }
        search.steps.push(step);
    }
    (search.rate, search.broken_at) = (interval.held, interval.broken);
    let words = conclusion(&search);
    let is_interrupted = last.as_ref().is_some_and(|report| report.interrupted);
    let Some(mut report) = best.or(last) else {
        return Ok(());
    };
    report.interrupted |= is_interrupted;
    report.search = Some(search);
    if !common.output.json {
        exit::print_line(format_args!("\n{words}\n"))?;
    }
    deliver(&report, &common.output)?;
    check_complete(&report)?;
    match interval.held {
        Some(_) => Ok(()),
        None => Err(CommandFailure::new(Exit::Errors, words)),
    }
}

fn read(kind: &str, text: &str) -> Result<Slo, CommandFailure> {
    let usage = |words: String| CommandFailure::new(Exit::Usage, format!("--find-rate: {words}"));
    let promise = Slo::parse(text).map_err(usage)?;
    let kinds = promise.kinds();
    if !kinds.is_empty() && !kinds.contains(&kind) {
        return Err(usage(format!(
            "{text}: a run of kind {kind} does not measure this figure"
        )));
    }
    Ok(promise)
}

/// Evaluates a step: a rate passes if it is reached without errors and meets all objectives. A
/// tester that is the bottleneck makes figures worse, never better, so a bottleneck is mentioned
/// only for failed steps.
fn evaluate(rate: f64, report: &Report, promises: &[Slo]) -> SearchStep {
    let mut checks = check_phase(report, promises, &[], true);
    if report.messages.rate_reached == Some(false) && checks.iter().all(|check| check.passed) {
        checks.push(rate_reached(report));
    }
    let mut broken: Vec<String> = checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| format!("{}: {}", check.promise, check.measured))
        .collect();
    if !broken.is_empty() && report.generator.bottleneck {
        let reasons = report.generator.reasons.join("; ");
        broken.push(format!("the tester was the bottleneck: {reasons}"));
    }
    SearchStep {
        rate,
        per_second: report.messages.per_second,
        p99_us: report.latency_us.as_ref().map(|latency| latency.p99),
        held: broken.is_empty() && report.messages.received > 0,
        broken,
    }
}

fn shown(step: &SearchStep) -> String {
    let p99 = step.p99_us.map_or_else(|| "-".to_owned(), show_time);
    let outcome = match (step.held, step.broken.is_empty()) {
        (true, _) => "objectives met".to_owned(),
        (false, true) => "failed: nothing was received".to_owned(),
        (false, false) => format!("failed: {}", step.broken.join("; ")),
    };
    format!(
        "rate {:>10.0}/s  received {:>10.0}/s  p99 {p99:>9}  {outcome}",
        step.rate, step.per_second
    )
}

fn conclusion(search: &Search) -> String {
    match (search.rate, search.broken_at) {
        (Some(held), Some(broken)) => {
            format!(
                "the highest rate that met the objectives: {held:.0} a second; {broken:.0} a second did not"
            )
        }
        (Some(held), None) => {
            format!("{held:.0} a second met the objectives, and no higher rate was tried")
        }
        (None, Some(broken)) => {
            format!("no rate met the objectives, not even the lowest one, {broken:.0} a second")
        }
        (None, None) => "no rate was tried".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches from the rate `first` for a server's capacity `limit`. Returns the rates that were tried, and the
    /// finished search.
    fn tried(first: f64, limit: f64) -> (Vec<f64>, RateSearch) {
        let mut interval = RateSearch::new(first);
        let mut rates = Vec::new();
        while let Some(rate) = interval.next() {
            rates.push(rate);
            interval.record_step(rate, rate <= limit);
        }
        (rates, interval)
    }

    #[test]
    fn the_interval_narrows() {
        for (first, limit) in [
            (1000.0, 13_700.0),
            (100_000.0, 13_700.0),
            (13_700.0, 13_700.0),
        ] {
            let (rates, interval) = tried(first, limit);
            let (held, broken) = (interval.held.unwrap(), interval.broken.unwrap());
            assert!(
                held <= limit && limit < broken && broken <= held * NARROW,
                "{interval:?}"
            );
            assert!(rates.len() <= STEPS_MAX, "{rates:?}");
        }
        let (rates, interval) = tried(1000.0, 0.0);
        assert_eq!(interval.held, None);
        assert_eq!(rates.len(), 9);
    }
}
