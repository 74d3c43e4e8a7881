//! Ratios with confidence intervals from order statistics. The intervals assume no distribution of the noise and are
//! exact for few runs.
//!
//! No random numbers are used, so equal reports give equal results.

use serde::{Deserialize, Serialize};

/// Groups of up to this many runs get exact intervals. For larger groups, the normal approximation is
/// accurate enough.
const EXACT_RUNS_MAX: usize = 40;
/// Permitted error probability of an interval, for both sides together.
const RISK: f64 = 0.05;

/// The ratio of another group's figure to that of the first group, with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure of the other group divided by that of the first group.
    pub ratio: f64,
    /// Lower end of the ratio's interval.
    pub low: f64,
    /// Upper end of the ratio's interval.
    pub high: f64,
    /// Probability, from 0 to 1, that the interval contains the true ratio: at least 0.95 with enough runs.
    pub confidence: f64,
    /// The method that was used.
    pub method: EstimateMethod,
}

/// The method by which a ratio and its interval are determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EstimateMethod {
    /// Runs of the two groups alternated, and each pair of neighbouring runs gives one ratio. The result is the median
    /// of these ratios; its interval is from the binomial distribution.
    Paired,
    /// The ratio is the median over all pairs of runs, one from each group; the interval is from the
    /// distribution of the Mann–Whitney statistic. Assumes that both groups have equal variance.
    Unpaired,
    /// Each group has one run. The interval is from parts of the runs, so it does not include the
    /// variation between runs.
    WithinRuns,
    /// Each group has one run, which could not be split into parts, so there is no interval.
    Single,
}

