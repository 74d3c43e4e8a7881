//! A TOML file as shown in error messages: its text, syntax errors and values.

use std::io::{self, Read as _};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use veche_calls::masked;

use crate::problems::{Problem, ProblemReport, Problems};

/// Maximum size of a configuration file: a wrong path in `-c` must not fill the memory, and two
/// configuration texts have to fit in one line of the control link to the server process.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads the text of the file at `path`.
///
/// # Errors
/// The file can't be read. The report contains this one problem.
pub fn read(path: &Path) -> Result<String, ProblemReport> {
    read_text(path).map_err(|error| {
        let problem = Problem {
            file: path.to_owned(),
            place: None,
            message: unreadable(&error),
            excerpt: None,
        };
        ProblemReport {
            problems: vec![problem],
            unreadable: true,
        }
    })
}

/// Reads the text of the file at `path`.
///
/// # Errors
/// The file can't be read, or is longer than 1 MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    veche_files::read(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("the file is longer than 1 MiB"));
    }
    Ok(text)
}

/// Returns why the configuration file can't be read, and how to create one if it is missing.
#[must_use]
pub fn unreadable(error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => {
            "; use another one with -c FILE, or create an application with `veche new NAME`"
        }
        _ => "",
    };
    format!("can't be read: {}{hint}", plain(error))
}

/// Formats a system error without its number.
#[must_use]
pub fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    }
}

/// Parses `text` as far as possible and reports syntax errors. `header` returns the header of the section
/// with a name, such as `[[route]]`. Also returns the lines with syntax errors. After an error the
/// parser guesses what was meant, so further errors on these lines may be caused by a wrong guess.
pub fn document<'t>(
    text: &'t str,
    header: impl Fn(&str) -> Option<&'static str>,
    problems: &mut Problems<'_>,
) -> (Spanned<DeTable<'t>>, Vec<u32>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let message = not_toml(text, error.message(), error.span(), &header);
        problems.add(
            error.span().map(|span| span.start),
            format!("not TOML: {message}"),
        );
    }
    let broken_lines = errors
        .iter()
        .filter_map(|e| Some(problems.place(e.span()?.start).line))
        .collect();
    (document, broken_lines)
}

/// Returns the parser's message, or a clearer one for a common mistake.
fn not_toml(
    text: &str,
    message: &str,
    span: Option<std::ops::Range<usize>>,
    header: &impl Fn(&str) -> Option<&'static str>,
) -> String {
    let Some(span) = span else {
        return message.to_owned();
    };
    let word = text.get(span.clone()).unwrap_or_default();
    if message == "duplicate key" {
        return match header(word).filter(|header| header.starts_with("[[")) {
            Some(header) => format!("duplicate key; write {header}"),
            None => format!("duplicate key: {word:?} was set before"),
        };
    }
    let (before, rest) = (
        text.get(..span.start).unwrap_or_default(),
        text.get(span.start..).unwrap_or_default(),
    );
    let bare = &rest[..rest
        .find(|c: char| c.is_whitespace() || c == '#')
        .unwrap_or(rest.len())];
    if before.trim_end_matches(' ').ends_with('=')
        && bare.starts_with(|c: char| c.is_alphabetic() || c == '/')
    {
        return format!(
            "strings need quotes: {:?}",
            bare.chars().take(60).collect::<String>()
        );
    }
    if matches!(
        message,
        "key with no value, expected `=`"
            | "invalid unquoted key, expected letters, numbers, `-`, `_`"
    ) {
        return unassigned(line_at(text, span.start), message, header);
    }
    if matches!(
        message,
        "invalid basic string, expected `\"`" | "invalid literal string, expected `'`"
    ) {
        return format!("{message}: the string is not closed on its line");
    }
    message.to_owned()
}

/// Returns the trimmed line at byte `offset`.
fn line_at(text: &str, offset: usize) -> &str {
    let (before, rest) = text.split_at_checked(offset).unwrap_or((text, ""));
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = offset + rest.find('\n').unwrap_or(rest.len());
    text.get(start..end).unwrap_or_default().trim()
}

/// Returns the message about a line without `=`. If the line is in YAML's or another known notation, the message shows
/// how to write it in TOML.
fn unassigned(line: &str, message: &str, header: &impl Fn(&str) -> Option<&'static str>) -> String {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let value = |text: &str| {
        let text = text.trim();
        match text.parse::<f64>().is_ok() || matches!(text, "true" | "false") {
            true => text.to_owned(),
            false => format!("\"{}\"", text.trim_matches('"')),
        }
    };
    let line = line.strip_prefix("- ").unwrap_or(line);
    let hint = match line.split_once(':') {
        Some((name, "")) if is_name(name) => {
            let header = header(name).unwrap_or("[section]");
            format!("; this looks like YAML, but the configuration is TOML: write {header}")
        }
        Some((name, text)) if is_name(name) && text.starts_with(' ') => format!(
            "; this looks like YAML, but the configuration is TOML: write {name} = {}",
            value(text)
        ),
        _ => match line.split_once(' ') {
            Some((name, text)) if is_name(name) => format!("; write {name} = {}", value(text)),
            _ => return message.to_owned(),
        },
    };
    format!("{message}{hint}")
}

/// The longest value that an error repeats, in characters.
const FOUND_CHARS_MAX: usize = 60;

/// Returns a text of the file. If the text contains a URL, user information and query are removed.
#[must_use]
pub fn masked_text(text: &str) -> String {
    match text.contains("://") {
        true => masked(text),
        false => text.to_owned(),
    }
}

/// Masks the URLs in a line like [`masked_text`]. Each URL must be in quotes, or be the only URL in
/// the line.
#[must_use]
pub fn masked_urls(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for (index, piece) in line.split('"').enumerate() {
        if index > 0 {
            shown.push('"');
        }
        shown.push_str(&masked_text(piece));
    }
    shown
}

/// Formats a value on one line as in a TOML file, with masked URLs.
#[must_use]
pub fn describe(found: &DeValue<'_>) -> String {
    match found {
        DeValue::String(text) if text.is_empty() => "an empty string".to_owned(),
        DeValue::String(text) if text.chars().count() > FOUND_CHARS_MAX => {
            format!(
                "{:?}…",
                masked_text(text)
                    .chars()
                    .take(FOUND_CHARS_MAX)
                    .collect::<String>()
            )
        }
        DeValue::String(text) => format!("{:?}", masked_text(text)),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date or time".to_owned(),
        DeValue::Array(list) if list.is_empty() => "an empty list".to_owned(),
        DeValue::Array(list) => match list.iter().find(|item| item.get_ref().as_str().is_none()) {
            Some(odd) => format!("a list with {} in it", describe(odd.get_ref())),
            None => "a list of strings".to_owned(),
        },
        DeValue::Table(_) => "a table".to_owned(),
    }
}
