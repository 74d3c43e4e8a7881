//! Draws lines and bars as SVG, from axes and points. Colours come from the page's style sheet.

use super::escape::escape;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 30.0;
/// Maximum number of points of a line, apart from its last. More would not be visible at this size.
const POINTS_MAX: usize = 600;

/// An axis of a chart.
pub(super) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    /// Positions and texts of the axis labels.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates an axis from `low` to `high` in equal steps, labelled at round values.
    pub(super) fn linear(low: f64, high: f64, label: impl Fn(f64) -> String) -> Self {
        let span = if high > low { high - low } else { 1.0 };
        let step = round_step(span / 5.0);
        let high = if high > low { high } else { low + 1.0 };
        let first = (low / step).ceil() as i64;
        let last = ((high / step) * (1.0 + 1e-9)).floor() as i64;
        let ticks = (first..=last)
            .map(|index| index as f64 * step)
            .map(|at| (at, label(at)))
            .collect();
        Self {
            low,
            high,
            log: false,
            ticks,
        }
    }

    /// Creates an axis from zero to a round value at or above `high`.
    pub(super) fn from_zero(high: f64, label: impl Fn(f64) -> String) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let step = round_step(high / 5.0);
        Self::linear(0.0, (high / step).ceil() * step, label)
    }

    /// Creates a logarithmic axis that begins and ends at a tick. Ticks are at powers of ten. If
    /// `high` is less than 200 times `low`, there are also ticks at 2 and 5 times each power.
    pub(super) fn log(low: f64, high: f64, label: impl Fn(f64) -> String) -> Self {
        let low = low.max(1e-3);
        let high = high.max(low * 1.001);
        let parts: &[f64] = if high / low < 200.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let marks: Vec<f64> = (-3..=12)
            .flat_map(|decade| parts.iter().map(move |part| part * 10_f64.powi(decade)))
            .collect();
        let begin = marks
            .iter()
            .copied()
            .rfind(|mark| *mark <= low)
            .unwrap_or(low);
        let end = marks
            .iter()
            .copied()
            .find(|mark| *mark >= high)
            .unwrap_or(high);
        let ticks = marks
            .into_iter()
            .filter(|mark| (begin..=end).contains(mark))
            .map(|at| (at, label(at)))
            .collect();
        Self {
            low: begin,
            high: end,
            log: true,
            ticks,
        }
    }

    pub(super) fn with_ticks(low: f64, high: f64, ticks: Vec<(f64, String)>) -> Self {
        Self {
            low,
            high: if high > low { high } else { low + 1.0 },
            log: false,
            ticks,
        }
    }

    /// Returns whether the axis is logarithmic.
    pub(super) fn is_log(&self) -> bool {
        self.log
    }

    /// Returns the position of a value on the axis: 0 is the low end, 1 the high end.
    fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }
}

pub(super) struct ChartLine {
    pub(super) name: &'static str,
    /// The class in the style sheet: `one`, `two` or `three`.
    pub(super) class: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Writes a chart with its heading, its note and the legend of its lines.
pub(super) fn figure(out: &mut String, title: &str, note: &str, key: &[ChartLine], drawing: &str) {
    out.push_str(&format!("<figure>\n<figcaption><h3>{}</h3>", escape(title)));
    if !note.is_empty() {
        out.push_str(&format!("<p>{}</p>", escape(note)));
    }
    if key.len() > 1 {
        out.push_str("<div class=\"key\">");
        for line in key {
            out.push_str(&format!(
                "<span><svg viewBox=\"0 0 32 8\" aria-hidden=\"true\"><path class=\"line {}\" d=\"M0 4H32\"/></svg>{}</span>",
                line.class,
                escape(line.name)
            ));
        }
        out.push_str("</div>");
    }
    out.push_str("</figcaption>\n");
    out.push_str(&format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n{drawing}</svg>\n</figure>\n",
        escape(title)
    ));
}

