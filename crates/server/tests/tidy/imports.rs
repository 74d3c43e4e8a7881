//! Parses the imports of sources as the compiler does, except for macros and test-only code.
//!
//! An import counts for the file that defines the item, not for files that re-export it.

use std::collections::{BTreeMap, BTreeSet};

use super::sources;

pub(super) type Path = Vec<String>;

/// The names that a source file uses.
#[derive(Default)]
pub(super) struct Module {
    /// The path below the crate's source folder.
    pub(super) file: String,
    /// Names bound by `use` declarations, with their paths from the crate's root.
    bound: BTreeMap<String, Path>,
    /// Paths of two or more names outside of `use` declarations.
    paths: Vec<Path>,
    /// All names that occur outside of `use` declarations.
    names: BTreeSet<String>,
    /// Structs and enums that the file defines.
    types: BTreeSet<String>,
    /// Types that have inherent `impl` blocks in the file.
    implemented: BTreeSet<String>,
}

/// The modules of the crate by their paths.
pub(super) struct Modules(pub(super) BTreeMap<Path, Module>);

/// Splits a source into names, `::` and single characters, without comments, literals and tests.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let (tokens, _) = without_tests(all_tokens(text));
    tokens
}

/// Removes test-only items; also returns the names of the modules among them.
fn without_tests(tokens: Vec<String>) -> (Vec<String>, Vec<String>) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut i = 0;
    while i < tokens.len() {
        if !tokens[i..].iter().take(MARK.len()).eq(&MARK) {
            kept.push(tokens[i].clone());
            i += 1;
            continue;
        }
        i += MARK.len();
        let mut depth = 0;
        while i < tokens.len() {
            match tokens[i].as_str() {
                "mod" if depth == 0 => modules.push(tokens[i + 1].clone()),
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            i += 1;
            if depth == 0 && matches!(&*tokens[i - 1], ";" | "}" | ",") {
                break;
            }
        }
    }
    (kept, modules)
}

fn all_tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\n');
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let start = i;
        i += 1;
        match chars[start] {
            '/' if at(i) == '/' => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '"' => {
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
            }
            'r' if at(i) == '#' && at(i + 1) == '"' => {
                i += 2;
                while i < chars.len() && !(at(i) == '"' && at(i + 1) == '#') {
                    i += 1;
                }
                i += 2;
            }
            '\'' if at(i) == '\\' => {
                i += 2;
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            '\'' if at(i + 1) == '\'' => i += 2,
            c if c.is_alphanumeric() || c == '_' => {
                while at(i).is_alphanumeric() || at(i) == '_' {
                    i += 1;
                }
                tokens.push(chars[start..i].iter().collect());
            }
            ':' if at(i) == ':' => {
                i += 1;
                tokens.push("::".to_owned());
            }
            c if c.is_whitespace() => {}
            c => tokens.push(c.to_string()),
        }
    }
    tokens
}

