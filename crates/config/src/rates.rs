//! Parsing and formatting of rates (`10/s`, `1MiB/h`).

use veche_frontends::rate::Rate;
use veche_terminal::{format_size, parse_size};

/// The periods of rates in milliseconds.
const WINDOWS: [(&str, u64); 3] = [("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Parses a positive integer with an optional unit of size, and a period: `10/s`, `100/m`, `1MiB/h`.
pub(crate) fn parse_rate(text: &str) -> Option<Rate> {
    let (count, unit) = text.split_once('/')?;
    let count = parse_size(count).filter(|count| *count > 0)?;
    let (_, ms) = WINDOWS.iter().find(|(name, _)| *name == unit)?;
    Some(Rate::new(count, *ms))
}

/// Formats a rate so that [`parse_rate`] can read it.
pub(crate) fn format_rate(rate: &Rate) -> String {
    let unit = WINDOWS.iter().find(|(_, ms)| *ms == rate.window_ms());
    let (unit, _) = unit.expect("the period of a rate must be one for which there is a unit");
    match rate.count() {
        count if count.is_multiple_of(1 << 10) => format!("{}/{unit}", format_size(count)),
        count => format!("{count}/{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, count, window_ms) in [
            ("10/s", 10, 1_000),
            ("100/m", 100, 60_000),
            ("64KiB/s", 65_536, 1_000),
            ("1/h", 1, 3_600_000),
        ] {
            let rate = parse_rate(text).expect(text);
            assert_eq!(
                (rate.count(), rate.window_ms()),
                (count, window_ms),
                "{text}"
            );
            assert_eq!(format_rate(&rate), text);
        }
        for text in [
            "", "10", "0/s", "10/d", "10 /x", "/s", "-1/s", "10/s/s", "1.5/s",
        ] {
            assert_eq!(parse_rate(text), None, "{text}");
        }
    }
}
