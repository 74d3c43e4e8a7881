//! `tests/public_names.txt`: every name that configurations, scripts, back ends and dashboards depend on.
//!
//! The file is compared with the program. Names of the configuration, the command line, codes,
//! metrics and reports come from the pages of docs/reference, which other tests compare with the
//! program; the JSON fields come from a running server.
//! `VECHE_BLESS=1 cargo test -p veche --test served public_names` rewrites the file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::jwt::{SECRET, now_s, shared};
use crate::support::{Http, Lines, Options, Server, Setup, Socket, call, setups, skip, until};

type Names = BTreeSet<String>;

const FILE: &str = "tests/public_names.txt";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_file_lists_every_public_name() {
    let mut names = Names::new();
    configuration(&mut names);
    command_line(&mut names);
    codes(&mut names);
    table_of("metrics.md", "metric", &mut names);
    table_of("access-log.md", "access_log", &mut names);
    table_of("bench-report.md", "json bench", &mut names);
    hooks(&mut names);
    wire(&mut names);

    let listed: Names = read(FILE)
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::to_owned)
        .collect();
    if std::env::var_os("VECHE_BLESS").is_some() {
        return bless(&names);
    }
    let gone: Vec<_> = listed.difference(&names).collect();
    let new: Vec<_> = names.difference(&listed).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "{FILE} differs from the program.\nIn the file only: {gone:#?}\nIn the program only: {new:#?}\n\
         A public name is a promise. If the change is meant, describe it in CHANGELOG.md and rewrite the file with \
         VECHE_BLESS=1 cargo test -p veche --test served public_names"
    );
}

/// A commit that changes a public name describes the change in the changelog. In the history, the last commit that
/// touched `tests/public_names.txt` touched the changelog too. In a work tree, both files are changed or neither.
#[test]
fn a_change_of_public_names_is_in_the_changelog() {
    let git = |arguments: &[&str]| {
        let done = Command::new("git")
            .arg("-C")
            .arg(root())
            .args(arguments)
            .output();
        let done = done.ok().filter(|done| done.status.success())?;
        Some(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["log", "-1", "--format=%H", "--", FILE]) else {
        return skip(format_args!(
            "no git history here, so it is not known which commit changed {FILE}"
        ));
    };
    let touched = |arguments: &[&str]| {
        let files = git(arguments).expect("git answers");
        ["CHANGELOG.md", FILE].map(|name| files.lines().any(|line| line == name))
    };
    let [changelog, names] = touched(&["diff", "--name-only", "--relative", "HEAD"]);
    assert!(
        changelog || !names,
        "{FILE} is changed and CHANGELOG.md is not: describe the new, changed or removed name there"
    );
    if !commit.is_empty() {
        let [changelog, _] = touched(&["show", "--format=", "--name-only", &commit]);
        assert!(
            changelog,
            "commit {commit} changes {FILE} without CHANGELOG.md: describe the change there"
        );
    }
}

fn bless(names: &Names) {
    let head = "# Public names: configuration, command line, JSON, metrics, codes. A change needs a line in\n\
                # CHANGELOG.md. Written by VECHE_BLESS=1 cargo test -p veche --test served public_names\n";
    let text = names
        .iter()
        .fold(head.to_owned(), |text, name| format!("{text}{name}\n"));
    fs::write(root().join(FILE), text).expect("the file can be written");
}

/// Adds keys, handlers and identities, from docs/reference/config.md.
fn configuration(names: &mut Names) {
    let page = read("docs/reference/config.md");
    let mut entry = "";
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            entry = name;
            names.insert(format!("config {name}"));
        } else if let Some(takes) = line.strip_prefix("- Takes: ") {
            // Quoted values that are words, such as `"jwt"` and `"query:NAME"`, are names too.
            let kind = match entry {
                "route.handler" => "handler",
                "route.identity" => "identity",
                _ => continue,
            };
            let values = takes.split('"').skip(1).step_by(2);
            names.extend(values.map(|value| format!("{kind} {value}")));
        }
    }
    for kind in ["handler ", "identity "] {
        assert!(
            names.iter().any(|name| name.starts_with(kind)),
            "config.md names no {kind}"
        );
    }
}

