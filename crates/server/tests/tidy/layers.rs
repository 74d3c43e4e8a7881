//! Checks the layers of the front ends, and import cycles in every crate.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Modules, Path, crates, tokens};
use super::{assert_none, sources};

/// The crate whose folders are layers.
const SOURCES: &str = "crates/frontends/src/";

/// The folders of [`SOURCES`] as layers: each folder may import from itself and from earlier ones. Files outside
/// of these folders may import from all.
const LAYERS: &[&str] = &[
    "outbox",
    "context",
    "http",
    "websocket",
    "sessions",
    "backend",
];

/// The file above all layers that lists the client protocols.
const REGISTRY: &str = "registry.rs";

/// Folders of `sessions` whose names have other meanings too: applications, and a role of listeners.
const COMMON_WORDS: &[&str] = &["app", "push"];

/// Remaining references to client protocols outside of their folders. No row may be added.
const NAMED: &[(&str, &str)] = &[
    // Hook requests are JSON that the crate `veche_centrifuge` encodes and decodes.
    ("context/hooks.rs", "veche_centrifuge"),
    // The crate `veche_centrifuge` determines whether data without a declared kind are JSON or bytes.
    ("backend/command.rs", "veche_centrifuge"),
];

/// The maximum number of files in one cycle; files with `impl` blocks of one type count as one
/// file.
const CYCLE_MAX: usize = 3;

fn layer(place: &Path) -> Option<usize> {
    let folder = place.first()?;
    LAYERS.iter().position(|layer| layer == folder)
}

#[test]
fn front_ends_import_from_the_layers_below() {
    let modules = Modules::read(SOURCES);
    let mut problems = Vec::new();
    for (from, imports) in modules.imports() {
        let Some(own) = layer(from) else { continue };
        for to in imports {
            let (file, target) = (&modules.0[from].file, &modules.0[to].file);
            // A client protocol must not import from another one.
            let is_sibling =
                own == 4 && layer(to) == Some(4) && from.len() > 1 && from.get(1) != to.get(1);
            if layer(to).is_some_and(|layer| layer <= own) && !is_sibling {
                continue;
            }
            problems.push(format!("{file} -> {target}"));
        }
    }
    assert_none(
        &problems,
        "imports from a layer above, or from another protocol",
    );
}

/// Converts `two_words` to `TwoWords`.
fn type_name(folder: &str) -> String {
    let words = folder.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect()
}

/// Returns the client protocols named in a source: modules, types and crates named after a folder of `sessions`.
fn named_protocols<'t>(tokens: &'t [String], folders: &BTreeSet<String>) -> BTreeSet<&'t str> {
    let at = |place: usize| tokens.get(place).map_or("", String::as_str);
    let is_path = |place: usize| {
        let before = place.checked_sub(1).map_or("", at);
        at(place + 1) == "::" || before == "::" || before == "mod"
    };
    let is_named = |place: usize, folder: &String| {
        at(place) == type_name(folder)
            || at(place) == format!("veche_{folder}")
            || at(place) == folder && is_path(place)
    };
    (0..tokens.len())
        .filter(|place| folders.iter().any(|folder| is_named(*place, folder)))
        .map(at)
        .collect()
}

#[test]
fn layers_below_the_sessions_name_no_client_protocol() {
    let mut folders = BTreeSet::new();
    let mut files = Vec::new();
    let mut registry = Vec::new();
    for (name, text) in sources() {
        let Some(file) = name.strip_prefix(SOURCES) else {
            continue;
        };
        let folder = file.strip_prefix("sessions/");
        folders.extend(folder.and_then(|rest| Some(rest.split_once('/')?.0.to_owned())));
        if file == REGISTRY {
            registry = tokens(&text);
        }
        let place = LAYERS
            .iter()
            .position(|layer| file.starts_with(&format!("{layer}/")));
        if place.is_some_and(|place| LAYERS[place] != "sessions") && !file.ends_with("tests.rs") {
            files.push((file.to_owned(), tokens(&text)));
        }
    }
    let unregistered = |folder: &&String| !registry.contains(*folder);
    let unregistered: Vec<&String> = folders.iter().filter(unregistered).collect();
    assert!(
        unregistered.is_empty(),
        "not in {REGISTRY}: {unregistered:?}"
    );
    folders.retain(|folder| !COMMON_WORDS.contains(&&**folder));
    let found = files.iter().flat_map(|(file, tokens)| {
        let named = named_protocols(tokens, &folders);
        named.into_iter().map(move |name| (&**file, name))
    });
    let found: BTreeSet<(&str, &str)> = found.collect();
    let problems = found.iter().filter(|one| !NAMED.contains(one));
    let problems: Vec<String> = problems
        .map(|(file, name)| format!("{file}: {name}"))
        .collect();
    assert_none(&problems, "client protocols named below the sessions");
    let unneeded: Vec<_> = NAMED.iter().filter(|one| !found.contains(one)).collect();
    assert!(
        unneeded.is_empty(),
        "rows of NAMED to be removed: {unneeded:?}"
    );
}

#[test]
fn names_of_client_protocols_are_found_as_modules_types_and_crates() {
    let folders = BTreeSet::from(["socket_io".to_owned()]);
    for (text, is_found) in [
        ("use crate::sessions::socket_io::X;", true),
        ("mod socket_io;", true),
        ("match s { S::SocketIo(_) => 1 }", true),
        ("use veche_socket_io::Data;", true),
        ("let socket_io = 1; // SocketIo", false),
        ("call(\"socket_io::X\")", false),
    ] {
        let is_named = !named_protocols(&tokens(text), &folders).is_empty();
        assert_eq!(is_named, is_found, "{text}");
    }
}

/// Returns the cycles of a crate that are too long, with their lengths.
fn cycles(folder: &str) -> BTreeSet<(usize, String)> {
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
        // Files with `impl` blocks of one type count as the file that defines the type.
        let types = cycle.iter().copied().map(|file| {
            let mut owners = modules.owners(file);
            owners.find(|owner| cycle.contains(owner)).unwrap_or(file)
        });
        let types: BTreeSet<&Path> = types.collect();
        if types.len() > CYCLE_MAX {
            let files: Vec<&str> = cycle.iter().map(|file| &*modules.0[*file].file).collect();
            problems.insert((types.len(), format!("{folder}: {}", files.join(" "))));
        }
    }
    problems
}

#[test]
fn no_cycle_of_imports_is_over_three_files() {
    let problems = crates().into_iter().flat_map(|folder| cycles(&folder));
    let problems = problems.map(|(length, files)| format!("{length} files: {files}"));
    assert_none(&problems.collect::<Vec<_>>(), "cycles of imports");
}
