//! Generates docs/reference/lua-api.md from the type files of scripts (`crates/script/types`), which `veche new` copies
//! for editors.
//!
//! `VECHE_BLESS=1 cargo test --workspace --lib reference` writes the page.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Files at the beginning of the page; the others follow in alphabetical order.
const FIRST: [&str; 4] = ["app", "veche", "conn", "req"];

/// A name with its type and description: a field, a parameter or a result.
#[derive(Debug, PartialEq)]
struct Entry {
    /// The name; empty for a result without a name.
    name: String,
    kind: String,
    text: String,
}

impl Entry {
    /// Parses the rest of a `@field` or `@param` line.
    fn named(text: &str) -> Self {
        let (name, rest) = match text
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("] "))
        {
            Some((key, rest)) => (format!("[{key}]"), rest),
            None => {
                let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
                (name.to_owned(), rest)
            }
        };
        let (kind, text) = split_type(rest);
        Self {
            name,
            kind: kind.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Parses the rest of a `@return` line: a type, an optional name and an optional description.
    fn result(text: &str) -> Self {
        let (kind, rest) = split_type(text);
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            text: text.to_owned(),
        }
    }

    fn write(&self, page: &mut String, prefix: &str) {
        let _ = write!(page, "- {prefix}");
        if !self.name.is_empty() {
            let _ = write!(page, "`{}` ", self.name);
        }
        let _ = write!(page, "(`{}`)", self.kind);
        if !self.text.is_empty() {
            let _ = write!(page, ": {}", self.text.replace('\n', "\n  "));
        }
        page.push('\n');
    }

    fn continue_with(&mut self, line: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
    }

    /// Returns whether the description ends in the middle of a sentence, so that the next line belongs to it.
    fn is_unfinished(&self) -> bool {
        !self.text.is_empty() && !self.text.ends_with(['.', ':', ';', '!', '?'])
    }
}

/// Splits a type from the text after it. Types contain blanks only within brackets and quotes, after `:` and `,`, and around
/// `|`.
fn split_type(text: &str) -> (&str, &str) {
    let mut depth = 0_usize;
    let mut quoted = false;
    let mut previous = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ' ' => {
                let goes_on = text[at..].trim_start().starts_with('|');
                if depth == 0 && !goes_on && !matches!(previous, ':' | ',' | '|') {
                    return (&text[..at], text[at..].trim_start());
                }
            }
            _ => {}
        }
        if letter != ' ' {
            previous = letter;
        }
    }
    (text, "")
}

/// The declarations of one comment in a type file.
#[derive(Debug, Default)]
struct Block {
    /// The class that the comment declares, or the alias with its definition.
    title: String,
    text: String,
    entries: Vec<Entry>,
    results: Vec<Entry>,
    /// Lines after an entry, not yet assigned: they describe that entry or the next one.
    pending: Vec<String>,
}

impl Block {
    fn read(&mut self, line: &str) {
        let Some(tag) = line.strip_prefix('@') else {
            return self.read_text(line);
        };
        let (tag, rest) = tag.split_once(' ').unwrap_or((tag, ""));
        match tag {
            "class" | "alias" => self.title = self.title_of(tag, rest),
            "field" | "param" => {
                let mut entry = Entry::named(rest);
                let is_field = tag == "field";
                let describes_next = self.entries.is_empty()
                    || (entry.text.is_empty()
                        && !self.entries.last().is_some_and(Entry::is_unfinished));
                if is_field && describes_next && !self.pending.is_empty() {
                    let own = std::mem::take(&mut entry.text);
                    entry.text = self.pending.drain(..).collect::<Vec<_>>().join("\n");
                    if !own.is_empty() {
                        entry.continue_with(&own);
                    }
                }
                self.settle();
                self.entries.push(entry);
            }
            "return" => {
                self.settle();
                self.results.push(Entry::result(rest));
            }
            // These tags matter only for type checks in editors.
            "generic" | "operator" | "meta" => {}
            other => panic!("the types have a tag that the reference does not support: {other}"),
        }
    }

    fn title_of(&self, tag: &str, rest: &str) -> String {
        match tag {
            "alias" => {
                let (name, definition) = split_type(rest);
                format!("{name} = {definition}")
            }
            _ => rest.to_owned(),
        }
    }

