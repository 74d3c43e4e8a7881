//! Checks that public functions have callers other than tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::imports::{Modules, crates, tokens};
use super::{assert_none, files};

/// The reason why only tests call some functions of the serialised runtime contract.
const SERIALISED: &str =
    "the serialised runtime contract is for worker processes; so far only its tests use it";

/// Functions that only tests call, each with the reason why it is public.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("frame_bytes_max", SERIALISED),
    (
        "counting_runs",
        "the script crate's tests need runs that take a fixed part of the turn's time",
    ),
    (
        "has_event_handlers",
        "the script crate's tests check which scripts handle events; the runtime contract has no such query",
    ),
    (
        "idle_connections",
        "the FastCGI crate's tests check how many connections a client keeps open",
    ),
    (
        "set_room",
        "the server's tests limit how many bytes the simulated network accepts",
    ),
    (
        "with_virtual_time",
        "the script crate's tests need results that do not depend on the machine's load",
    ),
];

/// Returns whether a file is compiled for tests only, judged by its name.
fn is_test(name: &str) -> bool {
    name.split('/')
        .any(|part| part == "tests" || part == "tests.rs")
        || name.ends_with("_tests.rs")
}

/// Returns those files of the crates that are compiled only for tests, for example because their
/// module is declared with `#[cfg(test)]`.
fn of_tests(files: &BTreeMap<String, PathBuf>) -> BTreeSet<String> {
    let folders = crates();
    let mut left_out: BTreeSet<String> = files.keys().cloned().collect();
    left_out.retain(|name| {
        name.ends_with(".rs") && folders.iter().any(|folder| name.starts_with(folder))
    });
    for folder in &folders {
        for module in Modules::read(folder).0.values() {
            left_out.remove(&format!("{folder}{}", module.file));
        }
    }
    left_out
}

#[test]
fn public_functions_are_called_by_more_than_tests() {
    let files = files();
    let of_tests = of_tests(&files);
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut called = BTreeSet::new();
    for (name, path) in files {
        if !name.ends_with(".rs") || is_test(&name) || of_tests.contains(&name) {
            continue;
        }
        let text = fs::read_to_string(path).expect("UTF-8 source");
        let tokens = tokens(&text);
        let is_of_product = name.starts_with("crates/") && name.contains("/src/");
        for (at, token) in tokens.iter().enumerate() {
            let before = |back: usize| at.checked_sub(back).map_or("", |place| &tokens[place]);
            if before(1) != "fn" {
                called.insert(token.clone());
                continue;
            }
            let is_public = (2..6)
                .take_while(|back| !matches!(before(*back), ";" | "}" | "{" | "]" | ")"))
                .any(|back| before(back) == "pub");
            if is_public && is_of_product && name != "crates/server/src/main.rs" {
                defined.entry(token.clone()).or_default().push(name.clone());
            }
        }
        // Attributes name functions in strings, so strings count as calls.
        for quoted in text.split('"').skip(1).step_by(2) {
            called.extend(quoted.rsplit("::").next().map(str::to_owned));
        }
    }
    let mut unneeded: Vec<_> = EXCEPTIONS.iter().map(|(name, _)| *name).collect();
    let mut problems = Vec::new();
    for (name, places) in defined {
        if called.contains(&name) {
            continue;
        }
        match unneeded.iter().position(|one| *one == name) {
            Some(at) => drop(unneeded.remove(at)),
            None => problems.push(format!("{}: {name}", places.join(", "))),
        }
    }
    assert_none(
        &problems,
        "only tests call it: remove it, or make it one of theirs",
    );
    assert!(unneeded.is_empty(), "rows to be removed: {unneeded:?}");
}
