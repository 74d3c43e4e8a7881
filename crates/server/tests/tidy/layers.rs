//! Layers of the front ends, and cycles of imports in every crate.

use std::collections::{BTreeMap, BTreeSet};

use super::assert_none;
use super::imports::{Modules, Path, crates};

/// The crate whose folders are layers.
const SOURCES: &str = "crates/frontends/src/";

/// Its folders: each imports from itself and from those before it alone. Files outside of them may import all.
const LAYERS: &[&str] = &[
    "context",
    "outbox",
    "http",
    "websocket",
    "sessions",
    "backend",
];

/// Imports against that order which are left. No row may be added; one that is not needed any more has to go.
const UPWARD: &[(&str, &str)] = &[
    // The context owns the outboxes of its worker.
    ("context/shared.rs", "outbox"),
    // A request becomes a session, and a call of the API begins with one: the stage should be generic over both.
    ("http/app.rs", "websocket"),
    ("http/body.rs", "backend"),
    ("http/body.rs", "websocket"),
    ("http/call.rs", "backend"),
    ("http/call.rs", "websocket"),
    ("http/mod.rs", "backend"),
    ("http/mod.rs", "websocket"),
    ("http/named.rs", "websocket"),
    ("http/parts.rs", "websocket"),
    ("http/request.rs", "backend"),
    ("http/request.rs", "sessions"),
    ("http/request.rs", "websocket"),
    ("http/streams.rs", "sessions"),
    ("http/streams.rs", "websocket"),
    ("http/upgrade.rs", "backend"),
    ("http/upgrade.rs", "sessions"),
    ("http/upgrade.rs", "websocket"),
    // The socket matches sessions of each kind: it should be generic over them.
    ("websocket/app.rs", "sessions"),
    ("websocket/centrifuge.rs", "sessions"),
    ("websocket/mod.rs", "backend"),
    ("websocket/mod.rs", "sessions"),
];

/// Files of one cycle at most; those that hold `impl` blocks of one type count as one.
const CYCLE_MAX: usize = 3;

fn layer(place: &Path) -> Option<usize> {
    let folder = place.first()?;
    LAYERS.iter().position(|layer| layer == folder)
}

#[test]
fn front_ends_import_from_the_layers_below() {
    let modules = Modules::read(SOURCES);
    let mut unneeded: BTreeSet<_> = UPWARD.iter().collect();
    let mut problems = Vec::new();
    for (from, imports) in modules.imports() {
        let Some(own) = layer(from) else { continue };
        for to in imports {
            let (file, target) = (&modules.0[from].file, &modules.0[to].file);
            // One client protocol does not know another one.
            let is_sibling =
                own == 4 && layer(to) == Some(4) && from.len() > 1 && from.get(1) != to.get(1);
            if layer(to).is_some_and(|layer| layer <= own) && !is_sibling {
                continue;
            }
            let row = UPWARD
                .iter()
                .find(|(row, folder)| row == file && *folder == to[0]);
            match row {
                Some(row) => {
                    unneeded.remove(row);
                }
                None => problems.push(format!("{file} -> {target}")),
            }
        }
    }
    assert_none(
        &problems,
        "imports from a layer above, or from another protocol",
    );
    assert!(
        unneeded.is_empty(),
        "rows of UPWARD to be removed: {unneeded:?}"
    );
}

/// The cycles of a crate that are too long.
fn cycles(folder: &str) -> BTreeSet<String> {
    let modules = Modules::read(folder);
    let imports = modules.imports();
    let reached = |from: &Path| {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&Path> = imports[from].iter().copied().collect();
        while let Some(next) = open.pop() {
            if reached.insert(next) {
                open.extend(&imports[next]);
            }
        }
        reached
    };
    let reached: BTreeMap<&Path, _> = modules
        .0
        .keys()
        .map(|place| (place, reached(place)))
        .collect();
    let mut problems = BTreeSet::new();
    for place in modules.0.keys() {
        let back = |other: &&&Path| reached[*other].contains(place);
        let cycle: Vec<&Path> = reached[place].iter().filter(back).copied().collect();
        let types: BTreeSet<&Path> = cycle.iter().map(|file| modules.owner(file)).collect();
        if types.len() > CYCLE_MAX {
            let files: Vec<&str> = cycle.iter().map(|file| &*modules.0[*file].file).collect();
            problems.insert(format!("{folder}: {}", files.join(" ")));
        }
    }
    problems
}

#[test]
fn no_cycle_of_imports_is_over_three_files() {
    let problems: Vec<String> = crates().iter().flat_map(|one| cycles(one)).collect();
    assert_none(&problems, "cycles of imports");
}
