//! Parses a scenario file (TOML) into phases with their plans, and objectives.
//!
//! All problems are reported at once with their locations. [`super::command_flags`] defines the
//! keys of a phase, and [`super::figures`] defines the figures of objectives. Parsing runs no
//! phase, but resolves host names.

use std::path::Path;

use crate::plan::Plan;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use veche_terminal::Problems;

use super::super::command::BenchCommand;
use super::super::limits;
use super::command_flags::{CommandFlags, KINDS, in_file_words};
use super::flag_value::FlagValue;
use super::slo::Slo;
use super::url_override::UrlOverride;

/// The content of a scenario file.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) phases: Vec<ScenarioPhase>,
    /// The objectives of the whole scenario.
    pub(super) promises: Vec<Slo>,
    /// Whether the scenario ends when a phase misses an objective.
    pub(super) stop_on_broken: bool,
}

#[derive(Debug)]
pub(super) struct ScenarioPhase {
    pub(super) name: String,
    /// Whether the phase runs concurrently with the previous one.
    pub(super) together: bool,
    pub(super) allow_bottleneck: bool,
    pub(super) command: BenchCommand,
    pub(super) plan: Plan,
    pub(super) promises: Vec<Slo>,
}

/// Maximum number of phases.
const PHASES_MAX: usize = 100;
/// Keys of a phase that are not flags of the command line.
const OF_A_PHASE: [&str; 5] = ["name", "kind", "together", "allow_bottleneck", "promise"];
/// Keys of a scenario file that are not defaults for phases.
const OF_THE_FILE: [&str; 4] = ["phase", "promise", "allow_bottleneck", "stop_on_broken"];

/// Reads and checks the file at `path`. `elsewhere` replaces the servers in the file's URLs.
pub(super) fn read(
    path: &Path,
    elsewhere: &UrlOverride,
) -> Result<Scenario, veche_terminal::ProblemReport> {
    parse(path, &veche_terminal::read(path)?, elsewhere)
}

fn parse(
    path: &Path,
    text: &str,
    elsewhere: &UrlOverride,
) -> Result<Scenario, veche_terminal::ProblemReport> {
    let mut problems = Problems::new(path, text);
    let header = |name: &str| (name == "phase").then_some("[[phase]]");
    let (document, broken_lines) = veche_terminal::document(text, header, &mut problems);
    let mut walk = ScenarioParser {
        problems,
        broken_lines,
        folder: path.parent().unwrap_or(Path::new("")),
        url_override: elsewhere,
        words: KINDS.map(CommandFlags::of),
        defaults: Vec::new(),
        allow_bottleneck: false,
    };
    let scenario = walk.file(document.get_ref());
    if walk.problems.is_empty() {
        return Ok(scenario);
    }
    Err(veche_terminal::ProblemReport {
        problems: walk.problems.into_sorted(),
        unreadable: false,
    })
}

type Key<'i> = Spanned<std::borrow::Cow<'i, str>>;
type ParsedValue<'a, 'i> = (&'a Key<'i>, &'a Spanned<DeValue<'i>>);

struct ScenarioParser<'a, 'i, 't> {
    problems: Problems<'t>,
    broken_lines: Vec<u32>,
    folder: &'a Path,
    url_override: &'a UrlOverride,
    words: [CommandFlags; KINDS.len()],
    defaults: Vec<ParsedValue<'a, 'i>>,
    allow_bottleneck: bool,
}

