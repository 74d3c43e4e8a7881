//! Classification of the errors of calls, so that programs can handle them: the kind, the error code of the called server,
//! and whether the same call may succeed later.
//!
//! Errors are texts. An error of a call ends with its kind in brackets, so that the kind can be parsed even after a Lua
//! script has passed the text on. The error code of a database has a fixed place in the text and is parsed from there.
//! Handlers in other processes get the same classification as fields of a frame.

use veche_calls::{CallError, CallErrorKind};
use veche_types::codes::ErrorCode;

use crate::{CLOSED, GONE};

/// The kind of errors caused by a full queue or an exhausted limit.
pub const FULL: &str = "full";

/// The error text of a wait whose coroutine was cancelled.
const CANCELLED: &str = "cancelled";

/// MySQL error codes of statements that had no effect and may succeed later: deadlocks, lock timeouts, too many
/// connections, a row changed since the transaction started.
const MYSQL_PASSES: [u32; 6] = [1020, 1040, 1203, 1205, 1213, 3572];

/// Redis errors of commands that had no effect and may succeed later: the server is loading data, is running a script, or is
/// separated from other nodes.
const REDIS_PASSES: [&str; 6] = [
    "LOADING",
    "BUSY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "NOREPLICAS",
];

/// Appends the kind, and `code` if given, in brackets to an error text. `code` is the error code of the called server; it is
/// given only if the text does not contain it.
#[must_use]
pub fn tagged(words: &str, kind: &str, code: Option<u32>) -> String {
    match code {
        Some(code) => format!("{words} [{kind} {code}]"),
        None => format!("{words} [{kind}]"),
    }
}

/// The classification of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorInfo<'a> {
    /// The kind of the error: that of a failed call, [`FULL`], `closed`, `cancelled` or [`SCRIPT`].
    pub kind: &'a str,
    /// The error code of the called server, if it sent one.
    pub code: Option<CodeValue<'a>>,
    /// Whether the call had no effect and may succeed if it is repeated later.
    pub is_retryable: bool,
    /// The error text without the kind in brackets.
    pub message: &'a str,
}

/// The error code of the called server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeValue<'a> {
    /// A number, as in MySQL, HTTP and Veche's own API.
    Number(u32),
    /// A name, as in Redis.
    Name(&'a str),
}

/// The kind of errors of the script itself, or of a module that calls no server.
pub const SCRIPT: &str = "script";

/// The kind of errors of closed connections.
const IS_CLOSED: &str = "closed";

/// Returns the error code of the called server, and whether the call had no effect and may succeed if it is repeated later.
#[must_use]
pub fn of_call(error: &CallError) -> (Option<CodeValue<'_>>, bool) {
    let (code, passes) = code(&error.words);
    (code, is_retryable(error.kind.name(), passes))
}

/// Returns whether a call with an error of this kind had no effect and may succeed if it is repeated later. `passes`
/// says whether the error code of the called server indicates a temporary condition.
fn is_retryable(kind: &str, passes: bool) -> bool {
    match kind {
        _ if kind == CallErrorKind::PoolFull.name() || kind == FULL => true,
        _ if kind == CallErrorKind::Unreachable.name() => true,
        _ if kind == CallErrorKind::Refused.name() => passes,
        _ => false,
    }
}

/// Classifies an error text.
#[must_use]
pub fn read(words: &str) -> ErrorInfo<'_> {
    let (words, _) = words
        .split_once("\nstack traceback:")
        .unwrap_or((words, ""));
    let Some((message, kind, tag_code)) = without_tag(words) else {
        let is = |what: &str| words.strip_suffix(what).is_some_and(is_place);
        let kind = match words {
            _ if is(CLOSED) || is(GONE) => IS_CLOSED,
            _ if is(CANCELLED) => CANCELLED,
            _ => SCRIPT,
        };
        return ErrorInfo {
            kind,
            code: None,
            is_retryable: false,
            message: words,
        };
    };
    let (code, passes) = match tag_code {
        Some(number) => (
            Some(CodeValue::Number(number)),
            number == ErrorCode::TooManyRequests.code(),
        ),
        None => code(message),
    };
    ErrorInfo {
        kind,
        code,
        is_retryable: is_retryable(kind, passes),
        message,
    }
}

