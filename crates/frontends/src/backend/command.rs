//! Commands of back ends as JSON objects: a push line, the body of an API call, a message on `/api/socket`.
//!
//! Bytes are parsed into a [`PublishCommand`] that borrows from them where possible; `execution` executes it.

mod bad_command;
mod bans;
mod channel_command;
mod connections;
mod user_command;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use bad_command::BadCommand;
use bad_command::bad;
pub(crate) use bad_command::retry_without_unknown_fields;
pub use bans::{
    parse_block_user, parse_invalidate_user_tokens, parse_revoke_token, parse_unblock_user,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub use channel_command::{
    BatchCommand, ChannelCommand, parse_batch, parse_channel_command, parse_history, parse_lines,
    parse_pattern, parse_user,
};
pub use connections::{ConnectionsOf, ConnectionsQuery, parse_connections};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;
pub use user_command::{
    AddressedCommand, parse_disconnect, parse_refresh, parse_subscribe, parse_unsubscribe,
};
use veche_hub::{PayloadKind, PayloadRef, PublicationInfo, PublishOptions, Version};

/// Maximum number of recipients of a command.
pub const TARGETS_MAX: usize = 1024;

/// Maximum length of idempotency keys and version epochs in bytes.
const OPTION_BYTES_MAX: usize = 128;

/// Maximum number of tags of a publication; [`TAGS_BYTES_MAX`] limits their total size in bytes.
const TAGS_MAX: usize = 32;
const TAGS_BYTES_MAX: usize = 4096;

/// A JSON string, borrowed unless it has escapes.
///
/// It is a separate type because serde would derive an owned `Cow` inside an `Option`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JsonText<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = JsonText<'de>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(JsonText(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(JsonText(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

/// The JSON object of a command. Unknown keys are errors, since ignoring an option could change the
/// effect of the command.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow)]
    user: Option<JsonText<'a>>,
    #[serde(borrow)]
    users: Option<Vec<JsonText<'a>>>,
    #[serde(borrow)]
    channel: Option<JsonText<'a>>,
    #[serde(borrow)]
    channels: Option<Vec<JsonText<'a>>>,
    /// The data; the JSON key may also be `message`.
    #[serde(borrow, default, alias = "message", deserialize_with = "even_null")]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    binary: Option<JsonText<'a>>,
    #[serde(borrow)]
    b64data: Option<JsonText<'a>>,
    #[serde(borrow)]
    tags: Option<BTreeMap<JsonText<'a>, JsonText<'a>>>,
    #[serde(borrow)]
    idempotency_key: Option<JsonText<'a>>,
    version: Option<u64>,
    #[serde(borrow)]
    version_epoch: Option<JsonText<'a>>,
    #[serde(default)]
    skip_history: bool,
    #[serde(default)]
    delta: bool,
    #[serde(default)]
    ack: bool,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// Deserialises a present `null` as `Some(null)`, a value to publish; serde's default would treat it as a missing
/// key.
fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The recipients of a publication.
#[derive(Debug, PartialEq, Eq)]
pub enum PublishTarget<'a> {
    /// Every connection of one user.
    User(JsonText<'a>),
    /// Every connection of any of these users.
    Users(Vec<JsonText<'a>>),
    /// Every subscriber of a channel.
    Channel(JsonText<'a>),
    /// Every subscriber of any of these channels.
    Channels(Vec<JsonText<'a>>),
}

impl PublishTarget<'_> {
    /// Returns the number of users or channels; each of them receives a separate publication.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::User(_) | Self::Channel(_) => 1,
            Self::Users(names) | Self::Channels(names) => names.len() as u64,
        }
    }

    /// Returns the `note` in the answer to a publication that reached no connection of its users; `None` for channels,
    /// which often have no subscribers.
    pub(crate) fn absence(&self) -> Option<&'static str> {
        match self {
            Self::User(_) => Some("the user has no connection"),
            Self::Users(_) => Some("none of the users has a connection"),
            Self::Channel(_) | Self::Channels(_) => None,
        }
    }
}

