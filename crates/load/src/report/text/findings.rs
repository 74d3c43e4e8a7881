//! The sections with results: a script's actions, shootout steps, responses, ledger, server, tester, objectives.

use super::super::model::{GeneratorUse, HttpTally, Latency, LedgerCounts, Recovery, Report};
use super::super::units::{bytes, clean, count, many, rate, seconds, share, time};
use super::page::{TextPage, Tone};

/// Writes the sessions of a script's users, and their actions by name.
pub(super) fn actions(page: &mut TextPage, report: &Report) {
    let Some(script) = &report.script else { return };
    page.blank();
    let tone = match script.sessions_failed {
        0 => Tone::Plain,
        _ => Tone::Bad,
    };
    let text = format!(
        "{} ended well, {} failed",
        many(script.sessions, "session"),
        count(script.sessions_failed)
    );
    page.field("Script", tone, &text);
    if script.actions.is_empty() {
        return;
    }
    page.row(&[(
        Tone::Faint,
        &format!(
            "{:>11} {:>8} {:>8} {:>8} {:>6}",
            "a second", "p50", "p99", "max", "failed"
        ),
    )]);
    for action in &script.actions {
        let at = |of: fn(&Latency) -> f64| {
            action
                .latency_us
                .as_ref()
                .map_or_else(String::new, |us| time(of(us)))
        };
        page.hanging(Tone::Plain, &clean(&action.name), 2);
        let row = format!(
            "{:>11} {:>8} {:>8} {:>8} {:>6}",
            rate(action.per_second),
            at(|us| us.p50),
            at(|us| us.p99),
            at(|us| us.max),
            count(action.failed)
        );
        let tone = if action.failed > 0 {
            Tone::Bad
        } else {
            Tone::Plain
        };
        page.row(&[(tone, &row)]);
        if let Some(example) = &action.example {
            page.hanging(Tone::Faint, &format!("first: {}", clean(example)), 2);
        }
    }
}

pub(super) fn steps(page: &mut TextPage, report: &Report) {
    if report.steps.is_empty() {
        return;
    }
    page.blank();
    page.field(
        "Steps",
        Tone::Plain,
        "round trips at each number of clients",
    );
    page.row(&[(
        Tone::Faint,
        &format!(
            "{:>7} {:>9} {:>8} {:>8} {:>8} {:>6}",
            "clients", "samples", "p50", "p95", "max", "errors"
        ),
    )]);
    for step in &report.steps {
        let row = format!(
            "{:>7} {:>9} {:>8} {:>8} {:>8} {:>6}",
            count(step.clients),
            count(step.samples),
            time(step.p50_us),
            time(step.p95_us),
            time(step.max_us),
            count(step.errors)
        );
        page.row(&[(
            if step.errors > 0 {
                Tone::Bad
            } else {
                Tone::Plain
            },
            &row,
        )]);
    }
}

pub(super) fn http(page: &mut TextPage, report: &Report) {
    let Some(http) = &report.http else { return };
    let total: u64 = http.statuses.values().sum();
    if total == 0 {
        return;
    }
    page.blank();
    if http.is_mixed() {
        page.field(
            "Responses",
            Tone::Bad,
            "A MIX: bodies differ, so averages mean little",
        );
    } else {
        page.field("Responses", Tone::Good, "all alike");
    }
    for (status, number) in &http.statuses {
        let tone = if *status >= 400 {
            Tone::Bad
        } else {
            Tone::Plain
        };
        let text = format!(
            "status {status:<9} {:>14} {:>7}",
            count(*number),
            share(*number as f64 / total as f64)
        );
        page.row(&[(tone, &text)]);
    }
    lengths(page, http, total);
    match http.unexpected_bodies {
        Some(0) => page.more(Tone::Good, "all bodies as expected"),
        Some(number) => page.more(
            Tone::Bad,
            &format!(
                "{} not as expected",
                many(number, "body").replace("bodys", "bodies")
            ),
        ),
        None => {}
    }
}

fn lengths(page: &mut TextPage, http: &HttpTally, total: u64) {
    for (length, number) in &http.body_bytes {
        let text = format!(
            "body {:<11} {:>14} {:>7}",
            format!("{} B", count(*length)),
            count(*number),
            share(*number as f64 / total as f64)
        );
        page.row(&[(Tone::Plain, &text)]);
    }
    if http.other_body_bytes > 0 {
        let text = format!("{} of other lengths", count(http.other_body_bytes));
        page.more(Tone::Plain, &text);
    }
}

