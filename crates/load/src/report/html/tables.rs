//! The figures of a run in tables.

use super::super::model::{ConnectionCounts, GeneratorUse, Latency, Report};
use super::super::text::{ledger_gap, server_ended};
use super::super::units::{bytes, count, many, rate, seconds, share, time};
use super::super::wording::RunWording;
use super::escape::escape;

type Cells = Vec<(String, String)>;

pub(super) fn all(out: &mut String, report: &Report) {
    let words = RunWording::of(&report.kind, report.settings.rate.is_some());
    if let Some(us) = &report.latency_us {
        section(out, "Latency", words.latency, &latency(us));
    }
    if let Some(us) = &report.handshake_us {
        section(
            out,
            "Handshake",
            "from connecting until the end of the handshake",
            &latency(us),
        );
    }
    traffic(out, report, &words);
    errors(out, report);
    actions(out, report);
    steps(out, report);
    http(out, report);
    ledger(out, report);
    server(out, report);
    generator(out, report);
}

pub(super) fn checks(out: &mut String, report: &Report) {
    if report.checks.is_empty() {
        return;
    }
    out.push_str("<div class=\"checks\"><section><h3>Promises</h3><table class=\"long\">\n");
    for check in &report.checks {
        let (class, word) = if check.passed {
            ("good", "kept")
        } else {
            ("bad", "BROKEN")
        };
        out.push_str(&format!(
            "<tr><th class=\"{class}\">{word}</th><td>{}</td><td>measured {}</td></tr>\n",
            escape(&check.promise),
            escape(&check.measured)
        ));
    }
    out.push_str("</table></section></div>\n");
}

fn section(out: &mut String, title: &str, note: &str, cells: &[(String, String)]) {
    out.push_str(&format!("<section><h3>{}</h3>", escape(title)));
    if !note.is_empty() {
        out.push_str(&format!("<p class=\"soft\">{}</p>", escape(note)));
    }
    out.push_str("<table>\n");
    for (name, value) in cells {
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n",
            escape(name),
            escape(value)
        ));
    }
    out.push_str("</table></section>\n");
}

fn cell(name: &str, value: String) -> (String, String) {
    (name.to_owned(), value)
}

fn latency(us: &Latency) -> Cells {
    vec![
        cell("shortest", time(us.min)),
        cell("p50", time(us.p50)),
        cell("p90", time(us.p90)),
        cell("p95", time(us.p95)),
        cell("p99", time(us.p99)),
        cell("p99.9", time(us.p999)),
        cell("longest", time(us.max)),
        cell("mean", time(us.mean)),
        cell("samples", count(us.count)),
    ]
}

fn traffic(out: &mut String, report: &Report, words: &RunWording) {
    let (connections, messages) = (&report.connections, &report.messages);
    let (title, mut cells) = match report.kind.as_str() {
        "script" => (
            "Users and actions",
            vec![opened("users begun", connections)],
        ),
        _ => ("Connections and messages", of_connections(connections)),
    };
    cells.push(cell(&format!("{} sent", words.sent), count(messages.sent)));
    cells.push(cell(
        &format!("{} received", words.received),
        count(messages.received),
    ));
    cells.push(cell("a second", rate(messages.per_second)));
    if let Some(asked) = report.settings.rate {
        cells.push(cell("requested per second", rate(asked)));
    }
    // The bytes that scripts send are not measured.
    if report.script.is_none() {
        cells.push(cell("payload sent", bytes(messages.bytes_sent as f64)));
        cells.push(cell(
            "payload received",
            bytes(messages.bytes_received as f64),
        ));
    }
    for (name, number) in [
        ("unsolicited messages", messages.unasked),
        ("heartbeats answered", messages.heartbeats),
        ("duplicate answers", messages.duplicated),
        ("answers received after a later one", messages.late),
        (
            "answers never received, although later ones were",
            messages.lost,
        ),
        (
            "messages without an answer when the run ended",
            messages.unanswered,
        ),
    ] {
        if number > 0 {
            cells.push(cell(name, count(number)));
        }
    }
    section(out, title, "", &cells);
}

fn opened(name: &str, connections: &ConnectionCounts) -> (String, String) {
    let (opened, asked) = (count(connections.opened), count(connections.asked));
    cell(name, format!("{opened} of {asked}"))
}

