//! Formatting of figures for people: three significant digits, a unit, grouped thousands.
//!
//! A NaN or infinite figure is shown as a dash. Generated reports contain none, but other reports
//! may.

/// Shown for an absent figure.
pub(crate) const ABSENT: &str = "–";

/// Formats microseconds: `812 µs`, `1.02 ms`, `2.00 s`.
pub(crate) fn time(us: f64) -> String {
    // Each limit is the value at which rounding to three digits would reach the next unit.
    match us {
        us if !us.is_finite() => ABSENT.to_owned(),
        us if us < 999.5 => format!("{} µs", three_digits(us)),
        us if us < 999_500.0 => format!("{} ms", three_digits(us / 1e3)),
        us => format!("{} s", three_digits(us / 1e6)),
    }
}

/// Formats seconds of a plan: `10 s`, `2.5 s`, `0.04 s`.
pub(crate) fn seconds(s: f64) -> String {
    match s {
        s if !s.is_finite() => ABSENT.to_owned(),
        s if s < 9.95 && (s - s.round()).abs() > 0.005 => format!("{} s", three_digits(s)),
        s if s < 119.5 && (s - s.round()).abs() > 0.05 => format!("{s:.1} s"),
        s => format!("{} s", count_of(s)),
    }
}

/// Formats a number with grouped thousands: `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a rate: without decimals if it is at least 100, otherwise with three digits.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        x if !x.is_finite() => ABSENT.to_owned(),
        x if x < 99.95 => three_digits(x),
        x => count_of(x),
    }
}

/// Formats bytes: `20 B`, `8 KiB`, `1.25 MiB`.
pub(crate) fn bytes(bytes: f64) -> String {
    if !bytes.is_finite() {
        return ABSENT.to_owned();
    }
    let mut size = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size.abs() < 1023.5 {
            let whole = unit == "B" || (size - size.round()).abs() < 1e-9;
            return if whole {
                format!("{size:.0} {unit}")
            } else {
                format!("{} {unit}", three_digits(size))
            };
        }
        size /= 1024.0;
    }
    format!("{} TiB", three_digits(size))
}

/// Formats a share between 0 and 1 in percent: `12.3 %`. Only 0 is shown as 0, and only 1 as 100.
pub(crate) fn share(part: f64) -> String {
    match part * 100.0 {
        p if !p.is_finite() => ABSENT.to_owned(),
        p if p > 0.0 && p < 0.05 => "<0.1 %".to_owned(),
        p if p < 100.0 && p > 99.95 => ">99.9 %".to_owned(),
        p => format!("{p:.1} %"),
    }
}

/// Formats `1 connection`, `2 connections`, for nouns with a plural s.
pub(crate) fn many(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Removes control characters from external text, so that a server can't control the terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') { '·' } else { c })
        .collect()
}

/// Formats three significant digits without a unit: `0.0123`, `1.02`, `812`, `1,230`.
pub(crate) fn three_digits(x: f64) -> String {
    let size = x.abs();
    match size {
        _ if !size.is_finite() => ABSENT.to_owned(),
        _ if size < 0.000_5 => "0".to_owned(),
        _ if size < 0.099_95 => format!("{x:.3}"),
        _ if size < 9.995 => format!("{x:.2}"),
        _ if size < 99.95 => format!("{x:.1}"),
        _ => count_of(x),
    }
}

fn count_of(x: f64) -> String {
    let sign = if x <= -0.5 { "-" } else { "" };
    format!("{sign}{}", count(x.abs().round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_three_digits_and_never_say_a_thousand() {
        for (us, text) in [
            (0.0, "0 µs"),
            (0.25, "0.25 µs"),
            (9.999, "10.0 µs"),
            (812.0, "812 µs"),
            (999.4, "999 µs"),
            (999.6, "1.00 ms"),
            (1_020.0, "1.02 ms"),
            (45_678.0, "45.7 ms"),
            (999_499.0, "999 ms"),
            (999_700.0, "1.00 s"),
            (2_000_000.0, "2.00 s"),
            (75e6, "75.0 s"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ] {
            assert_eq!(time(us), text, "{us}");
        }
    }

    #[test]
    fn counts_rates_bytes_shares() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(rate(2.345_6), "2.35");
        assert_eq!(rate(99.96), "100");
        assert_eq!(rate(123_456.7), "123,457");
        assert_eq!(rate(f64::NAN), "–");
        assert_eq!(bytes(20.0), "20 B");
        assert_eq!(bytes(8192.0), "8 KiB");
        assert_eq!(bytes(1.25 * 1024.0 * 1024.0), "1.25 MiB");
        assert_eq!(bytes(1023.9), "1.00 KiB");
        assert_eq!(share(0.123), "12.3 %");
        assert_eq!(share(0.00001), "<0.1 %");
        assert_eq!(share(0.99999), ">99.9 %");
        assert_eq!(share(1.0), "100.0 %");
        assert_eq!(share(f64::NAN), "–");
        assert_eq!(seconds(10.0), "10 s");
        assert_eq!(seconds(10.26), "10.3 s");
        assert_eq!(seconds(0.043), "0.043 s");
        assert_eq!(seconds(2.5), "2.50 s");
        assert_eq!(seconds(3600.2), "3,600 s");
        assert_eq!(many(1, "connection"), "1 connection");
        assert_eq!(many(2_000, "connection"), "2,000 connections");
    }

    #[test]
    fn nothing_of_others_moves_the_cursor() {
        assert_eq!(clean("a\x1b[2Jb\r\n\u{202e}c"), "a·[2Jb···c");
    }
}