/// A command to publish to users or channels.
#[derive(Debug)]
pub struct PublishCommand<'a> {
    /// The recipients of the publication.
    pub target: PublishTarget<'a>,
    /// The data to publish. A command without data (`None`) is refused when it is executed.
    pub data: Option<PublishData<'a>>,
    /// Publish options that differ from the default.
    pub options: Option<Arc<PublishOptions>>,
    /// Whether a reply is requested, on transports where replies are optional.
    pub ack: bool,
    /// The caller's id, copied to the answer: compact JSON text of a number or a string.
    pub id: Option<&'a str>,
}

/// The data of a publication in the encoding of the command.
#[derive(Clone, Copy, Debug)]
pub enum PublishData<'a> {
    /// A JSON value: a string is pushed as its text, anything else as compact JSON.
    Json(&'a RawValue),
    /// A payload of this kind, decoded from base64 into the scratch buffer of [`parse`].
    Decoded(PayloadKind),
}

/// Parses one object. A binary payload is decoded into `scratch`.
pub fn parse<'a>(bytes: &'a [u8], scratch: &mut Vec<u8>) -> Result<PublishCommand<'a>, BadCommand> {
    let wire: Wire<'a> = read(bytes)?;
    let target = match (wire.user, wire.users, wire.channel, wire.channels) {
        (Some(user), None, None, None) => PublishTarget::User(user),
        (None, Some(users), None, None) => PublishTarget::Users(users),
        (None, None, Some(channel), None) => PublishTarget::Channel(channel),
        (None, None, None, Some(channels)) => PublishTarget::Channels(channels),
        (None, None, None, None) => {
            return bad("one of \"user\", \"users\", \"channel\", \"channels\" is missing");
        }
        _ => {
            return bad(
                "only one of \"user\", \"users\", \"channel\", \"channels\" may be set in one object",
            );
        }
    };
    if let PublishTarget::Users(list) | PublishTarget::Channels(list) = &target
        && (list.is_empty() || list.len() > TARGETS_MAX)
    {
        return bad("a list of recipients must have 1 to 1024 names");
    }
    let data = match (wire.data, wire.binary, wire.b64data) {
        (Some(value), None, None) => Some(PublishData::Json(value)),
        (None, Some(base64), None) => {
            decode("binary", &base64, scratch)?;
            Some(PublishData::Decoded(PayloadKind::Binary))
        }
        (None, None, Some(base64)) => {
            decode("b64data", &base64, scratch)?;
            Some(PublishData::Decoded(json_or_binary(scratch)))
        }
        (None, None, None) => None,
        _ => {
            return bad(
                "only one of \"data\" (or \"message\"), \"binary\" and \"b64data\" may be set in one object",
            );
        }
    };
    let id = wire.id.map(answer_id).transpose()?;
    let terms = options(
        wire.idempotency_key.as_ref(),
        wire.version,
        wire.version_epoch.as_ref(),
        (wire.skip_history, wire.delta),
        &wire.tags.unwrap_or_default(),
    )?;
    Ok(PublishCommand {
        target,
        data,
        options: terms,
        ack: wire.ack,
        id,
    })
}

/// Checks the id that the answer has to repeat, and returns its JSON text.
fn answer_id(id: &RawValue) -> Result<&str, BadCommand> {
    let id = id.get();
    let is_start = |sign: char| sign == '"' || sign == '-' || sign.is_ascii_digit();
    match id.len() <= 128 && id.starts_with(is_start) {
        true => Ok(id),
        false => bad("\"id\" must be a number or a string of at most 126 bytes"),
    }
}

/// Decodes base64 into `scratch`.
fn decode(name: &str, base64: &JsonText<'_>, scratch: &mut Vec<u8>) -> Result<(), BadCommand> {
    scratch.clear();
    let decoded = STANDARD.decode_vec(base64.0.as_bytes(), scratch);
    decoded.map_err(|_| {
        BadCommand::new(format!(
            "\"{name}\" is not base64 (standard alphabet, padded)"
        ))
    })
}

