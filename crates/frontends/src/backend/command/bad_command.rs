//! Errors in the JSON objects of commands: their texts, and the retry without unknown fields.

use std::borrow::Cow;

use serde_json::value::RawValue;
use veche_types::codes::ErrorCode;
use veche_types::nearest;

/// The reason why a command is invalid, as text for people.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadCommand {
    /// The description of the problem.
    pub reason: String,
    /// The error code of the API.
    pub code: ErrorCode,
    /// The index after the unknown field's name in the JSON text, if the error is an unknown field.
    unknown_field: Option<usize>,
}

/// Maximum length of the error text in bytes, since it may quote a long line.
const WHY_BYTES_MAX: usize = 400;

/// Maximum number of unknown fields ignored per object.
const UNKNOWN_MAX: usize = 64;

impl BadCommand {
    /// Creates an error with a text that may quote input; the middle of a long text is omitted.
    pub fn new(why: impl Into<String>) -> Self {
        let mut why = why.into();
        if why.len() > WHY_BYTES_MAX {
            let head = why.floor_char_boundary(WHY_BYTES_MAX / 2);
            let tail = why.ceil_char_boundary(why.len() - WHY_BYTES_MAX / 2);
            why = format!("{} … {}", &why[..head], &why[tail..]);
        }
        Self {
            reason: why,
            code: ErrorCode::BadRequest,
            unknown_field: None,
        }
    }

    /// Returns the error for a channel whose namespace is unknown, with the text that Centrifugo uses.
    pub(crate) fn unknown_channel() -> Self {
        Self {
            code: ErrorCode::UnknownChannel,
            ..Self::new("unknown channel")
        }
    }

    /// Returns the index after the unknown field's name in the JSON text, if the error is an unknown field.
    pub(crate) fn unknown_field(&self) -> Option<usize> {
        self.unknown_field
    }

    /// Converts serde's error about `bytes` to a [`BadCommand`].
    pub(super) fn of_json(error: &serde_json::Error, bytes: &[u8]) -> Self {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Self::new("expected a JSON object, found nothing");
        }
        // serde's "at line 1" is removed, because a caller that sends lines would take it for the number of a sent line.
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or(&text);
        let mut names = what.split('`').skip(1).step_by(2);
        let is_unknown_field = what.starts_with("unknown field `");
        let meant = names.next().filter(|_| is_unknown_field);
        let meant = meant.and_then(|found| Some((found, nearest(found, names)?)));
        let what = match meant {
            Some((found, meant)) => format!("unknown field `{found}`; did you mean `{meant}`?"),
            None => what.to_owned(),
        };
        let why = match error.column() {
            0 => format!("bad JSON: {what}"),
            column => format!("bad JSON at column {column}: {what}"),
        };
        let mut lines = memchr::memchr_iter(b'\n', bytes).map(|at| at + 1);
        let line = match error.line() {
            0 | 1 => Some(0),
            line => lines.nth(line - 2),
        };
        Self {
            unknown_field: line
                .map(|start| start + error.column())
                .filter(|_| is_unknown_field),
            ..Self::new(why)
        }
    }
}

pub(super) fn bad<T>(text: &str) -> Result<T, BadCommand> {
    Err(BadCommand::new(text))
}

/// Calls `attempt` with an object. If `unknown_field` returns an index for the error (the end of an unknown field's
/// name), removes this field from a copy of the object and calls `attempt` again. Any other error is returned.
pub(crate) fn retry_without_unknown_fields<T, E>(
    bytes: &[u8],
    mut attempt: impl FnMut(&[u8]) -> Result<T, E>,
    unknown_field: impl Fn(&E) -> Option<usize>,
) -> Result<T, E> {
    let mut rest = Cow::Borrowed(bytes);
    for _ in 0..UNKNOWN_MAX {
        let error = match attempt(&rest) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if unknown_field(&error)
            .and_then(|end| blank_field(rest.to_mut(), end))
            .is_none()
        {
            return Err(error);
        }
    }
    attempt(&rest)
}