fn of_connections(connections: &ConnectionCounts) -> Cells {
    let mut cells = vec![
        opened("connections opened", connections),
        cell("failed", count(connections.failed)),
        cell("disconnected unexpectedly", count(connections.disconnected)),
    ];
    if connections.reconnected > 0 {
        cells.push(cell("intended reconnects", count(connections.reconnected)));
    }
    if let Some(all_open_s) = connections.all_open_s {
        cells.push(cell(
            "all connections open or failed after",
            time(all_open_s * 1e6),
        ));
    }
    if let Some(time_wait) = connections.time_wait {
        cells.push(cell("sockets in TIME_WAIT afterwards", count(time_wait)));
    }
    cells
}

fn errors(out: &mut String, report: &Report) {
    let total = report.errors.count();
    if total == 0 {
        out.push_str("<section><h3>Errors</h3><p class=\"good\">none</p></section>\n");
        return;
    }
    out.push_str(&format!(
        "<section><h3>Errors</h3><p class=\"bad\">{}</p><table class=\"long\">\n",
        count(total)
    ));
    for (key, meaning, number) in report.errors.causes() {
        if number > 0 {
            let example = report
                .errors
                .examples
                .get(key)
                .map_or_else(String::new, |example| {
                    format!("<br>first: {}", escape(example))
                });
            out.push_str(&format!(
                "<tr><td>{}</td><th scope=\"row\">{key}</th><td>{}<span class=\"soft\">{example}</span></td></tr>\n",
                count(number),
                escape(meaning)
            ));
        }
    }
    out.push_str("</table></section>\n");
}

fn actions(out: &mut String, report: &Report) {
    let Some(script) = &report.script else { return };
    out.push_str(&format!(
        "<section><h3>Script</h3><p class=\"soft\">{} ended well, {} failed</p><div class=\"scroll\"><table class=\"wide\">\n<tr><th>action</th><th>a second</th><th>p50</th><th>p99</th><th>longest</th><th>failed</th></tr>\n",
        many(script.sessions, "session"),
        count(script.sessions_failed)
    ));
    for action in &script.actions {
        let at = |of: fn(&Latency) -> f64| {
            let us = action.latency_us.as_ref();
            us.map_or_else(|| "–".to_owned(), |us| time(of(us)))
        };
        let example = action
            .example
            .as_deref()
            .map_or_else(String::new, |example| {
                format!("<span class=\"soft\">first: {}</span>", escape(example))
            });
        out.push_str(&format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{example}</td></tr>\n",
            escape(&action.name),
            rate(action.per_second),
            at(|us| us.p50),
            at(|us| us.p99),
            at(|us| us.max),
            count(action.failed)
        ));
    }
    out.push_str("</table></div></section>\n");
}

fn steps(out: &mut String, report: &Report) {
    if report.steps.is_empty() {
        return;
    }
    out.push_str("<section><h3>Steps</h3><div class=\"scroll\"><table class=\"wide\">\n<tr><th>clients</th><th>samples</th><th>p50</th><th>p95</th><th>longest</th><th>errors</th></tr>\n");
    for step in &report.steps {
        out.push_str(&format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            count(step.clients),
            count(step.samples),
            time(step.p50_us),
            time(step.p95_us),
            time(step.max_us),
            count(step.errors)
        ));
    }
    out.push_str("</table></div></section>\n");
}

fn http(out: &mut String, report: &Report) {
    let Some(http) = &report.http else { return };
    let total: u64 = http.statuses.values().sum();
    let part = |number: u64| {
        format!(
            "{}, {}",
            count(number),
            share(number as f64 / total.max(1) as f64)
        )
    };
    let mut cells: Cells = http
        .statuses
        .iter()
        .map(|(status, number)| (format!("status {status}"), part(*number)))
        .collect();
    cells.extend(
        http.body_bytes
            .iter()
            .map(|(length, number)| (format!("body of {} B", count(*length)), part(*number))),
    );
    if http.other_body_bytes > 0 {
        cells.push(cell("bodies of other lengths", part(http.other_body_bytes)));
    }
    if let Some(number) = http.unexpected_bodies {
        cells.push(cell("bodies not as expected", count(number)));
    }
    let title = if http.is_mixed() {
        "Responses: a mix"
    } else {
        "Responses: all alike"
    };
    section(out, title, "", &cells);
}

