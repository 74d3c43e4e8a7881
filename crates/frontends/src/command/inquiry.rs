//! What a back end wants to know of a channel, or have done to it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use veche_hub::{Epoch, Query, Question, Since};

use super::{BadCommand, Text, bad, explain, is_object};

/// Most commands of a batch.
const COMMANDS_MAX: usize = 1000;

/// What is asked of a channel.
#[derive(Debug)]
pub struct Inquiry<'a> {
    /// Of which.
    pub channel: Text<'a>,
    /// What.
    pub question: Question,
}

/// A user and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User<'a> {
    #[serde(borrow)]
    user: Text<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pattern<'a> {
    #[serde(borrow)]
    pattern: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    commands: Vec<BTreeMap<String, Box<RawValue>>>,
    #[serde(default, rename = "parallel")]
    _parallel: bool,
}

/// A channel and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Alone<'a> {
    #[serde(borrow)]
    channel: Text<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow)]
    channel: Text<'a>,
    #[serde(default)]
    limit: i64,
    #[serde(borrow)]
    since: Option<Place<'a>>,
    #[serde(default)]
    reverse: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place<'a> {
    offset: u64,
    #[serde(borrow)]
    epoch: Option<Text<'a>>,
}

impl From<Place<'_>> for Since {
    fn from(place: Place<'_>) -> Self {
        let epoch = place.epoch.filter(|epoch| !epoch.0.is_empty());
        Self {
            epoch: epoch.map(|epoch| epoch.0.parse().unwrap_or(Epoch::UNKNOWN)),
            offset: place.offset,
        }
    }
}

/// Reads one object: `channel`, and `limit` (0: the position alone; -1: all), `since`, `reverse`.
pub fn parse_history(bytes: &[u8]) -> Result<Inquiry<'_>, BadCommand> {
    let wire: Wire<'_> = read(bytes)?;
    let query = Query {
        since: wire.since.map(Since::from),
        limit: usize::try_from(wire.limit).unwrap_or(usize::MAX),
        is_reverse: wire.reverse,
        ..Query::default()
    };
    Ok(Inquiry {
        channel: wire.channel,
        question: Question::History(query),
    })
}

/// Reads one object of nothing but a `channel`, of which this is asked.
pub fn parse_inquiry(bytes: &[u8], question: Question) -> Result<Inquiry<'_>, BadCommand> {
    let Alone { channel } = read(bytes)?;
    Ok(Inquiry { channel, question })
}

/// Reads one object of nothing but a `user`.
pub fn parse_user(bytes: &[u8]) -> Result<Text<'_>, BadCommand> {
    let User { user } = read(bytes)?;
    Ok(user)
}

/// Reads an object of nothing but a `pattern`, which may be missing, as may all of it.
pub fn parse_pattern(bytes: &[u8]) -> Result<Option<Text<'_>>, BadCommand> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let Pattern { pattern } = read(bytes)?;
    Ok(pattern.filter(|pattern| !pattern.0.is_empty()))
}

/// Reads `{"commands":[{"publish":{…}},…]}`. They are carried out one after the other whether `parallel` is said or not.
pub fn parse_batch(bytes: &[u8]) -> Result<Vec<(String, Box<RawValue>)>, BadCommand> {
    let Batch { commands, .. } = read(bytes)?;
    if commands.len() > COMMANDS_MAX {
        return Err(BadCommand(format!(
            "a batch has at most {COMMANDS_MAX} commands"
        )));
    }
    let only = |command: BTreeMap<String, Box<RawValue>>| {
        let mut entries = command.into_iter();
        match (entries.next(), entries.next()) {
            (Some(only), None) => Ok(only),
            _ => bad("each command is an object with one method, as in {\"publish\":{…}}"),
        }
    };
    commands.into_iter().map(only).collect()
}

pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, BadCommand> {
    is_object(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| BadCommand::new(explain(&error, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_history_are_read() {
        let query = |text: &str| {
            let command = parse_history(text.as_bytes()).map_err(|error| error.0)?;
            assert_eq!(command.channel.0, "chat:1");
            match command.question {
                Question::History(query) => Ok::<_, String>(query),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(query(r#"{"channel":"chat:1"}"#), Ok(Query::default()));
        let all = query(r#"{"channel":"chat:1","limit":-1,"reverse":true}"#);
        let all = all.expect("good");
        assert_eq!((all.limit, all.is_reverse), (usize::MAX, true));
        for (epoch, expected) in [
            (
                r#","epoch":"28t5cy4t""#,
                Some(Epoch::from_bits(0x12_3456_789a)),
            ),
            (r#","epoch":"foreign""#, Some(Epoch::UNKNOWN)),
            (r#","epoch":"""#, None),
            ("", None),
        ] {
            let text = format!(r#"{{"channel":"chat:1","since":{{"offset":7{epoch}}}}}"#);
            let since = query(&text).expect("good").since.expect("there");
            assert_eq!((since.epoch, since.offset), (expected, 7), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("[]", "expected a JSON object"),
            ("{}", "missing field `channel`"),
            (r#"{"channel":"c","limt":1}"#, "unknown field `limt`"),
            (r#"{"channel":"c","since":7}"#, "invalid type"),
            (r#"{"channel":"c","since":{"offset":-1}}"#, "invalid value"),
        ] {
            let error = parse_history(text.as_bytes()).expect_err("bad");
            assert!(error.0.contains(expected), "{text}: {error}");
        }
        let error = parse_inquiry(br#"{"channel":"c","limit":1}"#, Question::Presence);
        let error = error.expect_err("presence has no limit");
        assert!(error.0.contains("unknown field `limit`"), "{error}");
    }
}
