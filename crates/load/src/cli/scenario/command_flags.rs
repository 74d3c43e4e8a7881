//! Reads the keys of a scenario's phase. The keys are the flags of the phase's command, so that
//! each is defined in one place. A value in the file is converted to the text that the command line
//! would contain.

use std::error::Error as _;
use std::path::Path;

use clap::builder::ValueRange;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, FromArgMatches as _, Subcommand as _};
use toml::de::DeValue;

use super::super::command::BenchCommand;
use super::flag_value::FlagValue;

/// The kinds of phases.
pub(super) const KINDS: [&str; 5] = ["storm", "echo", "broadcast", "push", "http"];

/// Flags that apply to a whole scenario and so can't be keys of a phase.
const NOT_HERE: [&str; 8] = [
    "json",
    "html",
    "hgrm",
    "csv",
    "pid",
    "label",
    "find_rate",
    "help",
];

/// The flags of one command.
pub(super) struct CommandFlags {
    kind: &'static str,
    command: Command,
}

impl CommandFlags {
    /// Returns the flags of `kind`, one of [`KINDS`].
    pub(super) fn of(kind: &'static str) -> Self {
        let mut all = bench();
        all.build();
        let command = all
            .find_subcommand(kind)
            .expect("every kind of phase must be a subcommand")
            .clone();
        Self { kind, command }
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.args().map(key).collect()
    }

    fn args(&self) -> impl Iterator<Item = &Arg> {
        let is_here = |arg: &&Arg| !NOT_HERE.contains(&arg.get_id().as_str());
        self.command.get_arguments().filter(is_here)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.arg(name).is_some()
    }

    fn arg(&self, name: &str) -> Option<&Arg> {
        self.args().find(|arg| key(arg) == name)
    }

    /// Returns whether two keys exclude each other.
    pub(super) fn exclude(&self, one: &str, other: &str) -> bool {
        let is_in = |one: &Arg, other: &Arg| {
            let conflicts = self.command.get_arg_conflicts_with(one);
            conflicts.iter().any(|arg| arg.get_id() == other.get_id())
        };
        match (self.arg(one), self.arg(other)) {
            (Some(one), Some(other)) => is_in(one, other) || is_in(other, one),
            _ => false,
        }
    }

    /// Reads a value of the file; relative file names are resolved against `folder`. The error text
    /// describes what is wrong with the value.
    pub(super) fn read(
        &self,
        name: &str,
        value: &DeValue<'_>,
        folder: &Path,
    ) -> Result<FlagValue, String> {
        let arg = self.arg(name).ok_or("unknown")?;
        let word = self.word(arg, name, value, folder).ok_or_else(|| {
            format!(
                "expected {}, found {}",
                expected(arg),
                veche_terminal::describe(value)
            )
        })?;
        // Each value is parsed separately, so that an error concerns only this value.
        let alone = self.command.clone().no_binary_name(true);
        let alone = alone.mut_args(|arg| arg.required(false));
        match alone.try_get_matches_from(word.argv()) {
            Ok(_) => Ok(word),
            Err(error) => {
                let why = error.source().map_or_else(
                    || format!("expected {}", expected(arg)),
                    ToString::to_string,
                );
                Err(format!("{why}, found {}", veche_terminal::describe(value)))
            }
        }
    }

    fn word(&self, arg: &Arg, name: &str, value: &DeValue<'_>, folder: &Path) -> Option<FlagValue> {
        let is_flag = !arg.is_positional();
        let mut word = FlagValue {
            key: name.to_owned(),
            pieces: Vec::new(),
            is_flag,
            texts: Vec::new(),
        };
        let flag = format!("--{}", arg.get_long().unwrap_or_default());
        if !takes_value(arg) {
            if value.as_bool()? {
                word.pieces.push(flag);
            }
            return Some(word);
        }
        word.texts = match value {
            DeValue::Array(list) if is_list(arg) => list
                .iter()
                .map(|item| scalar(item.get_ref()))
                .collect::<Option<_>>()?,
            DeValue::Array(list) if is_ramp(arg) => match &list[..] {
                [from, to] => vec![format!(
                    "{}..{}",
                    number(from.get_ref())?,
                    number(to.get_ref())?
                )],
                _ => return None,
            },
            other => vec![scalar(other)?],
        };
        if is_file(arg) {
            for text in &mut word.texts {
                *text = folder.join(&*text).to_string_lossy().into_owned();
            }
        }
        word.pieces = match is_flag {
            true => word
                .texts
                .iter()
                .map(|text| format!("{flag}={text}"))
                .collect(),
            false => word.texts.clone(),
        };
        Some(word)
    }

