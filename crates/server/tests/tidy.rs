//! Checks the project's own rules, so that reviewers need not. A failure names the file and the fix.

#[path = "tidy/callers.rs"]
mod callers;
#[path = "tidy/codes.rs"]
mod codes;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/types.rs"]
mod types;
#[path = "tidy/words.rs"]
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The allowed dependencies between crates, with which each `Cargo.toml` is compared.
const EDGES: &[(&str, &[&str])] = &[
    ("veche-types", &[]),
    ("veche-mailbox", &[]),
    ("veche-net", &["veche-mailbox", "veche-types"]),
    ("veche-files", &[]),
    (
        "veche-terminal",
        &["veche-calls", "veche-files", "veche-types"],
    ),
    ("veche-logging", &["veche-files", "veche-terminal"]),
    ("veche-tls", &["veche-files"]),
    ("veche-proto", &["veche-types"]),
    ("veche-centrifuge", &["veche-types"]),
    ("veche-nodes", &["veche-types"]),
    ("veche-hub", &["veche-nodes", "veche-types"]),
    ("veche-store", &["veche-files", "veche-types"]),
    ("veche-archive", &["veche-files"]),
    ("veche-calls", &["veche-types"]),
    ("veche-fastcgi", &[]),
    (
        "veche-remote",
        &["veche-calls", "veche-runtime", "veche-types"],
    ),
    ("veche-runtime", &["veche-calls", "veche-types"]),
    (
        "veche-pool",
        &[
            "veche-calls",
            "veche-clock",
            "veche-runtime",
            "veche-spawner",
            "veche-types",
        ],
    ),
    ("veche-spawner", &["veche-clock", "veche-net"]),
    ("veche-jwt", &[]),
    ("veche-pam", &[]),
    (
        "veche-script",
        &["veche-store", "veche-calls", "veche-runtime", "veche-types"],
    ),
    (
        "veche-outbound",
        &[
            "veche-calls",
            "veche-fastcgi",
            "veche-nodes",
            "veche-tls",
            "veche-types",
        ],
    ),
    (
        "veche-frontends",
        &[
            "veche-proto",
            "veche-centrifuge",
            "veche-hub",
            "veche-jwt",
            "veche-nodes",
            "veche-types",
        ],
    ),
    (
        "veche-worker",
        &["veche-frontends", "veche-hub", "veche-nodes", "veche-types"],
    ),
    (
        "veche-config",
        &[
            "veche-calls",
            "veche-fastcgi",
            "veche-files",
            "veche-frontends",
            "veche-hub",
            "veche-jwt",
            "veche-logging",
            "veche-pam",
            "veche-proto",
            "veche-terminal",
            "veche-tls",
            "veche-types",
        ],
    ),
    (
        "veche-apps",
        &[
            "veche-calls",
            "veche-config",
            "veche-frontends",
            "veche-hub",
            "veche-logging",
            "veche-outbound",
            "veche-pool",
            "veche-proto",
            "veche-remote",
            "veche-runtime",
            "veche-script",
            "veche-spawner",
            "veche-store",
            "veche-tls",
            "veche-types",
            "veche-worker",
        ],
    ),
    ("veche-clock", &[]),
    (
        "veche-testing",
        &[
            "veche-apps",
            "veche-calls",
            "veche-clock",
            "veche-net",
            "veche-outbound",
            "veche-proto",
            "veche-script",
            "veche-store",
            "veche-terminal",
            "veche-types",
        ],
    ),
    ("veche-migrate", &["veche-frontends", "veche-terminal"]),
    (
        "veche-acme",
        &[
            "veche-calls",
            "veche-clock",
            "veche-config",
            "veche-files",
            "veche-outbound",
            "veche-tls",
        ],
    ),
    (
        "veche-webhooks",
        &[
            "veche-calls",
            "veche-clock",
            "veche-config",
            "veche-frontends",
            "veche-hub",
            "veche-logging",
            "veche-outbound",
            "veche-terminal",
        ],
    ),
    (
        "veche-identity",
        &[
            "veche-calls",
            "veche-clock",
            "veche-config",
            "veche-frontends",
            "veche-hub",
            "veche-jwt",
            "veche-logging",
            "veche-outbound",
            "veche-pam",
            "veche-proto",
            "veche-terminal",
            "veche-types",
            "veche-webhooks",
        ],
    ),
    (
        "veche-supervisor",
        &[
            "veche-clock",
            "veche-config",
            "veche-files",
            "veche-logging",
            "veche-net",
            "veche-spawner",
            "veche-terminal",
            "veche-tls",
        ],
    ),
    (
        "veche-load",
        &[
            "veche-proto",
            "veche-net",
            "veche-terminal",
            "veche-tls",
            "veche-types",
        ],
    ),
    (
        "veche-sim",
        &[
            "veche-proto",
            "veche-hub",
            "veche-frontends",
            "veche-jwt",
            "veche-nodes",
            "veche-types",
            "veche-worker",
        ],
    ),
    (
        "veche-counts",
        &["veche", "veche-net", "veche-proto", "veche-store"],
    ),
    (
        "veche",
        &[
            "veche-files",
            "veche-mailbox",
            "veche-net",
            "veche-nodes",
            "veche-config",
            "veche-logging",
            "veche-supervisor",
            "veche-spawner",
            "veche-clock",
            "veche-acme",
            "veche-webhooks",
            "veche-identity",
            "veche-apps",
            "veche-terminal",
            "veche-tls",
            "veche-proto",
            "veche-hub",
            "veche-store",
            "veche-archive",
            "veche-calls",
            "veche-runtime",
            "veche-script",
            "veche-outbound",
            "veche-frontends",
            "veche-jwt",
            "veche-pam",
            "veche-load",
            "veche-migrate",
            "veche-testing",
            "veche-types",
            "veche-worker",
        ],
    ),
];

