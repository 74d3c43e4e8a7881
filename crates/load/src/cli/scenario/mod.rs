//! `veche bench scenario`: one run that consists of several phases, each a run of another command,
//! with objectives for the server.
//!
//! [`file`] parses the scenario, and [`slo`] its objectives. The phases run consecutively or concurrently.
//! [`merged_report`] merges their reports, [`slo`] checks the objectives, and [`text`] prints the results.

mod args;
mod command_flags;
mod figures;
mod file;
mod flag_value;
mod merged_report;
mod slo;
mod text;
mod url_override;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

use crate::RunProgress;
use crate::report::model::{LedgerCounts, Objective, Report, ServerUse};
use crate::run::is_running;

use super::progress_line::{self, ProgressLine};
use super::running::{
    check_complete, check_reached, interrupts, measure, print_json, write_page, write_timeline,
};
pub(super) use args::ScenarioArgs;
pub(super) use figures::show_time;
use file::{Scenario, ScenarioPhase};
pub(super) use slo::Slo;
use url_override::UrlOverride;
use veche_terminal::exit::{self, CommandFailure, Exit};

/// Runs the scenario of a file.
pub(super) fn run(args: &ScenarioArgs) -> Result<(), CommandFailure> {
    let elsewhere = UrlOverride {
        url: args.url.clone(),
        publish: args.publish.clone(),
    };
    let scenario = file::read(&args.file, &elsewhere)
        .map_err(|report| CommandFailure::problems(Exit::Usage, &report))?;
    if let Some(pid) = args.pid.filter(|pid| !is_running(*pid)) {
        return Err(CommandFailure::new(
            Exit::Usage,
            format!("--pid {pid}: no such process"),
        ));
    }
    let interrupts = interrupts()?;
    let phases = run_phases(&scenario, args, &interrupts)?;
    let mut report = merged_report::merge_phases(phases, args.label.clone());
    report.interrupted |= interrupts.load(SeqCst) > 0;
    report.stopped |= !report.interrupted && report.phases.len() < scenario.phases.len();
    check_slos(&scenario, &mut report);
    deliver(&report, args)?;
    check_complete(&report)?;
    check_reached(&report)?;
    exit_result(&report)
}

/// Runs the phases until an interrupt, or until an objective is missed if `stop_on_broken` is set. Returns each report,
/// and whether its phase ran concurrently with the previous one.
fn run_phases(
    scenario: &Scenario,
    args: &ScenarioArgs,
    interrupts: &AtomicUsize,
) -> Result<Vec<(Report, bool)>, CommandFailure> {
    let mut reports = Vec::new();
    let mut rss_before = None;
    let mut is_broken = false;
    for group in scenario.phases.chunk_by(|_, next| next.together) {
        if interrupts.load(SeqCst) > 0 || (scenario.stop_on_broken && is_broken) {
            break;
        }
        let pid = args.pid.filter(|pid| is_running(*pid));
        let mut line = ProgressLine::new(args.json, planned_ns(group)).of_phase(names(group));
        let results = run_together(scenario, group, pid, interrupts, &mut line);
        line.clear();
        for (index, report) in results.into_iter().enumerate() {
            let mut report = report?;
            if pid.is_none() {
                report.server_ended = args.pid;
            }
            if group.len() > 1 {
                // The resource use of concurrent phases can't be separated.
                report.server = None;
                report.generator.bytes_per_connection = None;
            }
            if let Some(server) = &mut report.server {
                let before = *rss_before.get_or_insert(server.rss_before_bytes);
                count_from(before, server, report.connections.opened);
            }
            let phase = &group[index];
            report.checks = check_phase(
                &report,
                &phase.promises,
                &scenario.promises,
                phase.allow_bottleneck,
            );
            is_broken |= report.checks.iter().any(|check| !check.passed);
            reports.push((report, index > 0));
        }
    }
    Ok(reports)
}

/// Makes `server` count the growth of memory from the value before the first phase. A server does
/// not release memory immediately, so the growth since the previous phase would be too low.
fn count_from(rss_before_bytes: u64, server: &mut ServerUse, opened: u64) {
    server.rss_before_bytes = rss_before_bytes;
    if server.bytes_per_connection.is_some() && opened > 0 {
        let grown = server.rss_open_bytes.saturating_sub(rss_before_bytes);
        server.bytes_per_connection = Some(grown as f64 / opened as f64);
    }
}

