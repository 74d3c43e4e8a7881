//! Tests comparisons of runs whose true ratio is known.

use super::super::fixture::full;
use super::super::text::Style;
use super::*;

/// Returns a run without errors. Its throughput is the fixture's times `factor`, and its latencies
/// are divided by `factor`. `turn` is the position of the run in time.
fn run(label: &str, factor: f64, turn: u32) -> (String, Report) {
    let mut report = full();
    report.started = format!("2026-11-21T{:02}:{:02}:00Z", 6 + turn / 60, turn % 60);
    report.settings.label = (!label.is_empty()).then(|| label.to_owned());
    report.settings.rate = None;
    report.messages.per_second *= factor;
    report.messages.unanswered = 0;
    report.errors = Default::default();
    report.http = None;
    report.ledger = None;
    let latency = report.latency_us.as_mut().unwrap();
    latency.p99 /= factor;
    latency.p50 /= factor;
    for interval in &mut report.timeline {
        interval.received = (interval.received as f64 * factor) as u64;
    }
    (format!("{label}-{turn}.json"), report)
}

/// Returns variations of a few percent without a trend.
fn noise(turn: u32) -> f64 {
    [1.0, 1.02, 0.985, 1.011, 0.99, 1.006, 0.98, 1.015][turn as usize % 8]
}

fn row<'c>(comparison: &'c Comparison, metric: &str) -> (&'c ComparisonRow, &'c RatioVerdict) {
    let row = comparison
        .rows
        .iter()
        .find(|row| row.metric == metric)
        .unwrap();
    (row, row.against_first[0].as_ref().unwrap())
}

#[test]
fn a_true_difference_is_found_in_its_size_and_direction() {
    let mut runs = Vec::new();
    for turn in 0..6 {
        runs.push(run("a", noise(turn), 2 * turn));
        runs.push(run("b", 1.2 * noise(turn + 3), 2 * turn + 1));
    }
    let comparison = compare(&runs);
    assert_eq!(comparison.groups.len(), 2);
    assert_eq!(comparison.groups[1].files.len(), 6);
    let (_, throughput) = row(&comparison, "messages.per_second");
    let estimate = throughput.estimate.unwrap();
    assert!(
        estimate.low <= 1.2 && 1.2 <= estimate.high && estimate.low > 1.1,
        "{estimate:?}"
    );
    assert_eq!(
        (throughput.verdict, estimate.method),
        (Verdict::Better, EstimateMethod::Paired)
    );
    assert_eq!(
        row(&comparison, "latency_us.p99").1.verdict,
        Verdict::Better
    );
    assert!(comparison.warnings.is_empty(), "{:?}", comparison.warnings);

    let swapped: Vec<_> = runs.iter().rev().cloned().collect();
    assert_eq!(
        row(&compare(&swapped), "messages.per_second").1.verdict,
        Verdict::Worse
    );
}

#[test]
fn noise_is_called_noise() {
    let mut runs = Vec::new();
    for turn in 0..5 {
        runs.push(run("a", noise(turn), 2 * turn));
        runs.push(run("b", noise(turn + 2), 2 * turn + 1));
    }
    let comparison = compare(&runs);
    let (_, throughput) = row(&comparison, "messages.per_second");
    assert_eq!(
        (throughput.verdict, throughput.estimate.unwrap().method),
        (Verdict::Noise, EstimateMethod::Unpaired)
    );
    assert!(text(&comparison, Style::PLAIN).contains("noise"));
}

#[test]
fn drift_of_the_machine_cancels_where_runs_took_turns() {
    // The machine becomes slower by nearly half over the day. Group b is always 5 % faster.
    let mut runs = Vec::new();
    for turn in 0..8 {
        let machine = 1.0 - 0.06 * f64::from(turn);
        runs.push(run(
            "a",
            machine * (1.0 + 0.002 * f64::from(turn % 3)),
            2 * turn,
        ));
        runs.push(run("b", machine * 1.05, 2 * turn + 1));
    }
    assert_eq!(
        row(&compare(&runs), "messages.per_second").1.verdict,
        Verdict::Better
    );

    // If all runs of one group precede those of the other, there are no pairs, and a warning is
    // given.
    for (index, (_, report)) in runs.iter_mut().enumerate() {
        report.started = format!(
            "2026-11-21T{:02}:{:02}:00Z",
            if index % 2 == 0 { 6 } else { 9 },
            index
        );
    }
    let comparison = compare(&runs);
    assert_eq!(
        row(&comparison, "messages.per_second").1.verdict,
        Verdict::Noise
    );
    assert!(
        comparison
            .warnings
            .iter()
            .any(|warning| warning.contains("did not alternate")),
        "{:?}",
        comparison.warnings
    );
}

#[test]
fn one_run_each_is_never_called_a_difference() {
    let comparison = compare(&[run("a", 1.0, 0), run("b", 2.0, 1)]);
    let (_, throughput) = row(&comparison, "messages.per_second");
    let estimate = throughput.estimate.unwrap();
    assert_eq!(
        (throughput.verdict, estimate.method),
        (Verdict::Unjudged, EstimateMethod::WithinRuns)
    );
    assert!(
        (estimate.low..=estimate.high).contains(&2.0) && estimate.low > 1.9,
        "{estimate:?}"
    );
    let (_, cpu) = row(&comparison, "server.cpu_us_per_message");
    assert_eq!(
        (cpu.verdict, cpu.estimate.unwrap().method),
        (Verdict::Unjudged, EstimateMethod::Single)
    );
    let text = text(&comparison, Style::PLAIN);
    assert!(
        text.contains("One run each.") && text.contains("unjudged") && !text.contains("better"),
        "{text}"
    );

    let same = compare(&[run("a", 1.0, 0), run("b", 1.0, 1)]);
    assert_eq!(row(&same, "messages.per_second").1.verdict, Verdict::Noise);
}

