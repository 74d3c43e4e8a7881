//! Excerpts of problems: the line of the file, a caret below the problem, and an example.
//!
//! Secrets are removed from the line, as are user information and query of URLs. The directive is
//! derived from the text: the message or the line begins with its name, and its section is the last
//! header above the line.

use veche_terminal::{Excerpt, Problem, SourceLocation, masked_urls};
use veche_types::nearest;

use super::directives::{Directive, Section};
use super::value::DirectiveKind;

/// Maximum number of problems that get an excerpt; if the file is not a configuration at all, the
/// first ones suffice.
const EXPLAINED_MAX: usize = 20;
/// Maximum length of an excerpt in characters.
const LINE_CHARS_MAX: usize = 100;
/// Maximum number of characters before the problem, in the excerpt of a line longer than [`LINE_CHARS_MAX`].
const BEFORE_CHARS_MAX: usize = 60;

/// Adds excerpts to the problems of a configuration text.
pub(super) fn explain(problems: &mut [Problem], text: &str) {
    for problem in problems.iter_mut().take(EXPLAINED_MAX) {
        if let Some(place) = problem.place {
            problem.excerpt = excerpt_at(place, &problem.message, text);
        }
    }
}

/// Returns the excerpt at a location; `None` if the text has no such line.
fn excerpt_at(place: SourceLocation, message: &str, text: &str) -> Option<Excerpt> {
    let lines: Vec<&str> = text.lines().take(place.line as usize).collect();
    let line = *lines.last()?;
    let (section, name) = assignment_at(&lines);
    let directive = section.and_then(|section| directive_of(section, name, message));
    let column = place.column as usize - 1;
    let (line, column) = match is_secret(name, directive) {
        true => masked(line, column),
        false => (masked_urls(line), column),
    };
    let line: Vec<char> = line.chars().map(blank_for_control).collect();
    let column = column.min(line.len());
    let start = match line.len() > LINE_CHARS_MAX && column > BEFORE_CHARS_MAX {
        true => column - BEFORE_CHARS_MAX,
        false => 0,
    };
    let piece = &line[start..line.len().min(start + LINE_CHARS_MAX)];
    let carets = token_length(&piece[column - start..]);
    let cut = if start > 0 { "…" } else { "" };
    Some(Excerpt {
        line: format!("{cut}{}", piece.iter().collect::<String>().trim_end()),
        indent: column - start + cut.chars().count(),
        carets,
        example: directive.and_then(Directive::example),
    })
}

/// Returns the section of the last of `lines`, and the name of the directive that this line belongs to; the name is
/// empty if there is none.
fn assignment_at<'t>(lines: &[&'t str]) -> (Option<Section>, &'t str) {
    let (mut section, mut name) = (None, "");
    for (index, line) in lines.iter().map(|line| line.trim()).enumerate() {
        if let Some(header) = header_of(line) {
            section = Section::meant_by(header);
            name = "";
        } else if let Some((before, _)) = line.split_once('=')
            && is_name(before.trim_end())
        {
            name = before.trim_end();
        } else if index + 1 == lines.len() {
            // A line without "=" is either a mistake itself or continues the value of an earlier line.
            let word = line.split([' ', ':']).next().unwrap_or_default();
            if is_name(word) {
                name = word;
            }
        }
    }
    (section, name)
}

/// Returns `name` of `[name]` and `[[name]]`.
fn header_of(line: &str) -> Option<&str> {
    let line = line.strip_prefix('[')?;
    let line = line.strip_prefix('[').unwrap_or(line);
    let name = &line[..line.find(']')?];
    is_name(name).then_some(name)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn directive_of(section: Section, name: &str, message: &str) -> Option<&'static Directive> {
    let named = |name: &str| section.directives().find(|one| one.name == name);
    let quoted = message
        .split_once(": ")
        .and_then(|(before, _)| named(before));
    let meant = || nearest(name, section.directives().map(|one| one.name)).and_then(named);
    quoted.or_else(|| named(name)).or_else(meant)
}