fn run_together(
    scenario: &Scenario,
    group: &[ScenarioPhase],
    pid: Option<u32>,
    interrupts: &AtomicUsize,
    line: &mut ProgressLine,
) -> Vec<Result<Report, CommandFailure>> {
    let (first, others) = group
        .split_first()
        .expect("a group of phases must not be empty");
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let others: Vec<_> = others
            .iter()
            .map(|phase| scope.spawn(move || run_one(scenario, phase, pid, interrupts, stop, None)))
            .collect();
        let first = run_one(scenario, first, pid, interrupts, stop, Some(line));
        let others = others.into_iter().map(|thread| {
            let panicked = |_| Err(CommandFailure::new(Exit::Failed, "the tester has panicked"));
            thread.join().unwrap_or_else(panicked)
        });
        [first].into_iter().chain(others).collect()
    })
}

/// Returns the planned duration of concurrent phases in nanoseconds: that of the longest phase, with its warm-up.
/// `None` if the duration of a phase is unknown.
fn planned_ns(group: &[ScenarioPhase]) -> Option<u64> {
    let planned = |phase: &ScenarioPhase| Some(phase.plan.duration_ns? + phase.plan.warmup_ns);
    let all: Option<Vec<u64>> = group.iter().map(planned).collect();
    all?.into_iter().max()
}

fn names(group: &[ScenarioPhase]) -> String {
    let names: Vec<&str> = group.iter().map(|phase| phase.name.as_str()).collect();
    names.join(" + ")
}

fn run_one(
    scenario: &Scenario,
    phase: &ScenarioPhase,
    pid: Option<u32>,
    interrupts: &AtomicUsize,
    stop: &AtomicBool,
    mut line: Option<&mut ProgressLine>,
) -> Result<Report, CommandFailure> {
    let Some((kind, common, _)) = phase.command.plan() else {
        return Err(CommandFailure::new(
            Exit::Usage,
            "this command can't be a phase of a scenario",
        ));
    };
    let promises = phase.promises.iter().chain(&scenario.promises);
    let mut about_errors: Vec<Slo> = promises
        .filter(|promise| promise.is_about_errors())
        .cloned()
        .collect();
    if about_errors.is_empty() {
        about_errors.push(Slo::no_errors());
    }
    let mut progress = |progress: RunProgress| {
        let is_lost = (about_errors.iter()).any(|promise| promise.is_lost_with(progress.errors));
        if scenario.stop_on_broken && is_lost {
            stop.store(true, SeqCst);
        }
        if let Some(line) = &mut line {
            line.show(&progress);
        }
    };
    let plan = phase.plan.clone();
    let mut report =
        measure(kind, common, plan, pid, interrupts, stop, &mut progress).map_err(|failure| {
            CommandFailure::new(
                failure.exit,
                format!("{}: {}", phase.name, failure.message()),
            )
        })?;
    report.settings.label = Some(phase.name.clone());
    Ok(report)
}

/// Checks the objectives of a phase: `promises` and the default objectives. A default objective
/// does not apply if `promises` or the scenario's objectives (`whole`) cover its figure.
pub(super) fn check_phase(
    report: &Report,
    promises: &[Slo],
    whole: &[Slo],
    allow_bottleneck: bool,
) -> Vec<Objective> {
    let mut checks: Vec<Objective> = promises
        .iter()
        .map(|promise| promise.evaluate(report))
        .collect();
    let all = || promises.iter().chain(whole);
    if !all().any(Slo::is_about_errors) {
        checks.push(Slo::no_errors().evaluate(report));
    }
    let named: Vec<&str> = all().map(Slo::path).collect();
    let duplicated = report.messages.duplicated;
    if duplicated > 0 && !named.contains(&"messages.duplicated") {
        checks.push(Objective {
            promise: "messages.duplicated == 0".to_owned(),
            measured: duplicated.to_string(),
            passed: false,
        });
    }
    if let Some(ledger) = &report.ledger {
        checks.extend(no_faults(ledger, &named));
    }
    if report.generator.bottleneck && !allow_bottleneck {
        checks.push(Objective {
            promise: "the tester is not the bottleneck".to_owned(),
            measured: report.generator.reasons.join("; "),
            passed: false,
        });
    }
    if report.messages.rate_reached == Some(false) && all().any(Slo::depends_on_the_rate) {
        checks.push(rate_reached(report));
    }
    if report.incomplete {
        checks.push(all_counted(report));
    }
    if report.stopped {
        checks.push(Objective {
            promise: "the phase ran to its end".to_owned(),
            measured: "stopped: too many errors".to_owned(),
            passed: false,
        });
    }
    for check in &mut checks {
        explain(check, report);
    }
    checks
}

