//! Durations (`"500ms"`, `"10s"`) and sizes (`"64KiB"`, `"1MB"`): parsing and formatting.

use std::time::Duration;

/// Units of time with their length in milliseconds, longest first.
const TIMES: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Units of size with their length in bytes.
const SIZES: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Parses an integer with a unit of time, or `0`; `None` if it is anything else or too large.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (number, unit) = split(text)?;
    let (_, ms) = TIMES.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*ms).map(Duration::from_millis)
}

/// Parses a duration of a command line.
///
/// # Errors
/// An error text that names the expected format.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a duration such as \"30s\"".to_owned())
}

/// Parses an integer number of bytes with an optional unit; `None` if it is anything else or too large.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Some(number);
    }
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*bytes)
}

/// Returns the number of whole milliseconds, at most `u64::MAX`.
#[must_use]
pub fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a duration in the shortest way that [`parse_duration`] reads.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let ms = as_ms(duration);
    if ms == 0 {
        return "0".to_owned();
    }
    let fits = TIMES
        .iter()
        .find(|(_, unit_ms)| ms.is_multiple_of(*unit_ms));
    let (unit, unit_ms) = fits.expect("the units must include one millisecond");
    format!("{}{unit}", ms / unit_ms)
}

/// Formats a size with a binary unit in the shortest way that [`parse_size`] reads.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    match SIZES[..3]
        .iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit))
    {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number = text[..digits].parse().ok()?;
    Some((number, text[digits..].trim_start_matches(' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ms = Duration::from_millis;
        for (text, expected) in [
            ("500ms", Some(ms(500))),
            ("10s", Some(ms(10_000))),
            ("10 s", Some(ms(10_000))),
            ("1m", Some(ms(60_000))),
            ("2h", Some(ms(7_200_000))),
            ("1d", Some(ms(86_400_000))),
            ("0", Some(ms(0))),
            ("0s", Some(ms(0))),
            ("", None),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("10S", None),
            ("18446744073709551615d", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(parse_duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("64KiB", Some(65_536)),
            ("64 KiB", Some(65_536)),
            ("1MB", Some(1_000_000)),
            ("1kB", Some(1_000)),
            ("12B", Some(12)),
            ("12", Some(12)),
            ("1GiB", Some(1 << 30)),
            ("", None),
            ("KiB", None),
            ("64kib", None),
            ("1.5MB", None),
            ("18446744073709551615GiB", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text:?}");
        }
    }

    #[test]
    fn formatting_is_read_back() {
        for ms in [
            0, 1, 999, 1_000, 25_000, 60_000, 61_000, 3_600_000, 86_400_000,
        ] {
            let duration = Duration::from_millis(ms);
            assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }
        for bytes in [0, 1, 1_000, 1_024, 65_536, 1 << 20, (1 << 30) + 1, u64::MAX] {
            assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
        }
        assert_eq!(format_duration(Duration::from_secs(90)), "90s");
        assert_eq!(format_size(256 * 1024), "256KiB");
    }
}
