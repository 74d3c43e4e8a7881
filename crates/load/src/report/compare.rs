//! Comparison of runs: the ratios of each group to the first one, their confidence, and whether
//! they are noise.
//!
//! Runs with the same label are samples of one group. A difference between groups matters only if
//! it exceeds the differences within the groups, so every ratio has a confidence interval and
//! states how the interval was computed. If the runs are too few to decide, a difference is called
//! unjudged.

mod estimate;
mod metrics;
mod text;
mod warnings;

use serde::{Deserialize, Serialize};

use super::model::Report;
pub use estimate::{Estimate, EstimateMethod};
use metrics::Sample;
pub use metrics::{Better, Unit};
pub use text::text;

/// Minimum confidence for calling a difference real.
const CONFIDENCE_MIN: f64 = 0.95;

/// The result of a comparison, printed by `veche bench compare --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Version of this format, which is the version of the reports.
    pub schema: u32,
    /// The groups in the given order. Each group after the first is compared with the first.
    pub groups: Vec<Group>,
    /// A row for each figure that at least one run has.
    pub rows: Vec<ComparisonRow>,
    /// Reasons to doubt the comparison, a sentence each.
    pub warnings: Vec<String>,
}

/// A group of runs that are compared as one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The label of the group's runs, or the name of the group's only file.
    pub name: String,
    /// The files in the given order.
    pub files: Vec<String>,
    /// The target of the first run.
    pub target: String,
}

/// One figure of all groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparisonRow {
    /// The figure's key in the report, such as `latency_us.p99`. For a phase of a scenario, it
    /// begins with `phases[N].`.
    pub metric: String,
    /// The title shown to people.
    pub title: String,
    /// The unit of the figure.
    pub unit: Unit,
    /// The direction of improvement.
    pub better: Better,
    /// One entry per group; absent if no run of the group has the figure.
    pub values: Vec<Option<GroupValue>>,
    /// The comparison of each group after the first with the first; absent if either group lacks the
    /// figure.
    pub against_first: Vec<Option<RatioVerdict>>,
}

/// A figure of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupValue {
    /// The median of the figure over the group's runs.
    pub median: f64,
    /// The minimum of the figure over the group's runs.
    pub min: f64,
    /// The maximum of the figure over the group's runs.
    pub max: f64,
    /// The number of runs that have the figure.
    pub runs: usize,
}

/// The comparison of a group's figure with that of the first group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioVerdict {
    /// The ratio and its interval; absent if a figure is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// The conclusion from the ratio.
    pub verdict: Verdict,
}

/// The conclusion from a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The confidence interval of the ratio is on the better side of 1.
    Better,
    /// The confidence interval of the ratio is on the worse side of 1.
    Worse,
    /// The confidence interval of the ratio contains 1: the groups differ no more than the runs
    /// within a group.
    Noise,
    /// The runs are too few, a figure is 0, or one group fails more often than the other.
    Unjudged,
}

/// Compares reports. The name of each report, such as its file name, is used if the report has no
/// label.
#[must_use]
pub fn compare(reports: &[(String, Report)]) -> Comparison {
    let mut groups: Vec<(Group, Vec<&Report>)> = Vec::new();
    for (file, report) in reports {
        let name = report
            .settings
            .label
            .as_deref()
            .filter(|label| !label.is_empty())
            .unwrap_or(file);
        match groups.iter_mut().find(|(group, _)| group.name == name) {
            Some((group, runs)) => {
                group.files.push(file.clone());
                runs.push(report);
            }
            None => {
                let group = Group {
                    name: name.to_owned(),
                    files: vec![file.clone()],
                    target: report.target.clone(),
                };
                groups.push((group, vec![report]));
            }
        }
    }
    let rows = rows(&groups);
    let warnings = warnings::of(&groups);
    Comparison {
        schema: super::model::SCHEMA,
        groups: groups.into_iter().map(|(group, _)| group).collect(),
        rows,
        warnings,
    }
}

/// Returns two names of the same run, if a run was given twice or copied. Such a run must not count
/// as two samples.
#[must_use]
pub fn same_run(reports: &[(String, Report)]) -> Option<(&str, &str)> {
    reports.iter().enumerate().find_map(|(index, (name, run))| {
        let (first, _) = reports[..index].iter().find(|(_, before)| before == run)?;
        Some((first.as_str(), name.as_str()))
    })
}

/// Encodes a comparison in its public format.
///
/// # Errors
/// Never in practice, since all keys are strings.
pub fn to_json(comparison: &Comparison) -> serde_json::Result<String> {
    serde_json::to_string_pretty(comparison)
}

/// If the failure shares of two groups differ by more than this, the groups did different work.
const FAILURES_APART_MAX: f64 = 0.001;

/// Returns the largest share of failures among the runs of a group.
fn failures(runs: &[&Report]) -> f64 {
    let share = |run: &&Report| {
        let sent = run.messages.sent.max(run.connections.asked).max(1);
        (run.errors.count() as f64 / sent as f64).min(1.0)
    };
    runs.iter().map(share).fold(0.0, f64::max)
}

/// Returns whether the failure shares of two groups differ too much to compare their figures.
fn fail_differently(one: &[&Report], other: &[&Report]) -> bool {
    (failures(one) - failures(other)).abs() > FAILURES_APART_MAX
}