/// Returns whether bytes whose kind is not declared are JSON or binary; JSON is made compact in place.
fn json_or_binary(bytes: &mut Vec<u8>) -> PayloadKind {
    if let veche_centrifuge::PublicationData::Binary(_) =
        veche_centrifuge::PublicationData::of_bytes(bytes)
    {
        return PayloadKind::Binary;
    }
    if bytes.iter().any(u8::is_ascii_whitespace) {
        let json = std::mem::take(bytes);
        compact(&json, bytes);
    }
    PayloadKind::Json
}

/// Returns the publish options; `None` if all are the default.
fn options(
    key: Option<&JsonText<'_>>,
    version: Option<u64>,
    version_epoch: Option<&JsonText<'_>>,
    (skip_history, delta): (bool, bool),
    tags: &BTreeMap<JsonText<'_>, JsonText<'_>>,
) -> Result<Option<Arc<PublishOptions>>, BadCommand> {
    for (name, text) in [("idempotency_key", key), ("version_epoch", version_epoch)] {
        if text.is_some_and(|text| text.0.is_empty() || text.0.len() > OPTION_BYTES_MAX) {
            return Err(BadCommand::new(format!(
                "\"{name}\" must have 1 to {OPTION_BYTES_MAX} bytes"
            )));
        }
    }
    if version.is_some() && skip_history {
        return bad("\"version\" can't be combined with \"skip_history\"");
    }
    if version.is_none() && version_epoch.is_some() {
        return bad("\"version_epoch\" requires \"version\"");
    }
    let terms = PublishOptions {
        idempotency_key: key.map(|key| key.0.as_ref().into()),
        version: version.map(|number| Version {
            number,
            epoch: version_epoch.map_or("", |epoch| &epoch.0).into(),
        }),
        skip_history,
        info: info(tags)?,
        use_delta: delta,
    };
    Ok((terms != PublishOptions::default()).then(|| Arc::new(terms)))
}

/// Converts the tags of a command to the info of a publication. Returns `None` for an empty object, which thus has the
/// same effect as no tags.
fn info(
    tags: &BTreeMap<JsonText<'_>, JsonText<'_>>,
) -> Result<Option<Arc<PublicationInfo>>, BadCommand> {
    let bytes: usize = tags
        .iter()
        .map(|(name, value)| name.0.len() + value.0.len())
        .sum();
    if tags.len() > TAGS_MAX || bytes > TAGS_BYTES_MAX {
        return Err(BadCommand::new(format!(
            "\"tags\" may have at most {TAGS_MAX} names and {TAGS_BYTES_MAX} bytes in all"
        )));
    }
    let boxed = |text: &JsonText<'_>| text.0.as_ref().into();
    let tags: Box<[_]> = tags
        .iter()
        .map(|(name, value)| (boxed(name), boxed(value)))
        .collect();
    let info = || {
        Arc::new(PublicationInfo {
            tags,
            ..PublicationInfo::default()
        })
    };
    Ok((bytes > 0).then(info))
}

impl PublishData<'_> {
    /// Returns the payload for clients, written to `scratch` if it differs from the text of the command. For
    /// [`PublishData::Decoded`], `scratch` must be the buffer that [`parse`] filled.
    pub fn payload<'s>(self, scratch: &'s mut Vec<u8>) -> Result<PayloadRef<'s>, BadCommand>
    where
        Self: 's,
    {
        let value = match self {
            PublishData::Json(value) => value,
            PublishData::Decoded(kind) => {
                return Ok(PayloadRef {
                    kind,
                    bytes: scratch,
                });
            }
        };
        let text = value.get();
        if let Some(inner) = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
        {
            if !inner.contains('\\') {
                return Ok(PayloadRef {
                    kind: PayloadKind::Text,
                    bytes: inner.as_bytes(),
                });
            }
            // The string was not decoded before, so errors such as unpaired surrogates are found only here.
            let decoded: String = serde_json::from_str(text)
                .map_err(|error| BadCommand::new(format!("bad string in \"data\": {error}")))?;
            scratch.clear();
            scratch.extend_from_slice(decoded.as_bytes());
            return Ok(PayloadRef {
                kind: PayloadKind::Text,
                bytes: scratch,
            });
        }
        if !text.bytes().any(|byte| byte.is_ascii_whitespace()) {
            return Ok(PayloadRef {
                kind: PayloadKind::Json,
                bytes: text.as_bytes(),
            });
        }
        scratch.clear();
        compact(text.as_bytes(), scratch);
        Ok(PayloadRef {
            kind: PayloadKind::Json,
            bytes: scratch,
        })
    }
}

