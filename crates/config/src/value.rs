//! Values of directives: parsing from TOML and writing back.
//!
//! Types, units and ranges are checked here; the syntax of strings is in `names`.

use std::fmt;
use std::time::Duration;

use toml::de::DeValue;

use veche_frontends::rate::Rate;
use veche_terminal::{
    describe, format_duration, format_size, masked_text, nearest_hint, parse_duration, parse_size,
};

use super::rates::{format_rate, parse_rate};
use super::secret::{SecretSource, SecretValue};

/// Maximum number of workers; the memory of mailboxes grows with the square of their number.
pub const WORKERS_MAX: u16 = 256;

/// The type and the range of a directive's values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DirectiveKind {
    /// An integer, or one of several words.
    Integer {
        min: u64,
        max: u64,
        words: &'static [&'static str],
    },
    /// A duration with a unit. If `off` is set, `"off"` or zero disables the directive.
    Duration {
        min: Duration,
        max: Duration,
        off: bool,
    },
    /// A duration with a unit, or one of several words.
    Every {
        min: Duration,
        max: Duration,
        words: &'static [&'static str],
    },
    /// Bytes, with or without a unit, or one of several words.
    Size {
        min: u64,
        max: u64,
        words: &'static [&'static str],
    },
    /// A rate per second, minute or hour, of bytes or events, or `"off"`.
    Rate { bytes: bool },
    /// A share: above 0, at most 1.
    Share,
    /// One of several words; hidden words are accepted but not listed.
    Word {
        words: &'static [&'static str],
        hidden: &'static [&'static str],
    },
    /// A boolean, or one of several words.
    Flag { words: &'static [&'static str] },
    /// A string; `expected` describes it.
    Text { expected: &'static str },
    /// The name of a namespace, which may be empty.
    Namespace,
    /// A non-empty list of strings.
    List { expected: &'static str },
    /// A list of secrets or of their sources; never shown.
    Secrets,
    /// A table of any content.
    Table,
    /// A table of names and strings.
    Pairs {
        /// The words that follow "expected" in the error message.
        expected: &'static str,
        /// Whether user information and the queries of URLs are removed when the value is shown.
        is_masked: bool,
    },
    /// A table with the files of a certificate or the names to order one for, or a list of such tables.
    Certificates,
}

/// The value of a directive, with the type and in the range of its [`DirectiveKind`].
#[derive(Clone, PartialEq)]
pub(crate) enum DirectiveValue {
    Off,
    Word(&'static str),
    Flag(bool),
    Integer(u64),
    Duration(Duration),
    Size(u64),
    Rate(Rate),
    Share(f64),
    Text(String),
    List(Vec<String>),
    Secrets(Vec<SecretSource>),
    Table(toml::Table),
    /// Names and values. Item `i` is at `RawTable::item_at(name, i)` in the file.
    Pairs {
        pairs: Vec<(String, String)>,
        is_masked: bool,
    },
    Certificates(Vec<CertificateSource>),
}

/// Returns whether a name is a valid namespace.
fn is_namespace(name: &str) -> bool {
    if name.starts_with('/') {
        return veche_hub::PathPattern::new(name).is_ok();
    }
    let is_plain = !name.contains([':', '#']) && !name.contains(char::is_control);
    name.len() < veche_hub::NAME_BYTES_MAX && (is_plain || name == veche_hub::USERS)
}

/// The source of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateSource {
    /// The certificate and its key are in files with these configured paths.
    Files { certificate: String, key: String },
    /// The certificate is ordered for these host names (at least one), as configured in `[acme]`.
    Acme(Vec<String>),
}

impl DirectiveKind {
    /// Reads a TOML value; the error completes "expected …".
    pub(crate) fn read(&self, found: &DeValue<'_>) -> Result<DirectiveValue, String> {
        if let Self::Certificates = self {
            return self.certificates(found).map(DirectiveValue::Certificates);
        }
        if let Self::Pairs { is_masked, .. } = *self {
            let pairs = self.pairs(found)?;
            return Ok(DirectiveValue::Pairs { pairs, is_masked });
        }
        self.accept(found).ok_or_else(|| self.refusal(found))
    }

    fn accept(&self, found: &DeValue<'_>) -> Option<DirectiveValue> {
        let text = found.as_str();
        let number = number_of(found);
        match *self {
            Self::Integer { words, .. } if words.contains(&"off") && number == Some(0) => {
                Some(DirectiveValue::Off)
            }
            Self::Integer { min, max, words } => match number {
                Some(number) => (min..=max)
                    .contains(&number)
                    .then_some(DirectiveValue::Integer(number)),
                None => word_of(words, text?),
            },
            Self::Duration { min, max, off } => {
                let duration = match (text, number) {
                    (Some("off"), _) if off => return Some(DirectiveValue::Off),
                    (Some(text), _) => parse_duration(text)?,
                    (None, Some(0)) => Duration::ZERO,
                    _ => return None,
                };
                if off && duration.is_zero() {
                    return Some(DirectiveValue::Off);
                }
                (min..=max)
                    .contains(&duration)
                    .then_some(DirectiveValue::Duration(duration))
            }
            Self::Every { min, max, words } => match parse_duration(text?) {
                Some(every) => (min..=max)
                    .contains(&every)
                    .then_some(DirectiveValue::Duration(every)),
                None => word_of(words, text?),
            },
            Self::Size { min, max, words } => {
                let Some(bytes) = number.or_else(|| text.and_then(parse_size)) else {
                    return word_of(words, text?);
                };
                (min..=max)
                    .contains(&bytes)
                    .then_some(DirectiveValue::Size(bytes))
            }
            Self::Rate { .. } if text == Some("off") || number == Some(0) => {
                Some(DirectiveValue::Off)
            }
            Self::Rate { .. } => parse_rate(text?).map(DirectiveValue::Rate),
            Self::Share => {
                let share = match number {
                    Some(number) => number as f64,
                    None => found.as_float()?.as_str().replace('_', "").parse().ok()?,
                };
                (share > 0.0 && share <= 1.0).then_some(DirectiveValue::Share(share))
            }
            Self::Word { words, hidden } => {
                word_of(words, text?).or_else(|| word_of(hidden, text?))
            }
            Self::Flag { words } => match found.as_bool() {
                Some(flag) => Some(DirectiveValue::Flag(flag)),
                None => word_of(words, text?),
            },
            Self::Text { .. } => text
                .filter(|text| !text.is_empty() && !text.contains(char::is_control))
                .map(|text| DirectiveValue::Text(text.to_owned())),
            Self::Namespace => text
                .filter(|text| is_namespace(text))
                .map(|text| DirectiveValue::Text(text.to_owned())),
            Self::List { .. } => strings(found)
                .filter(|list| !list.is_empty())
                .map(DirectiveValue::List),
            Self::Secrets => {
                let list = found.as_array()?.iter();
                let list = list.map(|item| secret_source(item.get_ref()));
                list.collect::<Option<_>>().map(DirectiveValue::Secrets)
            }
            Self::Table => match plain(found)? {
                toml::Value::Table(table) => Some(DirectiveValue::Table(table)),
                _ => None,
            },
            Self::Certificates | Self::Pairs { .. } => None,
        }
    }

    fn pairs(&self, found: &DeValue<'_>) -> Result<Vec<(String, String)>, String> {
        let Some(table) = found.as_table() else {
            return Err(self.refusal(found));
        };
        let pairs = table.iter().map(|(name, value)| {
            let name = name.get_ref().as_ref();
            match value.get_ref().as_str() {
                Some(text) => Ok((name.to_owned(), text.to_owned())),
                None => {
                    let found = describe(value.get_ref());
                    Err(format!("{name}: expected a string, found {found}"))
                }
            }
        });
        pairs.collect()
    }

    fn certificates(&self, found: &DeValue<'_>) -> Result<Vec<CertificateSource>, String> {
        let expected = || format!("expected {}, found {}", self.expected(), describe(found));
        let (tables, is_list): (Vec<&DeValue<'_>>, bool) = match found {
            DeValue::Table(_) => (vec![found], false),
            DeValue::Array(list) => (list.iter().map(|item| item.get_ref()).collect(), true),
            _ => return Err(expected()),
        };
        if tables.is_empty() {
            return Err(expected());
        }
        let mut read = Vec::new();
        for (index, table) in tables.into_iter().enumerate() {
            let files = source_of(table, || self.expected());
            let files = files.map_err(|why| match is_list {
                true => format!("certificate {}: {why}", index + 1),
                false => why,
            });
            read.push(files?);
        }
        Ok(read)
    }

    fn refusal(&self, found: &DeValue<'_>) -> String {
        let expected = self.expected();
        if matches!(self, Self::Secrets) {
            return format!("expected {expected}, found something else");
        }
        let hint = match found.as_str() {
            Some(text) => nearest_hint(text, self.words().iter().copied()),
            None => self.with_unit(found).unwrap_or_default(),
        };
        format!("expected {expected}, found {}{hint}", describe(found))
    }

    /// Returns a hint that suggests the number in seconds, if `found` is a number without a unit and that duration is valid.
    fn with_unit(&self, found: &DeValue<'_>) -> Option<String> {
        let Self::Duration { .. } = self else {
            return None;
        };
        let text = format!("{}s", number_of(found)?);
        self.accept(&DeValue::String(text.as_str().into()))?;
        Some(format!("; write {text:?}"))
    }

    /// Returns the words that are accepted.
    pub(crate) fn words(&self) -> &'static [&'static str] {
        match self {
            Self::Integer { words, .. }
            | Self::Every { words, .. }
            | Self::Size { words, .. }
            | Self::Word { words, .. }
            | Self::Flag { words } => words,
            Self::Duration { off: true, .. } | Self::Rate { .. } => &["off"],
            _ => &[],
        }
    }

    /// Describes the accepted values for errors and the reference.
    pub(crate) fn expected(&self) -> String {
        let mut choices: Vec<String> = match self {
            Self::Integer { min, max, .. } => vec![format!("a whole number from {min} to {max}")],
            Self::Duration { min, max, .. } | Self::Every { min, max, .. } => {
                vec![format!(
                    "a duration from {:?} to {:?}",
                    format_duration(*min),
                    format_duration(*max)
                )]
            }
            Self::Size { min, max, .. } => {
                vec![format!(
                    "a size from {:?} to {:?}",
                    format_size(*min),
                    format_size(*max)
                )]
            }
            Self::Rate { bytes: true } => vec!["a rate such as \"64KiB/s\"".to_owned()],
            Self::Rate { bytes: false } => vec!["a rate such as \"10/s\" or \"100/m\"".to_owned()],
            Self::Share => vec!["a number above 0 and at most 1".to_owned()],
            Self::Word { .. } => vec![],
            Self::Flag { .. } => vec!["true".to_owned(), "false".to_owned()],
            Self::Text { expected } => vec![(*expected).to_owned()],
            Self::Namespace => vec![
                "the part of channel names before the \":\"".to_owned(),
                "\"\" for channels without one".to_owned(),
                "\"#\" for personal channels".to_owned(),
                "a pattern such as \"/users/:user\"".to_owned(),
            ],
            Self::List { expected } => vec![format!("a list of {expected}")],
            Self::Secrets => {
                vec!["a list of strings, { file = \"FILE\" } and { env = \"NAME\" }".to_owned()]
            }
            Self::Table => vec!["a table such as { greeting = \"hi\" }".to_owned()],
            Self::Pairs { expected, .. } => vec![expected.to_string()],
            Self::Certificates => vec![
                "{ certificate = \"FILE\", key = \"FILE\" }".to_owned(),
                "{ acme = [\"NAME\"] }".to_owned(),
                "a list of these".to_owned(),
            ],
        };
        choices.extend(self.words().iter().map(|word| format!("{word:?}")));
        match choices.as_slice() {
            [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
            _ => choices.concat(),
        }
    }
}

impl fmt::Display for DirectiveValue {
    /// Formats the value as TOML with secrets masked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| toml::Value::from(masked_text(text)).to_string();
        match self {
            Self::Off => f.write_str("\"off\""),
            Self::Word(word) => write!(f, "\"{word}\""),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Duration(duration) => write!(f, "\"{}\"", format_duration(*duration)),
            Self::Size(bytes) => write!(f, "\"{}\"", format_size(*bytes)),
            Self::Share(share) => write!(f, "{share:?}"),
            Self::Rate(rate) => write!(f, "\"{}\"", format_rate(rate)),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::List(list) => {
                write!(
                    f,
                    "[{}]",
                    list.iter()
                        .map(|text| quoted(text))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            Self::Secrets(list) => {
                let shown = |source: &SecretSource| match source {
                    SecretSource::Here(_) => "\"****\"".to_owned(),
                    SecretSource::File(path) => {
                        format!("{{ file = {} }}", quoted(&path.to_string_lossy()))
                    }
                    SecretSource::Variable(name) => format!("{{ env = {} }}", quoted(name)),
                };
                let list: Vec<String> = list.iter().map(shown).collect();
                write!(f, "[{}]", list.join(", "))
            }
            Self::Table(table) => {
                let shown = without_secrets(toml::Value::Table(table.clone()));
                write!(f, "{shown}")
            }
            Self::Pairs { pairs, is_masked } => {
                let shown = |value: &String| match is_masked {
                    true => masked_text(value),
                    false => value.clone(),
                };
                let pairs = pairs.iter();
                let pairs = pairs.map(|(name, value)| (name.clone(), shown(value).into()));
                write!(f, "{}", toml::Value::Table(pairs.collect()))
            }
            Self::Certificates(list) => {
                let one = |source: &CertificateSource| match source {
                    CertificateSource::Files { certificate, key } => {
                        let (certificate, key) = (quoted(certificate), quoted(key));
                        format!("{{ certificate = {certificate}, key = {key} }}")
                    }
                    CertificateSource::Acme(names) => {
                        format!("{{ acme = {} }}", Self::List(names.clone()))
                    }
                };
                match list.as_slice() {
                    [source] => f.write_str(&one(source)),
                    list => {
                        let list: Vec<String> = list.iter().map(one).collect();
                        write!(f, "[{}]", list.join(", "))
                    }
                }
            }
        }
    }
}

impl fmt::Debug for DirectiveValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads a secret or its source.
fn secret_source(found: &DeValue<'_>) -> Option<SecretSource> {
    if let Some(text) = found.as_str() {
        return Some(SecretSource::Here(SecretValue::new(text.to_owned())));
    }
    let table = found.as_table()?;
    let mut pairs = table.iter();
    let (name, value) = pairs.next()?;
    let text = value.get_ref().as_str()?;
    let is_good = !text.is_empty() && !text.contains(char::is_control) && pairs.next().is_none();
    match (name.get_ref().as_ref(), is_good) {
        ("file", true) => Some(SecretSource::File(text.into())),
        ("env", true) => Some(SecretSource::Variable(text.to_owned())),
        _ => None,
    }
}

/// Parses a table that names the source of a certificate.
fn source_of(
    found: &DeValue<'_>,
    expected: impl Fn() -> String,
) -> Result<CertificateSource, String> {
    const NAMES: [&str; 2] = ["certificate", "key"];
    let DeValue::Table(table) = found else {
        return Err(format!(
            "expected {}, found {}",
            expected(),
            describe(found)
        ));
    };
    if let Some(names) = table.get("acme") {
        return match (table.len(), strings(names.get_ref())) {
            (1, Some(names)) if !names.is_empty() => Ok(CertificateSource::Acme(names)),
            (1, _) => {
                let found = describe(names.get_ref());
                Err(format!(
                    "acme: expected a list of host names, found {found}"
                ))
            }
            _ => Err(
                "acme: can't be combined with certificate and key, which the server obtains itself"
                    .to_owned(),
            ),
        };
    }
    let mut paths = NAMES.map(|_| None);
    for (name, value) in table {
        let name = name.get_ref().as_ref();
        let Some(place) = NAMES.iter().position(|other| *other == name) else {
            let hint = nearest_hint(name, NAMES.into_iter().chain(["acme"]));
            return Err(format!(
                "unknown name {name:?}; expected {}{hint}",
                expected()
            ));
        };
        let text = value.get_ref().as_str();
        let path = text.filter(|text| !text.is_empty() && !text.contains(char::is_control));
        let Some(path) = path else {
            let found = describe(value.get_ref());
            return Err(format!(
                "{name}: expected the path of a PEM file, found {found}"
            ));
        };
        paths[place] = Some(path.to_owned());
    }
    match paths {
        [Some(certificate), Some(key)] => Ok(CertificateSource::Files { certificate, key }),
        [Some(_), None] => Err("\"key\" is missing: the PEM file of the private key".to_owned()),
        _ => Err(
            "\"certificate\" is missing: the PEM file of the certificate and its chain".to_owned(),
        ),
    }
}

/// Masks secrets in all texts of a value.
fn without_secrets(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::String(text) => masked_text(&text).into(),
        toml::Value::Array(list) => {
            toml::Value::Array(list.into_iter().map(without_secrets).collect())
        }
        toml::Value::Table(table) => {
            let members = table.into_iter();
            let members = members.map(|(name, value)| (name, without_secrets(value)));
            toml::Value::Table(members.collect())
        }
        other => other,
    }
}

/// Converts a parsed value to a plain TOML value; `None` if it contains a number that is out of range.
fn plain(found: &DeValue<'_>) -> Option<toml::Value> {
    Some(match found {
        DeValue::String(text) => toml::Value::String(text.clone().into_owned()),
        DeValue::Integer(number) => {
            toml::Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()?)
        }
        DeValue::Float(number) => toml::Value::Float(number.as_str().parse().ok()?),
        DeValue::Boolean(flag) => toml::Value::Boolean(*flag),
        DeValue::Datetime(moment) => toml::Value::Datetime(*moment),
        DeValue::Array(list) => {
            let items = list.iter().map(|item| plain(item.get_ref()));
            toml::Value::Array(items.collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let pairs = table.iter().map(|(name, value)| {
                Some((name.get_ref().clone().into_owned(), plain(value.get_ref())?))
            });
            toml::Value::Table(pairs.collect::<Option<_>>()?)
        }
    })
}

fn number_of(found: &DeValue<'_>) -> Option<u64> {
    let number = found.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn word_of(words: &[&'static str], text: &str) -> Option<DirectiveValue> {
    let word = words.iter().find(|word| **word == text)?;
    Some(if *word == "off" {
        DirectiveValue::Off
    } else {
        DirectiveValue::Word(word)
    })
}

fn strings(found: &DeValue<'_>) -> Option<Vec<String>> {
    found
        .as_array()?
        .iter()
        .map(|item| item.get_ref().as_str().map(str::to_owned))
        .collect()
}
