//! Tests settings of operators (secrets, users, the sandbox), and the guide's list of settings that a
//! reload can't change.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{LISTEN, good};
use crate::SecretValue;
use crate::directives::{self, ReloadEffect};

#[test]
fn the_guide_lists_what_needs_a_restart() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/operate.md");
    let page = fs::read_to_string(page).expect("a page");
    let (_, after) = page.split_once("| directive | why |\n").expect("a table");
    let rows = after
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    let listed: BTreeSet<String> = rows
        .map(|row| row.split('`').nth(1).expect("a name").to_owned())
        .collect();
    let fixed = directives::all().filter(|directive| directive.change == ReloadEffect::Restart);
    let expected: BTreeSet<String> = fixed
        .map(|directive| format!("{}.{}", directive.section.name(), directive.name))
        .collect();
    assert_eq!(listed, expected);
}

#[test]
fn secrets_that_are_elsewhere() {
    let config = good(&format!(
        "{LISTEN}[server]\nuser = \"veche\"\ngroup = \"www\"\nsandbox = true\n\
         [api]\nkeys = [\"a-key-that-is-long-enough\", {{ file = \"api.key\" }}, {{ file = \"/run/key\" }}]\n"
    ));
    let keys: Vec<&str> = config.api.keys.iter().map(SecretValue::expose).collect();
    let from_file = "a-key-from-a-file-of-its-own";
    assert_eq!(keys, ["a-key-that-is-long-enough", from_file, from_file]);
    let files = ["/etc/veche/api.key", "/run/key"].map(PathBuf::from);
    assert_eq!(config.api.files, files);
    let shown = config.effective.to_string();
    let keys = "keys = [\"****\", { file = \"api.key\" }, { file = \"/run/key\" }]";
    assert!(shown.contains(keys), "{shown}");
    for text in [format!("{config:?}"), shown] {
        assert!(!text.contains("a-key"), "{text}");
    }
    let run_as = config.server.run_as.expect("set");
    assert_eq!(
        (run_as.user.as_str(), run_as.group.as_deref()),
        ("veche", Some("www"))
    );
}
