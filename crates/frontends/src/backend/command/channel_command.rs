//! Commands of back ends that query a channel or remove its history.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use veche_hub::{ChannelQuery, Epoch, HistoryQuery, Since};

use super::bad_command::bad;
use super::{BadCommand, JsonText, answer_id, read};

/// Maximum number of commands per batch.
const COMMANDS_MAX: usize = 1000;

/// A query of a channel.
#[derive(Debug)]
pub struct ChannelCommand<'a> {
    /// The name of the channel.
    pub channel: JsonText<'a>,
    /// The query to be answered.
    pub query: ChannelQuery,
}

/// A JSON object whose only field is `user`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User<'a> {
    #[serde(borrow)]
    user: JsonText<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pattern<'a> {
    #[serde(borrow)]
    pattern: Option<JsonText<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    commands: Vec<BTreeMap<String, Box<RawValue>>>,
    #[serde(default, rename = "parallel")]
    _parallel: bool,
}

/// A JSON object whose only field is `channel`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Alone<'a> {
    #[serde(borrow)]
    channel: JsonText<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow)]
    channel: JsonText<'a>,
    #[serde(default)]
    limit: i64,
    #[serde(borrow)]
    since: Option<SincePosition<'a>>,
    #[serde(default)]
    reverse: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SincePosition<'a> {
    #[serde(default)]
    offset: u64,
    #[serde(borrow)]
    epoch: Option<JsonText<'a>>,
}

impl From<SincePosition<'_>> for Since {
    fn from(place: SincePosition<'_>) -> Self {
        let epoch = place.epoch.filter(|epoch| !epoch.0.is_empty());
        Self {
            epoch: epoch.map(|epoch| epoch.0.parse().unwrap_or(Epoch::UNKNOWN)),
            offset: place.offset,
        }
    }
}

/// Parses the body of `history`: `channel`, and optionally `limit` (0: only the position; -1: unlimited), `since`,
/// `reverse`.
pub fn parse_history(bytes: &[u8]) -> Result<ChannelCommand<'_>, BadCommand> {
    let wire: Wire<'_> = read(bytes)?;
    let query = HistoryQuery {
        since: wire.since.map(Since::from),
        limit: usize::try_from(wire.limit).unwrap_or(usize::MAX),
        is_reverse: wire.reverse,
        ..HistoryQuery::default()
    };
    Ok(ChannelCommand {
        channel: wire.channel,
        query: ChannelQuery::History(query),
    })
}

/// Parses an object whose only field is `channel`. Returns the command that applies `query` to that channel.
pub fn parse_channel_command(
    bytes: &[u8],
    query: ChannelQuery,
) -> Result<ChannelCommand<'_>, BadCommand> {
    let Alone { channel } = read(bytes)?;
    Ok(ChannelCommand { channel, query })
}

/// Parses an object whose only field is `user`, and returns the user.
pub fn parse_user(bytes: &[u8]) -> Result<JsonText<'_>, BadCommand> {
    let User { user } = read(bytes)?;
    Ok(user)
}

/// Parses an object whose only field is an optional `pattern`. The body may be empty.
pub fn parse_pattern(bytes: &[u8]) -> Result<Option<JsonText<'_>>, BadCommand> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let Pattern { pattern } = read(bytes)?;
    Ok(pattern.filter(|pattern| !pattern.0.is_empty()))
}

/// A command of a batch.
#[derive(Debug)]
pub struct BatchCommand {
    /// The name of the command's method.
    pub method: String,
    /// The JSON object that the method receives.
    pub body: Box<RawValue>,
    /// The caller's id, copied to the answer: compact JSON text of a number or a string.
    pub id: Option<Box<str>>,
}

/// Parses `{"commands":[{"publish":{…}},…]}`; each command may have an `id`. `parallel` is accepted and ignored:
/// commands are executed in order.
pub fn parse_batch(bytes: &[u8]) -> Result<Vec<BatchCommand>, BadCommand> {
    let Batch { commands, .. } = read(bytes)?;
    let only = |mut command: BTreeMap<String, Box<RawValue>>| {
        let id = command.remove("id");
        let mut entries = command.into_iter();
        match (entries.next(), entries.next()) {
            (Some((method, body)), None) => numbered(method, body, id.as_deref()),
            _ => bad("each command must be an object with one method, as in {\"publish\":{…}}"),
        }
    };
    check_count(commands)?.into_iter().map(only).collect()
}

/// Parses a sequence of legacy commands, `{"method":"publish","params":{…}}`.
pub fn parse_lines(bytes: &[u8]) -> Result<Vec<BatchCommand>, BadCommand> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        method: JsonText<'a>,
        params: Option<Box<RawValue>>,
        id: Option<Box<RawValue>>,
    }
    let lines = serde_json::Deserializer::from_slice(bytes).into_iter::<&RawValue>();
    let lines: Result<Vec<_>, _> = lines.take(COMMANDS_MAX + 1).collect();
    let lines = check_count(lines.map_err(|error| BadCommand::of_json(&error, bytes))?)?;
    let lines = lines
        .into_iter()
        .map(|line| read::<Line<'_>>(line.get().as_bytes()))
        .collect::<Result<Vec<_>, _>>()?;
    if lines.is_empty() {
        return bad("expected commands, as in {\"method\":\"publish\",\"params\":{…}}");
    }
    let none = || RawValue::from_string("{}".to_owned()).expect("an object");
    let one = |line: Line<'_>| {
        let method = line.method.0.to_ascii_lowercase();
        numbered(method, line.params.unwrap_or_else(none), line.id.as_deref())
    };
    lines.into_iter().map(one).collect()
}

fn check_count<T>(commands: Vec<T>) -> Result<Vec<T>, BadCommand> {
    match commands.len() <= COMMANDS_MAX {
        true => Ok(commands),
        false => Err(BadCommand::new(format!(
            "a batch may have at most {COMMANDS_MAX} commands"
        ))),
    }
}

fn numbered(
    method: String,
    body: Box<RawValue>,
    id: Option<&RawValue>,
) -> Result<BatchCommand, BadCommand> {
    let id = id.map(answer_id).transpose()?.map(Box::from);
    Ok(BatchCommand { method, body, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_history_are_read() {
        let query = |text: &str| {
            let command = parse_history(text.as_bytes()).map_err(|error| error.reason)?;
            assert_eq!(command.channel.0, "chat:1");
            match command.query {
                ChannelQuery::History(query) => Ok::<_, String>(query),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            query(r#"{"channel":"chat:1"}"#),
            Ok(HistoryQuery::default())
        );
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
            assert!(error.reason.contains(expected), "{text}: {error}");
        }
        let error = parse_channel_command(br#"{"channel":"c","limit":1}"#, ChannelQuery::Presence);
        let error = error.expect_err("presence has no limit");
        assert!(error.reason.contains("unknown field `limit`"), "{error}");
    }

    #[test]
    fn commands_of_the_old_form_are_objects() {
        let methods = |text: &str| {
            let lines = parse_lines(text.as_bytes()).map_err(|error| error.reason)?;
            Ok::<_, String>(
                lines
                    .into_iter()
                    .map(|line| line.method)
                    .collect::<Vec<_>>(),
            )
        };
        let two = "{\"method\":\"info\"}\n{\"method\":\"Channels\",\"params\":{}}";
        assert_eq!(methods(two).expect("good"), ["info", "channels"]);
        for text in [
            r#"["info",{},1]"#,
            r#"{"method":"info"}["channels",{},2]"#,
            "7",
        ] {
            let expected = Err("expected a JSON object".to_owned());
            assert_eq!(methods(text), expected, "{text}");
        }
    }
}
