//! From text to raw values: reads the TOML document by the table of directives.
//!
//! Checks names, types and ranges, one value at a time, and continues after each problem. Rules across values are in
//! `checked`.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use veche_terminal::{Problems, describe, did_you_mean, document};
use veche_types::nearest;

use super::directives::{self, DefaultValue, Directive, Section};
use super::effective::{Setting, ValueOrigin};
use super::value::{DirectiveKind, DirectiveValue};

/// A section of the file, or its defaults if the file does not have it.
pub(super) struct RawTable {
    pub(super) section: Section,
    /// The index of a repeated section.
    pub(super) index: usize,
    /// The position of the section's header.
    pub(super) at: Option<usize>,
    given: BTreeMap<&'static str, RawValue>,
    /// The directives that misspelt names probably stand for.
    misspelt: Vec<&'static str>,
}

/// A directive in the file.
struct RawValue {
    key_at: usize,
    value_at: usize,
    item_at: Vec<usize>,
    /// `None` if the value is invalid, which has been reported.
    value: Option<DirectiveValue>,
}

/// The most repetitions of one section; more are a mistake of a generator.
pub(super) const TABLES_MAX: usize = 1_024;

/// Parses `text`. The sections keep their order; those that can't be repeated always exist.
pub(super) fn read(text: &str, problems: &mut Problems<'_>) -> Vec<RawTable> {
    let header = |name: &str| Section::named(name).map(Section::header);
    let (document, broken_lines) = document(text, header, problems);
    let mut walk = RawReader {
        problems,
        broken_lines,
        tables: Vec::new(),
        misspelt: Vec::new(),
    };
    for (key, value) in document.get_ref() {
        walk.top(key, value);
    }
    for section in Section::ALL {
        if !section.repeats() && !walk.tables.iter().any(|table| table.section == section) {
            // In a section with an invalid header, any section may have been meant.
            let meant = section
                .directives()
                .filter(|_| walk.misspelt.contains(&section));
            let misspelt = meant.map(|directive| directive.name).collect();
            walk.tables.push(RawTable {
                section,
                index: 0,
                at: None,
                given: BTreeMap::new(),
                misspelt,
            });
        }
    }
    let order = |section| Section::ALL.iter().position(|other| *other == section);
    walk.tables
        .sort_by_key(|table| (order(table.section), table.index));
    walk.tables
}

struct RawReader<'p, 't> {
    problems: &'p mut Problems<'t>,
    broken_lines: Vec<u32>,
    tables: Vec<RawTable>,
    /// The sections that invalid headers probably stand for.
    misspelt: Vec<Section>,
}

type KeyPosition<'i> = Spanned<std::borrow::Cow<'i, str>>;

impl RawReader<'_, '_> {
    fn add(&mut self, offset: usize, message: String) {
        if !self
            .broken_lines
            .contains(&self.problems.place(offset).line)
        {
            self.problems.add(Some(offset), message);
        }
    }

    fn top(&mut self, key: &KeyPosition<'_>, value: &Spanned<DeValue<'_>>) {
        let name = key.get_ref().as_ref();
        let Some(section) = Section::named(name) else {
            return self.unknown_top(key, value);
        };
        match value.get_ref() {
            DeValue::Table(table) if !section.repeats() => {
                self.table(section, 0, value.span().start, table)
            }
            DeValue::Array(list) if section.repeats() => self.tables(section, list.iter()),
            found => {
                self.misspelt.push(section);
                let found = match found {
                    DeValue::Table(_) => format!("[{name}]"),
                    DeValue::Array(list) if list.iter().all(|item| item.get_ref().is_table()) => {
                        format!("[[{name}]]")
                    }
                    other => format!("{name} = {}", describe(other)),
                };
                let why = if section.repeats() {
                    ": it can be repeated"
                } else {
                    ": it can't be repeated"
                };
                self.add(
                    key.span().start,
                    format!("expected {}, found {found}{why}", section.header()),
                );
            }
        }
    }

    fn unknown_top(&mut self, key: &KeyPosition<'_>, value: &Spanned<DeValue<'_>>) {
        let name = key.get_ref().as_ref();
        let is_section = value.get_ref().is_table()
            || value
                .get_ref()
                .as_array()
                .is_some_and(|list| list.iter().any(|item| item.get_ref().is_table()));
        let message = if is_section {
            let meant = Section::meant_by(name);
            self.misspelt.extend(meant);
            let hint = match meant {
                Some(meant) if Section::formerly(name) == Some(meant) => {
                    format!("; it was renamed to {}", meant.header())
                }
                Some(meant) => did_you_mean(meant.name()),
                None => {
                    let known = Section::ALL.map(Section::header).join(", ");
                    format!("; the sections are {known}")
                }
            };
            format!("unknown section {name:?}{hint}")
        } else {
            match homes_of(name) {
                homes if homes.is_empty() => {
                    format!("unknown directive {name:?} outside of any section")
                }
                homes => {
                    format!("{name:?} is outside of any section; it belongs under {homes}")
                }
            }
        };
        self.add(key.span().start, message);
    }