/// Additional dependencies that a crate's tests may have.
const TEST_EDGES: &[(&str, &[&str])] = &[
    ("veche-outbound", &["veche-hub"]),
    ("veche-frontends", &["veche-worker"]),
    ("veche-worker", &["veche-proto", "veche-jwt"]),
    ("veche", &["veche-sim"]),
];

/// Calls that are steps of a worker's turn, on any receiver: only [`TURN`] may make them.
const TURN_STEPS: &[&str] = &[
    ".hub.receive(",
    ".acknowledge_command(",
    ".batch_durable(",
    ".handle_lost_history(",
    ".sweep(",
    ".take_reports(",
    ".take_batch(",
    ".take_channel_events(",
    ".take_drained(",
    ".take_fallen_behind(",
    ".take_overflowed(",
    ".take_touched(",
    ".settle_backlogs(",
    ".settle_filled(",
    ".handle_answer(",
    ".handle_app_answer(",
    ".handle_app_ready(",
    ".renew_token(",
    ".shared.trim(",
    ".log_missed_publications(",
    ".handle_overflow(",
    ".handle_user_command(",
    ".handle_relay(",
];

/// Calls that [`TURN_STEPS`] make, and that have no other caller.
const PARTS_OF_STEPS: &[&str] = &[".hub.maintain("];

/// The text, without spaces, of an `impl` of the trait that receives a hub's effects. A second one
/// would mean that a turn is implemented twice.
const OUTLET: &str = "implOutletfor";

/// The folder in which the order of a turn's steps is defined, once.
const TURN: &str = "crates/worker/src/";

/// Places outside [`TURN`] that may contain calls from [`TURN_STEPS`]: the crates that define them, the hub's engine
/// tests, which `veche-outbound` runs on a real store, and this file.
const TURN_PARTS: &[&str] = &[
    "crates/frontends/src/",
    "crates/hub/",
    "crates/outbound/tests/engine/",
    "crates/server/tests/tidy.rs",
];

/// Types that only the crate `veche-types` may define.
const DEFINED_ONCE: &[&str] = &[
    "AppId",
    "ConnectionId",
    "MessageKind",
    "Now",
    "Payload",
    "PayloadKind",
    "PayloadRef",
    "Position",
    "PublishOptions",
    "SubscribeOptions",
    "WorkerId",
];

/// Former names of types, which types in [`DEFINED_ONCE`] have replaced.
const REPLACED: &[&str] = &["SessionId", "TransportId"];

/// Files that may contain unsafe code: system calls, Lua, PAM, and a test with a counting allocator.
const UNSAFE: &[&str] = &[
    "crates/net/src/sys",
    "crates/net/tests/allocation.rs",
    "crates/pam/src/raw.rs",
    "crates/script/src/raw",
];