/// Records the results of the scenario's objectives.
fn check_slos(scenario: &Scenario, report: &mut Report) {
    let mut checks: Vec<Objective> = scenario
        .promises
        .iter()
        .map(|promise| promise.evaluate_scenario(report))
        .collect();
    for phase in &scenario.phases[report.phases.len()..] {
        checks.extend(
            phase
                .promises
                .iter()
                .map(|promise| promise.unasked(&phase.name)),
        );
    }
    if report.interrupted {
        checks.push(Objective {
            promise: "all phases ran to their end".to_owned(),
            measured: format!(
                "interrupted in phase {} of {}",
                report.phases.len(),
                scenario.phases.len()
            ),
            passed: false,
        });
    }
    for check in &mut checks {
        explain(check, report);
    }
    report.checks = checks;
}

/// Returns the missed objective of a phase that did not reach its rate.
pub(super) fn rate_reached(report: &Report) -> Objective {
    let rate = report.settings.rate.unwrap_or_default();
    Objective {
        promise: "the requested rate was reached".to_owned(),
        measured: format!(
            "the rate was {:.0} a second, but {rate:.0} a second were requested",
            report.messages.per_second
        ),
        passed: false,
    }
}

/// Returns the default objective: the ledger has no faults. Kinds of faults that have an objective
/// of their own are left out; returns `None` if all kinds have one.
fn no_faults(ledger: &LedgerCounts, named: &[&str]) -> Option<Objective> {
    let faults = [
        ("lost", ledger.lost),
        ("duplicated", ledger.duplicated),
        ("reordered", ledger.reordered),
        ("corrupted", ledger.corrupted),
    ];
    let is_named = |name: &str| {
        let mut paths = named.iter().filter_map(|path| path.strip_prefix("ledger."));
        paths.any(|path| path == name)
    };
    let unnamed: Vec<_> = faults.iter().filter(|(name, _)| !is_named(name)).collect();
    let names: Vec<&str> = unnamed.iter().map(|(name, _)| *name).collect();
    let found = unnamed.iter().filter(|(_, count)| *count > 0);
    let found: Vec<String> = found
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    (!names.is_empty()).then(|| Objective {
        promise: format!("ledger: {} == 0", names.join(", ")),
        passed: found.is_empty(),
        measured: if found.is_empty() {
            "0".to_owned()
        } else {
            found.join(", ")
        },
    })
}

/// Returns the missed objective of a phase in which processes of the tester died. Their counts are
/// missing.
fn all_counted(report: &Report) -> Objective {
    let lost = &report.generator.lost;
    let how: Vec<String> = lost
        .iter()
        .map(|one| format!("process {}: {}", one.process, one.how))
        .collect();
    Objective {
        promise: "all processes of the tester are alive".to_owned(),
        measured: format!("{} lost ({})", lost.len(), how.join("; ")),
        passed: false,
    }
}

/// Adds the text of the first error to a missed objective about errors.
fn explain(check: &mut Objective, report: &Report) {
    if !check.passed
        && check.promise.starts_with("errors")
        && let Some((cause, words)) = report.errors.examples.iter().next()
    {
        check.measured += &format!(", for example {cause}: {words}");
    }
}

fn deliver(report: &Report, args: &ScenarioArgs) -> Result<(), CommandFailure> {
    write_page(report, args.html.as_deref())?;
    write_timeline(report, args.csv.as_deref())?;
    if args.json {
        return print_json(report);
    }
    if args.full {
        let text = crate::report::text::text(report, progress_line::style());
        exit::print(format_args!("{text}\n"))?;
    }
    exit::print(format_args!("{}", text::text(report, &args.file)))
}

/// Returns the result that sets the exit code: an error if any objective was missed.
fn exit_result(report: &Report) -> Result<(), CommandFailure> {
    let (broken, all) = merged_report::broken(report);
    if broken == 0 {
        return Ok(());
    }
    let words = format!("{broken} of {all} promises were broken");
    Err(CommandFailure::new(Exit::Errors, words))
}