/// Copies valid JSON without white space between tokens.
fn compact(json: &[u8], out: &mut Vec<u8>) {
    let (mut in_string, mut escaped) = (false, false);
    for &byte in json {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = byte == b'\\' && !escaped;
        } else if byte.is_ascii_whitespace() {
            continue;
        } else {
            in_string = byte == b'"';
        }
        out.push(byte);
    }
}

/// Reads the JSON object of a command.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, BadCommand> {
    check_object(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| BadCommand::of_json(&error, bytes))
}

/// Checks that the text begins with `{`, since serde also accepts an array in place of a struct.
fn check_object(bytes: &[u8]) -> Result<(), BadCommand> {
    let mut text = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
    match text.next() {
        None | Some(b'{') => Ok(()),
        Some(_) => bad("expected a JSON object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(line: &str) -> Result<(PayloadKind, String), String> {
        let mut scratch = Vec::new();
        let command = parse(line.as_bytes(), &mut scratch).map_err(|error| error.reason)?;
        let data = command.data.ok_or("no data")?;
        let payload = data.payload(&mut scratch).map_err(|error| error.reason)?;
        Ok((
            payload.kind,
            String::from_utf8_lossy(payload.bytes).into_owned(),
        ))
    }

    #[test]
    fn a_string_is_pushed_verbatim_and_anything_else_as_compact_json() {
        for (line, kind, expected) in [
            (
                r#"{"user":"tester01","message":"test"}"#,
                PayloadKind::Text,
                "test",
            ),
            (
                r#"{"user":"u","data":"a\n\"\u00e4\ud83d\ude00"}"#,
                PayloadKind::Text,
                "a\n\"ä😀",
            ),
            (r#"{"user":"u","data":""}"#, PayloadKind::Text, ""),
            (
                r#"{"user":"u","data":{"a":1}}"#,
                PayloadKind::Json,
                r#"{"a":1}"#,
            ),
            (
                r#"{"user":"u","data": { "a b" : [ 1 , "\" x" ] } }"#,
                PayloadKind::Json,
                r#"{"a b":[1,"\" x"]}"#,
            ),
            (r#"{"user":"u","data":1.10}"#, PayloadKind::Json, "1.10"),
            (
                r#"{"user":"u","data":12345678901234567890123}"#,
                PayloadKind::Json,
                "12345678901234567890123",
            ),
            (r#"{"user":"u","data":null}"#, PayloadKind::Json, "null"),
            (
                r#"{"user":"u","binary":"AAEC"}"#,
                PayloadKind::Binary,
                "\u{0}\u{1}\u{2}",
            ),
        ] {
            assert_eq!(pushed(line), Ok((kind, expected.to_owned())), "{line}");
        }
        assert_eq!(pushed(r#"{"user":"u"}"#), Err("no data".to_owned()));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, expected) in [
            ("", "expected a JSON object, found nothing"),
            ("{", "bad JSON at column 1: EOF while parsing an object"),
            (r#"{"user":"u","mesage":"x"}"#, "unknown field `mesage`"),
            (r#"{"message":"x"}"#, "is missing"),
            (r#"{"user":"u","channel":"c","data":1}"#, "only one of"),
            (r#"{"user":"u","data":1,"message":2}"#, "duplicate field"),
            (
                r#"{"user":"u","data":1,"binary":"AA=="}"#,
                "only one of \"data\"",
            ),
            (r#"{"user":"u","binary":"*"}"#, "not base64"),
            (r#"{"users":[],"data":1}"#, "1 to 1024"),
            (r#"{"user":7,"data":1}"#, "expected a string"),
            (r#"{"user":"u","data":"\ud800"}"#, ""),
            (
                r#"{"user":"u","data":1,"id":{}}"#,
                "\"id\" must be a number",
            ),
            ("[1]", "expected a JSON object"),
        ] {
            let error = pushed(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert!(pushed(std::str::from_utf8(&[b'['; 100_000]).unwrap()).is_err());
    }

    fn publish_options(line: &str) -> Result<Option<Arc<PublishOptions>>, String> {
        let mut scratch = Vec::new();
        let command = parse(line.as_bytes(), &mut scratch).map_err(|error| error.reason)?;
        Ok(command.options)
    }

    #[test]
    fn limits_are_kept_to_the_byte() {
        let line = |more: &str| format!(r#"{{"channel":"c","data":1{more}}}"#);
        let key = |name: &str, length: usize| {
            line(&format!(
                r#","version":1,"{name}":"{}""#,
                "x".repeat(length)
            ))
        };
        let tags = |count: usize, value: usize| {
            let one = |number: usize| format!(r#""{number:02}":"{}""#, "x".repeat(value));
            let all: Vec<String> = (0..count).map(one).collect();
            line(&format!(r#","tags":{{{}}}"#, all.join(",")))
        };
        let users = |count: usize| {
            let all: Vec<String> = (0..count).map(|number| format!("\"{number}\"")).collect();
            format!(r#"{{"users":[{}],"data":1}}"#, all.join(","))
        };
        for (good, bad, what) in [
            (
                key("idempotency_key", 128),
                key("idempotency_key", 129),
                "1 to 128 bytes",
            ),
            (
                key("idempotency_key", 1),
                key("idempotency_key", 0),
                "1 to 128 bytes",
            ),
            (
                key("version_epoch", 128),
                key("version_epoch", 129),
                "1 to 128 bytes",
            ),
            (
                key("version_epoch", 1),
                key("version_epoch", 0),
                "1 to 128 bytes",
            ),
            (tags(32, 1), tags(33, 1), "at most 32 names"),
            (tags(32, 126), tags(32, 127), "4096 bytes in all"),
            (users(1_024), users(1_025), "1 to 1024"),
            (
                line(r#","version":1"#),
                line(r#","version":1,"skip_history":true"#),
                "can't be combined with",
            ),
            (
                line(""),
                line(r#","version_epoch":"e""#),
                "requires \"version\"",
            ),
        ] {
            assert!(
                publish_options(&good).is_ok(),
                "{good}: {:?}",
                publish_options(&good)
            );
            let error = publish_options(&bad).expect_err(&bad);
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn publish_options_are_parsed() {
        for plain in [
            r#"{"channel":"c","data":1}"#,
            r#"{"channel":"c","data":1,"tags":{},"skip_history":false,"delta":false}"#,
        ] {
            assert_eq!(publish_options(plain), Ok(None), "{plain}");
        }
        let line = r#"{"channel":"c","data":1,"idempotency_key":"k","version":7,"version_epoch":"e",
            "delta":true,"tags":{"b":"2","a":"1"}}"#;
        let terms = publish_options(line).expect("good").expect("some");
        let expected = PublishOptions {
            idempotency_key: Some("k".into()),
            version: Some(Version {
                number: 7,
                epoch: "e".into(),
            }),
            skip_history: false,
            info: Some(Arc::new(PublicationInfo {
                tags: Box::from([("a".into(), "1".into()), ("b".into(), "2".into())]),
                ..PublicationInfo::default()
            })),
            use_delta: true,
        };
        assert_eq!(*terms, expected);
        let passing = publish_options(r#"{"channel":"c","data":1,"skip_history":true}"#);
        assert!(passing.expect("good").expect("some").skip_history);
    }
}
