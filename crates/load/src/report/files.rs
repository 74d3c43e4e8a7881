//! Exports reports for other programs: percentiles for HdrHistogram plotters, and the timeline for
//! spreadsheets.

use std::fmt::Write as _;

use super::model::Report;

/// Returns the latencies in the percentile format of HdrHistogram (`.hgrm`), in milliseconds;
/// `None` if there are none.
#[must_use]
pub fn hgrm(report: &Report) -> Option<String> {
    let distribution = report.distribution.as_ref()?;
    let ms = |us: f64| us / 1000.0;
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    for point in &distribution.points {
        let (value, quantile) = (ms(point.to_us), point.quantile);
        let _ = write!(text, "{value:12.3} {quantile:14.12} {:10}", point.count);
        if quantile < 1.0 {
            let _ = write!(text, " {:14.2}", 1.0 / (1.0 - quantile));
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n#[Max     = {:12.3}, Total count    = {:12}]",
        ms(distribution.mean_us),
        ms(distribution.stdev_us),
        ms(distribution.max_us),
        distribution.count
    );
    Some(text)
}

/// Columns of the timeline.
const COLUMNS: [&str; 8] = [
    "phase", "from_s", "seconds", "received", "errors", "p50_us", "p99_us", "max_us",
];

/// Returns the timeline as CSV (RFC 4180) with a header. For a scenario, it contains the timeline
/// of each phase, with the phase's name. Figures that were not measured are empty fields.
///
/// # Errors
/// The CSV can't be written. This does not happen for generated reports.
pub fn csv(report: &Report) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    let phases = match report.phases.is_empty() {
        true => std::slice::from_ref(report),
        false => &report.phases,
    };
    for phase in phases {
        let name = phase.settings.label.as_deref().unwrap_or(&phase.kind);
        for step in &phase.timeline {
            writer.serialize((
                name,
                step.from_s,
                step.seconds,
                step.received,
                step.errors,
                step.p50_us,
                step.p99_us,
                step.max_us,
            ))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::full;
    use super::super::model::{Distribution, Point, Settings};
    use super::*;

    #[test]
    fn percentiles() {
        let report = Report {
            distribution: Some(Distribution {
                count: 4,
                mean_us: 1500.0,
                stdev_us: 250.0,
                max_us: 2000.5,
                points: vec![
                    Point {
                        to_us: 1000.0,
                        quantile: 0.5,
                        count: 2,
                    },
                    Point {
                        to_us: 2000.5,
                        quantile: 1.0,
                        count: 4,
                    },
                ],
            }),
            ..Report::default()
        };
        let expected = "       \
Value     Percentile TotalCount 1/(1-Percentile)

       1.000 0.500000000000          2           2.00
       2.001 1.000000000000          4
#[Mean    =        1.500, StdDeviation   =        0.250]
#[Max     =        2.001, Total count    =            4]
";
        assert_eq!(hgrm(&report).unwrap(), expected);
        assert_eq!(hgrm(&Report::default()), None);
    }

    #[test]
    fn timelines() {
        let phase = |name: &str, steps: usize| Report {
            settings: Settings {
                label: Some(name.to_owned()),
                ..Settings::default()
            },
            timeline: full().timeline.into_iter().take(steps).collect(),
            ..Report::default()
        };
        let whole = Report {
            phases: vec![phase("up, down", 1), phase("flat", 1)],
            ..Report::default()
        };
        let text = csv(&whole).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(reader.headers().unwrap(), &COLUMNS[..]);
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!((&rows[0][0], &rows[1][0]), ("up, down", "flat"));
        let step = full().timeline[0];
        assert_eq!(rows[0][3], step.received.to_string());
    }
}