/// Returns the source folder of each crate.
pub(super) fn crates() -> BTreeSet<String> {
    let folder = |(name, _): (String, _)| Some(name.split_once("/src/")?.0.to_owned() + "/src/");
    sources().filter_map(folder).collect()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Parses a tree of imports; returns the position after it.
fn tree(
    tokens: &[String],
    mut i: usize,
    before: &[String],
    found: &mut Vec<(Path, String)>,
) -> usize {
    let mut path = before.to_vec();
    loop {
        match tokens[i].as_str() {
            "{" => {
                i += 1;
                while tokens[i] != "}" {
                    i = tree(tokens, i, &path, found);
                    i += usize::from(tokens[i] == ",");
                }
                return i + 1;
            }
            "*" => return i + 1,
            "self" if !path.is_empty() => i += 1,
            name => {
                path.push(name.to_owned());
                i += 1;
            }
        }
        if tokens[i] == "::" {
            i += 1;
            continue;
        }
        let mut bound = path.last().cloned().unwrap_or_default();
        if tokens[i] == "as" {
            bound.clone_from(&tokens[i + 1]);
            i += 2;
        }
        found.push((path, bound));
        return i;
    }
}

/// Returns the type of an inherent `impl` block. `tokens` start after the keyword `impl`.
fn implemented(tokens: &[String]) -> Option<&str> {
    let mut depth = 0;
    let mut name = None;
    for token in tokens {
        match token.as_str() {
            "<" => depth += 1,
            ">" => depth -= 1,
            "for" => return None,
            "{" | "where" => return name,
            token if depth == 0 && name.is_none() && is_name(token) => name = Some(token),
            _ => {}
        }
    }
    None
}

impl Modules {
    /// Parses the crate in a source folder.
    pub(super) fn read(folder: &str) -> Self {
        let mut modules = BTreeMap::new();
        let mut texts = BTreeMap::new();
        let mut tests = Vec::new();
        for (name, text) in sources() {
            let Some(file) = name.strip_prefix(folder) else {
                continue;
            };
            let place = file.trim_end_matches(".rs").trim_end_matches("/mod");
            let path: Path = match place {
                "lib" => Vec::new(),
                place => place.split('/').map(str::to_owned).collect(),
            };
            let (tokens, of_tests) = without_tests(all_tokens(&text));
            tests.extend(
                of_tests
                    .into_iter()
                    .map(|name| [&path[..], &[name]].concat()),
            );
            texts.insert(path.clone(), tokens);
            let file = file.to_owned();
            modules.insert(
                path,
                Module {
                    file,
                    ..Module::default()
                },
            );
        }
        let is_test = |path: &Path| tests.iter().any(|test| path.starts_with(test));
        modules.retain(|path, _| !is_test(path));
        texts.retain(|path, _| !is_test(path));
        let mut modules = Self(modules);
        for (path, tokens) in &texts {
            let module = modules.parse(path, tokens);
            modules.0.insert(path.clone(), module);
        }
        modules
    }

    fn parse(&self, place: &Path, tokens: &[String]) -> Module {
        let mut module = Module {
            file: self.0[place].file.clone(),
            ..Module::default()
        };
        let mut paths = Vec::new();
        let mut i = 0;
        while i < tokens.len() {
            match tokens[i].as_str() {
                "use" => {
                    let mut found = Vec::new();
                    i = tree(tokens, i + 1, &[], &mut found);
                    for (path, bound) in found {
                        if let Some(path) = self.resolve_from_root(place, &path) {
                            module.bound.insert(bound, path);
                        }
                    }
                    continue;
                }
                // `pub(in …)` is a visibility, not an import.
                "pub" if tokens[i + 1..].starts_with(&["(".to_owned(), "in".to_owned()]) => {
                    i += tokens[i..]
                        .iter()
                        .position(|token| token == ")")
                        .unwrap_or(0);
                }
                "struct" | "enum" => {
                    module.types.insert(tokens[i + 1].clone());
                }
                // `impl` in the type of an argument does not begin an `impl` block.
                "impl" if i == 0 || matches!(&*tokens[i - 1], ";" | "{" | "}" | "]") => module
                    .implemented
                    .extend(implemented(&tokens[i + 1..]).map(str::to_owned)),
                _ => {}
            }
            if !is_name(&tokens[i]) {
                i += 1;
                continue;
            }
            module.names.insert(tokens[i].clone());
            let mut path = vec![tokens[i].clone()];
            while tokens.get(i + 1).is_some_and(|next| next == "::")
                && tokens.get(i + 2).is_some_and(|next| is_name(next))
            {
                path.push(tokens[i + 2].clone());
                i += 2;
            }
            i += 1;
            if path.len() > 1 {
                paths.push(path);
            }
        }
        for path in paths {
            let bound = module.bound.get(&path[0]);
            let path = match bound {
                Some(bound) => Some([bound, &path[1..]].concat()),
                None => self.resolve_from_root(place, &path),
            };
            module.paths.extend(path);
        }
        module
    }

    /// Resolves `path`, as it is written in the module `place`, from the crate's root. Returns `None` if it leads out
    /// of the crate.
    fn resolve_from_root(&self, place: &Path, path: &[String]) -> Option<Path> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let (base, rest) = match path[0].as_str() {
            "crate" => (&[][..], &path[1..]),
            "self" => (&place[..], &path[1..]),
            "super" => (&place[..place.len().checked_sub(supers)?], &path[supers..]),
            name => {
                let child = [&place[..], &[name.to_owned()]].concat();
                self.0.get(&child)?;
                (&place[..], path)
            }
        };
        Some([base, rest].concat())
    }

    /// Returns the module that defines a path's item.
    fn definer(&self, path: &[String], depth: usize) -> Option<&Path> {
        let is_module = |length: &usize| self.0.contains_key(&path[..*length]);
        let length = (0..=path.len()).rev().find(is_module)?;
        let (place, module) = self.0.get_key_value(&path[..length])?;
        let rest = &path[length..];
        match rest.first().and_then(|name| module.bound.get(name)) {
            Some(bound) if depth < 8 => self.definer(&[&bound[..], &rest[1..]].concat(), depth + 1),
            _ => Some(place),
        }
    }

    /// Returns the modules that each module imports from.
    pub(super) fn imports(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let of = |(place, module): (_, &Module)| {
            let is_used = |(bound, path): &(&String, &Path)| {
                module.names.contains(*bound) && !self.0.contains_key(*path)
            };
            let used = module.bound.iter().filter(is_used).map(|(_, path)| path);
            let paths = used.chain(&module.paths);
            let definers = paths.filter_map(|path| self.definer(path, 0));
            (
                place,
                definers.filter(|definer| *definer != place).collect(),
            )
        };
        self.0.iter().map(of).collect()
    }

    /// Returns the modules that define the types of a module's `impl` blocks, without the module itself.
    pub(super) fn owners<'m>(&'m self, place: &'m Path) -> impl Iterator<Item = &'m Path> {
        let module = &self.0[place];
        let names = module.implemented.iter();
        let foreign = names.filter(|name| !module.types.contains(*name));
        foreign.filter_map(|name| self.definer(module.bound.get(name)?, 0))
    }
}

#[test]
fn paths_are_read_as_the_compiler_does() {
    let text = "use a::{self, b::{C, D as E}};\n// use no::X;\nimpl<T> C<T> { fn f() { '\"'; x::y(\"use z;\") } }";
    let tokens = tokens(text);
    let mut found = Vec::new();
    tree(&tokens, 1, &[], &mut found);
    let found: Vec<_> = found
        .iter()
        .map(|(path, bound)| (path.join("::"), &**bound))
        .collect();
    let expected = [("a", "a"), ("a::b::C", "C"), ("a::b::D", "E")];
    assert_eq!(
        found,
        expected.map(|(path, bound)| (path.to_owned(), bound))
    );
    let impl_at = tokens
        .iter()
        .position(|token| token == "impl")
        .expect("a block");
    assert_eq!(implemented(&tokens[impl_at + 1..]), Some("C"));
    assert!(!tokens.iter().any(|token| token == "no" || token == "z"));
}

#[test]
fn test_modules_are_ignored() {
    let text = "use a::B; #[cfg(test)] mod c; #[cfg(test)]\nmod d { fn e() {} }\nfn f(#[cfg(test)] g: u8, h: u8) {}";
    let (kept, modules) = without_tests(all_tokens(text));
    assert_eq!(modules, ["c", "d"]);
    assert_eq!(kept.concat(), "usea::B;fnf(h:u8){}");
}
