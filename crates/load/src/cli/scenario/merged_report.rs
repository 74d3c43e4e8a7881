//! The report of a scenario, merged from those of its phases.
//!
//! Percentiles can't be added, so the merged report has none: objectives on them are checked phase by phase.

use crate::report::Report;
use crate::report::model::{
    ConnectionCounts, Errors, GeneratorUse, LedgerCounts, Messages, SCHEMA, Settings,
};

/// Merges the reports of `phases`. The `bool` of each is whether it ran concurrently with the
/// previous phase.
pub(super) fn merge_phases(phases: Vec<(Report, bool)>, label: Option<String>) -> Report {
    let mut whole = Report {
        schema: SCHEMA,
        kind: "scenario".to_owned(),
        settings: Settings {
            command: std::env::args().skip(2).collect(),
            label,
            ..Settings::default()
        },
        ..Report::default()
    };
    if let Some((first, _)) = phases.first() {
        whole.target.clone_from(&first.target);
        whole.started.clone_from(&first.started);
        whole.machine = first.machine.clone();
    }
    let mut latest_s = 0.0;
    for (phase, is_together) in &phases {
        if *is_together {
            whole.seconds += f64::max(phase.seconds - latest_s, 0.0);
            latest_s = f64::max(latest_s, phase.seconds);
        } else {
            let from_s = whole.seconds;
            whole.timeline.extend(phase.timeline.iter().map(|interval| {
                let mut interval = *interval;
                interval.from_s += from_s;
                interval
            }));
            whole.seconds += phase.seconds;
            latest_s = phase.seconds;
        }
        add(&mut whole, phase);
    }
    // Concurrent phases have no common timeline.
    if phases.iter().any(|(_, is_together)| *is_together) {
        whole.timeline.clear();
    }
    if whole.seconds > 0.0 {
        whole.messages.per_second = whole.messages.received_in_time as f64 / whole.seconds;
    }
    whole.phases = phases.into_iter().map(|(report, _)| report).collect();
    whole
}

/// Returns the number of missed objectives and the number of all objectives.
pub(super) fn broken(report: &Report) -> (usize, usize) {
    let phases = report.phases.iter().flat_map(|phase| &phase.checks);
    let checks = || phases.clone().chain(&report.checks);
    (
        checks().filter(|check| !check.passed).count(),
        checks().count(),
    )
}

fn add(whole: &mut Report, phase: &Report) {
    whole.interrupted |= phase.interrupted;
    whole.stopped |= phase.stopped;
    // The lost processes are named in the reports of the phases.
    whole.incomplete |= phase.incomplete;
    whole.server_ended = whole.server_ended.or(phase.server_ended);
    let settings = &mut whole.settings;
    settings.connections = settings.connections.max(phase.settings.connections);
    settings.threads = settings.threads.max(phase.settings.threads);
    settings.processes = settings.processes.max(phase.settings.processes);
    add_connections(&mut whole.connections, &phase.connections);
    add_messages(&mut whole.messages, &phase.messages);
    add_errors(&mut whole.errors, &phase.errors);
    if let Some(ledger) = &phase.ledger {
        add_ledger(whole.ledger.get_or_insert_default(), ledger);
    }
    if let Some(http) = &phase.http {
        whole.http.get_or_insert_default().add(http);
    }
    add_generator(&mut whole.generator, &phase.generator);
}

fn add_connections(whole: &mut ConnectionCounts, phase: &ConnectionCounts) {
    whole.asked += phase.asked;
    whole.opened += phase.opened;
    whole.failed += phase.failed;
    whole.disconnected += phase.disconnected;
    whole.reconnected += phase.reconnected;
    whole.dead += phase.dead;
    whole.late += phase.late;
}

