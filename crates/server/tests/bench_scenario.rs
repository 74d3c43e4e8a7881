//! Tests `veche bench scenario` against the real server: objectives (promises) that are kept or broken, and invalid
//! files.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::{Server, USUAL, process, until};

/// A scenario file in the temporary folder.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("veche-scenario-{name}-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).expect("the temporary folder is writable");
        Self(path)
    }

    fn bench(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veche"));
        command
            .args(["bench", "scenario"])
            .arg(&self.0)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, flags: &[&str]) -> Seen {
        Seen::of(&self.bench(flags).output().expect("the binary runs"))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

struct Seen {
    code: i32,
    out: String,
    err: String,
}

impl Seen {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        Self {
            code: output.status.code().expect("it exits by itself"),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    #[track_caller]
    fn code(&self, expected: i32) -> &Self {
        assert_eq!(self.code, expected, "{}\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    fn says(&self, words: &str) -> &Self {
        assert!(self.out.contains(words), "no {words:?} in:\n{}", self.out);
        self
    }

    fn report(&self) -> Value {
        serde_json::from_str(&self.out).expect("one JSON object")
    }
}

/// Returns the first lines of a scenario file. They permit the tester to be the bottleneck, since it shares cores with
/// the server.
fn defaults(server: &Server) -> String {
    format!(
        "url = \"ws://{}/echo\"\nconnections = 10\nduration = \"500ms\"\nwarmup = \"100ms\"\n\
         allow_bottleneck = true\n",
        server.public
    )
}

/// No promise of a phase with a rate depends on the rate, since other tests may use the processor meanwhile.
#[test]
fn kept_promises_exit_with_0() {
    let server = Server::start(USUAL);
    let text = format!(
        r#"{defaults}
        [promise]
        errors = 0
        connections.failed = "== 0%"
        ledger = {{ lost = 0, duplicated = 0, reordered = 0, corrupted = 0 }}

        [[phase]]
        name = "all at once"
        kind = "storm"
        connections = 100
        promise.connections.opened = 100
        promise.handshake.p99 = "<= 10s"
        promise.server.processes = ">= 1"

        [[phase]]
        name = "ramp"
        kind = "echo"
        rate = [100, 900]
        promise.messages.sent = "== 250"
        promise.messages.unanswered = 0

        [[phase]]
        name = "churn"
        kind = "echo"
        churn = 40
        promise.latency.max = "<= 20s"
        promise.connections.reconnected = ">= 10"
        promise.messages.unanswered = 0

        [[phase]]
        name = "push"
        kind = "push"
        url = "ws://{public}/ws?user=bench{{i}}"
        publish = "tcp://{push}"
        rate = 200
        promise.ledger.delivered = "== 100%"

        [[phase]]
        name = "pages"
        kind = "http"
        together = true
        url = "http://{public}/index.html"
        rate = 100
        expect = "<p>hello</p>"
        promise.http.status_2xx = "== 100%"
        promise.http.unexpected_bodies = 0
        "#,
        defaults = defaults(&server),
        public = server.public,
        push = server.push,
    );
    let file = File::new("kept", &text);
    let pid = server.pid().to_string();
    let page = file.0.with_extension("html");
    let seen = file.run(&["--pid", &pid, "--html", page.to_str().expect("UTF-8")]);
    seen.code(0)
        .says("all 17 promises kept")
        .says("  kept    connections.opened == 100: 100\n");
    let written = fs::read_to_string(&page).expect("a page");
    let _ = fs::remove_file(&page);
    assert!(written.contains("all at once") && written.contains("connections.opened == 100"));

    let seen = file.run(&["--pid", &pid, "--json", "--label", "again"]);
    let report = seen.code(0).report();
    assert_eq!(report["kind"], "scenario");
    assert_eq!(report["settings"]["label"], "again");
    let phases = report["phases"].as_array().expect("phases");
    let kinds: Vec<&Value> = phases.iter().map(|phase| &phase["kind"]).collect();
    assert_eq!(kinds, ["storm", "echo", "echo", "push", "http"]);
    assert_eq!(phases[1]["settings"]["label"], "ramp");
    assert_eq!(report["connections"]["asked"], 100 + 10 + 10 + 11 + 10);
    // The server's resources can't be attributed to one of two concurrent phases, so they are not reported.
    assert!(phases[2]["server"].is_object() && phases[3].get("server").is_none());
    for phase in phases {
        assert!(
            phase["checks"]
                .as_array()
                .expect("checks")
                .iter()
                .all(|check| check["passed"] == true)
        );
    }
}

#[test]
fn broken_promises_exit_with_8() {
    let server = Server::start(USUAL);
    let text = format!(
        r#"{defaults}
        [[phase]]
        name = "too good"
        kind = "echo"
        promise.latency.p99 = "<= 1us"
        promise.latency.p50 = "<= 10s"
        [[phase]]
        name = "unseen"
        kind = "echo"
        promise.server.bytes_per_connection = "<= 1GiB"
        [[phase]]
        name = "missing"
        kind = "http"
        url = "http://{public}/missing"
        rate = 20
        "#,
        defaults = defaults(&server),
        public = server.public,
    );
    let seen = File::new("broken", &text).run(&[]);
    seen.code(8)
        .says("  BROKEN  latency.p99 <= 1us: ")
        .says("  kept    latency.p50 <= 10s: ")
        .says("  BROKEN  server.bytes_per_connection <= 1GiB: not measured")
        // Errors break a run even if no objective mentions them.
        .says("  BROKEN  errors == 0: 1")
        .says("3 of 6 promises BROKEN");
    assert_eq!(seen.err, "veche: 3 of 6 promises were broken\n");
}

/// The addresses in the file have no server; `--url` replaces them.
#[test]
fn a_file_is_held_against_another_server() {
    let server = Server::start(USUAL);
    let text = "url = \"ws://127.0.0.1:1/echo\"\nconnections = 5\nallow_bottleneck = true\n\
                [[phase]]\nkind = \"storm\"\n\
                [[phase]]\nkind = \"http\"\nurl = \"http://127.0.0.1:2/index.html\"\n\
                duration = \"200ms\"\nwarmup = \"0s\"\nrate = 50\npromise.http.status_2xx = \"== 100%\"\n";
    let file = File::new("elsewhere", text);
    let seen = file.run(&["--url", &format!("ws://{}", server.public), "--json"]);
    let report = seen.code(0).report();
    assert_eq!(report["target"], format!("ws://{}/echo", server.public));
    assert_eq!(report["connections"]["opened"], 10);
    file.run(&[]).code(3);
    let seen = file.run(&["--url", "staging"]);
    seen.code(2);
    assert!(seen.err.contains("the beginning of a URL"), "{}", seen.err);
}

#[test]
fn allowed_errors_do_not_count() {
    let server = Server::start(USUAL);
    let text = format!(
        "{}[[phase]]\nkind = \"http\"\nurl = \"http://{}/missing\"\nrate = 20\n\
         promise.errors = \"> 0\"\npromise.http.status_4xx = \"== 100%\"\n",
        defaults(&server),
        server.public
    );
    File::new("allowed", &text).run(&[]).code(0);
}

#[test]
fn an_unreachable_server_exits_with_3() {
    let text = "url = \"ws://127.0.0.1:1/\"\nconnections = 2\n[[phase]]\nkind = \"storm\"\n";
    let seen = File::new("nobody", text).run(&[]);
    seen.code(3)
        .says("BROKEN  errors == 0: 2, for example refused");
    assert!(
        seen.err.contains("no connection was opened"),
        "{}",
        seen.err
    );
}

#[test]
fn an_interrupt_ends_it_with_what_there_is() {
    let server = Server::start(USUAL);
    let text = format!(
        "{}duration = \"60s\"\n[[phase]]\nkind = \"echo\"\n[[phase]]\nname = \"never\"\nkind = \"echo\"\npromise.latency.p99 = \"<= 1h\"\n",
        defaults(&server).replace("duration = \"500ms\"\n", "")
    );
    let file = File::new("interrupt", &text);
    let child = file.bench(&[]).spawn().expect("the binary runs");
    until("connections", || server.connections() >= 10);
    thread::sleep(Duration::from_millis(500));
    process::kill(child.id(), Signal::INT);
    let seen = Seen::of(&child.wait_with_output().expect("it ends"));
    seen.code(130)
        .says(", interrupted")
        .says("  kept    errors == 0: 0")
        .says("  BROKEN  never: latency.p99 <= 1h: not measured: the scenario ended earlier")
        .says("  BROKEN  all phases ran to their end: interrupted in phase 1 of 2");
}

#[test]
fn invalid_files_are_reported_line_by_line() {
    let text = "url = \"ws://127.0.0.1:1/\"\nconections = 5\n[[phase]]\nkind = \"echo\"\nrate = \"fast\"\n\
                promise.latency.p99 = 50\n[[phase]]\nkind = \"ecco\"\n";
    let file = File::new("bad", text);
    let seen = file.run(&[]);
    seen.code(2);
    assert_eq!(seen.out, "");
    let name = file.0.display();
    let expected = format!(
        "{name}:2:1: unknown key \"conections\"; did you mean \"connections\"?\n\
         {name}:5:8: rate: expected a number from 0.001 to 1,000,000,000, found \"fast\"\n\
         {name}:6:23: latency.p99: expected a time with its unit (us, ms, s) such as \"<= 50ms\", found 50\n\
         {name}:8:8: kind: expected \"storm\", \"echo\", \"broadcast\", \"push\" or \"http\", found \"ecco\"; did you mean \"echo\"?\n"
    );
    assert_eq!(seen.err, expected);
}

/// The examples are complete and valid, whatever runs at their addresses.
#[test]
fn examples_can_be_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/bench");
    let entries = fs::read_dir(folder).expect("examples");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        let text = fs::read_to_string(path).expect("UTF-8");
        // A mistake is appended: if it is the only error, the example itself has none.
        let seen = File::new("example", &format!("{text}\nmistake = 1\n")).run(&[]);
        seen.code(2);
        assert_eq!(seen.err.lines().count(), 1, "{}", seen.err);
        assert!(seen.err.contains("unknown key \"mistake\""), "{}", seen.err);
    }
}