fn ledger(out: &mut String, report: &Report) {
    let Some(ledger) = &report.ledger else { return };
    let mut cells = vec![
        cell("publications", count(ledger.published)),
        cell("receivers", count(ledger.receivers)),
        cell("expected", count(ledger.expected)),
        cell("= delivered", count(ledger.delivered)),
        cell("+ lost", count(ledger.lost)),
        cell("+ away", count(ledger.away)),
        cell("duplicated", count(ledger.duplicated)),
        cell("reordered", count(ledger.reordered)),
        cell("corrupted", count(ledger.corrupted)),
    ];
    if let Some(recovery) = &ledger.recovery {
        cells.extend([
            cell("reconnections with a position", count(recovery.returned)),
            cell(
                "reconnections whose history was lost",
                count(recovery.refused),
            ),
            cell("publications not answered", count(recovery.unanswered)),
            cell(
                "deliveries of publications that were not answered",
                count(recovery.unanswered_delivered),
            ),
            cell("connections that ended unexpectedly", count(recovery.ended)),
            cell(
                "failed attempts to reopen a connection",
                count(recovery.retried),
            ),
        ]);
    }
    if let Some(gap) = ledger_gap(ledger) {
        cells.push(cell("INCONSISTENT: a bug in the tester", count(gap)));
    }
    section(
        out,
        "Ledger",
        "away: messages that were sent while the receiver was disconnected, or lost when its connection was closed",
        &cells,
    );
    if ledger.worst.is_empty() {
        return;
    }
    out.push_str("<section><h3>Receivers that fared worst</h3><ul class=\"faults\">");
    for page in &ledger.worst {
        out.push_str(&format!(
            "<li>{}: {} lost, {} duplicated, {} reordered, {} corrupted; first: {}</li>",
            page.receiver,
            count(page.lost),
            count(page.duplicated),
            count(page.reordered),
            count(page.corrupted),
            escape(&page.first)
        ));
    }
    out.push_str("</ul></section>\n");
}

fn server(out: &mut String, report: &Report) {
    if let Some(pid) = report.server_ended {
        section(out, "Server", &server_ended(pid), &[]);
    }
    let Some(server) = &report.server else { return };
    let mut cells = vec![
        cell("process", server.pid.to_string()),
        cell("the process and its descendants", count(server.processes)),
        cell("CPU", seconds(server.cpu_s)),
    ];
    if report.seconds > 0.0 {
        cells.push(cell(
            "average CPU, as a share of one core",
            share(server.cpu_s / report.seconds),
        ));
    }
    if let Some(us) = server.cpu_us_per_message {
        cells.push(cell("CPU per message", time(us)));
    }
    cells.push(cell("memory before", bytes(server.rss_before_bytes as f64)));
    cells.push(cell(
        "memory with all connections open",
        bytes(server.rss_open_bytes as f64),
    ));
    if let Some(each) = server.bytes_per_connection {
        cells.push(cell(
            "memory per connection, without the kernel's part",
            bytes(each.round()),
        ));
    }
    section(out, "Server", "", &cells);
}

fn generator(out: &mut String, report: &Report) {
    let generator = &report.generator;
    if *generator == GeneratorUse::default() {
        return;
    }
    let mut cells = vec![
        cell(
            "threads and processes",
            format!(
                "{}, {}",
                count(report.settings.threads),
                count(report.settings.processes)
            ),
        ),
        cell(
            "CPU of the busiest thread, as a share of one core",
            share(generator.cpu),
        ),
        cell("CPU", seconds(generator.cpu_s)),
    ];
    if let Some(us) = generator.cpu_us_per_message {
        cells.push(cell("CPU per message", time(us)));
    }
    cells.push(cell(
        "share of the time that the tester waited for a core",
        share(generator.waited),
    ));
    cells.push(cell(
        "longest iteration of the tester's event loop",
        time(generator.lag_us_max),
    ));
    if report.settings.rate.is_some() {
        cells.push(cell(
            "sent more than 1 ms late",
            many(generator.late_sends, "send"),
        ));
    }
    if let Some(each) = generator.bytes_per_connection {
        cells.push(cell("memory per connection", bytes(each.round())));
    }
    cells.push(cell(
        "was the bottleneck",
        if generator.bottleneck {
            "yes".to_owned()
        } else {
            "no".to_owned()
        },
    ));
    section(out, "Tester", &generator.remarks.join("; "), &cells);
}