fn add_messages(whole: &mut Messages, phase: &Messages) {
    whole.sent += phase.sent;
    whole.received += phase.received;
    whole.received_in_time += phase.received_in_time;
    // True if all phases with a rate reached it.
    whole.rate_reached = match (whole.rate_reached, phase.rate_reached) {
        (Some(one), Some(other)) => Some(one && other),
        (one, other) => one.or(other),
    };
    whole.bytes_sent += phase.bytes_sent;
    whole.bytes_received += phase.bytes_received;
    whole.unasked += phase.unasked;
    whole.heartbeats += phase.heartbeats;
    whole.duplicated += phase.duplicated;
    whole.late += phase.late;
    whole.lost += phase.lost;
    whole.unanswered += phase.unanswered;
}

fn add_errors(whole: &mut Errors, phase: &Errors) {
    whole.refused += phase.refused;
    whole.timed_out += phase.timed_out;
    whole.reset += phase.reset;
    whole.closed += phase.closed;
    whole.bad_handshake += phase.bad_handshake;
    whole.tls += phase.tls;
    whole.bad_protocol += phase.bad_protocol;
    whole.wrong_answer += phase.wrong_answer;
    whole.bad_response += phase.bad_response;
    whole.system += phase.system;
    for (cause, words) in &phase.examples {
        let example = whole.examples.entry(cause.clone());
        example.or_insert_with(|| words.clone());
    }
}

fn add_ledger(whole: &mut LedgerCounts, phase: &LedgerCounts) {
    whole.receivers += phase.receivers;
    whole.published += phase.published;
    whole.expected += phase.expected;
    whole.delivered += phase.delivered;
    whole.lost += phase.lost;
    whole.away += phase.away;
    whole.duplicated += phase.duplicated;
    whole.reordered += phase.reordered;
    whole.corrupted += phase.corrupted;
    whole.foreign += phase.foreign;
    if let Some(phase) = &phase.recovery {
        let whole = whole.recovery.get_or_insert_default();
        whole.returned += phase.returned;
        whole.refused += phase.refused;
        whole.ended += phase.ended;
        whole.retried += phase.retried;
        whole.unanswered += phase.unanswered;
        whole.unanswered_delivered += phase.unanswered_delivered;
        whole.example = whole.example.take().or_else(|| phase.example.clone());
    }
}

fn add_generator(whole: &mut GeneratorUse, phase: &GeneratorUse) {
    whole.cpu = whole.cpu.max(phase.cpu);
    whole.cpu_s += phase.cpu_s;
    whole.waited = whole.waited.max(phase.waited);
    whole.lag_us_max = whole.lag_us_max.max(phase.lag_us_max);
    whole.late_sends += phase.late_sends;
    // The reasons for a bottleneck are in the reports of the phases.
    whole.bottleneck |= phase.bottleneck;
}

#[cfg(test)]
mod tests {
    use crate::report::model::Interval;

    use super::*;

    fn phase(seconds: f64, received: u64, lost: Option<u64>) -> Report {
        let mut report = Report {
            seconds,
            timeline: vec![Interval::default()],
            ledger: lost.map(|lost| LedgerCounts {
                lost,
                ..LedgerCounts::default()
            }),
            ..Report::default()
        };
        report.messages.received = received;
        report.messages.received_in_time = received;
        report.errors.reset = 1;
        report
    }

    #[test]
    fn one_after_the_other() {
        let report = merge_phases(
            vec![
                (phase(2.0, 100, Some(1)), false),
                (phase(3.0, 400, Some(2)), false),
            ],
            None,
        );
        assert_eq!((report.seconds, report.messages.per_second), (5.0, 100.0));
        assert_eq!(report.ledger.unwrap().lost, 3);
        assert_eq!(report.errors.reset, 2);
        assert_eq!(report.timeline[1].from_s, 2.0);
        assert_eq!(report.latency_us, None);
    }

    #[test]
    fn at_the_same_time() {
        let phases = vec![
            (phase(2.0, 100, None), false),
            (phase(3.0, 200, None), true),
            (phase(1.0, 100, None), true),
            (phase(1.0, 0, None), false),
        ];
        let report = merge_phases(phases, None);
        assert_eq!((report.seconds, report.messages.per_second), (4.0, 100.0));
        assert_eq!(report.ledger, None);
        assert!(report.timeline.is_empty());
    }
}
