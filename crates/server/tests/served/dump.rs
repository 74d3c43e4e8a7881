//! Tests `veche dump` on a running server: whole tables, parts of tables, changes during dumps, and readers that
//! leave.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::support::{Server, Setup, USUAL, get, on_all};

const ROUTES: &str = "
[[route]]
path = \"/fill\"
handler = \"lua\"
script = \"app.lua\"";

const APP: &str = r#"
local veche = require "veche"
local users = veche.table("users", {
  key = "id:u32",
  columns = { mark = "u8", name = "string?", raw = "bytes?" },
  indexes = { by_mark = { "mark" } },
})
local app = {}

-- Inserts a few rows per request, since a handler may use only some milliseconds of CPU time.
function app.request(req)
  local from, to, mark = tonumber(req.query.from), tonumber(req.query.to), tonumber(req.query.mark)
  for id = from, to do
    users:upsert { id = id, mark = mark or id % 3, name = id > 0 and 'user, "' .. id .. '"\nname' or nil, raw = "\0\255" }
  end
  return "done"
end

return app
"#;

fn start(setup: Setup) -> Server {
    Server::serving(setup, ROUTES, &[("app.lua", APP)])
}

fn fill(server: &Server, from: u32, to: u32, more: &str) {
    let mut from = from;
    while from < to {
        let last = (from + 999).min(to - 1);
        let response = get(server.public, &format!("/fill?from={from}&to={last}{more}"));
        assert_eq!(response.text(), "done");
        from = last + 1;
    }
}

fn veche(server: &Server, arguments: &[&str]) -> Output {
    let output = server.command(arguments).output();
    output.expect("it runs")
}

fn spawned(mut command: Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it runs")
}

/// Returns the output of a successful dump.
#[track_caller]
fn written(server: &Server, arguments: &[&str]) -> String {
    let output = veche(server, arguments);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), printed.as_str()), (Some(0), ""));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the exit code and the error of a failed dump.
fn refused(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output = veche(server, arguments);
    assert!(output.stdout.is_empty());
    let printed = String::from_utf8(output.stderr).expect("text");
    (output.status.code(), printed)
}

#[test]
fn rows_are_written_as_ndjson_and_as_csv() {
    on_all(|setup| {
        let server = start(setup);
        assert_eq!(written(&server, &["dump", "users"]), "");
        fill(&server, 0, 3, "");
        assert_eq!(
            written(&server, &["dump", "users"]),
            "{\"id\":0,\"mark\":0,\"name\":null,\"raw\":\"AP8=\"}\n\
             {\"id\":1,\"mark\":1,\"name\":\"user, \\\"1\\\"\\nname\",\"raw\":\"AP8=\"}\n\
             {\"id\":2,\"mark\":2,\"name\":\"user, \\\"2\\\"\\nname\",\"raw\":\"AP8=\"}\n"
        );
        assert_eq!(
            written(&server, &["dump", "users", "--csv", "--limit", "2"]),
            "id,mark,name,raw\r\n0,0,,\"AP8=\"\r\n1,1,\"user, \"\"1\"\"\nname\",\"AP8=\"\r\n"
        );
        assert_eq!(written(&server, &["dump", "users", "--limit", "0"]), "");
        fill(&server, 0, 30_000, "");
        let by_mark = written(&server, &["dump", "users", "--index", "by_mark"]);
        let rows: Vec<Value> = by_mark
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(rows.len(), 30_000);
        assert!(rows.is_sorted_by_key(|row| (row["mark"].as_u64(), row["id"].as_u64())));

        let list = written(&server, &["dump"]);
        assert!(list.starts_with("users  30000 rows, "), "{list}");
        let status = written(&server, &["status"]);
        assert!(status.contains("users: 30000 rows, "), "{status}");
        let report = &server.status().expect("a status")["report"];
        assert_eq!(report["tables"][0]["rows"], 30_000);
        let scrape = get(server.internal, "/metrics");
        let line = "veche_table_rows{table=\"users\"} 30000\n";
        assert!(scrape.text().contains(line), "{}", scrape.text());
    });
}

#[test]
fn unknown_tables_are_reported_in_one_line() {
    let server = start(USUAL);
    for (arguments, expected) in [
        (
            &["dump", "user"][..],
            "veche: there is no table \"user\"; existing tables: \"users\"\n",
        ),
        (
            &["dump", "users", "--index", "by_name"],
            "veche: the table \"users\" has no index \"by_name\"; existing indexes: \"by_mark\"\n",
        ),
    ] {
        assert_eq!(refused(&server, arguments), (Some(4), expected.to_owned()));
    }
    let (code, printed) = refused(&server, &["dump", "--csv"]);
    assert!(code == Some(2) && printed.contains("TABLE"), "{printed}");
    // Without a descriptor in the request there is nothing to write to.
    let answer = server.ask("dump").expect("an answer");
    let missing = "the request lacks a name or the descriptor to write to";
    let expected = json!({"ok": false, "error": missing});
    assert_eq!(answer, expected);
    assert_eq!(written(&server, &["dump", "users"]), "");
}

#[test]
fn rows_that_change_meanwhile_come_once_each() {
    let server = start(USUAL);
    fill(&server, 0, 20_000, "");
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for mark in 0..20 {
                fill(&server, 0, 20_000, &format!("&mark={mark}"));
            }
        });
        let mut dumps = 0;
        while dumps == 0 || !writing.is_finished() {
            dumps += 1;
            let text = written(&server, &["dump", "users"]);
            for (id, line) in text.lines().enumerate() {
                let row: Value = serde_json::from_str(line).expect("JSON");
                assert_eq!(row["id"], id);
            }
            assert_eq!(text.lines().count(), 20_000);
        }
    });
}

#[test]
fn closed_readers_end_it_quietly_and_slow_ones_block_nothing() {
    let server = start(USUAL);
    fill(&server, 0, 30_000, "");
    for _ in 0..8 {
        let mut child = spawned(server.command(&["dump", "users"]));
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("a line");
        drop(out);
        assert!(line.starts_with("{\"id\":0,"), "{line}");
        let mut printed = String::new();
        let mut errors = child.stderr.take().expect("piped");
        errors.read_to_string(&mut printed).expect("text");
        let code = child.wait().expect("it ends").code();
        assert_eq!((code, printed.as_str()), (Some(0), ""));
    }
    // While the first reader stalls, writers of the table and other readers continue.
    let mut slow = spawned(server.command(&["dump", "users"]));
    let mut out = BufReader::new(slow.stdout.take().expect("piped"));
    let mut text = String::new();
    out.read_line(&mut text).expect("a line");
    fill(&server, 0, 3, "&mark=9");
    assert_eq!(written(&server, &["dump", "users"]).lines().count(), 30_000);
    out.read_to_string(&mut text).expect("text");
    assert_eq!(text.lines().count(), 30_000);
    assert_eq!(slow.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_server_that_ends_during_a_dump_is_detected() {
    let mut server = start(USUAL);
    fill(&server, 0, 30_000, "");
    let mut child = spawned(server.command(&["dump", "users"]));
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut String::new()).expect("a line");
    server.stop();
    out.read_to_string(&mut String::new()).expect("text");
    let mut printed = String::new();
    let mut errors = child.stderr.take().expect("piped");
    errors.read_to_string(&mut printed).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(3), "{printed}");
    let expected = "veche: the server process ended before all rows were written\n";
    assert_eq!(printed, expected);
}
