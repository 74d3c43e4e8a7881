//! Warnings about a comparison of reports, such as different settings or runs that are too short.

use super::super::model::{Report, Settings};
use super::super::text::{doubts, is_bottleneck};
use super::super::units::{clean, many, seconds, share};
use super::Group;

/// Runs shorter than this number of seconds cause a warning, because they mostly measure the start
/// of the load.
const SECONDS_MIN: f64 = 5.0;

pub(super) fn of(groups: &[(Group, Vec<&Report>)]) -> Vec<String> {
    let mut warnings = Vec::new();
    let runs: Vec<(&str, &Report)> = groups
        .iter()
        .flat_map(|(group, runs)| {
            group
                .files
                .iter()
                .map(String::as_str)
                .zip(runs.iter().copied())
        })
        .collect();
    let Some((_, first)) = runs.first() else {
        return warnings;
    };
    for (_, run) in &runs {
        if run.kind != first.kind {
            push(
                &mut warnings,
                format!(
                    "Different kinds of runs: {} and {}. Their figures are not comparable.",
                    first.kind, run.kind
                ),
            );
        }
        for (name, one, other) in settings(&first.settings, &run.settings) {
            push(
                &mut warnings,
                format!("Different settings: {name} {one} and {other}."),
            );
        }
        let machine = |run: &Report| {
            format!(
                "{}, {}, Linux {}",
                run.machine.cpu,
                many(run.machine.cores as u64, "core"),
                run.machine.kernel
            )
        };
        if machine(run) != machine(first) {
            push(
                &mut warnings,
                format!(
                    "Different machines: {} and {}.",
                    clean(&machine(first)),
                    clean(&machine(run))
                ),
            );
        }
        if run.machine.veche != first.machine.veche {
            let (one, other) = (clean(&first.machine.veche), clean(&run.machine.veche));
            push(
                &mut warnings,
                format!("Different versions of the tester: {one} and {other}."),
            );
        }
    }
    for (file, run) in &runs {
        let file = clean(file);
        if is_bottleneck(run) {
            push(
                &mut warnings,
                format!(
                    "{file}: the tester was the bottleneck, so the figures describe the tester."
                ),
            );
        }
        if run.interrupted {
            push(
                &mut warnings,
                format!(
                    "{file}: the run was interrupted after {}.",
                    seconds(run.seconds)
                ),
            );
        } else if run.seconds < SECONDS_MIN && run.settings.duration_s.is_some() {
            push(
                &mut warnings,
                format!("{file}: the run lasted only {}.", seconds(run.seconds)),
            );
        }
        for doubt in doubts(run) {
            push(&mut warnings, format!("{file}: {}", clean(&doubt)));
        }
        let broken = run
            .checks
            .iter()
            .chain(run.phases.iter().flat_map(|phase| &phase.checks))
            .filter(|check| !check.passed);
        let broken = broken.count() as u64;
        if broken > 0 {
            push(
                &mut warnings,
                format!("{file}: {} broken.", many(broken, "promise")),
            );
        }
    }
    for (other, other_runs) in groups.iter().skip(1) {
        let (base, base_runs) = &groups[0];
        if super::fail_differently(base_runs, other_runs) {
            push(
                &mut warnings,
                format!(
                    "No verdict: up to {1} of the operations of {0} failed, and up to {3} of those of {2}. Failures are often fast and do no work.",
                    clean(&base.name),
                    share(super::failures(base_runs)),
                    clean(&other.name),
                    share(super::failures(other_runs))
                ),
            );
        }
        if one_after_the_other(base_runs, other_runs) {
            push(
                &mut warnings,
                format!(
                    "The runs of {} and {} did not alternate. A change of the machine in between would look like a difference: alternate the runs.",
                    clean(&base.name),
                    clean(&other.name)
                ),
            );
        }
    }
    let all_reached = runs
        .iter()
        .all(|(_, run)| run.messages.rate_reached != Some(false));
    if first.settings.rate.is_some() && all_reached && first.kind != "storm" && groups.len() > 1 {
        push(
            &mut warnings,
            "Open loop: the throughput is the requested rate, not the server's capacity."
                .to_owned(),
        );
    }
    warnings
}

fn push(warnings: &mut Vec<String>, warning: String) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

/// Returns the settings that differ between two runs, each with its two values.
fn settings(one: &Settings, other: &Settings) -> Vec<(&'static str, String, String)> {
    let list = |settings: &Settings| {
        let number =
            |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
        [
            ("connections", settings.connections.to_string()),
            ("duration", number(settings.duration_s)),
            ("warm-up", settings.warmup_s.to_string()),
            ("rate", number(settings.rate)),
            ("size", number(settings.size_bytes.map(|size| size as f64))),
            (
                "in flight",
                number(settings.inflight.map(|inflight| inflight as f64)),
            ),
            ("threads", settings.threads.to_string()),
            ("processes", settings.processes.to_string()),
            ("flags", flags(&settings.command)),
        ]
    };
    let mut differing = Vec::new();
    for ((name, one), (_, other)) in list(one).into_iter().zip(list(other)) {
        // If another setting differs, the flags usually differ as well. They are reported only if
        // no other setting differs.
        if one != other && (name != "flags" || differing.is_empty()) {
            differing.push((name, clean(&one), clean(&other)));
        }
    }
    differing
}

/// Returns the flags of a command that affect the load: all except target, label, outputs and
/// `--pid`.
fn flags(command: &[String]) -> String {
    let mut flags = Vec::new();
    let mut words = command.iter().skip(1).peekable();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or(word);
        if matches!(name, "--label" | "--html" | "--pid") {
            if name == word {
                words.next();
            }
        } else if name != "--json" && !word.contains("://") {
            flags.push(word.as_str());
        }
    }
    if flags.is_empty() {
        "none".to_owned()
    } else {
        flags.join(" ")
    }
}

/// Returns whether both groups have several runs and all runs of one group began before all runs of
/// the other.
fn one_after_the_other(one: &[&Report], other: &[&Report]) -> bool {
    let ends = |runs: &[&Report]| {
        let starts = runs.iter().map(|run| run.started.clone());
        (
            starts.clone().min().unwrap_or_default(),
            starts.max().unwrap_or_default(),
        )
    };
    let ((one_first, one_last), (other_first, other_last)) = (ends(one), ends(other));
    let known = one
        .iter()
        .chain(other)
        .all(|run| super::is_rfc3339(&run.started));
    known && one.len() > 1 && other.len() > 1 && (one_last < other_first || other_last < one_first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_that_shape_the_load() {
        let command = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            flags(&command(
                "echo ws://a/b --label x --deflate --pid=7 --json --html f.html"
            )),
            "--deflate"
        );
        assert_eq!(flags(&command("echo ws://a/b")), "none");
    }
}
