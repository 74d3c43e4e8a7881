//! The figures of a report that objectives can use: their names, locations and units.
//!
//! A figure's name is its key in the report without the unit; the objective's value contains the
//! unit.

use crate::report::Report;
use serde_json::Value;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A time in microseconds. Its objectives must contain a time unit.
    Time,
    /// A count. An objective with `%` bounds it as a percentage of another figure.
    Count,
    /// A rate per second, or any other plain number.
    Rate,
    Bytes,
    /// A share between 0 and 1, which objectives express in percent.
    Share,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    /// The figure's name in objectives.
    pub(super) path: &'static str,
    /// The figure's location in the report's JSON.
    pointer: &'static str,
    pub(super) unit: Unit,
    /// Factor that converts the report's number to the unit.
    factor: f64,
    /// Whether an objective of the whole scenario uses the figure of the merged report. Otherwise
    /// each phase is checked separately.
    pub(super) adds_up: bool,
    /// The path of the total, if an objective can state this figure as a percentage of a total.
    of: Option<&'static str>,
}

const fn time(path: &'static str, pointer: &'static str) -> Figure {
    Figure {
        path,
        pointer,
        unit: Unit::Time,
        factor: 1.0,
        adds_up: false,
        of: None,
    }
}

const fn seconds(path: &'static str, pointer: &'static str) -> Figure {
    Figure {
        factor: 1e6,
        ..time(path, pointer)
    }
}

const fn plain(path: &'static str, pointer: &'static str, unit: Unit) -> Figure {
    Figure {
        unit,
        ..time(path, pointer)
    }
}

const fn count(path: &'static str, pointer: &'static str) -> Figure {
    Figure {
        adds_up: true,
        ..plain(path, pointer, Unit::Count)
    }
}

const fn part(path: &'static str, pointer: &'static str, of: &'static str) -> Figure {
    Figure {
        of: Some(of),
        ..count(path, pointer)
    }
}

const fn sum(path: &'static str, pointer: &'static str, unit: Unit) -> Figure {
    Figure {
        unit,
        ..count(path, pointer)
    }
}

const ASKED: &str = "/connections/asked";
const SENT: &str = "/messages/sent";
const EXPECTED: &str = "/ledger/expected";

