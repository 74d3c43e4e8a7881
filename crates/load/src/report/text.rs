//! The text report that is printed after a run, for a terminal of 80 columns.
//!
//! Figures that were not measured are omitted. If the tester was the bottleneck, the report begins
//! with a warning. Other reasons to doubt the figures, such as mixed answers or lost messages, are
//! at the end.

mod findings;
mod histogram;
mod page;
mod traffic;

pub(crate) use findings::{gap as ledger_gap, server_ended};
pub(crate) use histogram::merge;
pub use page::Style;
pub(crate) use page::{TextPage, Tone};

use super::model::{HttpTally, LostProcess, Report};
use super::units::{clean, count, many, rate, share};
use super::wording;

/// Returns the whole report, ending with a new line.
#[must_use]
pub fn text(report: &Report, style: Style) -> String {
    let mut page = TextPage::new(style);
    if is_bottleneck(report) {
        bottleneck(&mut page, report);
        page.blank();
    }
    headline(&mut page, report);
    body(&mut page, report);
    for (index, phase) in report.phases.iter().enumerate() {
        page.blank();
        let name = phase.settings.label.as_deref().unwrap_or(&phase.kind);
        page.text(
            Tone::Strong,
            &format!("Phase {}: {}", index + 1, clean(name)),
        );
        page.text(
            Tone::Plain,
            &format!(
                "{}. {}",
                clean(&wording::run_description(phase)),
                wording::span(phase)
            ),
        );
        body(&mut page, phase);
        findings::checks(&mut page, phase);
    }
    findings::checks(&mut page, report);
    let doubts = doubts(report);
    if !doubts.is_empty() {
        page.blank();
        page.field("Mind", Tone::Bad, &doubts[0]);
        for doubt in &doubts[1..] {
            page.more(Tone::Bad, doubt);
        }
    }
    page.finish()
}

/// Returns whether the tester limited this run or one of its phases.
pub(crate) fn is_bottleneck(report: &Report) -> bool {
    report.generator.bottleneck || report.phases.iter().any(|phase| phase.generator.bottleneck)
}

/// Returns the reasons to doubt the figures, a sentence each. The reasons why the tester was the
/// bottleneck are not among them.
pub(crate) fn doubts(report: &Report) -> Vec<String> {
    let mut doubts: Vec<String> = incomplete(report).into_iter().collect();
    if report.interrupted {
        doubts.push(
            "PARTIAL: the run was interrupted; the figures cover the time until then.".to_owned(),
        );
    }
    if let Some(http) = report.http.as_ref().filter(|http| http.is_mixed()) {
        let lengths = http.body_bytes.len() as u64 + u64::from(http.other_body_bytes > 0);
        doubts.push(format!(
            "The responses are a mix of {} and {}{}: their average means little.",
            if http.statuses.len() == 1 {
                "1 status".to_owned()
            } else {
                format!("{} statuses", http.statuses.len())
            },
            if http.other_body_bytes > 0 {
                "over "
            } else {
                ""
            },
            many(lengths.min(http.body_bytes.len() as u64), "length"),
        ));
    }
    if let Some(why) = &report.latency_refused {
        doubts.push(format!("There are no latencies: {}.", clean(why)));
    }
    if let Some(redirects) = report.http.as_ref().map(HttpTally::redirects)
        && redirects > 0
    {
        doubts.push(format!(
            "Redirects were not followed, so their targets were not measured: {}.",
            many(redirects, "response")
        ));
    }
    if let Some(behind) = rate_not_reached(report) {
        doubts.push(format!(
            "{behind}: latencies then reflect a queue that grows for as long as the run lasts."
        ));
    }
    if let Some(ledger) = &report.ledger
        && ledger.lost + ledger.duplicated + ledger.reordered + ledger.corrupted > 0
    {
        doubts.push(format!(
            "Some deliveries were faulty: {} lost, {} duplicated, {} reordered, {} corrupted.",
            count(ledger.lost),
            count(ledger.duplicated),
            count(ledger.reordered),
            count(ledger.corrupted)
        ));
    }
    let errors = report.errors.count();
    if errors > 0 {
        let verb = if errors == 1 {
            "There was"
        } else {
            "There were"
        };
        doubts.push(format!(
            "{verb} {}: failures are not included in latencies.",
            many(errors, "error")
        ));
    }
    if report.messages.unanswered > 0 && report.settings.rate.is_some() {
        doubts.push(format!(
            "{} had no answer when the run ended: with them the latencies would be longer.",
            many(report.messages.unanswered, "message")
        ));
    }
    if report.generator.late_sends > 0 && report.messages.sent > 0 {
        let late = report.generator.late_sends as f64 / report.messages.sent as f64;
        if late > 0.01 {
            doubts.push(format!(
                "{} of the sends were late; their latencies are measured from the scheduled time.",
                share(late)
            ));
        }
    }
    doubts
}