impl<'a, 'i> ScenarioParser<'a, 'i, '_> {
    fn add(&mut self, offset: usize, message: impl Into<String>) {
        let line = self.problems.place(offset).line;
        if !self.broken_lines.contains(&line) {
            self.problems.add(Some(offset), message);
        }
    }

    fn file(&mut self, table: &'a DeTable<'i>) -> Scenario {
        let mut phases = None;
        let mut promises = Vec::new();
        let mut stop_on_broken = false;
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match name {
                "stop_on_broken" => stop_on_broken = self.flag(name, value),
                "phase" => phases = Some(value),
                "promise" => promises = self.promises(value),
                "allow_bottleneck" => self.allow_bottleneck = self.flag(name, value),
                _ if self.words.iter().any(|words| words.has(name)) => {
                    self.defaults.push((key, value));
                }
                _ => {
                    let known = self.words.iter().flat_map(CommandFlags::keys).collect();
                    self.unknown(key, "", known, &OF_THE_FILE);
                }
            }
        }
        let phases = self.phases(phases);
        for (promise, at) in &promises {
            let kinds = promise.kinds();
            let is_measured = |phase: &ScenarioPhase| kinds.contains(&kind_of(&phase.command));
            if !kinds.is_empty() && !phases.iter().any(is_measured) && self.problems.is_empty() {
                let message = format!(
                    "no phase measures this figure: add a phase of kind {}",
                    one_of(kinds)
                );
                self.add(*at, message);
            }
        }
        Scenario {
            phases,
            promises: promises.into_iter().map(|(promise, _)| promise).collect(),
            stop_on_broken,
        }
    }

    fn phases(&mut self, value: Option<&'a Spanned<DeValue<'i>>>) -> Vec<ScenarioPhase> {
        let Some(value) = value else {
            if self.problems.is_empty() {
                self.problems.add(None, "the scenario has no [[phase]]");
            }
            return Vec::new();
        };
        let at = value.span().start;
        let list = match value.get_ref() {
            DeValue::Array(list) if !list.is_empty() => list,
            found => {
                let found = veche_terminal::describe(found);
                self.add(at, format!("expected tables [[phase]], found {found}"));
                return Vec::new();
            }
        };
        if list.len() > PHASES_MAX {
            self.add(
                at,
                format!("a scenario may have at most {PHASES_MAX} phases"),
            );
            return Vec::new();
        }
        let mut phases: Vec<ScenarioPhase> = Vec::new();
        // The location of each phase in the file.
        let mut places = Vec::new();
        for item in list {
            let at = item.span().start;
            let Some(table) = item.get_ref().as_table() else {
                let found = veche_terminal::describe(item.get_ref());
                self.add(at, format!("expected a table [[phase]], found {found}"));
                continue;
            };
            let Some(phase) = self.phase(at, table) else {
                continue;
            };
            if phases.iter().any(|before| before.name == phase.name) {
                let message = format!(
                    "two phases are named {:?}: give each its own name",
                    phase.name
                );
                self.add(at, message);
            }
            if phase.together && std::ptr::eq(item, &list[0]) {
                self.add(at, "together: there is no phase before this one");
            }
            phases.push(phase);
            places.push(at);
        }
        self.check_groups(&phases, &places);
        phases
    }

    /// Checks that this machine has enough descriptors and memory for the phases that run concurrently.
    fn check_groups(&mut self, phases: &[ScenarioPhase], places: &[usize]) {
        let mut places = places.iter();
        for group in phases.chunk_by(|_, next| next.together) {
            let place = places.nth(group.len() - 1);
            // A phase that runs alone was checked when it was parsed.
            if group.len() > 1 {
                let plans: Vec<&Plan> = group.iter().map(|phase| &phase.plan).collect();
                if let (Err(failure), Some(at)) = (limits::check(&plans), place) {
                    self.add(*at, in_file_words(failure.message()));
                }
            }
        }
    }

    fn phase(&mut self, at: usize, table: &'a DeTable<'i>) -> Option<ScenarioPhase> {
        let kind = self.kind(at, table);
        let mut is_readable = true;
        let mut phase_name = None;
        let mut together = false;
        let mut allow_bottleneck = self.allow_bottleneck;
        let mut promises = Vec::new();
        let mut given: Vec<ParsedValue<'a, 'i>> = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match name {
                "kind" => {}
                "name" => match value.get_ref().as_str() {
                    Some(text) if !text.trim().is_empty() => phase_name = Some(text.to_owned()),
                    _ => {
                        let found = veche_terminal::describe(value.get_ref());
                        self.add(
                            value.span().start,
                            format!("name: expected a name, found {found}"),
                        );
                    }
                },
                "together" => together = self.flag(name, value),
                "allow_bottleneck" => allow_bottleneck = self.flag(name, value),
                "promise" => promises = self.promises(value),
                _ => match kind {
                    Some(kind) if self.words[kind].has(name) => given.push((key, value)),
                    Some(kind) => {
                        let known = self.words[kind].keys();
                        let scope = format!(" in a phase of kind {:?}", KINDS[kind]);
                        self.unknown(key, &scope, known, &OF_A_PHASE);
                        is_readable = false;
                    }
                    // The kind is missing or invalid, so it is unknown which keys are valid.
                    None => {}
                },
            }
        }
        let kind = kind?;
        let before = self.problems.count();
        let words = self.read_words(kind, &given);
        is_readable &= self.problems.count() == before;
        for (promise, at) in &promises {
            let kinds = promise.kinds();
            if !kinds.is_empty() && !kinds.contains(&KINDS[kind]) {
                let message = format!(
                    "this figure is not measured by a phase of kind {:?}, only by {}",
                    KINDS[kind],
                    one_of(kinds)
                );
                self.add(*at, message);
            }
        }
        // No plan is created, because it would report the keys that could not be parsed as missing.
        if !is_readable {
            return None;
        }
        let (command, plan) = self.plan(at, kind, &words)?;
        Some(ScenarioPhase {
            name: phase_name.unwrap_or_else(|| KINDS[kind].to_owned()),
            together,
            allow_bottleneck,
            command,
            plan,
            promises: promises.into_iter().map(|(promise, _)| promise).collect(),
        })
    }

    /// Returns the index of a phase's kind in [`KINDS`]. Reports a missing or unknown kind.
    fn kind(&mut self, at: usize, table: &DeTable<'_>) -> Option<usize> {
        let found = table.iter().find(|(key, _)| key.get_ref() == "kind");
        let Some((_, value)) = found else {
            self.add(at, format!("kind is missing: {}", one_of(&KINDS)));
            return None;
        };
        let text = value.get_ref().as_str().unwrap_or_default();
        let kind = KINDS.iter().position(|kind| *kind == text);
        if kind.is_none() {
            let hint = veche_types::nearest(text, KINDS)
                .map_or_else(String::new, veche_terminal::did_you_mean);
            let found = veche_terminal::describe(value.get_ref());
            let message = format!("kind: expected {}, found {found}{hint}", one_of(&KINDS));
            self.add(value.span().start, message);
        }
        kind
    }

    /// Reads the values of a phase: first those in the phase, then the file's defaults that apply to it.
    fn read_words(
        &mut self,
        kind: usize,
        given: &[ParsedValue<'a, 'i>],
    ) -> Vec<(usize, FlagValue)> {
        let words = &self.words[kind];
        let defaults = self.defaults.iter().filter(|(key, _)| {
            let name = key.get_ref().as_ref();
            let stands_back = |own: &&ParsedValue<'_, '_>| {
                own.0.get_ref() == name || words.exclude(own.0.get_ref().as_ref(), name)
            };
            words.has(name) && !given.iter().any(|own| stands_back(&own))
        });
        let mut read = Vec::new();
        let mut wrong = Vec::new();
        for (key, value) in given.iter().chain(defaults) {
            let name = key.get_ref().as_ref();
            let word = words.read(name, value.get_ref(), self.folder);
            let word = word.and_then(|mut word| self.url_override.take(&mut word).map(|()| word));
            match word {
                Ok(word) => read.push((value.span().start, word)),
                Err(why) => wrong.push((value.span().start, format!("{name}: {why}"))),
            }
        }
        for (at, message) in wrong {
            self.add(at, message);
        }
        read
    }

    /// Creates the command and the plan that the command line would create from these values. Reports any error and then
    /// returns `None`.
    fn plan(
        &mut self,
        at: usize,
        kind: usize,
        words: &[(usize, FlagValue)],
    ) -> Option<(BenchCommand, Plan)> {
        let plain: Vec<FlagValue> = words.iter().map(|(_, word)| word.clone()).collect();
        let command = match self.words[kind].bench_command(&plain) {
            Ok(command) => command,
            Err(message) => {
                let is_about_given = !message.contains("missing");
                let place = subject(&message, words).filter(|_| is_about_given);
                self.add(place.unwrap_or(at), message);
                return None;
            }
        };
        let (_, _, plan) = command.plan()?;
        let plan = plan.and_then(|plan| limits::check(&[&plan]).map(|()| plan));
        match plan {
            Ok(plan) => Some((command, plan)),
            Err(failure) => {
                let message = in_file_words(failure.message());
                self.add(subject(&message, words).unwrap_or(at), message);
                None
            }
        }
    }

    fn promises(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<(Slo, usize)> {
        let mut promises = Vec::new();
        let Some(table) = value.get_ref().as_table() else {
            let found = veche_terminal::describe(value.get_ref());
            self.add(
                value.span().start,
                format!(
                    "promise: expected a table such as latency.p99 = \"<= 50ms\", found {found}"
                ),
            );
            return promises;
        };
        self.promises_below("", table, &mut promises);
        // Sorts the objectives by their position in the file.
        promises.sort_by_key(|(_, at)| *at);
        promises
    }

    fn promises_below(&mut self, before: &str, table: &DeTable<'_>, to: &mut Vec<(Slo, usize)>) {
        for (key, value) in table {
            let path = format!("{before}{}", key.get_ref());
            if let Some(table) = value.get_ref().as_table() {
                self.promises_below(&format!("{path}."), table, to);
                continue;
            }
            match Slo::read(&path, value.get_ref()) {
                Ok(promise) => to.push((promise, key.span().start)),
                Err(message) => {
                    let is_name = message.starts_with("unknown");
                    let span = if is_name { key.span() } else { value.span() };
                    self.add(span.start, message);
                }
            }
        }
    }

    fn flag(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> bool {
        value.get_ref().as_bool().unwrap_or_else(|| {
            let found = veche_terminal::describe(value.get_ref());
            let message = format!("{name}: expected true or false, found {found}");
            self.add(value.span().start, message);
            false
        })
    }

    fn unknown(&mut self, key: &Key<'_>, scope: &str, known: Vec<String>, more: &[&str]) {
        let name = key.get_ref().as_ref();
        let known = known.iter().map(String::as_str).chain(more.iter().copied());
        let hint = match veche_types::nearest(name, known) {
            Some(meant) => veche_terminal::did_you_mean(meant),
            None => {
                let has = |words: &&CommandFlags| words.has(name);
                let homes = self.words.iter().zip(KINDS).filter(|(words, _)| has(words));
                let homes: Vec<&str> = homes.map(|(_, kind)| kind).collect();
                if homes.is_empty() {
                    String::new()
                } else {
                    format!("; this key belongs to phases of kind {}", homes.join(", "))
                }
            }
        };
        self.add(
            key.span().start,
            format!("unknown key {name:?}{scope}{hint}"),
        );
    }
}

/// Returns the location of the value that an error message concerns. The value is found by its key or its text in the
/// message; `None` if the message contains neither.
fn subject(message: &str, words: &[(usize, FlagValue)]) -> Option<usize> {
    let start = message.split(' ').next().unwrap_or_default();
    let start = start.trim_end_matches(':');
    let named = words.iter().find(|(_, word)| word.key == start);
    let quoted = || {
        words.iter().find(|(_, word)| {
            let is_in = |text: &String| {
                let host = start.split(':').next().unwrap_or_default();
                message.contains(text.as_str()) || (host.len() > 1 && text.contains(host))
            };
            word.texts.iter().filter(|text| text.len() > 3).any(is_in)
        })
    };
    let mentioned = || {
        let is_in = |word: &FlagValue| message.split(' ').any(|part| part == word.key);
        words.iter().find(|(_, word)| is_in(word))
    };
    named.or_else(quoted).or_else(mentioned).map(|(at, _)| *at)
}

pub(super) fn kind_of(command: &BenchCommand) -> &'static str {
    command.plan().map_or("", |(kind, ..)| kind)
}

/// Formats `"a", "b" or "c"`.
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.as_slice() {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
