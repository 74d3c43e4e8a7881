//! Checks names of types: no two crates may define types that are visible outside of a module and
//! have the same name.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Modules, crates, tokens};
use super::{assert_none, sources};

/// The reason why a type of the configuration and a type of the running server share a name.
const AS_CONFIGURED: &str =
    "the configured and the running form of one thing; the server converts one into the other";

/// The reason why a type of the protocol and a type of the server share a name.
const AS_SENT: &str = "the same thing in Centrifugo's protocol and in the server";

/// The allowed reason for types with the same name in several application runtimes.
const OF_RUNTIMES: &str = "each runtime of applications has its own form of the same thing";

/// The allowed reason for general type names such as `Error` in several crates.
const OF_MODULES: &str =
    "a general name; code that uses two of these types writes the crate or module before each";

/// Names that several crates define, with the reasons.
const SHARED: &[(&str, &str)] = &[
    ("CertificateField", AS_CONFIGURED),
    ("ClientInfo", AS_SENT),
    ("Error", OF_MODULES),
    ("Event", OF_MODULES),
    ("KnownConnection", OF_RUNTIMES),
    ("KnownConnections", OF_RUNTIMES),
    ("ListenerRole", AS_CONFIGURED),
    (
        "Mutex",
        "a lock that a model checker can replace; the two crates that define it have no common dependency",
    ),
    ("Options", OF_MODULES),
    ("Program", OF_RUNTIMES),
    ("Publication", AS_SENT),
    ("RouteHandler", AS_CONFIGURED),
];

/// Maximum number of tokens in a visibility modifier such as `pub(in super::super)`.
const VISIBILITY_TOKENS_MAX: usize = 7;

/// Returns the names of the types that are not private, from the tokens of a source.
fn visible_types(tokens: &[String]) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        if !matches!(pair[0].as_str(), "struct" | "enum" | "trait" | "type") {
            continue;
        }
        let before = &tokens[at.saturating_sub(VISIBILITY_TOKENS_MAX)..at];
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let public_at = before.iter().rposition(|token| *token == "pub");
        let is_visible = public_at.is_some_and(|start| {
            let scope = &before[start + 1..];
            matches!(scope, [] | ["(", .., ")"])
        });
        // A parameter of a macro, such as `$name`, is not a name of a type.
        if is_visible && pair[1].starts_with(char::is_uppercase) {
            names.push(pair[1].as_str());
        }
    }
    names
}

/// Returns the names of the visible types of all crates, each with the source folders of the crates that define it.
fn folders_by_type() -> BTreeMap<String, BTreeSet<String>> {
    let texts: BTreeMap<String, String> = sources().collect();
    let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in crates() {
        // `Modules::read` leaves out modules that only tests use.
        for module in Modules::read(&folder).0.values() {
            let tokens = tokens(&texts[&format!("{folder}{}", module.file)]);
            for name in visible_types(&tokens) {
                let of_name = folders.entry(name.to_owned()).or_default();
                of_name.insert(folder.clone());
            }
        }
    }
    folders
}

#[test]
fn a_type_name_has_one_meaning() {
    let mut unneeded: BTreeSet<&str> = SHARED.iter().map(|(name, _)| *name).collect();
    let mut problems = Vec::new();
    for (name, folders) in folders_by_type() {
        if folders.len() > 1 && !unneeded.remove(name.as_str()) {
            problems.push(format!("{name}: {}", Vec::from_iter(folders).join(", ")));
        }
    }
    assert_none(
        &problems,
        "several crates define the type: name it by what it is, or give the reason in SHARED",
    );
    assert!(unneeded.is_empty(), "rows to be removed: {unneeded:?}");
}

#[test]
fn types_are_found_by_their_visibility() {
    let text = "pub struct A(pub u8); enum B {} pub(crate) enum C<T> { X(T) } pub(super) trait D {} type E = u8; \
        #[cfg(test)] pub struct F; impl D for A { type G = u8; } pub(in super::super) type H = A; pub struct $name;";
    assert_eq!(visible_types(&tokens(text)), ["A", "C", "D", "H"]);
}