/// Adds commands, flags and exit codes, from docs/reference/cli.md.
fn command_line(names: &mut Names) {
    let page = read("docs/reference/cli.md");
    let mut command = "veche".to_owned();
    for line in page.lines() {
        let heading = line
            .strip_prefix("### ")
            .or_else(|| line.strip_prefix("## "));
        if let Some(name) = heading.filter(|name| name.starts_with("veche ")) {
            command = name.to_owned();
            names.insert(format!("command {command}"));
        } else if let Some(row) = line.strip_prefix("| ")
            && let Some((code, meaning)) = row.trim_end_matches(" |").split_once(" | ")
            && code.parse::<u8>().is_ok()
        {
            names.insert(format!("exit {code} {meaning}"));
        }
        let flag = line.trim_start();
        // Flags begin like `  -c, --config <FILE>` or `      --json`; wrapped lines of text are indented further.
        if flag.starts_with('-') && line.len() - flag.len() <= 6 {
            let words = flag.split([' ', ',']).filter(|word| word.starts_with('-'));
            for word in words.map(|word| word.trim_end_matches("...")) {
                names.insert(format!("flag {command} {word}"));
            }
        }
    }
}

/// Adds close codes, statuses and error codes with their texts, from docs/reference/codes.md.
fn codes(names: &mut Names) {
    let page = read("docs/reference/codes.md");
    let mut kind = "";
    // The page's overview is skipped, because it has the same numbers and texts as the later sections, but also other
    // names.
    let (_, sections) = page
        .split_once("\n## WebSocket close codes")
        .expect("the section");
    for line in format!("## WebSocket close codes{sections}").lines() {
        if let Some(title) = line.strip_prefix("## ") {
            kind = match title {
                _ if title.starts_with("Close codes") || title.starts_with("WebSocket") => "close",
                _ if title.contains("rrors") => "error",
                _ if title.contains("statuses") => "status",
                _ => "reason",
            };
        } else if let Some(row) = line.strip_prefix("| ") {
            let cells: Vec<&str> = row.split(" | ").collect();
            match cells[..] {
                [code, words, ..] if code.parse::<u16>().is_ok() => {
                    names.insert(format!("code {kind} {code} {words}"));
                }
                [reason, ..] if reason.starts_with('`') => {
                    names.insert(format!("code {kind} {}", reason.trim_matches('`')));
                }
                _ => {}
            }
        }
    }
}

/// Adds the names in the first column of a page's table.
fn table_of(page: &str, kind: &str, names: &mut Names) {
    let text = read(&format!("docs/reference/{page}"));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let found: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert!(!found.is_empty(), "{page} has no table");
    names.extend(found.iter().map(|name| format!("{kind} {name}")));
}

/// Adds the JSON fields of requests to back ends and of their responses, from the types that serialise them.
fn hooks(names: &mut Names) {
    for (file, name, kind) in [
        ("hooks/request_body.rs", "Wire", "json hook request"),
        ("hooks/answer.rs", "Wire", "json hook answer"),
        ("hooks/answer.rs", "Granted", "json hook answer.result"),
        ("hooks/answer.rs", "Sub", "json hook answer.result.subs.*"),
        ("hooks/answer.rs", "Error", "json hook answer.error"),
        (
            "hooks/answer.rs",
            "Disconnect",
            "json hook answer.disconnect",
        ),
        ("events/wire.rs", "Wire", "json events"),
        ("events/wire.rs", "Event", "json events.events[]"),
    ] {
        let source = read(&format!("crates/webhooks/src/{file}"));
        let start = source
            .find(&format!("\nstruct {name}"))
            .unwrap_or_else(|| panic!("{file} has no struct {name}"));
        let fields = &source[start..start + source[start..].find("\n}").expect("an end")];
        let mut renamed = None;
        for line in fields.lines().skip(2).map(str::trim) {
            if let Some(rename) = line.strip_prefix("#[serde(rename = \"") {
                renamed = rename.split('"').next();
            } else if !line.starts_with(['#', '/'])
                && let Some((field, _)) = line.split_once(':')
            {
                let field = renamed.take().unwrap_or(field);
                names.insert(format!("{kind}.{field}"));
            }
        }
    }
}

const CONFIG: &str = r#"
[[route]]
path = "/positions"
handler = "push"
identity = "query:user"
channels = ["room:*"]
positions = true

