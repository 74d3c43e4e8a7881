//! The progress line, updated once a second during a run.
//!
//! On a narrow terminal, the line is shortened, since a wrapped line can't be overwritten.

use super::units::{clean, count, rate, time};

/// The current progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress<'a> {
    /// Seconds since the start of the run, including the warm-up.
    pub elapsed_s: f64,
    /// Planned duration in seconds, if known.
    pub planned_s: Option<f64>,
    /// The current activity: `connecting`, `warm-up`, `measuring`, or the name of a scenario's phase.
    pub phase: &'a str,
    /// Number of open connections.
    pub open: u64,
    /// Number of requested connections.
    pub asked: u64,
    /// Messages received in the last second.
    pub per_second: f64,
    /// 99th percentile of the last second's answers in microseconds; `None` if there were none.
    pub p99_us: Option<f64>,
    /// Number of errors so far.
    pub errors: u64,
}

/// Returns the line, which is shorter than `columns` and has no terminator.
///
/// The caller must write `\r` before the line, and erase the rest of the terminal's line after it.
#[must_use]
pub fn line(progress: &Progress<'_>, columns: usize) -> String {
    // If the line is too long, the parts with the highest numbers are dropped first. Errors and
    // throughput are always kept.
    let mut parts: Vec<(u8, String)> = Vec::with_capacity(6);
    let elapsed = format!("{:>4.0} s", progress.elapsed_s.max(0.0));
    match progress.planned_s {
        Some(planned) if planned.is_finite() => {
            parts.push((2, format!("{elapsed} of {planned:.0}")))
        }
        _ => parts.push((2, elapsed)),
    }
    parts.push((4, clean(progress.phase)));
    if progress.open == progress.asked {
        parts.push((3, format!("{} open", count(progress.open))));
    } else {
        parts.push((
            3,
            format!("{}/{} open", count(progress.open), count(progress.asked)),
        ));
    }
    parts.push((0, format!("{:>7} msg/s", rate(progress.per_second))));
    if let Some(p99) = progress.p99_us {
        parts.push((1, format!("p99 {:>7}", time(p99))));
    }
    if progress.errors > 0 {
        parts.push((
            0,
            format!(
                "{} error{}",
                count(progress.errors),
                if progress.errors == 1 { "" } else { "s" }
            ),
        ));
    }

    // The last column is left empty, because some terminals wrap the line when that column is
    // written.
    let room = columns.saturating_sub(1);
    loop {
        let text = parts
            .iter()
            .map(|(_, text)| text.as_str())
            .collect::<Vec<_>>()
            .join("  ");
        let dispensable = parts.iter().map(|(rank, _)| *rank).max().unwrap_or(0);
        if text.chars().count() <= room {
            return text;
        }
        if dispensable == 0 {
            return text.trim_start().chars().take(room).collect();
        }
        parts.retain(|(rank, _)| *rank != dispensable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Progress<'_> = Progress {
        elapsed_s: 12.4,
        planned_s: Some(32.0),
        phase: "measuring",
        open: 239,
        asked: 60_000,
        per_second: 123_456.0,
        p99_us: Some(1_020.0),
        errors: 3,
    };

    #[test]
    fn says_all_where_there_is_room() {
        assert_eq!(
            line(&BUSY, 100),
            "  12 s of 32  measuring  239/60,000 open  123,456 msg/s  p99 1.02 ms  3 errors"
        );
    }

    #[test]
    fn is_quiet_about_unmeasured_figures() {
        let calm = Progress {
            errors: 0,
            p99_us: None,
            planned_s: None,
            open: 5,
            asked: 5,
            per_second: 0.0,
            ..BUSY
        };
        assert_eq!(line(&calm, 100), "  12 s  measuring  5 open        0 msg/s");
        assert!(
            !line(
                &Progress {
                    per_second: f64::NAN,
                    ..calm
                },
                100
            )
            .contains("NaN")
        );
    }

    #[test]
    fn never_reaches_the_last_column() {
        for columns in 0..120 {
            let text = line(&BUSY, columns);
            assert!(text.chars().count() < columns.max(1), "{columns}: {text:?}");
        }
        assert_eq!(
            line(&BUSY, 70),
            "  12 s of 32  239/60,000 open  123,456 msg/s  p99 1.02 ms  3 errors"
        );
        assert_eq!(line(&BUSY, 40), "123,456 msg/s  p99 1.02 ms  3 errors");
        assert_eq!(line(&BUSY, 30), "123,456 msg/s  3 errors");
    }

    #[test]
    fn a_name_of_a_phase_can_not_break_the_line() {
        assert!(
            !line(
                &Progress {
                    phase: "a\n\x1b[2J",
                    ..BUSY
                },
                200
            )
            .contains(['\n', '\x1b'])
        );
    }
}
