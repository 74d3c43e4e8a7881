//! Verifies that `README.md` names an existing test for each class of attacks, and that every test is listed.

use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("README.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the tests that the table names in backticks: for each, a file of the repository and an item in it.
fn named() -> impl Iterator<Item = (&'static str, &'static str)> {
    let code = TABLE.split('`').skip(1).step_by(2);
    code.filter_map(|code| code.split_once("::"))
}

/// Returns the tests of a source file.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let behind = text.split("#[test]\n").skip(1);
    behind.filter_map(|rest| Some(rest.split_once("fn ")?.1.split_once('(')?.0))
}

#[test]
fn what_the_table_names_is_there() {
    let mut count = 0;
    for (file, name) in named() {
        let text = fs::read_to_string(root().join(file));
        let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(name), "{file} has no {name:?}");
        count += 1;
    }
    assert!(count > 40, "{count} names");
}

#[test]
fn every_attack_is_in_the_table() {
    let here = "crates/server/tests/attacks";
    for entry in fs::read_dir(root().join(here)).expect("a folder") {
        let path = entry.expect("an entry").path();
        let file = path.file_name().expect("a name").to_string_lossy();
        if path.extension().is_none_or(|kind| kind != "rs") || file == "table.rs" {
            continue;
        }
        let text = fs::read_to_string(&path).expect("source");
        for test in tests(&text) {
            let name = (format!("{here}/{file}"), test);
            assert!(
                named().any(|(file, test)| (file, test) == (&*name.0, name.1)),
                "the table lacks `{}::{}`",
                name.0,
                name.1
            );
        }
    }
}