pub(super) fn ledger(page: &mut TextPage, report: &Report) {
    let Some(ledger) = &report.ledger else { return };
    page.blank();
    page.field(
        "Ledger",
        Tone::Plain,
        &format!(
            "{} to {}",
            many(ledger.published, "publication"),
            many(ledger.receivers, "receiver")
        ),
    );
    page.more(
        Tone::Plain,
        &format!(
            "{} expected = {} delivered{} + {} lost + {} away",
            count(ledger.expected),
            count(ledger.delivered),
            match ledger.expected.saturating_sub(accounted(ledger)) {
                0 => String::new(),
                spoilt => format!(" + {} corrupted", count(spoilt)),
            },
            count(ledger.lost),
            count(ledger.away)
        ),
    );
    if let Some(gap) = gap(ledger) {
        page.more(
            Tone::Bad,
            &format!(
                "INCONSISTENT by {} deliveries: a bug in the tester, please report it",
                count(gap)
            ),
        );
    }
    let beside = ledger.duplicated + ledger.reordered + ledger.corrupted;
    page.more(
        if beside + ledger.lost > 0 {
            Tone::Bad
        } else {
            Tone::Good
        },
        &format!(
            "{} duplicated, {} reordered, {} corrupted",
            count(ledger.duplicated),
            count(ledger.reordered),
            count(ledger.corrupted)
        ),
    );
    if ledger.foreign > 0 {
        let text = format!(
            "{}, such as pings, which are not counted as deliveries",
            many(ledger.foreign, "foreign message")
        );
        page.more(Tone::Plain, &text);
    }
    if ledger.away > 0 {
        page.more(
            Tone::Faint,
            "away: messages that were sent while the receiver was disconnected, or lost when its connection was closed",
        );
    }
    if let Some(recovery) = &ledger.recovery {
        self::recovery(page, recovery);
    }
    for receiver in &ledger.worst {
        let mut faults = Vec::new();
        for (number, name) in [
            (receiver.lost, "lost"),
            (receiver.duplicated, "duplicated"),
            (receiver.reordered, "reordered"),
            (receiver.corrupted, "corrupted"),
        ] {
            if number > 0 {
                faults.push(format!("{} {name}", count(number)));
            }
        }
        let first = if receiver.first.is_empty() {
            String::new()
        } else {
            format!("; first: {}", clean(&receiver.first))
        };
        page.hanging(
            Tone::Plain,
            &format!(
                "receiver {}: {}{first}",
                receiver.receiver,
                faults.join(", ")
            ),
            2,
        );
    }
}

/// Writes how well clients that reconnected with a position have recovered.
fn recovery(page: &mut TextPage, recovery: &Recovery) {
    page.more(
        if recovery.refused > 0 {
            Tone::Bad
        } else {
            Tone::Plain
        },
        &format!(
            "{} with a position; for {} of them the history was lost",
            many(recovery.returned, "reconnection"),
            count(recovery.refused)
        ),
    );
    page.more(
        Tone::Plain,
        &format!(
            "{} not answered and not counted above; {} of {}",
            many(recovery.unanswered, "publication"),
            many(recovery.unanswered_delivered, "delivery").replace("deliverys", "deliveries"),
            if recovery.unanswered == 1 {
                "it"
            } else {
                "them"
            }
        ),
    );
    if recovery.ended + recovery.retried > 0 {
        let text = format!(
            "{} ended unexpectedly, {} to reopen one failed",
            many(recovery.ended, "connection"),
            many(recovery.retried, "attempt")
        );
        page.more(Tone::Plain, &text);
    }
    if let Some(example) = &recovery.example {
        page.hanging(Tone::Faint, &format!("first: {}", clean(example)), 2);
    }
}

/// Returns the amount by which a ledger's sums are inconsistent; `None` if they are consistent.
/// Expected messages that were neither delivered, lost nor excused must have been corrupted. There
/// may be more corrupted messages, because copies of delivered messages may be corrupted, too.
pub(crate) fn gap(ledger: &LedgerCounts) -> Option<u64> {
    let sum = accounted(ledger);
    let gap = if sum > ledger.expected {
        sum - ledger.expected
    } else {
        (ledger.expected - sum).saturating_sub(ledger.corrupted)
    };
    Some(gap).filter(|gap| *gap > 0)
}

fn accounted(ledger: &LedgerCounts) -> u64 {
    ledger
        .delivered
        .saturating_add(ledger.lost)
        .saturating_add(ledger.away)
}

