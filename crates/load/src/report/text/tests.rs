//! Tests that reports are understandable on their own, and that certain texts do not appear in
//! them.

use super::super::fixture::full;
use super::super::model::*;
use super::*;

fn plain(report: &Report) -> String {
    text(report, Style::PLAIN)
}

#[track_caller]
fn assert_says(report: &Report, lines: &[&str]) {
    let text = plain(report);
    for line in lines {
        assert!(
            text.lines().any(|found| found == *line),
            "no line {line:?} in:\n{text}"
        );
    }
}

#[test]
fn the_key_lines() {
    assert_says(
        &full(),
        &[
            "veche bench echo  ws://127.0.0.1:8080/echo",
            "Measured for 10 s after a warm-up of 2 s, which counts only for connections,",
            "errors, unsolicited messages and the ledger.",
            "Connections   239 of 240 opened; all open or failed after 50.0 ms, 4,780 a",
            "              1 failed, 2 disconnected unexpectedly",
            "              7 sockets in TIME_WAIT towards the target afterwards",
            "Throughput    100,000 answers a second",
            "              1,000,010 messages sent, 1,000,000 answers received",
            "Latency       from the scheduled time of a message until its answer",
            "              p50      p90      p95      p99      p99.9    max      mean",
            "              812 µs   1.02 ms  1.50 ms  4.57 ms  12.3 ms  2.00 s   1.05 ms",
            "Errors        3",
            "              1 refused: connection refused",
            "                first: connect to 127.0.0.1:8080: Connection refused",
            "              100,000 expected = 99,990 delivered + 7 lost + 3 away",
            "              receiver 17: 5 lost, 1 duplicated; first: message 512 of",
            "              status 503              500,000  50.0 %",
            "              5.25 µs of CPU per message",
            "              812 B per connection, without the kernel's part",
            "              the tester was not the bottleneck",
            "              but a thread of the tester waited for a core 6 % of the time",
            "Promises      1 of 1 kept",
        ],
    );
}

#[test]
fn a_mix_of_responses_is_loud() {
    let mut report = full();
    let text = plain(&report);
    assert!(text.contains("A MIX"));
    assert!(text.contains("The responses are a mix of 2 statuses and over 2 lengths"));
    report.http = Some(HttpTally {
        statuses: [(200, 5)].into(),
        body_bytes: [(13, 5)].into(),
        ..HttpTally::default()
    });
    let text = plain(&report);
    assert!(
        !text.contains("A MIX") && text.contains("all alike"),
        "{text}"
    );
}

#[test]
fn a_bottleneck_comes_first_and_once() {
    let mut report = full();
    assert!(!plain(&report).contains("BOTTLENECK"));
    report.generator.bottleneck = true;
    report.generator.reasons = vec!["its busiest thread used 99.8 % of a core".to_owned()];
    let text = plain(&report);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    assert!(
        lines[1].starts_with("THE TESTER WAS THE BOTTLENECK"),
        "{text}"
    );
    assert_eq!(lines[2], "  - its busiest thread used 99.8 % of a core");
    assert_eq!(text.matches("99.8 %").count(), 1, "{text}");
    assert_eq!(text.to_lowercase().matches("the bottleneck").count(), 1);

    let scenario = Report {
        kind: "scenario".to_owned(),
        phases: vec![full(), report],
        ..full()
    };
    assert_eq!(
        plain(&scenario)
            .matches("THE TESTER WAS THE BOTTLENECK")
            .count(),
        1
    );
}

#[test]
fn a_rate_that_was_not_reached_stands_beside_the_throughput_and_at_the_end() {
    let mut report = full();
    assert!(!plain(&report).contains("RATE NOT REACHED"));
    report.messages.rate_reached = Some(false);
    report.messages.per_second = 2_000.0;
    let text = plain(&report);
    let words = "RATE NOT REACHED: 100,000 messages a second were requested, 2,000 answers a";
    assert_eq!(text.matches("RATE NOT REACHED").count(), 2, "{text}");
    assert!(text.contains(&words[..60]), "{text}");
}

#[test]
fn an_inconsistent_ledger_is_reported() {
    let mut report = full();
    assert!(!plain(&report).contains("ADD UP"));
    report.ledger.as_mut().unwrap().lost += 2;
    assert!(plain(&report).contains("INCONSISTENT by 2"));
}