[[route]]
path = "/c"
handler = "centrifuge"
identity = "jwt"

[jwt]
secret_file = "secret"

[[route]]
path = "/app"
handler = "lua"
script = "app.lua"

[[namespace]]
name = "room"
history_size = 10
history_ttl = "1h"
recovery = "missed"
presence = true
subscribe = "client"
publish = "client"
"#;

const APP: &str = r#"
local veche = require("veche")
local users = veche.table("users", { key = "id:u32", columns = { seen = "u32" } })
return { request = function()
  users:insert({ id = 1, seen = 1 })
  -- The request takes long enough for `status` to list it as slow.
  veche.sleep(0.15)
  return 200, {}, ""
end }
"#;

/// Adds the JSON fields of the API, of push lines, of push clients and of `veche status --json`, from a running server.
fn wire(names: &mut Names) {
    let setup: Setup = setups().next().expect("a setup");
    let options = Options {
        routes: CONFIG,
        files: &[("app.lua", APP), ("secret", SECRET)],
        ..Options::default()
    };
    let server = Server::with(setup, &options);
    requests(&server, names);
    answers(&server, names);
    // Which kinds of slow operations have entries depends on the machine; all entries have the same form.
    let status = server.status().expect("an answer");
    collect("json status", &status, &["status.report.slow"], names);
}

/// Returns the names of the API's methods, from the table in their source.
fn methods() -> Vec<String> {
    let source = read("crates/frontends/src/backend/api.rs");
    let table = source
        .split("const NAMES:")
        .nth(1)
        .expect("the table of methods");
    let table = table.split("];").next().expect("its end");
    table
        .split("(\"")
        .skip(1)
        .map(|row| row.split('"').next().unwrap_or_default().to_owned())
        .collect()
}

/// Adds the API's methods and fields. The server lists a method's fields when it rejects an unknown field.
fn requests(server: &Server, names: &mut Names) {
    for method in methods() {
        names.insert(format!("method {method}"));
        let answer = call(server.internal, &method, &json!({ "no_such_name": 1 }));
        let Some(message) = answer["error"]["message"].as_str() else {
            assert_eq!(method, "info", "it takes no object");
            continue;
        };
        let (_, known) = message
            .split_once("expected ")
            .unwrap_or_else(|| panic!("{method}: {message}"));
        for key in known.split('`').skip(1).step_by(2) {
            names.insert(format!("json request {method}.{key}"));
        }
    }
}

/// Objects whose keys are names of users, channels, clients and the like.
const MAPS: &[&str] = &[
    "presence.presence",
    "channels.channels",
    "connections.connections",
    "connections.connections.*.state.channels",
    "history.publications[].tags",
];