/// Overwrites the name and value of a field, and one comma, with spaces. `end` is the index after the name and any
/// white space that follows it. Returns `None` if the field can't be found.
fn blank_field(object: &mut [u8], end: usize) -> Option<()> {
    let name = object.get(..end)?.trim_ascii_end();
    let end = name.len();
    let name = name.strip_suffix(b"\"")?;
    // A quote within the name is preceded by an odd number of backslashes.
    let is_escaped = |at: usize| {
        let before = name[..at].iter().rev();
        before.take_while(|byte| **byte == b'\\').count() % 2 == 1
    };
    let start = memchr::memrchr_iter(b'"', name).find(|at| !is_escaped(*at))?;
    let is_sign = |byte: &u8| !byte.is_ascii_whitespace();
    let colon = end + object[end..].iter().position(is_sign)?;
    let value = object.get(colon + 1..)?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter::<&RawValue>();
    values.next()?.ok()?;
    let mut stop = colon + 1 + values.byte_offset();
    let mut start = start;
    let next = stop + object[stop..].iter().position(is_sign)?;
    if object[next] == b',' {
        stop = next + 1;
    } else if let Some(comma) = object[..start].iter().rposition(is_sign)
        && object[comma] == b','
    {
        start = comma;
    }
    object[start..stop].fill(b' ');
    Some(())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Known {
        a: Option<u32>,
        #[serde(default)]
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        limit: u32,
    }

    fn read(text: &str) -> Result<Known, BadCommand> {
        super::super::read(text.as_bytes())
    }

    fn read_known(text: &str) -> Result<Known, BadCommand> {
        let attempt = |bytes: &[u8]| super::super::read(bytes);
        retry_without_unknown_fields(text.as_bytes(), attempt, BadCommand::unknown_field)
    }

    #[test]
    fn an_unknown_field_names_the_nearest() {
        let why = |text| read(text).expect_err(text).reason;
        let near = why(r#"{"a":1,"iner":[]}"#);
        assert!(
            near.ends_with("unknown field `iner`; did you mean `inner`?"),
            "{near}"
        );
        let nested = why(r#"{"inner":[{"limt":1}]}"#);
        assert!(
            nested.ends_with("`limt`; did you mean `limit`?"),
            "{nested}"
        );
        let far = why(r#"{"nothing_like_it":1}"#);
        assert!(far.ends_with("expected `a` or `inner`"), "{far}");
    }

    #[test]
    fn unknown_fields_are_passed_over_wherever_they_stand() {
        let expected = Known {
            a: Some(1),
            inner: vec![Inner { limit: 2 }],
        };
        for text in [
            r#"{"a":1,"inner":[{"limit":2}]}"#,
            r#"{"x":{"a":[1,"}"]},"a":1,"inner":[{"limit":2}]}"#,
            r#"{"a":1,"inner":[{"limit":2,"x":null}], "y" : "\"," }"#,
            "{\n\"a\":1,\n\n\"x\\\"y\":\n[],\"inner\":[{\"x\":1,\"limit\":2,\"x\":true}]}",
            "{\"вече\":\"д\",\"a\":1,\"é\\\\\":2,\"inner\":[{\"limit\":2}]}",
        ] {
            assert_eq!(read_known(text).as_ref(), Ok(&expected), "{text}");
        }
        let all_unknown = read_known(r#"{"x":1}"#).expect("nothing is left");
        assert_eq!((all_unknown.a, all_unknown.inner.len()), (None, 0));
        for text in [r#"{"x":1,"a":"b"}"#, r#"{"x":1"#, r#"{"x":}"#, "[]", ""] {
            assert!(read_known(text).is_err(), "{text}");
        }
        let many = (0..UNKNOWN_MAX + 2).map(|number| format!("\"x{number}\":1"));
        let many = format!("{{{}}}", many.collect::<Vec<_>>().join(","));
        assert!(read_known(&many).is_err());
    }

    #[test]
    fn a_long_mistake_is_cut_in_its_middle() {
        let short = "x".repeat(WHY_BYTES_MAX);
        assert_eq!(BadCommand::new(short.clone()).reason, short);
        let long = "a".repeat(WHY_BYTES_MAX) + &"b".repeat(WHY_BYTES_MAX);
        let cut = BadCommand::new(long).reason;
        let (head, tail) = ("a".repeat(WHY_BYTES_MAX / 2), "b".repeat(WHY_BYTES_MAX / 2));
        assert!(cut.starts_with(&head) && cut.ends_with(&tail), "{cut}");
        assert!(
            (WHY_BYTES_MAX..WHY_BYTES_MAX + 10).contains(&cut.len()),
            "{}",
            cut.len()
        );
    }
}
