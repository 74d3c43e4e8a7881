//! Mocked external services of `veche test`, and the errors for calls without a mock.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const CONFIG: &str = include_str!("app_stubs/veche.toml");
const APP: &str = include_str!("app_stubs/app.lua");
const TESTS: &str = include_str!("app_stubs/app_test.lua");

/// Runs an application's tests in a temporary folder whose name contains `name`; returns the exit
/// code and the output.
fn run(name: &str, tests: &str, args: &[&str]) -> (i32, String) {
    let folder = format!("veche-stubs-{}-{name}", std::process::id());
    let folder: PathBuf = std::env::temp_dir().join(folder);
    fs::create_dir_all(&folder).expect("the temporary folder is writable");
    for (file, text) in [
        ("veche.toml", CONFIG),
        ("app.lua", APP),
        ("app_test.lua", tests),
    ] {
        fs::write(folder.join(file), text).expect("a file");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_veche"))
        .current_dir(&folder)
        .arg("test")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let _ = fs::remove_dir_all(&folder);
    let out = String::from_utf8(output.stdout).expect("text");
    let err = String::from_utf8(output.stderr).expect("text");
    assert_eq!(err, "");
    (output.status.code().unwrap_or(-1), out)
}

#[test]
fn the_outside_answers_as_the_test_has_it_with_every_seed() {
    let (code, out) = run("works", TESTS, &["--runs", "20"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("8 tests"), "{out}");
}

/// Each mistake in a test has an error message that explains the fix.
#[test]
fn a_call_without_a_stub_says_how_to_have_one() {
    for (name, body, words) in [
        (
            "mysql",
            "ann:send('count')",
            "the test has no stub for SELECT COUNT(*) FROM users: test.stub_mysql(\"SELECT COUNT(*) FROM users\", …)",
        ),
        (
            "redis",
            "ann:send('cached')",
            "the test has no stub for GET name: test.stub_redis(\"GET name\", …)",
        ),
        (
            "http",
            "ann:send('price')",
            "the test has no stub for GET https://api.example/price?of=tea: test.stub_http(\"GET\", \"https://api.example/price?of=tea\", …)",
        ),
        (
            "host",
            "ann:send('dial')",
            "the test has no stub that resolves feed.example: test.stub_resolve(\"feed.example\", …), or test.stub_websocket(\"wss://feed.example/…\") for a WebSocket server",
        ),
        (
            "websocket",
            "ann:send('keep')",
            "the test has no stub for a WebSocket server at ws://10.0.0.1:9000/: test.stub_websocket(\"ws://10.0.0.1:9000/\")",
        ),
        (
            "function",
            "test.stub_mysql('*', function() error('oops') end) ann:send('find')",
            "the stub's function failed: app_test.lua:4: oops",
        ),
        (
            "rows",
            "test.stub_mysql('*', 7) ann:send('find')",
            "test.stub_mysql: expected a list of rows, each a table: only db:value can be answered with a single value",
        ),
        (
            "row",
            "test.stub_mysql('*', { name = 'Ann' }) ann:send('find')",
            "test.stub_mysql: field \"name\" of a response: expected a list of rows, a value, or { affected = …, last_id = … } with whole numbers",
        ),
        (
            "value",
            "test.stub_mysql('*', { { a = 1, b = 2 } }) ann:send('count')",
            "test.stub_mysql: db:value expects a single value, or rows with only one column",
        ),
        (
            "answer",
            "test.stub_http('GET', 'https://*', function() return { stat = 7 } end) ann:send('price')",
            "bad argument #3 to 'test.stub_http': there is no field 'stat'",
        ),
        (
            "fails",
            "test.stub_mysql('*', { fails = 'badly' })",
            "app_test.lua:4: bad argument #2 to 'test.stub_mysql': fails: \"timeout\", \"pool_full\", \"unreachable\", \"connection_lost\", \"refused\", \"invalid\" or \"broken\" expected",
        ),
        (
            "status",
            "test.stub_http('GET', 'https://a.example/', { status = 7 })",
            "app_test.lua:4: bad argument #3 to 'test.stub_http': a status from 200 to 999 expected",
        ),
        (
            "headers",
            "test.stub_http('GET', 'https://a.example/', { headers = 7 })",
            "app_test.lua:4: bad argument #3 to 'test.stub_http': headers: a table expected",
        ),
        (
            "option",
            "test.stub_websocket('ws://a.example/', { protocols = {} })",
            "app_test.lua:4: bad argument #2 to 'test.stub_websocket': there is no option 'protocols'",
        ),
        (
            "nil",
            "test.stub_redis('GET a')",
            "app_test.lua:4: bad argument #2 to 'test.stub_redis': an answer, which may be nil, or a function expected",
        ),
        (
            "accept",
            "test.stub_websocket('ws://a.example/'):accept()",
            "app_test.lua:4: server ws://a.example/: the application was expected to open a connection, but opened none",
        ),
    ] {
        let tests = format!(
            "local test = require 'veche.test'\ntest.case('it', function()\nlocal ann = test.connect('/w')\n{body}\ntest.settle()\nend)\n"
        );
        let (code, out) = run(name, &tests, &[]);
        assert_eq!(code, 1, "{name}: {out}");
        assert!(out.contains(words), "{name}: {out}");
    }
}