/// Files that newcomers expect.
const EXPECTED: &[&str] = &[
    ".ci/run",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Makefile",
    "README.md",
    "bench/README.md",
    "bench/run",
    "crates/frontends/src/connection.rs",
    "docs/guide",
    "docs/reference",
    "examples/push/veche.toml",
    "fuzz/Cargo.toml",
    "rust-toolchain.toml",
    "tests/conformance",
    "tests/public_names.txt",
];

/// The most lines of a source file; a longer file has more than one subject.
const LINES_MAX: usize = 700;

/// Folders of generated or third-party files.
const NOT_OURS: &[&str] = &[
    ".git",
    "artifacts",
    "corpus",
    "corpus.local",
    "node_modules",
    "target",
    "vendor",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository's root")
}

/// Returns the files of the repository by their path from its root.
fn files() -> BTreeMap<String, PathBuf> {
    let root = root();
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let entry = entry.expect("a directory entry");
            let path = entry.path();
            let kind = entry.file_type().expect("a file type");
            if kind.is_dir() {
                if !NOT_OURS.iter().any(|name| entry.file_name() == **name) {
                    folders.push(path);
                }
            } else if kind.is_file() {
                let name = path.strip_prefix(&root).expect("a path below the root");
                found.insert(name.to_string_lossy().into_owned(), path);
            }
        }
    }
    found
}

/// Returns whether a file belongs to a crate of the workspace.
fn is_of_a_crate(name: &str) -> bool {
    ["bench/counts/", "crates/", "sim/"]
        .iter()
        .any(|folder| name.starts_with(folder))
}

/// Returns the Rust sources of the product and its simulator.
fn sources() -> impl Iterator<Item = (String, String)> {
    sources_where(is_of_a_crate)
}

/// Returns the Rust sources whose names are selected.
fn sources_where(is_selected: fn(&str) -> bool) -> impl Iterator<Item = (String, String)> {
    files()
        .into_iter()
        .filter(move |(name, _)| is_selected(name) && name.ends_with(".rs"))
        .map(|(name, path)| (name, fs::read_to_string(path).expect("UTF-8 source")))
}

fn assert_none(problems: &[String], advice: &str) {
    assert!(
        problems.is_empty(),
        "{advice}:\n  {}",
        problems.join("\n  ")
    );
}

#[test]
fn crates_depend_only_where_the_walls_allow() {
    let mut problems = Vec::new();
    for (name, path) in files() {
        if !is_of_a_crate(&name) || !name.ends_with("/Cargo.toml") {
            continue;
        }
        let manifest: toml::Table = fs::read_to_string(path)
            .expect("a readable manifest")
            .parse()
            .expect("a valid manifest");
        let package = manifest["package"]["name"]
            .as_str()
            .expect("a package name");
        let Some((_, allowed)) = EDGES.iter().find(|(from, _)| *from == package) else {
            problems.push(format!("{name}: {package} has no row in EDGES"));
            continue;
        };
        let of_tests = TEST_EDGES.iter().find(|(from, _)| *from == package);
        let of_tests = of_tests.map_or(&[][..], |(_, allowed)| allowed);
        for (kind, more) in [("dependencies", &[][..]), ("dev-dependencies", of_tests)] {
            let dependencies = manifest.get(kind).and_then(toml::Value::as_table);
            for dependency in dependencies.into_iter().flat_map(toml::Table::keys) {
                let dependency = dependency.as_str();
                let is_allowed = allowed.contains(&dependency) || more.contains(&dependency);
                if dependency.starts_with("veche") && !is_allowed {
                    problems.push(format!(
                        "{name}: {package} must not know {dependency} ({kind})"
                    ));
                }
            }
        }
        let inherits = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"));
        // These packages may contain unsafe code, so they define their own lints.
        let has_own = matches!(package, "veche-net" | "veche-pam" | "veche-script");
        if !has_own && inherits.and_then(toml::Value::as_bool) != Some(true) {
            problems.push(format!("{name}: [lints] workspace = true is missing"));
        }
    }
    assert_none(&problems, "crate walls");
}

