//! Example values of directives, for errors.

use std::time::Duration;

use veche_terminal::{format_duration, format_size};

use super::directives::{DefaultValue, Directive};
use super::value::DirectiveKind;

/// Defaults that are not useful as examples.
const TELLING_NOTHING: &[&str] = &["\"off\"", "\"none\"", "\"auto\"", "[]", "false"];

/// Example values for texts. Each pair has the beginning of a directive's `expected` text, and an example for it.
const TEXTS: &[(&str, &str)] = &[
    ("a URL", "https://example.com/veche"),
    ("the path of a PEM file", "/etc/veche/cert.pem"),
    ("the path of a Lua file", "app.lua"),
    ("the path of a file", "/etc/veche/api.key"),
    ("the path of a folder", "/var/lib/veche"),
    ("the path of a socket", "/run/veche/veche.sock"),
    ("a folder", "public"),
    ("the name or number of", "veche"),
    ("the name of a variable", "VECHE_SECRET"),
    ("the name of a claim", "sub"),
    ("the name of an [[app]]", "main"),
    ("a name of letters", "main"),
    ("a listener's name", "public"),
];

impl Directive {
    /// Returns a line with the directive and a valid value; `None` if no example is known.
    pub(super) fn example(&self) -> Option<String> {
        let value = match self.default {
            DefaultValue::Toml(text) if !TELLING_NOTHING.contains(&text) => text.to_owned(),
            _ => self.kind.example()?,
        };
        Some(format!("{} = {value}", self.name))
    }
}

impl DirectiveKind {
    fn example(&self) -> Option<String> {
        Some(match *self {
            Self::Integer { min, max, .. } => 10.clamp(min, max).to_string(),
            Self::Duration { min, max, .. } | Self::Every { min, max, .. } => {
                let duration = Duration::from_secs(10).clamp(min, max);
                format!("{:?}", format_duration(duration))
            }
            Self::Size { min, max, .. } => format!("{:?}", format_size((1 << 20).clamp(min, max))),
            Self::Rate { bytes: true } => "\"64KiB/s\"".to_owned(),
            Self::Rate { bytes: false } => "\"100/m\"".to_owned(),
            Self::Share => "0.5".to_owned(),
            Self::Word { words, .. } => format!("{:?}", words.last()?),
            Self::Flag { .. } => "true".to_owned(),
            Self::Text { expected } => text(expected)?,
            Self::Namespace => "\"chat\"".to_owned(),
            Self::List { expected } => expected[expected.find('[')?..].to_owned(),
            Self::Secrets => "[{ file = \"/etc/veche/api.key\" }]".to_owned(),
            Self::Table => "{ greeting = \"hi\" }".to_owned(),
            Self::Pairs { expected, .. } => expected.replace("a table such as ", ""),
            Self::Certificates => "{ certificate = \"cert.pem\", key = \"key.pem\" }".to_owned(),
        })
    }
}

/// Returns the example that [`TEXTS`] lists for an expectation, or else the quoted text in the expectation.
fn text(expected: &str) -> Option<String> {
    let known = TEXTS.iter().find(|(start, _)| expected.starts_with(start));
    if let Some((_, example)) = known {
        return Some(format!("{example:?}"));
    }
    let quoted = expected.split('"').nth(1)?;
    Some(format!("{quoted:?}"))
}