/// Explains why the server's resource use is unknown.
pub(crate) fn server_ended(pid: u32) -> String {
    format!(
        "process {pid} ended before the measurement was over: its CPU time and memory are not known"
    )
}

pub(super) fn server(page: &mut TextPage, report: &Report) {
    if let Some(pid) = report.server_ended {
        page.blank();
        page.field("Server", Tone::Bad, &server_ended(pid));
    }
    let Some(server) = &report.server else { return };
    page.blank();
    let others = match server.processes {
        0 | 1 => String::new(),
        n => format!(" and {}", many(n - 1, "descendant")),
    };
    page.field(
        "Server",
        Tone::Plain,
        &format!("process {}{others}", server.pid),
    );
    let mut cpu = format!("CPU {}", seconds(server.cpu_s));
    if report.seconds > 0.0 {
        cpu.push_str(&format!(
            ", {} of a core on average",
            share(server.cpu_s / report.seconds)
        ));
    }
    page.more(Tone::Plain, &cpu);
    if let Some(each) = server.cpu_us_per_message {
        page.more(Tone::Strong, &format!("{} of CPU per message", time(each)));
    }
    page.more(
        Tone::Plain,
        &format!(
            "memory {} before, {} with all connections open",
            bytes(server.rss_before_bytes as f64),
            bytes(server.rss_open_bytes as f64)
        ),
    );
    if let Some(each) = server.bytes_per_connection {
        page.more(
            Tone::Strong,
            &format!(
                "{} per connection, without the kernel's part",
                bytes(each.round())
            ),
        );
    }
}

pub(super) fn generator(page: &mut TextPage, report: &Report) {
    let generator = &report.generator;
    if *generator == GeneratorUse::default() {
        return;
    }
    page.blank();
    let settings = &report.settings;
    let shape = format!(
        "{} in {}",
        many(settings.threads, "thread"),
        many(settings.processes, "process")
    )
    .replace("processs", "processes");
    page.field(
        "Tester",
        Tone::Plain,
        &format!(
            "{shape}; the busiest used {} of a core",
            share(generator.cpu)
        ),
    );
    let mut text = format!("CPU {}", seconds(generator.cpu_s));
    if let Some(each) = generator.cpu_us_per_message {
        text.push_str(&format!(", {} per message", time(each)));
    }
    if let Some(each) = generator.bytes_per_connection {
        text.push_str(&format!(
            "; {} of memory per connection",
            bytes(each.round())
        ));
    }
    page.more(Tone::Plain, &text);
    // Scripts don't run in the tester's event loop, so there are no iterations of the loop to report.
    if report.script.is_none() {
        let turn = time(generator.lag_us_max);
        let waited = share(generator.waited);
        let text = format!(
            "longest iteration of the event loop {turn}; waited for a core {waited} of the time"
        );
        page.more(Tone::Plain, &text);
    }
    if settings.rate.is_some() {
        let sent = report.messages.sent;
        let part = if sent > 0 {
            format!(" of {}", count(sent))
        } else {
            String::new()
        };
        page.more(
            Tone::Plain,
            &format!(
                "more than 1 ms late: {}{part}",
                many(generator.late_sends, "send")
            ),
        );
    }
    // If the tester was the bottleneck, the top of the report has already stated why.
    if !generator.bottleneck {
        page.more(Tone::Good, "the tester was not the bottleneck");
    }
    for remark in &generator.remarks {
        page.hanging(Tone::Plain, &format!("but {}", clean(remark)), 4);
    }
}

pub(super) fn checks(page: &mut TextPage, report: &Report) {
    if report.checks.is_empty() {
        return;
    }
    page.blank();
    let broken = report.checks.iter().filter(|check| !check.passed).count();
    let (tone, summary) = match broken {
        0 => (
            Tone::Good,
            format!("{} of {} kept", report.checks.len(), report.checks.len()),
        ),
        n => (Tone::Bad, format!("{n} of {} BROKEN", report.checks.len())),
    };
    page.field("Promises", tone, &summary);
    for check in &report.checks {
        let (tone, word) = if check.passed {
            (Tone::Plain, "kept  ")
        } else {
            (Tone::Bad, "BROKEN")
        };
        let text = format!(
            "{} {}, measured {}",
            word.replace(' ', "\u{a0}"),
            clean(&check.promise),
            clean(&check.measured)
        );
        page.hanging(tone, &text, 7);
    }
}
