//! `veche status`: formats the server's response as a table.

use std::time::Duration;

use serde_json::{Map, Value};
use veche_supervisor::request::ControlCommand;
use veche_terminal::exit::{CommandFailure, Exit, print, print_line};

use super::control::ControlTarget;

/// The output format of `veche status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Table,
    Json,
    /// The slowest recent operations.
    Slow,
    /// The nodes of the cluster.
    Cluster,
}

/// Requests and prints the status.
pub(super) fn run(control: &ControlTarget, form: OutputFormat) -> Result<(), CommandFailure> {
    let answer = control.ask(ControlCommand::Status)?;
    let status = answer.get("status").unwrap_or(&answer);
    match form {
        OutputFormat::Json => print_line(format_args!("{status}")),
        OutputFormat::Table => print(format_args!("{}", table(status))),
        OutputFormat::Slow | OutputFormat::Cluster => match status["report_error"].as_str() {
            Some(why) => Err(CommandFailure::new(
                Exit::NoServer,
                format!("no report from the server process: {why}"),
            )),
            None if form == OutputFormat::Cluster => {
                print(format_args!("{}", cluster(&status["report"]["cluster"])))
            }
            None => print(format_args!("{}", slow(&status["report"]["slow"]))),
        },
    }
}

/// Returns a line for each node, starting with this one.
fn cluster(cluster: &Value) -> String {
    let Some(nodes) = cluster["nodes"].as_array() else {
        return "not a node of a cluster: [engine] type is \"memory\"\n".to_owned();
    };
    let heads = [
        "node", "id", "version", "sessions", "users", "channels", "uptime", "",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    for node in nodes {
        let mut notes = Vec::new();
        if node["is_own"] == true {
            notes.push("this node".to_owned());
        }
        if node["is_draining"] == true {
            notes.push("ends soon".to_owned());
        }
        if let Some(what) = node["disagrees"].as_str() {
            notes.push(format!("conflicting {what}"));
        }
        rows.push([
            plain(&node["name"]),
            plain(&node["id"]),
            plain(&node["version"]),
            plain(&node["sessions"]),
            plain(&node["users"]),
            plain(&node["channels"]),
            uptime(node["uptime_s"].as_u64().unwrap_or(0) * 1000),
            notes.join(", "),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    if cluster["is_current"] == false {
        text += "this node is cut off from the others\n";
    }
    text += &format!(
        "{} of {} queries and commands were not answered by all nodes\n",
        plain(&cluster["partial_answers"]),
        plain(&cluster["questions"]),
    );
    text
}

/// Formats the slow operations of each kind, the slowest first.
fn slow(kinds: &Value) -> String {
    let mut text = String::new();
    for (kind, from) in [
        (
            "turn",
            " of a worker's event loop over 5 ms long, during which all connections of the worker waited",
        ),
        (
            "handler",
            " that ran for over 4 ms without a wait, during which all connections of the worker waited",
        ),
        (
            "request",
            " that took an application over 100 ms to answer, waits included",
        ),
        (
            "consumer",
            " that did not read, with the time for which they had sent nothing",
        ),
    ] {
        text += &format!("{kind}s{from}:\n");
        let longest = kinds[kind].as_array().map_or(&[][..], Vec::as_slice);
        for one in longest {
            text += &format!(
                "{:>8} ms  {:>4} s ago  worker {:<3}  {}\n",
                plain(&one["ms"]),
                plain(&one["ago_s"]),
                plain(&one["worker"]),
                plain(&one["what"]),
            );
        }
        if longest.is_empty() {
            text += "    none in the last 5 minutes\n";
        }
    }
    text
}

/// The rows at the top of the table, each with its path in the response. The rows of all other
/// values follow in the order of the response.
const ROWS: [(&str, &str); 12] = [
    ("state", "/state"),
    ("pid", "/pid"),
    ("pid", "/supervisor/pid"),
    ("uptime", "/uptime_ms"),
    ("uptime", "/supervisor/uptime_ms"),
    ("server pid", "/server/pid"),
    ("server uptime", "/server/uptime_ms"),
    ("version", "/version"),
    ("config", "/config"),
    ("restarts", "/restarts"),
    ("last exit", "/last_exit/how"),
    ("descriptors", "/descriptors_max"),
];

fn table(status: &Value) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    for (title, place) in ROWS {
        if let Some(value) = status.pointer(place).filter(|value| !value.is_null()) {
            let text = if place.ends_with("_ms") {
                uptime(value.as_u64().unwrap_or(0))
            } else {
                plain(value)
            };
            rows.push((title.to_owned(), text));
        }
    }
    if let Some(report) = status["report"].as_object() {
        counters(&mut rows, report);
    }
    if let Some(own) = status.as_object() {
        let shown = |name: &str| {
            let name = name.strip_prefix('/').unwrap_or(name);
            ROWS.iter().any(|(_, place)| place[1..] == *name)
                || matches!(name, "ok" | "report" | "report_error")
        };
        let rest: Map<String, Value> = own
            .iter()
            .filter(|(name, _)| !shown(name))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        counters(&mut rows, &rest);
    }
    for (name, text) in tables(&status["report"]) {
        rows.push(("table".to_owned(), format!("{name}: {text}")));
    }
    rows.extend(pools(&status["report"]));
    if let Some(error) = status["report_error"].as_str() {
        rows.push(("counters".to_owned(), format!("not available: {error}")));
    }
    for listener in status["listeners"].as_array().into_iter().flatten() {
        let name = listener["name"]
            .as_str()
            .map_or_else(String::new, |name| format!(" {name:?}"));
        rows.push((
            "listener".to_owned(),
            format!(
                "{} {}{name}",
                plain(&listener["address"]),
                plain(&listener["role"])
            ),
        ));
    }
    let width = rows.iter().map(|(title, _)| title.len()).max().unwrap_or(0);
    rows.iter()
        .map(|(title, text)| format!("{title:<width$}  {text}\n"))
        .collect()
}

/// Returns the tables of a report: names and formatted sizes.
pub(super) fn tables(report: &Value) -> impl Iterator<Item = (String, String)> {
    let tables = report["tables"].as_array().into_iter().flatten();
    tables.map(|table| {
        let loading = match table["loading"] == true {
            true => ", being loaded",
            false => "",
        };
        let text = format!(
            "{} rows, {} of {} bytes{loading}",
            plain(&table["rows"]),
            plain(&table["bytes"]),
            plain(&table["bytes_max"])
        );
        (plain(&table["name"]), text)
    })
}

/// Returns a row for each application with processes.
fn pools(report: &Value) -> impl Iterator<Item = (String, String)> {
    let pools = report["pools"].as_array().into_iter().flatten();
    pools.map(|pool| {
        let members = |name: &str| {
            let object = pool[name].as_object().into_iter().flatten();
            let counts = object.filter(|(_, count)| count.as_u64() != Some(0));
            let texts: Vec<String> = counts
                .map(|(name, count)| format!("{} {name}", plain(count)))
                .collect();
            match texts.is_empty() {
                true => "none".to_owned(),
                false => texts.join(", "),
            }
        };
        let text = format!(
            "{}: processes: {}; events: {}, {} waiting; restarts: {}; {} bytes",
            plain(&pool["app"]),
            members("processes"),
            members("events"),
            plain(&pool["queue"]),
            members("restarts"),
            plain(&pool["memory_bytes"])
        );
        ("app".to_owned(), text)
    })
}

/// Adds the numbers, strings and booleans of an object as rows. Nested objects are shown only by `--json`.
fn counters(rows: &mut Vec<(String, String)>, object: &Map<String, Value>) {
    for (name, value) in object {
        if matches!(value, Value::Number(_) | Value::String(_) | Value::Bool(_)) {
            rows.push((name.replace('_', " "), plain(value)));
        }
    }
}

/// Formats a value on one line without control characters.
fn plain(value: &Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Formats a duration with its two largest units: `3d 4h`, `12s`.
fn uptime(ms: u64) -> String {
    let seconds = Duration::from_millis(ms).as_secs();
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let first = parts
        .iter()
        .position(|(number, _)| *number > 0)
        .unwrap_or(3);
    let shown = parts[first..]
        .iter()
        .take(2)
        .filter(|(number, unit)| *number > 0 || *unit == "s" && first == 3);
    shown
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn uptimes() {
        for (ms, expected) in [
            (0, "0s"),
            (999, "0s"),
            (12_000, "12s"),
            (60_000, "1m"),
            (61_000, "1m 1s"),
            (273_600_000, "3d 4h"),
        ] {
            assert_eq!(uptime(ms), expected, "{ms}");
        }
    }

    #[test]
    fn nodes_are_listed_with_their_disagreements() {
        let node = |name: &str, is_own: bool, disagrees: Value| {
            json!({
                "name": name, "id": "00000000000000aa", "version": "0.1.0", "sessions": 12, "users": 3,
                "channels": 4, "uptime_s": 61, "is_own": is_own, "is_draining": !is_own,
                "disagrees": disagrees,
            })
        };
        let seen = json!({
            "is_current": false, "questions": 7, "partial_answers": 2,
            "nodes": [node("a", true, Value::Null), node("longer\u{1b}", false, json!("settings"))],
        });
        let expected = "\
node     id                version  sessions  users  channels  uptime
a        00000000000000aa  0.1.0    12        3      4         1m 1s   this node
longer   00000000000000aa  0.1.0    12        3      4         1m 1s   ends soon, conflicting settings
this node is cut off from the others
2 of 7 queries and commands were not answered by all nodes
";
        assert_eq!(cluster(&seen), expected);
        assert!(cluster(&Value::Null).starts_with("not a node of a cluster"));
    }

    #[test]
    fn what_took_long_is_listed_by_kind() {
        let kinds = json!({
            "turn": [],
            "handler": [{"what": "chat: message\u{1b}", "ms": 12, "worker": 1, "ago_s": 7}],
            "request": [{"what": "GET /a", "ms": 900, "worker": 0, "ago_s": 61}],
            "consumer": [{"what": "ann at 10.0.0.1 on /ws: closed with 1024 KiB unsent", "ms": 2000, "worker": 1, "ago_s": 3}],
        });
        let expected = "\
turns of a worker's event loop over 5 ms long, during which all connections of the worker waited:
    none in the last 5 minutes
handlers that ran for over 4 ms without a wait, during which all connections of the worker waited:
      12 ms     7 s ago  worker 1    chat: message\u{20}
requests that took an application over 100 ms to answer, waits included:
     900 ms    61 s ago  worker 0    GET /a
consumers that did not read, with the time for which they had sent nothing:
    2000 ms     3 s ago  worker 1    ann at 10.0.0.1 on /ws: closed with 1024 KiB unsent
";
        assert_eq!(slow(&kinds), expected);
    }

    #[test]
    fn a_table_of_what_the_supervisor_says() {
        let status = json!({
            "version": "0.1.0", "state": "ready", "supervisor": {"pid": 10, "uptime_ms": 61_000},
            "server": {"pid": 11, "uptime_ms": 5_000}, "restarts": 1,
            "last_exit": {"how": "signal 9", "pid": 9}, "descriptors_max": 1024,
            "report": {
                "workers": 2, "connections": 17, "by_worker": [1, 2],
                "tables": [
                    {"name": "users\n", "rows": 3, "bytes": 700, "bytes_max": 65536, "loading": false},
                    {"name": "places", "rows": 0, "bytes": 0, "bytes_max": 65536, "loading": true},
                ],
            },
            "report_error": null,
            "listeners": [{"address": "127.0.0.1:8080", "role": "public", "name": "site\u{1b}[2J"}],
        });
        let expected = "\
state          ready
pid            10
uptime         1m 1s
server pid     11
server uptime  5s
version        0.1.0
restarts       1
last exit      signal 9
descriptors    1024
connections    17
workers        2
table          users : 3 rows, 700 of 65536 bytes
table          places: 0 rows, 0 of 65536 bytes, being loaded
listener       127.0.0.1:8080 public \"site\\u{1b}[2J\"
";
        assert_eq!(table(&status), expected);
    }
}
