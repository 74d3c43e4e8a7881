//! A distribution in a dozen rows of block characters.
//!
//! Latencies span orders of magnitude, so the bound of each row is a constant multiple of the
//! previous one. These rows end at the 99.9th percentile. Larger values have a separate row, since
//! otherwise one slow answer would compress all others into the first row.

use super::super::model::Bucket;
use super::super::units::{count, share, time};
use super::page::{TextPage, Tone};

/// Maximum number of rows up to the 99.9th percentile.
const ROWS_MAX: usize = 11;
/// Columns of a row in addition to its bar: bound, count, share and spaces.
const BESIDE_BAR_COLUMNS: usize = 35;

/// A row of the distribution: the latencies above the previous row's bound and up to this row's
/// bound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HistogramRow {
    pub(crate) to_us: f64,
    pub(crate) count: u64,
}

/// Merges a distribution into at most `rows_max` rows up to the 99.9th percentile and one row above
/// it. Preserves the total count.
pub(crate) fn merge(buckets: &[Bucket], rows_max: usize) -> Vec<HistogramRow> {
    let usable: Vec<Bucket> = buckets
        .iter()
        .copied()
        .filter(|bucket| bucket.count > 0 && bucket.to_us.is_finite())
        .collect();
    let (Some(first), Some(last)) = (usable.first(), usable.last()) else {
        return Vec::new();
    };
    let total: u64 = usable.iter().map(|bucket| bucket.count).sum();
    let body = (total as f64 * 0.999).ceil() as u64;
    let mut seen = 0;
    let body_end = usable.iter().find(|bucket| {
        seen += bucket.count;
        seen >= body
    });
    let high = body_end.map_or(last.to_us, |bucket| bucket.to_us);
    let low = first.to_us.max(1e-3);

    let mut rows: Vec<HistogramRow> = Vec::with_capacity(rows_max + 1);
    for index in 1..=rows_max {
        let bound = low * (high.max(low) / low).powf(index as f64 / rows_max as f64);
        // If latencies vary little, neighbouring bounds have the same label and become one row.
        if rows.last().is_none_or(|row| time(row.to_us) != time(bound)) {
            rows.push(HistogramRow {
                to_us: bound,
                count: 0,
            });
        }
    }
    if let Some(end) = rows.last_mut() {
        end.to_us = high;
    }
    if last.to_us > high {
        rows.push(HistogramRow {
            to_us: last.to_us,
            count: 0,
        });
    }
    for bucket in &usable {
        // The computed bounds are not exact. The tolerance assigns a bucket that ends at a row's
        // bound to that row.
        let row = rows
            .iter()
            .position(|row| bucket.to_us <= row.to_us * (1.0 + 1e-9))
            .unwrap_or(rows.len() - 1);
        rows[row].count += bucket.count;
    }
    rows
}

/// Draws the rows of a distribution.
pub(crate) fn draw(page: &mut TextPage, buckets: &[Bucket]) {
    let rows = merge(buckets, ROWS_MAX);
    let total: u64 = rows.iter().map(|row| row.count).sum();
    let tallest = rows.iter().map(|row| row.count).max().unwrap_or(0);
    if tallest == 0 {
        return;
    }
    let room = page.room().saturating_sub(BESIDE_BAR_COLUMNS);
    for row in rows {
        let numbers = format!(
            "≤ {:>8} {:>14} {:>7}  ",
            time(row.to_us),
            count(row.count),
            share(row.count as f64 / total as f64)
        );
        page.row(&[
            (Tone::Plain, &numbers),
            (Tone::Bar, &bar(row.count, tallest, room)),
        ]);
    }
}

/// Returns a bar in eighths of a column. A nonzero count gives a visible bar.
fn bar(count: u64, tallest: u64, columns: usize) -> String {
    const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
    if count == 0 {
        return String::new();
    }
    let eighths = ((count as f64 / tallest as f64 * (columns * 8) as f64).round() as usize).max(1);
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::super::page::Style;
    use super::*;

    fn buckets(pairs: &[(f64, u64)]) -> Vec<Bucket> {
        pairs
            .iter()
            .map(|&(to_us, count)| Bucket { to_us, count })
            .collect()
    }

    #[test]
    fn nothing_is_lost_and_bounds_rise() {
        let many: Vec<_> = (1..5000)
            .map(|i| (f64::from(i) * 1.7, u64::from(i as u32 % 13 + 1)))
            .collect();
        for input in [
            buckets(&many),
            buckets(&[(5.0, 1)]),
            buckets(&[(5.0, 1), (5.001, 2)]),
            buckets(&[(0.0, 3), (1e9, 1)]),
        ] {
            let rows = merge(&input, ROWS_MAX);
            assert_eq!(
                rows.iter().map(|row| row.count).sum::<u64>(),
                input.iter().map(|b| b.count).sum::<u64>()
            );
            assert!(rows.len() <= ROWS_MAX + 1);
            assert!(
                rows.windows(2).all(|pair| pair[0].to_us < pair[1].to_us),
                "{rows:?}"
            );
            assert_eq!(
                rows.last().unwrap().to_us,
                input.last().unwrap().to_us.max(1e-3)
            );
        }
        assert!(merge(&[], ROWS_MAX).is_empty());
    }

    #[test]
    fn one_stall_does_not_flatten_the_rest() {
        let mut input: Vec<_> = (100..200).map(|us| (f64::from(us), 1_000)).collect();
        input.push((2_000_000.0, 1));
        let rows = merge(&buckets(&input), ROWS_MAX);
        assert_eq!(
            rows.last().unwrap(),
            &HistogramRow {
                to_us: 2_000_000.0,
                count: 1
            }
        );
        assert_eq!(rows.len(), 12);
        assert_eq!(rows[10].to_us, 199.0);
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(0, 100, 10), "");
        assert_eq!(bar(100, 100, 10), "██████████");
        assert_eq!(bar(50, 100, 10), "█████");
        assert_eq!(bar(45, 100, 10), "████▌");
        assert_eq!(bar(1, 1_000_000, 10), "▏");
    }

    #[test]
    fn rows_keep_to_the_width() {
        for columns in [66, 80, 100] {
            let mut page = TextPage::new(Style {
                colour: false,
                columns,
            });
            draw(
                &mut page,
                &buckets(&[(0.1, u64::MAX / 2_000_000_000), (999_499.0, 1), (75e6, 77)]),
            );
            assert!(
                page.finish()
                    .lines()
                    .all(|line| line.chars().count() <= columns)
            );
        }
    }
}
