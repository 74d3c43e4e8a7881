//! Conversion of publications and public client data to the types of the wire format.

use std::borrow::Cow;

use veche_centrifuge as wire;
use veche_centrifuge::{Encoding, PublicationData, TagsFilter};
use veche_hub::{ClientInfo, PayloadKind, PayloadRef, Position, PublicationInfo};

use crate::outbox::PublicationFilter;

/// Converts a payload for clients. Binary data that is valid JSON is sent as JSON, since some publishers can only
/// send their JSON as base64.
pub(crate) fn data(payload: PayloadRef<'_>) -> PublicationData<'_> {
    match (payload.kind, str::from_utf8(payload.bytes)) {
        (PayloadKind::Json, Ok(json)) => PublicationData::Json(json),
        (PayloadKind::Text, Ok(text)) => PublicationData::Text(text),
        _ => PublicationData::of_bytes(payload.bytes),
    }
}

/// Returns whether this encoding can send the payload as a delta or as the base of a delta.
/// Protobuf always can. JSON can't for binary data, which it sends as base64.
pub(crate) fn has_deltas(payload: PayloadRef<'_>, encoding: Encoding) -> bool {
    encoding == Encoding::Protobuf || !matches!(data(payload), PublicationData::Binary(_))
}

/// Returns a text payload as a JSON string, for Protobuf clients; `None` for other payloads and for
/// JSON. In Protobuf, data is bytes without a kind. With the quotes, a client that parses the bytes
/// as JSON can read a text publication too.
pub(crate) fn quoted(payload: PayloadRef<'_>, encoding: Encoding) -> Option<String> {
    if payload.kind != PayloadKind::Text || encoding != Encoding::Protobuf {
        return None;
    }
    let text = str::from_utf8(payload.bytes).ok()?;
    Some(serde_json::Value::from(text).to_string())
}

/// Returns the bytes of a publication from which deltas are computed. They are the same in both encodings: text is a
/// JSON string, as returned by [`quoted`].
pub(crate) fn whole(payload: PayloadRef<'_>) -> Cow<'_, [u8]> {
    match quoted(payload, Encoding::Protobuf) {
        Some(text) => Cow::Owned(text.into_bytes()),
        None => Cow::Borrowed(payload.bytes),
    }
}

/// Converts a delta for clients. It is sent as text if it is valid UTF-8, as deltas between texts are.
pub(crate) fn patch(bytes: &[u8]) -> PublicationData<'_> {
    match str::from_utf8(bytes) {
        Ok(text) => PublicationData::Text(text),
        Err(_) => PublicationData::Binary(bytes),
    }
}

pub(crate) fn as_json(text: &str) -> PayloadRef<'_> {
    PayloadRef {
        kind: PayloadKind::Json,
        bytes: text.as_bytes(),
    }
}

/// Converts a client's public data to the wire format's type.
pub(crate) fn client(info: &ClientInfo) -> wire::ClientInfo<'_> {
    wire::ClientInfo {
        user: &info.user,
        client: &info.client,
        conn_info: info.conn_info.as_ref().map(|info| data(info.borrow())),
        chan_info: info.chan_info.as_ref().map(|info| data(info.borrow())),
    }
}

/// The tag that contains the channel's name, for wildcard subscribers. The protocol has a field for the name, but
/// not all SDKs expose it.
const CHANNEL_TAG: &str = "channel";

/// Returns the tags of a publication, borrowed.
pub(crate) fn tags(info: Option<&PublicationInfo>) -> Vec<(&str, &str)> {
    let tags = info.map_or(&[][..], |info| &info.tags);
    let mut tags: Vec<_> = tags.iter().map(|(name, tag)| (&**name, &**tag)).collect();
    if let Some(channel) = info.and_then(|info| info.channel.as_deref())
        && !tags.iter().any(|(name, _)| *name == CHANNEL_TAG)
    {
        tags.push((CHANNEL_TAG, channel));
    }
    tags
}

/// Matches the filter against the tags that clients receive.
impl PublicationFilter for TagsFilter {
    fn selects(&self, info: Option<&PublicationInfo>) -> bool {
        self.matches(|name| {
            let info = info?;
            let found = info.tags.iter().find(|(one, _)| **one == *name);
            let channel = info.channel.as_deref().filter(|_| name == CHANNEL_TAG);
            found.map(|(_, tag)| &**tag).or(channel)
        })
    }
}

pub(crate) fn publication<'a>(
    payload: PayloadRef<'a>,
    position: Option<Position>,
    info: Option<&'a PublicationInfo>,
    tags: &'a [(&'a str, &'a str)],
) -> wire::Publication<'a> {
    wire::Publication {
        info: info.and_then(|info| info.client.as_deref()).map(client),
        offset: position.map_or(0, |position| position.offset),
        tags,
        channel: info
            .and_then(|info| info.channel.as_deref())
            .unwrap_or_default(),
        ..wire::Publication::new(data(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_is_a_tag_where_nothing_else_is_called_so() {
        let info = |tags: &[(&str, &str)], channel: Option<&str>| PublicationInfo {
            tags: tags
                .iter()
                .map(|(name, tag)| ((*name).into(), (*tag).into()))
                .collect(),
            channel: channel.map(Into::into),
            ..PublicationInfo::default()
        };
        let own = [("a", "1"), ("channel", "own")];
        for (info, expected) in [
            (info(&own[..1], None), &own[..1]),
            (info(&own[..1], Some("c")), &[("a", "1"), ("channel", "c")]),
            (info(&own, Some("c")), &own),
            (info(&[], Some("c")), &[("channel", "c")]),
        ] {
            assert_eq!(tags(Some(&info)), expected);
        }
        assert_eq!(tags(None), []);
    }

    #[test]
    fn a_publication_names_the_channel_for_wildcard_subscribers() {
        for (channel, expected) in [(None, ""), (Some("wide:1"), "wide:1")] {
            let info = PublicationInfo {
                channel: channel.map(Into::into),
                ..PublicationInfo::default()
            };
            let publication = publication(as_json("1"), None, Some(&info), &[]);
            assert_eq!(publication.channel, expected);
        }
    }
}
