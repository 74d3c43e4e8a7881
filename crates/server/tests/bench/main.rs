//! Tests of `veche bench` as users run it: the program against the real server and against faulty ones, its reports,
//! error lines and exit codes.

#![expect(clippy::duplicate_mod, reason = "both parts have the clock of tests")]

#[path = "../support/mod.rs"]
mod support;

/// Servers with known behaviour.
#[path = "../../../load/tests/support/mod.rs"]
mod known;

mod bad_input;
mod faults;
mod interrupt;
mod itself;
mod lost;
mod output;
mod overload;
mod real_server;
mod script;
mod search;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

use serde_json::Value;

/// The result of a run.
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    /// The output, if it is a report.
    report: Option<Value>,
    /// What the program wrote to the standard error output.
    stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let printed = text(output.stdout);
        Self {
            code: output.status.code(),
            report: (!printed.is_empty())
                .then(|| serde_json::from_str(&printed).expect("one JSON object and nothing else")),
            stderr: text(output.stderr),
        }
    }
}

impl Outcome {
    /// Returns a value of the report by its path; null if absent.
    #[track_caller]
    fn at(&self, path: &str) -> &Value {
        let report = self.report.as_ref().unwrap_or_else(|| panic!("{self:?}"));
        report.pointer(path).unwrap_or(&Value::Null)
    }

    #[track_caller]
    fn count(&self, path: &str) -> u64 {
        self.at(path)
            .as_u64()
            .unwrap_or_else(|| panic!("{path}: {self:#?}"))
    }

    /// Returns the missed objectives of the first phase, each with the measured value.
    #[track_caller]
    fn broken(&self) -> Vec<String> {
        let checks = self.at("/phases/0/checks").as_array().expect("checks");
        let broken = checks.iter().filter(|check| check["passed"] == false);
        let text = |value: &Value| value.as_str().expect("words").to_owned();
        let line = |check: &Value| {
            let (promise, measured) = (text(&check["promise"]), text(&check["measured"]));
            format!("{promise}: {measured}")
        };
        broken.map(line).collect()
    }

    /// Asserts that all connections opened, nothing failed, and something was measured.
    #[track_caller]
    fn assert_clean(&self) {
        assert_eq!(self.code, Some(0), "{self:#?}");
        assert_eq!(self.stderr, "");
        let errors = self.at("/errors").as_object().expect("errors");
        for (cause, count) in errors.iter().filter(|(cause, _)| *cause != "examples") {
            assert_eq!(count.as_u64(), Some(0), "{cause}: {errors:#?}");
        }
        assert_eq!(
            self.count("/connections/opened"),
            self.count("/connections/asked")
        );
        assert_eq!(self.count("/connections/failed"), 0);
        assert_eq!(self.count("/connections/disconnected"), 0);
        assert_eq!(self.count("/messages/unanswered"), 0, "{self:#?}");
        assert!(self.count("/messages/received") > 0, "{self:#?}");
        let p99 = self.at("/latency_us/p99").as_f64().expect("a percentile");
        assert!(p99 > 0.0, "{self:#?}");
        assert_eq!(self.at("/interrupted"), &Value::Bool(false));
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_veche"));
    command
        .arg("bench")
        .args(arguments)
        .arg("--json")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs `veche bench … --json` to its end.
fn bench(arguments: &[&str]) -> Outcome {
    command(arguments).output().expect("it starts").into()
}

/// Runs a scenario of one phase to its end.
fn scenario(phase: &str) -> Outcome {
    scenario_file(&format!("allow_bottleneck = true\n[[phase]]\n{phase}"))
}

/// Runs the scenario of a file with this text to its end.
fn scenario_file(text: &str) -> Outcome {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, SeqCst);
    let name = format!("veche-bench-{}-{number}.toml", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, text).expect("a temporary folder");
    let outcome = bench(&["scenario", file.to_str().expect("UTF-8")]);
    let _ = std::fs::remove_file(&file);
    outcome
}

fn spawn(arguments: &[&str]) -> Child {
    command(arguments).spawn().expect("it starts")
}

/// Starts a server with a thread for each connection.
fn serve(talk: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let talk = Arc::new(talk);
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let talk = Arc::clone(&talk);
            thread::spawn(move || talk(socket));
        }
    });
    address
}

/// Starts a server that reads the request, sends these bytes, and waits until the client closes the connection.
fn answer_with(bytes: &'static [u8]) -> SocketAddr {
    serve(move |mut socket| {
        let _ = socket.read(&mut [0; 4096]);
        let _ = socket.write_all(bytes);
        silence(socket);
    })
}

/// Reads until the client closes the connection, and never sends anything.
fn silence(mut socket: TcpStream) {
    while matches!(socket.read(&mut [0; 4096]), Ok(1..)) {}
}
