//! Tests that the page is complete, safe and self-contained.

use super::super::fixture::full;
use super::super::model::*;
use super::super::{Style, compare, text};
use super::*;

#[test]
fn words_of_others_stay_words() {
    let evil = "</script><script>alert(1)</script><img src=x onerror=\"a()\">&{{json}}";
    let mut report = full();
    report.target = evil.to_owned();
    report.settings.label = Some(evil.to_owned());
    report
        .errors
        .examples
        .insert("refused".to_owned(), evil.to_owned());
    report.checks[0].promise = evil.to_owned();
    report.checks[0].measured = evil.to_owned();
    report.ledger.as_mut().unwrap().worst[0].first = evil.to_owned();
    report.generator.bottleneck = true;
    report.generator.reasons = vec![evil.to_owned()];
    report.machine.cpu = evil.to_owned();
    report.phases = vec![report.clone()];
    let page = html(&report).unwrap();
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</script").count(), 1);
    assert!(!page.contains("<img") && !page.contains("onerror=\""));
    assert_eq!(
        page.matches("\"schema\":3").count(),
        2,
        "only the report and its phase"
    );
}

#[test]
fn the_report_can_be_taken_out_again() {
    let mut report = full();
    report.settings.label = Some("a < b </script> & \u{2028}".to_owned());
    let page = html(&report).unwrap();
    let (_, json) = page.split_once("id=\"report\">").unwrap();
    let (json, _) = json.split_once("</script>").unwrap();
    let found: Report = serde_json::from_str(json).unwrap();
    assert_eq!(found.settings, report.settings);
    assert_eq!(found.errors, report.errors);
}

#[test]
fn missing_figures_are_reported() {
    let mut report = full();
    report.incomplete = true;
    report.generator.lost = vec![LostProcess {
        process: 2,
        how: "killed by signal 9".to_owned(),
    }];
    report.server = None;
    report.server_ended = Some(4_242);
    let page = html(&report).unwrap();
    let (alarms, rest) = page.split_once("<header>").unwrap();
    assert!(
        alarms.contains(
            "INCOMPLETE: 1 process of the tester was lost (process 2: killed by signal 9)"
        )
    );
    assert!(rest.contains("process 4242 ended before the measurement was over"));
}

#[test]
fn it_loads_nothing() {
    let page = html(&full()).unwrap();
    for word in ["src=", "href=", "url(", "@import", "http://", "https://"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn all_charts_and_figures_are_there() {
    let page = html(&full()).unwrap();
    for part in [
        "Latency over time",
        "Throughput over time",
        "Latency by percentile",
        "Distribution of latency",
        "<dt>latency, p99</dt><dd>4.57 ms</dd>",
        "Responses: a mix",
        "99.9 %",
        "prefers-color-scheme: dark",
        "@media print",
        "<tr><th scope=\"row\">+ lost</th><td>7</td></tr>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf\"") && !page.contains("{{"));
}

#[test]
fn little_data_makes_a_page_too() {
    let mut report = Report {
        kind: "storm".to_owned(),
        ..Report::default()
    };
    assert!(!html(&report).unwrap().contains("<figure"));
    report.histogram = vec![Bucket {
        to_us: 5.0,
        count: 1,
    }];
    report.timeline = vec![Interval::default(); 3];
    let page = html(&report).unwrap();
    assert!(!page.contains("NaN") && page.contains("Distribution of latency"));
    report.generator.bottleneck = true;
    assert!(
        html(&report)
            .unwrap()
            .contains("The tester was the bottleneck")
    );
}

/// Writes example pages: `VECHE_PAGES=folder cargo test -p veche-load pages_to_look_at`.
#[test]
fn pages_to_look_at() {
    let Some(folder) = std::env::var_os("VECHE_PAGES") else {
        return;
    };
    let folder = std::path::Path::new(&folder);
    let mut calm = full();
    (calm.http, calm.ledger, calm.errors) = (None, None, Errors::default());
    calm.steps.clear();
    calm.messages.unanswered = 0;
    calm.histogram = (0..400)
        .map(|step| {
            let x = f64::from(step - 120) / 60.0;
            Bucket {
                to_us: 95.0 * 1.02_f64.powi(step),
                count: 1 + (90_000.0 * (-x * x).exp()) as u64,
            }
        })
        .collect();
    let mut loud = full();
    loud.generator.bottleneck = true;
    loud.generator.reasons = vec!["its busiest thread used 99.8 % of a core".to_owned()];
    std::fs::write(folder.join("calm.txt"), text::text(&calm, Style::PLAIN)).unwrap();
    let mut other = calm.clone();
    other.settings.label = Some("other".to_owned());
    other.generator.bottleneck = true;
    let pair = compare::compare(&[
        ("a.json".to_owned(), calm.clone()),
        ("b.json".to_owned(), other),
    ]);
    std::fs::write(
        folder.join("compare.txt"),
        compare::text(&pair, Style::PLAIN),
    )
    .unwrap();
    std::fs::write(folder.join("calm.html"), html(&calm).unwrap()).unwrap();
    std::fs::write(folder.join("loud.html"), html(&loud).unwrap()).unwrap();
}
