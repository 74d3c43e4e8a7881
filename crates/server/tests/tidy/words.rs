//! Tests names and prose: finds retired identifiers, short doc comments, and phrases that plain technical English
//! avoids.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::imports::tokens;
use super::{assert_none, files, sources};

/// Identifiers that were replaced, with their successors. None occurs in the product's code.
const RETIRED: &str = include_str!("retired.txt");

/// Maximum number of doc comments of at most three words in the workspace. This number may only become lower.
const SHORT_MAX: usize = 50;

/// A doc comment of at most this many words says no more than the name below it.
const SHORT_WORDS: usize = 3;

/// Phrases that are used in place of a technical noun or a plain verb.
const PHRASES: &[&str] = &[
    "anew",
    "anybody",
    "are told",
    "be told",
    "came back",
    "came of",
    "come back",
    "comes back",
    "everybody",
    "for whom",
    "given up",
    "gives up",
    "goes away",
    "has come of",
    "in vain",
    "is said",
    "is told",
    "nobody",
    "of whom",
    "says so",
    "so many",
    "somebody",
    "tells of",
    "was said",
    "was told",
    "what became",
    "what has become",
    "what has come",
    "what is kept",
    "what is known",
    "what is said",
    "what is wanted",
    "who asks",
    "who is",
    "who wants",
    "whoever",
];

/// Maximum number of occurrences of [`PHRASES`] per 1,000 lines.
const PHRASES_MAX: usize = 4;

/// Rows of [`RETIRED`]: a retired identifier and its successor.
fn retired() -> impl Iterator<Item = (&'static str, &'static str)> {
    RETIRED
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            line.split_once(' ')
                .expect("an identifier and its successor")
        })
}

#[test]
fn retired_identifiers_are_gone() {
    let retired: BTreeMap<&str, &str> = retired().collect();
    let mut problems = BTreeSet::new();
    for (name, text) in
        sources().filter(|(name, _)| name.starts_with("crates/") && name.contains("/src/"))
    {
        for token in tokens(&text) {
            if let Some(successor) = retired.get(token.as_str()) {
                problems.insert(format!("{name}: {token}, now {successor}"));
            }
        }
    }
    assert_none(&Vec::from_iter(problems), "retired identifiers");
}

/// Returns a line of Rust without its indentation if the line contains only a comment.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.starts_with("//").then_some(line)
}

#[test]
fn doc_comments_say_more_than_names() {
    let mut short = Vec::new();
    for (name, text) in sources() {
        let mut words = None;
        for (number, line) in text.lines().enumerate() {
            match line.trim_start().strip_prefix("///") {
                Some(more) => *words.get_or_insert(0) += more.split_whitespace().count(),
                None => {
                    if words.take().is_some_and(|words| words <= SHORT_WORDS) {
                        short.push(format!("{name}:{number}"));
                    }
                }
            }
        }
    }
    assert!(
        short.len() <= SHORT_MAX,
        "{} doc comments of {SHORT_WORDS} words or fewer:\n  {}",
        short.len(),
        short.join("\n  ")
    );
}

/// Returns the number of lines, and the places of [`PHRASES`] in them, including phrases that continue on the next
/// line.
fn phrases<'t>(place: &str, lines: impl Iterator<Item = (usize, &'t str)>) -> (usize, Vec<String>) {
    let (mut count, mut found) = (0, Vec::new());
    let mut previous: (usize, Vec<String>) = (0, Vec::new());
    for (number, line) in lines {
        count += 1;
        let line = line.to_lowercase();
        let words = line.split(|c: char| !c.is_alphanumeric());
        let words = words.filter(|word| !word.is_empty()).map(str::to_owned);
        let words = Vec::from_iter(words);
        let is_continued = previous.0 + 1 == number;
        let before = if is_continued { &*previous.1 } else { &[] };
        // From the previous line, fewer words are taken than the phrase has, so that a phrase
        // within that line is not found again.
        for phrase in PHRASES {
            let length = phrase.split(' ').count();
            let start = before.len().saturating_sub(length - 1);
            let text = [&before[start..], &words[..]].concat().join(" ");
            if format!(" {text} ").contains(&format!(" {phrase} ")) {
                found.push(format!("{place}:{}: {phrase}", number + 1));
            }
        }
        previous = (number, words);
    }
    (count, found)
}

#[test]
fn phrases_are_found_across_lines() {
    let found = |text: &str| phrases("a", text.lines().enumerate()).1.len();
    assert_eq!(found("It is\ntold."), 1);
    assert_eq!(found("It is told."), 1);
    assert_eq!(found("It is told\nlater."), 1);
    assert_eq!(found("It is\n\ntold."), 0);
}

fn assert_few(kind: &str, counted: impl Iterator<Item = (usize, Vec<String>)>) {
    let (mut lines, mut found) = (0, Vec::new());
    for (count, more) in counted {
        lines += count;
        found.extend(more);
    }
    assert!(
        found.len() * 1000 <= PHRASES_MAX * lines,
        "{} phrases in {lines} lines of {kind}:\n  {}",
        found.len(),
        found.join("\n  ")
    );
}

#[test]
fn comments_are_plain_english() {
    let read = sources().filter(|(name, _)| name.starts_with("crates/"));
    // This file is excluded, since it contains the phrases as strings.
    let read = read.filter(|(name, _)| !name.ends_with("tidy/words.rs"));
    assert_few(
        "comments",
        read.map(|(name, text)| {
            let lines = text.lines().enumerate();
            phrases(
                &name,
                lines.filter_map(|(number, line)| Some((number, comment(line)?))),
            )
        }),
    );
}

/// Returns a line of a script or TOML file without its indentation if the line contains only a comment.
fn script_comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let marks = ["//", "/*", "*", "#", "--"];
    marks
        .iter()
        .any(|mark| line.starts_with(mark))
        .then_some(line)
}

#[test]
fn comments_of_scripts_are_plain_english() {
    let extensions = ["go", "js", "lua", "php", "py", "sh", "toml"];
    let read = files().into_iter().filter(|(_, path)| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    });
    assert_few(
        "comments in scripts",
        read.map(|(name, path)| {
            let text = fs::read_to_string(path).expect("UTF-8 text");
            let lines = text.lines().enumerate();
            phrases(
                &name,
                lines.filter_map(|(number, line)| Some((number, script_comment(line)?))),
            )
        }),
    );
}

#[test]
fn guides_are_plain_english() {
    let read = files().into_iter().filter(|(name, _)| {
        (name.starts_with("docs/") && name.ends_with(".md")) || name == "README.md"
    });
    assert_few(
        "documentation",
        read.map(|(name, path)| {
            let text = fs::read_to_string(path).expect("UTF-8 text");
            phrases(&name, text.lines().enumerate())
        }),
    );
}