#[test]
fn the_steps_of_a_turn_are_in_one_crate() {
    let is_elsewhere = |name: &str| {
        let is_part = TURN_PARTS.iter().any(|place| name.starts_with(place));
        !is_part && !name.starts_with(TURN)
    };
    let mut missing: Vec<&str> = TURN_STEPS.to_vec();
    let mut problems = Vec::new();
    for (name, text) in sources_where(|name| is_of_a_crate(name) || name.starts_with("fuzz/")) {
        // White space is removed before the search, since a chain of calls may be split over lines.
        let text: String = text.split_whitespace().collect();
        if text.contains(OUTLET) && is_elsewhere(&name) {
            problems.push(format!("{name}: impl Outlet"));
        }
        let steps = TURN_STEPS.iter().chain(PARTS_OF_STEPS);
        for step in steps.filter(|step| text.contains(**step)) {
            if name.starts_with(TURN) {
                missing.retain(|one| one != step);
            } else if is_elsewhere(&name) {
                problems.push(format!("{name}: {step}"));
            }
        }
    }
    assert_none(&problems, "drive veche_worker::Worker instead");
    assert!(missing.is_empty(), "steps that no turn has: {missing:?}");
}

#[test]
fn ids_and_time_are_defined_once() {
    let mut problems = Vec::new();
    for (name, text) in sources() {
        for kind in ["struct", "enum", "type"] {
            let mut own = DEFINED_ONCE
                .iter()
                .filter(|_| !name.starts_with("crates/types/"));
            let defined = own.find(|word| is_defined(&text, kind, word));
            let old = REPLACED.iter().find(|word| is_defined(&text, kind, word));
            problems.extend(defined.or(old).map(|word| format!("{name}: {word}")));
        }
    }
    assert_none(&problems, "veche-types has it");
}

/// Returns whether a text defines a type of that kind and name.
fn is_defined(text: &str, kind: &str, name: &str) -> bool {
    let words = format!("{kind} {name}");
    text.match_indices(&words).any(|(at, _)| {
        let after = text[at + words.len()..].chars().next();
        !after.is_some_and(|after| after.is_alphanumeric() || after == '_')
    })
}

#[test]
fn unsafe_lives_where_it_must() {
    // The words are split so that this file does not match itself.
    let allowance = concat!("allow(un", "safe_code");
    let expectation = concat!("expect(un", "safe_code");
    let problems: Vec<String> = sources()
        .filter(|(name, text)| {
            !UNSAFE.iter().any(|place| name.starts_with(place))
                && (text.contains(allowance) || text.contains(expectation))
        })
        .map(|(name, _)| name)
        .collect();
    assert_none(&problems, "only these may allow it: UNSAFE");
}

#[test]
fn every_module_has_a_description() {
    let problems: Vec<String> = sources()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(name, _)| name)
        .collect();
    assert_none(
        &problems,
        "the file has to begin with a //! comment that describes it, its limits, and where the bytes go next",
    );
}

#[test]
fn a_file_is_one_noun() {
    let problems: Vec<String> = sources()
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|&(_, lines)| lines > LINES_MAX)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    assert_none(&problems, "split it");
}

/// Returns whether a text contains a word that is not the end of a longer name or path.
fn names(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(char::is_alphanumeric)
    })
}

#[test]
fn nothing_points_out_of_the_repository() {
    let outside = [
        concat!("/wo", "rk/"),
        concat!("../sha", "red"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
    ];
    let texts = [
        ".md", ".rs", ".py", ".sh", ".toml", ".js", ".mjs", ".html", ".css", ".yml", "Makefile",
        "/run",
    ];
    let problems: Vec<String> = files()
        .into_iter()
        .filter(|(name, _)| texts.iter().any(|end| name.ends_with(end)))
        .filter_map(|(name, path)| {
            let text = fs::read_to_string(path).ok()?;
            let found = outside.iter().find(|word| names(&text, word))?;
            Some(format!("{name}: {found}"))
        })
        .collect();
    assert_none(&problems, "paths of one machine");
}

#[test]
fn what_a_newcomer_looks_for_is_there() {
    let root = root();
    let problems: Vec<String> = EXPECTED
        .iter()
        .filter(|name| !root.join(name).exists())
        .map(|&name| name.to_owned())
        .collect();
    assert_none(&problems, "missing");
}