/// All figures. The figure `errors` is the sum of the errors by cause; all others are fields of the
/// report.
pub(super) const FIGURES: [Figure; 80] = [
    count("latency.count", "/latency_us/count"),
    time("latency.min", "/latency_us/min"),
    time("latency.mean", "/latency_us/mean"),
    time("latency.p50", "/latency_us/p50"),
    time("latency.p90", "/latency_us/p90"),
    time("latency.p95", "/latency_us/p95"),
    time("latency.p99", "/latency_us/p99"),
    time("latency.p999", "/latency_us/p999"),
    time("latency.max", "/latency_us/max"),
    count("handshake.count", "/handshake_us/count"),
    time("handshake.min", "/handshake_us/min"),
    time("handshake.mean", "/handshake_us/mean"),
    time("handshake.p50", "/handshake_us/p50"),
    time("handshake.p90", "/handshake_us/p90"),
    time("handshake.p95", "/handshake_us/p95"),
    time("handshake.p99", "/handshake_us/p99"),
    time("handshake.p999", "/handshake_us/p999"),
    time("handshake.max", "/handshake_us/max"),
    count("connections.asked", ASKED),
    part("connections.opened", "/connections/opened", ASKED),
    part("connections.failed", "/connections/failed", ASKED),
    part(
        "connections.disconnected",
        "/connections/disconnected",
        ASKED,
    ),
    part("connections.reconnected", "/connections/reconnected", ASKED),
    part("connections.dead", "/connections/dead", ASKED),
    part("connections.late", "/connections/late", ASKED),
    seconds("connections.all_open", "/connections/all_open_s"),
    plain(
        "connections.time_wait",
        "/connections/time_wait",
        Unit::Count,
    ),
    count("messages.sent", SENT),
    part("messages.received", "/messages/received", SENT),
    count("messages.received_in_time", "/messages/received_in_time"),
    sum("messages.per_second", "/messages/per_second", Unit::Rate),
    sum("messages.bytes_sent", "/messages/bytes_sent", Unit::Bytes),
    sum(
        "messages.bytes_received",
        "/messages/bytes_received",
        Unit::Bytes,
    ),
    count("messages.unasked", "/messages/unasked"),
    count("messages.heartbeats", "/messages/heartbeats"),
    part("messages.duplicated", "/messages/duplicated", SENT),
    part("messages.late", "/messages/late", SENT),
    part("messages.lost", "/messages/lost", SENT),
    part("messages.unanswered", "/messages/unanswered", SENT),
    part("errors", "", SENT),
    part("errors.refused", "/errors/refused", SENT),
    part("errors.timed_out", "/errors/timed_out", SENT),
    part("errors.reset", "/errors/reset", SENT),
    part("errors.closed", "/errors/closed", SENT),
    part("errors.bad_handshake", "/errors/bad_handshake", SENT),
    part("errors.tls", "/errors/tls", SENT),
    part("errors.bad_protocol", "/errors/bad_protocol", SENT),
    part("errors.wrong_answer", "/errors/wrong_answer", SENT),
    part("errors.bad_response", "/errors/bad_response", SENT),
    part("errors.system", "/errors/system", SENT),
    count("ledger.receivers", "/ledger/receivers"),
    count("ledger.published", "/ledger/published"),
    count("ledger.expected", EXPECTED),
    part("ledger.delivered", "/ledger/delivered", EXPECTED),
    part("ledger.lost", "/ledger/lost", EXPECTED),
    part("ledger.away", "/ledger/away", EXPECTED),
    part("ledger.duplicated", "/ledger/duplicated", EXPECTED),
    part("ledger.reordered", "/ledger/reordered", EXPECTED),
    part("ledger.corrupted", "/ledger/corrupted", EXPECTED),
    count("ledger.foreign", "/ledger/foreign"),
    part("http.unexpected_bodies", "/http/unexpected_bodies", SENT),
    plain("server.processes", "/server/processes", Unit::Count),
    seconds("server.cpu", "/server/cpu_s"),
    time("server.cpu_per_message", "/server/cpu_us_per_message"),
    plain("server.rss_before", "/server/rss_before_bytes", Unit::Bytes),
    plain("server.rss_open", "/server/rss_open_bytes", Unit::Bytes),
    plain(
        "server.bytes_per_connection",
        "/server/bytes_per_connection",
        Unit::Bytes,
    ),
    plain("generator.cpu", "/generator/cpu", Unit::Share),
    seconds("generator.cpu_time", "/generator/cpu_s"),
    time("generator.cpu_per_message", "/generator/cpu_us_per_message"),
    plain("generator.waited", "/generator/waited", Unit::Share),
    time("generator.lag_max", "/generator/lag_us_max"),
    part("generator.late_sends", "/generator/late_sends", SENT),
    plain(
        "generator.bytes_per_connection",
        "/generator/bytes_per_connection",
        Unit::Bytes,
    ),
    seconds("seconds", "/seconds"),
    // Groups of statuses under their common names.
    part("http.status_2xx", "2", SENT),
    part("http.status_3xx", "3", SENT),
    part("http.status_4xx", "4", SENT),
    part("http.status_5xx", "5", SENT),
    part("http.other_body_bytes", "/http/other_body_bytes", SENT),
];

/// A report prepared for lookups.
pub(super) struct Figures<'r> {
    report: &'r Report,
    json: Value,
}

impl<'r> Figures<'r> {
    pub(super) fn of(report: &'r Report) -> Self {
        // A number that JSON can't represent becomes null, and so counts as not measured.
        let json = serde_json::to_value(report).unwrap_or_default();
        Self { report, json }
    }

    /// Returns the figure in its unit, or as a share between 0 and 1 if `in_share` is set; `None`
    /// if it was not measured.
    pub(super) fn measured(&self, figure: &Figure, in_share: bool) -> Option<f64> {
        let at = |pointer: &str| self.json.pointer(pointer)?.as_f64();
        let value = match figure.pointer {
            "" => self.report.errors.count() as f64,
            class if class.len() == 1 => self.statuses(class)?,
            pointer => at(pointer)? * figure.factor,
        };
        match figure.of {
            Some(of) if in_share => {
                let whole = at(of).filter(|whole| *whole > 0.0)?;
                Some(value / whole)
            }
            _ => Some(value),
        }
    }

