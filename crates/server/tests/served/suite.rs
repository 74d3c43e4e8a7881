//! Tests in Lua that an application of a real server runs, one by one.

use std::fs;
use std::path::Path;

use crate::support::{Server, Setup, get, now};

/// Starts a server with the application `script` at `/suite`. The application's option `url` is the
/// URL of the database for the tests.
pub(crate) fn serve(setup: Setup, script: &str, url: &str) -> Server {
    // In a test build of the server, a large result takes more CPU time than the default budget.
    let routes = format!(
        "[[route]]\npath = \"/suite\"\nhandler = \"lua\"\nscript = \"app.lua\"\ncpu_budget = \"500ms\"\n\
         options = {{ url = \"{url}\" }}\n"
    );
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(here.join(path)).expect("a script");
    let files = [
        ("app.lua", read(&format!("tests/served/{script}"))),
        ("suite.lua", read("tests/served/suite.lua")),
        ("check.lua", read("../script/tests/support/check.lua")),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    Server::serving(setup, &routes, &files)
}

/// Runs all tests of a suite and reports every failure.
#[track_caller]
pub(crate) fn run(server: &Server) {
    let names = get(server.public, "/suite").json();
    let names = names.as_array().expect("a list");
    assert!(names.len() > 10, "{names:?}");
    let mut failed = Vec::new();
    for name in names {
        let name = name.as_str().expect("a name");
        let began = now();
        let answer = get(server.public, &format!("/suite?test={name}"));
        eprintln!("{name}: {} in {:?}", answer.status, began.elapsed());
        if answer.status != 200 {
            failed.push(format!("{name}: {}", answer.text()));
        }
    }
    assert!(failed.is_empty(), "{}\n{}", failed.join("\n"), server.log());
}