#[test]
fn unmeasured_figures_are_omitted() {
    let bare = Report {
        kind: "echo".to_owned(),
        seconds: 0.0,
        ..Report::default()
    };
    let text = plain(&bare);
    for word in [
        "Latency",
        "Handshake",
        "Throughput",
        "Ledger",
        "Responses",
        "Server",
        "Tester",
        "Promises",
        "–",
    ] {
        assert!(!text.contains(word), "{word} in:\n{text}");
    }
}

#[test]
fn no_figure_is_nan() {
    let mut report = full();
    report.seconds = 0.0;
    report.messages.per_second = f64::NAN;
    report.connections.all_open_s = Some(0.0);
    report.messages.sent = 0;
    let latency = report.latency_us.as_mut().unwrap();
    (latency.mean, latency.p99) = (f64::NAN, f64::INFINITY);
    report.histogram[0].to_us = f64::NAN;
    for kind in [
        "storm",
        "echo",
        "broadcast",
        "shootout",
        "http",
        "push",
        "scenario",
        "",
    ] {
        report.kind = kind.to_owned();
        let text = plain(&report);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

#[test]
fn lines_keep_to_the_width() {
    let mut report = full();
    report.generator.bottleneck = true;
    report.generator.reasons = vec!["why ".repeat(60)];
    report.target = format!("ws://{}/", "long.".repeat(40));
    report
        .errors
        .examples
        .insert("reset".to_owned(), "x".repeat(500));
    report.checks[0].promise = "y".repeat(300);
    for columns in [66, 80, 100] {
        for line in text(
            &report,
            Style {
                colour: false,
                columns,
            },
        )
        .lines()
        {
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
    }
}

#[test]
fn colours_only_where_asked_and_the_words_are_the_same() {
    let report = full();
    let plain = plain(&report);
    assert!(!plain.contains('\x1b'));
    let mut coloured = text(
        &report,
        Style {
            colour: true,
            columns: 80,
        },
    );
    assert!(coloured.contains("\x1b[1m"));
    while let Some(at) = coloured.find('\x1b') {
        let end = coloured[at..].find('m').unwrap();
        coloured.replace_range(at..=at + end, "");
    }
    assert_eq!(coloured, plain);
}

#[test]
fn a_server_can_not_speak_to_the_terminal() {
    let mut report = full();
    report.errors.examples.insert(
        "refused".to_owned(),
        "closed with \"\x1b]0;mine\x07\"\nErrors none".to_owned(),
    );
    let text = plain(&report);
    assert!(!text.contains('\x1b') && !text.contains('\x07') && !text.contains("\nErrors none"));
}

#[test]
fn lost_processes_are_the_first_and_the_last_word() {
    let mut report = full();
    assert!(!plain(&report).contains("INCOMPLETE"));
    report.incomplete = true;
    report.generator.lost = vec![LostProcess {
        process: 2,
        how: "killed by signal 9".to_owned(),
    }];
    let warning = "INCOMPLETE: 1 process of the tester was lost (process 2: killed by signal 9). The figures are those of the other processes.";
    let one_line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(one_line(plain(&report)).matches(warning).count(), 2);
    assert!(doubts(&report).contains(&warning.to_owned()));

    report.settings.label = Some("rush".to_owned());
    let scenario = Report {
        kind: "scenario".to_owned(),
        incomplete: true,
        phases: vec![full(), report],
        ..full()
    };
    let text = one_line(plain(&scenario));
    assert!(
        text.contains("(rush, process 2: killed by signal 9)"),
        "{text}"
    );
}

#[test]
fn a_server_that_ended_is_no_silence() {
    let report = Report {
        server: None,
        server_ended: Some(4_242),
        ..full()
    };
    assert_says(
        &report,
        &[
            "Server        process 4242 ended before the measurement was over: its CPU time",
            "              and memory are not known",
        ],
    );
}

#[test]
fn an_interrupted_run_is_marked() {
    let report = Report {
        interrupted: true,
        seconds: 3.2,
        ..full()
    };
    assert!(plain(&report).contains("Interrupted: measured for 3.20 s of the 10 s planned after"));
}
