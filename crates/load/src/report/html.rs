//! The report as an HTML page: a self-contained file to store, send or print.
//!
//! Charts are rendered as SVG in advance, so the page needs no script. Its only `<script>` element
//! contains the report's JSON, which the browser does not execute. External texts are passed
//! through [`escape`].

mod chart;
mod charts;
mod escape;
mod tables;

pub(crate) use escape::escape;

use super::model::Report;
use super::text::{doubts, is_bottleneck};
use super::units::{bytes, many, rate, time};
use super::wording;

const PAGE: &str = include_str!("html/page.html");
const CSS: &str = include_str!("html/page.css");

/// Returns the report as an HTML page.
///
/// # Errors
/// The report can't be written as JSON. This does not happen for generated reports.
pub fn html(report: &Report) -> serde_json::Result<String> {
    // In JSON, `<` occurs only inside strings, where the escape is equivalent. Without `<`, the
    // JSON can't contain an end tag or a comment.
    let json = serde_json::to_string(report)?.replace('<', "\\u003c");
    let title = escape(&format!("veche bench {} {}", report.kind, report.target));
    let mut page = String::with_capacity(PAGE.len() + CSS.len() + json.len() + 32_768);
    let body = body(report);
    let mut rest = PAGE;
    // The page is filled in a single pass, so that a placeholder in inserted text is not replaced.
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after
            .split_once("}}")
            .expect("every placeholder of the page's template must be closed");
        page.push_str(before);
        page.push_str(match name {
            "title" => &title,
            "style" => CSS,
            "body" => &body,
            "json" => &json,
            other => unreachable!("the page's template has an unknown placeholder {other}"),
        });
        rest = behind;
    }
    page.push_str(rest);
    Ok(page)
}

fn body(report: &Report) -> String {
    let mut out = String::new();
    alarms(&mut out, report);
    header(&mut out, report);
    tables::checks(&mut out, report);
    run(&mut out, report);
    for (index, phase) in report.phases.iter().enumerate() {
        let name = phase.settings.label.as_deref().unwrap_or(&phase.kind);
        out.push_str(&format!("<h2>Phase {}: {}</h2>\n", index + 1, escape(name)));
        out.push_str(&format!(
            "<p>{}. {}</p>\n",
            escape(&wording::run_description(phase)),
            escape(&wording::span(phase))
        ));
        tables::checks(&mut out, phase);
        run(&mut out, phase);
    }
    out
}

fn run(out: &mut String, report: &Report) {
    tiles(out, report);
    out.push_str("<div class=\"wall\">\n");
    charts::all(out, report);
    out.push_str("</div>\n<div class=\"tables\">\n");
    tables::all(out, report);
    out.push_str("</div>\n");
}

fn alarms(out: &mut String, report: &Report) {
    if is_bottleneck(report) {
        out.push_str("<div class=\"alarm\" role=\"alert\"><strong>The tester was the bottleneck: these figures are the tester's, not the server's.</strong>");
        let phases = report
            .phases
            .iter()
            .filter(|phase| phase.generator.bottleneck);
        list(
            out,
            report
                .generator
                .reasons
                .iter()
                .chain(phases.flat_map(|phase| &phase.generator.reasons)),
        );
        out.push_str("</div>\n");
    }
    let mut doubts = doubts(report);
    for phase in &report.phases {
        let name = phase.settings.label.as_deref().unwrap_or(&phase.kind);
        doubts.extend(
            self::doubts(phase)
                .into_iter()
                .map(|doubt| format!("{name}: {doubt}")),
        );
    }
    if !doubts.is_empty() {
        out.push_str("<div class=\"alarm\"><strong>Notes on these figures:</strong>");
        list(out, doubts.iter());
        out.push_str("</div>\n");
    }
}

fn list<'a>(out: &mut String, items: impl Iterator<Item = &'a String>) {
    out.push_str("<ul>");
    for item in items {
        out.push_str(&format!("<li>{}</li>", escape(item)));
    }
    out.push_str("</ul>");
}

fn header(out: &mut String, report: &Report) {
    out.push_str(&format!(
        "<header>\n<h1>{} {}</h1>\n",
        escape(&report.kind),
        escape(&report.target)
    ));
    if let Some(label) = &report.settings.label {
        out.push_str(&format!("<p><strong>{}</strong></p>\n", escape(label)));
    }
    out.push_str(&format!(
        "<p>{}. {}</p>\n",
        escape(&wording::run_description(report)),
        escape(&wording::span(report))
    ));
    let machine = &report.machine;
    let cores = if machine.cores > 0 {
        many(machine.cores as u64, "core")
    } else {
        String::new()
    };
    let kernel = if machine.kernel.is_empty() {
        String::new()
    } else {
        format!("Linux {}", machine.kernel)
    };
    let veche = if machine.veche.is_empty() {
        String::new()
    } else {
        format!("veche {}", machine.veche)
    };
    let facts = [&report.started, &machine.cpu, &cores, &kernel, &veche];
    let facts: Vec<&str> = facts
        .into_iter()
        .map(String::as_str)
        .filter(|fact| !fact.is_empty())
        .collect();
    out.push_str(&format!(
        "<p class=\"soft\">{}</p>\n</header>\n",
        escape(&facts.join(", "))
    ));
}

/// Writes tiles with the most important figures.
fn tiles(out: &mut String, report: &Report) {
    let words = wording::RunWording::of(&report.kind, report.settings.rate.is_some());
    let mut tiles: Vec<(String, String)> = Vec::new();
    if report.messages.received > 0 {
        tiles.push((
            format!("{} a second", words.received),
            rate(report.messages.per_second),
        ));
    }
    if let Some(latency) = &report.latency_us {
        for (name, us) in [
            ("latency, median", latency.p50),
            ("latency, p99", latency.p99),
            ("latency, longest", latency.max),
        ] {
            tiles.push((name.to_owned(), time(us)));
        }
    }
    if let Some(us) = report
        .server
        .as_ref()
        .and_then(|server| server.cpu_us_per_message)
    {
        tiles.push(("server CPU per message".to_owned(), time(us)));
    }
    if let Some(each) = report
        .server
        .as_ref()
        .and_then(|server| server.bytes_per_connection)
    {
        tiles.push((
            "server memory per connection".to_owned(),
            bytes(each.round()),
        ));
    }
    tiles.push((
        "errors".to_owned(),
        super::units::count(report.errors.count()),
    ));
    out.push_str("<dl class=\"tiles\">\n");
    for (name, value) in tiles {
        out.push_str(&format!(
            "<div><dt>{}</dt><dd>{}</dd></div>\n",
            escape(&name),
            escape(&value)
        ));
    }
    out.push_str("</dl>\n");
}

#[cfg(test)]
mod tests;