fn is_secret(name: &str, directive: Option<&Directive>) -> bool {
    if directive
        .is_some_and(|one| matches!(one.kind, DirectiveKind::Secrets | DirectiveKind::Table))
    {
        return true;
    }
    let is_place = name.ends_with("_file") || name.ends_with("_env");
    let words = ["secret", "key", "password", "token"];
    !is_place && words.iter().any(|word| name.contains(word))
}

/// Returns a line with its value replaced by `…`, and `column` limited to the end of the returned text.
fn masked(line: &str, column: usize) -> (String, usize) {
    let shown = match line.split_once('=') {
        Some((before, _)) if is_name(before.trim()) => format!("{before}= …"),
        _ => "…".to_owned(),
    };
    let last = shown.chars().count() - 1;
    (shown, column.min(last))
}

fn blank_for_control(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

/// Returns the length of the token at the start of `rest` in characters: a quoted text, a word, or a single character.
fn token_length(rest: &[char]) -> usize {
    let until = |ends: &dyn Fn(char) -> bool| rest.iter().position(|c| ends(*c));
    match rest.first() {
        Some(quote @ ('"' | '\'')) => {
            let closing = rest[1..].iter().position(|c| c == quote);
            closing.map_or(1, |closing| closing + 2)
        }
        Some('[' | '{') | None => 1,
        Some(_) => until(&|c| c.is_whitespace() || ",=]}#".contains(c))
            .unwrap_or(rest.len())
            .max(1),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use veche_terminal::{Colour, Colours};

    use super::*;

    fn explained(text: &str) -> Vec<String> {
        let report = super::super::parse(Path::new("veche.toml"), text).expect_err("it is bad");
        let colours = Colours::default();
        let lines = report
            .problems
            .iter()
            .map(|one| one.explained(Colour::Red, colours));
        lines.collect()
    }

    #[test]
    fn the_caret_marks_the_invalid_value() {
        let all = explained("[limits]\nvecheé = 1\n  drain_time = 10 # s\n");
        let expected = "  3 |   drain_time = 10 # s\n    |                ^^\n    = example: drain_time = \"10s\"";
        let shown: Vec<bool> = all.iter().map(|one| one.ends_with(expected)).collect();
        assert!(shown.contains(&true), "{all:#?}");
    }

    #[test]
    fn secrets_stay_out_of_sight() {
        for text in [
            "[api]\nkeys = [\"hush-hush\", 7]\n",
            "[api]\nkeys = [\n  \"hush-hush\", 7,\n  8\n]\n",
            "[api]\nkeys = [\"hush-hush\n",
            "[jwt]\nsecret = \"hush-hush\"\n",
            "[hooks]\nconnect = \"http://me:hush-hush@h/?hush-hush\"\nfoo = 1\n",
            "[hooks]\nconnect = \"ftp://me:hush-hush@h/?hush-hush\"\n",
        ] {
            let all = explained(text).join("\n");
            assert!(all.contains('^'), "{all}");
            assert!(!all.contains("hush"), "{all}");
        }
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let pad = "x".repeat(400);
        let all = explained(&format!("[server]\nlog = \"{pad}\" ü \"{pad}\"\n"));
        assert!(
            all.iter()
                .flat_map(|one| one.lines())
                .filter(|line| line.contains('|'))
                .all(|line| line.chars().count() <= LINE_CHARS_MAX + 8),
            "{all:#?}"
        );
    }

    #[test]
    fn examples_are_good() {
        for directive in super::super::directives::all() {
            let example = directive.example().expect(directive.name);
            let (name, value) = example.split_once(" = ").expect("an assignment");
            assert_eq!(name, directive.name);
            let parsed = toml::de::DeValue::parse(value).expect(&example);
            let read = directive.kind.read(parsed.get_ref());
            assert!(read.is_ok(), "{example}: {read:?}");
        }
    }
}
