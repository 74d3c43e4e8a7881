//! Schedules of events with a given rate.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::clock::SECOND;

/// How the due times of an open loop are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrivals {
    /// All gaps have equal length.
    #[default]
    Even,
    /// A Poisson process, like independent users: exponentially distributed gaps.
    Random,
}

/// A schedule with even or random spacing. Each time is computed from the beginning, not from the
/// previous time, so the schedule does not drift. A delay does not reduce the rate, since missed
/// times are due immediately.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    per_second: f64,
    from_ns: Option<u64>,
    count: u64,
    /// An offset of the schedule as a fraction of a step, so that the threads of a run alternate.
    phase: f64,
    ramp: Option<Ramp>,
    random: Option<PoissonTimes>,
}

/// The times of a Poisson process, in units of the mean gap.
#[derive(Clone, Debug)]
struct PoissonTimes {
    rng: Rng,
    /// The next time of the process, in units of the mean gap.
    steps: f64,
}

impl PoissonTimes {
    fn next(&mut self) {
        // Draws an exponential gap with mean 1 by inversion. The argument of `ln` is never 0, since
        // `f64()` is below 1.
        self.steps -= (1.0 - self.rng.f64()).ln();
    }
}

/// A linear change of the rate.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    to_per_second: f64,
    /// The time in seconds for which the initial rate applies.
    hold_s: f64,
    /// The duration of the change in seconds. Afterwards the final rate applies.
    over_s: f64,
}

impl Ramp {
    /// Returns the time in seconds at which this many steps are due, by solving the integral of the
    /// rate for the time.
    fn time_s(&self, per_second: f64, steps: f64) -> f64 {
        let held = per_second * self.hold_s;
        if steps <= held {
            return steps / per_second;
        }
        let steps = steps - held;
        let climbed = (per_second + self.to_per_second) / 2.0 * self.over_s;
        if steps >= climbed {
            return self.hold_s + self.over_s + (steps - climbed) / self.to_per_second;
        }
        let slope = (self.to_per_second - per_second) / self.over_s;
        // This form of the solution of the quadratic equation is numerically stable for slopes near
        // 0.
        let root = (per_second * per_second + 2.0 * slope * steps).sqrt();
        self.hold_s + 2.0 * steps / (per_second + root)
    }
}

impl Schedule {
    /// Creates a schedule; `per_second` must be above 0.
    pub(crate) fn new(per_second: f64) -> Self {
        Self {
            per_second,
            from_ns: None,
            count: 0,
            phase: 0.0,
            ramp: None,
            random: None,
        }
    }

    /// Creates a schedule that starts at `from_ns`. `phase` shifts it by a fraction of a step, from
    /// 0 to 1.
    pub(crate) fn starting(per_second: f64, from_ns: u64, phase: f64) -> Self {
        Self {
            from_ns: Some(from_ns),
            phase,
            ..Self::new(per_second)
        }
    }

    /// Changes the rate linearly to `per_second`, which must be above 0, over the measured time.
    /// The initial rate applies during the warm-up.
    pub(crate) fn ramping(
        mut self,
        per_second: Option<f64>,
        warmup_ns: u64,
        duration_ns: u64,
    ) -> Self {
        let seconds = |ns: u64| ns as f64 / SECOND as f64;
        self.ramp = per_second.map(|to_per_second| Ramp {
            to_per_second,
            hold_s: seconds(warmup_ns),
            over_s: seconds(duration_ns),
        });
        self
    }

    /// Sets the spacing; random times are drawn from a fork of `rng`.
    pub(crate) fn arriving(mut self, arrivals: Arrivals, rng: &mut Rng) -> Self {
        self.random = (arrivals == Arrivals::Random).then(|| {
            let mut random = PoissonTimes {
                rng: rng.fork(),
                steps: 0.0,
            };
            random.next();
            random
        });
        self
    }

    /// Returns the next due time. The first call starts the schedule if it has no start.
    pub(crate) fn due(&mut self, now_ns: u64) -> u64 {
        let from_ns = *self.from_ns.get_or_insert(now_ns);
        let steps = match &self.random {
            None => self.count as f64 + self.phase,
            Some(random) => random.steps,
        };
        let seconds = match &self.ramp {
            None => steps / self.per_second,
            Some(ramp) => ramp.time_s(self.per_second, steps),
        };
        from_ns.saturating_add((seconds * SECOND as f64) as u64)
    }

    /// Returns the next time and advances, if that time has passed and is before `until_ns`.
    pub(crate) fn pass(&mut self, now_ns: u64, until_ns: u64) -> Option<u64> {
        let due = self.due(now_ns);
        (due <= now_ns && due < until_ns).then(|| {
            self.next();
            due
        })
    }

    /// Advances to the next due time.
    pub(crate) fn next(&mut self) {
        self.count += 1;
        if let Some(random) = &mut self.random {
            random.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_not_less() {
        let mut pace = Schedule::starting(1000.0, 5 * SECOND, 0.5);
        let mut count = 0;
        while pace.due(0) < 7 * SECOND {
            pace.next();
            count += 1;
        }
        assert_eq!(count, 2000);
    }

    #[test]
    fn a_ramp_is_a_straight_line_between_two_rates() {
        for (from, to) in [(100.0, 5000.0), (5000.0, 100.0), (700.0, 700.0)] {
            let mut pace = Schedule::starting(from, 0, 0.0);
            pace.ramp = Some(Ramp {
                to_per_second: to,
                hold_s: 1.0,
                over_s: 10.0,
            });
            let mut in_second = [0u32; 13];
            while pace.due(0) < 13 * SECOND {
                in_second[(pace.due(0) / SECOND) as usize] += 1;
                pace.next();
            }
            let expected = |second: usize| match second {
                0 => from,
                1..=10 => from + (to - from) * (second as f64 - 0.5) / 10.0,
                _ => to,
            };
            for (second, count) in in_second.into_iter().enumerate() {
                let off = f64::from(count) - expected(second);
                assert!(
                    off.abs() <= 1.0,
                    "{from} to {to}: {count} in second {second}"
                );
            }
        }
    }

    #[test]
    fn random_arrivals_are_a_poisson_process() {
        let mut rng = Rng::with_seed(7);
        let mut pace = Schedule::starting(1000.0, 0, 0.0).arriving(Arrivals::Random, &mut rng);
        let (mut in_second, mut short, mut last) = (vec![0u32; 100], 0, 0);
        loop {
            let due = pace.due(0);
            let Some(count) = in_second.get_mut((due / SECOND) as usize) else {
                break;
            };
            *count += 1;
            // In a Poisson process, a share of 1 - exp(-0.5) of the gaps is shorter than half the
            // mean gap.
            short += u32::from(due - last < SECOND / 2000);
            last = due;
            pace.next();
        }
        let all: u32 = in_second.iter().sum();
        assert!(all.abs_diff(100_000) < 1000, "{all}");
        let share = f64::from(short) / f64::from(all);
        assert!((share - 0.3935).abs() < 0.01, "{share}");
        // In a Poisson process, the variance of the counts equals their mean.
        let mean = f64::from(all) / 100.0;
        let squares = in_second
            .iter()
            .map(|count| (f64::from(*count) - mean).powi(2));
        let variance = squares.sum::<f64>() / 99.0;
        assert!((0.6..1.6).contains(&(variance / mean)), "{variance}");
    }
}
