//! Codes are defined in one table: their numbers don't occur elsewhere in the sources.

use super::imports::tokens;
use super::{assert_none, sources};

/// The file that defines the codes.
const TABLE: &str = "crates/types/src/codes.rs";

/// The generated reference page of the codes.
const PAGE: &str = "docs/reference/codes.md";

/// Ranges of numbers that are codes wherever the product's sources contain them.
const NUMBERS: &[std::ops::RangeInclusive<u32>] = &[
    101..=113,
    1001..=1015,
    2500..=2502,
    3000..=3014,
    3500..=3509,
    4999..=4999,
];

/// Exceptions: a file, a number that is not a code there, and the number's meaning.
const OTHERWISE: &[(&str, u32, &str)] = &[
    ("crates/proto/src/http/status.rs", 101, "HTTP's statuses"),
    (
        "crates/proto/src/websocket/handshake/client.rs",
        101,
        "HTTP's status of a handshake",
    ),
    (
        "crates/load/src/client/response.rs",
        101,
        "HTTP's status of a handshake",
    ),
    (
        "crates/testing/src/response.rs",
        101,
        "HTTP's status of a handshake",
    ),
    (
        "crates/proto/src/proxy/v1.rs",
        107,
        "bytes of a PROXY header",
    ),
    ("crates/config/src/types.rs", 107, "bytes of a path"),
    ("crates/load/src/client/mod.rs", 104, "bytes of a client"),
    ("crates/load/src/report/fixture.rs", 101, "connections"),
    (
        "crates/runtime/src/wire/from_worker.rs",
        1000,
        "connections that a search finds",
    ),
    ("crates/store/src/shard.rs", 112, "bytes of an entry"),
];

/// Returns whether the tokens before a number define a constant as a protocol code.
fn is_code_constant(before: &[String]) -> bool {
    let text = before.concat();
    ["u16=", "u32=", "(u16,&str)=(", "(u32,&str)=("]
        .iter()
        .any(|end| text.ends_with(end))
}

#[test]
fn codes_are_defined_in_one_table() {
    let mut problems = Vec::new();
    let mut unneeded: Vec<_> = OTHERWISE.iter().collect();
    for (name, text) in sources() {
        let is_of_product = name.starts_with("crates/") && name.contains("/src/");
        if !is_of_product || name == TABLE || name.contains("/tests") || name.ends_with("_tests.rs")
        {
            continue;
        }
        let tokens = tokens(&text);
        for (at, token) in tokens.iter().enumerate() {
            let digits = token.trim_end_matches("u16").trim_end_matches("u32");
            let Ok(number) = digits.parse::<u32>() else {
                continue;
            };
            let is_constant = matches!(number, 100 | 1000 | 2000)
                && is_code_constant(&tokens[at.saturating_sub(12)..at]);
            if !is_constant && !NUMBERS.iter().any(|range| range.contains(&number)) {
                continue;
            }
            let row = OTHERWISE
                .iter()
                .find(|(file, other, _)| *file == name && *other == number);
            match row {
                Some(row) => unneeded.retain(|one| *one != row),
                None => problems.push(format!("{name}: {number}")),
            }
        }
    }
    assert_none(&problems, "codes are in crates/types/src/codes.rs");
    assert!(unneeded.is_empty(), "rows to be removed: {unneeded:?}");
}

#[test]
fn guides_that_name_codes_link_the_page() {
    let is_code = |word: &str| {
        let number = word.parse::<u32>();
        number.is_ok_and(|number| NUMBERS.iter().any(|range| range.contains(&number)))
    };
    let mut problems = Vec::new();
    for (name, path) in super::files() {
        if !name.starts_with("docs/guide/") || !name.ends_with(".md") {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a guide");
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
        if words.any(is_code) && !text.contains("reference/codes.md") {
            problems.push(name);
        }
    }
    assert!(super::root().join(PAGE).exists());
    assert_none(&problems, "link ../reference/codes.md");
}
