//! The Grafana dashboard and the alert rules in packaging/ use only metrics that a real server has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::alerts;
use crate::support::{Server, USUAL, get};

/// Collects every PromQL expression below `value`.
fn expressions(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str() {
                    Some(text) if name == "expr" || name == "definition" => {
                        into.push(text.to_owned())
                    }
                    _ => expressions(member, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, into)),
        _ => {}
    }
}

/// Returns the words of an expression that begin with a prefix of the server's metrics.
fn metrics_of(expression: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(move |c| !is_word(c));
    words.filter(|word| word.starts_with("veche_") || word.starts_with("process_"))
}

/// Returns the metric family of a sample name: the name itself, or the name without its suffix for
/// a histogram.
fn family(name: &str, kinds: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let plain =
        Some(name).filter(|name| matches!(kinds(name).as_deref(), Some("counter" | "gauge")));
    let histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .filter(|name| kinds(name).as_deref() == Some("histogram"));
    plain.or(histogram).map(str::to_owned)
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let server = Server::start(USUAL);
    let scrape = get(server.internal, "/metrics").text().to_owned();
    let kinds = |name: &str| {
        let start = format!("# TYPE {name} ");
        scrape
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .map(str::to_owned)
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana/veche.json");
    let text = fs::read_to_string(path).expect("a dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let mut asked = Vec::new();
    expressions(&dashboard["panels"], &mut asked);
    expressions(&dashboard["templating"], &mut asked);
    let rules = fs::read_to_string(alerts::rules()).expect("alert rules");
    let expressions = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    let ours = expressions.filter(|line| metrics_of(line).next().is_some());
    asked.extend(ours.map(str::to_owned));
    assert!(asked.len() > 30, "{asked:?}");
    let mut families = BTreeSet::new();
    for expression in &asked {
        assert!(
            expression.matches('(').count() == expression.matches(')').count(),
            "{expression}"
        );
        let mut metrics = metrics_of(expression).peekable();
        assert!(
            metrics.peek().is_some(),
            "{expression} asks for nothing of ours"
        );
        for metric in metrics {
            let family = family(metric, &kinds);
            families
                .insert(family.unwrap_or_else(|| panic!("no {metric} on /metrics: {expression}")));
        }
    }
    assert!(families.len() > 30, "{families:?}");
    let ids: Vec<&Value> = dashboard["panels"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|panel| &panel["id"])
        .collect();
    let distinct: BTreeSet<String> = ids.iter().map(|id| id.to_string()).collect();
    assert_eq!(distinct.len(), ids.len(), "two panels have one id");
}