/// Returns a clause that states that an open loop did not reach its rate.
pub(crate) fn rate_not_reached(report: &Report) -> Option<String> {
    let asked = report.settings.rate?;
    let words = wording::RunWording::of(&report.kind, true);
    (report.messages.rate_reached == Some(false)).then(|| {
        format!(
            "RATE NOT REACHED: {} {} a second were requested, {} {} a second were reached",
            rate(asked),
            words.sent,
            rate(report.messages.per_second),
            words.received
        )
    })
}

/// Returns a sentence that names the lost processes, if any. The figures do not include the counts of these processes.
fn incomplete(report: &Report) -> Option<String> {
    if !report.incomplete {
        return None;
    }
    let of = |report: &Report, before: &str| -> Vec<String> {
        let describe =
            |one: &LostProcess| format!("{before}process {}: {}", one.process, clean(&one.how));
        report.generator.lost.iter().map(describe).collect()
    };
    let mut all = of(report, "");
    for phase in &report.phases {
        let name = clean(phase.settings.label.as_deref().unwrap_or(&phase.kind));
        all.extend(of(phase, &format!("{name}, ")));
    }
    let verb = if all.len() == 1 { "was" } else { "were" };
    Some(format!(
        "INCOMPLETE: {} of the tester {verb} lost ({}). The figures are those of the other processes.",
        many(all.len() as u64, "process").replace("processs", "processes"),
        all.join("; ")
    ))
}

fn bottleneck(page: &mut TextPage, report: &Report) {
    let mut reasons: Vec<String> = report
        .generator
        .reasons
        .iter()
        .map(|reason| clean(reason))
        .collect();
    for phase in report
        .phases
        .iter()
        .filter(|phase| phase.generator.bottleneck)
    {
        let name = clean(phase.settings.label.as_deref().unwrap_or(&phase.kind));
        reasons.extend(
            phase
                .generator
                .reasons
                .iter()
                .map(|reason| format!("{name}: {}", clean(reason))),
        );
    }
    reasons.dedup();
    page.alarm(
        "THE TESTER WAS THE BOTTLENECK: these figures are the tester's, not the server's.",
        &reasons,
    );
}

fn headline(page: &mut TextPage, report: &Report) {
    page.text(
        Tone::Strong,
        &format!(
            "veche bench {}  {}",
            clean(&report.kind),
            clean(&report.target)
        ),
    );
    if let Some(label) = &report.settings.label {
        page.text(Tone::Strong, &clean(label));
    }
    page.text(
        Tone::Plain,
        &format!("{}.", clean(&wording::run_description(report))),
    );
    page.text(Tone::Plain, &wording::span(report));
    if let Some(incomplete) = incomplete(report) {
        page.text(Tone::Bad, &incomplete);
    }
    let machine = &report.machine;
    let parts: Vec<String> = [
        clean(&report.started),
        clean(&machine.cpu),
        if machine.cores > 0 {
            many(machine.cores as u64, "core")
        } else {
            String::new()
        },
        if machine.kernel.is_empty() {
            String::new()
        } else {
            format!("Linux {}", clean(&machine.kernel))
        },
        if machine.veche.is_empty() {
            String::new()
        } else {
            format!("veche {}", clean(&machine.veche))
        },
    ]
    .into_iter()
    .filter(|part| !part.is_empty())
    .collect();
    if !parts.is_empty() {
        page.text(Tone::Faint, &parts.join(", "));
    }
}

fn body(page: &mut TextPage, report: &Report) {
    traffic::connections(page, report);
    traffic::throughput(page, report);
    traffic::latency(page, report);
    findings::actions(page, report);
    findings::steps(page, report);
    traffic::errors(page, report);
    findings::http(page, report);
    findings::ledger(page, report);
    findings::server(page, report);
    findings::generator(page, report);
}

#[cfg(test)]
mod tests;
