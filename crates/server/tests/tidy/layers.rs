//! Layers of the front ends, and cycles of imports: reads the sources' paths as the compiler would, without macros.
//!
//! An import counts for the file that defines the item, not for those that re-export it.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, sources};

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
    // The context owns the outboxes of its worker: every layer is handed both in one value.
    ("context/shared.rs", "outbox"),
];

/// The file above all layers that names the client protocols.
const REGISTRY: &str = "registry.rs";

/// Folders of `sessions` whose names are also words for something else: applications, and the role of listeners.
const COMMON_WORDS: &[&str] = &["app", "push"];

/// Names of client protocols below `sessions` that are left. No row may be added.
const NAMED: &[(&str, &str)] = &[
    // Hooks are asked with JSON that the crate of that name writes and reads.
    ("context/hooks.rs", "veche_centrifuge"),
];

/// Files of one cycle at most; those that hold `impl` blocks of one type count as one.
const CYCLE_MAX: usize = 3;

type Path = Vec<String>;

/// One source file.
#[derive(Default)]
struct Module {
    /// Below [`SOURCES`].
    file: String,
    /// What its `use` declarations bind, with the paths from the crate's root.
    bound: BTreeMap<String, Path>,
    /// Paths of two or more names outside of `use` declarations.
    paths: Vec<Path>,
    /// All names outside of `use` declarations.
    names: BTreeSet<String>,
    /// Structures and enumerations that it defines.
    types: BTreeSet<String>,
    /// Types that it has inherent `impl` blocks of.
    implemented: BTreeSet<String>,
}

/// The modules of the crate by their paths.
struct Modules(BTreeMap<Path, Module>);

/// Splits a source into names, `::` and single characters, without comments, literals and tests.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
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

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads a tree of imports; returns the place behind it.
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

/// The type of an inherent `impl` block whose tokens begin behind the word.
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
    fn read() -> Self {
        let mut modules = BTreeMap::new();
        let mut texts = BTreeMap::new();
        for (name, text) in sources() {
            let Some(file) = name.strip_prefix(SOURCES) else {
                continue;
            };
            let place = file.trim_end_matches(".rs").trim_end_matches("/mod");
            let path: Path = match place {
                "lib" => Vec::new(),
                place => place.split('/').map(str::to_owned).collect(),
            };
            if path.last().is_some_and(|name| name == "tests") {
                continue;
            }
            texts.insert(path.clone(), tokens(&text));
            let file = file.to_owned();
            modules.insert(
                path,
                Module {
                    file,
                    ..Module::default()
                },
            );
        }
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
                "struct" | "enum" => {
                    module.types.insert(tokens[i + 1].clone());
                }
                "impl" => module
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

    /// The same path from the crate's root; `None`: it leads out of the crate.
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

    /// The module that defines what a path names.
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

    /// The modules that each module imports from.
    fn imports(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
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

    /// Where the types of a module's `impl` blocks are defined, or the module itself.
    fn owner<'m>(&'m self, place: &'m Path) -> &'m Path {
        let module = &self.0[place];
        let mut foreign = module
            .implemented
            .iter()
            .filter(|name| !module.types.contains(*name));
        let owner = foreign.find_map(|name| self.definer(module.bound.get(name)?, 0));
        owner.unwrap_or(place)
    }
}

fn layer(place: &Path) -> Option<usize> {
    let folder = place.first()?;
    LAYERS.iter().position(|layer| layer == folder)
}

#[test]
fn front_ends_import_from_the_layers_below() {
    let modules = Modules::read();
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

/// `two_words` → `TwoWords`.
fn type_name(folder: &str) -> String {
    let words = folder.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect()
}

/// The names of client protocols in a source: modules, types and crates that are called after a folder of `sessions`.
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
        if place.is_some_and(|place| LAYERS[place] != "sessions" && LAYERS[place] != "backend")
            && !file.ends_with("tests.rs")
        {
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

#[test]
fn no_cycle_of_imports_is_over_three_files() {
    let modules = Modules::read();
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
            problems.insert(files.join(" "));
        }
    }
    let problems: Vec<String> = problems.into_iter().collect();
    assert_none(&problems, "cycles of imports");
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