/// Returns the median of sorted values. There must be at least one.
pub(super) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// Computes an estimate from the ratios of pairs; `None` if there are too few pairs for 95 %
/// confidence.
pub(super) fn paired(ratios: &[f64]) -> Option<Estimate> {
    let n = ratios.len();
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The probability of at most `k` heads in `n` coin tosses.
    let mut term = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut tail = 0.0;
    let mut found = None;
    for k in 0..n / 2 {
        tail += term;
        if 2.0 * tail > RISK {
            break;
        }
        found = Some((k, 1.0 - 2.0 * tail));
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    let (cut, confidence) = found?;
    Some(Estimate {
        ratio: median(&sorted),
        low: sorted[cut],
        high: sorted[n - 1 - cut],
        confidence,
        method: EstimateMethod::Paired,
    })
}

/// Computes an estimate from all ratios between two groups; `None` if a group is empty or a value is not above 0.
pub(super) fn unpaired(first: &[f64], other: &[f64]) -> Option<Estimate> {
    if first.is_empty()
        || other.is_empty()
        || first
            .iter()
            .chain(other)
            .any(|value| value.is_nan() || *value <= 0.0)
    {
        return None;
    }
    let mut ratios: Vec<f64> = other
        .iter()
        .flat_map(|b| first.iter().map(move |a| b / a))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let (cut, confidence) = mann_whitney_cut(first.len(), other.len());
    Some(Estimate {
        ratio: median(&ratios),
        low: ratios[cut],
        high: ratios[ratios.len() - 1 - cut],
        confidence,
        method: EstimateMethod::Unpaired,
    })
}

/// Returns how many ratios to cut off at each end, and the resulting confidence. With very few runs
/// nothing is cut off, and the confidence is below 95 %.
fn mann_whitney_cut(n: usize, m: usize) -> (usize, f64) {
    if n.max(m) > EXACT_RUNS_MAX {
        let (n, m) = (n as f64, m as f64);
        let cut = (n * m / 2.0 - 1.96 * (n * m * (n + m + 1.0) / 12.0).sqrt())
            .floor()
            .max(0.0);
        return (cut as usize, 1.0 - RISK);
    }
    let chances = mann_whitney(n, m);
    let (mut tail, mut cut, mut confidence) = (0.0, 0, 1.0 - 2.0 * chances[0]);
    for (statistic, chance) in chances.iter().enumerate() {
        tail += chance;
        if 2.0 * tail > RISK {
            break;
        }
        (cut, confidence) = (statistic, 1.0 - 2.0 * tail);
    }
    (cut, confidence.max(0.0))
}

/// Returns the probability of each value of the Mann–Whitney statistic, from 0 to n·m, for two groups
/// with the same distribution. The probability of a value is the share of all interleavings of n and m
/// values that have this number of inversions.
fn mann_whitney(n: usize, m: usize) -> Vec<f64> {
    // `ways[j][u]` is the number of orders of the values so far that have `j` values of the second
    // group and `u` inversions. Appending a value of the first group adds `j` inversions.
    let mut ways = vec![vec![0.0_f64; n * m + 1]; m + 1];
    for row in &mut ways {
        row[0] = 1.0;
    }
    for _ in 0..n {
        let mut next = vec![vec![0.0_f64; n * m + 1]; m + 1];
        for j in 0..=m {
            for u in 0..=n * m {
                let ends_with_first = if u >= j { ways[j][u - j] } else { 0.0 };
                let ends_with_second = if j > 0 { next[j - 1][u] } else { 0.0 };
                next[j][u] = ends_with_first + ends_with_second;
            }
        }
        ways = next;
    }
    let total: f64 = ways[m].iter().sum();
    ways[m].iter().map(|count| count / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistic_has_its_known_distribution() {
        // Counted by hand: how many of the 20 ways to interleave two groups of 3 values have 0, 1,
        // … 9 inversions.
        let expected = [1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 2.0, 1.0, 1.0].map(|count| count / 20.0);
        for (found, expected) in mann_whitney(3, 3).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12);
        }
        // From published tables of critical values, two-sided 5 %: U ≤ 0 at 4:4, 2 at 5:5, 5 at 6:6, 8 at 7:7, 23 at
        // 10:10.
        for (n, critical) in [(4, 0), (5, 2), (6, 5), (7, 8), (10, 23)] {
            let (cut, confidence) = mann_whitney_cut(n, n);
            assert_eq!(cut, critical, "{n}");
            assert!((0.95..1.0).contains(&confidence), "{n}: {confidence}");
        }
        let (cut, confidence) = mann_whitney_cut(3, 3);
        assert!(cut == 0 && (confidence - 0.9).abs() < 1e-12);
        assert_eq!(mann_whitney_cut(1, 1), (0, 0.0));
    }

    #[test]
    fn the_approximation_takes_over_smoothly() {
        let exact = mann_whitney_cut(40, 40).0 as f64;
        let approximate = mann_whitney_cut(41, 41).0 as f64;
        assert!(
            approximate > exact && approximate < exact * 1.08,
            "{exact} {approximate}"
        );
    }

    #[test]
    fn pairs_need_six() {
        assert_eq!(paired(&[1.0, 1.1, 1.2, 1.3, 1.4]), None);
        let estimate = paired(&[1.4, 1.0, 1.1, 1.3, 1.2, 1.5]).unwrap();
        assert_eq!((estimate.low, estimate.high), (1.0, 1.5));
        assert!(
            (estimate.ratio - 1.25).abs() < 1e-12 && (estimate.confidence - 0.96875).abs() < 1e-12
        );
        // With 15 pairs, the interval ends at the fourth ratio from either end, as in tables of the
        // sign test.
        let estimate = paired(&(1..=15).map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!(
            (estimate.ratio, estimate.low, estimate.high),
            (8.0, 4.0, 12.0)
        );
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut noisy = |middle: f64| middle * (1.0 + 0.2 * (random.f64() + random.f64() - 1.0));
        let (mut held, rounds) = (0, 2_000);
        for _ in 0..rounds {
            let first: Vec<f64> = (0..5).map(|_| noisy(100.0)).collect();
            let other: Vec<f64> = (0..6).map(|_| noisy(130.0)).collect();
            let estimate = unpaired(&first, &other).unwrap();
            held += i32::from(estimate.low <= 1.3 && 1.3 <= estimate.high);
        }
        let share = f64::from(held) / f64::from(rounds);
        assert!((0.93..0.985).contains(&share), "{share}");
    }
}