    fn tables<'a, 'i: 'a>(
        &mut self,
        section: Section,
        list: impl Iterator<Item = &'a Spanned<DeValue<'i>>>,
    ) {
        for (index, item) in list.enumerate() {
            let at = item.span().start;
            match item.get_ref() {
                _ if index == TABLES_MAX => {
                    return self.add(
                        at,
                        format!("more than {TABLES_MAX} sections {}", section.header()),
                    );
                }
                DeValue::Table(table) => self.table(section, index, at, table),
                other => self.add(
                    at,
                    format!(
                        "expected a table of {}, found {}",
                        section.header(),
                        describe(other)
                    ),
                ),
            }
        }
    }

    fn table(&mut self, section: Section, index: usize, at: usize, table: &DeTable<'_>) {
        let mut given = BTreeMap::new();
        let mut misspelt = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let Some(directive) = section
                .directives()
                .find(|directive| directive.name == name)
            else {
                let meant = nearest(name, section.directives().map(|directive| directive.name));
                misspelt.extend(meant);
                self.add(key.span().start, unknown(section, name, meant));
                continue;
            };
            let read = directive.kind.read(value.get_ref());
            if let Err(refusal) = &read {
                self.add(value.span().start, format!("{name}: {refusal}"));
            }
            let items: Vec<usize> = match value.get_ref() {
                DeValue::Array(list) => list.iter().map(|item| item.span().start).collect(),
                DeValue::Table(table) if matches!(directive.kind, DirectiveKind::Pairs { .. }) => {
                    table.keys().map(|name| name.span().start).collect()
                }
                _ => Vec::new(),
            };
            given.insert(
                directive.name,
                RawValue {
                    key_at: key.span().start,
                    value_at: value.span().start,
                    item_at: items,
                    value: read.ok(),
                },
            );
        }
        self.tables.push(RawTable {
            section,
            index,
            at: Some(at),
            given,
            misspelt,
        });
    }
}

fn unknown(section: Section, name: &str, meant: Option<&str>) -> String {
    let header = section.header();
    let hint = match (meant, homes_of(name)) {
        (Some(meant), _) => did_you_mean(meant),
        (None, homes) if homes.is_empty() => longer_names(section, name),
        (None, homes) => format!("; it belongs under {homes}"),
    };
    format!("unknown directive {name:?} in {header}{hint}")
}

/// Returns a hint that names the section's directives that continue `name` after an underscore, as "secret_file" for
/// "secret"; empty if there are none. In `[[listen]]`, "port" and "host" get a hint at `address`.
fn longer_names(section: Section, name: &str) -> String {
    if section == Section::Listen && matches!(name, "port" | "host") {
        return "; write address = \"127.0.0.1:8080\"".to_owned();
    }
    let is_longer = |longer: &str| {
        longer
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('_'))
    };
    let all = section.directives().filter(|one| is_longer(one.name));
    let names: Vec<String> = all.map(|one| format!("{:?}", one.name)).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", names.join(" or ")),
    }
}

/// Returns the headers of the sections that have a directive.
fn homes_of(name: &str) -> String {
    let homes: Vec<&str> = directives::all()
        .filter(|d| d.name == name)
        .map(|directive| directive.section.header())
        .collect();
    homes.join(" or ")
}

impl RawTable {
    /// Returns the effective value; `None` if there is none or it is invalid.
    pub(super) fn value(&self, name: &str) -> Option<DirectiveValue> {
        let directive = self.directive(name);
        match self.given.get(name) {
            Some(RawValue {
                value: Some(value), ..
            }) => Some(value.clone()),
            _ => default_of(directive),
        }
    }

    /// Returns the effective value of a directive that not every section has.
    pub(super) fn value_if_any(&self, name: &str) -> Option<DirectiveValue> {
        let mut all = self.section.directives();
        all.any(|directive| directive.name == name)
            .then(|| self.value(name))?
    }

    /// Returns whether the effective value is what was meant: false if the file's value is invalid or its name
    /// misspelt.
    pub(super) fn is_sound(&self, name: &str) -> bool {
        match self.given.get(name) {
            Some(given) => given.value.is_some(),
            None => !self.misspelt.contains(&name),
        }
    }

    /// Returns whether the file sets a directive.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Returns the position of the name of directive `name`, or of the section's header.
    pub(super) fn key_at(&self, name: &str) -> Option<usize> {
        self.given.get(name).map(|given| given.key_at).or(self.at)
    }

    /// Returns the position of the value of directive `name`, or of the section's header.
    pub(super) fn value_at(&self, name: &str) -> Option<usize> {
        self.given.get(name).map(|given| given.value_at).or(self.at)
    }

    /// Returns the position of an item of the list, or of a name of the table, that is the value of directive `name`; or of
    /// the section's header.
    pub(super) fn item_at(&self, name: &str, item: usize) -> Option<usize> {
        self.given
            .get(name)
            .and_then(|given| given.item_at.get(item).copied())
            .or(self.at)
    }

    /// Returns the number of items of the list or table that is the value of directive `name`; 0 for other values.
    pub(super) fn items(&self, name: &str) -> usize {
        self.given.get(name).map_or(0, |given| given.item_at.len())
    }

    /// Returns the effective setting of a directive.
    pub(super) fn setting(
        &self,
        directive: &'static Directive,
        problems: &Problems<'_>,
    ) -> Setting {
        let origin = match self.given.get(directive.name) {
            Some(given) => ValueOrigin::Line(problems.place(given.key_at).line),
            None => ValueOrigin::Default,
        };
        Setting {
            directive,
            index: self.index,
            value: self.value(directive.name),
            origin,
        }
    }

    fn directive(&self, name: &str) -> &'static Directive {
        let mut all = self.section.directives();
        all.find(|directive| directive.name == name)
            .expect("checked reads directives of the table only")
    }
}

/// Returns the default value.
pub(super) fn default_of(directive: &Directive) -> Option<DirectiveValue> {
    let DefaultValue::Toml(text) = directive.default else {
        return None;
    };
    let parsed = DeValue::parse(text).expect("defaults are TOML; a test reads each");
    let kind = match directive.kind {
        // An empty list can be a default, though it can't be written.
        DirectiveKind::List { .. } if text == "[]" => {
            return Some(DirectiveValue::List(Vec::new()));
        }
        kind => kind,
    };
    Some(
        kind.read(parsed.get_ref())
            .expect("defaults are valid; a test reads each"),
    )
}
