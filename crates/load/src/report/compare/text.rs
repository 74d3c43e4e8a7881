//! Formats comparisons for the terminal. Each group after the first has a table that compares it with the first group.

use super::super::text::{Style, TextPage, Tone};
use super::super::units::{ABSENT, bytes, clean, count, many, rate, three_digits, time};
use super::{Comparison, ComparisonRow, Estimate, EstimateMethod, GroupValue, Unit, Verdict};

/// Width in characters of the two columns that show the names and values of the compared groups.
const VALUE_COLUMNS: usize = 11;
/// Width in characters of the column with the titles of figures.
const TITLE_COLUMNS: usize = 16;

/// Returns the comparison, ending with a new line.
#[must_use]
pub fn text(comparison: &Comparison, style: Style) -> String {
    let mut page = TextPage::new(style);
    for (index, group) in comparison.groups.iter().enumerate() {
        let runs = many(group.files.len() as u64, "run");
        let label = if index == 0 {
            "Compared"
        } else if index == 1 {
            "with"
        } else {
            ""
        };
        page.field(
            label,
            Tone::Plain,
            &format!("{}, {runs}, {}", clean(&group.name), clean(&group.target)),
        );
    }
    if comparison.groups.len() < 2 {
        page.blank();
        page.text(
            Tone::Bad,
            "All runs have the same label, so there is only one group; its spread:",
        );
        scatter(&mut page, comparison);
    }
    for index in 1..comparison.groups.len() {
        table(&mut page, comparison, index);
    }
    methods(&mut page, comparison);
    if !comparison.warnings.is_empty() {
        page.blank();
        for (index, warning) in comparison.warnings.iter().enumerate() {
            page.field(if index == 0 { "Mind" } else { "" }, Tone::Bad, warning);
        }
    }
    page.finish()
}

fn table(page: &mut TextPage, comparison: &Comparison, index: usize) {
    let (first, other) = (&comparison.groups[0], &comparison.groups[index]);
    page.blank();
    let header = format!(
        "{:<TITLE_COLUMNS$} {:>VALUE_COLUMNS$} {:>VALUE_COLUMNS$}  {:>6}  {:<15} verdict",
        "",
        short(&first.name, VALUE_COLUMNS),
        short(&other.name, VALUE_COLUMNS),
        "ratio",
        "interval",
    );
    page.text_as_is(Tone::Faint, &header);
    for row in &comparison.rows {
        let Some(ratio_verdict) = &row.against_first[index - 1] else {
            continue;
        };
        let (ratio, interval) = ratio_verdict.estimate.as_ref().map_or(
            (ABSENT.to_owned(), String::new()),
            |estimate| {
                let interval = match estimate.method {
                    EstimateMethod::Single => String::new(),
                    _ => format!("{} – {}", figure(estimate.low), figure(estimate.high)),
                };
                (figure(estimate.ratio), interval)
            },
        );
        let (tone, verdict) = match ratio_verdict.verdict {
            Verdict::Better => (Tone::Good, "better"),
            Verdict::Worse => (Tone::Bad, "worse"),
            Verdict::Noise => (Tone::Faint, "noise"),
            Verdict::Unjudged => (Tone::Plain, "unjudged"),
        };
        let beginning = format!(
            "{:<TITLE_COLUMNS$} {:>VALUE_COLUMNS$} {:>VALUE_COLUMNS$}  {ratio:>6}  {interval:<15} ",
            short(&row.title, TITLE_COLUMNS),
            shown(row, 0),
            shown(row, index),
        );
        page.pieces(&[(Tone::Plain, &beginning), (tone, verdict)]);
    }
}

fn scatter(page: &mut TextPage, comparison: &Comparison) {
    for row in &comparison.rows {
        let Some(Some(value)) = row.values.first() else {
            continue;
        };
        let text = format!(
            "{:<TITLE_COLUMNS$} median {:>VALUE_COLUMNS$}, {} to {}",
            short(&row.title, TITLE_COLUMNS),
            amount(row.unit, value.median),
            amount(row.unit, value.min),
            amount(row.unit, value.max)
        );
        page.text_as_is(Tone::Plain, &text);
    }
}

/// Explains the methods used in the table.
fn methods(page: &mut TextPage, comparison: &Comparison) {
    let estimates: Vec<&Estimate> = comparison
        .rows
        .iter()
        .flat_map(|row| row.against_first.iter().flatten())
        .filter_map(|ratio_verdict| ratio_verdict.estimate.as_ref())
        .collect();
    let has = |method: EstimateMethod| estimates.iter().any(|estimate| estimate.method == method);
    if estimates.is_empty() {
        return;
    }
    page.blank();
    let mut lines = vec![
        "Each ratio compares a group with the first one. \"Noise\" means that the interval contains 1, so the difference may be due to chance."
            .to_owned(),
    ];
    if has(EstimateMethod::Paired) {
        lines.push("The runs alternated: a ratio is the median over pairs of neighbouring runs, and its 95 % interval is the binomial one.".to_owned());
    }
    if has(EstimateMethod::Unpaired) {
        lines.push(
            "A ratio is the median over all pairs of runs. Its 95 % interval is that of Mann and Whitney, which assumes that both groups vary equally."
                .to_owned(),
        );
    }
    let poor = estimates
        .iter()
        .filter(|estimate| {
            estimate.method == EstimateMethod::Unpaired
                && estimate.confidence < super::CONFIDENCE_MIN
        })
        .map(|estimate| estimate.confidence)
        .fold(f64::NAN, f64::min);
    if poor.is_finite() {
        lines.push(format!(
            "Too few runs for 95 % intervals: the confidence of those shown is only {:.0} %. At least four runs of each group are needed.",
            poor * 100.0
        ));
    }
    if has(EstimateMethod::WithinRuns) || has(EstimateMethod::Single) {
        lines.push(
            "One run each. Intervals come from parts of each run's time and ignore the variation between runs. A verdict needs at least four runs of each group."
                .to_owned(),
        );
    }
    if estimates.len() > 5 && (has(EstimateMethod::Paired) || has(EstimateMethod::Unpaired)) {
        lines.push(
            "With 95 % intervals, about one in twenty figures appears to differ by chance, without a real difference."
                .to_owned(),
        );
    }
    for line in lines {
        page.text(Tone::Faint, &line);
    }
}

fn shown(row: &ComparisonRow, group: usize) -> String {
    row.values[group].as_ref().map_or_else(
        || ABSENT.to_owned(),
        |GroupValue { median, .. }| amount(row.unit, *median),
    )
}

fn amount(unit: Unit, value: f64) -> String {
    match unit {
        Unit::PerSecond => format!("{}/s", rate(value)),
        Unit::Us => time(value),
        Unit::Bytes => bytes(value.round()),
        Unit::Count => count(value.max(0.0) as u64),
    }
}

/// Formats a ratio: with three decimals between 0.1 and 10, otherwise with three digits.
fn figure(ratio: f64) -> String {
    if ratio.is_finite() && (0.0995..9.995).contains(&ratio) {
        format!("{ratio:.3}")
    } else {
        three_digits(ratio)
    }
}

/// Truncates a name to a number of columns.
fn short(name: &str, columns: usize) -> String {
    let name = clean(name);
    if name.chars().count() <= columns {
        return name;
    }
    name.chars().take(columns - 1).chain(['…']).collect()
}
