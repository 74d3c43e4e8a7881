//! The sections about traffic: connections, throughput, latency, errors.

use super::super::model::{Latency, Report};
use super::super::units::{bytes, clean, count, many, rate, time};
use super::super::wording::RunWording;
use super::histogram;
use super::page::{TextPage, Tone};

/// The minimum number of samples for which the 99.9th percentile can differ from the maximum.
const P999_SAMPLES_MIN: u64 = 1_000;

pub(super) fn connections(page: &mut TextPage, report: &Report) {
    let connections = &report.connections;
    if connections.asked == 0 {
        return;
    }
    page.blank();
    let (name, verb) = match report.kind.as_str() {
        "script" => ("Users", "begun"),
        _ => ("Connections", "opened"),
    };
    let opened = count(connections.opened);
    let mut text = if connections.opened == connections.asked {
        format!("{opened} {verb}, as many as were requested")
    } else {
        format!("{opened} of {} {verb}", count(connections.asked))
    };
    if let Some(all_open_s) = connections.all_open_s {
        let verb = if connections.failed == 0 {
            "open"
        } else {
            "open or failed"
        };
        text.push_str(&format!(
            "; all {verb} after {}",
            time(all_open_s * 1e6).replace(' ', "\u{a0}")
        ));
        let each_second = connections.opened as f64 / all_open_s;
        if each_second.is_finite() && connections.opened > 1 {
            text.push_str(&format!(", {} a second", rate(each_second)));
        }
    }
    let all_well = connections.failed == 0 && connections.disconnected == 0;
    page.field(name, Tone::Plain, &text);
    if !all_well {
        let failed = format!(
            "{} failed, {} disconnected unexpectedly",
            count(connections.failed),
            count(connections.disconnected)
        );
        page.more(Tone::Bad, &failed);
    }
    if connections.reconnected > 0 {
        page.more(
            Tone::Plain,
            &format!("{} intended reconnects", count(connections.reconnected)),
        );
    }
    if connections.dead > 0 {
        let text = format!(
            "{} dead: open, but no answer arrived within the timeout",
            count(connections.dead)
        );
        page.more(Tone::Bad, &text);
    }
    if connections.late > 0 {
        let text = format!(
            "{} began more than 1 ms late; their handshakes are measured from the scheduled time",
            many(connections.late, "connection")
        );
        page.more(Tone::Plain, &text);
    }
    if let Some(time_wait) = connections.time_wait {
        page.more(
            Tone::Plain,
            &format!(
                "{} in TIME_WAIT towards the target afterwards",
                many(time_wait, "socket")
            ),
        );
    }
    if let Some(handshake) = &report.handshake_us {
        page.blank();
        page.field(
            "Handshake",
            Tone::Plain,
            "from connecting until the end of the handshake",
        );
        table(page, handshake);
    }
}