    /// Returns the number of responses of a status class.
    fn statuses(&self, class: &str) -> Option<f64> {
        let http = self.report.http.as_ref()?;
        let of_class = |status: &u16| status.to_string().starts_with(class);
        let counts = http.statuses.iter().filter(|(status, _)| of_class(status));
        Some(counts.map(|(_, count)| *count as f64).sum())
    }
}

impl Figure {
    pub(super) fn named(path: &str) -> Option<&'static Self> {
        FIGURES.iter().find(|figure| figure.path == path)
    }

    pub(super) fn has_share(&self) -> bool {
        self.of.is_some() || self.unit == Unit::Share
    }

    /// Returns the kinds of phases that measure the figure; empty if all do.
    pub(super) fn kinds(&self) -> &'static [&'static str] {
        match self.path.split('.').next() {
            Some("ledger") => &["broadcast", "push"],
            Some("http") => &["http"],
            _ => &[],
        }
    }

    /// Returns the reason why the figure was not measured.
    pub(super) fn why_absent(&self, report: &Report) -> &'static str {
        match self.path.split('.').next() {
            Some("server") if report.server_ended.is_some() => {
                "not measured: the server's process ended before the measurement was over"
            }
            Some("server") => "not measured: requires --pid and a phase that runs alone",
            Some("latency") if report.latency_refused.is_some() => {
                "not measured: messages are not numbered and can't be matched with their answers"
            }
            Some("latency") => "not measured: no answer was received",
            Some("handshake") => "not measured: no connection was opened",
            _ => "not measured",
        }
    }

    pub(super) fn show(&self, value: f64, in_share: bool) -> String {
        if in_share || self.unit == Unit::Share {
            return format!("{} %", digits(value * 100.0));
        }
        match self.unit {
            Unit::Time => show_time(value),
            Unit::Bytes => show_bytes(value),
            _ => digits(value),
        }
    }
}

pub(in crate::cli) fn show_time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} us", digits(us)),
        us if us < 1e6 => format!("{} ms", digits(us / 1e3)),
        us => format!("{} s", digits(us / 1e6)),
    }
}

fn show_bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes.abs() < 10_240.0 => format!("{} B", digits(bytes)),
        bytes if bytes.abs() < 1024.0 * 10_240.0 => format!("{} KiB", digits(bytes / 1024.0)),
        bytes => format!("{} MiB", digits(bytes / 1024.0 / 1024.0)),
    }
}

/// Formats whole numbers without decimals, and other numbers with at least four digits.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if value.fract() == 0.0 || size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        _ => 5,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::report::model::{HttpTally, Latency, LedgerCounts, ServerUse};

    use super::*;

    /// Every field of the report is set, so every pointer must find a value.
    #[test]
    fn every_figure_is_one_of_the_report() {
        let mut report = Report {
            latency_us: Some(Latency::default()),
            handshake_us: Some(Latency::default()),
            ledger: Some(LedgerCounts::default()),
            http: Some(HttpTally {
                unexpected_bodies: Some(0),
                ..HttpTally::default()
            }),
            server: Some(ServerUse {
                cpu_us_per_message: Some(0.0),
                bytes_per_connection: Some(0.0),
                ..ServerUse::default()
            }),
            ..Report::default()
        };
        report.connections.all_open_s = Some(0.0);
        report.connections.time_wait = Some(0);
        report.generator.cpu_us_per_message = Some(0.0);
        report.generator.bytes_per_connection = Some(0.0);
        let figures = Figures::of(&report);
        for figure in &FIGURES {
            assert_eq!(
                figures.measured(figure, false),
                Some(0.0),
                "{}",
                figure.path
            );
        }
        let none = Report::default();
        let none = Figures::of(&none);
        for path in [
            "latency.p99",
            "ledger.lost",
            "server.cpu",
            "http.status_5xx",
        ] {
            assert_eq!(
                none.measured(Figure::named(path).unwrap(), false),
                None,
                "{path}"
            );
        }
    }

    #[test]
    fn words_for_values() {
        let show = |path: &str, value| Figure::named(path).unwrap().show(value, false);
        assert_eq!(show("latency.p99", 812.0), "812 us");
        assert_eq!(show("latency.p99", 50_010.0), "50.01 ms");
        assert_eq!(show("server.bytes_per_connection", 700.4), "700.4 B");
        assert_eq!(show("messages.per_second", 123_456.7), "123457");
        assert_eq!(show("generator.cpu", 0.5), "50 %");
        assert_eq!(show("errors", 3.0), "3");
    }
}