fn rows(groups: &[(Group, Vec<&Report>)]) -> Vec<ComparisonRow> {
    let samples: Vec<Vec<Sample>> = groups
        .iter()
        .map(|(_, runs)| runs.iter().flat_map(|report| metrics::of(report)).collect())
        .collect();
    // Rows are in the order in which their figures first occur in the runs.
    let mut keys: Vec<&Sample> = Vec::new();
    for sample in samples.iter().flatten() {
        if !keys.iter().any(|known| known.metric == sample.metric) {
            keys.push(sample);
        }
    }
    keys.iter()
        .map(|key| {
            let of_group: Vec<Vec<&Sample>> = samples
                .iter()
                .map(|group| {
                    group
                        .iter()
                        .filter(|sample| sample.metric == key.metric)
                        .collect()
                })
                .collect();
            ComparisonRow {
                metric: key.metric.clone(),
                title: key.title.clone(),
                unit: key.unit,
                better: key.better,
                values: of_group.iter().map(|group| value(group)).collect(),
                against_first: of_group[1..]
                    .iter()
                    .enumerate()
                    .map(|(index, group)| {
                        compare_ratio(
                            key.better,
                            (&of_group[0], &groups[0].1),
                            (group, &groups[index + 1].1),
                        )
                    })
                    .collect(),
            }
        })
        .collect()
}

fn value(samples: &[&Sample]) -> Option<GroupValue> {
    let mut values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    Some(GroupValue {
        median: estimate::median(&values),
        min,
        max,
        runs: values.len(),
    })
}

type Side<'a> = (&'a [&'a Sample], &'a [&'a Report]);

fn compare_ratio(better: Better, first: Side<'_>, other: Side<'_>) -> Option<RatioVerdict> {
    if first.0.is_empty() || other.0.is_empty() {
        return None;
    }
    let estimate = estimate_of(first, other);
    let verdict = match &estimate {
        None => Verdict::Unjudged,
        Some(_) if fail_differently(first.1, other.1) => Verdict::Unjudged,
        Some(estimate)
            if estimate.low <= 1.0
                && 1.0 <= estimate.high
                && estimate.method != EstimateMethod::Single =>
        {
            Verdict::Noise
        }
        // With one run per group, it is unknown how much two runs of the same group would differ.
        Some(estimate)
            if matches!(
                estimate.method,
                EstimateMethod::Single | EstimateMethod::WithinRuns
            ) =>
        {
            Verdict::Unjudged
        }
        Some(estimate) if estimate.confidence < CONFIDENCE_MIN => Verdict::Unjudged,
        Some(estimate) if (estimate.ratio > 1.0) == (better == Better::Higher) => Verdict::Better,
        Some(_) => Verdict::Worse,
    };
    Some(RatioVerdict { estimate, verdict })
}

fn estimate_of((first, first_runs): Side<'_>, (other, other_runs): Side<'_>) -> Option<Estimate> {
    let values = |samples: &[&Sample]| {
        samples
            .iter()
            .map(|sample| sample.value)
            .collect::<Vec<_>>()
    };
    let (a, b) = (values(first), values(other));
    if a.iter().chain(&b).any(|value| *value <= 0.0) {
        return None;
    }
    if let ([one], [another]) = (first, other) {
        let ratio = another.value / one.value;
        let inside = estimate::unpaired(&one.batches, &another.batches);
        return Some(match inside {
            Some(inside) => Estimate {
                ratio,
                method: EstimateMethod::WithinRuns,
                ..inside
            },
            None => Estimate {
                ratio,
                low: ratio,
                high: ratio,
                confidence: 0.0,
                method: EstimateMethod::Single,
            },
        });
    }
    if let Some(order) = pairs(first_runs, other_runs)
        && a.len() == first_runs.len()
        && b.len() == other_runs.len()
    {
        let ratios: Vec<f64> = order.iter().map(|&(i, j)| b[j] / a[i]).collect();
        if let Some(estimate) = estimate::paired(&ratios) {
            return Some(estimate);
        }
    }
    estimate::unpaired(&a, &b)
}

/// Returns pairs of runs, one from each group, in chronological order; `None` if the groups did not
/// alternate. They alternated if both runs of each pair started before either run of the next pair.
fn pairs(first: &[&Report], other: &[&Report]) -> Option<Vec<(usize, usize)>> {
    let by_time = |runs: &[&Report]| {
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by(|a, b| runs[*a].started.cmp(&runs[*b].started));
        order
    };
    let known = first
        .iter()
        .chain(other)
        .all(|report| is_rfc3339(&report.started));
    if first.len() != other.len() || !known {
        return None;
    }
    let order: Vec<(usize, usize)> = by_time(first).into_iter().zip(by_time(other)).collect();
    let took_turns = order.windows(2).all(|window| {
        let [(i, j), (next_i, next_j)] = [window[0], window[1]];
        let end = (&first[i].started).max(&other[j].started);
        end < (&first[next_i].started).min(&other[next_j].started)
    });
    took_turns.then_some(order)
}

/// Returns whether a time has the format `2026-11-21T06:00:00Z`, whose alphabetical order is
/// chronological.
fn is_rfc3339(time: &str) -> bool {
    time.len() >= 20
        && time.is_char_boundary(10)
        && time[10..].starts_with('T')
        && time.ends_with('Z')
}

#[cfg(test)]
mod tests;