    fn read_text(&mut self, line: &str) {
        let is_within =
            !self.title.is_empty() || !self.entries.is_empty() || !self.results.is_empty();
        if is_within {
            self.pending.push(line.to_owned());
        } else {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// Assigns the pending lines to the last entry.
    fn settle(&mut self) {
        let last = self.results.last_mut().or(self.entries.last_mut());
        match last {
            Some(entry) => self
                .pending
                .drain(..)
                .for_each(|line| entry.continue_with(&line)),
            None => {
                for line in self.pending.drain(..) {
                    self.text.push_str(&line);
                    self.text.push('\n');
                }
            }
        }
    }

    /// Writes the block. `function` is the declaration that follows it, such as `veche.sleep(seconds)`.
    fn write(mut self, page: &mut String, function: Option<&str>) {
        self.settle();
        let title = function.unwrap_or(&self.title);
        let is_bare = self.text.is_empty() && self.entries.is_empty();
        if title.is_empty() || (function.is_none() && is_bare && !title.contains(" = ")) {
            return;
        }
        let _ = write!(page, "\n### `{title}`\n");
        if !self.text.is_empty() {
            let text = self.text.replace("\nError", "\n\nError");
            let _ = write!(page, "\n{text}");
        }
        if !self.entries.is_empty() || !self.results.is_empty() {
            page.push('\n');
        }
        for entry in &self.entries {
            entry.write(page, "");
        }
        for entry in &self.results {
            entry.write(page, "returns ");
        }
    }
}

/// Appends the section of one file.
fn section(page: &mut String, stem: &str, source: &str) {
    let mut lines = source.lines().peekable();
    let mut intro = String::new();
    while let Some(line) = lines.next_if(|line| line.starts_with("---@meta") || is_comment(line)) {
        if let Some(text) = line.strip_prefix("--").filter(|_| is_comment(line)) {
            intro.push_str(text.trim_start());
            intro.push('\n');
        }
    }
    let quoted = intro
        .strip_prefix('`')
        .and_then(|rest| rest.split_once('`'))
        .map(|(name, _)| name.trim_start_matches("require ").replace('"', ""));
    let title = quoted.unwrap_or_else(|| stem.to_owned());
    let _ = write!(page, "\n## {title}\n\n{intro}");
    let mut block = Block::default();
    let mut was_comment = false;
    for line in lines {
        if let Some(text) = line.strip_prefix("---") {
            block.read(text.strip_prefix(' ').unwrap_or(text));
        } else {
            let function = line.strip_prefix("function ");
            let declared = function.and_then(|rest| rest.strip_suffix(" end"));
            std::mem::take(&mut block).write(page, declared);
            if is_comment(line) {
                let start = if was_comment { "" } else { "\n" };
                let _ = writeln!(
                    page,
                    "{start}{}",
                    line.trim_start_matches("--").trim_start()
                );
            }
        }
        was_comment = is_comment(line);
    }
    block.write(page, None);
}

/// Returns whether a line is a comment for readers of the file and the page, rather than for editors.
fn is_comment(line: &str) -> bool {
    line.starts_with("--") && !line.starts_with("---")
}

fn page() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../script/types");
    let files = fs::read_dir(folder).expect("the folder of type definitions must be readable");
    let files = files.map(|file| file.expect("an entry").path());
    let stem = |file: &PathBuf| {
        let stem = file.file_stem().expect("a name");
        stem.to_string_lossy().into_owned()
    };
    let mut files: Vec<(String, PathBuf)> = files.map(|file| (stem(&file), file)).collect();
    files.sort_by_key(|(stem, _)| {
        let place = FIRST.iter().position(|first| first == stem);
        (place.unwrap_or(FIRST.len()), stem.clone())
    });
    let mut page = String::from(
        "<!-- Written by `VECHE_BLESS=1 cargo test --workspace --lib reference` from crates/script/types; a test compares. -->\n\
         # Lua API\n\n\
         Every function, table and type that scripts of [applications](../guide/lua.md) can use. `veche new` copies the same \
         descriptions into a project for editors with a Lua language server.\n\n\
         A `?` behind a name or a type marks what may be nil or left out. *Errors* lists what a call raises; `pcall` catches it.\n",
    );
    for (stem, file) in files {
        let source = fs::read_to_string(&file).expect("readable types");
        section(&mut page, &stem, &source);
    }
    page
}

#[test]
fn reference_of_the_lua_api_is_current() {
    crate::generated_page::assert_page_is_current("lua-api.md", &page());
}

#[test]
fn types_end_where_descriptions_begin() {
    for (text, kind, rest) in [
        ("string", "string", ""),
        (
            "integer 1000 unless given.",
            "integer",
            "1000 unless given.",
        ),
        ("\"a b\"|nil Text.", "\"a b\"|nil", "Text."),
        ("{ a: string, b: any }? x", "{ a: string, b: any }?", "x"),
        (
            "fun(a: string, ...: any): any The call.",
            "fun(a: string, ...: any): any",
            "The call.",
        ),
        (
            "fun(): (true), (nil) Both.",
            "fun(): (true), (nil)",
            "Both.",
        ),
        ("a | b The last.", "a | b", "The last."),
    ] {
        assert_eq!(split_type(text), (kind, rest));
    }
}

#[test]
fn text_beside_fields_describes_the_right_one() {
    let mut page = String::new();
    let source = "---@meta\n-- `x`: an example.\n\n---A class.\n---Errors: none.\n---@class x.y\n---@field a string Of two\n---lines.\n\
                  ---@field b? integer\n---Before its field.\n---@field c fun()\nlocal y = {}\n\n\
                  ---Calls it.\n---@param f fun(): any\n---@return boolean is_done Whether it\n---ended.\nfunction y:call(f) end\n";
    section(&mut page, "x", source);
    let expected = "\n## x\n\n`x`: an example.\n\n### `x.y`\n\nA class.\n\nErrors: none.\n\n- `a` (`string`): Of two\n  lines.\n- `b?` (`integer`)\n\
                    - `c` (`fun()`): Before its field.\n\n### `y:call(f)`\n\nCalls it.\n\n- `f` (`fun(): any`)\n\
                    - returns `is_done` (`boolean`): Whether it\n  ended.\n";
    assert_eq!(page, expected);
}
