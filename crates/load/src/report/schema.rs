//! Checks that the data model and `docs/reference/bench-report.md`, the hand-written description of
//! the public format, have the same fields.

use serde_json::Value;

use super::fixture::full;
use super::model::{LostProcess, Report};

const REFERENCE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/bench-report.md"
));

/// A row of the table in `bench-report.md`. In a path, `[]` stands for an entry of a list and `*`
/// for a variable key. A field whose type ends with `?` is optional.
struct Field {
    path: &'static str,
    kind: &'static str,
    words: &'static str,
}

fn fields() -> Vec<Field> {
    let rows = REFERENCE
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (path, rest) = row
            .split_once("` | ")
            .expect("a row of the schema must begin with a path in backquotes");
        let (kind, words) = rest
            .split_once(" | ")
            .expect("a row of the schema must have a type and a description");
        Field {
            path,
            kind,
            words: words.trim_end_matches(" |"),
        }
    })
    .collect()
}

#[test]
fn every_field_is_listed_and_no_other() {
    let mut report = full();
    report.generator.reasons = vec!["why".to_owned()];
    report.generator.lost = vec![LostProcess::default()];
    report.server_ended = Some(1);
    report.latency_refused = Some("why".to_owned());
    report.phases = vec![full()];
    let found = paths(&serde_json::to_value(report).unwrap());
    let fields = fields();
    // An object may have its own row, in addition to the rows of its fields.
    let is_object = |path: &str| {
        path != "handshake_us"
            && fields
                .iter()
                .any(|other| other.path.starts_with(&format!("{path}.")))
    };
    let leaves: Vec<&str> = fields
        .iter()
        .map(|field| field.path)
        .filter(|path| !is_object(path))
        .collect();
    for path in &found {
        assert!(
            leaves.contains(&path.as_str()),
            "the documentation of the report has no row for {path}"
        );
    }
    for path in leaves {
        assert!(
            found.iter().any(|found| found == path),
            "{path} is in no report"
        );
    }
}

#[test]
fn only_optional_fields_can_be_absent() {
    let empty = paths(&serde_json::to_value(Report::default()).unwrap());
    for Field { path, kind, words } in fields() {
        let parents = [
            "latency_us.",
            "ledger.",
            "http.",
            "script.",
            "server.",
            "search.",
        ];
        let parent_absent = parents.iter().any(|parent| path.starts_with(parent));
        let optional =
            kind.ends_with('?') || parent_absent || path.contains("[]") || path.ends_with(".*");
        assert_eq!(!optional, empty.iter().any(|found| found == path), "{path}");
        assert!(words.ends_with('.'), "{path}");
    }
}

#[test]
fn every_path_is_there_once() {
    let mut paths: Vec<_> = fields().iter().map(|field| field.path).collect();
    paths.sort_unstable();
    let all = paths.len();
    paths.dedup();
    assert_eq!(paths.len(), all);
}

/// Returns the paths of all values in a report, in the notation of the reference.
fn paths(report: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(report, String::new(), &mut found);
    found.sort();
    found.dedup();
    found
}

fn walk(value: &Value, path: String, found: &mut Vec<String>) {
    let varies = ["errors.examples", "http.statuses", "http.body_bytes"].contains(&path.as_str());
    match value {
        // The fields of these objects are described elsewhere in the reference.
        _ if path == "phases[]"
            || path == "handshake_us"
            || path == "script.actions[].latency_us" =>
        {
            found.push(path)
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let key = if varies { "*" } else { key };
                walk(
                    field,
                    if path.is_empty() {
                        key.to_owned()
                    } else {
                        format!("{path}.{key}")
                    },
                    found,
                );
            }
        }
        Value::Array(entries) if path != "settings.command" => {
            for entry in entries {
                walk(entry, format!("{path}[]"), found);
            }
        }
        _ => found.push(path),
    }
}
