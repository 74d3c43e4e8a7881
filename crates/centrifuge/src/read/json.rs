//! JSON decoding of commands. Any white space may separate commands: clients send one command per line, and people with
//! curl may send anything. A `null` field counts as missing; only in data, `null` is a value.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::request::CommandBuilder;
use crate::{
    ClientRequest, ENTRIES_MAX, EmulationBody, MalformedMessage, PublicationData, SecretText,
    ServerSub, StreamPosition,
};

/// The commands of a message that are not decoded yet.
pub(super) type JsonStream<'a> =
    serde_json::StreamDeserializer<'a, serde_json::de::StrRead<'a>, CommandBuilder<'a>>;

/// Returns the commands of a message.
pub(super) fn stream(message: &str) -> JsonStream<'_> {
    serde_json::Deserializer::from_str(message).into_iter()
}

/// Returns the next command.
pub(super) fn next<'a>(
    stream: &mut JsonStream<'a>,
) -> Option<Result<CommandBuilder<'a>, MalformedMessage>> {
    Some(stream.next()?.map_err(|error| malformed(&error)))
}

/// Decodes the only object of a message.
pub(super) fn one<'a, T: Deserialize<'a>>(message: &'a str) -> Result<T, MalformedMessage> {
    match serde_json::from_str::<Object<T>>(message) {
        Ok(object) => Ok(object.0),
        Err(error) => Err(malformed(&error)),
    }
}

/// Keeps the location of a JSON error and drops its text, which repeats parts of the message.
fn malformed(error: &serde_json::Error) -> MalformedMessage {
    let (line, column) = (error.line(), error.column());
    match error.is_data() {
        true => MalformedMessage::Value { line, column },
        false => MalformedMessage::Json { line, column },
    }
}

/// Decodes a number or boolean; `null` becomes 0 or `false`.
pub(crate) fn zero<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Decodes a text, borrowed if it has no escapes.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    Text::deserialize(deserializer).map(|text| text.0)
}

/// Borrows application data unchanged.
pub(crate) fn data<'de, D>(deserializer: D) -> Result<Option<PublicationData<'de>>, D::Error>
where
    D: Deserializer<'de>,
{
    <&RawValue>::deserialize(deserializer).map(|raw| Some(PublicationData::Json(raw.get())))
}

pub(crate) fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let object = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(object.map(|object| object.0))
}

/// Borrows a raw value, to be decoded later if needed.
pub(crate) fn raw<'de, D>(deserializer: D) -> Result<Option<PublicationData<'de>>, D::Error>
where
    D: Deserializer<'de>,
{
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    Ok(raw.map(|raw| PublicationData::Json(raw.get())))
}

/// Decodes a list of texts.
pub(crate) fn texts<'de, D>(deserializer: D) -> Result<Vec<Cow<'de, str>>, D::Error>
where
    D: Deserializer<'de>,
{
    let texts: Vec<Text<'de>> = zero(deserializer)?;
    Ok(texts.into_iter().map(|text| text.0).collect())
}

/// Decodes a list of objects.
pub(crate) fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let objects = Option::<Vec<Object<T>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(objects.into_iter().map(|object| object.0).collect())
}

/// Decodes a text that must not be logged.
pub(crate) fn secret<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<SecretText<'de>, D::Error> {
    text(deserializer).map(SecretText)
}

/// Decodes a map of texts that must not be logged.
pub(crate) fn secrets<'de, D>(
    deserializer: D,
) -> Result<Vec<(Cow<'de, str>, SecretText<'de>)>, D::Error>
where
    D: Deserializer<'de>,
{
    let entries: Entries<'de, Text<'de>> = zero(deserializer)?;
    let entries = entries.0.into_iter();
    Ok(entries
        .map(|(name, value)| (name, SecretText(value.0)))
        .collect())
}

/// Decodes positions in server-side subscriptions.
pub(crate) fn subs<'de, D>(deserializer: D) -> Result<Vec<ServerSub<'de>>, D::Error>
where
    D: Deserializer<'de>,
{
    let entries: Entries<'de, Option<Object<Sub<'de>>>> = zero(deserializer)?;
    let entries = entries.0.into_iter();
    Ok(entries
        .map(|(channel, sub)| {
            let sub = sub.map(|sub| sub.0).unwrap_or_default();
            ServerSub {
                channel,
                recover: sub.recover,
                position: StreamPosition {
                    offset: sub.offset,
                    epoch: sub.epoch,
                },
                join_leave: sub.join_leave,
            }
        })
        .collect())
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Sub<'a> {
    #[serde(deserialize_with = "zero")]
    recover: bool,
    #[serde(deserialize_with = "zero")]
    offset: u64,
    #[serde(borrow, deserialize_with = "text")]
    epoch: Cow<'a, str>,
    #[serde(deserialize_with = "zero")]
    join_leave: bool,
}