    /// Returns the command with all values, as if it were given on the command line.
    pub(super) fn bench_command(&self, words: &[FlagValue]) -> Result<BenchCommand, String> {
        let (flags, plain): (Vec<&FlagValue>, _) = words.iter().partition(|word| word.is_flag);
        let mut argv = vec![self.kind.to_owned()];
        argv.extend(flags.iter().flat_map(|word| word.pieces.clone()));
        argv.push("--".to_owned());
        argv.extend(
            plain
                .iter()
                .flat_map(|word: &&FlagValue| word.pieces.clone()),
        );
        let command = bench().no_binary_name(true);
        command
            .try_get_matches_from(argv)
            .and_then(|matches| BenchCommand::from_arg_matches(&matches))
            .map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &clap::Error) -> String {
        let named = |kind| match error.get(kind) {
            Some(ContextValue::String(one)) => vec![self.in_file(one)],
            Some(ContextValue::Strings(all)) => all.iter().map(|one| self.in_file(one)).collect(),
            _ => Vec::new(),
        };
        match error.kind() {
            ErrorKind::MissingRequiredArgument => {
                let missing = named(ContextKind::InvalidArg);
                let verb = if missing.len() == 1 { "is" } else { "are" };
                format!("{} {verb} missing", missing.join(" and "))
            }
            ErrorKind::ArgumentConflict => {
                let mut both = named(ContextKind::InvalidArg);
                both.extend(named(ContextKind::PriorArg));
                format!("{} exclude each other", both.join(" and "))
            }
            _ => in_file_words(error.to_string().lines().next().unwrap_or_default()),
        }
    }

    /// Returns the file's key for an argument that the parser displays as `--publish <URL>` or
    /// `<URL>`.
    fn in_file(&self, usage: &str) -> String {
        let found = self.args().find(|arg| arg.to_string() == usage);
        found.map_or_else(|| in_file_words(usage), key)
    }
}

fn bench() -> Command {
    BenchCommand::augment_subcommands(Command::new("bench"))
}

/// Replaces flags in a text by the keys of the file: `--connect-rate` becomes `connect_rate`.
pub(super) fn in_file_words(text: &str) -> String {
    let mut parts = text.split("--");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .unwrap_or(part.len());
        out += &part[..end].replace('-', "_");
        out += &part[end..];
    }
    out
}

fn key(arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => long.replace('-', "_"),
        // The internal name of an argument with several values is a plural; the key is the
        // singular.
        None => arg.get_id().as_str().trim_end_matches('s').to_owned(),
    }
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_num_args().unwrap_or_else(|| {
        if arg.get_action().takes_values() {
            ValueRange::SINGLE
        } else {
            ValueRange::EMPTY
        }
    }) != ValueRange::EMPTY
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

fn is_ramp(arg: &Arg) -> bool {
    value_name(arg) == "N|N..M"
}

fn is_file(arg: &Arg) -> bool {
    value_name(arg) == "FILE"
}

fn value_name(arg: &Arg) -> &str {
    let names = arg.get_value_names().unwrap_or_default();
    names.first().map_or("", clap::builder::Str::as_str)
}