fn answers(server: &Server, names: &mut Names) {
    let token = shared(&json!({ "sub": "ann", "exp": now_s() + 600, "info": true }));
    let connect = json!({ "token": token, "name": "test", "version": "1" });
    let mut client = Socket::open(server.public, "/c");
    client.say(&json!({ "id": 1, "connect": connect }).to_string());
    client.text();
    client.say(&json!({ "id": 2, "subscribe": { "channel": "room:1" } }).to_string());
    while !client.text().contains("\"id\":2") {}
    client.say(&json!({ "id": 3, "publish": { "channel": "room:1", "data": 1 } }).to_string());
    while !client.text().contains("\"id\":3") {}
    Socket::open(server.public, "/positions?user=gone").leave();
    let mut pushed = Socket::open(server.public, "/positions?user=bob&channel=room:1");
    Http::connect(server.public)
        .request("GET", "/app", "", b"")
        .expect("an answer");
    let frame = |socket: &mut Socket, names: &mut Names| {
        let frame: Value = serde_json::from_str(&socket.text()).expect("JSON");
        collect("json positions", &frame, &[], names);
        frame
    };
    let position = frame(&mut pushed, names)["position"].clone();
    let position = position.as_str().expect("a position");
    let returning = format!("/positions?user=cid&channel=room:1&since={position}");
    frame(&mut Socket::open(server.public, &returning), names);

    let room = json!({ "channel": "room:1" });
    let user = json!({ "user": "cid" });
    let publish = json!({ "channel": "room:1", "data": "hello", "tags": { "a": "b" } });
    until("ann to be seen", || {
        call(server.internal, "presence_stats", &room)["result"]["num_users"] == 2
    });
    call(server.internal, "block_user", &user);
    let gone = json!({ "user": "gone" });
    until("the last connection of a user to be gone", || {
        call(server.internal, "user_status", &gone)["result"]["last_seen"].is_u64()
    });
    let repeated = json!({ "data": 1, "idempotency_key": "key" });
    let repeat = |name: &str, value: Value| {
        let mut body = repeated.clone();
        body[name] = value;
        body
    };
    let channel = json!({ "user": "ann", "channel": "room:3", "info": true });
    call(server.internal, "subscribe", &channel);
    let listed = json!({ "channel": "room:3" });
    until("a subscription made by the back end", || {
        let answer = call(server.internal, "presence", &listed);
        answer["result"]["presence"]
            .as_object()
            .is_some_and(|clients| !clients.is_empty())
    });
    for (method, body) in [
        ("push", json!({ "user": "ann", "data": 1 })),
        ("publish", publish.clone()),
        ("broadcast", json!({ "channels": ["room:1"], "data": 1 })),
        ("push", repeat("user", json!("zoe"))),
        ("push", repeat("user", json!("zoe"))),
        ("publish", repeat("channel", json!("room:8"))),
        ("publish", repeat("channel", json!("room:8"))),
        ("broadcast", repeat("channels", json!(["room:8"]))),
        ("history", json!({ "channel": "room:1", "limit": 10 })),
        ("presence", room.clone()),
        ("presence", listed.clone()),
        ("presence_stats", room.clone()),
        ("channels", json!({})),
        ("connections", json!({ "user": "ann" })),
        ("user_status", user.clone()),
        ("user_status", gone),
        ("info", json!({})),
        (
            "batch",
            json!({ "commands": [{ "publish": publish }, { "history": { "channel": "none" } }] }),
        ),
        ("disconnect", json!({ "user": "nobody-there" })),
        ("subscribe", json!({ "user": "zoe", "channel": "room:2" })),
        ("unsubscribe", json!({ "user": "bob", "channel": "room:1" })),
        ("refresh", json!({ "user": "zoe" })),
        ("unblock_user", user.clone()),
        ("history_remove", json!({ "channel": "room:9" })),
        ("revoke_token", json!({ "uid": "t" })),
        ("invalidate_user_tokens", user.clone()),
    ] {
        let answer = call(server.internal, method, &body);
        let kind = format!("json answer {method}");
        match (answer.get("result"), method) {
            (Some(result), _) => collect(&kind, result, MAPS, names),
            (None, "batch") => collect(&kind, &answer, MAPS, names),
            (None, _) => panic!("{method}: {answer}"),
        }
    }
    // The client receives a publication by each of publish, broadcast and batch, and then the end of its subscription.
    for _ in 0..4 {
        frame(&mut pushed, names);
    }
    let refused = call(server.internal, "publish", &json!({}));
    collect("json answer", &refused, &[], names);
    names.insert("json answer result".to_owned());

    let mut lines = Lines::connect(server.push);
    let line = json!({ "user": "ann", "data": 1, "ack": true, "id": 7 });
    collect("json line", &lines.ask(&line), &[], names);
    let line = json!({ "user": "ann", "nothing": true, "id": 8 });
    collect("json line", &lines.ask(&line), &[], names);
}

/// Adds the paths of all fields: `[]` stands for an entry of a list, `*` for a key of one of `maps`.
fn collect(path: &str, value: &Value, maps: &[&str], names: &mut Names) {
    let below = path.rsplit(' ').next().unwrap_or_default();
    match value {
        Value::Object(fields) => {
            let is_map = maps.contains(&below);
            for (key, value) in fields {
                let joint = if path.split(' ').count() < 2 {
                    ' '
                } else {
                    '.'
                };
                let path = match is_map {
                    true => format!("{path}{joint}*"),
                    false => format!("{path}{joint}{key}"),
                };
                names.insert(path.clone());
                collect(&path, value, maps, names);
            }
        }
        Value::Array(list) => {
            for value in list {
                collect(&format!("{path}[]"), value, maps, names);
            }
        }
        _ => {}
    }
}