/// Returns whether a text is empty or only a position in a script, such as `app.lua:7: `.
fn is_place(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_suffix(": ")
            .and_then(|place| place.rsplit_once(':'))
            .is_some_and(|(_, line)| line.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Splits a text into the part before the tag in brackets, and the tag's kind and code. Returns `None` if the text has
/// no tag.
fn without_tag(words: &str) -> Option<(&str, &str, Option<u32>)> {
    let (message, tag) = words.strip_suffix(']')?.rsplit_once(" [")?;
    let (kind, code) = match tag.split_once(' ') {
        Some((kind, code)) => (kind, Some(code.parse().ok()?)),
        None => (tag, None),
    };
    let is_known = kind == FULL || CallErrorKind::ALL.iter().any(|known| known.name() == kind);
    is_known.then_some((message, kind, code))
}

/// Parses the error code of the called server. Returns the code, and whether it indicates a temporary condition.
fn code(message: &str) -> (Option<CodeValue<'_>>, bool) {
    let behind = |client: &str| message.split_once(client).map(|(_, behind)| behind);
    if let Some(text) = behind("mysql: ") {
        let number = text.split_once(" (").map(|(number, _)| number.parse());
        if let Some(Ok(number)) = number {
            return (
                Some(CodeValue::Number(number)),
                MYSQL_PASSES.contains(&number),
            );
        }
    }
    if let Some(text) = behind("redis: ") {
        let (text, is_alone) = match text.strip_prefix("command ") {
            // Other commands of the pipeline were executed, so the call is not retryable.
            Some(text) => (text.split_once(": ").map_or("", |(_, text)| text), false),
            None => (text, true),
        };
        let name = text.split([' ', '\n']).next().unwrap_or_default();
        let is_code = name.len() > 1 && name.bytes().all(|byte| byte.is_ascii_uppercase());
        if is_code {
            let passes = is_alone && REDIS_PASSES.contains(&name);
            return (Some(CodeValue::Name(name)), passes);
        }
    }
    (None, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_their_kind_and_their_code() {
        let number = |number| Some(CodeValue::Number(number));
        for (words, kind, code, is_retryable, message) in [
            (
                "app.lua:7: mysql: no result within 30s [timeout]",
                "timeout",
                None,
                false,
                "app.lua:7: mysql: no result within 30s",
            ),
            ("mysql: x [pool_full]", "pool_full", None, true, "mysql: x"),
            (
                "redis: x [unreachable]",
                "unreachable",
                None,
                true,
                "redis: x",
            ),
            (
                "could not save: app.lua:7: mysql: 1213 (40001): Deadlock [refused]",
                "refused",
                number(1213),
                true,
                "could not save: app.lua:7: mysql: 1213 (40001): Deadlock",
            ),
            (
                "mysql: 1062 (23000): Duplicate entry 'x [timeout]' [refused]\nstack traceback:\n\tx [broken]",
                "refused",
                number(1062),
                false,
                "mysql: 1062 (23000): Duplicate entry 'x [timeout]'",
            ),
            (
                "mysql: 1927 (70100): Connection was killed [connection_lost]",
                "connection_lost",
                number(1927),
                false,
                "mysql: 1927 (70100): Connection was killed",
            ),
            (
                "redis: LOADING Redis is loading [refused]",
                "refused",
                Some(CodeValue::Name("LOADING")),
                true,
                "redis: LOADING Redis is loading",
            ),
            (
                "redis: command 2: TRYAGAIN [refused]",
                "refused",
                Some(CodeValue::Name("TRYAGAIN")),
                false,
                "redis: command 2: TRYAGAIN",
            ),
            (
                "slow down [refused 111]",
                "refused",
                number(111),
                true,
                "slow down",
            ),
            (
                "ws://x: no [refused 403]",
                "refused",
                number(403),
                false,
                "ws://x: no",
            ),
            ("it is full [full]", "full", None, true, "it is full"),
            (
                "a.lua:1: cancelled",
                "cancelled",
                None,
                false,
                "a.lua:1: cancelled",
            ),
            (CLOSED, "closed", None, false, CLOSED),
            (
                "a.lua:1: the client is gone",
                "closed",
                None,
                false,
                "a.lua:1: the client is gone",
            ),
            (
                "the order was cancelled",
                "script",
                None,
                false,
                "the order was cancelled",
            ),
            ("a [7]", "script", None, false, "a [7]"),
            ("a [timeout] b", "script", None, false, "a [timeout] b"),
            ("a [refused x]", "script", None, false, "a [refused x]"),
            ("[timeout]", "script", None, false, "[timeout]"),
            ("", "script", None, false, ""),
        ] {
            let about = ErrorInfo {
                kind,
                code,
                is_retryable,
                message,
            };
            assert_eq!(read(words), about);
        }
        for kind in CallErrorKind::ALL {
            let words = tagged("x", kind.name(), None);
            assert_eq!(read(&words).kind, kind.name());
        }
        assert_eq!(read(&tagged("x", FULL, Some(7))).code, number(7));
    }
    #[test]
    fn errors_of_calls_have_the_code_and_the_advice_of_their_text() {
        use CallErrorKind::{ConnectionLost, Invalid, PoolFull, Refused, Unreachable};
        for (kind, words, code, is_retryable) in [
            (
                Refused,
                "mysql: 1213 (40001): Deadlock",
                Some(CodeValue::Number(1213)),
                true,
            ),
            (
                Refused,
                "mysql: 1062 (23000): Duplicate",
                Some(CodeValue::Number(1062)),
                false,
            ),
            (
                ConnectionLost,
                "mysql: 1213 (40001): x",
                Some(CodeValue::Number(1213)),
                false,
            ),
            (
                Refused,
                "redis: LOADING it reads",
                Some(CodeValue::Name("LOADING")),
                true,
            ),
            (
                Refused,
                "redis: WRONGTYPE it is a list",
                Some(CodeValue::Name("WRONGTYPE")),
                false,
            ),
            (Unreachable, "http: no route", None, true),
            (PoolFull, "redis: no connection", None, true),
            (
                Invalid,
                "mysql: there is no database with that number",
                None,
                false,
            ),
        ] {
            let error = CallError::new(kind, words);
            assert_eq!(of_call(&error), (code, is_retryable), "{words}");
            let text = tagged(words, kind.name(), None);
            let about = read(&text);
            assert_eq!(
                (about.code, about.is_retryable),
                (code, is_retryable),
                "{words}"
            );
        }
    }
}