fn expected(arg: &Arg) -> String {
    let one = match value_name(arg) {
        _ if !takes_value(arg) => "true or false",
        "N" => "a number",
        "N|N..M" => "a number, or two as [from, to]",
        "DURATION" => "a duration such as \"10s\"",
        "DURATION|MIN..MAX" => "a duration such as \"10s\", or two such as \"5s..10s\"",
        "SIZE" => "a size such as 128 or \"8KiB\"",
        "IP" => "an IP address",
        "FILE" => "the name of a file",
        "URL" => "a URL",
        "MESSAGE => ANSWER" => "a message and its answer such as \"2 => 3\"",
        "NAME: VALUE" => "a header such as \"X-API-Key: demo\"",
        _ => "a text",
    };
    if is_list(arg) {
        format!("{one}, or a list of them")
    } else {
        one.to_owned()
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        other => number(other),
    }
}

fn number(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &'static str, key: &str, value: &str) -> Result<Vec<String>, String> {
        let value = DeValue::parse(value).unwrap();
        let word = CommandFlags::of(kind).read(key, value.get_ref(), Path::new("dir"));
        word.map(|word| word.pieces)
    }

    #[test]
    fn values_become_flags() {
        for (kind, key, value, expected) in [
            ("echo", "connections", "1_000", "--connections=1000"),
            ("echo", "duration", "\"10s\"", "--duration=10s"),
            ("echo", "rate", "[100, 5000]", "--rate=100..5000"),
            ("http", "rate", "2.5", "--rate=2.5"),
            ("echo", "size", "\"8KiB\"", "--size=8KiB"),
            ("echo", "deflate", "true", "--deflate"),
            ("echo", "file", "\"a.txt\"", "--file=dir/a.txt"),
            ("http", "method", "\"POST\"", "--method=POST"),
            ("echo", "url", "\"ws://h/\"", "ws://h/"),
            ("push", "connect_rate", "50", "--connect-rate=50"),
            ("push", "arrivals", "\"random\"", "--arrivals=random"),
            ("http", "think", "\"1s..2s\"", "--think=1s..2s"),
            ("echo", "answer", "\"2 => 3\"", "--answer=2 => 3"),
        ] {
            assert_eq!(
                read(kind, key, value),
                Ok(vec![expected.to_owned()]),
                "{key}"
            );
        }
        assert_eq!(read("echo", "deflate", "false"), Ok(Vec::new()));
        let two = vec!["--header=A: 1".to_owned(), "--header=B: 2".to_owned()];
        assert_eq!(read("echo", "header", "[\"A: 1\", \"B: 2\"]"), Ok(two));
    }

    #[test]
    fn invalid_flags_are_reported() {
        for (key, value, message) in [
            ("connections", "0", "0 is not in 1..=4294967295, found 0"),
            ("connections", "true", "expected a number, found true"),
            (
                "duration",
                "10",
                "expected a duration such as \"30s\", found 10",
            ),
            (
                "rate",
                "[1, 2, 3]",
                "expected a number, or two as [from, to], found a list with 1 in it",
            ),
            (
                "rate",
                "-1",
                "expected a number from 0.001 to 1,000,000,000, found -1",
            ),
            (
                "size",
                "\"lots\"",
                "expected a size such as \"20\" or \"8KiB\", found \"lots\"",
            ),
            (
                "think",
                "\"2s..1s\"",
                "expected the shorter pause first, as in 1s..5s, found \"2s..1s\"",
            ),
            (
                "answer",
                "\"ping\"",
                "expected a message and its answer, such as \"2 => 3\", found \"ping\"",
            ),
            (
                "deflate",
                "\"yes\"",
                "expected true or false, found \"yes\"",
            ),
        ] {
            assert_eq!(read("echo", key, value), Err(message.to_owned()), "{key}");
        }
    }

    #[test]
    fn flags_of_the_whole_are_no_words_of_a_phase() {
        for kind in KINDS {
            let words = CommandFlags::of(kind);
            assert!(words.has("url") && words.has("connections"));
            for name in ["json", "csv", "hgrm", "find_rate"] {
                assert!(!words.has(name), "{kind} {name}");
            }
        }
        assert!(CommandFlags::of("echo").exclude("inflight", "rate"));
        assert!(CommandFlags::of("echo").exclude("message", "size"));
        assert!(!CommandFlags::of("echo").exclude("size", "rate"));
        assert_eq!(
            in_file_words("--publish-header \"x\": no"),
            "publish_header \"x\": no"
        );
    }
}
