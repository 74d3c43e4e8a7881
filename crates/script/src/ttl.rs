//! Times to live set by scripts.

/// Describes the valid values in error messages.
pub(crate) const EXPECTED: &str = "a number of seconds from 0.001 to 31536000";
/// The minimum and the maximum time to live, in seconds: a millisecond and a year.
pub(crate) const LIMITS: [f64; 2] = [0.001, 31_536_000.0];

/// Converts seconds to milliseconds; `None` beyond the limits.
pub(crate) fn ms(seconds: f64) -> Option<u64> {
    let fits = (LIMITS[0]..=LIMITS[1]).contains(&seconds);
    fits.then(|| (seconds * 1000.0).ceil() as u64)
}