#[test]
fn three_runs_each_are_too_few_to_compare() {
    let runs: Vec<_> = (0..6)
        .map(|turn| {
            run(
                ["a", "b"][turn % 2],
                [1.0, 2.0][turn % 2] * noise(turn as u32),
                turn as u32,
            )
        })
        .collect();
    let comparison = compare(&runs);
    assert_eq!(
        row(&comparison, "messages.per_second").1.verdict,
        Verdict::Unjudged
    );
    assert!(
        text(&comparison, Style::PLAIN).contains(
            "Too few runs for 95 % intervals: the confidence of those shown is only 90 %"
        )
    );
}

#[test]
fn files_without_label_are_groups_of_their_own() {
    let comparison = compare(&[run("", 1.0, 0), run("", 1.0, 1), run("", 1.0, 2)]);
    let names: Vec<_> = comparison
        .groups
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    assert_eq!(names, ["-0.json", "-1.json", "-2.json"]);
}

#[test]
fn a_run_is_no_second_sample_of_itself() {
    let (a, b) = (run("a", 1.0, 0), run("a", 1.0, 1));
    assert_eq!(same_run(&[a.clone(), b.clone()]), None);
    let copy = ("copy.json".to_owned(), b.1.clone());
    assert_eq!(same_run(&[a, b, copy]), Some(("a-1.json", "copy.json")));
}

#[test]
fn reasons_for_doubt_are_reported() {
    let (name, mut odd) = run("b", 1.0, 1);
    odd.settings.connections = 17;
    odd.machine.cpu = "Another".to_owned();
    odd.generator.bottleneck = true;
    odd.errors.reset = 3;
    odd.http = full().http;
    odd.seconds = 1.0;
    let comparison = compare(&[run("a", 1.0, 0), (name, odd)]);
    for part in [
        "Different settings: connections 240 and 17.",
        "Different machines: Example 9000, 8 cores, Linux 6.1.0 and Another, 8 cores, Linux 6.1.0.",
        "b-1.json: the tester was the bottleneck",
        "b-1.json: There were 3 errors",
        "b-1.json: The responses are a mix",
        "b-1.json: the run lasted only 1 s.",
    ] {
        assert!(
            comparison
                .warnings
                .iter()
                .any(|warning| warning.starts_with(part)),
            "{part}: {:?}",
            comparison.warnings
        );
    }
}

#[test]
fn zero_makes_no_ratio_and_nothing_no_row() {
    let (name, mut zero) = run("b", 1.0, 1);
    zero.server.as_mut().unwrap().bytes_per_connection = Some(0.0);
    zero.server.as_mut().unwrap().cpu_us_per_message = None;
    let comparison = compare(&[run("a", 1.0, 0), (name, zero)]);
    assert_eq!(
        row(&comparison, "server.bytes_per_connection").1.estimate,
        None
    );
    let cpu = comparison
        .rows
        .iter()
        .find(|row| row.metric == "server.cpu_us_per_message")
        .unwrap();
    assert!(cpu.values[1].is_none() && cpu.against_first[0].is_none());
    let shown = text(&comparison, Style::PLAIN);
    assert!(!shown.contains("NaN") && !shown.contains("inf"));
    let json = to_json(&comparison).unwrap();
    let again: Comparison = serde_json::from_str(&json).unwrap();
    assert_eq!(again.rows.len(), comparison.rows.len());
    assert!(compare(&[]).rows.is_empty());
}

#[test]
fn lines_keep_to_the_width() {
    let mut runs = vec![
        run("a name that is far too long for a column", 1.0, 0),
        run("b", 123.0, 1),
        run("c", 1.0, 2),
    ];
    runs[1].1.target = format!("ws://{}/", "long.".repeat(30));
    let (_, phase) = run("a phase with a long name", 1.0, 3);
    runs[0].1.phases = vec![phase.clone()];
    runs[1].1.phases = vec![phase];
    for line in text(&compare(&runs), Style::PLAIN).lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// The group of runs with failures has eleven times the throughput of the other group.
#[test]
fn a_side_that_fails_is_not_better() {
    for failing in [500_000, 1_500] {
        let mut runs = Vec::new();
        for turn in 0..6 {
            runs.push(run("a", noise(turn), 2 * turn));
            let (file, mut report) = run("b", 11.0 * noise(turn + 3), 2 * turn + 1);
            report.errors.bad_response = failing;
            runs.push((file, report));
        }
        let comparison = compare(&runs);
        for row in &comparison.rows {
            let ratio_verdict = row.against_first[0].as_ref().unwrap();
            assert_eq!(ratio_verdict.verdict, Verdict::Unjudged, "{}", row.metric);
        }
        let warnings = comparison.warnings.join("\n");
        assert!(warnings.contains("No verdict: up to 0"), "{warnings}");
    }
}