/// A text that may be `null`.
#[derive(Default)]
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// Accepts only objects; serde would also accept an array for a struct.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// The entries of an object in order. One entry beyond [`ENTRIES_MAX`] is kept, so that the caller detects the excess.
struct Entries<'a, V>(Vec<(Cow<'a, str>, V)>);

impl<V> Default for Entries<'_, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<'de, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(Self::default()))
    }
}

struct EntriesVisitor<'a, V>(Entries<'a, V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<'de, V> {
    type Value = Entries<'de, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<Self::Value, M::Error> {
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if self.0.0.len() > ENTRIES_MAX {
                map.next_value::<IgnoredAny>()?;
            } else {
                self.0.0.push((name.0, map.next_value()?));
            }
        }
        Ok(self.0)
    }
}

/// The fields of a command.
#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum CommandField {
    Id,
    Connect,
    Subscribe,
    Unsubscribe,
    Publish,
    Presence,
    PresenceStats,
    History,
    Ping,
    Send,
    Rpc,
    Refresh,
    SubRefresh,
    #[serde(other)]
    Unknown,
}

impl<'de> Deserialize<'de> for CommandBuilder<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DraftVisitor(CommandBuilder::default()))
    }
}

struct DraftVisitor<'a>(CommandBuilder<'a>);

impl<'de> Visitor<'de> for DraftVisitor<'de> {
    type Value = CommandBuilder<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a command")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<Self::Value, M::Error> {
        while let Some(part) = map.next_key()? {
            let request = match part {
                CommandField::Id => {
                    self.0.id = map.next_value::<Option<u32>>()?.unwrap_or_default();
                    continue;
                }
                CommandField::Connect => request(&mut map)?.map(ClientRequest::Connect),
                CommandField::Subscribe => request(&mut map)?.map(ClientRequest::Subscribe),
                CommandField::Unsubscribe => request(&mut map)?.map(ClientRequest::Unsubscribe),
                CommandField::Publish => request(&mut map)?.map(ClientRequest::Publish),
                CommandField::Presence => request(&mut map)?.map(ClientRequest::Presence),
                CommandField::PresenceStats => request(&mut map)?.map(ClientRequest::PresenceStats),
                CommandField::History => request(&mut map)?.map(ClientRequest::History),
                CommandField::Ping => {
                    request::<EmptyObject, _>(&mut map)?.map(|_| ClientRequest::Ping)
                }
                CommandField::Send => request(&mut map)?.map(ClientRequest::Send),
                CommandField::Rpc => request(&mut map)?.map(ClientRequest::Rpc),
                CommandField::Refresh => request(&mut map)?.map(ClientRequest::Refresh),
                CommandField::SubRefresh => request(&mut map)?.map(ClientRequest::SubRefresh),
                CommandField::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                    None
                }
            };
            if let Some(request) = request {
                self.0.add(request);
            }
        }
        Ok(self.0)
    }
}

/// Decodes a request; `null` yields `None`.
fn request<'de, T, M>(map: &mut M) -> Result<Option<T>, M::Error>
where
    T: Deserialize<'de>,
    M: MapAccess<'de>,
{
    let object = map.next_value::<Option<Object<T>>>()?;
    Ok(object.map(|object| object.0))
}

/// An object whose fields are ignored.
#[derive(serde::Deserialize)]
struct EmptyObject {}

impl<'de> Deserialize<'de> for EmulationBody<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Envelope<'a> {
            #[serde(borrow, default, deserialize_with = "text")]
            session: Cow<'a, str>,
            #[serde(borrow, default, deserialize_with = "text")]
            node: Cow<'a, str>,
            #[serde(borrow, default, deserialize_with = "text")]
            data: Cow<'a, str>,
        }
        let envelope = Envelope::deserialize(deserializer)?;
        Ok(Self {
            session: envelope.session,
            node: envelope.node,
            data: match envelope.data {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
        })
    }
}