pub(super) fn throughput(page: &mut TextPage, report: &Report) {
    let messages = &report.messages;
    if messages.sent == 0 && messages.received == 0 {
        return;
    }
    let words = RunWording::of(&report.kind, report.settings.rate.is_some());
    page.blank();
    page.field(
        "Throughput",
        Tone::Strong,
        &format!("{} {} a second", rate(messages.per_second), words.received),
    );
    if let Some(behind) = super::rate_not_reached(report) {
        page.more(Tone::Bad, &behind);
    }
    page.more(
        Tone::Plain,
        &format!(
            "{} {} sent, {} {} received",
            count(messages.sent),
            words.sent,
            count(messages.received),
            words.received
        ),
    );
    // The bytes that scripts send are not measured.
    if report.script.is_none() {
        let mut text = format!(
            "payload: {} out, {} in",
            bytes(messages.bytes_sent as f64).replace(' ', "\u{a0}"),
            bytes(messages.bytes_received as f64).replace(' ', "\u{a0}")
        );
        if report.seconds > 0.0 {
            text.push_str(&format!(
                "; {}/s out, {}/s in",
                bytes((messages.bytes_sent as f64 / report.seconds).round()).replace(' ', "\u{a0}"),
                bytes((messages.bytes_received as f64 / report.seconds).round())
                    .replace(' ', "\u{a0}")
            ));
        }
        page.more(Tone::Plain, &text);
    }
    if report.settings.stamped == Some(false) {
        let text = format!(
            "messages are not numbered: {} are matched by their order, so losses and duplicates show only in the counts",
            words.received
        );
        page.more(Tone::Faint, &text);
    }
    if messages.unasked > 0 {
        page.more(
            Tone::Plain,
            &format!(
                "{} unsolicited, such as greetings",
                many(messages.unasked, "message")
            ),
        );
    }
    if messages.heartbeats > 0 {
        let text = format!("{} answered", many(messages.heartbeats, "heartbeat"));
        page.more(Tone::Plain, &text);
    }
    if messages.duplicated + messages.late + messages.lost > 0 {
        let tone = if messages.duplicated + messages.lost > 0 {
            Tone::Bad
        } else {
            Tone::Plain
        };
        let text = format!(
            "among the {}: {} duplicated, {} out of order, {} lost",
            words.received,
            count(messages.duplicated),
            count(messages.late),
            count(messages.lost)
        );
        page.more(tone, &text);
    }
    if messages.unanswered > 0 {
        page.more(
            Tone::Plain,
            &format!(
                "{} without an answer when the run ended",
                count(messages.unanswered)
            ),
        );
    }
}

pub(super) fn latency(page: &mut TextPage, report: &Report) {
    let Some(latency) = &report.latency_us else {
        return;
    };
    let words = RunWording::of(&report.kind, report.settings.rate.is_some());
    page.blank();
    page.field("Latency", Tone::Plain, words.latency);
    table(page, latency);
    if latency.count < P999_SAMPLES_MIN {
        page.more(
            Tone::Faint,
            &format!(
                "with only {}, p99.9 is practically the maximum",
                many(latency.count, "sample")
            ),
        );
    }
    if !report.histogram.is_empty() {
        page.blank();
        histogram::draw(page, &report.histogram);
    }
    if report.settings.rate.is_none() && matches!(report.kind.as_str(), "echo" | "http") {
        page.blank();
        page.more(
            Tone::Faint,
            "A closed loop sends less to a stalled server, so stalls weigh little here. With --rate they count in full.",
        );
    }
}

/// Writes the percentiles, in several rows if they do not fit into the width of the page.
fn table(page: &mut TextPage, latency: &Latency) {
    const CELL_COLUMNS: usize = 9;
    let cells = [
        ("p50", latency.p50),
        ("p90", latency.p90),
        ("p95", latency.p95),
        ("p99", latency.p99),
        ("p99.9", latency.p999),
        ("max", latency.max),
        ("mean", latency.mean),
    ];
    for chunk in cells.chunks((page.room() / CELL_COLUMNS).max(1)) {
        let names: String = chunk
            .iter()
            .map(|(name, _)| format!("{name:<CELL_COLUMNS$}"))
            .collect();
        let values: String = chunk
            .iter()
            .map(|(_, us)| format!("{:<CELL_COLUMNS$}", time(*us)))
            .collect();
        page.row(&[(Tone::Faint, &names)]);
        page.row(&[(Tone::Strong, &values)]);
    }
}

pub(super) fn errors(page: &mut TextPage, report: &Report) {
    page.blank();
    let total = report.errors.count();
    if total == 0 {
        page.field("Errors", Tone::Good, "none");
        return;
    }
    page.field("Errors", Tone::Bad, &count(total));
    for (key, meaning, number) in report.errors.causes() {
        if number > 0 {
            page.hanging(
                Tone::Plain,
                &format!("{} {key}: {meaning}", count(number)),
                2,
            );
            if let Some(example) = report.errors.examples.get(key) {
                page.hanging(
                    Tone::Faint,
                    &format!("\u{a0}\u{a0}first: {}", clean(example)),
                    2,
                );
            }
        }
    }
}