/// Draws lines in a grid of both axes.
pub(super) fn lines(x: &Axis, y: &Axis, lines: &[ChartLine]) -> String {
    let mut svg = grid(x, y);
    for line in lines {
        let points: Vec<_> = line
            .points
            .iter()
            .filter(|(px, py)| px.is_finite() && py.is_finite())
            .collect();
        let every = points.len().div_ceil(POINTS_MAX).max(1);
        let mut path = String::new();
        for (index, (px, py)) in points.iter().enumerate() {
            if index % every == 0 || index + 1 == points.len() {
                let command = if path.is_empty() { 'M' } else { 'L' };
                path.push_str(&format!(
                    "{command}{:.1} {:.1}",
                    across(x, *px),
                    down(y, *py)
                ));
            }
        }
        if !path.is_empty() {
            svg.push_str(&format!(
                "<path class=\"line {}\" d=\"{path}\"><title>{}</title></path>\n",
                line.class, line.name
            ));
        }
    }
    svg
}

/// Draws bars side by side, one for each whole number of the x axis, each with its own text.
pub(super) fn bars(x: &Axis, y: &Axis, values: &[(f64, String)]) -> String {
    let mut svg = grid(x, y);
    for (index, (value, words)) in values.iter().enumerate() {
        let (left, right) = (across(x, index as f64), across(x, index as f64 + 1.0));
        let top = if *value > 0.0 {
            down(y, *value).min(HEIGHT - BOTTOM - 1.0)
        } else {
            HEIGHT - BOTTOM
        };
        svg.push_str(&format!(
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>\n",
            left + 0.5,
            (right - left - 1.0).max(0.5),
            HEIGHT - BOTTOM - top,
            escape(words)
        ));
    }
    svg
}

fn grid(x: &Axis, y: &Axis) -> String {
    let mut svg = String::new();
    for (at, label) in &y.ticks {
        let level = down(y, *at);
        svg.push_str(&format!(
            "<path class=\"grid\" d=\"M{LEFT} {level:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            WIDTH - RIGHT,
            LEFT - 8.0,
            level + 4.0,
            escape(label)
        ));
    }
    for (at, label) in &x.ticks {
        let place = across(x, *at);
        svg.push_str(&format!(
            "<path class=\"grid\" d=\"M{place:.1} {:.1}v5\"/><text x=\"{place:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
            HEIGHT - BOTTOM,
            HEIGHT - 8.0,
            escape(label)
        ));
    }
    svg
}

fn across(x: &Axis, value: f64) -> f64 {
    LEFT + x.place(value) * (WIDTH - LEFT - RIGHT)
}

fn down(y: &Axis, value: f64) -> f64 {
    HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM)
}

/// Returns the smallest number of the series …, 0.5, 1, 2, 5, 10, 20, 50, … that is at least
/// `least`.
fn round_step(least: f64) -> f64 {
    let decade = 10_f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|part| part * decade)
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let labels = |axis: &Axis| axis.ticks.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!(
            labels(&Axis::linear(0.0, 10.0, |x| x.to_string())),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(
            labels(&Axis::from_zero(93_000.0, |x| x.to_string())),
            [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0, 100_000.0]
        );
        assert_eq!(
            labels(&Axis::log(95.0, 2_001_000.0, |x| x.to_string())),
            [10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7]
        );
        assert_eq!(
            labels(&Axis::log(90.0, 450.0, |x| x.to_string())),
            [50.0, 100.0, 200.0, 500.0]
        );
        for (low, high) in [(0.0, 0.0), (5.0, 5.0), (0.0, 1e12)] {
            for axis in [
                Axis::linear(low, high, |x| x.to_string()),
                Axis::from_zero(high, |x| x.to_string()),
                Axis::log(low, high, |x| x.to_string()),
            ] {
                assert!(
                    axis.place(low).is_finite()
                        && axis.place(high).is_finite()
                        && axis.ticks.len() < 20
                );
            }
        }
    }
}
