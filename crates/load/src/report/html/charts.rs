//! The charts of a run: latency and throughput over time, the percentile curve, the distribution.

use super::super::model::{Bucket, Interval, Report};
use super::super::text::merge;
use super::super::units::{count, rate, seconds, share, time};
use super::super::wording::RunWording;
use super::chart::{Axis, ChartLine, bars, figure, lines};

/// Maximum number of bars up to the 99.9th percentile of the distribution.
const BARS_MAX: usize = 44;
/// If the maximum is more than this many times the minimum, the axis is logarithmic, because a
/// linear axis would flatten the small values.
const LOG_FROM_RATIO: f64 = 20.0;

pub(super) fn all(out: &mut String, report: &Report) {
    if report.timeline.len() > 1 {
        latency_over_time(out, &report.timeline);
        throughput_over_time(out, report);
    }
    if !report.histogram.is_empty() {
        percentiles(out, &report.histogram);
        distribution(out, &report.histogram);
    }
}

fn time_axis(timeline: &[Interval]) -> Axis {
    let end = timeline
        .last()
        .map_or(1.0, |last| last.from_s + last.seconds);
    Axis::linear(0.0, end, seconds)
}

fn latency_over_time(out: &mut String, timeline: &[Interval]) {
    let points = |figure: fn(&Interval) -> Option<f64>| -> Vec<(f64, f64)> {
        timeline
            .iter()
            .filter_map(|step| Some((step.from_s + step.seconds / 2.0, figure(step)?)))
            .collect()
    };
    let curves = [
        ChartLine {
            name: "p50",
            class: "one",
            points: points(|step| step.p50_us),
        },
        ChartLine {
            name: "p99",
            class: "two",
            points: points(|step| step.p99_us),
        },
        ChartLine {
            name: "longest",
            class: "three",
            points: points(|step| step.max_us),
        },
    ];
    let values = || {
        curves
            .iter()
            .flat_map(|line| line.points.iter().map(|(_, us)| *us))
            .filter(|us| us.is_finite())
    };
    let (low, high) = (
        values().fold(f64::INFINITY, f64::min),
        values().fold(0.0, f64::max),
    );
    if !low.is_finite() {
        return;
    }
    let y = latency_axis(low, high);
    let note = if y.is_log() { "Log scale." } else { "" };
    figure(
        out,
        "Latency over time",
        note,
        &curves,
        &lines(&time_axis(timeline), &y, &curves),
    );
}

fn latency_axis(low: f64, high: f64) -> Axis {
    if high / low.max(1e-3) > LOG_FROM_RATIO {
        Axis::log(low, high, short_time)
    } else {
        Axis::from_zero(high, short_time)
    }
}

/// Formats the round time of a tick, for example `100 µs` or `2 ms`.
fn short_time(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1e3 => (us, "µs"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", (value * 1e3).round() / 1e3)
}

fn throughput_over_time(out: &mut String, report: &Report) {
    let words = RunWording::of(&report.kind, report.settings.rate.is_some());
    let points: Vec<(f64, f64)> = report
        .timeline
        .iter()
        .filter(|step| step.seconds > 0.0)
        .map(|step| {
            (
                step.from_s + step.seconds / 2.0,
                step.received as f64 / step.seconds,
            )
        })
        .collect();
    let high = points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let y = Axis::from_zero(high, |x| {
        if x >= 1e6 {
            format!("{} M", x / 1e6)
        } else {
            rate(x).replace(".0", "")
        }
    });
    let curves = [ChartLine {
        name: "throughput",
        class: "one",
        points,
    }];
    let note = format!("{} in each second", words.received);
    let title = "Throughput over time";
    figure(
        out,
        title,
        &note,
        &curves,
        &lines(&time_axis(&report.timeline), &y, &curves),
    );
}

/// Draws latency by percentile. With each step of the axis, the share of slower messages becomes
/// ten times smaller.
fn percentiles(out: &mut String, histogram: &[Bucket]) {
    let total: u64 = histogram.iter().map(|bucket| bucket.count).sum();
    if total < 2 {
        return;
    }
    let end = (total as f64).log10();
    let mut below = 0;
    let mut points = Vec::with_capacity(histogram.len() + 1);
    for bucket in histogram {
        if points.is_empty() {
            points.push((0.0, bucket.to_us));
        }
        below += bucket.count;
        let above = total - below;
        points.push((
            if above == 0 {
                end
            } else {
                -(above as f64 / total as f64).log10()
            },
            bucket.to_us,
        ));
    }
    let mut ticks = vec![(0.0, "0 %".to_owned())];
    if end < 4.5 {
        ticks.push((-(0.5_f64.log10()), "50 %".to_owned()));
    }
    for nines in 1..=9_usize {
        if nines as f64 <= end {
            let label = match nines {
                1 => "90 %".to_owned(),
                2 => "99 %".to_owned(),
                _ => format!("99.{} %", "9".repeat(nines - 2)),
            };
            ticks.push((nines as f64, label));
        }
    }
    if end > 5.2 {
        // Every second label is omitted, because long labels would overlap.
        ticks.retain(|(at, _)| *at < 1.5 || (*at as usize) % 2 == 1);
    }
    let (low, high) = (points[0].1, points[points.len() - 1].1);
    let y = latency_axis(low, high);
    let curves = [ChartLine {
        name: "latency",
        class: "one",
        points,
    }];
    figure(
        out,
        "Latency by percentile",
        "Share of measurements up to each latency. Beyond each mark of the axis there are a tenth as many measurements as beyond the mark to its left.",
        &curves,
        &lines(&Axis::with_ticks(0.0, end, ticks), &y, &curves),
    );
}

fn distribution(out: &mut String, histogram: &[Bucket]) {
    // If bars were narrower than the buckets, some bars would be empty.
    let bars_max = BARS_MAX.min((histogram.len() / 4).max(8));
    let rows = merge(histogram, bars_max);
    let total: u64 = rows.iter().map(|row| row.count).sum();
    if total == 0 {
        return;
    }
    let values: Vec<(f64, String)> = rows
        .iter()
        .map(|row| {
            let part = row.count as f64 / total as f64;
            (
                part,
                format!(
                    "up to {}: {}, {}",
                    time(row.to_us),
                    count(row.count),
                    share(part)
                ),
            )
        })
        .collect();
    let high = values.iter().map(|(part, _)| *part).fold(0.0, f64::max);
    let every = rows.len().div_ceil(5).max(1);
    let ticks = (0..rows.len())
        .step_by(every)
        .map(|index| (index as f64 + 1.0, time(rows[index].to_us)))
        .collect();
    let x = Axis::with_ticks(0.0, rows.len() as f64, ticks);
    let y = Axis::from_zero(high, |part| format!("{} %", (part * 1e4).round() / 1e2));
    let note = if rows.len() > bars_max {
        format!(
            "Each bar is wider than the one before it by a constant ratio; the last bar is everything from {} to {}.",
            time(rows[rows.len() - 2].to_us),
            time(rows[rows.len() - 1].to_us)
        )
    } else {
        "Each bar is wider than the one before it by a constant ratio.".to_owned()
    };
    figure(
        out,
        "Distribution of latency",
        &note,
        &[],
        &bars(&x, &y, &values),
    );
}
