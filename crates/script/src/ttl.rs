//! Times to live, as scripts tell them.

/// What is asked for.
pub(crate) const EXPECTED: &str = "seconds from 0.001 to 31536000";
/// The least and the most: a millisecond, a year.
pub(crate) const LIMITS: [f64; 2] = [0.001, 31_536_000.0];

/// Milliseconds of so many seconds; `None` beyond the limits.
pub(crate) fn ms(seconds: f64) -> Option<u64> {
    let fits = (LIMITS[0]..=LIMITS[1]).contains(&seconds);
    fits.then(|| (seconds * 1000.0).ceil() as u64)
}
